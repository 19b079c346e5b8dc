//! Operations on files: read, list and delete.

use super::api::{list, list_request};
use super::{failure_of, object_key, open_store, seconds};
use crate::json::members;
use crate::server::admitted::Admitted;
use crate::store::{PageRequest, StoreError, StoredFile};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;

/// Entries of a list, if the client asks for no number, and at most.
const FILES: (usize, usize) = (10_000, 10_000);

/// Returns the file object, as clients read it.
pub(super) fn file_object(file: &StoredFile) -> String {
    let object = members! {
        id: &*file.key.id,
        object: "file",
        bytes: file.bytes,
        created_at: seconds(file.created),
        expires_at: seconds(file.expires),
        filename: &*file.name,
        purpose: file.purpose.name(),
        status: "processed",
        status_details: None::<()>,
    };
    serde_json::to_string(&object).unwrap_or_default()
}

pub(super) async fn show_file(admitted: &Admitted<'_>) -> Result<Bytes, Failure> {
    let (store, key) = object_key(admitted, "/files/")?;
    let found = store
        .file(key.clone(), admitted.app.store_handle.now())
        .await;
    let file = found.map_err(|error| failure_of(admitted, &error, "File", &key.id))?;
    Ok(Bytes::from(file_object(&file)))
}

pub(super) async fn list_files(admitted: &Admitted<'_>) -> Result<Bytes, Failure> {
    let store = open_store(admitted)?;
    let (range, purpose) = list_request(admitted.head, FILES)?;
    let more = PageRequest {
        limit: range.limit + 1,
        ..range.clone()
    };
    let found = store
        .files(
            admitted.tenant(),
            more,
            purpose,
            admitted.app.store_handle.now(),
        )
        .await;
    let found = found.map_err(|error| failure_of(admitted, &error, "File", ""))?;
    let objects = found.iter().map(|file| (&*file.key.id, file_object(file)));
    Ok(list(objects.collect(), range.limit))
}

pub(super) async fn delete_file(admitted: &Admitted<'_>) -> Result<Bytes, Failure> {
    let (store, key) = object_key(admitted, "/files/")?;
    let now = admitted.app.store_handle.now();
    let deleted = match store.file(key.clone(), now).await {
        Ok(_) => store.delete_file(key.clone(), now).await,
        Err(error) => Err(error),
    };
    deleted.map_err(|error| match error {
        StoreError::Conflict => Failure::from(Fault::Conflict)
            .with_message("A batch that has not ended reads this file."),
        error => failure_of(admitted, &error, "File", &key.id),
    })?;
    let deleted = members! { id: &*key.id, object: "file", deleted: true };
    Ok(serde_json::to_string(&deleted).unwrap_or_default().into())
}
