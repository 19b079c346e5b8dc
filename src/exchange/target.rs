//! Server that requests go to: its address, and the headers that every request has.

use crate::secret::Secret;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::path::{Path, PathBuf};
use url::{ParseError, Url};

/// Ends of URLs that are those of a route, and not of a server.
const ROUTES: [&str; 6] = [
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/models",
    "/embeddings",
];

/// Returns the route at the end of a URL, if there is one.
pub(super) fn route(url: &str) -> Option<&'static str> {
    let url = url.trim_end_matches('/');
    ROUTES.into_iter().find(|route| url.ends_with(route))
}

/// Server, with the headers for each request.
#[derive(Clone, Debug)]
pub struct Target {
    base: String,
    headers: HeaderMap,
    ca_file: Option<PathBuf>,
}

impl Target {
    /// Creates a target from a URL with or without `/v1`, a key, and headers as `Name: value`.
    ///
    /// # Errors
    /// Fails with the reason if the URL or a header is invalid.
    pub fn new(url: &str, key: Option<&Secret>, extra: &[String]) -> Result<Self, String> {
        let parsed = Url::parse(url).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => {
                format!("{url:?} is not a URL: it must begin with http:// or https://")
            }
            error => format!("{url:?} is not a URL: {error}"),
        })?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(format!(
                "{url:?}: the URL must begin with http:// or https://"
            ));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("the URL must have no credentials: use --key-file or --header".to_owned());
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            // The rest may be a key.
            return Err("the URL must end with its path, without a query".to_owned());
        }
        let root = parsed.as_str().trim_end_matches('/');
        if let Some(route) = route(root) {
            return Err(format!(
                "{url:?}: the URL must be that of the server, without {route}"
            ));
        }
        let base = format!("{}/v1", root.strip_suffix("/v1").unwrap_or(root));
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            headers.insert(AUTHORIZATION, key.value());
        }
        for line in extra {
            let (name, value) = header(line)?;
            headers.insert(name, value);
        }
        Ok(Self {
            base,
            headers,
            ca_file: None,
        })
    }

    /// Returns the target with the file of the certificate authorities that may have signed its certificate; without
    /// one, the system's may have.
    #[must_use]
    pub fn signed_by(self, ca_file: Option<&Path>) -> Self {
        Self {
            ca_file: ca_file.map(Path::to_path_buf),
            ..self
        }
    }

    /// Returns the root of the API, which ends with `/v1`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the file of the certificate authorities.
    pub(super) fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    /// Returns the server's root, where engines have their own routes such as `/version`: the base without `/v1`.
    pub fn root(&self) -> &str {
        self.base.strip_suffix("/v1").unwrap_or(&self.base)
    }

    /// Returns the root of the server's host, without a path.
    pub fn origin(&self) -> &str {
        let host = self.base.find("://").map_or(0, |at| at + 3);
        let end = self
            .base
            .get(host..)
            .and_then(|rest| rest.find('/'))
            .map_or(self.base.len(), |at| host + at);
        self.base.get(..end).unwrap_or(&self.base)
    }

    /// Returns the headers of every request. Their values are marked as sensitive.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// Parses a header. Messages omit the value, which may be a secret.
fn header(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = line
        .split_once(':')
        .ok_or("a header must have the form 'Name: value'")?;
    let name = name.trim();
    let parsed = name
        .parse::<HeaderName>()
        .map_err(|_| format!("{name:?} is not the name of a header"))?;
    if [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(&parsed) {
        return Err(format!(
            "the header {name} belongs to the connection and cannot be set"
        ));
    }
    let value = HeaderValue::from_str(value.trim());
    let mut value = value.map_err(|_| format!("the value of the header {name} is invalid"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_ends_with_v1_once() {
        for url in [
            "http://a:1",
            "http://a:1/",
            "http://a:1/v1",
            "http://a:1/v1/",
        ] {
            assert_eq!(
                Target::new(url, None, &[]).unwrap().base(),
                "http://a:1/v1",
                "{url}"
            );
        }
        let below = Target::new("https://a/proxy", None, &[]).unwrap();
        assert_eq!(
            (below.base(), below.root(), below.origin()),
            ("https://a/proxy/v1", "https://a/proxy", "https://a")
        );
    }

    #[test]
    fn wrong_urls_and_headers_are_refused_without_their_secrets() {
        for url in [
            "nonsense",
            "ftp://a",
            "http://u:secret@a",
            "http://a?x=secret",
            "http://a/v1/models",
        ] {
            let why = Target::new(url, None, &[]).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
        for line in [
            "secret",
            "a b: secret",
            "a: sec\nret",
            "content-length: secret",
        ] {
            let why = Target::new("http://a", None, &[line.to_owned()]).unwrap_err();
            assert!(!why.contains("secret") && !why.contains("ret\""), "{why}");
        }
    }

    #[test]
    fn values_are_sensitive() {
        let target = Target::new("http://a", None, &["x-api-key: k".to_owned()]).unwrap();
        assert!(target.headers()["x-api-key"].is_sensitive());
        assert!(!format!("{target:?}").contains("\"k\""), "{target:?}");
    }
}
