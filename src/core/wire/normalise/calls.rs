//! Tool calls of one choice: assigns the engine's entries to calls, and sends each call's header to the client
//! once.

use super::EncoderOutput;
use super::answer_writer::NO_ARGUMENTS;
use super::held_arguments::{CallState, HeldArguments};
use super::resent::{Repetition, Resent};
use crate::json::Text;
use crate::wire::arguments::Arguments;
use crate::wire::event::{CallSource, Delta, FrameExtras, ToolEntry, ToolKind};
use crate::wire::naming::Naming;
use crate::wire::repair::MAX_HELD;
use crate::wire::rule::{Rule, Tally};
use crate::wire::{Shape, ident};
use std::borrow::Cow;
use std::ops::Range;

/// Calls of a choice, in the order in which the engine began them. What most deltas need to know of all calls is kept
/// beside them: only a new id, and an entry for another call than the last, is searched.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    pub(super) all: Vec<OpenCall>,
    /// Number of calls whose header has been sent.
    pub(super) started: u32,
    /// Largest index of the engine so far: the call of a larger one is new.
    highest: Option<u64>,
    /// True if arguments of a call may be held, or text after them.
    pub(super) may_hold: bool,
    /// Number of bytes of arguments held for repair.
    held_bytes: usize,
    /// True if a call may wait because it may be a duplicate.
    pub(super) may_wait: bool,
}

/// State of one call: its identity, and how far its header and arguments have been sent.
#[derive(Debug, Default)]
pub(super) struct OpenCall {
    pub(super) engine_index: Option<u64>,
    pub(super) engine_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) kind: ToolKind,
    /// Index that the client knows; `None` until the header is sent. It is assigned with the header, so that
    /// headers count from 0 in order.
    pub(super) started: Option<u32>,
    /// True if an earlier call has the same id. This call then gets a derived id, since a client could not tell
    /// their results apart.
    pub(super) shares_id: bool,
    /// Arguments that came before the call was sent, in JSON spelling.
    pub(super) unsent_arguments: Vec<u8>,
    pub(super) source: CallSource,
    pub(super) duplicate: DuplicateState,
    pub(super) arguments: Arguments,
    /// Hash of the arguments, used for engines that may send them twice, and to find duplicates.
    pub(super) resent: Resent,
    /// Arguments held for repair; `None` if they are not repaired.
    pub(super) held: Option<Box<HeldArguments>>,
}

/// Result of the comparison of a call with those of the other source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DuplicateState {
    /// No equal call so far.
    #[default]
    None,
    /// Not sent until its arguments are complete, because an equal call may be there.
    Awaited,
    /// An equal call is there. One of the two is sent.
    Found,
}

/// Parts of a piece of arguments to pass on.
#[derive(Debug, Default)]
pub(super) struct PassedArguments<'a> {
    /// Piece, or the part of it that belongs to the first value.
    pub(super) own: Option<Text<'a>>,
    /// Text after the first value, together with what was held before it, in JSON spelling.
    pub(super) held: Vec<u8>,
}

impl OpenCalls {
    /// Returns the client's index of the call that has this index of the engine; `None` if its header has not been
    /// sent.
    pub(super) fn place(&self, said: u32) -> Option<u32> {
        let known = |call: &&OpenCall| call.engine_index == Some(u64::from(said));
        self.all.iter().rfind(known)?.started
    }

    /// Returns the position of the call that an entry belongs to (2.5 rule 2); appends a new call if there is none.
    /// `id`, `named`: the id of the entry, and whether it has a name. A call in the text has all its entries one after
    /// another, the first with the name.
    pub(super) fn slot(&mut self, entry: &ToolEntry<'_>, id: Option<&str>, named: bool) -> usize {
        let ToolEntry {
            index,
            args,
            source,
            ..
        } = entry;
        let (index, args, source) = (*index, args.as_ref(), *source);
        let known = match index {
            _ if source != CallSource::Engine => self
                .all
                .iter()
                .rposition(|call| call.source == source && !named),
            Some(_) if index > self.highest => None,
            Some(_) => self
                .all
                .iter()
                .rposition(|call| call.engine_index == index)
                .filter(|at| {
                    let call = self.all.get(*at);
                    let recorded = call.and_then(|call| call.engine_id.as_deref());
                    let other = id
                        .zip(recorded)
                        .is_some_and(|(id, recorded)| id != recorded);
                    !(named && (other || call.is_some_and(|call| call.begins_another(args))))
                }),
            None => {
                match id.and_then(|id| {
                    self.all
                        .iter()
                        .rposition(|call| call.engine_id.as_deref() == Some(id))
                }) {
                    Some(at) => Some(at),
                    None if id.is_some() || named => None,
                    None => self
                        .all
                        .iter()
                        .rposition(|call| call.source == CallSource::Engine),
                }
            }
        };
        known.unwrap_or_else(|| self.open(index, source))
    }

    /// Returns true if the call at `slot` has no id yet, and another call has this one.
    pub(super) fn is_taken(&self, id: &str, slot: usize) -> bool {
        let has_own = self
            .all
            .get(slot)
            .is_none_or(|call| call.engine_id.is_some());
        !has_own
            && self
                .all
                .iter()
                .any(|call| call.engine_id.as_deref() == Some(id))
    }

    /// Returns true if the header of the call at `slot` has been sent.
    pub(super) fn is_started(&self, slot: usize) -> bool {
        self.all
            .get(slot)
            .is_some_and(|call| call.started.is_some())
    }

    /// Passes on what is held of the arguments of those calls for which `state` says what is known of them: for each, the
    /// client's index and the text.
    pub(super) fn pass_held(
        &mut self,
        state: impl Fn(usize, &OpenCall) -> Option<CallState>,
        tally: &mut Tally,
        mut pass: impl FnMut(u32, Text<'_>),
    ) {
        if !std::mem::take(&mut self.may_hold) {
            return;
        }
        for at in 0..self.all.len() {
            let Some(call) = self.all.get_mut(at) else {
                continue;
            };
            // A call that waits for its name has sent nothing.
            if let (Some(place), Some(state)) = (call.started, state(at, call)) {
                let held = call.resent.rest();
                let held = held
                    .as_deref()
                    .and_then(|held| std::str::from_utf8(held).ok());
                if let Some(held) = held {
                    self.hold(at, Text::json(held), |sent| pass(place, sent));
                }
                self.settle(at, state, tally, |sent| pass(place, sent));
            }
            self.may_hold |= self.all.get(at).is_some_and(OpenCall::is_holding);
        }
    }

    /// Gives a piece of a call's arguments to `pass`, as far as it is not held for repair. A call whose header has not been
    /// sent keeps it.
    pub(super) fn hold(&mut self, at: usize, piece: Text<'_>, pass: impl FnOnce(Text<'_>)) {
        let Self {
            all,
            held_bytes,
            may_hold,
            ..
        } = self;
        let Some(OpenCall {
            held,
            started,
            unsent_arguments,
            ..
        }) = all.get_mut(at)
        else {
            return;
        };
        let sent = held.as_mut().map(|held| {
            let before = held.len();
            let sent = held.read(&piece, MAX_HELD.saturating_sub(*held_bytes));
            *held_bytes = *held_bytes + held.len() - before;
            *may_hold |= held.len() > 0;
            sent
        });
        let sent = match &sent {
            None => piece,
            Some(Some(sent)) => Text::plain(sent),
            Some(None) => return,
        };
        match started {
            Some(_) => pass(sent),
            None => sent.append_to(unsent_arguments),
        }
    }

    /// Gives the arguments held for repair to `pass`, if they are decided.
    fn settle(
        &mut self,
        at: usize,
        state: CallState,
        tally: &mut Tally,
        pass: impl FnOnce(Text<'_>),
    ) {
        let Some(OpenCall {
            held: Some(held),
            arguments,
            ..
        }) = self.all.get_mut(at)
        else {
            return;
        };
        self.held_bytes -= held.len();
        let sent = held.settle(state, arguments, tally);
        self.held_bytes += held.len();
        if let Some(sent) = sent {
            pass(Text::plain(&sent));
        }
    }

    /// Completes the functions' calls without arguments that have these indices of the client: a call of a function has an
    /// object of arguments (2.5 rule 13). `pass` gets the index of each.
    pub(super) fn complete(
        &mut self,
        places: Range<u32>,
        tally: &mut Tally,
        mut pass: impl FnMut(u32),
    ) {
        for call in &mut self.all {
            if let Some(place) = call.started
                && places.contains(&place)
                && call.kind == ToolKind::Function
                && call.arguments.is_absent()
            {
                call.arguments.read(&Text::plain(NO_ARGUMENTS));
                call.resent.read(&Text::plain(NO_ARGUMENTS));
                tally.count(Rule::ToolArgumentsAbsent);
                pass(place);
            }
        }
    }

    /// Counts what a client has to know of calls that pass as the engine sent them: arguments that have ended and are no
    /// JSON, and names that are no tool's (2.5 rule 14). `offered`: names of the request's functions; empty if unknown.
    pub(super) fn count_invalid(&self, offered: &[String], custom: &[String], tally: &mut Tally) {
        for call in self.all.iter().filter(|call| call.started.is_some()) {
            let OpenCall {
                name,
                arguments,
                kind,
                ..
            } = call;
            let is_invalid =
                !arguments.is_complete() && !arguments.is_open() && !arguments.is_absent();
            tally.add(
                Rule::ToolArgumentsInvalid,
                u32::from(is_invalid && *kind == ToolKind::Function),
            );
            let name = name.as_deref().unwrap_or_default();
            let is_unknown = !offered.iter().chain(custom).any(|known| known == name);
            if name.contains(['<', '>']) && is_unknown {
                tally.count(Rule::ToolNameMarkup);
            } else if !offered.is_empty() && is_unknown {
                tally.count(Rule::ToolUnknown);
            }
        }
    }

    /// Returns the arguments of the last call, if it is one of a function.
    pub(super) fn last_arguments(&self) -> Option<&Arguments> {
        let last = self.all.iter().max_by_key(|call| call.started)?;
        Some(&last.arguments).filter(|_| last.kind == ToolKind::Function)
    }

    pub(super) fn open(&mut self, index: Option<u64>, source: CallSource) -> usize {
        self.highest = self.highest.max(index);
        self.all.push(OpenCall {
            engine_index: index,
            source,
            ..OpenCall::default()
        });
        self.all.len() - 1
    }
}

impl OpenCall {
    /// Returns the state of this call after the engine has ended the item of a call. `ended`: that call's index as the
    /// engine counts. Engines end the items of a cut answer like any other.
    pub(super) fn state_at_end(&self, ended: u32) -> CallState {
        match self.engine_index == Some(u64::from(ended)) {
            true => CallState::Cut,
            false => CallState::Interrupted,
        }
    }

    /// Returns true if any of its arguments, or text after them, is held.
    pub(super) fn is_holding(&self) -> bool {
        self.resent.is_holding() || self.held.as_ref().is_some_and(|held| held.len() > 0)
    }

    /// Returns true if an entry with a name and these arguments begins another call, although it has this call's
    /// index: this call is complete, and the arguments do not repeat its own.
    fn begins_another(&self, args: Option<&Text<'_>>) -> bool {
        let begins = |args: &Text<'_>| args.decoded().trim_start().starts_with('{');
        self.arguments.is_closed()
            && args.is_some_and(|args| begins(args) && !self.resent.is_again(args))
    }

    /// Reads a piece of the arguments and returns the parts to send. `may_repeat`: some engines send all arguments
    /// again, when they are complete or before; such a repetition is dropped. `compares`: the call
    /// may have a duplicate.
    pub(super) fn read<'a>(
        &mut self,
        piece: Text<'a>,
        may_repeat: bool,
        compares: bool,
        tally: &mut Tally,
    ) -> PassedArguments<'a> {
        let piece = match self.repeated_start(&piece).filter(|_| may_repeat) {
            Some(length) => {
                tally.count(Rule::ToolArgumentsResent);
                piece.skip_characters(length)
            }
            None => piece,
        };
        let second = self.arguments.read(&piece);
        if !may_repeat {
            if compares {
                self.resent.read(&piece);
            }
            return PassedArguments {
                own: Some(piece),
                ..PassedArguments::default()
            };
        }
        let Some(end) = second else {
            self.resent.read(&piece);
            return PassedArguments {
                own: Some(piece),
                ..PassedArguments::default()
            };
        };
        let own = piece.first_characters(end);
        self.resent.read(&own);
        let after = piece.skip_characters(end);
        match self.resent.take(&after) {
            Repetition::Begun => {}
            Repetition::Same => {
                self.arguments.drop_second();
                tally.count(Rule::ToolArgumentsResent);
            }
            Repetition::Other(Some(held)) => {
                return PassedArguments {
                    own: Some(own),
                    held,
                };
            }
            Repetition::Other(None) => {
                return PassedArguments {
                    own: Some(piece),
                    ..PassedArguments::default()
                };
            }
        }
        PassedArguments {
            own: Some(own),
            ..PassedArguments::default()
        }
    }

    /// Returns how many characters of a piece repeat the arguments so far: those of a value that is open, where the
    /// piece is a whole object that begins in the same way and could not continue them.
    fn repeated_start(&self, piece: &Text<'_>) -> Option<usize> {
        if !self.arguments.is_open() || !piece.decoded().trim_start().starts_with('{') {
            return None;
        }
        let mut joined = self.arguments.clone();
        joined.read(piece);
        let mut alone = Arguments::default();
        alone.read(piece);
        let is_object = alone.is_closed() && alone.is_complete();
        self.resent
            .length_in(piece)
            .filter(|_| joined.is_broken() && is_object)
    }

    /// Takes the id of the call, and its name with namespace and kind, each from the first entry that has one. Holds the
    /// arguments of a function if they may be repaired. `is_taken`: an earlier call has this id.
    #[inline]
    pub(super) fn identify(
        &mut self,
        id: Option<Cow<'_, str>>,
        is_taken: bool,
        name: Option<Cow<'_, str>>,
        entry: &ToolEntry<'_>,
        shape: &Shape,
    ) {
        if self.engine_id.is_none() {
            self.engine_id = id.map(Cow::into_owned);
            self.shares_id = is_taken;
        }
        if self.name.is_none() {
            let forced = shape.forced_function.clone().filter(|_| entry.whole);
            self.name = name
                .map(|name| ident::bounded_name(&name).to_owned())
                .or(forced);
            self.namespace = entry
                .namespace
                .map(|namespace| namespace.decoded().into_owned());
            self.kind = entry.kind;
        }
        if self.held.is_none() && self.kind == ToolKind::Function {
            self.held = HeldArguments::of(shape.options.repair_arguments);
        }
    }

    /// Sends the call's header and the arguments that waited for it. `place`: choice and slot.
    pub(super) fn start(
        &mut self,
        place: (u32, u32),
        naming: &Naming<'_>,
        extras: &mut Option<FrameExtras<'_>>,
        tally: &mut Tally,
        to: &mut EncoderOutput<'_>,
    ) {
        let (choice, slot) = place;
        let said = self.engine_id.as_deref().filter(|_| !self.shares_id);
        let id = naming.id(said, choice, slot);
        if said != Some(&id) {
            tally.count(Rule::ToolId);
        }
        let name = self.name.as_deref().unwrap_or_default();
        let start = Delta::ToolStart {
            slot,
            id: &id,
            name,
            namespace: self.namespace.as_deref(),
            kind: self.kind,
        };
        let usage = extras.as_ref().and_then(|extras| extras.usage.clone());
        to.delta(choice, start, extras.take().unwrap_or_default());
        self.started = Some(slot);
        if let Ok(waiting) = std::str::from_utf8(&self.unsent_arguments)
            && !waiting.is_empty()
        {
            let extras = FrameExtras {
                usage,
                ..FrameExtras::default()
            };
            to.delta(
                choice,
                Delta::ToolArgs {
                    slot,
                    args: Text::json(waiting),
                },
                extras,
            );
        }
        self.unsent_arguments = Vec::new();
    }
}
