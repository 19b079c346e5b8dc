//! Ids of requests and answers, drawn at random. Touches only the system's source of randomness and its clock.

use super::relay::clock;
use super::spelling::hex;
use crate::wire::Stamp;

/// Random bytes for one request, drawn in a single call: its ids, the seed of its answer, and a number that
/// decides between equal upstreams.
pub(super) struct IdSource([u8; 40]);

impl IdSource {
    pub(super) fn draw() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 40];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub(super) fn request_id(&self) -> String {
        let mut id = String::from("req_");
        hex(self.0.get(..16).unwrap_or_default(), &mut id);
        id
    }

    /// Returns the random number that decides between equal upstreams.
    pub(super) fn tie_breaker(&self) -> u64 {
        self.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub(super) fn stamp(&self) -> Stamp {
        let mut id = String::new();
        hex(self.0.get(16..32).unwrap_or_default(), &mut id);
        let seed = self.0.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Stamp { id, now: clock::unix_seconds(), seed, request_id: None }
    }
}
