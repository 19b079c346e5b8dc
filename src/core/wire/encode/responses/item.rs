//! Items of `output`: state, text so far, and their JSON (wire-format 4.4).

use super::call::CallItem;
use super::foreign::Foreign;
use super::text_events::{self, EventText, ItemPlace, TextEvents};
use crate::json::{Text, write_compact, write_string};
use crate::wire::encode::frame::{begin_plain_entry, write_entries, write_logprob};
use crate::wire::event::{Logprobs, TokenLogprob};
use crate::wire::{OutputBuffer, Rope, Spelled};
use bytes::{BufMut, BytesMut};

/// Output item. Holds its text once; delta, done and terminal events all read it from here.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: OutputKind,
    pub(super) place: ItemPlace,
    /// True until the item's done event has been sent.
    pub(super) open: bool,
    /// True if the item ended too early; its status is then `incomplete`.
    pub(super) cut: bool,
}

#[derive(Debug)]
pub(super) enum OutputKind {
    Reasoning(ReasoningItem),
    Message(Vec<OutputPart>),
    Call(CallItem),
    Foreign(Foreign),
}

/// Reasoning item: its texts, and its encrypted form if there is one.
#[derive(Debug, Default)]
pub(super) struct ReasoningItem {
    pub(super) content: Option<Rope>,
    /// Text of a summary that is no copy of the content.
    pub(super) own_summary: Option<Rope>,
    /// Value of `encrypted_content`, in JSON spelling.
    pub(super) sealed: Option<String>,
    /// True if `encrypted_content` came after the item's end. Only the terminal event can carry it then.
    pub(super) late: bool,
    /// True if the summary is a copy of the content, which is held once.
    pub(super) mirrored: bool,
}

impl ReasoningItem {
    /// Returns true if the summary may repeat the text: the engine has given none.
    pub(super) fn takes_mirror(&self) -> bool {
        self.mirrored || self.own_summary.is_none()
    }

    pub(super) fn summary(&self) -> Option<&Rope> {
        if self.mirrored {
            self.content.as_ref()
        } else {
            self.own_summary.as_ref()
        }
    }

    /// Returns the text to encrypt: the reasoning text, or the summary if there is none.
    pub(super) fn text(&self) -> String {
        let spelled = self.content.as_ref().or(self.own_summary.as_ref());
        let spelled = spelled.map(Rope::join).unwrap_or_default();
        Text::json(&spelled).decoded().into_owned()
    }
}

/// Part of a message: answer text or a refusal, with what belongs to it.
#[derive(Debug)]
pub(super) struct OutputPart {
    pub(super) refusal: bool,
    /// Text so far, in JSON spelling.
    pub(super) text: Rope,
    /// Entries of `logprobs` with the bytes of each token, as parts carry them.
    logprobs: Rope,
    /// Entries of `logprobs` without bytes, as delta and done events carry them.
    plain_logprobs: Rope,
    /// Entries of `annotations`, and their number.
    pub(super) annotations: (BytesMut, usize),
}

/// Content of an item to write: empty for `output_item.added`, otherwise what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenState {
    /// Empty, for the event that begins the item.
    Added,
    /// Complete, with all that the item holds.
    Present,
}

impl OutputKind {
    /// Releases memory reserved for more text: none follows.
    pub(super) fn close(&mut self) {
        match self {
            Self::Reasoning(ReasoningItem {
                content,
                own_summary,
                ..
            }) => {
                for text in [content, own_summary].into_iter().flatten() {
                    text.close();
                }
            }
            Self::Message(parts) => parts.last_mut().into_iter().for_each(OutputPart::close),
            Self::Call(call) => call.close(),
            Self::Foreign(_) => {}
        }
    }
}

impl Item {
    pub(super) fn new(kind: OutputKind, response: &str, index: usize) -> Self {
        let prefix = match &kind {
            OutputKind::Reasoning(_) => "rs",
            OutputKind::Message(_) => "msg",
            OutputKind::Call(call) => call.prefix(),
            OutputKind::Foreign(foreign) => foreign.prefix(),
        };
        let suffix = response.strip_prefix("resp_").unwrap_or(response);
        let place = ItemPlace {
            id: format!("{prefix}_{suffix}_{index}"),
            index,
        };
        Self {
            kind,
            place,
            open: true,
            cut: false,
        }
    }

    /// Appends the item as a JSON object.
    pub(super) fn write(&self, state: WrittenState, out: &mut OutputBuffer) {
        let added = state == WrittenState::Added;
        let word = match &self.kind {
            OutputKind::Reasoning(_) => "reasoning",
            OutputKind::Message(_) => "message",
            OutputKind::Call(call) => call.item_type(),
            OutputKind::Foreign(foreign) => foreign.item_type(),
        };
        let own = match &self.kind {
            OutputKind::Foreign(foreign) => foreign.status(),
            _ => None,
        };
        let status = match (added, self.cut) {
            (true, _) => "in_progress",
            (false, true) => "incomplete",
            (false, false) => own.unwrap_or("completed"),
        };
        let has_status =
            !matches!(&self.kind, OutputKind::Foreign(foreign) if !foreign.has_status());
        for (key, value) in [
            ("{\"id\":", &*self.place.id),
            (",\"type\":", word),
            (",\"status\":", status),
        ]
        .into_iter()
        .take(if has_status { 3 } else { 2 })
        {
            out.extend_from_slice(key.as_bytes());
            write_string(value, out.open());
        }
        match &self.kind {
            OutputKind::Reasoning(_) if added => {
                out.extend_from_slice(b",\"summary\":[],\"content\":[]")
            }
            OutputKind::Reasoning(thought) => thought.write(self.open, out),
            OutputKind::Message(parts) => {
                out.extend_from_slice(b",\"role\":\"assistant\",\"content\":[");
                for (at, part) in parts.iter().enumerate().filter(|_| !added) {
                    if at > 0 {
                        out.put_u8(b',');
                    }
                    part.text_events().write_part(part.event_text(), out);
                }
                out.put_u8(b']');
            }
            OutputKind::Call(call) => call.write(
                if added {
                    Spelled::default()
                } else {
                    call.text()
                },
                out,
            ),
            OutputKind::Foreign(foreign) => foreign.write(out.open()),
        }
        out.put_u8(b'}');
    }
}

impl ReasoningItem {
    /// Appends the members after `status`. `open`: the item has not ended, so it has no `encrypted_content` yet.
    fn write(&self, open: bool, out: &mut OutputBuffer) {
        for (key, voice, text) in [
            ("summary", text_events::SUMMARY, self.summary()),
            ("content", text_events::REASONING, self.content.as_ref()),
        ] {
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

impl OutputPart {
    pub(super) fn new(refusal: bool) -> Self {
        Self {
            refusal,
            text: Rope::default(),
            logprobs: Rope::default(),
            plain_logprobs: Rope::default(),
            annotations: (BytesMut::new(), 0),
        }
    }

    pub(super) fn text_events(&self) -> &'static TextEvents {
        if self.refusal {
            &text_events::REFUSAL
        } else {
            &text_events::TEXT
        }
    }

    /// Appends a delta. Returns its text, and its log probabilities as delta events carry them.
    pub(super) fn take(
        &mut self,
        text: &Text<'_>,
        logprobs: Option<&Logprobs<'_>>,
    ) -> (&[u8], Spelled<'_>) {
        let text = self.text.append(|out| text.write(out));
        let Some(Logprobs::Tokens {
            content: Some(entries),
            ..
        }) = logprobs
        else {
            return (text, Spelled::default());
        };
        if !self.logprobs.is_empty() && !entries.is_empty() {
            self.logprobs.append(|out| out.put_u8(b','));
            self.plain_logprobs.append(|out| out.put_u8(b','));
        }
        self.logprobs
            .append(|out| write_entries(entries, out, begin_full_entry));
        (
            text,
            Spelled::Piece(
                self.plain_logprobs
                    .append(|out| write_entries(entries, out, begin_plain_entry)),
            ),
        )
    }

    /// Adds the bytes of the tokens from `entries`. Ignores them if they are not exactly the tokens of this part.
    pub(super) fn add_token_bytes(&mut self, entries: &[TokenLogprob<'_>]) {
        let mut plain = BytesMut::new();
        write_entries(entries, &mut plain, begin_plain_entry);
        if self.plain_logprobs.is(&plain) {
            self.logprobs = Rope::default();
            self.logprobs
                .append(|out| write_entries(entries, out, begin_full_entry));
        }
    }

    /// Releases memory reserved for more text: none follows.
    pub(super) fn close(&mut self) {
        for rope in [&mut self.text, &mut self.logprobs, &mut self.plain_logprobs] {
            rope.close();
        }
    }

    /// Returns all of the part's text, for the events that repeat it.
    pub(super) fn event_text(&self) -> EventText<'_> {
        EventText {
            text: Spelled::Whole(&self.text),
            logprobs: Spelled::Whole(&self.logprobs),
            plain_logprobs: Spelled::Whole(&self.plain_logprobs),
            annotations: &self.annotations.0,
        }
    }
}

/// Appends `{"token":…,"bytes":…,"logprob":…`, without the closing brace.
fn begin_full_entry(entry: &TokenLogprob<'_>, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"token\":\"");
    entry.token.write(out);
    out.extend_from_slice(b"\",\"bytes\":");
    write_compact(entry.bytes.map_or("[]", |raw| raw.get()), out);
    out.extend_from_slice(b",\"logprob\":");
    write_logprob(entry, out);
}
