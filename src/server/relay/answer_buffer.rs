//! What has been written for the client and what of it may be sent.

use crate::wire::fault::Failure;
use crate::wire::{Ending, Gather, MissingChoices, OutputBuffer, Rewriter, Summary};

/// The rewriter and what it has written.
///
/// A role is no answer yet: it is held until something follows it (faults 1). If an event of the engine then says what
/// went wrong, that goes behind the role, in the stream (wire-format 3.2); if the engine falls silent or breaks off, the
/// client sees the error alone.
pub(super) struct AnswerBuffer {
    pub(super) rewriter: Rewriter,
    /// Canonical bytes that have not been handed over.
    pub(super) out: OutputBuffer,
    /// It ended before the engine said anything.
    pub(super) unspoken: bool,
    /// Events are numbered: once the status has gone out, none of them may be taken back.
    pub(super) numbered: bool,
    /// The status has gone out.
    pub(super) committed: bool,
    /// What it is written in, where each choice has an answer of its own: the rewriter is that of the one that is read.
    several: Option<Box<FanOutShared>>,
}

/// What the answers that give a choice each have in common.
struct FanOutShared {
    gather: Gather,
    /// One of those that are not read now has spoken.
    spoken: bool,
    /// What those were that are over.
    past: Summary,
}

impl AnswerBuffer {
    pub(super) fn new(rewriter: Rewriter, numbered: bool, committed: bool) -> Self {
        Self { rewriter, out: OutputBuffer::default(), unspoken: false, numbered, committed, several: None }
    }

    /// The answer is read anew.
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

    fn write(&mut self, write: impl FnOnce(&mut Rewriter, &mut OutputBuffer)) {
        let (held, ended) = (self.out.mark(), self.ended());
        write(&mut self.rewriter, &mut self.out);
        let failed = !self.is_of_several()
            && self.rewriter.any_failure().is_some_and(|failure| failure.fault.breaks_off());
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
        self.rewriter.progress().spoken || self.several.as_ref().is_some_and(|several| several.spoken)
    }

    pub(super) fn ended(&self) -> bool {
        match &self.several {
            None => self.rewriter.progress().ended,
            Some(several) => several.gather.is_over(),
        }
    }

    /// There is something that may be sent.
    pub(super) fn is_due(&self) -> bool {
        self.ended() || self.spoken() && !self.out.is_empty()
    }

    /// What the answer was.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = self.rewriter.summary();
        if let Some(several) = &self.several {
            summary.add(several.past.clone());
        }
        summary
    }

    // === an answer for each choice ===

    /// From now on the rewriter is that of one of several.
    pub(super) fn gather_in(&mut self, gather: Gather) {
        self.several = Some(Box::new(FanOutShared { gather, spoken: false, past: Summary::default() }));
    }

    /// The answer has fewer choices than were asked for: from now on they come from several, of which this one is over.
    pub(super) fn gather_rest(&mut self, given: MissingChoices, rule: &'static str) -> Gather {
        let gather = Gather::behind(&mut self.rewriter, given);
        let mut past = self.rewriter.summary();
        past.adapted.push(rule);
        self.several = Some(Box::new(FanOutShared { gather: gather.clone(), spoken: true, past }));
        gather
    }

    /// The choices that the answer lacks do not come.
    pub(super) fn lacks_for_good(&mut self) {
        self.rewriter.lacks_for_good(&mut self.out);
    }

    pub(super) fn is_of_several(&self) -> bool {
        self.several.is_some()
    }

    pub(super) fn gather(&self) -> Option<&Gather> {
        self.several.as_ref().map(|several| &several.gather)
    }

    /// Another one is read.
    pub(super) fn turn_to(&mut self, other: &mut Rewriter) {
        if let Some(several) = &mut self.several {
            several.spoken |= self.rewriter.progress().spoken;
            std::mem::swap(&mut self.rewriter, other);
        }
    }

    /// One that is not read now is over.
    pub(super) fn leave(&mut self, other: &Rewriter) {
        if let Some(several) = &mut self.several {
            several.past.add(other.summary());
        }
    }

    /// The one that is read has failed, and with it all of them. While the status has not gone out, that is the whole
    /// answer; a role alone is none (faults 1).
    pub(super) fn give_up(&mut self) {
        let (Some(several), Some(failure)) = (&self.several, self.rewriter.any_failure()) else { return };
        if !self.spoken() {
            self.out.clear();
        }
        self.unspoken = !self.committed;
        several.gather.fail(failure.clone(), &mut self.out);
    }
}
