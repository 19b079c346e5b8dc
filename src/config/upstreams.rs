//! Entries `[[upstream]]`: checks the engines that requests are sent to, and reads their keys and certificates.

use super::mistakes::Mistakes;
use super::upstream_file::{Auth, FrontEnd, HttpVersion, UpstreamFile};
use super::{relay, tls};
use crate::engine::{self, ENGINES, Engine, EngineIdentity, EngineVersion, Front};
use crate::nearest::suggest;
use crate::request::messages::MessagesMode;
use crate::request::responses::ResponsesMode;
use crate::secret::{self, Secret};
use crate::tls::Trust;
use http::Uri;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Checked settings of one upstream: its address, engine and credentials, with the files that they need already
/// read.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// Name in logs and metrics; `HOST:PORT` if the configuration gives none.
    pub name: String,
    /// Host, as written in the URL: a name or an address.
    pub host: String,
    /// Port; 80 or 443 if the URL contains none.
    pub port: u16,
    /// Requirements on the engine's certificate, for an https URL; `None`: plain text.
    pub tls: Option<Trust>,
    /// HTTP version of connections to the upstream.
    pub http: HttpVersion,
    /// Label selector of the Services whose pods the upstream stands for; `None`: it stands for its URL alone.
    pub pods: Option<Arc<str>>,
    /// Path prefix before `/v1`; usually empty.
    pub prefix: String,
    /// Engine behind the upstream; `auto` until probes detect it.
    pub engine: &'static Engine,
    /// Version of the engine, if configured.
    pub version: Option<EngineVersion>,
    /// Front end of the engine, if configured.
    pub front: Option<Front>,
    /// Models that the upstream serves, if configured; otherwise the engine is queried.
    pub models: Vec<String>,
    /// Share of the traffic relative to other upstreams; 0: no new requests.
    pub weight: u32,
    /// Credentials that requests to the upstream carry.
    pub auth: Credentials,
    /// Method of serving Responses requests with this upstream.
    pub responses: ResponsesMode,
    /// Method of serving Messages requests with this upstream.
    pub messages: MessagesMode,
}

/// Credentials that an engine receives in `authorization`. `Debug` output contains no key.
#[derive(Clone, Debug, PartialEq)]
pub enum Credentials {
    /// Omits the header, so the engine gets no credentials.
    None,
    /// Client's own `authorization` header, unchanged.
    Pass,
    /// Key of the proxy, wiped from memory on drop.
    Own(Secret),
}

impl Credentials {
    /// Returns true unless the client's own credentials are sent. If so, a refusal by the engine is not the
    /// client's fault (wire-format 3.4).
    pub fn are_ours(&self) -> bool {
        !matches!(self, Self::Pass)
    }

    /// Returns samewire's own key, if the engine receives it.
    pub fn own_key(&self) -> Option<&Secret> {
        match self {
            Self::Own(key) => Some(key),
            Self::None | Self::Pass => None,
        }
    }
}

impl UpstreamConfig {
    /// Combines the detected identity of the engine with the configuration, which takes precedence.
    pub fn identity(&self, found: EngineIdentity) -> EngineIdentity {
        EngineIdentity {
            version: self.version.or(found.version),
            front: self.front.unwrap_or(found.front),
            ..found
        }
    }

    /// Checks all entries. Reports duplicate names, and a configuration in which no upstream can get requests.
    pub(super) fn all(
        files: &[UpstreamFile],
        checks_keys: bool,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<Self>> {
        if files.is_empty() {
            return mistakes.add_none(
                "upstream",
                "no engine is named; give its address with --upstream http://HOST:PORT",
            );
        }
        let all = files.iter().enumerate();
        let all: Vec<_> = all
            .map(|(at, one)| Self::resolve(at, one, checks_keys, mistakes))
            .collect();
        for (at, one) in all
            .iter()
            .enumerate()
            .filter_map(|(at, one)| Some((at, one.as_ref()?)))
        {
            let mut before = all.iter().take(at);
            if let Some(other) =
                before.position(|other| other.as_ref().is_some_and(|other| other.name == one.name))
            {
                let why = format!("\"{}\" is the name of upstream[{other}] already", one.name);
                mistakes.add(format!("upstream[{at}].name"), why);
            }
        }
        if files.iter().all(|upstream| upstream.weight == 0) {
            mistakes.add("upstream", "every weight is 0: no engine would be asked");
        }
        all.into_iter().collect()
    }

    fn resolve(
        at: usize,
        file: &UpstreamFile,
        checks_keys: bool,
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let path = |key: &str| format!("upstream[{at}].{key}");
        let target = target(&file.url)
            .map_err(|why| mistakes.add(path("url"), why))
            .ok();
        let engine = engine::named(&file.engine).or_else(|| {
            let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
            let why = format!("unknown engine; one of {}", names.join(", "));
            mistakes.add_none(&path("engine"), suggest(why, &file.engine, names))
        });
        let (version, front) = configured_identity(file, engine, &path, mistakes);
        if !is_selector(&file.pods) {
            mistakes.add(path("pods"), "must be a label selector such as app=vllm");
        }
        let auth = credentials(&path("api_key_file"), file, checks_keys, mistakes);
        let TargetTable {
            host,
            port,
            prefix,
            secure,
        } = target?;
        let tls = tls::trust(file, (&host, secure), &path, mistakes);
        Some(Self {
            name: if file.name.is_empty() {
                format!("{host}:{port}")
            } else {
                file.name.clone()
            },
            host,
            port,
            tls,
            http: file.http,
            pods: Some(file.pods.as_str())
                .filter(|selector| !selector.is_empty())
                .map(Into::into),
            prefix,
            engine: engine?,
            version,
            front,
            models: file.models.clone(),
            weight: file.weight,
            auth: auth?,
            responses: file.responses,
            messages: file.messages,
        })
    }
}

/// Returns true if the text may be a label selector of Kubernetes, or is empty. The API has the last word.
fn is_selector(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=!,() ".contains(&byte);
    text.bytes().all(is_allowed) && (text.is_empty() || !text.trim().is_empty())
}

/// Returns the configured version and front end. Both are valid only if the engine is named.
fn configured_identity(
    file: &UpstreamFile,
    engine: Option<&'static Engine>,
    path: &dyn Fn(&str) -> String,
    mistakes: &mut Mistakes,
) -> (Option<EngineVersion>, Option<Front>) {
    let is_open = file.engine == "auto";
    let version = match file.engine_version.as_str() {
        "" => None,
        _ if is_open => mistakes.add_none(
            &path("engine_version"),
            "says nothing while engine = \"auto\"; name the engine",
        ),
        text => match text.parse() {
            Ok(version) => Some(version),
            Err(_) => {
                mistakes.add_none(&path("engine_version"), "must be a release such as 0.21.0")
            }
        },
    };
    let front = match file.front_end {
        FrontEnd::Auto => None,
        FrontEnd::Own => Some(Front::Own),
        FrontEnd::Rust if engine.is_none_or(|engine| engine.name == "vllm") => Some(Front::Rust),
        FrontEnd::Rust => mistakes.add_none(
            &path("front_end"),
            "only vllm has one in Rust; name it as the engine",
        ),
    };
    (version, front)
}

/// Parts of an upstream's URL, after validation.
#[derive(Debug, PartialEq, Eq)]
struct TargetTable {
    host: String,
    port: u16,
    /// Path before `/v1`.
    prefix: String,
    secure: bool,
}

fn target(url: &str) -> Result<TargetTable, String> {
    if url.is_empty() {
        return Err("missing; an address such as http://127.0.0.1:8000".to_owned());
    }
    let example = "http://127.0.0.1:8000";
    let (uri, port) = server_url(url, example, "api_key_file")?;
    if uri.query().is_some() {
        return Err(format!("must be an address such as {example}"));
    }
    let secure = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let path = uri.path().trim_end_matches('/');
    if let Some(base) = relay::before_route(path) {
        let scheme = if secure { "https" } else { "http" };
        return Err(format!(
            "must not name a route, which samewire adds: write {scheme}://{authority}{base}"
        ));
    }
    let prefix = path.strip_suffix("/v1").unwrap_or(path);
    Ok(TargetTable {
        host: host.to_owned(),
        port,
        prefix: prefix.to_owned(),
        secure,
    })
}

/// Reads the URL of a server, and returns it with its port. `example`: such a URL. `secret`: the key that takes what a
/// user name or password would be for.
pub(super) fn server_url(url: &str, example: &str, secret: &str) -> Result<(Uri, u16), String> {
    let example = || format!("must be an address such as {example}");
    let bare = || without_scheme(url).unwrap_or_else(example);
    let uri: Uri = url.parse().map_err(|_| bare())?;
    let usual = match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(bare()),
    };
    let authority = uri.authority().ok_or_else(example)?;
    if authority.as_str().contains('@') {
        return Err(format!(
            "must not carry a user name or password; use {secret}"
        ));
    }
    if authority.host().is_empty() {
        return Err(example());
    }
    // An invalid port is a mistake, and not replaced by the default.
    let written = authority
        .as_str()
        .strip_prefix(authority.host())
        .unwrap_or("");
    match written.strip_prefix(':').map(str::parse::<u16>) {
        None => Ok((uri, usual)),
        Some(Ok(port)) if port > 0 => Ok((uri, port)),
        Some(_) => Err("the port must be a number from 1 to 65535".to_owned()),
    }
}

/// Returns advice for a URL without a scheme. The text is repeated only if it has a port or names this machine;
/// otherwise it may be a misplaced secret.
fn without_scheme(url: &str) -> Option<String> {
    let whole = format!("http://{url}");
    let uri: Uri = whole.parse().ok().filter(|_| !url.contains("://"))?;
    let is_address = uri.port_u16().is_some()
        || uri
            .host()
            .is_some_and(|host| host == "localhost" || host.parse::<Ipv4Addr>().is_ok());
    let base = relay::before_route(uri.path()).unwrap_or_else(|| uri.path());
    let written = format!("http://{}{}", uri.authority()?, base.trim_end_matches('/'));
    (is_address && target(&written).is_ok()).then(|| format!("http:// is missing: write {written}"))
}

/// Resolves the credentials of an upstream. `auto` means the proxy's own key if one is configured. Otherwise the
/// client's credentials are passed on, unless samewire checks keys itself: its own keys mean nothing to the
/// engine, and must not reach it.
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
        Auth::Own if !given => mistakes.add_none(path, "missing, although auth = \"own\""),
        Auth::Auto | Auth::Own => {
            let key = match secret::read(&file.api_key_file) {
                Ok(key) => key,
                Err(why) => return mistakes.add_none(path, why),
            };
            let own = Secret::with_prefix("Bearer ", key.trim()).map(Credentials::Own);
            own.or_else(|| mistakes.add_none(path, "the file holds no key"))
        }
    }
}

/// Reports upstreams whose address is a listener of samewire itself. `name` is the key of that listener.
pub(super) fn check_loops(
    all: &[UpstreamConfig],
    name: &str,
    listen: SocketAddr,
    mistakes: &mut Mistakes,
) {
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

/// Returns true if the host is this machine, at an address where samewire listens.
fn is_here(host: &str, listen: IpAddr) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => {
            ip == listen || ip.is_unspecified() || ip.is_loopback() && listen.is_unspecified()
        }
        Err(_) => {
            host.eq_ignore_ascii_case("localhost")
                && (listen.is_loopback() || listen.is_unspecified())
        }
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
            let expected = TargetTable {
                host: host.to_owned(),
                port,
                prefix: prefix.to_owned(),
                secure,
            };
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
        let others = [
            "",
            "127.0.0.1:8000",
            "ftp://a",
            "http://u:p@a",
            "http://a?b",
            "http://",
            "http:// a",
        ];
        for url in ports.into_iter().chain(others) {
            assert!(target(url).is_err(), "{url}");
        }
    }

    #[test]
    fn what_is_nearly_an_address_is_told_as_one() {
        for (url, written) in [
            (
                "localhost:8000",
                "http:// is missing: write http://localhost:8000",
            ),
            (
                "127.0.0.1:8000/v1",
                "http:// is missing: write http://127.0.0.1:8000/v1",
            ),
            ("vllm:8000", "http:// is missing: write http://vllm:8000"),
            ("localhost", "http:// is missing: write http://localhost"),
            (
                "localhost:8000/v1/chat/completions",
                "http:// is missing: write http://localhost:8000/v1",
            ),
            ("http://a:1/v1/chat/completions", "write http://a:1/v1"),
            ("http://a:1/v1/chat/completions/", "write http://a:1/v1"),
            (
                "https://a/openai/chat/completions",
                "write https://a/openai",
            ),
            ("http://a:1/v1/responses", "write http://a:1/v1"),
            ("http://a:1/b/v1/models", "write http://a:1/b/v1"),
            ("http://a:1/v1/rerank", "write http://a:1/v1"),
            ("http://a:1/health", "write http://a:1"),
        ] {
            let told = target(url).unwrap_err();
            assert!(told.ends_with(written), "{url}: {told}");
        }
        for url in [
            "sk-CANARY",
            "sk-CANARY:sk-CANARY",
            "CANARY.a.b",
            "u:CANARY@h:1",
            "ftp://CANARY:1",
        ] {
            assert_eq!(
                target(url),
                Err("must be an address such as http://127.0.0.1:8000".to_owned()),
                "{url}"
            );
        }
        for url in [
            "http://a/models",
            "http://a/openai",
            "http://a/v1/openai",
            "http://a/healthy",
        ] {
            assert!(target(url).is_ok(), "{url}");
        }
    }
}
