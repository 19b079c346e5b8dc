//! Upkeep of the store while the process runs: opening, sweeping, and watch over background responses. Touches the
//! store and the background jobs, and no client connection.

use super::background;
use crate::server::ActiveConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between attempts to open the store.
const RETRY: Duration = Duration::from_secs(5);

/// Interval at which expired records are removed.
const SWEEP: Duration = Duration::from_secs(60);

/// Interval of checks for responses that other processes have cancelled or taken over, and for lost ones.
const LOOK: Duration = Duration::from_secs(1);

/// Maintains the store without end: opens it if that has failed, removes expired records, and watches over
/// background responses.
pub(in crate::server) async fn maintain(present: &ActiveConfig) {
    let store_handle = &Arc::clone(&present.app().store_handle);
    while !store_handle.is_off() && store_handle.store().is_none() {
        tokio::time::sleep(RETRY).await;
        if store_handle.try_open().await.is_ok() {
            tracing::info!("the store is open");
        }
    }
    let Some(store) = store_handle.store() else { return };
    let (mut more, mut has_files) = (false, false);
    let (mut beats, mut sweeps) = (Interval::of(store_handle.heartbeat), Interval::of(SWEEP));
    loop {
        let beat = beats.is_due();
        if beat {
            store_handle.set_clock(&store).await;
        }
        background::heartbeat_and_compare(&present.app(), &store, beat).await;
        if beat || more {
            more = background::close_lost(&present.app(), &store).await;
        }
        if sweeps.is_due() {
            if let Err(error) = store.sweep(store_handle.now()).await {
                tracing::warn!(%error, "expired responses cannot be removed");
            }
            has_files = true;
        }
        if has_files {
            // A little at a time: between two steps, requests have the store.
            match store.sweep_files(store_handle.now()).await {
                Ok(removed) => has_files = removed > 0,
                Err(error) => {
                    tracing::warn!(%error, "expired files cannot be removed");
                    has_files = false;
                }
            }
        }
        tokio::time::sleep(LOOK.min(store_handle.heartbeat)).await;
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

    /// Returns true if the interval has passed, and restarts it.
    fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.every);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}
