//! Batches that this process runs, and the signals by which other tasks end them.

use crate::server::admit::batch_line::LineStart;
use crate::server::task_registry::{TaskEntry, TaskRegistry};
use crate::store::Key;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Batches of this process, with the number of lines that run.
#[derive(Default)]
pub(in crate::server) struct Batches {
    wake: Notify,
    pub(super) running: Arc<TaskRegistry<BatchSignals>>,
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
        self.running.count()
    }

    /// Returns the number of lines that run.
    pub(super) fn lines(&self) -> usize {
        self.lines.load(Ordering::Relaxed)
    }

    /// Returns the number of lines that have no upstream yet.
    pub(super) fn starting(&self) -> usize {
        self.starting.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self, key: &Key, term: u64) -> TaskEntry<BatchSignals> {
        let (entry, before) = self.running.begin(
            key,
            BatchSignals {
                term,
                ..BatchSignals::default()
            },
        );
        before
            .iter()
            .for_each(|before| before.lost.store(true, Ordering::Relaxed));
        entry
    }

    /// Takes a slot for one more line, if fewer than `most` run. `seed` is [`LineStart::seed`].
    pub(super) fn line(self: &Arc<Self>, most: usize, seed: u64) -> Option<LineSlot> {
        let room = |lines: usize| (lines < most).then_some(lines + 1);
        let taken = self
            .lines
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.ok()?;
        Some(LineSlot {
            batches: Arc::clone(self),
            start: Arc::new(LineStart::begin(&self.starting, seed)),
        })
    }
}
