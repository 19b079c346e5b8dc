//! Ring of captured exchanges, bounded in number and in bytes.
//!
//! Remembers: the exchanges that have ended, and how many bytes these and the running ones hold. Never: grants more
//! bytes than the limit; the oldest exchange goes first.

use super::body_log::{BodyLog, BodyPlace};
use super::exchange::{Captured, ExchangeOutcome, RecordedMessage, RecordedPiece, RequestInfo};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limits of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Exchanges that have ended and are kept.
    pub exchanges: usize,
    /// Bytes of all exchanges, the running ones among them.
    pub bytes: usize,
    /// Bytes of one exchange.
    pub exchange_bytes: usize,
}

/// Condition for requests to be captured; an absent field matches every request.
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
    /// Returns true if the request may match. A model or key that is not known yet counts as a match.
    pub(super) fn may_match(&self, info: &RequestInfo) -> bool {
        let model = self
            .model
            .as_ref()
            .is_none_or(|model| info.model.is_empty() || *model == info.model);
        let key = self
            .key
            .as_ref()
            .is_none_or(|key| info.key.as_ref().is_none_or(|known| known == key));
        model && key
    }

    /// Returns true if an ended request matches.
    fn matches(&self, info: &RequestInfo, outcome: &ExchangeOutcome) -> bool {
        let model = self.model.as_ref().is_none_or(|model| *model == info.model);
        let key = self.key.is_none() || self.key == info.key;
        model && key && (!self.only_failures || outcome.is_failure())
    }
}

/// Captured exchanges of the process.
pub struct Ring {
    /// True while the switch is on; read for each request, without a lock.
    is_on: AtomicBool,
    state: Mutex<RingState>,
}

struct RingState {
    limits: CaptureLimits,
    switch: Option<Switch>,
    ended: VecDeque<KeptExchange>,
    /// Bytes granted to all exchanges.
    used: usize,
}

#[derive(Clone)]
struct Switch {
    criteria: Arc<Criteria>,
    until: Option<Instant>,
}

struct KeptExchange {
    exchange: Arc<Recorded>,
    bytes: usize,
}

/// Exchange as the ring keeps it: its facts, and the bytes of all its bodies in the order of their arrival.
#[derive(Debug)]
pub struct Recorded {
    facts: Captured,
    bodies: BodyLog,
}

/// Bytes of the bodies of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyLengths {
    /// Request of the client.
    pub request: usize,
    /// Answer to the client.
    pub answer: usize,
    /// Answer to the last attempt.
    pub last_attempt_answer: usize,
}

impl Recorded {
    pub(super) fn new(facts: Captured, bodies: BodyLog) -> Self {
        Self { facts, bodies }
    }

    /// Returns the exchange without its bodies.
    pub fn facts(&self) -> &Captured {
        &self.facts
    }

    /// Returns the lengths of the bodies.
    pub fn lengths(&self) -> BodyLengths {
        let last = self.facts.attempts.len().saturating_sub(1);
        let mut lengths = BodyLengths::default();
        for entry in self.bodies.entries() {
            match entry.place {
                BodyPlace::Request => lengths.request += entry.bytes.len(),
                BodyPlace::Answer => lengths.answer += entry.bytes.len(),
                BodyPlace::AttemptAnswer(index) if index == last => {
                    lengths.last_attempt_answer += entry.bytes.len();
                }
                _ => {}
            }
        }
        lengths
    }

    /// Returns a copy of the exchange with its bodies.
    pub fn read(&self) -> Captured {
        let mut exchange = self.facts.clone();
        for entry in self.bodies.entries() {
            let message = match entry.place {
                BodyPlace::Request => Some(&mut exchange.request),
                BodyPlace::Answer => Some(exchange.answer.get_or_insert_default()),
                BodyPlace::AttemptRequest(index) => exchange
                    .attempts
                    .get_mut(index)
                    .map(|attempt| &mut attempt.request),
                BodyPlace::AttemptAnswer(index) => {
                    let attempt = exchange.attempts.get_mut(index);
                    attempt.map(|attempt| attempt.answer.get_or_insert_default())
                }
            };
            let Some(RecordedMessage { body, pieces, .. }) = message else {
                continue;
            };
            body.extend_from_slice(entry.bytes);
            match pieces.last_mut().filter(|_| entry.is_rest) {
                Some(piece) => piece.end = body.len(),
                None => pieces.push(RecordedPiece {
                    at: entry.at,
                    end: body.len(),
                }),
            }
        }
        exchange
    }
}

impl Ring {
    /// Returns an empty ring, which is switched off.
    pub fn new(limits: CaptureLimits) -> Arc<Self> {
        let state = RingState {
            limits,
            switch: None,
            ended: VecDeque::new(),
            used: 0,
        };
        Arc::new(Self {
            is_on: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Captures the requests from now on that match, for as long as `time`; `None`: until it is switched off.
    pub fn switch_on(&self, criteria: Criteria, time: Option<Duration>) {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        self.state.lock().switch = Some(Switch {
            criteria: Arc::new(criteria),
            until,
        });
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
        let left = switch
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        Some((Criteria::clone(&switch.criteria), left))
    }

    /// Sets other limits, and forgets what they leave no room for.
    pub fn limit(&self, limits: CaptureLimits) {
        let mut state = self.state.lock();
        state.limits = limits;
        while state.ended.len() > limits.exchanges || state.used > limits.bytes {
            if !state.forget_oldest() {
                break;
            }
        }
    }

    /// Returns the condition for a request to be captured. `is_wanted`: the request asks for it, which holds in any
    /// case. `None`: it is not captured.
    pub(super) fn criteria(&self, is_wanted: bool) -> Option<Arc<Criteria>> {
        if is_wanted {
            Some(Arc::default())
        } else {
            Some(self.active()?.criteria)
        }
    }

    /// Returns the exchanges that have ended, the newest first.
    pub fn list(&self) -> Vec<Arc<Recorded>> {
        self.state
            .lock()
            .ended
            .iter()
            .rev()
            .map(|kept| Arc::clone(&kept.exchange))
            .collect()
    }

    /// Returns the newest exchange of a request id, or the one with this number.
    pub fn find(&self, id: &str, number: Option<u64>) -> Option<Arc<Recorded>> {
        let state = self.state.lock();
        let is_it =
            |info: &RequestInfo| info.id == id && number.is_none_or(|number| number == info.number);
        let found = state
            .ended
            .iter()
            .rev()
            .find(|kept| is_it(&kept.exchange.facts.info));
        found.map(|kept| Arc::clone(&kept.exchange))
    }

    /// Forgets the exchanges of a request id that have ended. Returns their number.
    pub fn forget(&self, id: &str) -> usize {
        let mut state = self.state.lock();
        let RingState { ended, used, .. } = &mut *state;
        let before = ended.len();
        ended.retain(|kept| {
            let stays = kept.exchange.facts.info.id != id;
            if !stays {
                *used = used.saturating_sub(kept.bytes);
            }
            stays
        });
        before - ended.len()
    }

    /// Forgets all exchanges that have ended. Returns their number.
    pub fn clear(&self) -> usize {
        let mut state = self.state.lock();
        let count = state.ended.len();
        while state.forget_oldest() {}
        count
    }

    /// Returns the number of exchanges that have ended and are kept.
    pub fn held(&self) -> usize {
        self.state.lock().ended.len()
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
        let is_over = state
            .switch
            .as_ref()?
            .until
            .is_some_and(|until| Instant::now() >= until);
        if is_over {
            state.switch = None;
            self.is_on.store(false, Ordering::Release);
        }
        state.switch.clone()
    }

    /// Grants bytes to an exchange that holds `held` already. Forgets the oldest exchanges if that makes enough room, else
    /// none. Returns false if there is no room.
    pub(super) fn grant(&self, held: usize, more: usize) -> bool {
        let mut state = self.state.lock();
        if held.saturating_add(more) > state.limits.exchange_bytes.min(state.limits.bytes) {
            return false;
        }
        if state.used.saturating_add(more) > state.limits.bytes {
            let ended: usize = state.ended.iter().map(|kept| kept.bytes).sum();
            if state.used.saturating_sub(ended).saturating_add(more) > state.limits.bytes {
                return false;
            }
            while state.used.saturating_add(more) > state.limits.bytes && state.forget_oldest() {}
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
    pub(super) fn keep(&self, exchange: Recorded, bytes: usize, criteria: &Criteria) {
        if !criteria.matches(&exchange.facts.info, &exchange.facts.outcome) {
            return self.take_back(bytes);
        }
        let mut state = self.state.lock();
        state.ended.push_back(KeptExchange {
            exchange: Arc::new(exchange),
            bytes,
        });
        while state.ended.len() > state.limits.exchanges {
            state.forget_oldest();
        }
    }
}

impl RingState {
    /// Forgets the oldest exchange. Returns false if there is none.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.ended.pop_front() else {
            return false;
        };
        self.used = self.used.saturating_sub(oldest.bytes);
        true
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}
