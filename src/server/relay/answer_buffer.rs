//! Output of the rewriter that the client has not been sent yet, and the rules for when it may be sent.

use crate::wire::fault::Failure;
use crate::wire::{Ending, Gather, MissingChoices, OutputBuffer, Rewriter, Summary};

/// The rewriter with its output buffer.
///
/// A role alone is not an answer: it is held until some content follows (faults 1). If the engine then reports an
/// error as an event, the error follows the role in the stream (wire-format 3.2); if the engine falls silent or
/// breaks off, the client receives the error alone.
pub(super) struct AnswerBuffer {
    pub(super) rewriter: Rewriter,
    /// Canonical bytes that have not been handed over.
    pub(super) out: OutputBuffer,
    /// True if the answer failed before the engine sent any content.
    pub(super) failed_before_content: bool,
    /// True if events are numbered: once the status has been sent, none of them may be removed.
    pub(super) numbered: bool,
    /// True once the status has been sent.
    pub(super) committed: bool,
    /// State shared by the choices, if each has an engine request of its own. The rewriter then belongs to the
    /// current one.
    fan_out: Option<Box<FanOutShared>>,
}

/// State shared by engine answers that give one choice each.
struct FanOutShared {
    gather: Gather,
    /// True if an answer other than the current one has had content.
    spoken: bool,
    /// Combined summary of the answers that have ended.
    past: Summary,
}

impl AnswerBuffer {
    pub(super) fn new(rewriter: Rewriter, numbered: bool, committed: bool) -> Self {
        Self {
            rewriter,
            out: OutputBuffer::default(),
            failed_before_content: false,
            numbered,
            committed,
            fan_out: None,
        }
    }

    /// Replaces the rewriter for another attempt. The output is discarded, unless other choices have written to
    /// it.
    pub(super) fn begin_again(&mut self, mut rewriter: Rewriter) {
        if self.committed {
            rewriter.commit();
        }
        if self.is_of_several() {
            self.rewriter = rewriter;
        } else {
            *self = Self::new(rewriter, self.numbered, self.committed);
        }
    }

    /// Passes bytes to the rewriter, line by line until the first content, so that a role can be held back alone.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !self.has_content() && !bytes.is_empty() {
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.write(|rewriter, out| _ = rewriter.push(line, out));
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.rewriter.push(bytes, &mut self.out);
        }
    }

    pub(super) fn commit(&mut self) {
        self.rewriter.commit();
        self.committed = true;
    }

    pub(super) fn whole(&mut self, body: &[u8]) {
        self.rewriter.whole(body, &mut self.out);
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.write(|rewriter, out| _ = rewriter.fail(failure, out));
    }

    pub(super) fn finish(&mut self, ending: Ending) {
        self.write(|rewriter, out| _ = rewriter.finish(ending, out));
    }

    fn write(&mut self, write: impl FnOnce(&mut Rewriter, &mut OutputBuffer)) {
        let (held, ended) = (self.out.mark(), self.ended());
        write(&mut self.rewriter, &mut self.out);
        let failed = !self.is_of_several()
            && self.rewriter.any_failure().is_some_and(|failure| failure.fault.is_broken_off());
        let stays = self.has_content() || self.numbered && self.committed;
        if failed && !ended && !stays {
            self.out = self.out.split_off(held);
            self.failed_before_content = true;
        }
    }

    /// Returns the failure that makes up the whole answer: an error response instead of a stream.
    pub(super) fn refusal(&self) -> Option<&Failure> {
        self.rewriter.failure().or_else(|| self.rewriter.any_failure().filter(|_| self.failed_before_content))
    }

    pub(super) fn has_content(&self) -> bool {
        self.rewriter.progress().has_content || self.fan_out.as_ref().is_some_and(|several| several.spoken)
    }

    pub(super) fn ended(&self) -> bool {
        match &self.fan_out {
            None => self.rewriter.progress().ended,
            Some(several) => several.gather.is_over(),
        }
    }

    /// Returns true if there is output that may be sent, or the answer has ended.
    pub(super) fn is_due(&self) -> bool {
        self.ended() || self.has_content() && !self.out.is_empty()
    }

    /// Returns the summary of the answer, over all choices.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = self.rewriter.summary();
        if let Some(several) = &self.fan_out {
            summary.add(several.past.clone());
        }
        summary
    }

    // === one engine answer for each choice ===

    /// Makes the rewriter that of the first of several choices, each with an answer of its own.
    pub(super) fn gather_in(&mut self, gather: Gather) {
        self.fan_out = Some(Box::new(FanOutShared { gather, spoken: false, past: Summary::default() }));
    }

    /// Switches to one answer for each choice after an ended answer that gave fewer choices than were requested.
    /// Returns the `Gather` for the answers that supply the rest.
    pub(super) fn gather_rest(&mut self, given: MissingChoices, rule: &'static str) -> Gather {
        let gather = Gather::continue_from(&mut self.rewriter, given);
        let mut past = self.rewriter.summary();
        past.adapted.push(rule);
        self.fan_out = Some(Box::new(FanOutShared { gather: gather.clone(), spoken: true, past }));
        gather
    }

    /// Ends an answer whose missing choices cannot be requested.
    pub(super) fn end_without_missing(&mut self) {
        self.rewriter.fail_missing_choices(&mut self.out);
    }

    pub(super) fn is_of_several(&self) -> bool {
        self.fan_out.is_some()
    }

    pub(super) fn gather(&self) -> Option<&Gather> {
        self.fan_out.as_ref().map(|several| &several.gather)
    }

    /// Makes another choice's rewriter the current one and stores the present one in its place.
    pub(super) fn swap_rewriter(&mut self, other: &mut Rewriter) {
        if let Some(several) = &mut self.fan_out {
            several.spoken |= self.rewriter.progress().has_content;
            std::mem::swap(&mut self.rewriter, other);
        }
    }

    /// Adds the summary of an ended answer that is not the current one.
    pub(super) fn add_summary_of(&mut self, other: &Rewriter) {
        if let Some(several) = &mut self.fan_out {
            several.past.add(other.summary());
        }
    }

    /// Fails the whole answer because the current choice has failed. Before the status is sent, the failure
    /// replaces all output; a role alone does not count as output (faults 1).
    pub(super) fn give_up(&mut self) {
        let (Some(several), Some(failure)) = (&self.fan_out, self.rewriter.any_failure()) else { return };
        if !self.has_content() {
            self.out.clear();
        }
        self.failed_before_content = !self.committed;
        several.gather.fail(failure.clone(), &mut self.out);
    }
}
