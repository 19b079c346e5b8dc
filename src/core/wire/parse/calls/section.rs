//! Section of calls whose arguments the model may write as JSON: such a call is held until they have ended.
//!
//! ```text
//! call ──arguments that a grammar makes──→ sent as they come
//!   └──JSON──→ held ──an object──→ sent
//!                ├──anything else──→ text, from the start of the call on
//!                └──the text ends, or the limit──→ sent as they are
//! ```
//!
//! Takes: the text of a section from its first byte that is undecided, and its grammar. Gives: what the grammar emits.
//! Remembers: the held call. Never: keeps the text; the caller does, until it is decided.

use super::super::held_call::HeldCall;
use super::super::{Emit, Piece};
use super::start::Candidate;
use super::{Grammar, Notation, Step, Tools};
use crate::wire::options::RepairArguments;
use crate::wire::repair::ArgumentsEnd;
use crate::wire::rule::Rule;

/// Repair of arguments that are no JSON, whatever the option says: without it their call would be text.
const REPAIR: RepairArguments = RepairArguments::Json;

/// Parser for one section of calls.
#[derive(Debug)]
pub(super) struct Section {
    grammar: Box<dyn Grammar>,
    candidate: Candidate,
    /// Number of bytes read of the undecided text.
    read: usize,
    held: Option<PlacedCall>,
    /// Offset in the undecided text of the end of a call that is text, because its arguments are no JSON.
    rejected: Option<usize>,
    /// True once a call has been sent.
    called: bool,
}

/// Held call with its place.
#[derive(Debug)]
struct PlacedCall {
    call: HeldCall,
    /// Offset in bytes of its text in the undecided text.
    start: usize,
}

impl Section {
    /// Creates the parser of a section that may begin with this candidate.
    pub(super) fn new(mut grammar: Box<dyn Grammar>, candidate: Candidate) -> Self {
        let read = grammar.take_marker_length();
        Self {
            grammar,
            candidate,
            read,
            held: None,
            rejected: None,
            called: false,
        }
    }

    /// Returns the candidate that the section begins with.
    pub(super) fn candidate(&self) -> Candidate {
        self.candidate
    }

    /// Returns true if a call has been recognised.
    pub(super) fn has_begun(&self) -> bool {
        self.called || self.held.is_some() || self.rejected.is_some()
    }

    /// Returns true if a call has been sent.
    pub(super) fn has_called(&self) -> bool {
        self.called
    }

    /// Returns the end of a call that has been rejected for its arguments.
    pub(super) fn rejected(&self) -> Option<usize> {
        self.rejected
    }

    /// Returns true if all of the undecided text has been read.
    pub(super) fn has_read(&self, text: &str) -> bool {
        self.read >= text.len()
    }

    /// Returns true if white space alone decides nothing at this place.
    pub(super) fn ignores_blank(&self) -> bool {
        self.grammar.ignores_blank()
    }

    /// Returns how many bytes are decided, and forgets them.
    pub(super) fn take_read(&mut self) -> usize {
        let decided = self.held.as_ref().map_or(self.read, |held| held.start);
        self.read -= decided;
        if let Some(held) = &mut self.held {
            held.start = 0;
        }
        decided
    }

    /// Reads on in the undecided text and returns the step with which the reading stops; its number counts from the
    /// beginning of that text. [`Step::No`]: the last call is text, from the end of what is decided on.
    pub(super) fn read(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Step {
        loop {
            let start = self.read;
            let step = self.step(text.get(start..).unwrap_or(""), last, tools, &mut *emit);
            let (Ok(read) | Err(Step::More(read) | Step::Done(read))) = step else {
                return Step::No;
            };
            self.read = start + read;
            if !self.is_decided(emit) {
                self.rejected = Some(self.read);
                self.read = self.held.take().map_or(0, |held| held.start);
                return Step::No;
            }
            match step {
                Ok(_) => {}
                Err(Step::More(_)) => return Step::More(self.read),
                Err(_) => return Step::Done(self.read),
            }
        }
    }

    /// Lets the grammar read on, and holds the call that begins, if any.
    fn step(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, Step> {
        let Self { grammar, held, .. } = self;
        // All text before the first call belongs to it.
        let start = if self.called { self.read } else { 0 };
        grammar.step(
            text,
            last,
            tools,
            &mut |piece| match (piece, held.as_mut()) {
                (Piece::Call { name, id }, _) => {
                    *held = Some(PlacedCall {
                        call: HeldCall::new(name, id),
                        start,
                    });
                }
                (Piece::Arguments(text), Some(held)) => held.call.push(text),
                (piece, _) => emit(piece),
            },
        )
    }

    /// Sends the held call if nothing more has to be known of it. Returns false if it is none.
    fn is_decided(&mut self, emit: Emit<'_>) -> bool {
        let Some(PlacedCall { call, .. }) = &mut self.held else {
            return true;
        };
        match self.grammar.notation() {
            _ if call.is_too_long() => {}
            Notation::OpenJson => return true,
            Notation::EndedJson if !call.check(REPAIR, ArgumentsEnd::Marked, emit) => {
                return false;
            }
            Notation::EndedJson | Notation::Other => {}
        }
        self.release(emit);
        true
    }

    /// Sends the held call, if any, as far as it has come.
    pub(super) fn release(&mut self, emit: Emit<'_>) {
        let Some(PlacedCall { call, .. }) = self.held.take() else {
            return;
        };
        if !std::mem::replace(&mut self.called, true) {
            emit(Piece::Recognised(Rule::ToolText));
        }
        call.send(emit);
    }
}
