//! Measurements of time, which other tests would disturb. They are a separate binary, because Cargo runs one
//! binary after the other; within it, a lock lets one test run at a time.
//!
//! Allocations are counted for each thread, so tests that count them may run beside others, and are in the binary
//! `wire`.

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
    reason = "a test fails by panicking"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "the fixtures offer more than these tests need"
)]
#[path = "../support/sim/mod.rs"]
mod sim;

mod latency;
mod lock;
mod timing;
