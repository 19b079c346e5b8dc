//! HTTP/2 to an engine: connections that carry many requests at once.
//!
//! Takes: a request. Gives: an [`Answer`], as HTTP/1.1 would. A connection is driven by a task of its own, which the
//! library wants; one is enough until the engine allows no more requests on it. Never: takes a request for unsent that
//! the engine may have begun (faults U46).

use super::answer::Answer;
use super::client::Outgoing;
use super::hops;
use super::http1::{HEAD_LIMIT, Head};
use super::upload::{Sent, Streaming};
use crate::error::{Class, Error};
use crate::telemetry::Peer;
use crate::tls::Socket;
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT,
};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Requests on one connection at once, where the engine allows more.
const STREAMS: usize = 100;
/// Bytes that an engine may send of one answer before it is read.
const WINDOW: u32 = 64 << 10;
/// The same for all answers of a connection: one that nobody reads keeps no other from coming.
const WINDOWS: u32 = 100 * WINDOW;
/// Tokens come in small frames. The library takes too many unread ones for an attack, and would end the connection.
const SMALL_FRAMES: usize = 64 << 20;
/// Whether the engine is there is asked this often while it has requests,
const PING: Duration = Duration::from_secs(15);
/// and it may take this long to say so: engines are busy at times.
const PONG: Duration = Duration::from_secs(30);

/// The connections of one client.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    scheme: Scheme,
    authority: Authority,
    pool_idle: Duration,
    all: Mutex<Vec<Connection>>,
    /// Numbers them.
    count: AtomicU64,
    /// Held while one is made: whoever waits meanwhile may find room on it.
    making: tokio::sync::Mutex<()>,
    /// When making one has failed last, and how.
    failed: Mutex<Option<(Instant, Fault)>>,
    /// No connection is kept for another request.
    retired: AtomicBool,
}

/// One connection.
#[derive(Clone, Debug)]
struct Connection {
    number: u64,
    to: SocketAddr,
    requests: SendRequest<Bytes>,
    state: Arc<State>,
}

/// What becomes of a connection.
#[derive(Debug)]
struct State {
    streams: AtomicUsize,
    /// It has given an answer.
    served: AtomicBool,
    /// How often something of an answer has come.
    heard: AtomicU64,
    /// It has ended.
    over: AtomicBool,
    /// When its last request was over.
    since: Mutex<Instant>,
}

/// A request's place on a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct StreamSlot {
    connection: Connection,
    /// What had been heard before it.
    heard: u64,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        *lock(&self.connection.state.since) = Instant::now();
        self.connection.state.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamSlot {
    /// Later connections have higher numbers.
    pub(super) fn number(&self) -> u64 {
        self.connection.number
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// A place, if there is one.
    fn place(&self) -> Option<StreamSlot> {
        let most = self.requests.current_max_send_streams().min(STREAMS);
        let before = self.state.streams.load(Ordering::Relaxed);
        if before >= most {
            return None;
        }
        self.state.streams.fetch_add(1, Ordering::Relaxed);
        Some(StreamSlot { connection: self.clone(), heard: self.state.heard.load(Ordering::Relaxed) })
    }

    /// Requests may be sent on it, as far as is known.
    fn is_open(&mut self) -> bool {
        let mut at_once = Context::from_waker(Waker::noop());
        !self.state.over.load(Ordering::Relaxed)
            && !matches!(self.requests.poll_ready(&mut at_once), Poll::Ready(Err(_)))
    }

    fn is_old(&self, time: Duration) -> bool {
        self.state.streams.load(Ordering::Relaxed) == 0 && lock(&self.state.since).elapsed() >= time
    }
}

impl ConnectionPool {
    /// None yet. `secure`: over TLS.
    pub(super) fn new(secure: bool, authority: &str, pool_idle: Duration) -> Option<Self> {
        Some(Self {
            scheme: if secure { Scheme::HTTPS } else { Scheme::HTTP },
            authority: authority.parse().ok()?,
            pool_idle,
            all: Mutex::default(),
            count: AtomicU64::new(1),
            making: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            retired: AtomicBool::new(false),
        })
    }

    /// Closes connections that nobody has used for a while; what still runs on one that is closed runs on.
    pub(super) fn sweep(&self) {
        lock(&self.all).retain_mut(|connection| connection.is_open() && !connection.is_old(self.pool_idle));
    }

    /// From now on none waits for a request.
    pub(super) fn retire(&self) {
        let mut all = lock(&self.all);
        self.retired.store(true, Ordering::Relaxed);
        all.clear();
    }

    /// Closes all of them.
    pub(super) fn forget(&self) {
        lock(&self.all).clear();
    }

    /// The number of the newest connection there has been.
    pub(super) fn newest(&self) -> u64 {
        self.count.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Where the newest connection leads.
    pub(super) fn last(&self) -> Option<SocketAddr> {
        Some(lock(&self.all).last()?.to)
    }

    /// A place on a connection that was made after the one of this number; without an address, to any.
    pub(super) fn place(&self, to: Option<SocketAddr>, after: u64) -> Option<StreamSlot> {
        let mut all = lock(&self.all);
        all.retain_mut(|connection| connection.is_open() && !connection.is_old(self.pool_idle));
        let fits =
            |connection: &&Connection| connection.number > after && to.is_none_or(|to| connection.to == to);
        all.iter().filter(fits).find_map(Connection::place)
    }

    /// The same, on a new connection if need be.
    ///
    /// # Errors
    /// There is none to be had.
    pub(super) async fn place_or(
        &self,
        to: Option<SocketAddr>,
        after: u64,
        handshake: Duration,
        connect: impl Future<Output = Result<super::client::Connection, Error>>,
    ) -> Result<StreamSlot, Error> {
        let since = Instant::now();
        let _making = self.making.lock().await;
        if let Some(place) = self.place(to, after) {
            return Ok(place);
        }
        // Who waited while it failed need not see it fail again.
        let failed = *lock(&self.failed);
        if let Some((_, fault)) = failed.filter(|(at, _)| *at >= since) {
            return Err(Error::from(fault).classed(Class::Unsent));
        }
        let made = match connect.await {
            Ok(connection) => match tokio::time::timeout(handshake, Box::pin(self.made(connection))).await {
                Ok(made) => made.map_err(|why| Error::from(Fault::Unreachable).because(why)),
                Err(_) => Err(Error::from(Fault::Timeout).classed(Class::Unsent)),
            },
            Err(error) => Err(error),
        };
        made.inspect_err(|error| *lock(&self.failed) = Some((Instant::now(), error.public.fault)))
    }

    /// Begins HTTP/2 on a connection. That a ping comes back says that it is spoken there, and behind how many requests at
    /// once the engine draws the line.
    async fn made(&self, raw: super::client::Connection) -> io::Result<StreamSlot> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOWS)
            .data_frame_budget(SMALL_FRAMES)
            // What still comes of requests that were called off is nobody's fault, however much it is.
            .max_concurrent_reset_streams(4 * STREAMS)
            .reset_stream_duration(PONG)
            .max_local_error_reset_streams(None)
            .max_header_list_size(u32::try_from(HEAD_LIMIT).unwrap_or(u32::MAX));
        let no_http2 = |error: h2::Error| match error.into_io() {
            Some(error) => error,
            None => io::Error::new(ErrorKind::InvalidData, "it speaks no HTTP/2"),
        };
        let (requests, mut driver) = builder.handshake(raw.stream).await.map_err(no_http2)?;
        let mut pings = driver.ping_pong().ok_or(ErrorKind::InvalidInput)?;
        let pong = tokio::select! {
            biased;
            pong = pings.ping(Ping::opaque()) => pong.map(|_| ()),
            ended = &mut driver => Err(ended.err().ok_or(ErrorKind::UnexpectedEof)?),
        };
        pong.map_err(no_http2)?;
        let state = Arc::new(State {
            streams: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            over: AtomicBool::new(false),
            since: Mutex::new(Instant::now()),
        });
        #[expect(clippy::disallowed_methods, reason = "it drives a connection, for all requests on it")]
        tokio::spawn(drive(driver, pings, Arc::clone(&state)));
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let connection = Connection { number, to: raw.to, requests, state };
        let place = connection.place().ok_or_else(|| io::Error::other("it allows no requests"))?;
        let mut all = lock(&self.all);
        if !self.retired.load(Ordering::Relaxed) {
            all.push(connection);
        }
        drop(all);
        Ok(place)
    }

    /// The head of a request.
    pub(super) fn head(&self, request: &Outgoing, prefix: &str, peer: &Arc<Peer>) -> Option<Request<()>> {
        let path = format!("{prefix}{}", request.path);
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::try_from(path).ok()?);
        let mut head = Request::new(());
        *head.uri_mut() = uri.build().ok()?;
        *head.method_mut() = if request.method == "POST" { Method::POST } else { Method::GET };
        let headers = head.headers_mut();
        let agent = concat!("samewire/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(ACCEPT, request.accept.clone());
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let id = HeaderValue::try_from(&request.request_id).ok()?;
        headers.insert(HeaderName::from_static("x-request-id"), id);
        headers.insert(hops::HEADER, request.hops.value().clone());
        if let Some(key) = &request.authorization {
            headers.insert(AUTHORIZATION, key.clone());
        }
        for (name, value) in request.trace.begin(peer) {
            headers.append(name, value);
        }
        if *head.method() == Method::POST {
            let headers = head.headers_mut();
            if let Some(kind) = &request.content_type {
                headers.insert(CONTENT_TYPE, kind.clone());
            }
            if let Some(length) = request.length() {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
        Some(head)
    }
}

/// Drives a connection to its end, and ends it where the engine is not there any more.
async fn drive(connection: h2::client::Connection<Socket, Bytes>, pings: PingPong, state: Arc<State>) {
    tokio::select! {
        _ = connection => {}
        () = silence(pings, &state) => {}
    }
    state.over.store(true, Ordering::Relaxed);
}

async fn silence(mut pings: PingPong, state: &State) {
    loop {
        tokio::time::sleep(PING).await;
        if state.streams.load(Ordering::Relaxed) > 0
            && !matches!(tokio::time::timeout(PONG, pings.ping(Ping::opaque())).await, Ok(Ok(_)))
        {
            return;
        }
    }
}

/// One request and the head of its answer. An error that is `aged` says that another connection may be tried: either the
/// engine has refused to begin, or this connection died of old age.
///
/// # Errors
/// No answer, or nothing that is HTTP/2.
pub(super) async fn exchange(
    mut place: StreamSlot,
    head: Request<()>,
    request: &Outgoing,
) -> Result<Answer, Error> {
    let body = request.body.clone();
    let is_over = body.is_empty() && request.upload.is_none();
    let sent = place.connection.requests.send_request(head, is_over);
    // It has not left this process.
    let (mut response, mut stream) = sent.map_err(|error| refused(&error))?;
    let mut upload = None;
    let response = match &request.upload {
        Some(rest) => {
            upload = Some(Streaming::new(stream, body, rest.clone()));
            let answered = std::future::poll_fn(|cx| match poll_upload(&mut upload, cx) {
                Ok(()) => Pin::new(&mut response).poll(cx).map(Ok),
                Err(failure) => Poll::Ready(Err(Error::from(failure).classed(Class::Never))),
            });
            answered.await?
        }
        None => tokio::select! {
            biased;
            response = &mut response => response,
            () = deliver(&mut stream, body) => response.await,
        },
    };
    let (head, body) = response.map_err(|error| failed(&error, &place))?.into_parts();
    place.connection.state.served.store(true, Ordering::Relaxed);
    place.connection.state.heard.fetch_add(1, Ordering::Relaxed);
    let head = Head::of_stream(head.status.as_u16(), head.headers);
    // Who is refused need not be sent the rest.
    let upload = upload.filter(|_| head.status < 400).map(Box::new);
    Ok(Answer::of_stream(head, Stream { body, place, upload }))
}

/// Sends as much of a body as the engine takes.
///
/// # Errors
/// The body breaks off.
fn poll_upload(upload: &mut Option<Streaming>, cx: &mut Context<'_>) -> Result<(), Failure> {
    let Some(Poll::Ready(sent)) = upload.as_mut().map(|upload| upload.poll(cx)) else { return Ok(()) };
    *upload = None;
    if let Sent::Broken(failure) = sent { Err(failure) } else { Ok(()) }
}

/// Sends the body, as far as the engine takes it.
async fn deliver(stream: &mut SendStream<Bytes>, mut body: Bytes) {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
            // The answer says why, if there is one.
            return std::future::pending().await;
        };
        let piece = body.split_to(room.min(body.len()));
        if stream.send_data(piece, body.is_empty()).is_err() {
            return std::future::pending().await;
        }
    }
}

fn io_error(error: &h2::Error) -> io::Error {
    match error.get_io() {
        Some(error) => io::Error::new(error.kind(), error.to_string()),
        // Without what the engine said of it: that may be anything.
        None => io::Error::other(error.reason().map_or_else(String::new, |reason| reason.to_string())),
    }
}

fn refused(error: &h2::Error) -> Error {
    Error { aged: true, ..Error::from(Fault::Unreachable).because(io_error(error)) }
}

fn failed(error: &h2::Error, place: &StreamSlot) -> Error {
    let reason = error.reason();
    // A stream above the last one that is named in a GOAWAY has not been looked at.
    let untouched =
        error.is_go_away() || matches!(reason, Some(Reason::REFUSED_STREAM | Reason::HTTP_1_1_REQUIRED));
    if error.is_remote() && untouched {
        return refused(error);
    }
    if error.is_library() {
        return Error::from(Fault::InvalidResponse).classed(Class::Perhaps).because(io_error(error));
    }
    let served = place.connection.state.served.load(Ordering::Relaxed);
    // Nothing has come on it since, for nobody: it had died before.
    let silent = place.connection.state.heard.load(Ordering::Relaxed) == place.heard;
    let aged = error.is_io() && served && silent;
    Error { aged, ..Error::from(Fault::Reset).because(io_error(error)) }
}

/// What is to come of an answer.
#[derive(Debug)]
pub(super) struct Stream {
    body: RecvStream,
    place: StreamSlot,
    /// The rest of the request's body, where the answer has come before it was sent.
    upload: Option<Box<Streaming>>,
}

/// How far reading has come.
pub(super) enum ReadProgress {
    Some,
    Last,
    Reset,
    Malformed,
}

impl Stream {
    /// Gives the next piece to `sink`.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Poll<ReadProgress> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(sent) = upload.poll(cx)
        {
            self.upload = None;
            if let Sent::Broken(_) = sent {
                return Poll::Ready(ReadProgress::Reset);
            }
        }
        let piece = match std::task::ready!(self.body.poll_data(cx)) {
            Some(Ok(bytes)) => {
                self.place.connection.state.heard.fetch_add(1, Ordering::Relaxed);
                sink(&bytes);
                // It fails for a stream that has ended, which nobody sends more of.
                let _ = self.body.flow_control().release_capacity(bytes.len());
                if self.body.is_end_stream() { ReadProgress::Last } else { ReadProgress::Some }
            }
            None => ReadProgress::Last,
            Some(Err(error)) if error.is_library() => ReadProgress::Malformed,
            Some(Err(_)) => ReadProgress::Reset,
        };
        Poll::Ready(piece)
    }

    /// There is nothing to come.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }
}
