//! TLS, towards clients and towards engines.

mod clients;
mod engines;
