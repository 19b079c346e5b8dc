//! Entries of tool calls: which call each belongs to, and when the call starts (wire-format 2.5).

use super::answer_writer::{EncoderOutput, send_held};
use super::calls::{DuplicateState, OpenCall, OpenCalls};
use super::duplicates;
use super::envelope::AnswerEnvelope;
use super::held_arguments::CallState;
use super::{MAX_CALLS, Normaliser};
use crate::json::Text;
use crate::wire::Shape;
use crate::wire::event::{CallSource, ChunkUsage, Delta, FrameExtras, ToolEntry, ToolKind};
use crate::wire::fault::{Failure, Fault};
use crate::wire::naming::Naming;
use crate::wire::rule::Rule;

impl Normaliser {
    pub(super) fn tool_entry<'a>(
        &mut self,
        index: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
        to: &mut EncoderOutput<'_>,
    ) -> FrameExtras<'a> {
        let Some(choice) = self.choices.get_mut(index as usize) else {
            return extras;
        };
        let id = entry.id.map(|id| id.decoded()).filter(|id| !id.is_empty());
        let name = entry
            .name
            .map(|name| name.decoded())
            .filter(|name| !name.is_empty());
        let slot = match entry.whole {
            true => choice.calls.open(entry.index, entry.source),
            false => choice.calls.slot(&entry, id.as_deref(), name.is_some()),
        };
        // Held text goes out first, unless this call has nothing to send before its name is known.
        let is_named = name.is_some() || entry.whole && self.shape.forced_function.is_some();
        if is_named || choice.calls.is_started(slot) {
            let state = |at, _: &OpenCall| Some(CallState::Interrupted).filter(|_| at != slot);
            choice
                .calls
                .pass_held(state, &mut self.tally, |place, held| {
                    send_held(index, place, held, to)
                });
        }
        let all = &choice.calls.all;
        let is_sent = |call: &&OpenCall| call.duplicate != DuplicateState::Found;
        if all.len() > MAX_CALLS && all.iter().filter(is_sent).count() > MAX_CALLS {
            self.fail(too_many_calls(), to);
            return extras;
        }
        if slot > 0 && self.shape.one_call {
            self.tally.count(Rule::ToolSecond);
            return extras;
        }
        let is_taken = id
            .as_deref()
            .is_some_and(|id| choice.calls.is_taken(id, slot));
        let Some(call) = choice.calls.all.get_mut(slot) else {
            return extras;
        };
        if call.started.is_some() && (id.is_some() || name.is_some()) {
            self.tally.count(Rule::ToolRepeat);
        }
        call.identify(id, is_taken, name, &entry, &self.shape);
        let usage = extras.usage.clone();
        let mut extras = Some(extras);
        self.begin_call(index, slot, entry.index, &mut extras, to);
        self.pass_arguments(index, slot, entry, usage, &mut extras, to);
        extras.unwrap_or_default()
    }

    /// Starts a call that has its name, unless it has to wait because it may be a duplicate. `said`: its index as the
    /// engine counts.
    fn begin_call(
        &mut self,
        index: u32,
        slot: usize,
        said: Option<u64>,
        extras: &mut Option<FrameExtras<'_>>,
        to: &mut EncoderOutput<'_>,
    ) {
        // Without a parser, no call is found in text.
        let compares = self.shape.text_format().is_some();
        let Some(choice) = self.choices.get_mut(index as usize) else {
            return;
        };
        let next = u64::from(choice.calls.started);
        let is_new = |call: &&mut OpenCall| {
            call.started.is_none() && call.name.is_some() && call.duplicate == DuplicateState::None
        };
        let all = &mut choice.calls.all;
        if all.get_mut(slot).filter(is_new).is_none() {
            return;
        }
        let waits = compares && duplicates::waits(all, slot);
        let Some(call) = all.get_mut(slot) else {
            return;
        };
        if waits {
            call.duplicate = DuplicateState::Awaited;
            choice.calls.may_wait = true;
            return;
        }
        if !call.unsent_arguments.is_empty() || call.is_holding() {
            self.tally.count(Rule::ToolName);
        }
        if said.is_some_and(|said| said != next) {
            self.tally.count(Rule::ToolIndex);
        }
        self.start_call(index, slot, extras, to);
    }

    /// Sends the header of a call, with the arguments that waited for it, after the calls of a whole text that wait.
    fn start_call(
        &mut self,
        index: u32,
        slot: usize,
        extras: &mut Option<FrameExtras<'_>>,
        to: &mut EncoderOutput<'_>,
    ) {
        let naming = naming(self.envelope.as_ref(), &self.shape);
        let Some(choice) = self.choices.get_mut(index as usize) else {
            return;
        };
        let OpenCalls {
            all, started: next, ..
        } = &mut choice.calls;
        for (at, call) in all.iter_mut().enumerate().take(slot + 1) {
            if at < slot {
                if call.source != CallSource::WholeText || call.duplicate != DuplicateState::Awaited
                {
                    continue;
                }
                call.duplicate = DuplicateState::None;
            }
            call.start((index, *next), &naming, extras, &mut self.tally, to);
            *next += 1;
        }
    }

    /// Reads the arguments of an entry, and sends what need not be held. `usage`: the one of the entry's chunk.
    fn pass_arguments(
        &mut self,
        index: u32,
        slot: usize,
        entry: ToolEntry<'_>,
        usage: Option<Box<ChunkUsage>>,
        extras: &mut Option<FrameExtras<'_>>,
        to: &mut EncoderOutput<'_>,
    ) {
        let compares = self.shape.text_format().is_some();
        let Some(choice) = self.choices.get_mut(index as usize) else {
            return;
        };
        let OpenCalls { all, may_hold, .. } = &mut choice.calls;
        let (Some(call), Some(args)) = (all.get_mut(slot), entry.args) else {
            return;
        };
        let may_repeat = call.kind == ToolKind::Function && !entry.whole;
        let passed = call.read(args, may_repeat, compares, &mut self.tally);
        *may_hold |= call.resent.is_holding();
        let started = call.started;
        let is_decided = call.duplicate == DuplicateState::Awaited && call.arguments.is_closed();
        let held = std::str::from_utf8(&passed.held).ok().map(Text::json);
        for args in passed
            .own
            .into_iter()
            .chain(held)
            .filter(|args| !args.is_empty())
        {
            choice.calls.hold(slot, args, |args| {
                if let Some(slot) = started {
                    let usage = usage.clone();
                    let extras = extras.take().unwrap_or_else(|| FrameExtras {
                        usage,
                        ..FrameExtras::default()
                    });
                    to.delta(index, Delta::ToolArgs { slot, args }, extras);
                }
            });
        }
        if is_decided {
            self.settle_calls(index, false, extras, to);
        }
    }

    /// Decides about the calls of a choice that wait, as far as their arguments are complete. `at_end`: nothing follows.
    pub(super) fn settle_calls(
        &mut self,
        index: u32,
        at_end: bool,
        extras: &mut Option<FrameExtras<'_>>,
        to: &mut EncoderOutput<'_>,
    ) {
        loop {
            let choice = self.choices.get_mut(index as usize);
            let Some(calls) = choice.map(|choice| &mut choice.calls) else {
                return;
            };
            if !calls.may_wait {
                return;
            }
            let Some(slot) = duplicates::next(&calls.all, at_end) else {
                calls.may_wait = !at_end;
                return;
            };
            self.settle_call(index, slot, at_end, extras, to);
        }
    }

    /// Decides about a call that waits: starts it, unless it is the same as one of the other source (7.2).
    fn settle_call(
        &mut self,
        index: u32,
        slot: usize,
        at_end: bool,
        extras: &mut Option<FrameExtras<'_>>,
        to: &mut EncoderOutput<'_>,
    ) {
        let Some(choice) = self.choices.get_mut(index as usize) else {
            return;
        };
        let all = &mut choice.calls.all;
        let found = duplicates::find(all, slot, at_end);
        let Some(call) = all.get_mut(slot) else {
            return;
        };
        let Some(found) = found else {
            call.duplicate = DuplicateState::None;
            return self.start_call(index, slot, extras, to);
        };
        self.tally.count(Rule::ToolDuplicate);
        call.duplicate = DuplicateState::Found;
        let id = call.engine_id.take();
        if let Some(duplicate) = all.get_mut(found) {
            let waits = std::mem::replace(&mut duplicate.duplicate, DuplicateState::Found)
                == DuplicateState::Awaited;
            if waits {
                duplicate.engine_id = id.or_else(|| duplicate.engine_id.take());
                self.start_call(index, found, extras, to);
            }
        }
    }

    /// Sends what is held of the arguments of a choice's calls, as far as `state` decides it.
    pub(super) fn pass_held(&mut self, index: u32, state: CallState, to: &mut EncoderOutput<'_>) {
        if let Some(choice) = self.choices.get_mut(index as usize) {
            let pass = |place, held: Text<'_>| send_held(index, place, held, to);
            choice
                .calls
                .pass_held(|_, _| Some(state), &mut self.tally, pass);
        }
    }

    /// Starts calls without a name if `tool_choice` forces a function, whose name they get (2.5 rule 4). Returns
    /// true if all calls of the choice have a name then.
    pub(super) fn name_calls(&mut self, index: usize, to: &mut EncoderOutput<'_>) -> bool {
        let Some(choice) = self.choices.get_mut(index) else {
            return true;
        };
        let most = if self.shape.one_call { 1 } else { MAX_CALLS };
        let calls = choice.calls.all.iter().enumerate().take(most);
        let unnamed = calls.filter(|(_, call)| call.name.is_none() && call.started.is_none());
        let unnamed: Vec<_> = unnamed.map(|(slot, _)| slot).collect();
        let Some(forced) = &self.shape.forced_function else {
            return unnamed.is_empty();
        };
        let forced = forced.clone();
        for slot in unnamed {
            let choice = self.choices.get_mut(index);
            if let Some(call) = choice.and_then(|choice| choice.calls.all.get_mut(slot)) {
                call.name = Some(forced.clone());
                self.tally.count(Rule::ToolName);
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                self.settle_call(index, slot, true, &mut None, to);
            }
        }
        true
    }

    pub(super) fn start_forced_calls(&mut self, to: &mut EncoderOutput<'_>) {
        for at in 0..self.choices.len() {
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            self.settle_calls(index, true, &mut None, to);
            self.name_calls(at, to);
            self.pass_held(index, CallState::Cut, to);
        }
    }
}

fn naming<'n>(envelope: Option<&'n AnswerEnvelope>, shape: &'n Shape) -> Naming<'n> {
    Naming::of(envelope.map_or("", |envelope| &envelope.id), shape)
}

fn too_many_calls() -> Failure {
    let message = "The upstream engine sent more tool calls than an answer can have.";
    Failure::from(Fault::InvalidEvent).with_message(message)
}
