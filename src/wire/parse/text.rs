//! Text in which reasoning stands between tags, and behind it an answer, maybe between marks of its own, with calls between
//! marks: first the one is read, then in what is left the other.

use super::calls::Calls;
use super::think::Think;
use super::wrapper::Wrapper;
use super::{Emit, Piece, TextRoute};

/// The reader of one choice.
#[derive(Debug, Default)]
pub(super) struct Plain {
    think: Option<Think>,
    wrapper: Option<Wrapper>,
    calls: Option<Calls>,
}

impl Plain {
    pub(super) fn new(think: Option<Think>, wrapper: Option<Wrapper>, calls: Option<Calls>) -> Self {
        Self { think, wrapper, calls }
    }

    /// The model says nothing but the text that is read next, and ends of itself.
    pub(super) fn only_text(&mut self) {
        if let Some(think) = &mut self.think {
            think.only_text();
        }
    }

    /// This is all the text there will be. Gives whether it is an answer that would have been read as reasoning.
    pub(super) fn foresee(&mut self, text: &str) -> bool {
        self.think.as_mut().is_some_and(|think| think.foresee(text))
    }

    /// How this text goes through.
    pub(super) fn route(&self, text: &str) -> Option<TextRoute> {
        let route = self.think.as_ref().map_or(Some(TextRoute::Content), |think| think.route(text))?;
        if route == TextRoute::Reasoning {
            return Some(route);
        }
        let is_plain = self.wrapper.as_ref().is_none_or(|wrapper| wrapper.passes(text))
            && self.calls.as_ref().is_none_or(|calls| calls.passes(text));
        is_plain.then_some(route)
    }

    /// Reads on.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        let Self { think, wrapper, calls } = self;
        match think {
            Some(think) => think.read(text, &mut |piece| behind(wrapper, calls, piece, emit)),
            None => behind(wrapper, calls, Piece::Content(text), emit),
        }
    }

    /// What is reasoning is said by somebody else from here on. What is held of an answer stood before that.
    pub(super) fn leave_reasoning(&mut self, emit: Emit<'_>) {
        let Self { think, wrapper, calls } = self;
        if let Some(think) = think.take() {
            think.leave(&mut |piece| behind(wrapper, calls, piece, emit));
        }
        if let Some(calls) = calls {
            calls.end(emit);
        }
    }

    /// There is no more text.
    pub(super) fn end(&mut self, emit: Emit<'_>) {
        let Self { think, wrapper, calls } = self;
        if let Some(think) = think {
            think.end(&mut |piece| behind(wrapper, calls, piece, emit));
        }
        if let Some(wrapper) = wrapper {
            wrapper.finish(&mut |text| into_calls(calls, Piece::Content(text), emit));
        }
        if let Some(calls) = calls {
            calls.end(emit);
        }
    }
}

/// What stands around an answer is around what is not reasoning.
fn behind(wrapper: &mut Option<Wrapper>, calls: &mut Option<Calls>, piece: Piece<'_>, emit: Emit<'_>) {
    match (wrapper, piece) {
        (Some(wrapper), Piece::Content(text)) => {
            wrapper.read(text, &mut |text| into_calls(calls, Piece::Content(text), emit));
        }
        (_, piece) => into_calls(calls, piece, emit),
    }
}

/// Calls stand in what is not reasoning.
fn into_calls(calls: &mut Option<Calls>, piece: Piece<'_>, emit: Emit<'_>) {
    match (calls, piece) {
        (Some(calls), Piece::Content(text)) => calls.read(text, emit),
        (Some(calls), Piece::Reasoning(_)) => {
            // What was held stood before it.
            calls.end(emit);
            emit(piece);
        }
        (_, piece) => emit(piece),
    }
}
