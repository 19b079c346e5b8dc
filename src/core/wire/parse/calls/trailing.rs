//! Calls that count only if nothing follows them: those in the reasoning that an engine reports (its parser took the model's
//! calls for reasoning, because the block was not closed), and those in code, which may be quoted (wire-format 7.2).
//!
//! Takes: the text from its first byte that is undecided. Gives: how much of it is no call, and at the end the calls.
//! Remembers: the calls so far, and how much it has read. Never: keeps the text; the caller does.

use super::code::Code;
use super::{Calls, Starts, prefix};
use crate::wire::parse::{Emit, Piece};
use crate::wire::repair;
use crate::wire::rule::Rule;
use std::sync::Arc;

/// Reader of calls that may end a text.
#[derive(Debug)]
pub(in super::super) struct TrailingCalls {
    calls: Calls,
    found: Vec<FoundCall>,
    /// White space and backticks after the last call.
    after: String,
    /// Number of bytes read of the undecided text.
    read: usize,
}

#[derive(Debug)]
struct FoundCall {
    name: String,
    id: Option<String>,
    arguments: String,
}

/// Number of bytes that the parser gets at once.
const AT_ONCE: usize = 8;
/// Limit on the calls at the end of a text.
const MOST_CALLS: usize = 128;

impl TrailingCalls {
    /// Creates the reader for calls with these beginnings.
    pub(in super::super) fn of(starts: &Arc<Starts>) -> Self {
        Self::new(Calls::within(starts))
    }

    pub(super) fn new(calls: Calls) -> Self {
        Self {
            calls,
            found: Vec::new(),
            after: String::new(),
            read: 0,
        }
    }

    /// Returns true if the text is no call, and nothing is undecided before it.
    pub(in super::super) fn passes(&self, text: &str) -> bool {
        self.read == 0 && self.calls.passes(text)
    }

    /// Returns the code in the content so far.
    pub(super) fn code(&self) -> Option<Code> {
        self.calls.code
    }

    /// Reads on in the undecided text. Returns how many bytes of it are no call. In code, reading stops there.
    ///
    /// The parser does not tell where in the text a piece ends. So it gets so little at once that no call can end and
    /// another one begin in it.
    pub(in super::super) fn decide(&mut self, text: &str) -> usize {
        let mut decided = 0;
        loop {
            let piece = prefix(text.get(self.read..).unwrap_or(""), AT_ONCE);
            if piece.is_empty() || decided > 0 && self.calls.in_code {
                break;
            }
            self.read += piece.len();
            let (before, is_prose) = self.collect(piece, false);
            // Those before a call outside of code are quoted.
            if is_prose || self.calls.is_stopped() {
                self.found.clear();
                self.after.clear();
            }
            match self.found.is_empty() {
                true => decided = self.read - self.calls.held_length(),
                false => decided += before,
            }
        }
        self.read -= decided;
        decided
    }

    /// Gives a text to the parser. Returns how many bytes of content came before the first call, and if prose came after a
    /// call.
    fn collect(&mut self, text: &str, last: bool) -> (usize, bool) {
        let Self {
            calls,
            found,
            after,
            ..
        } = self;
        let (mut before, mut is_prose) = (0, false);
        let collect: Emit<'_> = &mut |piece| match piece {
            Piece::Content(text) if found.is_empty() => before += text.len(),
            Piece::Content(text) => {
                is_prose |= !text.trim_matches(['`', ' ', '\t', '\r', '\n']).is_empty();
                after.push_str(text);
            }
            Piece::Call { name, id } => found.push(FoundCall {
                name: name.to_owned(),
                id: id.map(str::to_owned),
                arguments: String::new(),
            }),
            Piece::Arguments(text) => {
                if let Some(call) = found.last_mut() {
                    call.arguments.push_str(text);
                }
            }
            Piece::Recognised(_)
            | Piece::Opened
            | Piece::Reasoning(_)
            | Piece::Item(_)
            | Piece::MessageEnd => {}
        };
        match last {
            true => calls.end(true, collect),
            false => calls.read(text, collect),
        }
        (before, is_prose)
    }

    /// Ends the undecided text: emits the calls in it if they are complete and nothing follows them, else the text. Returns
    /// the bytes read: up to a call outside of code, or all.
    pub(in super::super) fn end(mut self, text: &str, emit: Emit<'_>) -> usize {
        let (before, is_prose) = self.collect("", true);
        if self.calls.is_stopped() {
            let read = text.len() - self.calls.held_length();
            super::emit_content(text.get(..read).unwrap_or(""), emit);
            return read;
        }
        let is_complete = |call: &FoundCall| repair::is_json(&call.arguments);
        let are_calls = !is_prose && (1..=MOST_CALLS).contains(&self.found.len());
        if !are_calls || !self.found.iter().all(is_complete) {
            super::emit_content(text, emit);
            return text.len();
        }
        super::emit_content(text.get(..before).unwrap_or(""), emit);
        // The end of a code fence.
        if self.after.contains('`') {
            emit(Piece::Content(self.after.trim_end()));
        }
        emit(Piece::Recognised(Rule::ToolText));
        for call in &self.found {
            emit(Piece::Call {
                name: &call.name,
                id: call.id.as_deref(),
            });
            emit(Piece::Arguments(&call.arguments));
        }
        text.len()
    }
}
