//! Histogram of token delays, in buckets a sixteenth wide.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FINE: u64 = 16;

/// Histogram of times in microseconds, written by many tasks without a lock.
pub(crate) struct Latency {
    buckets: Vec<AtomicU64>,
    /// True while the process is suspended on purpose; delays are then not recorded.
    pub(crate) paused: AtomicBool,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            buckets: (0..40 * FINE).map(|_| AtomicU64::new(0)).collect(),
            paused: AtomicBool::new(false),
        }
    }
}

fn bucket(value: u64) -> u64 {
    if value < FINE {
        return value;
    }
    let power = u64::from(value.ilog2()) - u64::from(FINE.ilog2());
    (power + 1) * FINE + ((value >> power) - FINE)
}

/// Returns the largest value of a bucket.
fn value(bucket: u64) -> u64 {
    if bucket < FINE {
        return bucket;
    }
    let power = bucket / FINE - 1;
    ((FINE + bucket % FINE + 1) << power) - 1
}

impl Latency {
    pub(crate) fn note(&self, micros: u64) {
        if !self.paused.load(Ordering::Relaxed)
            && let Some(bucket) = self
                .buckets
                .get(usize::try_from(bucket(micros)).unwrap_or(usize::MAX))
        {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the milliseconds within which this share of the tokens arrived.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (at, bucket) in (0..).zip(&self.buckets) {
            seen += bucket.load(Ordering::Relaxed);
            if seen >= wanted && seen > 0 {
                return value(at) as f64 / 1_000.0;
            }
        }
        0.0
    }
}
