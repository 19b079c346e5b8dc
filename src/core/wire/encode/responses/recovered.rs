//! Items of a response whose end is lost, from its stored events (wire-format 4.6 rule 9): complete items as they
//! were, incomplete ones as far as they came.

use super::text_events::{
    ARGUMENTS, EventText, INPUT, REASONING, REFUSAL, SUMMARY, TEXT, TextEvents,
};
use crate::json::{self, Members, Raw, write_string};
use crate::wire::OutputBuffer;
use std::collections::BTreeMap;

/// Texts that are parts of an item: messages, reasoning and its summaries.
const PARTS: [&TextEvents; 4] = [&TEXT, &REFUSAL, &REASONING, &SUMMARY];
/// Texts of calls.
const CALLS: [&TextEvents; 2] = [&ARGUMENTS, &INPUT];

/// Items recovered from the events, by their output index.
#[derive(Debug, Default)]
pub struct RecoveredItems(BTreeMap<u64, RecoveredItem>);

/// Recovered item: complete from its `done` event, or assembled from its deltas.
#[derive(Debug, Default)]
struct RecoveredItem {
    /// Item from its `added` event, or from its `done` event.
    item: String,
    done: bool,
    /// Kind and text of each part, the text as escaped JSON. The key is (is a summary, index).
    parts: BTreeMap<(bool, u64), (&'static TextEvents, String)>,
    /// Arguments or input of a call.
    call: String,
}

impl RecoveredItems {
    /// Adds what an event says of an item.
    pub fn take(&mut self, event: &str) {
        let Some(members) = Members::of(event) else {
            return;
        };
        let number = |key: &str| members.get(key).and_then(json::integer);
        // Events of the older description repeat the same content; they are known by their `response` member.
        let Some(index) = number("output_index").filter(|_| members.get("response").is_none())
        else {
            return;
        };
        let kind = json::member(event, "type").unwrap_or_default();
        let piece = self.0.entry(index).or_default();
        if let "response.output_item.added" | "response.output_item.done" = kind.as_str() {
            piece.done = kind.ends_with("done");
            piece.item = members
                .get("item")
                .map(|item| item.get().to_owned())
                .unwrap_or_default();
            return;
        }
        let Some(text) = members.get("delta").map(spelled) else {
            return;
        };
        if let Some(part) = PARTS.iter().find(|part| part.is_delta(&kind)) {
            let at = number(part.index).unwrap_or(0);
            let is_summary = part.kind == SUMMARY.kind;
            piece
                .parts
                .entry((is_summary, at))
                .or_insert((part, String::new()))
                .1
                .push_str(text);
        } else if CALLS.iter().any(|call| call.is_delta(&kind)) {
            piece.call.push_str(text);
        }
    }

    /// Returns the items as a JSON list.
    pub fn list(&self) -> String {
        let items: Vec<_> = self.0.values().map(RecoveredItem::written).collect();
        format!("[{}]", items.join(","))
    }

    /// Returns the items, each with its id.
    pub fn items(&self) -> Vec<(String, String)> {
        let item = |item: String| Some((json::member(&item, "id")?, item));
        self.0
            .values()
            .filter_map(|piece| item(piece.written()))
            .collect()
    }
}

impl RecoveredItem {
    fn written(&self) -> String {
        let members = Members::of(&self.item).filter(|_| !self.done);
        let Some(Members(members)) = members else {
            return self.item.clone();
        };
        let mut out = OutputBuffer::default();
        for (at, (key, value)) in members.iter().enumerate() {
            out.put_u8(if at == 0 { b'{' } else { b',' });
            write_string(key, out.open());
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
        String::from_utf8_lossy(&out.join()).into_owned()
    }

    fn write_parts(&self, summary: bool, out: &mut OutputBuffer) {
        out.put_u8(b'[');
        let parts = self
            .parts
            .iter()
            .filter(|((of_summary, _), _)| *of_summary == summary);
        for (nth, (_, (part, text))) in parts.enumerate() {
            if nth > 0 {
                out.put_u8(b',');
            }
            part.write_part(EventText::piece(text.as_bytes()), out);
        }
        out.put_u8(b']');
    }
}

/// Returns the escaped text between the quotes of a JSON string.
fn spelled(raw: Raw<'_>) -> &str {
    let text = raw.get();
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or_default()
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
        let ids: Vec<_> = told.items().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["rs_0", "msg_1", "fc_2"]);
        assert_eq!(RecoveredItems::default().list(), "[]");
    }
}
