//! Files of `/v1/files` in the parts of messages.

use super::content::read_from;
use crate::request::named_files::{named_files, with_files};
use crate::server::context::RequestContext;
use crate::store::{Error, Key};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::HeaderMap;

impl RequestContext {
    /// Returns the body with the content of the tenant's files that it names by id. Ids that are not known stay.
    /// Fails if the body becomes too large, or if the store fails.
    pub(in crate::server) async fn with_files(
        &mut self,
        body: Bytes,
        headers: &HeaderMap,
    ) -> Result<Bytes, Failure> {
        let named = named_files(&body);
        if named.is_empty() || !self.app.config.batch.enabled {
            return Ok(body);
        }
        let (store, now) = (self.batch_store()?, self.app.store_handle.now());
        let most = self.app.config.limits.max_body_bytes;
        let (mut files, mut size) = (Vec::new(), body.len());
        for named in named {
            let key = Key { tenant: self.tenant(headers), id: named.id.as_str().into() };
            let file = match store.file(key.clone(), now).await {
                Ok(file) => file,
                Err(Error::NotFound) => continue,
                Err(error) => return Err(self.batch_failure(&error, "File", &key.id)),
            };
            // As base64.
            size =
                size.saturating_add(usize::try_from(file.bytes.saturating_mul(4) / 3).unwrap_or(usize::MAX));
            if size > most {
                let message =
                    format!("With the file {} the request has more than limits.max_body_bytes.", named.id);
                return Err(Failure::from(Fault::TooLarge).with_message(message).with_param("file_id"));
            }
            let (mut content, mut place) = (String::new(), 0);
            while place < file.chunks {
                let read = read_from(&store, &key, place).await;
                let (text, next) = read.map_err(|error| self.batch_failure(&error, "File", &key.id))?;
                content.push_str(&text);
                place = next;
            }
            files.push((named, file.name.as_ref().to_owned(), content));
        }
        if files.is_empty() {
            return Ok(body);
        }
        self.counted(with_files(&body, &files))
    }
}
