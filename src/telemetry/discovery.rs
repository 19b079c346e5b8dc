//! Metrics of the discovery of pods.

use super::series::{self, Gauge};

/// Metrics of the watch of one label selector.
#[derive(Debug)]
pub struct DiscoveryMetrics {
    /// Label selector, which is also the label.
    pub(super) selector: String,
    /// 1 if the Kubernetes API has answered last, else 0.
    pub up: Gauge,
    /// Ready pods that are known.
    pub pods: Gauge,
    /// Failures of the API to answer, since the start.
    pub failures: Gauge,
}

impl DiscoveryMetrics {
    pub(super) fn new(selector: &str) -> Self {
        let none = Gauge::default;
        Self { selector: selector.to_owned(), up: none(), pods: none(), failures: none() }
    }
}

/// Writes the metrics of all watches. Without a watch there is nothing.
pub(super) fn render<'m>(all: impl Iterator<Item = &'m DiscoveryMetrics> + Clone, out: &mut String) {
    if all.clone().next().is_none() {
        return;
    }
    type Of = fn(&DiscoveryMetrics) -> &Gauge;
    let gauges: [(_, _, _, Of); 3] = [
        ("samewire_discovery_up", "gauge", "Whether the Kubernetes API answers.", |one| &one.up),
        ("samewire_discovery_pods", "gauge", "Ready pods that the Kubernetes API has named.", |one| {
            &one.pods
        }),
        (
            "samewire_discovery_failures_total",
            "counter",
            "Times that the Kubernetes API has not answered.",
            |one| &one.failures,
        ),
    ];
    for (name, kind, help, gauge) in gauges {
        series::head(name, help, kind, out);
        for one in all.clone() {
            gauge(one).render(name, &series::labels(&[("selector", &one.selector)]), out);
        }
    }
}
