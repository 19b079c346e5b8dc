//! Registries of open connections, the slot that each client connection occupies, and the choice of an idle one that
//! makes room for another.
//!
//! Remembers: each open connection's state, and the number on each thread. Never: enforces a limit; the listeners do.

use super::connection_state::ConnectionState;
use crate::server::Worker;
use parking_lot::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Number of idle connections that one search returns, so that not every new connection has to search them all.
const CANDIDATES: usize = 32;

/// Time that an evicted connection has to close before another one is evicted: it may have to write to a client
/// that does not read.
const EVICTION_TIME: Duration = Duration::from_millis(100);

/// Registry of all open connections of a listener, and the notification that one of them has closed.
#[derive(Default)]
pub(in crate::server) struct Connections {
    open: Mutex<BTreeMap<u64, ConnectionState>>,
    pub(in crate::server) closed: Notify,
}

impl Connections {
    pub(in crate::server) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, ConnectionState>> {
        self.open.lock()
    }

    /// Adds a connection that has been accepted.
    pub(in crate::server) fn add(self: &Arc<Self>, peer: SocketAddr) -> OpenConnection {
        let mut open = self.open();
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        let state = ConnectionState::of(Some(peer));
        open.insert(number, state.clone());
        drop(open);
        OpenConnection {
            connections: Arc::clone(self),
            number,
            state,
        }
    }

    /// Returns the connections that have been idle longest, at most [`CANDIDATES`] of them; the longest idle is
    /// last.
    fn idle(&self) -> Vec<(Instant, ConnectionState)> {
        let mut idle: Vec<_> = self
            .open()
            .values()
            .filter_map(|state| Some((state.idle_since()?, state.clone())))
            .collect();
        idle.sort_unstable_by_key(|(since, _)| Reverse(*since));
        idle.split_off(idle.len().saturating_sub(CANDIDATES))
    }
}

/// Entry of an open connection in its registry, until it is dropped.
pub(in crate::server) struct OpenConnection {
    connections: Arc<Connections>,
    number: u64,
    pub(in crate::server) state: ConnectionState,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.open().remove(&self.number);
        self.connections.closed.notify_one();
    }
}

/// Eviction of idle connections, one after the other.
pub(in crate::server) struct Evictions {
    connections: Arc<Connections>,
    /// Time for which a connection must have been idle.
    least: Duration,
    /// Candidates; the connection that has been idle longest is last.
    idle: Vec<(Instant, ConnectionState)>,
    /// Connection that was evicted last, and the time of that.
    evicting: Option<(ConnectionState, Instant)>,
}

impl Evictions {
    /// Creates the eviction of connections that have been idle for at least this time.
    pub(in crate::server) fn of(connections: &Arc<Connections>, least: Duration) -> Self {
        Self {
            connections: Arc::clone(connections),
            least,
            idle: Vec::new(),
            evicting: None,
        }
    }

    /// Forgets the last eviction, so that the next one does not wait for it.
    pub(in crate::server) fn forget(&mut self) {
        self.evicting = None;
    }

    /// Evicts the connection that has been idle longest, unless the last evicted one still has time to close. Returns
    /// true if one was evicted.
    pub(in crate::server) fn evict(&mut self) -> bool {
        let evicting = self.evicting.as_ref();
        if evicting
            .is_some_and(|(state, since)| state.is_evicted() && since.elapsed() < EVICTION_TIME)
        {
            return false;
        }
        if self.idle.is_empty() {
            self.idle = self.connections.idle();
        }
        while let Some((since, state)) = self.idle.pop() {
            if since.elapsed() < self.least {
                self.idle.clear();
            } else if state.idle_since() == Some(since) {
                state.evict();
                self.evicting = Some((state, Instant::now()));
                return true;
            }
        }
        false
    }
}

/// Slot of an open client connection, which counts on its thread and in the registry until it is dropped.
pub(in crate::server) struct ConnectionSlot {
    pub(in crate::server) worker: Arc<Worker>,
    pub(in crate::server) open: OpenConnection,
    /// Sender that keeps the worker thread running until the connection has closed.
    pub(in crate::server) connected: Option<mpsc::Sender<Infallible>>,
}

impl ConnectionSlot {
    pub(in crate::server) fn take(worker: &Arc<Worker>, peer: SocketAddr) -> Self {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let open = worker.active_config.app().net.connections.add(peer);
        Self {
            worker: Arc::clone(worker),
            open,
            connected: None,
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
