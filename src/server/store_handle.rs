//! The store as the server has it: opened at the start, or again and again until it can be; and the keys that seal
//! reasoning.

use super::persist::milliseconds;
use super::{ActiveConfig, background};
use crate::config::{Config, StoreConfig};
use crate::seal::{KEY, Keys};
use crate::store::{Place, Store, Watch};
use crate::telemetry::Metrics;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;
use zeroize::Zeroizing;

/// How often a store that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Between two times that expired records are removed.
const SWEEP: Duration = Duration::from_secs(60);
/// Between two looks at what others want of what is made here, and at what lies behind.
const LOOK: Duration = Duration::from_secs(1);

/// Where responses are kept.
pub(super) struct StoreHandle {
    config: StoreConfig,
    /// How long an operation may take.
    call: Duration,
    /// How often this process says that it lives.
    heartbeat: Duration,
    store: RwLock<Option<Arc<Store>>>,
    watch: Watch,
    /// Milliseconds by which the store's clock is ahead.
    ahead: AtomicI64,
    /// This process, among those that share the store.
    pub(super) owner: Arc<str>,
    /// What seals reasoning.
    pub(super) keys: Arc<Keys>,
}

impl StoreHandle {
    /// Opens the store. One that is not required may be opened later.
    ///
    /// # Errors
    /// The store is required and cannot be opened, or there is no randomness.
    pub(super) async fn open(config: &Config, metrics: &Metrics) -> io::Result<Self> {
        let mut name = [0; 16];
        let mut key = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut name).and_then(|()| getrandom::fill(&mut *key)).map_err(io::Error::other)?;
        let mut owner = String::new();
        super::routes::hex(&name, &mut owner);
        let keys = config.seal.clone().unwrap_or_else(|| Arc::new(Keys::of("process", &key)));
        let seconds = Arc::clone(&metrics.store);
        let this = Self {
            config: config.store.clone(),
            call: *config.timeouts.store_call,
            heartbeat: *config.timeouts.background_heartbeat,
            store: RwLock::default(),
            watch: Arc::new(move |name, took| seconds.observe(name, took)),
            ahead: AtomicI64::new(0),
            owner: owner.into(),
            keys,
        };
        match this.try_open().await {
            Err(error) if config.store.required => {
                Err(io::Error::other(format!("the store {:?} cannot be opened: {error}", config.store.place)))
            }
            Err(error) => {
                tracing::warn!(%error, "the store cannot be opened; responses are not stored meanwhile");
                Ok(this)
            }
            Ok(()) => Ok(this),
        }
    }

    async fn try_open(&self) -> Result<(), crate::store::Error> {
        let store = Store::open(&self.config.place, self.config.caps.clone()).await?;
        *self.store.write().unwrap_or_else(PoisonError::into_inner) =
            store.map(|store| Arc::new(store.within(self.call).watched(Arc::clone(&self.watch))));
        Ok(())
    }

    /// Nothing is stored, and that is meant so.
    pub(super) fn is_off(&self) -> bool {
        self.config.place == Place::Off
    }

    /// Bytes of one record.
    pub(super) fn record_bytes(&self) -> u64 {
        self.config.caps.record_bytes
    }

    /// The store, if it is there.
    pub(super) fn store(&self) -> Option<Arc<Store>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Now, as the store counts: replicas that share one go by its clock.
    pub(super) fn now(&self) -> u64 {
        milliseconds().saturating_add_signed(self.ahead())
    }

    /// Milliseconds by which the store's clock is ahead.
    pub(super) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Asks the store for its clock.
    async fn set_clock(&self, store: &Store) {
        let local = milliseconds();
        if let Ok(now) = store.clock(local).await {
            let ahead = i64::try_from(i128::from(now) - i128::from(local)).unwrap_or(0);
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }
}

/// Opens the store if it could not be opened before, removes what has expired, and looks after what is made in the
/// background; for ever.
pub(super) async fn tend(present: &ActiveConfig) {
    let store_handle = &Arc::clone(&present.app().store_handle);
    while !store_handle.is_off() && store_handle.store().is_none() {
        tokio::time::sleep(RETRY).await;
        if store_handle.try_open().await.is_ok() {
            tracing::info!("the store is open");
        }
    }
    let Some(store) = store_handle.store() else { return };
    let mut more = false;
    let (mut beats, mut sweeps) = (RetryInterval::of(store_handle.heartbeat), RetryInterval::of(SWEEP));
    loop {
        let beat = beats.is_due();
        if beat {
            store_handle.set_clock(&store).await;
        }
        background::tend(&present.app(), &store, beat).await;
        if beat || more {
            more = background::close_lost(&present.app(), &store).await;
        }
        if sweeps.is_due()
            && let Err(error) = store.sweep(store_handle.now()).await
        {
            tracing::warn!(%error, "expired responses cannot be removed");
        }
        tokio::time::sleep(LOOK.min(store_handle.heartbeat)).await;
    }
}

/// Something that is done now and then.
struct RetryInterval {
    every: Duration,
    last: Option<Instant>,
}

impl RetryInterval {
    /// For the first time at once.
    fn of(every: Duration) -> Self {
        Self { every, last: None }
    }

    /// Whether it is time again.
    fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.every);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}
