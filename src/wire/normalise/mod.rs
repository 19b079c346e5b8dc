//! Normaliser: makes any sequence of events grammatical (the grammar is in [`super::event`]).
//!
//! Takes: events in any order that engines send. Gives: role once, finish once and last, usage last, dense tool
//! calls, one end.
//! Remembers: one small [`Choice`] each, the held finish, the last usage. Never: text, except arguments that wait
//! for a name.

mod calls;
mod digest;
mod merge;
mod output;
mod resent;
mod short;

use super::detached_riders::HeldRiders;
use super::event::{Delta, Event, Finish, Head, Reason, Riders, ToolEntry, ToolKind, Usage};
use super::fault::{Failure, Fault};
use super::naming::Naming;
use super::options::{MissingFinish, NamedToolChoiceFinish, SystemFingerprint};
use super::rule::{Rule, Tally};
use super::{Api, Ending, PROMPT_TOKEN_IDS, Shape, Stamp, TOKEN_IDS, ident};
use crate::json::{Extras, Kept, Raw, Text};
use calls::Calls;
pub(super) use merge::Merge;
use output::send_held;
pub(super) use output::{AnswerWriter, Output};

/// Limit on the tool calls of one choice. Models make a handful; the cost of telling them apart grows with the
/// square of their number.
const MAX_CALLS: usize = 1024;

/// State machine that enforces the event grammar; no other stage does. Encoders rely on it.
#[derive(Debug)]
pub(super) struct Normaliser {
    shape: Shape,
    stamp: Stamp,
    envelope: Option<Envelope>,
    /// True if the envelope has changed since the last head was sent.
    head_due: bool,
    choices: Vec<Choice>,
    held: Option<HeldFinish>,
    usage: Option<Usage>,
    /// Riders of the usage chunk, for the usage frame at the end.
    usage_riders: HeldRiders,
    failure: Option<Failure>,
    ended: bool,
    /// True if the answer ended with fewer choices than the client asked for, and the others may be requested.
    lacks_choices: bool,
    /// True once an event other than a role was seen.
    pub(super) spoken: bool,
    pub(super) tally: Tally,
}

/// Envelope of the answer. Id, time and model are fixed by the first usable event; tier and fingerprint are added
/// once known.
#[derive(Debug)]
struct Envelope {
    /// Id and time as the engine spells them, to notice changes.
    engine: (String, Option<u64>),
    id: String,
    created: u64,
    model: String,
    tier: Option<String>,
    fingerprint: Option<String>,
}

/// State of one choice of the answer.
#[derive(Debug, Default)]
struct Choice {
    role_sent: bool,
    /// True once the engine has sent anything for the choice. The role frame may be sent earlier, because of a
    /// later choice.
    started: bool,
    finished: Option<Reason>,
    calls: Calls,
}

/// Finish that waits for the engine's next event (wire-format 2.3 rule 7).
#[derive(Debug)]
struct HeldFinish {
    choice: u32,
    reason: Reason,
    stop: Option<Kept>,
    riders: HeldRiders,
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
            usage_riders: HeldRiders::default(),
            failure: None,
            ended: false,
            lacks_choices: false,
            spoken: false,
            tally: Tally::default(),
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>, to: &mut Output<'_>) {
        if self.ended {
            return;
        }
        match event {
            Event::Head(head) => self.head(&head, to),
            Event::Delta { choice, delta, riders } => {
                self.delta(choice, delta, riders, to);
            }
            Event::Usage { usage, alone, riders } => self.count(usage, alone, riders, to),
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
    pub(super) fn end_of_input(&mut self, ending: Ending, to: &mut Output<'_>) {
        if self.ended {
            return;
        }
        match ending {
            Ending::Whole if self.choices.is_empty() => {
                let message = "The upstream engine returned an invalid response (HTTP 200).";
                self.fail(Failure::from(Fault::InvalidResponse).with_message(message), to);
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
    pub(super) fn fail(&mut self, failure: Failure, to: &mut Output<'_>) {
        if self.ended {
            return;
        }
        let failure = match &self.stamp.request_id {
            Some(id) => failure.disclosed(self.shape.options.engine_errors, &self.shape.model, id),
            None => failure,
        };
        self.held = None;
        self.start_forced_calls(to);
        self.ended = true;
        self.failure = Some(failure.clone());
        to.event(Event::Fail(failure));
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

    fn head(&mut self, head: &Head<'_>, to: &mut Output<'_>) {
        self.send_changed_head(to);
        if let Some(envelope) = &self.envelope {
            let id_changed = head.id.is_some_and(|id| id != envelope.engine.0.as_str());
            if id_changed || head.created != envelope.engine.1 {
                self.tally.count(Rule::Envelope);
            }
        } else {
            self.envelope = Some(self.first_head(head));
            self.update_envelope(head);
            return self.send_head(to);
        }
        self.head_due |= self.update_envelope(head);
    }

    /// Sends a changed head: after the finish that the chunk releases, and before the chunk's own frames.
    fn send_changed_head(&mut self, to: &mut Output<'_>) {
        if std::mem::take(&mut self.head_due) {
            self.send_head(to);
        }
    }

    fn first_head(&mut self, head: &Head<'_>) -> Envelope {
        let engine = head.id.map(|id| id.decoded().into_owned()).unwrap_or_default();
        // The prefix is that of the upstream API; the Responses encoder replaces it when it begins its object.
        let prefix = self.shape.upstream.id_prefix();
        let id = match engine.as_str() {
            id if id.is_empty() || self.shape.quirks.recurring_ids => format!("{prefix}{}", self.stamp.id),
            engine => ident::completion(engine, prefix),
        };
        if id != engine {
            self.tally.count(Rule::Id);
        }
        let said = head.model.map(|model| ident::bounded_name(&model.decoded()).to_owned());
        let said = said.filter(|model| !model.is_empty());
        let model = match self.shape.options.model_name.as_str() {
            "upstream" => said.unwrap_or_else(|| self.shape.model.clone()),
            "requested" => self.shape.model.clone(),
            alias => alias.to_owned(),
        };
        let created = head.created.filter(|created| *created > 0).unwrap_or(self.stamp.now);
        Envelope { engine: (engine, head.created), id, created, model, tier: None, fingerprint: None }
    }

    /// Stores tier and fingerprint when they first become known. Returns true if the envelope has changed.
    fn update_envelope(&mut self, head: &Head<'_>) -> bool {
        let Some(envelope) = &mut self.envelope else { return false };
        let mut changed = false;
        if envelope.tier.is_none() {
            const TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];
            let tier = head.tier.map(|tier| tier.decoded()).filter(|tier| TIERS.contains(&tier.as_ref()));
            changed |= tier.is_some();
            envelope.tier = tier.map(|tier| tier.into_owned());
        }
        let Some(said) = head.fingerprint.map(|said| said.decoded()).filter(|said| !said.is_empty()) else {
            return changed;
        };
        let options = &self.shape.options;
        let fingerprint = match options.system_fingerprint {
            SystemFingerprint::Strip => None,
            SystemFingerprint::Hash => Some(ident::fingerprint(&said, &options.fingerprint_salt)),
            SystemFingerprint::Pass => Some(ident::bounded_name(&said).to_owned()),
        };
        if fingerprint.as_deref() != Some(said.as_ref()) {
            self.tally.count(Rule::Fingerprint);
        }
        if envelope.fingerprint.is_none() && fingerprint.is_some() {
            envelope.fingerprint = fingerprint;
            changed = true;
        }
        changed
    }

    fn send_head(&self, to: &mut Output<'_>) {
        if let Some(envelope) = &self.envelope {
            to.event(Event::Head(Head {
                id: Some(Text::plain(&envelope.id)),
                created: Some(envelope.created),
                model: Some(Text::plain(&envelope.model)),
                tier: envelope.tier.as_deref().map(Text::plain),
                fingerprint: envelope.fingerprint.as_deref().map(Text::plain),
            }));
        }
    }

    // === choices ===

    /// Handles an event of a choice. Returns the riders if no frame was made of it.
    pub(super) fn delta<'a>(
        &mut self,
        index: u32,
        delta: Delta<'_>,
        mut riders: Riders<'a>,
        to: &mut Output<'_>,
    ) -> Riders<'a> {
        self.hide_tokens(&mut riders);
        to.drop_sent_prompt(&mut riders);
        let says_nothing = riders.logprobs.is_none()
            && riders.chunk_extensions.is_empty()
            && riders.choice_extensions.is_empty();
        if says_nothing && matches!(delta, Delta::Bare) {
            return riders;
        }
        let hollow = matches!(delta, Delta::Finish(_) | Delta::Bare | Delta::Break | Delta::Done { .. });
        if self.ended || self.changes_nothing(index, &delta) || !self.admit(index, hollow, &mut riders, to) {
            return riders;
        }
        match delta {
            Delta::Role => return riders,
            Delta::Finish(_) if self.held.is_some() => {
                self.tally.count(Rule::FinishRepeated);
                return riders;
            }
            Delta::Finish(finish) => self.hold_finish(index, finish, riders),
            Delta::Done { slot: Some(said), cut } => {
                self.pass_held(index, to);
                if let Some(slot) =
                    self.choices.get(index as usize).and_then(|choice| choice.calls.place(said))
                {
                    to.delta(index, Delta::Done { slot: Some(slot), cut }, riders);
                }
            }
            delta => {
                self.note_speech();
                if !matches!(delta, Delta::Bare | Delta::Break) {
                    self.pass_held(index, to);
                }
                to.delta(index, delta, riders);
            }
        }
        Riders::default()
    }

    /// Returns true for an empty delta that needs no role frame. It only shows that the engine has started the
    /// choice.
    fn changes_nothing(&mut self, index: u32, delta: &Delta<'_>) -> bool {
        let known = self.choices.get(index as usize).is_some_and(|choice| choice.role_sent);
        let silent = known || (self.shape.client == Api::Completions && index < self.shape.choices);
        if silent && matches!(delta, Delta::Role) {
            self.choices.resize_with(self.choices.len().max(index as usize + 1), Choice::default);
            self.start(index);
            return true;
        }
        false
    }

    /// Handles an entry of `tool_calls`. Returns the riders if no frame was made of it.
    pub(super) fn tool<'a>(
        &mut self,
        index: u32,
        entry: ToolEntry<'_>,
        mut riders: Riders<'a>,
        to: &mut Output<'_>,
    ) -> Riders<'a> {
        self.hide_tokens(&mut riders);
        to.drop_sent_prompt(&mut riders);
        if self.ended || !self.admit(index, false, &mut riders, to) {
            return riders;
        }
        self.note_speech();
        self.tool_entry(index, entry, riders, to)
    }

    /// Removes token ids that samewire itself requested for parsing, if the client did not ask for them.
    fn hide_tokens(&self, riders: &mut Riders<'_>) {
        if !self.shape.extensions.token_ids
            && self.shape.script.as_deref().is_some_and(|script| script.has_tokens())
        {
            riders.choice.take(TOKEN_IDS);
            riders.chunk.take(PROMPT_TOKEN_IDS);
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
    fn admit(&mut self, index: u32, hollow: bool, riders: &mut Riders<'_>, to: &mut Output<'_>) -> bool {
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
        self.send_roles(index, riders, to);
        self.start(index);
        let finished = self.choices.get(index as usize).is_some_and(|choice| choice.finished.is_some());
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
    fn send_roles(&mut self, index: u32, riders: &mut Riders<'_>, to: &mut Output<'_>) {
        let count = index as usize + 1;
        if self.choices.get(index as usize).is_some_and(|choice| choice.role_sent) {
            return;
        }
        self.choices.resize_with(self.choices.len().max(count), Choice::default);
        for (at, choice) in (0..).zip(self.choices.iter_mut().take(count)) {
            if std::mem::replace(&mut choice.role_sent, true) {
                continue;
            }
            let usage = riders.usage.clone();
            // The role frame is the first frame made of the chunk; legacy completions have none.
            let chunk_extensions = match self.shape.client {
                Api::Chat => std::mem::take(&mut riders.chunk_extensions),
                _ => Extras::default(),
            };
            to.delta(at, Delta::Role, Riders { usage, chunk_extensions, ..Riders::default() });
            if at != index {
                self.tally.count(Rule::Role);
            }
        }
    }

    // === tool calls ===

    fn tool_entry<'a>(
        &mut self,
        index: u32,
        entry: ToolEntry<'_>,
        riders: Riders<'a>,
        to: &mut Output<'_>,
    ) -> Riders<'a> {
        let naming = Naming::of(self.envelope.as_ref().map_or("", |envelope| &envelope.id), &self.shape);
        let Some(choice) = self.choices.get_mut(index as usize) else { return riders };
        let id = entry.id.map(|id| id.decoded()).filter(|id| !id.is_empty());
        let name = entry.name.map(|name| name.decoded()).filter(|name| !name.is_empty());
        let slot = match entry.whole {
            true => choice.calls.open(entry.index),
            false => choice.calls.slot(entry.index, id.as_deref(), name.is_some(), entry.args.as_ref()),
        };
        // Held text goes out first, unless this call has nothing to send before its name is known.
        if name.is_some() || choice.calls.is_started(slot) {
            choice.calls.pass_held(Some(slot), |place, held| send_held(index, place, held, to));
        }
        if choice.calls.0.len() > MAX_CALLS {
            let message = "The upstream engine sent more tool calls than an answer can have.";
            self.fail(Failure::from(Fault::InvalidEvent).with_message(message), to);
            return riders;
        }
        if slot > 0 && self.shape.one_call {
            self.tally.count(Rule::ToolSecond);
            return riders;
        }
        let next = choice.calls.started();
        let is_taken = id.as_deref().is_some_and(|id| choice.calls.is_taken(id, slot));
        let Some(call) = choice.calls.0.get_mut(slot) else { return riders };
        if call.started.is_some() && (id.is_some() || name.is_some()) {
            self.tally.count(Rule::ToolRepeat);
        }
        if call.engine_id.is_none() {
            call.engine_id = id.map(|id| id.into_owned());
            call.shares_id = is_taken;
        }
        if call.name.is_none() {
            let forced = self.shape.forced_function.clone().filter(|_| entry.whole);
            call.name = name.map(|name| ident::bounded_name(&name).to_owned()).or(forced);
            call.namespace = entry.namespace.map(|namespace| namespace.decoded().into_owned());
            call.kind = entry.kind;
        }
        let usage = riders.usage.clone();
        let mut riders = Some(riders);
        if call.started.is_none() && call.name.is_some() {
            if !call.unsent_arguments.is_empty() {
                self.tally.count(Rule::ToolName);
            }
            if entry.index.is_some_and(|said| said != u64::from(next)) {
                self.tally.count(Rule::ToolIndex);
            }
            call.start((index, next), &naming, &mut riders, &mut self.tally, to);
        }
        let may_repeat =
            self.shape.quirks.resends_arguments && call.kind == ToolKind::Function && !entry.whole;
        let tally = &mut self.tally;
        let passed = entry.args.map(|args| call.read(args, may_repeat, tally)).unwrap_or_default();
        let held = std::str::from_utf8(&passed.held).ok().map(Text::json);
        for args in passed.own.into_iter().chain(held).filter(|args| !args.is_empty()) {
            match call.started {
                Some(slot) => {
                    let usage = usage.clone();
                    let riders = riders.take().unwrap_or_else(|| Riders { usage, ..Riders::default() });
                    to.delta(index, Delta::ToolArgs { slot, args }, riders);
                }
                None => args.append_to(&mut call.unsent_arguments),
            }
        }
        riders.unwrap_or_default()
    }

    /// Sends the text held behind the arguments of a choice's calls: it has turned out not to be a repetition.
    fn pass_held(&mut self, index: u32, to: &mut Output<'_>) {
        if let Some(choice) = self.choices.get_mut(index as usize) {
            choice.calls.pass_held(None, |place, held| send_held(index, place, held, to));
        }
    }

    /// Starts calls without a name if `tool_choice` forces a function, whose name they get (2.5 rule 4). Returns
    /// true if all calls of the choice have a name then.
    fn name_calls(&mut self, index: usize, to: &mut Output<'_>) -> bool {
        let naming = Naming::of(self.envelope.as_ref().map_or("", |envelope| &envelope.id), &self.shape);
        let Some(choice) = self.choices.get_mut(index) else { return true };
        let mut next = choice.calls.started();
        let mut named = true;
        let wanted = if self.shape.one_call { 1 } else { MAX_CALLS };
        for call in choice.calls.0.iter_mut().take(wanted).filter(|call| call.started.is_none()) {
            let Some(forced) = &self.shape.forced_function else {
                named = false;
                continue;
            };
            call.name = Some(forced.clone());
            self.tally.count(Rule::ToolName);
            let place = (u32::try_from(index).unwrap_or(u32::MAX), next);
            next += 1;
            call.start(place, &naming, &mut None, &mut self.tally, to);
        }
        named
    }

    fn start_forced_calls(&mut self, to: &mut Output<'_>) {
        for index in 0..self.choices.len() {
            self.name_calls(index, to);
            self.pass_held(u32::try_from(index).unwrap_or(u32::MAX), to);
        }
    }

    // === ends ===

    fn hold_finish(&mut self, index: u32, finish: Finish<'_>, riders: Riders<'_>) {
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
        self.held =
            Some(HeldFinish { choice: index, reason: finish.reason, stop, riders: HeldRiders::of(riders) });
    }

    /// Sends the held finish, since nothing can precede it any more. Fails the answer if a call has no name.
    fn release(&mut self, to: &mut Output<'_>) {
        let Some(held) = self.held.take() else { return };
        if !self.name_calls(held.choice as usize, to) {
            let mut failure = Failure::from(Fault::InvalidToolCall);
            if !self.shape.stream {
                // The only status that differs between stream and whole answer (wire-format 3.4, fixed messages).
                failure.status = 500;
            }
            return self.fail(failure, to);
        }
        self.pass_held(held.choice, to);
        let reason = self.reason(held.choice, held.reason);
        if let Some(choice) = self.choices.get_mut(held.choice as usize) {
            choice.finished = Some(reason);
        }
        let finish = Finish { reason, stop: held.stop.as_ref().map(Kept::raw) };
        to.delta(held.choice, Delta::Finish(finish), held.riders.lend());
    }

    /// Returns the canonical finish reason (2.6, after the table of words).
    fn reason(&mut self, index: u32, said: Reason) -> Reason {
        let Some(choice) = self.choices.get(index as usize) else { return said };
        let called = !choice.calls.0.is_empty();
        let named = self.shape.forced_function.is_some()
            && self.shape.options.named_tool_choice_finish == NamedToolChoiceFinish::Openai;
        let reason = match said {
            Reason::Stop if called && !named => Reason::ToolCalls,
            Reason::ToolCalls if !called => Reason::Stop,
            other => other,
        };
        let broken = match choice.calls.0.iter().max_by_key(|call| call.started) {
            Some(call) => call.kind == ToolKind::Function && !call.arguments.is_complete(),
            None => said == Reason::ToolCalls,
        };
        let limit = self.shape.limit.filter(|_| self.shape.choices == 1);
        let at_limit = self.usage.zip(limit).is_some_and(|(usage, limit)| usage.completion >= limit);
        let final_reason = match reason {
            Reason::Stop | Reason::ToolCalls if broken && at_limit => {
                self.tally.count(Rule::HiddenTruncation);
                Reason::Length
            }
            other => other,
        };
        if final_reason != said {
            self.tally.count(Rule::FinishWord);
        }
        final_reason
    }

    /// Stores usage. Usage on a chunk of its own follows all text, so it also releases the held finish.
    fn count(&mut self, usage: Usage, alone: bool, riders: Riders<'_>, to: &mut Output<'_>) {
        self.usage = Some(usage);
        if alone {
            self.release(to);
        }
        if self.shape.stream && !(alone && self.shape.include_usage) {
            self.tally.count(Rule::UsageMoved);
        }
        if riders.has_chunk_extras() || !riders.chunk_extensions.is_empty() {
            self.usage_riders = HeldRiders::of(riders);
        }
    }

    /// Handles `[DONE]`: ends a complete answer, supplies missing finishes if the option `missing_finish` says so,
    /// and otherwise fails the answer.
    fn done(&mut self, to: &mut Output<'_>) {
        self.send_changed_head(to);
        let all_started = self.choices.len() == self.shape.choices as usize
            && self.choices.iter().all(|choice| choice.started);
        if !self.is_complete() && all_started && self.shape.options.missing_finish == MissingFinish::Stop {
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
    fn supply_finishes(&mut self, to: &mut Output<'_>) {
        for choice in 0..self.shape.choices {
            let held = self.held.as_ref().is_some_and(|held| held.choice == choice);
            if held || self.choices.get(choice as usize).is_some_and(|choice| choice.finished.is_some()) {
                continue;
            }
            self.release(to);
            if self.ended {
                return;
            }
            self.tally.count(Rule::FinishSupplied);
            let finish = Finish { reason: Reason::Stop, stop: None };
            self.hold_finish(choice, finish, Riders::default());
        }
    }

    /// Returns true if every choice that was asked for has a finish, sent or held.
    fn is_complete(&self) -> bool {
        self.choices.len() == self.shape.choices as usize && self.is_each_finished()
    }

    fn is_each_finished(&self) -> bool {
        let held = self.held.as_ref().map(|held| held.choice);
        let finished = |(at, choice): (u32, &Choice)| choice.finished.is_some() || held == Some(at);
        (0..).zip(&self.choices).all(finished)
    }

    fn end(&mut self, to: &mut Output<'_>) {
        self.send_changed_head(to);
        self.release(to);
        if self.ended {
            return;
        }
        self.ended = true;
        match self.usage {
            Some(usage) if self.shape.include_usage || !self.shape.stream => {
                let mut riders = self.usage_riders.lend();
                to.drop_sent_prompt(&mut riders);
                to.event(Event::Usage { usage, alone: true, riders });
            }
            None if self.shape.include_usage => self.tally.count(Rule::UsageMissing),
            _ => {}
        }
        to.event(Event::End);
    }
}
