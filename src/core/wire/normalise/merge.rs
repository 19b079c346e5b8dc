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
use crate::wire::encode::Encode;
use crate::wire::event::{Delta, Event, FrameExtras, Usage};
use crate::wire::fault::Failure;
use crate::wire::held_extras::HeldExtras;
use crate::wire::{MissingChoices, OutputBuffer, Summary};

/// State of a merged answer.
#[derive(Debug, Default)]
pub(in crate::wire) struct Merge {
    parts: Vec<MergedPart>,
    /// True once an answer has given the head. The heads of the others are dropped.
    has_head: bool,
    /// Unknown fields of a usage chunk, kept for the one usage frame at the end.
    extras: HeldExtras,
    /// True once the extensions that describe the prompt have been sent.
    prompt_told: bool,
    /// True once the merged answer has ended or failed.
    pub(in crate::wire) ended: bool,
    /// True if one of the answers has had content.
    pub(in crate::wire) has_content: bool,
    /// Combined summary of the answers that have ended.
    pub(in crate::wire) past: Summary,
}

/// State of one choice of a merged answer.
#[derive(Clone, Debug, Default)]
struct MergedPart {
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
        Self {
            parts: vec![MergedPart::default(); choices as usize],
            ..Self::default()
        }
    }

    /// Creates the state of an answer that has some of its choices; the missing ones come from answers of their
    /// own. `past`: summary of the answer so far.
    pub(in crate::wire) fn after(
        missing: MissingChoices,
        prompt_told: bool,
        past: Summary,
    ) -> Self {
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
            MergedPart {
                leads: false,
                introduced: is_given,
                usage,
                ended: is_given,
            }
        };
        let parts = (0..missing.requested).map(part).collect();
        Self {
            parts,
            has_head: true,
            prompt_told,
            has_content: true,
            past,
            ..Self::default()
        }
    }

    /// Prepares for another answer in the place of this choice's. The head stays as it is: the new answer has a
    /// different one.
    pub(in crate::wire) fn restart(&mut self, choice: u32) {
        if let Some(part) = self.parts.get_mut(choice as usize) {
            part.leads = false;
        }
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
        let Some(part) = self.parts.get_mut(choice as usize).filter(|_| !self.ended) else {
            return;
        };
        match event {
            Event::Head(_) => {
                part.leads |= !std::mem::replace(&mut self.has_head, true);
                if part.leads {
                    encoder.event(event, out);
                }
            }
            Event::Delta {
                delta: Delta::Role,
                extras,
                ..
            } => self.introduce(choice, extras, encoder, out),
            Event::Delta { delta, extras, .. } => encoder.event(
                Event::Delta {
                    choice,
                    delta,
                    extras,
                },
                out,
            ),
            Event::Usage { usage, extras, .. } => {
                part.usage = Some(usage);
                if extras.has_unknown_of_chunk() {
                    self.extras = HeldExtras::of(extras);
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
        mut extras: FrameExtras<'_>,
        encoder: &mut dyn Encode,
        out: &mut OutputBuffer,
    ) {
        // All parts have the same prompt, so its extensions are sent once.
        if !extras.chunk_extensions.is_empty() && std::mem::replace(&mut self.prompt_told, true) {
            extras.chunk_extensions = Extras::default();
        }
        for (at, part) in (0..=choice).zip(&mut self.parts) {
            if !std::mem::replace(&mut part.introduced, true) {
                let chunk_extensions = std::mem::take(&mut extras.chunk_extensions);
                let usage = extras.usage.clone();
                let extras = FrameExtras {
                    usage,
                    chunk_extensions,
                    ..FrameExtras::default()
                };
                encoder.event(
                    Event::Delta {
                        choice: at,
                        delta: Delta::Role,
                        extras,
                    },
                    out,
                );
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
        if let Some(usage) = all.and_then(|all| {
            all.into_iter()
                .reduce(|sum, one| sum.with_shared_prompt(&one))
        }) {
            encoder.event(
                Event::Usage {
                    usage,
                    alone: true,
                    extras: self.extras.lend(),
                },
                out,
            );
        }
        encoder.event(Event::End, out);
    }
}
