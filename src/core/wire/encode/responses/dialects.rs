//! Events whose names differ by dialect, and stored events in the dialect of their reader (wire-format 4.9).

use super::text_events::{OPEN_REASONING, REASONING};
use crate::json::{self, Members};
use crate::wire::options::ResponsesDialect;
use std::borrow::Cow;

pub(super) const TOOL_CALL_DELTA: &str = "response.tool_call.delta";
pub(super) const SUMMARY_ADDED: &str = "response.reasoning.summary.added";
pub(super) const SUMMARY_DELTA: &str = "response.reasoning.summary.delta";
pub(super) const ADDITIONAL_CONTEXT: &str = "response.additional_context";
pub(super) const ERROR: &str = "response.error";
pub(super) const RATE_LIMITS: &str = "response.rate_limits.updated";

/// Events of the older description of the API, sent in `codex-legacy` only. They have a `response` member, which
/// tells them from other events of the same name.
const LEGACY: [&str; 8] = [
    TOOL_CALL_DELTA,
    OPEN_REASONING.0,
    OPEN_REASONING.1,
    SUMMARY_ADDED,
    SUMMARY_DELTA,
    ADDITIONAL_CONTEXT,
    ERROR,
    RATE_LIMITS,
];
/// Event names of the standard dialects, and their names in `openresponses`.
const NAMES: [(&str, &str); 2] = [
    (REASONING.delta, OPEN_REASONING.0),
    (REASONING.done, OPEN_REASONING.1),
];

/// Translates a stored event, written in any dialect, to the reader's dialect and returns it with its type; `None`
/// if the dialect has no such event (wire-format 4.9).
pub fn in_dialect(dialect: ResponsesDialect, event: &str) -> Option<(String, Cow<'_, str>)> {
    let kind = json::member(event, "type")?;
    if dialect == ResponsesDialect::CodexLegacy {
        return Some((kind, Cow::Borrowed(event)));
    }
    if LEGACY.contains(&kind.as_str())
        && json::read::<Members<'_>>(event)
            .ok()?
            .0
            .iter()
            .any(|(key, _)| key == "response")
    {
        return None;
    }
    let named = NAMES.iter().find_map(|(plain, open)| match dialect {
        ResponsesDialect::Openresponses => (kind == *plain).then_some(open),
        _ => (kind == *open).then_some(plain),
    });
    let rest = |name| Some((name, event.strip_prefix(&format!("{{\"type\":\"{kind}\""))?));
    let Some((name, rest)) = named.and_then(rest) else {
        return Some((kind, Cow::Borrowed(event)));
    };
    Some((
        (*name).to_owned(),
        format!("{{\"type\":\"{name}\"{rest}").into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_events_are_told_in_the_readers_dialect() {
        use ResponsesDialect::{CodexLegacy, Openai, Openresponses};
        let legacy = r#"{"type":"response.reasoning.delta","sequence_number":7,"response":{"id":"resp_1"},"delta":"a"}"#;
        let open = r#"{"type":"response.reasoning.delta","sequence_number":7,"item_id":"rs_1","delta":"a"}"#;
        let plain = open.replace("reasoning.delta", "reasoning_text.delta");
        let text = r#"{"type":"response.output_text.delta","sequence_number":8,"delta":"response.reasoning.delta"}"#;
        let last =
            r#"{"type":"response.completed","sequence_number":9,"response":{"id":"resp_1"}}"#;
        for (event, openai, openresponses) in [
            (legacy, None, None),
            (open, Some(&*plain), Some(open)),
            (&plain, Some(&*plain), Some(open)),
            (text, Some(text), Some(text)),
            (last, Some(last), Some(last)),
        ] {
            for (dialect, expected) in [
                (Openai, openai),
                (Openresponses, openresponses),
                (CodexLegacy, Some(event)),
            ] {
                let told = in_dialect(dialect, event);
                assert_eq!(
                    told.as_ref().map(|(_, event)| &**event),
                    expected,
                    "{event}"
                );
                assert!(
                    told.is_none_or(|(kind, event)| json::member(&event, "type") == Some(kind))
                );
            }
        }
    }
}
