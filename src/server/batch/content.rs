//! Content of a file, sent as it is read from the store.

use super::chunk::{HeldChunk, Next, chunk_with};
use super::{failure_of, object_key};
use crate::server::App;
use crate::server::admit::body::{AbortedBody, Body};
use crate::server::admitted::Admitted;
use crate::server::record::Record;
use crate::server::reply::ClientReply;
use crate::store::{Key, Store, StoreError, StoredFile};
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use futures::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a download looks for room in memory.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes that the HTTP library gets at once. It may copy them: bytes not yet sent stay in the chunk, which is counted.
const PIECE: usize = 128 << 10;

pub(super) async fn file_content(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
) -> Result<Response<Body>, Failure> {
    let (store, key) = object_key(admitted, "/files/")?;
    let found = store
        .file(key.clone(), admitted.app.store_handle.now())
        .await;
    let file = found.map_err(|error| failure_of(admitted, &error, "File", &key.id))?;
    let mut record = reply.take_record()?;
    record.answered_from_store();
    let kind = HeaderMap::from_iter([(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    )]);
    let head = record.success(&reply.passed).relayed(200, &kind);
    let body = StreamBody::new(content(store, file, record));
    Ok(head.map(|()| Body::arriving(Box::new(body))))
}

/// Streams the chunks of a file; its request lasts until the last one was handed over. If one is missing, or the process
/// ends, the body is aborted, so that its client does not take it for complete.
fn content(
    store: Arc<Store>,
    file: StoredFile,
    record: Record,
) -> impl Stream<Item = Result<Frame<Bytes>, AbortedBody>> + Send {
    futures::stream::unfold(Some((0, Bytes::new(), record)), move |next| {
        let (store, key, lines) = (Arc::clone(&store), file.key.clone(), file.lines);
        async move {
            let (mut line, mut rest, mut record) = next?;
            if rest.is_empty() && line == lines {
                record.completed();
                return None;
            }
            if rest.is_empty() {
                match next_chunk(&store, &key, line, &record.app).await {
                    Ok(chunk) => (line, rest) = (line + chunk.lines, chunk.bytes),
                    Err(failure) => {
                        record.failed(&failure);
                        return Some((Err(AbortedBody), None));
                    }
                }
            }
            let piece = rest.split_to(rest.len().min(PIECE));
            record.bytes += piece.len();
            Some((Ok(Frame::data(piece)), Some((line, rest, record))))
        }
    })
}

/// Reads the chunk with a line, once there is memory for it. Fails if it is missing, or the process ends.
async fn next_chunk(store: &Store, key: &Key, line: u64, app: &App) -> Result<HeldChunk, Failure> {
    let read = async {
        loop {
            match chunk_with(store, key, line, &app.admit.budget).await? {
                Next::Read(chunk) => return Ok(chunk),
                Next::NoRoom => tokio::time::sleep(LOOK).await,
                Next::End => return Err(StoreError::NotFound),
            }
        }
    };
    let read = tokio::select! {
        read = read => read,
        () = app.cut() => return Err(Fault::Draining.into()),
    };
    read.map_err(|error| match error {
        StoreError::NotFound => {
            Failure::from(Fault::NotFound).with_message("The file was deleted.")
        }
        error => {
            tracing::warn!(file = &*key.id, %error, "the content of a file cannot be read on");
            Fault::StoreUnavailable.into()
        }
    })
}
