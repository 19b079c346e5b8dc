//! Request bodies that are sent while they arrive: memory holds no more of a body than the engine's connection
//! takes.
//!
//! Takes: an [`Upload`]. Gives: the engine's answer, even one that comes before the body is complete. Never: takes
//! a piece of the body before the previous one has been sent.

use crate::capture::AttemptRecorder;
use crate::request::EngineBody;
use crate::tls::Socket;
use crate::wire::fault::Failure;
use bytes::{Buf, Bytes, BytesMut};
use h2::SendStream;
use parking_lot::Mutex;
use std::fmt;
use std::fmt::Write as _;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Source of the rest of a request body, usually the connection of the client.
pub trait Source: Send {
    /// Returns the next piece, which is not empty; `None` after the last.
    ///
    /// # Errors
    /// Fails if the body cannot be read to its end; the client gets this failure as its error.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>>;
}

/// Rest of a request's body, after [`Outgoing::body`](super::Outgoing::body). Clones share the source, so that each
/// piece is taken only once.
#[derive(Clone)]
pub struct Upload {
    source: Arc<Mutex<dyn Source>>,
    begun: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
    /// Number of bytes that are still to come, if it is known; otherwise HTTP/1.1 sends the whole body in chunks.
    pub length: Option<u64>,
    /// Recorder of the attempt, if the exchange is captured.
    recorder: Option<AttemptRecorder>,
}

impl Upload {
    /// Creates an upload of which nothing has been taken; `length` is the number of bytes if it is known.
    pub fn new(source: impl Source + 'static, length: Option<u64>) -> Self {
        Self {
            source: Arc::new(Mutex::new(source)),
            begun: Arc::default(),
            failed: Arc::default(),
            length,
            recorder: None,
        }
    }

    /// Returns the upload of one attempt, whose pieces are recorded.
    #[must_use]
    pub fn recorded_by(&self, recorder: Option<&AttemptRecorder>) -> Self {
        Self {
            recorder: recorder.cloned(),
            ..self.clone()
        }
    }

    /// Returns true if a piece has been taken, so that the request cannot be sent again.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns true if the client has broken off before the end of the body.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let piece = ready!(self.source.lock().poll_piece(cx));
        self.begun.store(true, Ordering::Relaxed);
        self.failed
            .store(matches!(piece, Some(Err(_))), Ordering::Relaxed);
        if let (Some(recorder), Some(Ok(piece))) = (&self.recorder, &piece) {
            recorder.request_body(piece);
        }
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

/// Source without a piece.
struct Nothing;

impl Source for Nothing {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        Poll::Ready(None)
    }
}

/// Result of sending a body.
#[derive(Debug)]
pub(super) enum Sent {
    /// Complete body was sent.
    Whole,
    /// Engine accepts no more: its answer says why.
    Refused,
    /// Source of the body has failed.
    Broken(Failure),
}

/// State of a request that is being sent over HTTP/1.1.
#[derive(Debug)]
pub(super) struct Sending {
    /// Bytes before the piece: the head of the request, or of a chunk.
    before: BytesMut,
    piece: Bytes,
    /// Bytes after the piece.
    after: &'static [u8],
    upload: Upload,
    is_over: bool,
}

impl Sending {
    pub(super) fn new(head: &[u8], body: Bytes, upload: Upload) -> Self {
        let before = BytesMut::from(head);
        let mut this = Self {
            before,
            piece: Bytes::new(),
            after: b"",
            upload,
            is_over: false,
        };
        this.take(body);
        this
    }

    /// Returns the rest of a request in memory: its last `unsent` bytes.
    pub(super) fn rest(head: &[u8], body: &EngineBody, unsent: usize) -> Self {
        let body = body.joined();
        let of_body = unsent.min(body.len());
        let head = head
            .get((head.len() + of_body).saturating_sub(unsent)..)
            .unwrap_or_default();
        Self::new(
            head,
            body.slice(body.len() - of_body..),
            Upload::new(Nothing, Some(0)),
        )
    }

    /// Makes `piece` the next one to send: as a chunk if the length of the body is not known.
    fn take(&mut self, piece: Bytes) {
        if self.upload.length.is_none() && !piece.is_empty() {
            let _ = write!(self.before, "{:x}\r\n", piece.len());
            self.after = b"\r\n";
        }
        self.piece = piece;
    }

    /// Marks the body as complete, with the last chunk if it is sent in chunks.
    fn end(&mut self) {
        self.is_over = true;
        if self.upload.length.is_none() {
            self.after = b"0\r\n\r\n";
        }
    }

    fn is_out(&self) -> bool {
        self.before.is_empty() && self.piece.is_empty() && self.after.is_empty()
    }

    /// Removes the bytes that were sent.
    fn advance(&mut self, written: usize) {
        let of_before = written.min(self.before.len());
        let of_piece = (written - of_before).min(self.piece.len());
        let of_after = (written - of_before - of_piece).min(self.after.len());
        self.before.advance(of_before);
        self.piece.advance(of_piece);
        self.after.advance(of_after);
    }

    /// Sends as much as the engine accepts. Ready once the body is sent, or cannot be.
    pub(super) fn poll(&mut self, stream: &mut Socket, cx: &mut Context<'_>) -> Poll<Sent> {
        loop {
            while !self.is_out() {
                let pieces = [
                    IoSlice::new(&self.before),
                    IoSlice::new(&self.piece),
                    IoSlice::new(self.after),
                ];
                match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &pieces)) {
                    Ok(written @ 1..) => self.advance(written),
                    Ok(0) | Err(_) => return Poll::Ready(Sent::Refused),
                }
            }
            if self.is_over {
                let flushed = ready!(Pin::new(&mut *stream).poll_flush(cx));
                return Poll::Ready(if flushed.is_ok() {
                    Sent::Whole
                } else {
                    Sent::Refused
                });
            }
            match self.upload.poll_piece(cx) {
                Poll::Ready(Some(Ok(piece))) => self.take(piece),
                Poll::Ready(Some(Err(failure))) => return Poll::Ready(Sent::Broken(failure)),
                Poll::Ready(None) => self.end(),
                Poll::Pending => {
                    // The data so far must not wait for data to come.
                    return match Pin::new(&mut *stream).poll_flush(cx) {
                        Poll::Ready(Err(_)) => Poll::Ready(Sent::Refused),
                        _ => Poll::Pending,
                    };
                }
            }
        }
    }
}

/// State of a body that is being sent over HTTP/2.
pub(super) struct UploadState {
    stream: SendStream<Bytes>,
    piece: Bytes,
    upload: Upload,
}

impl UploadState {
    /// Starts with the part of the body that is in memory.
    pub(super) fn new(stream: SendStream<Bytes>, body: Bytes, upload: Upload) -> Self {
        Self {
            stream,
            piece: body,
            upload,
        }
    }

    /// Returns the rest of a body in memory: its last `unsent` bytes.
    pub(super) fn rest(stream: SendStream<Bytes>, body: &EngineBody, unsent: usize) -> Self {
        let body = body.joined();
        Self::new(
            stream,
            body.slice(body.len().saturating_sub(unsent)..),
            Upload::new(Nothing, Some(0)),
        )
    }

    /// Sends as much as the engine accepts. Ready once the body is sent, or cannot be.
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
                    return Poll::Ready(if ended.is_ok() {
                        Sent::Whole
                    } else {
                        Sent::Refused
                    });
                }
            }
        }
    }
}

impl fmt::Debug for UploadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming")
            .field("upload", &self.upload)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fault::Fault;
    use std::collections::VecDeque;
    use std::task::Waker;

    /// Source of these pieces; `None` in their place: it fails.
    struct Pieces(VecDeque<Option<&'static str>>);

    impl Source for Pieces {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
            let piece = |piece: Option<&'static str>| {
                piece
                    .map(Bytes::from)
                    .ok_or_else(|| Fault::RequestTimeout.into())
            };
            Poll::Ready(self.0.pop_front().map(piece))
        }
    }

    fn upload(pieces: &[Option<&'static str>], length: Option<u64>) -> Upload {
        Upload::new(Pieces(pieces.iter().copied().collect()), length)
    }

    /// Returns what is sent of a request if each write takes at most `most` bytes.
    fn sent(
        body: &'static str,
        pieces: &[Option<&'static str>],
        length: Option<u64>,
        most: usize,
    ) -> String {
        let mut sending = Sending::new(b"HEAD ", Bytes::from(body), upload(pieces, length));
        let mut sent = Vec::new();
        loop {
            while !sending.is_out() {
                let all = [&sending.before[..], &sending.piece[..], sending.after].concat();
                let written = most.min(all.len());
                sent.extend_from_slice(&all[..written]);
                sending.advance(written);
            }
            if sending.is_over {
                return String::from_utf8(sent).unwrap();
            }
            match sending
                .upload
                .poll_piece(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(Some(Ok(piece))) => sending.take(piece),
                Poll::Ready(None) => sending.end(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Checks that a body of unknown length is sent in chunks and ends with the last one, however little the engine
    /// takes at once.
    #[test]
    fn bodies_are_sent_whole_in_writes_of_any_size() {
        let pieces = [Some("0123456789abcdef0"), Some("x")];
        for most in 1..64 {
            assert_eq!(
                sent("ab", &pieces, Some(18), most),
                "HEAD ab0123456789abcdef0x",
                "{most}"
            );
            let chunks = "HEAD 2\r\nab\r\n11\r\n0123456789abcdef0\r\n1\r\nx\r\n0\r\n\r\n";
            assert_eq!(sent("ab", &pieces, None, most), chunks, "{most}");
            assert_eq!(sent("", &[], None, most), "HEAD 0\r\n\r\n", "{most}");
            assert_eq!(sent("", &[], Some(0), most), "HEAD ", "{most}");
        }
    }

    #[test]
    fn an_upload_tells_how_far_it_has_come() {
        let state = |upload: &Upload| (upload.has_begun(), upload.has_failed());
        let take = |upload: &Upload| upload.poll_piece(&mut Context::from_waker(Waker::noop()));
        let upload = upload(&[Some("a"), None], None);
        let clone = upload.clone();
        assert_eq!(state(&upload), (false, false));
        assert!(matches!(take(&upload), Poll::Ready(Some(Ok(_)))));
        assert_eq!(
            (state(&upload), state(&clone)),
            ((true, false), (true, false)),
            "clones share it"
        );
        assert!(matches!(take(&clone), Poll::Ready(Some(Err(_)))));
        assert_eq!(
            (state(&upload), state(&clone)),
            ((true, true), (true, true))
        );
    }
}
