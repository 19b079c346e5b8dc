//! Parser for text with reasoning between tags, followed by an answer that may have its own markers and calls
//! between markers. The text passes four parsers in turn: suffixes of tags, reasoning, answer markers, calls.

use super::calls::Calls;
use super::suffix::{self, Suffixes};
use super::think::Think;
use super::wrapper::AnswerMarkers;
use super::{Emit, Piece, TextRoute, WholeText};
use std::borrow::Cow;

/// Parser chain of one choice; each stage is present only if the model's format needs it.
#[derive(Debug, Default)]
pub(super) struct TextParser {
    suffixes: Option<Suffixes>,
    think: Option<Think>,
    wrapper: Option<AnswerMarkers>,
    calls: Option<Calls>,
}

impl TextParser {
    pub(super) fn new(
        suffixes: Option<Suffixes>,
        think: Option<Think>,
        wrapper: Option<AnswerMarkers>,
        calls: Option<Calls>,
    ) -> Self {
        Self {
            suffixes,
            think,
            wrapper,
            calls,
        }
    }

    /// Announces that the text continues an answer, so that no block of reasoning is open.
    pub(super) fn expect_answer(&mut self) {
        if let Some(think) = &mut self.think {
            think.expect_answer();
        }
    }

    /// Goes on after content.
    pub(super) fn follow_content(&mut self) {
        self.expect_answer();
        if let Some(calls) = &mut self.calls {
            calls.follow_content();
        }
    }

    /// Prepares for `text`, which is all the text there will be. Returns true if the text is an answer although the
    /// template opened a reasoning block: it has no tag.
    pub(super) fn prepare_whole(&mut self, text: &str, known: Option<WholeText>) -> bool {
        let text = match self.suffixes {
            Some(_) => suffix::removed(text).into(),
            None => Cow::Borrowed(text),
        };
        self.think
            .as_mut()
            .is_some_and(|think| think.prepare_whole(&text, known))
    }

    /// Returns true if the text has no tag, though templates of the model's family open the block of reasoning.
    pub(super) fn lacks_tags(&self) -> bool {
        self.think.as_ref().is_some_and(Think::lacks_tags)
    }

    /// Returns how a text passes the whole chain unchanged; `None` if any stage has to parse it.
    pub(super) fn route(&self, text: &str) -> Option<TextRoute> {
        self.passing(text, Think::route, Calls::passes)
    }

    /// Returns the same as [`TextParser::route`], also for a text at the beginning of an answer.
    pub(super) fn whole_route(&self, text: &str) -> Option<TextRoute> {
        self.passing(text, Think::whole_route, Calls::passes_whole)
    }

    fn passing(
        &self,
        text: &str,
        route: impl FnOnce(&Think, &str) -> Option<TextRoute>,
        passes: impl FnOnce(&Calls, &str) -> bool,
    ) -> Option<TextRoute> {
        if self
            .suffixes
            .as_ref()
            .is_some_and(|suffixes| !suffixes.passes(text))
        {
            return None;
        }
        let route = match &self.think {
            Some(think) => route(think, text)?,
            None => TextRoute::Content,
        };
        if route == TextRoute::Reasoning {
            return Some(route);
        }
        let is_plain = self
            .wrapper
            .as_ref()
            .is_none_or(|wrapper| wrapper.passes(text))
            && self.calls.as_ref().is_none_or(|calls| passes(calls, text));
        is_plain.then_some(route)
    }

    /// Parses the next text through all stages and emits what is certain; each stage buffers the rest.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        match &mut self.suffixes {
            Some(suffixes) => {
                let text = suffixes.read(text);
                if !text.is_empty() {
                    self.read_text(&text, emit);
                }
            }
            None => self.read_text(text, emit),
        }
    }

    /// Reads the text that may be a tag with a suffix, because nothing follows.
    fn end_suffixes(&mut self, emit: Emit<'_>) {
        let held = self
            .suffixes
            .as_mut()
            .map(Suffixes::end)
            .unwrap_or_default();
        if !held.is_empty() {
            self.read_text(&held, emit);
        }
    }

    fn read_text(&mut self, text: &str, emit: Emit<'_>) {
        let Self {
            think,
            wrapper,
            calls,
            ..
        } = self;
        match think {
            Some(think) => think.read(text, &mut |piece| read_content(wrapper, calls, piece, emit)),
            None => read_content(wrapper, calls, Piece::Content(text), emit),
        }
    }

    /// Stops looking for reasoning, because the engine reports it itself. Text held by the parsers of reasoning and
    /// calls precedes that reasoning, so it is emitted first.
    pub(super) fn leave_reasoning(&mut self, emit: Emit<'_>) {
        self.end_suffixes(emit);
        let Self {
            think,
            wrapper,
            calls,
            ..
        } = self;
        if let Some(think) = think.take() {
            think.leave(&mut |piece| read_content(wrapper, calls, piece, emit));
        }
        if let Some(calls) = calls {
            calls.end(false, emit);
            calls.follow_reasoning();
        }
    }

    /// Ends the text before a call that the engine reports. What follows is read for calls only, as after a call.
    pub(super) fn leave_to_call(&mut self, emit: Emit<'_>) {
        self.end_suffixes(emit);
        let Self {
            think,
            wrapper,
            calls,
            ..
        } = self;
        if let Some(think) = think.take() {
            think.leave(&mut |piece| read_content(wrapper, calls, piece, emit));
        }
        if let Some(wrapper) = wrapper {
            wrapper.finish(&mut |text| pass_to_calls(calls, Piece::Content(text), emit));
        }
        if let Some(calls) = calls {
            calls.leave_to_call(emit);
        }
    }

    /// Ends the text: each stage in turn emits what it has buffered. `complete`: nothing follows, and the model has finished
    /// by itself.
    pub(super) fn end(&mut self, complete: bool, emit: Emit<'_>) {
        self.end_suffixes(emit);
        let Self {
            think,
            wrapper,
            calls,
            ..
        } = self;
        if let Some(think) = think {
            think.end(&mut |piece| read_content(wrapper, calls, piece, emit));
        }
        if let Some(wrapper) = wrapper {
            wrapper.finish(&mut |text| pass_to_calls(calls, Piece::Content(text), emit));
        }
        if let Some(calls) = calls {
            calls.end(complete, emit);
        }
    }
}

/// Passes content through the parser of answer markers, if any, and everything on to the call parser.
fn read_content(
    wrapper: &mut Option<AnswerMarkers>,
    calls: &mut Option<Calls>,
    piece: Piece<'_>,
    emit: Emit<'_>,
) {
    match (wrapper, piece) {
        (Some(wrapper), Piece::Content(text)) => {
            wrapper.read(text, &mut |text| {
                pass_to_calls(calls, Piece::Content(text), emit)
            });
        }
        (_, piece) => pass_to_calls(calls, piece, emit),
    }
}

/// Passes content to the call parser, if any; other pieces are emitted directly.
fn pass_to_calls(calls: &mut Option<Calls>, piece: Piece<'_>, emit: Emit<'_>) {
    match (calls, piece) {
        (Some(calls), Piece::Content(text)) => calls.read(text, emit),
        (Some(calls), Piece::Reasoning(_)) => {
            // Text that the call parser holds precedes this reasoning.
            calls.end(false, emit);
            emit(piece);
        }
        (_, piece) => emit(piece),
    }
}
