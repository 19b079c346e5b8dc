//! History: figures of the last half hour, in steps, for operators.
//!
//! Takes: a snapshot of the metrics at each step. Gives: points, each the difference of two snapshots. Remembers: at
//! most [`MAX_POINTS`] points. Never: adds anything to the cost of a request.

use super::Metrics;
use super::series::HistogramSnapshot;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

/// Time between two snapshots.
pub const STEP: Duration = Duration::from_secs(5);
/// Number of points that are kept: half an hour.
const MAX_POINTS: usize = 360;

/// Figures over all upstreams: those of one step, or those since the start of the process.
#[derive(Clone, Debug)]
pub struct HistoryPoint {
    /// End of the step, or time of the snapshot.
    pub at: SystemTime,
    /// Requests that have ended.
    pub requests: u64,
    /// Requests among them that ended with an error.
    pub errors: u64,
    /// Times from a request's arrival to the engine's first text.
    pub first_token: HistogramSnapshot,
    /// Times between two writes to a client.
    pub inter_token: HistogramSnapshot,
    /// Tokens of answers, as the engines count them.
    pub tokens: u64,
}

/// History of the process.
#[derive(Debug, Default)]
pub struct History(Mutex<HistoryState>);

#[derive(Debug, Default)]
struct HistoryState {
    /// Last snapshot: the counts since the start.
    last: Option<HistoryPoint>,
    points: VecDeque<HistoryPoint>,
}

impl History {
    /// Takes a snapshot. From the second one on, each adds a point.
    pub fn sample(&self, metrics: &Metrics, at: SystemTime) {
        let now = metrics.snapshot(at);
        let mut state = self.0.lock();
        if let Some(before) = state.last.replace(now.clone()) {
            if state.points.len() >= MAX_POINTS {
                state.points.pop_front();
            }
            // The metrics of an upstream that a reload removes go with it, so that a count may fall.
            state.points.push_back(HistoryPoint {
                at,
                requests: now.requests.saturating_sub(before.requests),
                errors: now.errors.saturating_sub(before.errors),
                first_token: now.first_token.since(&before.first_token),
                inter_token: now.inter_token.since(&before.inter_token),
                tokens: now.tokens.saturating_sub(before.tokens),
            });
        }
    }

    /// Returns the points, the oldest first.
    pub fn points(&self) -> Vec<HistoryPoint> {
        self.0.lock().points.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_differences_and_bounded() {
        let (metrics, history) = (Metrics::default(), History::default());
        let upstream = metrics.upstream("engine");
        upstream.first_token.observe(Duration::from_millis(30));
        let start = SystemTime::UNIX_EPOCH;
        history.sample(&metrics, start);
        assert_eq!(
            history.points().len(),
            0,
            "a single snapshot has no difference"
        );
        upstream.first_token.observe(Duration::from_millis(80));
        upstream.inter_token.observe(Duration::from_millis(4));
        history.sample(&metrics, start + STEP);
        let points = history.points();
        assert_eq!(
            (points[0].first_token.count(), points[0].inter_token.count()),
            (1, 1)
        );
        let median = points[0].first_token.quantile(0.5).unwrap();
        assert!((0.05..=0.1).contains(&median), "{median}");
        for step in 0..400 {
            history.sample(&metrics, start + STEP * (step + 2));
        }
        let points = history.points();
        assert_eq!(points.len(), MAX_POINTS);
        assert_eq!(points[MAX_POINTS - 1].at, start + STEP * 401);
        assert_eq!(points[0].first_token.quantile(0.5), None);
    }

    /// A reload may remove an upstream, and its counts with it.
    #[test]
    fn counts_that_fall_are_no_point_below_zero() {
        let (metrics, history) = (Metrics::default(), History::default());
        let gone = metrics.upstream("gone");
        gone.first_token.observe(Duration::from_millis(30));
        history.sample(&metrics, SystemTime::UNIX_EPOCH);
        drop(gone);
        let _other = metrics.upstream("other");
        history.sample(&metrics, SystemTime::UNIX_EPOCH + STEP);
        assert_eq!(history.points()[0].first_token.count(), 0);
    }
}
