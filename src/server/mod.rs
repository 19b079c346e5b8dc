//! Server: listeners, worker threads, client connections, and the shutdown of the process.
//!
//! Each worker thread has a runtime of its own and serves its connections from the first byte to the last, towards
//! clients and towards engines: a token crosses no thread and, over HTTP/1.1, no task (`benches/proxy`). The
//! calling thread accepts connections, probes the upstreams and serves operators.
//!
//! This file defines the state that these parts share: `App` for the process and `Worker` for each thread.

mod active_config;
mod admit;
mod batch;
mod context;
mod handlers;
mod ids;
mod net;
mod panics;
mod paths;
mod protocol;
mod record;
mod relay;
mod reload;
mod responses;
mod routes;
mod running;
mod start;
mod stored_answer;
mod tokenize;

pub use admit::memory::description as memory_told;
pub use net::listener::Listeners;
pub use net::service_manager::PassedSockets;
pub use start::{run, run_on};

use crate::capture::Ring;
use crate::config::Config;
use crate::html::Page;
use crate::telemetry::{Gauge, History, Metrics, Tracer};
use crate::upstream::Pool;
use active_config::ActiveConfig;
use admit::budget::Budget;
use admit::default_model::LoggedSubstitutes;
use admit::quota::{Quotas, Usages};
use batch::registry::Batches;
use hyper::server::conn::http1;
use net::connections::Connections;
use net::shutdown::Shutdown;
use net::tls::ServerCertificate;
use responses::ToolWaits;
use responses::background::BackgroundJobs;
use responses::store_handle::StoreHandle;
use running::RequestRegistry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

/// State shared by all requests: the active configuration with what is derived from it, and what lives as long as
/// the process. A reload replaces it; a request keeps the state that it began with.
#[derive(Clone)]
pub(crate) struct App {
    config: Arc<Config>,
    pool: Arc<Pool>,
    quotas: Arc<Quotas>,
    /// Names of Anthropic's for which another model answers, as far as the log has them.
    logged_substitutes: Arc<LoggedSubstitutes>,
    usages: Arc<Usages>,
    metrics: Arc<Metrics>,
    tracer: Arc<Tracer>,
    captures: Arc<Ring>,
    /// Certificate presented to clients; `None` if they connect without TLS.
    server_certificate: Option<Arc<ServerCertificate>>,
    store_handle: Arc<StoreHandle>,
    background_jobs: Arc<BackgroundJobs>,
    /// Batches that run here.
    batches: Arc<Batches>,
    tool_waits: Arc<ToolWaits>,
    connections: Arc<Connections>,
    budget: Arc<Budget>,
    history: Arc<History>,
    /// Requests that run, and those that ended last.
    registry: Arc<RequestRegistry>,
    /// Number of requests in progress.
    requests: Arc<Gauge>,
    /// Number of these whose answer is read from the store and sent: downloads, and followed events.
    stored_answers: Arc<Gauge>,
    /// Time at which the process began to serve.
    started: Instant,
    /// Address on which clients are accepted.
    clients: SocketAddr,
    /// HTML page at the root of that address, if there is one.
    page: Option<Arc<Page>>,
    shutdown: Arc<Shutdown>,
}

/// State of one worker thread: access to the shared state, and counters of what the thread serves.
struct Worker {
    active_config: Arc<ActiveConfig>,
    /// Index of the thread, which selects its own connections to the engines.
    thread: usize,
    http: http1::Builder,
    connections: AtomicUsize,
    /// Number of responses that are generated on this thread without a waiting client.
    background: AtomicUsize,
}
