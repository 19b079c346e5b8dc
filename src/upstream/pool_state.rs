//! State that all upstreams of a pool share, also from one reload to the next.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Ejections, which are limited to half of the pool, and changes of what engines list.
#[derive(Debug, Default)]
pub(super) struct PoolState {
    ejected: AtomicUsize,
    most_ejected: AtomicUsize,
    lists: AtomicU64,
}

impl PoolState {
    /// Sets the number of upstreams, of which half may be ejected.
    pub(super) fn resize(&self, upstreams: usize) {
        self.most_ejected.store(upstreams / 2, Ordering::Relaxed);
    }

    /// Counts one more ejected upstream; false if there are as many as may be.
    pub(super) fn try_eject(&self) -> bool {
        let may = |now| (now < self.most_ejected.load(Ordering::Relaxed)).then_some(now + 1);
        self.ejected
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, may)
            .is_ok()
    }

    /// Counts one ejected upstream less.
    pub(super) fn readmit(&self) {
        self.ejected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of ejected upstreams.
    #[cfg(test)]
    pub(super) fn ejected(&self) -> usize {
        self.ejected.load(Ordering::Relaxed)
    }

    /// Notes that an engine lists other models than before. The list must be in place already.
    pub(super) fn note_new_list(&self) {
        self.lists.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that changes with every list. Values derived from earlier lists are out of date afterwards.
    pub(super) fn lists(&self) -> u64 {
        self.lists.load(Ordering::Acquire)
    }
}
