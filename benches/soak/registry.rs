//! Registry of every request, as seen on both sides of the proxy.
//!
//! Takes: events from clients and engines. Gives: the outcome of each attempt at an engine, and generations whose
//! client is gone. Remembers: a request until its client is finished with it and no engine works for it.

use crate::plan::EngineFault;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Outcome of an attempt, as the engine saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Running,
    /// The whole answer was written.
    Complete,
    Wrong(EngineFault),
    /// The engine was restarted.
    Restarted,
    /// The proxy closed the connection.
    Closed,
}

#[derive(Default)]
struct Entry {
    attempts: Vec<Outcome>,
    active: u32,
    /// Time at which the client was finished or left.
    gone: Option<Instant>,
    /// True once the generation has been counted as orphaned.
    orphan: bool,
}

#[derive(Default)]
pub(crate) struct Registry {
    entries: Mutex<HashMap<u64, Entry>>,
    /// Requests that clients have sent completely.
    pub(crate) requests: AtomicU64,
    /// Requests that engines have received.
    pub(crate) attempts: AtomicU64,
    pub(crate) active: AtomicU64,
    /// Time at which an engine last refused a request as overloaded.
    pushed: Mutex<Option<Instant>>,
    /// Delays from a client's leaving to the end of the generation.
    lags: Mutex<Vec<Duration>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Records that a client sends a request.
    pub(crate) fn asks(&self, id: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        lock(&self.entries).entry(id).or_default();
    }

    /// Records that a client is finished or has left, and returns the outcomes of all attempts. `waits` is true if
    /// the generation serves a waiting client and becomes pointless without it.
    pub(crate) fn leaves(&self, id: u64, waits: bool) -> Vec<Outcome> {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&id) else {
            return Vec::new();
        };
        entry.gone = waits.then(Instant::now);
        let attempts = entry.attempts.clone();
        if entry.active == 0 {
            entries.remove(&id);
        }
        attempts
    }

    /// Returns true if an engine works on the request.
    pub(crate) fn works(&self, id: u64) -> bool {
        lock(&self.entries)
            .get(&id)
            .is_some_and(|entry| entry.active > 0)
    }

    /// Records that an engine starts an attempt, and returns the attempt's number.
    pub(crate) fn begins(&self, id: u64) -> usize {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        let mut entries = lock(&self.entries);
        // An unknown request belongs to a client that left while its request was being sent.
        let entry = entries.entry(id).or_insert_with(|| Entry {
            gone: Some(Instant::now()),
            ..Entry::default()
        });
        entry.attempts.push(Outcome::Running);
        entry.active += 1;
        entry.attempts.len() - 1
    }

    pub(crate) fn becomes(&self, id: u64, attempt: usize, outcome: Outcome) {
        let mut entries = lock(&self.entries);
        let Some(place) = entries
            .get_mut(&id)
            .and_then(|entry| entry.attempts.get_mut(attempt))
        else {
            return;
        };
        // A close after another outcome is only its consequence.
        if outcome != Outcome::Closed || *place == Outcome::Running {
            *place = outcome;
        }
    }

    /// Records that an engine refused a request as overloaded.
    pub(crate) fn pushes(&self) {
        *lock(&self.pushed) = Some(Instant::now());
    }

    /// Returns true if an engine refused after `then`, or so shortly before that the proxy still spares it.
    pub(crate) fn pushed_since(&self, then: Instant) -> bool {
        lock(&self.pushed).is_some_and(|at| at + Duration::from_secs(2) > then)
    }

    /// Records that an engine has ended its work on the request.
    pub(crate) fn ends(&self, id: u64) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&id) else {
            return;
        };
        entry.active -= 1;
        if let Some(gone) = entry.gone {
            lock(&self.lags).push(gone.elapsed());
            if entry.active == 0 {
                entries.remove(&id);
            }
        }
    }

    /// Counts requests that an engine still works on although the client has been gone for longer than `limit`.
    /// Each request is counted once.
    pub(crate) fn orphans(&self, limit: Duration) -> u64 {
        let mut count = 0;
        for entry in lock(&self.entries).values_mut() {
            let late = entry.active > 0 && entry.gone.is_some_and(|gone| gone.elapsed() > limit);
            if late && !entry.orphan {
                entry.orphan = true;
                count += 1;
            }
        }
        count
    }

    /// Returns the 99th percentile and the maximum of the time in which orphaned generations ended, and their
    /// number.
    pub(crate) fn lag(&self) -> (Duration, Duration, usize) {
        let mut lags = lock(&self.lags).clone();
        lags.sort();
        let at = |share: f64| {
            lags.get((lags.len() as f64 * share) as usize)
                .or_else(|| lags.last())
                .copied()
                .unwrap_or_default()
        };
        (at(0.99), at(1.0), lags.len())
    }
}
