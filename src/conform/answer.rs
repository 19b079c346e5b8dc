//! Answer to judge: views of an exchange that the rows share.

use super::verdict::Verdict;
use crate::exchange::{Ended, Exchange};
use crate::tree::Value;

/// Event of a stream with its data as JSON.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) raw: String,
    /// Null if the data is no JSON.
    pub(crate) json: Value,
}

impl Frame {
    pub(crate) fn is_done(&self) -> bool {
        self.raw == "[DONE]"
    }

    /// Returns the text at a path; empty if there is none.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.json.text(path)
    }

    /// Returns the only choice, if there is one.
    pub(crate) fn choice(&self) -> Option<&Value> {
        self.json.at("/choices/0")
    }
}

/// Answer with its views.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) ended: Ended,
    pub(crate) raw: String,
    /// Body as one JSON value; null if it is none.
    pub(crate) whole: Value,
    /// Events; empty if the body is no stream.
    pub(crate) frames: Vec<Frame>,
    /// Reason why the stream cannot be read to its end, if so.
    pub(crate) unreadable: Option<String>,
}

impl Answer {
    pub(crate) fn new(exchange: &Exchange) -> Self {
        let content_type = exchange.content_type().to_owned();
        let raw = String::from_utf8_lossy(&exchange.body()).into_owned();
        let whole = Value::read(&raw);
        let (events, unreadable) = if whole.is_null() { exchange.events() } else { (Vec::new(), None) };
        let frames = events
            .into_iter()
            .map(|event| Frame { name: event.name, json: Value::read(&event.data), raw: event.data })
            .collect();
        let (status, ended) = (exchange.status.as_u16(), exchange.ended);
        Self { status, content_type, ended, raw, whole, frames, unreadable }
    }

    /// Returns the frames but `[DONE]`.
    pub(crate) fn chunks(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frames.iter().filter(|frame| !frame.is_done())
    }

    /// Returns a pass if no chunk is bad, or else a failure with the first bad one.
    pub(crate) fn none(&self, mut bad: impl FnMut(&Frame) -> bool) -> Verdict {
        match self.chunks().find(|frame| bad(frame)) {
            Some(frame) => Verdict::fail(&frame.raw),
            None => Verdict::Pass,
        }
    }

    /// Returns the status and the begin of the body as evidence.
    pub(crate) fn beginning(&self) -> String {
        format!("{} {} {}", self.status, self.content_type, self.raw)
    }

    /// Returns a pass if the status is 200.
    pub(crate) fn succeeds(&self) -> Verdict {
        Verdict::check(self.status == 200, &self.beginning())
    }

    /// Returns a pass if the body ended as HTTP frames it.
    pub(crate) fn ends(&self) -> Verdict {
        match self.ended {
            Ended::Clean => Verdict::Pass,
            ended => {
                let tail: Vec<char> = self.raw.chars().rev().take(80).collect();
                Verdict::fail(&format!(
                    "{}, behind: {}",
                    ended.words(),
                    tail.iter().rev().collect::<String>()
                ))
            }
        }
    }

    /// Returns a pass if the content type is that of event streams.
    pub(crate) fn is_stream(&self) -> Verdict {
        Verdict::check(self.content_type.starts_with("text/event-stream"), &self.beginning())
    }

    /// Returns a pass if the content type is JSON, and the body one object.
    pub(crate) fn is_object(&self) -> Verdict {
        let json = self.content_type.starts_with("application/json");
        Verdict::check(json && self.whole.is_object(), &self.beginning())
    }

    /// Returns a pass if every event has one JSON object, but for `[DONE]`.
    pub(crate) fn is_framed(&self) -> Verdict {
        if let Some(why) = &self.unreadable {
            return Verdict::fail(why);
        }
        if self.frames.is_empty() {
            return Verdict::fail(&self.beginning());
        }
        self.none(|frame| !frame.json.is_object())
    }
}
