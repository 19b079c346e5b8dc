//! Upstreams: the way to an engine, and whether it is there.

mod answer;
mod client;
pub mod health;
mod http1;
pub mod models;

pub use answer::{Answer, Broken, Read};
pub use client::{Client, Outgoing};
pub use http1::Head;

use crate::config::UpstreamConfig;
use crate::engine::{self, Engine};
use crate::plan::Route;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;

/// Most model names that are kept as labels.
const MODELS: usize = 256;

/// One upstream: what is configured of it, and what it has told.
#[derive(Debug)]
pub struct Upstream {
    /// As configured.
    pub config: UpstreamConfig,
    /// Bytes of one event.
    max_event_bytes: usize,
    /// What it turned out to be, where the configuration leaves that open.
    found: RwLock<&'static Engine>,
    /// The models it lists.
    models: RwLock<Vec<Arc<str>>>,
    /// Why it is not ready; `None` once it answered a probe.
    trouble: Mutex<Option<&'static str>>,
    /// Milliseconds from `since` to when it was last heard; 0: never.
    heard: AtomicU64,
    since: Instant,
}

impl Upstream {
    /// Available, but not proven.
    pub fn new(config: UpstreamConfig, max_event_bytes: usize) -> Self {
        let models = config.models.iter().map(|name| name.as_str().into()).collect();
        Self {
            max_event_bytes,
            found: RwLock::new(config.engine),
            models: RwLock::new(models),
            trouble: Mutex::new(Some("not probed yet")),
            heard: AtomicU64::new(0),
            since: Instant::now(),
            config,
        }
    }

    /// What is behind it.
    pub fn engine(&self) -> &'static Engine {
        *self.found.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How requests to it are planned.
    pub fn route(&self) -> Route {
        let options = Arc::clone(&self.config.options);
        Route { responses: self.config.responses, ..Route::new(self.engine(), options, self.max_event_bytes) }
    }

    /// The name of this model as a label: only names that configuration or engine know.
    pub fn label(&self, model: &str) -> Arc<str> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        models.iter().find(|known| known.as_ref() == model).cloned().unwrap_or_else(|| "other".into())
    }

    /// The engine has listed its models.
    pub fn listed<'a>(&self, models: impl Iterator<Item = &'a str>, owner: Option<&str>) {
        let mut known = self.models.write().unwrap_or_else(PoisonError::into_inner);
        for model in models.filter(|name| name.len() <= 256) {
            if known.len() < MODELS && !known.iter().any(|name| name.as_ref() == model) {
                known.push(model.into());
            }
        }
        drop(known);
        if let Some(engine) = owner.filter(|_| self.config.engine.name == "auto").and_then(engine::recognised)
        {
            *self.found.write().unwrap_or_else(PoisonError::into_inner) = engine;
        }
    }

    /// It has sent something of an answer at this time.
    pub fn heard(&self, now: Instant) {
        let since = now.saturating_duration_since(self.since).as_millis();
        self.heard.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether it has sent something of an answer lately.
    fn was_heard_within(&self, time: Duration) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        heard > 0 && self.since.elapsed() < Duration::from_millis(heard) + time
    }

    /// Why it is not ready, if it is not.
    pub fn trouble(&self) -> Option<&'static str> {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_trouble(&self, trouble: Option<&'static str>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}
