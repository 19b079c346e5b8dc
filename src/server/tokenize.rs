//! Routes of engines that count the tokens of a chat with the engine's own tokenizer and template.
//!
//! Takes: the body of the chat, and what the route answers. Gives: the body for the route; the count, or that the engine
//! has none. Never: estimates.

use crate::engine::{Engine, TOKENIZE};
use crate::json::{Raw, integer, object, raw_member, read};
use crate::request::EngineBody;
use crate::request::fields;
use crate::wire::fault::{Failure, Fault, Unusable};

/// Returns the path and the body of the request that counts the tokens of this chat.
pub(super) fn request(engine: &Engine, chat: EngineBody) -> (&'static str, EngineBody) {
    let body = Some(&chat)
        .filter(|_| engine.counts_at == TOKENIZE)
        .and_then(effort_for_template);
    (engine.counts_at, body.unwrap_or(chat))
}

/// Returns the body with the effort as a member of `chat_template_kwargs`, which vLLM's `/tokenize` takes; the effort
/// itself it does not know. `None`: the chat has no effort. The client's own values for the template stay.
fn effort_for_template(chat: &EngineBody) -> Option<EngineBody> {
    let body = chat.joined();
    let text = std::str::from_utf8(&body).ok()?;
    let effort =
        raw_member(text, "reasoning_effort").filter(|effort| effort.get().starts_with('"'))?;
    let said = raw_member(text, KWARGS).map_or("{}", Raw::get);
    let mut members = said.strip_prefix('{')?.strip_suffix('}')?.trim().to_owned();
    // As the chat does it (engines E.2).
    let is_off = effort.get() == "\"none\"";
    let switches = [("enable_thinking", "false"), ("thinking", "false")];
    let switches = switches.into_iter().filter(|_| is_off);
    for (key, value) in std::iter::once(("reasoning_effort", effort.get())).chain(switches) {
        if raw_member(said, key).is_none() {
            let comma = if members.is_empty() { "" } else { "," };
            members.push_str(&format!("{comma}\"{key}\":{value}"));
        }
    }
    let rest = fields::without(&body, KWARGS).unwrap_or_else(|| body.clone());
    Some(fields::with_defaults(rest, &[(KWARGS.to_owned(), format!("{{{members}}}"))]).into())
}

/// Member of a chat with parameters of its template.
const KWARGS: &str = "chat_template_kwargs";

object! {
    /// Answer of a route that counts tokens, of which only the count is used: `/tokenize`, or that of Messages.
    struct TokenCount<'a> {
        count: Raw<'a> = "count" | "input_tokens",
    }
}

/// Returns the count in the answer of a route that counts tokens. `None`: the route takes only texts and has ignored
/// the chat (llama.cpp). Fails if the answer is unreadable.
pub(super) fn counted(answer: &[u8]) -> Result<Option<u64>, Failure> {
    let answer = std::str::from_utf8(answer)
        .ok()
        .and_then(|text| read(text).ok());
    let answer: TokenCount<'_> = answer.ok_or(Unusable::Unreadable)?;
    Ok(answer.count.and_then(integer))
}

/// Returns true for the failure of an engine that has no such route, whatever the body of its answer, or whose route
/// takes only texts (SGLang 0.5.12).
pub(super) fn is_missing(failure: &Failure) -> bool {
    let status = failure
        .engine
        .as_ref()
        .and_then(|report| report.status)
        .unwrap_or(failure.status);
    let texts_only = matches!(failure.status, 400 | 422)
        && failure.original().contains("prompt")
        && (failure.original().contains("required") || failure.original().contains("missing"));
    texts_only || matches!(status, 404 | 405 | 501) && failure.fault != Fault::ModelNotFound
}
