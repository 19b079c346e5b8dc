//! The server: listeners, threads, connections, and the end of the process.
//!
//! Each thread has a runtime of its own and keeps its connections from the first byte to the last, on both sides: a
//! token crosses no thread and no task on its way (`benches/proxy`). One more thread accepts, probes the upstream and
//! serves operators.

mod accept;
mod active_config;
mod admin;
mod admission;
mod attempt;
mod auth;
mod azure;
mod background;
mod body;
mod browsers;
mod budget;
mod clock;
mod closing;
mod connection;
mod connection_state;
mod connections;
mod context;
mod default_model;
mod descriptors;
mod event;
mod headers;
mod http2;
mod ids;
mod leavings;
mod listener;
mod listing;
mod maintenance;
mod memory;
mod page;
mod panics;
mod pass_through;
mod paths;
mod pending_answer;
mod persist;
mod quota;
mod readiness;
mod record;
mod recover;
mod relay;
mod relayed;
mod reload;
mod responses;
mod routes;
mod shutdown;
mod spelling;
mod stall;
mod store_handle;
mod tls;

pub use listener::Listeners;
pub use memory::told as memory_told;

use crate::config::{Config, Source};
use crate::html::Page;
use crate::telemetry::{Gauge, Metrics, Tracer};
use crate::upstream::{Pool, Upstream, health};
use accept::{Acceptor, Inbox, serve_connection};
use active_config::ActiveConfig;
use background::BackgroundJobs;
use budget::Budget;
use connections::{ConnectionSlot, Connections};
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use leavings::dropped_in_time;
use listener::listen;
use quota::{Quotas, Usages};
use reload::Reload;
use responses::ToolWaits;
use shutdown::{Phase, Shutdown, ShutdownCause, Signals};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store_handle::StoreHandle;
use tls::ServerIdentity;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How often each thread closes upstream connections that have grown old.
const SWEEP: Duration = Duration::from_secs(1);
/// Time that the end of the process gives the store to take what keys have used.
const LAST: Duration = Duration::from_secs(1);

/// What a request finds: the configuration in force and what is made of it, beside what lasts as long as the process. A
/// request keeps the one that it began with.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) config: Arc<Config>,
    pub(crate) pool: Arc<Pool>,
    quotas: Arc<Quotas>,
    usages: Arc<Usages>,
    pub(crate) metrics: Arc<Metrics>,
    tracer: Arc<Tracer>,
    /// The certificate that clients see, where they see one.
    front: Option<Arc<ServerIdentity>>,
    store_handle: Arc<StoreHandle>,
    runs: Arc<BackgroundJobs>,
    tool_waits: Arc<ToolWaits>,
    connections: Arc<Connections>,
    budget: Arc<Budget>,
    /// Requests under way.
    requests: Arc<Gauge>,
    /// Where clients connect.
    clients: SocketAddr,
    /// What stands at the root of that address, if anything does.
    page: Option<Arc<Page>>,
    shutdown: Arc<Shutdown>,
}

/// One thread's share: the shared state, and connections to the engine of its own.
struct Worker {
    present: Arc<ActiveConfig>,
    /// Which of the threads it is.
    thread: usize,
    http: http1::Builder,
    connections: AtomicUsize,
    /// Responses that are made here without a client waiting.
    background: AtomicUsize,
}

/// Serves on listeners that are open already, until a signal ends the process. `source`: where the configuration is from, to
/// be read again.
///
/// # Errors
/// A listener or a thread cannot be had.
pub fn run(listeners: Listeners, config: Config, source: Source) -> io::Result<()> {
    block_on(serve(listeners, config, Some(source), None))
}

/// Serves on listeners that are open already, with a configuration that stays as it is, and perhaps a page for people at the root
/// of the clients' address. SIGHUP ends the process, too.
///
/// # Errors
/// A listener or a thread cannot be had.
pub fn run_on(listeners: Listeners, config: Config, page: Option<Page>) -> io::Result<()> {
    block_on(serve(listeners, config, None, page))
}

fn block_on(serving: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serving);
    // Whoever still reads a file that never ends is not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(
    listeners: Listeners,
    mut config: Config,
    source: Option<Source>,
    page: Option<Page>,
) -> io::Result<()> {
    // A signal that comes from now on is not lost, nor does it end the process by itself.
    // With a configuration that can be read again, SIGHUP asks for that.
    let mut signals = Signals::take(source.is_none())?;
    let reload =
        source.map(|source| Ok::<_, io::Error>((source, signal(SignalKind::hangup())?))).transpose()?;
    descriptors::provide(&mut config.limits);
    // Whoever reads "listening" takes it that there will be answers.
    let metrics = Metrics::default();
    let pool = Pool::new(&config, &metrics).ok_or(io::ErrorKind::InvalidInput)?;
    let store_handle = tokio::select! {
        store_handle = StoreHandle::open(&config, &metrics) => store_handle?,
        _ = signals.next() => return Ok(()),
    };
    let front = config.tls.as_ref().map(|tls| ServerIdentity::new(tls, &metrics));
    let proxy = listen("proxy", listeners.proxy)?;
    let operators = listen("admin", listeners.admin)?;
    let threads = config.threads;
    let usages = Usages::default();
    let (shutdown, undos) = Shutdown::new();
    let app = App {
        store_handle: Arc::new(store_handle),
        runs: Arc::new(BackgroundJobs::new(&config.limits)),
        front: front.map(Arc::new),
        tool_waits: Arc::default(),
        pool: Arc::new(pool),
        connections: Arc::default(),
        budget: Budget::new(&config.limits, &metrics),
        quotas: Arc::new(Quotas::of(config.auth.as_deref(), &Quotas::default(), &usages)),
        usages: Arc::new(usages),
        metrics: Arc::new(metrics),
        tracer: Arc::new(Tracer::start(config.trace.as_ref())?),
        requests: Arc::default(),
        clients: proxy.local_addr()?,
        page: page.map(Arc::new),
        shutdown: Arc::new(shutdown),
        config: Arc::new(config),
    };
    let present = Arc::new(ActiveConfig::new(app));
    let app = present.app();
    let mut end = ShutdownCause::of(&present, signals, undos);
    let reload = reload.map(|(source, hangup)| Reload::new(&present, source, hangup));
    let (alive, mut gone) = mpsc::channel::<Infallible>(1);
    let workers = (0..threads).map(|n| start(n, &present, alive.clone())).collect::<io::Result<Vec<_>>>()?;
    drop(alive);
    #[expect(clippy::disallowed_methods, reason = "these serve the process, not a request")]
    {
        for upstream in app.pool.upstreams() {
            tokio::spawn(watch(Arc::clone(&present), Arc::clone(upstream)));
        }
        if let Some(reload) = reload {
            tokio::spawn(reload.tend());
        }
        tokio::spawn(tend_shelf(Arc::clone(&present)));
        tokio::spawn(tend_usages(Arc::clone(&present)));
        if let Some(front) = app.front.clone() {
            tokio::spawn(tend_certificates(front, Arc::clone(&app.metrics)));
        }
        tokio::spawn(watch_memory(Arc::clone(&app.budget)));
        tokio::spawn(admin::serve(operators, Arc::clone(&present)));
    }
    let mut acceptor = Acceptor::new(&app, workers);
    // What was in force at the start is not to outlive that.
    let address = app.clients;
    drop(app);
    let mut proxy = Some(proxy);
    while let Some(listener) = proxy.take() {
        tokio::select! {
            never = acceptor.run(&listener) => match never {},
            () = end.settled() => {}
        }
        drop(listener);
        proxy = end.taken_back(address).await;
    }
    // The listener and the ways to the threads are closed now: what lives, lives until its requests end.
    drop(acceptor);
    end.drained(async { _ = gone.recv().await }).await;
    let app = present.app();
    // What the last requests have cost. A store that does not answer is not waited for.
    let _ = tokio::time::timeout(LAST, app.usages.sync(&app.store_handle, &app.metrics)).await;
    app.tracer.close().await;
    Ok(())
}

/// Probes an upstream as long as it is one.
async fn watch(present: Arc<ActiveConfig>, upstream: Arc<Upstream>) {
    health::watch(&upstream, || present.app().config.health.clone()).await;
}

async fn watch_memory(budget: Arc<Budget>) {
    budget.watch().await;
}

async fn tend_shelf(present: Arc<ActiveConfig>) {
    maintenance::tend(&present).await;
}

async fn tend_usages(present: Arc<ActiveConfig>) {
    loop {
        tokio::time::sleep(quota::SYNC).await;
        let app = present.app();
        app.usages.sync(&app.store_handle, &app.metrics).await;
    }
}

async fn tend_certificates(front: Arc<ServerIdentity>, metrics: Arc<Metrics>) {
    tls::tend(&front, &metrics).await;
}

/// Starts a thread.
fn start(n: usize, present: &Arc<ActiveConfig>, alive: mpsc::Sender<Infallible>) -> io::Result<Inbox> {
    let app = present.app();
    let (to, arrivals) = mpsc::channel(app.config.limits.connections);
    let limits = &app.config.limits;
    let mut http = http1::Builder::new();
    // `Guarded` times heads: the library's timer would also end idle connections.
    http.timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(limits.max_head_bytes)
        .max_headers(limits.max_headers);
    let worker = Arc::new(Worker {
        present: Arc::clone(present),
        thread: n,
        http,
        connections: AtomicUsize::new(0),
        background: AtomicUsize::new(0),
    });
    let family = Inbox { worker: Arc::clone(&worker), to };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name(format!("serve-{n}"))
        .spawn(move || work(&runtime, worker, arrivals, alive))?;
    Ok(family)
}

/// One thread: takes connections until none can come any more, then lives as long as the last of them.
fn work(
    runtime: &Runtime,
    worker: Arc<Worker>,
    mut arrivals: mpsc::Receiver<(std::net::TcpStream, ConnectionSlot)>,
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
                    for upstream in sweeping.present.app().pool.upstreams() {
                        upstream.client(sweeping.thread).sweep();
                    }
                }
            });
            while let Some((stream, mut slot)) = arrivals.recv().await {
                slot.connected = Some(connected.clone());
                let router = router.clone();
                tokio::spawn(dropped_in_time(serve_connection(slot, router, stream)));
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
