//! Names and keys of the events that carry text in a Responses stream, one set for each kind of text.

use crate::json::{write_number, write_string};
use crate::wire::options::ResponsesDialect;
use crate::wire::{OutputBuffer, Rope, Spelled};
use bytes::BytesMut;

const CONTENT_PART: Option<(&str, &str)> =
    Some(("response.content_part.added", "response.content_part.done"));

/// Names of the delta event and of the done event of reasoning in `openresponses`, and in the events that
/// `codex-legacy` adds.
pub(super) const OPEN_REASONING: (&str, &str) =
    ("response.reasoning.delta", "response.reasoning.done");

/// Identity of an item: its id and its `output_index`. Fixed when the item begins.
#[derive(Debug)]
pub(super) struct ItemPlace {
    pub(super) id: String,
    pub(super) index: usize,
}

impl ItemPlace {
    /// Appends `,"item_id":…,"output_index":…`.
    pub(super) fn write(&self, out: &mut BytesMut) {
        self.write_id(out);
        out.extend_from_slice(b",\"output_index\":");
        write_number(self.index, out);
    }

    pub(super) fn write_id(&self, out: &mut BytesMut) {
        out.extend_from_slice(b",\"item_id\":");
        write_string(&self.id, out);
    }
}

/// Names of the events and keys that carry one kind of text, so that text, refusals, reasoning, summaries,
/// arguments and input share one writer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextEvents {
    /// Names of the delta event and of the event that ends the text.
    pub(super) delta: &'static str,
    pub(super) done: &'static str,
    /// Names of the events that begin and end the text's part; `None` for arguments and input, which have no parts.
    pub(super) part: Option<(&'static str, &'static str)>,
    /// Key of the part's index.
    pub(super) index: &'static str,
    /// Key of the complete text.
    pub(super) text: &'static str,
    /// Value of `type` in the part.
    pub(super) kind: &'static str,
    /// True if events and parts carry `logprobs`, and parts `annotations`.
    pub(super) logprobs: bool,
}

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
    part: Some((
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
    )),
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
    /// Returns the names of the delta event and of the done event in a dialect.
    pub(super) fn names_in(&self, dialect: ResponsesDialect) -> (&'static str, &'static str) {
        match (dialect, self.kind) {
            (ResponsesDialect::Openresponses, "reasoning_text") => OPEN_REASONING,
            _ => (self.delta, self.done),
        }
    }

    /// Returns true if an event of this name is a piece of this text, in any dialect.
    pub(super) fn is_delta(&self, name: &str) -> bool {
        name == self.delta || name == self.names_in(ResponsesDialect::Openresponses).0
    }

    /// Appends a part object with this text.
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

    pub(super) fn write_logprobs(&self, entries: Spelled<'_>, out: &mut OutputBuffer) {
        if self.logprobs {
            out.extend_from_slice(b",\"logprobs\":[");
            out.push_text(entries);
            out.put_u8(b']');
        }
    }

    pub(super) fn write_place(&self, place: &ItemPlace, at: usize, out: &mut OutputBuffer) {
        place.write(out.open());
        if self.part.is_some() {
            member(self.index, out);
            write_number(at, out.open());
        }
    }
}

/// Text and its companions as one event or part carries them, in JSON spelling. Borrowed from the item or from the
/// current delta.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventText<'a> {
    pub(super) text: Spelled<'a>,
    /// Entries of `logprobs` with the bytes of each token, for parts.
    pub(super) logprobs: Spelled<'a>,
    /// Entries of `logprobs` without bytes, for delta and done events.
    pub(super) plain_logprobs: Spelled<'a>,
    /// Entries of `annotations`, for parts.
    pub(super) annotations: &'a [u8],
}

impl<'a> EventText<'a> {
    pub(super) fn piece(text: &'a [u8]) -> Self {
        Self {
            text: Spelled::Piece(text),
            ..Self::default()
        }
    }

    pub(super) fn whole(text: &'a Rope) -> Self {
        Self {
            text: Spelled::Whole(text),
            ..Self::default()
        }
    }
}

pub(super) fn member(key: &str, out: &mut OutputBuffer) {
    for piece in [",\"", key, "\":"] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// Appends a member whose value is a string already in JSON spelling.
pub(super) fn string(key: &str, text: Spelled<'_>, out: &mut OutputBuffer) {
    member(key, out);
    out.put_u8(b'"');
    out.push_text(text);
    out.put_u8(b'"');
}
