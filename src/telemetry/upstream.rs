//! The figures of one upstream.

use super::series::{self, Gauge, Histogram};
use super::{Route, SECONDS, SHORT};

/// What is counted of one upstream.
#[derive(Debug)]
pub struct OfUpstream {
    /// Its name.
    pub name: String,
    labels: String,
    /// Whether it answers its probes.
    pub up: Gauge,
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

impl OfUpstream {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: series::labels(&[("upstream", name)]),
            up: Gauge::default(),
            active: Gauge::default(),
            cancels: Gauge::default(),
            first_token: Histogram::new(SECONDS),
            inter_token: Histogram::new(SHORT),
            request_seconds: std::array::from_fn(|_| Histogram::new(SECONDS)),
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
