//! What has been written for the client and what of it may be sent.

use crate::wire::fault::Failure;
use crate::wire::{Ending, Out, Rewriter};

/// The rewriter and what it has written.
///
/// A role is no answer yet: it is held until something follows it (faults 1). If an event of the engine then says what
/// went wrong, that goes behind the role, in the stream (wire-format 3.2); if the engine falls silent or breaks off, the
/// client sees the error alone.
pub(super) struct Pen {
    pub(super) rewriter: Rewriter,
    /// Canonical bytes that have not been handed over.
    pub(super) out: Out,
    /// It ended before the engine said anything.
    pub(super) unspoken: bool,
    /// Events are numbered: once the status has gone out, none of them may be taken back.
    pub(super) numbered: bool,
    /// The status has gone out.
    pub(super) committed: bool,
}

impl Pen {
    /// Pushes line by line until the engine speaks, so that the role can be told apart from what follows.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !self.spoken() && !bytes.is_empty() {
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

    fn write(&mut self, write: impl FnOnce(&mut Rewriter, &mut Out)) {
        let (held, ended) = (self.out.mark(), self.ended());
        write(&mut self.rewriter, &mut self.out);
        let failed = self.rewriter.any_failure().is_some_and(|failure| failure.fault.breaks_off());
        let stays = self.spoken() || self.numbered && self.committed;
        if failed && !ended && !stays {
            self.out = self.out.split_off(held);
            self.unspoken = true;
        }
    }

    /// The failure that is the whole answer.
    pub(super) fn refusal(&self) -> Option<&Failure> {
        self.rewriter.failure().or_else(|| self.rewriter.any_failure().filter(|_| self.unspoken))
    }

    pub(super) fn spoken(&self) -> bool {
        self.rewriter.progress().spoken
    }

    pub(super) fn ended(&self) -> bool {
        self.rewriter.progress().ended
    }

    /// There is something that may be sent.
    pub(super) fn is_due(&self) -> bool {
        self.ended() || self.spoken() && !self.out.is_empty()
    }
}
