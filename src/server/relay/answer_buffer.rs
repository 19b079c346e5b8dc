//! Output of the rewriter that the client has not been sent yet, and the rules for when it may be sent.

use crate::wire::fault::{Failure, Fault};
use crate::wire::{AnswerReader, AnswerWriter, Ending, OutputBuffer};

/// The writer of the answer with its output buffer. Readers of engine answers write to it.
///
/// A role alone is not an answer: it is held until some content follows (faults 1). If the engine then reports an
/// error as an event, the error follows the role in the stream (wire-format 3.2); if the engine falls silent or
/// breaks off, the client receives the error alone.
pub(super) struct AnswerBuffer {
    pub(super) writer: AnswerWriter,
    /// Canonical bytes that have not been handed over.
    pub(super) out: OutputBuffer,
    /// True if the answer failed before the engine sent any content.
    pub(super) failed_before_content: bool,
    /// True once the status has been sent.
    pub(super) committed: bool,
}

impl AnswerBuffer {
    pub(super) fn new(writer: AnswerWriter) -> Self {
        Self {
            writer,
            out: OutputBuffer::default(),
            failed_before_content: false,
            committed: false,
        }
    }

    /// Prepares for another attempt at this choice, and discards the output. A merged answer keeps it, and its writer,
    /// because other choices have written to it.
    pub(super) fn restart(&mut self, mut writer: AnswerWriter, choice: u32) {
        if self.writer.is_merged() {
            return self.writer.restart(choice);
        }
        if self.committed {
            writer.commit();
        }
        *self = Self {
            committed: self.committed,
            ..Self::new(writer)
        };
    }

    /// Passes bytes to a reader, line by line until the first content, so that a role can be held back alone.
    pub(super) fn push(&mut self, reader: &mut AnswerReader, mut bytes: &[u8]) {
        while !self.has_content(reader) && !bytes.is_empty() {
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.write(reader, |reader, writer, out| reader.push(line, writer, out));
            bytes = rest;
        }
        if !bytes.is_empty() {
            reader.push(bytes, &mut self.writer, &mut self.out);
        }
    }

    pub(super) fn commit(&mut self) {
        self.writer.commit();
        self.committed = true;
    }

    pub(super) fn whole(&mut self, reader: &mut AnswerReader, body: &[u8]) {
        reader.whole(body, &mut self.writer, &mut self.out);
    }

    pub(super) fn fail(&mut self, reader: &mut AnswerReader, failure: Failure) {
        self.write(reader, |reader, writer, out| {
            reader.fail(failure, writer, out)
        });
    }

    pub(super) fn finish(&mut self, reader: &mut AnswerReader, ending: Ending) {
        self.write(reader, |reader, writer, out| {
            reader.finish(ending, writer, out)
        });
    }

    fn write(
        &mut self,
        reader: &mut AnswerReader,
        write: impl FnOnce(&mut AnswerReader, &mut AnswerWriter, &mut OutputBuffer),
    ) {
        let (held, ended) = (self.out.mark(), self.ended(reader));
        write(reader, &mut self.writer, &mut self.out);
        let failed = !self.writer.is_merged()
            && reader
                .failure()
                .is_some_and(|failure| failure.fault.is_broken_off());
        // Events of Responses are numbered: none may be removed once the status has been sent.
        let stays =
            || self.has_content(reader) || self.committed && self.writer.response().is_some();
        if failed && !ended && !stays() {
            self.out = self.out.split_off(held);
            self.failed_before_content = true;
        }
    }

    /// Returns the failure that makes up the whole answer: an error response instead of a stream.
    pub(super) fn error_response<'f>(&'f self, reader: &'f AnswerReader) -> Option<&'f Failure> {
        self.writer
            .failure()
            .or_else(|| reader.failure().filter(|_| self.failed_before_content))
    }

    pub(super) fn has_content(&self, reader: &AnswerReader) -> bool {
        self.writer.progress(reader.progress()).has_content
    }

    pub(super) fn ended(&self, reader: &AnswerReader) -> bool {
        self.writer.progress(reader.progress()).ended
    }

    /// Returns true if there is output that may be sent, or the answer has ended.
    pub(super) fn is_due(&self, reader: &AnswerReader) -> bool {
        let may_be_sent = self.has_content(reader) || self.writer.is_past_pause();
        self.ended(reader) || may_be_sent && !self.out.is_empty()
    }

    /// Fails an answer that its engine has ended.
    pub(super) fn fail_after_end(&mut self, reader: &mut AnswerReader, failure: Failure) {
        reader.fail_after_end(failure, &mut self.writer, &mut self.out);
    }

    /// Ends an answer whose missing choices cannot be requested.
    pub(super) fn end_without_missing(&mut self, reader: &mut AnswerReader) {
        self.fail_after_end(reader, Fault::Incomplete.into());
    }

    /// Fails the whole answer because the choice that `reader` reads has failed. Before the status is sent, the failure
    /// replaces all output; a role alone does not count as output (faults 1).
    pub(super) fn give_up(&mut self, reader: &AnswerReader) {
        if !self.has_content(reader) {
            self.out.clear();
        }
        self.failed_before_content = !self.committed;
        if let Some(failure) = reader.failure() {
            self.writer.give_up(failure, &mut self.out);
        }
    }
}
