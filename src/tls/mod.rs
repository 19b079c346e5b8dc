//! TLS: certificates and keys from files, verification of certificates, and sockets with and without TLS.
//!
//! Uses one implementation (rustls) with one crypto provider (ring), for TLS 1.2 and 1.3. Knows nothing of HTTP
//! except its protocol names, and nothing of the configuration except the paths in it.

mod client;
mod dates;
mod pem;
mod server;
mod socket;
mod verifier;

pub use client::{Trust, TrustFiles, client_config, is_refusal, remedy, trusting_nobody};
pub use pem::roots;
pub use server::{ClientHello, IdentityFiles, ServerIdentity};
pub use socket::Socket;
pub use verifier::{Strictness, Verifier};

use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// Application protocols (ALPN).
const HTTP: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Returns the crypto provider that all TLS connections use, so that none is installed globally.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Mistake in a TLS file: the key that names the file, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFileError {
    /// Configuration key that names the file.
    pub key: &'static str,
    /// Reason, for people.
    pub why: String,
}

impl TlsFileError {
    fn new(key: &'static str, why: impl std::fmt::Display) -> Self {
        Self {
            key,
            why: why.to_string(),
        }
    }
}
