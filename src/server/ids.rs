//! Ids of requests and answers, drawn at random. Touches only the system's source of randomness and its clock.

use super::relay::clock;
use crate::wire::Stamp;
use data_encoding::HEXLOWER;

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
        format!("req_{}", HEXLOWER.encode_display(self.0.get(..16).unwrap_or_default()))
    }

    /// Returns the random number that decides between equal upstreams.
    pub(super) fn tie_breaker(&self) -> u64 {
        self.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub(super) fn stamp(&self) -> Stamp {
        let id = HEXLOWER.encode(self.0.get(16..32).unwrap_or_default());
        let seed = self.0.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Stamp { id, now: clock::unix_seconds(), seed, request_id: None }
    }
}
