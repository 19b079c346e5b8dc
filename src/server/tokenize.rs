//! Route `/tokenize` of engines, which counts the tokens of a chat with the engine's own tokenizer and template.
//!
//! Takes: what the route answers. Gives: the count, or that the engine has none. Never: estimates.

use crate::json::{Raw, integer, object, read};
use crate::wire::fault::{Failure, Fault};

/// Path under which vLLM counts the tokens of a chat (captures `other-tokenize-chat`, `other-tokenize`).
pub(super) const TOKENIZE: &str = "/tokenize";

object! {
    /// Answer of a route that counts tokens, of which only the count is used: `/tokenize`, or that of Messages.
    struct TokenCount<'a> {
        count: Raw<'a> = "count" | "input_tokens",
    }
}

/// Returns the count in the answer of a route that counts tokens. `None`: the route takes only texts and has ignored
/// the chat (llama.cpp). Fails if the answer is unreadable.
pub(super) fn counted(answer: &[u8]) -> Result<Option<u64>, Failure> {
    let answer = std::str::from_utf8(answer).ok().and_then(|text| read(text).ok());
    let answer: TokenCount<'_> = answer.ok_or(Fault::InvalidResponse)?;
    Ok(answer.count.and_then(integer))
}

/// Returns true for the failure of an engine that has no such route, whatever the body of its answer, or whose route
/// takes only texts (SGLang 0.5.12).
pub(super) fn is_missing(failure: &Failure) -> bool {
    let status = failure.engine.as_ref().and_then(|report| report.status).unwrap_or(failure.status);
    let texts_only = matches!(failure.status, 400 | 422)
        && failure.original().contains("prompt")
        && (failure.original().contains("required") || failure.original().contains("missing"));
    texts_only || matches!(status, 404 | 405 | 501) && failure.fault != Fault::ModelNotFound
}
