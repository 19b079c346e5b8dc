//! Content blocks of a message: one is open at a time, and their indices rise (messages 4.2, 4.4).
//!
//! Takes: pieces of thinking, text and calls in any order. Gives: blocks, each complete before the next begins.
//! Remembers: the open block, and those that wait after it. Never: reorders the pieces of a block.

use super::block::{BlockForm, BlockKind, OpenBlock};
use super::held::HeldBlocks;
use crate::json::{Raw, Text};
use crate::wire::event::ItemStage;
use bytes::BytesMut;

/// Blocks of one answer: the open one, and those that wait after it.
pub(super) struct Blocks {
    form: BlockForm,
    open: Option<OpenBlock>,
    held: HeldBlocks,
    /// Index of the next block.
    next: u32,
}

/// Outcome of a piece of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The piece belongs to a block that is open or waits.
    InTime,
    /// The block of the call has ended, so the piece has no place any more.
    Late,
}

impl Blocks {
    pub(super) fn new(form: BlockForm) -> Self {
        Self {
            form,
            open: None,
            held: HeldBlocks::default(),
            next: 0,
        }
    }

    /// Returns true if a delta of the open block is written from that delta alone.
    pub(super) fn is_plain(&self) -> bool {
        self.form.is_stream()
            && self.held.is_empty()
            && self.open.as_ref().is_some_and(OpenBlock::is_plain)
    }

    /// Returns true if more waits after an incomplete call than may.
    pub(super) fn holds_too_much(&self) -> bool {
        self.held.is_over_limit()
    }

    /// Returns the open block if it is of this kind.
    pub(super) fn open_as(&mut self, kind: &BlockKind) -> Option<&mut OpenBlock> {
        self.open
            .as_mut()
            .filter(|block| block.kind.continues_with(kind))
    }

    /// Adds a piece of thinking or text: to the open block if it is of this kind, else to a new one.
    pub(super) fn text(&mut self, kind: BlockKind, text: &Text<'_>, out: &mut BytesMut) {
        if self.is_blocked() {
            return self.held.text(kind, text);
        }
        if self.open_as(&kind).is_none() {
            self.begin(kind, out);
        }
        if let Some(block) = &mut self.open {
            block.piece(text, &mut self.form, out);
        }
    }

    /// Adds the engine's own signature to the current block of thinking, or to one without text.
    pub(super) fn signature(&mut self, signature: &Text<'_>, out: &mut BytesMut) {
        if self.is_blocked() {
            return self.held.signature(signature);
        }
        if self.open_as(&BlockKind::Thinking).is_none() {
            self.begin(BlockKind::Thinking, out);
        }
        if let Some(block) = self.open_as(&BlockKind::Thinking) {
            block.sign(&signature.decoded());
        }
    }

    /// Adds a stage of a block that samewire does not model: its beginning, a delta, or its end.
    pub(super) fn foreign(
        &mut self,
        slot: Option<u32>,
        stage: ItemStage,
        data: Raw<'_>,
        out: &mut BytesMut,
    ) {
        let is_open = self
            .open
            .as_ref()
            .is_some_and(|block| block.kind.is_foreign(slot));
        match stage {
            ItemStage::Added | ItemStage::Whole => {
                let kind = BlockKind::Foreign {
                    slot,
                    json: data.get().to_owned(),
                };
                match self.is_blocked() {
                    true => self.held.push(kind),
                    false => self.begin(kind, out),
                }
                if stage == ItemStage::Whole {
                    self.foreign(slot, ItemStage::Done, data, out);
                }
            }
            ItemStage::Told => match self.open.as_mut().filter(|_| is_open) {
                Some(block) => block.add_foreign_delta(data, &self.form, out),
                None => self.held.foreign(slot, data),
            },
            ItemStage::Done if is_open => self.close(out),
            ItemStage::Done => self.held.end_foreign(slot),
        }
    }

    /// Begins the block of a call, at once or after the calls that are incomplete.
    pub(super) fn call(&mut self, kind: BlockKind, out: &mut BytesMut) {
        match self.is_blocked() {
            true => self.held.push(kind),
            false => self.begin(kind, out),
        }
    }

    /// Adds a piece of a call's arguments, and opens the blocks after it once they are complete.
    pub(super) fn arguments(&mut self, slot: u32, args: &Text<'_>, out: &mut BytesMut) -> Arrival {
        if let Some(block) = self.open.as_mut().filter(|block| block.kind.is_call(slot)) {
            block.piece(args, &mut self.form, out);
            self.release(out);
            return Arrival::InTime;
        }
        match self.held.arguments(slot, args) || args.decoded().trim().is_empty() {
            true => Arrival::InTime,
            false => Arrival::Late,
        }
    }

    /// Ends the block of a call whose arguments are all there, and opens the blocks after it.
    pub(super) fn end_call(&mut self, slot: u32, out: &mut BytesMut) {
        if self
            .open
            .as_ref()
            .is_some_and(|block| block.kind.is_call(slot))
        {
            self.close(out);
            self.release(out);
        } else {
            self.held.end_call(slot);
        }
    }

    /// Ends the last block, unless it is a call whose arguments may go on.
    pub(super) fn break_text(&mut self, out: &mut BytesMut) {
        if !self.held.end_text() && self.open.as_ref().is_some_and(OpenBlock::is_text) {
            self.close(out);
        }
    }

    /// Ends all blocks: no piece follows.
    pub(super) fn finish(&mut self, out: &mut BytesMut) {
        self.close(out);
        while self.open_next_held(out) {
            self.close(out);
        }
    }

    /// Returns the collected blocks of a whole answer, without the brackets of the list.
    pub(super) fn collected(&self) -> &[u8] {
        self.form.collected()
    }

    fn is_blocked(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(OpenBlock::is_incomplete_call)
    }

    /// Opens held blocks in order, up to a call that is incomplete.
    fn release(&mut self, out: &mut BytesMut) {
        while !self.held.is_empty() && !self.is_blocked() {
            self.open_next_held(out);
        }
    }

    fn open_next_held(&mut self, out: &mut BytesMut) -> bool {
        let Some(held) = self.held.pop() else {
            return false;
        };
        self.begin(held.kind.clone(), out);
        if let Some(block) = &mut self.open {
            block.sign(&held.signature);
            for piece in held.pieces() {
                match (&held.kind, Raw::of(&piece)) {
                    (BlockKind::Foreign { .. }, Some(delta)) => {
                        block.add_foreign_delta(delta, &self.form, out)
                    }
                    _ => block.piece(&Text::json(&piece), &mut self.form, out),
                }
            }
        }
        if held.is_ended {
            self.close(out);
        }
        true
    }

    fn begin(&mut self, kind: BlockKind, out: &mut BytesMut) {
        self.close(out);
        self.open = Some(OpenBlock::begin(kind, self.next, &mut self.form, out));
        self.next += 1;
    }

    fn close(&mut self, out: &mut BytesMut) {
        if let Some(block) = self.open.take() {
            block.end(&mut self.form, out);
        }
    }
}
