//! HTTP client: sends one request to an engine and returns the answer with its head read.
//!
//! Connections that have served are kept for a few seconds, less than engines keep them. One may still die as a
//! request goes out. If not a byte of an answer has come, the request is sent once more, on a fresh connection
//! (faults U03).
//!
//! Each thread has its own client: connections stay with the thread that made them, and the clients share only the
//! addresses of the engine.

use super::answer::Answer;
use super::answer_head::{poll_append, read_head};
use super::hops::{self};
use super::http1::ResponseHead;
use super::http2::{self, ConnectionPool};
use super::outgoing::{Connection, Outgoing};
use super::resolver::Resolver;
use super::upload::Sending;
use super::upload_exchange;
use crate::capture::head_text;
use crate::config::{HttpVersion, Timeouts, UpstreamConfig};
use crate::error::{Error, RetryClass};
use crate::request::EngineBody;
use crate::telemetry::Peer;
use crate::tls::{self, Socket, Trust};
use crate::wire::fault::{Failure, Fault};
use bytes::BytesMut;
use parking_lot::Mutex;
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Divisor of the timeouts for a connection: with several addresses, each but the last gets this part of them, so that
/// one that does not answer leaves time for the others.
const PARTS: u32 = 4;
/// Time that an answer whose last event has come may take to end.
const TAIL: Duration = Duration::from_millis(100);

/// HTTP client of one thread for one upstream. Holds the idle connections, and makes new ones.
#[derive(Debug)]
pub struct Client {
    /// Resolved addresses of the host, shared with the clients of the other threads.
    addresses: Arc<Resolver>,
    tls: Option<Trust>,
    /// Value of the header `host`.
    authority: String,
    prefix: String,
    connect: Duration,
    handshake: Duration,
    pool_idle: Duration,
    idle: Mutex<Vec<IdleConnection>>,
    /// True once the upstream is retired: no connection is kept for another request.
    retired: AtomicBool,
    /// True for the client of probes: as long as a connection is kept, requests go to the address that it leads to.
    sticky: bool,
    /// HTTP/2 connections, if the engine is configured for HTTP/2. They carry several requests at once.
    connections: Option<ConnectionPool>,
    /// Name, host and port of the upstream for traces.
    peer: Arc<Peer>,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Connection,
    since: Instant,
}

impl Client {
    /// Creates a client without connections, which resolves the host on its own.
    pub fn new(upstream: &UpstreamConfig, timeouts: &Timeouts) -> Self {
        Self::with_addresses(
            &Resolver::from_system(upstream, timeouts),
            upstream,
            timeouts,
        )
    }

    /// Creates a client that shares the resolved addresses with other clients of the upstream.
    pub(super) fn with_addresses(
        addresses: &Arc<Resolver>,
        upstream: &UpstreamConfig,
        timeouts: &Timeouts,
    ) -> Self {
        let (host, port) = (upstream.host.clone(), upstream.port);
        let peer = Peer {
            name: upstream.name.clone(),
            host: host.clone(),
            port,
        };
        let (secure, pool_idle) = (upstream.tls.is_some(), *timeouts.pool_idle);
        let usual = if secure { 443 } else { 80 };
        let authority = if port == usual {
            host
        } else {
            format!("{host}:{port}")
        };
        let connections = match upstream.http {
            HttpVersion::Http1 => None,
            HttpVersion::Http2 => ConnectionPool::new(secure, &authority, pool_idle),
        };
        Self {
            authority,
            sticky: false,
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

    /// Makes this a client for probes: of several engines behind one name, a single one gets all requests of a
    /// probe.
    #[must_use]
    pub(super) fn sticky(self) -> Self {
        Self {
            sticky: true,
            ..self
        }
    }

    /// Returns the address for the next request: round robin over the known ones, or that of the kept connection of
    /// a client for probes.
    fn next_address(&self) -> Option<SocketAddr> {
        let last = || match &self.connections {
            Some(connections) => connections.last_address(),
            None => Some(self.idle.lock().last()?.connection.to),
        };
        self.sticky
            .then(last)
            .flatten()
            .or_else(|| self.addresses.next())
    }

    /// Sends a request and reads the head of the answer. A kept connection that turns out to be dead is replaced
    /// once.
    ///
    /// # Errors
    /// Fails if there is no connection or no answer, or if the answer is not HTTP.
    pub async fn send(&self, request: &Outgoing) -> Result<Answer, Error> {
        if let Some(connections) = &self.connections {
            return Ok(Box::pin(self.send_http2(connections, request))
                .await?
                .recorded_by(&request.recorder));
        }
        let head = self.head(request);
        if let Some(recorder) = &request.recorder {
            recorder.request(&head, &request.body);
        }
        Ok(self
            .send_http1(&head, request)
            .await?
            .recorded_by(&request.recorder))
    }

    async fn send_http1(&self, head: &[u8], request: &Outgoing) -> Result<Answer, Error> {
        // The address is chosen before a kept connection, so that new engines behind a name get their share.
        let to = self.next_address();
        if let Some(rest) = &request.upload {
            // A body that streams cannot be resent, so a kept connection that may be dead is not used.
            let connection = self.connection(to).await?;
            return Box::pin(upload_exchange::exchange(
                connection,
                head,
                request.body.joined(),
                rest,
            ))
            .await;
        }
        if !request.is_retry
            && let Some(connection) = self.checkout(to)
        {
            tracing::trace!(upstream = self.authority, address = %connection.to, "a connection is used again");
            match exchange(connection, head, &request.body, true).await {
                Err(error) if error.stale => {
                    tracing::debug!(upstream = self.authority, %error, "a kept connection was of no use: the request is sent again");
                }
                other => return other,
            }
        }
        exchange(self.connection(to).await?, head, &request.body, false).await
    }

    /// Sends a request over HTTP/2. One that the engine has not begun is resent once, on a newer connection; so is
    /// one that may have died with an old connection, if no other upstream was tried before.
    async fn send_http2(
        &self,
        connections: &ConnectionPool,
        request: &Outgoing,
    ) -> Result<Answer, Error> {
        let head = connections
            .head(request, &self.prefix, &self.peer)
            .ok_or_else(|| Error::from(Fault::Proxy))?;
        if let Some(recorder) = &request.recorder {
            let first = format!(
                "{} {} HTTP/2",
                head.method(),
                head.uri().path_and_query().map_or("", |path| path.as_str())
            );
            recorder.request(head_text(&first, head.headers()).as_bytes(), &request.body);
        }
        let (mut after, newest) = (0, connections.newest_number());
        loop {
            let to = self.next_address();
            let place = match connections.take_slot(to, after) {
                Some(place) => place,
                None => {
                    let connect =
                        self.first_of(to, |connection| Box::pin(connections.handshake(connection)));
                    connections.take_slot_or_connect(to, after, connect).await?
                }
            };
            let first = after == 0;
            after = newest.max(place.number());
            match http2::exchange(place, head.clone(), request).await {
                Err(error)
                    if error.stale
                        && request.is_repeatable()
                        && first
                        && (!request.is_retry || error.class == RetryClass::Unsent) => {}
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
        connection(&[
            request.method.as_bytes(),
            b" ",
            self.prefix.as_bytes(),
            path,
            b" HTTP/1.1",
        ]);
        connection(&[b"host: ", self.authority.as_bytes()]);
        connection(&[
            b"user-agent: samewire/",
            env!("CARGO_PKG_VERSION").as_bytes(),
        ]);
        connection(&[b"accept: ", request.accept.as_bytes()]);
        connection(&[b"accept-encoding: identity"]);
        connection(&[b"x-request-id: ", request.request_id.as_bytes()]);
        connection(&[
            hops::HEADER.as_str().as_bytes(),
            b": ",
            request.hops.value().as_bytes(),
        ]);
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
                Some(length) => {
                    connection(&[
                        b"content-length: ",
                        itoa::Buffer::new().format(length).as_bytes(),
                    ]);
                }
                None => connection(&[b"transfer-encoding: chunked"]),
            }
        }
        connection(&[]);
        head
    }

    /// Returns a kept connection to this address that seems alive; without an address, to any: a name that no
    /// longer resolves is no reason to give up a connection that works.
    fn checkout(&self, to: Option<SocketAddr>) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let fits = |idle: &IdleConnection| to.is_none_or(|to| idle.connection.to == to);
        while let Some(at) = idle.iter().rposition(fits) {
            let IdleConnection {
                mut connection,
                since,
            } = idle.remove(at);
            // Readable data means the end of the connection, or an answer without a request: either way it cannot
            // serve.
            if connection.stream.is_quiet() && since.elapsed() < self.pool_idle {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps the connection of an answer that was read to its end, for another request.
    pub fn give_back(&self, answer: Answer) {
        if let Some(connection) = answer.into_connection() {
            let since = Instant::now();
            let mut idle = self.idle.lock();
            if !self.retired.load(Ordering::Relaxed) {
                idle.push(IdleConnection { connection, since });
            }
        }
    }

    /// Keeps the connection of an answer that is no longer needed, once its last bytes have arrived: engines end a
    /// stream a moment after its last event. After 100 ms the connection is closed instead.
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

    /// Returns the number of addresses that the engine's name resolves to.
    pub(super) fn addresses(&self) -> usize {
        self.addresses.count()
    }

    /// Closes connections that have been idle for too long.
    pub fn sweep(&self) {
        if let Some(connections) = &self.connections {
            connections.sweep();
        }
        let mut idle = self.idle.lock();
        idle.retain(|idle| idle.since.elapsed() < self.pool_idle);
    }

    /// Closes the idle connections, and keeps none from now on.
    pub(super) fn retire(&self) {
        let mut idle = self.idle.lock();
        self.retired.store(true, Ordering::Relaxed);
        idle.clear();
        if let Some(connections) = &self.connections {
            connections.retire();
        }
    }

    /// Closes all idle connections.
    pub(super) fn close_idle(&self) {
        if let Some(connections) = &self.connections {
            connections.close_idle();
        }
        self.idle.lock().clear();
    }

    async fn connection(&self, first: Option<SocketAddr>) -> Result<Connection, Error> {
        self.first_of(first, |connection| std::future::ready(Ok(connection)))
            .await
    }

    /// Connects to one address after another, within the timeouts for a single connection, until `begin` succeeds on a
    /// connection. Fails with the last error.
    async fn first_of<T, F: Future<Output = io::Result<T>>>(
        &self,
        first: Option<SocketAddr>,
        begin: impl Fn(Connection) -> F,
    ) -> Result<T, Error> {
        let mut order = self.addresses.order(first).await?.into_iter().peekable();
        let mut left = TimeLeft {
            connect: self.connect,
            handshake: self.handshake,
        };
        let mut failed = Error::from(Fault::Unreachable).with_source(&ErrorKind::NotFound.into());
        while let Some(to) = order.next().filter(|_| !left.connect.is_zero()) {
            let parts = if order.peek().is_none() { 1 } else { PARTS };
            let made = match self.connect_to(to, parts, &mut left).await {
                Ok(connection) => {
                    let begun =
                        tokio::time::timeout(self.handshake / parts, begin(connection)).await;
                    begun
                        .map_err(|_| late())
                        .and_then(|begun| begun.map_err(unreachable))
                }
                Err(error) => Err(error),
            };
            if let Err(error) = &made
                && error.public.fault == Fault::Overloaded
            {
                return made;
            }
            tracing::trace!(upstream = self.authority, address = %to, is_made = made.is_ok(), "a connection was tried");
            self.addresses.record_connect(to, made.is_ok());
            match made {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Connects to one address, over TLS if the upstream has it, in a part of the time for all addresses.
    async fn connect_to(
        &self,
        to: SocketAddr,
        parts: u32,
        left: &mut TimeLeft,
    ) -> Result<Connection, Error> {
        let part = left.connect.min(self.connect / parts);
        let stream = timed(part, &mut left.connect, TcpStream::connect(to)).await;
        let stream =
            stream
                .ok_or_else(late)?
                .map_err(|error| match is_local_exhaustion(&error) {
                    true => exhausted(error),
                    false => unreachable(error),
                })?;
        // Small writes leave at once (no Nagle delay), and keep-alive notices an engine that has vanished.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(15))
            .with_interval(Duration::from_secs(15));
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(3));
        let Some(trust) = &self.tls else {
            return Ok(Connection {
                stream: stream.into(),
                to,
            });
        };
        let part = left.handshake.min(self.handshake / parts);
        let stream = timed(part, &mut left.handshake, Box::pin(trust.connect(stream))).await;
        let stream = stream
            .ok_or_else(late)?
            .map_err(|error| unreachable(with_remedy(error)))?;
        Ok(Connection { stream, to })
    }
}

fn late() -> Error {
    Error::from(Fault::Timeout).with_class(RetryClass::Unsent)
}

fn with_remedy(error: io::Error) -> io::Error {
    match tls::remedy(&error.to_string()) {
        Some(remedy) => io::Error::new(error.kind(), format!("{error}: {remedy}")),
        None => error,
    }
}

fn unreachable(error: io::Error) -> Error {
    Error::from(Fault::Unreachable).with_source(&error)
}

/// Time that is left for a connection, over all addresses.
struct TimeLeft {
    connect: Duration,
    handshake: Duration,
}

/// Waits for a result, and takes the time from `left`; `None` if it does not come in `limit`.
async fn timed<T>(
    limit: Duration,
    left: &mut Duration,
    result: impl Future<Output = T>,
) -> Option<T> {
    let start = Instant::now();
    let result = tokio::time::timeout(limit, result).await.ok();
    *left = left.saturating_sub(start.elapsed());
    result
}

/// Returns true for local resource exhaustion (EMFILE, ENFILE, ENOBUFS, ENOMEM). The engine is not at fault, and
/// another upstream would fail the same way.
fn is_local_exhaustion(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        number,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

fn exhausted(error: io::Error) -> Error {
    let message = "The proxy has no room for another connection to an engine.";
    Error::from(Failure::from(Fault::Overloaded).with_message(message)).with_source(&error)
}

/// Sends a request on a connection and reads the head of the answer. `reused`: the connection has served before, so
/// that the error of a silent end is marked as stale.
async fn exchange(
    mut connection: Connection,
    head: &[u8],
    body: &EngineBody,
    reused: bool,
) -> Result<Answer, Error> {
    let mut buffer = BytesMut::new();
    let stream = &mut connection.stream;
    let answered = match body.pieces() {
        [body] => {
            let mut slices = [IoSlice::new(head), IoSlice::new(body)];
            send_and_read_head(stream, &mut slices, &mut buffer, reused).await
        }
        pieces => {
            let mut slices = vec![IoSlice::new(head)];
            slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
            send_and_read_head(stream, &mut slices, &mut buffer, reused).await
        }
    };
    let (answer, unsent) = answered?;
    // An engine that refuses the request need not get the rest.
    let rest = (unsent > 0 && answer.status < 400).then(|| Sending::rest(head, body, unsent));
    Ok(Answer::new(answer, connection, buffer).with_upload(rest))
}

/// Sends a request and reads at the same time, so that interim answers stop nothing. Returns the head of the answer, and
/// the number of bytes that the engine has not taken by then.
async fn send_and_read_head(
    stream: &mut Socket,
    mut left: &mut [IoSlice<'_>],
    buffer: &mut BytesMut,
    reused: bool,
) -> Result<(ResponseHead, usize), Error> {
    // Slices without bytes are removed, too.
    IoSlice::advance_slices(&mut left, 0);
    let mut sent = None;
    let head = read_head(buffer, reused, |cx, buffer| {
        if sent.is_none()
            && let Poll::Ready(is_sent) = poll_send(stream, cx, &mut left)
        {
            sent = Some(is_sent);
        }
        poll_append(stream, cx, buffer).map(Ok)
    });
    let mut head = head.await?;
    head.reusable &= sent == Some(true);
    let unsent = if sent.is_none() {
        left.iter().map(|slice| slice.len()).sum()
    } else {
        0
    };
    Ok((head, unsent))
}

/// Sends as much as the engine accepts. Ready once all is sent, or cannot be (false): the next read says why.
fn poll_send(
    stream: &mut Socket,
    cx: &mut Context<'_>,
    left: &mut &mut [IoSlice<'_>],
) -> Poll<bool> {
    while !left.is_empty() {
        match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, left)) {
            Ok(written @ 1..) => IoSlice::advance_slices(left, written),
            Ok(0) | Err(_) => return Poll::Ready(false),
        }
    }
    Pin::new(&mut *stream)
        .poll_flush(cx)
        .map(|flushed| flushed.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use std::io::{BufRead, Read, Write};
    use std::sync::atomic::AtomicUsize;

    /// More bytes than the sockets of a connection hold.
    const LARGE: usize = 32 << 20;

    fn client(url: &str, lines: &str) -> Client {
        let text = format!("[[upstream]]\nurl = \"{url}\"\n{lines}");
        let config = Config::read(&text, &[&Overrides::default()]).unwrap();
        Client::new(&config.upstreams[0], &config.timeouts)
    }

    /// Returns the lines of the head that HTTP/1.1 sends.
    fn lines(client: &Client, request: &Outgoing) -> Vec<String> {
        let head = String::from_utf8(client.head(request)).unwrap();
        head.strip_suffix("\r\n\r\n")
            .unwrap()
            .split("\r\n")
            .map(ToOwned::to_owned)
            .collect()
    }

    #[test]
    fn the_host_has_a_port_unless_it_is_the_usual_one() {
        for (url, host) in [
            ("http://engine", "engine"),
            ("http://engine:80", "engine"),
            ("http://engine:443", "engine:443"),
            ("http://engine:8000", "engine:8000"),
            ("http://[::1]:8000", "[::1]:8000"),
        ] {
            assert_eq!(
                lines(&client(url, ""), &Outgoing::for_test("GET"))[1],
                format!("host: {host}"),
                "{url}"
            );
        }
    }

    #[test]
    fn only_a_request_with_a_body_tells_of_one() {
        let client = client("http://engine:8000/base", "");
        let get = lines(&client, &Outgoing::for_test("GET"));
        assert_eq!(get[0], "GET /base/v1/models HTTP/1.1");
        let is_of_body =
            |line: &str| line.starts_with("content-") || line.starts_with("transfer-encoding");
        assert!(!get.iter().any(|line| is_of_body(line)), "{get:?}");
        let post = lines(&client, &Outgoing::for_test("POST"));
        assert_eq!(post[0], "POST /base/v1/models HTTP/1.1");
        assert_eq!(
            post[post.len() - 2..],
            ["content-type: application/json", "content-length: 2"]
        );
        assert_eq!(
            get.iter().find(|line| line.starts_with("authorization")),
            None
        );
        let keyed = Outgoing {
            authorization: Some("Bearer k".parse().unwrap()),
            ..Outgoing::for_test("GET")
        };
        assert!(lines(&client, &keyed).contains(&"authorization: Bearer k".to_owned()));
    }

    /// HTTP/2 sends the same fields, apart from those that it writes otherwise.
    #[test]
    fn both_versions_of_http_send_the_same_head() {
        let client = client("http://engine:8000/base", "http = \"2\"");
        for method in ["GET", "POST"] {
            let request = Outgoing {
                authorization: Some("Bearer k".parse().unwrap()),
                ..Outgoing::for_test(method)
            };
            let connections = client.connections.as_ref().expect("it speaks HTTP/2");
            let head = connections
                .head(&request, &client.prefix, &client.peer)
                .unwrap();
            assert_eq!(
                (head.method() == Method::POST, head.method() == Method::GET),
                (method == "POST", method == "GET")
            );
            assert_eq!(head.uri(), "http://engine:8000/base/v1/models");
            let mut fields = HeaderMap::new();
            for line in lines(&client, &request)
                .iter()
                .skip(1)
                .filter(|line| !line.starts_with("host: "))
            {
                let (name, value) = line.split_once(": ").unwrap();
                fields.append(
                    http::HeaderName::try_from(name).unwrap(),
                    value.parse().unwrap(),
                );
            }
            assert_eq!(head.headers(), &fields, "{method}");
        }
    }

    #[test]
    fn only_a_lack_of_resources_is_our_own_fault() {
        for (number, is_own) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::CONNREFUSED, false),
        ] {
            let error = io::Error::from_raw_os_error(number.raw_os_error());
            assert_eq!(is_local_exhaustion(&error), is_own, "{error}");
        }
        assert!(!is_local_exhaustion(&ErrorKind::TimedOut.into()));
    }

    /// Starts an engine that answers each request with two bytes, and counts its connections. `last`: what it sends in
    /// place of the second answer on a connection, which it then closes.
    fn engine(last: Option<&'static str>) -> (String, Arc<AtomicUsize>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let lines = io::BufReader::new(&stream).lines().map_while(Result::ok);
                    for (n, _) in lines.filter(String::is_empty).enumerate() {
                        let last = last.filter(|_| n == 1);
                        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab";
                        (&stream)
                            .write_all(last.unwrap_or(answer).as_bytes())
                            .unwrap();
                        if last.is_some() {
                            break;
                        }
                    }
                });
            }
        });
        (url, count)
    }

    /// Sends a request, reads its answer and gives the connection back.
    async fn send(client: &Client, is_retry: bool) {
        let request = Outgoing {
            is_retry,
            ..Outgoing::for_test("GET")
        };
        let mut answer = client.send(&request).await.unwrap();
        assert_eq!(answer.collect(100).await.unwrap(), "ab");
        client.give_back(answer);
    }

    /// Checks that a connection is kept for a few seconds, and not for a retry or once the upstream is retired.
    #[tokio::test]
    async fn connections_are_kept_for_a_time() {
        let (url, count) = engine(None);
        let client = client(&url, "[timeouts]\npool_idle = 60");
        let idle = || client.idle.lock().len();
        let connections = || count.load(Ordering::Relaxed);
        let age = |by: Duration| client.idle.lock()[0].since -= by;
        send(&client, false).await;
        send(&client, false).await;
        assert_eq!((connections(), idle()), (1, 1), "it is used again");
        send(&client, true).await;
        assert_eq!(
            (connections(), idle()),
            (2, 2),
            "a retry has one of its own"
        );
        age(client.pool_idle);
        client.sweep();
        assert_eq!(idle(), 1, "the old one is closed");
        assert!(client.idle.lock()[0].since.elapsed() < client.pool_idle);
        age(client.pool_idle);
        send(&client, false).await;
        assert_eq!((connections(), idle()), (3, 1), "the old one is not used");
        client.close_idle();
        assert_eq!(idle(), 0);
        send(&client, false).await;
        assert_eq!((connections(), idle()), (4, 1));
        client.retire();
        assert_eq!(idle(), 0);
        send(&client, false).await;
        assert_eq!((connections(), idle()), (5, 0), "none is kept any more");
    }

    /// Checks that a request is sent again only if the kept connection has ended without a byte: an engine that has
    /// begun an answer has read the request.
    #[tokio::test]
    async fn a_request_is_sent_again_where_a_kept_connection_has_ended_in_silence() {
        for (last, is_sent_again) in [("", true), ("HTTP/1.1 2", false)] {
            let (url, count) = engine(Some(last));
            let client = client(&url, "");
            send(&client, false).await;
            assert_eq!(
                client.send(&Outgoing::for_test("GET")).await.is_ok(),
                is_sent_again,
                "{last:?}"
            );
            assert_eq!(
                count.load(Ordering::Relaxed),
                1 + usize::from(is_sent_again),
                "{last:?}"
            );
        }
    }

    fn in_three(length: usize) -> EngineBody {
        [1, length / 2, length - length / 2 - 1]
            .map(|length| Bytes::from(vec![b'x'; length]))
            .into_iter()
            .collect()
    }

    /// Sends a body that is larger than what the sockets hold to an engine that does this with the connection. Returns
    /// the status and body of the answer, and whether the connection is kept.
    async fn send_large(
        engine: fn(std::net::TcpStream) -> Option<std::net::TcpStream>,
    ) -> Option<(u16, String, bool)> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(&format!("http://{}", listener.local_addr().unwrap()), "");
        let open = std::thread::spawn(move || engine(listener.accept().unwrap().0));
        let request = Outgoing {
            body: in_three(LARGE),
            ..Outgoing::for_test("POST")
        };
        let mut answer = client.send(&request).await.ok()?;
        let (status, body) = (answer.head.status, answer.collect(100).await.unwrap());
        client.give_back(answer);
        drop(open);
        Some((
            status,
            String::from_utf8(body.to_vec()).unwrap(),
            client.idle.lock().len() == 1,
        ))
    }

    #[tokio::test]
    async fn large_bodies_are_sent_whole_unless_the_engine_refuses_or_leaves() {
        fn answer(mut stream: &std::net::TcpStream, status: u16, body: &str) {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .unwrap();
        }
        let reads = send_large(|stream| {
            let mut reader = io::BufReader::new(&stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            // Interim answers come while the rest of the request waits for room.
            for status in [100, 103] {
                write!(&stream, "HTTP/1.1 {status} X\r\n\r\n").unwrap();
            }
            let count = io::copy(&mut reader.take(LARGE as u64), &mut io::sink()).unwrap();
            answer(&stream, 200, &count.to_string());
            Some(stream)
        });
        assert_eq!(reads.await, Some((200, LARGE.to_string(), true)));
        let begins = send_large(|stream| {
            write!(&stream, "HTTP/1.1 200 X\r\ncontent-length: 8\r\n\r\n").unwrap();
            let mut rest = vec![0; LARGE];
            let mut reader = io::BufReader::new(&stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            reader.read_exact(&mut rest).unwrap();
            assert!(rest.iter().all(|byte| *byte == b'x'));
            write!(&stream, "33554432").unwrap();
            Some(stream)
        });
        assert_eq!(
            begins.await,
            Some((200, LARGE.to_string(), false)),
            "it answers and reads on"
        );
        let refuses = send_large(|stream| {
            answer(&stream, 413, "too large");
            Some(stream)
        });
        assert_eq!(
            refuses.await,
            Some((413, "too large".to_owned(), false)),
            "the request is not complete"
        );
        assert_eq!(send_large(|_| None).await, None);
    }

    /// Checks that the client of a thread takes a connection to the address whose turn it is, and that without an
    /// address any will do.
    #[tokio::test]
    async fn a_kept_connection_leads_to_the_address_that_is_wanted() {
        let (url, _) = engine(None);
        let client = client(&url, "[timeouts]\npool_idle = 60");
        send(&client, false).await;
        let to = client.idle.lock()[0].connection.to;
        assert!(
            client
                .checkout(Some(SocketAddr::new(to.ip(), to.port() ^ 1)))
                .is_none()
        );
        assert!(client.checkout(Some(to)).is_some());
        send(&client, false).await;
        assert!(client.checkout(None).is_some());
        assert_eq!((client.addresses(), client.next_address()), (1, Some(to)));
    }
}
