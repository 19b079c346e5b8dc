//! HTTP/2 to an engine: connections that carry many requests at once.
//!
//! Takes: a request. Gives: an [`Answer`], as HTTP/1.1 would. Each connection is driven by its own task, as
//! the library requires. For each address a second connection is opened only when the first has no free stream.
//! Never: treats a request as unsent that the engine may have begun (faults U46).

use super::answer::Answer;
use super::hops;
use super::http1::{HEAD_LIMIT, MAX_INTERIM, ResponseHead};
use super::http2_stream::{ConnectionShared, Http2Connection, STREAMS, Stream, StreamSlot};
use super::outgoing::{Connection, Outgoing};
use super::upload::{Sent, UploadState};
use crate::error::{Error, RetryClass};
use crate::request::EngineBody;
use crate::telemetry::Peer;
use crate::tls::Socket;
use crate::wire::fault::{Failure, Fault, Unusable};
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue,
    USER_AGENT,
};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes that an engine may send of one answer before they are read (stream window).
const STREAM_WINDOW: u32 = 64 << 10;
/// Bytes that an engine may send on one connection before they are read. Large enough that an answer that is not
/// read blocks no other.
const CONNECTION_WINDOW: u32 = 100 * STREAM_WINDOW;
/// Budget for small frames. Tokens arrive in small frames; the library takes too many unread ones for an attack,
/// and would close the connection.
const SMALL_FRAMES: usize = 64 << 20;
/// Interval between pings while a connection has requests.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Time for the engine to answer a ping, since engines are busy at times; then the connection is given up.
const PING_TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP/2 connections of one client, with the means to open another one only when it is needed.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    scheme: Scheme,
    authority: Authority,
    pool_idle: Duration,
    all: Mutex<Vec<Http2Connection>>,
    /// Number for the next connection.
    count: AtomicU64,
    /// Lock held while a connection is made: requests that wait for it may then find room on the new connection.
    making: tokio::sync::Mutex<()>,
    /// Time, address and fault of the last failure to make a connection, so that the requests that waited fail at once,
    /// too.
    failed: Mutex<Option<(Instant, Option<SocketAddr>, Fault)>>,
    /// True once the upstream is retired: no connection is kept for another request.
    retired: AtomicBool,
}

impl ConnectionPool {
    /// Creates an empty pool. `secure`: over TLS. Returns `None` if the authority is not valid.
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

    /// Drops connections that are closed or idle for longer than `pool_idle`.
    pub(super) fn sweep(&self) {
        self.all
            .lock()
            .retain_mut(|connection| connection.is_open() && !connection.is_old(self.pool_idle));
    }

    /// Forgets the connections, and keeps none from now on: idle ones close now, others after their last stream.
    pub(super) fn retire(&self) {
        let mut all = self.all.lock();
        self.retired.store(true, Ordering::Relaxed);
        all.clear();
    }

    /// Forgets the connections: idle ones close now, others after their last stream.
    pub(super) fn close_idle(&self) {
        self.all.lock().clear();
    }

    /// Returns the number of the newest connection that was made so far.
    pub(super) fn newest_number(&self) -> u64 {
        self.count.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Returns the address that the newest kept connection leads to.
    pub(super) fn last_address(&self) -> Option<SocketAddr> {
        Some(self.all.lock().last()?.to)
    }

    /// Takes a slot on a connection with a number above `after`, to this address; without an address, to any.
    pub(super) fn take_slot(&self, to: Option<SocketAddr>, after: u64) -> Option<StreamSlot> {
        let mut all = self.all.lock();
        all.retain_mut(|connection| connection.is_open() && !connection.is_old(self.pool_idle));
        let fits = |connection: &&Http2Connection| {
            connection.number > after && to.is_none_or(|to| connection.to == to)
        };
        all.iter().filter(fits).find_map(Http2Connection::take_slot)
    }

    /// Takes a slot as [`Self::take_slot`] does, on a new connection if no other has room. One connection is made at a
    /// time.
    ///
    /// # Errors
    /// Fails if no connection can be made, or if one has failed while this call waited.
    pub(super) async fn take_slot_or_connect(
        &self,
        to: Option<SocketAddr>,
        after: u64,
        connect: impl Future<Output = Result<StreamSlot, Error>>,
    ) -> Result<StreamSlot, Error> {
        let since = Instant::now();
        let _making = self.making.lock().await;
        if let Some(place) = self.take_slot(to, after) {
            return Ok(place);
        }
        // Requests that waited while it failed need not see it fail again.
        let failed = *self.failed.lock();
        if let Some((.., fault)) = failed.filter(|(at, place, _)| *at >= since && *place == to) {
            return Err(Error::from(fault).with_class(RetryClass::Unsent));
        }
        let made = connect.await;
        made.inspect_err(|error| {
            *self.failed.lock() = Some((Instant::now(), to, error.public.fault))
        })
    }

    /// Performs the HTTP/2 handshake on a connection. The answer to a ping shows that the engine speaks HTTP/2, and
    /// comes after its settings, which limit the number of concurrent requests.
    pub(super) async fn handshake(&self, raw: Connection) -> io::Result<StreamSlot> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .data_frame_budget(SMALL_FRAMES)
            // Frames that still arrive for cancelled requests are not an offence, however many they are.
            .max_concurrent_reset_streams(4 * STREAMS)
            .reset_stream_duration(PING_TIMEOUT)
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
        let state = Arc::new(ConnectionShared {
            streams: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            received: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            since: Mutex::new(Instant::now()),
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "it drives a connection, for all requests on it"
        )]
        tokio::spawn(drive(driver, pings, Arc::clone(&state)));
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let connection = Http2Connection {
            number,
            to: raw.to,
            requests,
            state,
        };
        let place = connection
            .take_slot()
            .ok_or_else(|| io::Error::other("it allows no requests"))?;
        let mut all = self.all.lock();
        if !self.retired.load(Ordering::Relaxed) {
            all.push(connection);
        }
        drop(all);
        Ok(place)
    }

    /// Builds the head of a request; `None` if a part of it is not valid in HTTP/2.
    pub(super) fn head(
        &self,
        request: &Outgoing,
        prefix: &str,
        peer: &Arc<Peer>,
    ) -> Option<Request<()>> {
        let path = format!("{prefix}{}", request.path);
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::try_from(path).ok()?);
        let mut head = Request::new(());
        *head.uri_mut() = uri.build().ok()?;
        *head.method_mut() = if request.method == "POST" {
            Method::POST
        } else {
            Method::GET
        };
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

/// Drives a connection until it ends, or until the engine stops to answer pings.
async fn drive(
    connection: h2::client::Connection<Socket, Bytes>,
    pings: PingPong,
    state: Arc<ConnectionShared>,
) {
    tokio::select! {
        _ = connection => {}
        () = until_silent(pings, &state) => {}
    }
    state.ended.store(true, Ordering::Relaxed);
}

async fn until_silent(mut pings: PingPong, state: &ConnectionShared) {
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        if state.streams.load(Ordering::Relaxed) > 0
            && !matches!(
                tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await,
                Ok(Ok(_))
            )
        {
            return;
        }
    }
}

/// Sends a request and reads the head of its answer. An error marked `stale` allows one more attempt on another
/// connection: the engine did not begin the request, or the connection was already dead.
///
/// # Errors
/// Fails if no answer comes, or if it is not HTTP/2.
pub(super) async fn exchange(
    mut place: StreamSlot,
    head: Request<()>,
    request: &Outgoing,
) -> Result<Answer, Error> {
    let is_over = request.body.is_empty() && request.upload.is_none();
    let sent = place.connection.requests.send_request(head, is_over);
    // An error here means that the request has not left this process.
    let (response, mut stream) = sent.map_err(|error| refused(&error))?;
    let mut response = FinalAnswer {
        response,
        interim: 0,
    };
    let mut upload;
    let response = match &request.upload {
        Some(rest) => {
            upload = Some(UploadState::new(
                stream,
                request.body.joined(),
                rest.clone(),
            ));
            let answered = std::future::poll_fn(|cx| match drive_upload(&mut upload, cx) {
                Ok(()) => Pin::new(&mut response).poll(cx).map(Ok),
                Err(failure) => {
                    Poll::Ready(Err(Error::from(failure).with_class(RetryClass::Never)))
                }
            });
            answered.await?
        }
        None => {
            let mut left = request.body.len();
            let answered = tokio::select! {
                biased;
                answered = &mut response => answered,
                () = deliver(&mut stream, &request.body, &mut left) => response.await,
            };
            upload = (left > 0).then(|| UploadState::rest(stream, &request.body, left));
            answered
        }
    };
    let response = response.map_err(|error| match error {
        Some(error) => failed(&error, &place),
        None => Error::from(Failure::from(Unusable::Head)).with_class(RetryClass::MaybeProcessed),
    });
    let (head, body) = response?.into_parts();
    place.connection.state.served.store(true, Ordering::Relaxed);
    place
        .connection
        .state
        .received
        .fetch_add(1, Ordering::Relaxed);
    let head = ResponseHead::of_stream(head.status.as_u16(), head.headers);
    // An engine that refuses the request need not get the rest.
    let upload = upload.filter(|_| head.status < 400).map(Box::new);
    Ok(Answer::of_stream(
        head,
        Stream {
            body,
            place,
            upload,
        },
    ))
}

/// Answer of the engine, past its interim answers.
struct FinalAnswer {
    response: ResponseFuture,
    /// Number of interim answers so far.
    interim: usize,
}

impl Future for FinalAnswer {
    /// The error is `None` after too many interim answers.
    type Output = Result<Response<RecvStream>, Option<h2::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Poll::Ready(Some(interim)) = self.response.poll_informational(cx) {
            interim.map_err(Some)?;
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Poll::Ready(Err(None));
            }
        }
        Pin::new(&mut self.response).poll(cx).map_err(Some)
    }
}

/// Sends as much of a body as the engine accepts now.
///
/// # Errors
/// Fails if the client's body breaks off.
fn drive_upload(upload: &mut Option<UploadState>, cx: &mut Context<'_>) -> Result<(), Failure> {
    let Some(Poll::Ready(sent)) = upload.as_mut().map(|upload| upload.poll(cx)) else {
        return Ok(());
    };
    *upload = None;
    if let Sent::Broken(failure) = sent {
        Err(failure)
    } else {
        Ok(())
    }
}

/// Waits for room for a part of the body. Returns false if none will come.
async fn is_given_room(stream: &mut SendStream<Bytes>) -> bool {
    matches!(
        std::future::poll_fn(|cx| stream.poll_capacity(cx)).await,
        Some(Ok(_))
    )
}

/// Sends the body, as far as the engine accepts it. `left`: the number of bytes that have not been sent.
async fn deliver(stream: &mut SendStream<Bytes>, body: &EngineBody, left: &mut usize) {
    for mut piece in body.pieces().iter().cloned() {
        while !piece.is_empty() {
            stream.reserve_capacity(*left);
            // Room that an earlier piece has left is not announced again.
            if stream.capacity() == 0 && !is_given_room(stream).await {
                // The answer says why, if one comes.
                return std::future::pending().await;
            }
            let room = stream.capacity();
            let part = piece.split_to(room.min(piece.len()));
            *left -= part.len();
            if stream.send_data(part, *left == 0).is_err() {
                return std::future::pending().await;
            }
        }
    }
}

fn io_error(error: &h2::Error) -> io::Error {
    match error.get_io() {
        Some(error) => io::Error::new(error.kind(), error.to_string()),
        // The engine's own debug data is left out: it may contain anything.
        None => io::Error::other(
            error
                .reason()
                .map_or_else(String::new, |reason| reason.to_string()),
        ),
    }
}

fn refused(error: &h2::Error) -> Error {
    Error {
        stale: true,
        ..Error::from(Fault::Unreachable).with_source(&io_error(error))
    }
}

fn failed(error: &h2::Error, place: &StreamSlot) -> Error {
    let reason = error.reason();
    // A stream above the last one that a GOAWAY names was not processed.
    let untouched = error.is_go_away()
        || matches!(
            reason,
            Some(Reason::REFUSED_STREAM | Reason::HTTP_1_1_REQUIRED)
        );
    if error.is_remote() && untouched {
        return refused(error);
    }
    if error.is_library() {
        return Error::from(Fault::InvalidResponse)
            .with_class(RetryClass::MaybeProcessed)
            .with_source(&io_error(error));
    }
    let served = place.connection.state.served.load(Ordering::Relaxed);
    // No data for any request since then: the connection was already dead.
    let silent = place.connection.state.received.load(Ordering::Relaxed) == place.heard;
    let aged = error.is_io() && served && silent;
    Error {
        stale: aged,
        ..Error::from(Fault::Reset).with_source(&io_error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Client;
    use super::super::upload::{Source, Upload};
    use super::*;
    use crate::config::{Config, Overrides};
    use h2::server::SendResponse;
    use tokio::net::{TcpListener, TcpStream};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Starts an engine that allows two requests at once on each connection and answers none.
    async fn engine() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut builder = h2::server::Builder::new();
                let handshake = builder
                    .max_concurrent_streams(2)
                    .handshake::<_, Bytes>(stream);
                #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
                tokio::spawn(async move {
                    let mut connection = handshake.await.unwrap();
                    while let Some(Ok(_)) = connection.accept().await {}
                });
            }
        });
        to
    }

    fn pool() -> ConnectionPool {
        ConnectionPool::new(false, "engine", PATIENCE).unwrap()
    }

    /// Takes a slot on a connection with a number above `after`.
    async fn slot(pool: &ConnectionPool, to: SocketAddr, after: u64) -> StreamSlot {
        let connect = async {
            let stream = TcpStream::connect(to).await.unwrap().into();
            Ok(pool.handshake(Connection { stream, to }).await.unwrap())
        };
        pool.take_slot_or_connect(Some(to), after, connect)
            .await
            .unwrap()
    }

    fn kept(pool: &ConnectionPool) -> Vec<u64> {
        pool.all
            .lock()
            .iter()
            .map(|connection| connection.number)
            .collect()
    }

    /// Lets the last request of each kept connection have ended so long ago that the connection is old.
    fn age(pool: &ConnectionPool) {
        pool.all
            .lock()
            .iter()
            .for_each(|connection| *connection.state.since.lock() -= PATIENCE);
    }

    #[tokio::test]
    async fn a_second_connection_is_made_only_where_the_first_has_no_free_stream() {
        let (to, pool) = (engine().await, pool());
        assert_eq!((pool.newest_number(), pool.last_address()), (0, None));
        let [a, b] = [slot(&pool, to, 0).await, slot(&pool, to, 0).await];
        assert_eq!([a.number(), b.number()], [1, 1]);
        assert_eq!((pool.newest_number(), pool.last_address()), (1, Some(to)));
        assert!(
            pool.take_slot(Some(to), 0).is_none(),
            "both streams are in use"
        );
        let c = slot(&pool, to, 0).await;
        assert_eq!((c.number(), pool.newest_number()), (2, 2));
        drop(a);
        assert_eq!(
            slot(&pool, to, 0).await.number(),
            1,
            "a stream is free again"
        );
        assert_eq!(
            slot(&pool, to, 1).await.number(),
            2,
            "a later connection is wanted"
        );
        assert_eq!(slot(&pool, to, 2).await.number(), 3);
        assert_eq!(kept(&pool), [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_kept_connection_leads_to_the_address_that_is_wanted() {
        let (to, pool) = (engine().await, pool());
        drop(slot(&pool, to, 0).await);
        let other = SocketAddr::new(to.ip(), to.port() ^ 1);
        assert!(pool.take_slot(Some(other), 0).is_none());
        assert!(
            pool.take_slot(Some(to), 1).is_none(),
            "no later one is there"
        );
        assert!(pool.take_slot(Some(to), 0).is_some());
        assert!(
            pool.take_slot(None, 0).is_some(),
            "without an address, any will do"
        );
    }

    #[tokio::test]
    async fn connections_are_kept_for_a_time() {
        let (to, pool) = (engine().await, pool());
        drop(slot(&pool, to, 0).await);
        pool.sweep();
        assert_eq!(kept(&pool), [1]);
        let held = slot(&pool, to, 0).await;
        age(&pool);
        pool.sweep();
        assert_eq!(kept(&pool), [1], "a request is under way on it");
        drop(held);
        pool.sweep();
        assert_eq!(
            kept(&pool),
            [1],
            "the time counts from the end of the last request"
        );
        age(&pool);
        assert_eq!(
            slot(&pool, to, 0).await.number(),
            2,
            "the old one is not used"
        );
        assert_eq!(kept(&pool), [2]);
        age(&pool);
        pool.sweep();
        assert_eq!(kept(&pool), [0; 0], "the old one is closed");
    }

    #[tokio::test]
    async fn connections_that_have_ended_are_not_used() {
        let (to, pool) = (engine().await, pool());
        drop(slot(&pool, to, 0).await);
        pool.all.lock()[0]
            .state
            .ended
            .store(true, Ordering::Relaxed);
        assert_eq!(slot(&pool, to, 0).await.number(), 2);
        pool.all.lock()[0]
            .state
            .ended
            .store(true, Ordering::Relaxed);
        pool.sweep();
        assert_eq!(kept(&pool), [0; 0]);
    }

    #[tokio::test]
    async fn a_retired_upstream_keeps_no_connection() {
        let (to, pool) = (engine().await, pool());
        drop(slot(&pool, to, 0).await);
        pool.close_idle();
        assert_eq!(kept(&pool), [0; 0]);
        drop(slot(&pool, to, 0).await);
        assert_eq!(kept(&pool), [2]);
        pool.retire();
        assert_eq!(kept(&pool), [0; 0]);
        assert_eq!(
            slot(&pool, to, 0).await.number(),
            3,
            "requests that still come are served"
        );
        assert_eq!(kept(&pool), [0; 0]);
    }

    /// Requests that have waited for a connection that could not be made do not try again; later ones do.
    #[tokio::test]
    async fn a_failure_to_connect_is_that_of_all_who_waited_for_the_address() {
        let (pool, tries) = (pool(), AtomicUsize::new(0));
        let [one, other] = [1, 2].map(|port| Some(SocketAddr::from(([127, 0, 0, 1], port))));
        let take = |to: Option<SocketAddr>| {
            let (pool, tries) = (&pool, &tries);
            async move {
                let connect = async {
                    tries.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    Err(Error::from(Fault::Timeout).with_class(RetryClass::Unsent))
                };
                let failed = pool.take_slot_or_connect(to, 0, connect).await.unwrap_err();
                (failed.public.fault, failed.class)
            }
        };
        let failure = (Fault::Timeout, RetryClass::Unsent);
        assert_eq!(
            tokio::join!(take(None), take(None), take(None)),
            (failure, failure, failure)
        );
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        assert_eq!(take(None).await, failure);
        assert_eq!(tries.load(Ordering::Relaxed), 2);
        assert_eq!(
            tokio::join!(take(one), take(one), take(other)),
            (failure, failure, failure)
        );
        assert_eq!(tries.load(Ordering::Relaxed), 4);
    }

    /// Starts an engine that does this with the first request, and answers all others. It counts the requests.
    async fn engine_that_begins_with(first: fn(SendResponse<Bytes>)) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        match counted.fetch_add(1, Ordering::Relaxed) {
                            0 => first(respond),
                            _ => drop(respond.send_response(Response::new(()), true).unwrap()),
                        }
                    }
                });
            }
        });
        (url, count)
    }

    fn client(url: &str) -> Client {
        let text = format!("[[upstream]]\nurl = \"{url}\"\nhttp = \"2\"");
        let config = Config::read(&text, &[&Overrides::default()]).unwrap();
        Client::new(&config.upstreams[0], &config.timeouts)
    }

    /// A retry on this upstream is sent a second time if the engine has not begun it, as a first attempt is.
    #[tokio::test]
    async fn a_retry_is_sent_again_if_its_stream_is_refused() {
        for is_retry in [false, true] {
            let refuse =
                |mut respond: SendResponse<Bytes>| respond.send_reset(Reason::REFUSED_STREAM);
            let (url, count) = engine_that_begins_with(refuse).await;
            let request = Outgoing {
                is_retry,
                ..Outgoing::for_test("POST")
            };
            assert_eq!(
                client(&url).send(&request).await.unwrap().head.status,
                200,
                "{is_retry}"
            );
            assert_eq!(count.load(Ordering::Relaxed), 2, "{is_retry}");
        }
    }

    #[tokio::test]
    async fn interim_answers_have_a_limit() {
        fn answer<const INTERIM: usize>(mut respond: SendResponse<Bytes>) {
            for _ in 0..INTERIM {
                let hints = Response::builder().status(103).body(()).unwrap();
                respond.send_informational(hints).unwrap();
            }
            respond.send_response(Response::new(()), true).unwrap();
        }
        let request = Outgoing::for_test("POST");
        let (url, _) = engine_that_begins_with(answer::<MAX_INTERIM>).await;
        assert_eq!(client(&url).send(&request).await.unwrap().head.status, 200);
        let (url, count) = engine_that_begins_with(answer::<{ MAX_INTERIM + 1 }>).await;
        let error = client(&url).send(&request).await.unwrap_err();
        assert_eq!(
            (error.public.fault, error.class),
            (Fault::InvalidResponse, RetryClass::MaybeProcessed)
        );
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    /// Source that has nothing yet, and counts how often it is polled.
    struct Nothing(Arc<AtomicUsize>);

    impl Source for Nothing {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn the_rest_of_a_body_goes_to_an_engine_that_accepts_the_request() {
        fn answer<const STATUS: u16>(mut respond: SendResponse<Bytes>) {
            let head = Response::builder().status(STATUS).body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            body.send_data(Bytes::from_static(b"ab"), true).unwrap();
        }
        for (status, answer, is_sent) in [
            (200, answer::<200> as fn(_), true),
            (399, answer::<399>, true),
            (400, answer::<400>, false),
            (413, answer::<413>, false),
        ] {
            let (url, _) = engine_that_begins_with(answer).await;
            let (client, polls) = (client(&url), Arc::new(AtomicUsize::new(0)));
            let upload = Some(Upload::new(Nothing(Arc::clone(&polls)), None));
            let mut answer = client
                .send(&Outgoing {
                    upload,
                    ..Outgoing::for_test("POST")
                })
                .await
                .unwrap();
            assert_eq!(answer.head.status, status);
            let before = polls.load(Ordering::Relaxed);
            assert_eq!(answer.collect(100).await.unwrap(), "ab");
            assert_eq!(polls.load(Ordering::Relaxed) > before, is_sent, "{status}");
        }
    }

    /// Starts an engine that answers each request with the number of bytes of its body. `begins`: it sends the head of
    /// the answer before it reads the body.
    async fn engine_that_counts(begins: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
                tokio::spawn(async move {
                    let (mut body, mut count) = (request.into_body(), 0);
                    let mut head = || respond.send_response(Response::new(()), false).unwrap();
                    let begun = begins.then(&mut head);
                    while let Some(piece) = body.data().await {
                        let piece = piece.unwrap();
                        count += piece.len();
                        body.flow_control().release_capacity(piece.len()).unwrap();
                    }
                    let mut answer = begun.unwrap_or_else(head);
                    answer
                        .send_data(Bytes::from(count.to_string()), true)
                        .unwrap();
                });
            }
        });
        url
    }

    /// Source of this many pieces of 100 kB, which is more than a window of HTTP/2.
    struct Pieces(usize);

    impl Source for Pieces {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
            let Some(left) = self.0.checked_sub(1) else {
                return Poll::Ready(None);
            };
            self.0 = left;
            Poll::Ready(Some(Ok(Bytes::from(vec![b'x'; 100_000]))))
        }
    }

    #[tokio::test]
    async fn bodies_larger_than_a_window_are_sent_whole() {
        for begins in [false, true] {
            let client = client(&engine_that_counts(begins).await);
            for (whole, pieces, expected) in [
                (300_000, None, "300000"),
                (5, Some(3), "300005"),
                (0, Some(0), "0"),
            ] {
                let upload = pieces.map(|pieces| Upload::new(Pieces(pieces), None));
                let body = [whole / 3, whole / 3, whole - whole / 3 * 2];
                let body = body
                    .map(|length| Bytes::from(vec![b'x'; length]))
                    .into_iter()
                    .collect();
                let mut answer = client
                    .send(&Outgoing {
                        body,
                        upload,
                        ..Outgoing::for_test("POST")
                    })
                    .await
                    .unwrap();
                assert_eq!(answer.collect(100).await.unwrap(), expected, "{begins}");
            }
        }
    }
}
