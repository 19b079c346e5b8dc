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

/// Translates the pieces of one text into deltas and tool entries. The extras are attached to the first delta.
pub(super) struct PieceEmitter<'a, 'to> {
    pub(super) to: &'to mut dyn EventSink,
    pub(super) choice: u32,
    pub(super) extras: FrameExtras<'a>,
    /// Extras of an earlier chunk whose text was held.
    pub(super) waiting: Option<Box<HeldExtras>>,
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
            Piece::Reasoning(_) if self.hide_reasoning => {}
            Piece::Reasoning(text) => self.delta(Delta::Reasoning(Text::plain(text))),
            Piece::Content(text) => self.delta(Delta::Content(Text::plain(text))),
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

    fn delta(&mut self, delta: Delta<'_>) {
        if let Some(waiting) = self.own_waiting() {
            let usage = self.usage.clone();
            let extras = FrameExtras {
                usage,
                ..waiting.lend()
            };
            self.has_emitted = true;
            self.to.delta(self.choice, delta, extras);
            return;
        }
        let extras = self.take_extras();
        self.extras = self.to.delta(self.choice, delta, extras);
    }

    /// Returns the waiting extras if the next frame carries them. Where the chunk has extras itself, they get a frame of
    /// their own.
    fn own_waiting(&mut self) -> Option<Box<HeldExtras>> {
        if !self.extras.is_empty() {
            self.release_waiting();
        }
        self.waiting.take()
    }

    /// Emits the waiting extras alone.
    pub(super) fn release_waiting(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.to.delta(self.choice, Delta::Bare, waiting.lend());
        }
    }

    /// Holds the extras of a chunk that gave no piece: they wait for its text. The choice exists for the client even so.
    pub(super) fn wait(&mut self) -> Option<Box<HeldExtras>> {
        let mut extras = std::mem::take(&mut self.extras);
        let usage = extras.usage.clone();
        let role = FrameExtras {
            usage,
            logprobs: extras.logprobs.take(),
            tokens_read: extras.tokens_read,
            ..FrameExtras::default()
        };
        self.extras = self.to.delta(self.choice, Delta::Role, role);
        if extras.is_empty() {
            return self.waiting.take();
        }
        self.release_waiting();
        Some(Box::new(HeldExtras::of(extras)))
    }

    fn tool(&mut self, name: Option<&str>, id: Option<&str>, args: Option<&str>) {
        self.release_waiting();
        let extras = self.take_extras();
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
