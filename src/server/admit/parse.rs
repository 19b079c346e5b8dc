//! Parsing of request bodies, without keeping the other requests of the thread waiting.

use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use tokio::task::spawn_blocking;

/// Length in bytes from which a body is parsed on its own thread. A thread takes about as long to begin as a body
/// of this length takes to be parsed: a fifth of a millisecond.
const LONG: usize = 1 << 20;

/// Parses a request body. A long one is parsed on another thread, so that the streams of this one go on meanwhile.
///
/// # Errors
/// The error of `parse`.
///
/// # Panics
/// Panics if `parse` does.
pub(in crate::server) async fn parse<T: Send + 'static>(
    body: &Bytes,
    parse: impl FnOnce(&Bytes) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if body.len() < LONG {
        return parse(body);
    }
    let body = body.clone();
    match spawn_blocking(move || parse(&body))
        .await
        .map_err(tokio::task::JoinError::try_into_panic)
    {
        Ok(parsed) => parsed,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The process is ending.
        Err(Err(_)) => Err(Fault::Proxy.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[tokio::test]
    async fn long_bodies_are_parsed_on_another_thread() {
        for (length, is_here) in [(0, true), (LONG - 1, true), (LONG, false)] {
            let body = Bytes::from(vec![b' '; length]);
            let parsed = parse(&body, |body| Ok((body.len(), thread::current().id())))
                .await
                .unwrap();
            assert_eq!(
                (parsed.0, parsed.1 == thread::current().id()),
                (length, is_here)
            );
            let failed = parse(&body, |_| Err::<(), _>(Fault::InvalidJson.into()))
                .await
                .unwrap_err();
            assert_eq!(failed.fault, Fault::InvalidJson);
        }
    }

    #[tokio::test]
    #[should_panic(expected = "while parsing")]
    async fn a_panic_on_the_other_thread_goes_on_here() {
        let body = Bytes::from(vec![b' '; LONG]);
        let parsed = parse(&body, |_| -> Result<(), _> { panic!("while parsing") });
        assert!(parsed.await.is_ok());
    }
}
