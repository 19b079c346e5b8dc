//! Request body that is read as fast as the engine takes it, within its limits.
//!
//! There is no limit on the whole time: a steady upload may take as long as it needs.

use crate::capture::Recording;
use crate::request::Rules;
use crate::request::relayed::Scan;
use crate::server::App;
use crate::server::admit::body::BodyTimers;
use crate::server::net::connection_state::{ActiveRequest, ConnectionState};
use crate::server::net::upload_progress::UploadProgress;
use crate::upstream::Source;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// Body that is still arriving, with its limits and timers.
pub(super) struct ClientBody {
    body: Incoming,
    /// Search for the model in the body.
    pub(super) scan: Scan,
    rules: Arc<Rules>,
    limit: usize,
    timers: BodyTimers,
    /// Timer of the runtime, once the client has been waited for.
    sleep: Option<Pin<Box<Sleep>>>,
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
        Self {
            body,
            scan,
            rules: Arc::clone(&app.config.rules),
            limit: app.config.limits.relay_body_bytes,
            timers: BodyTimers::new(&app.config.timeouts, Fault::InvalidRequest),
            sleep: None,
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
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        let kept = &mut self.sleep;
        let new = || Box::pin(sleep_until(Instant::now()));
        let piece = self.timers.poll_piece(
            &mut self.body,
            move || kept.get_or_insert_with(new).as_mut(),
            cx,
        );
        let Some(piece) = ready!(piece) else {
            self.progress.end();
            self.state.end_upload();
            return Poll::Ready(None);
        };
        Poll::Ready(Some(piece.and_then(|piece| {
            if let Some(recording) = &self.recording {
                recording.body(&piece);
            }
            if self.progress.take(piece.len()) > self.limit {
                return Err(Fault::TooLarge.into());
            }
            self.scan.push(&piece, &self.rules).map(|()| piece)
        })))
    }
}

impl Source for ClientBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        self.poll_next(cx)
    }
}
