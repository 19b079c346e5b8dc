//! Requests that browsers send for web pages: which pages may read answers (CORS), send forms and open WebSockets,
//! under which host names, and which may reach the admin listener (docs/configure.md#web-pages-cors).
//!
//! CORS is implemented here because `tower-http`'s layer is built once and answers every `OPTIONS` with 200, while
//! this list follows reloads, leaves `OPTIONS` a 405 where it is empty, and also applies to WebSockets and forms.

use crate::config::{Cors, Hosts};
use crate::server::printable::printable;
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, HeaderValue, ORIGIN, USER_AGENT, VARY,
};
use http::{Method, Response, StatusCode, request};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Header by which Chrome asks whether a page of the internet may reach an address of a private network, and its
/// answer.
const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Methods of all routes.
const METHODS: &str = "GET, POST, DELETE";
/// Seconds for which a browser may cache the answer to a preflight; short, so that a changed list takes effect
/// soon.
const MAX_AGE: &str = "600";
/// Request headers that the answer to a preflight depends on.
const VARIES: &str = "origin, access-control-request-method, access-control-request-headers";

/// Response headers that pages may read, besides those that are always readable. A `*` does not work with
/// credentials.
const EXPOSED: &str = "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry, \
                       openai-processing-ms, openai-version, \
                       x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
                       x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
                       x-samewire-attempts, x-samewire-model, x-samewire-dropped, apim-request-id, x-ms-request-id, \
                       x-ms-client-request-id, x-ms-region, api-supported-versions, content-disposition, \
                       content-encoding, metadata, allow, www-authenticate";

/// Limit for a foreign name quoted in a message, in bytes.
const SHOWN: usize = 100;

/// CORS rights of the page that sent a request, from which the response headers are set.
pub(in crate::server) struct CorsRights {
    /// True if origins are configured, so that responses differ between pages.
    is_on: bool,
    /// Value of `access-control-allow-origin`.
    allowed: Option<HeaderValue>,
    /// True if the page may send credentials such as cookies.
    with_credentials: bool,
}

impl CorsRights {
    /// Returns the rights of the page that a request with these headers comes from.
    pub(in crate::server) fn of(cors: &Cors, headers: &HeaderMap) -> Self {
        let origin = single_value(headers, &ORIGIN);
        let listed = origin.filter(|origin| cors.lists(origin.as_bytes()));
        let allowed = match listed {
            Some(origin) => Some(origin.clone()),
            None => origin
                .filter(|_| cors.is_any())
                .map(|_| HeaderValue::from_static("*")),
        };
        Self {
            is_on: cors.is_on(),
            allowed,
            with_credentials: listed.is_some(),
        }
    }

    /// Returns the answer to a preflight; `None` if the request is none or no origins are configured.
    ///
    /// # Errors
    /// The origin is not allowed.
    pub(in crate::server) fn preflight(
        &self,
        head: &request::Parts,
    ) -> Option<Result<Response<Bytes>, Failure>> {
        let headers = &head.headers;
        let has = |name| headers.contains_key(name);
        if !self.is_on
            || head.method != Method::OPTIONS
            || !has(ORIGIN)
            || !has(ACCESS_CONTROL_REQUEST_METHOD)
        {
            return None;
        }
        if self.allowed.is_none() {
            return Some(Err(foreign(headers, "may not call this API")));
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let out = response.headers_mut();
        out.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static(METHODS),
        );
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        // Client libraries send many headers, and new ones all the time; unknown headers are ignored anyway.
        if let Some(requested) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        if headers
            .get(ASKS_PRIVATE)
            .is_some_and(|requested| requested == "true")
        {
            out.insert(ALLOWS_PRIVATE, HeaderValue::from_static("true"));
        }
        out.insert(VARY, HeaderValue::from_static(VARIES));
        Some(Ok(response))
    }

    /// Adds the headers that let the page read the response, if it may.
    pub(in crate::server) fn set_headers(self, headers: &mut HeaderMap) {
        if !self.is_on {
            return;
        }
        headers
            .entry(VARY)
            .or_insert(HeaderValue::from_static("origin"));
        let Some(allowed) = self.allowed else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        if self.with_credentials {
            headers.insert(
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
                HeaderValue::from_static("true"),
            );
        }
        if !headers.contains_key(ACCESS_CONTROL_ALLOW_METHODS) {
            let exposed = exposed(headers);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }
}

/// Returns the names of all headers that a page may read, including rate-limit headers of the engine.
fn exposed(headers: &HeaderMap) -> HeaderValue {
    let known = |name: &str| EXPOSED.split(", ").any(|exposed| exposed == name);
    let limits = headers.keys().map(HeaderName::as_str);
    let is_limit =
        |name: &str| name.starts_with("x-ratelimit-") || name.starts_with("anthropic-ratelimit-");
    let mut more = limits
        .filter(|name| is_limit(name) && !known(name))
        .peekable();
    if more.peek().is_none() {
        return HeaderValue::from_static(EXPOSED);
    }
    let all = more.fold(EXPOSED.to_owned(), |all, name| all + ", " + name);
    HeaderValue::try_from(all).unwrap_or(HeaderValue::from_static(EXPOSED))
}

/// Checks the origin of a WebSocket: browsers let any page open one to any address, this machine included, without
/// a preflight. A client that is not a browser sends no origin, or that of the address it connects to.
///
/// # Errors
/// The page has another origin that is not listed.
pub(in crate::server) fn check_socket(headers: &HeaderMap, cors: &Cors) -> Result<(), Failure> {
    let may = headers
        .get_all(ORIGIN)
        .iter()
        .all(|origin| is_own(origin, headers) || cors.allows(origin.as_bytes()));
    if may {
        Ok(())
    } else {
        Err(foreign(headers, "may not open a WebSocket here"))
    }
}

/// Checks the host of a request where no keys are checked. By DNS rebinding, a web page can give its own name the
/// address of this server; the browser then treats the server's answers as the page's own.
///
/// # Errors
/// The host is one that a web page could have.
pub(in crate::server) fn check_host(head: &request::Parts, cors: &Cors) -> Result<(), Failure> {
    let Some(host) = foreign_host(head, |host| cors.allows_host(host)) else {
        return Ok(());
    };
    let message = format!(
        "The host '{host}' is neither an address nor listed. Without keys any web page could reach samewire by such a \
         name. If it is a name of this server, add it to cors.hosts (SAMEWIRE_CORS__HOSTS), or configure keys."
    );
    Err(Failure::from(Fault::Permission).with_message(message))
}

/// Returns the first host that a request names and that may not be used, safe for a message.
fn foreign_host(head: &request::Parts, may: impl Fn(&str) -> bool) -> Option<String> {
    let named = head.headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
    let mut named = named.chain(
        head.uri
            .authority()
            .map(|authority| authority.as_str().as_bytes()),
    );
    let host = named.find(|host| !std::str::from_utf8(host).is_ok_and(&may))?;
    Some(printable(host, SHOWN))
}

/// Checks requests that browsers send for any page without a preflight: forms, and bodies without a type. A page
/// could not read the answer, but would make an engine work (faults C17b). Clients that are not web pages have
/// origins with other schemes.
///
/// # Errors
/// The page has another origin that is not listed.
pub(in crate::server) fn check_form(head: &request::Parts, cors: &Cors) -> Result<(), Failure> {
    let headers = &head.headers;
    let is_web = |origin: &HeaderValue| {
        let origin = origin.as_bytes();
        origin == b"null" || origin.starts_with(b"http://") || origin.starts_with(b"https://")
    };
    let mut origins = headers.get_all(ORIGIN).iter();
    let is_foreign = origins.any(|origin| {
        is_web(origin) && !is_own(origin, headers) && !cors.allows(origin.as_bytes())
    });
    let is_form = headers.get(CONTENT_TYPE).is_none_or(|label| {
        let kind = label
            .as_bytes()
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default();
        let forms = [
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain",
        ];
        forms
            .iter()
            .any(|form| kind.trim_ascii().eq_ignore_ascii_case(form.as_bytes()))
    });
    if head.method == Method::POST && is_foreign && is_form {
        return Err(foreign(headers, "may not send this"));
    }
    Ok(())
}

/// Returns the failure for a page that is not allowed to do this.
fn foreign(headers: &HeaderMap, what: &str) -> Failure {
    let origin = headers
        .get(ORIGIN)
        .map_or_else(String::new, |origin| printable(origin.as_bytes(), SHOWN));
    let message = format!("Pages of the origin '{origin}' {what}: cors.origins does not list it.");
    Failure::from(Fault::Permission).with_message(message)
}

/// Returns true if a page has the origin of the address that it sends its request to. Behind a proxy that rewrites
/// `Host` only the browser knows that, and no page can forge its header.
fn is_own(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    if single_value(headers, &SITE).is_some_and(|site| site == "same-origin") {
        return true;
    }
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    authority(origin)
        .zip(host)
        .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
}

/// Returns the part of an origin after its scheme.
fn authority(origin: &HeaderValue) -> Option<&[u8]> {
    let at = memchr::memmem::find(origin.as_bytes(), b"://")?;
    origin.as_bytes().get(at + b"://".len()..)
}

/// Returns the value of a header that occurs exactly once.
pub(in crate::server) fn single_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Option<&'h HeaderValue> {
    let mut all = headers.get_all(name).iter();
    all.next().filter(|_| all.next().is_none())
}

/// Reason why the admin listener refuses a request, with the message for the response. It protects operators
/// against foreign web pages in their own browser.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) enum AdminRefusal {
    /// The `Host` is neither an IP address nor listed: a page can point its own name to any address.
    Host(String),
    /// A browser sent it for a page of another origin.
    Page(String),
}

impl AdminRefusal {
    /// Returns the reason for which the admin listener refuses a request; `None` if it serves the request.
    pub(in crate::server) fn of(head: &request::Parts, hosts: &Hosts) -> Option<Self> {
        let headers = &head.headers;
        if let Some(host) = foreign_host(head, |host| hosts.allows(host)) {
            return Some(Self::Host(format!(
                "The host '{host}' is neither an address nor listed. If that is a name of this listener, add it to \
                 admin.hosts (or --admin-host, or SAMEWIRE_ADMIN_HOST).\n"
            )));
        }
        let is_listed = |origin: &HeaderValue| {
            let authority =
                authority(origin).and_then(|authority| std::str::from_utf8(authority).ok());
            authority.is_some_and(|authority| hosts.lists(authority))
        };
        let mut origins = headers.get_all(ORIGIN).iter();
        if let Some(origin) = origins.find(|origin| !is_own(origin, headers) && !is_listed(origin))
        {
            return Some(Self::Page(format!(
                "Pages of the origin '{}' get no answer here: only those of this address do, and of hosts in \
                 admin.hosts.\n",
                printable(origin.as_bytes(), SHOWN)
            )));
        }
        let is_other = |site: &HeaderValue| matches!(site.as_bytes(), b"cross-site" | b"same-site");
        let from_elsewhere =
            !headers.contains_key(ORIGIN) && headers.get_all(SITE).iter().any(is_other);
        // Browsers send no `sec-fetch-site` to plain-HTTP addresses in a network; a GET with an effect is never
        // for browsers.
        let is_browser = || {
            headers
                .get(USER_AGENT)
                .is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
        };
        if from_elsewhere || head.uri.path() == "/drain/wait" && is_browser() {
            let why = "A browser sent this for a page of another site, or it is not for browsers. Only pages of this \
                       address, and of hosts in admin.hosts, get an answer.\n";
            return Some(Self::Page(why.to_owned()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    fn head(path: &str, lines: &[(&'static str, &'static str)]) -> request::Parts {
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.uri = path.parse().unwrap();
        for (name, value) in lines {
            head.headers.append(*name, HeaderValue::from_static(value));
        }
        head
    }

    type Header = (&'static str, &'static str);
    const OWN: Header = ("host", "127.0.0.1:9090");
    const REBOUND: Header = ("host", "evil.example:9090");
    const NAMED: Header = ("host", "samewire.internal:9090");

    /// Requests to the admin listener: path, headers, and whether they are answered.
    const OPERATORS: &[(&str, &[Header], bool)] = &[
        ("/metrics", &[], true),
        ("/metrics", &[OWN], true),
        ("/metrics", &[REBOUND], false),
        ("/metrics", &[NAMED], true),
        ("/metrics", &[OWN, REBOUND], false),
        ("http://evil.example/metrics", &[OWN], false),
        ("/drain", &[OWN, ("origin", "http://127.0.0.1:9090")], true),
        ("/drain", &[OWN, ("origin", "http://127.0.0.1:8080")], false),
        (
            "/drain",
            &[OWN, ("origin", "https://samewire.internal")],
            true,
        ),
        (
            "/drain",
            &[
                OWN,
                ("origin", "https://ops.example"),
                ("sec-fetch-site", "same-origin"),
            ],
            true,
        ),
        (
            "/drain",
            &[
                REBOUND,
                ("origin", "http://evil.example:9090"),
                ("sec-fetch-site", "same-origin"),
            ],
            false,
        ),
        ("/drain", &[OWN, ("origin", "null")], false),
        (
            "/drain",
            &[
                OWN,
                ("origin", "http://127.0.0.1:9090"),
                ("origin", "http://evil"),
            ],
            false,
        ),
        ("/drain/wait", &[OWN], true),
        (
            "/drain/wait",
            &[OWN, ("sec-fetch-site", "cross-site")],
            false,
        ),
        (
            "/drain/wait",
            &[OWN, ("sec-fetch-site", "same-site")],
            false,
        ),
        (
            "/drain/wait",
            &[
                OWN,
                ("sec-fetch-site", "none"),
                ("user-agent", "Mozilla/5.0"),
            ],
            false,
        ),
        (
            "/drain/wait",
            &[OWN, ("user-agent", "kube-probe/1.34")],
            true,
        ),
        (
            "/",
            &[
                OWN,
                ("sec-fetch-site", "none"),
                ("user-agent", "Mozilla/5.0"),
            ],
            true,
        ),
        (
            "/metrics",
            &[
                OWN,
                ("sec-fetch-site", "same-origin"),
                ("user-agent", "Mozilla/5.0"),
            ],
            true,
        ),
        ("/metrics", &[OWN, ("sec-fetch-site", "cross-site")], false),
    ];

    #[test]
    fn who_reaches_operators() {
        let text = "[admin]\nhosts = [\"samewire.internal\"]\n[[upstream]]\nurl = \"http://a\"";
        let config = Config::read(text, &[&Overrides::default()]).unwrap();
        for &(path, lines, is_answered) in OPERATORS {
            let stranger = AdminRefusal::of(&head(path, lines), &config.admin_hosts);
            assert_eq!(
                stranger.is_none(),
                is_answered,
                "{path} {lines:?}: {stranger:?}"
            );
            let (Some(AdminRefusal::Host(why)) | Some(AdminRefusal::Page(why))) = stranger else {
                continue;
            };
            assert!(why.contains("admin.hosts"), "{why}");
        }
    }

    #[test]
    fn limits_of_an_engine_are_exposed_by_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(exposed(&headers), EXPOSED);
        headers.insert("x-ratelimit-limit-requests", HeaderValue::from_static("1"));
        assert_eq!(exposed(&headers), EXPOSED);
        headers.insert("x-ratelimit-limit-images", HeaderValue::from_static("1"));
        assert_eq!(
            exposed(&headers),
            format!("{EXPOSED}, x-ratelimit-limit-images")
        );
    }

    #[test]
    fn foreign_text_is_cut_and_printable() {
        assert_eq!(printable(b"a\xc3\xa4\tb", 100), "a???b");
        assert_eq!(printable(b"abcdef", 3), "abc...");
    }
}
