//! Line of a batch as a request: its client, and its start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Client of a batch, by which its lines are authenticated in place of a key. An extension of the request, which no
/// client can set.
#[derive(Clone)]
pub(in crate::server) struct LineIdentity {
    /// Key of the client, as [`Hash::counters`](crate::auth::Hash::counters) names it; empty if keys were not checked
    /// when the batch was created.
    pub(in crate::server) caller: Arc<str>,
    /// Tenant of the batch.
    pub(in crate::server) tenant: Arc<str>,
}

/// Line that has room and has not been given an upstream yet, where it counts from then on.
pub(in crate::server) struct LineStart {
    /// Number of lines that start here.
    starting: Arc<AtomicUsize>,
    is_over: AtomicBool,
    /// Seed of the choice among the models that the line's name stands for. The check for room has used it.
    pub(in crate::server) seed: u64,
}

impl LineStart {
    pub(in crate::server) fn begin(starting: &Arc<AtomicUsize>, seed: u64) -> Self {
        starting.fetch_add(1, Ordering::Relaxed);
        Self {
            starting: Arc::clone(starting),
            is_over: AtomicBool::new(false),
            seed,
        }
    }

    /// Notes that the line counts at its upstream, or has failed before.
    pub(in crate::server) fn end(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.starting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for LineStart {
    fn drop(&mut self) {
        self.end();
    }
}
