//! Whether requests should come here: what `/readyz` of the admin listener and `/health` of the clients' say.

use super::App;

/// The reason why they should not.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The process takes no more of them.
    Draining,
    /// No engine is ready; for operators, each with its name and what is wrong.
    Upstreams(String),
}

impl App {
    /// Returns why requests should not come here, or nothing if they may. One engine that is ready is enough.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        if self.is_draining() {
            return Some(Trouble::Draining);
        }
        let mut all = Vec::new();
        for upstream in self.pool.upstreams() {
            all.push(format!("upstream {}: {}", upstream.config.name, upstream.trouble()?));
        }
        Some(Trouble::Upstreams(all.join("\n")))
    }
}
