//! What is known of every request on both sides of the proxy.
//!
//! Takes: what clients and engines do. Gives: what an engine did for a request, and generations whose client is gone.
//! Remembers: a request until its client has its verdict and no engine works for it.

use crate::plan::Wrong;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How an attempt ended at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Running,
    /// All of it was written.
    Said,
    Wrong(Wrong),
    /// The engine was restarted.
    Restarted,
    /// The proxy closed the connection.
    Closed,
}

#[derive(Default)]
struct Entry {
    attempts: Vec<Outcome>,
    active: u32,
    /// When the client had what it wanted, or left.
    gone: Option<Instant>,
    /// It has been seen to go on for nobody.
    orphan: bool,
}

#[derive(Default)]
pub(crate) struct Registry {
    entries: Mutex<HashMap<u64, Entry>>,
    /// Requests that clients have sent whole.
    pub(crate) requests: AtomicU64,
    /// Requests that engines have got.
    pub(crate) attempts: AtomicU64,
    pub(crate) active: AtomicU64,
    /// When an engine last said that it has too much to do.
    pushed: Mutex<Option<Instant>>,
    /// Times between a client's leaving and the engine's end.
    lags: Mutex<Vec<Duration>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// A client asks.
    pub(crate) fn asks(&self, id: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        lock(&self.entries).entry(id).or_default();
    }

    /// A client has its end, or leaves; gives what engines did for it. `waits`: it is made for a client that waits for it,
    /// and for nobody when that has left.
    pub(crate) fn leaves(&self, id: u64, waits: bool) -> Vec<Outcome> {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&id) else { return Vec::new() };
        entry.gone = waits.then(Instant::now);
        let attempts = entry.attempts.clone();
        if entry.active == 0 {
            entries.remove(&id);
        }
        attempts
    }

    /// Whether an engine works for it.
    pub(crate) fn works(&self, id: u64) -> bool {
        lock(&self.entries).get(&id).is_some_and(|entry| entry.active > 0)
    }

    /// An engine begins; gives the number of this attempt.
    pub(crate) fn begins(&self, id: u64) -> usize {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        let mut entries = lock(&self.entries);
        // A client that is forgotten already has left while the request was under way.
        let entry =
            entries.entry(id).or_insert_with(|| Entry { gone: Some(Instant::now()), ..Entry::default() });
        entry.attempts.push(Outcome::Running);
        entry.active += 1;
        entry.attempts.len() - 1
    }

    pub(crate) fn becomes(&self, id: u64, attempt: usize, outcome: Outcome) {
        let mut entries = lock(&self.entries);
        let Some(place) = entries.get_mut(&id).and_then(|entry| entry.attempts.get_mut(attempt)) else {
            return;
        };
        // A close is what follows when something was wrong, or all had been said.
        if outcome != Outcome::Closed || *place == Outcome::Running {
            *place = outcome;
        }
    }

    /// An engine pushes back.
    pub(crate) fn pushes(&self) {
        *lock(&self.pushed) = Some(Instant::now());
    }

    /// Whether one has done so since then, or so shortly before that it is still left alone.
    pub(crate) fn pushed_since(&self, then: Instant) -> bool {
        lock(&self.pushed).is_some_and(|at| at + Duration::from_secs(2) > then)
    }

    /// An engine does nothing more for it.
    pub(crate) fn ends(&self, id: u64) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&id) else { return };
        entry.active -= 1;
        if let Some(gone) = entry.gone {
            lock(&self.lags).push(gone.elapsed());
            if entry.active == 0 {
                entries.remove(&id);
            }
        }
    }

    /// Requests that engines work for although their client has been gone for longer than this, and were not counted yet.
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

    /// The time in which 99 of 100 generations ended for which nobody waited any more, the longest, and how many there were.
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
