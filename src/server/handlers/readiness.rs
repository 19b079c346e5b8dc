//! Readiness of the process, as reported by `/readyz` of the admin listener and `/health` of the client listener.

use crate::server::App;

/// Reason for which the process should receive no requests.
#[derive(Debug)]
pub(in crate::server) enum NotReady {
    /// The process is draining.
    Draining,
    /// Lack of a ready engine; the text names each with its problem, for operators.
    Upstreams(String),
}

impl App {
    /// Returns the reason for which the process should receive no requests; `None` if it is ready. One ready
    /// engine is enough.
    pub(in crate::server) fn trouble(&self) -> Option<NotReady> {
        if self.is_shutting_down() {
            return Some(NotReady::Draining);
        }
        let mut all = Vec::new();
        for upstream in self.pool.upstreams() {
            all.push(format!(
                "upstream {}: {}",
                upstream.config.name,
                upstream.trouble()?
            ));
        }
        Some(NotReady::Upstreams(all.join("\n")))
    }
}
