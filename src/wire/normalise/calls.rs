//! Tool calls of one choice: which call an entry of the engine belongs to, and the header that the client gets of it.

use super::Output;
use super::resent::{Resent, SecondText};
use crate::json::Text;
use crate::wire::arguments::Arguments;
use crate::wire::event::{Delta, Riders, ToolKind};
use crate::wire::naming::Naming;
use crate::wire::rule::{Rule, Tally};

/// The calls of a choice, in the order in which the engine began them.
#[derive(Debug, Default)]
pub(super) struct Calls(pub(super) Vec<Call>);

#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) engine_index: Option<u64>,
    pub(super) engine_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) kind: ToolKind,
    /// The index the client knows. It is given with the header, so that headers count from 0 in their order.
    pub(super) started: Option<u32>,
    /// Another call has this id, too. A client that got it twice could not tell their results apart.
    pub(super) shares_id: bool,
    /// Arguments that came before the name, in JSON spelling.
    pub(super) waiting: Vec<u8>,
    pub(super) arguments: Arguments,
    /// The arguments of an engine that may send them twice.
    pub(super) resent: Resent,
}

/// The parts of a piece of arguments that are passed on.
#[derive(Debug, Default)]
pub(super) struct PassedArguments<'a> {
    /// The piece, or the part of it that belongs to the first value.
    pub(super) own: Option<Text<'a>>,
    /// The part behind that value, with what was held before it, in JSON spelling.
    pub(super) held: Vec<u8>,
}

impl Calls {
    /// Returns the number of calls whose header has been sent.
    pub(super) fn started(&self) -> u32 {
        self.0.iter().filter(|call| call.started.is_some()).count().try_into().unwrap_or(u32::MAX)
    }

    /// The place that the client knows of the call with this index of the engine.
    pub(super) fn place(&self, said: u32) -> Option<u32> {
        let known = |call: &&Call| call.engine_index == Some(u64::from(said));
        self.0.iter().rfind(known)?.started
    }

    /// Which call an entry belongs to (2.5 rule 2); a new one is appended. `args`: arguments of the entry.
    pub(super) fn slot(
        &mut self,
        index: Option<u64>,
        id: Option<&str>,
        named: bool,
        args: Option<&Text<'_>>,
    ) -> usize {
        let known = match index {
            Some(_) => self.0.iter().rposition(|call| call.engine_index == index).filter(|at| {
                let call = self.0.get(*at);
                let recorded = call.and_then(|call| call.engine_id.as_deref());
                let other = id.zip(recorded).is_some_and(|(id, recorded)| id != recorded);
                !(named && (other || call.is_some_and(|call| call.has_others(args))))
            }),
            None => {
                match id.and_then(|id| self.0.iter().rposition(|call| call.engine_id.as_deref() == Some(id)))
                {
                    Some(at) => Some(at),
                    None if id.is_some() || named => None,
                    None => self.0.len().checked_sub(1),
                }
            }
        };
        known.unwrap_or_else(|| self.open(index))
    }

    /// Whether another call than the one at `slot` has this id.
    pub(super) fn is_taken(&self, id: &str, slot: usize) -> bool {
        self.0.iter().enumerate().any(|(at, call)| at != slot && call.engine_id.as_deref() == Some(id))
    }

    /// Whether the client has the header of the call at `slot`.
    pub(super) fn is_started(&self, slot: usize) -> bool {
        self.0.get(slot).is_some_and(|call| call.started.is_some())
    }

    /// Gives away what is held behind the arguments of calls but that of `but`, each with the place that the client knows.
    pub(super) fn pass_held(&mut self, but: Option<usize>, mut pass: impl FnMut(u32, Vec<u8>)) {
        for (_, call) in self.0.iter_mut().enumerate().filter(|(at, _)| Some(*at) != but) {
            // Of a call that waits for its name nothing has been passed on.
            if let Some(place) = call.started
                && let Some(held) = call.resent.rest()
            {
                pass(place, held);
            }
        }
    }

    pub(super) fn open(&mut self, index: Option<u64>) -> usize {
        self.0.push(Call { engine_index: index, ..Call::default() });
        self.0.len() - 1
    }
}

impl Call {
    /// Whether an entry with a name and these arguments is of another call, although it has this one's index: this one
    /// is complete, and they are not its arguments once more.
    fn has_others(&self, args: Option<&Text<'_>>) -> bool {
        let begins = |args: &Text<'_>| args.decoded().trim_start().starts_with('{');
        self.arguments.is_closed() && args.is_some_and(|args| begins(args) && !self.resent.is_again(args))
    }

    /// Reads a piece of the arguments. `may_repeat`: the engine may send all of them once more when they are complete.
    pub(super) fn read<'a>(
        &mut self,
        piece: Text<'a>,
        may_repeat: bool,
        tally: &mut Tally,
    ) -> PassedArguments<'a> {
        let second = self.arguments.read(&piece);
        if !may_repeat {
            return PassedArguments { own: Some(piece), ..PassedArguments::default() };
        }
        let Some(end) = second else {
            self.resent.read(&piece);
            return PassedArguments { own: Some(piece), ..PassedArguments::default() };
        };
        let own = piece.first_characters(end);
        self.resent.read(&own);
        let behind = piece.skip_characters(end);
        match self.resent.take(&behind) {
            SecondText::Begun => {}
            SecondText::Same => {
                self.arguments.drop_second();
                tally.count(Rule::ToolArgumentsResent);
            }
            SecondText::Other(Some(held)) => return PassedArguments { own: Some(own), held },
            SecondText::Other(None) => {
                return PassedArguments { own: Some(piece), ..PassedArguments::default() };
            }
        }
        PassedArguments { own: Some(own), ..PassedArguments::default() }
    }

    /// Sends the header and the arguments that waited for it. `place`: choice and slot.
    pub(super) fn start(
        &mut self,
        place: (u32, u32),
        naming: &Naming<'_>,
        riders: &mut Option<Riders<'_>>,
        tally: &mut Tally,
        to: &mut Output<'_>,
    ) {
        let (choice, slot) = place;
        let said = self.engine_id.as_deref().filter(|_| !self.shares_id);
        let id = naming.id(said, choice, slot);
        if said != Some(&id) {
            tally.count(Rule::ToolId);
        }
        let name = self.name.as_deref().unwrap_or_default();
        let start =
            Delta::ToolStart { slot, id: &id, name, namespace: self.namespace.as_deref(), kind: self.kind };
        let usage = riders.as_ref().and_then(|riders| riders.usage.clone());
        to.delta(choice, start, riders.take().unwrap_or_default());
        self.started = Some(slot);
        if let Ok(waiting) = std::str::from_utf8(&self.waiting)
            && !waiting.is_empty()
        {
            let riders = Riders { usage, ..Riders::default() };
            to.delta(choice, Delta::ToolArgs { slot, args: Text::json(waiting) }, riders);
        }
        self.waiting = Vec::new();
    }
}
