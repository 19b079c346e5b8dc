//! Accepting: the listeners, the way of a connection to the thread that serves it, and its life there.

use super::connection::{ClientIo, GONE, LINGER};
use super::connection_state::ConnectionState;
use super::connections::{ConnectionSlot, Connections};
use super::descriptors::is_wanted;
use super::shutdown::PhaseWatcher;
use super::{App, Phase, Worker, closing, http2, panics, tls};
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

/// How long a connection waits for a place.
const QUEUE: Duration = Duration::from_secs(1);
/// How often it is looked whether there is one.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that the kernel takes for a client beyond what it has sent.
const UNSENT: u32 = 32 << 10;
/// How long one that was asked to go is waited for: it may have something to say to a client that does not listen.
const GO: Duration = Duration::from_millis(100);
/// Connections that are being told at once that there is no place.
const PARTING: usize = 64;
/// After a connection that could not be accepted: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Where a thread gets its connections from.
pub(super) struct Inbox {
    pub(super) worker: Arc<Worker>,
    /// There is room for all connections that may be open: what waits here counts as one.
    pub(super) to: mpsc::Sender<(std::net::TcpStream, ConnectionSlot)>,
}

/// Accepts connections for all threads.
pub(super) struct Acceptor {
    connections: Arc<Connections>,
    /// Connections that may be open.
    most: usize,
    metrics: Arc<Metrics>,
    /// Clients speak TLS.
    secure: bool,
    doors: Vec<Inbox>,
    /// Connections that may have to make room.
    idle: Vec<(Instant, ConnectionState)>,
    /// The last one that was asked to.
    going: Option<(ConnectionState, Instant)>,
    /// Since when there has been no room, and none could be made.
    full: Option<Instant>,
    pause: Duration,
    parting: Arc<Semaphore>,
}

impl Acceptor {
    pub(super) fn new(app: &App, doors: Vec<Inbox>) -> Self {
        let most = app.config.limits.connections;
        Self {
            connections: Arc::clone(&app.connections),
            most,
            metrics: Arc::clone(&app.metrics),
            secure: app.front.is_some(),
            doors,
            idle: Vec::new(),
            going: None,
            full: None,
            pause: PAUSES.0,
            // Where descriptors are few, most of them are for those that are served.
            parting: Arc::new(Semaphore::new((most / 8).clamp(4, PARTING))),
        }
    }

    /// For ever, or until it is let go of; then it can go on with another listener.
    pub(super) async fn run(&mut self, listener: &TcpListener) -> Infallible {
        loop {
            match listener.accept().await.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
                Ok((stream, peer)) => {
                    self.pause = PAUSES.0;
                    if self.has_room().await { self.hand_over(stream, peer) } else { self.turn_away(stream) }
                }
                Err(error) => {
                    // Out of descriptors, mostly: trying again at once would only burn the processor.
                    if is_wanted(listener) {
                        self.metrics.accept_errors.add(1);
                        tracing::warn!(%error, "cannot accept");
                        self.going = None;
                        self.evict();
                    }
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Whether there is a place for one more; if not at once, then by closing what nobody uses. The kernel queues what
    /// comes meanwhile (faults C41).
    async fn has_room(&mut self) -> bool {
        while self.connections.open().len() >= self.most {
            self.evict();
            let since = *self.full.get_or_insert_with(Instant::now);
            if since.elapsed() >= QUEUE {
                return false;
            }
            // The one that was to go may have found something to do.
            let _ = tokio::time::timeout(LOOK, self.connections.left.notified()).await;
        }
        (self.full, self.going) = (None, None);
        true
    }

    /// Has the connection closed that was not used for the longest time; one at a time.
    fn evict(&mut self) {
        if self.going.as_ref().is_some_and(|(stage, since)| stage.is_evicted() && since.elapsed() < GO) {
            return;
        }
        if self.idle.is_empty() {
            self.idle = self.connections.idle();
        }
        while let Some((since, stage)) = self.idle.pop() {
            if stage.idle_since() == Some(since) {
                self.metrics.evicted.add(1);
                stage.evict();
                self.going = Some((stage, Instant::now()));
                return;
            }
        }
    }

    /// The thread with the fewest connections takes it.
    fn hand_over(&self, stream: std::net::TcpStream, peer: SocketAddr) {
        let count = |inbox: &&Inbox| inbox.worker.connections.load(Ordering::Relaxed);
        let Some(inbox) = self.doors.iter().min_by_key(count) else { return };
        let slot = ConnectionSlot::take(&inbox.worker, peer);
        // There is room for all that may be open.
        let _ = inbox.to.try_send((stream, slot));
    }

    /// There is no place for it, and it is told so.
    fn turn_away(&self, stream: std::net::TcpStream) {
        self.metrics.turned_away.add(1);
        // To say so behind a handshake would cost more than a connection.
        if self.secure {
            return;
        }
        let (Ok(parting), Ok(stream)) =
            (Arc::clone(&self.parting).try_acquire_owned(), TcpStream::from_std(stream))
        else {
            return;
        };
        #[expect(clippy::disallowed_methods, reason = "a second at most, and few at once")]
        tokio::spawn(async move {
            let _ = tokio::time::timeout(LINGER, part(stream)).await;
            drop(parting);
        });
    }
}

/// Says that there is no place.
async fn part(stream: TcpStream) -> io::Result<()> {
    let failure = Failure::from(Fault::Overloaded).with_message("The proxy is at its limit of connections.");
    closing::answer(stream, &failure, true).await
}

/// Serves a connection until it closes, or until it is not HTTP's any more: then whoever has it has its seat.
pub(super) async fn serve_connection(slot: ConnectionSlot, router: Router, stream: std::net::TcpStream) {
    let Ok(stream) = adopt(stream) else { return };
    panics::point("connection", None);
    let worker = Arc::clone(&slot.worker);
    let app = worker.present.app();
    let Some(stream) = tls::greet(&app, stream).await else { return };
    // It may be open for longer than the configuration is in force.
    let shutdown = Arc::clone(&app.shutdown);
    drop(app);
    let stage = slot.stage.clone();
    let mut io = ClientIo::new(stream, stage.clone(), slot);
    let mut phases = PhaseWatcher::of(&shutdown);
    let begun = std::future::poll_fn(|cx| {
        phases.poll(cx, &shutdown);
        io.poll_is_http2(cx)
    });
    match begun.await {
        Ok(true) => return Box::pin(http2::serve(io, stage, router, worker)).await,
        Ok(false) => {}
        Err(_) => return,
    }
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(stage.clone());
        router.clone().call(request)
    });
    let mut connection = pin!(worker.http.serve_connection(io, service).with_upgrades());
    let mut phases = PhaseWatcher::of(&shutdown);
    std::future::poll_fn(|cx| {
        if phases.poll(cx, &shutdown).is_some_and(|phase| phase >= Phase::Draining) {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx).map(drop)
    })
    .await;
}

fn adopt(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    // A client that vanished without a word is given up within 45 s.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(15));
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive.with_retries(2))?;
    socket.set_tcp_user_timeout(Some(GONE))?;
    // Else the kernel keeps megabytes for a client that reads slowly, and is silent until a third of them is taken: the
    // client would seem to take nothing.
    socket.set_tcp_notsent_lowat(UNSENT)?;
    Ok(stream)
}
