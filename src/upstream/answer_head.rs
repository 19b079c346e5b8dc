//! Head of an HTTP/1.1 answer, read from a connection whose request may still be under way.

use super::http1::{Head, Malformed};
use crate::error::{Error, RetryClass};
use crate::tls::{self, Socket};
use crate::wire::fault::{Failure, Fault};
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
/// served before, so that its silent end is marked as stale.
///
/// # Errors
/// Fails if the answer does not come or is not HTTP, or as `poll_read` does.
pub(super) async fn read_head(
    buffer: &mut BytesMut,
    reused: bool,
    mut poll_read: impl FnMut(&mut Context<'_>, &mut BytesMut) -> Poll<Result<io::Result<usize>, Failure>>,
) -> Result<Head, Error> {
    let mut interim = 0;
    loop {
        match Head::take(buffer, &mut interim) {
            Ok(Some(head)) => return Ok(head),
            Ok(None) => {}
            Err(Malformed) => {
                return Err(Error::from(Fault::InvalidResponse).with_class(RetryClass::MaybeProcessed));
            }
        }
        let cause = match poll_fn(|cx| poll_read(cx, buffer)).await {
            Err(failure) => return Err(Error::from(failure).with_class(RetryClass::Never)),
            Ok(Ok(1..)) => continue,
            Ok(Ok(0)) => ErrorKind::UnexpectedEof.into(),
            Ok(Err(error)) => error,
        };
        if !reused && buffer.is_empty() && tls::is_refusal(&cause) {
            return Err(Error::from(Fault::Unreachable).with_source(cause));
        }
        let stale = reused && buffer.is_empty() && interim == 0;
        return Err(Error { stale, ..Error::from(Fault::Reset).with_source(cause) });
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
