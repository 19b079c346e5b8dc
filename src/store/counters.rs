//! Counters: amounts of use within windows of time, for the quotas of client keys.
//!
//! Each writer keeps its own row with the total it has counted so far. A write may therefore be repeated, and
//! replicas never wait for each other's rows. The value of a counter is the sum over its writers.

use super::record::Millis;
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
