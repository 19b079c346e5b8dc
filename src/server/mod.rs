//! Server: listeners, worker threads, client connections, and the shutdown of the process.
//!
//! Each worker thread has its own runtime and serves its connections from the first byte to the last, towards
//! clients and towards engines: a token crosses no thread and, over HTTP/1.1, no task (`benches/proxy`). The
//! calling thread accepts connections, probes the upstreams and serves operators.
//!
//! This file defines the state that these parts share: `App` for the process and `Worker` for each thread.

mod active_config;
mod admission;
mod admit;
mod admitted;
mod batch;
mod file_reading;
mod handlers;
mod headers;
mod ids;
mod models;
mod net;
mod panics;
mod paths;
mod printable;
mod protocol;
mod record;
mod relay;
mod reload;
mod reply;
mod request_body;
mod responses;
mod routes;
mod running;
mod shutdown_driver;
mod start;
mod storage;
mod task_registry;
mod tokenize;

pub use admit::memory::description as memory_told;
pub use net::listener::Listeners;
pub use net::service_manager::PassedSockets;
pub use start::{run, run_on};

use crate::capture::Ring;
use crate::config::Config;
use crate::html::Page;
use crate::telemetry::{History, Metrics, Tracer};
use crate::tools::ToolServers;
use crate::upstream::Pool;
use active_config::ActiveConfig;
use admit::AdmitState;
use batch::registry::Batches;
use hyper::server::conn::http1;
use models::naming::LoggedSubstitutes;
use net::NetState;
use responses::ResponsesState;
use running::RunningState;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use storage::store_handle::StoreHandle;

/// State shared by all requests: the active configuration with what is derived from it, and what lives as long as
/// the process. Each part of the server has its own state in it. A reload replaces it; a request keeps the state that it began with.
#[derive(Clone)]
pub(crate) struct App {
    config: Arc<Config>,
    pool: Arc<Pool>,
    store_handle: Arc<StoreHandle>,
    metrics: Arc<Metrics>,
    tracer: Arc<Tracer>,
    captures: Arc<Ring>,
    history: Arc<History>,
    /// Time at which the process began to serve.
    started: Instant,
    /// HTML page at the root of the clients' address, if there is one.
    page: Option<Arc<Page>>,
    net: NetState,
    admit: AdmitState,
    running: RunningState,
    /// Names of Anthropic's for which another model answers, as far as the log has them.
    logged_substitutes: Arc<LoggedSubstitutes>,
    responses: ResponsesState,
    /// Servers of tools that samewire runs; `None`: none.
    tools: Option<Arc<ToolServers>>,
    /// Batches that run here.
    batches: Arc<Batches>,
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

/// Guard that counts one background response of this worker thread. Dropping it lowers the count, however the job
/// ends.
struct BackgroundCount(Arc<Worker>);

impl BackgroundCount {
    fn begin(worker: Arc<Worker>) -> Self {
        worker.background.fetch_add(1, Ordering::Relaxed);
        Self(worker)
    }
}

impl Drop for BackgroundCount {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Ordering::Relaxed);
    }
}
