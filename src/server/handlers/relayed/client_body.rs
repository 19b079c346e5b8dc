//! Request body that is read as fast as the engine takes it, within its limits.
//!
//! Its timers run only while the client is waited for, so a slow engine is not blamed on the client. There is no
//! limit on the whole time: a steady upload may take as long as it needs.

use crate::capture::Recording;
use crate::request::Rules;
use crate::request::relayed::Scan;
use crate::server::App;
use crate::server::admit::body::min_window_bytes;
use crate::server::net::connection::late_timer_extension;
use crate::server::net::connection_state::{ActiveRequest, ConnectionState};
use crate::server::net::upload_progress::UploadProgress;
use crate::upstream::Source;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::Bytes;
use http_body::Body as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Body that is still arriving, with its limits and timers.
pub(super) struct ClientBody {
    body: Incoming,
    /// Search for the model in the body.
    pub(super) scan: Scan,
    rules: Arc<Rules>,
    limit: usize,
    pace: BodyTimers,
    progress: Arc<UploadProgress>,
    /// State of the connection, which has to notice a disconnect while nobody reads from the client.
    state: ConnectionState,
    recording: Option<Arc<Recording>>,
}

impl ClientBody {
    pub(super) fn new(
        body: Incoming,
        scan: Scan,
        app: &App,
        busy: &ActiveRequest,
        recording: Option<Arc<Recording>>,
    ) -> Self {
        let timeouts = &app.config.timeouts;
        let pace = BodyTimers {
            idle: *timeouts.client_body_idle,
            width: *timeouts.client_body_window,
            least: min_window_bytes(timeouts),
            left: *timeouts.client_body_window,
            in_window: 0,
            waiting: None,
            sleep: None,
        };
        Self {
            body,
            scan,
            rules: Arc::clone(&app.config.rules),
            limit: app.config.limits.relay_body_bytes,
            pace,
            progress: Arc::default(),
            state: busy.begin_upload(),
            recording,
        }
    }

    pub(super) fn progress(&self) -> Arc<UploadProgress> {
        Arc::clone(&self.progress)
    }

    /// Returns the next piece, which is never empty. Fails if the client is too slow, or the body is too large,
    /// broken off or not acceptable to the scan.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                ready!(self.pace.poll_late(cx));
                return Poll::Ready(Some(Err(Fault::RequestTimeout.into())));
            };
            let Some(frame) = frame else {
                self.progress.end();
                self.state.end_upload();
                return Poll::Ready(None);
            };
            // The framing is broken or the client has disconnected; it will not read this error.
            let Ok(frame) = frame else {
                let broken =
                    Failure::from(Fault::InvalidRequest).with_message("The request body breaks off.");
                return Poll::Ready(Some(Err(broken)));
            };
            let Some(piece) = frame.into_data().ok().filter(|piece| !piece.is_empty()) else { continue };
            self.pace.came(piece.len());
            if let Some(recording) = &self.recording {
                recording.body(&piece);
            }
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

/// Timers of a body: for the pause between pieces, and for the least amount within a window.
struct BodyTimers {
    idle: Duration,
    width: Duration,
    /// Bytes that a client must send in each window of waiting.
    least: usize,
    /// Time left in the window.
    left: Duration,
    in_window: usize,
    /// Time since which the client is waited for, and the same within this window.
    waiting: Option<(Instant, Instant)>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl BodyTimers {
    /// Notes received bytes and stops the timers.
    fn came(&mut self, bytes: usize) {
        self.in_window = self.in_window.saturating_add(bytes);
        if let Some((_, since)) = self.waiting.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
    }

    /// Ready when the client has been too slow.
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
            if let Some(more) = late_timer_extension(end, now) {
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
