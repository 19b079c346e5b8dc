//! Metrics of TLS towards clients: certificates and handshakes.

use super::figures::figures;
use super::series::{self, Gauge};
use std::sync::atomic::{AtomicBool, Ordering};

figures! {
    /// Metrics of certificate reloads and handshakes. Rendered only if a certificate has been loaded.
    pub struct TlsMetrics() {
        /// True once a certificate has been loaded.
        on: AtomicBool = AtomicBool::new(false),
    }
    good: Gauge = "gauge" "samewire_tls_reload_success" "Whether the certificate in use is that of the files.",
    ends: Gauge = "gauge" "samewire_tls_certificate_expiry_seconds"
        "When the certificate in use ends, in seconds since 1970.",
    failed: Gauge = "counter" "samewire_tls_handshake_failures_total"
        "Connections that ended before they were encrypted.",
}

impl TlsMetrics {
    /// Records that a certificate was loaded, with its expiry in seconds since 1970 (0 if unknown).
    pub fn certificate_loaded(&self, ends: Option<i64>) {
        self.on.store(true, Ordering::Relaxed);
        self.good.set(1);
        self.ends.set(ends.unwrap_or(0));
    }

    /// Records that new certificate files are invalid, so the previous certificate stays in use.
    pub fn certificate_rejected(&self) {
        self.good.set(0);
    }

    /// Counts a connection that failed or ended during its handshake.
    pub fn handshake_failed(&self) {
        self.failed.add(1);
    }

    pub(super) fn render(&self, out: &mut String) {
        if self.on.load(Ordering::Relaxed) {
            Self::render_gauges(&[self], |_| "", out);
        }
    }
}
