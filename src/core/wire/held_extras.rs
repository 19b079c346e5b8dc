//! Extras of an event that is held back (wire-format 2.3 rule 7).
//!
//! Takes: extras of a chunk. Gives: the same once the chunk is gone. Remembers: them. Never: changes one.

use super::event::{ChunkUsage, FrameExtras};
use crate::json::{Extras, Kept, Raw};

/// Owned copy of the extras of a held event: its frame is written after the chunk that they borrow from is gone.
#[derive(Debug, Default)]
pub(super) struct HeldExtras {
    chunk_extensions: Vec<(String, Kept)>,
    choice_extensions: Vec<(String, Kept)>,
    chunk: Vec<(String, Kept)>,
    choice: Vec<(String, Kept)>,
    delta: Vec<(String, Kept)>,
    chunk_upstream: Option<Kept>,
    choice_upstream: Option<Kept>,
    pub(super) usage: Option<Box<ChunkUsage>>,
}

impl HeldExtras {
    pub(super) fn of(extras: FrameExtras<'_>) -> Self {
        let own = |extras: &Extras<'_>| {
            extras
                .iter()
                .map(|(key, raw)| (key.to_owned(), raw.keep()))
                .collect()
        };
        Self {
            chunk_extensions: own(&extras.chunk_extensions),
            choice_extensions: own(&extras.choice_extensions),
            chunk: own(&extras.chunk),
            choice: own(&extras.choice),
            delta: own(&extras.delta),
            chunk_upstream: extras.chunk_upstream.map(Raw::keep),
            choice_upstream: extras.choice_upstream.map(Raw::keep),
            usage: extras.usage,
        }
    }

    pub(super) fn lend(&self) -> FrameExtras<'_> {
        fn lend(owned: &[(String, Kept)]) -> Extras<'_> {
            let mut extras = Extras::default();
            owned
                .iter()
                .for_each(|(key, raw)| extras.keep(key.as_str().into(), raw.raw()));
            extras
        }
        FrameExtras {
            logprobs: None,
            usage: self.usage.clone(),
            chunk_extensions: lend(&self.chunk_extensions),
            choice_extensions: lend(&self.choice_extensions),
            chunk: lend(&self.chunk),
            choice: lend(&self.choice),
            delta: lend(&self.delta),
            chunk_upstream: self.chunk_upstream.as_ref().map(Kept::raw),
            choice_upstream: self.choice_upstream.as_ref().map(Kept::raw),
            tokens_read: true,
        }
    }
}
