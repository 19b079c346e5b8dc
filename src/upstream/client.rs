//! The client: sends one request to an engine and gives its answer's head.
//!
//! Connections that have served are kept for a few seconds, less than engines keep them. It may happen all the same
//! that one dies as a request goes out; if not a byte of an answer had come, the request is sent once more on a fresh
//! connection (faults U03).
//!
//! There is one client for each thread: connections stay with the thread that made them, and nothing is shared but what is
//! known of the engine's name.

use super::answer::Answer;
use super::hops::{self, Hops};
use super::http1::{HEAD_LIMIT, Head, Malformed};
use super::http2::{self, ConnectionPool};
use super::resolver::Addresses;
use super::upload::{self, Upload};
use crate::config::{HttpVersion, Timeouts, UpstreamConfig};
use crate::error::{Class, Error};
use crate::telemetry::{Peer, Propagation};
use crate::tls::{self, Socket, Trust};
use crate::wire::fault::{Failure, Fault};
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderValue;
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use std::borrow::Cow;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// An address that does not answer leaves the others time: of several, each gets this part of the whole.
const PARTS: u32 = 4;
/// How long an answer that is complete may take to end.
const TAIL: Duration = Duration::from_millis(100);
/// Interim answers (1xx) before the answer.
pub(super) const INTERIM: usize = 8;

/// A request as it goes to an engine.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The path behind the upstream's prefix, with a query if there is one: a path of the API, or one that the configuration
    /// lets through.
    pub path: Cow<'static, str>,
    /// What the answer may be.
    pub accept: HeaderValue,
    /// The type of the body of a `POST`.
    pub content_type: Option<HeaderValue>,
    /// The key.
    pub authorization: Option<HeaderValue>,
    /// The id under which the engine logs it.
    pub request_id: String,
    /// It has been tried elsewhere. A connection that is kept may die as a request goes out, and one request is sent once more
    /// for that, not one at each upstream (faults 7, class A').
    pub again: bool,
    /// The trace that it is part of.
    pub trace: Propagation,
    /// Its way so far.
    pub hops: Hops,
    /// The body, or as much of it as is held.
    pub body: Bytes,
    /// The rest of the body, which is sent while it comes.
    pub upload: Option<Upload>,
}

impl Outgoing {
    /// The type of bodies, unless the request says otherwise.
    pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

    /// Bytes of the body; `None`: they are not known.
    pub(super) fn length(&self) -> Option<u64> {
        let held = u64::try_from(self.body.len()).unwrap_or(u64::MAX);
        match &self.upload {
            Some(upload) => Some(held.saturating_add(upload.length?)),
            None => Some(held),
        }
    }

    /// Whether it can be sent on another connection.
    fn is_repeatable(&self) -> bool {
        !self.upload.as_ref().is_some_and(Upload::has_begun)
    }
}

/// The way to one upstream.
#[derive(Debug)]
pub struct Client {
    /// Where it may be: shared with the other threads' clients.
    addresses: Arc<Addresses>,
    tls: Option<Trust>,
    /// `host` as requests name it.
    authority: String,
    prefix: String,
    connect: Duration,
    handshake: Duration,
    pool_idle: Duration,
    idle: Mutex<Vec<Idle>>,
    /// No connection is kept for another request.
    retired: AtomicBool,
    /// All requests go where the connection leads that is there, if there is one.
    stays: bool,
    /// Connections for many requests at once, where the engine is spoken to in HTTP/2.
    connections: Option<ConnectionPool>,
    /// Its name in traces.
    peer: Arc<Peer>,
}

/// A connection, and to which of the addresses.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Socket,
    pub(super) to: SocketAddr,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

impl Client {
    /// A client without connections.
    pub fn new(upstream: &UpstreamConfig, timeouts: &Timeouts) -> Self {
        Self::sharing(&Addresses::of(upstream, timeouts), upstream, timeouts)
    }

    /// One that knows what others know of the engine's name.
    pub(super) fn sharing(
        addresses: &Arc<Addresses>,
        upstream: &UpstreamConfig,
        timeouts: &Timeouts,
    ) -> Self {
        let (host, port) = (upstream.host.clone(), upstream.port);
        let peer = Peer { name: upstream.name.clone(), host: host.clone(), port };
        let (secure, pool_idle) = (upstream.tls.is_some(), *timeouts.pool_idle);
        let usual = if secure { 443 } else { 80 };
        let authority = if port == usual { host } else { format!("{host}:{port}") };
        let connections = match upstream.http {
            HttpVersion::Http1 => None,
            HttpVersion::Http2 => ConnectionPool::new(secure, &authority, pool_idle),
        };
        Self {
            authority,
            stays: false,
            connections,
            addresses: Arc::clone(addresses),
            tls: upstream.tls.clone(),
            prefix: upstream.prefix.clone(),
            connect: *timeouts.connect,
            handshake: *timeouts.handshake,
            pool_idle,
            idle: Mutex::default(),
            retired: AtomicBool::new(false),
            peer: Arc::new(peer),
        }
    }

    /// The same for probes: of several engines behind one name, one is asked all that there is to ask.
    #[must_use]
    pub(super) fn staying(self) -> Self {
        Self { stays: true, ..self }
    }

    /// Whose turn it is.
    fn turn(&self) -> Option<SocketAddr> {
        let last = || match &self.connections {
            Some(connections) => connections.last(),
            None => Some(self.idle.lock().unwrap_or_else(PoisonError::into_inner).last()?.connection.to),
        };
        self.stays.then(last).flatten().or_else(|| self.addresses.next())
    }

    /// Sends a request and reads the head of its answer.
    ///
    /// # Errors
    /// No connection, no answer, or nothing that is HTTP.
    pub async fn send(&self, request: &Outgoing) -> Result<Answer, Error> {
        if let Some(connections) = &self.connections {
            return Box::pin(self.send_http2(connections, request)).await;
        }
        let head = self.head(request);
        // Whose turn it is comes before who has a connection, so that new engines behind a name get their part.
        let to = self.turn();
        if let Some(rest) = &request.upload {
            // Of a connection that has died with age it would be known too late.
            let connection = self.connection(to).await?;
            return Box::pin(upload::exchange(connection, &head, request.body.clone(), rest)).await;
        }
        if !request.again
            && let Some(connection) = self.checkout(to)
        {
            tracing::trace!(upstream = self.authority, address = %connection.to, "a connection is used again");
            match exchange(connection, &head, &request.body, true).await {
                Err(error) if error.aged => {}
                other => return other,
            }
        }
        exchange(self.connection(to).await?, &head, &request.body, false).await
    }

    /// The same in HTTP/2. A request that the engine has not begun is sent once more, on a connection that is newer; so is one
    /// that may have died with an old connection, if that is its first upstream.
    async fn send_http2(&self, connections: &ConnectionPool, request: &Outgoing) -> Result<Answer, Error> {
        let head =
            connections.head(request, &self.prefix, &self.peer).ok_or_else(|| Error::from(Fault::Proxy))?;
        let (mut after, newest) = (0, connections.newest());
        loop {
            let to = self.turn();
            let place = match connections.place(to, after) {
                Some(place) => place,
                None => connections.place_or(to, after, self.handshake, self.connection(to)).await?,
            };
            let first = after == 0;
            after = newest.max(place.number());
            match http2::exchange(place, head.clone(), request).await {
                Err(error)
                    if error.aged
                        && request.is_repeatable()
                        && first
                        && (!request.again || error.class == Class::Unsent) => {}
                other => return other,
            }
        }
    }

    fn head(&self, request: &Outgoing) -> Vec<u8> {
        let mut head = Vec::with_capacity(512);
        let mut connection = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| head.extend_from_slice(part));
            head.extend_from_slice(b"\r\n");
        };
        let path = request.path.as_bytes();
        connection(&[request.method.as_bytes(), b" ", self.prefix.as_bytes(), path, b" HTTP/1.1"]);
        connection(&[b"host: ", self.authority.as_bytes()]);
        connection(&[b"user-agent: samewire/", env!("CARGO_PKG_VERSION").as_bytes()]);
        connection(&[b"accept: ", request.accept.as_bytes()]);
        connection(&[b"accept-encoding: identity"]);
        connection(&[b"x-request-id: ", request.request_id.as_bytes()]);
        connection(&[hops::HEADER.as_str().as_bytes(), b": ", request.hops.value().as_bytes()]);
        if let Some(key) = &request.authorization {
            connection(&[b"authorization: ", key.as_bytes()]);
        }
        for (name, value) in request.trace.begin(&self.peer) {
            connection(&[name.as_bytes(), b": ", value.as_bytes()]);
        }
        if request.method == "POST" {
            if let Some(kind) = &request.content_type {
                connection(&[b"content-type: ", kind.as_bytes()]);
            }
            match request.length() {
                Some(length) => connection(&[b"content-length: ", length.to_string().as_bytes()]),
                None => connection(&[b"transfer-encoding: chunked"]),
            }
        }
        connection(&[]);
        head
    }

    /// A connection to this address that served before, if one is left that seems alive; without an address, to any: a name
    /// that leads nowhere any more is no reason to leave what is connected.
    fn checkout(&self, to: Option<SocketAddr>) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |idle: &Idle| to.is_none_or(|to| idle.connection.to == to);
        while let Some(at) = idle.iter().rposition(fits) {
            let Idle { mut connection, since } = idle.remove(at);
            // Anything to read means its end, or an answer to nothing: it cannot serve.
            if connection.stream.is_quiet() && since.elapsed() < self.pool_idle {
                return Some(connection);
            }
        }
        None
    }

    /// Takes back the connection of an answer that was read to its end.
    pub fn give_back(&self, answer: Answer) {
        if let Some(connection) = answer.into_connection() {
            let since = Instant::now();
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.retired.load(Ordering::Relaxed) {
                idle.push(Idle { connection, since });
            }
        }
    }

    /// Takes back an answer of which nothing more is wanted, once its last bytes have come: engines end a stream a
    /// moment after its last event. Longer than that nobody waits, and the connection is closed.
    pub fn give_back_soon(self: &Arc<Self>, mut answer: Answer) {
        let mut at_once = Context::from_waker(Waker::noop());
        match answer.poll_rest(&mut at_once) {
            Poll::Ready(Ok(())) => return self.give_back(answer),
            Poll::Ready(Err(_)) => return,
            Poll::Pending => {}
        }
        let this = Arc::clone(self);
        let ended = async move {
            let rest = std::future::poll_fn(|cx| answer.poll_rest(cx));
            if let Ok(Ok(())) = tokio::time::timeout(TAIL, rest).await {
                this.give_back(answer);
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the request is over; what is left lasts for 100 ms at most"
        )]
        tokio::spawn(ended);
    }

    /// How many addresses the engine's name leads to.
    pub(super) fn addresses(&self) -> usize {
        self.addresses.count()
    }

    /// Closes connections that are too old to serve.
    pub fn sweep(&self) {
        if let Some(connections) = &self.connections {
            connections.sweep();
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|idle| idle.since.elapsed() < self.pool_idle);
    }

    /// From now on no connection waits for a request.
    pub(super) fn retire(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        self.retired.store(true, Ordering::Relaxed);
        idle.clear();
        if let Some(connections) = &self.connections {
            connections.retire();
        }
    }

    /// Closes all connections that wait for a request.
    pub(super) fn forget(&self) {
        if let Some(connections) = &self.connections {
            connections.forget();
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn connection(&self, first: Option<SocketAddr>) -> Result<Connection, Error> {
        let (stream, to) = self.connected(self.addresses.order(first).await?).await?;
        // Small writes leave at once, and an engine that vanished without a word is noticed.
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(15));
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(3));
        let Some(trust) = &self.tls else { return Ok(Connection { stream: stream.into(), to }) };
        match tokio::time::timeout(self.handshake, Box::pin(trust.connect(stream))).await {
            Ok(Ok(stream)) => Ok(Connection { stream, to }),
            Ok(Err(error)) => Err(Error::from(Fault::Unreachable).because(error)),
            Err(_) => Err(Error::from(Fault::Timeout).classed(Class::Unsent)),
        }
    }

    /// One address after another, all of them within the time for one connection.
    async fn connected(&self, order: Vec<SocketAddr>) -> Result<(TcpStream, SocketAddr), Error> {
        let until = Instant::now() + self.connect;
        let mut failed = Error::from(Fault::Unreachable).because(ErrorKind::NotFound.into());
        let mut order = order.into_iter().peekable();
        while let Some(to) = order.next() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let part = if order.peek().is_none() { left } else { left.min(self.connect / PARTS) };
            let connected = match tokio::time::timeout(part, TcpStream::connect(to)).await {
                Ok(Err(error)) if is_our_want(&error) => return Err(in_want(error)),
                connected => connected,
            };
            let is_connected = matches!(connected, Ok(Ok(_)));
            tracing::trace!(upstream = self.authority, address = %to, is_connected, "a connection was tried");
            self.addresses.tried(to, is_connected);
            failed = match connected {
                Ok(Ok(stream)) => return Ok((stream, to)),
                Ok(Err(error)) => Error::from(Fault::Unreachable).because(error),
                Err(_) => Error::from(Fault::Timeout).classed(Class::Unsent),
            };
        }
        Err(failed)
    }
}

/// It is the process, or its machine, that has no descriptor or no memory for a connection: nobody else is at fault, and
/// nobody else could be asked instead.
fn is_our_want(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

fn in_want(error: io::Error) -> Error {
    let message = "The proxy has no room for another connection to an engine.";
    Error::from(Failure::from(Fault::Overloaded).with_message(message)).because(error)
}

/// One request and the head of its answer on one connection.
async fn exchange(
    mut connection: Connection,
    head: &[u8],
    body: &[u8],
    reused: bool,
) -> Result<Answer, Error> {
    let mut buffer = BytesMut::with_capacity(2048);
    let delivered = match &mut connection.stream {
        Socket::Plain(stream) => deliver(stream, head, body).await,
        stream => deliver_over_tls(stream, head, body, &mut buffer).await,
    };
    let mut interim = 0;
    loop {
        match Head::read(&buffer) {
            Ok(Some((head, length))) if matches!(head.status, 100 | 102..=199) && interim < INTERIM => {
                buffer.advance(length);
                interim += 1;
            }
            Ok(Some((mut head, length))) => {
                buffer.advance(length);
                head.reusable &= delivered;
                let mut answer = Answer::new(head, connection, buffer);
                answer.surplus();
                return Ok(answer);
            }
            Ok(None) => {
                buffer.reserve(1024.min(HEAD_LIMIT));
                let cause = match connection.stream.read_buf(&mut buffer).await {
                    Ok(0) => ErrorKind::UnexpectedEof.into(),
                    Ok(_) => continue,
                    Err(error) => error,
                };
                if !reused && buffer.is_empty() && tls::is_refusal(&cause) {
                    return Err(Error::from(Fault::Unreachable).because(cause));
                }
                let aged = reused && buffer.is_empty() && interim == 0;
                return Err(Error { aged, ..Error::from(Fault::Reset).because(cause) });
            }
            Err(Malformed) => return Err(Error::from(Fault::InvalidResponse).classed(Class::Perhaps)),
        }
    }
}

/// Sends the request. Not all of it if the engine answers before it has read it, or does not read on: its answer says
/// why.
async fn deliver(stream: &TcpStream, head: &[u8], body: &[u8]) -> bool {
    let (mut head, mut body) = (head, body);
    while !(head.is_empty() && body.is_empty()) {
        match stream.try_write_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
            Ok(written) => {
                let of_head = written.min(head.len());
                head.advance(of_head);
                body.advance(written - of_head);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let ready = stream.ready(Interest::READABLE | Interest::WRITABLE).await;
                if ready.is_err() || ready.is_ok_and(|ready| ready.is_readable() && !ready.is_writable()) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// The same over TLS. That there is something to read is no sign there: it may be what TLS says to itself. So it is read,
/// and what belongs to an answer is kept in `early`.
async fn deliver_over_tls(stream: &mut Socket, head: &[u8], body: &[u8], early: &mut BytesMut) -> bool {
    let (mut head, mut body) = (head, body);
    let delivered = std::future::poll_fn(|cx| {
        while !(head.is_empty() && body.is_empty()) {
            let pieces = [IoSlice::new(head), IoSlice::new(body)];
            match Pin::new(&mut *stream).poll_write_vectored(cx, &pieces) {
                Poll::Ready(Ok(written)) => {
                    let of_head = written.min(head.len());
                    head.advance(of_head);
                    body.advance(written - of_head);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return answers(stream, cx, early).map(|()| false),
            }
        }
        match Pin::new(&mut *stream).poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed.is_ok()),
            Poll::Pending => answers(stream, cx, early).map(|()| false),
        }
    });
    delivered.await
}

/// The engine says something, if only that it says no more.
fn answers(stream: &mut Socket, cx: &mut Context<'_>, early: &mut BytesMut) -> Poll<()> {
    let mut space = [0; 1024];
    let mut buffer = ReadBuf::new(&mut space);
    // Why it cannot be read is told by the next read.
    let _ = ready!(Pin::new(stream).poll_read(cx, &mut buffer));
    early.extend_from_slice(buffer.filled());
    Poll::Ready(())
}
