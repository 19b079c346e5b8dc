//! Reader of finish reasons: what an engine's word means.

use super::BadField;
use crate::json::{Raw, Text, object, read};
use crate::wire::event::Reason;
use crate::wire::rule::Rule;
use std::borrow::Cow;

/// Meaning of an engine's finish word (wire-format 2.6).
pub(super) enum FinishWord {
    No,
    Finish(Reason),
    Aborted,
}

object! {
    /// SGLang's inner form of a finish, which leaks out on some aborts: `{"type":"abort","message":…}`.
    struct FinishBody<'a> { kind: Text<'a> = "type", }
}

/// Returns the reason for the end of a choice, if the engine gives it by a known word.
pub(super) fn known_reason(finish_reason: Option<Raw<'_>>) -> Option<Reason> {
    match read_finish(finish_reason).ok()? {
        (FinishWord::Finish(reason), rules) => {
            Some(reason).filter(|_| !rules.contains(&Rule::FinishUnknown))
        }
        _ => None,
    }
}

/// Reads `finish_reason`. Returns its meaning, and the rules by which it departs from the format. Fails if it is
/// neither a string nor an object with a type.
pub(super) fn read_finish(raw: Option<Raw<'_>>) -> Result<(FinishWord, &'static [Rule]), BadField> {
    const OTHER: &[Rule] = &[Rule::FinishWord];
    let Some(raw) = raw else {
        return Ok((FinishWord::No, &[]));
    };
    let word = match Text::of(raw) {
        Some(word) => word,
        None => {
            let body: FinishBody<'_> = read(raw.get()).map_err(|_| BadField)?;
            body.kind.ok_or(BadField)?
        }
    };
    let decoded = word.decoded();
    let has_capitals = decoded.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower = if has_capitals {
        decoded.to_ascii_lowercase().into()
    } else {
        Cow::Borrowed(&*decoded)
    };
    let known = match &*lower {
        "" => return Ok((FinishWord::No, &[])),
        "abort" | "aborted" | "cancelled" | "canceled" | "unknown" | "insufficient_system_resource" => {
            return Ok((FinishWord::Aborted, OTHER));
        }
        // Words such as `network_error` name a failure.
        word if word.ends_with("error") => return Ok((FinishWord::Aborted, OTHER)),
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "stop_token" | "stop_str" | "complete" => {
            Some(Reason::Stop)
        }
        "length"
        | "max_tokens"
        | "max_new_tokens"
        | "model_length"
        | "model_context_window_exceeded"
        // vLLM cuts an answer that repeats itself.
        | "repetition"
        // The turn is to be continued, so it must not look finished.
        | "pause_turn" => Some(Reason::Length),
        "tool_calls" | "tool_call" | "tool_use" => Some(Reason::ToolCalls),
        "function_call" => Some(Reason::FunctionCall),
        "content_filter" | "content-filter" | "safety" | "sensitive" | "refusal" => Some(Reason::ContentFilter),
        _ => None,
    };
    let reason = known.unwrap_or(Reason::Stop);
    let rules: &[Rule] = match known {
        Some(reason) if reason.as_str() == decoded => &[],
        Some(_) => OTHER,
        None => &[Rule::FinishWord, Rule::FinishUnknown],
    };
    Ok((FinishWord::Finish(reason), rules))
}
