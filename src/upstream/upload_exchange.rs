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

#[cfg(test)]
mod tests {
    use super::super::upload::Source;
    use super::*;
    use crate::wire::fault::Failure;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Context;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    /// Source of no bytes, which counts how often it is polled. It ends at once or never.
    struct Nothing {
        polls: Arc<AtomicUsize>,
        ends: bool,
    }

    impl Source for Nothing {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
            self.polls.fetch_add(1, Ordering::Relaxed);
            if self.ends {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    }

    /// Sends a request to an engine that has answered with this status already. Reads its answer, and returns how often
    /// the rest of the request was polled meanwhile and whether the connection may serve again.
    async fn early(status: u16, ends: bool) -> (usize, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let connection = Connection {
            stream: TcpStream::connect(to).await.unwrap().into(),
            to,
        };
        let (mut engine, _) = listener.accept().await.unwrap();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n");
        engine.write_all(head.as_bytes()).await.unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let upload = Upload::new(
            Nothing {
                polls: Arc::clone(&polls),
                ends,
            },
            None,
        );
        let mut answer = exchange(connection, b"HEAD ", Bytes::new(), &upload)
            .await
            .unwrap();
        let before = polls.load(Ordering::Relaxed);
        engine.write_all(b"ab").await.unwrap();
        assert_eq!(answer.collect(100).await.unwrap(), "ab");
        (
            polls.load(Ordering::Relaxed) - before,
            answer.into_connection().is_some(),
        )
    }

    #[tokio::test]
    async fn the_rest_of_a_body_goes_to_an_engine_that_accepts_the_request() {
        for (status, is_sent) in [(200, true), (399, true), (400, false), (413, false)] {
            let (polls, is_kept) = early(status, false).await;
            assert_eq!(polls > 0, is_sent, "{status}");
            assert!(!is_kept, "{status}: the request was not sent to its end");
        }
        assert_eq!(
            early(200, true).await,
            (0, true),
            "the request was sent to its end before"
        );
    }
}
