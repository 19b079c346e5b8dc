//! Reasoning of a stream that may be its answer: the request has switched thinking off, or has bound the answer to a
//! format, and the reasoning is JSON. A parser of the engine that takes the prompt for an open block files the whole
//! answer as reasoning (wire-format 2.4).
//!
//! Takes: the events of a decoder. Gives: the same, except that reasoning becomes content where the answer had
//! nothing else and the model stopped by itself. Remembers: the reasoning of each choice until that is known. Never:
//! holds anything after a choice has had content or a call.

use super::Shape;
use super::decode::{EventSink, ReadOptions};
use super::event::{Delta, Event, Finish, FrameExtras, Reason, ToolEntry};
use super::held_extras::HeldExtras;
use super::options::{MissingFinish, PromoteReasoning};
use super::rule::Rule;
use crate::json::Text;
use bytes::BytesMut;

/// Limit on the held text of a choice, in bytes as JSON. A model that writes more is thinking in spite of the switch.
const MOST: usize = 64 << 10;

/// Stage that holds reasoning back, between decoder and parser.
#[derive(Debug)]
pub(super) struct HeldReasoning {
    choices: Vec<HeldTexts>,
    /// Number of choices requested; reasoning of a higher index is not held.
    max_choices: usize,
    /// True if only JSON may be the answer.
    only_json: bool,
    /// True if the client gets no reasoning.
    hides: bool,
    /// True if an end of stream without a finish reason counts as a finish (option `missing_finish`).
    supplies_finish: bool,
}

/// Reasoning of one choice.
#[derive(Debug, Default)]
struct HeldTexts {
    pieces: Vec<(String, HeldExtras)>,
    size: usize,
    /// True once something other than white space is held.
    has_begun: bool,
    /// True once it is known what reasoning is.
    is_settled: bool,
}

impl HeldReasoning {
    /// Creates the stage; `None` if no reasoning may be the answer. With logprobs nothing is held: they belong to the
    /// pieces.
    pub(super) fn of(shape: &Shape, reading: &ReadOptions) -> Option<Self> {
        (reading.unthinking || reading.answers_json).then(|| Self {
            choices: Vec::new(),
            max_choices: shape.choices as usize,
            only_json: !reading.unthinking,
            hides: shape.hide_reasoning,
            supplies_finish: shape.options.missing_finish == MissingFinish::Stop,
        })
    }

    pub(super) fn event(&mut self, event: Event<'_>, to: &mut dyn EventSink) {
        match event {
            Event::End => self.end(self.supplies_finish, to),
            Event::Fail(_) => self.end(false, to),
            _ => {}
        }
        to.event(event);
    }

    /// Releases everything, because no more input follows. `said`: the stream ended regularly.
    pub(super) fn end(&mut self, said: bool, to: &mut dyn EventSink) {
        for choice in 0..self.choices.len() {
            self.release(choice, said, to);
        }
    }

    pub(super) fn delta<'a>(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        let at = choice as usize;
        match &delta {
            Delta::Reasoning(text) => {
                if self.holds(at) && !self.may_be_answer(at, text) {
                    self.settle(at, to);
                }
                if self.holds(at) {
                    self.hold(at, text, extras, to);
                    return FrameExtras::default();
                }
                if self.hides {
                    return extras;
                }
            }
            Delta::Content(text) | Delta::Refusal(text) if text.is_empty() => {}
            Delta::Content(_) | Delta::Refusal(_) | Delta::FunctionCall { .. } => {
                self.settle(at, to)
            }
            Delta::Finish(Finish { reason, .. }) => self.release(at, *reason == Reason::Stop, to),
            _ => {}
        }
        to.delta(choice, delta, extras)
    }

    pub(super) fn tool<'a>(
        &mut self,
        choice: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) -> FrameExtras<'a> {
        self.settle(choice as usize, to);
        to.tool(choice, entry, extras)
    }

    /// Returns true while the reasoning of this choice is held.
    pub(super) fn holds(&mut self, choice: usize) -> bool {
        if choice < self.max_choices && choice >= self.choices.len() {
            self.choices.resize_with(choice + 1, HeldTexts::default);
        }
        self.choices
            .get(choice)
            .is_some_and(|held| !held.is_settled)
    }

    /// Returns true if the reasoning of a choice may still be the answer, with this piece of it.
    fn may_be_answer(&self, choice: usize, text: &Text<'_>) -> bool {
        let has_begun = self.choices.get(choice).is_some_and(|held| held.has_begun);
        let text = text.decoded();
        let begun = text.trim_start();
        !self.only_json || has_begun || begun.is_empty() || begun.starts_with(['{', '['])
    }

    fn hold(
        &mut self,
        choice: usize,
        text: &Text<'_>,
        extras: FrameExtras<'_>,
        to: &mut dyn EventSink,
    ) {
        let Some(held) = self.choices.get_mut(choice) else {
            return;
        };
        let mut spelled = BytesMut::new();
        text.write(&mut spelled);
        held.size += spelled.len();
        held.has_begun |= !text.decoded().trim_start().is_empty();
        held.pieces.push((
            String::from_utf8_lossy(&spelled).into_owned(),
            HeldExtras::of(extras),
        ));
        if held.size > MOST {
            self.settle(choice, to);
        }
    }

    /// Releases what is held as reasoning: the answer has something else.
    fn settle(&mut self, choice: usize, to: &mut dyn EventSink) {
        if self.holds(choice) {
            self.release(choice, false, to);
        }
    }

    /// Releases the reasoning of a choice, and holds nothing more of it.
    fn release(&mut self, choice: usize, as_content: bool, to: &mut dyn EventSink) {
        let Some(held) = self.choices.get_mut(choice) else {
            return;
        };
        held.is_settled = true;
        let pieces = std::mem::take(&mut held.pieces);
        let is_json = || {
            let decoded = pieces.iter().map(|(text, _)| Text::json(text).decoded());
            PromoteReasoning::Schema.takes(&decoded.collect::<String>())
        };
        let as_content = as_content && (!self.only_json || is_json());
        if as_content && !pieces.is_empty() {
            to.count_rule(Rule::ReasoningPromoted);
        }
        let delta = if as_content {
            Delta::Content
        } else {
            Delta::Reasoning
        };
        let choice = u32::try_from(choice).unwrap_or(u32::MAX);
        for (text, extras) in &pieces {
            let is_shown = as_content || !self.hides;
            let delta = if is_shown {
                delta(Text::json(text))
            } else {
                Delta::Bare
            };
            to.delta(choice, delta, extras.lend());
        }
    }
}
