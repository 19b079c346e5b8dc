//! Decoder with checks: whether the expected model answers, and what an unreadable event means.
//!
//! Takes: a frame. Gives: the events of its decoder, with a failure in the place of another model's head.
//! Remembers: the names to expect, until one has been checked. Never: reads a frame itself.

use super::{Decode, ReadOptions, Sink, decoder};
use crate::wire::event::{Delta, Event, Head, Riders, ToolEntry};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::InvalidEvent;
use crate::wire::rule::Rule;
use crate::wire::sse::Frame;
use crate::wire::{Models, Shape};

/// Decoder of one answer, with the checks that are the same for every API.
pub(in crate::wire) struct CheckedDecoder {
    decoder: Box<dyn Decode>,
    model: ModelCheck,
    /// True if the client's stream goes on without an unreadable event (`invalid_event = "skip"`).
    skips_invalid: bool,
}

impl CheckedDecoder {
    /// Creates the decoder for an answer of this shape.
    pub(in crate::wire) fn new(shape: &Shape) -> Self {
        Self {
            decoder: decoder(shape.upstream, ReadOptions::of(shape)),
            model: ModelCheck::new(shape),
            skips_invalid: shape.options.invalid_event == InvalidEvent::Skip,
        }
    }

    /// Reads one frame and reports its events to the next stage.
    pub(in crate::wire) fn frame(&mut self, frame: Frame<'_>, to: &mut impl Sink) {
        let Self { decoder, model, skips_invalid } = self;
        decoder.frame(frame, &mut Checked { model, skips_invalid: *skips_invalid, whole: frame.whole, to });
    }
}

/// Check of the model's name, made once: on the first head that has a name (faults U50).
enum ModelCheck {
    /// No check is due: any model may answer, or the name has been checked.
    Done,
    /// The check waits for a head with a name.
    Due {
        models: Models,
        /// Client's name for the model, which is always accepted.
        requested: String,
    },
}

impl ModelCheck {
    fn new(shape: &Shape) -> Self {
        match &shape.models {
            Some(models) => Self::Due { models: models.clone(), requested: shape.model.clone() },
            None => Self::Done,
        }
    }

    /// Returns true if the head shows that another model answers.
    fn refuses(&mut self, head: &Head<'_>) -> bool {
        let (Self::Due { models, requested }, Some(name)) = (&*self, head.model) else { return false };
        let name = name.decoded();
        let is_other = *name != **requested && !models.allow(&name);
        *self = Self::Done;
        is_other
    }
}

/// Sink between a decoder and the next stage.
struct Checked<'c, S> {
    model: &'c mut ModelCheck,
    skips_invalid: bool,
    whole: bool,
    to: &'c mut S,
}

impl<S: Sink> Sink for Checked<'_, S> {
    fn event(&mut self, event: Event<'_>) {
        self.to.event(match event {
            Event::Head(head) if self.model.refuses(&head) => Event::Fail(Fault::WrongModel.into()),
            Event::Fail(failure) if failure.fault == Fault::InvalidEvent && self.whole => {
                let message = "The upstream engine returned an invalid response (HTTP 200).";
                Event::Fail(Failure::from(Fault::InvalidResponse).with_message(message))
            }
            Event::Fail(failure) if failure.fault == Fault::InvalidEvent && self.skips_invalid => {
                return self.count_rule(Rule::InvalidSkipped);
            }
            event => event,
        });
    }

    fn delta<'a>(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.to.delta(choice, delta, riders)
    }

    fn tool<'a>(&mut self, choice: u32, entry: ToolEntry<'_>, riders: Riders<'a>) -> Riders<'a> {
        self.to.tool(choice, entry, riders)
    }

    fn only_text(&mut self, choice: u32) {
        self.to.only_text(choice);
    }

    fn count_rule(&mut self, rule: Rule) {
        self.to.count_rule(rule);
    }
}
