//! Recording of one request while it runs.
//!
//! Takes: heads and bytes, each at its time. Gives: the exchange, to the ring. Never: grows beyond what the ring has
//! granted. Parts without room are left out, and the exchange says so.

use super::body_log::{BodyLog, BodyPlace};
use super::exchange::{
    Captured, ExchangeOutcome, RecordedAttempt, RecordedMessage, RequestInfo, head_text, redacted,
};
use super::ring::{Criteria, Recorded, Ring};
use crate::plan::Route;
use crate::request::EngineBody;
use http::HeaderMap;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

/// Bytes that an exchange takes apart from texts and bodies.
const OVERHEAD: usize = 1024;

/// Recording of one request. It is shared by all who see a part of the exchange.
#[derive(Debug)]
pub struct Recording {
    ring: Arc<Ring>,
    criteria: Arc<Criteria>,
    began: Instant,
    state: Mutex<RecordedFacts>,
}

#[derive(Debug)]
struct RecordedFacts {
    /// Exchange so far, without its bodies; `None` once it has been handed over, or does not match.
    facts: Option<Box<Captured>>,
    bodies: BodyLog,
    memory: MemoryReservation,
}

/// Bytes that the ring has granted to an exchange.
#[derive(Debug, Default)]
struct MemoryReservation {
    held: usize,
    /// True once the ring has refused some. No body goes on after that, so that it has no gap.
    is_cut: bool,
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

/// Recorder of the answer to an attempt.
#[derive(Debug)]
pub struct AnswerRecorder {
    recording: Arc<Recording>,
    /// Number of the attempt in the exchange.
    index: usize,
}

impl Recording {
    /// Begins to record a request, if requests are captured or this one asks for it (`is_wanted`).
    pub fn begin(
        ring: &Arc<Ring>,
        info: impl FnOnce() -> RequestInfo,
        is_wanted: bool,
    ) -> Option<Arc<Self>> {
        let criteria = ring.criteria(is_wanted)?;
        let info = info();
        if !criteria.may_match(&info) {
            return None;
        }
        let mut memory = MemoryReservation::default();
        memory.reserve(ring, OVERHEAD + info.id.len() + info.path.len());
        let facts = Some(Box::new(Captured::begin(info, SystemTime::now())));
        Some(Arc::new(Self {
            ring: Arc::clone(ring),
            criteria,
            began: Instant::now(),
            state: Mutex::new(RecordedFacts {
                facts,
                bodies: BodyLog::default(),
                memory,
            }),
        }))
    }

    /// Records the client's request line and headers.
    pub fn head(&self, first: &str, headers: &HeaderMap) {
        let text = head_text(first, headers);
        self.with(|facts, memory| facts.request.head = memory.text(&self.ring, text));
    }

    /// Records bytes of the client's body.
    pub fn body(&self, bytes: &[u8]) {
        self.push(BodyPlace::Request, bytes);
    }

    /// Records facts that were not known when the request arrived. A request that cannot match any more is
    /// forgotten.
    pub fn update(&self, change: impl FnOnce(&mut RequestInfo)) {
        let mut state = self.state.lock();
        let Some(facts) = &mut state.facts else {
            return;
        };
        change(&mut facts.info);
        if !self.criteria.may_match(&facts.info) {
            state.facts = None;
            state.bodies = BodyLog::default();
            self.ring.take_back(std::mem::take(&mut state.memory.held));
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
        AttemptRecorder {
            recording: Arc::clone(self),
            place: Arc::new(place),
        }
    }

    /// Records status line and headers of the answer to the client.
    pub fn answer_head(&self, first: &str, headers: &HeaderMap) {
        let text = head_text(first, headers);
        self.with(|facts, memory| {
            facts.answer.get_or_insert_default().head = memory.text(&self.ring, text)
        });
    }

    /// Records bytes of the answer to the client.
    pub fn answer_body(&self, bytes: &[u8]) {
        self.push(BodyPlace::Answer, bytes);
    }

    /// Records the outcome. The ring gets the exchange when the last reference to the recording is dropped: bytes
    /// may still be on their way to the client.
    pub fn finish(&self, outcome: ExchangeOutcome) {
        let took = self.began.elapsed();
        self.with(|facts, _| (facts.outcome, facts.took) = (outcome, took));
    }

    fn with(&self, change: impl FnOnce(&mut Captured, &mut MemoryReservation)) {
        let mut state = self.state.lock();
        let RecordedFacts {
            facts: Some(facts),
            memory,
            ..
        } = &mut *state
        else {
            return;
        };
        change(facts, memory);
    }

    fn push(&self, place: BodyPlace, bytes: &[u8]) {
        let at = self.began.elapsed();
        let mut state = self.state.lock();
        let RecordedFacts {
            facts: Some(_),
            bodies,
            memory,
        } = &mut *state
        else {
            return;
        };
        if !memory.is_cut {
            let MemoryReservation { held, is_cut } = memory;
            let grant = |more| {
                let is_granted = self.ring.grant(*held, more);
                *held += if is_granted { more } else { 0 };
                is_granted
            };
            *is_cut = !bodies.push(place, at, bytes, grant);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let RecordedFacts {
            facts,
            bodies,
            memory,
        } = self.state.get_mut();
        match facts.take().filter(|facts| facts.outcome.is_known()) {
            // Without any room there is nothing in it, and others must not go for it.
            Some(mut facts) if memory.held > 0 => {
                facts.is_cut = memory.is_cut;
                self.ring.keep(
                    Recorded::new(*facts, std::mem::take(bodies)),
                    memory.held,
                    &self.criteria,
                );
            }
            _ => self.ring.take_back(memory.held),
        }
    }
}

impl AttemptRecorder {
    /// Returns the recorder of a further attempt at the same upstream.
    #[must_use]
    pub fn again(&self) -> Self {
        let AttemptPlace {
            upstream,
            engine,
            route,
            ..
        } = &*self.place;
        let place = AttemptPlace {
            upstream: upstream.clone(),
            engine,
            route: route.clone(),
            index: OnceLock::new(),
        };
        Self {
            recording: Arc::clone(&self.recording),
            place: Arc::new(place),
        }
    }

    /// Records the route by which the answer is rewritten, before the request is sent. Its vocabulary is left out: it is
    /// large, and the configuration may have another one by now.
    pub fn rewritten_by(&self, route: &Route) {
        let _ = self.place.route.set(Arc::new(Route {
            vocabulary: None,
            ..route.clone()
        }));
    }

    /// Records the request as it is sent. `head` has its lines as HTTP/1.1 spells them.
    pub fn request(&self, head: &[u8], body: &EngineBody) {
        self.begin();
        let text = redacted(&String::from_utf8_lossy(head));
        self.with(|attempt, memory| attempt.request.head = memory.text(&self.recording.ring, text));
        body.pieces()
            .iter()
            .for_each(|piece| self.request_body(piece));
    }

    /// Records further bytes of the request's body.
    pub fn request_body(&self, bytes: &[u8]) {
        if let Some(index) = self.place.index.get() {
            self.recording
                .push(BodyPlace::AttemptRequest(*index), bytes);
        }
    }

    /// Records status line and headers of the engine's answer. Returns the recorder of its body; `None` if the
    /// exchange has no room for the attempt.
    pub fn answer_head(&self, first: &str, headers: &HeaderMap) -> Option<AnswerRecorder> {
        let index = *self.place.index.get()?;
        let text = head_text(first, headers);
        self.with(|attempt, memory| {
            attempt.answer.get_or_insert_default().head = memory.text(&self.recording.ring, text);
        });
        Some(AnswerRecorder {
            recording: Arc::clone(&self.recording),
            index,
        })
    }

    /// Adds the attempt to the exchange, unless it is there already.
    fn begin(&self) {
        self.recording.with(|facts, memory| {
            let AttemptPlace {
                upstream,
                engine,
                route,
                index,
            } = &*self.place;
            if index.get().is_none() && memory.reserve(&self.recording.ring, OVERHEAD) {
                let _ = index.set(facts.attempts.len());
                facts.attempts.push(RecordedAttempt {
                    upstream: upstream.to_string(),
                    engine,
                    route: route.get().cloned(),
                    request: RecordedMessage::default(),
                    answer: None,
                    is_complete: false,
                });
            }
        });
    }

    fn with(&self, change: impl FnOnce(&mut RecordedAttempt, &mut MemoryReservation)) {
        let Some(index) = self.place.index.get() else {
            return;
        };
        self.recording.with(|facts, memory| {
            if let Some(attempt) = facts.attempts.get_mut(*index) {
                change(attempt, memory);
            }
        });
    }
}

impl AnswerRecorder {
    /// Records bytes of the engine's answer.
    pub fn body(&self, bytes: &[u8]) {
        self.recording
            .push(BodyPlace::AttemptAnswer(self.index), bytes);
    }

    /// Records that the engine's answer is complete.
    pub fn complete(&self) {
        self.recording.with(|facts, _| {
            if let Some(attempt) = facts.attempts.get_mut(self.index) {
                attempt.is_complete = true;
            }
        });
    }
}

impl MemoryReservation {
    /// Asks the ring for bytes. Without them, the exchange is cut.
    fn reserve(&mut self, ring: &Ring, bytes: usize) -> bool {
        let is_granted = ring.grant(self.held, bytes);
        match is_granted {
            true => self.held += bytes,
            false => self.is_cut = true,
        }
        is_granted
    }

    /// Returns a text if there is room for it, else an empty one.
    fn text(&mut self, ring: &Ring, text: String) -> String {
        if self.reserve(ring, text.capacity()) {
            text
        } else {
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::CaptureLimits;
    use super::*;
    use std::time::Duration;

    const LIMITS: CaptureLimits = CaptureLimits {
        exchanges: 3,
        bytes: 64 << 10,
        exchange_bytes: 32 << 10,
    };

    fn info(id: &str, model: &str) -> RequestInfo {
        RequestInfo {
            id: id.to_owned(),
            model: model.to_owned(),
            ..RequestInfo::default()
        }
    }

    fn capture(ring: &Arc<Ring>, id: &str, model: &str, end: &'static str, body: usize) {
        if let Some(recording) = Recording::begin(ring, || info(id, model), false) {
            recording.body(&vec![b'x'; body]);
            recording.finish(ExchangeOutcome {
                end,
                status: 200,
                ..ExchangeOutcome::default()
            });
        }
    }

    fn ids(ring: &Ring) -> Vec<String> {
        ring.list()
            .iter()
            .map(|exchange| exchange.facts().info.id.clone())
            .collect()
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
        recording.finish(ExchangeOutcome {
            end: "complete",
            status: 200,
            ..ExchangeOutcome::default()
        });
        assert_eq!(ids(&ring), [""; 0], "the answer is still on its way");
        drop(recording);
        assert_eq!(ids(&ring), ["a"]);
        assert!(ring.find("a", None).is_some() && ring.find("b", None).is_none());
    }

    #[test]
    fn only_what_matches_is_kept() {
        let ring = Ring::new(LIMITS);
        let only = Criteria {
            model: Some("m".to_owned()),
            only_failures: true,
            ..Criteria::default()
        };
        ring.switch_on(only, None);
        for (id, model, end) in [
            ("a", "m", "complete"),
            ("b", "m", "error"),
            ("c", "n", "error"),
        ] {
            capture(&ring, id, model, end, 10);
        }
        assert_eq!(ids(&ring), ["b"]);
        assert_eq!(ring.clear(), 1);
        assert_eq!(
            (ids(&ring).len(), ring.used()),
            (0, 0),
            "all bytes have come back"
        );
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
        assert!(ring.list().iter().all(|exchange| !exchange.facts().is_cut));
        ring.limit(CaptureLimits {
            exchanges: 1,
            ..LIMITS
        });
        assert_eq!(ids(&ring), ["h"]);
    }

    #[test]
    fn a_long_exchange_is_cut() {
        let ring = Ring::new(LIMITS);
        ring.switch_on(Criteria::default(), None);
        capture(&ring, "a", "m", "complete", 1 << 20);
        let exchange = ring.find("a", None).unwrap().read();
        assert!(exchange.is_cut && exchange.request.body.len() <= LIMITS.exchange_bytes);
        assert!(ring.used() <= LIMITS.exchange_bytes);
    }

    #[test]
    fn an_exchange_without_room_takes_no_place() {
        let ring = Ring::new(CaptureLimits {
            exchanges: 2,
            bytes: 40 << 10,
            exchange_bytes: 40 << 10,
        });
        ring.switch_on(Criteria::default(), None);
        let large = Recording::begin(&ring, || info("a", "m"), false).unwrap();
        large.body(&[b'x'; 38 << 10]);
        for id in ["b", "c", "d"] {
            capture(&ring, id, "m", "complete", 10);
        }
        assert_eq!(ids(&ring), [""; 0]);
        large.finish(ExchangeOutcome {
            end: "complete",
            status: 200,
            ..ExchangeOutcome::default()
        });
        drop(large);
        assert_eq!(ids(&ring), ["a"]);
    }

    #[test]
    fn an_exchange_that_cannot_have_room_displaces_none() {
        let ring = Ring::new(CaptureLimits {
            exchanges: 3,
            bytes: 40 << 10,
            exchange_bytes: 40 << 10,
        });
        ring.switch_on(Criteria::default(), None);
        capture(&ring, "a", "m", "complete", 10);
        let begin = |id: &str| Recording::begin(&ring, || info(id, "m"), false).unwrap();
        let (first, second) = (begin("b"), begin("c"));
        first.body(&[b'x'; 24 << 10]);
        second.body(&[b'x'; 24 << 10]);
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
        assert_eq!(
            ring.used(),
            0,
            "a recording that is dropped gives its bytes back"
        );
    }

    /// A long answer in small pieces fills the room that is left nearly to the end.
    #[test]
    fn a_body_takes_the_room_that_is_left() {
        let limits = CaptureLimits {
            exchanges: 1,
            bytes: 8 << 20,
            exchange_bytes: 5 << 20,
        };
        let ring = Ring::new(limits);
        let recording = Recording::begin(&ring, || info("a", "m"), true).unwrap();
        for _ in 0..30_000 {
            recording.body(&[b'x'; 250]);
            assert!(ring.used() <= limits.exchange_bytes);
        }
        recording.finish(ExchangeOutcome {
            end: "complete",
            status: 200,
            ..ExchangeOutcome::default()
        });
        drop(recording);
        let exchange = ring.find("a", None).unwrap().read();
        let kept = exchange.request.body.len();
        assert!(
            exchange.is_cut && kept > limits.exchange_bytes * 9 / 10,
            "{kept}"
        );
        assert_eq!(exchange.request.pieces.last().unwrap().end, kept);
    }

    /// Bodies that come and go in turns are kept apart, each with its pieces.
    #[test]
    fn bodies_are_kept_apart() {
        let ring = Ring::new(CaptureLimits {
            exchanges: 1,
            bytes: 8 << 20,
            exchange_bytes: 5 << 20,
        });
        let recording = Recording::begin(&ring, || info("a", "m"), true).unwrap();
        recording.body(b"asked");
        let attempts = ["one", "two"].map(|name| recording.attempt(name, "vllm"));
        attempts.iter().for_each(|attempt| {
            attempt.request(
                b"POST / HTTP/1.1\r\n\r\n",
                &bytes::Bytes::from_static(b"sent").into(),
            )
        });
        let answers = attempts
            .each_ref()
            .map(|attempt| attempt.answer_head("HTTP/1.1 200 OK", &HeaderMap::new()));
        for at in 0..1000 {
            for (name, answer) in ["1", "2"].iter().zip(answers.iter().flatten()) {
                answer.body(name.repeat(at % 7 + 1).as_bytes());
            }
            recording.answer_body(b"told");
        }
        answers[1].as_ref().unwrap().complete();
        recording.finish(ExchangeOutcome {
            end: "complete",
            status: 200,
            ..ExchangeOutcome::default()
        });
        drop((recording, attempts, answers));
        let exchange = ring.find("a", None).unwrap().read();
        let answer = exchange.answer.as_ref().unwrap();
        assert_eq!(
            (answer.body.as_slice(), answer.pieces.len()),
            ("told".repeat(1000).as_bytes(), 1000)
        );
        assert_eq!(exchange.request.body, b"asked");
        for (attempt, byte) in exchange.attempts.iter().zip(*b"12") {
            let answer = attempt.answer.as_ref().unwrap();
            assert_eq!(attempt.request.body, b"sent");
            assert!(answer.body.iter().all(|one| *one == byte) && answer.pieces.len() == 1000);
            assert!(
                answer
                    .pieces
                    .is_sorted_by_key(|piece| (piece.end, piece.at))
            );
        }
        assert_eq!(
            exchange
                .attempts
                .iter()
                .map(|attempt| attempt.is_complete)
                .collect::<Vec<_>>(),
            [false, true]
        );
        let lengths = ring.list()[0].lengths();
        assert_eq!(
            (lengths.request, lengths.answer, lengths.last_attempt_answer),
            (5, 4000, answer_length(&exchange))
        );
    }

    fn answer_length(exchange: &Captured) -> usize {
        exchange
            .attempts
            .last()
            .and_then(|attempt| attempt.answer.as_ref())
            .map_or(0, |answer| answer.body.len())
    }
}
