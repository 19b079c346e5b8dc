//! HTTP/1.1 requests whose body is still arriving: sends the body and waits for the answer at the same time.

use super::answer::Answer;
use super::http1::{HEAD_LIMIT, Head, INTERIM, Malformed};
use super::outgoing::Connection;
use super::upload::{READ, Sending, Sent, Upload};
use crate::error::{Error, RetryClass};
use crate::tls::{self, Socket};
use crate::wire::fault::Fault;
use bytes::{Buf, Bytes, BytesMut};
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Reads what the engine sends while a request is being sent.
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

/// Sends a request on a new connection and reads the head of its answer, which may come before the body is
/// complete.
///
/// # Errors
/// Fails if no answer comes, if it is not HTTP, or if the client's body breaks off.
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
                // An engine that refuses the request need not get the rest.
                let rest = sending.filter(|_| head.status < 400);
                let mut answer = Answer::new(head, line, buffer).with_upload(rest);
                answer.reject_surplus();
                return Ok(answer);
            }
            Ok(None) => {}
            Err(Malformed) => {
                return Err(Error::from(Fault::InvalidResponse).with_class(RetryClass::MaybeProcessed));
            }
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
            Err(failure) => return Err(Error::from(failure).with_class(RetryClass::Never)),
            Ok(Ok(1..)) => continue,
            Ok(Ok(_)) => ErrorKind::UnexpectedEof.into(),
            Ok(Err(error)) => error,
        };
        if buffer.is_empty() && tls::is_refusal(&cause) {
            return Err(Error::from(Fault::Unreachable).with_source(cause));
        }
        return Err(Error::from(Fault::Reset).with_source(cause));
    }
}
