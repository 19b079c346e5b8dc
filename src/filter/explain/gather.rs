//! Equal changes of many frames as one, with the first and the last frame and a count.
//!
//! Takes: changes as they are found. Gives: those whose run has ended. Remembers: the others; as many as one frame can have, over a
//! few frames.

use super::{Change, Place};

/// Frames that a run may miss before it has ended.
const GAP: u64 = 16;

/// Changes of which more may come.
#[derive(Debug, Default)]
pub(super) struct Gathered(Vec<Change>);

impl Gathered {
    /// Adds a change, to those that are equal to it if there are any.
    pub(super) fn add(&mut self, change: Change) {
        let is_same = |open: &&mut Change| {
            open.rule == change.rule && open.effect == change.effect && open.place.is_alike(change.place)
        };
        match self.0.iter_mut().find(is_same) {
            None => self.0.push(change),
            Some(open) => {
                open.times = open.times.saturating_add(change.times);
                open.place = match (open.place, change.place) {
                    (Place::Frames { first, .. }, Place::Frames { last, .. }) => {
                        Place::Frames { first, last }
                    }
                    (place, _) => place,
                };
            }
        }
    }

    /// Takes the changes that this frame and those before it have not had any more.
    pub(super) fn ended(&mut self, frame: u64) -> Vec<Change> {
        let has_ended = |open: &Change| match open.place {
            Place::Frames { last, .. } => last + GAP < frame,
            Place::Request | Place::Object => true,
        };
        let (ended, open) = std::mem::take(&mut self.0).into_iter().partition(has_ended);
        self.0 = open;
        ended
    }

    /// Takes all of them.
    pub(super) fn rest(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.0)
    }
}
