//! The configuration in force: replaced as a whole, so that nobody sees half of it (faults O05).

use super::App;
use std::sync::{Arc, PoisonError, RwLock};

/// What new requests find.
pub(super) struct Present(RwLock<Arc<App>>);

impl Present {
    pub(super) fn new(app: App) -> Self {
        Self(RwLock::new(Arc::new(app)))
    }

    /// As it is now.
    pub(super) fn app(&self) -> Arc<App> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
