//! Tracer: starts the trace of a request, and passes a finished one to the exporter.

#[cfg(not(feature = "otlp"))]
use super::trace::DROPPED;
use super::trace::{FinishedRequest, Trace};
use crate::config::TraceConfig;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// Starts traces, and exports the finished ones. Does nothing if no collector is configured.
#[derive(Debug, Default)]
pub struct Tracer(Option<Tracing>);

#[derive(Debug)]
struct Tracing {
    sample: f64,
    #[cfg(feature = "otlp")]
    exporter: super::export::Exporter,
}

impl Tracer {
    /// Starts the exporter if the configuration names a collector.
    ///
    /// # Errors
    /// Fails if the exporter's thread or HTTP client cannot be started.
    pub fn start(config: Option<&Arc<TraceConfig>>) -> std::io::Result<Self> {
        let tracing = config.map(|config| {
            std::io::Result::Ok(Tracing {
                sample: config.sample,
                #[cfg(feature = "otlp")]
                exporter: super::export::Exporter::start(Arc::clone(config))?,
            })
        });
        tracing.transpose().map(Self)
    }

    /// Returns the trace of a request that has just arrived; `None` if tracing is off.
    pub fn begin(&self, headers: &HeaderMap, method: &Method) -> Option<Arc<Trace>> {
        let tracing = self.0.as_ref()?;
        let mut chance = [[0; 16]; 2];
        getrandom::fill(chance.as_flattened_mut()).ok()?;
        Some(Arc::new(Trace::begin(
            headers,
            method,
            tracing.sample,
            chance,
        )))
    }

    /// Exports a finished request if its trace is recorded. `told` is called only then.
    pub fn finished(&self, trace: &Arc<Trace>, told: impl FnOnce(Arc<Trace>) -> FinishedRequest) {
        if let Some(tracing) = self.0.as_ref().filter(|_| trace.is_sampled()) {
            tracing.take(told(Arc::clone(trace)));
        }
    }

    /// Posts the queued traces to the collector, for a second at most.
    pub async fn close(&self) {
        #[cfg(feature = "otlp")]
        if let Some(tracing) = &self.0 {
            tracing.exporter.close().await;
        }
    }
}

impl Tracing {
    #[cfg(feature = "otlp")]
    fn take(&self, told: FinishedRequest) {
        self.exporter.take(told);
    }

    /// Counts the spans as dropped: this build has no exporter. The configuration rejects a collector in such a
    /// build.
    #[cfg(not(feature = "otlp"))]
    fn take(&self, told: FinishedRequest) {
        DROPPED.add(told.spans());
    }
}
