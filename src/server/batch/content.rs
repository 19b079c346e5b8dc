//! Content of a file, sent as it is read from the store.

use crate::server::admit::body::{AbortedBody, Body};
use crate::server::admit::headers::Success;
use crate::server::context::RequestContext;
use crate::store::{Error, Key, Store};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use futures::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, request};
use http_body::Frame;
use http_body_util::StreamBody;
use std::sync::Arc;

/// Chunks that are read at once.
const READ: usize = 4;

impl RequestContext {
    pub(super) async fn file_content(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let (store, key) = self.batch_key(head, "/files/")?;
        let found = store.file(key.clone(), self.app.store_handle.now()).await;
        let file = found.map_err(|error| self.batch_failure(&error, "File", &key.id))?;
        let Some(record) = &mut self.record else { return Err(Fault::Proxy.into()) };
        record.answered(200);
        record.completed();
        record.bytes = usize::try_from(file.bytes).unwrap_or(usize::MAX);
        let kind =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))]);
        let success =
            Success { request_id: &record.request_id, passed: &self.passed, attempts: 0, model: None };
        let body = StreamBody::new(content(store, key, file.chunks));
        Ok(success.relayed(200, &kind).map(|()| Body::arriving(Box::new(body))))
    }
}

/// Streams the chunks of a file. If one is missing, the body is aborted, so that its client does not take it for
/// complete.
fn content(
    store: Arc<Store>,
    key: Key,
    chunks: u64,
) -> impl Stream<Item = Result<Frame<Bytes>, AbortedBody>> + Send {
    futures::stream::unfold(Some(0), move |next| {
        let (store, key) = (Arc::clone(&store), key.clone());
        async move {
            let from: u64 = next.filter(|next| *next < chunks)?;
            match read_from(&store, &key, from).await {
                Ok((text, next)) => Some((Ok(Frame::data(text.into())), Some(next))),
                Err(error) => {
                    tracing::warn!(file = &*key.id, %error, "the content of a file cannot be read on");
                    Some((Err(AbortedBody), None))
                }
            }
        }
    })
}

/// Returns the text of some chunks of a file from `place` on, and the place of the next. Fails if one is missing.
pub(super) async fn read_from(store: &Store, key: &Key, place: u64) -> Result<(String, u64), Error> {
    let read = store.chunks(key.clone(), place, READ).await?;
    if read.is_empty() || read.iter().zip(place..).any(|(chunk, place)| chunk.place != place) {
        return Err(Error::NotFound);
    }
    let text = read.iter().map(|chunk| &*chunk.body).collect();
    Ok((text, place + read.len() as u64))
}
