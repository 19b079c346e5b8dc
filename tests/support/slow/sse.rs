//! Splits bytes into events with a third-party framer.

use eventsource_stream::Eventsource;
use futures::{FutureExt, StreamExt};

use super::json::Json;

/// Server-sent event as the third-party framer finds it, with its name and data.
#[derive(Clone, Debug)]
pub struct Event {
    pub name: String,
    /// Data; `None` if the bytes are not UTF-8.
    pub data: Option<String>,
}

/// Returns all events of a complete input.
///
/// The framer's gaps are filled here: one byte order mark at the start is removed, the three line ends are unified,
/// and bytes that are not UTF-8 are replaced by a character that occurs nowhere else, so that one bad event does
/// not end the whole stream.
pub fn events(bytes: &[u8]) -> Vec<Event> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let bad = ('\u{e000}'..'\u{f8ff}')
        .find(|mark| !contains(bytes, mark.to_string().as_bytes()))
        .unwrap();
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(bad);
        }
    }
    let text = with_named_errors(&text.replace("\r\n", "\n").replace('\r', "\n"));

    let dispatched = frame(&text);
    let mut all = frame(&format!("{text}\n\n"));
    if all.len() > dispatched.len() {
        // A last event without its blank line counts if it is complete; otherwise the stream was cut.
        let last = &all[all.len() - 1];
        let complete =
            !last.1.contains(bad) && (last.1.trim() == "[DONE]" || Json::parse(&last.1).is_some());
        if !complete {
            all.pop();
        }
    }
    let data = |data: String| if data.contains(bad) { None } else { Some(data) };
    all.into_iter()
        .map(|(name, text)| Event {
            name,
            data: data(text),
        })
        .collect()
}

/// Spells an error that llama.cpp writes as a separate field as the data of an event named `error`.
fn with_named_errors(text: &str) -> String {
    let event = |event: &str| {
        let mut has_data = false;
        let line = |line: &str| {
            let value = ["error: {", "error:{"]
                .iter()
                .find_map(|start| line.strip_prefix(start));
            let is_error = value.is_some() && !has_data;
            has_data |= is_error || line == "data" || line.starts_with("data:");
            if is_error {
                format!("event: error\ndata: {{{}", value.unwrap())
            } else {
                line.to_owned()
            }
        };
        event.split('\n').map(line).collect::<Vec<_>>().join("\n")
    };
    text.split("\n\n")
        .map(event)
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Returns name and data of every event that is followed by a blank line.
fn frame(text: &str) -> Vec<(String, String)> {
    // The leading blank line keeps the framer from removing a byte order mark.
    let bytes = Ok::<_, ()>(format!("\n{text}"));
    let stream = futures::stream::iter([bytes]).eventsource();
    let events: Vec<_> = stream
        .collect()
        .now_or_never()
        .expect("everything is there already");
    events
        .into_iter()
        .map(|event| event.expect("text"))
        .map(|event| (event.event, event.data))
        .collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
