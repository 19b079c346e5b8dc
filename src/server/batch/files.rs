//! Operations on files: read, list and delete.

use super::api::{list, list_request};
use super::seconds;
use crate::server::admit::body::Body;
use crate::server::context::RequestContext;
use crate::store::{Error, ListRequest, StoredFile};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::{Response, request};
use serde::Serialize;

/// Entries of a list, if the client asks for no number, and at most.
const FILES: (usize, usize) = (10_000, 10_000);

#[derive(Serialize)]
struct FileObject<'a> {
    id: &'a str,
    object: &'static str,
    bytes: u64,
    created_at: u64,
    expires_at: u64,
    filename: &'a str,
    purpose: &'static str,
    status: &'static str,
    status_details: Option<&'static str>,
}

/// Returns the file object, as clients read it.
pub(super) fn file_object(file: &StoredFile) -> String {
    let object = FileObject {
        id: &file.key.id,
        object: "file",
        bytes: file.bytes,
        created_at: seconds(file.created),
        expires_at: seconds(file.expires),
        filename: &file.name,
        purpose: file.purpose.name(),
        status: "processed",
        status_details: None,
    };
    serde_json::to_string(&object).unwrap_or_default()
}

#[derive(Serialize)]
struct DeletedFile<'a> {
    id: &'a str,
    object: &'static str,
    deleted: bool,
}

impl RequestContext {
    pub(super) async fn show_file(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let (store, key) = self.batch_key(head, "/files/")?;
        let found = store.file(key.clone(), self.app.store_handle.now()).await;
        let file = found.map_err(|error| self.batch_failure(&error, "File", &key.id))?;
        Ok(self.object_response(Bytes::from(file_object(&file))))
    }

    pub(super) async fn list_files(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let store = self.batch_store()?;
        let ask = list_request(head, FILES)?;
        let more = ListRequest { limit: ask.limit + 1, ..ask.clone() };
        let found = store.files(self.tenant(&head.headers), more, self.app.store_handle.now()).await;
        let found = found.map_err(|error| self.batch_failure(&error, "File", ""))?;
        let objects = found.iter().map(|file| (&*file.key.id, file_object(file)));
        Ok(self.object_response(list(objects.collect(), ask.limit)))
    }

    pub(super) async fn delete_file(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let (store, key) = self.batch_key(head, "/files/")?;
        let now = self.app.store_handle.now();
        let deleted = match store.file(key.clone(), now).await {
            Ok(_) => store.delete_file(key.clone(), now).await,
            Err(error) => Err(error),
        };
        match deleted {
            // A small file makes room at once; a large one goes little by little.
            Ok(()) => _ = store.sweep_files(now).await,
            Err(Error::Conflict) => {
                let message = "A batch that has not ended reads this file.";
                return Err(Failure::from(Fault::Conflict).with_message(message));
            }
            Err(error) => return Err(self.batch_failure(&error, "File", &key.id)),
        }
        let deleted = DeletedFile { id: &key.id, object: "file", deleted: true };
        Ok(self.object_response(serde_json::to_string(&deleted).unwrap_or_default().into()))
    }
}
