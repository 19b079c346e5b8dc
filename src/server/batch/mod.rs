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
mod line;
pub(super) mod named_files;
mod queue;
mod reader;
pub(super) mod registry;
mod run;
pub(super) mod runner;
mod upload;

use super::admit::body::Body;
use super::admitted::Admitted;
use super::headers;
use super::reply::ClientReply;
use super::request_body::RequestBody;
use super::storage::objects::{decoded, not_found};
use crate::store::{Key, Store, StoreError};
use crate::wire::fault::{Failure, Fault};
use http::{Method, Response};
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

/// Serves a request for files or batches. Fails if it is invalid, names an object that does not exist, exceeds
/// a limit, or if the store fails.
pub(super) async fn serve(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
    what: BatchPath,
) -> Result<Response<Body>, Failure> {
    let method = &admitted.head.method;
    if what == BatchPath::Files && method == Method::POST {
        return upload::upload_file(admitted, reply, body).await;
    }
    match what {
        // The SDKs accept application/binary here.
        BatchPath::Content => headers::check_relayed(&admitted.head.headers)?,
        _ => headers::check(&admitted.head.headers)?,
    }
    if what == BatchPath::Batches && method == Method::POST {
        let bytes = body
            .read(admitted.app.config.limits.other_body_bytes, admitted, reply)
            .await?;
        return Ok(reply.object(api::create_batch(admitted, &bytes).await?));
    }
    body.active_request.begin_answer();
    let object = match what {
        BatchPath::Content => return content::file_content(admitted, reply).await,
        BatchPath::Files => files::list_files(admitted).await?,
        BatchPath::File if method == Method::DELETE => files::delete_file(admitted).await?,
        BatchPath::File => files::show_file(admitted).await?,
        BatchPath::Batches => api::list_batches(admitted).await?,
        BatchPath::Batch => api::show_batch(admitted).await?,
        BatchPath::Cancel => api::cancel_batch(admitted).await?,
    };
    Ok(reply.object(object))
}

/// Returns the open store. Fails if it is not open.
fn open_store(admitted: &Admitted<'_>) -> Result<Arc<Store>, Failure> {
    admitted
        .app
        .store_handle
        .opened()?
        .ok_or_else(|| Fault::StoreUnavailable.into())
}

/// Returns the store, and the key of the object that the path names after `before`.
fn object_key(admitted: &Admitted<'_>, before: &str) -> Result<(Arc<Store>, Key), Failure> {
    let rest = admitted
        .head
        .uri
        .path()
        .split_once(before)
        .map_or("", |(_, rest)| rest);
    let id = decoded(rest.split('/').next().unwrap_or(rest));
    Ok((
        open_store(admitted)?,
        Key {
            tenant: admitted.tenant(),
            id: id.into(),
        },
    ))
}

/// Converts an error of the store; `what` and `id` name the object.
fn failure_of(admitted: &Admitted<'_>, error: &StoreError, what: &str, id: &str) -> Failure {
    match error {
        StoreError::NotFound => not_found(what, id),
        StoreError::NoCursor => crate::request::invalid("after", "the list has no such object"),
        other => {
            let request_id = &*admitted.request_id;
            tracing::warn!(request_id, error = %other, "the store does not answer as it should");
            Fault::StoreUnavailable.into()
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
