//! Output of the rewriter that the client has not been sent yet, and the rules for when it may be sent.

use crate::wire::fault::Failure;
use crate::wire::{Ending, OutputBuffer, Rewriter};

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
}

impl AnswerBuffer {
    pub(super) fn new(rewriter: Rewriter, numbered: bool, committed: bool) -> Self {
        Self { rewriter, out: OutputBuffer::default(), failed_before_content: false, numbered, committed }
    }

    /// Replaces the rewriter for another attempt and discards the output. A merged answer keeps both, because other
    /// choices have written to it, and reads the answer to this attempt from now on.
    pub(super) fn reset_for(&mut self, mut rewriter: Rewriter) {
        if self.rewriter.is_merged() {
            return self.rewriter.replace_reader(rewriter.into_reader());
        }
        if self.committed {
            rewriter.commit();
        }
        *self = Self::new(rewriter, self.numbered, self.committed);
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

    /// Fails the answer in place of its last `frames` frames. `kept`: number of bytes before them, which may be sent.
    pub(super) fn withdraw(&mut self, kept: usize, frames: u64, failure: Failure) {
        let written = self.out.join();
        self.out.open().extend_from_slice(written.get(..kept).unwrap_or(&written));
        self.failed_before_content = !self.committed;
        self.rewriter.withdraw(frames, failure, &mut self.out);
    }

    pub(super) fn finish(&mut self, ending: Ending) {
        self.write(|rewriter, out| _ = rewriter.finish(ending, out));
    }

    fn write(&mut self, write: impl FnOnce(&mut Rewriter, &mut OutputBuffer)) {
        let (held, ended) = (self.out.mark(), self.ended());
        write(&mut self.rewriter, &mut self.out);
        let failed = !self.rewriter.is_merged()
            && self.rewriter.any_failure().is_some_and(|failure| failure.fault.is_broken_off());
        let stays = self.has_content() || self.numbered && self.committed;
        if failed && !ended && !stays {
            self.out = self.out.split_off(held);
            self.failed_before_content = true;
        }
    }

    /// Returns the failure that makes up the whole answer: an error response instead of a stream.
    pub(super) fn error_response(&self) -> Option<&Failure> {
        self.rewriter.failure().or_else(|| self.rewriter.any_failure().filter(|_| self.failed_before_content))
    }

    pub(super) fn has_content(&self) -> bool {
        self.rewriter.progress().has_content
    }

    pub(super) fn ended(&self) -> bool {
        self.rewriter.progress().ended
    }

    /// Returns true if there is output that may be sent, or the answer has ended.
    pub(super) fn is_due(&self) -> bool {
        self.ended() || self.has_content() && !self.out.is_empty()
    }

    /// Ends an answer whose missing choices cannot be requested.
    pub(super) fn end_without_missing(&mut self) {
        self.rewriter.fail_missing_choices(&mut self.out);
    }

    /// Fails the whole answer because the current choice has failed. Before the status is sent, the failure
    /// replaces all output; a role alone does not count as output (faults 1).
    pub(super) fn give_up(&mut self) {
        if !self.has_content() {
            self.out.clear();
        }
        self.failed_before_content = !self.committed;
        self.rewriter.give_up(&mut self.out);
    }
}
