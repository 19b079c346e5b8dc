//! Merge: makes one answer of several, each of which gives one choice.
//!
//! ```text
//! bytes ─→ AnswerReader of choice 0 ─┐
//! bytes ─→ AnswerReader of choice 1 ─┼→ Merge ─→ encode ─→ bytes
//!              …                     ┘
//! ```
//!
//! Takes: events of several answers, each grammatical by itself, interleaved in any order. Gives: one grammatical
//! answer: one head, each choice at its index, usage of all, one end. Remembers: which choices exist, and the usage
//! of each. Never: fails the whole answer because one answer failed; the caller does that, once no other engine is
//! tried.

use crate::json::Extras;
use crate::wire::detached_riders::HeldRiders;
use crate::wire::encode::Encode;
use crate::wire::event::{Delta, Event, Riders, Usage};
use crate::wire::fault::Failure;
use crate::wire::{MissingChoices, OutputBuffer, Summary};

/// State of a merged answer.
#[derive(Debug, Default)]
pub(in crate::wire) struct Merge {
    parts: Vec<Part>,
    /// True once an answer has given the head. The heads of the others are dropped.
    has_head: bool,
    /// Unknown fields of a usage chunk, kept for the one usage frame at the end.
    riders: HeldRiders,
    /// True once the extensions that describe the prompt have been sent.
    prompt_told: bool,
    /// True once the merged answer has ended or failed.
    pub(in crate::wire) ended: bool,
    /// True if an answer that is not being read at the moment has had content.
    pub(in crate::wire) has_content: bool,
    /// Combined summary of the answers that have ended.
    pub(in crate::wire) past: Summary,
}

/// State of one choice of a merged answer.
#[derive(Clone, Debug, Default)]
struct Part {
    /// True if this choice's answer gave the head, so that its changes are passed on.
    leads: bool,
    /// True once the client has received a role frame for this choice.
    introduced: bool,
    usage: Option<Usage>,
    ended: bool,
}

impl Merge {
    /// Creates the state of an answer with this number of choices.
    pub(in crate::wire) fn new(choices: u32) -> Self {
        Self { parts: vec![Part::default(); choices as usize], ..Self::default() }
    }

    /// Creates the state of an answer that has some of its choices; the missing ones come from answers of their
    /// own. `past`: summary of the answer so far.
    pub(in crate::wire) fn after(missing: MissingChoices, prompt_told: bool, past: Summary) -> Self {
        // The usage of the existing choices is known only as a sum, so the first choice carries it.
        let nothing = |usage: Usage| Usage {
            completion: 0,
            reasoning: usage.reasoning.map(|_| 0),
            completion_audio: 0,
            accepted: 0,
            rejected: 0,
            ..usage
        };
        let part = |at| {
            let is_given = at < missing.choices;
            let usage = missing.usage.filter(|_| is_given);
            let usage = usage.map(|usage| if at == 0 { usage } else { nothing(usage) });
            Part { leads: false, introduced: is_given, usage, ended: is_given }
        };
        let parts = (0..missing.requested).map(part).collect();
        Self { parts, has_head: true, prompt_told, has_content: true, past, ..Self::default() }
    }

    /// Prepares for another answer in the place of this choice's. The head stays as it is: the new answer has a
    /// different one.
    pub(in crate::wire) fn restart(&mut self, choice: u32) {
        if let Some(part) = self.parts.get_mut(choice as usize) {
            part.leads = false;
        }
    }

    /// Reopens an answer that has ended, so that it can fail.
    pub(in crate::wire) fn reopen(&mut self) {
        self.ended = false;
    }

    /// Fails the whole answer, because one of its parts has failed for good.
    pub(in crate::wire) fn fail(
        &mut self,
        failure: Failure,
        encoder: &mut dyn Encode,
        out: &mut OutputBuffer,
    ) {
        if !std::mem::replace(&mut self.ended, true) {
            encoder.event(Event::Fail(failure), out);
        }
    }

    /// Writes an event of this choice's answer, as far as it belongs to the merged one.
    pub(super) fn event(
        &mut self,
        choice: u32,
        event: Event<'_>,
        encoder: &mut dyn Encode,
        out: &mut OutputBuffer,
    ) {
        let Some(part) = self.parts.get_mut(choice as usize).filter(|_| !self.ended) else { return };
        match event {
            Event::Head(_) => {
                part.leads |= !std::mem::replace(&mut self.has_head, true);
                if part.leads {
                    encoder.event(event, out);
                }
            }
            Event::Delta { delta: Delta::Role, riders, .. } => self.introduce(choice, riders, encoder, out),
            Event::Delta { delta, riders, .. } => encoder.event(Event::Delta { choice, delta, riders }, out),
            Event::Usage { usage, riders, .. } => {
                part.usage = Some(usage);
                if riders.has_chunk_extras() {
                    self.riders = HeldRiders::of(riders);
                }
            }
            Event::Foreign { .. } | Event::Limits(_) => encoder.event(event, out),
            // Another engine may be tried; if none is, the caller fails the whole answer.
            Event::Fail(_) => {}
            Event::End => {
                part.ended = true;
                self.end(encoder, out);
            }
        }
    }

    /// Writes missing role frames up to this choice's, in ascending order, because client libraries index a list by
    /// them.
    fn introduce(
        &mut self,
        choice: u32,
        mut riders: Riders<'_>,
        encoder: &mut dyn Encode,
        out: &mut OutputBuffer,
    ) {
        // All parts have the same prompt, so its extensions are sent once.
        if !riders.chunk_extensions.is_empty() && std::mem::replace(&mut self.prompt_told, true) {
            riders.chunk_extensions = Extras::default();
        }
        for (at, part) in (0..=choice).zip(&mut self.parts) {
            if !std::mem::replace(&mut part.introduced, true) {
                let chunk_extensions = std::mem::take(&mut riders.chunk_extensions);
                let usage = riders.usage.clone();
                let riders = Riders { usage, chunk_extensions, ..Riders::default() };
                encoder.event(Event::Delta { choice: at, delta: Delta::Role, riders }, out);
            }
        }
    }

    /// Writes the sum of all usage and the end, once each choice's answer has ended.
    fn end(&mut self, encoder: &mut dyn Encode, out: &mut OutputBuffer) {
        self.ended = self.parts.iter().all(|part| part.ended);
        if !self.ended {
            return;
        }
        // A sum with a missing part would be wrong, so no usage is sent.
        let all: Option<Vec<_>> = self.parts.iter().map(|part| part.usage).collect();
        if let Some(usage) =
            all.and_then(|all| all.into_iter().reduce(|sum, one| sum.with_shared_prompt(&one)))
        {
            encoder.event(Event::Usage { usage, alone: true, riders: self.riders.lend() }, out);
        }
        encoder.event(Event::End, out);
    }
}
