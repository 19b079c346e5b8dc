//! Content of a file, sent as it is read from the store.

use crate::server::admit::body::{AbortedBody, Body};
use crate::server::admit::headers::Success;
use crate::server::context::RequestContext;
use crate::server::record::Record;
use crate::store::{Error, Key, Store};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use futures::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, request};
use http_body::Frame;
use http_body_util::StreamBody;
use std::sync::Arc;

impl RequestContext {
    pub(super) async fn file_content(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        let (store, key) = self.batch_key(head, "/files/")?;
        let found = store.file(key.clone(), self.app.store_handle.now()).await;
        let file = found.map_err(|error| self.batch_failure(&error, "File", &key.id))?;
        let Some(mut record) = self.record.take() else { return Err(Fault::Proxy.into()) };
        record.answered(200);
        let kind =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))]);
        let success =
            Success { request_id: &record.request_id, passed: &self.passed, attempts: 0, model: None };
        let head = success.relayed(200, &kind);
        let body = StreamBody::new(content(store, key, file.chunks, record));
        Ok(head.map(|()| Body::arriving(Box::new(body))))
    }
}

/// Streams the chunks of a file; its request lasts until the last one was handed over. If one is missing, or the process
/// ends, the body is aborted, so that its client does not take it for complete.
fn content(
    store: Arc<Store>,
    key: Key,
    chunks: u64,
    record: Record,
) -> impl Stream<Item = Result<Frame<Bytes>, AbortedBody>> + Send {
    futures::stream::unfold(Some((0, record)), move |next| {
        let (store, key) = (Arc::clone(&store), key.clone());
        async move {
            let (place, mut record) = next?;
            if place == chunks {
                record.completed();
                return None;
            }
            let app = Arc::clone(&record.app);
            let read = tokio::select! {
                read = read_chunk(&store, &key, place) => read.map_err(|error| match error {
                    Error::NotFound => Failure::from(Fault::NotFound).with_message("The file was deleted."),
                    error => {
                        tracing::warn!(file = &*key.id, %error, "the content of a file cannot be read on");
                        Fault::StoreUnavailable.into()
                    }
                }),
                () = app.cut() => Err(Fault::Draining.into()),
            };
            Some(match read {
                Ok(text) => {
                    record.bytes += text.len();
                    (Ok(Frame::data(Bytes::from_owner(ChunkText(text)))), Some((place + 1, record)))
                }
                Err(failure) => {
                    record.failed(&failure);
                    (Err(AbortedBody), None)
                }
            })
        }
    })
}

/// Returns the text of a chunk of a file. Fails if it is missing.
pub(super) async fn read_chunk(store: &Store, key: &Key, place: u64) -> Result<Arc<str>, Error> {
    let read = store.chunks(key.clone(), place, 1).await?;
    let chunk = read.into_iter().find(|chunk| chunk.place == place);
    chunk.map(|chunk| chunk.body).ok_or(Error::NotFound)
}

/// Text of a chunk, as bytes that are not copied.
struct ChunkText(Arc<str>);

impl AsRef<[u8]> for ChunkText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
