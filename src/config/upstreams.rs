//! `[[upstream]]`: where requests go.

use super::file::{Auth, File, UpstreamFile};
use super::mistakes::Mistakes;
use crate::engine::{self, ENGINES, Engine};
use crate::request::responses::Way;
use crate::secret::{self, Secret};
use http::Uri;

/// One upstream.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Its name in logs and metrics.
    pub name: String,
    /// Its host, as written.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What stands before `/v1` in its paths; usually nothing.
    pub prefix: String,
    /// What it is.
    pub engine: &'static Engine,
    /// The models it serves, where they are named.
    pub models: Vec<String>,
    /// How much of the traffic it gets beside others; 0: no new request.
    pub weight: u32,
    /// Its credentials.
    pub auth: Credentials,
    /// How Responses reaches it.
    pub responses: Way,
}

/// What an engine sees as `authorization`.
#[derive(Clone)]
pub enum Credentials {
    /// Nothing.
    None,
    /// What the client sent.
    Pass,
    /// A key of the proxy.
    Own(Secret),
}

impl Credentials {
    /// What the engine refuses in them is none of the client's doing (wire-format 3.4).
    pub fn are_ours(&self) -> bool {
        !matches!(self, Self::Pass)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Pass => "pass",
            Self::Own(_) => "own",
        })
    }
}

impl UpstreamConfig {
    /// All of them, with names of their own.
    pub(super) fn all(file: &File, mistakes: &mut Mistakes) -> Option<Vec<Self>> {
        if file.upstream.is_empty() {
            return mistakes
                .none("upstream", "no engine is named; give its address with --upstream http://HOST:PORT");
        }
        let all = file.upstream.iter().enumerate();
        let all: Vec<_> = all.map(|(at, one)| Self::meant(at, one, file, mistakes)).collect();
        for (at, one) in all.iter().enumerate().filter_map(|(at, one)| Some((at, one.as_ref()?))) {
            let mut before = all.iter().take(at);
            if let Some(other) =
                before.position(|other| other.as_ref().is_some_and(|other| other.name == one.name))
            {
                let why = format!("\"{}\" is the name of upstream[{other}] already", one.name);
                mistakes.add(format!("upstream[{at}].name"), why);
            }
        }
        if file.upstream.iter().all(|upstream| upstream.weight == 0) {
            mistakes.add("upstream", "every weight is 0: no engine would be asked");
        }
        all.into_iter().collect()
    }

    fn meant(at: usize, file: &UpstreamFile, all: &File, mistakes: &mut Mistakes) -> Option<Self> {
        let path = |key: &str| format!("upstream[{at}].{key}");
        let target = target(&file.url).map_err(|why| mistakes.add(path("url"), why)).ok();
        let engine = engine::named(&file.engine).or_else(|| {
            let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
            let why = format!("unknown engine; one of {}", names.join(", "));
            mistakes.none(&path("engine"), why)
        });
        if file.weight > 1000 {
            mistakes.add(path("weight"), "must be at most 1000");
        }
        let auth = credentials(&path("api_key_file"), file, all.checks_keys(), mistakes);
        let (host, port, prefix) = target?;
        Some(Self {
            name: if file.name.is_empty() { format!("{host}:{port}") } else { file.name.clone() },
            host,
            port,
            prefix,
            engine: engine?,
            models: file.models.clone(),
            weight: file.weight,
            auth: auth?,
            responses: file.responses,
        })
    }
}

/// Host, port and the path before `/v1`.
fn target(url: &str) -> Result<(String, u16, String), String> {
    if url.is_empty() {
        return Err("missing; an address such as http://127.0.0.1:8000".to_owned());
    }
    let example = || "must be an address such as http://127.0.0.1:8000".to_owned();
    let uri: Uri = url.parse().map_err(|_| example())?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err("https is not supported by this version; use http".to_owned()),
        _ => return Err(example()),
    }
    let authority = uri.authority().ok_or_else(example)?;
    if authority.as_str().contains('@') {
        return Err("must not carry a user name or password; use api_key_file".to_owned());
    }
    if uri.query().is_some() || authority.host().is_empty() {
        return Err(example());
    }
    let path = uri.path().trim_end_matches('/');
    let prefix = path.strip_suffix("/v1").unwrap_or(path);
    Ok((authority.host().to_owned(), authority.port_u16().unwrap_or(80), prefix.to_owned()))
}

/// `auto`: a key of the proxy's own if one is given. Else the client's passes where samewire itself checks none; a key of
/// ours says nothing to the engine, and is not its business.
fn credentials(
    path: &str,
    file: &UpstreamFile,
    checks_keys: bool,
    mistakes: &mut Mistakes,
) -> Option<Credentials> {
    let given = !file.api_key_file.as_os_str().is_empty();
    match file.auth {
        Auth::None => Some(Credentials::None),
        Auth::Pass => Some(Credentials::Pass),
        Auth::Auto if !given && checks_keys => Some(Credentials::None),
        Auth::Auto if !given => Some(Credentials::Pass),
        Auth::Own if !given => mistakes.none(path, "missing, although auth = \"own\""),
        Auth::Auto | Auth::Own => {
            let key = match secret::read(&file.api_key_file) {
                Ok(key) => key,
                Err(why) => return mistakes.none(path, why),
            };
            let own = Secret::behind("Bearer ", key.trim()).map(Credentials::Own);
            own.or_else(|| mistakes.none(path, "the file holds no key"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_engines() {
        for (url, host, port, prefix) in [
            ("http://127.0.0.1:8000", "127.0.0.1", 8000, ""),
            ("http://127.0.0.1:8000/", "127.0.0.1", 8000, ""),
            ("http://vllm:8000/v1", "vllm", 8000, ""),
            ("http://vllm:8000/v1/", "vllm", 8000, ""),
            ("http://gateway/a/v1", "gateway", 80, "/a"),
            ("http://[::1]:30000", "[::1]", 30000, ""),
        ] {
            assert_eq!(target(url), Ok((host.to_owned(), port, prefix.to_owned())), "{url}");
        }
        for url in [
            "",
            "127.0.0.1:8000",
            "ftp://a",
            "https://a",
            "http://u:p@a",
            "http://a?b",
            "http://",
            "http:// a",
        ] {
            assert!(target(url).is_err(), "{url}");
        }
    }
}
