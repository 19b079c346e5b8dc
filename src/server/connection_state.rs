//! State of a client connection: what its requests are doing, seen from both sides of the HTTP library.

use futures::task::AtomicWaker;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::time::Instant;

/// No request is under way.
pub(super) const IDLE: u8 = 0;
/// A request's body is being read.
pub(super) const READING: u8 = 1;
/// All of it has been read.
pub(super) const ANSWERING: u8 = 2;
/// A request's body is being read as fast as an engine takes it.
pub(super) const UPLOADING: u8 = 5;
/// The connection is not HTTP's any more: whoever has it knows what it waits for.
pub(super) const UPGRADED: u8 = 3;
/// Everything has been said, and what still comes is not read.
pub(super) const LEAVING: u8 = 4;

/// How far a connection's requests are; for both sides of the library, and for whoever makes room for another connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionState(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// How far its request is, on a connection that has one at a time.
    pub(super) stage: AtomicU8,
    /// Requests under way. One that comes early finds the one before still there.
    requests: AtomicUsize,
    /// Requests that there have been.
    begun: AtomicUsize,
    /// Milliseconds after [`Inner::born`] since when it has nothing to do, and one more; 0: it has.
    idle: AtomicU64,
    born: Instant,
    /// It is to make room, unless it has something to do.
    evicted: AtomicBool,
    task: AtomicWaker,
    /// The address of the client, or of what stands before it.
    peer: Option<SocketAddr>,
}

impl Default for ConnectionState {
    fn default() -> Self {
        Self::of(None)
    }
}

impl ConnectionState {
    /// That of a connection from this address.
    pub(super) fn of(peer: Option<SocketAddr>) -> Self {
        Self(Arc::new(Inner {
            peer,
            stage: AtomicU8::new(IDLE),
            requests: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            idle: AtomicU64::new(1),
            born: Instant::now(),
            evicted: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }))
    }

    /// The address of the client, or of what stands before it.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    pub(super) fn is(&self, stage: u8) -> bool {
        self.0.stage.load(Ordering::Relaxed) == stage
    }

    pub(super) fn set(&self, stage: u8) {
        self.0.stage.store(stage, Ordering::Relaxed);
    }

    /// All of a body has been read.
    pub(super) fn has_read(&self) {
        if self.is(UPLOADING) {
            self.set(ANSWERING);
        }
    }

    /// How many requests there have been.
    pub(super) fn begun(&self) -> usize {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// There is something to do: a request, or a part of its head.
    pub(super) fn stirs(&self) {
        self.0.idle.store(0, Ordering::Relaxed);
        self.0.evicted.store(false, Ordering::Relaxed);
    }

    /// There is nothing to do any more.
    pub(super) fn rests(&self) {
        let since = u64::try_from(self.0.born.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.0.idle.store(since + 1, Ordering::Relaxed);
    }

    /// Since when it has had nothing to do, if it has nothing and is not making room already.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let idle = self.0.idle.load(Ordering::Relaxed).checked_sub(1)?;
        (!self.is_evicted()).then(|| self.0.born + Duration::from_millis(idle))
    }

    /// Asks it to close for another one's sake. It does if nothing has come meanwhile.
    pub(super) fn evict(&self) {
        self.0.evicted.store(true, Ordering::Release);
        self.0.task.wake();
    }

    /// It has been asked to close, and nothing has come meanwhile.
    pub(super) fn is_evicted(&self) -> bool {
        self.0.evicted.load(Ordering::Acquire)
    }

    /// Whether it has to go; else its task is woken once it has.
    pub(super) fn poll_evicted(&self, cx: &Context<'_>) -> bool {
        self.0.task.register(cx.waker());
        self.is_evicted()
    }
}

/// A request of this connection is under way; until dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(ConnectionState);

impl ActiveRequest {
    /// A request has come.
    pub(super) fn begin(stage: &ConnectionState) -> Self {
        stage.0.requests.fetch_add(1, Ordering::Relaxed);
        stage.0.begun.fetch_add(1, Ordering::Relaxed);
        stage.stirs();
        stage.set(READING);
        Self(stage.clone())
    }

    /// Nothing more is read for it.
    pub(super) fn has_read(&self) {
        self.0.set(ANSWERING);
    }

    /// Its body is read as fast as an engine takes it, until [`ConnectionState::has_read`].
    pub(super) fn uploads(&self) -> ConnectionState {
        self.0.set(UPLOADING);
        self.0.clone()
    }

    /// What the connection will be after this request, from which on it never has nothing to do: between the answer and
    /// [`Upgraded::begin`] nobody may take it for idle.
    pub(super) fn upgraded(&self) -> Upgraded {
        self.0.0.requests.fetch_add(1, Ordering::Relaxed);
        Upgraded(self.0.clone())
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.0.0.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.rests();
            self.0.set(IDLE);
        }
    }
}

/// A connection that is not HTTP's any more.
#[derive(Debug)]
pub(super) struct Upgraded(ConnectionState);

impl Upgraded {
    /// From now on nothing is timed but writes.
    pub(super) fn begin(&self) {
        self.0.stirs();
        self.0.set(UPGRADED);
    }

    /// From now on a flush closes it: the client is told that no more will come, and what it still sends is passed over.
    pub(super) fn leave(&self) {
        self.0.set(LEAVING);
    }
}
