//! Open connections of clients, and the slot that each of them occupies.

use super::Worker;
use super::connection_state::ConnectionState;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Idle connections that are found at once, so that not every new connection looks at all of them.
const LOOKED_UP: usize = 32;

/// All connections that are open.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<BTreeMap<u64, ConnectionState>>,
    pub(super) left: Notify,
}

impl Connections {
    pub(super) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, ConnectionState>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, peer: SocketAddr) -> (u64, ConnectionState) {
        let mut open = self.open();
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        let stage = ConnectionState::of(Some(peer));
        open.insert(number, stage.clone());
        (number, stage)
    }

    fn leave(&self, number: u64) {
        self.open().remove(&number);
        self.left.notify_one();
    }

    /// Some that have had nothing to do for the longest time; the one with the longest comes last.
    pub(super) fn idle(&self) -> Vec<(Instant, ConnectionState)> {
        let mut idle: Vec<_> =
            self.open().values().filter_map(|stage| Some((stage.idle_since()?, stage.clone()))).collect();
        idle.sort_unstable_by_key(|(since, _)| Reverse(*since));
        idle.split_off(idle.len().saturating_sub(LOOKED_UP))
    }
}

/// The place of an open connection; counted until dropped.
pub(super) struct ConnectionSlot {
    pub(super) worker: Arc<Worker>,
    pub(super) stage: ConnectionState,
    connections: Arc<Connections>,
    number: u64,
    /// Its thread lives as long as this.
    pub(super) connected: Option<mpsc::Sender<Infallible>>,
}

impl ConnectionSlot {
    pub(super) fn take(worker: &Arc<Worker>, peer: SocketAddr) -> Self {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let connections = Arc::clone(&worker.present.app().connections);
        let (number, stage) = connections.take(peer);
        Self { worker: Arc::clone(worker), connections, stage, number, connected: None }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
        self.connections.leave(self.number);
    }
}
