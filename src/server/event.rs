//! Events in the bytes of a Responses stream, as they are written here: no line end in them but those between them.

use crate::json::{self, Members};

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event<'b> {
    pub(super) kind: &'b str,
    /// Its JSON.
    pub(super) data: &'b str,
}

/// The events in bytes that hold them whole. Comments and `[DONE]` are none.
pub(super) fn each(bytes: &[u8]) -> impl Iterator<Item = Event<'_>> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.split_terminator("\n\n").filter_map(|event| {
        let (kind, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
        Some(Event { kind, data })
    })
}

impl<'b> Event<'b> {
    /// The response that it carries.
    pub(super) fn response(&self) -> Option<&'b str> {
        let Members(members) = json::read(self.data).ok()?;
        members.into_iter().find(|(key, _)| key == "response").map(|(_, response)| response.get())
    }
}

/// The response in the first of some events.
pub(super) fn response_in(bytes: &[u8]) -> Option<&str> {
    each(bytes).next()?.response()
}

/// Whether an event of this type ends a stream.
pub(super) fn is_last(kind: &str) -> bool {
    matches!(kind, "response.completed" | "response.incomplete" | "response.failed")
}

/// Where the event that ends a stream begins.
pub(super) fn last(bytes: &[u8]) -> Option<usize> {
    each(bytes)
        .filter(|event| is_last(event.kind))
        .last()
        .map(|event| event.kind.as_ptr().addr() - bytes.as_ptr().addr() - "event: ".len())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let at = last(stream.as_bytes()).unwrap();
        assert!(stream[at..].starts_with("event: response.completed\n"));
        assert_eq!(response_in(&stream.as_bytes()[at..]), Some(object));
        assert_eq!(last(b"event: response.created\ndata: {}\n\n"), None);
        assert_eq!(each(b"").next(), None);
        assert_eq!(response_in(b"event: error\ndata: {\"code\":null}\n\n"), None);
    }
}
