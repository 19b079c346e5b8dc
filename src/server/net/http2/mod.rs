//! HTTP/2 towards clients: one connection, many concurrent requests.
//!
//! The library handles framing, header compression and flow control. This module adds timers, limits on abuse
//! (faults C19, C22) and the shutdown. Each stream is its own task on the thread of its connection, so that a
//! panic ends one stream and not the others; none outlives the connection.

mod frames;
mod socket;
mod stream;

use super::connection::{ClientIo, LINGER, late_timer_extension};
use super::connection_state::ConnectionState;
use super::shutdown::{PhaseWatcher, Shutdown};
use crate::config::{Limits, Timeouts};
use crate::server::Worker;
use crate::server::net::shutdown::Phase;
use axum::Router;
use bytes::Bytes;
use futures::future::poll_fn;
use h2::server::{Builder, Connection, Handshake};
use h2::{Ping, PingPong, Reason};
use socket::{CountedSocket, SocketSignals};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until};

/// Streams per connection that the server itself may reset because of invalid requests.
const REFUSED: usize = 1024;
/// Budget for small frames that have not been read: 16,000 of one byte. A body may come in frames of a few bytes.
const SMALL_FRAMES: usize = 4 << 20;

/// Serves a connection until it closes.
pub(in crate::server) async fn serve(
    io: ClientIo,
    state: ConnectionState,
    router: Router,
    worker: Arc<Worker>,
) {
    let mut served = ServedConnection::new(io, state, router, worker);
    poll_fn(|cx| served.poll(cx)).await;
}

fn builder(limits: &Limits) -> Builder {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX >> 1);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(number(limits.h2_streams))
        .initial_window_size(number(limits.h2_stream_window_bytes))
        .initial_connection_window_size(number(limits.h2_connection_window_bytes))
        .max_header_list_size(number(limits.max_head_bytes))
        .max_send_buffer_size(limits.stream_buffer_bytes)
        .data_frame_budget(SMALL_FRAMES)
        // Resets are counted by this module, whether or not their request has been accepted.
        .max_pending_accept_reset_streams(limits.h2_resets)
        .max_local_error_reset_streams(Some(REFUSED));
    builder
}

/// State of the library: handshake or open connection.
enum ProtocolState {
    /// Handshake: the client's preface is still to come.
    Begins(Handshake<CountedSocket, Bytes>),
    Open(Connection<CountedSocket, Bytes>),
}

/// HTTP/2 connection of a client: the library's state, its streams and its timers.
struct ServedConnection {
    state: ProtocolState,
    signals: SocketSignals,
    connection_state: ConnectionState,
    streams: JoinSet<()>,
    router: Router,
    worker: Arc<Worker>,
    shutdown: Arc<Shutdown>,
    /// Timeouts in force when the connection began.
    timeouts: Timeouts,
    phases: PhaseWatcher,
    timer: Pin<Box<Sleep>>,
    pings: Option<PingPong>,
    /// Time of the last ping that is unanswered.
    pinged: Option<Instant>,
    /// Time since which no request has been running.
    idle: Option<Instant>,
    /// Time since which no more requests are accepted.
    drains: Option<Instant>,
    /// Time until which long overdue timers are deferred.
    grace: Option<Instant>,
    /// True if the end of the connection has been announced.
    ends: bool,
}

/// Result of a check of the timers and limits of a connection.
enum FrameVerdict {
    /// The connection stays open; the time is when it must be checked again.
    Continue(Option<Instant>),
    /// The connection must end with this reason.
    End(Reason),
}

impl ServedConnection {
    fn new(
        io: ClientIo,
        connection_state: ConnectionState,
        router: Router,
        worker: Arc<Worker>,
    ) -> Self {
        let app = worker.active_config.app();
        let limits = &app.config.limits;
        let signs = SocketSignals::new(limits.h2_resets);
        let handshake = builder(limits).handshake(CountedSocket::new(io, signs.clone()));
        Self {
            state: ProtocolState::Begins(handshake),
            signals: signs,
            connection_state,
            streams: JoinSet::new(),
            router,
            phases: PhaseWatcher::of(&app.net.shutdown),
            shutdown: Arc::clone(&app.net.shutdown),
            timeouts: app.config.timeouts.clone(),
            worker,
            timer: Box::pin(sleep_until(Instant::now())),
            pings: None,
            pinged: None,
            idle: Some(Instant::now()),
            drains: None,
            grace: None,
            ends: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.signals.turn();
        let phase = self.phases.poll(cx, &self.shutdown);
        if phase.is_some_and(|phase| phase >= Phase::Draining) && self.drains.is_none() {
            self.drains = Some(Instant::now());
            if let ProtocolState::Open(connection) = &mut self.state {
                connection.graceful_shutdown();
            }
        }
        loop {
            match self.poll_streams(cx) {
                Poll::Ready(()) => return Poll::Ready(()),
                Poll::Pending if self.ends => return Poll::Pending,
                Poll::Pending => {}
            }
            match self.verdict(cx) {
                FrameVerdict::End(reason) => {
                    self.ends = true;
                    self.signals.seen().is_unused = reason == Reason::NO_ERROR;
                    match &mut self.state {
                        ProtocolState::Begins(_) => return Poll::Ready(()),
                        ProtocolState::Open(connection) => connection.abrupt_shutdown(reason),
                    }
                }
                FrameVerdict::Continue(None) => return Poll::Pending,
                FrameVerdict::Continue(Some(end)) => {
                    // The timer is not moved at each token, which would be costly. If it fires early, the check is
                    // repeated.
                    if self.timer.deadline() > end || self.timer.is_elapsed() {
                        self.timer.as_mut().reset(end);
                    }
                    ready!(self.timer.as_mut().poll(cx));
                }
            }
        }
    }

    /// Drives the library and starts new streams. Ready when the connection has ended.
    fn poll_streams(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let connection = match &mut self.state {
            ProtocolState::Open(connection) => connection,
            ProtocolState::Begins(handshake) => {
                let Ok(mut connection) = ready!(Pin::new(handshake).poll(cx)) else {
                    return Poll::Ready(());
                };
                self.pings = connection.ping_pong();
                if self.drains.is_some() {
                    connection.graceful_shutdown();
                }
                self.state = ProtocolState::Open(connection);
                // The bytes received so far were no request.
                self.connection_state.mark_idle();
                return self.poll_streams(cx);
            }
        };
        loop {
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, reply)))) => {
                    let stream = stream::serve(
                        request,
                        reply,
                        self.connection_state.clone(),
                        self.router.clone(),
                        Arc::clone(&self.worker),
                    );
                    self.streams.spawn(stream);
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "an HTTP/2 connection has broken off");
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(_)) = self.streams.poll_join_next(cx) {}
        self.idle = if self.streams.is_empty() {
            self.idle.or_else(|| Some(Instant::now()))
        } else {
            None
        };
        Poll::Pending
    }

    /// Checks the limits and the timers.
    fn verdict(&mut self, cx: &mut Context<'_>) -> FrameVerdict {
        let (now, seen) = (Instant::now(), self.signals.seen());
        let (is_blocked, heard) = (seen.is_blocked, seen.heard);
        if let Some(excess) = seen.excess {
            tracing::debug!(?excess, "an HTTP/2 client has exceeded a limit");
            return FrameVerdict::End(Reason::ENHANCE_YOUR_CALM);
        }
        // An incomplete body is covered by the timers of its request.
        let head = seen
            .waiting
            .filter(|_| self.idle.is_some() || !seen.is_body());
        drop(seen);
        let mut ends = Deadlines {
            now,
            next: None,
            grace: self.grace,
            missed: false,
        };
        let verdict = self.judged(cx, &mut ends, head, (is_blocked, heard));
        self.grace = ends.grace.filter(|_| ends.missed);
        verdict
    }

    fn judged(
        &mut self,
        cx: &mut Context<'_>,
        ends: &mut Deadlines,
        head: Option<Instant>,
        (is_blocked, heard): (bool, Instant),
    ) -> FrameVerdict {
        let timeouts = &self.timeouts;
        if let Some(since) = head
            && ends.is_over(since + *timeouts.client_head)
        {
            return FrameVerdict::End(Reason::ENHANCE_YOUR_CALM);
        }
        if let Some(since) = self.idle.filter(|_| !is_blocked) {
            let is_evicted = self.connection_state.poll_evicted(cx);
            let leaves = self
                .drains
                .is_some_and(|drains| ends.is_over(drains.max(since) + LINGER));
            if is_evicted || leaves || head.is_none() && ends.is_over(since + *timeouts.client_idle)
            {
                return FrameVerdict::End(Reason::NO_ERROR);
            }
        }
        let ping = *timeouts.client_ping;
        if self.idle.is_none() && !ping.is_zero() && self.is_gone(cx, ends, heard, is_blocked, ping)
        {
            return FrameVerdict::End(Reason::NO_ERROR);
        }
        FrameVerdict::Continue(ends.next)
    }

    /// Pings a client that has been silent for long. Returns true if it has not answered within `patience`.
    fn is_gone(
        &mut self,
        cx: &mut Context<'_>,
        ends: &mut Deadlines,
        heard: Instant,
        is_blocked: bool,
        patience: Duration,
    ) -> bool {
        let Some(pings) = &mut self.pings else {
            return false;
        };
        // A client that does not read cannot answer; another timer covers that.
        if is_blocked {
            self.pinged = None;
            return false;
        }
        if let Some(pinged) = self.pinged {
            let _ = pings.poll_pong(cx);
            if heard < pinged {
                return ends.is_over(pinged + patience);
            }
            self.pinged = None;
        }
        if ends.is_over(heard + patience) {
            // A ping that was never answered can stand for the new one.
            let _ = pings.send_ping(Ping::opaque());
            self.pinged = Some(ends.now);
            ends.is_over(ends.now + patience);
        }
        false
    }
}

/// Deadlines checked in one round: collects the earliest one still to come.
struct Deadlines {
    now: Instant,
    next: Option<Instant>,
    /// Time until which long overdue deadlines are deferred.
    grace: Option<Instant>,
    /// True if a deadline was long overdue in this round.
    missed: bool,
}

impl Deadlines {
    /// Returns true if the deadline has passed. Input that arrived while the thread was blocked has not been read
    /// yet, so a long overdue deadline is deferred first (faults O12).
    fn is_over(&mut self, end: Instant) -> bool {
        let end = match late_timer_extension(end, self.now) {
            Some(more) => {
                self.missed = true;
                *self.grace.get_or_insert(end + more)
            }
            None => end,
        };
        if end <= self.now {
            return true;
        }
        self.next = Some(self.next.map_or(end, |next| next.min(end)));
        false
    }
}
