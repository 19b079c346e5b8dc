//! Anthropic's Messages API through the built binary: in front of engines that only chat, and of engines with a
//! Messages route of their own.

#[path = "../../support/messages/fold.rs"]
mod fold;

mod count_tokens;
mod dropped;
mod errors;
mod headers;
mod keys;
mod models;
mod native;
mod operations;
mod replay;
mod streams;
mod vectors;

use crate::sim::prelude::*;
use fold::{Folded, fold, whole};

/// Version of the API that every client of today names.
const VERSION: &str = "2023-06-01";

/// Returns a Messages request with this body.
fn post(body: impl Into<Vec<u8>>) -> Request {
    Request::post("/v1/messages", body).header("anthropic-version", VERSION)
}

/// Returns a request with the prompt that must never be logged. `more` is further JSON members, each starting with a
/// comma.
fn message(more: &str) -> Request {
    post(format!(
        r#"{{"model":"m","max_tokens":64,"messages":[{{"role":"user","content":"{PROMPT}"}}]{more}}}"#
    ))
}

/// Returns the same request as a stream.
fn stream(more: &str) -> Request {
    message(&format!(r#","stream":true{more}"#))
}

/// Returns the same request with its key in Anthropic's header.
fn with_api_key(request: &Request, key: &str) -> Request {
    request
        .clone()
        .without("authorization")
        .header("x-api-key", key)
}

/// Returns the same request for the number of tokens.
fn count(request: &Request) -> Request {
    request.clone().target("/v1/messages/count_tokens")
}

/// Starts an engine that says "Hello" in two tokens, streamed or whole as requested.
async fn engine() -> Engine {
    Engine::answering(|attempt| hello(attempt.text().contains(r#""stream":true"#))).await
}

/// Returns an answer that says "Hello" and cost 9 and 2 tokens.
pub(crate) fn hello(streams: bool) -> Script {
    match streams {
        true => Script::stream()
            .text("Hel")
            .text("lo")
            .finish("stop")
            .usage(9, 2)
            .done()
            .end(),
        false => Script::ok(json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
        })),
    }
}

/// Parses an answer that is one message.
fn object(answer: &Answer) -> Value {
    assert_eq!(
        (answer.head.status, answer.ended),
        (200, Ended::Length),
        "{}",
        answer.text()
    );
    let message = answer.json();
    whole(&message).unwrap();
    message
}

/// Reads the events of an answer as a strict client does.
pub(crate) fn told(answer: &Answer) -> Folded {
    assert_eq!(
        (answer.head.status, answer.ended),
        (200, Ended::LastChunk),
        "{}",
        answer.text()
    );
    fold(answer.text()).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.text()))
}

/// Returns the message of a stream that ended well.
fn streamed(answer: &Answer) -> Value {
    let Folded { message, error } = told(answer);
    assert_eq!(error, None, "{}", answer.text());
    message
}

/// Returns the request that an engine received as its `n`th, parsed.
fn sent(engine: &Engine, n: usize) -> Value {
    engine.attempts()[n].json()
}

/// Error as a client of Anthropic reads it.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    status: u16,
    kind: String,
    message: String,
    code: Option<String>,
}

impl Fault {
    /// Returns status, type and code.
    fn name(&self) -> (u16, &str, Option<&str>) {
        (self.status, &self.kind, self.code.as_deref())
    }
}

/// Parses the error that an answer is, and checks what all errors of the API have in common.
fn fault(answer: &Answer) -> Fault {
    let status = answer.head.status;
    assert!(status >= 400, "an error, not {status} {}", answer.text());
    assert_eq!(
        answer.head.header("content-type"),
        Some("application/json"),
        "{}",
        answer.text()
    );
    assert_eq!(answer.ended, Ended::Length, "an error body has a length");
    let body = answer.json();
    fold::error(&body).unwrap();
    let keys: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["error", "request_id", "type"], "{body}");
    let id = answer
        .head
        .header("request-id")
        .expect("every answer has an id");
    assert_eq!(
        (
            body["request_id"].as_str(),
            answer.head.header("x-request-id")
        ),
        (Some(id), Some(id))
    );
    has_no_header_of_openai(answer);
    if matches!(status, 429 | 529) {
        let seconds = answer
            .head
            .header("retry-after")
            .expect("429 and 529 carry retry-after");
        assert!(
            (1..=60).contains(&seconds.parse().unwrap_or(0)),
            "retry-after: {seconds}"
        );
    }
    assert!(
        !answer.text().contains("127.0.0.1"),
        "no address of an upstream: {body}"
    );
    let error = &body["error"];
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    Fault {
        status,
        kind: text(&error["type"]).unwrap(),
        message: text(&error["message"]).unwrap(),
        code: text(&error["details"]["error_code"]),
    }
}

/// Checks that no header has a name that only clients of OpenAI know.
fn has_no_header_of_openai(answer: &Answer) {
    let is_theirs = |name: &str| name.starts_with("openai-") || name.starts_with("x-ratelimit-");
    let theirs: Vec<_> = answer
        .head
        .headers
        .iter()
        .filter(|(name, _)| is_theirs(name))
        .collect();
    assert!(theirs.is_empty(), "{theirs:?}");
}
