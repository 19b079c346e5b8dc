//! Ring of captured exchanges, bounded in number and in bytes.
//!
//! Remembers: the exchanges that have ended, and how many bytes these and the running ones hold. Never: grants more
//! bytes than the limit; the oldest exchange goes first.

use super::exchange::{Captured, Outcome, RequestInfo};
use super::recording::Recording;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limits of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Exchanges that have ended and are kept.
    pub exchanges: usize,
    /// Bytes of all exchanges, the running ones among them.
    pub bytes: usize,
    /// Bytes of one exchange.
    pub exchange_bytes: usize,
}

/// Condition for requests to be captured; an absent part holds for every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Criteria {
    /// Name of the caller's key.
    pub key: Option<String>,
    /// Model, by the client's name for it.
    pub model: Option<String>,
    /// True: only requests that fail.
    pub only_failures: bool,
}

impl Criteria {
    /// Returns true if a request with these facts may match. A model or a key that is not known yet may.
    pub(super) fn may_match(&self, info: &RequestInfo) -> bool {
        let model = self.model.as_ref().is_none_or(|model| info.model.is_empty() || *model == info.model);
        let key = self.key.as_ref().is_none_or(|key| info.key.as_ref().is_none_or(|known| known == key));
        model && key
    }

    /// Returns true if a request matches that has ended.
    fn matches(&self, info: &RequestInfo, outcome: &Outcome) -> bool {
        let model = self.model.as_ref().is_none_or(|model| *model == info.model);
        let key = self.key.is_none() || self.key == info.key;
        model && key && (!self.only_failures || outcome.is_failure())
    }
}

/// Captured exchanges of the process.
pub struct Ring {
    /// True while the switch is on; read for each request, without a lock.
    is_on: AtomicBool,
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    switch: Option<Switch>,
    ended: VecDeque<Kept>,
    /// Bytes granted to all exchanges.
    used: usize,
}

#[derive(Clone)]
struct Switch {
    criteria: Arc<Criteria>,
    until: Option<Instant>,
}

struct Kept {
    exchange: Arc<Captured>,
    bytes: usize,
}

impl Ring {
    /// Returns an empty ring, which is switched off.
    pub fn new(limits: Limits) -> Arc<Self> {
        let state = State { limits, switch: None, ended: VecDeque::new(), used: 0 };
        Arc::new(Self { is_on: AtomicBool::new(false), state: Mutex::new(state) })
    }

    /// Captures the requests from now on that match, for as long as `time`; `None`: until it is switched off.
    pub fn switch_on(&self, criteria: Criteria, time: Option<Duration>) {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        self.state.lock().switch = Some(Switch { criteria: Arc::new(criteria), until });
        self.is_on.store(true, Ordering::Release);
    }

    /// Captures no further requests. Those that run are captured to their end.
    pub fn switch_off(&self) {
        self.is_on.store(false, Ordering::Release);
        self.state.lock().switch = None;
    }

    /// Returns what is being captured, and for how much longer; `None` while nothing is.
    pub fn switched(&self) -> Option<(Criteria, Option<Duration>)> {
        let switch = self.active()?;
        let left = switch.until.map(|until| until.saturating_duration_since(Instant::now()));
        Some((Criteria::clone(&switch.criteria), left))
    }

    /// Sets other limits, and forgets what they leave no room for.
    pub fn limit(&self, limits: Limits) {
        let mut state = self.state.lock();
        state.limits = limits;
        while state.ended.len() > limits.exchanges || state.used > limits.bytes {
            if !state.forget_oldest() {
                break;
            }
        }
    }

    /// Begins to record a request, if requests are captured or this one asks for it (`is_wanted`).
    pub fn begin(
        self: &Arc<Self>,
        info: impl FnOnce() -> RequestInfo,
        is_wanted: bool,
    ) -> Option<Arc<Recording>> {
        let criteria = match is_wanted {
            true => Arc::new(Criteria::default()),
            false => self.active()?.criteria,
        };
        let info = info();
        let may_match = criteria.may_match(&info);
        may_match.then(|| Arc::new(Recording::begin(Arc::clone(self), criteria, info)))
    }

    /// Returns the exchanges that have ended, the newest first.
    pub fn list(&self) -> Vec<Arc<Captured>> {
        self.state.lock().ended.iter().rev().map(|kept| Arc::clone(&kept.exchange)).collect()
    }

    /// Returns the newest exchange of a request id.
    pub fn find(&self, id: &str) -> Option<Arc<Captured>> {
        let state = self.state.lock();
        let found = state.ended.iter().rev().find(|kept| kept.exchange.info.id == id);
        found.map(|kept| Arc::clone(&kept.exchange))
    }

    /// Forgets all exchanges that have ended. Returns their number.
    pub fn clear(&self) -> usize {
        let mut state = self.state.lock();
        let count = state.ended.len();
        while state.forget_oldest() {}
        count
    }

    /// Returns the bytes that all exchanges hold.
    pub fn used(&self) -> usize {
        self.state.lock().used
    }

    fn active(&self) -> Option<Switch> {
        if !self.is_on.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        let is_over = state.switch.as_ref()?.until.is_some_and(|until| Instant::now() >= until);
        if is_over {
            state.switch = None;
            self.is_on.store(false, Ordering::Release);
        }
        state.switch.clone()
    }

    /// Grants bytes to an exchange that holds `held` already. Forgets the oldest exchanges if there is no other
    /// room. Returns false if there is none.
    pub(super) fn grant(&self, held: usize, more: usize) -> bool {
        let mut state = self.state.lock();
        if held.saturating_add(more) > state.limits.exchange_bytes.min(state.limits.bytes) {
            return false;
        }
        while state.used.saturating_add(more) > state.limits.bytes {
            if !state.forget_oldest() {
                return false;
            }
        }
        state.used += more;
        true
    }

    /// Takes back the bytes of an exchange that is not kept.
    pub(super) fn take_back(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(bytes);
    }

    /// Keeps an exchange that has ended, if it matches.
    pub(super) fn keep(&self, exchange: Captured, bytes: usize, criteria: &Criteria) {
        if !criteria.matches(&exchange.info, &exchange.outcome) {
            return self.take_back(bytes);
        }
        let mut state = self.state.lock();
        while state.ended.len() >= state.limits.exchanges.max(1) {
            state.forget_oldest();
        }
        if state.limits.exchanges == 0 {
            state.used = state.used.saturating_sub(bytes);
            return;
        }
        state.ended.push_back(Kept { exchange: Arc::new(exchange), bytes });
    }
}

impl State {
    /// Forgets the oldest exchange. Returns false if there is none.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.ended.pop_front() else { return false };
        self.used = self.used.saturating_sub(oldest.bytes);
        true
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { exchanges: 3, bytes: 64 << 10, exchange_bytes: 32 << 10 };

    fn info(id: &str, model: &str) -> RequestInfo {
        RequestInfo { id: id.to_owned(), model: model.to_owned(), ..RequestInfo::default() }
    }

    fn capture(ring: &Arc<Ring>, id: &str, model: &str, end: &'static str, body: usize) {
        if let Some(recording) = ring.begin(|| info(id, model), false) {
            recording.body(&vec![b'x'; body]);
            recording.finish(Outcome { end, status: 200, ..Outcome::default() });
        }
    }

    fn ids(ring: &Ring) -> Vec<String> {
        ring.list().iter().map(|exchange| exchange.info.id.clone()).collect()
    }

    #[test]
    fn nothing_is_captured_until_it_is_switched_on() {
        let ring = Ring::new(LIMITS);
        capture(&ring, "a", "m", "complete", 10);
        ring.switch_on(Criteria::default(), None);
        capture(&ring, "b", "m", "complete", 10);
        ring.switch_off();
        capture(&ring, "c", "m", "complete", 10);
        assert_eq!(ids(&ring), ["b"]);
        assert_eq!(ring.switched(), None);
    }

    #[test]
    fn the_switch_ends_with_its_time() {
        let ring = Ring::new(LIMITS);
        ring.switch_on(Criteria::default(), Some(Duration::ZERO));
        capture(&ring, "a", "m", "complete", 10);
        assert_eq!((ids(&ring).len(), ring.switched()), (0, None));
    }

    #[test]
    fn a_request_may_ask_for_it() {
        let ring = Ring::new(LIMITS);
        let recording = ring.begin(|| info("a", "m"), true).unwrap();
        recording.finish(Outcome { end: "complete", status: 200, ..Outcome::default() });
        assert_eq!(ids(&ring), ["a"]);
        assert!(ring.find("a").is_some() && ring.find("b").is_none());
    }

    #[test]
    fn only_what_matches_is_kept() {
        let ring = Ring::new(LIMITS);
        let only = Criteria { model: Some("m".to_owned()), only_failures: true, ..Criteria::default() };
        ring.switch_on(only, None);
        for (id, model, end) in [("a", "m", "complete"), ("b", "m", "error"), ("c", "n", "error")] {
            capture(&ring, id, model, end, 10);
        }
        assert_eq!(ids(&ring), ["b"]);
        assert_eq!(ring.clear(), 1);
        assert_eq!((ids(&ring).len(), ring.used()), (0, 0), "all bytes have come back");
    }

    #[test]
    fn the_oldest_goes_first() {
        let ring = Ring::new(LIMITS);
        ring.switch_on(Criteria::default(), None);
        for id in ["a", "b", "c", "d", "e"] {
            capture(&ring, id, "m", "complete", 10);
        }
        assert_eq!(ids(&ring), ["e", "d", "c"]);
        // Three of these are more than the ring may hold.
        for id in ["f", "g", "h"] {
            capture(&ring, id, "m", "complete", 30_000);
            assert!(ring.used() <= LIMITS.bytes, "{}", ring.used());
        }
        assert_eq!(ids(&ring), ["h", "g"]);
        assert!(ring.list().iter().all(|exchange| !exchange.is_cut));
        ring.limit(Limits { exchanges: 1, ..LIMITS });
        assert_eq!(ids(&ring), ["h"]);
    }

    #[test]
    fn a_long_exchange_is_cut() {
        let ring = Ring::new(LIMITS);
        ring.switch_on(Criteria::default(), None);
        capture(&ring, "a", "m", "complete", 1 << 20);
        let exchange = ring.find("a").unwrap();
        assert!(exchange.is_cut && exchange.request.body.len() <= LIMITS.exchange_bytes);
        assert!(ring.used() <= LIMITS.exchange_bytes);
    }

    #[test]
    fn running_exchanges_share_the_limit() {
        let ring = Ring::new(LIMITS);
        ring.switch_on(Criteria::default(), None);
        let running: Vec<_> = (0..10)
            .filter_map(|at| ring.begin(|| info(&at.to_string(), "m"), false))
            .inspect(|recording| recording.body(&[b'x'; 20_000]))
            .collect();
        assert!(ring.used() <= LIMITS.bytes);
        drop(running);
        assert_eq!(ring.used(), 0, "a recording that is dropped gives its bytes back");
    }
}
