//! Socket of an HTTP/2 connection: counts the frames that pass and stops reading from a client that exceeds a
//! limit.

use super::frames::{Excess, FrameCounts};
use crate::server::net::connection::ClientIo;
use hyper::rt::Write;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Bytes read from one client before other tasks get their turn.
const TURN: usize = 64 << 10;

/// State of the socket, shared between the connection's task and the library, which owns the socket.
#[derive(Clone)]
pub(super) struct SocketSignals(Arc<Mutex<SocketState>>);

/// State of the socket as seen by the library's reads and writes, from which the connection derives its timers.
pub(super) struct SocketState {
    frames: FrameCounts,
    /// Time since which a frame or header block has been incomplete.
    pub(super) waiting: Option<Instant>,
    /// Time at which bytes last arrived from the client.
    pub(super) heard: Instant,
    /// Limit that the client has exceeded; nothing more is read then.
    pub(super) excess: Option<Excess>,
    /// True if the client does not take what is written.
    pub(super) is_blocked: bool,
    /// True if closing the socket need not wait for a client that may still be sending.
    pub(super) is_unused: bool,
    /// Bytes that may still be read in this turn.
    room: usize,
}

impl SocketState {
    /// Returns true if the incomplete frame is a part of a body.
    pub(super) fn is_body(&self) -> bool {
        self.frames.is_body()
    }
}

impl SocketSignals {
    pub(super) fn new(resets: usize) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(SocketState {
            frames: FrameCounts::new(resets),
            waiting: Some(now),
            heard: now,
            excess: None,
            is_blocked: false,
            is_unused: false,
            room: TURN,
        })))
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, SocketState> {
        self.0.lock()
    }

    /// Starts a new turn, in which [`TURN`] bytes may be read.
    pub(super) fn turn(&self) {
        self.seen().room = TURN;
    }
}

/// Client's socket as the HTTP/2 library sees it, with frames counted in both directions.
pub(super) struct CountedSocket {
    io: ClientIo,
    signals: SocketSignals,
}

impl CountedSocket {
    pub(super) fn new(io: ClientIo, signs: SocketSignals) -> Self {
        Self { io, signals: signs }
    }

    fn noted<T>(&self, written: Poll<T>) -> Poll<T> {
        self.signals.seen().is_blocked = written.is_pending();
        written
    }
}

impl AsyncRead for CountedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let mut seen = this.signals.seen();
        if seen.excess.is_some() {
            // The connection checks for this as soon as the library has no more to do.
            return Poll::Pending;
        }
        if seen.room == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(this.io.poll_bytes(cx, buffer))?;
        let now = Instant::now();
        let bytes = buffer.filled().get(before..).unwrap_or_default();
        seen.room = seen.room.saturating_sub(bytes.len());
        seen.heard = now;
        let whole = seen.frames.whole();
        if let Err((excess, good)) = seen.frames.take(bytes, now) {
            seen.excess = Some(excess);
            buffer.set_filled(before + good);
        }
        // An incomplete frame began with this read, unless it was the same frame before.
        let since = seen
            .waiting
            .filter(|_| seen.frames.whole() == whole)
            .unwrap_or(now);
        seen.waiting = seen.frames.is_waiting().then_some(since);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            let bytes = bytes.get(..*count).unwrap_or_default();
            let mut seen = self.signals.seen();
            if let Err(excess) = seen.frames.write(bytes, Instant::now) {
                seen.excess = Some(excess);
            }
        }
        self.noted(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let passed = self.io.poll_flush_tls(cx);
        self.noted(passed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_unused = self.signals.seen().is_unused;
        self.io.poll_close(cx, is_unused)
    }
}
