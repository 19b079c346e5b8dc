//! Preparation of captured exchanges for operators, on its own thread.
//!
//! Never: occupies the thread that serves operators. One exchange is prepared at a time, and few wait to be read, so that
//! memory stays bounded.

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of exchanges that are prepared at the same time.
static PLACES: Semaphore = Semaphore::const_new(1);
/// Number of prepared exchanges that have not been read to their end. Readers that do not read are closed in time.
static UNREAD: Semaphore = Semaphore::const_new(4);

/// Bytes of an answer, with their place among the unread ones.
struct PreparedBody<T> {
    bytes: T,
    _unread: SemaphorePermit<'static>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for PreparedBody<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Returns what `prepare` returns, once it is its turn; `None` if it cannot run, or returns nothing.
pub(super) async fn aside<T: AsRef<[u8]> + Send + 'static>(
    prepare: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<Bytes> {
    let unread = UNREAD.acquire().await.ok()?;
    let place = PLACES.acquire().await.ok()?;
    let prepared = tokio::task::spawn_blocking(move || {
        // The operator may leave meanwhile, which does not end this thread.
        let _place = place;
        prepare()
    });
    let bytes = prepared.await.ok()??;
    Some(Bytes::from_owner(PreparedBody {
        bytes,
        _unread: unread,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    async fn is_waiting<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn few_prepared_exchanges_wait_to_be_read() {
        let mut unread = Vec::new();
        for _ in 0..4 {
            unread.push(aside(|| Some("text")).await);
        }
        let mut next = pin!(aside(|| Some("next")));
        assert!(is_waiting(next.as_mut()).await);
        let part = unread.pop().flatten().map(|mut bytes| bytes.split_to(1));
        assert!(is_waiting(next.as_mut()).await, "a part is unread");
        drop(part);
        assert_eq!(next.await.as_deref(), Some("next".as_bytes()));
        assert_eq!(aside(|| None::<&str>).await, None);
    }
}
