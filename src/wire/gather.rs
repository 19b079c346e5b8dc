//! Gather: merges several answers, each of which gives one choice, into one answer.
//!
//! ```text
//! bytes ─→ Rewriter of choice 0 ─┐
//! bytes ─→ Rewriter of choice 1 ─┼→ Gather ─→ encode ─→ bytes
//!              …                 ┘
//! ```
//!
//! Takes: events of several answers, each grammatical by itself, interleaved in any order. Gives: one grammatical
//! answer: one head, each choice at its index, usage of all, one end. Remembers: which choices exist, and the usage
//! of each. Never: fails the whole answer because one answer failed; the caller does that, once no other engine is
//! tried.

use super::detached_riders::HeldRiders;
use super::encode::{Encode, encoder};
use super::event::{Delta, Event, Riders, Usage};
use super::fault::Failure;
use super::{MissingChoices, OutputBuffer, Rewriter, Shape, Stamp};
use crate::json::Extras;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Index of no choice, for a head whose answer has been replaced.
const NO_CHOICE: u32 = u32::MAX;

/// Shared state of the rewriters of one answer: they all write to one encoder, so that the client sees a single
/// answer.
#[derive(Clone)]
pub struct Gather(Arc<Mutex<GatherState>>);

struct GatherState {
    encoder: Box<dyn Encode>,
    choices: Vec<PartState>,
    /// Choice whose answer gave the head; [`NO_CHOICE`] if that answer has been replaced by another one.
    leader: Option<u32>,
    /// Unknown fields of a usage chunk, kept for the one usage frame at the end.
    riders: HeldRiders,
    /// True once the extensions that describe the prompt have been sent.
    prompt_told: bool,
    over: bool,
}

#[derive(Clone, Debug, Default)]
struct PartState {
    /// True once the client has received a role frame for this choice.
    introduced: bool,
    usage: Option<Usage>,
    ended: bool,
}

impl Gather {
    /// Creates the gather for an answer of this shape.
    pub fn new(shape: &Shape, stamp: &Stamp) -> Self {
        let choices = vec![PartState::default(); shape.choices as usize];
        Self(Arc::new(Mutex::new(GatherState {
            encoder: encoder(shape, stamp),
            choices,
            leader: None,
            riders: HeldRiders::default(),
            prompt_told: false,
            over: false,
        })))
    }

    /// Continues an answer that has fewer choices than requested; the missing ones come from answers of their own.
    /// Takes over the encoder of `first`, which must have ended.
    pub fn continue_from(first: &mut Rewriter, given: MissingChoices) -> Self {
        let MissingChoices { choices, requested: asked, usage } = given;
        // The usage of the existing choices is known only as a sum, so the first choice carries it.
        let nothing = |usage| Usage {
            completion: 0,
            reasoning: 0,
            completion_audio: 0,
            accepted: 0,
            rejected: 0,
            ..usage
        };
        let choice = |at| PartState {
            introduced: at < choices,
            usage: usage.filter(|_| at < choices).map(|usage| if at == 0 { usage } else { nothing(usage) }),
            ended: at < choices,
        };
        Self(Arc::new(Mutex::new(GatherState {
            encoder: std::mem::replace(&mut first.writer.encoder, Box::new(FinishedPart)),
            choices: (0..asked).map(choice).collect(),
            leader: Some(NO_CHOICE),
            riders: HeldRiders::default(),
            prompt_told: first.writer.prompt_sent,
            over: false,
        })))
    }

    /// Creates the pipeline for the answer that gives this choice. `shape`: that of the whole answer, or of this
    /// choice.
    pub fn rewriter(&self, choice: u32, shape: Shape, stamp: &Stamp) -> Rewriter {
        let mut state = self.state();
        // The head has been written already, and an answer that is requested again has a different one.
        state.leader = state.leader.map(|leader| if leader == choice { NO_CHOICE } else { leader });
        drop(state);
        let voice = Box::new(PartOutput { choice, gather: self.clone() });
        let shape = Shape { choices: 1, choice, ..shape };
        let mut rewriter = Rewriter::with_encoder(shape, stamp.clone(), voice);
        // Other parts decide, too, whether a failure can still become an HTTP answer, so it is not decided here.
        rewriter.commit();
        rewriter
    }

    /// Returns true once the merged answer has ended or failed, so that nothing more will be written.
    pub fn is_over(&self) -> bool {
        self.state().over
    }

    /// Fails the whole answer, because one of its parts has failed for good.
    pub fn fail(&self, failure: Failure, out: &mut OutputBuffer) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.over, true) {
            state.encoder.event(Event::Fail(failure), out);
        }
    }

    fn state(&self) -> MutexGuard<'_, GatherState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encoder of an answer whose encoder the gather has taken over; it writes nothing.
struct FinishedPart;

impl Encode for FinishedPart {
    fn event(&mut self, _: Event<'_>, _: &mut OutputBuffer) {}
}

/// Encoder of one part: forwards its events to the gather.
struct PartOutput {
    choice: u32,
    gather: Gather,
}

impl Encode for PartOutput {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let mut state = self.gather.state();
        if !state.over {
            state.event(self.choice, event, out);
        }
    }

    // `is_plain` stays false, because other parts may change the head on which all frames depend.
}

impl GatherState {
    fn event(&mut self, choice: u32, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Head(_) if *self.leader.get_or_insert(choice) != choice => {}
            Event::Delta { delta: Delta::Role, riders, .. } => self.introduce(choice, riders, out),
            Event::Delta { delta, riders, .. } => {
                self.encoder.event(Event::Delta { choice, delta, riders }, out);
            }
            Event::Usage { usage, riders, .. } => {
                if let Some(choice) = self.choices.get_mut(choice as usize) {
                    choice.usage = Some(usage);
                }
                if riders.has_chunk_extras() {
                    self.riders = HeldRiders::of(riders);
                }
            }
            // Another engine may be tried; if none is, the caller fails the whole answer.
            Event::Fail(_) => {}
            Event::End => self.end(choice, out),
            event @ (Event::Head(_) | Event::Foreign { .. } | Event::Limits(_)) => {
                self.encoder.event(event, out)
            }
        }
    }

    /// Writes missing role frames up to this choice's, in ascending order, because client libraries index a list by
    /// them.
    fn introduce(&mut self, choice: u32, mut riders: Riders<'_>, out: &mut OutputBuffer) {
        let Self { encoder, choices, prompt_told, .. } = self;
        // All parts have the same prompt, so its extensions are sent once.
        if !riders.chunk_extensions.is_empty() && std::mem::replace(prompt_told, true) {
            riders.chunk_extensions = Extras::default();
        }
        for (at, known) in (0..=choice).zip(choices) {
            if !std::mem::replace(&mut known.introduced, true) {
                let chunk_extensions = std::mem::take(&mut riders.chunk_extensions);
                let usage = riders.usage.clone();
                let riders = Riders { usage, chunk_extensions, ..Riders::default() };
                encoder.event(Event::Delta { choice: at, delta: Delta::Role, riders }, out);
            }
        }
    }

    fn end(&mut self, choice: u32, out: &mut OutputBuffer) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.ended = true;
        }
        self.over = self.choices.iter().all(|choice| choice.ended);
        if !self.over {
            return;
        }
        // A sum with a missing part would be wrong, so no usage is sent.
        let all: Option<Vec<_>> = self.choices.iter().map(|choice| choice.usage).collect();
        if let Some(usage) =
            all.and_then(|all| all.into_iter().reduce(|sum, one| sum.with_shared_prompt(&one)))
        {
            self.encoder.event(Event::Usage { usage, alone: true, riders: self.riders.lend() }, out);
        }
        self.encoder.event(Event::End, out);
    }
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").field("choices", &self.state().choices).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Api;

    fn two() -> (Gather, impl Fn(&Gather, u32) -> Rewriter) {
        let shape = Shape { choices: 2, ..Shape::new(Api::Chat, true, Arc::default()) };
        let stamp = Stamp { id: "f".repeat(32), ..Stamp::default() };
        (Gather::new(&shape, &stamp), move |gather, choice| gather.rewriter(choice, shape.clone(), &stamp))
    }

    fn chunk(id: &str, delta: &str) -> Vec<u8> {
        format!("data: {{{id}\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n").into_bytes()
    }

    /// Checks that answers and calls without ids get different derived ids.
    #[test]
    fn what_is_made_of_an_id_is_not_made_twice() {
        let (gather, rewriter) = two();
        let mut out = OutputBuffer::default();
        let call = chunk("", r#"{"tool_calls":[{"index":0,"function":{"name":"f"}}]}"#);
        for choice in [0, 1] {
            rewriter(&gather, choice).push(&call, &mut out);
        }
        let text = String::from_utf8(out.to_vec()).unwrap();
        let ids: Vec<_> = text.match_indices("call_").map(|(at, _)| &text[at..at + 33]).collect();
        assert!(ids.len() == 2 && ids[0] != ids[1], "{text}");
    }

    /// Checks that the first head stays when the answer that gave it is requested again and has another one.
    #[test]
    fn the_head_stays() {
        let (gather, rewriter) = two();
        let mut out = OutputBuffer::default();
        rewriter(&gather, 0).push(&chunk("\"id\":\"a\",", r#"{"role":"assistant"}"#), &mut out);
        for (choice, id) in [(0, "\"id\":\"b\","), (1, "\"id\":\"c\",")] {
            let mut anew = rewriter(&gather, choice);
            anew.push(&chunk(id, r#"{"role":"assistant"}"#), &mut out);
            anew.push(&chunk(id, r#"{"content":"x"}"#), &mut out);
        }
        let text = String::from_utf8(out.to_vec()).unwrap();
        assert_eq!(text.matches("\"id\":\"chatcmpl-a\"").count(), 4, "{text}");
        assert_eq!(text.matches("data:").count(), 4, "one role for each: {text}");
    }

    /// Checks that the prompt's ids are sent once, and the counts of each chunk with its role frame.
    #[test]
    fn what_comes_with_the_roles() {
        let extensions = crate::wire::Extensions { token_ids: true, ..Default::default() };
        let options = crate::wire::options::Options {
            continuous_usage: crate::wire::options::ContinuousUsage::Always,
            ..Default::default()
        };
        let shape = Shape {
            extensions,
            include_usage: true,
            choices: 2,
            ..Shape::new(Api::Chat, true, Arc::new(options))
        };
        let stamp = Stamp { id: "f".repeat(32), ..Stamp::default() };
        let gather = Gather::new(&shape, &stamp);
        let usage =
            r#""prompt_token_ids":[7],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5},"#;
        let mut out = OutputBuffer::default();
        for choice in [0, 1] {
            let mut rewriter = gather.rewriter(choice, shape.clone(), &stamp);
            rewriter.push(&chunk(usage, r#"{"content":"x"}"#), &mut out);
        }
        let text = String::from_utf8(out.to_vec()).unwrap();
        let frames: Vec<_> = text.split_terminator("\n\n").collect();
        let ids: Vec<_> = frames.iter().map(|frame| frame.contains(r#""prompt_token_ids":[7]"#)).collect();
        assert_eq!(ids, [true, false, false, false], "{text}");
        assert_eq!(text.matches(r#""completion_tokens":3"#).count(), 4, "{text}");
    }
}
