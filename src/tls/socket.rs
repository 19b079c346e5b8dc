//! Connections with or without TLS, behind one type.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// TCP connection, plain or with TLS. Used in both directions: towards clients and towards engines.
#[derive(Debug)]
pub enum Socket {
    /// Plain TCP connection.
    Plain(TcpStream),
    /// Encrypted connection, after its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Returns the underlying TCP stream, for socket options and addresses.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Returns true if ALPN has selected HTTP/2; `None` without TLS, where nothing is negotiated.
    pub fn speaks_http2(&self) -> Option<bool> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(stream.get_ref().1.alpn_protocol() == Some(super::HTTP2)),
        }
    }

    /// Returns true for TLS, which may buffer written bytes until they are flushed.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Returns true if bytes are buffered that the next read returns without a system call.
    pub fn holds_more(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => !stream.get_ref().1.wants_read(),
        }
    }

    /// Returns true if there is nothing to read, not even the end of the stream. Processes TLS messages that carry
    /// no data, such as session tickets.
    pub fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(stream) => {
                let mut space = [0; 1];
                let mut buffer = ReadBuf::new(&mut space);
                // Runs without the task's cooperative budget: once that is used up, tokio reports pending without
                // reading.
                let read =
                    std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buffer));
                let read = pin!(tokio::task::unconstrained(read));
                read.poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            }
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::Plain(stream)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
