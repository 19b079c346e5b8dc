//! Entries of tool calls: which call each belongs to, and when the call starts (wire-format 2.5).

use super::answer_writer::{EncoderOutput, send_held};
use super::calls::{OpenCall, OpenCalls};
use super::envelope::AnswerEnvelope;
use super::held_arguments::CallState;
use super::{MAX_CALLS, Normaliser};
use crate::json::Text;
use crate::wire::Shape;
use crate::wire::event::{Delta, FrameExtras, ToolEntry, ToolKind};
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
        let naming = naming(self.envelope.as_ref(), &self.shape);
        let Some(choice) = self.choices.get_mut(index as usize) else {
            return extras;
        };
        let id = entry.id.map(|id| id.decoded()).filter(|id| !id.is_empty());
        let name = entry
            .name
            .map(|name| name.decoded())
            .filter(|name| !name.is_empty());
        let slot = match entry.whole {
            true => choice.calls.open(entry.index),
            false => choice.calls.slot(
                entry.index,
                id.as_deref(),
                name.is_some(),
                entry.args.as_ref(),
            ),
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
        if choice.calls.all.len() > MAX_CALLS {
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
        let OpenCalls {
            all,
            started: next,
            may_hold,
            ..
        } = &mut choice.calls;
        let Some(call) = all.get_mut(slot) else {
            return extras;
        };
        if call.started.is_some() && (id.is_some() || name.is_some()) {
            self.tally.count(Rule::ToolRepeat);
        }
        call.identify(id, is_taken, name, &entry, &self.shape);
        let usage = extras.usage.clone();
        let mut extras = Some(extras);
        if call.started.is_none() && call.name.is_some() {
            if !call.unsent_arguments.is_empty() || call.is_holding() {
                self.tally.count(Rule::ToolName);
            }
            if entry.index.is_some_and(|said| said != u64::from(*next)) {
                self.tally.count(Rule::ToolIndex);
            }
            call.start((index, *next), &naming, &mut extras, &mut self.tally, to);
            *next += 1;
        }
        let may_repeat = call.kind == ToolKind::Function && !entry.whole;
        let tally = &mut self.tally;
        let passed = entry
            .args
            .map(|args| call.read(args, may_repeat, tally))
            .unwrap_or_default();
        *may_hold |= call.resent.is_holding();
        let started = call.started;
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
        extras.unwrap_or_default()
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
        let naming = naming(self.envelope.as_ref(), &self.shape);
        let Some(choice) = self.choices.get_mut(index) else {
            return true;
        };
        let OpenCalls {
            all, started: next, ..
        } = &mut choice.calls;
        let mut named = true;
        let most = if self.shape.one_call { 1 } else { MAX_CALLS };
        for call in all
            .iter_mut()
            .take(most)
            .filter(|call| call.started.is_none())
        {
            let Some(forced) = &self.shape.forced_function else {
                named = false;
                continue;
            };
            call.name = Some(forced.clone());
            self.tally.count(Rule::ToolName);
            let place = (u32::try_from(index).unwrap_or(u32::MAX), *next);
            *next += 1;
            call.start(place, &naming, &mut None, &mut self.tally, to);
        }
        named
    }

    pub(super) fn start_forced_calls(&mut self, to: &mut EncoderOutput<'_>) {
        for index in 0..self.choices.len() {
            self.name_calls(index, to);
            self.pass_held(u32::try_from(index).unwrap_or(u32::MAX), CallState::Cut, to);
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
