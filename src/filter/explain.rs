//! What is changed, said as it happens.
//!
//! Takes: a rewriter after each line that it was given. Gives: the rules that it used since. Remembers: how often it had used
//! each. Never: looks into the rewriter, which costs nothing more for it.

use crate::plan::Fitted;
use crate::wire::rule::{Rule, Tally};
use crate::wire::{Out, Rewriter};
use std::fmt;

/// Something that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub place: Place,
    /// The rule's name.
    pub rule: &'static str,
    /// What it does, in words.
    pub what: &'static str,
    /// How often it did it there.
    pub times: u32,
}

/// Where something was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the engine's request.
    Request,
    /// When this event of the answer came, counted from 1.
    Frame(u64),
    /// In an answer that is one object.
    Object,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => f.write_str("request"),
            Self::Frame(number) => write!(f, "frame {number}"),
            Self::Object => f.write_str("answer"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, rule, what, times } = self;
        write!(f, "{place}  {rule}  {what}")?;
        if *times > 1 { write!(f, " ({times} times)") } else { Ok(()) }
    }
}

/// Who is told.
pub(super) struct Explain<'t> {
    tell: &'t mut dyn FnMut(Change),
    known: Tally,
}

impl<'t> Explain<'t> {
    pub(super) fn new(tell: &'t mut dyn FnMut(Change)) -> Self {
        Self { tell, known: Tally::default() }
    }

    /// What was changed in the request.
    pub(super) fn request(&mut self, fitted: &Fitted) {
        for rule in &fitted.rules {
            (self.tell)(Change { place: Place::Request, rule: rule.name, what: rule.what, times: 1 });
        }
    }

    /// Gives the rewriter bytes line by line: each event is complete at the end of a line.
    pub(super) fn push(&mut self, rewriter: &mut Rewriter, bytes: &[u8], out: &mut Out) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            rewriter.push(line, out);
            self.look(rewriter, false);
        }
    }

    /// Says what the rewriter has changed since the last look.
    pub(super) fn look(&mut self, rewriter: &Rewriter, whole: bool) {
        let summary = rewriter.summary();
        let place = if whole { Place::Object } else { Place::Frame(summary.events) };
        for (rule, times) in summary.tally.since(&self.known) {
            let (rule, what): (&'static str, _) = (Rule::name(rule), Rule::what(rule));
            (self.tell)(Change { place, rule, what, times });
        }
        self.known = summary.tally;
    }
}
