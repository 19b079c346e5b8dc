//! Background responses whose process is gone or does not react: they are closed with the items that their stored
//! events have.

use super::{READ, error_event};
use crate::json::{self, Members, write_string};
use crate::server::App;
use crate::store::{
    FinalState, Item, Json, Millis, Owned, State, Store, StoreError, StoredEvents, StoredResponse,
};
use crate::wire::encode::RecoveredItems;
use crate::wire::fault::{Failure, Fault};
use bytes::{BufMut, BytesMut};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Lost responses that are closed at once.
const LOST: usize = 16;

/// Reports to the store that this process is alive if `beat` is true, and ends responses that others cancelled or
/// took over.
pub(in crate::server) async fn heartbeat_and_compare(app: &App, store: &Store, beat: bool) {
    let owner = &app.store_handle.owner;
    // The heartbeat comes first: the comparison may take as long as the store allows for several operations.
    if beat
        && let Err(error) = store
            .heartbeat(Arc::clone(owner), app.store_handle.now())
            .await
    {
        tracing::warn!(%error, "the store was not told that this process lives");
    }
    if beat || app.responses.background_jobs.count() > 0 {
        compare(app, store).await;
    }
}

/// Closes responses whose process is gone, for about a second. Returns true if there may be more. They are taken
/// over a few at a time: if this process dies, those taken and not closed wait for another lease.
pub(in crate::server) async fn close_lost(app: &App, store: &Store) -> bool {
    let start = tokio::time::Instant::now();
    loop {
        let now = app.store_handle.now();
        let lost = store
            .orphans(Arc::clone(&app.store_handle.owner), LOST, now)
            .await
            .unwrap_or_default();
        let closed = lost.iter().map(async |record| {
            tracing::warn!(
                response = &*record.key.id,
                "a response lost its process and is closed"
            );
            if let Err(error) = close_taken(store, record, now).await {
                tracing::warn!(response = &*record.key.id, %error, "it could not be closed");
            }
        });
        futures::future::join_all(closed).await;
        if lost.len() < LOST || start.elapsed() >= Duration::from_secs(1) {
            return lost.len() == LOST;
        }
    }
}

/// Compares the running responses with the store. Those that others have cancelled or taken over are ended here,
/// since a silent engine would otherwise keep working for them. Those that this process has taken over, or that no
/// task here runs although the store says so, are closed: otherwise this process would keep them alive forever.
async fn compare(app: &App, store: &Store) {
    // Listed before the store is read, so that every response listed here is in the store's answer.
    let here = app.responses.background_jobs.jobs.all();
    let Ok(stored) = store.running(Arc::clone(&app.store_handle.owner)).await else {
        return;
    };
    let mut stored: HashMap<_, _> = stored
        .into_iter()
        .map(|running| (running.key.clone(), running))
        .collect();
    for (key, run) in here {
        match stored.get(&key) {
            Some(Owned {
                term: 1, cancel, ..
            }) if !cancel => {}
            Some(Owned { term: 1, .. }) => run.cancel.notify_one(),
            _ => run.lost.notify_one(),
        }
    }
    let orphaned = app.responses.background_jobs.orphaned(
        stored
            .values()
            .filter(|running| running.term == 1)
            .map(|running| running.key.clone()),
    );
    for key in &orphaned {
        tracing::warn!(
            response = &*key.id,
            "a response has lost its task and is closed"
        );
    }
    stored.retain(|_, running| running.term > 1);
    for key in stored.into_keys().chain(orphaned) {
        let now = app.store_handle.now();
        let closed = match store.get(key.clone(), now).await {
            Ok(record) if record.owner == app.store_handle.owner => {
                close_taken(store, &record, now).await
            }
            Ok(_) | Err(StoreError::NotFound) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = closed {
            tracing::warn!(response = &*key.id, %error, "a response that was taken over could not be closed");
        }
    }
}

/// Ends a response whose owner does not react. First the term is raised, so that a stalled owner can write no
/// more; then the response is closed.
pub(in crate::server) async fn take_over(
    app: &App,
    store: &Store,
    record: &StoredResponse,
) -> Result<(), StoreError> {
    let (owner, now) = (Arc::clone(&app.store_handle.owner), app.store_handle.now());
    let taken = match store
        .take_over(record.key.clone(), record.term, owner, now)
        .await
    {
        // The owner or another process was faster.
        Err(StoreError::Fenced | StoreError::Conflict) => return Ok(()),
        taken => taken?,
    };
    tracing::warn!(
        response = &*record.key.id,
        "a response is cancelled without its process"
    );
    close_taken(store, &taken, now).await
}

/// Closes a response that this process has taken over; another task may do so at the same time.
async fn close_taken(store: &Store, record: &StoredResponse, now: u64) -> Result<(), StoreError> {
    match close(store, record, record.term, &Fault::ReplicaLost.into(), now).await {
        Err(StoreError::Conflict | StoreError::Fenced | StoreError::NotFound) => Ok(()),
        closed => closed,
    }
}

/// Ends a response whose real end is lost, with the items found in its events if there is room for them.
pub(super) async fn close(
    store: &Store,
    record: &StoredResponse,
    term: u64,
    failure: &Failure,
    now: u64,
) -> Result<(), StoreError> {
    let told = recovered(store, record, now).await;
    let finish = closing(record, failure, &told);
    match store.finish(record.key.clone(), term, finish, now).await {
        Err(StoreError::Full) => {
            let finish = closing(record, failure, &RecoveredItems::default());
            store.finish(record.key.clone(), term, finish, now).await
        }
        closed => closed,
    }
}

/// Reads the stored events of a response, up to the first that cannot be read.
async fn recovered(store: &Store, record: &StoredResponse, now: Millis) -> RecoveredItems {
    let (mut told, mut after) = (RecoveredItems::default(), None);
    loop {
        let replay = match store
            .events_after(record.key.clone(), after, READ, now)
            .await
        {
            Ok(replay) => replay,
            Err(StoreError::NotFound) => return told,
            Err(error) => {
                tracing::warn!(response = &*record.key.id, %error, "the events of a response cannot be read");
                return told;
            }
        };
        let Some(last) = replay.events.bodies.len().checked_sub(1) else {
            return told;
        };
        replay
            .events
            .bodies
            .iter()
            .for_each(|event| told.take(event));
        after = Some(replay.events.from + last as u64);
    }
}

fn closing(record: &StoredResponse, failure: &Failure, told: &RecoveredItems) -> FinalState {
    let state = if record.cancel {
        State::Cancelled
    } else {
        State::Failed
    };
    let mut object = BytesMut::new();
    let members = json::read::<Members<'_>>(&record.response)
        .map(|members| members.0)
        .unwrap_or_default();
    for (at, (key, value)) in members.iter().enumerate() {
        object.put_u8(if at == 0 { b'{' } else { b',' });
        write_string(key, &mut object);
        object.put_u8(b':');
        match key.as_ref() {
            "status" => write_string(state.name(), &mut object),
            "output" => object.extend_from_slice(told.list().as_bytes()),
            "error" if state == State::Failed => {
                object.extend_from_slice(b"{\"code\":\"server_error\",\"message\":");
                write_string(&failure.message, &mut object);
                object.put_u8(b'}');
            }
            _ => object.extend_from_slice(value.get().as_bytes()),
        }
    }
    object.put_u8(b'}');
    let response: Json = String::from_utf8_lossy(&object).into();
    let last = |kind: &str, number| -> Json {
        format!("{{\"type\":\"{kind}\",\"sequence_number\":{number},\"response\":{response}}}")
            .into()
    };
    let bodies = match state {
        State::Cancelled => vec![last("response.incomplete", record.events)],
        _ => vec![
            error_event(failure, record.events),
            last("response.failed", record.events + 1),
        ],
    };
    let events = StoredEvents {
        from: record.events,
        bodies,
    };
    let output = told
        .items()
        .iter()
        .map(|(id, item)| Item::new(id, item))
        .collect();
    FinalState {
        state,
        response,
        output,
        events,
    }
}
