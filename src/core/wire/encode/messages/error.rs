//! Errors in the shape of the Messages API: `{"type":"error","error":{…},"request_id":…}` (messages 7).
//!
//! Takes: a failure. Gives: its status, and its body, which is also the data of its event. Never: a type that the API
//! does not know.

use crate::json::write_string;
use crate::wire::fault::{Failure, Fault, write_or_null};
use crate::wire::overflow::Overflow;
use bytes::BytesMut;
use std::borrow::Cow;

/// Code of a refused thread, by which the official libraries know that they must send whole conversations.
pub const THREAD_UNSUPPORTED: &str = "thread_unsupported_request";

/// Returns the HTTP status and the `error.type` of a failure in this API.
pub fn messages_status(failure: &Failure) -> (u16, &'static str) {
    match (failure.fault, failure.status) {
        (Fault::EngineOverloaded | Fault::Overloaded, _) => (529, "overloaded_error"),
        (_, 401) => (401, "authentication_error"),
        (_, 403) => (403, "permission_error"),
        (_, 404) => (404, "not_found_error"),
        (_, 413) => (413, "request_too_large"),
        (_, 429) => (429, "rate_limit_error"),
        (_, status @ 400..=499) => (status, "invalid_request_error"),
        (_, 504) => (504, "timeout_error"),
        (_, status @ (501 | 503)) => (status, "api_error"),
        (_, 529) => (529, "overloaded_error"),
        _ => (500, "api_error"),
    }
}

/// Appends the body of an error. `request_id`: the id that the header `request-id` has too.
pub fn write_messages_error(failure: &Failure, request_id: Option<&str>, out: &mut BytesMut) {
    let (_, kind) = messages_status(failure);
    out.extend_from_slice(b"{\"type\":\"error\",\"error\":{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"message\":");
    write_string(&message(failure), out);
    if let Some(code) = &failure.code {
        out.extend_from_slice(b",\"details\":{\"error_code\":");
        write_string(code, out);
        if code == THREAD_UNSUPPORTED {
            out.extend_from_slice(b",\"unsupported\":[\"thread\"]");
        }
        out.extend_from_slice(b"}");
    }
    out.extend_from_slice(b"},\"request_id\":");
    write_or_null(request_id, out);
    out.extend_from_slice(b"}");
}

/// Returns the text of the error. If the prompt is too long, clients read figures from the text, so it has the wording
/// that they know (messages 7.3).
fn message(failure: &Failure) -> Cow<'_, str> {
    match failure.fault {
        Fault::ContextLength => match Overflow::of(&failure.message) {
            Some(overflow) => overflow_text(overflow).into(),
            None => format!("prompt is too long: {}", failure.message).into(),
        },
        _ => Cow::Borrowed(&failure.message),
    }
}

/// Returns the error text for a prompt that is too long, from which clients read the figures.
fn overflow_text(overflow: Overflow) -> String {
    let Overflow {
        prompt,
        answer,
        most,
    } = overflow;
    match answer {
        None => format!("prompt is too long: {prompt} tokens > {most} maximum"),
        Some(answer) => format!(
            "input length and `max_tokens` exceed context limit: {prompt} + {answer} > {most}, decrease input \
             length or `max_tokens` and try again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_prompt_that_is_too_long() {
        for (message, expected) in [
            (
                "This model's maximum context length is 2048 tokens. However, your request has 2513 input tokens. \
                 Please reduce the length of the input messages. None",
                "prompt is too long: 2513 tokens > 2048 maximum",
            ),
            (
                "The input (2513 tokens) is longer than the model's context length (2048 tokens).",
                "prompt is too long: 2513 tokens > 2048 maximum",
            ),
            (
                "Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a \
                 total of 2600 tokens: 2000 tokens from the input messages and 600 tokens for the completion.",
                "input length and `max_tokens` exceed context limit: 2000 + 600 > 2048, decrease input length or \
                 `max_tokens` and try again",
            ),
            (
                "This model's maximum context length is 2048 tokens. However, you requested 600 output tokens and \
                 your prompt contains 2000 input tokens, for a total of 2600 tokens.",
                "input length and `max_tokens` exceed context limit: 2000 + 600 > 2048, decrease input length or \
                 `max_tokens` and try again",
            ),
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is \
                 32768 tokens and your request has 17459 input tokens (32000 > 32768 - 17459).",
                "input length and `max_tokens` exceed context limit: 17459 + 32000 > 32768, decrease input length or \
                 `max_tokens` and try again",
            ),
            (
                "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context length is \
                 only 131072 tokens, resulting in a maximum input length of 99072 tokens. Please reduce the length of \
                 the input prompt. (parameter=input_tokens, value=99073)",
                "input length and `max_tokens` exceed context limit: 99073 + 32000 > 131072, decrease input length or \
                 `max_tokens` and try again",
            ),
            (
                "You passed 5000 input tokens and requested 1 output tokens. However, the model's context length is \
                 only 4096 tokens, resulting in a maximum input length of 4095 tokens.",
                "prompt is too long: 5000 tokens > 4096 maximum",
            ),
            (
                "The decoder prompt (length 5005) is longer than the maximum model length of 4096.",
                "prompt is too long: 5005 tokens > 4096 maximum",
            ),
            (
                "Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens).",
                "prompt is too long: 5000 tokens > 4090 maximum",
            ),
            (
                "Multimodal prompt is too long after expanding multimodal tokens. After expanding \
                 len(req.origin_input_ids_unpadded)=10 => 5000 >= 4096.",
                "prompt is too long: 5000 tokens > 4096 maximum",
            ),
            (
                "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
                "prompt is too long: 5000 tokens > 4096 maximum",
            ),
            (
                "The prompt is too long for the model.",
                "prompt is too long: The prompt is too long for the model.",
            ),
        ] {
            let failure = Failure::from(Fault::ContextLength).with_message(message);
            assert_eq!(super::message(&failure), expected, "{message}");
        }
    }
}
