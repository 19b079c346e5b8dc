//! Chat answer, read as a client reads it: the pieces of a stream put together, or the one object.

use crate::conform::{Answer, Frame};
use crate::tree::{Value, View, read};
use std::collections::BTreeSet;

/// Names under which reasoning comes.
pub(super) const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Call of a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    /// Index that the call's pieces have; `None` if one has none.
    pub(super) index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Number of pieces with a name, and with some of the arguments.
    pub(super) names: usize,
    pub(super) pieces: usize,
    /// Last piece as the server wrote it.
    pub(super) raw: String,
}

impl Call {
    /// Returns true if the arguments are one JSON object.
    pub(super) fn is_complete(&self) -> bool {
        read(&self.arguments).is_object()
    }
}

/// Choice of a chat answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Chat {
    pub(super) content: String,
    pub(super) reasoning: String,
    /// Names under which the reasoning came.
    pub(super) names: BTreeSet<&'static str>,
    pub(super) calls: Vec<Call>,
    /// Finish reasons, each with what the server wrote.
    pub(super) finishes: Vec<(String, String)>,
    /// Piece that carries text and the finish reason, as the server wrote it.
    pub(super) merged: Option<String>,
    /// Piece with reasoning, content or a call, for evidence.
    pub(super) reasoning_raw: String,
    pub(super) content_raw: String,
}

impl Chat {
    /// Reads the choice of this index.
    pub(super) fn of(answer: &Answer, index: u64) -> Self {
        let mut chat = Self::default();
        if answer.whole.is_object() {
            chat.read(&answer.whole, "message", &answer.raw, index);
        }
        for frame in answer.chunks() {
            chat.read(&frame.json, "delta", &frame.raw, index);
        }
        chat
    }

    fn read(&mut self, json: &Value, key: &str, raw: &str, index: u64) {
        let choices = json.list("/choices");
        let is_one = |choice: &&Value| choice.member("index").as_u64().unwrap_or(0) == index;
        for choice in choices.iter().filter(is_one) {
            self.take(choice, choice.member(key), key == "delta", raw);
        }
    }

    fn take(&mut self, choice: &Value, part: &Value, streams: bool, raw: &str) {
        let mut says = false;
        for name in REASONING {
            let text = part.member(name).as_str().unwrap_or("");
            if !text.is_empty() {
                // Both names have the same text where both are there.
                if !says {
                    self.reasoning.push_str(text);
                }
                self.names.insert(name);
                keep(&mut self.reasoning_raw, raw);
                says = true;
            }
        }
        if let Some(text) = part
            .member("content")
            .as_str()
            .filter(|text| !text.is_empty())
        {
            self.content.push_str(text);
            keep(&mut self.content_raw, raw);
            says = true;
        }
        for call in part.list("/tool_calls") {
            says |= self.call(call, raw, streams);
        }
        if let Some(finish) = choice.member("finish_reason").as_str() {
            self.finishes.push((finish.to_owned(), raw.to_owned()));
            if says && streams {
                keep(self.merged.get_or_insert_default(), raw);
            }
        }
    }

    /// Takes a piece of a call, or a whole one. Returns true if it says something.
    fn call(&mut self, piece: &Value, raw: &str, streams: bool) -> bool {
        let index = piece.member("index").as_u64();
        let (id, name) = (piece.text("/id"), piece.text("/function/name"));
        let arguments = piece.text("/function/arguments");
        // A piece without an index goes on with the last call, unless it has its own id.
        let known = self.calls.iter_mut().rev().find(|call| match index {
            Some(_) => call.index == index,
            None => id.is_empty() || call.id == id,
        });
        let call = match known {
            Some(call) if streams => call,
            _ => {
                self.calls.push(Call {
                    index,
                    ..Call::default()
                });
                let Some(call) = self.calls.last_mut() else {
                    return false;
                };
                call
            }
        };
        call.names += usize::from(!name.is_empty());
        call.pieces += usize::from(!arguments.is_empty());
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        call.arguments.push_str(arguments);
        raw.clone_into(&mut call.raw);
        !(id.is_empty() && name.is_empty() && arguments.is_empty())
    }

    /// Returns the finish reason; empty if there is none.
    pub(super) fn finish(&self) -> &str {
        self.finishes.last().map_or("", |(finish, _)| finish)
    }

    /// Returns true if the answer was cut by its limit, so that the missing part may only have had no room.
    pub(super) fn is_cut(&self) -> bool {
        self.finish() == "length"
    }

    /// Returns true if there is neither text nor a call.
    pub(super) fn is_empty(&self) -> bool {
        self.content.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }
}

fn keep(place: &mut String, raw: &str) {
    if place.is_empty() {
        raw.clone_into(place);
    }
}

/// Returns the usage of an answer and the frame that has it: the last one in a stream.
pub(super) fn usage(answer: &Answer) -> Option<(&Value, &str)> {
    if answer.whole.is_object() {
        return Some((answer.whole.member("usage"), answer.raw.as_str()))
            .filter(|(usage, _)| usage.is_object());
    }
    let with_usage = |frame: &&Frame| frame.json.member("usage").is_object();
    answer
        .chunks()
        .rev()
        .find(with_usage)
        .map(|frame| (frame.json.member("usage"), frame.raw.as_str()))
}

/// Returns the error within a stream, or the body of an answer with another status than 200.
pub(super) fn error(answer: &Answer) -> Option<&str> {
    if answer.status != 200 {
        return Some(&answer.raw);
    }
    let frame = answer
        .chunks()
        .find(|frame| frame.json.member("error").says());
    frame.map(|frame| frame.raw.as_str())
}
