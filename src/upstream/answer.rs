//! An engine's answer while it is being read: the connection, and where in the answer it stands.
//!
//! Dropped before its end it closes the connection, or resets its stream: the engine stops working. Read to its end it
//! leaves a connection that may serve again.

use super::client::Connection;
use super::http1::{Framing, Head};
use super::http2::{ReadProgress, Stream};
use super::upload::{Sending, Sent};
use bytes::{Buf, BytesMut};
use http::header::CONTENT_LENGTH;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of one read. They lie on the stack: a stream that waits holds no buffer.
const READ: usize = 16 << 10;

/// The body cannot be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended too early.
    Reset,
    /// The framing is wrong.
    Malformed,
}

/// How far a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// There may be more.
    More,
    /// That was all.
    End,
}

/// An answer whose head has been read.
#[derive(Debug)]
pub struct Answer {
    /// Status and headers.
    pub head: Head,
    source: Source,
    /// The rest of the request's body, where the answer has come before it was sent.
    upload: Option<Box<Sending>>,
    /// What came along with the head.
    rest: BytesMut,
    /// The last read took all there was.
    drained: bool,
    /// Bytes of the body that were looked at, and are still to be read.
    seen: BytesMut,
    /// How often the engine was asked for it.
    pub attempts: u32,
    /// The engine has closed the connection, or it broke.
    closed: bool,
}

/// Where the rest of it comes from.
#[derive(Debug)]
enum Source {
    /// A connection of its own.
    Line(Connection),
    /// Its part of an HTTP/2 connection.
    Stream(Stream),
}

impl Answer {
    pub(super) fn new(head: Head, line: Connection, rest: BytesMut) -> Self {
        Self::from(head, Source::Line(line), rest)
    }

    pub(super) fn of_stream(mut head: Head, stream: Stream) -> Self {
        if stream.is_over() {
            head.framing = Framing::Over;
        }
        Self::from(head, Source::Stream(stream), BytesMut::new())
    }

    fn from(head: Head, source: Source, rest: BytesMut) -> Self {
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

    /// Returns how many bytes the body has, where the engine says so. Nothing has been read of it yet.
    pub fn length(&self) -> Option<u64> {
        match (&self.source, self.head.framing) {
            (_, Framing::Over) => Some(0),
            (Source::Line(_), Framing::Length(length)) => Some(length),
            (Source::Stream(_), _) => self.head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok(),
            (Source::Line(_), _) => None,
        }
    }

    /// Looks at the front of the body, as far as `enough` says, and no further than `limit` bytes or its end. It is still
    /// to be read.
    pub async fn look(&mut self, limit: usize, enough: impl Fn(&[u8]) -> bool) -> &[u8] {
        let mut seen = std::mem::take(&mut self.seen);
        while seen.len() < limit && !enough(&seen) {
            let mut sink = |bytes: &[u8]| seen.extend_from_slice(bytes);
            match std::future::poll_fn(|cx| self.poll_read(cx, &mut sink)).await {
                Ok(Read::More) => {}
                // Whoever reads on comes to the same end.
                Ok(Read::End) | Err(_) => break,
            }
        }
        self.seen = seen;
        &self.seen
    }

    /// Gives what one read of the connection brings of the body to `sink`, in pieces.
    ///
    /// # Errors
    /// The answer breaks off or is malformed. Everything before that has been given.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<Read, Broken>> {
        if !self.seen.is_empty() {
            sink(&std::mem::take(&mut self.seen));
            let over = self.head.framing == Framing::Over;
            return Poll::Ready(Ok(if over { Read::End } else { Read::More }));
        }
        if self.head.framing == Framing::Over {
            return Poll::Ready(Ok(Read::End));
        }
        let line = match &mut self.source {
            Source::Line(line) => {
                if let Some(upload) = &mut self.upload
                    && let Poll::Ready(sent) = upload.poll(&mut line.stream, cx)
                {
                    self.upload = None;
                    if let Sent::Broken(_) = sent {
                        return Poll::Ready(Err(Broken::Reset));
                    }
                }
                line
            }
            Source::Stream(stream) => {
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
            Err(_) => Poll::Ready(Err(Broken::Reset)),
            Ok(()) if buffer.filled().is_empty() => Poll::Ready(self.closed()),
            Ok(()) => Poll::Ready(self.take(buffer.filled(), sink)),
        }
    }

    /// The last read took all that the socket held, as far as that is known.
    pub fn has_drained(&self) -> bool {
        self.drained
    }

    fn piece(&mut self, piece: ReadProgress) -> Result<Read, Broken> {
        match piece {
            ReadProgress::Some => return Ok(Read::More),
            ReadProgress::Last => {}
            ReadProgress::Malformed => return Err(Broken::Malformed),
            ReadProgress::Reset => {
                self.closed = true;
                return Err(Broken::Reset);
            }
        }
        self.head.framing = Framing::Over;
        Ok(Read::End)
    }

    fn closed(&mut self) -> Result<Read, Broken> {
        if self.head.framing != Framing::Close {
            return Err(Broken::Reset);
        }
        self.head.framing = Framing::Over;
        Ok(Read::End)
    }

    fn take(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<Read, Broken> {
        while !bytes.is_empty() && self.head.framing != Framing::Over {
            let step = self.head.framing.step(bytes).map_err(|_| Broken::Malformed)?;
            let (front, rest) = bytes.split_at_checked(step.framing + step.data).ok_or(Broken::Malformed)?;
            if step.data > 0 {
                sink(front.get(step.framing..).unwrap_or_default());
            }
            bytes = rest;
        }
        if self.head.framing != Framing::Over {
            return Ok(Read::More);
        }
        // What stands behind the answer belongs to nobody: the next answer must not begin with it.
        self.head.reusable &= bytes.is_empty();
        Ok(Read::End)
    }

    /// Reads what is left of the body, for nobody: a piece at a time, so that an answer without end is not read for ever.
    ///
    /// # Errors
    /// As [`Answer::poll_read`]; also where more is left than the end of an answer.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        for _ in 0..4 {
            if let Read::End = ready!(self.poll_read(cx, &mut |_| {}))? {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(Err(Broken::Malformed))
    }

    /// Reads the whole body, or its first `limit` bytes.
    ///
    /// # Errors
    /// The body breaks off, with what came of it.
    pub async fn collect(&mut self, limit: usize) -> Result<BytesMut, (BytesMut, Broken)> {
        let mut body = BytesMut::new();
        loop {
            let mut sink = |bytes: &[u8]| body.extend_from_slice(bytes);
            match std::future::poll_fn(|cx| self.poll_read(cx, &mut sink)).await {
                Ok(Read::End) => return Ok(body),
                Ok(Read::More) if body.len() < limit => {}
                Ok(Read::More) => return Err((body, Broken::Malformed)),
                Err(broken) => return Err((body, broken)),
            }
        }
    }

    /// The engine has nothing left to say.
    pub fn is_over(&self) -> bool {
        self.closed || self.head.framing == Framing::Over
    }

    /// The connection, if the answer was read to its end and another request may follow.
    pub(super) fn into_connection(self) -> Option<Connection> {
        let clean = self.head.framing == Framing::Over && self.head.reusable && self.rest.is_empty();
        match self.source {
            Source::Line(line) if clean => Some(line),
            _ => None,
        }
    }

    /// What stands behind a body that was over with the head.
    pub(super) fn surplus(&mut self) {
        if self.head.framing == Framing::Over && self.rest.has_remaining() {
            self.head.reusable = false;
        }
    }
}
