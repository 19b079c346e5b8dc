//! Counters: how much of something was used in a window of time.
//!
//! Each writer keeps a row of its own with all that it has counted so far, so a write may be tried again, and replicas
//! never wait for each other's rows. A counter's value is the sum over its writers.

use super::record::{Caps, Error, Millis};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// Whose use it counts.
    pub name: Arc<str>,
    /// Kind of what is counted: a number that the caller gives a meaning.
    pub kind: u32,
    /// Beginning of its window.
    pub begins: Millis,
}

/// The amount of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The counter.
    pub counter: Counter,
    /// End of its window. The counter is removed some time after that.
    pub ends: Millis,
    /// The sum of all that was counted.
    pub amount: u64,
}

/// The counters of a store in memory.
#[derive(Default)]
pub(super) struct Counters(BTreeMap<(Counter, Arc<str>), (Millis, u64)>);

impl Counters {
    pub(super) fn put(&mut self, writer: &Arc<str>, counts: &[Count]) {
        for Count { counter, ends, amount } in counts {
            let row = self.0.entry((counter.clone(), Arc::clone(writer))).or_insert((*ends, 0));
            row.1 = row.1.max(*amount);
        }
    }

    /// Returns the open counters of these names, each once, with what all writers but `besides` have counted.
    pub(super) fn of_others(&self, names: &[Arc<str>], besides: &Arc<str>, now: Millis) -> Vec<Count> {
        let mut found: Vec<Count> = Vec::new();
        for name in names {
            let first = Counter { name: Arc::clone(name), kind: 0, begins: 0 };
            let rows =
                self.0.range((first, Arc::from(""))..).take_while(|((counter, _), _)| counter.name == *name);
            for ((counter, writer), (ends, amount)) in rows {
                if writer == besides || *ends <= now {
                    continue;
                }
                match found.last_mut().filter(|last| last.counter == *counter) {
                    Some(last) => last.amount = last.amount.saturating_add(*amount),
                    None => found.push(Count { counter: counter.clone(), ends: *ends, amount: *amount }),
                }
            }
        }
        found
    }

    pub(super) fn sweep(&mut self, now: Millis) {
        self.0.retain(|_, (ends, _)| *ends > now);
    }
}

impl super::memory::Memory {
    pub(super) fn put_counts(&mut self, _: &Caps, writer: &Arc<str>, counts: &[Count]) -> Result<(), Error> {
        self.counters.put(writer, counts);
        Ok(())
    }

    pub(super) fn counts_of_others(
        &mut self,
        _: &Caps,
        names: &[Arc<str>],
        besides: &Arc<str>,
        now: &Millis,
    ) -> Result<Vec<Count>, Error> {
        Ok(self.counters.of_others(names, besides, *now))
    }
}
