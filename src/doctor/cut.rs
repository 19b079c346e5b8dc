//! Observation of a client that leaves: whether the engine goes on to work for it.

use crate::engine::EngineLoad;
use crate::exchange::Exchange;
use std::time::Duration;

/// Load of an engine around a stream that was cut off.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// Load before the stream.
    pub(super) before: EngineLoad,
    /// Last load that was read after it was cut off.
    pub(super) after: EngineLoad,
    /// Time from the cut until the load was no higher than before, or until the last look.
    pub(super) time: Duration,
    /// Time in which the stream would have ended by itself at the pace that it had.
    pub(super) natural: Duration,
    /// Path of the route that tells the load.
    pub(super) route: &'static str,
}

/// Returns the number of requests that an engine has.
pub(super) fn requests(load: EngineLoad) -> u64 {
    load.running + load.waiting
}

impl Cut {
    /// Returns true if the engine had no more to do than before.
    pub(super) fn is_free(&self) -> bool {
        requests(self.after) <= requests(self.before)
    }
}

/// Returns the time in which a stream of so many tokens would have ended, by the pace of the pieces that came.
pub(super) fn natural(exchange: &Exchange, tokens: u32) -> Duration {
    let (Some(first), Some(last)) = (exchange.pieces.first(), exchange.pieces.last()) else {
        return Duration::ZERO;
    };
    let gaps = u32::try_from(exchange.pieces.len() - 1).unwrap_or(u32::MAX);
    let pace = (last.at - first.at)
        .checked_div(gaps)
        .unwrap_or(Duration::ZERO);
    pace.saturating_mul(tokens.saturating_sub(gaps))
}
