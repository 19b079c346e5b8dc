//! Memory limits for requests: for all their bodies together, and for the process as a whole (faults O11).
//!
//! Gives: a [`BudgetShare`] of the bytes for each body, before it is read. Remembers: the bytes taken, and whether
//! memory is short. Never: affects running requests.

use super::memory::MemorySource;
use crate::config::Limits;
use crate::telemetry::{Gauge, Metrics};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Default limit for all bodies in bytes, unless memory is less than four times that.
const BODIES: usize = 256 << 20;
/// Bytes that a body without a declared length takes at a time.
const STEP: usize = 64 << 10;
/// Interval at which the memory of the process is checked.
const LOOK: Duration = Duration::from_millis(250);
/// Used memory from which new requests are refused, in percent of the limit.
const SHORT: u64 = 85;

/// Size from which a buffer no longer grows by doubling, in bytes.
const LARGE: usize = 1 << 20;

/// Reserves room for `more` bytes in a buffer of at most `limit`. A large buffer gets room for all that may come:
/// unwritten pages take no memory, and the buffer is not copied each time it grows.
pub(in crate::server) fn make_room(buffer: &mut BytesMut, more: usize, limit: usize) {
    let length = buffer.len() + more;
    if length > LARGE && length > buffer.capacity() {
        // A read may exceed the limit before it is refused.
        buffer.reserve((limit.saturating_sub(buffer.len()) + STEP).max(more));
    }
}

/// Budget of bytes for the bodies of all requests, which keeps clients from exhausting the memory.
pub(in crate::server) struct Budget {
    most: usize,
    taken: AtomicUsize,
    /// Bytes of these that work which can wait has taken.
    spare: AtomicUsize,
    memory: Option<MemorySource>,
    short: AtomicBool,
    shown: Arc<Gauge>,
}

impl Budget {
    pub(in crate::server) fn new(limits: &Limits, metrics: &Metrics) -> Arc<Self> {
        let memory = MemorySource::of(limits);
        let quarter = memory
            .as_ref()
            .and_then(MemorySource::limit)
            .map_or(usize::MAX, |limit| {
                usize::try_from(limit / 4).unwrap_or(usize::MAX)
            });
        let most = match limits.bodies_in_flight_bytes {
            0 => BODIES.min(quarter),
            given => given,
        };
        let shown = Arc::clone(&metrics.bodies);
        Arc::new(Self {
            most,
            taken: AtomicUsize::new(0),
            spare: AtomicUsize::new(0),
            memory,
            short: AtomicBool::new(false),
            shown,
        })
    }

    /// Returns the limit in bytes.
    pub(in crate::server) fn most(&self) -> usize {
        self.most
    }

    /// Returns true if memory is so short that it is needed for running requests.
    pub(in crate::server) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Takes bytes from the budget until the share is dropped. Fails if the budget is exhausted.
    pub(in crate::server) fn share(self: &Arc<Self>, bytes: usize) -> Result<BudgetShare, Failure> {
        let mut share = BudgetShare {
            budget: Arc::clone(self),
            bytes: 0,
            spare: 0,
        };
        share.take(bytes)?;
        Ok(share)
    }

    /// Takes bytes for work that can wait, such as downloads and the lines of batches: they have one half of the budget at
    /// most, and leave the other to requests. Returns `None` if there is no room. More bytes than that half take all
    /// of it.
    pub(in crate::server) fn spare(self: &Arc<Self>, bytes: usize) -> Option<BudgetShare> {
        let half = self.most / 2;
        let bytes = bytes.min(half);
        let fits = |taken: usize| taken.checked_add(bytes).filter(|all| *all <= half);
        self.spare
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        let mut share = BudgetShare {
            budget: Arc::clone(self),
            bytes: 0,
            spare: bytes,
        };
        share.take(bytes).is_ok().then_some(share)
    }

    /// Checks the memory of the process periodically, without end.
    pub(in crate::server) async fn watch(&self) {
        let Some(memory) = &self.memory else { return };
        loop {
            let short = memory.used_of_limit().is_some_and(|(used, limit)| {
                used.saturating_mul(100) >= limit.saturating_mul(SHORT)
            });
            if self.short.swap(short, Ordering::Relaxed) != short {
                let what = if short {
                    "memory is short: new requests are refused"
                } else {
                    "memory suffices again"
                };
                tracing::warn!("{what}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Part of the budget that one request holds, returned when dropped.
pub(in crate::server) struct BudgetShare {
    budget: Arc<Budget>,
    bytes: usize,
    /// Bytes of these that count as spare.
    spare: usize,
}

impl BudgetShare {
    fn take(&mut self, more: usize) -> Result<(), Failure> {
        let budget = &self.budget;
        let fits = |taken: usize| taken.checked_add(more).filter(|all| *all <= budget.most);
        if budget
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_err()
        {
            let message = "The proxy is at its limit of request bodies in memory.";
            return Err(Failure::from(Fault::Overloaded).with_message(message));
        }
        self.bytes += more;
        budget.shown.add(i64::try_from(more).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Enlarges the share to at least `bytes` in all. Fails if the budget is exhausted.
    pub(in crate::server) fn reach(&mut self, bytes: usize) -> Result<(), Failure> {
        match bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            Some(more) => self.take(more.max(STEP.min(self.budget.most / 16))),
            None => Ok(()),
        }
    }

    /// Ties the bytes to their share: it is returned when the last copy of them is dropped.
    pub(in crate::server) fn hold(share: &Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes(bytes, Arc::clone(share)))
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.spare.fetch_sub(self.spare, Ordering::Relaxed);
        self.budget
            .shown
            .add(-i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}

struct HeldBytes(
    Bytes,
    #[expect(dead_code, reason = "it is held for its drop")] Arc<BudgetShare>,
);

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
