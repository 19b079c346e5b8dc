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
    /// The engine has sent no reasoning; perhaps something else.
    Unseen { is_late: bool },
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
    found: Vec<FoundCall>,
    /// True once more text was held than is allowed; calls are no longer looked for.
    is_full: bool,
}

#[derive(Debug)]
struct FoundCall {
    name: String,
    id: Option<String>,
    arguments: String,
}

/// Limit in bytes on the text that is held.
const MAX_HELD: usize = 512 << 10;
/// Limit on the calls at the end of reasoning.
const MOST_CALLS: usize = 128;

impl TrailingCalls {
    pub(super) fn new(calls: Calls) -> Self {
        Self {
            calls,
            held: String::new(),
            found: Vec::new(),
            is_full: false,
        }
    }

    /// Returns true if the text passes unchanged.
    pub(super) fn passes(&self, text: &str) -> bool {
        self.is_full || self.held.is_empty() && self.calls.passes(text)
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
            if self.is_full {
                continue;
            }
            let mut decided = self.collect(character.encode_utf8(&mut letter), false);
            self.is_full = self.held.len() > MAX_HELD;
            if self.is_full {
                self.found.clear();
                decided = self.held.len();
            }
            reasoning.extend(self.held.drain(..decided));
        }
        if self.is_full {
            reasoning.push_str(&std::mem::take(&mut self.held));
        }
        if !reasoning.is_empty() {
            emit(Piece::Reasoning(&reasoning));
        }
    }

    /// Gives a text to the parser. Returns how many bytes of the held text are reasoning: those before the first call,
    /// or all that is decided if prose came after a call.
    fn collect(&mut self, text: &str, last: bool) -> usize {
        let Self { calls, found, .. } = self;
        let (mut before, mut is_prose) = (0, false);
        let collect: Emit<'_> = &mut |piece| match piece {
            Piece::Content(text) if found.is_empty() => before += text.len(),
            Piece::Content(text) => is_prose |= !text.trim().is_empty(),
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
            true => calls.end(collect),
            false => calls.read(text, collect),
        }
        if is_prose {
            found.clear();
            before = self.held.len().saturating_sub(calls.held_length());
        }
        before
    }

    /// Ends the reasoning: emits the calls at its end if they are `wanted` and complete, else the held text.
    pub(super) fn end(mut self, wanted: bool, emit: Emit<'_>) {
        let mut reasoning = match self.is_full {
            true => 0,
            false => self.collect("", true),
        };
        let is_complete = |call: &FoundCall| repair::is_json(&call.arguments);
        let are_calls = wanted && self.found.iter().all(is_complete);
        if !are_calls || self.found.is_empty() || self.found.len() > MOST_CALLS {
            self.found.clear();
            reasoning = self.held.len();
        }
        let reasoning = self.held.get(..reasoning).unwrap_or(&self.held);
        if !reasoning.is_empty() {
            emit(Piece::Reasoning(reasoning));
        }
        if !self.found.is_empty() {
            emit(Piece::Recognised(Rule::ToolText));
        }
        for call in &self.found {
            emit(Piece::Call {
                name: &call.name,
                id: call.id.as_deref(),
            });
            emit(Piece::Arguments(&call.arguments));
        }
    }
}
