//! Content blocks of a message: one is open at a time, and their indices rise (messages 4.2, 4.4).
//!
//! Takes: pieces of thinking, text and calls in any order. Gives: blocks, each complete before the next begins.
//! Remembers: pieces of later blocks while the arguments of a call are incomplete. Never: reorders the pieces of a
//! block.

use super::block::{Block, BlockKind, Form};
use crate::json::{Raw, Text};
use crate::wire::event::ItemStage;
use bytes::BytesMut;
use std::collections::{HashMap, VecDeque};

/// Blocks of one answer: the open one, and those that wait behind it.
pub(super) struct Blocks {
    form: Form,
    open: Option<Block>,
    held: VecDeque<HeldBlock>,
    /// Number of held blocks that have been opened since: the position of the first one that still waits.
    released: usize,
    /// Positions of held calls, by slot.
    held_calls: HashMap<u32, usize>,
    /// Index of the next block.
    next: u32,
}

/// Block that waits until the call before it is complete.
struct HeldBlock {
    kind: BlockKind,
    /// Pieces as they came, in canonical JSON spelling.
    pieces: Vec<BytesMut>,
    /// True once the block takes no more pieces.
    is_ended: bool,
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
    pub(super) fn new(form: Form) -> Self {
        Self { form, open: None, held: VecDeque::new(), released: 0, held_calls: HashMap::new(), next: 0 }
    }

    /// Returns true if a delta of the open block is written from that delta alone.
    pub(super) fn is_plain(&self) -> bool {
        self.form.is_stream() && self.held.is_empty() && self.open.as_ref().is_some_and(Block::is_plain)
    }

    /// Returns the open block if it is of this kind.
    pub(super) fn open_as(&mut self, kind: &BlockKind) -> Option<&mut Block> {
        self.open.as_mut().filter(|block| block.kind.continues_with(kind))
    }

    /// Adds a piece of thinking or text: to the open block if it is of this kind, else to a new one.
    pub(super) fn text(&mut self, kind: BlockKind, text: &Text<'_>, out: &mut BytesMut) {
        if self.is_blocked() {
            let goes_on = |last: &&mut HeldBlock| last.kind.continues_with(&kind) && !last.is_ended;
            let last = self.held.back_mut().filter(goes_on);
            let mut piece = BytesMut::new();
            text.write(&mut piece);
            return match last {
                Some(last) => last.pieces.push(piece),
                None => self.held.push_back(HeldBlock { kind, pieces: vec![piece], is_ended: false }),
            };
        }
        if self.open_as(&kind).is_none() {
            self.begin(kind, out);
        }
        if let Some(block) = &mut self.open {
            block.piece(text, &mut self.form, out);
        }
    }

    /// Adds the engine's own signature to the open block of thinking, or to one without text.
    pub(super) fn signature(&mut self, signature: &Text<'_>, out: &mut BytesMut) {
        if self.open_as(&BlockKind::Thinking).is_none() && !self.is_blocked() {
            self.begin(BlockKind::Thinking, out);
        }
        if let Some(block) = self.open_as(&BlockKind::Thinking) {
            block.sign(signature);
        }
    }

    /// Adds a stage of a block that samewire does not model: its beginning, a delta, or its end. It waits for nothing:
    /// what is held before it is written first.
    pub(super) fn foreign(&mut self, slot: Option<u32>, stage: ItemStage, data: Raw<'_>, out: &mut BytesMut) {
        let kind = || BlockKind::Foreign { slot, json: data.get().to_owned() };
        let is_open = self.open.as_ref().is_some_and(|block| block.kind.is_foreign(slot));
        match stage {
            ItemStage::Added | ItemStage::Whole => {
                self.finish(out);
                self.begin(kind(), out);
                if stage == ItemStage::Whole {
                    self.close(out);
                }
            }
            ItemStage::Told => {
                if let Some(block) = self.open.as_ref().filter(|_| is_open) {
                    block.write_foreign_delta(data, out);
                }
            }
            ItemStage::Done if is_open => self.close(out),
            ItemStage::Done => {}
        }
    }

    /// Ends the block of a call whose arguments are all there, and opens the blocks behind it.
    pub(super) fn end_call(&mut self, slot: u32, out: &mut BytesMut) {
        if self.open.as_ref().is_some_and(|block| block.kind.is_call(slot)) {
            self.close(out);
            self.release(out);
        } else if let Some(held) = self.held_call(slot) {
            held.is_ended = true;
        }
    }

    fn held_call(&mut self, slot: u32) -> Option<&mut HeldBlock> {
        let at = self.held_calls.get(&slot)?.checked_sub(self.released)?;
        self.held.get_mut(at)
    }

    /// Begins the block of a call, at once or behind the calls that are incomplete.
    pub(super) fn call(&mut self, slot: u32, kind: BlockKind, out: &mut BytesMut) {
        if self.is_blocked() {
            self.held_calls.insert(slot, self.released + self.held.len());
            self.held.push_back(HeldBlock { kind, pieces: Vec::new(), is_ended: false });
        } else {
            self.begin(kind, out);
        }
    }

    /// Adds a piece of a call's arguments, and opens the blocks behind it once they are complete.
    pub(super) fn arguments(&mut self, slot: u32, args: &Text<'_>, out: &mut BytesMut) -> Arrival {
        if let Some(block) = self.open.as_mut().filter(|block| block.kind.is_call(slot)) {
            block.piece(args, &mut self.form, out);
            self.release(out);
            return Arrival::InTime;
        }
        if let Some(held) = self.held_call(slot).filter(|held| !held.is_ended) {
            let mut piece = BytesMut::new();
            args.write(&mut piece);
            held.pieces.push(piece);
            return Arrival::InTime;
        }
        if args.decoded().trim().is_empty() { Arrival::InTime } else { Arrival::Late }
    }

    /// Ends the last block, unless it is a call whose arguments may go on.
    pub(super) fn break_text(&mut self, out: &mut BytesMut) {
        if let Some(last) = self.held.back_mut().filter(|last| last.kind.is_text()) {
            last.is_ended = true;
            return;
        }
        if self.open.as_ref().is_some_and(Block::is_text) {
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
        self.open.as_ref().is_some_and(Block::is_incomplete_call)
    }

    /// Opens held blocks in order, up to a call that is incomplete.
    fn release(&mut self, out: &mut BytesMut) {
        while !self.held.is_empty() && !self.is_blocked() {
            self.open_next_held(out);
        }
    }

    fn open_next_held(&mut self, out: &mut BytesMut) -> bool {
        let Some(HeldBlock { kind, pieces, is_ended }) = self.held.pop_front() else { return false };
        self.released += 1;
        self.begin(kind, out);
        if let Some(block) = &mut self.open {
            for piece in pieces {
                block.piece(&Text::json(&String::from_utf8_lossy(&piece)), &mut self.form, out);
            }
        }
        if is_ended {
            self.close(out);
        }
        true
    }

    fn begin(&mut self, kind: BlockKind, out: &mut BytesMut) {
        self.close(out);
        self.open = Some(Block::begin(kind, self.next, &mut self.form, out));
        self.next += 1;
    }

    fn close(&mut self, out: &mut BytesMut) {
        if let Some(block) = self.open.take() {
            block.end(&mut self.form, out);
        }
    }
}
