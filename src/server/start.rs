//! Start and end of the server: opens what it needs, starts the worker threads and the tasks of the process, accepts
//! connections until the process shuts down, and waits for the rest.
//!
//! Never: handles a request.

use super::active_config::ActiveConfig;
use super::admit::AdmitState;
use super::admit::budget::Budget;
use super::admit::quota::{Quotas, Usages};
use super::batch::dispatch::{self, Dispatcher, LineJob, serve_lines};
use super::batch::runner::run_batches;
use super::net::NetState;
use super::net::accept::{Acceptor, Inbox, serve_connection};
use super::net::connections::ConnectionSlot;
use super::net::disconnect::dropped_in_time;
use super::net::listener::{Listeners, listen};
use super::net::service_manager;
use super::net::shutdown::Shutdown;
use super::net::tls::ServerCertificate;
use super::reload::{Reload, watch};
use super::responses::ResponsesState;
use super::responses::background::BackgroundJobs;
use super::running::RunningState;
use super::shutdown_driver::{ShutdownDriver, Signals};
use super::storage::store_handle::StoreHandle;
use super::{App, Worker};
use crate::capture::Ring;
use crate::config::{Config, Overrides};
use crate::html::Page;
use crate::telemetry::{HISTORY_STEP, Metrics, Tracer};
use crate::tools::ToolServers;
use crate::upstream::Pool;
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Interval at which each worker thread closes upstream connections that have been unused for too long.
const SWEEP: Duration = Duration::from_secs(1);
/// Time limit at the end of the process for writing the usage of keys to the store.
const USAGE_SYNC_LIMIT: Duration = Duration::from_secs(1);
/// Time limit at the end of the process for storing the last results of batches.
const BATCH_SAVE_LIMIT: Duration = Duration::from_secs(1);

/// Serves on listeners that are already open, until a signal ends the process. `flags` lead to the origin of the
/// configuration, which is read again on a reload.
///
/// # Errors
/// Fails if a listener, a thread or a signal handler cannot be set up, or a required store cannot be opened.
pub fn run(listeners: Listeners, config: Config, flags: Overrides) -> io::Result<()> {
    block_on(serve(listeners, config, Some(flags), None))
}

/// Serves on listeners that are already open, with a configuration that is never reloaded, and optionally an HTML
/// page at the root of the clients' address. SIGHUP ends the process too.
///
/// # Errors
/// Fails if a listener, a thread or a signal handler cannot be set up, or a required store cannot be opened.
pub fn run_on(listeners: Listeners, config: Config, page: Option<Page>) -> io::Result<()> {
    block_on(serve(listeners, config, None, page))
}

fn block_on(serving: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serving);
    // A blocking task may hang on a file that never ends: do not wait for it.
    runtime.shutdown_background();
    served
}

async fn serve(
    listeners: Listeners,
    mut config: Config,
    flags: Option<Overrides>,
    page: Option<Page>,
) -> io::Result<()> {
    // Register signals first: from here on none is lost, and none ends the process by default.
    // With a configuration that can be reloaded, SIGHUP triggers the reload.
    let mut signals = Signals::take(flags.is_none())?;
    let reload = flags
        .map(|flags| Ok::<_, io::Error>((flags, signal(SignalKind::hangup())?)))
        .transpose()?;
    super::net::descriptors::fit_limits(&mut config.limits);
    // Set up everything before "listening" is logged: readers of that line expect answers.
    let metrics = Arc::new(Metrics::default());
    let pool = Pool::new(&config, &metrics).ok_or(io::ErrorKind::InvalidInput)?;
    let store_handle = tokio::select! {
        store_handle = StoreHandle::open(&config, &metrics) => store_handle?,
        _ = signals.next() => return Ok(()),
    };
    let certificate = config
        .tls
        .as_ref()
        .map(|tls| ServerCertificate::new(tls, &metrics));
    let reopening = listeners.reopening()?;
    let proxy = listen("proxy", listeners.proxy)?;
    let operators = listen("admin", listeners.admin)?;
    let threads = config.threads;
    let usages = Usages::default();
    let (shutdown, cancellations) = Shutdown::new();
    let quotas = Quotas::of(
        config.auth.as_deref(),
        config.shared_limits,
        &Quotas::default(),
        &usages,
    );
    let app = App {
        pool: Arc::new(pool),
        store_handle: Arc::new(store_handle),
        tracer: Arc::new(Tracer::start(config.trace.as_ref())?),
        captures: captures(&config),
        history: Arc::default(),
        started: Instant::now(),
        page: page.map(Arc::new),
        net: NetState {
            connections: Arc::default(),
            server_certificate: certificate.map(Arc::new),
            clients: proxy.local_addr()?,
            shutdown: Arc::new(shutdown),
        },
        admit: AdmitState {
            quotas: Arc::new(quotas),
            usages: Arc::new(usages),
            budget: Budget::new(&config.limits, &metrics),
        },
        running: RunningState::default(),
        logged_substitutes: Arc::default(),
        responses: ResponsesState {
            background_jobs: Arc::new(BackgroundJobs::new(&config.limits)),
            tool_waits: Arc::default(),
        },
        tools: config
            .tools
            .as_ref()
            .map(|tools| Arc::new(ToolServers::start(tools, &metrics))),
        batches: Arc::default(),
        metrics,
        config: Arc::new(config),
    };
    let present = Arc::new(ActiveConfig::new(app));
    let app = present.app();
    let mut end = ShutdownDriver::of(&present, signals, cancellations);
    let reload = reload.map(|(flags, hangup)| Reload::new(&present, flags, hangup));
    let (alive, mut gone) = mpsc::channel::<Infallible>(1);
    let workers = (0..threads).map(|n| start(n, &present, alive.clone()));
    let (inboxes, lines): (Vec<_>, Vec<_>) =
        workers.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
    drop(alive);
    let dispatcher = Dispatcher::new(lines);
    spawn_tasks(&present, reload, operators, dispatcher);
    let mut acceptor = Acceptor::new(&app, inboxes);
    service_manager::ready(app.net.clients);
    // Release the initial state here, so that a reload can free it.
    drop(app);
    let mut proxy = Some(proxy);
    while let Some(listener) = proxy.take() {
        tokio::select! {
            never = acceptor.run(&listener) => match never {},
            () = end.wait_until_settled() => {}
        }
        drop(listener);
        proxy = end.wait_for_cancelled_drain(&reopening).await;
    }
    // Close the channels to the worker threads too: connections that remain end with their requests.
    drop(acceptor);
    end.wait_for_connections(async { _ = gone.recv().await })
        .await;
    finish(&present.app()).await;
    Ok(())
}

/// Stores what the requests have left: the last results of batches, which are given up, the usage, and the traces. Each
/// has a time limit, for a store that does not respond.
async fn finish(app: &App) {
    let batches_left = async {
        while app.batches.count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(BATCH_SAVE_LIMIT, batches_left).await;
    let usage = app.admit.usages.sync(&app.store_handle, &app.metrics);
    let _ = tokio::time::timeout(USAGE_SYNC_LIMIT, usage).await;
    app.tracer.close().await;
}

/// Starts the tasks of the process: probes, reloads, upkeep, and the admin listener.
#[expect(
    clippy::disallowed_methods,
    reason = "these serve the process, not a request"
)]
fn spawn_tasks(
    present: &Arc<ActiveConfig>,
    reload: Option<Reload>,
    operators: TcpListener,
    dispatcher: Dispatcher,
) {
    let app = present.app();
    for upstream in app.pool.upstreams() {
        tokio::spawn(watch(Arc::clone(present), Arc::clone(upstream)));
    }
    if let Some(reload) = reload {
        tokio::spawn(reload.tend());
    }
    tokio::spawn(maintain_store(Arc::clone(present)));
    tokio::spawn(run_batches(Arc::clone(present), dispatcher));
    tokio::spawn(sync_usages(Arc::clone(present)));
    if let Some(certificate) = app.net.server_certificate.clone() {
        tokio::spawn(watch_certificate(certificate, Arc::clone(&app.metrics)));
    }
    tokio::spawn(watch_memory(Arc::clone(&app.admit.budget)));
    tokio::spawn(sample_history(Arc::clone(present)));
    tokio::spawn(service_manager::keep_watchdog());
    tokio::spawn(super::handlers::admin::serve(
        operators,
        Arc::clone(present),
    ));
}

/// Returns the ring of captured exchanges, switched on if the configuration says so.
fn captures(config: &Config) -> Arc<Ring> {
    let ring = Ring::new(config.file.capture.limits());
    if let Some(criteria) = config.file.capture.criteria() {
        ring.switch_on(criteria, None);
    }
    ring
}

async fn watch_memory(budget: Arc<Budget>) {
    budget.watch().await;
}

async fn maintain_store(present: Arc<ActiveConfig>) {
    super::responses::maintenance::maintain(&present).await;
}

async fn sync_usages(present: Arc<ActiveConfig>) {
    loop {
        tokio::time::sleep(super::admit::quota::SYNC).await;
        let app = present.app();
        app.admit.usages.sync(&app.store_handle, &app.metrics).await;
    }
}

async fn sample_history(present: Arc<ActiveConfig>) {
    loop {
        let app = present.app();
        app.history.sample(&app.metrics, SystemTime::now());
        drop(app);
        tokio::time::sleep(HISTORY_STEP).await;
    }
}

async fn watch_certificate(certificate: Arc<ServerCertificate>, metrics: Arc<Metrics>) {
    super::net::tls::watch_certificate(&certificate, &metrics).await;
}

/// Starts worker thread `n`, which drops `alive` when it ends. Returns its inbox for connections, and the queue of the
/// lines of batches that run there. Fails if the runtime or the thread cannot be created.
fn start(
    n: usize,
    present: &Arc<ActiveConfig>,
    alive: mpsc::Sender<Infallible>,
) -> io::Result<(Inbox, mpsc::Sender<LineJob>)> {
    let app = present.app();
    let (to, arrivals) = mpsc::channel(app.config.limits.connections);
    let limits = &app.config.limits;
    let mut http = http1::Builder::new();
    // `ClientIo` times heads: the library's timer would also end idle connections. It detects a client that leaves, too,
    // for which the library would keep a second buffer of 8 KiB while an answer streams.
    http.timer(TokioTimer::new())
        .header_read_timeout(None)
        .half_close(true)
        .max_buf_size(limits.max_head_bytes)
        .max_headers(limits.max_headers);
    let worker = Arc::new(Worker {
        active_config: Arc::clone(present),
        thread: n,
        http,
        connections: AtomicUsize::new(0),
        background: AtomicUsize::new(0),
    });
    let (lines, jobs) = dispatch::queue();
    let inbox = Inbox {
        worker: Arc::clone(&worker),
        to,
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name(format!("serve-{n}"))
        .spawn(move || work(&runtime, worker, (arrivals, jobs), alive))?;
    Ok((inbox, lines))
}

/// Runs a worker thread: serves connections until the acceptor is gone, then returns when the last connection and
/// the last background response have ended.
fn work(
    runtime: &Runtime,
    worker: Arc<Worker>,
    (mut arrivals, jobs): (
        mpsc::Receiver<(std::net::TcpStream, ConnectionSlot)>,
        mpsc::Receiver<LineJob>,
    ),
    alive: mpsc::Sender<Infallible>,
) {
    let (connected, mut disconnected) = mpsc::channel::<Infallible>(1);
    let router = super::routes::router(Arc::clone(&worker));
    runtime.block_on(async move {
        let sweeping = Arc::clone(&worker);
        #[expect(
            clippy::disallowed_methods,
            reason = "the server's own tasks: one for each connection, one to sweep, one for lines of batches"
        )]
        {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(SWEEP).await;
                    for upstream in sweeping.active_config.app().pool.upstreams() {
                        upstream.client(sweeping.thread).sweep();
                    }
                }
            });
            tokio::spawn(serve_lines(Arc::clone(&worker), router.clone(), jobs));
            while let Some((stream, mut slot)) = arrivals.recv().await {
                slot.connected = Some(connected.clone());
                let router = router.clone();
                tokio::spawn(dropped_in_time(serve_connection(slot, router, stream)));
            }
        }
        drop(connected);
        disconnected.recv().await;
        // Background responses and lines of batches have no connection: wait until they end or are cut.
        while worker.background.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    drop(alive);
}
