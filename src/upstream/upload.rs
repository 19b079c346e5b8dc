//! Bodies of requests that are sent while they come: no more of one is in memory than the engine's connection takes.
//!
//! Takes: an [`Upload`]. Gives: the engine's answer, also one that comes before the body is complete. Never: takes a piece
//! of the body before the one before it has been sent.

use super::answer::Answer;
use super::client::{Connection, INTERIM};
use super::http1::{HEAD_LIMIT, Head, Malformed};
use crate::error::{Class, Error};
use crate::tls::{self, Socket};
use crate::wire::fault::{Failure, Fault};
use bytes::{Buf, Bytes, BytesMut};
use h2::SendStream;
use std::fmt;
use std::fmt::Write as _;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one read while a body is being sent.
const READ: usize = 2 << 10;

/// A source of the rest of a body.
pub trait Source: Send {
    /// Gives the next piece, which is not empty; `None` behind the last.
    ///
    /// # Errors
    /// The body cannot be read to its end; the failure is what the client is told.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>>;
}

/// The rest of a request's body, behind [`Outgoing::body`](super::Outgoing::body).
#[derive(Clone)]
pub struct Upload {
    source: Arc<Mutex<dyn Source>>,
    begun: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
    /// Bytes that are still to come, if they are known; otherwise HTTP/1.1 sends the whole body in chunks.
    pub length: Option<u64>,
}

impl Upload {
    /// Makes an upload of which nothing has been taken.
    pub fn new(source: impl Source + 'static, length: Option<u64>) -> Self {
        Self { source: Arc::new(Mutex::new(source)), begun: Arc::default(), failed: Arc::default(), length }
    }

    /// Whether a piece has been taken, so that the request cannot be sent again.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether the client has not sent all of it, and will not.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let piece = ready!(self.source.lock().unwrap_or_else(PoisonError::into_inner).poll_piece(cx));
        self.begun.store(true, Ordering::Relaxed);
        self.failed.store(matches!(piece, Some(Err(_))), Ordering::Relaxed);
        Poll::Ready(piece)
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("begun", &self.begun)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The result of sending a body.
#[derive(Debug)]
pub(super) enum Sent {
    /// All of the body has gone out.
    Whole,
    /// The engine takes no more: its answer says why.
    Refused,
    /// The body cannot be read to its end.
    Broken(Failure),
}

/// A request on its way over HTTP/1.1.
#[derive(Debug)]
pub(super) struct Sending {
    /// The bytes before the piece: the head of the request, or of a chunk.
    before: BytesMut,
    piece: Bytes,
    /// The bytes behind the piece.
    after: &'static [u8],
    upload: Upload,
    is_over: bool,
}

impl Sending {
    fn new(head: &[u8], body: Bytes, upload: Upload) -> Self {
        let before = BytesMut::from(head);
        let mut this = Self { before, piece: Bytes::new(), after: b"", upload, is_over: false };
        this.take(body);
        this
    }

    /// Makes `piece` the next one; a chunk, where the length of the body is not known.
    fn take(&mut self, piece: Bytes) {
        if self.upload.length.is_none() && !piece.is_empty() {
            let _ = write!(self.before, "{:x}\r\n", piece.len());
            self.after = b"\r\n";
        }
        self.piece = piece;
    }

    /// The body is complete.
    fn end(&mut self) {
        self.is_over = true;
        if self.upload.length.is_none() {
            self.after = b"0\r\n\r\n";
        }
    }

    fn is_out(&self) -> bool {
        self.before.is_empty() && self.piece.is_empty() && self.after.is_empty()
    }

    /// Marks bytes as sent.
    fn advance(&mut self, written: usize) {
        let of_before = written.min(self.before.len());
        let of_piece = (written - of_before).min(self.piece.len());
        let of_after = (written - of_before - of_piece).min(self.after.len());
        self.before.advance(of_before);
        self.piece.advance(of_piece);
        self.after.advance(of_after);
    }

    /// Sends as much as the engine takes.
    pub(super) fn poll(&mut self, stream: &mut Socket, cx: &mut Context<'_>) -> Poll<Sent> {
        loop {
            while !self.is_out() {
                let pieces =
                    [IoSlice::new(&self.before), IoSlice::new(&self.piece), IoSlice::new(self.after)];
                match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &pieces)) {
                    Ok(written @ 1..) => self.advance(written),
                    Ok(0) | Err(_) => return Poll::Ready(Sent::Refused),
                }
            }
            if self.is_over {
                let flushed = ready!(Pin::new(&mut *stream).poll_flush(cx));
                return Poll::Ready(if flushed.is_ok() { Sent::Whole } else { Sent::Refused });
            }
            match self.upload.poll_piece(cx) {
                Poll::Ready(Some(Ok(piece))) => self.take(piece),
                Poll::Ready(Some(Err(failure))) => return Poll::Ready(Sent::Broken(failure)),
                Poll::Ready(None) => self.end(),
                Poll::Pending => {
                    // What has come is not to wait for what comes.
                    return match Pin::new(&mut *stream).poll_flush(cx) {
                        Poll::Ready(Err(_)) => Poll::Ready(Sent::Refused),
                        _ => Poll::Pending,
                    };
                }
            }
        }
    }
}

/// Reads what the engine says while a request is on its way.
fn poll_answer(
    stream: &mut Socket,
    cx: &mut Context<'_>,
    into: &mut BytesMut,
) -> Poll<std::io::Result<usize>> {
    let mut space = [0; READ];
    let mut buffer = ReadBuf::new(&mut space);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    into.extend_from_slice(buffer.filled());
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Sends a request on a new connection and reads the head of its answer, which may come before the body is complete.
///
/// # Errors
/// No answer, nothing that is HTTP, or a body that breaks off.
pub(super) async fn exchange(
    mut line: Connection,
    head: &[u8],
    body: Bytes,
    upload: &Upload,
) -> Result<Answer, Error> {
    let mut sending = Some(Sending::new(head, body, upload.clone()));
    let mut is_whole = false;
    let mut buffer = BytesMut::with_capacity(READ);
    let mut interim = 0;
    loop {
        match Head::read(&buffer) {
            Ok(Some((head, length))) if matches!(head.status, 100 | 102..=199) && interim < INTERIM => {
                buffer.advance(length);
                interim += 1;
            }
            Ok(Some((mut head, length))) => {
                buffer.advance(length);
                head.reusable &= is_whole;
                // Who is refused need not be sent the rest.
                let rest = sending.filter(|_| head.status < 400);
                let mut answer = Answer::new(head, line, buffer).with_upload(rest);
                answer.surplus();
                return Ok(answer);
            }
            Ok(None) => {}
            Err(Malformed) => return Err(Error::from(Fault::InvalidResponse).classed(Class::Perhaps)),
        }
        buffer.reserve(READ.min(HEAD_LIMIT));
        let said = std::future::poll_fn(|cx| {
            if let Some(underway) = &mut sending {
                match underway.poll(&mut line.stream, cx) {
                    Poll::Ready(Sent::Broken(failure)) => return Poll::Ready(Err(failure)),
                    Poll::Ready(sent) => {
                        is_whole = matches!(sent, Sent::Whole);
                        sending = None;
                    }
                    Poll::Pending => {}
                }
            }
            poll_answer(&mut line.stream, cx, &mut buffer).map(Ok)
        });
        let cause = match said.await {
            Err(failure) => return Err(Error::from(failure).classed(Class::Never)),
            Ok(Ok(1..)) => continue,
            Ok(Ok(_)) => ErrorKind::UnexpectedEof.into(),
            Ok(Err(error)) => error,
        };
        if buffer.is_empty() && tls::is_refusal(&cause) {
            return Err(Error::from(Fault::Unreachable).because(cause));
        }
        return Err(Error::from(Fault::Reset).because(cause));
    }
}

/// A body on its way over HTTP/2.
pub(super) struct Streaming {
    stream: SendStream<Bytes>,
    piece: Bytes,
    upload: Upload,
}

impl Streaming {
    /// Begins with what is held of a body.
    pub(super) fn new(stream: SendStream<Bytes>, body: Bytes, upload: Upload) -> Self {
        Self { stream, piece: body, upload }
    }

    /// Sends as much as the engine takes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Sent> {
        loop {
            while !self.piece.is_empty() {
                self.stream.reserve_capacity(self.piece.len());
                let room = match self.stream.capacity() {
                    0 => match ready!(self.stream.poll_capacity(cx)) {
                        Some(Ok(room)) => room,
                        _ => return Poll::Ready(Sent::Refused),
                    },
                    room => room,
                };
                let piece = self.piece.split_to(room.min(self.piece.len()));
                if self.stream.send_data(piece, false).is_err() {
                    return Poll::Ready(Sent::Refused);
                }
            }
            match ready!(self.upload.poll_piece(cx)) {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(failure)) => {
                    self.stream.send_reset(h2::Reason::CANCEL);
                    return Poll::Ready(Sent::Broken(failure));
                }
                None => {
                    let ended = self.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(if ended.is_ok() { Sent::Whole } else { Sent::Refused });
                }
            }
        }
    }
}

impl fmt::Debug for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").field("upload", &self.upload).finish_non_exhaustive()
    }
}
