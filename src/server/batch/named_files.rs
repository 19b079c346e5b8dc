//! Files of `/v1/files` in the parts of messages.

use super::content::read_from;
use crate::request::invalid;
use crate::request::named_files::{named_files, with_files};
use crate::server::context::RequestContext;
use crate::store::{Error, Key, Store};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::HeaderMap;
use std::collections::HashMap;

/// Files that a request may name.
const MOST_FILES: usize = 64;

impl RequestContext {
    /// Returns the body with the content of the tenant's files that it names by id. Ids that are not known stay.
    /// Fails if the body becomes too large, or if the store fails.
    pub(in crate::server) async fn with_files(
        &mut self,
        body: Bytes,
        headers: &HeaderMap,
    ) -> Result<Bytes, Failure> {
        // Without batches there are no files, and no body is searched for them.
        let named = if self.app.config.batch.enabled { named_files(&body) } else { Vec::new() };
        if named.is_empty() {
            return Ok(body);
        }
        let store = self.batch_store()?;
        let most = self.app.config.limits.max_body_bytes;
        let mut files: HashMap<&str, Option<(String, String)>> = HashMap::new();
        let mut size = body.len();
        for named in &named {
            if !files.contains_key(named.id.as_str()) {
                if files.len() == MOST_FILES {
                    return Err(invalid("file_id", "a request may name at most 64 files"));
                }
                let key = Key { tenant: self.tenant(headers), id: named.id.as_str().into() };
                files.insert(&named.id, self.text_of(&store, key, most).await?);
            }
            let content = files.get(named.id.as_str()).and_then(Option::as_ref);
            // As base64.
            size += content.map_or(0, |(_, content)| content.len() / 3 * 4);
            if size > most {
                return Err(too_large(&named.id));
            }
        }
        let found = named.iter().filter_map(|named| Some((named, files.get(named.id.as_str())?.as_ref()?)));
        if found.clone().next().is_none() {
            return Ok(body);
        }
        self.counted(with_files(&body, found))
    }

    /// Returns the name and the text of a file; `None` if it is not known. Fails if it has more than `most` bytes.
    async fn text_of(
        &self,
        store: &Store,
        key: Key,
        most: usize,
    ) -> Result<Option<(String, String)>, Failure> {
        let file = match store.file(key.clone(), self.app.store_handle.now()).await {
            Ok(file) => file,
            Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(self.batch_failure(&error, "File", &key.id)),
        };
        if file.bytes > most as u64 {
            return Err(too_large(&key.id));
        }
        let (mut content, mut place) = (String::new(), 0);
        while place < file.chunks {
            let read = read_from(store, &key, place).await;
            let (text, next) = read.map_err(|error| self.batch_failure(&error, "File", &key.id))?;
            content.push_str(&text);
            place = next;
        }
        Ok(Some((file.name.as_ref().to_owned(), content)))
    }
}

fn too_large(id: &str) -> Failure {
    let message = format!("With the file {id} the request has more than limits.max_body_bytes.");
    Failure::from(Fault::TooLarge).with_message(message).with_param("file_id")
}
