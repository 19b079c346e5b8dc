//! State that requests share: [`App`] for the process and [`Worker`] for each thread.

use super::active_config::ActiveConfig;
use super::admit::budget::Budget;
use super::admit::quota::{Quotas, Usages};
use super::net::connections::Connections;
use super::net::shutdown::Shutdown;
use super::net::tls::ServerIdentity;
use super::responses::ToolWaits;
use super::responses::background::BackgroundJobs;
use super::responses::store_handle::StoreHandle;
use crate::config::Config;
use crate::html::Page;
use crate::telemetry::{Gauge, Metrics, Tracer};
use crate::upstream::Pool;
use hyper::server::conn::http1;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// State shared by all requests: the active configuration with what is derived from it, and what lives as long as
/// the process. A reload replaces it; a request keeps the state that it began with.
#[derive(Clone)]
pub(super) struct App {
    pub(super) config: Arc<Config>,
    pub(super) pool: Arc<Pool>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) usages: Arc<Usages>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) tracer: Arc<Tracer>,
    /// Certificate presented to clients; `None` if they connect without TLS.
    pub(super) server_identity: Option<Arc<ServerIdentity>>,
    pub(super) store_handle: Arc<StoreHandle>,
    pub(super) background_jobs: Arc<BackgroundJobs>,
    pub(super) tool_waits: Arc<ToolWaits>,
    pub(super) connections: Arc<Connections>,
    pub(super) budget: Arc<Budget>,
    /// Number of requests in progress.
    pub(super) requests: Arc<Gauge>,
    /// Address on which clients are accepted.
    pub(super) clients: SocketAddr,
    /// HTML page at the root of that address, if there is one.
    pub(super) page: Option<Arc<Page>>,
    pub(super) shutdown: Arc<Shutdown>,
}

/// State of one worker thread: access to the shared state, and counters of what the thread serves.
pub(super) struct Worker {
    pub(super) active_config: Arc<ActiveConfig>,
    /// Index of the thread, which selects its own connections to the engines.
    pub(super) thread: usize,
    pub(super) http: http1::Builder,
    pub(super) connections: AtomicUsize,
    /// Number of responses that are generated on this thread without a waiting client.
    pub(super) background: AtomicUsize,
}
