//! Reasoning that an engine reports itself, in one choice: calls at its end are calls (wire-format 7.2).

use super::calls::TrailingCalls;
use super::{Emit, Piece};

/// Reader of the engine's reasoning in one choice.
#[derive(Debug)]
pub(super) enum EngineReasoning {
    /// The engine has sent no reasoning; perhaps something else.
    Unseen { is_late: bool },
    /// Reasoning alone has come.
    Reading(Box<ReasoningBuffer>),
    /// Reasoning has come, and something else, or no calls are looked for.
    Past,
}

/// Reasoning from the marker of a call on, until prose follows.
#[derive(Debug)]
pub(super) struct ReasoningBuffer {
    calls: TrailingCalls,
    held: String,
    /// True once more text was held than is allowed; calls are no longer looked for.
    is_full: bool,
}

/// Limit in bytes on the text that is held.
const MAX_HELD: usize = 512 << 10;

impl ReasoningBuffer {
    pub(super) fn new(calls: TrailingCalls) -> Self {
        Self {
            calls,
            held: String::new(),
            is_full: false,
        }
    }

    /// Returns true if the text passes unchanged.
    pub(super) fn passes(&self, text: &str) -> bool {
        self.is_full || self.calls.passes(text)
    }
}

impl EngineReasoning {
    /// Reads a text of the reasoning, and emits what is no call.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        let Self::Reading(reading) = self else { return };
        if reading.passes(text) {
            return emit(Piece::Reasoning(text));
        }
        let ReasoningBuffer {
            calls,
            held,
            is_full,
        } = &mut **reading;
        held.push_str(text);
        let decided = calls.decide(held);
        *is_full = held.len() - decided > MAX_HELD;
        let decided = if *is_full { held.len() } else { decided };
        if decided > 0 {
            emit(Piece::Reasoning(held.get(..decided).unwrap_or("")));
            held.drain(..decided);
        }
    }

    /// Ends the reasoning. `wanted`: calls at its end count, because nothing follows them.
    pub(super) fn end(&mut self, wanted: bool, emit: Emit<'_>) {
        let Self::Reading(reading) = std::mem::replace(self, Self::Past) else {
            return;
        };
        let ReasoningBuffer { calls, held, .. } = *reading;
        let mut say = |piece: Piece<'_>| match piece {
            Piece::Content(text) => emit(Piece::Reasoning(text)),
            other => emit(other),
        };
        if held.is_empty() {
            return;
        }
        if wanted {
            calls.end(&held, &mut say);
        } else {
            say(Piece::Content(&held));
        }
    }
}
