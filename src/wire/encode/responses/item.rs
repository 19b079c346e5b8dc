//! Items of `output` (wire-format 4.4).

use super::call::Call;
use super::event::{self, EventText, TextEvents};
use super::foreign::Foreign;
use crate::json::{Text, write_compact, write_number, write_string};
use crate::wire::event::{Logprobs, TokenLogprob};
use crate::wire::{OutputBuffer, Rope, Spelled};
use bytes::{BufMut, BytesMut};

/// One item.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// More may come.
    pub(super) open: bool,
    /// It ended too early.
    pub(super) cut: bool,
}

/// Id and index.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: String,
    pub(super) index: usize,
}

#[derive(Debug)]
pub(super) enum Kind {
    Reasoning(ReasoningItem),
    Message(Vec<Part>),
    Call(Call),
    Foreign(Foreign),
}

/// Reasoning: texts in JSON spelling.
#[derive(Debug, Default)]
pub(super) struct ReasoningItem {
    pub(super) content: Option<Rope>,
    pub(super) summary: Option<Rope>,
    /// In JSON spelling.
    pub(super) sealed: Option<String>,
    /// It was sealed after its end: only the object at the end can tell.
    pub(super) late: bool,
    /// The summary is the text once more.
    pub(super) mirrored: bool,
}

impl ReasoningItem {
    /// Whether its summary may repeat the text: the engine has given none of its own.
    pub(super) fn takes_mirror(&self) -> bool {
        self.mirrored || self.summary.is_none()
    }

    /// What is sealed: the text, or else its summary.
    pub(super) fn text(&self) -> String {
        let spelled = self.content.as_ref().or(self.summary.as_ref());
        let spelled = spelled.map(Rope::join).unwrap_or_default();
        Text::json(&spelled).decoded().into_owned()
    }
}

/// A part of a message.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) refusal: bool,
    /// In JSON spelling.
    pub(super) text: Rope,
    /// The entries of `logprobs` in a part, which say more than those of a delta.
    logprobs: Rope,
    /// The same as deltas spell them.
    plain_logprobs: Rope,
    /// The entries of `annotations`, and how many they are.
    pub(super) annotations: (BytesMut, usize),
}

/// What is written of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has just begun: nothing is in it.
    Added,
    /// As it stands.
    Present,
}

impl Kind {
    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        match self {
            Self::Reasoning(ReasoningItem { content, summary, .. }) => {
                for text in [content, summary].into_iter().flatten() {
                    text.close();
                }
            }
            Self::Message(parts) => parts.last_mut().into_iter().for_each(Part::close),
            Self::Call(call) => call.close(),
            Self::Foreign(_) => {}
        }
    }
}

impl Item {
    pub(super) fn new(kind: Kind, response: &str, index: usize) -> Self {
        let prefix = match &kind {
            Kind::Reasoning(_) => "rs",
            Kind::Message(_) => "msg",
            Kind::Call(call) => call.prefix(),
            Kind::Foreign(foreign) => foreign.prefix(),
        };
        let suffix = response.strip_prefix("resp_").unwrap_or(response);
        let place = Place { id: format!("{prefix}_{suffix}_{index}"), index };
        Self { kind, place, open: true, cut: false }
    }

    /// The object.
    pub(super) fn write(&self, state: State, out: &mut OutputBuffer) {
        let added = state == State::Added;
        let word = match &self.kind {
            Kind::Reasoning(_) => "reasoning",
            Kind::Message(_) => "message",
            Kind::Call(call) => call.word(),
            Kind::Foreign(foreign) => foreign.word(),
        };
        let own = match &self.kind {
            Kind::Foreign(foreign) => foreign.status(),
            _ => None,
        };
        let status = match (added, self.cut) {
            (true, _) => "in_progress",
            (false, true) => "incomplete",
            (false, false) => own.unwrap_or("completed"),
        };
        for (key, value) in [("{\"id\":", &*self.place.id), (",\"type\":", word), (",\"status\":", status)] {
            out.extend_from_slice(key.as_bytes());
            write_string(value, out.open());
        }
        match &self.kind {
            Kind::Reasoning(_) if added => out.extend_from_slice(b",\"summary\":[],\"content\":[]"),
            Kind::Reasoning(thought) => thought.write(self.open, out),
            Kind::Message(parts) => {
                out.extend_from_slice(b",\"role\":\"assistant\",\"content\":[");
                for (at, part) in parts.iter().enumerate().filter(|_| !added) {
                    if at > 0 {
                        out.put_u8(b',');
                    }
                    part.voice().write_part(part.told(), out);
                }
                out.put_u8(b']');
            }
            Kind::Call(call) => call.write(if added { Spelled::default() } else { call.text() }, out),
            Kind::Foreign(foreign) => foreign.write(out.open()),
        }
        out.put_u8(b'}');
    }
}

impl ReasoningItem {
    /// `open`: it has not come to its end, where it is sealed.
    fn write(&self, open: bool, out: &mut OutputBuffer) {
        for (key, voice, text) in
            [("summary", event::SUMMARY, &self.summary), ("content", event::REASONING, &self.content)]
        {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":[");
            if let Some(text) = text {
                voice.write_part(EventText::whole(text), out);
            }
            out.put_u8(b']');
        }
        if let Some(sealed) = self.sealed.as_ref().filter(|_| !open) {
            out.extend_from_slice(b",\"encrypted_content\":\"");
            out.extend_from_slice(sealed.as_bytes());
            out.put_u8(b'"');
        }
    }
}

impl Part {
    pub(super) fn new(refusal: bool) -> Self {
        Self {
            refusal,
            text: Rope::default(),
            logprobs: Rope::default(),
            plain_logprobs: Rope::default(),
            annotations: (BytesMut::new(), 0),
        }
    }

    pub(super) fn voice(&self) -> &'static TextEvents {
        if self.refusal { &event::REFUSAL } else { &event::TEXT }
    }

    /// Takes up a delta; gives its text, and its log probabilities as it spells them.
    pub(super) fn take(&mut self, text: &Text<'_>, logprobs: Option<&Logprobs<'_>>) -> (&[u8], Spelled<'_>) {
        let text = self.text.append(|out| text.write(out));
        let Some(Logprobs::Tokens { content: Some(entries), .. }) = logprobs else {
            return (text, Spelled::default());
        };
        if !self.logprobs.is_empty() && !entries.is_empty() {
            self.logprobs.append(|out| out.put_u8(b','));
            self.plain_logprobs.append(|out| out.put_u8(b','));
        }
        self.logprobs.append(|out| write_entries(entries, true, out));
        (text, Spelled::Piece(self.plain_logprobs.append(|out| write_entries(entries, false, out))))
    }

    /// Takes the bytes of its tokens from these, if they are its tokens.
    pub(super) fn spell(&mut self, entries: &[TokenLogprob<'_>]) {
        let mut plain = BytesMut::new();
        write_entries(entries, false, &mut plain);
        if self.plain_logprobs.is(&plain) {
            self.logprobs = Rope::default();
            self.logprobs.append(|out| write_entries(entries, true, out));
        }
    }

    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        for rope in [&mut self.text, &mut self.logprobs, &mut self.plain_logprobs] {
            rope.close();
        }
    }

    pub(super) fn told(&self) -> EventText<'_> {
        EventText {
            text: Spelled::Whole(&self.text),
            logprobs: Spelled::Whole(&self.logprobs),
            plain_logprobs: Spelled::Whole(&self.plain_logprobs),
            annotations: &self.annotations.0,
        }
    }
}

/// `full`: with the bytes of each token, as parts have them and deltas do not.
fn write_entries(entries: &[TokenLogprob<'_>], full: bool, out: &mut BytesMut) {
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        write_entry(entry, full, out);
        out.extend_from_slice(b",\"top_logprobs\":[");
        for (at, top) in entry.top.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            write_entry(top, full, out);
            out.put_u8(b'}');
        }
        out.extend_from_slice(b"]}");
    }
}

fn write_entry(entry: &TokenLogprob<'_>, full: bool, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"token\":\"");
    entry.token.write(out);
    if full {
        out.extend_from_slice(b"\",\"bytes\":");
        write_compact(entry.bytes.map_or("[]", |raw| raw.get()), out);
        out.extend_from_slice(b",\"logprob\":");
    } else {
        out.extend_from_slice(b"\",\"logprob\":");
    }
    write_compact(entry.logprob.map_or("-9999.0", |raw| raw.get()), out);
}

impl Place {
    /// `,"item_id":…,"output_index":…`
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
