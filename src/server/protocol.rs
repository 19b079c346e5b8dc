//! Protocol of a request, OpenAI's (with a variant for older clients of Responses) or Anthropic's: the form of its
//! errors, its headers and its keep-alive.
//!
//! Takes: what the route and the headers say. Gives: the parts of a response in which the protocols differ. Never:
//! reads an answer.

use crate::request::messages::with_path;
use crate::wire::encode::{messages_status, write_messages_error};
use crate::wire::fault::{Failure, Fault};
use crate::wire::sse::{KEEPALIVE, PING};
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

/// Header with the id of a request, in requests and responses.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Header that tells clients whether a retry makes sense.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// Header with which clients of Anthropic name the version of their API.
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
/// Header in which clients of Anthropic send their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Request id by the name that clients of Anthropic read.
const ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");
/// Message for a request without a key.
const MISSING_KEY: &str = "You didn't provide an API key. Send it in the header x-api-key, or in an Authorization header, as \
                           'Authorization: Bearer YOUR_KEY'.";
/// Headers of responses that only OpenAI's clients know.
const OPENAI_ONLY: [HeaderName; 2] = [
    HeaderName::from_static("openai-version"),
    HeaderName::from_static("openai-processing-ms"),
];
/// Limits in OpenAI's names, and the names that Anthropic has for them.
const LIMITS: [(&str, &str); 4] = [
    (
        "x-ratelimit-limit-requests",
        "anthropic-ratelimit-requests-limit",
    ),
    (
        "x-ratelimit-remaining-requests",
        "anthropic-ratelimit-requests-remaining",
    ),
    (
        "x-ratelimit-limit-tokens",
        "anthropic-ratelimit-tokens-limit",
    ),
    (
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-remaining",
    ),
];

/// Protocol in which a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    OpenAi,
    /// OpenAI's, with the error code that the older description of the Responses API has for a used-up quota
    /// (wire-format 3.4).
    CodexLegacy,
    Anthropic,
}

impl Protocol {
    /// Returns the protocol of a route that both have, by the header that only clients of Anthropic send.
    pub(super) fn of_headers(headers: &HeaderMap) -> Self {
        if headers.contains_key(VERSION) {
            Self::Anthropic
        } else {
            Self::OpenAi
        }
    }

    /// Copies the client's key from Anthropic's header to `authorization`, unless that is there. Everything that reads
    /// keys then finds it.
    pub(super) fn unify_key(self, headers: &mut HeaderMap) {
        if self != Self::Anthropic || headers.contains_key(AUTHORIZATION) {
            return;
        }
        let keys: Vec<_> = headers.get_all(API_KEY).iter().cloned().collect();
        for key in keys {
            let bearer = [b"Bearer ", key.as_bytes()].concat();
            if let Ok(mut bearer) = HeaderValue::from_bytes(&bearer) {
                bearer.set_sensitive(true);
                headers.append(AUTHORIZATION, bearer);
            }
        }
    }

    /// Returns the bytes that are sent while a stream has nothing else to send.
    pub(super) fn keepalive(self) -> &'static [u8] {
        match self {
            Self::OpenAi | Self::CodexLegacy => KEEPALIVE,
            Self::Anthropic => PING,
        }
    }

    /// Returns the status and the body of an error.
    pub(super) fn error(self, failure: &Failure, request_id: &str) -> (u16, Bytes) {
        let mut body = BytesMut::new();
        let status = match self {
            Self::OpenAi => {
                failure.write(false, &mut body);
                failure.status
            }
            Self::CodexLegacy => {
                let mut failure = failure.clone();
                if failure.code.as_deref() == Fault::InsufficientQuota.code() {
                    failure.code = Some("quota_exceeded".into());
                }
                return Self::OpenAi.error(&failure, request_id);
            }
            Self::Anthropic => {
                let failure = match failure.fault {
                    Fault::MissingApiKey => failure.clone().with_message(MISSING_KEY),
                    _ => with_path(failure.clone()),
                };
                write_messages_error(&failure, Some(request_id), &mut body);
                messages_status(&failure).0
            }
        };
        (status, body.freeze())
    }

    /// Renames the headers of a response that the clients of this protocol know by other names.
    pub(super) fn rename_headers(self, status: u16, headers: &mut HeaderMap) {
        if self != Self::Anthropic {
            return;
        }
        if let Some(id) = headers.get(REQUEST_ID).cloned() {
            headers.insert(ANTHROPIC_ID, id);
        }
        for name in OPENAI_ONLY {
            headers.remove(name);
        }
        for (of_openai, of_anthropic) in LIMITS {
            if let Some(value) = headers.remove(of_openai) {
                headers.insert(HeaderName::from_static(of_anthropic), value);
            }
        }
        let is_renamed = |name: &HeaderName| name.as_str().starts_with("x-ratelimit-");
        let others: Vec<_> = headers
            .keys()
            .filter(|name| is_renamed(name))
            .cloned()
            .collect();
        for name in others {
            headers.remove(name);
        }
        // Claude Code repeats a request whose key was refused, unless it is told not to.
        if status == 401 {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
    }
}
