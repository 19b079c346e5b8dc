//! Registry of the open client connections, and the slot that each of them occupies.
//!
//! Remembers: each open connection's state, and the number on each thread. Never: closes a connection or enforces
//! the limit; the acceptor does both.

use super::connection_state::ConnectionState;
use crate::server::Worker;
use parking_lot::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Number of idle connections that one search returns, so that not every new connection has to search them all.
const CANDIDATES: usize = 32;

/// Registry of all open client connections, and the notification that one of them has closed.
#[derive(Default)]
pub(in crate::server) struct Connections {
    open: Mutex<BTreeMap<u64, ConnectionState>>,
    pub(in crate::server) closed: Notify,
}

impl Connections {
    pub(in crate::server) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, ConnectionState>> {
        self.open.lock()
    }

    fn take(&self, peer: SocketAddr) -> (u64, ConnectionState) {
        let mut open = self.open();
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        let state = ConnectionState::of(Some(peer));
        open.insert(number, state.clone());
        (number, state)
    }

    fn leave(&self, number: u64) {
        self.open().remove(&number);
        self.closed.notify_one();
    }

    /// Returns the connections that have been idle longest, at most [`CANDIDATES`] of them; the longest idle is
    /// last.
    pub(in crate::server) fn idle(&self) -> Vec<(Instant, ConnectionState)> {
        let mut idle: Vec<_> =
            self.open().values().filter_map(|state| Some((state.idle_since()?, state.clone()))).collect();
        idle.sort_unstable_by_key(|(since, _)| Reverse(*since));
        idle.split_off(idle.len().saturating_sub(CANDIDATES))
    }
}

/// Slot of an open connection, which counts on its thread and in the registry until it is dropped.
pub(in crate::server) struct ConnectionSlot {
    pub(in crate::server) worker: Arc<Worker>,
    pub(in crate::server) state: ConnectionState,
    connections: Arc<Connections>,
    number: u64,
    /// Sender that keeps the worker thread running until the connection has closed.
    pub(in crate::server) connected: Option<mpsc::Sender<Infallible>>,
}

impl ConnectionSlot {
    pub(in crate::server) fn take(worker: &Arc<Worker>, peer: SocketAddr) -> Self {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let connections = Arc::clone(&worker.active_config.app().connections);
        let (number, state) = connections.take(peer);
        Self { worker: Arc::clone(worker), connections, state, number, connected: None }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
        self.connections.leave(self.number);
    }
}
