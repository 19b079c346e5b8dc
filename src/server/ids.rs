//! Ids of requests and answers, drawn at random. Touches only the system's source of randomness and its clock.

use crate::wire::{AnswerId, Stamp};
use data_encoding::HEXLOWER;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Random bytes for one request, drawn in a single call: its ids, the seed of its answer, and a number that
/// decides between equal upstreams.
#[derive(Clone)]
pub(super) struct IdSource([u8; DRAWN]);

/// Random bytes of one request.
const DRAWN: usize = 40;
/// Front of a request id.
const PREFIX: &str = "req_";

thread_local! {
    static POOL: RefCell<RandomPool> = const { RefCell::new(RandomPool { bytes: [[0; DRAWN]; 64], left: 0 }) };
}

/// Random bytes for the next requests of a thread: one call of the system serves many of them.
struct RandomPool {
    bytes: [[u8; DRAWN]; 64],
    /// Number of elements that have not been drawn.
    left: usize,
}

impl RandomPool {
    /// Returns bytes that nobody has had. Fails if the system provides none.
    fn draw(&mut self) -> Result<[u8; DRAWN], getrandom::Error> {
        if self.left == 0 {
            getrandom::fill(self.bytes.as_flattened_mut())?;
            self.left = self.bytes.len();
        }
        self.left -= 1;
        let drawn = self
            .bytes
            .get_mut(self.left)
            .ok_or(getrandom::Error::UNEXPECTED)?;
        Ok(std::mem::replace(drawn, [0; DRAWN]))
    }
}

impl IdSource {
    pub(super) fn draw() -> Result<Self, getrandom::Error> {
        POOL.with_borrow_mut(RandomPool::draw).map(Self)
    }

    pub(super) fn request_id(&self) -> Arc<str> {
        let mut id = [0; PREFIX.len() + 32];
        let (prefix, digits) = id.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX.as_bytes());
        HEXLOWER.encode_mut(self.0.get(..16).unwrap_or_default(), digits);
        std::str::from_utf8(&id).unwrap_or(PREFIX).into()
    }

    /// Appends the request id to a text.
    pub(super) fn append_request_id(&self, text: &mut String) {
        text.push_str(PREFIX);
        HEXLOWER.encode_append(self.0.get(..16).unwrap_or_default(), text);
    }

    /// Returns the random number that decides between equal upstreams.
    pub(super) fn tie_breaker(&self) -> u64 {
        self.0
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub(super) fn stamp(&self) -> Stamp {
        let bytes = self.0.get(16..).and_then(<[u8]>::first_chunk);
        let id = AnswerId(bytes.map_or(0, |bytes| u128::from_be_bytes(*bytes)));
        let seed = self
            .0
            .last_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Stamp {
            id,
            now: since_epoch().as_secs(),
            seed,
            request_id: None,
        }
    }
}

/// Returns the time since the Unix epoch.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
