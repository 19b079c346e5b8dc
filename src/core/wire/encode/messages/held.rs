//! Blocks that wait after a call whose arguments are incomplete (messages 4.4).
//!
//! Takes: pieces of later blocks. Gives: the blocks in the order in which they began. Remembers: each piece, and how
//! many bytes all of them take. Never: joins pieces.

use super::block::BlockKind;
use crate::json::{Raw, Text};
use bytes::BytesMut;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

/// Most bytes that may wait, each piece counted with what its event takes besides.
const MOST: usize = 4 << 20;
/// Bytes that the event of a piece takes besides its text.
const PIECE: usize = 128;

/// Block that waits.
pub(super) struct HeldBlock {
    pub(super) kind: BlockKind,
    /// Pieces as they came, one after the other, in JSON spelling. Those of a foreign block are whole deltas.
    text: BytesMut,
    /// Ends of the pieces in `text`.
    ends: Vec<usize>,
    /// Engine's own signature of thinking.
    pub(super) signature: String,
    /// True once the block takes no more pieces.
    pub(super) is_ended: bool,
}

impl HeldBlock {
    /// Returns the pieces.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let pieces = starts
            .zip(&self.ends)
            .filter_map(|(start, end)| self.text.get(start..*end));
        pieces.map(String::from_utf8_lossy)
    }
}

/// Blocks that wait, in order.
#[derive(Default)]
pub(super) struct HeldBlocks {
    queue: VecDeque<HeldBlock>,
    /// Number of blocks that no longer wait: the position of the first one in the queue.
    released: usize,
    /// Positions of calls, by slot.
    calls: HashMap<u32, usize>,
    bytes: usize,
}

impl HeldBlocks {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if more waits than may.
    pub(super) fn is_over_limit(&self) -> bool {
        self.bytes > MOST
    }

    /// Adds a block.
    pub(super) fn push(&mut self, kind: BlockKind) {
        if let BlockKind::Call { slot, .. } = &kind {
            self.calls.insert(*slot, self.released + self.queue.len());
        }
        self.bytes += PIECE;
        let (text, ends, signature) = (BytesMut::new(), Vec::new(), String::new());
        self.queue.push_back(HeldBlock {
            kind,
            text,
            ends,
            signature,
            is_ended: false,
        });
    }

    /// Adds a piece of text or thinking: to the last block if it is of this kind, else to a new one.
    pub(super) fn text(&mut self, kind: BlockKind, piece: &Text<'_>) {
        let goes_on = |last: &HeldBlock| last.kind.continues_with(&kind) && !last.is_ended;
        if !self.queue.back().is_some_and(goes_on) {
            self.push(kind);
        }
        if let Some(last) = self.queue.back_mut() {
            piece.write(&mut last.text);
            last.ends.push(last.text.len());
            self.bytes += piece.length() + PIECE;
        }
    }

    /// Adds a piece of a call's arguments. Returns false if the call does not wait, or takes no more.
    pub(super) fn arguments(&mut self, slot: u32, piece: &Text<'_>) -> bool {
        let Some(held) = self.call(slot).filter(|held| !held.is_ended) else {
            return false;
        };
        piece.write(&mut held.text);
        held.ends.push(held.text.len());
        self.bytes += piece.length() + PIECE;
        true
    }

    /// Adds a delta of a block that samewire does not model.
    pub(super) fn foreign(&mut self, slot: Option<u32>, delta: Raw<'_>) {
        let is_it = |held: &&mut HeldBlock| held.kind.is_foreign(slot) && !held.is_ended;
        if let Some(held) = self.queue.iter_mut().rfind(is_it) {
            held.text.extend_from_slice(delta.get().as_bytes());
            held.ends.push(held.text.len());
            self.bytes += delta.get().len() + PIECE;
        }
    }

    /// Adds a piece of the engine's own signature to the last block, if that is thinking, or to one without text.
    pub(super) fn signature(&mut self, signature: &Text<'_>) {
        let goes_on = |last: &HeldBlock| matches!(last.kind, BlockKind::Thinking) && !last.is_ended;
        if !self.queue.back().is_some_and(goes_on) {
            self.push(BlockKind::Thinking);
        }
        if let Some(last) = self.queue.back_mut() {
            last.signature.push_str(&signature.decoded());
            self.bytes += signature.length();
        }
    }

    /// Ends the last block if it is text or thinking. Returns false if nothing waits.
    pub(super) fn end_text(&mut self) -> bool {
        match self.queue.back_mut() {
            Some(last) => last.is_ended |= last.kind.is_text(),
            None => return false,
        }
        true
    }

    /// Ends a call that waits.
    pub(super) fn end_call(&mut self, slot: u32) {
        if let Some(held) = self.call(slot) {
            held.is_ended = true;
        }
    }

    /// Ends a block that samewire does not model.
    pub(super) fn end_foreign(&mut self, slot: Option<u32>) {
        if let Some(held) = self
            .queue
            .iter_mut()
            .rfind(|held| held.kind.is_foreign(slot))
        {
            held.is_ended = true;
        }
    }

    /// Takes the first block.
    pub(super) fn pop(&mut self) -> Option<HeldBlock> {
        let first = self.queue.pop_front()?;
        self.released += 1;
        let text = first.text.len() + first.signature.len() + (first.ends.len() + 1) * PIECE;
        self.bytes = self.bytes.saturating_sub(text);
        Some(first)
    }

    fn call(&mut self, slot: u32) -> Option<&mut HeldBlock> {
        let at = self.calls.get(&slot)?.checked_sub(self.released)?;
        self.queue.get_mut(at)
    }
}
