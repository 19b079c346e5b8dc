//! The figures of one upstream.

use super::series::{self, Gauge, Histogram};
use super::{Route, SECONDS, SHORT};
use crate::engine::{Busy, Front, Version};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// What is counted of one upstream.
#[derive(Debug)]
pub struct UpstreamMetrics {
    /// Its name.
    pub name: String,
    labels: String,
    /// The labels that say what it is.
    kind: Mutex<String>,
    /// What it says it has to do.
    busy: Mutex<Option<Busy>>,
    /// Whether it answers its probes.
    pub up: Gauge,
    /// Whether it is ejected.
    pub circuit_open: Gauge,
    /// Exchanges with it that are under way.
    pub active: Gauge,
    /// Exchanges that were broken off from here.
    pub cancels: Gauge,
    /// From a request's arrival to the engine's first word.
    pub first_token: Histogram,
    /// Between one write to a client and the next.
    pub inter_token: Histogram,
    request_seconds: [Histogram; Route::ALL.len()],
}

impl UpstreamMetrics {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: series::labels(&[("upstream", name)]),
            kind: Mutex::default(),
            busy: Mutex::default(),
            up: Gauge::default(),
            circuit_open: Gauge::default(),
            active: Gauge::default(),
            cancels: Gauge::default(),
            first_token: Histogram::new(SECONDS),
            inter_token: Histogram::new(SHORT),
            request_seconds: std::array::from_fn(|_| Histogram::new(SECONDS)),
        }
    }

    /// It is this engine. Nothing of it is the engine's own text.
    pub fn set_kind(&self, engine: &str, version: Option<Version>, front: Front) {
        let version = version.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
        let labels = [
            ("upstream", self.name.as_str()),
            ("engine", engine),
            ("version", &version),
            ("front_end", front.name()),
        ];
        *self.kind.lock().unwrap_or_else(PoisonError::into_inner) = series::labels(&labels);
    }

    /// That is what it has to do; `None`: it does not say.
    pub fn set_busy(&self, busy: Option<Busy>) {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner) = busy;
    }

    /// What it says it has to do.
    pub fn busy(&self) -> Option<Busy> {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is.
    pub(super) fn render_kind(&self, name: &str, out: &mut String) {
        let kind = self.kind.lock().unwrap_or_else(PoisonError::into_inner);
        if !kind.is_empty() {
            let _ = writeln!(out, "{name}{{{kind}}} 1");
        }
    }

    /// The requests that it says it has.
    pub(super) fn render_busy(&self, name: &str, out: &mut String) {
        let Some(busy) = self.busy() else { return };
        for (state, requests) in [("running", busy.running), ("waiting", busy.waiting)] {
            let labels = series::labels(&[("upstream", &self.name), ("state", state)]);
            let _ = writeln!(out, "{name}{{{labels}}} {requests}");
        }
    }

    /// How full it says its cache is.
    pub(super) fn render_cache(&self, name: &str, out: &mut String) {
        if let Some(part) = self.busy().and_then(|busy| busy.cache) {
            let _ = writeln!(out, "{name}{{{}}} {part}", self.labels);
        }
    }

    /// What requests of this route take.
    pub(super) fn request_seconds(&self, route: Route) -> Option<&Histogram> {
        self.request_seconds.get(route as usize)
    }

    /// What they took, of the routes that were asked for.
    pub(super) fn render_requests(&self, name: &str, out: &mut String) {
        let asked =
            Route::ALL.iter().zip(&self.request_seconds).filter(|(_, histogram)| !histogram.is_empty());
        for (route, histogram) in asked {
            let labels = series::labels(&[("route", route.name()), ("upstream", &self.name)]);
            histogram.render(name, &labels, out);
        }
    }

    /// Its own label.
    pub(super) fn labels(&self) -> &str {
        &self.labels
    }
}
