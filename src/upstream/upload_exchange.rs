//! HTTP/1.1 requests whose body is still arriving: sends the body and waits for the answer at the same time.

use super::answer::Answer;
use super::answer_head::{poll_append, read_head};
use super::outgoing::Connection;
use super::upload::{Sending, Sent, Upload};
use crate::error::Error;
use bytes::{Bytes, BytesMut};
use std::task::Poll;

/// Sends a request on a new connection and reads the head of its answer, which may come before the body is
/// complete.
///
/// # Errors
/// Fails if no answer comes, if it is not HTTP, or if the client's body breaks off.
pub(super) async fn exchange(
    mut connection: Connection,
    head: &[u8],
    body: Bytes,
    upload: &Upload,
) -> Result<Answer, Error> {
    let mut sending = Some(Sending::new(head, body, upload.clone()));
    let mut is_whole = false;
    let mut buffer = BytesMut::new();
    let head = read_head(&mut buffer, false, |cx, buffer| {
        if let Some(underway) = &mut sending {
            match underway.poll(&mut connection.stream, cx) {
                Poll::Ready(Sent::Broken(failure)) => return Poll::Ready(Err(failure)),
                Poll::Ready(sent) => {
                    is_whole = matches!(sent, Sent::Whole);
                    sending = None;
                }
                Poll::Pending => {}
            }
        }
        poll_append(&mut connection.stream, cx, buffer).map(Ok)
    });
    let mut head = head.await?;
    head.reusable &= is_whole;
    // An engine that refuses the request need not get the rest.
    let rest = sending.filter(|_| head.status < 400);
    Ok(Answer::new(head, connection, buffer).with_upload(rest))
}
