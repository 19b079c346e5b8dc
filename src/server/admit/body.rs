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
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Time that is as good as no limit on a whole body.
const PATIENCE: Duration = Duration::from_secs(30 * 86_400);

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
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        return Ok((bytes, app.admit.budget.share(0)?));
    }
    let mut share = app.admit.budget.share(declared)?;
    let bytes = ClientBodyReader::new(&app.config.timeouts).read(body, limit, declared, &mut share).await?;
    Ok((bytes, share))
}

/// Reader of a request body, with its timers: idle time, total time, and a minimum of bytes in each window.
pub(in crate::server) struct ClientBodyReader {
    idle: Duration,
    end: Instant,
    window: Instant,
    window_length: Duration,
    /// Minimum of bytes that a client must send in each window.
    min_window_bytes: usize,
    in_window: usize,
}

impl ClientBodyReader {
    /// Returns a reader of a body that may take as long as it needs, as long as it comes at the least rate.
    pub(in crate::server) fn patient(timeouts: &Timeouts) -> Self {
        let reader = Self::new(timeouts);
        Self { end: reader.end + PATIENCE, ..reader }
    }

    fn new(timeouts: &Timeouts) -> Self {
        let now = Instant::now();
        Self {
            idle: *timeouts.client_body_idle,
            end: now + *timeouts.client_body_total,
            window: now + *timeouts.client_body_window,
            window_length: *timeouts.client_body_window,
            min_window_bytes: min_window_bytes(timeouts),
            in_window: 0,
        }
    }

    async fn read(
        mut self,
        mut body: Incoming,
        limit: usize,
        declared: usize,
        share: &mut BudgetShare,
    ) -> Result<Bytes, Failure> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(data) = self.next_data(&mut body).await? {
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

    /// Returns the next piece of the body; `None` at its end. Fails if it is too slow or breaks off.
    pub(in crate::server) async fn next_data(
        &mut self,
        body: &mut Incoming,
    ) -> Result<Option<Bytes>, Failure> {
        loop {
            let now = Instant::now();
            if now >= self.window {
                match late_timer_extension(self.window, now) {
                    _ if self.in_window >= self.min_window_bytes => {
                        (self.window, self.in_window) = (now + self.window_length, 0);
                    }
                    Some(more) => (self.end, self.window) = (self.end + more, self.window + more),
                    None => return Err(Fault::RequestTimeout.into()),
                }
            }
            let until = (now + self.idle).min(self.end).min(self.window);
            let frame = match tokio::time::timeout_at(until, body.frame()).await {
                Err(_) if until == self.window && until < self.end => continue,
                Err(_) => match late_timer_extension(until, Instant::now()) {
                    Some(more) => {
                        (self.end, self.window) = (self.end + more, self.window + more);
                        continue;
                    }
                    None => return Err(Fault::RequestTimeout.into()),
                },
                Ok(None) => return Ok(None),
                Ok(Some(frame)) => frame,
            };
            // The framing is broken, or the client has left and will not read this error.
            let frame = frame.map_err(|_| {
                Failure::from(Fault::InvalidJson).with_message("The request body breaks off.")
            })?;
            if let Ok(data) = frame.into_data() {
                self.in_window += data.len();
                return Ok(Some(data));
            }
        }
    }
}

/// Returns the minimum of bytes that a client must send in each window, from the configured rate in bytes per
/// second.
pub(in crate::server) fn min_window_bytes(timeouts: &Timeouts) -> usize {
    let milliseconds = usize::try_from(timeouts.client_body_window.as_millis()).unwrap_or(usize::MAX);
    timeouts.client_body_rate.saturating_mul(milliseconds) / 1000
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
        Self { content: BodyContent::Full(bytes.into()), recording: None, _busy: None }
    }

    /// Returns a body that relays an engine's answer while it arrives.
    pub(in crate::server) fn arriving(
        answer: Box<impl http_body::Body<Data = Bytes, Error = AbortedBody> + Send + 'static>,
    ) -> Self {
        Self { content: BodyContent::Arriving(Box::into_pin(answer)), recording: None, _busy: None }
    }

    /// Returns a body of bytes from any other stream, such as events from the store.
    pub(in crate::server) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { content: BodyContent::Stream(Box::pin(stream)), recording: None, _busy: None }
    }

    /// Records the bytes that are handed over.
    pub(in crate::server) fn recorded(self, recording: Option<Arc<Recording>>) -> Self {
        Self { recording, ..self }
    }

    /// Keeps the connection marked as busy until the body is dropped.
    pub(in crate::server) fn keeping_busy(self, busy: ActiveRequest) -> Self {
        Self { _busy: Some(busy), ..self }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = AbortedBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        let Self { content, recording, .. } = self.get_mut();
        let frame = match content {
            BodyContent::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodyContent::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes.take())))),
            BodyContent::Arriving(answer) => answer.as_mut().poll_frame(cx),
            BodyContent::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
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
            BodyContent::Full(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            BodyContent::Arriving(answer) => answer.size_hint(),
            BodyContent::Stream(_) => SizeHint::default(),
        }
    }
}
