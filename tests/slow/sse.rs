//! Bytes to events, by somebody else's framer.

use eventsource_stream::Eventsource;
use futures::{FutureExt, StreamExt};

use super::json::Json;

/// One server-sent event.
#[derive(Clone, Debug)]
pub struct Event {
    pub name: String,
    /// `None` where the bytes are not UTF-8.
    pub data: Option<String>,
}

/// All events of a complete input.
///
/// What the framer does not do by itself is done around it, in the open: one mark at the beginning is taken off, the
/// three line ends are made one, and bytes that are not UTF-8 are replaced by a character that stands nowhere else, so
/// that one bad event does not end the whole stream.
pub fn events(bytes: &[u8]) -> Vec<Event> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let bad = ('\u{e000}'..'\u{f8ff}').find(|mark| !contains(bytes, mark.to_string().as_bytes())).unwrap();
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(bad);
        }
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");

    let dispatched = frame(&text);
    let mut all = frame(&format!("{text}\n\n"));
    if all.len() > dispatched.len() {
        // The last event was not followed by its blank line: it counts if it is complete, else it is the trace of a cut.
        let last = &all[all.len() - 1];
        let complete = !last.1.contains(bad) && (last.1.trim() == "[DONE]" || Json::parse(&last.1).is_some());
        if !complete {
            all.pop();
        }
    }
    let data = |data: String| if data.contains(bad) { None } else { Some(data) };
    all.into_iter().map(|(name, text)| Event { name, data: data(text) }).collect()
}

/// Name and data of every event that is followed by a blank line.
fn frame(text: &str) -> Vec<(String, String)> {
    // The blank line in front keeps the framer's own treatment of a mark away from the text.
    let bytes = Ok::<_, ()>(format!("\n{text}"));
    let stream = futures::stream::iter([bytes]).eventsource();
    let events: Vec<_> = stream.collect().now_or_never().expect("everything is there already");
    events.into_iter().map(|event| event.expect("text")).map(|event| (event.event, event.data)).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
