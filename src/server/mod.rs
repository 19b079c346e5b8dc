//! The server: listeners, threads, connections, and the end of the process.
//!
//! Each thread has a runtime of its own and keeps its connections from the first byte to the last, on both sides: a
//! token crosses no thread and no task on its way (`benches/proxy`). One more thread accepts, probes the upstream and
//! serves operators.

mod admin;
mod attempt;
mod auth;
mod background;
mod body;
mod clock;
mod connection;
mod door;
mod event;
mod headers;
mod keep;
mod listing;
mod record;
mod relay;
mod responses;
mod routes;
mod shelf;
mod told;

use crate::config::Config;
use crate::telemetry::{Gauge, Metrics};
use crate::upstream::{Pool, Upstream, health};
use axum::Router;
use background::Runs;
use connection::{Guarded, Stage};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use responses::Holds;
use shelf::Shelf;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tower::Service;

/// How long streams have to take leave once they are cut.
const LEAVE: Duration = Duration::from_secs(2);
/// How often each thread closes upstream connections that have grown old.
const SWEEP: Duration = Duration::from_secs(1);

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) metrics: Metrics,
    shelf: Shelf,
    runs: Runs,
    holds: Holds,
    /// Requests under way.
    requests: Gauge,
    course: Course,
}

/// How near the end of the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It is not in sight.
    Serving,
    /// Not ready any more, but whoever still comes is served.
    Settling,
    /// Running requests go on to their end; connections are closed behind them.
    Draining,
    /// What still runs is cut.
    Cut,
}

/// The phases as they follow each other.
struct Course {
    /// The present one. Streams look at it for each token, which behind the lock of `changes` could be felt.
    phase: AtomicU8,
    changes: watch::Sender<Phase>,
}

impl Course {
    fn new() -> Self {
        Self { phase: AtomicU8::new(Phase::Serving as u8), changes: watch::Sender::new(Phase::Serving) }
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serving,
            1 => Phase::Settling,
            2 => Phase::Draining,
            _ => Phase::Cut,
        }
    }

    /// Goes on to `phase`, never back.
    fn reach(&self, phase: Phase) {
        self.changes.send_if_modified(|present| {
            let later = phase > *present;
            if later {
                *present = phase;
                self.phase.store(phase as u8, Ordering::Release);
            }
            later
        });
    }

    fn subscribe(&self) -> watch::Receiver<Phase> {
        self.changes.subscribe()
    }
}

impl App {
    fn phase(&self) -> Phase {
        self.course.phase()
    }

    fn is_draining(&self) -> bool {
        self.phase() >= Phase::Settling
    }

    fn refuses(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    fn is_cut(&self) -> bool {
        self.phase() == Phase::Cut
    }

    /// Returns when what still runs is cut.
    async fn cut(&self) {
        // The sender is this very struct's.
        let _ = self.course.subscribe().wait_for(|phase| *phase == Phase::Cut).await;
    }
}

/// One thread's share: the shared state, and connections to the engine of its own.
struct Worker {
    app: Arc<App>,
    /// Which of the threads it is.
    thread: usize,
    http: http1::Builder,
    connections: AtomicUsize,
    /// Responses that are made here without a client waiting.
    background: AtomicUsize,
}

/// Serves until a signal ends the process.
///
/// # Errors
/// A listener or a thread cannot be had.
pub fn run(config: Config) -> io::Result<()> {
    let listeners = Listeners::bind(&config)?;
    run_on(listeners, config)
}

/// The same on listeners that are open already.
///
/// # Errors
/// A listener or a thread cannot be had.
pub fn run_on(listeners: Listeners, config: Config) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(listeners, config))
}

async fn serve(listeners: Listeners, config: Config) -> io::Result<()> {
    let signals = Signals::new()?;
    // Whoever reads "listening" takes it that there will be answers.
    let metrics = Metrics::default();
    let pool = Pool::new(&config, &metrics).ok_or(io::ErrorKind::InvalidInput)?;
    let shelf = Shelf::open(&config, &metrics).await?;
    let proxy = listen("proxy", listeners.proxy)?;
    let operators = listen("admin", listeners.admin)?;
    let threads = config.threads;
    let app = Arc::new(App {
        shelf,
        runs: Runs::default(),
        holds: Holds::default(),
        pool,
        metrics,
        requests: Gauge::default(),
        course: Course::new(),
        config,
    });
    let (alive, mut gone) = mpsc::channel::<Infallible>(1);
    let workers = (0..threads).map(|n| start(n, &app, alive.clone())).collect::<io::Result<Vec<_>>>()?;
    drop(alive);
    #[expect(clippy::disallowed_methods, reason = "these serve the process, not a request")]
    {
        for upstream in app.pool.upstreams() {
            tokio::spawn(watch(Arc::clone(&app), Arc::clone(upstream)));
        }
        tokio::spawn(tend_shelf(Arc::clone(&app)));
        tokio::spawn(serve_operators(operators, Arc::clone(&app)));
    }
    let accepting = accept(proxy, workers, &app);
    tokio::select! {
        never = accepting => match never {},
        () = settle(&app, signals) => {}
    }
    // The listener and the ways to the threads are closed now: what lives, lives until its requests end.
    let cut = async {
        tokio::select! {
            () = tokio::time::sleep(*app.config.timeouts.drain) => {}
            () = app.cut() => {}
        }
        app.course.reach(Phase::Cut);
        tokio::time::sleep(LEAVE).await;
    };
    app.course.reach(Phase::Draining);
    tokio::select! {
        _ = gone.recv() => {}
        () = cut => {}
    }
    Ok(())
}

/// Open listeners: for clients, and for operators.
#[derive(Debug)]
pub struct Listeners {
    proxy: std::net::TcpListener,
    admin: std::net::TcpListener,
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

fn listen(name: &'static str, listener: std::net::TcpListener) -> io::Result<TcpListener> {
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?.to_string();
    tracing::info!(listener = name, address, "listening");
    Ok(listener)
}

/// The signals that end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Returns when no more connections are to be accepted. A second interrupt, and only that, cuts what runs.
async fn settle(app: &Arc<App>, mut signals: Signals) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            // Whoever sends it does not want to end anything.
            _ = signals.hangup.recv() => {
                tracing::warn!("SIGHUP: the configuration is read at the start alone; a change takes a restart");
            }
        }
    }
    tracing::info!(requests = app.requests.value(), "draining");
    app.course.reach(Phase::Settling);
    let settled = tokio::time::sleep(*app.config.timeouts.settle);
    tokio::select! {
        () = settled => {}
        _ = signals.interrupt.recv() => {
            app.course.reach(Phase::Cut);
        }
    }
    let app = Arc::clone(app);
    #[expect(clippy::disallowed_methods, reason = "it serves the process, not a request")]
    tokio::spawn(async move {
        signals.interrupt.recv().await;
        app.course.reach(Phase::Cut);
    });
}

async fn watch(app: Arc<App>, upstream: Arc<Upstream>) {
    health::watch(&upstream, &app.config.health).await;
}

async fn tend_shelf(app: Arc<App>) {
    shelf::tend(&app).await;
}

/// Where a thread gets its connections from.
struct Door {
    worker: Arc<Worker>,
    /// There is room for all connections that may be open: what waits here counts as one.
    to: mpsc::Sender<std::net::TcpStream>,
}

async fn accept(listener: TcpListener, doors: Vec<Door>, app: &App) -> Infallible {
    let most = app.config.limits.connections;
    loop {
        let open: usize = doors.iter().map(|door| door.worker.connections.load(Ordering::Relaxed)).sum();
        if open >= most {
            // The kernel queues what comes meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => hand_over(stream, &doors),
            Err(error) => {
                // Out of descriptors, mostly: trying again at once would only burn the processor.
                app.metrics.accept_errors.add(1);
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The thread with the fewest connections takes it.
fn hand_over(stream: std::net::TcpStream, doors: &[Door]) {
    let Some(door) = doors.iter().min_by_key(|door| door.worker.connections.load(Ordering::Relaxed)) else {
        return;
    };
    door.worker.connections.fetch_add(1, Ordering::Relaxed);
    if door.to.try_send(stream).is_err() {
        door.worker.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a thread.
fn start(n: usize, app: &Arc<App>, alive: mpsc::Sender<Infallible>) -> io::Result<Door> {
    let (to, arrivals) = mpsc::channel(app.config.limits.connections);
    let limits = &app.config.limits;
    let mut http = http1::Builder::new();
    // `Guarded` times heads: the library's timer would also end idle connections.
    http.timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(limits.max_head_bytes)
        .max_headers(limits.max_headers);
    let worker = Arc::new(Worker {
        app: Arc::clone(app),
        thread: n,
        http,
        connections: AtomicUsize::new(0),
        background: AtomicUsize::new(0),
    });
    let door = Door { worker: Arc::clone(&worker), to };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name(format!("serve-{n}"))
        .spawn(move || work(&runtime, worker, arrivals, alive))?;
    Ok(door)
}

/// One thread: takes connections until none can come any more, then lives as long as the last of them.
fn work(
    runtime: &Runtime,
    worker: Arc<Worker>,
    mut arrivals: mpsc::Receiver<std::net::TcpStream>,
    alive: mpsc::Sender<Infallible>,
) {
    let (connected, mut disconnected) = mpsc::channel::<Infallible>(1);
    let router = routes::router(Arc::clone(&worker));
    runtime.block_on(async move {
        let sweeping = Arc::clone(&worker);
        #[expect(
            clippy::disallowed_methods,
            reason = "the server's own tasks: one for each connection, one to sweep"
        )]
        {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(SWEEP).await;
                    for upstream in sweeping.app.pool.upstreams() {
                        upstream.client(sweeping.thread).sweep();
                    }
                }
            });
            while let Some(stream) = arrivals.recv().await {
                let seat = Seat { worker: Arc::clone(&worker), _connected: connected.clone() };
                let router = router.clone();
                tokio::spawn(async move { serve_connection(seat, router, stream).await });
            }
        }
        drop(connected);
        disconnected.recv().await;
        // Answers that nobody waits for end by themselves, or are cut.
        while worker.background.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    drop(alive);
}

/// The place of an open connection; counted until dropped.
struct Seat {
    worker: Arc<Worker>,
    _connected: mpsc::Sender<Infallible>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection until it closes, or until it is not HTTP's any more: then whoever has it has its seat.
async fn serve_connection(seat: Seat, router: Router, stream: std::net::TcpStream) {
    let Ok(stream) = adopt(stream) else { return };
    let worker = Arc::clone(&seat.worker);
    let stage = Stage::default();
    let io = Guarded::new(stream, stage.clone(), seat);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(stage.clone());
        router.clone().call(request)
    });
    let mut connection = pin!(worker.http.serve_connection(io, service).with_upgrades());
    let mut phases = worker.app.course.subscribe();
    let mut changes = pin!(async move { while phases.changed().await.is_ok() {} });
    let mut seen = None;
    std::future::poll_fn(|cx| {
        // The task's waker never changes, so while it serves, once is enough; for each token it would cost a lock.
        // Later a wake may still belong to the change before, and must be answered by asking again. The phase is
        // read again after that: it may have gone on before the waker was known.
        loop {
            let phase = worker.app.phase();
            let known = seen.replace(phase) == Some(phase);
            if known && phase == Phase::Serving {
                break;
            }
            let _ = changes.as_mut().poll(cx);
            if !known && phase >= Phase::Draining {
                connection.as_mut().graceful_shutdown();
            }
            if worker.app.phase() == phase {
                break;
            }
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
    socket.set_tcp_user_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

async fn serve_operators(listener: TcpListener, app: Arc<App>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30)).max_buf_size(8 << 10);
    let places = Arc::new(tokio::sync::Semaphore::new(64));
    let router = admin::router(app);
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        #[expect(clippy::disallowed_methods, reason = "one task for each connection, bounded by the places")]
        tokio::spawn(async move {
            let _place = place;
            let _ = connection.await;
        });
    }
}
