//! Events, numbered, in the dialects (wire-format 4.6, 4.7, 4.9).

use super::super::Limits;
use super::super::frame::DONE;
use super::call::Call;
use super::item::{Item, Kind, Place, ReasoningItem, State};
use crate::json::{Raw, write_compact, write_number, write_string};
use crate::wire::fault::{Failure, write_or_null};
use crate::wire::options::ResponsesDialect;
use crate::wire::{OutputBuffer, Rope, Spelled};
use bytes::BytesMut;

/// How one kind of text is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextEvents {
    /// The stem of its events.
    delta: &'static str,
    done: &'static str,
    /// The events of its part, if it is in one.
    part: Option<(&'static str, &'static str)>,
    /// The key of the part's index.
    index: &'static str,
    /// The key of the whole text.
    text: &'static str,
    /// The part's type.
    kind: &'static str,
    /// Log probabilities travel along.
    logprobs: bool,
}

const CONTENT_PART: Option<(&str, &str)> =
    Some(("response.content_part.added", "response.content_part.done"));

pub(super) const TEXT: TextEvents = TextEvents {
    delta: "response.output_text.delta",
    done: "response.output_text.done",
    part: CONTENT_PART,
    index: "content_index",
    text: "text",
    kind: "output_text",
    logprobs: true,
};
pub(super) const REFUSAL: TextEvents = TextEvents {
    delta: "response.refusal.delta",
    done: "response.refusal.done",
    text: "refusal",
    kind: "refusal",
    logprobs: false,
    ..TEXT
};
pub(super) const REASONING: TextEvents = TextEvents {
    delta: "response.reasoning_text.delta",
    done: "response.reasoning_text.done",
    kind: "reasoning_text",
    logprobs: false,
    ..TEXT
};
pub(super) const SUMMARY: TextEvents = TextEvents {
    delta: "response.reasoning_summary_text.delta",
    done: "response.reasoning_summary_text.done",
    part: Some(("response.reasoning_summary_part.added", "response.reasoning_summary_part.done")),
    index: "summary_index",
    kind: "summary_text",
    logprobs: false,
    ..TEXT
};
pub(super) const ARGUMENTS: TextEvents = TextEvents {
    delta: "response.function_call_arguments.delta",
    done: "response.function_call_arguments.done",
    part: None,
    text: "arguments",
    kind: "",
    logprobs: false,
    ..TEXT
};
pub(super) const INPUT: TextEvents = TextEvents {
    delta: "response.custom_tool_call_input.delta",
    done: "response.custom_tool_call_input.done",
    text: "input",
    ..ARGUMENTS
};

impl TextEvents {
    /// The name of its events in a dialect.
    fn spoken(&self, dialect: ResponsesDialect) -> (&'static str, &'static str) {
        match (dialect, self.kind) {
            (ResponsesDialect::Openresponses, "reasoning_text") => {
                ("response.reasoning.delta", "response.reasoning.done")
            }
            _ => (self.delta, self.done),
        }
    }

    /// A part with this text.
    pub(super) fn write_part(&self, told: EventText<'_>, out: &mut OutputBuffer) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(self.kind.as_bytes());
        out.put_u8(b'"');
        string(self.text, told.text, out);
        if self.logprobs {
            out.extend_from_slice(b",\"annotations\":[");
            out.extend_from_slice(told.annotations);
            out.put_u8(b']');
        }
        self.write_logprobs(told.logprobs, out);
        out.put_u8(b'}');
    }

    fn write_logprobs(&self, entries: Spelled<'_>, out: &mut OutputBuffer) {
        if self.logprobs {
            out.extend_from_slice(b",\"logprobs\":[");
            out.push_text(entries);
            out.put_u8(b']');
        }
    }

    fn write_place(&self, place: &Place, at: usize, out: &mut OutputBuffer) {
        place.write(out.open());
        if self.part.is_some() {
            member(self.index, out);
            write_number(at, out.open());
        }
    }
}

/// Writes events and numbers them; nothing at all where there is no stream.
#[derive(Debug)]
pub(super) struct Events {
    on: bool,
    dialect: ResponsesDialect,
    next: u64,
    /// The id of the response.
    response: String,
    pub(super) limits: Option<Limits>,
    /// Limits of the engine's own event; told where nothing else is known of them.
    pub(super) engine_limits: Option<String>,
}

impl Events {
    pub(super) fn new(on: bool, dialect: ResponsesDialect) -> Self {
        Self { on, dialect, next: 0, response: String::new(), limits: None, engine_limits: None }
    }

    /// They belong to this response.
    pub(super) fn begin(&mut self, response: &str) {
        response.clone_into(&mut self.response);
    }

    /// An event with the members that `write` appends.
    pub(super) fn say(&mut self, kind: &str, out: &mut OutputBuffer, write: impl FnOnce(&mut OutputBuffer)) {
        if !self.on {
            return;
        }
        for piece in ["event: ", kind, "\ndata: {\"type\":\"", kind, "\",\"sequence_number\":"] {
            out.extend_from_slice(piece.as_bytes());
        }
        write_number(self.next, out.open());
        self.next += 1;
        write(out);
        out.extend_from_slice(b"}\n\n");
    }

    /// An event of the older description of the API, where the dialect has them: it names the response.
    fn say_legacy(&mut self, kind: &str, out: &mut OutputBuffer, write: impl FnOnce(&mut OutputBuffer)) {
        if self.dialect != ResponsesDialect::CodexLegacy {
            return;
        }
        let response = std::mem::take(&mut self.response);
        self.say(kind, out, |out| {
            out.extend_from_slice(b",\"response\":{\"id\":\"");
            out.extend_from_slice(response.as_bytes());
            out.put_u8(b'"');
            write(out);
        });
        self.response = response;
    }

    /// An item begins.
    pub(super) fn begin_item(&mut self, item: &Item, out: &mut OutputBuffer) {
        self.item("response.output_item.added", item, State::Added, out);
    }

    fn item(&mut self, kind: &str, item: &Item, state: State, out: &mut OutputBuffer) {
        self.say(kind, out, |out| {
            member("output_index", out);
            write_number(item.place.index, out.open());
            member("item", out);
            item.write(state, out);
        });
    }

    /// A part begins: a text of this voice, not told yet.
    pub(super) fn begin_part(
        &mut self,
        voice: &TextEvents,
        place: &Place,
        at: usize,
        out: &mut OutputBuffer,
    ) {
        let Some((added, _)) = voice.part else { return };
        self.part(added, voice, place, at, EventText::default(), out);
        if voice.kind == SUMMARY.kind {
            self.say_legacy("response.reasoning.summary.added", out, |out| {
                out.put_u8(b'}');
                place.write_id(out.open());
                member(voice.index, out);
                write_number(at, out.open());
                member("part", out);
                voice.write_part(EventText::default(), out);
            });
        }
    }

    fn part(
        &mut self,
        kind: &str,
        voice: &TextEvents,
        place: &Place,
        at: usize,
        told: EventText<'_>,
        out: &mut OutputBuffer,
    ) {
        self.say(kind, out, |out| {
            voice.write_place(place, at, out);
            member("part", out);
            voice.write_part(told, out);
        });
    }

    /// A piece of text.
    pub(super) fn delta(
        &mut self,
        voice: &TextEvents,
        place: &Place,
        at: usize,
        told: EventText<'_>,
        out: &mut OutputBuffer,
    ) {
        self.say(voice.spoken(self.dialect).0, out, |out| {
            voice.write_place(place, at, out);
            string("delta", told.text, out);
            voice.write_logprobs(told.plain_logprobs, out);
        });
        let write = |out: &mut OutputBuffer| {
            out.put_u8(b'}');
            if voice.kind == SUMMARY.kind {
                place.write_id(out.open());
                member(voice.index, out);
                write_number(at, out.open());
            } else {
                voice.write_place(place, at, out);
            }
            string("delta", told.text, out);
        };
        match voice.kind {
            "reasoning_text" => self.say_legacy("response.reasoning.delta", out, write),
            "summary_text" => self.say_legacy("response.reasoning.summary.delta", out, write),
            _ => {}
        }
    }

    /// An annotation of a part's text.
    pub(super) fn annotation(
        &mut self,
        place: &Place,
        at: usize,
        nth: usize,
        json: &str,
        out: &mut OutputBuffer,
    ) {
        self.say("response.output_text.annotation.added", out, |out| {
            TEXT.write_place(place, at, out);
            member("annotation_index", out);
            write_number(nth, out.open());
            member("annotation", out);
            out.extend_from_slice(json.as_bytes());
        });
    }

    /// An event of an item that is not modelled, with the member that it carries.
    pub(super) fn foreign(
        &mut self,
        kind: &str,
        place: &Place,
        carried: Option<(&str, Raw<'_>)>,
        out: &mut OutputBuffer,
    ) {
        self.say(kind, out, |out| {
            place.write(out.open());
            if let Some((key, value)) = carried {
                member(key, out);
                write_compact(value.get(), out.open());
            }
        });
    }

    /// A text is complete, and its part with it.
    pub(super) fn end_part(
        &mut self,
        voice: &TextEvents,
        place: &Place,
        at: usize,
        told: EventText<'_>,
        out: &mut OutputBuffer,
    ) {
        self.say(voice.spoken(self.dialect).1, out, |out| {
            voice.write_place(place, at, out);
            string(voice.text, told.text, out);
            voice.write_logprobs(told.plain_logprobs, out);
        });
        if voice.kind == REASONING.kind {
            self.say_legacy("response.reasoning.done", out, |out| {
                out.put_u8(b'}');
                voice.write_place(place, at, out);
                string(voice.text, told.text, out);
            });
        }
        if let Some((_, done)) = voice.part {
            self.part(done, voice, place, at, told, out);
        }
    }

    /// An item is complete: first what is open in it, then itself.
    pub(super) fn end_item(&mut self, item: &mut Item, out: &mut OutputBuffer) {
        let place = &item.place;
        match &mut item.kind {
            Kind::Reasoning(thought) => {
                for (voice, text) in [(&REASONING, &thought.content), (&SUMMARY, &thought.summary)] {
                    if let Some(text) = text {
                        self.end_part(voice, place, 0, EventText::whole(text), out);
                    }
                }
            }
            Kind::Message(parts) => {
                if let Some((at, part)) = parts.iter().enumerate().next_back() {
                    self.end_part(part.voice(), place, at, part.told(), out);
                }
            }
            Kind::Call(call) => self.end_call(call, place, out),
            Kind::Foreign(_) => {}
        }
        self.item("response.output_item.done", item, State::Present, out);
        if let Kind::Reasoning(ReasoningItem { sealed: Some(sealed), .. }) = &item.kind {
            self.say_legacy("response.additional_context", out, |out| {
                out.put_u8(b'}');
                member("context", out);
                out.extend_from_slice(b"{\"reasoning.encrypted_content\":\"");
                out.extend_from_slice(sealed.as_bytes());
                out.extend_from_slice(b"\"}");
            });
        }
    }

    fn end_call(&mut self, call: &mut Call, place: &Place, out: &mut OutputBuffer) {
        let voice = call.voice();
        if let Some(input) = call.unwrap() {
            self.delta(voice, place, 0, EventText::whole(input), out);
        }
        self.say(voice.done, out, |out| {
            place.write(out.open());
            if voice.text == ARGUMENTS.text {
                member("name", out);
                call.write_name(out.open());
            }
            string(voice.text, call.text(), out);
        });
        if voice.text == ARGUMENTS.text {
            self.say_legacy("response.tool_call.delta", out, |out| {
                out.extend_from_slice(b"},\"delta\":{\"content\":[{\"type\":\"tool_call\",\"id\":");
                call.write_id(out.open());
                member("name", out);
                call.write_name(out.open());
                string("arguments", call.text(), out);
                out.extend_from_slice(b"}]}");
            });
        }
    }

    /// The answer fails.
    pub(super) fn error(&mut self, failure: &Failure, out: &mut OutputBuffer) {
        self.say("error", out, |out| write_error(failure, out.open()));
        self.say_legacy("response.error", out, |out| {
            out.extend_from_slice(b",\"status\":\"failed\"}");
            member("error", out);
            out.extend_from_slice(b"{\"type\":");
            write_string(&failure.kind, out.open());
            member("message", out);
            write_string(&failure.message, out.open());
            out.put_u8(b'}');
        });
    }

    /// Behind the last event.
    pub(super) fn last(&mut self, out: &mut OutputBuffer) {
        let known = self.limits.map(|Limits { used_percent, window_minutes }| {
            format!("{{\"primary\":{{\"used_percent\":{used_percent},\"window_minutes\":{window_minutes}}}}}")
        });
        if let Some(limits) = known.or_else(|| self.engine_limits.take()) {
            self.say_legacy("response.rate_limits.updated", out, |out| {
                for piece in ["},\"limits\":", &limits] {
                    out.extend_from_slice(piece.as_bytes());
                }
            });
        }
        if self.on && self.dialect == ResponsesDialect::Openresponses {
            out.extend_from_slice(DONE);
        }
    }
}

/// A text as events tell it, in JSON spelling.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventText<'a> {
    pub(super) text: Spelled<'a>,
    /// The entries of `logprobs` in a part, which say more than those of other events.
    pub(super) logprobs: Spelled<'a>,
    pub(super) plain_logprobs: Spelled<'a>,
    /// The entries of `annotations`.
    pub(super) annotations: &'a [u8],
}

impl<'a> EventText<'a> {
    pub(super) fn piece(text: &'a [u8]) -> Self {
        Self { text: Spelled::Piece(text), ..Self::default() }
    }

    pub(super) fn whole(text: &'a Rope) -> Self {
        Self { text: Spelled::Whole(text), ..Self::default() }
    }
}

fn member(key: &str, out: &mut OutputBuffer) {
    for piece in [",\"", key, "\":"] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// A member whose value is a string, spelled already.
fn string(key: &str, text: Spelled<'_>, out: &mut OutputBuffer) {
    member(key, out);
    out.put_u8(b'"');
    out.push_text(text);
    out.put_u8(b'"');
}

/// What an `error` event says behind its number (wire-format 4.7).
pub(crate) fn write_error(failure: &Failure, out: &mut BytesMut) {
    out.extend_from_slice(b",\"code\":");
    write_or_null(failure.code.as_deref(), out);
    out.extend_from_slice(b",\"message\":");
    write_string(&failure.message, out);
    out.extend_from_slice(b",\"param\":");
    write_or_null(failure.param.as_deref(), out);
    out.extend_from_slice(b",");
    let mut nested = BytesMut::new();
    failure.write(false, &mut nested);
    // `{"error":{…}}` without its own braces.
    out.extend_from_slice(nested.get(1..nested.len() - 1).unwrap_or_default());
}
