//! Answer of an engine while it is read: the connection, and the position in the answer.
//!
//! An answer that is dropped before its end closes the connection, or resets its stream, so that the engine stops
//! working. An answer that was read to its end leaves a connection that may serve again.

use super::http1::{BodyFraming, ResponseHead};
use super::http2_stream::{ReadProgress, Stream};
use super::outgoing::Connection;
use super::upload::{Sending, Sent};
use crate::capture::{AnswerRecorder, AttemptRecorder};
use bytes::BytesMut;
use http::StatusCode;
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
    pub head: ResponseHead,
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
    /// Recorder of the attempt, if the request is captured.
    recorder: Option<AnswerRecorder>,
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
    pub(super) fn new(mut head: ResponseHead, connection: Connection, rest: BytesMut) -> Self {
        // Bytes after a body that is empty by its head belong to no request.
        head.reusable &= head.framing != BodyFraming::Over || rest.is_empty();
        Self::from(head, BodySource::Connection(connection), rest)
    }

    pub(super) fn of_stream(mut head: ResponseHead, stream: Stream) -> Self {
        if stream.is_over() {
            head.framing = BodyFraming::Over;
        }
        Self::from(head, BodySource::Stream(stream), BytesMut::new())
    }

    fn from(head: ResponseHead, source: BodySource, rest: BytesMut) -> Self {
        Self {
            head,
            source,
            upload: None,
            rest,
            drained: false,
            seen: BytesMut::new(),
            attempts: 1,
            closed: false,
            recorder: None,
        }
    }

    /// Adds the rest of the request's body, which is still being sent.
    pub(super) fn with_upload(self, upload: Option<Sending>) -> Self {
        Self {
            upload: upload.map(Box::new),
            ..self
        }
    }

    /// Adds the recorder of the attempt, and records the head, as HTTP/1.1 spells it.
    pub(super) fn recorded_by(mut self, recorder: &Option<AttemptRecorder>) -> Self {
        if let Some(recorder) = recorder {
            let status = StatusCode::from_u16(self.head.status).unwrap_or_default();
            self.recorder = recorder.answer_head(&format!("HTTP/1.1 {status}"), &self.head.headers);
        }
        self
    }

    /// Returns the length of the body in bytes, if the engine gives it. To be called before the body is read.
    pub fn length(&self) -> Option<u64> {
        match (&self.source, self.head.framing) {
            (_, BodyFraming::Over) => Some(0),
            (BodySource::Connection(_), BodyFraming::Length(length)) => Some(length),
            (BodySource::Stream(_), _) => self
                .head
                .headers
                .get(CONTENT_LENGTH)?
                .to_str()
                .ok()?
                .parse()
                .ok(),
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
            let over = self.head.framing == BodyFraming::Over;
            return Poll::Ready(Ok(if over { Read::End } else { Read::More }));
        }
        let Some(recorder) = self.recorder.take() else {
            return self.poll_source(cx, sink);
        };
        let read = self.poll_source(cx, &mut |bytes| {
            recorder.body(bytes);
            sink(bytes);
        });
        if let Poll::Ready(Ok(Read::End)) = &read {
            recorder.complete();
        }
        self.recorder = Some(recorder);
        read
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<Read, ReadError>> {
        if self.head.framing == BodyFraming::Over {
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
        self.head.framing = BodyFraming::Over;
        Ok(Read::End)
    }

    fn closed(&mut self) -> Result<Read, ReadError> {
        if self.head.framing != BodyFraming::Close {
            return Err(ReadError::Reset);
        }
        self.head.framing = BodyFraming::Over;
        Ok(Read::End)
    }

    fn take(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<Read, ReadError> {
        while !bytes.is_empty() && self.head.framing != BodyFraming::Over {
            let step = self
                .head
                .framing
                .step(bytes)
                .map_err(|_| ReadError::Malformed)?;
            let (front, rest) = bytes
                .split_at_checked(step.framing + step.data)
                .ok_or(ReadError::Malformed)?;
            if step.data > 0 {
                sink(front.get(step.framing..).unwrap_or_default());
            }
            bytes = rest;
        }
        if self.head.framing != BodyFraming::Over {
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
        self.closed || self.head.framing == BodyFraming::Over
    }

    /// Returns the connection if the answer was read to its end and another request may follow.
    pub(super) fn into_connection(self) -> Option<Connection> {
        let clean =
            self.head.framing == BodyFraming::Over && self.head.reusable && self.rest.is_empty();
        match self.source {
            BodySource::Connection(line) if clean => Some(line),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer_head::{poll_append, read_head};
    use super::*;
    use std::task::Waker;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    /// Returns an answer of which these bytes have come, and the engine's end of the connection.
    async fn answer(text: &str) -> (Answer, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let mut connection = Connection {
            stream: TcpStream::connect(to).await.unwrap().into(),
            to,
        };
        let (mut engine, _) = listener.accept().await.unwrap();
        engine
            .write_all(format!("HTTP/1.1 {text}").as_bytes())
            .await
            .unwrap();
        let mut buffer = BytesMut::new();
        let stream = &mut connection.stream;
        let head = read_head(&mut buffer, false, |cx, buffer| {
            poll_append(stream, cx, buffer).map(Ok)
        });
        (Answer::new(head.await.unwrap(), connection, buffer), engine)
    }

    /// Checks that a connection serves again only after an answer whose end is certain, with nothing after it.
    #[tokio::test]
    async fn connections_are_kept_only_behind_a_clean_end() {
        for (text, body, is_kept) in [
            ("200 OK\r\ncontent-length: 2\r\n\r\nab", Some("ab"), true),
            ("200 OK\r\ncontent-length: 2\r\n\r\nabc", Some("ab"), false),
            (
                "200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab",
                Some("ab"),
                false,
            ),
            (
                "200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                Some("ab"),
                true,
            ),
            (
                "200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nx",
                Some("ab"),
                false,
            ),
            ("204 No Content\r\n\r\n", Some(""), true),
            ("204 No Content\r\n\r\nx", Some(""), false),
            ("200 OK\r\n\r\nab", Some("ab"), false),
            ("200 OK\r\ncontent-length: 2\r\n\r\na", None, false),
            (
                "200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na",
                None,
                false,
            ),
        ] {
            let (mut answer, engine) = answer(text).await;
            assert_eq!(
                answer.has_ended(),
                body == Some(""),
                "{text}: before it is read"
            );
            drop(engine);
            match (answer.collect(100).await, body) {
                (Ok(read), Some(body)) => assert_eq!(read, body, "{text}"),
                (Err((read, ReadError::Reset)), None) => assert_eq!(&read[..], b"a", "{text}"),
                other => panic!("{text}: {other:?}"),
            }
            assert!(answer.has_ended(), "{text}");
            assert_eq!(answer.into_connection().is_some(), is_kept, "{text}");
        }
        let (answer, _engine) = answer("200 OK\r\ncontent-length: 2\r\n\r\nab").await;
        assert!(answer.into_connection().is_none(), "it was not read");
    }

    #[tokio::test]
    async fn lengths_are_known_before_the_body_is_read() {
        for (text, length) in [
            ("200 OK\r\ncontent-length: 2\r\n\r\nab", Some(2)),
            ("200 OK\r\ncontent-length: 0\r\n\r\n", Some(0)),
            ("304 Not Modified\r\ncontent-length: 2\r\n\r\n", Some(0)),
            (
                "200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                None,
            ),
            ("200 OK\r\n\r\n", None),
        ] {
            assert_eq!(answer(text).await.0.length(), length, "{text}");
        }
    }

    #[tokio::test]
    async fn what_is_seen_ahead_is_read_again() {
        let (mut answer, mut engine) = answer("200 OK\r\ncontent-length: 6\r\n\r\nab").await;
        assert_eq!(answer.peek(100, |seen| seen.contains(&b'b')).await, b"ab");
        assert_eq!(
            answer.peek(2, |_| false).await,
            b"ab",
            "the limit is reached"
        );
        assert!(
            !answer.has_emptied_socket(),
            "nothing was read but the head and what came with it"
        );
        engine.write_all(b"cd").await.unwrap();
        assert_eq!(answer.peek(3, |_| false).await, b"abcd");
        assert!(answer.has_emptied_socket());
        engine.write_all(b"ef").await.unwrap();
        assert_eq!(
            answer.peek(100, |_| false).await,
            b"abcdef",
            "the body is over"
        );
        assert_eq!(answer.collect(100).await.unwrap(), "abcdef");
        assert_eq!(answer.peek(100, |_| false).await, b"");
    }

    #[tokio::test]
    async fn a_body_goes_on_behind_what_is_seen_ahead() {
        let (mut answer, mut engine) = answer("200 OK\r\ncontent-length: 4\r\n\r\nab").await;
        assert_eq!(answer.peek(100, |seen| !seen.is_empty()).await, b"ab");
        engine.write_all(b"cd").await.unwrap();
        assert_eq!(answer.collect(100).await.unwrap(), "abcd");
    }

    #[tokio::test]
    async fn bodies_have_a_limit() {
        let (mut answer, mut engine) = answer("200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
        engine.write_all(b"d").await.unwrap();
        let (read, error) = answer.collect(4).await.unwrap_err();
        assert_eq!((&read[..], error), (&b"abcd"[..], ReadError::Malformed));
    }

    #[tokio::test]
    async fn a_rest_is_awaited_but_not_a_long_one() {
        let mut at_once = Context::from_waker(Waker::noop());
        let (mut whole, _engine) = answer("200 OK\r\ncontent-length: 2\r\n\r\nab").await;
        assert_eq!(whole.poll_rest(&mut at_once), Poll::Ready(Ok(())));
        let (mut open, mut engine) = answer("200 OK\r\n\r\n").await;
        assert_eq!(open.poll_rest(&mut at_once), Poll::Pending);
        let long = vec![b'x'; 8 * READ];
        let sending = async { engine.write_all(&long).await };
        let (rest, _) = tokio::join!(std::future::poll_fn(|cx| open.poll_rest(cx)), sending);
        assert_eq!(rest, Err(ReadError::Malformed));
    }
}
