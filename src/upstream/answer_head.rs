//! Head of an HTTP/1.1 answer, read from a connection whose request may still be under way.

use super::http1::{Malformed, ResponseHead};
use crate::error::{Error, RetryClass};
use crate::tls::{self, Socket};
use crate::wire::fault::{Failure, Fault, Unusable};
use bytes::BytesMut;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;

/// Free bytes of the buffer before each read.
const READ: usize = 2 << 10;

/// Reads the head of the answer, past interim answers, and leaves in `buffer` what follows it. `poll_read` appends
/// what the engine sends next, or fails if the request itself cannot be completed. `reused`: the connection has
/// served before, so that it is stale if it ends in silence, or if what comes first is no head: that belongs to an
/// answer before.
///
/// # Errors
/// Fails if the answer does not come or is not HTTP, or as `poll_read` does.
pub(super) async fn read_head(
    buffer: &mut BytesMut,
    reused: bool,
    mut poll_read: impl FnMut(
        &mut Context<'_>,
        &mut BytesMut,
    ) -> Poll<Result<io::Result<usize>, Failure>>,
) -> Result<ResponseHead, Error> {
    let mut interim = 0;
    loop {
        match ResponseHead::take(buffer, &mut interim) {
            Ok(Some(head)) => return Ok(head),
            Ok(None) => {}
            Err(Malformed) => {
                let failure = Failure::from(Unusable::Head);
                let stale = reused && interim == 0 && !buffer.starts_with(b"HTTP/");
                return Err(Error {
                    stale,
                    class: RetryClass::MaybeProcessed,
                    ..failure.into()
                });
            }
        }
        let cause = match poll_fn(|cx| poll_read(cx, buffer)).await {
            Err(failure) => return Err(Error::from(failure).with_class(RetryClass::Never)),
            Ok(Ok(1..)) => continue,
            Ok(Ok(0)) => ErrorKind::UnexpectedEof.into(),
            Ok(Err(error)) => error,
        };
        if !reused && buffer.is_empty() && tls::is_refusal(&cause) {
            return Err(Error::from(Fault::Unreachable).with_source(&cause));
        }
        let stale = reused && buffer.is_empty() && interim == 0;
        return Err(Error {
            stale,
            ..Error::from(Fault::Reset).with_source(&cause)
        });
    }
}

/// Appends what the engine sends next to the buffer. Returns the number of bytes; 0: the engine has closed the
/// connection.
pub(super) fn poll_append(
    stream: &mut Socket,
    cx: &mut Context<'_>,
    buffer: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    buffer.reserve(READ);
    pin!(stream.read_buf(buffer)).poll(cx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls;

    /// Reads a head from what arrives, piece by piece, before the connection ends; returns its status, or the fault
    /// and whether the connection counts as stale.
    async fn read(pieces: &[&str], reused: bool) -> Result<u16, (Fault, RetryClass, bool)> {
        let (mut buffer, mut pieces) = (BytesMut::new(), pieces.iter());
        let head = read_head(&mut buffer, reused, |_, buffer| {
            let piece = pieces.next().copied().unwrap_or("");
            buffer.extend_from_slice(piece.as_bytes());
            Poll::Ready(Ok(Ok(piece.len())))
        });
        head.await
            .map(|head| head.status)
            .map_err(|error| (error.public.fault, error.class, error.stale))
    }

    /// Checks that only a silent end of a connection that has served before allows the request to be sent again.
    #[tokio::test]
    async fn a_connection_is_stale_only_if_nothing_has_come() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\n";
        for (pieces, reused, is_stale) in [
            (&[][..], true, true),
            (&[], false, false),
            (&["HTTP/1.1 2"], true, false),
            (&[interim], true, false),
        ] {
            let error = read(pieces, reused).await.unwrap_err();
            assert_eq!(
                (error.0, error.2),
                (Fault::Reset, is_stale),
                "{pieces:?} {reused}"
            );
        }
        assert_eq!(
            read(&[interim, "HTTP/1.1 20", "0 OK\r\n\r\n"], true).await,
            Ok(200)
        );
        for (piece, reused, is_stale) in [
            ("SSH-2.0\r\n", false, false),
            ("SSH-2.0\r\n", true, true),
            ("HTTP/1.1 x\r\n\r\n", true, false),
        ] {
            let malformed = (Fault::InvalidResponse, RetryClass::MaybeProcessed, is_stale);
            assert_eq!(
                read(&[piece], reused).await,
                Err(malformed),
                "{piece} {reused}"
            );
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_sent_again() {
        let mut buffer = BytesMut::new();
        let head = read_head(&mut buffer, true, |_, _| {
            Poll::Ready(Err(Fault::RequestTimeout.into()))
        });
        let error = head.await.unwrap_err();
        let found = (error.public.fault, error.class, error.stale);
        assert_eq!(found, (Fault::RequestTimeout, RetryClass::Never, false));
    }

    /// Checks that an engine that rejects samewire's certificate counts as unreachable, unless it has accepted the
    /// connection before or has begun an answer.
    #[tokio::test]
    async fn a_certificate_is_rejected_before_the_first_answer() {
        let alert = || {
            let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
            io::Error::new(ErrorKind::InvalidData, alert)
        };
        for (begun, reused, expected) in [
            ("", false, (Fault::Unreachable, false)),
            ("", true, (Fault::Reset, true)),
            ("HTTP/1.1 2", false, (Fault::Reset, false)),
            ("HTTP/1.1 2", true, (Fault::Reset, false)),
        ] {
            let mut buffer = BytesMut::from(begun);
            let head = read_head(&mut buffer, reused, |_, _| Poll::Ready(Ok(Err(alert()))));
            let error = head.await.unwrap_err();
            assert_eq!(
                (error.public.fault, error.stale),
                expected,
                "{begun:?} {reused}"
            );
        }
        let mut buffer = BytesMut::new();
        let reset = || Poll::Ready(Ok(Err(ErrorKind::ConnectionReset.into())));
        let error = read_head(&mut buffer, false, |_, _| reset())
            .await
            .unwrap_err();
        assert_eq!(
            error.public.fault,
            Fault::Reset,
            "no other error is a rejection"
        );
    }
}
