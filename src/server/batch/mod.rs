//! Files and batches: `/v1/files` and `/v1/batches` over the store (docs/batch.md, faults O31 to O37).
//!
//! ```text
//! form ─→ upload ─→ store: chunks of whole lines
//!                     │
//! runner (one task for each batch) ─→ lines ─→ dispatch ─→ a worker's router, as any request ─→ engine
//!                     │
//!                     ↓
//! store: results and progress in one transaction ─→ content of the output file
//! ```

mod api;
mod chunk;
mod content;
pub(super) mod dispatch;
mod done_lines;
mod facts;
mod files;
pub(super) mod identity;
mod line;
mod named_files;
mod queue;
mod reader;
pub(super) mod registry;
mod run;
pub(super) mod runner;
mod upload;

use super::admit::body::Body;
use super::admit::headers;
use super::context::RequestContext;
use crate::store::{Error, Key, Store};
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use http::{Method, Response, request};
use std::sync::Arc;

/// Object that a path of files or batches names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchPath {
    /// The files of a tenant, to which a new one is uploaded.
    Files,
    /// A file.
    File,
    /// The content of a file.
    Content,
    /// The batches of a tenant, to which a new one is posted.
    Batches,
    /// A batch.
    Batch,
    /// Cancellation of a batch.
    Cancel,
}

impl RequestContext {
    /// Serves a request for files or batches. Fails if it is invalid, names an object that does not exist, exceeds
    /// a limit, or if the store fails.
    pub(super) async fn serve_batch(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
        what: BatchPath,
    ) -> Result<Response<Body>, Failure> {
        if what == BatchPath::Files && head.method == Method::POST {
            return self.upload_file(head, body).await;
        }
        match what {
            // The SDKs accept application/binary here.
            BatchPath::Content => headers::check_relayed(&head.headers)?,
            _ => headers::check(&head.headers)?,
        }
        if what == BatchPath::Batches && head.method == Method::POST {
            let limit = self.app.config.limits.other_body_bytes;
            let body = self.body(body, limit).await?;
            return self.create_batch(head, &body).await;
        }
        self.active_request.begin_answer();
        match what {
            BatchPath::Files => self.list_files(head).await,
            BatchPath::File if head.method == Method::DELETE => self.delete_file(head).await,
            BatchPath::File => self.show_file(head).await,
            BatchPath::Content => self.file_content(head).await,
            BatchPath::Batches => self.list_batches(head).await,
            BatchPath::Batch => self.show_batch(head).await,
            BatchPath::Cancel => self.cancel_batch(head).await,
        }
    }

    /// Returns the open store. Fails if it is not open.
    fn batch_store(&self) -> Result<Arc<Store>, Failure> {
        self.app.store_handle.opened()?.ok_or_else(|| Fault::StoreUnavailable.into())
    }

    /// Returns the store, and the key of the object that a path names behind `before`.
    fn batch_key(&self, head: &request::Parts, before: &str) -> Result<(Arc<Store>, Key), Failure> {
        let rest = head.uri.path().split_once(before).map_or("", |(_, rest)| rest);
        let id = super::responses::decoded(rest.split('/').next().unwrap_or(rest));
        Ok((self.batch_store()?, Key { tenant: self.tenant(&head.headers), id: id.into() }))
    }

    /// Converts an error of the store; `what` and `id` name the object.
    fn batch_failure(&self, error: &Error, what: &str, id: &str) -> Failure {
        match error {
            Error::NotFound => super::responses::not_found(what, id),
            Error::NoCursor => crate::request::invalid("after", "the list has no such object"),
            other => {
                let request_id = self.record.as_ref().map(|record| &*record.request_id);
                tracing::warn!(request_id, error = %other, "the store does not answer as it should");
                Fault::StoreUnavailable.into()
            }
        }
    }
}

/// Returns a limit of `[batch]` that a request has reached, as a failure.
fn at_limit(message: String) -> Failure {
    Failure::from(Fault::InvalidValue).with_message(message)
}

/// Returns whole seconds.
fn seconds(milliseconds: u64) -> u64 {
    milliseconds / 1_000
}
