//! Normaliser: makes any sequence of events grammatical (the grammar is in [`super::event`]).
//!
//! Takes: events in any order that engines send. Gives: role once, finish once and last, usage last, dense tool
//! calls, one end.
//! Remembers: one small [`NormalisedChoice`] each, the held finish, the last usage. Never: text, except arguments that wait
//! for a name or for a repair.

mod answer_writer;
mod calls;
mod digest;
mod duplicates;
mod entries;
mod envelope;
mod finish;
mod held_arguments;
mod merge;
mod repetition;
mod resent;
mod short;

use super::disclosure::{EngineKey, disclosed, hide_key};
use super::event::{Delta, Event, Finish, FrameExtras, Head, Reason, ToolEntry, Usage};
use super::fault::{Failure, Fault};
use super::held_extras::HeldExtras;
use super::options::{GuardFinish, MissingFinish};
use super::rule::{Rule, Tally};
use super::{Api, Ending, PROMPT_TOKEN_IDS, Shape, Stamp, TOKEN_IDS};
use crate::json::{Extras, Kept, Raw, Text};
pub use answer_writer::AnswerWriter;
pub(super) use answer_writer::EncoderOutput;
use answer_writer::{send_held, send_no_arguments};
use calls::OpenCalls;
use envelope::AnswerEnvelope;
use held_arguments::CallState;
use repetition::RepetitionGuard;
use std::ops::Range;

/// Limit on the tool calls of one choice. Models make a handful; the cost of telling them apart grows with the
/// square of their number.
const MAX_CALLS: usize = 1024;

/// State machine that enforces the event grammar; no other stage does. Encoders rely on it.
#[derive(Debug)]
pub(super) struct Normaliser {
    shape: Shape,
    stamp: Stamp,
    envelope: Option<AnswerEnvelope>,
    /// True if the envelope has changed since the last head was sent.
    head_due: bool,
    choices: Vec<NormalisedChoice>,
    held: Option<HeldFinish>,
    usage: Option<Usage>,
    /// Extras of the usage chunk, for the usage frame at the end.
    usage_extras: HeldExtras,
    failure: Option<Failure>,
    /// Key that error texts must not repeat.
    pub(super) engine_key: Option<EngineKey>,
    ended: bool,
    /// True if the answer ended with fewer choices than the client asked for, and the others may be requested.
    lacks_choices: bool,
    /// True once an event other than a role was seen.
    pub(super) spoken: bool,
    /// True once reasoning was seen.
    reasons: bool,
    pub(super) tally: Tally,
}

/// State of one choice of the answer.
#[derive(Debug, Default)]
struct NormalisedChoice {
    role_sent: bool,
    /// True once the engine has sent anything for the choice. The role frame may be sent earlier, because of a
    /// later choice.
    started: bool,
    finished: Option<Reason>,
    calls: OpenCalls,
    repetition: RepetitionGuard,
    /// True once the choice has been ended because it repeats itself: what the engine still sends is not passed.
    is_stopped: bool,
}

/// Finish that waits for the engine's next event (wire-format 2.3 rule 7).
#[derive(Debug)]
struct HeldFinish {
    choice: u32,
    reason: Reason,
    stop: Option<Kept>,
    extras: HeldExtras,
}

impl Normaliser {
    pub(super) fn new(shape: Shape, stamp: Stamp) -> Self {
        Self {
            shape,
            stamp,
            envelope: None,
            head_due: false,
            choices: Vec::new(),
            held: None,
            usage: None,
            usage_extras: HeldExtras::default(),
            failure: None,
            engine_key: None,
            ended: false,
            lacks_choices: false,
            spoken: false,
            reasons: false,
            tally: Tally::default(),
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>, to: &mut EncoderOutput<'_>) {
        if self.ended {
            return;
        }
        match event {
            Event::Head(head) => self.head(&head, to),
            Event::Delta {
                choice,
                delta,
                extras,
            } => {
                self.delta(choice, delta, extras, to);
            }
            Event::Usage {
                usage,
                alone,
                extras,
            } => self.count(usage, alone, extras, to),
            Event::Foreign { .. } => {
                self.send_changed_head(to);
                self.note_speech();
                to.event(event);
            }
            Event::Limits(_) => to.event(event),
            Event::Fail(failure) => self.fail(failure, to),
            Event::End => self.done(to),
        }
    }

    /// Handles the end of the bytes without `[DONE]`: ends a complete answer, leaves one with missing choices open
    /// if they may be requested, and otherwise fails the answer.
    pub(super) fn end_of_input(&mut self, ending: Ending, to: &mut EncoderOutput<'_>) {
        if self.ended {
            return;
        }
        match ending {
            Ending::Whole if self.choices.is_empty() => {
                self.fail(Failure::of_invalid_response(200), to);
            }
            Ending::Whole => self.done(to),
            _ if self.is_complete() => {
                self.tally.count(Rule::DoneAdded);
                self.end(to);
            }
            Ending::Timeout => self.fail(Fault::Timeout.into(), to),
            _ if self.is_short() => self.end_short(to),
            Ending::Clean | Ending::Reset => self.fail(Fault::Incomplete.into(), to),
        }
    }

    /// Fails the answer. The held finish is dropped, and the error text is disclosed or masked as the options say.
    pub(super) fn fail(&mut self, failure: Failure, to: &mut EncoderOutput<'_>) {
        if self.ended {
            return;
        }
        let failure = match &self.engine_key {
            Some(EngineKey(key)) => hide_key(failure, key),
            None => failure,
        };
        let failure = match &self.stamp.request_id {
            Some(id) => disclosed(
                failure,
                self.shape.options.engine_errors,
                &self.shape.model,
                id,
            ),
            None => failure,
        };
        self.held = None;
        self.start_forced_calls(to);
        self.ended = true;
        self.failure = Some(failure.clone());
        to.event(Event::Fail(failure));
    }

    /// Ends the answer, which the encoder has rejected: the client has the error already.
    pub(super) fn reject(&mut self, failure: &Failure) {
        if self.failure.is_none() {
            (self.held, self.ended, self.failure) = (None, true, Some(failure.clone()));
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    pub(super) fn finishes(&self) -> impl Iterator<Item = Reason> {
        self.choices.iter().filter_map(|choice| choice.finished)
    }

    // === envelope ===

    fn head(&mut self, head: &Head<'_>, to: &mut EncoderOutput<'_>) {
        self.send_changed_head(to);
        let Self {
            envelope,
            shape,
            stamp,
            tally,
            ..
        } = self;
        if let Some(envelope) = envelope {
            envelope.compare(head, tally);
            self.head_due |= envelope.add(head, shape, tally);
        } else {
            let mut first = AnswerEnvelope::of(head, shape, stamp, tally);
            first.add(head, shape, tally);
            to.event(Event::Head(first.head()));
            *envelope = Some(first);
        }
    }

    /// Sends a changed head: after the finish that the chunk releases, and before the chunk's own frames.
    fn send_changed_head(&mut self, to: &mut EncoderOutput<'_>) {
        if let Some(envelope) = self
            .envelope
            .as_ref()
            .filter(|_| std::mem::take(&mut self.head_due))
        {
            to.event(Event::Head(envelope.head()));
        }
    }

    // === choices ===

    /// Handles an event of a choice. Returns the extras if no frame was made of it.
    pub(super) fn delta<'a>(
        &mut self,
        index: u32,
        delta: Delta<'_>,
        mut extras: FrameExtras<'a>,
        to: &mut EncoderOutput<'_>,
    ) -> FrameExtras<'a> {
        self.hide_tokens(&mut extras);
        to.drop_sent_prompt(&mut extras);
        if self.is_stopped(index) {
            return extras;
        }
        let says_nothing = extras.logprobs.is_none()
            && extras.chunk_extensions.is_empty()
            && extras.choice_extensions.is_empty();
        if says_nothing && matches!(delta, Delta::Bare) {
            return extras;
        }
        let hollow = matches!(
            delta,
            Delta::Finish(_) | Delta::Bare | Delta::Break | Delta::Done { .. }
        );
        if self.ended
            || self.changes_nothing(index, &delta)
            || !self.admit(index, hollow, &mut extras, to)
        {
            return extras;
        }
        match delta {
            Delta::Role => return extras,
            Delta::Finish(_) if self.held.is_some() => {
                self.tally.count(Rule::FinishRepeated);
                return extras;
            }
            Delta::Finish(finish) => {
                self.hold_finish(index, finish, extras);
                self.end_stopped(to);
            }
            Delta::Done {
                slot: Some(said),
                cut,
            } => {
                if let Some(choice) = self.choices.get_mut(index as usize) {
                    let pass = |place, held: Text<'_>| send_held(index, place, held, to);
                    choice.calls.pass_held(
                        |_, call| Some(call.state_at_end(said)),
                        &mut self.tally,
                        pass,
                    );
                }
                let choice = self.choices.get(index as usize);
                if let Some(slot) = choice.and_then(|choice| choice.calls.place(said)) {
                    if !cut {
                        self.complete_calls(index, slot..slot + 1, to);
                    }
                    to.delta(
                        index,
                        Delta::Done {
                            slot: Some(slot),
                            cut,
                        },
                        extras,
                    );
                }
            }
            delta => {
                self.note_speech();
                self.reasons |= matches!(&delta, Delta::Reasoning(text) if !text.is_empty());
                if !matches!(delta, Delta::Bare | Delta::Break) {
                    self.pass_held(index, CallState::Interrupted, to);
                }
                let text = match &delta {
                    Delta::Content(text) | Delta::Reasoning(text) => Some(*text),
                    _ => None,
                };
                to.delta(index, delta, extras);
                if let Some(text) = text {
                    self.watch(index, &text, to);
                }
            }
        }
        FrameExtras::default()
    }

    /// Looks for repetition in text of a choice that has been sent, if the options say so, and ends the choice there.
    #[inline]
    pub(super) fn watch(&mut self, index: u32, text: &Text<'_>, to: &mut EncoderOutput<'_>) {
        let limits = &self.shape.options.guard;
        if limits.repeats == 0 || !self.shape.stream {
            return;
        }
        let Some(choice) = self.choices.get_mut(index as usize) else {
            return;
        };
        if choice.repetition.read(text, limits) {
            choice.is_stopped = true;
            self.tally.count(Rule::Repetition);
            match limits.finish {
                GuardFinish::Error => {
                    let message = "The model repeated the same text without end, and was stopped (guard.repeats).";
                    self.fail(Failure::from(Fault::Incomplete).with_message(message), to);
                }
                GuardFinish::Length => {
                    // A held finish can only be one of this choice, which text has followed.
                    let finish = Finish {
                        reason: Reason::Length,
                        stop: None,
                    };
                    self.hold_finish(index, finish, FrameExtras::default());
                    self.end_stopped(to);
                }
            }
        }
    }

    /// Returns true if the choice has been ended because it repeats itself.
    #[inline]
    pub(super) fn is_stopped(&self, index: u32) -> bool {
        self.choices
            .get(index as usize)
            .is_some_and(|choice| choice.is_stopped)
    }

    /// Ends an answer whose engine would go on with nothing but a choice that repeats itself.
    fn end_stopped(&mut self, to: &mut EncoderOutput<'_>) {
        if self.choices.iter().any(|choice| choice.is_stopped) && self.is_complete() {
            self.end(to);
        }
    }

    /// Returns true for an empty delta that needs no role frame. It only shows that the engine has started the
    /// choice.
    fn changes_nothing(&mut self, index: u32, delta: &Delta<'_>) -> bool {
        let known = self
            .choices
            .get(index as usize)
            .is_some_and(|choice| choice.role_sent);
        let silent = known || (self.shape.client == Api::Completions && index < self.shape.choices);
        if silent && matches!(delta, Delta::Role) {
            self.choices.resize_with(
                self.choices.len().max(index as usize + 1),
                NormalisedChoice::default,
            );
            self.start(index);
            return true;
        }
        false
    }

    /// Handles an entry of `tool_calls`. Returns the extras if no frame was made of it.
    pub(super) fn tool<'a>(
        &mut self,
        index: u32,
        entry: ToolEntry<'_>,
        mut extras: FrameExtras<'a>,
        to: &mut EncoderOutput<'_>,
    ) -> FrameExtras<'a> {
        self.hide_tokens(&mut extras);
        to.drop_sent_prompt(&mut extras);
        if self.ended || self.is_stopped(index) || !self.admit(index, false, &mut extras, to) {
            return extras;
        }
        self.note_speech();
        self.tool_entry(index, entry, extras, to)
    }

    /// Removes token ids that samewire itself requested for parsing, if the client did not ask for them.
    fn hide_tokens(&self, extras: &mut FrameExtras<'_>) {
        if !self.shape.extensions.token_ids
            && self
                .shape
                .script
                .as_deref()
                .is_some_and(|script| script.has_tokens())
        {
            extras.choice.take(TOKEN_IDS);
            extras.chunk.take(PROMPT_TOKEN_IDS);
        }
    }

    fn note_speech(&mut self) {
        if self.held.is_some() {
            self.tally.count(Rule::LateDelta);
        }
        self.spoken = true;
    }

    /// Prepares for an event of a choice: releases another choice's finish and sends missing role frames. Returns
    /// true if the event may be passed on; fails the answer on an unknown choice and on text after a finish.
    /// `hollow`: the event carries no text.
    fn admit(
        &mut self,
        index: u32,
        hollow: bool,
        extras: &mut FrameExtras<'_>,
        to: &mut EncoderOutput<'_>,
    ) -> bool {
        if index >= self.shape.choices {
            self.fail(Fault::InvalidEvent.into(), to);
            return false;
        }
        if self.held.as_ref().is_some_and(|held| held.choice != index) {
            self.release(to);
        }
        if self.ended {
            return false;
        }
        self.send_changed_head(to);
        self.send_roles(index, extras, to);
        self.start(index);
        let finished = self
            .choices
            .get(index as usize)
            .is_some_and(|choice| choice.finished.is_some());
        match (finished, hollow) {
            (true, true) => self.tally.count(Rule::FinishRepeated),
            (true, false) => self.fail(Fault::InvalidEvent.into(), to),
            (false, _) => {}
        }
        !finished
    }

    fn start(&mut self, index: u32) {
        if let Some(choice) = self.choices.get_mut(index as usize) {
            choice.started = true;
        }
    }

    /// Sends missing role frames up to `index`, in ascending order: client libraries index a list by them.
    fn send_roles(&mut self, index: u32, extras: &mut FrameExtras<'_>, to: &mut EncoderOutput<'_>) {
        let count = index as usize + 1;
        if self
            .choices
            .get(index as usize)
            .is_some_and(|choice| choice.role_sent)
        {
            return;
        }
        self.choices
            .resize_with(self.choices.len().max(count), NormalisedChoice::default);
        for (at, choice) in (0..).zip(self.choices.iter_mut().take(count)) {
            if std::mem::replace(&mut choice.role_sent, true) {
                continue;
            }
            let usage = extras.usage.clone();
            // The role frame is the first frame made of the chunk; legacy completions have none.
            let chunk_extensions = match self.shape.client {
                Api::Chat => std::mem::take(&mut extras.chunk_extensions),
                _ => Extras::default(),
            };
            to.delta(
                at,
                Delta::Role,
                FrameExtras {
                    usage,
                    chunk_extensions,
                    ..FrameExtras::default()
                },
            );
            if at != index {
                self.tally.count(Rule::Role);
            }
        }
    }

    // === ends ===

    fn hold_finish(&mut self, index: u32, finish: Finish<'_>, extras: FrameExtras<'_>) {
        let own = |raw: Option<Raw<'_>>| raw.map(Raw::keep);
        let stop = match self.shape.options.stop_details {
            true => own(Some(finish.stop.unwrap_or(Raw::NULL))),
            false => {
                if finish.stop.is_some() {
                    self.tally.count(Rule::StopDetails);
                }
                None
            }
        };
        self.held = Some(HeldFinish {
            choice: index,
            reason: finish.reason,
            stop,
            extras: HeldExtras::of(extras),
        });
    }

    /// Sends the held finish, since nothing can precede it any more. Fails the answer if a call has no name.
    fn release(&mut self, to: &mut EncoderOutput<'_>) {
        let Some(held) = self.held.take() else { return };
        self.settle_calls(held.choice, true, &mut None, to);
        if !self.name_calls(held.choice as usize, to) {
            let mut failure = Failure::from(Fault::InvalidToolCall);
            if !self.shape.stream {
                // The only status that differs between stream and whole answer (wire-format 3.4, fixed messages).
                failure.status = 500;
            }
            return self.fail(failure, to);
        }
        let state = finish::state_of_calls(held.reason, &self.shape, self.usage.as_ref());
        self.pass_held(held.choice, state, to);
        let Some(choice) = self.choices.get_mut(held.choice as usize) else {
            return;
        };
        let Self {
            shape,
            usage,
            tally,
            ..
        } = self;
        choice
            .calls
            .count_invalid(&shape.functions, &shape.custom_tools, tally);
        let reason = finish::canonical(held.reason, &choice.calls, shape, usage.as_ref(), tally);
        choice.finished = Some(reason);
        // Only the last call may be cut.
        let is_cut = matches!(reason, Reason::Length | Reason::ContentFilter);
        let end = choice.calls.started.saturating_sub(is_cut.into());
        self.complete_calls(held.choice, 0..end, to);
        let finish = Finish {
            reason,
            stop: held.stop.as_ref().map(Kept::raw),
        };
        let mut extras = held.extras.lend();
        // Text that came after the finish may have had the ids as well.
        to.drop_sent_prompt(&mut extras);
        to.delta(held.choice, Delta::Finish(finish), extras);
    }

    /// Gives an empty object to those of these calls that have no arguments. Blocks of Messages have one.
    fn complete_calls(&mut self, index: u32, places: Range<u32>, to: &mut EncoderOutput<'_>) {
        let has_blocks = self.shape.upstream == Api::Messages;
        if let Some(choice) = self.choices.get_mut(index as usize).filter(|_| !has_blocks) {
            choice.calls.complete(places, &mut self.tally, |slot| {
                send_no_arguments(index, slot, to)
            });
        }
    }

    /// Stores usage. Usage on its own chunk follows all text, so it also releases the held finish.
    fn count(
        &mut self,
        usage: Usage,
        alone: bool,
        extras: FrameExtras<'_>,
        to: &mut EncoderOutput<'_>,
    ) {
        self.usage = Some(usage);
        if alone {
            self.release(to);
        }
        if self.shape.stream && !(alone && self.shape.include_usage) {
            self.tally.count(Rule::UsageMoved);
        }
        if extras.has_unknown_of_chunk() || !extras.chunk_extensions.is_empty() {
            self.usage_extras = HeldExtras::of(extras);
        }
    }

    /// Handles `[DONE]`: ends a complete answer, supplies missing finishes if the option `missing_finish` says so,
    /// and otherwise fails the answer.
    fn done(&mut self, to: &mut EncoderOutput<'_>) {
        self.send_changed_head(to);
        let all_started = self.choices.len() == self.shape.choices as usize
            && self.choices.iter().all(|choice| choice.started);
        if !self.is_complete()
            && all_started
            && self.shape.options.missing_finish == MissingFinish::Stop
        {
            self.supply_finishes(to);
        }
        if self.ended {
            return;
        }
        match self.is_complete() {
            true => self.end(to),
            false if self.is_short() => self.end_short(to),
            false => self.fail(Fault::Incomplete.into(), to),
        }
    }

    /// Supplies finishes for the choices that the engine left open. The last is held like an engine's own.
    fn supply_finishes(&mut self, to: &mut EncoderOutput<'_>) {
        for choice in 0..self.shape.choices {
            let held = self.held.as_ref().is_some_and(|held| held.choice == choice);
            if held
                || self
                    .choices
                    .get(choice as usize)
                    .is_some_and(|choice| choice.finished.is_some())
            {
                continue;
            }
            self.release(to);
            if self.ended {
                return;
            }
            self.tally.count(Rule::FinishSupplied);
            let finish = Finish {
                reason: Reason::Stop,
                stop: None,
            };
            self.hold_finish(choice, finish, FrameExtras::default());
        }
    }

    /// Returns true if every requested choice has a finish, sent or held.
    fn is_complete(&self) -> bool {
        self.choices.len() == self.shape.choices as usize && self.is_each_finished()
    }

    fn is_each_finished(&self) -> bool {
        let held = self.held.as_ref().map(|held| held.choice);
        let finished =
            |(at, choice): (u32, &NormalisedChoice)| choice.finished.is_some() || held == Some(at);
        (0..).zip(&self.choices).all(finished)
    }

    fn end(&mut self, to: &mut EncoderOutput<'_>) {
        self.send_changed_head(to);
        self.release(to);
        if self.ended {
            return;
        }
        self.ended = true;
        if self.reasons && self.usage.is_some_and(|usage| usage.reasoning.is_none()) {
            self.tally.count(Rule::ReasoningUncounted);
        }
        match self.usage {
            Some(usage) if self.shape.include_usage || !self.shape.stream => {
                let mut extras = self.usage_extras.lend();
                to.drop_sent_prompt(&mut extras);
                to.event(Event::Usage {
                    usage,
                    alone: true,
                    extras,
                });
            }
            None if self.shape.include_usage => self.tally.count(Rule::UsageMissing),
            _ => {}
        }
        to.event(Event::End);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::options::{ContinuousUsage, Options, ToolCallIds, UnknownFields};
    use crate::wire::{AnswerId, Extensions, Models, OutputBuffer, Rewriter};
    use std::sync::Arc;

    const USAGE: &str = r#""usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}"#;
    const DONE: &str = "[DONE]";

    fn shape(options: Options) -> Shape {
        Shape::new(Api::Chat, true, Arc::new(options))
    }

    fn plain() -> Shape {
        shape(Options::default())
    }

    fn stops() -> Shape {
        shape(Options {
            missing_finish: MissingFinish::Stop,
            ..Options::default()
        })
    }

    /// Shape of a stream with usage on its frames.
    fn counting() -> Shape {
        let options = Options {
            continuous_usage: ContinuousUsage::Always,
            ..Options::default()
        };
        Shape {
            include_usage: true,
            ..shape(options)
        }
    }

    /// Shape that keeps the ids of calls.
    fn preserving() -> Shape {
        shape(Options {
            tool_call_ids: ToolCallIds::Preserve,
            ..Options::default()
        })
    }

    /// Rewritten stream: the frames, as far as they have content, and the rewriter.
    struct Answer {
        frames: Vec<String>,
        rewriter: Rewriter,
    }

    impl Answer {
        /// Rewrites a stream of these data lines.
        fn of(shape: Shape, data: &[&str]) -> Self {
            let stamp = Stamp {
                id: AnswerId(u128::MAX),
                now: 7,
                ..Stamp::default()
            };
            let mut answer = Self {
                frames: Vec::new(),
                rewriter: Rewriter::new(shape, stamp),
            };
            for data in data {
                let mut out = OutputBuffer::default();
                answer
                    .rewriter
                    .push(format!("data: {data}\n\n").as_bytes(), &mut out);
                answer.add(&out);
            }
            answer
        }

        fn add(&mut self, out: &OutputBuffer) {
            let text = String::from_utf8(out.to_vec()).unwrap();
            self.frames
                .extend(text.split_terminator("\n\n").map(str::to_owned));
        }

        fn finish(mut self, ending: Ending) -> Self {
            let mut out = OutputBuffer::default();
            self.rewriter.finish(ending, &mut out);
            self.add(&out);
            self
        }

        fn count(&self, part: &str) -> usize {
            self.frames
                .iter()
                .filter(|frame| frame.contains(part))
                .count()
        }

        fn times(&self, rule: Rule) -> u32 {
            self.rewriter.reader.summary().tally.times(rule)
        }

        /// Returns the code of the failure; none if there is none.
        fn failure(&self) -> Option<String> {
            self.rewriter
                .reader
                .failure()
                .and_then(|failure| failure.code.as_deref().map(str::to_owned))
        }

        fn finishes(&self) -> Vec<&'static str> {
            self.rewriter
                .reader
                .summary()
                .finishes
                .iter()
                .map(|reason| reason.as_str())
                .collect()
        }
    }

    fn content(choice: u32, text: &str) -> String {
        format!(r#"{{"choices":[{{"index":{choice},"delta":{{"content":"{text}"}}}}]}}"#)
    }

    fn finish(choice: u32, reason: &str) -> String {
        format!(r#"{{"choices":[{{"index":{choice},"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
    }

    fn call(entry: &str) -> String {
        format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{entry}]}}}}]}}"#)
    }

    fn whole(shape: Shape, body: &str) -> Answer {
        let mut answer = Answer::of(
            Shape {
                stream: false,
                ..shape
            },
            &[],
        );
        let mut out = OutputBuffer::default();
        answer.rewriter.whole(body.as_bytes(), &mut out);
        answer.add(&out);
        answer
    }

    #[test]
    fn answers_with_too_few_choices() {
        let two = |may_lack| Shape {
            choices: 2,
            may_lack,
            ..plain()
        };
        let (a, stop, b, stop_b) = (
            content(0, "a"),
            finish(0, "stop"),
            content(1, "b"),
            finish(1, "stop"),
        );
        let lacks = |answer: &Answer| {
            answer
                .rewriter
                .reader
                .missing_choices()
                .map(|missing| (missing.choices, missing.requested))
        };
        for ended in [
            Answer::of(two(true), &[&a, &stop, DONE]),
            Answer::of(two(true), &[&a, &stop]).finish(Ending::Clean),
        ] {
            assert_eq!((lacks(&ended), ended.failure()), (Some((1, 2)), None));
            assert_eq!(
                (ended.count(r#""finish_reason":"stop""#), ended.count(DONE)),
                (1, 0)
            );
        }
        let incomplete = Some("upstream_incomplete".to_owned());
        for (ended, why) in [
            (
                Answer::of(two(false), &[&a, &stop, DONE]),
                "nobody requests the others",
            ),
            (
                Answer::of(two(false), &[&a, &stop]).finish(Ending::Clean),
                "nobody requests the others",
            ),
            (Answer::of(two(true), &[&a, DONE]), "its only choice is cut"),
            (Answer::of(two(true), &[DONE]), "it has no choice"),
        ] {
            assert_eq!(
                (lacks(&ended), ended.failure()),
                (None, incomplete.clone()),
                "{why}"
            );
        }
        let complete = Answer::of(two(true), &[&a, &stop, &b, &stop_b, DONE]);
        assert_eq!(
            (lacks(&complete), complete.failure(), complete.count(DONE)),
            (None, None, 1)
        );
    }

    #[test]
    fn a_whole_answer_without_choices_is_invalid() {
        let answer = whole(plain(), &format!(r#"{{"choices":[],{USAGE}}}"#));
        let failure = answer.rewriter.reader.failure().unwrap();
        assert_eq!(
            failure.message,
            "Server error: the upstream engine returned an invalid response (HTTP 200)."
        );
    }

    #[test]
    fn the_envelope_is_completed() {
        let first = r#"{"id":"x","created":0,"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
        let later = r#"{"id":"x","created":0,"service_tier":"flex","choices":[{"index":0,"delta":{"content":"b"}}]}"#;
        let answer = Answer::of(plain(), &[first, later, &content(0, "c")]);
        assert_eq!(answer.count(r#""created":7,"#), 4, "{:?}", answer.frames);
        let tiers: Vec<_> = answer
            .frames
            .iter()
            .map(|frame| frame.contains(r#""service_tier":"flex""#))
            .collect();
        assert_eq!(tiers, [false, false, true, true]);
    }

    #[test]
    fn the_first_finish_counts() {
        let answer = Answer::of(
            plain(),
            &[
                &content(0, "a"),
                &finish(0, "stop"),
                &finish(0, "length"),
                DONE,
            ],
        );
        assert_eq!(
            (answer.finishes(), answer.times(Rule::FinishRepeated)),
            (vec!["stop"], 1)
        );
        let late = Answer::of(
            plain(),
            &[&content(0, "a"), &finish(0, "stop"), &content(0, "b"), DONE],
        );
        assert_eq!(
            (late.times(Rule::LateDelta), late.finishes()),
            (1, vec!["stop"])
        );
        assert!(late.rewriter.progress().has_content);
        let silent = Answer::of(
            plain(),
            &[r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}]}"#],
        );
        assert!(!silent.rewriter.progress().has_content);
    }

    #[test]
    fn missing_finishes() {
        let two = || Shape {
            choices: 2,
            ..stops()
        };
        let (a, b) = (content(0, "a"), content(1, "b"));
        let supplied = Answer::of(two(), &[&a, &finish(0, "length"), &b, DONE]);
        assert_eq!(
            (supplied.finishes(), supplied.times(Rule::FinishSupplied)),
            (vec!["length", "stop"], 1)
        );
        assert_eq!(
            supplied.count(r#""finish_reason":"stop""#),
            1,
            "{:?}",
            supplied.frames
        );
        let held = Answer::of(two(), &[&a, &b, &finish(1, "length"), DONE]);
        assert_eq!(
            (held.finishes(), held.times(Rule::FinishSupplied)),
            (vec!["stop", "length"], 1)
        );
        let incomplete = Some("upstream_incomplete".to_owned());
        for (shape, data, why) in [
            (plain(), &[&*a, DONE][..], "the option is off"),
            (two(), &[&*a, DONE], "a choice has not begun"),
            (
                two(),
                &[&*b, DONE],
                "a choice has not begun, although its role was sent",
            ),
            (
                Shape {
                    choices: 2,
                    ..plain()
                },
                &[&*a, &*b, DONE],
                "the option is off",
            ),
        ] {
            assert_eq!(Answer::of(shape, data).failure(), incomplete, "{why}");
        }
    }

    #[test]
    fn completions_begin_with_an_empty_text() {
        let empty = |choice: u32| format!(r#"{{"choices":[{{"index":{choice},"text":""}}]}}"#);
        let completions = || Shape {
            client: Api::Completions,
            upstream: Api::Completions,
            ..stops()
        };
        let answer = Answer::of(completions(), &[&empty(0), DONE]);
        assert_eq!(
            (answer.failure(), answer.count(r#""finish_reason":"stop""#)),
            (None, 1)
        );
        let unknown = Answer::of(completions(), &[&empty(1), DONE]);
        assert_eq!(unknown.failure().as_deref(), Some("upstream_invalid_event"));
    }

    #[test]
    fn usage_and_what_comes_with_it() {
        let alone = format!(r#"{{"choices":[],{USAGE}}}"#);
        let beside = format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"a"}}}}],{USAGE}}}"#);
        let with_usage = || Shape {
            include_usage: true,
            ..plain()
        };
        let (a, stop) = (content(0, "a"), finish(0, "stop"));
        for (shape, data, moved, missing) in [
            (with_usage(), &[&*a, &stop, &alone, DONE][..], 0, 0),
            (plain(), &[&*a, &stop, &alone, DONE], 1, 0),
            (with_usage(), &[&*beside, &stop, DONE], 1, 0),
            (with_usage(), &[&*a, &stop, DONE], 0, 1),
            (plain(), &[&*a, &stop, DONE], 0, 0),
        ] {
            let answer = Answer::of(shape, data);
            assert_eq!(
                (
                    answer.times(Rule::UsageMoved),
                    answer.times(Rule::UsageMissing)
                ),
                (moved, missing)
            );
            let usage = answer.rewriter.reader.summary().usage;
            let expected = data
                .iter()
                .any(|data| data.contains("usage"))
                .then_some((2, 3));
            assert_eq!(
                usage.map(|usage| (usage.prompt, usage.completion)),
                expected,
                "{data:?}"
            );
        }
        let body = format!(
            r#"{{"choices":[{{"index":0,"message":{{"content":"a"}},"finish_reason":"stop"}}],{USAGE}}}"#
        );
        assert_eq!(whole(plain(), &body).times(Rule::UsageMoved), 0);
        // Other fields of the usage chunk stay, also if another count follows without them.
        let extra = format!(r#"{{"choices":[],"x":1,{USAGE}}}"#);
        let passing = shape(Options {
            unknown_fields: UnknownFields::Pass,
            ..Options::default()
        });
        let passing = Shape {
            include_usage: true,
            ..passing
        };
        let answer = Answer::of(passing, &[&a, &stop, &extra, &alone, DONE]);
        assert_eq!(
            answer.count(r#""x_upstream":{"x":1}"#),
            1,
            "{:?}",
            answer.frames
        );
        let ids = format!(r#"{{"choices":[],"prompt_token_ids":[7],{USAGE}}}"#);
        let extensions = Extensions {
            token_ids: true,
            ..Extensions::default()
        };
        let answer = Answer::of(
            Shape {
                extensions,
                ..with_usage()
            },
            &[&a, &stop, &ids, DONE],
        );
        assert_eq!(
            answer.count(r#""prompt_token_ids":[7]"#),
            1,
            "{:?}",
            answer.frames
        );
    }

    #[test]
    fn reasoning_that_the_engine_does_not_count_is_remarked() {
        let chunk = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{{delta}}}}}]}}"#);
        let (reasoning, text) = (
            chunk(r#""reasoning_content":"r""#),
            chunk(r#""content":"a""#),
        );
        let usage = |more: &str| {
            let counts = r#""prompt_tokens":2,"completion_tokens":3,"total_tokens":5"#;
            format!(r#"{{"choices":[],"usage":{{{counts}{more}}}}}"#)
        };
        for (first, more, times) in [
            (&reasoning, "", 1),
            (
                &reasoning,
                r#","completion_tokens_details":{"reasoning_tokens":0}"#,
                0,
            ),
            (&reasoning, r#","reasoning_tokens":2"#, 0),
            (&text, "", 0),
        ] {
            let shape = Shape {
                include_usage: true,
                ..plain()
            };
            let answer = Answer::of(
                shape,
                &[first, &text, &finish(0, "stop"), &usage(more), DONE],
            );
            assert_eq!(
                answer.times(Rule::ReasoningUncounted),
                times,
                "{first} {more}"
            );
        }
    }

    #[test]
    fn the_prompts_ids_are_sent_once() {
        let extensions = Extensions {
            token_ids: true,
            ..Extensions::default()
        };
        let with_ids = format!(r#"{{"prompt_token_ids":[7],{}"#, &content(0, "a")[1..]);
        let answer = Answer::of(
            Shape {
                extensions,
                ..plain()
            },
            &[&with_ids, &content(0, "b"), &with_ids],
        );
        let ids: Vec<_> = answer
            .frames
            .iter()
            .map(|frame| frame.contains("prompt_token_ids"))
            .collect();
        assert_eq!(ids, [true, false, false, false], "{:?}", answer.frames);
    }

    #[test]
    fn running_counts_stay_on_each_frame_of_their_chunk() {
        let counted =
            |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}],{USAGE}}}"#);
        let called = counted(
            r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}"#,
        );
        let answer = Answer::of(counting(), &[&counted(r#"{"content":"a"}"#), &called]);
        // The role and the text; the call's header and its arguments.
        assert_eq!(
            (
                answer.frames.len(),
                answer.count(r#""completion_tokens":3"#)
            ),
            (4, 4),
            "{:?}",
            answer.frames
        );
        let waiting = call(r#"{"index":0,"function":{"arguments":"{}"}}"#);
        let named = counted(r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]}"#);
        let answer = Answer::of(counting(), &[&waiting, &named]);
        assert_eq!(
            answer.count(r#""completion_tokens":3"#),
            2,
            "{:?}",
            answer.frames
        );
    }

    #[test]
    fn entries_of_calls() {
        let named = r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}"#;
        let only_id = r#"{"index":0,"id":"c","function":{"arguments":"}"}}"#;
        let arguments = r#"{"index":0,"function":{"arguments":"}"}}"#;
        let fifth = r#"{"index":4,"id":"d","function":{"name":"g"}}"#;
        for (entries, repeats, indices, names) in [
            (&[named, arguments][..], 0, 0, 0),
            (&[named, only_id], 1, 0, 0),
            (&[named, named], 1, 0, 0),
            (&[named, fifth], 0, 1, 0),
            (&[arguments, named], 0, 0, 1),
        ] {
            let data: Vec<_> = entries.iter().map(|entry| call(entry)).collect();
            let answer = Answer::of(
                plain(),
                &data.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            let found =
                [Rule::ToolRepeat, Rule::ToolIndex, Rule::ToolName].map(|rule| answer.times(rule));
            assert_eq!(found, [repeats, indices, names], "{entries:?}");
        }
        // Without an index, an id or a name begins another call.
        for second in [
            r#"{"id":"d","function":{"name":"g"}}"#,
            r#"{"function":{"name":"g"}}"#,
            r#"{"id":"d","function":{"arguments":"{}","name":""}}"#,
        ] {
            let first = call(r#"{"id":"c","function":{"name":"f","arguments":"{}"}}"#);
            let answer = Answer::of(
                plain(),
                &[&first, &call(second), &call(r#"{"function":{"name":"h"}}"#)],
            );
            let headers = if second.contains("\"g\"") { 3 } else { 2 };
            assert_eq!(
                answer.count(r#""type":"function""#),
                headers,
                "{second}: {:?}",
                answer.frames
            );
        }
    }

    #[test]
    fn text_behind_arguments_keeps_its_place() {
        let first = call(r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}"#);
        let begun = call(r#"{"index":0,"function":{"arguments":"{\"a\""}}"#);
        let other = call(r#"{"index":1,"id":"d","function":{"name":"g","arguments":""}}"#);
        let order = |last: &str, mark: &str| {
            let answer = Answer::of(
                preserving(),
                &[&first, &begun, last, &finish(0, "tool_calls"), DONE],
            );
            let held = answer
                .frames
                .iter()
                .position(|frame| frame.contains(r#""arguments":"{\"a\"""#));
            let next = answer.frames.iter().position(|frame| frame.contains(mark));
            assert!(
                held.is_some() && next.is_some() && held < next,
                "{mark}: {:?}",
                answer.frames
            );
        };
        order(&content(0, "b"), r#""content":"b""#);
        order(&other, r#""name":"g""#);
        // Arguments that wait for the name of another call release nothing: they send nothing.
        let nameless = call(r#"{"index":1,"function":{"arguments":"{"}}"#);
        let again = call(r#"{"index":0,"function":{"arguments":":1}"}}"#);
        let answer = Answer::of(preserving(), &[&first, &begun, &nameless, &again]);
        assert_eq!(
            (answer.times(Rule::ToolArgumentsResent), answer.frames.len()),
            (1, 3),
            "{:?}",
            answer.frames
        );
    }

    #[test]
    fn calls_without_a_name() {
        let nameless = call(r#"{"index":0,"id":"c","function":{"arguments":"{}"}}"#);
        let forced = || Shape {
            forced_function: Some("f".to_owned()),
            ..plain()
        };
        let cut = Answer::of(forced(), &[&nameless]).finish(Ending::Clean);
        assert_eq!(
            (cut.count(r#""name":"f""#), cut.count("upstream_incomplete")),
            (1, 1),
            "{:?}",
            cut.frames
        );
        let stream = Answer::of(plain(), &[&nameless, &finish(0, "tool_calls"), DONE]);
        let body = r#"{"choices":[{"index":0,"message":{"tool_calls":[{"id":"c","function":{"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
        for (answer, status) in [(stream, 502), (whole(plain(), body), 500)] {
            assert_eq!(
                answer.failure().as_deref(),
                Some("upstream_invalid_tool_call")
            );
            assert_eq!(
                answer
                    .rewriter
                    .reader
                    .failure()
                    .map(|failure| failure.status),
                Some(status)
            );
        }
    }

    #[test]
    fn finish_reasons_of_answers_with_calls() {
        let called = call(r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}"#);
        let with = |finish, forced: bool| {
            let options = Options {
                named_tool_choice_finish: finish,
                ..Options::default()
            };
            let forced_function = forced.then(|| "f".to_owned());
            Shape {
                forced_function,
                ..shape(options)
            }
        };
        use crate::wire::options::NamedToolChoiceFinish::{Openai, ToolCalls};
        for (shape, expected, changed) in [
            (with(Openai, true), "stop", 0),
            (with(Openai, false), "tool_calls", 1),
            (with(ToolCalls, true), "tool_calls", 1),
            (with(ToolCalls, false), "tool_calls", 1),
        ] {
            let answer = Answer::of(shape, &[&called, &finish(0, "stop"), DONE]);
            assert_eq!(
                (answer.finishes(), answer.times(Rule::FinishWord)),
                (vec![expected], changed)
            );
        }
    }

    #[test]
    fn another_model_is_found_out_once() {
        let models = Some(Models::OneOf(Arc::from([Arc::from("m")])));
        let shape = || Shape {
            models: models.clone(),
            model: "alias".to_owned(),
            ..plain()
        };
        let named = |name: &str| format!(r#"{{"model":"{name}",{}"#, &content(0, "a")[1..]);
        let wrong = Some("upstream_invalid_response".to_owned());
        assert_eq!(Answer::of(shape(), &[&named("other")]).failure(), wrong);
        assert_eq!(
            Answer::of(shape(), &[&content(0, "a"), &named("other")]).failure(),
            wrong
        );
        assert_eq!(
            Answer::of(shape(), &[&named("alias"), &named("other")]).failure(),
            None
        );
        assert_eq!(
            Answer::of(shape(), &[&named("m"), &named("other")]).failure(),
            None
        );
        assert_eq!(Answer::of(plain(), &[&named("other")]).failure(), None);
    }

    #[test]
    fn after_the_status_a_failure_is_a_frame() {
        for commits in [false, true] {
            let mut answer = Answer::of(plain(), &[]);
            if commits {
                answer.rewriter.writer.commit();
            }
            let answer = answer.finish(Ending::Reset);
            assert_eq!(
                (
                    answer.count("upstream_incomplete"),
                    answer.rewriter.writer.failure().is_none()
                ),
                (usize::from(commits), commits)
            );
        }
    }
}
