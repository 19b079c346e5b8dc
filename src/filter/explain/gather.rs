//! Merging of equal changes in many frames into one, with first frame, last frame and count.
//!
//! Takes: changes as they are found. Gives: those whose run has ended. Remembers: the open runs, at most as many
//! as a few frames can start.

use super::{Change, Place};

/// Largest gap, in frames, within a run of equal changes: some changes occur only in every few frames.
const GAP: u64 = 16;

/// Open runs of equal changes, which later frames may extend.
#[derive(Debug, Default)]
pub(super) struct RunMerger(Vec<Change>);

impl RunMerger {
    /// Adds a change: extends the run of equal changes, or starts a new one.
    pub(super) fn add(&mut self, change: Change) {
        let is_same = |open: &&mut Change| {
            open.rule == change.rule
                && open.effect == change.effect
                && open.place.name() == change.place.name()
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

    /// Removes and returns the runs that neither this frame nor the ones shortly before it have extended.
    pub(super) fn ended(&mut self, frame: u64) -> Vec<Change> {
        let has_ended = |open: &Change| match open.place {
            Place::Frames { last, .. } => last + GAP < frame,
            Place::Request | Place::Object => true,
        };
        let (ended, open) = std::mem::take(&mut self.0).into_iter().partition(has_ended);
        self.0 = open;
        ended
    }

    /// Removes and returns all open runs, at the end of the answer.
    pub(super) fn rest(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.0)
    }
}
