//! State of a client connection: what its requests are doing, seen from both sides of the HTTP library.
//!
//! Request handlers set it, the socket below the library chooses its timers by it, and the acceptor reads since
//! when a connection is idle. Never: touches the socket.

use futures::task::AtomicWaker;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::time::Instant;

/// Stage of the request on a connection that carries one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::server) enum Stage {
    /// No request is in progress.
    Idle,
    /// The request's body is read.
    Reading,
    /// The request's body is read only as fast as an engine takes it.
    Uploading,
    /// The whole body was read, and the request is answered.
    Answering,
    /// The connection was upgraded: it no longer carries HTTP, and its new owner times its reads.
    Upgraded,
    /// The upgraded connection is closing: the last message was written, and input is discarded.
    Closing,
}

/// State of a connection's requests, shared by the handlers, the socket and the acceptor, which closes idle
/// connections to make room for others.
#[derive(Clone, Debug)]
pub(in crate::server) struct ConnectionState(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Number of the [`Stage`].
    stage: AtomicU8,
    /// Number of requests in progress. The next request may begin before the previous one is dropped.
    requests: AtomicUsize,
    /// Number of requests so far.
    begun: AtomicUsize,
    /// Start of the idle time in milliseconds after [`Inner::born`], plus one; 0 while the connection is in use.
    idle: AtomicU64,
    born: Instant,
    /// Number of bytes read since the connection was upgraded.
    received: AtomicUsize,
    /// True if the connection is to close for another one, unless it is used before.
    evicted: AtomicBool,
    task: AtomicWaker,
    /// Address of the client, or of the proxy in front of it.
    peer: Option<SocketAddr>,
}

impl Default for ConnectionState {
    fn default() -> Self {
        Self::of(None)
    }
}

impl ConnectionState {
    /// Returns the state of a new connection from this address.
    pub(in crate::server) fn of(peer: Option<SocketAddr>) -> Self {
        Self(Arc::new(Inner {
            peer,
            stage: AtomicU8::new(Stage::Idle as u8),
            requests: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            idle: AtomicU64::new(1),
            born: Instant::now(),
            received: AtomicUsize::new(0),
            evicted: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }))
    }

    /// Returns the address of the client, or of the proxy in front of it.
    pub(in crate::server) fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    pub(in crate::server) fn is(&self, stage: Stage) -> bool {
        self.0.stage.load(Ordering::Relaxed) == stage as u8
    }

    pub(in crate::server) fn set(&self, stage: Stage) {
        self.0.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Counts bytes that were read from an upgraded connection.
    pub(in crate::server) fn add_received(&self, bytes: usize) {
        if self.is(Stage::Upgraded) {
            self.0.received.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that the body of an upload has been read to its end.
    pub(in crate::server) fn end_upload(&self) {
        if self.is(Stage::Uploading) {
            self.set(Stage::Answering);
        }
    }

    /// Returns the number of requests so far.
    pub(in crate::server) fn request_count(&self) -> usize {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// Notes that the connection is in use: a request, or a part of its head, has arrived. Cancels an eviction.
    pub(in crate::server) fn mark_used(&self) {
        self.0.idle.store(0, Ordering::Relaxed);
        self.0.evicted.store(false, Ordering::Relaxed);
    }

    /// Notes that the connection is idle from now on.
    pub(in crate::server) fn mark_idle(&self) {
        self.mark_idle_in(Duration::ZERO);
    }

    /// Notes that the connection counts as idle after this time, unless it is used before.
    fn mark_idle_in(&self, time: Duration) {
        let then =
            u64::try_from((self.0.born.elapsed() + time).as_millis()).unwrap_or(u64::MAX - 1);
        self.0.idle.store(then + 1, Ordering::Relaxed);
    }

    /// Returns the time since which the connection has been idle; `None` if it is in use or evicted already.
    pub(in crate::server) fn idle_since(&self) -> Option<Instant> {
        let idle = self.0.idle.load(Ordering::Relaxed).checked_sub(1)?;
        (!self.is_evicted()).then(|| self.0.born + Duration::from_millis(idle))
    }

    /// Evicts the connection: wakes its task, which closes it if nothing has arrived meanwhile.
    pub(in crate::server) fn evict(&self) {
        self.0.evicted.store(true, Ordering::Release);
        self.0.task.wake();
    }

    /// Returns true if the connection was evicted and has not been used since.
    pub(in crate::server) fn is_evicted(&self) -> bool {
        self.0.evicted.load(Ordering::Acquire)
    }

    /// Returns true if the connection is to close; otherwise its task is woken when it is.
    pub(in crate::server) fn poll_evicted(&self, cx: &Context<'_>) -> bool {
        self.0.task.register(cx.waker());
        self.is_evicted()
    }
}

/// Guard of a request in progress. Its connection counts as in use until the last such guard is dropped.
#[derive(Debug)]
pub(in crate::server) struct ActiveRequest(ConnectionState);

impl ActiveRequest {
    /// Notes that a request has arrived on this connection.
    pub(in crate::server) fn begin(state: &ConnectionState) -> Self {
        state.0.requests.fetch_add(1, Ordering::Relaxed);
        state.0.begun.fetch_add(1, Ordering::Relaxed);
        state.mark_used();
        state.set(Stage::Reading);
        Self(state.clone())
    }

    /// Notes that the client has taken a part of the answer. Without another within this time its connection counts as
    /// idle: it may never take the rest.
    pub(in crate::server) fn took(&self, time: Duration) {
        self.0.mark_idle_in(time);
    }

    /// Notes that no more is read for this request.
    pub(in crate::server) fn begin_answer(&self) {
        self.0.set(Stage::Answering);
    }

    /// Notes that the body is read as fast as an engine takes it, until [`ConnectionState::end_upload`] is called
    /// on the returned state.
    pub(in crate::server) fn begin_upload(&self) -> ConnectionState {
        self.0.set(Stage::Uploading);
        self.0.clone()
    }

    /// Returns the state of the connection after the upgrade that this request asks for. From now on the
    /// connection never counts as idle, not even between the answer and [`Upgraded::begin`].
    pub(in crate::server) fn upgraded(&self) -> Upgraded {
        self.0.0.requests.fetch_add(1, Ordering::Relaxed);
        Upgraded(self.0.clone())
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.0.0.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.mark_idle();
            self.0.set(Stage::Idle);
        }
    }
}

/// State of an upgraded connection, which no longer carries HTTP; used by WebSockets.
#[derive(Debug)]
pub(in crate::server) struct Upgraded(ConnectionState);

impl Upgraded {
    /// Notes that the upgrade is complete: from now on the socket times only writes; the WebSocket session times
    /// reads.
    pub(in crate::server) fn begin(&self) {
        self.0.mark_used();
        self.0.set(Stage::Upgraded);
    }

    /// Returns the number of bytes read since the upgrade.
    pub(in crate::server) fn received(&self) -> usize {
        self.0.0.received.load(Ordering::Relaxed)
    }

    /// Makes the next flush close the connection: the sending side is shut down, and what the client still sends
    /// is discarded.
    pub(in crate::server) fn leave(&self) {
        self.0.set(Stage::Closing);
    }
}
