//! Progress of a request body that is relayed while it arrives.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Progress of a body that is still arriving, shared with the code that waits for the engine.
pub(in crate::server) struct UploadProgress {
    begun: Instant,
    /// Milliseconds from `begun` to the last piece that was taken.
    moved: AtomicU64,
    bytes: AtomicUsize,
    ended: AtomicBool,
}

impl UploadProgress {
    /// Returns the bytes received so far.
    pub(in crate::server) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if the whole body has been received.
    pub(in crate::server) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the time at which the last piece was taken.
    pub(in crate::server) fn moved(&self) -> Instant {
        self.begun + Duration::from_millis(self.moved.load(Ordering::Relaxed))
    }

    pub(in crate::server) fn take(&self, bytes: usize) -> usize {
        let moved = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(moved, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Notes that the whole body has been received.
    pub(in crate::server) fn end(&self) {
        self.take(0);
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Default for UploadProgress {
    fn default() -> Self {
        let (moved, bytes, ended) = (
            AtomicU64::new(0),
            AtomicUsize::new(0),
            AtomicBool::new(false),
        );
        Self {
            begun: Instant::now(),
            moved,
            bytes,
            ended,
        }
    }
}
