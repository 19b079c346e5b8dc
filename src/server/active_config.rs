//! Active configuration and the state derived from it, replaced as a whole so that no request sees a mixture
//! (faults O05).

use super::App;
use super::admit::AdmitState;
use super::admit::quota::Quotas;
use super::net::descriptors;
use crate::config::{Config, Mistakes};
use parking_lot::RwLock;
use std::sync::Arc;

/// Holder of the [`App`] that new requests use; a reload replaces it.
pub(super) struct ActiveConfig(RwLock<Arc<App>>);

impl ActiveConfig {
    pub(super) fn new(app: App) -> Self {
        Self(RwLock::new(Arc::new(app)))
    }

    pub(super) fn replace(&self, app: App) {
        *self.0.write() = Arc::new(app);
    }

    /// Returns the current state.
    pub(super) fn app(&self) -> Arc<App> {
        Arc::clone(&self.0.read())
    }
}

impl App {
    /// Returns the state of this process for another configuration. Pool and quotas carry over what still applies.
    ///
    /// # Errors
    /// No upstream is configured.
    pub(super) fn reconfigured(&self, mut config: Config) -> Result<Self, Mistakes> {
        descriptors::fit_limits(&mut config.limits);
        let pool = self.pool.renewed(&config, &self.metrics);
        let pool = pool.ok_or_else(|| Mistakes::one("upstream", "no engine is named"))?;
        let quotas = Quotas::of(
            config.auth.as_deref(),
            config.shared_limits,
            &self.admit.quotas,
            &self.admit.usages,
        );
        let admit = AdmitState {
            quotas: Arc::new(quotas),
            ..self.admit.clone()
        };
        Ok(Self {
            config: Arc::new(config),
            pool: Arc::new(pool),
            admit,
            ..self.clone()
        })
    }
}
