//! Answers of engines that give one choice only, and so end with fewer choices than the client asked for.
//!
//! Takes: the end of the engine's answer. Gives: the choices in it, with their finishes, but no end: the server
//! requests the other choices and appends them ([`AnswerWriter::merge_missing`](crate::wire::AnswerWriter::merge_missing)).
//! Never: withholds the end where nobody will request them.

use super::{EncoderOutput, Normaliser};
use crate::wire::MissingChoices;

impl Normaliser {
    /// Returns true if the engine finished each choice that it gave, gave fewer than the client asked for, and the
    /// others may be requested.
    pub(super) fn is_short(&self) -> bool {
        let is_less = !self.choices.is_empty() && self.choices.len() < self.shape.choices as usize;
        self.shape.may_lack && is_less && self.is_each_finished()
    }

    /// Sends the finishes, but not the end, which follows the missing choices.
    pub(super) fn end_short(&mut self, to: &mut EncoderOutput<'_>) {
        self.send_changed_head(to);
        self.release(to);
        self.lacks_choices = !self.ended;
        self.ended = true;
    }

    /// Returns true if choices that the engine does not give may be requested separately.
    pub(in crate::wire) fn may_lack(&self) -> bool {
        self.shape.may_lack
    }

    /// Returns the choices and the usage so far if the answer ended with too few choices; `None` otherwise.
    pub(in crate::wire) fn lacks(&self) -> Option<MissingChoices> {
        let choices = u32::try_from(self.choices.len()).unwrap_or(u32::MAX);
        let usage = self
            .usage
            .filter(|_| self.shape.include_usage || !self.shape.stream);
        self.lacks_choices.then_some(MissingChoices {
            choices,
            requested: self.shape.choices,
            usage,
        })
    }

    /// Reopens the answer, so that it can fail: the missing choices do not come.
    pub(in crate::wire) fn reopen(&mut self) {
        (self.lacks_choices, self.ended) = (false, false);
    }
}
