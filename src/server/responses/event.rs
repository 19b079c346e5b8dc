//! Parser for the bytes of a Responses stream that this crate has written: the only line ends are those of the
//! framing.

use crate::json::{self, Members};
use crate::wire::options::ResponsesDialect;
use std::borrow::Cow;

/// Events of the older description of the API, sent in one dialect only. They have a `response` member, which
/// tells them from other events of the same name.
const LEGACY: [&str; 8] = [
    "response.tool_call.delta",
    "response.reasoning.delta",
    "response.reasoning.done",
    "response.reasoning.summary.added",
    "response.reasoning.summary.delta",
    "response.additional_context",
    "response.error",
    "response.rate_limits.updated",
];
/// Event names of the standard dialects, and their names in the Open Responses dialect.
const NAMES: [(&str, &str); 2] = [
    ("response.reasoning_text.delta", "response.reasoning.delta"),
    ("response.reasoning_text.done", "response.reasoning.done"),
];

/// An event of a stream: its type and its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Event<'b> {
    pub(in crate::server) kind: &'b str,
    /// JSON of the event.
    pub(in crate::server) data: &'b str,
}

/// Returns the events in bytes that contain only whole events. Comments and `[DONE]` are skipped.
pub(in crate::server) fn each(bytes: &[u8]) -> impl Iterator<Item = Event<'_>> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.split_terminator("\n\n").filter_map(|event| {
        let (kind, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
        Some(Event { kind, data })
    })
}

impl<'b> Event<'b> {
    /// Returns the `response` member of the event.
    pub(in crate::server) fn response(&self) -> Option<&'b str> {
        json::raw_member(self.data, "response").map(|response| response.get())
    }
}

/// Returns the `response` member of the first event.
pub(in crate::server) fn response_in(bytes: &[u8]) -> Option<&str> {
    each(bytes).next()?.response()
}

/// Returns true if an event of this type ends a stream.
pub(in crate::server) fn is_last(kind: &str) -> bool {
    matches!(kind, "response.completed" | "response.incomplete" | "response.failed")
}

/// Translates a stored event, written in any dialect, to the reader's dialect and returns it with its type; `None`
/// if the dialect has no such event (wire-format 4.9).
pub(in crate::server) fn in_dialect(
    dialect: ResponsesDialect,
    event: &str,
) -> Option<(String, Cow<'_, str>)> {
    let kind = json::member(event, "type")?;
    if dialect == ResponsesDialect::CodexLegacy {
        return Some((kind, Cow::Borrowed(event)));
    }
    if LEGACY.contains(&kind.as_str())
        && json::read::<Members<'_>>(event).ok()?.0.iter().any(|(key, _)| key == "response")
    {
        return None;
    }
    let named = NAMES.iter().find_map(|(plain, open)| match dialect {
        ResponsesDialect::Openresponses => (kind == *plain).then_some(open),
        _ => (kind == *open).then_some(plain),
    });
    let rest = |name| Some((name, event.strip_prefix(&format!("{{\"type\":\"{kind}\""))?));
    let Some((name, rest)) = named.and_then(rest) else { return Some((kind, Cow::Borrowed(event))) };
    Some(((*name).to_owned(), format!("{{\"type\":\"{name}\"{rest}").into()))
}

/// Returns the offset of the event that ends the stream.
pub(in crate::server) fn last_event_offset(bytes: &[u8]) -> Option<usize> {
    each(bytes)
        .filter(|event| is_last(event.kind))
        .last()
        .map(|event| event.kind.as_ptr().addr() - bytes.as_ptr().addr() - "event: ".len())
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
        let text =
            r#"{"type":"response.output_text.delta","sequence_number":8,"delta":"response.reasoning.delta"}"#;
        let last = r#"{"type":"response.completed","sequence_number":9,"response":{"id":"resp_1"}}"#;
        for (event, openai, openresponses) in [
            (legacy, None, None),
            (open, Some(&*plain), Some(open)),
            (&plain, Some(&*plain), Some(open)),
            (text, Some(text), Some(text)),
            (last, Some(last), Some(last)),
        ] {
            for (dialect, expected) in
                [(Openai, openai), (Openresponses, openresponses), (CodexLegacy, Some(event))]
            {
                let told = in_dialect(dialect, event);
                assert_eq!(told.as_ref().map(|(_, event)| &**event), expected, "{event}");
                assert!(told.is_none_or(|(kind, event)| json::member(&event, "type") == Some(kind)));
            }
        }
    }

    #[test]
    fn events_and_what_is_none() {
        let object = r#"{"id":"resp_1","output":[{"text":"\n\nevent: response.completed"}]}"#;
        let stream = format!(
            ": keepalive\n\nevent: response.created\ndata: {{\"response\":{object}}}\n\nevent: response.completed\ndata: \
             {{\"type\":\"response.completed\",\"response\":{object}}}\n\ndata: [DONE]\n\n"
        );
        let kinds: Vec<_> = each(stream.as_bytes()).map(|event| event.kind).collect();
        assert_eq!(kinds, ["response.created", "response.completed"]);
        assert!(each(stream.as_bytes()).all(|event| event.response() == Some(object)));
        let at = last_event_offset(stream.as_bytes()).unwrap();
        assert!(stream[at..].starts_with("event: response.completed\n"));
        assert_eq!(response_in(&stream.as_bytes()[at..]), Some(object));
        assert_eq!(last_event_offset(b"event: response.created\ndata: {}\n\n"), None);
        assert_eq!(each(b"").next(), None);
        assert_eq!(response_in(b"event: error\ndata: {\"code\":null}\n\n"), None);
    }
}
