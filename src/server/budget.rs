//! How much memory requests may take: the bodies of all of them together, and what the process has in all (faults O11).
//!
//! Gives: a [`Share`] of the bytes for each body, before it is read. Remembers: how many are taken, and whether memory
//! has run short. Never: touches what runs.

use super::memory::Memory;
use crate::config::Limits;
use crate::telemetry::{Gauge, Metrics};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of all bodies, unless memory is less than four times that.
const BODIES: usize = 256 << 20;
/// Bytes that a body without a declared length takes at once.
const STEP: usize = 64 << 10;
/// How often the process's memory is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// New requests are refused from here on, in hundredths of all memory.
const SHORT: u64 = 85;

/// Bytes of a buffer that grows no more by doubling.
const LARGE: usize = 1 << 20;

/// Makes room in a buffer for so many bytes, of `limit` in all. Once it is large, it gets room for all that may come: a page
/// that nothing is written to takes no memory, and the buffer is not there twice each time that it has to grow.
pub(super) fn make_room(buffer: &mut BytesMut, more: usize, limit: usize) {
    let length = buffer.len() + more;
    if length > LARGE && length > buffer.capacity() {
        // A read may go beyond the limit before it is refused.
        buffer.reserve((limit.saturating_sub(buffer.len()) + STEP).max(more));
    }
}

/// The bytes of all requests' bodies.
pub(super) struct Budget {
    most: usize,
    taken: AtomicUsize,
    memory: Option<Memory>,
    short: AtomicBool,
    shown: Arc<Gauge>,
}

impl Budget {
    pub(super) fn new(limits: &Limits, metrics: &Metrics) -> Arc<Self> {
        let memory = Memory::of(limits);
        let quarter = memory
            .as_ref()
            .and_then(Memory::limit)
            .map_or(usize::MAX, |limit| usize::try_from(limit / 4).unwrap_or(usize::MAX));
        let most = match limits.bodies_in_flight_bytes {
            0 => BODIES.min(quarter),
            given => given,
        };
        let shown = Arc::clone(&metrics.bodies);
        Arc::new(Self { most, taken: AtomicUsize::new(0), memory, short: AtomicBool::new(false), shown })
    }

    /// What there may be at once.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// There is so little memory left that what runs needs it.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// So many bytes, while the share lives.
    pub(super) fn share(self: &Arc<Self>, bytes: usize) -> Result<BudgetShare, Failure> {
        let mut share = BudgetShare { budget: Arc::clone(self), bytes: 0 };
        share.take(bytes)?;
        Ok(share)
    }

    /// Looks at the process's memory, for ever.
    pub(super) async fn watch(&self) {
        let Some(memory) = &self.memory else { return };
        loop {
            let short = memory
                .used_of_limit()
                .is_some_and(|(used, limit)| used.saturating_mul(100) >= limit.saturating_mul(SHORT));
            if self.short.swap(short, Ordering::Relaxed) != short {
                let what =
                    if short { "memory is short: new requests are refused" } else { "memory suffices again" };
                tracing::warn!("{what}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// A part of the budget; given back when dropped.
pub(super) struct BudgetShare {
    budget: Arc<Budget>,
    bytes: usize,
}

impl BudgetShare {
    fn take(&mut self, more: usize) -> Result<(), Failure> {
        let budget = &self.budget;
        let fits = |taken: usize| taken.checked_add(more).filter(|all| *all <= budget.most);
        if budget.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            let message = "The proxy is at its limit of request bodies in memory.";
            return Err(Failure::from(Fault::Overloaded).with_message(message));
        }
        self.bytes += more;
        budget.shown.add(i64::try_from(more).unwrap_or(i64::MAX));
        Ok(())
    }

    /// At least so many bytes in all.
    pub(super) fn reach(&mut self, bytes: usize) -> Result<(), Failure> {
        match bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            Some(more) => self.take(more.max(STEP.min(self.budget.most / 16))),
            None => Ok(()),
        }
    }

    /// The same bytes, which hold their share for as long as they are anywhere.
    pub(super) fn hold(share: &Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held(bytes, Arc::clone(share)))
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.shown.add(-i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}

struct Held(Bytes, #[expect(dead_code, reason = "it is held for its drop")] Arc<BudgetShare>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
