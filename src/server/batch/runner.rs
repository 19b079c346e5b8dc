//! Runner of the process: takes batches from the store, starts their tasks, and keeps what it has taken.

use super::dispatch::Dispatcher;
use super::line::LineContext;
use super::registry::Batches;
use super::run::BatchRun;
use crate::server::{ActiveConfig, App};
use crate::store::{Batch, Store};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Batches that run at once; others wait.
const RUNNING: usize = 64;
/// Interval at which the store is queried for batches and cancellations.
const LOOK: Duration = Duration::from_secs(1);

/// Runs batches without end.
pub(in crate::server) async fn run_batches(present: Arc<ActiveConfig>, dispatcher: Dispatcher) {
    let dispatcher = Arc::new(dispatcher);
    loop {
        let batches = Arc::clone(&present.app().batches);
        tokio::select! {
            () = batches.woken() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        let app = present.app();
        let Some(store) = app.store_handle.store() else {
            continue;
        };
        let before = batches.count();
        // A batch whose lease was not renewed may still run here, and is not claimed again.
        let is_renewed = before == 0 || renew(&app, &store).await;
        if is_renewed && app.config.batch.enabled && !app.is_shutting_down() {
            let (owner, now) = (Arc::clone(&app.store_handle.owner), app.store_handle.now());
            match store
                .claim_batches(owner, RUNNING.saturating_sub(before), now)
                .await
            {
                Ok(claimed) => claimed.into_iter().for_each(|batch| {
                    start(&present, &dispatcher, &store, &batches, batch);
                }),
                Err(error) => tracing::warn!(%error, "the store was not queried for batches"),
            }
        }
        app.metrics
            .batches_running
            .set(i64::try_from(batches.count()).unwrap_or(i64::MAX));
        app.metrics
            .batch_lines_in_flight
            .set(i64::try_from(batches.lines()).unwrap_or(i64::MAX));
    }
}

/// Starts the task of a batch.
fn start(
    present: &Arc<ActiveConfig>,
    dispatcher: &Arc<Dispatcher>,
    store: &Arc<Store>,
    batches: &Arc<Batches>,
    batch: Batch,
) {
    let taken_over = batch.term > 1;
    tracing::info!(batch = &*batch.key.id, taken_over, "a batch is run");
    let entry = batches.begin(&batch.key, batch.term);
    let context = LineContext {
        present: Arc::clone(present),
        dispatcher: Arc::clone(dispatcher),
        batches: Arc::clone(batches),
        signals: Arc::clone(&entry.signals),
        batch: Arc::clone(&batch.key.id),
        endpoint: String::new(),
        identity: BatchRun::identity(&batch),
    };
    let run = BatchRun::new(context, Arc::clone(store), entry, batch);
    #[expect(clippy::disallowed_methods, reason = "a batch belongs to no request")]
    tokio::spawn(run.run());
}

/// Renews the leases of the batches that run here, and tells their tasks who was cancelled or lost. A batch that the
/// store attributes to this process although no task runs it is given up, so that it is taken again. Returns false if the store
/// did not answer.
async fn renew(app: &App, store: &Store) -> bool {
    // Listed before the store is queried, so that every batch listed here is in the store's answer.
    let here = app.batches.running.all();
    let (owner, now) = (Arc::clone(&app.store_handle.owner), app.store_handle.now());
    let owned = match store.renew_batches(owner, now).await {
        Ok(owned) => owned,
        Err(error) => {
            tracing::warn!(%error, "the leases of batches were not renewed");
            return false;
        }
    };
    let mut owned: HashMap<_, _> = owned
        .into_iter()
        .map(|batch| (batch.key.clone(), batch))
        .collect();
    for (key, signals) in here {
        match owned
            .remove(&key)
            .filter(|batch| batch.term == signals.term)
        {
            Some(batch) => signals.cancel.store(batch.cancel, Ordering::Relaxed),
            None => signals.lost.store(true, Ordering::Relaxed),
        }
    }
    for batch in owned.into_values() {
        tracing::warn!(batch = &*batch.key.id, "a batch has lost its task");
        let _ = store.release_batch(batch.key, batch.term).await;
    }
    true
}
