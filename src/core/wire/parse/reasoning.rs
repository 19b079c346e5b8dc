//! Calls at the end of the reasoning that an engine reports itself (wire-format 7.2): its parser took the model's calls
//! for reasoning, because the block was not closed.
//!
//! Takes: the reasoning, cut anywhere. Gives: reasoning, and the calls if nothing follows them. Remembers: text from
//! the marker of a call on, until prose follows. Never: loses text; what is no call at the end is reasoning.

use super::calls::Calls;
use super::{Emit, Piece};
use crate::wire::repair;
use crate::wire::rule::Rule;

/// Reader of the engine's reasoning in one choice.
#[derive(Debug)]
pub(super) enum EngineReasoning {
    /// The engine has sent no reasoning. True: it has sent something else.
    Unseen(bool),
    /// Reasoning alone has come.
    Reading(Box<TrailingCalls>),
    /// Reasoning has come, and something else, or no calls are looked for.
    Past,
}

/// Calls that may end the reasoning.
#[derive(Debug)]
pub(super) struct TrailingCalls {
    calls: Calls,
    /// Text that has not been sent: from the marker of a call on.
    held: String,
    found: Vec<FoundPiece>,
}

#[derive(Debug)]
enum FoundPiece {
    Recognised(Rule),
    Call { name: String, id: Option<String> },
    Arguments(String),
}

impl TrailingCalls {
    pub(super) fn new(calls: Calls) -> Self {
        Self {
            calls,
            held: String::new(),
            found: Vec::new(),
        }
    }

    /// Returns true if the text passes unchanged.
    pub(super) fn passes(&self, text: &str) -> bool {
        self.held.is_empty() && self.calls.passes(text)
    }

    /// Reads the next text, and emits what is reasoning. The letters are read one by one, since the parser does not
    /// tell where in the text a piece ends.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        if self.passes(text) {
            return emit(Piece::Reasoning(text));
        }
        let mut reasoning = String::new();
        let mut letter = [0; 4];
        for character in text.chars() {
            self.held.push(character);
            let is_prose = self.collect(character.encode_utf8(&mut letter), false);
            let is_call = |piece: &FoundPiece| matches!(piece, FoundPiece::Call { .. });
            if is_prose || !self.found.iter().any(is_call) {
                self.found.clear();
                let decided = self.held.len().saturating_sub(self.calls.held_length());
                reasoning.extend(self.held.drain(..decided));
            }
        }
        if !reasoning.is_empty() {
            emit(Piece::Reasoning(&reasoning));
        }
    }

    /// Gives a text to the parser. Returns true if prose came after a call.
    fn collect(&mut self, text: &str, last: bool) -> bool {
        let Self { calls, found, .. } = self;
        let mut is_prose = false;
        let collect: Emit<'_> = &mut |piece| match piece {
            Piece::Content(text) => is_prose |= !found.is_empty() && !text.trim().is_empty(),
            Piece::Recognised(rule) => found.push(FoundPiece::Recognised(rule)),
            Piece::Call { name, id } => found.push(FoundPiece::Call {
                name: name.to_owned(),
                id: id.map(str::to_owned),
            }),
            Piece::Arguments(text) => found.push(FoundPiece::Arguments(text.to_owned())),
            Piece::Reasoning(_) | Piece::Item(_) | Piece::MessageEnd => {}
        };
        match last {
            true => calls.end(collect),
            false => calls.read(text, collect),
        }
        is_prose
    }

    /// Ends the reasoning: emits the calls at its end if they are `wanted` and complete, else the held text.
    pub(super) fn end(mut self, wanted: bool, emit: Emit<'_>) {
        let is_prose = self.collect("", true);
        if is_prose || !wanted || !self.is_complete() {
            if !self.held.is_empty() {
                emit(Piece::Reasoning(&self.held));
            }
            return;
        }
        for piece in &self.found {
            emit(match piece {
                FoundPiece::Recognised(rule) => Piece::Recognised(*rule),
                FoundPiece::Call { name, id } => Piece::Call {
                    name,
                    id: id.as_deref(),
                },
                FoundPiece::Arguments(text) => Piece::Arguments(text),
            });
        }
    }

    /// Returns true if there is a call, and the arguments of all calls are JSON.
    fn is_complete(&self) -> bool {
        let mut calls: Vec<String> = Vec::new();
        for piece in &self.found {
            match (piece, calls.last_mut()) {
                (FoundPiece::Call { .. }, _) => calls.push(String::new()),
                (FoundPiece::Arguments(text), Some(arguments)) => arguments.push_str(text),
                _ => {}
            }
        }
        !calls.is_empty() && calls.iter().all(|arguments| repair::is_json(arguments))
    }
}
