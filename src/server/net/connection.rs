//! Socket of a client connection: its timers, and detection of a client that has left.
//!
//! The HTTP library would notice the end of a connection only while it has nothing unread, and with its own buffer:
//! a client that sends one byte too many would be relayed to for ever (faults C26). It has one timer for heads and none
//! for writes. So its socket is wrapped: [`ClientIo`] reads ahead while a request is in progress, and times what the
//! library does not.
//!
//! Takes: a socket, and the state of its requests. Gives: the same bytes to the library, or an error that ends the
//! connection. Remembers: bytes read ahead, and the timers. Never: interprets a request.

use super::connection_state::{ConnectionState, Stage};
use super::connections::ConnectionSlot;
use super::shutdown::{Phase, Shutdown};
use super::stall::Stall;
use crate::tls::Socket;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Limit for the bytes that are read ahead of the library.
const AHEAD: usize = 8 << 10;
/// Limit for one read of the first bytes of a connection, which show the protocol; most heads fit.
const FIRST: usize = 2 << 10;
/// Upper limit for the bytes of one read from an upgraded connection.
const UPGRADED_READ: usize = 4 << 10;
/// Interval of checks for a client that has sent more than [`AHEAD`] and then left.
const CLOSE_CHECK: Duration = Duration::from_millis(50);
/// Time limit for a head while the process drains.
const DRAINING_HEAD: Duration = Duration::from_secs(2);
/// Upper limit for the bytes that are read and discarded after the last answer.
pub(in crate::server) const LINGER_BYTES: usize = 64 << 10;
/// Time limit for a client that is still sending after the last answer.
pub(in crate::server) const LINGER: Duration = Duration::from_secs(1);

/// First bytes of a connection on which the client speaks HTTP/2 (RFC 9113, 3.4).
pub(in crate::server) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Delay of a timer from which it proves nothing about the client: the process stood still, or its machine did.
const LATE_TIMER: Duration = Duration::from_secs(1);

/// Time without an acknowledgement after which a client has vanished; the kernel then ends the connection.
pub(in crate::server) const VANISHED_AFTER: Duration = Duration::from_secs(30);
/// Duration from which a blocked write means that the client is present but takes nothing: a client that vanished
/// before the buffers were full would have been given up by now. The kernel treats both alike, so its time limit
/// is raised in the last moment.
const RAISE_LIMIT_AFTER: Duration = Duration::from_millis(29_500);

/// Timer of writes of which the client takes nothing or next to nothing.
struct WriteTimer {
    stall: Stall,
    sleep: Pin<Box<Sleep>>,
    /// True once the kernel's time limit has been raised beyond [`VANISHED_AFTER`].
    limit_raised: bool,
}

impl WriteTimer {
    fn new(patience: Duration) -> Self {
        let now = Instant::now();
        let stall = Stall::new(patience, now);
        let sleep = Box::pin(sleep_until(Self::first_check(&stall, now)));
        Self {
            stall,
            sleep,
            limit_raised: false,
        }
    }

    /// Notes that a write is blocked. Sets the timer anew if the client has taken data since the last one.
    fn note_blocked(&mut self) {
        let now = Instant::now();
        if self.stall.waits(now) {
            self.sleep
                .as_mut()
                .reset(Self::first_check(&self.stall, now));
        }
    }

    /// Returns the time of the first check: the end of the stall, or before that the time to raise the kernel's
    /// limit.
    fn first_check(stall: &Stall, now: Instant) -> Instant {
        stall.end().min(now + RAISE_LIMIT_AFTER)
    }
}

/// Returns the time by which a wait must be extended because its timer fired far too late, else `None`. Data that
/// arrived meanwhile is still unread in the socket: it is read before a peer counts as late (faults O12).
pub(in crate::server) fn late_timer_extension(end: Instant, now: Instant) -> Option<Duration> {
    let late = now.saturating_duration_since(end);
    (late > LATE_TIMER).then(|| late + CLOSE_CHECK)
}

/// Input for which the connection waits, with the time at which the wait began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientWait {
    /// Rest of a head.
    Head(Instant),
    /// Next request.
    Idle(Instant),
    /// Untimed: a request is in progress, and its body has its own timers.
    Answer,
}

/// Socket of a client, as the HTTP library sees it. Adds reading ahead, timers, and a close that waits for a
/// client that is still sending.
pub(in crate::server) struct ClientIo {
    io: TokioIo<Socket>,
    state: ConnectionState,
    wait: ClientWait,
    /// Number of requests that the last check has seen.
    requests_seen: usize,
    /// True if the library has just tried to read and found no bytes.
    read_was_empty: bool,
    /// Bytes that were read before the library requested them.
    ahead: Vec<u8>,
    /// Timer of the next check of the socket's state, while no more is read ahead.
    close_check: Option<Pin<Box<Sleep>>>,
    head: Duration,
    idle: Duration,
    stall: Duration,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<WriteTimer>,
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
    shutdown: Arc<Shutdown>,
    /// Slot of the connection, which counts as open until its socket is dropped, also after an upgrade.
    _slot: ConnectionSlot,
}

impl ClientIo {
    pub(in crate::server) fn new(
        stream: Socket,
        state: ConnectionState,
        slot: ConnectionSlot,
    ) -> Self {
        let app = slot.worker.active_config.app();
        let timeouts = &app.config.timeouts;
        Self {
            io: TokioIo::new(stream),
            state,
            wait: ClientWait::Head(Instant::now()),
            requests_seen: 0,
            read_was_empty: false,
            ahead: Vec::new(),
            close_check: None,
            head: *timeouts.client_head,
            idle: *timeouts.client_idle,
            stall: *timeouts.client_write_stall,
            reading: None,
            writing: None,
            lingering: None,
            shutdown: Arc::clone(&app.net.shutdown),
            _slot: slot,
        }
    }

    /// Returns true if the client speaks HTTP/2, as agreed in TLS or shown by its first bytes, which stay
    /// readable. Fails if the client sends none in time.
    pub(in crate::server) fn poll_is_http2(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if let Some(agreed) = self.io.inner().speaks_http2() {
            return Poll::Ready(Ok(agreed));
        }
        loop {
            if !self
                .ahead
                .iter()
                .zip(PREFACE)
                .all(|(byte, expected)| byte == expected)
            {
                return Poll::Ready(Ok(false));
            }
            if self.ahead.len() >= PREFACE.len() {
                return Poll::Ready(Ok(true));
            }
            let mut space = [0; FIRST];
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer) {
                Poll::Pending => return self.poll_head_timers(cx).map(|over| over.map(|()| false)),
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(false));
            }
            self.ahead.extend_from_slice(buffer.filled());
            self.note_input();
        }
    }

    /// Reads for the HTTP/2 server, which has its own timers for heads and detects the end of the connection
    /// itself.
    pub(in crate::server) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(self.io.inner_mut()).poll_read(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(self.ahead.get(..count).unwrap_or_default());
        self.ahead.drain(..count);
        Poll::Ready(Ok(()))
    }

    /// Reads for an upgraded connection, and counts the bytes.
    fn poll_counted(
        &mut self,
        cx: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut space = [MaybeUninit::uninit(); UPGRADED_READ];
        let room = space.len().min(to.remaining());
        let mut buffer = ReadBuf::uninit(space.get_mut(..room).unwrap_or_default());
        ready!(Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer))?;
        self.state.add_received(buffer.filled().len());
        to.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }

    /// Flushes bytes that TLS may still hold because the client does not take them. Fails if the client stalls.
    pub(in crate::server) fn poll_flush_tls(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.io.inner().is_tls() {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.poll_stall(cx, flushed, 0)
    }

    /// Closes the sending side, then waits within limits for a client that may still be sending. `unused` skips
    /// the wait, because no answer is at risk.
    pub(in crate::server) fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        unused: bool,
    ) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let shut = Pin::new(&mut self.io).poll_shutdown(cx);
            ready!(self.poll_stall(cx, shut, 0))?;
            if unused {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_linger(cx).map(Ok)
    }

    /// Notes that the library has received bytes: between two requests, they belong to a head.
    fn note_input(&self) {
        if self.state.is(Stage::Idle) {
            self.state.mark_used();
        }
    }

    /// Returns true if there was a request since the last check, even one that began and ended between two checks.
    fn had_request(&self) -> bool {
        self.wait == ClientWait::Answer || self.requests_seen != self.state.request_count()
    }

    /// Returns true if the kernel holds unread bytes of the client, for which the task will be woken.
    fn has_unread_input(&self) -> bool {
        let tcp = SockRef::from(self.io.inner().tcp());
        tcp.peek(&mut [MaybeUninit::uninit()])
            .is_ok_and(|count| count > 0)
    }

    /// Times the wait for a request and its head. Fails when the time is over, when the connection is evicted, or
    /// when the process drains amid a head.
    fn poll_head_timers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.state.is(Stage::Idle) {
            self.wait = ClientWait::Answer;
            return Poll::Pending;
        }
        if self.had_request() {
            self.wait = ClientWait::Idle(Instant::now());
        }
        self.requests_seen = self.state.request_count();
        if !matches!(self.wait, ClientWait::Answer)
            && self.state.poll_evicted(cx)
            && !self.has_unread_input()
        {
            return Poll::Ready(Err(ErrorKind::TimedOut.into()));
        }
        let (since, patience) = match self.wait {
            // The first request of a connection that was accepted at the last moment is refused, not reset.
            ClientWait::Head(since) if self.shutdown.phase() == Phase::Draining => {
                (since, self.head.min(DRAINING_HEAD))
            }
            ClientWait::Head(_) if self.shutdown.phase() > Phase::Draining => {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
            ClientWait::Head(since) => (since, self.head),
            ClientWait::Idle(since) => (since, self.idle),
            ClientWait::Answer => return Poll::Pending,
        };
        let mut end = since + patience;
        let sleep = self
            .reading
            .get_or_insert_with(|| Box::pin(sleep_until(end)));
        loop {
            if sleep.deadline() != end {
                sleep.as_mut().reset(end);
            }
            ready!(sleep.as_mut().poll(cx));
            let Some(more) = late_timer_extension(end, Instant::now()) else {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            };
            end += more;
            match &mut self.wait {
                ClientWait::Head(since) | ClientWait::Idle(since) => *since += more,
                ClientWait::Answer => {}
            }
        }
    }

    /// Reads ahead during an answer, when the library does not read, to detect that the client has left. Fails if
    /// it has.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.state.is(Stage::Answering) {
            if self.ahead.len() >= AHEAD {
                return self.check_closed(cx);
            }
            let mut space = [0; 1024];
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            self.ahead.extend_from_slice(buffer.filled());
            // The library may have been waiting for just these bytes.
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Checks the state of the socket at intervals, to detect the end of a connection after bytes that are not
    /// read (faults C26). Fails if the client has left.
    fn check_closed(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let state = pin!(self.io.inner().tcp().ready(Interest::READABLE))
                .poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(state) = state
                && state?.is_read_closed()
            {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let sleep = self
                .close_check
                .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + CLOSE_CHECK)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.close_check = None;
        }
    }

    /// Times writes that the client does not take, and fails when the client stalls for too long. `taken` is the
    /// number of bytes that this write has passed on.
    fn poll_stall<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        taken: usize,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() && self.writing.is_none() {
            return written;
        }
        let tcp = SockRef::from(self.io.inner().tcp());
        let stalled = self
            .writing
            .get_or_insert_with(|| WriteTimer::new(self.stall));
        if written.is_ready() {
            if std::mem::take(&mut stalled.limit_raised) {
                let _ = tcp.set_tcp_user_timeout(Some(VANISHED_AFTER));
            }
            if stalled.stall.took(taken, Instant::now()) {
                self.writing = None;
            }
            return written;
        }
        stalled.note_blocked();
        let WriteTimer {
            stall,
            sleep,
            limit_raised: is_told,
        } = stalled;
        ready!(sleep.as_mut().poll(cx));
        if !*is_told && sleep.deadline() < stall.end() {
            // The kernel would treat a client that acknowledges but takes nothing as one that has vanished.
            let _ = tcp.set_tcp_user_timeout(Some(self.stall + VANISHED_AFTER));
            *is_told = true;
            sleep.as_mut().reset(stall.end());
            ready!(sleep.as_mut().poll(cx));
        }
        while let Some(more) = late_timer_extension(stall.end(), Instant::now()) {
            stall.prolong(more);
            sleep.as_mut().reset(stall.end());
            ready!(sleep.as_mut().poll(cx));
        }
        // Discard at once what the client has not taken: the kernel need not keep it.
        let _ = tcp.set_linger(Some(Duration::ZERO));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }

    /// Reads and discards what the client still sends, within limits of bytes and time: a reset could otherwise
    /// destroy the last answer before the client has read it.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (sleep, left) = self
            .lingering
            .get_or_insert_with(|| (Box::pin(sleep_until(Instant::now() + LINGER)), LINGER_BYTES));
        while *left > 0 {
            let mut space = [0; 4096];
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer) {
                Poll::Pending => return sleep.as_mut().poll(cx),
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len())
                }
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }
}

impl Read for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(this.ahead.get(..count).unwrap_or_default());
            this.ahead.drain(..count);
            if this.ahead.is_empty() {
                this.ahead = Vec::new();
            }
            this.state.add_received(count);
            this.note_input();
            return Poll::Ready(Ok(()));
        }
        let read = match this.state.is(Stage::Upgraded) {
            true => this.poll_counted(cx, buffer),
            false => Pin::new(&mut this.io).poll_read(cx, buffer),
        };
        this.read_was_empty = read.is_pending();
        if this.read_was_empty {
            return this.poll_head_timers(cx);
        }
        if let ClientWait::Idle(_) = this.wait {
            this.wait = ClientWait::Head(Instant::now());
        }
        this.note_input();
        read
    }
}

impl Write for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        let taken = if let Poll::Ready(Ok(taken)) = written {
            taken
        } else {
            0
        };
        self.poll_stall(cx, written, taken)
    }

    /// Returns false: a token is small, and is sent faster when copied together with its framing than in three
    /// pieces.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.is(Stage::Closing) {
            return self.poll_shutdown(cx);
        }
        if !std::mem::take(&mut self.read_was_empty) {
            self.read_ahead(cx)?;
            // An upload is read only as fast as the engine takes it, so nothing is read ahead.
            if self.state.is(Stage::Uploading) {
                self.check_closed(cx)?;
            }
        }
        ready!(self.poll_flush_tls(cx))?;
        // The library may have tried to read the next head before it dropped the last answer, and would not try
        // again.
        if self.had_request() && self.state.is(Stage::Idle) {
            let _ = self.poll_head_timers(cx)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // No answer is at risk between two requests, nor amid a head that is given up while the process drains.
        let unused = matches!(self.wait, ClientWait::Idle(_)) || self.state.is_evicted();
        let unused =
            unused || self.wait != ClientWait::Answer && self.shutdown.phase() >= Phase::Draining;
        self.poll_close(cx, unused)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection_state::ActiveRequest;
    use super::*;

    #[test]
    fn a_connection_that_is_upgraded_makes_no_room() {
        let state = ConnectionState::default();
        assert!(state.idle_since().is_some());
        let request = ActiveRequest::begin(&state);
        assert!(state.idle_since().is_none());
        drop(request);
        assert!(state.idle_since().is_some());
        let request = ActiveRequest::begin(&state);
        let upgraded = request.upgraded();
        drop(request);
        assert!(state.idle_since().is_none(), "its answer is on the way");
        upgraded.begin();
        assert!(state.idle_since().is_none() && state.is(Stage::Upgraded));
    }
}
