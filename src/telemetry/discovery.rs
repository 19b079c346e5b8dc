//! Metrics of the discovery of pods.

use super::figures::figures;
use super::series::{self, Gauge};

figures! {
    /// Metrics of the watch of one label selector.
    pub struct DiscoveryMetrics(selector: &str) {
        /// Label selector, which is also the label.
        pub(super) selector: String = selector.to_owned(),
        /// Rendered `selector` label.
        labels: String = series::labels(&[("selector", selector)]),
    }
    pub up: Gauge = "gauge" "samewire_discovery_up" "Whether the Kubernetes API answers.",
    pub pods: Gauge = "gauge" "samewire_discovery_pods" "Ready pods that the Kubernetes API has named.",
    pub failures: Gauge = "counter" "samewire_discovery_failures_total"
        "Times that the Kubernetes API has not answered.",
}

/// Writes the metrics of all watches. Without a watch there is nothing.
pub(super) fn render(all: &[&DiscoveryMetrics], out: &mut String) {
    if !all.is_empty() {
        DiscoveryMetrics::render_gauges(all, |one| &one.labels, out);
    }
}
