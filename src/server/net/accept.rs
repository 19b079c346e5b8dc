//! Acceptance of client connections, and the task that serves each of them.
//!
//! Takes: a listener. Gives: each connection, with its slot, to the worker thread with the fewest connections.
//! Never: interprets a request.

use super::connection::{ClientIo, LINGER, VANISHED_AFTER};
use super::connections::{ConnectionSlot, Connections, Evictions};
use super::descriptors::has_pending_connection;
use super::shutdown::{Phase, PhaseWatcher};
use super::{closing, http2, tls};
use crate::server::panics;
use crate::server::{App, Worker};
use crate::telemetry::Metrics;
use crate::wire::fault::{Failure, Fault};
use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tower::Service;

/// Time that the acceptor waits for a free slot before it refuses connections.
const SLOT_WAIT: Duration = Duration::from_secs(1);
/// Interval at which the waiting acceptor checks for a free slot.
const SLOT_CHECK: Duration = Duration::from_millis(20);
/// Limit for the bytes that the kernel buffers for a client before it sends them (`TCP_NOTSENT_LOWAT`).
const KERNEL_UNSENT_BYTES: u32 = 32 << 10;
/// Upper limit for the refused connections that receive an error response at the same time.
const MAX_REFUSALS: usize = 64;
/// Pause after a failed accept: the first one, and the longest after repeated doubling.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Inbox of a worker thread: the channel by which it receives accepted connections, with the thread's state.
pub(in crate::server) struct Inbox {
    pub(in crate::server) worker: Arc<Worker>,
    /// Channel with room for every connection that may be open: a queued connection counts as open.
    pub(in crate::server) to: mpsc::Sender<(std::net::TcpStream, ConnectionSlot)>,
}

/// Acceptor of client connections for all worker threads. Enforces the connection limit, and closes idle
/// connections to make room.
pub(in crate::server) struct Acceptor {
    connections: Arc<Connections>,
    /// Limit for the open connections (`limits.connections`).
    most: usize,
    metrics: Arc<Metrics>,
    /// True if clients speak TLS.
    secure: bool,
    inboxes: Vec<Inbox>,
    evictions: Evictions,
    /// Time since which there has been no free slot, and none could be freed.
    full_since: Option<Instant>,
    pause: Duration,
    refusals: Arc<Semaphore>,
}

impl Acceptor {
    pub(in crate::server) fn new(app: &App, doors: Vec<Inbox>) -> Self {
        let most = app.config.limits.connections;
        Self {
            connections: Arc::clone(&app.net.connections),
            most,
            metrics: Arc::clone(&app.metrics),
            secure: app.net.server_certificate.is_some(),
            inboxes: doors,
            evictions: Evictions::of(&app.net.connections, Duration::ZERO),
            full_since: None,
            pause: PAUSES.0,
            // If the connection limit is low, an eighth of it is enough for refusals.
            refusals: Arc::new(Semaphore::new((most / 8).clamp(4, MAX_REFUSALS))),
        }
    }

    /// Accepts connections without end. The future may be dropped to stop that; the acceptor can then be run with
    /// another listener.
    pub(in crate::server) async fn run(&mut self, listener: &TcpListener) -> Infallible {
        loop {
            match listener
                .accept()
                .await
                .and_then(|(stream, peer)| Ok((stream.into_std()?, peer)))
            {
                Ok((stream, peer)) => {
                    self.pause = PAUSES.0;
                    if self.has_room().await {
                        self.hand_over(stream, peer)
                    } else {
                        self.refuse(stream)
                    }
                }
                Err(error) => {
                    // Mostly a lack of descriptors: another try at once would only burn processor time.
                    if has_pending_connection(listener) {
                        self.metrics.accept_errors.add(1);
                        tracing::warn!(%error, "cannot accept");
                        self.evictions.forget();
                        self.evict();
                    }
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Returns true if there is a free slot, if necessary after idle connections were closed. Meanwhile the kernel
    /// queues new connections (faults C41).
    async fn has_room(&mut self) -> bool {
        while self.connections.open().len() >= self.most {
            self.evict();
            let since = *self.full_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= SLOT_WAIT {
                return false;
            }
            // Check again after a pause: the evicted connection may have received a request, and stay.
            let _ = tokio::time::timeout(SLOT_CHECK, self.connections.closed.notified()).await;
        }
        self.full_since = None;
        self.evictions.forget();
        true
    }

    fn evict(&mut self) {
        self.metrics.evicted.add(self.evictions.evict().into());
    }

    /// Passes a connection to the worker thread with the fewest connections.
    fn hand_over(&self, stream: std::net::TcpStream, peer: SocketAddr) {
        let count = |inbox: &&Inbox| inbox.worker.connections.load(Ordering::Relaxed);
        let Some(inbox) = self.inboxes.iter().min_by_key(count) else {
            return;
        };
        let slot = ConnectionSlot::take(&inbox.worker, peer);
        // Never fails for lack of room: the channel holds every connection that may be open.
        let _ = inbox.to.try_send((stream, slot));
    }

    /// Refuses a connection for lack of a slot: with an error response over plain TCP, without one over TLS.
    fn refuse(&self, stream: std::net::TcpStream) {
        self.metrics.refused_connections.add(1);
        // An error response after a TLS handshake would cost more than a connection.
        if self.secure {
            return;
        }
        let (Ok(parting), Ok(stream)) = (
            Arc::clone(&self.refusals).try_acquire_owned(),
            TcpStream::from_std(stream),
        ) else {
            return;
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a second at most, and few at once"
        )]
        tokio::spawn(async move {
            let _ = tokio::time::timeout(LINGER, send_refusal(stream)).await;
            drop(parting);
        });
    }
}

/// Sends the error response for a reached connection limit, and closes the connection.
async fn send_refusal(stream: TcpStream) -> io::Result<()> {
    let failure =
        Failure::from(Fault::Overloaded).with_message("The proxy is at its limit of connections.");
    closing::answer(stream, &failure, true).await
}

/// Serves a connection until it closes or is upgraded. An upgraded connection takes its slot along, and still
/// counts as open.
pub(in crate::server) async fn serve_connection(
    slot: ConnectionSlot,
    router: Router,
    stream: std::net::TcpStream,
) {
    let Ok(stream) = configure_socket(stream) else {
        return;
    };
    panics::point("connection", None);
    let worker = Arc::clone(&slot.worker);
    let app = worker.active_config.app();
    let Some(stream) = tls::accept_client(&app, stream, &slot.open.state).await else {
        return;
    };
    // Release the configuration: the connection may stay open for longer than it is in force.
    let shutdown = Arc::clone(&app.net.shutdown);
    drop(app);
    let state = slot.open.state.clone();
    let mut io = ClientIo::new(stream, state.clone(), slot);
    let mut phases = PhaseWatcher::of(&shutdown);
    let begun = std::future::poll_fn(|cx| {
        // Only registers for changes: the next function reads the phase itself.
        phases.poll(cx, &shutdown);
        io.poll_is_http2(cx)
    });
    match begun.await {
        Ok(true) => return Box::pin(http2::serve(io, state, router, worker)).await,
        Ok(false) => {}
        Err(_) => return,
    }
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(state.clone());
        router.clone().call(request)
    });
    let mut connection = pin!(worker.http.serve_connection(io, service).with_upgrades());
    let mut phases = PhaseWatcher::of(&shutdown);
    std::future::poll_fn(|cx| {
        // Polled before: the library closes a connection of which it has not read anything yet.
        let polled = connection.as_mut().poll(cx);
        if polled.is_pending()
            && phases
                .poll(cx, &shutdown)
                .is_some_and(|phase| phase >= Phase::Draining)
        {
            connection.as_mut().graceful_shutdown();
            return connection.as_mut().poll(cx).map(drop);
        }
        polled.map(drop)
    })
    .await;
}

fn configure_socket(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    // A client that no longer acknowledges is given up after `VANISHED_AFTER`; the probes only make an idle
    // connection notice.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(15));
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive.with_retries(2))?;
    socket.set_tcp_user_timeout(Some(VANISHED_AFTER))?;
    // Otherwise the kernel buffers megabytes for a slow client and reports no progress until a third of them is
    // taken: the client would seem to take nothing.
    socket.set_tcp_notsent_lowat(KERNEL_UNSENT_BYTES)?;
    Ok(stream)
}
