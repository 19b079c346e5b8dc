//! Tool calls of one choice: which call an entry of the engine belongs to, and the header that the client gets of it.

use super::Output;
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
    /// Arguments that came before the name, in JSON spelling.
    pub(super) waiting: Vec<u8>,
    pub(super) arguments: Arguments,
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

    /// Which call an entry belongs to (2.5 rule 2); a new one is appended.
    pub(super) fn slot(&mut self, index: Option<u64>, id: Option<&str>, named: bool) -> usize {
        let known = match index {
            Some(_) => self.0.iter().rposition(|call| call.engine_index == index).filter(|at| {
                let recorded = self.0.get(*at).and_then(|call| call.engine_id.as_deref());
                let other = id.zip(recorded).is_some_and(|(id, recorded)| id != recorded);
                !(other && named)
            }),
            None => {
                match id.and_then(|id| self.0.iter().position(|call| call.engine_id.as_deref() == Some(id))) {
                    Some(at) => Some(at),
                    None if id.is_some() || named => None,
                    None => self.0.len().checked_sub(1),
                }
            }
        };
        known.unwrap_or_else(|| self.open(index))
    }

    pub(super) fn open(&mut self, index: Option<u64>) -> usize {
        self.0.push(Call { engine_index: index, ..Call::default() });
        self.0.len() - 1
    }
}

impl Call {
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
        let id = naming.id(self.engine_id.as_deref(), choice, slot);
        if self.engine_id.as_deref() != Some(&id) {
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
