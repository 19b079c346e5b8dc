//! Events of a background response, read from the store as they come, for clients that stream it.

use super::{READ, RETRY, error_event};
use crate::server::App;
use crate::server::record::Record;
use crate::server::storage::stored_answer::StoredAnswer;
use crate::store::{Key, Store, StoreError};
use crate::wire::encode::in_dialect;
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::ResponsesDialect;
use crate::wire::sse::{DONE, KEEPALIVE};
use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::future::OptionFuture;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Time that a reader waits for a store that does not answer, if keep-alives are off.
const PATIENCE: Duration = Duration::from_secs(15);
/// Interval at which a reader polls for the events of another process.
const LOOK: Duration = Duration::from_millis(250);

/// Request that reads the events; it ends when the last one has been sent.
pub(in crate::server) enum Following {
    /// Request for the events alone.
    Reader(Box<Record>),
    /// Request that has begun the response, whose own record ends with the response.
    Beginner(#[expect(dead_code, reason = "it is held for its drop")] StoredAnswer),
}

impl Following {
    fn told(&mut self, bytes: usize) {
        if let Self::Reader(record) = self {
            record.bytes += bytes;
        }
    }

    fn ended(mut self, outcome: Result<(), &Failure>) {
        if let Self::Reader(record) = &mut self {
            match outcome {
                Ok(()) => record.completed(),
                Err(failure) => record.failed(failure),
            }
        }
    }

    /// Ends the request with the error event that ends its stream.
    fn failed(self, failure: &Failure, after: Option<u64>) -> Bytes {
        self.ended(Err(failure));
        error_frame(failure, after)
    }
}

/// Streams the events of a stored response after number `after`, and those to come, in the reader's dialect
/// (wire-format 4.9).
pub(in crate::server) fn follow(
    app: Arc<App>,
    store: Arc<Store>,
    key: Key,
    after: Option<u64>,
    dialect: ResponsesDialect,
    keepalive: u64,
    following: Following,
) -> impl Stream<Item = Bytes> + Send + use<> {
    let keepalive = Some(Duration::from_secs(keepalive)).filter(|pause| !pause.is_zero());
    futures::stream::unfold(Some((after, following)), move |next| {
        let (app, store, key) = (Arc::clone(&app), Arc::clone(&store), key.clone());
        async move {
            let (mut after, mut following) = next?;
            let silence = tokio::time::Instant::now();
            loop {
                let replay = match store
                    .events_after(key.clone(), after, READ, app.store_handle.now())
                    .await
                {
                    Ok(replay) => replay,
                    Err(StoreError::Slow | StoreError::Unavailable(_))
                        if silence.elapsed() < keepalive.unwrap_or(PATIENCE) && !app.is_cut() =>
                    {
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                    Err(StoreError::NotFound) => {
                        let gone = Failure::from(Fault::NotFound)
                            .with_message("The response was deleted.");
                        return Some((following.failed(&gone, after), None));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the events of a response cannot be read on");
                        return Some((
                            following.failed(&Fault::StoreUnavailable.into(), after),
                            None,
                        ));
                    }
                };
                if let Some(last) = replay.events.bodies.len().checked_sub(1) {
                    after = Some(replay.events.from + last as u64);
                    let told = frames(
                        replay
                            .events
                            .bodies
                            .iter()
                            .filter_map(|event| in_dialect(dialect, event)),
                    );
                    if told.is_empty() {
                        continue;
                    }
                    following.told(told.len());
                    return Some((told, Some((after, following))));
                }
                if replay.state.is_terminal() {
                    following.ended(Ok(()));
                    let marked = dialect == ResponsesDialect::Openresponses;
                    return marked.then(|| (Bytes::from_static(DONE), None));
                }
                if keepalive.is_some_and(|pause| silence.elapsed() >= pause) {
                    return Some((Bytes::from_static(KEEPALIVE), Some((after, following))));
                }
                if app.is_cut() {
                    return Some((following.failed(&Fault::Draining.into(), after), None));
                }
                wait_for_more(&app, &key, replay.total).await;
            }
        }
    })
}

/// Returns when there may be more than `total` events.
async fn wait_for_more(app: &App, key: &Key, total: u64) {
    let here = app
        .responses
        .background_jobs
        .jobs
        .get(key)
        .map(async |run| {
            let _ = run
                .stored
                .subscribe()
                .wait_for(|stored| *stored > total)
                .await;
        });
    tokio::select! {
        Some(()) = OptionFuture::from(here) => {}
        () = tokio::time::sleep(LOOK) => {}
    }
}

fn frames<'e>(events: impl Iterator<Item = (String, Cow<'e, str>)>) -> Bytes {
    let mut out = BytesMut::new();
    for (kind, event) in events {
        for piece in ["event: ", &kind, "\ndata: ", &event, "\n\n"] {
            out.extend_from_slice(piece.as_bytes());
        }
    }
    out.freeze()
}

/// Returns the error event that ends a stream which cannot be read any further.
fn error_frame(failure: &Failure, after: Option<u64>) -> Bytes {
    let event = error_event(failure, after.map_or(0, |after| after + 1));
    frames(std::iter::once((
        "error".to_owned(),
        Cow::Borrowed(&*event),
    )))
}
