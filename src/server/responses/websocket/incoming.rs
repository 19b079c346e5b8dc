//! Message that a client is sending on a WebSocket: its share of the memory for request bodies, and its timers. The
//! library hands over whole messages, so the bytes that have arrived are counted at the connection.
//!
//! Takes: bytes read from the connection. Gives: the share of the message, or the failure of one that is too slow or
//! has no room. Remembers: when the message began, and when its last byte came.

use crate::config::Timeouts;
use crate::server::admit::budget::{Budget, BudgetShare};
use crate::server::net::connection::late_timer_extension;
use crate::wire::fault::{Failure, Fault};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of a control frame of a client beside its payload: its head and its mask.
const CONTROL_FRAME: usize = 6;

/// Message that has arrived in part.
pub(super) struct IncomingMessage {
    budget: Arc<Budget>,
    idle: Duration,
    total: Duration,
    /// Number of bytes that the connection had read at the end of the last message.
    start: usize,
    /// Bytes of this message so far.
    length: usize,
    /// Times of its first and of its last bytes.
    arrival: Option<(Instant, Instant)>,
    share: Option<BudgetShare>,
}

impl IncomingMessage {
    pub(super) fn new(budget: &Arc<Budget>, timeouts: &Timeouts) -> Self {
        Self {
            budget: Arc::clone(budget),
            idle: *timeouts.client_body_idle,
            total: *timeouts.client_body_total,
            start: 0,
            length: 0,
            arrival: None,
            share: None,
        }
    }

    /// Notes how much of the message has arrived; `received`: bytes that the connection has read. Fails if the budget has
    /// no room for it.
    pub(super) fn note_received(&mut self, received: usize) -> Result<(), Failure> {
        let length = received.saturating_sub(self.start);
        if length == self.length {
            return Ok(());
        }
        self.length = length;
        let now = Instant::now();
        self.arrival = (length > 0).then(|| (self.arrival.map_or(now, |(first, _)| first), now));
        self.share = Some(self.grown(length)?);
        Ok(())
    }

    /// Notes a control frame with a payload of this length, which may come in the middle of a message.
    pub(super) fn skip_control(&mut self, payload: usize) {
        self.start += payload + CONTROL_FRAME;
    }

    /// Returns the share of a message of `length` bytes, which is complete. Fails if the budget has no room for it.
    pub(super) fn complete(
        &mut self,
        received: usize,
        length: usize,
    ) -> Result<BudgetShare, Failure> {
        (self.start, self.length, self.arrival) = (received, 0, None);
        self.grown(length)
    }

    /// Returns the time at which the message is too slow; `None` between messages.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.arrival
            .map(|(first, last)| (first + self.total).min(last + self.idle))
    }

    /// Fails if the message is too slow. A timer that fires late proves nothing: bytes may be unread.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), Failure> {
        let Some(end) = self.deadline().filter(|end| *end <= now) else {
            return Ok(());
        };
        let Some(more) = late_timer_extension(end, now) else {
            return Err(Fault::RequestTimeout.into());
        };
        self.arrival = self
            .arrival
            .map(|(first, last)| (first + more, last + more));
        Ok(())
    }

    /// Takes the share, enlarged to at least `length` bytes.
    fn grown(&mut self, length: usize) -> Result<BudgetShare, Failure> {
        let mut share = self.share.take().map_or_else(|| self.budget.share(0), Ok)?;
        share.reach(length)?;
        Ok(share)
    }
}
