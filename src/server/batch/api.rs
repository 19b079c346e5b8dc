//! Operations on batches: create, read, list and cancel.

use super::facts::{Facts, object};
use super::{failure_of, object_key, open_store, seconds};
use crate::request::batch::BatchRequest;
use crate::request::invalid;
use crate::server::App;
use crate::server::admitted::Admitted;
use crate::store::{Batch, BatchStatus, FilePurpose, Key, PageRequest, Store, StoreError};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::request;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Entries of a list, if the client asks for no number, and at most.
const BATCHES: (usize, usize) = (20, 100);
/// Pause before the first attempt to remove a batch that was refused; each further one is as much longer.
const RETRY: Duration = Duration::from_millis(500);

pub(super) async fn create_batch(admitted: &Admitted<'_>, body: &[u8]) -> Result<Bytes, Failure> {
    let app = admitted.app;
    let request = BatchRequest::read(body, &app.config.rules)?;
    let store = open_store(admitted)?;
    let (tenant, now) = (admitted.tenant(), app.store_handle.now());
    let caller = match (&app.config.auth, &admitted.identity.caller) {
        (Some(keys), Some(caller)) => keys.counters_of(caller).unwrap_or_default(),
        _ => String::new(),
    };
    let facts = Facts {
        endpoint: request.endpoint.to_owned(),
        metadata: request.metadata,
        results_expire_after: request.results_expire_after,
        ..Facts::default()
    };
    let id = admitted.ids.stamp().id;
    let window = u64::try_from(app.config.batch.completion_window.as_millis()).unwrap_or(u64::MAX);
    let key = Key {
        tenant,
        id: format!("batch_{id}").into(),
    };
    let new = Batch {
        caller: caller.into(),
        input: request.input.as_str().into(),
        output: format!("file-{id}o").into(),
        errors: format!("file-{id}e").into(),
        expires: now.saturating_add(window),
        facts: facts.text().into(),
        ..Batch::new(key.clone(), now)
    };
    let created = object(&new);
    let most = app.config.batch.tenant_batches;
    match store.create_batch(new, most, now).await {
        Ok(()) => {
            app.batches.wake();
            Ok(Bytes::from(created))
        }
        Err(StoreError::NotFound) => Err(invalid(
            "input_file_id",
            "there is no such file with the purpose batch",
        )),
        Err(StoreError::TooMany) => {
            let message = format!("There may be {most} batches that have not ended.");
            Err(Failure::from(Fault::RateLimit).with_message(message))
        }
        Err(error) => {
            if matches!(error, StoreError::Slow | StoreError::Unavailable(_)) {
                #[expect(clippy::disallowed_methods, reason = "bounded by its attempts")]
                tokio::spawn(remove_refused(Arc::clone(app), store, key.clone()));
            }
            Err(failure_of(admitted, &error, "Batch", &key.id))
        }
    }
}

fn batch_object(
    admitted: &Admitted<'_>,
    found: &Result<Batch, StoreError>,
    key: &Key,
) -> Result<Bytes, Failure> {
    let batch = found
        .as_ref()
        .map_err(|error| failure_of(admitted, error, "Batch", &key.id))?;
    Ok(Bytes::from(object(batch)))
}

pub(super) async fn show_batch(admitted: &Admitted<'_>) -> Result<Bytes, Failure> {
    let (store, key) = object_key(admitted, "/batches/")?;
    let found = store
        .batch(key.clone(), admitted.app.store_handle.now())
        .await;
    batch_object(admitted, &found, &key)
}

pub(super) async fn list_batches(admitted: &Admitted<'_>) -> Result<Bytes, Failure> {
    let store = open_store(admitted)?;
    let (range, _) = list_request(admitted.head, BATCHES)?;
    let more = PageRequest {
        limit: range.limit + 1,
        descending: true,
        ..range.clone()
    };
    let now = admitted.app.store_handle.now();
    let found = store.batches(admitted.tenant(), more, now).await;
    let found = found.map_err(|error| failure_of(admitted, &error, "Batch", ""))?;
    let objects = found.iter().map(|batch| (&*batch.key.id, object(batch)));
    Ok(list(objects.collect(), range.limit))
}

pub(super) async fn cancel_batch(admitted: &Admitted<'_>) -> Result<Bytes, Failure> {
    let (store, key) = object_key(admitted, "/batches/")?;
    let now = admitted.app.store_handle.now();
    let found = store.cancel_batch(key.clone(), now).await;
    if let Ok(batch) = &found
        && batch.status.is_terminal()
        && batch.status != BatchStatus::Cancelled
    {
        let ended = Facts::of(batch).ended_at.unwrap_or_else(|| seconds(now));
        let message = format!(
            "The batch is {} since {ended} and cannot be cancelled.",
            batch.status.name()
        );
        return Err(Failure::from(Fault::Conflict).with_message(message));
    }
    admitted.app.batches.wake();
    batch_object(admitted, &found, &key)
}

/// Removes a batch that its client believes was not created, but that may have been: the client creates another one.
async fn remove_refused(app: Arc<App>, store: Arc<Store>, key: Key) {
    for tries in 1..=20 {
        tokio::time::sleep(RETRY * tries).await;
        match store.delete_batch(key.clone()).await {
            Ok(()) => return app.batches.wake(),
            Err(StoreError::Slow | StoreError::Unavailable(_)) => {}
            // The last query of the store may still be under way.
            Err(_) if tries < 4 => {}
            Err(_) => return,
        }
    }
}

/// Reads the part of a list that a query requests. `limits`: the usual number of entries, and the largest.
pub(super) fn list_request(
    head: &request::Parts,
    (usual, most): (usize, usize),
) -> Result<(PageRequest, Option<FilePurpose>), Failure> {
    let mut range = PageRequest {
        after: None,
        limit: usual,
        descending: true,
    };
    let mut purpose = None;
    for (name, value) in form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()) {
        match (&*name, &*value) {
            (_, "") => {}
            ("after", id) => range.after = Some(id.into()),
            ("limit", limit) => {
                let limit = limit
                    .parse()
                    .ok()
                    .filter(|limit| (1..=most).contains(limit));
                range.limit = limit
                    .ok_or_else(|| invalid("limit", &format!("it must be from 1 to {most}")))?;
            }
            ("order", "desc") => range.descending = true,
            ("order", "asc") => range.descending = false,
            ("order", _) => return Err(invalid("order", "it must be asc or desc")),
            ("purpose", "batch") => purpose = Some(FilePurpose::Batch),
            ("purpose", "batch_output") => purpose = Some(FilePurpose::BatchOutput),
            ("purpose", "user_data") => purpose = Some(FilePurpose::UserData),
            ("purpose", _) => {
                return Err(invalid(
                    "purpose",
                    "it must be batch, batch_output or user_data",
                ));
            }
            _ => {}
        }
    }
    Ok((range, purpose))
}

/// Writes a list of objects, of which there may be one more than was requested.
pub(super) fn list(mut objects: Vec<(&str, String)>, limit: usize) -> Bytes {
    let has_more = objects.len() > limit;
    objects.truncate(limit);
    let quoted = |object: Option<&(&str, String)>| {
        object.map_or_else(
            || "null".to_owned(),
            |(id, _)| serde_json::to_string(id).unwrap_or_default(),
        )
    };
    let (first, last) = (quoted(objects.first()), quoted(objects.last()));
    let mut out = String::from("{\"object\":\"list\",\"data\":[");
    for (at, (_, object)) in objects.iter().enumerate() {
        let _ = write!(out, "{}{object}", if at > 0 { "," } else { "" });
    }
    let _ = write!(
        out,
        "],\"first_id\":{first},\"last_id\":{last},\"has_more\":{has_more}}}"
    );
    out.into()
}
