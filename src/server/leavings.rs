//! Has a connection dropped where a test wants it, as if its client had left in that moment (property P12). Builds without
//! debug assertions have none of it.

use http::HeaderMap;

/// The number of times that the connection's task waits before it is dropped, counted from the request that has this header.
#[cfg(debug_assertions)]
const HEADER: &str = "x-samewire-leave";

#[cfg(debug_assertions)]
thread_local! {
    /// What the request said that is being read: it is read within its connection's task.
    static SAID: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

/// Notes what a request says of its connection.
#[cfg(debug_assertions)]
pub(super) fn arm(headers: &HeaderMap) {
    let waits = headers.get(HEADER).and_then(|waits| waits.to_str().ok()?.parse().ok());
    if waits.is_some() {
        SAID.set(waits);
    }
}

/// A connection that is dropped when it has waited as often as one of its requests has said.
#[cfg(debug_assertions)]
pub(super) async fn dropped_in_time(connection: impl Future<Output = ()>) {
    let mut connection = Some(Box::pin(connection));
    let mut left = None;
    std::future::poll_fn(|cx| {
        let Some(running) = &mut connection else { return std::task::Poll::Ready(()) };
        let polled = running.as_mut().poll(cx);
        left = SAID.take().or(left);
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
pub(super) fn arm(_: &HeaderMap) {}

#[cfg(not(debug_assertions))]
pub(super) fn dropped_in_time<F: Future<Output = ()>>(connection: F) -> F {
    connection
}
