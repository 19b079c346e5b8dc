//! Recovery of output items from a response's stored events, for a response whose real end is lost (wire-format
//! 4.6 rule 9): complete items as they were, incomplete ones as far as they came.

use crate::json::{self, Members, Raw, write_string};
use crate::store::{Error, Item, Millis, Record, Store};
use bytes::{BufMut, BytesMut};
use std::collections::BTreeMap;

/// Events read at once.
const READ: usize = 256;

/// Delta events of messages, reasoning and reasoning summaries, with the type of the part they belong to.
const PARTS: [(&str, &str); 5] = [
    ("response.output_text.delta", "output_text"),
    ("response.refusal.delta", "refusal"),
    ("response.reasoning_text.delta", "reasoning_text"),
    ("response.reasoning.delta", "reasoning_text"),
    ("response.reasoning_summary_text.delta", "summary_text"),
];
/// Delta events of calls, with the key that they are pieces of.
const CALLS: [(&str, &str); 2] = [
    ("response.function_call_arguments.delta", "arguments"),
    ("response.custom_tool_call_input.delta", "input"),
];

/// Items recovered from the events, by their output index.
#[derive(Debug, Default)]
pub(in crate::server) struct RecoveredItems(BTreeMap<u64, RecoveredItem>);

/// Recovered item: complete from its `done` event, or assembled from its deltas.
#[derive(Debug, Default)]
struct RecoveredItem {
    /// Item from its `added` event, or from its `done` event.
    item: String,
    done: bool,
    /// Type and text of each part, the text as escaped JSON. The key is (is a summary, index).
    parts: BTreeMap<(bool, u64), (&'static str, String)>,
    /// Arguments or input of a call.
    call: String,
}

impl RecoveredItems {
    /// Reads the stored events of a response, up to the first that cannot be read.
    pub(in crate::server) async fn of(store: &Store, record: &Record, now: Millis) -> Self {
        let (mut told, mut after) = (Self::default(), None);
        loop {
            let replay = match store.events_after(record.key.clone(), after, READ, now).await {
                Ok(replay) => replay,
                Err(Error::NotFound) => return told,
                Err(error) => {
                    tracing::warn!(response = &*record.key.id, %error, "the events of a response cannot be read");
                    return told;
                }
            };
            let Some(last) = replay.events.bodies.len().checked_sub(1) else { return told };
            replay.events.bodies.iter().for_each(|event| told.take(event));
            after = Some(replay.events.from + last as u64);
        }
    }

    fn take(&mut self, event: &str) {
        let Some(members) = Members::of(event) else { return };
        let number = |key: &str| members.get(key).and_then(json::integer);
        // Events of the older description repeat the same content; they are known by their `response` member.
        let Some(index) = number("output_index").filter(|_| members.get("response").is_none()) else {
            return;
        };
        let kind = json::member(event, "type").unwrap_or_default();
        let piece = self.0.entry(index).or_default();
        if let "response.output_item.added" | "response.output_item.done" = kind.as_str() {
            piece.done = kind.ends_with("done");
            piece.item = members.get("item").map(|item| item.get().to_owned()).unwrap_or_default();
            return;
        }
        let Some(text) = members.get("delta").map(spelled) else { return };
        if let Some((_, part)) = PARTS.iter().find(|(known, _)| *known == kind) {
            let at = number("content_index").or_else(|| number("summary_index")).unwrap_or(0);
            let is_summary = *part == "summary_text";
            piece.parts.entry((is_summary, at)).or_insert((part, String::new())).1.push_str(text);
        } else if CALLS.iter().any(|(known, _)| *known == kind) {
            piece.call.push_str(text);
        }
    }

    /// Returns the items as a JSON list.
    pub(in crate::server) fn list(&self) -> String {
        let items: Vec<_> = self.0.values().map(RecoveredItem::written).collect();
        format!("[{}]", items.join(","))
    }

    /// Returns the items in their stored form.
    pub(in crate::server) fn items(&self) -> Vec<Item> {
        let item = |item: String| Some(Item::new(&json::member(&item, "id")?, &item));
        self.0.values().filter_map(|piece| item(piece.written())).collect()
    }
}

impl RecoveredItem {
    fn written(&self) -> String {
        let members = Members::of(&self.item).filter(|_| !self.done);
        let Some(Members(members)) = members else { return self.item.clone() };
        let mut out = BytesMut::new();
        for (at, (key, value)) in members.iter().enumerate() {
            out.put_u8(if at == 0 { b'{' } else { b',' });
            write_string(key, &mut out);
            out.put_u8(b':');
            match key.as_ref() {
                "status" => out.extend_from_slice(b"\"incomplete\""),
                "content" => self.write_parts(false, &mut out),
                "summary" => self.write_parts(true, &mut out),
                "arguments" | "input" => {
                    out.extend_from_slice(format!("\"{}\"", self.call).as_bytes());
                }
                _ => out.extend_from_slice(value.get().as_bytes()),
            }
        }
        out.put_u8(b'}');
        String::from_utf8_lossy(&out).into_owned()
    }

    fn write_parts(&self, summary: bool, out: &mut BytesMut) {
        out.put_u8(b'[');
        let parts = self.parts.iter().filter(|((of_summary, _), _)| *of_summary == summary);
        for (nth, (_, (kind, text))) in parts.enumerate() {
            if nth > 0 {
                out.put_u8(b',');
            }
            let (key, rest) = match *kind {
                "refusal" => ("refusal", ""),
                "output_text" => ("text", r#","annotations":[],"logprobs":[]"#),
                _ => ("text", ""),
            };
            out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"{key}\":\"{text}\"{rest}}}").as_bytes());
        }
        out.put_u8(b']');
    }
}

/// Returns the escaped text between the quotes of a JSON string.
fn spelled(raw: Raw<'_>) -> &str {
    let text = raw.get();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_items_stay_and_open_ones_have_what_came() {
        let mut told = RecoveredItems::default();
        for event in [
            r#"{"type":"response.created","response":{"output":[]}}"#,
            r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_0","type":"reasoning","status":"in_progress","summary":[],"content":[]}}"#,
            r#"{"type":"response.reasoning_text.delta","item_id":"rs_0","output_index":0,"content_index":0,"delta":"r\""}"#,
            r#"{"type":"response.reasoning.delta","response":{"id":"resp_1"},"output_index":0,"content_index":0,"delta":"r\""}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_0","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"r\""}]}}"#,
            r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"\"a","logprobs":[]}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"b\\","logprobs":[]}"#,
            r#"{"type":"response.refusal.delta","output_index":1,"content_index":1,"delta":"no"}"#,
            r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_2","type":"function_call","status":"in_progress","call_id":"c","name":"f","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"a"}"#,
        ] {
            told.take(event);
        }
        let expected = [
            r#"{"id":"rs_0","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"r\""}]}"#,
            r#"{"id":"msg_1","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"\"ab\\","annotations":[],"logprobs":[]},{"type":"refusal","refusal":"no"}]}"#,
            r#"{"id":"fc_2","type":"function_call","status":"incomplete","call_id":"c","name":"f","arguments":"{\"a"}"#,
        ];
        assert_eq!(told.list(), format!("[{}]", expected.join(",")));
        let ids: Vec<_> = told.items().iter().map(|item| item.id.to_string()).collect();
        assert_eq!(ids, ["rs_0", "msg_1", "fc_2"]);
        assert_eq!(RecoveredItems::default().list(), "[]");
    }
}
