//! HTTP/2 stream: a request, and its response as far as the client's flow-control windows allow.

use crate::config::Limits;
use crate::server::Worker;
use crate::server::net::connection::late_timer_extension;
use crate::server::net::connection_state::ConnectionState;
use crate::server::net::shutdown::PhaseWatcher;
use crate::server::net::stall::Stall;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::future::poll_fn;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::Service;

/// Bytes of flow-control capacity requested at once.
const PIECE: usize = 16 << 10;

/// Marker that the stream is closed or reset: nothing more can be sent on it.
struct StreamClosed;

/// Serves one request: routes it and sends the response, until the end or until the client resets the stream.
pub(super) async fn serve(
    request: Request<RecvStream>,
    reply: SendResponse<Bytes>,
    state: ConnectionState,
    mut router: Router,
    worker: Arc<Worker>,
) {
    let app = worker.active_config.app();
    let (shutdown, patience) = (
        Arc::clone(&app.net.shutdown),
        *app.config.timeouts.client_write_stall,
    );
    let mut phases = PhaseWatcher::of(&shutdown);
    let mut reply = StreamReply(reply);
    let is_head = request.method() == Method::HEAD;
    let expects_body = Arc::new(AtomicBool::new(false));
    let routed = routed(request, &app.config.limits, &expects_body);
    // The stream may outlast this configuration.
    drop(app);
    let response = match routed {
        Err(status) => bare(status),
        Ok(mut request) => {
            request.extensions_mut().insert(state);
            let mut answering = pin!(router.call(request));
            let answered = poll_fn(|cx| {
                phases.poll(cx, &shutdown);
                // A request that the client cancels before it is polled costs nothing.
                if reply.0.poll_reset(cx).is_ready() {
                    return Poll::Ready(None);
                }
                let answered = answering.as_mut().poll(cx);
                if expects_body.swap(false, Ordering::Relaxed) {
                    reply.send_continue();
                }
                answered.map(Result::ok)
            });
            let Some(response) = answered.await else {
                return;
            };
            response
        }
    };
    let (head, body) = framed(response);
    let is_over = is_head || body.is_end_stream();
    let Ok(stream) = reply.0.send_response(head, is_over) else {
        return;
    };
    if is_over {
        return;
    }
    let mut sender = ResponseStream {
        stream,
        patience,
        stalled: None,
    };
    let mut body = pin!(body);
    loop {
        let frame = poll_fn(|cx| {
            phases.poll(cx, &shutdown);
            if sender.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(StreamClosed));
            }
            body.as_mut().poll_frame(cx).map(Ok)
        });
        let Ok(frame) = frame.await else { return };
        let sent = match frame {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                sender.send(data, body.is_end_stream()).await
            }
            // The body is incomplete, and the client must be able to tell.
            Some(Err(_)) => sender.reset(Reason::INTERNAL_ERROR),
            None => sender.send(Bytes::new(), true).await,
        };
        match sent {
            Ok(true) => {}
            Ok(false) | Err(StreamClosed) => return,
        }
    }
}

/// Response sender of the stream. If the handler panics, dropping it resets the stream with an internal error.
struct StreamReply(SendResponse<Bytes>);

impl StreamReply {
    /// Sends `100 Continue` to a client that waits for it before it sends its body.
    fn send_continue(&mut self) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        let _ = self.0.send_informational(response);
    }
}

impl Drop for StreamReply {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// Response body that is being sent, with the timer for a client that stops reading.
struct ResponseStream {
    stream: SendStream<Bytes>,
    /// Time for which the client may take next to nothing.
    patience: Duration,
    /// Stall timer, while the client takes nothing.
    stalled: Option<(Stall, Pin<Box<Sleep>>)>,
}

impl ResponseStream {
    /// Sends data as the client's windows allow. Returns false after the last frame. Fails if the stream is closed
    /// or the client has stalled for too long.
    async fn send(&mut self, mut data: Bytes, is_last: bool) -> Result<bool, StreamClosed> {
        while !data.is_empty() {
            self.stream.reserve_capacity(data.len().min(PIECE));
            let room = poll_fn(|cx| self.poll_room(cx)).await?;
            let piece = data.split_to(room.min(data.len()));
            let is_end = is_last && data.is_empty();
            self.stream
                .send_data(piece, is_end)
                .map_err(|_| StreamClosed)?;
            if is_end {
                return Ok(false);
            }
        }
        if is_last {
            self.stream
                .send_data(Bytes::new(), true)
                .map_err(|_| StreamClosed)?;
        }
        Ok(!is_last)
    }

    /// Waits for flow-control capacity. Fails if the stream is closed, or resets it when the client has stalled
    /// for too long.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, StreamClosed>> {
        loop {
            match self.stream.capacity() {
                0 => {}
                room => {
                    if self
                        .stalled
                        .as_mut()
                        .is_some_and(|(stall, _)| stall.took(room, Instant::now()))
                    {
                        self.stalled = None;
                    }
                    return Poll::Ready(Ok(room));
                }
            }
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(Err(StreamClosed)),
                Poll::Pending => break,
            }
        }
        let (stall, sleep) = self.stalled.get_or_insert_with(|| {
            let stall = Stall::new(self.patience, Instant::now());
            let sleep = Box::pin(sleep_until(stall.end()));
            (stall, sleep)
        });
        if stall.waits(Instant::now()) {
            sleep.as_mut().reset(stall.end());
        }
        ready!(sleep.as_mut().poll(cx));
        while let Some(more) = late_timer_extension(stall.end(), Instant::now()) {
            stall.prolong(more);
            sleep.as_mut().reset(stall.end());
            ready!(sleep.as_mut().poll(cx));
        }
        Poll::Ready(self.reset(Reason::CANCEL).and(Err(StreamClosed)))
    }

    /// Resets the stream.
    fn reset(&mut self, reason: Reason) -> Result<bool, StreamClosed> {
        self.stream.send_reset(reason);
        Err(StreamClosed)
    }
}

/// Converts the request to the form that the routes expect: the path alone, and the host in a header. Fails with a
/// status if its header is refused.
fn routed(
    request: Request<RecvStream>,
    limits: &Limits,
    expects_body: &Arc<AtomicBool>,
) -> Result<Request<Body>, StatusCode> {
    let (mut head, body) = request.into_parts();
    // Each part of a split cookie and each repeated field counts (faults C19).
    if head.headers.len() > limits.max_headers {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    if let Some(authority) = head.uri.authority() {
        let host =
            HeaderValue::from_str(authority.as_str()).map_err(|_| StatusCode::BAD_REQUEST)?;
        match head.headers.get(HOST) {
            None => _ = head.headers.insert(HOST, host),
            Some(other) if other.as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {}
            Some(_) => return Err(StatusCode::BAD_REQUEST),
        }
    }
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    let expects = head
        .headers
        .contains_key(EXPECT)
        .then(|| Arc::clone(expects_body));
    let length = declared(&head.headers);
    Ok(Request::from_parts(
        head,
        Body::new(Incoming {
            stream: body,
            length,
            expects,
        }),
    ))
}

/// Returns the declared length of the body, which the library enforces.
fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the header of a response as it is sent, and its body.
fn framed(response: Response<Body>) -> (Response<()>, Body) {
    let (mut head, body) = response.into_parts();
    // HTTP/2 has no such headers (RFC 9113, 8.2.2).
    head.headers.remove(CONNECTION);
    head.headers.remove(UPGRADE);
    if let Some(length) = body
        .size_hint()
        .exact()
        .filter(|_| !head.headers.contains_key(CONTENT_LENGTH))
    {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now())) {
        head.headers.insert(DATE, date);
    }
    (Response::from_parts(head, ()), body)
}

fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Request body as the routes read it, which releases flow-control capacity with each piece.
struct Incoming {
    stream: RecvStream,
    length: Option<u64>,
    /// Set to request a `100 Continue` when the body is first waited for, if the client expects that.
    expects: Option<Arc<AtomicBool>>,
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let data = match self.stream.poll_data(cx) {
            Poll::Ready(data) => data,
            Poll::Pending => {
                if let Some(expects_body) = self.expects.take() {
                    expects_body.store(true, Ordering::Relaxed);
                }
                return Poll::Pending;
            }
        };
        // Trailers are ignored.
        Poll::Ready(data.map(|data| {
            let data = data.map_err(io::Error::other)?;
            let _ = self.stream.flow_control().release_capacity(data.len());
            Ok(Frame::data(data))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
