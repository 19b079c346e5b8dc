//! One client connection: its timers, and how it notices that the client has left.
//!
//! The HTTP library looks for the end of a connection only while it has nothing unread: a client that sends one byte
//! too many would be relayed to for ever (faults C26). It has one timer for heads and none for writes. So its socket is
//! wrapped: [`ClientIo`] reads ahead while a request is under way, and times what the library does not.

use super::connection_state::{ANSWERING, ConnectionState, IDLE, LEAVING, UPLOADING};
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

/// Bytes read ahead of the library.
const AHEAD: usize = 8 << 10;
/// Bytes of a connection that are read at first, to see what is spoken: most heads.
const FIRST: usize = 2 << 10;
/// How often it is looked whether a client has left that has sent more than that.
const GLANCE: Duration = Duration::from_millis(50);
/// How much, and how long, a client may go on sending after the last answer.
pub(super) const LINGER_BYTES: usize = 64 << 10;
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// How a connection begins on which HTTP/2 is spoken (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A timer that ends so much too late was not watched: the process stood still, or its machine did.
const ASLEEP: Duration = Duration::from_secs(1);

/// After so long without an acknowledgement a client has vanished.
pub(super) const GONE: Duration = Duration::from_secs(30);
/// A write that lasts longer is that of a client that is there and takes nothing: one that had vanished before the buffers
/// were full would have been given up by now. The kernel treats both alike, so it is told in the last moment.
const STOPPED: Duration = Duration::from_millis(29_500);

/// Writes that the client does not take, or of which it takes next to nothing.
struct Stalled {
    stall: Stall,
    sleep: Pin<Box<Sleep>>,
    /// The kernel has been told that the write may last longer than [`GONE`].
    is_told: bool,
}

impl Stalled {
    fn new(patience: Duration) -> Self {
        let now = Instant::now();
        let stall = Stall::new(patience, now);
        let sleep = Box::pin(sleep_until(Self::first_look(&stall, now)));
        Self { stall, sleep, is_told: false }
    }

    /// A write waits.
    fn waits(&mut self) {
        let now = Instant::now();
        if self.stall.waits(now) {
            self.sleep.as_mut().reset(Self::first_look(&self.stall, now));
        }
    }

    /// When it is first looked, at the latest when the kernel is to be told.
    fn first_look(stall: &Stall, now: Instant) -> Instant {
        stall.end().min(now + STOPPED)
    }
}

/// By how much a wait is to be prolonged whose end was missed by far. What came meanwhile is in the socket and has not
/// been seen yet: it is looked at before anybody is said to be late (faults O12).
pub(super) fn overslept(end: Instant, now: Instant) -> Option<Duration> {
    let late = now.saturating_duration_since(end);
    (late > ASLEEP).then(|| late + GLANCE)
}

/// What the connection waits for from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientWait {
    /// The rest of a head.
    Head(Instant),
    /// A next request.
    Idle(Instant),
    /// Nothing, or a body, which has timers of its own.
    Answer,
}

/// A client's socket.
pub(super) struct ClientIo {
    io: TokioIo<Socket>,
    stage: ConnectionState,
    wait: ClientWait,
    /// The requests that this takes into account.
    known: usize,
    /// The library has just looked for bytes itself, and found none.
    looked: bool,
    /// Read before the library wanted it.
    ahead: Vec<u8>,
    /// When to look next, while no more is read ahead.
    glance: Option<Pin<Box<Sleep>>>,
    head: Duration,
    idle: Duration,
    stall: Duration,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Stalled>,
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
    shutdown: Arc<Shutdown>,
    /// The connection counts for as long as its socket is open, whoever has it.
    _seat: ConnectionSlot,
}

impl ClientIo {
    pub(super) fn new(stream: Socket, stage: ConnectionState, slot: ConnectionSlot) -> Self {
        let app = slot.worker.present.app();
        let timeouts = &app.config.timeouts;
        Self {
            io: TokioIo::new(stream),
            stage,
            wait: ClientWait::Head(Instant::now()),
            known: 0,
            looked: false,
            ahead: Vec::new(),
            glance: None,
            head: *timeouts.client_head,
            idle: *timeouts.client_idle,
            stall: *timeouts.client_write_stall,
            reading: None,
            writing: None,
            lingering: None,
            shutdown: Arc::clone(&app.shutdown),
            _seat: slot,
        }
    }

    /// Whether the client speaks HTTP/2. What has been read for that is kept for whoever serves it.
    pub(super) fn poll_is_http2(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(agreed) = self.io.inner().speaks_http2() {
            return Poll::Ready(Ok(agreed));
        }
        loop {
            if !self.ahead.iter().zip(PREFACE).all(|(byte, expected)| byte == expected) {
                return Poll::Ready(Ok(false));
            }
            if self.ahead.len() >= PREFACE.len() {
                return Poll::Ready(Ok(true));
            }
            let mut space = [0; FIRST];
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer) {
                Poll::Pending => return self.poll_patience(cx).map(|over| over.map(|()| false)),
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(false));
            }
            self.ahead.extend_from_slice(buffer.filled());
            self.has_heard();
        }
    }

    /// Reads for whoever times heads and looks for the end of the connection itself.
    pub(super) fn poll_bytes(
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

    /// Passes on what TLS may have kept of what the client does not take.
    pub(super) fn poll_passed_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.io.inner().is_tls() {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.poll_stall(cx, flushed, 0)
    }

    /// Says that no more will come. A client that may still be sending is waited for.
    pub(super) fn poll_last(&mut self, cx: &mut Context<'_>, unused: bool) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let shut = Pin::new(&mut self.io).poll_shutdown(cx);
            ready!(self.poll_stall(cx, shut, 0))?;
            if unused {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_linger(cx).map(Ok)
    }

    /// The library has been given bytes: between two requests, those of a head.
    fn has_heard(&self) {
        if self.stage.is(IDLE) {
            self.stage.stirs();
        }
    }

    /// There was a request since the last look; one that was answered at once may have come and gone between two of them.
    fn has_answered(&self) -> bool {
        self.wait == ClientWait::Answer || self.known != self.stage.begun()
    }

    /// The kernel has bytes of the client that nobody has been told of yet: the task will be woken for them.
    fn has_news(&self) -> bool {
        let tcp = SockRef::from(self.io.inner().tcp());
        tcp.peek(&mut [MaybeUninit::uninit()]).is_ok_and(|count| count > 0)
    }

    /// Times the wait for a head.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.stage.is(IDLE) {
            self.wait = ClientWait::Answer;
            return Poll::Pending;
        }
        if self.has_answered() {
            self.wait = ClientWait::Idle(Instant::now());
        }
        self.known = self.stage.begun();
        if !matches!(self.wait, ClientWait::Answer) && self.stage.poll_evicted(cx) && !self.has_news() {
            return Poll::Ready(Err(ErrorKind::TimedOut.into()));
        }
        let (since, patience) = match self.wait {
            // Nobody waits for the end of a head at the end of the process.
            ClientWait::Head(_) if self.shutdown.phase() >= Phase::Draining => {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
            ClientWait::Head(since) => (since, self.head),
            ClientWait::Idle(since) => (since, self.idle),
            ClientWait::Answer => return Poll::Pending,
        };
        let mut end = since + patience;
        let sleep = self.reading.get_or_insert_with(|| Box::pin(sleep_until(end)));
        loop {
            if sleep.deadline() != end {
                sleep.as_mut().reset(end);
            }
            ready!(sleep.as_mut().poll(cx));
            let Some(more) = overslept(end, Instant::now()) else {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            };
            end += more;
            match &mut self.wait {
                ClientWait::Head(since) | ClientWait::Idle(since) => *since += more,
                ClientWait::Answer => {}
            }
        }
    }

    /// Looks whether the client is still there, while the library does not.
    fn look_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.stage.is(ANSWERING) {
            if self.ahead.len() >= AHEAD {
                return self.glance(cx);
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

    /// Looks for the end of a connection behind bytes that nobody reads: by the socket's state, now and again (faults
    /// C26).
    fn glance(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let state = pin!(self.io.inner().tcp().ready(Interest::READABLE))
                .poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(state) = state
                && state?.is_read_closed()
            {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let sleep = self.glance.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + GLANCE)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.glance = None;
        }
    }

    /// Times writes that the client does not take; `taken`: bytes of this one that it has.
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
        let stalled = self.writing.get_or_insert_with(|| Stalled::new(self.stall));
        if written.is_ready() {
            if std::mem::take(&mut stalled.is_told) {
                let _ = tcp.set_tcp_user_timeout(Some(GONE));
            }
            if stalled.stall.took(taken, Instant::now()) {
                self.writing = None;
            }
            return written;
        }
        stalled.waits();
        let Stalled { stall, sleep, is_told } = stalled;
        ready!(sleep.as_mut().poll(cx));
        if !*is_told && sleep.deadline() < stall.end() {
            // The kernel would give up a client that acknowledges, but takes nothing, as one that has gone.
            let _ = tcp.set_tcp_user_timeout(Some(self.stall + GONE));
            *is_told = true;
            sleep.as_mut().reset(stall.end());
            ready!(sleep.as_mut().poll(cx));
        }
        while let Some(more) = overslept(stall.end(), Instant::now()) {
            stall.prolong(more);
            sleep.as_mut().reset(stall.end());
            ready!(sleep.as_mut().poll(cx));
        }
        // What the client has not taken is worthless: the kernel need not keep it.
        let _ = tcp.set_linger(Some(Duration::ZERO));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }

    /// A client that is still sending would not see the last answer if the connection were reset under it.
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
            this.has_heard();
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        this.looked = read.is_pending();
        if this.looked {
            return this.poll_patience(cx);
        }
        if let ClientWait::Idle(_) = this.wait {
            this.wait = ClientWait::Head(Instant::now());
        }
        this.has_heard();
        read
    }
}

impl Write for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        let taken = if let Poll::Ready(Ok(taken)) = written { taken } else { 0 };
        self.poll_stall(cx, written, taken)
    }

    /// A token is small: copied together with its framing it goes out faster than in three pieces.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stage.is(LEAVING) {
            return self.poll_shutdown(cx);
        }
        if !std::mem::take(&mut self.looked) {
            self.look_ahead(cx)?;
            // What waits for a slow engine is not read ahead of it.
            if self.stage.is(UPLOADING) {
                self.glance(cx)?;
            }
        }
        ready!(self.poll_passed_on(cx))?;
        // The library may have asked for a next head before it let go of the last answer, and would not ask again.
        if self.has_answered() && self.stage.is(IDLE) {
            let _ = self.poll_patience(cx)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Between two requests nothing was refused; at the end of the process nobody waits for half a head.
        let unused = matches!(self.wait, ClientWait::Idle(_)) || self.stage.is_evicted();
        let unused = unused || self.wait != ClientWait::Answer && self.shutdown.phase() >= Phase::Draining;
        self.poll_last(cx, unused)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection_state::{ActiveRequest, UPGRADED};
    use super::*;

    #[test]
    fn a_connection_that_is_upgraded_makes_no_room() {
        let stage = ConnectionState::default();
        assert!(stage.idle_since().is_some());
        let request = ActiveRequest::begin(&stage);
        assert!(stage.idle_since().is_none());
        drop(request);
        assert!(stage.idle_since().is_some());
        let request = ActiveRequest::begin(&stage);
        let upgraded = request.upgraded();
        drop(request);
        assert!(stage.idle_since().is_none(), "its answer is on the way");
        upgraded.begin();
        assert!(stage.idle_since().is_none() && stage.is(UPGRADED));
    }
}
