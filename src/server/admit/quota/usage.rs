//! Usage of keys in the current day and month, shared with other processes through the store.
//!
//! Takes: the cost of requests. Gives: the usage of a key, for other processes as of about a second ago.
//! Remembers: the counts of this process, written to the store once a second and at the end of the process, and
//! the counts of others as last read. Never: makes a request wait for a write, counts a repeated write twice,
//! refuses a request because the store is unavailable.

use super::window::{Period, Window};
use crate::auth::Hash;
use crate::server::storage::store_handle::StoreHandle;
use crate::store::{Count, Counter, Millis, Store, StoreError};
use crate::telemetry::Metrics;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of exchanges with the store: own counts are written, those of other processes read.
pub(in crate::server) const SYNC: Duration = Duration::from_secs(1);
/// Age from which the counts of other processes are too old and a request waits until they are read again. Only
/// the first request after a pause does.
const FRESH: Duration = Duration::from_secs(5);
/// Time after a failure of the store during which no request waits for it.
const RETRY: Duration = Duration::from_secs(5);
/// Counts of ended windows that are kept for a store that is unavailable.
const LATE: usize = 64;
/// Time for which the counts of others are read on after the last request of a key with shared limits of a minute.
/// Usage by others before that is refilled by now.
const RECENT: Duration = Duration::from_secs(60);
/// Keys that are read and written together.
const TOGETHER: usize = 256;

/// Number of requests and tokens, counted together for a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) requests: u64,
    pub(super) tokens: u64,
}

impl Amounts {
    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }
}

/// Counts of one key in one window, those of this process apart from those of others.
#[derive(Clone, Copy, Debug, Default)]
struct WindowTally {
    window: Window,
    /// Total counted by this process.
    own: Amounts,
    /// Part of `own` that is in the store.
    stored: Amounts,
    /// Counts of other processes as last read.
    others: Amounts,
}

/// Kinds of counters in the store. These numbers are stored and must never change.
const KINDS: [(u32, Period, Unit); 6] = [
    (0, Period::Day, Unit::Requests),
    (1, Period::Day, Unit::Tokens),
    (2, Period::Month, Unit::Requests),
    (3, Period::Month, Unit::Tokens),
    (4, Period::Rate, Unit::Requests),
    (5, Period::Rate, Unit::Tokens),
];

#[derive(Clone, Copy)]
enum Unit {
    Requests,
    Tokens,
}

impl Unit {
    fn of(self, amounts: &mut Amounts) -> &mut u64 {
        match self {
            Self::Requests => &mut amounts.requests,
            Self::Tokens => &mut amounts.tokens,
        }
    }
}

/// Usage of one key, shared by the requests of the key and the task that synchronises it with the store.
pub(super) struct KeyUsage {
    /// Name of its counters in the store.
    name: Arc<str>,
    state: Mutex<UsageState>,
    /// Held while a request reads the counts of other processes, so that concurrent requests wait for the same
    /// answer.
    reading: tokio::sync::Mutex<()>,
}

/// Counts of one key, in the current windows and in ended ones that are not stored yet.
#[derive(Default)]
struct UsageState {
    day: WindowTally,
    month: WindowTally,
    /// Counts of limits of a minute.
    rate: WindowTally,
    /// When the counts of others were read that the limits of a minute were last charged with, and these counts.
    charged: Option<(Instant, Amounts)>,
    /// Time of the last request under shared limits of a minute.
    rated: Option<Instant>,
    /// Time since which counts of limits of a minute wait to be stored.
    unstored: Option<Instant>,
    /// Counts of ended windows that are not in the store yet.
    late: Vec<Count>,
    /// Time at which the counts of other processes were last read.
    read: Option<Instant>,
    /// True if the usage was queried since the last exchange with the store.
    queried: bool,
}

impl UsageState {
    fn tally(&mut self, period: Period) -> &mut WindowTally {
        match period {
            Period::Day => &mut self.day,
            Period::Month => &mut self.month,
            Period::Rate => &mut self.rate,
        }
    }

    /// Starts new windows if the current ones have ended at `now`. A time before a window counts as part of it:
    /// windows never go back.
    fn advance(&mut self, name: &Arc<str>, now: Millis) {
        for period in Period::ALL {
            if now < self.tally(period).window.ends {
                continue;
            }
            let due = self.due(name, period);
            self.late.extend(due);
            let excess = self.late.len().saturating_sub(LATE);
            self.late.drain(..excess);
            *self.tally(period) = WindowTally {
                window: period.window(now),
                ..WindowTally::default()
            };
            if let (Period::Rate, Some((_, seen))) = (period, &mut self.charged) {
                *seen = Amounts::default();
            }
        }
    }

    /// Returns the counts of a period's current window that the store does not have yet.
    fn due(&mut self, name: &Arc<str>, period: Period) -> Vec<Count> {
        let WindowTally {
            window,
            mut own,
            mut stored,
            ..
        } = *self.tally(period);
        let kinds = KINDS.iter().filter(|(_, of, _)| *of == period);
        let grown = kinds.filter_map(|(kind, _, unit)| {
            let amount = *unit.of(&mut own);
            let counter = Counter {
                name: Arc::clone(name),
                kind: *kind,
                begins: window.begins,
            };
            (amount > *unit.of(&mut stored)).then_some(Count {
                counter,
                ends: window.ends,
                amount,
            })
        });
        grown.collect()
    }

    /// Finds the amount that a stored count belongs to; `None` if its window is not the current one.
    fn find(
        &mut self,
        counter: &Counter,
        of: impl FnOnce(&mut WindowTally) -> &mut Amounts,
    ) -> Option<&mut u64> {
        let (_, period, unit) = KINDS.iter().find(|(kind, ..)| *kind == counter.kind)?;
        let tally = self.tally(*period);
        (tally.window.begins == counter.begins).then(|| unit.of(of(tally)))
    }
}

impl KeyUsage {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Locks the state, with its windows advanced to `now`.
    fn at(&self, now: Millis) -> MutexGuard<'_, UsageState> {
        let mut state = self.state.lock();
        state.advance(&self.name, now);
        state
    }

    /// Marks the key as queried, so that the next exchange with the store reads the counts of others.
    pub(super) fn mark_queried(&self) {
        self.state.lock().queried = true;
    }

    /// Returns the usage of the current day or month in all processes, and marks the key as queried.
    pub(super) fn used(&self, period: Period, now: Millis) -> (Window, Amounts) {
        let mut state = self.at(now);
        state.queried = true;
        let WindowTally {
            window,
            own,
            others,
            ..
        } = *state.tally(period);
        (window, own.plus(others))
    }

    /// Adds the cost of a request to the day and the month.
    pub(super) fn charge(&self, cost: Amounts, now: Millis) {
        let mut state = self.at(now);
        for period in [Period::Day, Period::Month] {
            let tally = state.tally(period);
            tally.own = tally.own.plus(cost);
        }
    }

    /// Adds what a limit of a minute has counted, for the same limit in other processes.
    pub(super) fn count_rate(&self, cost: Amounts, now: Millis) {
        let mut state = self.at(now);
        state.rate.own = state.rate.own.plus(cost);
        state.unstored.get_or_insert_with(Instant::now);
    }

    /// Returns what other processes have counted for their limits of a minute since the last call. The first call,
    /// and one after a pause of requests or of reads, only notes where they stand: what was used before is refilled.
    pub(super) fn take_foreign(&self, now: Millis) -> Amounts {
        let mut state = self.at(now);
        let last = state.rated.replace(Instant::now());
        let is_paused = last.is_none_or(|last| last.elapsed() >= RECENT);
        let Some(read) = state.read else {
            return Amounts::default();
        };
        let others = state.rate.others;
        match state.charged.replace((read, others)) {
            Some((before, seen))
                if !is_paused && read.saturating_duration_since(before) < RECENT =>
            {
                Amounts {
                    requests: others.requests.saturating_sub(seen.requests),
                    tokens: others.tokens.saturating_sub(seen.tokens),
                }
            }
            _ => Amounts::default(),
        }
    }

    /// Returns true if the processes know each other's counts of limits of a minute: those of others are known here as
    /// of the last seconds, and the own ones were stored then.
    pub(super) fn is_shared(&self) -> bool {
        let is_stored = self
            .state
            .lock()
            .unstored
            .is_none_or(|since| since.elapsed() < FRESH);
        is_stored && self.is_fresh()
    }

    /// Returns true if the counts of other processes are known as of the last seconds.
    pub(super) fn is_fresh(&self) -> bool {
        let state = self.state.lock();
        state.read.is_some_and(|read| read.elapsed() < FRESH)
    }

    /// Returns all counts that the store does not have yet, of current and of ended windows.
    fn unsaved(&self, now: Millis) -> Vec<Count> {
        let mut state = self.at(now);
        let present = Period::ALL
            .map(|period| state.due(&self.name, period))
            .concat();
        [state.late.clone(), present].concat()
    }

    /// Returns true if the key needs an exchange with the store, and clears the mark that it was queried.
    fn is_due(&self, now: Millis) -> bool {
        let unsaved = !self.unsaved(now).is_empty();
        let mut state = self.state.lock();
        let is_recent = state.rated.is_some_and(|rated| rated.elapsed() < RECENT);
        std::mem::take(&mut state.queried) || unsaved || is_recent
    }

    /// Marks counts as stored.
    fn saved(&self, counts: &[Count]) {
        let mut state = self.state.lock();
        let own = counts
            .iter()
            .filter(|count| count.counter.name == self.name);
        for count in own {
            state.late.retain(|late| late != count);
            if let Some(stored) = state.find(&count.counter, |tally| &mut tally.stored) {
                *stored = count.amount.max(*stored);
            }
        }
        // Amounts counted while the others were stored wait from now on.
        let waits = state.rate.own != state.rate.stored;
        state.unstored = waits.then(Instant::now);
    }

    /// Takes over the counts of other processes, read at `at`. Missing counters are 0.
    fn merge_others(&self, counts: &[Count], at: Instant) {
        let mut state = self.state.lock();
        let own = counts
            .iter()
            .filter(|count| count.counter.name == self.name);
        for count in own {
            // Amounts only grow: if two answers arrive out of order, the larger is the later one.
            if let Some(others) = state.find(&count.counter, |tally| &mut tally.others) {
                *others = count.amount.max(*others);
            }
        }
        state.read = state.read.max(Some(at));
    }
}

/// Usage of all keys. It lasts as long as the process and outlives reloads of the configuration.
#[derive(Default)]
pub(in crate::server) struct Usages {
    /// Usage of each key, by the name of its counters. A key that leaves the configuration stays here: it may come
    /// back, and only this process knows its unsaved counts.
    known: Mutex<HashMap<Arc<str>, Arc<KeyUsage>>>,
    /// Time of the store's last failure, until it answers again.
    failed: Mutex<Option<Instant>>,
}

impl Usages {
    /// Returns the usage of a key, empty for a new key.
    pub(super) fn of(&self, hash: &Hash) -> Arc<KeyUsage> {
        let name: Arc<str> = hash.counters().into();
        let mut known = self.known.lock();
        let usage = known
            .entry(name)
            .or_insert_with_key(|name| Arc::new(KeyUsage::new(Arc::clone(name))));
        Arc::clone(usage)
    }

    /// Reads the counts of other processes for a key if the known ones are too old. If the store does not answer,
    /// the request is judged by the known counts.
    pub(super) async fn refresh(
        &self,
        usage: &KeyUsage,
        store_handle: &StoreHandle,
        metrics: &Metrics,
    ) {
        let Some(store) = store_handle.store() else {
            return;
        };
        if usage.is_fresh() || self.has_just_failed() {
            return;
        }
        let _alone = usage.reading.lock().await;
        if usage.is_fresh() || self.has_just_failed() {
            return;
        }
        let at = Instant::now();
        // Advance the windows first, so that the counts read belong to them.
        drop(usage.at(store_handle.now()));
        let read = store.counts_of_others(
            vec![Arc::clone(&usage.name)],
            Arc::clone(&store_handle.owner),
            store_handle.now(),
        );
        let read = read.await.map(|counts| usage.merge_others(&counts, at));
        self.note_outcome(read, metrics);
    }

    /// Exchanges counts with the store for all keys that were charged or queried since the last time. A failed
    /// exchange is repeated the next time.
    pub(in crate::server) async fn sync(&self, store_handle: &StoreHandle, metrics: &Metrics) {
        let now = store_handle.now();
        let due: Vec<_> = {
            let known = self.known.lock();
            known
                .values()
                .filter(|usage| usage.is_due(now))
                .cloned()
                .collect()
        };
        if due.is_empty() || store_handle.is_off() {
            return;
        }
        let Some(store) = store_handle.store() else {
            return self.note_outcome(
                Err(StoreError::Unavailable("it is not open".to_owned())),
                metrics,
            );
        };
        for usages in due.chunks(TOGETHER) {
            let exchanged = exchange(&store, store_handle, usages).await;
            let failed = exchanged.is_err();
            self.note_outcome(exchanged, metrics);
            if failed {
                break;
            }
        }
    }

    fn has_just_failed(&self) -> bool {
        let failed = self.failed.lock();
        failed.is_some_and(|failed| failed.elapsed() < RETRY)
    }

    /// Notes and logs whether the store has answered.
    fn note_outcome(&self, outcome: Result<(), StoreError>, metrics: &Metrics) {
        let now = outcome.is_err().then(Instant::now);
        let before = std::mem::replace(&mut *self.failed.lock(), now);
        if let Err(error) = outcome {
            metrics.quota_failures.add(1);
            if before.is_none() {
                tracing::warn!(%error, "the store does not answer: quotas of a day or a month go by what this process knows, and shared limits of a minute by when_away");
            }
        } else if before.is_some() {
            tracing::info!("quotas of a day or a month are shared through the store again");
        }
    }
}

async fn exchange(
    store: &Store,
    store_handle: &StoreHandle,
    usages: &[Arc<KeyUsage>],
) -> Result<(), StoreError> {
    let (now, at) = (store_handle.now(), Instant::now());
    let counts: Vec<Count> = usages.iter().flat_map(|usage| usage.unsaved(now)).collect();
    if !counts.is_empty() {
        store
            .put_counts(Arc::clone(&store_handle.owner), counts.clone())
            .await?;
        usages.iter().for_each(|usage| usage.saved(&counts));
    }
    let names = usages.iter().map(|usage| Arc::clone(&usage.name)).collect();
    let others = store
        .counts_of_others(names, Arc::clone(&store_handle.owner), now)
        .await?;
    usages
        .iter()
        .for_each(|usage| usage.merge_others(&others, at));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;
    /// Start time of the tests: 2026-11-23 12:00 UTC, in milliseconds.
    const NOON: u64 = 1_795_435_200_000;

    fn cost(requests: u64, tokens: u64) -> Amounts {
        Amounts { requests, tokens }
    }

    fn usage() -> KeyUsage {
        KeyUsage::new("key".into())
    }

    fn amounts(usage: &KeyUsage, now: Millis) -> [(u64, u64); 2] {
        [Period::Day, Period::Month].map(|period| {
            let (_, Amounts { requests, tokens }) = usage.used(period, now);
            (requests, tokens)
        })
    }

    fn told(counts: &[Count]) -> Vec<(u32, u64)> {
        counts
            .iter()
            .map(|count| (count.counter.kind, count.amount))
            .collect()
    }

    #[test]
    fn a_key_that_was_asked_about_is_read_next_time() {
        let usage = usage();
        assert!(!usage.is_due(NOON));
        usage.mark_queried();
        assert!(usage.is_due(NOON));
        assert!(!usage.is_due(NOON), "once");
    }

    #[test]
    fn a_day_begins_anew_and_the_month_goes_on() {
        let usage = usage();
        usage.charge(cost(2, 100), NOON);
        assert_eq!(amounts(&usage, NOON), [(2, 100), (2, 100)]);
        let midnight = NOON + DAY / 2;
        assert_eq!(amounts(&usage, midnight - 1), [(2, 100), (2, 100)]);
        assert_eq!(amounts(&usage, midnight), [(0, 0), (2, 100)]);
        usage.charge(cost(1, 5), midnight);
        assert_eq!(amounts(&usage, midnight), [(1, 5), (3, 105)]);
        // A clock set back a little does not bring the previous day back.
        assert_eq!(amounts(&usage, midnight - 1), [(1, 5), (3, 105)]);
        assert_eq!(amounts(&usage, NOON + 10 * DAY), [(0, 0), (0, 0)]);
    }

    #[test]
    fn the_store_is_told_all_once() {
        let usage = usage();
        assert!(!usage.is_due(NOON), "nobody has asked");
        usage.charge(cost(1, 10), NOON);
        let first = usage.unsaved(NOON);
        assert_eq!(told(&first), [(0, 1), (1, 10), (2, 1), (3, 10)]);
        // More is counted during the write.
        usage.charge(cost(1, 0), NOON);
        usage.saved(&first);
        assert_eq!(told(&usage.unsaved(NOON)), [(0, 2), (2, 2)]);
        usage.saved(&usage.unsaved(NOON));
        assert_eq!(usage.unsaved(NOON), []);
        assert!(!usage.is_due(NOON));
        // Counts of the previous window are written with its own begin.
        usage.charge(cost(1, 0), NOON);
        let late = usage.unsaved(NOON + DAY);
        assert_eq!(told(&late), [(0, 3), (2, 3)]);
        assert_eq!(late[0].counter.begins, NOON - DAY / 2);
        usage.saved(&late);
        assert_eq!(usage.unsaved(NOON + DAY), []);
    }

    #[test]
    fn a_store_that_is_away_for_long_takes_no_memory() {
        let usage = usage();
        for day in 0..1_000 {
            usage.charge(cost(1, 1), NOON + day * DAY);
        }
        assert!(usage.unsaved(NOON + 1_000 * DAY).len() <= LATE + 4);
    }

    #[test]
    fn limits_of_a_minute_are_charged_with_what_others_add() {
        let usage = usage();
        let others = |kind, amount| {
            let Window { begins, ends } = Period::Rate.window(NOON);
            Count {
                counter: Counter {
                    name: "key".into(),
                    kind,
                    begins,
                },
                ends,
                amount,
            }
        };
        let at = Instant::now();
        assert_eq!(usage.take_foreign(NOON), cost(0, 0), "nothing is known");
        usage.merge_others(&[others(4, 100), others(5, 9_000)], at);
        assert_eq!(
            usage.take_foreign(NOON),
            cost(0, 0),
            "what was used before is refilled"
        );
        let second = Duration::from_secs(1);
        usage.merge_others(&[others(4, 103), others(5, 9_500)], at + second);
        assert_eq!(usage.take_foreign(NOON), cost(3, 500));
        assert_eq!(usage.take_foreign(NOON), cost(0, 0), "once");
        usage.merge_others(&[others(4, 500)], at + second + RECENT);
        assert_eq!(usage.take_foreign(NOON), cost(0, 0), "after a pause");
        assert!(usage.is_due(NOON), "it is read as long as requests come");
        // Reads go on for a while after the last request: they make its pause no shorter.
        usage.merge_others(&[others(4, 600)], at + second + RECENT);
        usage.state.lock().rated = Instant::now().checked_sub(RECENT);
        assert_eq!(
            usage.take_foreign(NOON),
            cost(0, 0),
            "after a pause of requests"
        );
        // The process's own are written under their own kinds, and a new day begins at 0.
        usage.count_rate(cost(1, 70), NOON);
        assert_eq!(told(&usage.unsaved(NOON)), [(4, 1), (5, 70)]);
        assert_eq!(amounts(&usage, NOON), [(0, 0), (0, 0)]);
        usage.count_rate(cost(1, 0), NOON + DAY);
        assert_eq!(told(&usage.unsaved(NOON + DAY)), [(4, 1), (5, 70), (4, 1)]);
    }

    /// While the store is read but not written, others do not know what is counted here.
    #[test]
    fn limits_of_a_minute_are_shared_while_both_ways_work() {
        let usage = usage();
        assert!(!usage.is_shared(), "nothing is read");
        usage.merge_others(&[], Instant::now());
        assert!(usage.is_shared());
        usage.count_rate(cost(1, 70), NOON);
        assert!(usage.is_shared(), "it waits for a moment");
        usage.state.lock().unstored = Instant::now().checked_sub(FRESH);
        assert!(!usage.is_shared());
        usage.saved(&usage.unsaved(NOON));
        assert!(usage.is_shared());
    }

    #[test]
    fn what_others_have_counted_is_added() {
        let usage = usage();
        usage.charge(cost(1, 10), NOON);
        let count = |kind, period: Period, amount| {
            let Window { begins, ends } = period.window(NOON);
            Count {
                counter: Counter {
                    name: "key".into(),
                    kind,
                    begins,
                },
                ends,
                amount,
            }
        };
        let other = Count {
            counter: Counter {
                name: "other".into(),
                ..count(0, Period::Day, 0).counter
            },
            ..count(0, Period::Day, 99)
        };
        assert!(!usage.is_fresh());
        let at = Instant::now();
        usage.merge_others(
            &[
                count(0, Period::Day, 5),
                count(3, Period::Month, 1_000),
                count(9, Period::Day, 7),
                other,
            ],
            at,
        );
        assert!(usage.is_fresh());
        assert_eq!(amounts(&usage, NOON), [(6, 10), (1, 1_010)]);
        // A late answer with lower counts changes nothing.
        usage.merge_others(&[count(0, Period::Day, 4)], at);
        assert_eq!(amounts(&usage, NOON), [(6, 10), (1, 1_010)]);
        // Counts of the previous day do not count for the current one.
        usage.merge_others(&[count(0, Period::Day, 50)], at);
        assert_eq!(amounts(&usage, NOON + DAY), [(0, 0), (1, 1_010)]);
        usage.merge_others(&[count(0, Period::Day, 60)], at);
        assert_eq!(amounts(&usage, NOON + DAY), [(0, 0), (1, 1_010)]);
    }
}
