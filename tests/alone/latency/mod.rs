//! Latency limits: an engine's connection is closed when its client has left (faults C24, C25), and tokens keep
//! coming while metrics are read (faults O20).
//!
//! The delay of the machine itself is measured between the same client and engine without samewire, and is added to
//! the limits.

mod cancels;
mod scrapes;

use std::time::Duration;

/// Returns the time that this percentage of the times does not exceed. Sorts them.
fn percentile(times: &mut [Duration], hundredths: usize) -> Duration {
    times.sort();
    times[(times.len() * hundredths).div_ceil(100).saturating_sub(1)]
}
