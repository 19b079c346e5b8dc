//! Accepting: the listeners, the way of a connection to the thread that serves it, and its life there.

use super::connection::{ClientIo, ConnectionState, GONE, LINGER};
use super::descriptors::is_wanted;
use super::shutdown::PhaseWatcher;
use super::{App, Phase, Worker, closing, http2, panics, tls};
use crate::config::Config;
use crate::telemetry::{Build, Metrics};
use crate::wire::fault::{Failure, Fault};
use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use socket2::{SockRef, TcpKeepalive};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc};
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
/// Idle connections that are found at once, so that not every new connection looks at all of them.
const LOOKED_UP: usize = 32;
/// Connections that are being told at once that there is no place.
const PARTING: usize = 64;
/// After a connection that could not be accepted: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Open listeners: for clients, and for operators.
#[derive(Debug)]
pub struct Listeners {
    pub(super) proxy: std::net::TcpListener,
    pub(super) admin: std::net::TcpListener,
}

impl Listeners {
    /// Opens the addresses of a configuration.
    ///
    /// # Errors
    /// One cannot be had.
    pub fn bind(config: &Config) -> io::Result<Self> {
        Ok(Self { proxy: bind(config.listen)?, admin: bind(config.admin_listen)? })
    }

    /// Where clients connect.
    ///
    /// # Errors
    /// The system does not say.
    pub fn proxy(&self) -> io::Result<SocketAddr> {
        self.proxy.local_addr()
    }

    /// The base URL of clients.
    ///
    /// # Errors
    /// The system does not say where the listener is.
    pub fn base_url(&self, config: &Config) -> io::Result<String> {
        Ok(base_url(self.proxy()?, None, config))
    }

    /// Tells the log the base URL of clients, before anything else.
    pub fn announce(&self, config: &Config) {
        let (Ok(address), Ok(base_url)) = (self.proxy(), self.base_url(config)) else { return };
        let everywhere =
            if address.ip().is_unspecified() { ", at every address of this machine" } else { "" };
        let version = Build::CURRENT.version;
        tracing::info!(version, base_url, "clients use the base URL {base_url}{everywhere}");
    }
}

/// The base URL of clients that connect to this address. An address that stands for all of this machine is told as `host`, or as
/// the loopback address.
pub(super) fn base_url(mut address: SocketAddr, host: Option<&str>, config: &Config) -> String {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let root = config.root_path.as_deref().unwrap_or_default();
    if address.ip().is_unspecified() {
        if let Some(host) = host {
            return format!("{scheme}://{host}:{}{root}/v1", address.port());
        }
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("{scheme}://{address}{root}/v1")
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let bound = || {
        let socket =
            socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    bound().map_err(told)
}

pub(super) fn listen(name: &'static str, listener: std::net::TcpListener) -> io::Result<TcpListener> {
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?.to_string();
    tracing::info!(listener = name, address, "listening");
    Ok(listener)
}

/// Listens again at an address at which it did before.
pub(super) fn reopen(name: &'static str, address: SocketAddr) -> io::Result<TcpListener> {
    listen(name, bind(address)?)
}

/// Where a thread gets its connections from.
pub(super) struct Inbox {
    pub(super) worker: Arc<Worker>,
    /// There is room for all connections that may be open: what waits here counts as one.
    pub(super) to: mpsc::Sender<(std::net::TcpStream, ConnectionSlot)>,
}

/// All connections that are open.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<BTreeMap<u64, ConnectionState>>,
    left: Notify,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, ConnectionState>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, peer: SocketAddr) -> (u64, ConnectionState) {
        let mut open = self.open();
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        let stage = ConnectionState::of(Some(peer));
        open.insert(number, stage.clone());
        (number, stage)
    }

    fn leave(&self, number: u64) {
        self.open().remove(&number);
        self.left.notify_one();
    }

    /// Some that have had nothing to do for the longest time; the one with the longest comes last.
    fn idle(&self) -> Vec<(Instant, ConnectionState)> {
        let mut idle: Vec<_> =
            self.open().values().filter_map(|stage| Some((stage.idle_since()?, stage.clone()))).collect();
        idle.sort_unstable_by_key(|(since, _)| Reverse(*since));
        idle.split_off(idle.len().saturating_sub(LOOKED_UP))
    }
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

/// The place of an open connection; counted until dropped.
pub(super) struct ConnectionSlot {
    pub(super) worker: Arc<Worker>,
    pub(super) stage: ConnectionState,
    connections: Arc<Connections>,
    number: u64,
    /// Its thread lives as long as this.
    pub(super) connected: Option<mpsc::Sender<Infallible>>,
}

impl ConnectionSlot {
    fn take(worker: &Arc<Worker>, peer: SocketAddr) -> Self {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let connections = Arc::clone(&worker.present.app().connections);
        let (number, stage) = connections.take(peer);
        Self { worker: Arc::clone(worker), connections, stage, number, connected: None }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
        self.connections.leave(self.number);
    }
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
