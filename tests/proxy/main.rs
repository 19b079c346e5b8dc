//! Tests of the built binary on loopback, between a scripted engine and a raw client.
//!
//! Each test is named after what it checks; for a fault of `tests/faults.toml`, the name begins with its id. No part of
//! samewire is replaced: the tested process is the one that users start. Every world ends with [`sim::World::end`],
//! which checks that nothing was left over and no secret was revealed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "a test fails by panicking, and the fixtures offer more than one file of tests needs"
)]

#[macro_use]
#[path = "../support/fail/mod.rs"]
mod fail;
#[cfg(feature = "otlp")]
#[path = "../support/sim/collector.rs"]
mod collector;
#[path = "../support/official/mod.rs"]
mod official;
#[path = "../support/postgres/mod.rs"]
mod postgres;
#[path = "../support/sim/mod.rs"]
mod sim;
#[path = "../support/table/mod.rs"]
mod table;

mod advice;
mod batch;
mod canonical;
mod clients;
mod conform;
mod demo;
mod deploy;
mod diff;
mod doctor;
mod engines;
mod env;
mod fixtures;
mod http2;
mod messages;
mod odd_servers;
mod operations;
mod pool;
mod replay;
mod responses;
mod tls;
