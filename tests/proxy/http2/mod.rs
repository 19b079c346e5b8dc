//! HTTP/2, towards clients and towards engines.

mod abuse;
mod clients;
mod engines;
