//! Captured exchange: what a client sent, what engines were sent and answered, and what the client was sent.

use crate::plan::Route;
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Text in place of a header's value that may be secret.
const REDACTED: &str = "[redacted]";

/// Bytes that arrived or left at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPiece {
    /// Time since the request arrived.
    pub at: Duration,
    /// End of the piece in the body, in bytes.
    pub end: usize,
}

/// HTTP message: its head, and its body with the time of each piece.
#[derive(Clone, Debug, Default)]
pub struct RecordedMessage {
    /// Status line or request line, and headers, one a line; secrets are redacted.
    pub head: String,
    /// Body, without the framing of HTTP.
    pub body: Vec<u8>,
    /// Pieces of the body, in order.
    pub pieces: Vec<RecordedPiece>,
}

impl RecordedMessage {
    /// Returns the media type of the body in lower case, without parameters; empty if the head has none.
    pub fn content_type(&self) -> String {
        let value = self
            .head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        let value = value
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        value.trim().to_ascii_lowercase()
    }
}

/// Attempt at an engine.
#[derive(Clone, Debug)]
pub struct RecordedAttempt {
    /// Name of the upstream.
    pub upstream: String,
    /// Name of the engine at the time of the request: `vllm`.
    pub engine: &'static str,
    /// Route by which the answer is rewritten; `None` if it is not, or not into one answer.
    pub route: Option<Arc<Route>>,
    /// Request as it was sent.
    pub request: RecordedMessage,
    /// Answer as it came; `None` while none has come.
    pub answer: Option<RecordedMessage>,
    /// True once the answer's body is complete. It never is if the connection breaks, or if samewire closes it.
    pub is_complete: bool,
}

/// Outcome of a request, as its log line tells it.
#[derive(Clone, Debug, Default)]
pub struct ExchangeOutcome {
    /// Value of the log's field `end`; empty while the request runs.
    pub end: &'static str,
    /// Status that the client received.
    pub status: u16,
    /// Code of the error, if there was one.
    pub code: Option<String>,
    /// Rules that changed the request or repaired the answer, with their counts.
    pub rules: Vec<(&'static str, u32)>,
}

impl ExchangeOutcome {
    /// Returns true once the request has ended.
    pub(super) fn is_known(&self) -> bool {
        !self.end.is_empty()
    }

    /// Returns true if the request ended otherwise than with a complete answer.
    pub fn is_failure(&self) -> bool {
        self.end != "complete" || self.status >= 400
    }
}

/// Facts that describe a request before its end.
#[derive(Clone, Debug, Default)]
pub struct RequestInfo {
    /// Request id. A client may send one id with several requests.
    pub id: String,
    /// Number of the request in this process, which no other has.
    pub number: u64,
    /// Method, such as `POST`.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// Model by the client's name for it; empty if not known.
    pub model: String,
    /// Name of the caller's key, where keys are checked.
    pub key: Option<String>,
}

/// Exchange as it was captured.
#[derive(Clone, Debug)]
pub struct Captured {
    /// Facts about the request.
    pub info: RequestInfo,
    /// Time at which the request arrived.
    pub began: SystemTime,
    /// Request of the client.
    pub request: RecordedMessage,
    /// Attempts at engines, in order.
    pub attempts: Vec<RecordedAttempt>,
    /// Answer to the client; `None` while there is none.
    pub answer: Option<RecordedMessage>,
    /// Outcome of the request.
    pub outcome: ExchangeOutcome,
    /// Time from the arrival of the request to its end.
    pub took: Duration,
    /// True if bytes are missing because the exchange reached a limit.
    pub is_cut: bool,
}

impl Captured {
    /// Returns the exchange of a request that has just arrived.
    pub(super) fn begin(info: RequestInfo, began: SystemTime) -> Self {
        Self {
            info,
            began,
            request: RecordedMessage::default(),
            attempts: Vec::new(),
            answer: None,
            outcome: ExchangeOutcome::default(),
            took: Duration::ZERO,
            is_cut: false,
        }
    }
}

/// Returns a path and query in which the values are redacted that may be secret, such as that of `api_key`.
pub fn redacted_target(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else {
        return target.to_owned();
    };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// Returns a head as text: the first line, then a line for each header. Values are redacted that are marked as
/// sensitive, or may be secret by their names.
pub fn head_text(first: &str, headers: &HeaderMap) -> String {
    let mut text = format!("{first}\r\n");
    for (name, value) in headers {
        let shown = if value.is_sensitive() {
            REDACTED.into()
        } else {
            String::from_utf8_lossy(value.as_bytes())
        };
        push_header(&mut text, name.as_str(), &shown);
    }
    text
}

/// Returns a head that is text already, with the values redacted that may be secret.
pub(super) fn redacted(head: &str) -> String {
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let mut text = format!("{}\r\n", lines.next().unwrap_or_default());
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        push_header(&mut text, name, value);
    }
    text
}

fn push_header(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str(": ");
    text.push_str(if is_secret(name) { REDACTED } else { value });
    text.push_str("\r\n");
}

/// Returns true for a header or a query parameter whose value may be secret, judged by its name: by its words, and by
/// what it says without the marks between them, as in `apiKey`.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 19] = [
        "authorization",
        "cookie",
        "key",
        "token",
        "secret",
        "password",
        "auth",
        "signature",
        "credential",
        "sig",
        "session",
        "jwt",
        "passwd",
        "passphrase",
        "pwd",
        "authentication",
        "otp",
        "assertion",
        "bearer",
    ];
    // Names of query parameters whose words mean something else in longer names.
    const WHOLE: [&str; 4] = ["code", "state", "pass", "ticket"];
    const ORDINARY: [&str; 12] = [
        "accept",
        "accept-encoding",
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "date",
        "host",
        "server",
        "transfer-encoding",
        "user-agent",
        "x-request-id",
    ];
    const JOINED: [&str; 10] = [
        "apikey",
        "authtoken",
        "accesstoken",
        "refreshtoken",
        "idtoken",
        "secretkey",
        "clientsecret",
        "sessionid",
        "csrf",
        "xsrf",
    ];
    // Most headers of most requests: they need no closer look.
    if ORDINARY.contains(&name) {
        return false;
    }
    let name = percent_decode_str(name)
        .decode_utf8_lossy()
        .to_ascii_lowercase();
    let joined = name.replace(['-', '_'], "");
    WHOLE.contains(&&*name)
        || name.split(['-', '_']).any(|word| WORDS.contains(&word))
        || JOINED.iter().any(|part| joined.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn secrets_do_not_show() {
        assert_eq!(
            redacted_target("/v1/x?api-version=2024&api_key=CANARY"),
            "/v1/x?api-version=2024&api_key=[redacted]"
        );
        assert_eq!(redacted_target("/v1/x"), "/v1/x");
        for name in [
            "api%5Fkey",
            "apikey",
            "apiKey",
            "sig",
            "access_token",
            "accessToken",
            "X-Session",
            "code",
            "X-CSRFToken",
            "x-csrf",
            "proxy-authentication",
        ] {
            assert_eq!(
                redacted_target(&format!("/v1/x?{name}=CANARY")),
                format!("/v1/x?{name}=[redacted]")
            );
        }
        for name in [
            "model",
            "max_tokens",
            "keyboard",
            "author",
            "design",
            "error_code",
            "statement",
        ] {
            assert_eq!(
                redacted_target(&format!("/v1/x?{name}=a")),
                format!("/v1/x?{name}=a")
            );
        }
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "x-api-key",
            "api-key",
            "cookie",
            "x-amz-security-token",
            "x-goog-api-key",
        ] {
            headers.insert(name, HeaderValue::from_static("CANARY"));
        }
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("x-keyboard", HeaderValue::from_static("qwerty"));
        let text = head_text("POST /v1/x HTTP/1.1", &headers);
        assert!(!text.contains("CANARY"), "{text}");
        assert_eq!(text.matches(REDACTED).count(), 6);
        assert_eq!(
            redacted("GET / HTTP/1.1\r\nX-API-Key: CANARY\r\n\r\n"),
            "GET / HTTP/1.1\r\nX-API-Key: [redacted]\r\n"
        );
        assert!(
            text.starts_with("POST /v1/x HTTP/1.1\r\n") && text.contains("x-keyboard: qwerty\r\n")
        );
    }
}
