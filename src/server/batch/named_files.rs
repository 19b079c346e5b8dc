//! Files of `/v1/files` in the parts of messages.

use super::chunk::chunk_text;
use super::{failure_of, open_store};
use crate::request::invalid;
use crate::request::named_files::{named_files, with_files as insert_files};
use crate::server::admitted::Admitted;
use crate::server::request_body::RequestBody;
use crate::store::{Key, Store, StoreError, StoredFile};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use std::collections::HashMap;

/// Files that a request may name.
const MOST_FILES: usize = 64;

/// Returns the body with the content of the tenant's files that it names by id. Ids that are not known stay.
/// Fails if the body becomes too large, or if the store fails.
pub(in crate::server) async fn with_files(
    admitted: &Admitted<'_>,
    body: &mut RequestBody,
    bytes: Bytes,
) -> Result<Bytes, Failure> {
    let app = admitted.app;
    // Without batches there are no files, and no body is searched for them.
    let named = if app.config.batch.enabled {
        named_files(&bytes)
    } else {
        Vec::new()
    };
    if named.is_empty() {
        return Ok(bytes);
    }
    let store = open_store(admitted)?;
    let (mut files, mut texts_bytes) = (HashMap::new(), 0);
    let mut size = bytes.len();
    for named in &named {
        if !files.contains_key(named.id.as_str()) {
            if files.len() == MOST_FILES {
                return Err(invalid("file_id", "a request may name at most 64 files"));
            }
            let file = named_file(admitted, &store, &named.id).await?;
            texts_bytes += file.as_ref().map_or(0, bytes_of);
            files.insert(named.id.as_str(), file);
        }
        let file = files.get(named.id.as_str()).and_then(Option::as_ref);
        // As base64.
        size = size.saturating_add(file.map_or(0, |file| bytes_of(file) / 3 * 4));
        if size > app.config.limits.max_body_bytes {
            return Err(too_large(&named.id));
        }
    }
    // Memory is taken before anything is read: for the body, and meanwhile for the texts.
    let (mut share, for_texts) = (
        app.admit.budget.share(size)?,
        app.admit.budget.share(texts_bytes)?,
    );
    let mut texts = HashMap::new();
    for (id, file) in files {
        if let Some(file) = file {
            texts.insert(
                id,
                (
                    file.name.as_ref().to_owned(),
                    text_of(admitted, &store, &file).await?,
                ),
            );
        }
    }
    let found = named
        .iter()
        .filter_map(|named| Some((named, texts.get(named.id.as_str())?)));
    if found.clone().next().is_none() {
        return Ok(bytes);
    }
    let whole = insert_files(&bytes, found, size);
    drop((texts, for_texts));
    share.reach(whole.len())?;
    Ok(body.hold(whole, share))
}

/// Returns a file of the tenant, without its text; `None` if it is not known.
async fn named_file(
    admitted: &Admitted<'_>,
    store: &Store,
    id: &str,
) -> Result<Option<StoredFile>, Failure> {
    let key = Key {
        tenant: admitted.tenant(),
        id: id.into(),
    };
    match store.file(key, admitted.app.store_handle.now()).await {
        Ok(file) => Ok(Some(file)),
        Err(StoreError::NotFound) => Ok(None),
        Err(error) => Err(failure_of(admitted, &error, "File", id)),
    }
}

async fn text_of(
    admitted: &Admitted<'_>,
    store: &Store,
    file: &StoredFile,
) -> Result<String, Failure> {
    let (mut content, mut place) = (String::with_capacity(bytes_of(file)), 0);
    while place < file.chunks {
        let read = chunk_text(store, &file.key, place).await;
        content
            .push_str(&read.map_err(|error| failure_of(admitted, &error, "File", &file.key.id))?);
        place += 1;
    }
    Ok(content)
}

fn bytes_of(file: &StoredFile) -> usize {
    usize::try_from(file.bytes).unwrap_or(usize::MAX)
}

fn too_large(id: &str) -> Failure {
    let message = format!("With the file {id} the request has more than limits.max_body_bytes.");
    Failure::from(Fault::TooLarge)
        .with_message(message)
        .with_param("file_id")
}
