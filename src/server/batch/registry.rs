//! Batches that this process runs, and the signals by which other tasks end them.

use crate::server::admit::batch_line::LineStart;
use crate::store::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Batches of this process, with the number of lines that run.
#[derive(Default)]
pub(in crate::server) struct Batches {
    wake: Notify,
    running: Mutex<HashMap<Key, Arc<BatchSignals>>>,
    lines: AtomicUsize,
    /// Lines of these that have no upstream yet.
    starting: Arc<AtomicUsize>,
}

/// Signals to the task of one batch.
#[derive(Default)]
pub(super) struct BatchSignals {
    /// Number of the ownership.
    pub(super) term: u64,
    /// True once its client has cancelled the batch.
    pub(super) cancel: AtomicBool,
    /// True once another process owns the batch.
    pub(super) lost: AtomicBool,
}

/// Permission to run one line, given back when dropped.
pub(super) struct LineSlot {
    batches: Arc<Batches>,
    /// The line's start, which its request ends.
    pub(super) start: Arc<LineStart>,
}

impl Drop for LineSlot {
    fn drop(&mut self) {
        self.batches.lines.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Entry of a batch, removed when dropped, however its task ends.
pub(super) struct BatchEntry {
    batches: Arc<Batches>,
    key: Key,
    pub(super) signals: Arc<BatchSignals>,
}

impl Drop for BatchEntry {
    fn drop(&mut self) {
        let mut running = self.batches.running.lock();
        // A later ownership of the same batch has its own entry.
        if running.get(&self.key).is_some_and(|signals| Arc::ptr_eq(signals, &self.signals)) {
            running.remove(&self.key);
        }
    }
}

impl Batches {
    /// Has the store queried for new batches and cancellations soon.
    pub(in crate::server) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Returns the number of batches that run here.
    pub(in crate::server) fn count(&self) -> usize {
        self.running.lock().len()
    }

    /// Returns the number of lines that run.
    pub(super) fn lines(&self) -> usize {
        self.lines.load(Ordering::Relaxed)
    }

    /// Returns the number of lines that have no upstream yet.
    pub(super) fn starting(&self) -> usize {
        self.starting.load(Ordering::Relaxed)
    }

    pub(super) fn begin(self: &Arc<Self>, key: &Key, term: u64) -> BatchEntry {
        let signals = Arc::new(BatchSignals { term, ..BatchSignals::default() });
        let before = self.running.lock().insert(key.clone(), Arc::clone(&signals));
        before.iter().for_each(|before| before.lost.store(true, Ordering::Relaxed));
        BatchEntry { batches: Arc::clone(self), key: key.clone(), signals }
    }

    pub(super) fn all(&self) -> Vec<(Key, Arc<BatchSignals>)> {
        self.running.lock().iter().map(|(key, signals)| (key.clone(), Arc::clone(signals))).collect()
    }

    /// Takes a slot for one more line, if fewer than `most` run. `seed` is [`LineStart::seed`].
    pub(super) fn line(self: &Arc<Self>, most: usize, seed: u64) -> Option<LineSlot> {
        let room = |lines: usize| (lines < most).then_some(lines + 1);
        let taken = self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.ok()?;
        Some(LineSlot { batches: Arc::clone(self), start: Arc::new(LineStart::begin(&self.starting, seed)) })
    }
}
