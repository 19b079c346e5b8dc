//! Exchange with any server, as a client has it: one request, and everything that came back.
//!
//! Takes: a [`Target`] and a [`Request`]. Gives: an [`Exchange`] with the bytes as they arrived, and views of them as
//! events or JSON. Remembers: nothing between requests. Never: waits or keeps more than its [`Bounds`], or uses
//! samewire's own reader: streams are read by `eventsource-stream`, as clients read them.

mod events;
mod idle;
mod save;
mod secrets;
mod send;
mod target;

pub use idle::{Idle, idle};
pub use save::save;
pub use send::{Bounds, Failure, Sender};
pub use target::Target;

use crate::capture::RecordedPiece;
use crate::named::named;
use crate::visible::excerpt;
use bytes::Bytes;
use http::HeaderMap;

/// Most characters of the address of a redirect.
const LOCATION: usize = 120;

/// Request to a server: the path is relative to the API's root, such as `/chat/completions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// HTTP method.
    pub method: http::Method,
    /// Path below `/v1`, or below the server's root for the engine's own routes.
    pub path: String,
    /// Headers beyond those of the target.
    pub headers: HeaderMap,
    /// Body, sent as `application/json`; empty for none.
    pub body: Bytes,
}

named! {
    /// End of an answer.
    pub enum Ended {
        /// End as HTTP frames it.
        Clean = "the answer ended",
        /// Connection lost, or an invalid chunk.
        Reset = "the connection broke before the answer ended",
        /// Pause between two pieces beyond the bound.
        Stalled = "the server sent nothing for too long, so the answer was given up",
        /// Answer beyond the bound of its time, its bytes or the number of its pieces.
        TooLong = "the answer took too long or was too large, so it was given up",
    }
}

/// Exchange: the request as sent, and the answer as far as it came.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Request; its path is complete, and the values of headers that may be secret are marked as sensitive.
    pub request: Request,
    /// HTTP status of the answer.
    pub status: http::StatusCode,
    /// Headers of the answer.
    pub headers: HeaderMap,
    /// Body as far as it came.
    pub body: Vec<u8>,
    /// Pieces of the body, each with the time since the request.
    pub pieces: Vec<RecordedPiece>,
    /// End of the body.
    pub ended: Ended,
}

impl Exchange {
    /// Returns the content type of the answer; empty if there is none or it is no text.
    pub fn content_type(&self) -> &str {
        let value = self.headers.get(http::header::CONTENT_TYPE);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// Returns the status and the address of a redirect, and what to do, in plain words; `None`: it is none.
    pub fn redirect(&self) -> Option<String> {
        let location = self
            .headers
            .get(http::header::LOCATION)
            .filter(|_| self.status.is_redirection())?;
        let location = excerpt(&String::from_utf8_lossy(location.as_bytes()), LOCATION);
        let status = self.status.as_u16();
        if location.trim_end_matches('/') == self.request.path {
            return Some(format!(
                "status {status} redirects to {location}, which no client of the API asks for"
            ));
        }
        // The URL of a target is that of the server, without the route.
        let without = match target::route(&location) {
            Some(route) => format!(", without {route}"),
            None => String::new(),
        };
        Some(format!(
            "status {status} redirects to {location}: use that address as URL{without}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Method, StatusCode};

    #[test]
    fn redirects_are_told_with_what_to_do() {
        let told = |status: StatusCode, location: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("location", HeaderValue::from_static(location));
            let path = "/v1/models".to_owned();
            let request = Request {
                method: Method::GET,
                path,
                headers: HeaderMap::new(),
                body: Bytes::new(),
            };
            let (body, pieces, ended) = (Vec::new(), Vec::new(), Ended::Clean);
            Exchange {
                request,
                status,
                headers,
                body,
                pieces,
                ended,
            }
            .redirect()
        };
        for (location, expected) in [
            (
                "https://a/v1",
                "status 308 redirects to https://a/v1: use that address as URL",
            ),
            (
                "https://a/v1/models",
                "status 308 redirects to https://a/v1/models: use that address as URL, without /models",
            ),
            (
                "/v1/models/",
                "status 308 redirects to /v1/models/, which no client of the API asks for",
            ),
        ] {
            assert_eq!(
                told(StatusCode::PERMANENT_REDIRECT, location).as_deref(),
                Some(expected)
            );
        }
        assert_eq!(told(StatusCode::CREATED, "https://a/v1"), None);
    }
}
