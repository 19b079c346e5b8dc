//! Maintenance of the store while the process runs: opens it, removes expired records, and checks background
//! responses. Touches the store and the background jobs, and no client connection.

use super::background;
use crate::server::ActiveConfig;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two tries to open the store.
const RETRY: Duration = Duration::from_secs(5);

/// Interval at which expired records are removed.
const SWEEP: Duration = Duration::from_secs(60);

/// Interval of checks for responses that other processes have cancelled or taken over, and for lost ones.
const CHECK: Duration = Duration::from_secs(1);

/// Maintains the store as long as the process runs: opens it if that has failed, removes expired records, and checks
/// background responses. Returns at once if the store is off.
pub(in crate::server) async fn maintain(present: &ActiveConfig) {
    let store_handle = &Arc::clone(&present.app().store_handle);
    while !store_handle.is_off() && store_handle.store().is_none() {
        tokio::time::sleep(RETRY).await;
        if store_handle.try_open().await.is_ok() {
            tracing::info!("the store is open");
        }
    }
    let Some(store) = store_handle.store() else {
        return;
    };
    let (mut has_lost, mut has_expired, mut has_files) = (false, false, false);
    let (mut beats, mut sweeps) = (Interval::of(store_handle.heartbeat), Interval::of(SWEEP));
    loop {
        let beat = beats.is_due();
        if beat {
            store_handle.set_clock(&store).await;
        }
        background::heartbeat_and_compare(&present.app(), &store, beat).await;
        if beat || has_lost {
            has_lost = background::close_lost(&present.app(), &store).await;
        }
        if sweeps.is_due() {
            (has_expired, has_files) = (true, true);
        }
        // A little at a time: between two steps, requests have the store.
        if has_expired {
            has_expired = has_removed(store.sweep(store_handle.now()).await, "responses");
        }
        if has_files {
            has_files = has_removed(store.sweep_files(store_handle.now()).await, "files");
        }
        tokio::time::sleep(CHECK.min(beats.left())).await;
    }
}

/// Returns true if a sweep has removed something, so that there may be more.
fn has_removed(swept: Result<u64, StoreError>, what: &str) -> bool {
    match swept {
        Ok(removed) => removed > 0,
        Err(error) => {
            tracing::warn!(%error, "expired {what} cannot be removed");
            false
        }
    }
}

/// Timer for periodic work.
struct Interval {
    every: Duration,
    last: Option<Instant>,
}

impl Interval {
    /// Creates a timer that is due at once.
    fn of(every: Duration) -> Self {
        Self { every, last: None }
    }

    /// Returns the time until the interval has passed.
    fn left(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |last| {
            self.every.saturating_sub(last.elapsed())
        })
    }

    /// Returns true if the interval has passed, and restarts it.
    fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.every);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}
