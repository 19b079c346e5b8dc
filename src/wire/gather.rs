//! One answer put together of several, each of which gives one of its choices.
//!
//! ```text
//! bytes ─→ Rewriter of choice 0 ─┐
//! bytes ─→ Rewriter of choice 1 ─┼→ Gather ─→ encode ─→ bytes
//!              …                 ┘
//! ```
//!
//! Takes: the events of answers that are grammatical each for itself, in any order among each other. Gives: one grammatical
//! answer: one head, each choice at its place, usage of all, one end. Remembers: which choices exist, what each used. Never:
//! says that an answer has failed before it is told that nobody else is asked for it.

use super::detached_riders::HeldRiders;
use super::encode::{Encode, encoder};
use super::event::{Delta, Event, Riders, Usage};
use super::fault::Failure;
use super::{MissingChoices, OutputBuffer, Rewriter, Shape, Stamp};
use crate::json::Extras;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// No choice.
const NOBODY: u32 = u32::MAX;

/// What several answers come together in.
#[derive(Clone)]
pub struct Gather(Arc<Mutex<State>>);

struct State {
    encoder: Box<dyn Encode>,
    choices: Vec<Choice>,
    /// The choice whose answer gave the head; [`NOBODY`] if another answer has taken that one's place.
    leader: Option<u32>,
    /// Leftovers of a usage chunk: they ride on the one usage frame.
    riders: HeldRiders,
    /// The extensions that tell of the prompt have been told.
    prompt_told: bool,
    over: bool,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    /// The client knows that it exists.
    introduced: bool,
    usage: Option<Usage>,
    ended: bool,
}

impl Gather {
    /// For an answer of this shape.
    pub fn new(shape: &Shape, stamp: &Stamp) -> Self {
        let choices = vec![Choice::default(); shape.choices as usize];
        Self(Arc::new(Mutex::new(State {
            encoder: encoder(shape, stamp),
            choices,
            leader: None,
            riders: HeldRiders::default(),
            prompt_told: false,
            over: false,
        })))
    }

    /// Goes on with an answer that has fewer choices than were asked for: the others have answers of their own. Takes the
    /// place of the encoder of `first`, which is over.
    pub fn behind(first: &mut Rewriter, given: MissingChoices) -> Self {
        let MissingChoices { choices, asked, usage } = given;
        // What the first ones used is told of them together.
        let nothing = |usage| Usage {
            completion: 0,
            reasoning: 0,
            completion_audio: 0,
            accepted: 0,
            rejected: 0,
            ..usage
        };
        let choice = |at| Choice {
            introduced: at < choices,
            usage: usage.filter(|_| at < choices).map(|usage| if at == 0 { usage } else { nothing(usage) }),
            ended: at < choices,
        };
        Self(Arc::new(Mutex::new(State {
            encoder: std::mem::replace(&mut first.core.encoder, Box::new(FinishedPart)),
            choices: (0..asked).map(choice).collect(),
            leader: Some(NOBODY),
            riders: HeldRiders::default(),
            prompt_told: first.core.prompt_told,
            over: false,
        })))
    }

    /// The pipeline for the answer that gives this choice; `shape`: that of the whole answer, or of this one.
    pub fn rewriter(&self, choice: u32, shape: Shape, stamp: &Stamp) -> Rewriter {
        let mut state = self.state();
        // The head is said already; an answer that is read anew has another one.
        state.leader = state.leader.map(|leader| if leader == choice { NOBODY } else { leader });
        drop(state);
        let voice = Box::new(PartOutput { choice, gather: self.clone() });
        let shape = Shape { choices: 1, choice, ..shape };
        let mut rewriter = Rewriter::with_encoder(shape, stamp.clone(), voice);
        // What of a failure becomes an HTTP answer depends on the others: it is not told here.
        rewriter.commit();
        rewriter
    }

    /// Nothing more will be written.
    pub fn is_over(&self) -> bool {
        self.state().over
    }

    /// One of the answers has failed, and with it all of it.
    pub fn fail(&self, failure: Failure, out: &mut OutputBuffer) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.over, true) {
            state.encoder.event(Event::Fail(failure), out);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The encoder of an answer that others go on with.
struct FinishedPart;

impl Encode for FinishedPart {
    fn event(&mut self, _: Event<'_>, _: &mut OutputBuffer) {}
}

/// What one of the answers is told to.
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

    // `is_plain` stays false: what the head is for all may change with what one of them says.
}

impl State {
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
            // Another engine may be asked; if not, it is told that the answer has failed.
            Event::Fail(_) => {}
            Event::End => self.end(choice, out),
            event @ (Event::Head(_) | Event::Foreign { .. } | Event::Limits(_)) => {
                self.encoder.event(event, out)
            }
        }
    }

    /// Sees to the role frames up to this choice's, in ascending order: client libraries index a list by them.
    fn introduce(&mut self, choice: u32, mut riders: Riders<'_>, out: &mut OutputBuffer) {
        let Self { encoder, choices, prompt_told, .. } = self;
        // Each of the answers is to the same prompt.
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
        // A sum of which a part is missing would be wrong.
        let all: Option<Vec<_>> = self.choices.iter().map(|choice| choice.usage).collect();
        if let Some(usage) = all.and_then(|all| all.into_iter().reduce(|sum, one| sum.beside(&one))) {
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

    /// Neither the answers nor their calls have ids: those that they get are not the same.
    #[test]
    fn what_is_made_of_an_id_is_not_made_twice() {
        let (gather, rewriter) = two();
        let mut out = OutputBuffer::default();
        let call = chunk("", r#"{"tool_calls":[{"index":0,"function":{"name":"f"}}]}"#);
        for choice in [0, 1] {
            rewriter(&gather, choice).push(&call, &mut out);
        }
        let text = String::from_utf8(out.copied()).unwrap();
        let ids: Vec<_> = text.match_indices("call_").map(|(at, _)| &text[at..at + 33]).collect();
        assert!(ids.len() == 2 && ids[0] != ids[1], "{text}");
    }

    /// Whose answer gave the head may be read anew, with another one; the client knows the first.
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
        let text = String::from_utf8(out.copied()).unwrap();
        assert_eq!(text.matches("\"id\":\"chatcmpl-a\"").count(), 4, "{text}");
        assert_eq!(text.matches("data:").count(), 4, "one role for each: {text}");
    }
}
