//! The socket of a connection on which HTTP/2 is spoken: what passes is counted, and what is too much is not read.

use super::super::connection::ClientIo;
use super::frames::{Excess, Frames};
use hyper::rt::Write;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Bytes that are read of one client before others have their turn.
const TURN: usize = 64 << 10;

/// What the connection knows of its socket, which the library has.
#[derive(Clone)]
pub(super) struct SocketSignals(Arc<Mutex<Seen>>);

pub(super) struct Seen {
    frames: Frames,
    /// Since when something is half here.
    pub(super) waiting: Option<Instant>,
    /// When the client was last heard.
    pub(super) heard: Instant,
    /// It has overdone it: nothing more is read.
    pub(super) excess: Option<Excess>,
    /// The client does not take what is written.
    pub(super) is_blocked: bool,
    /// Nobody waits for the client at the end.
    pub(super) is_unused: bool,
    /// Bytes that may still be read in this turn.
    room: usize,
}

impl Seen {
    /// What is half here is a part of a body.
    pub(super) fn is_body(&self) -> bool {
        self.frames.is_body()
    }
}

impl SocketSignals {
    pub(super) fn new(resets: usize) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(Seen {
            frames: Frames::new(resets),
            waiting: Some(now),
            heard: now,
            excess: None,
            is_blocked: false,
            is_unused: false,
            room: TURN,
        })))
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection has its turn.
    pub(super) fn turn(&self) {
        self.seen().room = TURN;
    }
}

/// A client's socket, for the library.
pub(super) struct CountedSocket {
    io: ClientIo,
    signs: SocketSignals,
}

impl CountedSocket {
    pub(super) fn new(io: ClientIo, signs: SocketSignals) -> Self {
        Self { io, signs }
    }

    fn noted<T>(&self, written: Poll<T>) -> Poll<T> {
        self.signs.seen().is_blocked = written.is_pending();
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
        let mut seen = this.signs.seen();
        if seen.excess.is_some() {
            // The connection looks for that as soon as the library has nothing to do.
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
        // What is half here now began with this read, unless it was the same before.
        let since = seen.waiting.filter(|_| seen.frames.whole() == whole).unwrap_or(now);
        seen.waiting = seen.frames.is_waiting().then_some(since);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            let bytes = bytes.get(..*count).unwrap_or_default();
            let mut seen = self.signs.seen();
            if let Err(excess) = seen.frames.write(bytes, Instant::now) {
                seen.excess = Some(excess);
            }
        }
        self.noted(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let passed = self.io.poll_passed_on(cx);
        self.noted(passed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_unused = self.signs.seen().is_unused;
        self.io.poll_last(cx, is_unused)
    }
}
