//! Route families: the plain routes, and those that clients of Azure use (wire-format 5).
//!
//! Takes: the path, query and headers of a request. Gives: the deployment it names, its key, and the additional
//! headers of the response. Never: changes the body of an answer.

use super::browsers::single_value;
use crate::config::Azure;
use crate::server::headers;
use crate::wire::fault::{Failure, Fault};
use crate::wire::ident;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::{Response, request};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

const SCHEME: &[u8] = b"Bearer ";
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");

/// Family of routes that a path belongs to. It decides which header carries the key, and if an `api-version` is
/// required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum RouteFamily {
    /// `/v1/…`
    Plain,
    /// `/openai/v1/…`
    Undated,
    /// `/openai/…?api-version=`
    Dated,
    /// `/openai/deployments/{deployment}/…?api-version=`
    Deployment,
}

/// Key that a request presents, before it is compared with the configured keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum PresentedKey<'h> {
    /// Missing or empty key, or another scheme than `Bearer`.
    Missing,
    /// Several keys, which are refused as ambiguous.
    Several,
    /// Single key, without its scheme.
    Key(&'h [u8]),
}

/// Returns the key after the scheme `Bearer`, in upper or lower case (RFC 9110, 11.1); `None` for another scheme.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(SCHEME.len())?;
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then(|| key.trim_ascii_start())
}

/// Path prefix of each family, in the syntax of the router.
pub(in crate::server) const PREFIXES: [(RouteFamily, &str); 4] = [
    (RouteFamily::Plain, "/v1"),
    (RouteFamily::Undated, "/openai/v1"),
    (RouteFamily::Dated, "/openai"),
    (RouteFamily::Deployment, "/openai/deployments/{deployment}"),
];

impl RouteFamily {
    /// Checks the deployment and the `api-version` of a request. Fails if its routes require one that is missing,
    /// malformed or not supported.
    pub(in crate::server) fn check(
        self,
        head: &request::Parts,
        azure: &Azure,
    ) -> Result<(), Failure> {
        if self.deployment(head).is_some_and(|name| name.is_empty()) {
            return Err(Fault::UnknownUrl.into());
        }
        if !self.requires_version() {
            return Ok(());
        }
        let unsupported = |what: String| {
            Failure::from(Fault::UnsupportedApiVersion)
                .with_message(what)
                .with_param("api-version")
        };
        let Some(version) = api_version(head) else {
            return Err(unsupported(
                "The query parameter 'api-version' is missing.".to_owned(),
            ));
        };
        if !is_date(version) {
            let what = "The query parameter 'api-version' must be a date, YYYY-MM-DD or YYYY-MM-DD-preview.";
            return Err(unsupported(what.to_owned()));
        }
        if !azure.api_versions.is_empty()
            && !azure.api_versions.iter().any(|known| known == version)
        {
            let what = format!(
                "The API version '{version}' is not supported; supported are {}.",
                azure.api_versions.join(", ")
            );
            return Err(unsupported(what));
        }
        Ok(())
    }

    /// Returns true if the routes of this family require an `api-version`.
    pub(in crate::server) fn requires_version(self) -> bool {
        matches!(self, Self::Dated | Self::Deployment)
    }

    /// Returns the deployment in the path, which is the name of a model; `None` for the other families.
    pub(in crate::server) fn deployment(self, head: &request::Parts) -> Option<String> {
        if self != Self::Deployment {
            return None;
        }
        let name = head
            .uri
            .path()
            .strip_prefix("/openai/deployments/")?
            .split('/')
            .next()?;
        Some(percent_decode_str(name).decode_utf8_lossy().into_owned())
    }

    /// Returns the `authorization` header for the engine; `None` without a key or with several. Azure's own header
    /// takes precedence on Azure's own routes.
    pub(in crate::server) fn authorization(self, headers: &HeaderMap) -> Option<HeaderValue> {
        // Several keys count as none: engine and proxy might choose different ones.
        if self != Self::Plain && headers.contains_key(API_KEY) {
            let key = single_value(headers, &API_KEY)?.to_str().ok()?;
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
            value.set_sensitive(true);
            return Some(value);
        }
        single_value(headers, &AUTHORIZATION).cloned()
    }

    /// Returns the key that a request presents. Only one header is read: `api-key` if an Azure route has it, else
    /// `authorization`.
    pub(in crate::server) fn presented_key(self, headers: &HeaderMap) -> PresentedKey<'_> {
        let azure = self != Self::Plain && headers.contains_key(API_KEY);
        let mut all = headers
            .get_all(if azure { API_KEY } else { AUTHORIZATION })
            .iter();
        let (first, second) = (all.next().map(HeaderValue::as_bytes), all.next());
        let key = if azure { first } else { first.and_then(bearer) };
        match key.filter(|key| !key.is_empty()) {
            _ if second.is_some() => PresentedKey::Several,
            Some(key) => PresentedKey::Key(key),
            None => PresentedKey::Missing,
        }
    }

    /// Returns the tenant of a request if no keys are configured: a hash of its key for the engine, because keys
    /// themselves must not be stored. Requests without a key share the empty tenant.
    pub(in crate::server) fn tenant(self, headers: &HeaderMap) -> Arc<str> {
        match self.authorization(headers) {
            Some(key) => {
                // The case of the scheme must not distinguish tenants (RFC 9110, 11.1).
                let (scheme, rest) = key.as_bytes().split_at(key.len().min(SCHEME.len()));
                let key = if scheme.eq_ignore_ascii_case(SCHEME) {
                    [SCHEME, rest].concat()
                } else {
                    key.as_bytes().to_vec()
                };
                ident::sha256_hex(&key, 32).into()
            }
            None => "".into(),
        }
    }

    /// Adds the headers that Azure's clients expect in every response: request ids, region and supported API
    /// versions. Plain routes get none of them.
    pub(in crate::server) fn add_headers<B>(
        self,
        response: &mut Response<B>,
        client_request_id: Option<HeaderValue>,
        version: Option<HeaderValue>,
        azure: &Azure,
    ) {
        if self == Self::Plain {
            return;
        }
        let headers = response.headers_mut();
        if let Some(id) = headers.get(headers::REQUEST_ID).cloned() {
            headers.insert(HeaderName::from_static("apim-request-id"), id.clone());
            headers.insert(HeaderName::from_static("x-ms-request-id"), id);
        }
        let listed = HeaderValue::from_str(&azure.api_versions.join(", ")).ok();
        let versions = if azure.api_versions.is_empty() {
            version
        } else {
            listed
        };
        for (name, value) in [
            (
                HeaderName::from_static("x-ms-region"),
                HeaderValue::from_str(&azure.region).ok(),
            ),
            (CLIENT_REQUEST_ID, client_request_id),
            (HeaderName::from_static("api-supported-versions"), versions),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                headers.insert(name, value);
            }
        }
    }
}

/// Returns the client's own id for the request, which the response repeats; `None` if it is longer than 128 bytes
/// or not plain text.
pub(in crate::server) fn client_request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    headers
        .get(CLIENT_REQUEST_ID)
        .filter(|id| id.len() <= 128 && id.to_str().is_ok())
        .cloned()
}

/// Returns the `api-version` of the query as a header value, if it is a valid version.
pub(in crate::server) fn known_version(head: &request::Parts) -> Option<HeaderValue> {
    api_version(head)
        .filter(|version| is_date(version))
        .and_then(|version| HeaderValue::from_str(version).ok())
}

fn api_version(head: &request::Parts) -> Option<&str> {
    headers::query(head, "api-version")
}

/// Returns true for `YYYY-MM-DD`, with or without `-preview`. Only the positions of digits are checked.
fn is_date(text: &str) -> bool {
    let date = text.strip_suffix("-preview").unwrap_or(text).as_bytes();
    date.len() == 10
        && date.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_looked_for_in_one_place() {
        use PresentedKey::{Key, Missing, Several};
        let shown = |family: RouteFamily, lines: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_static(value));
            }
            match family.presented_key(&headers) {
                Key(key) => Key(if key == b"k" { b"k" } else { b"another" }),
                Several => Several,
                Missing => Missing,
            }
        };
        let both = [("authorization", "Bearer k"), ("api-key", "x")];
        for (lines, plain, azure) in [
            (&[][..], Missing, Missing),
            (&[("authorization", "Bearer k")], Key(b"k"), Key(b"k")),
            (&[("authorization", "bEARER   k")], Key(b"k"), Key(b"k")),
            (
                &[("authorization", "Bearer k l")],
                Key(b"another"),
                Key(b"another"),
            ),
            (&[("authorization", "Bearer")], Missing, Missing),
            (&[("authorization", "Bearerk")], Missing, Missing),
            (&[("authorization", "Basic az==")], Missing, Missing),
            (&[("authorization", "k")], Missing, Missing),
            (&[("authorization", "")], Missing, Missing),
            (
                &[("authorization", "Bearer k"), ("authorization", "Bearer k")],
                Several,
                Several,
            ),
            (&[("api-key", "k")], Missing, Key(b"k")),
            (&[("api-key", "Bearer k")], Missing, Key(b"another")),
            (&[("api-key", "")], Missing, Missing),
            (&[("api-key", "k"), ("api-key", "k")], Missing, Several),
            (&both, Key(b"k"), Key(b"another")),
            (&[("x-api-key", "k")], Missing, Missing),
        ] {
            assert_eq!(shown(RouteFamily::Plain, lines), plain, "{lines:?}");
            for family in [
                RouteFamily::Undated,
                RouteFamily::Dated,
                RouteFamily::Deployment,
            ] {
                assert_eq!(shown(family, lines), azure, "{lines:?}");
            }
        }
    }

    #[test]
    fn versions() {
        for (version, good) in [
            ("2024-10-21", true),
            ("2025-04-01-preview", true),
            ("2024-10-21-beta", false),
            ("24-10-21", false),
            ("preview", false),
            ("", false),
        ] {
            assert_eq!(is_date(version), good, "{version}");
        }
    }
}
