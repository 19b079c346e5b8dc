//! Store of the server: opened at the start, or retried until it opens; and the keys that seal reasoning, which the
//! store keeps where the configuration has none.

use super::persist::milliseconds;
use crate::config::{Config, StoreConfig};
use crate::seal::{KEY, SealKeys};
use crate::store::{DurationHook, Store, StoreError, StoreLocation};
use crate::telemetry::Metrics;
use crate::wire::fault::{Failure, Fault};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use parking_lot::RwLock;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use zeroize::Zeroizing;

/// Access to the store, which may not be open yet, with this process's identity, clock offset and keys.
pub(in crate::server) struct StoreHandle {
    config: StoreConfig,
    /// Interval at which this process reports to the store that it is alive.
    pub(in crate::server) heartbeat: Duration,
    store: RwLock<Option<Arc<Store>>>,
    watch: DurationHook,
    /// Milliseconds by which the store's clock is ahead of the local one.
    ahead: AtomicI64,
    /// Name of this process among those that share the store.
    pub(in crate::server) owner: Arc<str>,
    /// Keys that seal reasoning and compactions.
    keys: RwLock<Arc<SealKeys>>,
    /// True if the store keeps the key, since the configuration has none.
    keeps_key: bool,
}

impl StoreHandle {
    /// Opens the store. A store that is not required may fail now and be opened later.
    ///
    /// # Errors
    /// The store is required and cannot be opened, or there is no source of randomness.
    pub(in crate::server) async fn open(config: &Config, metrics: &Metrics) -> io::Result<Self> {
        let mut name = [0; 16];
        let mut key = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut name)
            .and_then(|()| getrandom::fill(&mut *key))
            .map_err(io::Error::other)?;
        let mut owner = String::new();
        HEXLOWER.encode_append(&name, &mut owner);
        let keys = config
            .seal
            .clone()
            .unwrap_or_else(|| Arc::new(SealKeys::of("process", &key)));
        let seconds = Arc::clone(&metrics.store);
        let this = Self {
            config: config.store.clone(),
            heartbeat: *config.timeouts.background_heartbeat,
            store: RwLock::default(),
            watch: Arc::new(move |name, took| seconds.observe(name, took)),
            ahead: AtomicI64::new(0),
            owner: owner.into(),
            keys: RwLock::new(keys),
            keeps_key: config.seal.is_none(),
        };
        match this.try_open().await {
            Err(error) if config.store.required => Err(io::Error::other(format!(
                "the store {:?} cannot be opened: {error}",
                config.store.place
            ))),
            Err(error) => {
                tracing::warn!(%error, "the store cannot be opened; responses are not stored meanwhile");
                Ok(this)
            }
            Ok(()) => Ok(this),
        }
    }

    pub(in crate::server) async fn try_open(&self) -> Result<(), StoreError> {
        let Some(store) = Store::open(&self.config.place, self.config.caps.clone()).await? else {
            return Ok(());
        };
        let store = store.watched(Arc::clone(&self.watch));
        if self.keeps_key {
            let key = stored_key(&store).await?;
            let keys = self.keys().preceded_by("store", &key);
            *self.keys.write() = Arc::new(keys);
        }
        *self.store.write() = Some(Arc::new(store));
        Ok(())
    }

    /// Returns the keys that seal reasoning and compactions.
    pub(in crate::server) fn keys(&self) -> Arc<SealKeys> {
        Arc::clone(&self.keys.read())
    }

    /// Returns true if the store is turned off in the configuration.
    pub(in crate::server) fn is_off(&self) -> bool {
        self.config.place == StoreLocation::Off
    }

    /// Returns the limit for the size of one record in bytes.
    pub(in crate::server) fn record_bytes(&self) -> u64 {
        self.config.caps.record_bytes
    }

    /// Returns the store, or `None` if it is turned off in the configuration. Fails if it is not open yet.
    pub(in crate::server) fn opened(&self) -> Result<Option<Arc<Store>>, Failure> {
        match self.store() {
            None if !self.is_off() => Err(Fault::StoreUnavailable.into()),
            store => Ok(store),
        }
    }

    /// Returns the store if it is open.
    pub(in crate::server) fn store(&self) -> Option<Arc<Store>> {
        self.store.read().clone()
    }

    /// Returns the current time by the store's clock, in milliseconds: replicas that share a store go by its
    /// clock.
    pub(in crate::server) fn now(&self) -> u64 {
        milliseconds().saturating_add_signed(self.ahead())
    }

    /// Returns the milliseconds by which the store's clock is ahead of the local one.
    pub(in crate::server) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Updates the offset to the store's clock.
    pub(in crate::server) async fn set_clock(&self, store: &Store) {
        let local = milliseconds();
        if let Ok(now) = store.clock(local).await {
            let ahead = i64::try_from(i128::from(now) - i128::from(local)).unwrap_or(0);
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }
}

/// Returns the key that the store keeps for all processes that share it; gives it a new one if it has none.
async fn stored_key(store: &Store) -> Result<Zeroizing<[u8; KEY]>, StoreError> {
    let mut key = Zeroizing::new([0; KEY]);
    getrandom::fill(&mut *key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let stored = store.seal_key(STANDARD.encode(*key).into()).await?;
    let decoded = Zeroizing::new(STANDARD.decode(stored.as_bytes()).unwrap_or_default());
    match decoded.as_slice().try_into() {
        Ok(key) => Ok(Zeroizing::new(key)),
        Err(_) => Err(StoreError::Unavailable(
            "its seal key is not 32 bytes in base64".to_owned(),
        )),
    }
}
