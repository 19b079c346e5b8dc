//! Connections of clients: listeners, sockets with their timers, TLS, HTTP/2, and the shutdown that ends them.
//!
//! Never: knows a route or an engine. The HTTP library hands each request to the service that `accept` was given.

pub(super) mod accept;
pub(super) mod closing;
pub(super) mod connection;
pub(super) mod connection_state;
pub(super) mod connections;
pub(super) mod descriptors;
pub(super) mod disconnect;
pub(super) mod http2;
pub(super) mod listener;
pub(super) mod pending_answer;
pub(super) mod service_manager;
pub(super) mod shutdown;
pub(super) mod stall;
pub(super) mod tls;
pub(super) mod upload_progress;

use connections::Connections;
use shutdown::Shutdown;
use std::net::SocketAddr;
use std::sync::Arc;
use tls::ServerCertificate;

/// State of the clients' connections.
#[derive(Clone)]
pub(super) struct NetState {
    pub(super) connections: Arc<Connections>,
    /// Certificate presented to clients; `None` if they connect without TLS.
    pub(super) server_certificate: Option<Arc<ServerCertificate>>,
    /// Address on which clients are accepted.
    pub(super) clients: SocketAddr,
    pub(super) shutdown: Arc<Shutdown>,
}
