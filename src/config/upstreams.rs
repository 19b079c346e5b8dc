//! `[[upstream]]`: where requests go.

use super::file::{Auth, File, FrontEnd, HttpVersion, UpstreamFile};
use super::mistakes::Mistakes;
use super::{relay, tls};
use crate::engine::{self, ENGINES, Engine, Front, Identity, Version};
use crate::nearest::suggest;
use crate::request::responses::ResponsesMode;
use crate::secret::{self, Secret};
use crate::tls::Trust;
use http::Uri;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// One upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// Its name in logs and metrics.
    pub name: String,
    /// Its host, as written.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What it must prove before it is asked, where its address begins with https.
    pub tls: Option<Trust>,
    /// In what it is spoken to.
    pub http: HttpVersion,
    /// What stands before `/v1` in its paths; usually nothing.
    pub prefix: String,
    /// What it is.
    pub engine: &'static Engine,
    /// Its version, where it is written.
    pub version: Option<Version>,
    /// What answers in front of it, where it is written.
    pub front: Option<Front>,
    /// The models it serves, where they are named.
    pub models: Vec<String>,
    /// How much of the traffic it gets beside others; 0: no new request.
    pub weight: u32,
    /// Its credentials.
    pub auth: Credentials,
    /// How Responses reaches it.
    pub responses: ResponsesMode,
}

/// What an engine sees as `authorization`.
#[derive(Clone, PartialEq)]
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
    /// What is known of the engine, if this was found: what is written counts.
    pub fn identity(&self, found: Identity) -> Identity {
        Identity {
            version: self.version.or(found.version),
            front: self.front.unwrap_or(found.front),
            ..found
        }
    }

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
            mistakes.none(&path("engine"), suggest(why, &file.engine, names))
        });
        let (version, front) = said(file, engine, &path, mistakes);
        if file.weight > 1000 {
            mistakes.add(path("weight"), "must be at most 1000");
        }
        let auth = credentials(&path("api_key_file"), file, all.checks_keys(), mistakes);
        let Target { host, port, prefix, secure } = target?;
        let tls = tls::trust(file, (&host, secure), &path, mistakes);
        Some(Self {
            name: if file.name.is_empty() { format!("{host}:{port}") } else { file.name.clone() },
            host,
            port,
            tls,
            http: file.http,
            prefix,
            engine: engine?,
            version,
            front,
            models: file.models.clone(),
            weight: file.weight,
            auth: auth?,
            responses: file.responses,
        })
    }
}

/// Version and front end, where they are written. They say something only of an engine that is named.
fn said(
    file: &UpstreamFile,
    engine: Option<&'static Engine>,
    path: &dyn Fn(&str) -> String,
    mistakes: &mut Mistakes,
) -> (Option<Version>, Option<Front>) {
    let is_open = file.engine == "auto";
    let version = match file.engine_version.as_str() {
        "" => None,
        _ if is_open => {
            mistakes.none(&path("engine_version"), "says nothing while engine = \"auto\"; name the engine")
        }
        text => match text.parse() {
            Ok(version) => Some(version),
            Err(_) => mistakes.none(&path("engine_version"), "must be a release such as 0.21.0"),
        },
    };
    let front = match file.front_end {
        FrontEnd::Auto => None,
        FrontEnd::Own => Some(Front::Own),
        FrontEnd::Rust if engine.is_none_or(|engine| engine.name == "vllm") => Some(Front::Rust),
        FrontEnd::Rust => {
            mistakes.none(&path("front_end"), "only vllm has one in Rust; name it as the engine")
        }
    };
    (version, front)
}

/// What an address says.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    /// The path before `/v1`.
    prefix: String,
    secure: bool,
}

fn target(url: &str) -> Result<Target, String> {
    if url.is_empty() {
        return Err("missing; an address such as http://127.0.0.1:8000".to_owned());
    }
    let example = || "must be an address such as http://127.0.0.1:8000".to_owned();
    let bare = || without_scheme(url).unwrap_or_else(example);
    let uri: Uri = url.parse().map_err(|_| bare())?;
    let (secure, usual) = match uri.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err(bare()),
    };
    let authority = uri.authority().ok_or_else(example)?;
    if authority.as_str().contains('@') {
        return Err("must not carry a user name or password; use api_key_file".to_owned());
    }
    if uri.query().is_some() || authority.host().is_empty() {
        return Err(example());
    }
    // A port that is none is not the usual one.
    let written = authority.as_str().strip_prefix(authority.host()).unwrap_or("");
    let port = match written.strip_prefix(':').map(str::parse::<u16>) {
        None => usual,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return Err("the port must be a number from 1 to 65535".to_owned()),
    };
    let path = uri.path().trim_end_matches('/');
    if let Some(base) = relay::before_route(path) {
        let scheme = if secure { "https" } else { "http" };
        return Err(format!(
            "must not name a route, which samewire adds: write {scheme}://{authority}{base}"
        ));
    }
    let prefix = path.strip_suffix("/v1").unwrap_or(path);
    Ok(Target { host: authority.host().to_owned(), port, prefix: prefix.to_owned(), secure })
}

/// Says of an address without its scheme how it would be written. Only one with a port, or of this machine, is repeated:
/// anything else may be a secret in the wrong place.
fn without_scheme(url: &str) -> Option<String> {
    let whole = format!("http://{url}");
    let uri: Uri = whole.parse().ok().filter(|_| !url.contains("://"))?;
    let is_address = uri.port_u16().is_some()
        || uri.host().is_some_and(|host| host == "localhost" || host.parse::<Ipv4Addr>().is_ok());
    let base = relay::before_route(uri.path()).unwrap_or_else(|| uri.path());
    let written = format!("http://{}{}", uri.authority()?, base.trim_end_matches('/'));
    (is_address && target(&written).is_ok()).then(|| format!("http:// is missing: write {written}"))
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

/// Notes upstreams that are where samewire itself listens: `name` is the key of that address.
pub(super) fn check_loops(all: &[UpstreamConfig], name: &str, listen: SocketAddr, mistakes: &mut Mistakes) {
    for (at, upstream) in all.iter().enumerate() {
        if upstream.port == listen.port() && is_here(&upstream.host, listen.ip()) {
            let why = format!(
                "samewire itself listens there ({name} = \"{listen}\"): requests would go round in a circle; give one of them another \
                 port"
            );
            mistakes.add(format!("upstream[{at}].url"), why);
        }
    }
}

/// Whether a host is this machine at an address where samewire listens.
fn is_here(host: &str, listen: IpAddr) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => ip == listen || ip.is_unspecified() || ip.is_loopback() && listen.is_unspecified(),
        Err(_) => host.eq_ignore_ascii_case("localhost") && (listen.is_loopback() || listen.is_unspecified()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_engines() {
        for (url, host, port, prefix, secure) in [
            ("http://127.0.0.1:8000", "127.0.0.1", 8000, "", false),
            ("http://127.0.0.1:8000/", "127.0.0.1", 8000, "", false),
            ("http://vllm:8000/v1", "vllm", 8000, "", false),
            ("http://vllm:8000/v1/", "vllm", 8000, "", false),
            ("http://gateway/a/v1", "gateway", 80, "/a", false),
            ("http://[::1]:30000", "[::1]", 30000, "", false),
            ("https://gateway/a/v1", "gateway", 443, "/a", true),
            ("https://vllm:8443", "vllm", 8443, "", true),
        ] {
            let expected = Target { host: host.to_owned(), port, prefix: prefix.to_owned(), secure };
            assert_eq!(target(url), Ok(expected), "{url}");
        }
        let ports = [
            "http://a:99999",
            "http://a:0",
            "http://a:",
            "http://a:80x",
            "http://a:-1",
            "https://[::1]:70000",
        ];
        let others = ["", "127.0.0.1:8000", "ftp://a", "http://u:p@a", "http://a?b", "http://", "http:// a"];
        for url in ports.into_iter().chain(others) {
            assert!(target(url).is_err(), "{url}");
        }
    }

    #[test]
    fn what_is_nearly_an_address_is_told_as_one() {
        for (url, written) in [
            ("localhost:8000", "http:// is missing: write http://localhost:8000"),
            ("127.0.0.1:8000/v1", "http:// is missing: write http://127.0.0.1:8000/v1"),
            ("vllm:8000", "http:// is missing: write http://vllm:8000"),
            ("localhost", "http:// is missing: write http://localhost"),
            ("localhost:8000/v1/chat/completions", "http:// is missing: write http://localhost:8000/v1"),
            ("http://a:1/v1/chat/completions", "write http://a:1/v1"),
            ("http://a:1/v1/chat/completions/", "write http://a:1/v1"),
            ("https://a/openai/chat/completions", "write https://a/openai"),
            ("http://a:1/v1/responses", "write http://a:1/v1"),
            ("http://a:1/b/v1/models", "write http://a:1/b/v1"),
            ("http://a:1/v1/rerank", "write http://a:1/v1"),
            ("http://a:1/health", "write http://a:1"),
        ] {
            let told = target(url).unwrap_err();
            assert!(told.ends_with(written), "{url}: {told}");
        }
        for url in ["sk-CANARY", "sk-CANARY:sk-CANARY", "CANARY.a.b", "u:CANARY@h:1", "ftp://CANARY:1"] {
            assert_eq!(
                target(url),
                Err("must be an address such as http://127.0.0.1:8000".to_owned()),
                "{url}"
            );
        }
        for url in ["http://a/models", "http://a/openai", "http://a/v1/openai", "http://a/healthy"] {
            assert!(target(url).is_ok(), "{url}");
        }
    }
}
