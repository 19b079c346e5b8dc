//! Errors in the shape of the Messages API: `{"type":"error","error":{…},"request_id":…}` (messages 7).
//!
//! Takes: a failure. Gives: its status, its body and its event. Never: a status or a type that the API does not know.

use crate::json::write_string;
use crate::wire::fault::{Failure, Fault, write_or_null};
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

/// Returns the text of the error. Clients read two numbers out of the text of a prompt that is too long, so it is
/// written in the words that they know (messages 7.3).
fn message(failure: &Failure) -> Cow<'_, str> {
    match failure.fault {
        Fault::ContextLength => match Overflow::of(&failure.message) {
            Some(overflow) => overflow.text().into(),
            None => format!("prompt is too long: {}", failure.message).into(),
        },
        _ => Cow::Borrowed(&failure.message),
    }
}

/// Returns true for the refusal of a request whose prompt fits into the model's context, but not with the tokens that it
/// asks for.
pub(crate) fn exceeds_by_its_limit(failure: &Failure) -> bool {
    failure.fault == Fault::ContextLength
        && Overflow::of(failure.original()).is_some_and(|overflow| overflow.answer.is_some())
}

/// Figures of an engine's message about a prompt that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overflow {
    prompt: u64,
    /// Tokens asked for beside the prompt, where only the sum of both is too much.
    answer: Option<u64>,
    most: u64,
}

impl Overflow {
    /// Reads the figures; `None` if the message has none that fit together (engines H.3).
    fn of(message: &str) -> Option<Self> {
        let numbers: Vec<_> = numbers(message).collect();
        let after = |words: &str| {
            let at = message.to_ascii_lowercase().find(words)? + words.len();
            numbers.iter().find(|(place, _)| *place >= at).map(|(_, number)| *number)
        };
        let before = |words: &str| {
            let at = message.to_ascii_lowercase().find(words)?;
            numbers.iter().rev().find(|(place, _)| *place < at).map(|(_, number)| *number)
        };
        let limit = ["maximum context length", "context length", "context size"];
        let most = limit.iter().find_map(|words| after(words))?;
        let input =
            [" input tokens", " tokens from the input", " in the messages", "prompt contains at least"];
        let prompt = input
            .iter()
            .find_map(|words| before(words))
            .or_else(|| after("input ("))
            .or_else(|| after("the input ("))
            .or_else(|| after("request ("))
            .or_else(|| numbers.iter().map(|(_, number)| *number).find(|number| *number != most))?;
        if prompt > most {
            return Some(Self { prompt, answer: None, most });
        }
        let answer = [" output tokens", " for the completion", " in the completion"];
        let answer = answer.iter().find_map(|words| before(words)).or_else(|| after("is too large: "));
        let answer = answer.filter(|answer| *answer != prompt)?;
        Some(Self { prompt, answer: Some(answer), most })
    }

    fn text(self) -> String {
        let Self { prompt, answer, most } = self;
        match answer {
            None => format!("prompt is too long: {prompt} tokens > {most} maximum"),
            Some(answer) => format!(
                "input length and `max_tokens` exceed context limit: {prompt} + {answer} > {most}, decrease input \
                 length or `max_tokens` and try again"
            ),
        }
    }
}

/// Returns the numbers in a text with their places.
fn numbers(text: &str) -> impl Iterator<Item = (usize, u64)> + '_ {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.as_bytes().get(at..)?;
        let start = at + rest.iter().position(|byte| is_digit(*byte))?;
        let length = text.as_bytes().get(start..)?.iter().take_while(|byte| is_digit(**byte)).count();
        at = start + length;
        Some((start, text.get(start..at)?.parse().unwrap_or(u64::MAX)))
    })
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
