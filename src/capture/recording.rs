//! Recording of one request while it runs.
//!
//! Takes: heads and bytes, each at its time. Gives: the exchange, to the ring. Never: grows beyond what the ring has
//! granted. What has no room any more is left out, and the exchange says so.

use super::exchange::{Attempt, Captured, End, Message, Outcome, Piece, RequestInfo, head_text, redacted};
use super::ring::{Criteria, Ring};
use http::HeaderMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Bytes that an exchange takes apart from texts and bodies.
const OVERHEAD: usize = 1024;
/// Smallest step by which a body grows.
const STEP: usize = 4096;

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
pub struct AttemptTap {
    recording: Arc<Recording>,
    index: usize,
}

impl Recording {
    pub(super) fn begin(ring: Arc<Ring>, criteria: Arc<Criteria>, info: RequestInfo) -> Self {
        let exchange = Captured::begin(info, SystemTime::now());
        let this = Self {
            ring,
            criteria,
            began: Instant::now(),
            draft: Mutex::new(Draft { exchange: Some(Box::new(exchange)), held: 0 }),
        };
        this.with(|exchange, room| _ = room.grant(OVERHEAD, &mut exchange.is_cut));
        this
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
    pub fn tell(&self, change: impl FnOnce(&mut RequestInfo)) {
        let mut draft = self.draft.lock();
        let Some(exchange) = &mut draft.exchange else { return };
        change(&mut exchange.info);
        if !self.criteria.may_match(&exchange.info) {
            draft.exchange = None;
            self.ring.take_back(std::mem::take(&mut draft.held));
        }
    }

    /// Records that an attempt at an engine begins.
    pub fn attempt(self: &Arc<Self>, upstream: &str, engine: &'static str) -> AttemptTap {
        let mut index = usize::MAX;
        self.with(|exchange, room| {
            if room.grant(OVERHEAD, &mut exchange.is_cut) {
                index = exchange.attempts.len();
                exchange.attempts.push(Attempt {
                    upstream: upstream.to_owned(),
                    engine,
                    request: Message::default(),
                    answer: None,
                    end: None,
                });
            }
        });
        AttemptTap { recording: Arc::clone(self), index }
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
        match exchange.take() {
            Some(exchange) => self.ring.keep(*exchange, *held, &self.criteria),
            None => self.ring.take_back(*held),
        }
    }
}

impl AttemptTap {
    /// Records the request as it is sent. `head` has its lines as HTTP/1.1 spells them.
    pub fn request(&self, head: &[u8], body: &[u8]) {
        let at = self.recording.began.elapsed();
        self.with(|attempt, room, is_cut| {
            attempt.request.head = room.text(redacted(&String::from_utf8_lossy(head)), is_cut);
            room.piece(&mut attempt.request, body, at, is_cut);
        });
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

    /// Records the end of the engine's answer.
    pub fn end(&self, end: End) {
        self.with(|attempt, _, _| {
            attempt.end.get_or_insert(end);
        });
    }

    fn with(&self, change: impl FnOnce(&mut Attempt, &mut Room<'_>, &mut bool)) {
        self.recording.with(|exchange, room| {
            let Captured { attempts, is_cut, .. } = exchange;
            if let Some(attempt) = attempts.get_mut(self.index) {
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

    /// Appends a piece to a body, as much of it as there is room for. After a cut nothing follows, so that the body
    /// has no gap.
    fn piece(&mut self, message: &mut Message, bytes: &[u8], at: std::time::Duration, is_cut: &mut bool) {
        if bytes.is_empty() || *is_cut {
            return;
        }
        if message.pieces.len() == message.pieces.capacity() {
            let more = message.pieces.capacity().max(16);
            if !self.grant(more * size_of::<Piece>(), is_cut) {
                return;
            }
            message.pieces.reserve_exact(more);
        }
        let free = message.body.capacity() - message.body.len();
        if bytes.len() > free {
            let more = (bytes.len() - free).max(message.body.capacity().min(64 << 10)).max(STEP);
            // Near the limit, exactly the missing bytes may still fit.
            let missing = bytes.len() - free;
            let granted = [more, missing].into_iter().find(|more| self.ring.grant(*self.held, *more));
            let Some(more) = granted else {
                *is_cut = true;
                return;
            };
            *self.held += more;
            message.body.reserve_exact(more + free);
        }
        message.body.extend_from_slice(bytes);
        message.pieces.push(Piece { at, end: message.body.len() });
    }
}
