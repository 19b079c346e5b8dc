//! Answer of an engine while it is read: the connection, and the position in the answer.
//!
//! An answer that is dropped before its end closes the connection, or resets its stream, so that the engine stops
//! working. An answer that was read to its end leaves a connection that may serve again.

use super::http1::{Framing, Head};
use super::http2_stream::{ReadProgress, Stream};
use super::outgoing::Connection;
use super::upload::{Sending, Sent};
use bytes::BytesMut;
use http::header::CONTENT_LENGTH;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of one read. The buffer is on the stack: a stream that waits for data holds none.
const READ: usize = 16 << 10;

/// Failure to read a body to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Connection ended too early.
    Reset,
    /// Framing is malformed, or the body exceeds a limit.
    Malformed,
}

/// Progress of a body after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// More data may follow.
    More,
    /// Body is complete.
    End,
}

/// Answer whose head has been read, with the source of its body.
#[derive(Debug)]
pub struct Answer {
    /// Status and headers.
    pub head: Head,
    source: BodySource,
    /// Rest of the request's body, if the answer has come before it was sent.
    upload: Option<Box<Sending>>,
    /// Bytes of the body that arrived with the head.
    rest: BytesMut,
    /// True if the last read has emptied the socket.
    drained: bool,
    /// Bytes of the body that [`Answer::peek`] has read ahead.
    seen: BytesMut,
    /// Number of requests that were sent for this answer.
    pub attempts: u32,
    /// True if the engine has closed the connection, or it broke.
    closed: bool,
}

/// Source of the rest of the answer.
#[derive(Debug)]
enum BodySource {
    /// HTTP/1.1 connection, which belongs to this answer alone.
    Connection(Connection),
    /// Stream of an HTTP/2 connection.
    Stream(Stream),
}

impl Answer {
    pub(super) fn new(mut head: Head, connection: Connection, rest: BytesMut) -> Self {
        // Bytes after a body that is empty by its head belong to no request.
        head.reusable &= head.framing != Framing::Over || rest.is_empty();
        Self::from(head, BodySource::Connection(connection), rest)
    }

    pub(super) fn of_stream(mut head: Head, stream: Stream) -> Self {
        if stream.is_over() {
            head.framing = Framing::Over;
        }
        Self::from(head, BodySource::Stream(stream), BytesMut::new())
    }

    fn from(head: Head, source: BodySource, rest: BytesMut) -> Self {
        Self {
            head,
            source,
            upload: None,
            rest,
            drained: false,
            seen: BytesMut::new(),
            attempts: 1,
            closed: false,
        }
    }

    /// Adds the rest of the request's body, which is still being sent.
    pub(super) fn with_upload(self, upload: Option<Sending>) -> Self {
        Self { upload: upload.map(Box::new), ..self }
    }

    /// Returns the length of the body in bytes, if the engine gives it. To be called before the body is read.
    pub fn length(&self) -> Option<u64> {
        match (&self.source, self.head.framing) {
            (_, Framing::Over) => Some(0),
            (BodySource::Connection(_), Framing::Length(length)) => Some(length),
            (BodySource::Stream(_), _) => self.head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok(),
            (BodySource::Connection(_), _) => None,
        }
    }

    /// Reads ahead until `enough` returns true for the front of the body, `limit` bytes are there, or the body
    /// ends. The bytes stay available to later reads.
    pub async fn peek(&mut self, limit: usize, enough: impl Fn(&[u8]) -> bool) -> &[u8] {
        let mut seen = std::mem::take(&mut self.seen);
        while seen.len() < limit && !enough(&seen) {
            let mut sink = |bytes: &[u8]| seen.extend_from_slice(bytes);
            match std::future::poll_fn(|cx| self.poll_read(cx, &mut sink)).await {
                Ok(Read::More) => {}
                // A later read meets the same end.
                Ok(Read::End) | Err(_) => break,
            }
        }
        self.seen = seen;
        &self.seen
    }

    /// Reads once from the connection, and passes the body bytes that arrive to `sink`, in pieces.
    ///
    /// # Errors
    /// Fails if the answer breaks off or is malformed. The bytes before that have been passed on.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<Read, ReadError>> {
        if !self.seen.is_empty() {
            sink(&std::mem::take(&mut self.seen));
            let over = self.head.framing == Framing::Over;
            return Poll::Ready(Ok(if over { Read::End } else { Read::More }));
        }
        if self.head.framing == Framing::Over {
            return Poll::Ready(Ok(Read::End));
        }
        let line = match &mut self.source {
            BodySource::Connection(line) => {
                if let Some(upload) = &mut self.upload
                    && let Poll::Ready(sent) = upload.poll(&mut line.stream, cx)
                {
                    self.upload = None;
                    if let Sent::Broken(_) = sent {
                        return Poll::Ready(Err(ReadError::Reset));
                    }
                }
                line
            }
            BodySource::Stream(stream) => {
                let piece = ready!(stream.poll_read(cx, sink));
                return Poll::Ready(self.piece(piece));
            }
        };
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(self.take(&rest, sink));
        }
        let mut space = [const { MaybeUninit::uninit() }; READ];
        let mut buffer = ReadBuf::uninit(&mut space);
        let read = ready!(Pin::new(&mut line.stream).poll_read(cx, &mut buffer));
        self.drained = buffer.remaining() > 0 && !line.stream.holds_more();
        self.closed = buffer.filled().is_empty();
        match read {
            Err(_) => Poll::Ready(Err(ReadError::Reset)),
            Ok(()) if buffer.filled().is_empty() => Poll::Ready(self.closed()),
            Ok(()) => Poll::Ready(self.take(buffer.filled(), sink)),
        }
    }

    /// Returns true if the last read has taken all that the socket held, as far as that is known.
    pub fn has_emptied_socket(&self) -> bool {
        self.drained
    }

    fn piece(&mut self, piece: ReadProgress) -> Result<Read, ReadError> {
        match piece {
            ReadProgress::Some => return Ok(Read::More),
            ReadProgress::Last => {}
            ReadProgress::Malformed => return Err(ReadError::Malformed),
            ReadProgress::Reset => {
                self.closed = true;
                return Err(ReadError::Reset);
            }
        }
        self.head.framing = Framing::Over;
        Ok(Read::End)
    }

    fn closed(&mut self) -> Result<Read, ReadError> {
        if self.head.framing != Framing::Close {
            return Err(ReadError::Reset);
        }
        self.head.framing = Framing::Over;
        Ok(Read::End)
    }

    fn take(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<Read, ReadError> {
        while !bytes.is_empty() && self.head.framing != Framing::Over {
            let step = self.head.framing.step(bytes).map_err(|_| ReadError::Malformed)?;
            let (front, rest) =
                bytes.split_at_checked(step.framing + step.data).ok_or(ReadError::Malformed)?;
            if step.data > 0 {
                sink(front.get(step.framing..).unwrap_or_default());
            }
            bytes = rest;
        }
        if self.head.framing != Framing::Over {
            return Ok(Read::More);
        }
        // Bytes after the body belong to no request: the next answer must not start with them.
        self.head.reusable &= bytes.is_empty();
        Ok(Read::End)
    }

    /// Reads and discards the rest of the body: at most four reads, so that an endless answer is not read for ever.
    ///
    /// # Errors
    /// Fails as [`Answer::poll_read`] does; also if more is left than the end of an answer.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        for _ in 0..4 {
            if let Read::End = ready!(self.poll_read(cx, &mut |_| {}))? {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(Err(ReadError::Malformed))
    }

    /// Reads the whole body, unless it is larger than `limit` bytes.
    ///
    /// # Errors
    /// Fails if the body breaks off or is too large, with what has arrived.
    pub async fn collect(&mut self, limit: usize) -> Result<BytesMut, (BytesMut, ReadError)> {
        let mut body = BytesMut::new();
        loop {
            let mut sink = |bytes: &[u8]| body.extend_from_slice(bytes);
            match std::future::poll_fn(|cx| self.poll_read(cx, &mut sink)).await {
                Ok(Read::End) => return Ok(body),
                Ok(Read::More) if body.len() < limit => {}
                Ok(Read::More) => return Err((body, ReadError::Malformed)),
                Err(broken) => return Err((body, broken)),
            }
        }
    }

    /// Returns true if the engine sends nothing more for this answer.
    pub fn has_ended(&self) -> bool {
        self.closed || self.head.framing == Framing::Over
    }

    /// Returns the connection if the answer was read to its end and another request may follow.
    pub(super) fn into_connection(self) -> Option<Connection> {
        let clean = self.head.framing == Framing::Over && self.head.reusable && self.rest.is_empty();
        match self.source {
            BodySource::Connection(line) if clean => Some(line),
            _ => None,
        }
    }
}
