//! Latency limits: an engine's connection is closed when its client has left (faults C24, C25), and tokens keep
//! coming while metrics are read (faults O20).
//!
//! This is a separate program with one measurement at a time, so that no other test uses the processor. The delay
//! of the machine itself is measured between the same client and engine without samewire, and is added to the
//! limits.

mod cancels;
mod scrapes;

use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Waits until no other measurement runs in this program.
async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}

/// Returns the time that this percentage of the times does not exceed. Sorts them.
fn percentile(times: &mut [Duration], hundredths: usize) -> Duration {
    times.sort();
    times[(times.len() * hundredths).div_ceil(100).saturating_sub(1)]
}
