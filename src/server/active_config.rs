//! The configuration in force, and what is made of it: replaced as a whole, so that nobody sees half of it (faults O05).

use super::quota::Quotas;
use super::{App, descriptors};
use crate::config::{Config, Mistakes};
use std::sync::{Arc, PoisonError, RwLock};

/// What new requests find.
pub(super) struct ActiveConfig(RwLock<Arc<App>>);

impl ActiveConfig {
    pub(super) fn new(app: App) -> Self {
        Self(RwLock::new(Arc::new(app)))
    }

    pub(super) fn replace(&self, app: App) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(app);
    }

    /// As it is now.
    pub(super) fn app(&self) -> Arc<App> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl App {
    /// The same process with another configuration.
    ///
    /// # Errors
    /// There is nobody to ask.
    pub(super) fn with(&self, mut config: Config) -> Result<Self, Mistakes> {
        descriptors::provide(&mut config.limits);
        let pool = self.pool.renewed(&config, &self.metrics);
        let pool = pool.ok_or_else(|| Mistakes::one("upstream", "no engine is named"))?;
        let quotas = Quotas::of(config.auth.as_deref(), &self.quotas, &self.usages);
        Ok(Self { config: Arc::new(config), pool: Arc::new(pool), quotas: Arc::new(quotas), ..self.clone() })
    }
}
