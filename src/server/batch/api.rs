//! Operations on batches: create, read, list and cancel.

use super::facts::{Facts, object};
use super::seconds;
use crate::request::batch::BatchRequest;
use crate::request::invalid;
use crate::server::App;
use crate::server::admit::body::Body;
use crate::server::context::RequestContext;
use crate::store::{BatchStatus, Error, FilePurpose, Key, ListRequest, NewBatch, Store};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::{Response, request};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Entries of a list, if the client asks for no number, and at most.
const BATCHES: (usize, usize) = (20, 100);
/// Pause before the first attempt to remove a batch that was refused; each further one is as much longer.
const RETRY: Duration = Duration::from_millis(500);

impl RequestContext {
    pub(super) async fn create_batch(
        &mut self,
        head: &request::Parts,
        body: &[u8],
    ) -> Result<Response<Body>, Failure> {
        let asked = BatchRequest::read(body, self.rules())?;
        let store = self.batch_store()?;
        let tenant = self.tenant(&head.headers);
        let (app, now) = (&self.app, self.app.store_handle.now());
        let caller = match (&app.config.auth, &self.caller) {
            (Some(keys), Some(caller)) => keys.counters_of(caller).unwrap_or_default(),
            _ => String::new(),
        };
        let facts = Facts {
            endpoint: asked.endpoint.to_owned(),
            metadata: asked.metadata,
            results_expire_after: asked.results_expire_after,
            ..Facts::default()
        };
        let id = self.ids.stamp().id;
        let window = u64::try_from(app.config.batch.completion_window.as_millis()).unwrap_or(u64::MAX);
        let new = NewBatch {
            key: Key { tenant, id: format!("batch_{id}").into() },
            caller: caller.into(),
            input: asked.input.as_str().into(),
            output: format!("file-{id}o").into(),
            errors: format!("file-{id}e").into(),
            expires: now.saturating_add(window),
            facts: facts.text().into(),
        };
        let (created, key) = (new.first(now), new.key.clone());
        let most = app.config.batch.tenant_batches;
        match store.create_batch(new, most, now).await {
            Ok(()) => {
                self.app.batches.wake();
                Ok(self.object_response(Bytes::from(object(&created))))
            }
            Err(Error::NotFound) => {
                Err(invalid("input_file_id", "there is no such file with the purpose batch"))
            }
            Err(Error::TooMany) => {
                let message = format!("There may be {most} batches that have not ended.");
                Err(Failure::from(Fault::RateLimit).with_message(message))
            }
            Err(error) => {
                if matches!(error, Error::Slow | Error::Unavailable(_)) {
                    #[expect(clippy::disallowed_methods, reason = "bounded by its attempts")]
                    tokio::spawn(remove_refused(Arc::clone(&self.app), store, key.clone()));
                }
                Err(self.batch_failure(&error, "Batch", &key.id))
            }
        }
    }

    fn batch_response(
        &mut self,
        found: &Result<crate::store::Batch, Error>,
        key: &Key,
    ) -> Result<Response<Body>, Failure> {
        match found {
            Ok(batch) => Ok(self.object_response(Bytes::from(object(batch)))),
            Err(error) => Err(self.batch_failure(error, "Batch", &key.id)),
        }
    }

    pub(super) async fn show_batch(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let (store, key) = self.batch_key(head, "/batches/")?;
        let found = store.batch(key.clone(), self.app.store_handle.now()).await;
        self.batch_response(&found, &key)
    }

    pub(super) async fn list_batches(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let store = self.batch_store()?;
        let ask = list_request(head, BATCHES)?;
        let more = ListRequest { limit: ask.limit + 1, descending: true, ..ask.clone() };
        let now = self.app.store_handle.now();
        let found = store.batches(self.tenant(&head.headers), more, now).await;
        let found = found.map_err(|error| self.batch_failure(&error, "Batch", ""))?;
        let objects = found.iter().map(|batch| (&*batch.key.id, object(batch)));
        Ok(self.object_response(list(objects.collect(), ask.limit)))
    }

    pub(super) async fn cancel_batch(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let (store, key) = self.batch_key(head, "/batches/")?;
        let now = self.app.store_handle.now();
        let found = store.cancel_batch(key.clone(), now).await;
        if let Ok(batch) = &found
            && batch.status.is_terminal()
            && batch.status != BatchStatus::Cancelled
        {
            let ended = Facts::of(batch).ended_at.unwrap_or_else(|| seconds(now));
            let message =
                format!("The batch is {} since {ended} and cannot be cancelled.", batch.status.name());
            return Err(Failure::from(Fault::Conflict).with_message(message));
        }
        self.app.batches.wake();
        self.batch_response(&found, &key)
    }
}

/// Removes a batch that its client believes was not created, but that may have been: the client creates another one.
async fn remove_refused(app: Arc<App>, store: Arc<Store>, key: Key) {
    for tries in 1..=20 {
        tokio::time::sleep(RETRY * tries).await;
        match store.delete_batch(key.clone()).await {
            Ok(()) => return app.batches.wake(),
            Err(Error::Slow | Error::Unavailable(_)) => {}
            // What the store was asked for last may still be under way.
            Err(_) if tries < 4 => {}
            Err(_) => return,
        }
    }
}

/// Reads the part of a list that a query asks for. `limits`: the usual number of entries, and the largest.
pub(super) fn list_request(
    head: &request::Parts,
    (usual, most): (usize, usize),
) -> Result<ListRequest, Failure> {
    let mut ask = ListRequest { after: None, limit: usual, descending: true, purpose: None };
    for (name, value) in form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()) {
        match (&*name, &*value) {
            (_, "") => {}
            ("after", id) => ask.after = Some(id.into()),
            ("limit", limit) => {
                let limit = limit.parse().ok().filter(|limit| (1..=most).contains(limit));
                ask.limit = limit.ok_or_else(|| invalid("limit", &format!("it must be from 1 to {most}")))?;
            }
            ("order", "desc") => ask.descending = true,
            ("order", "asc") => ask.descending = false,
            ("order", _) => return Err(invalid("order", "it must be asc or desc")),
            ("purpose", "batch") => ask.purpose = Some(FilePurpose::Batch),
            ("purpose", "batch_output") => ask.purpose = Some(FilePurpose::BatchOutput),
            ("purpose", "user_data") => ask.purpose = Some(FilePurpose::UserData),
            ("purpose", _) => return Err(invalid("purpose", "it must be batch, batch_output or user_data")),
            _ => {}
        }
    }
    Ok(ask)
}

/// Writes a list of objects, of which there may be one more than was asked for.
pub(super) fn list(mut objects: Vec<(&str, String)>, limit: usize) -> Bytes {
    let has_more = objects.len() > limit;
    objects.truncate(limit);
    let quoted = |object: Option<&(&str, String)>| {
        object.map_or_else(|| "null".to_owned(), |(id, _)| serde_json::to_string(id).unwrap_or_default())
    };
    let (first, last) = (quoted(objects.first()), quoted(objects.last()));
    let mut out = String::from("{\"object\":\"list\",\"data\":[");
    for (at, (_, object)) in objects.iter().enumerate() {
        let _ = write!(out, "{}{object}", if at > 0 { "," } else { "" });
    }
    let _ = write!(out, "],\"first_id\":{first},\"last_id\":{last},\"has_more\":{has_more}}}");
    out.into()
}
