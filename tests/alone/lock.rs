//! Lock that lets one test of this binary run at a time.

use tokio::sync::{Mutex, MutexGuard};

static ONE: Mutex<()> = Mutex::const_new(());

/// Waits until no other test of this binary runs.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().await
}

/// Waits like [`alone`], in a test without a runtime.
pub(crate) fn alone_blocking() -> MutexGuard<'static, ()> {
    ONE.blocking_lock()
}
