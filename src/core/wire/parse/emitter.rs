//! Translation of what the readers emit into deltas, tool entries and events.
//!
//! Takes: pieces of the text of one choice. Gives: deltas and entries, the extras with the first. Remembers: the calls
//! and the kinds of output found so far. Never: text.

use super::Piece;
use super::unparsed::UnparsedKinds;
use crate::json::{Raw, Text};
use crate::wire::decode::EventSink;
use crate::wire::event::{
    CallSource, ChunkUsage, Delta, Event, FrameExtras, ItemStage, ToolEntry, ToolKind,
};
use crate::wire::held_extras::HeldExtras;
use crate::wire::rule::Rule;

/// Text that a reader holds, and the extras of its chunk, which go out with it.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Length of the text in bytes.
    length: usize,
    extras: Box<HeldExtras>,
}

/// Translates the pieces of one text into deltas and tool entries. The extras are attached to the first delta.
pub(super) struct PieceEmitter<'a, 'to> {
    pub(super) to: &'to mut dyn EventSink,
    pub(super) choice: u32,
    pub(super) extras: FrameExtras<'a>,
    /// Text that was held, and the extras of its chunk.
    pub(super) waiting: Option<Waiting>,
    pub(super) usage: Option<Box<ChunkUsage>>,
    pub(super) hide_reasoning: bool,
    pub(super) items: bool,
    pub(super) found: UnparsedKinds,
    pub(super) source: CallSource,
    /// True while the last call has neither arguments nor an end.
    pub(super) is_bare: bool,
    /// True once a delta or tool entry has been sent.
    pub(super) has_emitted: bool,
}

impl<'a> PieceEmitter<'a, '_> {
    /// Translates a piece.
    pub(super) fn say(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Recognised(rule) => {
                self.found.reasoning |= matches!(rule, Rule::Think | Rule::ThinkByName);
                self.found.calls |= rule == Rule::ToolText;
                self.found.harmony |= rule == Rule::Harmony;
                self.found.reasoning |= rule == Rule::Harmony;
                self.to.count_rule(rule);
            }
            Piece::Opened => self.found.opened = Some(true),
            Piece::Reasoning(_) if self.hide_reasoning => {}
            Piece::Reasoning(text) => self.delta(Delta::Reasoning(Text::plain(text)), text.len()),
            Piece::Content(text) => self.delta(Delta::Content(Text::plain(text)), text.len()),
            Piece::Call { name, id } => {
                self.is_bare = true;
                self.found.calls |= self.found.harmony;
                self.tool(Some(name), id, None);
            }
            Piece::Arguments(text) => {
                self.is_bare &= text.is_empty();
                self.tool(None, None, Some(text));
            }
            Piece::Item(json) => {
                let Some(data) = Raw::of(json) else { return };
                self.to.event(Event::Foreign {
                    name: "web_search_call",
                    slot: None,
                    stage: ItemStage::Whole,
                    data,
                });
            }
            Piece::MessageEnd => {
                self.is_bare = false;
                if self.items {
                    self.to
                        .delta(self.choice, Delta::Break, FrameExtras::default());
                }
            }
        }
    }

    /// Emits a text of `length` bytes. Held text comes first: with the extras of its chunk if it comes alone, or if the new
    /// chunk has none.
    fn delta(&mut self, delta: Delta<'_>, length: usize) {
        if let Some(extras) = self.waiting_extras(Some(length)) {
            self.to.delta(self.choice, delta, extras.lend());
            return;
        }
        let extras = self.take_extras();
        self.extras = self.to.delta(self.choice, delta, extras);
    }

    /// Returns the extras of held text if the next frame carries them: it has all of that text, of `length` bytes, and no
    /// other, or the new chunk has no extras.
    fn waiting_extras(&mut self, length: Option<usize>) -> Option<Box<HeldExtras>> {
        let mut waiting = self.waiting.take()?;
        if length == Some(waiting.length) || self.extras.is_empty() {
            self.has_emitted = true;
            waiting.extras.usage.clone_from(&self.usage);
            return Some(waiting.extras);
        }
        self.waiting = Some(waiting);
        self.release_waiting();
        None
    }

    /// Emits the extras of held text alone.
    pub(super) fn release_waiting(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            let extras = waiting.extras.lend();
            self.to.delta(self.choice, Delta::Bare, extras);
        }
    }

    /// Holds the extras of a chunk whose text, of `length` bytes, gave no piece. The choice exists for the client even so.
    pub(super) fn wait(&mut self, length: usize) -> Option<Waiting> {
        let mut extras = std::mem::take(&mut self.extras);
        let usage = extras.usage.clone();
        let role = FrameExtras {
            usage,
            logprobs: extras.logprobs.take(),
            tokens_read: extras.tokens_read,
            ..FrameExtras::default()
        };
        self.extras = self.to.delta(self.choice, Delta::Role, role);
        let before = self.waiting.as_ref().map_or(0, |waiting| waiting.length);
        if !extras.is_empty() {
            self.release_waiting();
        }
        let extras = match self.waiting.take() {
            Some(waiting) => waiting.extras,
            None => Box::new(HeldExtras::of(extras)),
        };
        let length = before + length;
        Some(Waiting { length, extras }).filter(|_| length > 0)
    }

    fn tool(&mut self, name: Option<&str>, id: Option<&str>, args: Option<&str>) {
        let (name, id, args) = (
            name.map(Text::plain),
            id.map(Text::plain),
            args.map(Text::plain),
        );
        let kind = ToolKind::Function;
        let entry = ToolEntry {
            index: None,
            id,
            name,
            namespace: None,
            args,
            kind,
            whole: false,
            source: self.source,
        };
        if let Some(extras) = self.waiting_extras(None) {
            self.to.tool(self.choice, entry, extras.lend());
            return;
        }
        let extras = self.take_extras();
        self.extras = self.to.tool(self.choice, entry, extras);
    }

    fn take_extras(&mut self) -> FrameExtras<'a> {
        self.has_emitted = true;
        FrameExtras {
            usage: self.usage.clone(),
            ..std::mem::take(&mut self.extras)
        }
    }
}
