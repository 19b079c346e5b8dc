//! Preparation of captured exchanges for operators, on a thread of its own.
//!
//! Never: occupies the thread that serves operators; one exchange is prepared at a time, so that memory stays bounded.

use tokio::sync::Semaphore;

/// Number of exchanges that are prepared at the same time.
static PLACES: Semaphore = Semaphore::const_new(1);

/// Returns what `prepare` returns, once it is its turn; `None` if it cannot run.
pub(super) async fn aside<T: Send + 'static>(prepare: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let place = PLACES.acquire().await.ok()?;
    let prepared = tokio::task::spawn_blocking(move || {
        // The operator may leave meanwhile, which does not end this thread.
        let _place = place;
        prepare()
    });
    prepared.await.ok()
}
