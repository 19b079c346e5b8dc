//! A request's body that is read as fast as the engine takes it, within its limits.
//!
//! Its timers run only while the client is waited for: a slow engine is not the client's fault. There is none for the whole
//! of it; what is steady may take as long as it takes.

use crate::request::Rules;
use crate::request::relayed::Scan;
use crate::server::App;
use crate::server::body::least;
use crate::server::connection::{ActiveRequest, ConnectionState, overslept};
use crate::upstream::Source;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::Bytes;
use http_body::Body as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The progress of a body that is still arriving.
pub(in crate::server) struct Progress {
    begun: Instant,
    /// Milliseconds from then to the last piece that was taken.
    moved: AtomicU64,
    bytes: AtomicUsize,
    ended: AtomicBool,
}

impl Progress {
    /// Bytes that have come.
    pub(in crate::server) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether all of it has come.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the time at which the last piece was taken.
    pub(super) fn moved(&self) -> Instant {
        self.begun + Duration::from_millis(self.moved.load(Ordering::Relaxed))
    }

    fn take(&self, bytes: usize) -> usize {
        let moved = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(moved, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

/// A body that is still coming.
pub(super) struct ClientBody {
    body: Incoming,
    /// The search for the model in it.
    pub(super) scan: Scan,
    rules: Arc<Rules>,
    limit: usize,
    pace: BodyTimers,
    progress: Arc<Progress>,
    /// The stage of the connection, which has to notice that a client leaves while nobody reads from it.
    stage: ConnectionState,
}

impl ClientBody {
    pub(super) fn new(body: Incoming, scan: Scan, app: &App, busy: &ActiveRequest) -> Self {
        let timeouts = &app.config.timeouts;
        let pace = BodyTimers {
            idle: *timeouts.client_body_idle,
            width: *timeouts.client_body_window,
            least: least(timeouts),
            left: *timeouts.client_body_window,
            in_window: 0,
            waiting: None,
            sleep: None,
        };
        let progress = Progress {
            begun: Instant::now(),
            moved: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        };
        Self {
            body,
            scan,
            rules: Arc::clone(&app.config.rules),
            limit: app.config.limits.relay_body_bytes,
            pace,
            progress: Arc::new(progress),
            stage: busy.uploads(),
        }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The next piece, which is not empty.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                ready!(self.pace.poll_late(cx));
                return Poll::Ready(Some(Err(Fault::RequestTimeout.into())));
            };
            let Some(frame) = frame else {
                self.progress.take(0);
                self.progress.ended.store(true, Ordering::Relaxed);
                self.stage.has_read();
                return Poll::Ready(None);
            };
            // The framing is broken, or the client has gone: it will not read what it is told.
            let Ok(frame) = frame else {
                let broken =
                    Failure::from(Fault::InvalidRequest).with_message("The request body breaks off.");
                return Poll::Ready(Some(Err(broken)));
            };
            let Some(piece) = frame.into_data().ok().filter(|piece| !piece.is_empty()) else { continue };
            self.pace.came(piece.len());
            if self.progress.take(piece.len()) > self.limit {
                return Poll::Ready(Some(Err(Fault::TooLarge.into())));
            }
            let scanned = self.scan.push(&piece, &self.rules);
            return Poll::Ready(Some(scanned.map(|()| piece)));
        }
    }
}

impl Source for ClientBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        self.poll_next(cx)
    }
}

/// The timers of a body.
struct BodyTimers {
    idle: Duration,
    width: Duration,
    /// Bytes that a client must send in each window of waiting.
    least: usize,
    /// The time left in the window.
    left: Duration,
    in_window: usize,
    /// Since when the client is waited for, and since when in this window.
    waiting: Option<(Instant, Instant)>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl BodyTimers {
    /// Bytes have come.
    fn came(&mut self, bytes: usize) {
        self.in_window = self.in_window.saturating_add(bytes);
        if let Some((_, since)) = self.waiting.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
    }

    /// Ready when the client is too slow.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let (mut idle, mut window) = *self.waiting.get_or_insert((now, now));
        loop {
            let (idle_end, window_end) = (idle + self.idle, window + self.left);
            let end = idle_end.min(window_end);
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(end)));
            if sleep.deadline() != end {
                sleep.as_mut().reset(end);
            }
            ready!(sleep.as_mut().poll(cx));
            let now = Instant::now();
            if let Some(more) = overslept(end, now) {
                (idle, window) = (idle + more, window + more);
            } else if end == idle_end || self.in_window < self.least {
                return Poll::Ready(());
            } else {
                (window, self.left, self.in_window) = (now, self.width, 0);
            }
            self.waiting = Some((idle, window));
        }
    }
}
