//! Test hook that drops a connection at a chosen moment, as if its client had disconnected (property P12). Builds
//! without debug assertions have none of it.

use http::HeaderMap;

/// Header with the number of polls of the connection's task before it is dropped, counted from the request with
/// the header.
#[cfg(debug_assertions)]
const HEADER: &str = "x-samewire-leave";

#[cfg(debug_assertions)]
thread_local! {
    /// Value of the request that is being read, within the task of its connection.
    static ARMED: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

/// Notes the value of a request for its connection.
#[cfg(debug_assertions)]
pub(in crate::server) fn arm(headers: &HeaderMap) {
    let waits = headers
        .get(HEADER)
        .and_then(|waits| waits.to_str().ok()?.parse().ok());
    if waits.is_some() {
        ARMED.set(waits);
    }
}

/// Runs a connection and drops it after as many polls as one of its requests has named.
#[cfg(debug_assertions)]
pub(in crate::server) async fn dropped_in_time(connection: impl Future<Output = ()>) {
    let mut connection = Some(Box::pin(connection));
    let mut left = None;
    std::future::poll_fn(|cx| {
        let Some(running) = &mut connection else {
            return std::task::Poll::Ready(());
        };
        let polled = running.as_mut().poll(cx);
        left = ARMED.take().or(left);
        match &mut left {
            Some(0) => {
                connection = None;
                std::task::Poll::Ready(())
            }
            Some(waits) => {
                *waits -= 1;
                polled
            }
            None => polled,
        }
    })
    .await;
}

#[cfg(not(debug_assertions))]
pub(in crate::server) fn arm(_: &HeaderMap) {}

#[cfg(not(debug_assertions))]
pub(in crate::server) fn dropped_in_time<F: Future<Output = ()>>(connection: F) -> F {
    connection
}
