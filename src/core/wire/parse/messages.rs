//! Messages between tokens, each with a header that tells what its text is (Muse, Beam, Inkling; engines F).
//!
//! ```text
//! between ──text that is no header──→ message ──stop, start──→ between
//!    └──start, or a header at the beginning──→ header ──its end──→ message
//! ```
//!
//! Takes: text, cut anywhere. Gives: [`Piece`]s. Remembers: a header, and text that may begin a marker. Never: loses
//! text of a message.

use super::calls::{Calls, Starts};
use super::marker::{MarkerMatch, Markers, match_start};
use super::message_form::{MessageForm, MessageKind};
use super::{Emit, Piece, TextRoute};
use crate::wire::rule::Rule;
use crate::wire::tools::Tools;
use std::sync::Arc;

/// Limit on a header in bytes. A longer one is text.
const LONGEST_HEADER: usize = 1024;

/// Words with which a header goes on that the prompt has begun.
const HEADER_WORDS: [&str; 2] = ["to=", "<|channel|>"];

/// Reader of one choice in messages.
#[derive(Debug)]
pub(super) struct MessageReader {
    form: &'static MessageForm,
    starts: Arc<Starts>,
    tools: Arc<Tools>,
    /// Markers within a message: the ends, then the beginning of a header.
    marks: Markers,
    heads: Markers,
    state: MessageState,
    held: String,
}

#[derive(Debug)]
enum MessageState {
    /// Outside of messages. `begins`: the prompt may have begun the header.
    Between {
        begins: bool,
    },
    Header,
    Reasoning,
    /// Text in which no calls are looked for.
    Content,
    /// Message for a tool, or text that may have calls. `added`: bytes that the model did not write and that are no call
    /// yet.
    Calls {
        calls: Box<Calls>,
        added: usize,
    },
}

impl MessageReader {
    pub(super) fn new(form: &'static MessageForm, tools: &Arc<Tools>) -> Self {
        let marks = form.stops.iter().copied().chain([form.start]);
        Self {
            form,
            starts: Arc::new(Starts::of(&[form.calls], tools)),
            tools: Arc::clone(tools),
            marks: Markers::new(marks),
            heads: Markers::new(form.heads.iter().map(|(head, _)| *head)),
            state: MessageState::Between { begins: true },
            held: String::new(),
        }
    }

    /// Returns how a text without `<` passes unchanged inside a message; `None` if it has to be parsed.
    pub(super) fn route(&self, text: &str) -> Option<TextRoute> {
        let is_plain = self.held.is_empty() && memchr::memchr(b'<', text.as_bytes()).is_none();
        match &self.state {
            MessageState::Reasoning if is_plain => Some(TextRoute::Reasoning),
            MessageState::Content if is_plain => Some(TextRoute::Content),
            MessageState::Calls { calls, .. } if is_plain && calls.passes(text) => {
                Some(TextRoute::Content)
            }
            _ => None,
        }
    }

    /// Parses the next text and emits what is certain.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let mut at = 0;
        while let Some(read) = self.step(held.get(at..).unwrap_or(""), false, emit) {
            at += read;
        }
        held.drain(..at);
        self.held = held;
    }

    /// Ends the text and emits what is held. `complete`: the model finished by itself, so that the last message is complete.
    pub(super) fn end(&mut self, complete: bool, emit: Emit<'_>) {
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        while let Some(read) = self.step(held.get(at..).unwrap_or(""), true, emit) {
            at += read;
        }
        self.close(complete, emit);
    }

    /// Parses a prefix of the text and returns its length; `None` if more text is needed, or at the end.
    fn step(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        match &self.state {
            MessageState::Between { begins } => self.between(text, *begins, last),
            MessageState::Header => self.header(text, last, emit),
            MessageState::Reasoning | MessageState::Content | MessageState::Calls { .. } => {
                self.message(text, last, emit)
            }
        }
    }

    fn between(&mut self, text: &str, begins: bool, last: bool) -> Option<usize> {
        let begun = text.trim_start();
        let head = match self.heads.match_at_start(begun) {
            MarkerMatch::Nowhere if begins => match_start(begun, &HEADER_WORDS),
            found => found,
        };
        match (self.marks.match_at_start(begun), head) {
            (MarkerMatch::At { marker, .. }, _) => {
                if marker == self.form.stops.len() {
                    self.state = MessageState::Header;
                }
                Some(text.len() - begun.len() + self.marks.len(marker))
            }
            (_, MarkerMatch::At { .. }) => {
                self.state = MessageState::Header;
                Some(text.len() - begun.len())
            }
            _ if begun.is_empty() && !begins => Some(text.len()),
            (MarkerMatch::Partial(_), _) | (_, MarkerMatch::Partial(_))
                if !last && text.len() <= LONGEST_HEADER =>
            {
                None
            }
            _ => {
                self.state = self.answer();
                Some(0)
            }
        }
    }

    /// Reads a header, whose words tell what the message is. One that does not end is text.
    fn header(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let looked = text
            .get(..text.floor_char_boundary(2 * LONGEST_HEADER))
            .unwrap_or(text);
        let (head, end) = (self.heads.find(looked), self.marks.find(looked));
        let is_cut = matches!(end, MarkerMatch::At { at, .. } if at < head.before(looked));
        let MarkerMatch::At { at, marker } = head else {
            if !last && !is_cut && text.len() <= LONGEST_HEADER {
                return None;
            }
            self.state = self.answer();
            return Some(0);
        };
        if is_cut || at > LONGEST_HEADER {
            self.state = self.answer();
            return Some(0);
        }
        emit(Piece::Recognised(Rule::Think));
        let header = text.get(..at)?;
        let recipient = header.split_once("to=").map(|(_, rest)| {
            let is_end = |sign: char| sign.is_whitespace() || sign == '<';
            rest.split(is_end).next().unwrap_or("")
        });
        let kind = self.form.heads.get(marker)?.1;
        let kind = kind.unwrap_or_else(|| match recipient {
            Some("self") => MessageKind::Reasoning,
            None | Some("" | "user" | "commentary") if header.contains("analysis") => {
                MessageKind::Reasoning
            }
            None | Some("" | "user" | "commentary") => MessageKind::Content,
            Some(_) => MessageKind::Calls,
        });
        self.state = match kind {
            MessageKind::Reasoning => MessageState::Reasoning,
            MessageKind::Calls if self.starts.len() > 0 => self.call(recipient),
            MessageKind::Calls | MessageKind::Content => self.answer(),
        };
        Some(at + self.heads.len(marker))
    }

    /// Returns the state within a message for a tool.
    fn call(&self, recipient: Option<&str>) -> MessageState {
        let mut calls = Calls::in_message(&self.starts);
        let [before, after, _] = self.form.wrap;
        let name = recipient.filter(|name| self.tools.contains(name));
        let added = match name.filter(|_| !before.is_empty()) {
            Some(name) => format!("{before}{name}{after}"),
            None => String::new(),
        };
        calls.read(&added, &mut |_| {});
        MessageState::Calls {
            calls: Box::new(calls),
            added: added.len(),
        }
    }

    /// Returns the state within a text for the user, which may have calls as well.
    fn answer(&self) -> MessageState {
        match self.starts.len() {
            0 => MessageState::Content,
            _ => MessageState::Calls {
                calls: Box::new(Calls::within(&self.starts)),
                added: 0,
            },
        }
    }

    fn message(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let found = self.marks.find(text);
        let before = match found {
            MarkerMatch::Partial(_) if last => text.len(),
            found => found.before(text),
        };
        let said = text.get(..before)?;
        match &mut self.state {
            _ if said.is_empty() => {}
            MessageState::Reasoning => emit(Piece::Reasoning(said)),
            MessageState::Calls { calls, added } => {
                calls.read(said, &mut |piece| pass(piece, added, emit));
            }
            _ => emit(Piece::Content(said)),
        }
        let MarkerMatch::At { marker, .. } = found else {
            return Some(before).filter(|before| *before > 0);
        };
        self.close(true, emit);
        let is_start = marker == self.form.stops.len();
        self.state = match is_start {
            true => MessageState::Header,
            false => MessageState::Between { begins: false },
        };
        Some(before + self.marks.len(marker))
    }

    /// Ends the current message.
    fn close(&mut self, complete: bool, emit: Emit<'_>) {
        let state = std::mem::replace(&mut self.state, MessageState::Between { begins: false });
        let MessageState::Calls {
            mut calls,
            mut added,
        } = state
        else {
            return;
        };
        let [before, _, after] = self.form.wrap;
        let is_wrapped = complete && !before.is_empty() && calls.is_reading();
        if !is_wrapped {
            return calls.end(complete, &mut |piece| pass(piece, &mut added, emit));
        }
        let (mut said, mut is_call) = (String::new(), false);
        let mut collect = |piece: Piece<'_>| {
            is_call |= matches!(piece, Piece::Call { .. } | Piece::Arguments(_));
            match piece {
                Piece::Content(text) => said.push_str(text),
                piece => pass(piece, &mut added, emit),
            }
        };
        calls.read(after, &mut collect);
        calls.end(true, &mut collect);
        if !is_call {
            let said = said.strip_suffix(after).unwrap_or(&said);
            pass(Piece::Content(said), &mut added, emit);
        }
    }
}

/// Emits a piece, without what the model did not write.
fn pass(piece: Piece<'_>, added: &mut usize, emit: Emit<'_>) {
    match piece {
        Piece::Content(text) => {
            let skipped = text.len().min(*added);
            *added -= skipped;
            let text = text.get(skipped..).unwrap_or("");
            if !text.is_empty() {
                emit(Piece::Content(text));
            }
        }
        piece => {
            if matches!(piece, Piece::Call { .. }) {
                *added = 0;
            }
            emit(piece);
        }
    }
}
