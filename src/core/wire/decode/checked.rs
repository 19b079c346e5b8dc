//! Checks of decoded events: whether the expected model answers, and what an unreadable event means.
//!
//! Takes: an event of any decoder. Gives: the event, or a failure in the place of another model's head. Remembers: the
//! names to expect, until one has been checked. Never: reads a frame.

use crate::wire::event::{Event, Head};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::InvalidEvent;
use crate::wire::rule::Rule;
use crate::wire::{Models, Shape};

/// Checks of one answer's events, which are the same for every API.
pub(in crate::wire) struct Checks {
    /// Models that may answer, and the client's name for the model, which is always accepted; `None`: any model may
    /// answer, or the first head with a name has been checked (faults U50).
    models: Option<(Models, String)>,
    /// True if the client's stream goes on without an unreadable event (`invalid_event = "skip"`).
    skips_invalid: bool,
}

impl Checks {
    /// Creates the checks for an answer of this shape.
    pub(in crate::wire) fn new(shape: &Shape) -> Self {
        Self {
            models: shape
                .models
                .clone()
                .map(|models| (models, shape.model.clone())),
            skips_invalid: shape.options.invalid_event == InvalidEvent::Skip,
        }
    }

    /// Returns what an event means to the client, or the rule by which it is skipped. `whole`: the event is one of an
    /// answer that is a whole object.
    pub(in crate::wire) fn check<'e>(
        &mut self,
        event: Event<'e>,
        whole: bool,
    ) -> Result<Event<'e>, Rule> {
        match event {
            Event::Head(head) if self.refuses(&head) => Ok(Event::Fail(Fault::WrongModel.into())),
            Event::Fail(failure) if failure.fault == Fault::InvalidEvent && whole => {
                Ok(Event::Fail(Failure::of_invalid_response(200)))
            }
            Event::Fail(failure) if failure.fault == Fault::InvalidEvent && self.skips_invalid => {
                Err(Rule::InvalidSkipped)
            }
            event => Ok(event),
        }
    }

    /// Returns true if the head shows that another model answers.
    fn refuses(&mut self, head: &Head<'_>) -> bool {
        let (Some(name), Some((models, requested))) = (head.model, &self.models) else {
            return false;
        };
        let name = name.decoded();
        let is_other = *name != **requested && !models.allow(&name);
        self.models = None;
        is_other
    }
}
