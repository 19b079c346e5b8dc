//! Way of a line to a worker thread, whose router answers it as it answers a client's request.
//!
//! Connections to engines belong to a thread, so a line runs on one of the threads, in turn. Dropping the answer's
//! future ends the line there, as a client does that leaves.

use crate::server::BackgroundCount;
use crate::server::Worker;
use axum::Router;
use axum::body::Body as Incoming;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Collected, Limited};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tower::Service;

/// Lines that may wait for a thread.
const WAITING: usize = 64;

/// Line on its way to a thread.
pub(in crate::server) struct LineJob {
    request: Request<Incoming>,
    /// Most bytes of the answer.
    limit: usize,
    reply: oneshot::Sender<LineAnswer>,
}

/// Answer to a line.
pub(super) struct LineAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// Body of the answer; `None` if it broke off or is too long.
    pub(super) body: Option<Bytes>,
}

/// Queues of all worker threads.
pub(in crate::server) struct Dispatcher {
    threads: Vec<mpsc::Sender<LineJob>>,
    next: AtomicUsize,
}

/// Returns the queue of one thread.
pub(in crate::server) fn queue() -> (mpsc::Sender<LineJob>, mpsc::Receiver<LineJob>) {
    mpsc::channel(WAITING)
}

impl Dispatcher {
    pub(in crate::server) fn new(threads: Vec<mpsc::Sender<LineJob>>) -> Self {
        Self {
            threads,
            next: AtomicUsize::new(0),
        }
    }

    /// Has a request answered by the next thread; `None` if the thread has ended or the request ended in a bug.
    pub(super) async fn dispatch(
        &self,
        request: Request<Incoming>,
        limit: usize,
    ) -> Option<LineAnswer> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        let (reply, answer) = oneshot::channel();
        self.threads
            .get(at)?
            .send(LineJob {
                request,
                limit,
                reply,
            })
            .await
            .ok()?;
        answer.await.ok()
    }
}

/// Answers the lines of a thread, without end.
pub(in crate::server) async fn serve_lines(
    worker: Arc<Worker>,
    router: Router,
    mut jobs: mpsc::Receiver<LineJob>,
) {
    while let Some(job) = jobs.recv().await {
        // The thread stays until the line has ended.
        let count = BackgroundCount::begin(Arc::clone(&worker));
        let mut router = router.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with the batch that waits for it"
        )]
        tokio::spawn(async move {
            let LineJob {
                request,
                limit,
                mut reply,
            } = job;
            let answer = tokio::select! {
                answer = answer(&mut router, request, limit) => answer,
                () = reply.closed() => return,
            };
            drop(count);
            let _ = reply.send(answer);
        });
    }
}

async fn answer(router: &mut Router, request: Request<Incoming>, limit: usize) -> LineAnswer {
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    let body = Limited::new(body, limit)
        .collect()
        .await
        .ok()
        .map(Collected::to_bytes);
    LineAnswer {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
    }
}

impl LineAnswer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the id of the request, which the log has too.
    pub(super) fn request_id(&self) -> &str {
        self.header("x-request-id").unwrap_or_default()
    }

    /// Returns the time that the answer asks to wait before another attempt.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.header(RETRY_AFTER.as_str())?
            .parse()
            .ok()
            .map(Duration::from_secs)
    }

    /// Returns true if another attempt has no use.
    pub(super) fn is_final(&self) -> bool {
        self.header("x-should-retry") == Some("false")
    }
}
