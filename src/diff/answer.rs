//! Answers, read into events, with the line of each mistake.
//!
//! Takes: a body and what is known of its head. Gives: an [`Answer`], or the line that cannot be read. Never:
//! repairs anything: otherwise a file that was cut or edited would be compared as an answer that no server sent.

use super::field::{self, Field};
use crate::named::named;
use crate::visible::{cut, tail};
use crate::wire::sse::{Frame, Framer, FramerOutput, lines};
use serde::de::IgnoredAny;

/// Fields that a line of an event stream may have.
const LINES: [&str; 5] = ["data", "event", "id", "retry", "error"];
/// Largest event that is read, in bytes.
const EVENT: usize = 64 << 20;
/// Longest part of a line that a message quotes, in characters.
const QUOTED: usize = 60;

named! {
    /// Form of a body.
    pub enum Form {
        /// Stream of events (SSE).
        Events = "a stream of events",
        /// JSON value.
        Json = "one JSON value",
        /// Text that is not JSON.
        Text = "text",
    }
}

/// Data of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// JSON value, by its fields.
    Fields(Vec<Field>),
    /// End mark of a stream.
    Done,
    /// Text that is not JSON: a body, or an event whose rest was lost when the connection broke.
    Text(String),
}

/// Event of a stream, or the only one of a body that is no stream.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Name of the event, if one was given.
    pub(super) name: Option<String>,
    pub(super) data: Data,
}

/// Head of an answer, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// Value of `content-type`, if there is one.
    pub content_type: Option<String>,
}

/// Answer to compare: its events, and what is known of its head and its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) head: Option<Head>,
    pub(super) form: Form,
    pub(super) events: Vec<Event>,
    /// True if the connection broke after the body.
    pub(super) is_reset: bool,
}

/// Mistake in a body: its line, counted from 1, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line of the body, counted from 1.
    pub line: usize,
    /// Reason why it cannot be read.
    pub why: String,
}

impl Answer {
    /// Reads a body. `is_reset`: the connection broke after it, so that its last event may be incomplete.
    ///
    /// # Errors
    /// Fails with the first line that no server can have sent: it was cut, or edited by hand.
    pub fn read(
        form: Form,
        body: &[u8],
        is_reset: bool,
        head: Option<Head>,
    ) -> Result<Self, Mistake> {
        let text = std::str::from_utf8(body).map_err(|error| Mistake {
            line: line_of(body, error.valid_up_to()),
            why: "it is not UTF-8".to_owned(),
        })?;
        let events = match form {
            Form::Events => events(text, is_reset, EVENT)?,
            Form::Json => vec![Event {
                name: None,
                data: json(text, 1, is_reset)?,
            }],
            Form::Text => vec![Event {
                name: None,
                data: Data::Text(text.to_owned()),
            }],
        };
        Ok(Self {
            head,
            form,
            events,
            is_reset,
        })
    }
}

/// Returns the line in which a byte is, counted from 1.
fn line_of(body: &[u8], at: usize) -> usize {
    1 + body.iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Reads a stream line by line, so that a mistake can be told with its line.
fn events(text: &str, is_reset: bool, limit: usize) -> Result<Vec<Event>, Mistake> {
    let mut framer = Framer::new(limit);
    let mut events = Vec::new();
    // Line in which the current event's data begins.
    let mut start = None;
    let read = |output: FramerOutput<'_>, start: &mut Option<usize>, line: usize, is_cut: bool| {
        match output {
            FramerOutput::Frame(frame) => {
                event(frame, start.take().unwrap_or(line), is_cut).map(Some)
            }
            FramerOutput::Comment => Ok(None),
            FramerOutput::TooLarge => Err(Mistake {
                line,
                why: format!("the event is larger than {limit} bytes"),
            }),
        }
    };
    for (line, number) in lines(text.as_bytes()).zip(1..) {
        let words = std::str::from_utf8(line).unwrap_or_default();
        // Only the last line of an answer that broke off can be incomplete.
        let is_cut = is_reset && !words.ends_with(['\r', '\n']);
        let words = words
            .trim_start_matches('\u{feff}')
            .trim_end_matches(['\r', '\n']);
        check(words, number, is_cut)?;
        if words.starts_with("data") || words.starts_with("error") {
            start.get_or_insert(number);
        }
        let mut found = Ok(None);
        framer.push(line, |output| {
            found = read(output, &mut start, number, false)
        });
        events.extend(found?);
    }
    let mut last = Ok(None);
    framer.finish(
        |_| true,
        |output| last = read(output, &mut start, 1, is_reset),
    );
    events.extend(last?);
    Ok(events)
}

/// Refuses a line that is no field of an event. Clients skip such a line, so a mistake made in an editor would go unnoticed.
fn check(line: &str, number: usize, is_reset: bool) -> Result<(), Mistake> {
    let name = line.split(':').next().unwrap_or_default();
    if line.is_empty() || line.starts_with(':') || LINES.contains(&name) || is_reset {
        return Ok(());
    }
    let why = format!(
        "{:?} is no line of an event stream; it must begin with data:, event:, id:, retry: or error:",
        cut(line, QUOTED)
    );
    Err(Mistake { line: number, why })
}

fn event(frame: Frame<'_>, line: usize, is_cut: bool) -> Result<Event, Mistake> {
    let [name, data] = [frame.name, frame.data].map(String::from_utf8_lossy);
    let name = Some(name.into_owned()).filter(|name| !name.is_empty());
    let data = if data.trim() == "[DONE]" {
        Data::Done
    } else {
        json(&data, line, is_cut)?
    };
    Ok(Event { name, data })
}

/// Reads JSON that begins in this line. `is_cut`: it may be incomplete, and is text then.
fn json(text: &str, line: usize, is_cut: bool) -> Result<Data, Mistake> {
    let text = text.trim_start_matches('\u{feff}');
    match field::read(text) {
        Some(fields) => Ok(Data::Fields(fields)),
        None if is_cut => Ok(Data::Text(text.to_owned())),
        None => Err(not_json(text, line)),
    }
}

/// Returns the mistake in a text that is not JSON. An end in the middle is the sign of a file that was cut.
fn not_json(text: &str, line: usize) -> Mistake {
    let Err(error) = serde_json::from_str::<IgnoredAny>(text) else {
        return Mistake {
            line,
            why: "it is nested too deeply".to_owned(),
        };
    };
    let line = line + error.line().saturating_sub(1);
    let why = if text.trim().is_empty() {
        "it must be JSON, and is empty".to_owned()
    } else if error.is_eof() {
        let last = tail(text, QUOTED);
        let mark = if last.len() < text.len() { "…" } else { "" };
        format!("the JSON ends in the middle, so it was cut: {mark}{last:?}")
    } else {
        format!("it is not JSON ({error}): {:?}", cut(text, QUOTED))
    };
    Mistake { line, why }
}

/// Returns the events of an answer with these data.
#[cfg(test)]
pub(super) fn events_of(events: &[&str]) -> Vec<Event> {
    let text: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    Answer::read(Form::Events, text.as_bytes(), false, None)
        .map(|answer| answer.events)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(form: Form, body: &str) -> (usize, String) {
        let Mistake { line, why } = Answer::read(form, body.as_bytes(), false, None).unwrap_err();
        (line, why)
    }

    #[test]
    fn mistakes_have_their_line() {
        for (form, body, line, why) in [
            (
                Form::Events,
                "data: {}\n\ndata: {\"a\":\"b",
                3,
                "so it was cut",
            ),
            (
                Form::Events,
                "data: {}\n\ndata: {\"a\":1,}\n\n",
                3,
                "not JSON",
            ),
            (
                Form::Events,
                ": a\r\n\r\ndat: {}\r\n\r\n",
                3,
                "no line of an event stream",
            ),
            (
                Form::Events,
                "event: a\ndata: {\ndata: \"a\" 1}\n\n",
                3,
                "not JSON",
            ),
            (Form::Json, "{\n \"a\": 1,\n \"b\": [\n", 4, "so it was cut"),
            (Form::Json, "{\n \"a\": 1\n \"b\": 2\n}", 3, "not JSON"),
            (Form::Json, "", 1, "is empty"),
            (Form::Json, "\u{feff}{\"a\":", 1, "so it was cut"),
            (
                Form::Events,
                "\u{feff}data: {\ndata: \"a\" 1}\n\n",
                2,
                "not JSON",
            ),
        ] {
            let got = mistake(form, body);
            assert_eq!(got.0, line, "{body:?}: {}", got.1);
            assert!(got.1.contains(why), "{body:?}: {}", got.1);
        }
        let large = events("data: {}\n\ndata: \"aaaaaaaaaaaaaaaa\"\n\n", false, 16).unwrap_err();
        assert_eq!(
            (large.line, large.why.as_str()),
            (3, "the event is larger than 16 bytes")
        );
        let error = Answer::read(Form::Text, b"a\nb\xff", false, None).unwrap_err();
        assert_eq!((error.line, error.why.as_str()), (2, "it is not UTF-8"));
    }

    #[test]
    fn a_broken_connection_may_leave_half_an_event() {
        let body = b"data: {}\n\ndata: {\"a\":";
        let answer = Answer::read(Form::Events, body, true, None).unwrap();
        let texts: Vec<_> = answer
            .events
            .iter()
            .map(|event| matches!(event.data, Data::Text(_)))
            .collect();
        assert_eq!(texts, [false, true]);
        let why = Answer::read(Form::Events, b"dat: {}\n\ndata: {\"a\":", true, None)
            .unwrap_err()
            .why;
        assert!(why.contains("no line of an event stream"), "{why}");
    }

    /// Older builds of llama.cpp send errors so (engines A.3.1).
    #[test]
    fn an_error_may_have_a_field_of_its_own() {
        let answer = Answer::read(Form::Events, b"error: {\"code\":500}\n\n", false, None).unwrap();
        assert_eq!(answer.events.len(), 1);
    }

    #[test]
    fn all_line_ends_give_the_same_events() {
        for body in [
            "event: a\ndata: {}\n\ndata: [DONE]\n\n",
            "event: a\rdata: {}\r\rdata: [DONE]\r\r",
        ] {
            let answer = Answer::read(Form::Events, body.as_bytes(), false, None).unwrap();
            let names: Vec<_> = answer
                .events
                .iter()
                .map(|event| event.name.as_deref())
                .collect();
            assert_eq!(names, [Some("a"), None], "{body:?}");
            assert_eq!(answer.events.last().unwrap().data, Data::Done, "{body:?}");
        }
    }
}
