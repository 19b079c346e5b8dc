//! Recording of one request while it runs.
//!
//! Takes: heads and bytes, each at its time. Gives: the exchange, to the ring. Never: grows beyond what the ring has
//! granted. What has no room any more is left out, and the exchange says so.

use super::exchange::{Attempt, Captured, Message, Outcome, Piece, RequestInfo, head_text, redacted};
use super::ring::{Criteria, Ring};
use crate::plan::Route;
use http::HeaderMap;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Bytes that an exchange takes apart from texts and bodies.
const OVERHEAD: usize = 1024;
/// Smallest step by which a list grows, in bytes.
const STEP: usize = 1024;

/// Recording of one request. It is shared by all who see a part of the exchange.
#[derive(Debug)]
pub struct Recording {
    ring: Arc<Ring>,
    criteria: Arc<Criteria>,
    began: Instant,
    draft: Mutex<Draft>,
}

#[derive(Debug)]
struct Draft {
    /// Exchange so far; `None` once it has been handed over, or does not match.
    exchange: Option<Box<Captured>>,
    /// Bytes that the ring has granted.
    held: usize,
}

/// Recorder of one attempt.
#[derive(Clone, Debug)]
pub struct AttemptRecorder {
    recording: Arc<Recording>,
    place: Arc<AttemptPlace>,
}

/// Place of an attempt in its exchange.
#[derive(Debug)]
struct AttemptPlace {
    upstream: Box<str>,
    engine: &'static str,
    /// Route by which the answer is rewritten.
    route: OnceLock<Arc<Route>>,
    /// Number of the attempt in the exchange, once it is there.
    index: OnceLock<usize>,
}

impl Recording {
    /// Begins to record a request, if requests are captured or this one asks for it (`is_wanted`).
    pub fn begin(ring: &Arc<Ring>, info: impl FnOnce() -> RequestInfo, is_wanted: bool) -> Option<Arc<Self>> {
        let criteria = ring.criteria(is_wanted)?;
        let info = info();
        if !criteria.may_match(&info) {
            return None;
        }
        let exchange = Captured::begin(info, SystemTime::now());
        let this = Self {
            ring: Arc::clone(ring),
            criteria,
            began: Instant::now(),
            draft: Mutex::new(Draft { exchange: Some(Box::new(exchange)), held: 0 }),
        };
        this.with(|exchange, room| {
            let texts = exchange.info.id.len() + exchange.info.path.len();
            let _ = room.grant(OVERHEAD + texts, &mut exchange.is_cut);
        });
        Some(Arc::new(this))
    }

    /// Records the client's request line and headers.
    pub fn head(&self, first: &str, headers: &HeaderMap) {
        self.with(|exchange, room| {
            exchange.request.head = room.text(head_text(first, headers), &mut exchange.is_cut);
        });
    }

    /// Records bytes of the client's body.
    pub fn body(&self, bytes: &[u8]) {
        let at = self.began.elapsed();
        self.with(|exchange, room| room.piece(&mut exchange.request, bytes, at, &mut exchange.is_cut));
    }

    /// Records facts that were not known when the request arrived. A request that cannot match any more is
    /// forgotten.
    pub fn update(&self, change: impl FnOnce(&mut RequestInfo)) {
        let mut draft = self.draft.lock();
        let Some(exchange) = &mut draft.exchange else { return };
        change(&mut exchange.info);
        if !self.criteria.may_match(&exchange.info) {
            draft.exchange = None;
            self.ring.take_back(std::mem::take(&mut draft.held));
        }
    }

    /// Returns the recorder of an attempt at an engine. The exchange has the attempt once its request is sent.
    pub fn attempt(self: &Arc<Self>, upstream: &str, engine: &'static str) -> AttemptRecorder {
        let place = AttemptPlace {
            upstream: upstream.into(),
            engine,
            route: OnceLock::new(),
            index: OnceLock::new(),
        };
        AttemptRecorder { recording: Arc::clone(self), place: Arc::new(place) }
    }

    /// Records status line and headers of the answer to the client.
    pub fn answer_head(&self, first: &str, headers: &HeaderMap) {
        self.with(|exchange, room| {
            let text = room.text(head_text(first, headers), &mut exchange.is_cut);
            exchange.answer.get_or_insert_default().head = text;
        });
    }

    /// Records bytes of the answer to the client.
    pub fn answer_body(&self, bytes: &[u8]) {
        let at = self.began.elapsed();
        self.with(|exchange, room| {
            room.piece(exchange.answer.get_or_insert_default(), bytes, at, &mut exchange.is_cut);
        });
    }

    /// Records the outcome. The ring gets the exchange when the last reference to the recording is dropped: bytes
    /// may still be on their way to the client.
    pub fn finish(&self, outcome: Outcome) {
        let took = self.began.elapsed();
        self.with(|exchange, _| (exchange.outcome, exchange.took) = (outcome, took));
    }

    fn with(&self, change: impl FnOnce(&mut Captured, &mut Room<'_>)) {
        let mut draft = self.draft.lock();
        let Draft { exchange: Some(exchange), held } = &mut *draft else { return };
        change(exchange, &mut Room { ring: &self.ring, held });
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Draft { exchange, held } = self.draft.get_mut();
        match exchange.take().filter(|exchange| exchange.outcome.is_known()) {
            // Without any room there is nothing in it, and others must not go for it.
            Some(exchange) if *held > 0 => self.ring.keep(*exchange, *held, &self.criteria),
            _ => self.ring.take_back(*held),
        }
    }
}

impl AttemptRecorder {
    /// Returns the recorder of a further attempt at the same upstream.
    #[must_use]
    pub fn again(&self) -> Self {
        let AttemptPlace { upstream, engine, route, .. } = &*self.place;
        let place =
            AttemptPlace { upstream: upstream.clone(), engine, route: route.clone(), index: OnceLock::new() };
        Self { recording: Arc::clone(&self.recording), place: Arc::new(place) }
    }

    /// Records the route by which the answer is rewritten, before the request is sent. Its vocabulary is left out: it is
    /// large, and the configuration may have another one by now.
    pub fn rewritten_by(&self, route: &Route) {
        let _ = self.place.route.set(Arc::new(Route { vocabulary: None, ..route.clone() }));
    }

    /// Records the request as it is sent. `head` has its lines as HTTP/1.1 spells them.
    pub fn request(&self, head: &[u8], body: &[u8]) {
        self.begin();
        let at = self.recording.began.elapsed();
        self.with(|attempt, room, is_cut| {
            attempt.request.head = room.text(redacted(&String::from_utf8_lossy(head)), is_cut);
            room.piece(&mut attempt.request, body, at, is_cut);
        });
    }

    /// Records further bytes of the request's body.
    pub fn request_body(&self, bytes: &[u8]) {
        let at = self.recording.began.elapsed();
        self.with(|attempt, room, is_cut| room.piece(&mut attempt.request, bytes, at, is_cut));
    }

    /// Records status line and headers of the engine's answer.
    pub fn answer_head(&self, first: &str, headers: &HeaderMap) {
        self.with(|attempt, room, is_cut| {
            attempt.answer.get_or_insert_default().head = room.text(head_text(first, headers), is_cut);
        });
    }

    /// Records bytes of the engine's answer.
    pub fn answer_body(&self, bytes: &[u8]) {
        let at = self.recording.began.elapsed();
        self.with(|attempt, room, is_cut| {
            room.piece(attempt.answer.get_or_insert_default(), bytes, at, is_cut);
        });
    }

    /// Records that the engine's answer is complete.
    pub fn complete(&self) {
        self.with(|attempt, _, _| attempt.is_complete = true);
    }

    /// Adds the attempt to the exchange, unless it is there already.
    fn begin(&self) {
        self.recording.with(|exchange, room| {
            let AttemptPlace { upstream, engine, route, index } = &*self.place;
            if index.get().is_none() && room.grant(OVERHEAD, &mut exchange.is_cut) {
                let _ = index.set(exchange.attempts.len());
                exchange.attempts.push(Attempt {
                    upstream: upstream.to_string(),
                    engine,
                    route: route.get().cloned(),
                    request: Message::default(),
                    answer: None,
                    is_complete: false,
                });
            }
        });
    }

    fn with(&self, change: impl FnOnce(&mut Attempt, &mut Room<'_>, &mut bool)) {
        let Some(index) = self.place.index.get() else { return };
        self.recording.with(|exchange, room| {
            let Captured { attempts, is_cut, .. } = exchange;
            if let Some(attempt) = attempts.get_mut(*index) {
                change(attempt, room, is_cut);
            }
        });
    }
}

/// Room that an exchange has in the ring.
struct Room<'a> {
    ring: &'a Ring,
    held: &'a mut usize,
}

impl Room<'_> {
    /// Asks for bytes. Without them, the exchange is cut.
    fn grant(&mut self, bytes: usize, is_cut: &mut bool) -> bool {
        let granted = self.ring.grant(*self.held, bytes);
        match granted {
            true => *self.held += bytes,
            false => *is_cut = true,
        }
        granted
    }

    fn text(&mut self, text: String, is_cut: &mut bool) -> String {
        if self.grant(text.capacity(), is_cut) { text } else { String::new() }
    }

    /// Appends a piece to a body, if there is room for it. After a cut nothing follows, so that the body has no gap.
    fn piece(&mut self, message: &mut Message, bytes: &[u8], at: Duration, is_cut: &mut bool) {
        if bytes.is_empty() || *is_cut {
            return;
        }
        let has_room = self.reserve(&mut message.pieces, 1) && self.reserve(&mut message.body, bytes.len());
        if !has_room {
            *is_cut = true;
            return;
        }
        message.body.extend_from_slice(bytes);
        message.pieces.push(Piece { at, end: message.body.len() });
    }

    /// Reserves room for so many more elements. The capacity doubles, or grows by as large a part of that as the ring
    /// grants, so that the elements are not copied each time. Returns false if the ring grants too little.
    fn reserve<T>(&mut self, list: &mut Vec<T>, count: usize) -> bool {
        let missing = count.saturating_sub(list.capacity() - list.len());
        if missing == 0 {
            return true;
        }
        let mut more = missing.max(list.capacity()).max(STEP / size_of::<T>());
        while !self.ring.grant(*self.held, more * size_of::<T>()) {
            if more == missing {
                return false;
            }
            more = missing.max(more / 2);
        }
        *self.held += more * size_of::<T>();
        list.reserve_exact(list.capacity() - list.len() + more);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::Limits;
    use super::*;

    const LIMITS: Limits = Limits { exchanges: 3, bytes: 64 << 10, exchange_bytes: 32 << 10 };

    fn info(id: &str, model: &str) -> RequestInfo {
        RequestInfo { id: id.to_owned(), model: model.to_owned(), ..RequestInfo::default() }
    }

    fn capture(ring: &Arc<Ring>, id: &str, model: &str, end: &'static str, body: usize) {
        if let Some(recording) = Recording::begin(ring, || info(id, model), false) {
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
        let recording = Recording::begin(&ring, || info("a", "m"), true).unwrap();
        recording.finish(Outcome { end: "complete", status: 200, ..Outcome::default() });
        assert_eq!(ids(&ring), [""; 0], "the answer is still on its way");
        drop(recording);
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
    fn an_exchange_without_room_takes_no_place() {
        let ring = Ring::new(Limits { exchanges: 2, bytes: 40 << 10, exchange_bytes: 40 << 10 });
        ring.switch_on(Criteria::default(), None);
        let large = Recording::begin(&ring, || info("a", "m"), false).unwrap();
        large.body(&[b'x'; 38 << 10]);
        for id in ["b", "c", "d"] {
            capture(&ring, id, "m", "complete", 10);
        }
        assert_eq!(ids(&ring), [""; 0]);
        large.finish(Outcome { end: "complete", status: 200, ..Outcome::default() });
        drop(large);
        assert_eq!(ids(&ring), ["a"]);
    }

    #[test]
    fn running_exchanges_share_the_limit() {
        let ring = Ring::new(LIMITS);
        ring.switch_on(Criteria::default(), None);
        let running: Vec<_> = (0..10)
            .filter_map(|at| Recording::begin(&ring, || info(&at.to_string(), "m"), false))
            .inspect(|recording| recording.body(&[b'x'; 20_000]))
            .collect();
        assert!(ring.used() <= LIMITS.bytes);
        drop(running);
        assert_eq!(ring.used(), 0, "a recording that is dropped gives its bytes back");
    }

    /// A long answer in small pieces is not copied with each of them, not even near the limit.
    #[test]
    fn a_body_grows_in_few_steps() {
        let limits = Limits { exchanges: 1, bytes: 8 << 20, exchange_bytes: 5 << 20 };
        let ring = Ring::new(limits);
        let recording = Recording::begin(&ring, || info("a", "m"), true).unwrap();
        let mut capacities = std::collections::BTreeSet::new();
        for _ in 0..30_000 {
            recording.body(&[b'x'; 250]);
            recording.with(|exchange, _| _ = capacities.insert(exchange.request.body.capacity()));
            assert!(ring.used() <= limits.exchange_bytes);
        }
        assert!(capacities.len() < 64, "{capacities:?}");
        recording.finish(Outcome { end: "complete", status: 200, ..Outcome::default() });
        drop(recording);
        let exchange = ring.find("a").unwrap();
        assert!(exchange.is_cut && exchange.request.body.len() > 4 << 20, "{}", exchange.request.body.len());
    }
}
