//! Metrics of one upstream: state, load, and durations.

use super::figures::figures;
use super::series::{self, Gauge, Histogram};
use super::{RouteLabel, SECONDS, SHORT};
use crate::engine::{EngineLoad, EngineVersion, Front};
use parking_lot::Mutex;
use std::fmt::Write;
use std::sync::Arc;

figures! {
    /// Metrics of one upstream. The upstream's own state updates them, and each scrape reads them.
    pub struct UpstreamMetrics(name: &str) {
        /// Name of the upstream, which is also its label.
        pub name: Arc<str> = name.into(),
        /// Rendered `upstream` label.
        pub(super) labels: String = series::labels(&[("upstream", name)]),
        /// Rendered labels of the detected engine; empty until it is known.
        kind: Mutex<String> = Mutex::default(),
        /// Load that the engine last reported, if it reports any.
        busy: Mutex<Option<EngineLoad>> = Mutex::default(),
        /// Time from a request's arrival to the first text of the engine.
        pub first_token: Histogram = Histogram::new(SECONDS),
        /// Time between two writes to a client, which approximates the time between tokens.
        pub inter_token: Histogram = Histogram::new(SHORT),
        /// Durations of requests, by route.
        pub(super) request_seconds: [Histogram; RouteLabel::ALL.len()] =
            std::array::from_fn(|_| Histogram::new(SECONDS)),
    }
    pub up: Gauge = "gauge" "samewire_upstream_up" "Whether the upstream answers its probes.",
    pub circuit_open: Gauge = "gauge" "samewire_upstream_circuit_open"
        "Whether the upstream is ejected, because its answers fail.",
    pub active: Gauge = "gauge" "samewire_upstream_active_streams" "Exchanges under way with the upstream.",
    pub cancels: Gauge = "counter" "samewire_upstream_cancels_total"
        "Exchanges that were broken off from here.",
    pub prefix_hits: Gauge = "counter" "samewire_upstream_prefix_hits_total"
        "Requests chosen for the beginning of their prompt, which the upstream had got before.",
}

impl UpstreamMetrics {
    /// Sets the detected engine. Label values come from closed sets and a parsed version, never from the engine's
    /// own text.
    pub fn set_kind(&self, engine: &str, version: Option<EngineVersion>, front: Front) {
        let version = version.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
        let labels = [
            ("upstream", &*self.name),
            ("engine", engine),
            ("version", &version),
            ("front_end", front.name()),
        ];
        *self.kind.lock() = series::labels(&labels);
    }

    /// Sets the load that the engine reports; `None`: the engine reports none.
    pub fn set_busy(&self, busy: Option<EngineLoad>) {
        *self.busy.lock() = busy;
    }

    /// Returns the load that the engine last reported: running and waiting requests, and cache usage.
    pub fn busy(&self) -> Option<EngineLoad> {
        *self.busy.lock()
    }

    /// Appends the info series with the detected engine, if it is known.
    pub(super) fn render_kind(&self, name: &str, out: &mut String) {
        let kind = self.kind.lock();
        if !kind.is_empty() {
            let _ = writeln!(out, "{name}{{{kind}}} 1");
        }
    }

    /// Appends the numbers of running and waiting requests that the engine reports.
    pub(super) fn render_busy(&self, name: &str, out: &mut String) {
        let Some(busy) = self.busy() else { return };
        for (state, requests) in [("running", busy.running), ("waiting", busy.waiting)] {
            let labels = series::labels(&[("upstream", &self.name), ("state", state)]);
            let _ = writeln!(out, "{name}{{{labels}}} {requests}");
        }
    }

    /// Appends the used share of the engine's cache, if reported.
    pub(super) fn render_cache(&self, name: &str, out: &mut String) {
        if let Some(part) = self.busy().and_then(|busy| busy.cache) {
            let _ = writeln!(out, "{name}{{{}}} {part}", self.labels);
        }
    }

    /// Appends the histograms of request durations, without those that are empty.
    pub(super) fn render_requests(&self, name: &str, out: &mut String) {
        let used = RouteLabel::ALL
            .iter()
            .zip(&self.request_seconds)
            .filter(|(_, histogram)| !histogram.is_empty());
        for (route, histogram) in used {
            let labels = series::labels(&[("route", route.name()), ("upstream", &self.name)]);
            histogram.render(name, &labels, out);
        }
    }
}
