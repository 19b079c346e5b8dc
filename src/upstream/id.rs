//! Ids of upstreams.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// Id of the next upstream of this process, less one.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Number that is unique within this process, also after the configuration was reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamId(NonZeroU64);

impl UpstreamId {
    /// Creates an id that no other upstream has.
    pub(super) fn new() -> Self {
        Self(NonZeroU64::MIN.saturating_add(COUNT.fetch_add(1, Ordering::Relaxed)))
    }
}
