//! TLS: what is read from files, what is asked of certificates, and sockets with and without it.
//!
//! One implementation (rustls) with one provider of cryptography (ring), TLS 1.2 and 1.3. Knows nothing of HTTP but the
//! name of the protocol, and nothing of configuration but the paths that stand there.

mod client;
mod dates;
mod pem;
mod server;
mod socket;
mod verifier;

pub use client::{Trust, TrustFiles, is_refusal};
pub use pem::roots;
pub use server::{Identity, IdentityFiles};
pub use socket::Socket;
pub use verifier::{Check, Verifier};

use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// What is spoken inside.
const HTTP: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// The only provider.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What is wrong with a file: the key that names it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The key in the configuration.
    pub key: &'static str,
    /// Why.
    pub why: String,
}

impl Wrong {
    fn new(key: &'static str, why: impl std::fmt::Display) -> Self {
        Self { key, why: why.to_string() }
    }
}
