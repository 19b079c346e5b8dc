//! Answers that end with fewer choices than were asked for, by engines that know of one alone.
//!
//! Takes: the end of what the engine gives. Gives: what there is of it, with its finishes, and no end: whoever asks for the
//! other choices goes on behind it ([`Gather::behind`](crate::wire::Gather::behind)). Never: where nobody will ask for them.

use super::{Normaliser, Output};
use crate::wire::MissingChoices;

impl Normaliser {
    /// Whether each of the first choices has a finish, and there are no others, which may be asked for.
    pub(super) fn is_short(&self) -> bool {
        let is_less = !self.choices.is_empty() && self.choices.len() < self.shape.choices as usize;
        self.shape.may_lack && is_less && self.is_each_finished()
    }

    /// Ends what there is; whoever goes on with the other choices ends the answer.
    pub(super) fn end_short(&mut self, to: &mut Output<'_>) {
        self.settle_head(to);
        self.release(to);
        self.lacks = !self.ended;
        self.ended = true;
    }

    /// The choices that the engine does not give may be asked for.
    pub(in crate::wire) fn may_lack(&self) -> bool {
        self.shape.may_lack
    }

    /// Returns the part of the answer that has come, if it ended with too few choices.
    pub(in crate::wire) fn lacks(&self) -> Option<MissingChoices> {
        let choices = u32::try_from(self.choices.len()).unwrap_or(u32::MAX);
        let usage = self.usage.filter(|_| self.shape.include_usage || !self.shape.stream);
        self.lacks.then_some(MissingChoices { choices, asked: self.shape.choices, usage })
    }

    /// The answer has not ended so after all.
    pub(in crate::wire) fn goes_on(&mut self) {
        (self.lacks, self.ended) = (false, false);
    }
}
