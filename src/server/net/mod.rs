//! Connections of clients: listeners, sockets with their timers, TLS, HTTP/2, and the shutdown that ends them.
//!
//! Never: knows a route or an engine. The HTTP library hands each request to the service that `accept` was given.

pub(super) mod accept;
pub(super) mod closing;
pub(super) mod connection;
pub(super) mod connection_state;
pub(super) mod connections;
pub(super) mod descriptors;
pub(super) mod http2;
pub(super) mod leavings;
pub(super) mod listener;
pub(super) mod pending_answer;
pub(super) mod service_manager;
pub(super) mod shutdown;
pub(super) mod stall;
pub(super) mod tls;
