//! Reading of files with a time limit. Touches no state of the server.

use std::time::Duration;

/// Time limit for reading files.
const READ: Duration = Duration::from_secs(10);
/// Error message for files that take longer.
pub(super) const UNREAD: &str = "a file of it cannot be read in time";

/// Runs a function that reads files, with a time limit: a read from a pipe or a lost disk may never end. `None` if
/// it takes too long.
pub(super) async fn in_time<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::time::timeout(READ, tokio::task::spawn_blocking(read))
        .await
        .ok()?
        .ok()
}
