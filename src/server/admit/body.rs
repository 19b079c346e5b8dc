//! Bodies of requests, read within limits of size, time and memory, and bodies of responses, whole or relayed.
//!
//! Takes: the body of a client's request, or an answer. Gives: its bytes with their share of the memory budget, or
//! a response body. Never: interprets the bytes.

use super::budget::{BudgetShare, make_room};
use crate::capture::Recording;
use crate::config::Timeouts;
use crate::server::App;
use crate::server::net::connection::late_timer_extension;
use crate::server::net::connection_state::ActiveRequest;
use crate::wire::OutputBuffer;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Reads a request's body of at most `limit` bytes, and takes its size from the memory budget, unless `is_held`: the line
/// of a batch is a part of a chunk that has its share. Fails if the body is too large, too slow or incomplete, or if the
/// budget is exhausted.
pub(in crate::server) async fn read(
    body: Incoming,
    limit: usize,
    is_held: bool,
    app: &App,
) -> Result<(Bytes, BudgetShare), Failure> {
    let limit = limit.min(app.admit.budget.most());
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > limit {
        return Err(Fault::TooLarge.into());
    }
    if is_held {
        let bytes = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        return Ok((bytes, app.admit.budget.share(0)?));
    }
    let mut share = app.admit.budget.share(declared)?;
    let timeouts = &app.config.timeouts;
    let end = Some(Instant::now() + *timeouts.client_body_total);
    let timers = BodyTimers {
        end,
        ..BodyTimers::new(timeouts, Fault::InvalidJson)
    };
    let bytes = collect(timers, body, limit, declared, &mut share).await?;
    Ok((bytes, share))
}

async fn collect(
    mut timers: BodyTimers,
    mut body: Incoming,
    limit: usize,
    declared: usize,
    share: &mut BudgetShare,
) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut sleep = pin!(sleep_until(Instant::now()));
    while let Some(data) = timers.next_piece(&mut body, sleep.as_mut()).await? {
        let length = first.len() + all.len() + data.len();
        if length > limit {
            return Err(Fault::TooLarge.into());
        }
        share.reach(length)?;
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            // The share covers the declared length already.
            all.reserve(declared);
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        make_room(&mut all, data.len(), limit);
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Timers of a request body: for the pause between pieces, for the least amount within a window, and for the whole. The
/// first two run only while the client is waited for, so that a slow engine or store is not blamed on the client.
pub(in crate::server) struct BodyTimers {
    idle: Duration,
    width: Duration,
    /// Bytes that a client must send in each window of waiting.
    least: usize,
    /// Time left in the window.
    left: Duration,
    in_window: usize,
    /// Time at which the whole body must be there; `None`: it may take as long as it needs.
    end: Option<Instant>,
    /// Time since which the client is waited for, and the same within this window.
    waiting: Option<(Instant, Instant)>,
    /// Fault of a body that breaks off.
    broken: Fault,
}

impl BodyTimers {
    /// Returns the timers of a body that may take as long as it needs, as long as it comes at the least rate.
    pub(in crate::server) fn new(timeouts: &Timeouts, broken: Fault) -> Self {
        let milliseconds =
            usize::try_from(timeouts.client_body_window.as_millis()).unwrap_or(usize::MAX);
        Self {
            idle: *timeouts.client_body_idle,
            width: *timeouts.client_body_window,
            least: timeouts.client_body_rate.saturating_mul(milliseconds) / 1000,
            left: *timeouts.client_body_window,
            in_window: 0,
            end: None,
            waiting: None,
            broken,
        }
    }

    /// Returns the next piece of the body; `None` at its end. Fails if it is too slow or breaks off. `sleep`: the timer
    /// of the runtime for all pieces.
    pub(in crate::server) async fn next_piece(
        &mut self,
        body: &mut Incoming,
        mut sleep: Pin<&mut Sleep>,
    ) -> Result<Option<Bytes>, Failure> {
        std::future::poll_fn(|cx| self.poll_piece(body, || sleep.as_mut(), cx))
            .await
            .transpose()
    }

    /// Returns the next piece of the body, which is never empty; `None` at its end. Fails if it is too slow or breaks off.
    /// `sleep`: the timer of the runtime, which is needed only if the client is waited for.
    pub(in crate::server) fn poll_piece<'s>(
        &mut self,
        body: &mut Incoming,
        sleep: impl FnOnce() -> Pin<&'s mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
                ready!(self.poll_late(sleep(), cx));
                return Poll::Ready(Some(Err(Fault::RequestTimeout.into())));
            };
            let Some(frame) = frame else {
                return Poll::Ready(None);
            };
            // The framing is broken, or the client has left and will not read this error.
            let Ok(frame) = frame else {
                let broken =
                    Failure::from(self.broken).with_message("The request body breaks off.");
                return Poll::Ready(Some(Err(broken)));
            };
            let Some(piece) = frame.into_data().ok().filter(|piece| !piece.is_empty()) else {
                continue;
            };
            self.in_window = self.in_window.saturating_add(piece.len());
            if let Some((_, since)) = self.waiting.take() {
                self.left = self.left.saturating_sub(since.elapsed());
            }
            return Poll::Ready(Some(Ok(piece)));
        }
    }

    /// Ready when the client has been too slow.
    fn poll_late(&mut self, mut sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let (mut idle, mut window) = *self.waiting.get_or_insert((now, now));
        loop {
            let window_end = window + self.left;
            let other_end = self.end.into_iter().fold(idle + self.idle, Instant::min);
            let end = other_end.min(window_end);
            if sleep.deadline() != end {
                sleep.as_mut().reset(end);
            }
            ready!(sleep.as_mut().poll(cx));
            let now = Instant::now();
            if let Some(more) = late_timer_extension(end, now) {
                (idle, window) = (idle + more, window + more);
                self.end = self.end.map(|end| end + more);
            } else if end == other_end || self.in_window < self.least {
                return Poll::Ready(());
            } else {
                (window, self.left, self.in_window) = (now, self.width, 0);
            }
            self.waiting = Some((idle, window));
        }
    }
}

/// Error of a response body that cannot be completed. The connection or the HTTP/2 stream is then aborted, so that
/// the client does not take the answer for complete.
#[derive(Debug)]
pub(in crate::server) struct AbortedBody;

impl std::fmt::Display for AbortedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer cannot be ended")
    }
}

impl std::error::Error for AbortedBody {}

/// Body of a response: bytes at hand, a relayed engine answer, or another stream of bytes. It can keep its
/// connection marked as busy.
pub(in crate::server) struct Body {
    content: BodyContent,
    /// Recording of the exchange, if it is captured.
    recording: Option<Arc<Recording>>,
    _busy: Option<ActiveRequest>,
}

enum BodyContent {
    Full(OutputBuffer),
    Arriving(Pin<Box<dyn http_body::Body<Data = Bytes, Error = AbortedBody> + Send>>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// Returns a body that consists of bytes at hand.
    pub(in crate::server) fn full(bytes: impl Into<OutputBuffer>) -> Self {
        Self {
            content: BodyContent::Full(bytes.into()),
            recording: None,
            _busy: None,
        }
    }

    /// Returns a body that relays an engine's answer while it arrives.
    pub(in crate::server) fn arriving(
        answer: Box<impl http_body::Body<Data = Bytes, Error = AbortedBody> + Send + 'static>,
    ) -> Self {
        Self {
            content: BodyContent::Arriving(Box::into_pin(answer)),
            recording: None,
            _busy: None,
        }
    }

    /// Returns a body of bytes from any other stream, such as events from the store.
    pub(in crate::server) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self {
            content: BodyContent::Stream(Box::pin(stream)),
            recording: None,
            _busy: None,
        }
    }

    /// Records the bytes that are handed over.
    pub(in crate::server) fn recorded(self, recording: Option<Arc<Recording>>) -> Self {
        Self { recording, ..self }
    }

    /// Keeps the connection marked as busy until the body is dropped.
    pub(in crate::server) fn keeping_busy(self, busy: ActiveRequest) -> Self {
        Self {
            _busy: Some(busy),
            ..self
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = AbortedBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        let Self {
            content, recording, ..
        } = self.get_mut();
        let frame = match content {
            BodyContent::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodyContent::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes.take())))),
            BodyContent::Arriving(answer) => answer.as_mut().poll_frame(cx),
            BodyContent::Stream(stream) => stream
                .as_mut()
                .poll_next(cx)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        };
        if let (Some(recording), Poll::Ready(Some(Ok(frame)))) = (recording, &frame) {
            recording.answer_body(frame.data_ref().map_or(&[], |bytes| bytes));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Full(bytes) => bytes.is_empty(),
            BodyContent::Arriving(answer) => answer.is_end_stream(),
            BodyContent::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Full(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            BodyContent::Arriving(answer) => answer.size_hint(),
            BodyContent::Stream(_) => SizeHint::default(),
        }
    }
}
