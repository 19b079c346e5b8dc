//! Numbered events of a Responses stream, in the client's dialect (wire-format 4.6, 4.7, 4.9).

use super::call::CallItem;
use super::dialects;
use super::item::{Item, OutputKind, ReasoningItem, WrittenState};
use super::text_events::{
    ARGUMENTS, EventText, ItemPlace, OPEN_REASONING, REASONING, SUMMARY, TEXT, TextEvents, member,
    string,
};
use crate::json::{Raw, write_compact, write_number, write_string};
use crate::wire::OutputBuffer;
use crate::wire::fault::{Failure, write_or_null};
use crate::wire::options::ResponsesDialect;
use crate::wire::sse::DONE;
use bytes::BytesMut;

/// Form of a stream's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFraming {
    /// Server-sent events, for a client that reads them over HTTP.
    #[default]
    Sse,
    /// JSON, one event a line, for a reader inside of the process: the store, or the messages of a WebSocket.
    Lines,
}

/// Use of the client's rate limit, reported in the event `response.rate_limits.updated` (wire-format 4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// Share of the limit that is used, 0 to 100.
    pub used_percent: u64,
    /// Length of the limit's window, in minutes.
    pub window_minutes: u64,
}

/// Event writer. Numbers the events of one response and knows the dialect's extra ones. Writes nothing if the
/// client asked for one object.
#[derive(Debug)]
pub(super) struct EventWriter {
    /// Form of the events; `None` if the client asked for one object instead of a stream.
    framing: Option<EventFraming>,
    dialect: ResponsesDialect,
    next: u64,
    /// Id of the response, which events of the older API repeat.
    response: String,
    /// Use of the client's rate limit as the server knows it, for the event after the last.
    pub(super) limits: Option<LimitUse>,
    /// Value of `limits` from the engine's own event, as JSON. Used if `limits` is unknown.
    pub(super) engine_limits: Option<String>,
}

impl EventWriter {
    pub(super) fn new(framing: Option<EventFraming>, dialect: ResponsesDialect) -> Self {
        Self {
            framing,
            dialect,
            next: 0,
            response: String::new(),
            limits: None,
            engine_limits: None,
        }
    }

    /// Sets the id of the response that the events belong to.
    pub(super) fn begin(&mut self, response: &str) {
        response.clone_into(&mut self.response);
    }

    /// Appends one event and counts its number up. `write` appends the members after `sequence_number`.
    pub(super) fn write_event(
        &mut self,
        kind: &str,
        out: &mut OutputBuffer,
        write: impl FnOnce(&mut OutputBuffer),
    ) {
        let Some(framing) = self.framing else { return };
        if framing == EventFraming::Sse {
            for piece in ["event: ", kind, "\ndata: "] {
                out.extend_from_slice(piece.as_bytes());
            }
        }
        for piece in ["{\"type\":\"", kind, "\",\"sequence_number\":"] {
            out.extend_from_slice(piece.as_bytes());
        }
        write_number(self.next, out.open());
        self.next += 1;
        write(out);
        out.extend_from_slice(match framing {
            EventFraming::Sse => b"}\n\n",
            EventFraming::Lines => b"}\n",
        });
    }

    /// Returns the number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Sets the number of the next event, to write events once more.
    pub(super) fn go_back_to(&mut self, next: u64) {
        self.next = next;
    }

    /// Appends an event of the older API in the dialect `codex-legacy`; nothing in other dialects. It opens the
    /// member `response`, which `write` has to close.
    fn write_legacy_event(
        &mut self,
        kind: &str,
        out: &mut OutputBuffer,
        write: impl FnOnce(&mut OutputBuffer),
    ) {
        if self.dialect != ResponsesDialect::CodexLegacy {
            return;
        }
        let response = std::mem::take(&mut self.response);
        self.write_event(kind, out, |out| {
            out.extend_from_slice(b",\"response\":{\"id\":\"");
            out.extend_from_slice(response.as_bytes());
            out.put_u8(b'"');
            write(out);
        });
        self.response = response;
    }

    /// Appends `output_item.added` with the still empty item.
    pub(super) fn begin_item(&mut self, item: &Item, out: &mut OutputBuffer) {
        self.item("response.output_item.added", item, WrittenState::Added, out);
    }

    fn item(&mut self, kind: &str, item: &Item, state: WrittenState, out: &mut OutputBuffer) {
        self.write_event(kind, out, |out| {
            member("output_index", out);
            write_number(item.place.index, out.open());
            member("item", out);
            item.write(state, out);
        });
    }

    /// Appends the events that begin a part; nothing for text without parts.
    pub(super) fn begin_part(
        &mut self,
        voice: &TextEvents,
        place: &ItemPlace,
        at: usize,
        out: &mut OutputBuffer,
    ) {
        let Some((added, _)) = voice.part else { return };
        self.part(added, voice, place, at, EventText::default(), out);
        if voice.kind == SUMMARY.kind {
            self.write_legacy_event(dialects::SUMMARY_ADDED, out, |out| {
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
        place: &ItemPlace,
        at: usize,
        told: EventText<'_>,
        out: &mut OutputBuffer,
    ) {
        self.write_event(kind, out, |out| {
            voice.write_place(place, at, out);
            member("part", out);
            voice.write_part(told, out);
        });
    }

    /// Appends the delta event for a piece of text, and in `codex-legacy` the older event for reasoning.
    pub(super) fn delta(
        &mut self,
        voice: &TextEvents,
        place: &ItemPlace,
        at: usize,
        told: EventText<'_>,
        out: &mut OutputBuffer,
    ) {
        self.write_event(voice.names_in(self.dialect).0, out, |out| {
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
            "reasoning_text" => self.write_legacy_event(OPEN_REASONING.0, out, write),
            "summary_text" => self.write_legacy_event(dialects::SUMMARY_DELTA, out, write),
            _ => {}
        }
    }

    /// Appends the event for an annotation of a part's text. `nth`: index of the annotation in its part.
    pub(super) fn annotation(
        &mut self,
        place: &ItemPlace,
        at: usize,
        nth: usize,
        json: &str,
        out: &mut OutputBuffer,
    ) {
        self.write_event("response.output_text.annotation.added", out, |out| {
            TEXT.write_place(place, at, out);
            member("annotation_index", out);
            write_number(nth, out.open());
            member("annotation", out);
            out.extend_from_slice(json.as_bytes());
        });
    }

    /// Appends an event specific to a foreign item. `carried`: its extra member, with key and value.
    pub(super) fn foreign(
        &mut self,
        kind: &str,
        place: &ItemPlace,
        carried: Option<(&str, Raw<'_>)>,
        out: &mut OutputBuffer,
    ) {
        self.write_event(kind, out, |out| {
            place.write(out.open());
            if let Some((key, value)) = carried {
                member(key, out);
                write_compact(value.get(), out.open());
            }
        });
    }

    /// Appends the events that end a text and its part, both with the complete text.
    pub(super) fn end_part(
        &mut self,
        voice: &TextEvents,
        place: &ItemPlace,
        at: usize,
        told: EventText<'_>,
        out: &mut OutputBuffer,
    ) {
        self.write_event(voice.names_in(self.dialect).1, out, |out| {
            voice.write_place(place, at, out);
            string(voice.text, told.text, out);
            voice.write_logprobs(told.plain_logprobs, out);
        });
        if voice.kind == REASONING.kind {
            self.write_legacy_event(OPEN_REASONING.1, out, |out| {
                out.put_u8(b'}');
                voice.write_place(place, at, out);
                string(voice.text, told.text, out);
            });
        }
        if let Some((_, done)) = voice.part {
            self.part(done, voice, place, at, told, out);
        }
    }

    /// Appends the events that end an item: first those of its last open part or of its arguments, then
    /// `output_item.done`.
    pub(super) fn end_item(&mut self, item: &mut Item, out: &mut OutputBuffer) {
        let place = &item.place;
        match &mut item.kind {
            OutputKind::Reasoning(thought) => {
                let texts = [
                    (&REASONING, thought.content.as_ref()),
                    (&SUMMARY, thought.summary()),
                ];
                for (voice, text) in texts {
                    if let Some(text) = text {
                        self.end_part(voice, place, 0, EventText::whole(text), out);
                    }
                }
            }
            OutputKind::Message(parts) => {
                if let Some((at, part)) = parts.iter().enumerate().next_back() {
                    self.end_part(part.text_events(), place, at, part.event_text(), out);
                }
            }
            OutputKind::Call(call) => self.end_call(call, place, out),
            OutputKind::Foreign(_) => {}
        }
        self.item(
            "response.output_item.done",
            item,
            WrittenState::Present,
            out,
        );
        if let OutputKind::Reasoning(ReasoningItem {
            sealed: Some(sealed),
            ..
        }) = &item.kind
        {
            self.write_legacy_event(dialects::ADDITIONAL_CONTEXT, out, |out| {
                out.put_u8(b'}');
                member("context", out);
                out.extend_from_slice(b"{\"reasoning.encrypted_content\":\"");
                out.extend_from_slice(sealed.as_bytes());
                out.extend_from_slice(b"\"}");
            });
        }
    }

    fn end_call(&mut self, call: &mut CallItem, place: &ItemPlace, out: &mut OutputBuffer) {
        let voice = call.text_events();
        if let Some(input) = call.unwrap() {
            self.delta(voice, place, 0, EventText::whole(input), out);
        }
        if call.is_search() {
            return;
        }
        self.write_event(voice.done, out, |out| {
            place.write(out.open());
            if voice.text == ARGUMENTS.text {
                member("name", out);
                call.write_name(out.open());
            }
            string(voice.text, call.text(), out);
        });
        if voice.text == ARGUMENTS.text {
            self.write_legacy_event(dialects::TOOL_CALL_DELTA, out, |out| {
                out.extend_from_slice(b"},\"delta\":{\"content\":[{\"type\":\"tool_call\",\"id\":");
                call.write_id(out.open());
                member("name", out);
                call.write_name(out.open());
                string("arguments", call.text(), out);
                out.extend_from_slice(b"}]}");
            });
        }
    }

    /// Appends the `error` event, and in `codex-legacy` the older `response.error`.
    pub(super) fn error(&mut self, failure: &Failure, out: &mut OutputBuffer) {
        self.write_event("error", out, |out| write_error(failure, out.open()));
        self.write_legacy_event(dialects::ERROR, out, |out| {
            out.extend_from_slice(b",\"status\":\"failed\"}");
            member("error", out);
            out.extend_from_slice(b"{\"type\":");
            write_string(&failure.kind, out.open());
            member("message", out);
            write_string(&failure.message, out.open());
            out.put_u8(b'}');
        });
    }

    /// Appends what follows the last event: `response.rate_limits.updated` in `codex-legacy`, `[DONE]` in
    /// `openresponses`.
    pub(super) fn after_last(&mut self, out: &mut OutputBuffer) {
        let known = self.limits.map(|LimitUse { used_percent, window_minutes }| {
            format!("{{\"primary\":{{\"used_percent\":{used_percent},\"window_minutes\":{window_minutes}}}}}")
        });
        if let Some(limits) = known.or_else(|| self.engine_limits.clone()) {
            self.write_legacy_event(dialects::RATE_LIMITS, out, |out| {
                for piece in ["},\"limits\":", &limits] {
                    out.extend_from_slice(piece.as_bytes());
                }
            });
        }
        if self.framing == Some(EventFraming::Sse)
            && self.dialect == ResponsesDialect::Openresponses
        {
            out.extend_from_slice(DONE);
        }
    }
}

/// Appends the members of an `error` event after `sequence_number`: code, message, param and the nested error
/// (wire-format 4.7).
pub fn write_error(failure: &Failure, out: &mut BytesMut) {
    out.extend_from_slice(b",\"code\":");
    write_or_null(failure.code.as_deref(), out);
    out.extend_from_slice(b",\"message\":");
    write_string(&failure.message, out);
    out.extend_from_slice(b",\"param\":");
    write_or_null(failure.param.as_deref(), out);
    out.extend_from_slice(b",");
    let mut nested = BytesMut::new();
    failure.write(false, &mut nested);
    // Drops the outer braces of `{"error":{…}}`.
    out.extend_from_slice(nested.get(1..nested.len() - 1).unwrap_or_default());
}
