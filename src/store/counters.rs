//! Counters: amounts of use within windows of time, for the quotas of client keys.
//!
//! Each writer keeps a row of its own with the total it has counted so far. A write may therefore be repeated, and
//! replicas never wait for each other's rows. The value of a counter is the sum over its writers.

use super::record::Millis;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Identity of a counter: whose use is counted, of what kind, and in which window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// Name of the client key, or of what else uses the quota.
    pub name: Arc<str>,
    /// Kind of use that is counted; the caller gives the number its meaning.
    pub kind: u32,
    /// Start of the window.
    pub begins: Millis,
}

/// Amount of a counter, as one writer has stored it or as the sum over several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Counter that the amount belongs to.
    pub counter: Counter,
    /// End of the window. The counter is removed some time after it.
    pub ends: Millis,
    /// Total of everything counted in the window.
    pub amount: u64,
}

/// Counters of the store in memory.
#[derive(Default)]
pub(super) struct Counters(BTreeMap<(Counter, Arc<str>), (Millis, u64)>);

impl Counters {
    pub(super) fn put(&mut self, writer: &Arc<str>, counts: &[Count]) {
        for Count { counter, ends, amount } in counts {
            let row = self.0.entry((counter.clone(), Arc::clone(writer))).or_insert((*ends, 0));
            row.1 = row.1.max(*amount);
        }
    }

    /// Returns the open counters of these names, each once, with the total of all writers but `besides`.
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
