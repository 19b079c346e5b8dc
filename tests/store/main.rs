//! The store: one suite, run against each of the three kinds of store, and tests of what only one of them can get
//! wrong. PostgreSQL is a real one; see `tests/postgres.sh`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "folders offer more than these tests need")]
#[path = "../support/folder/mod.rs"]
mod folder;
#[path = "../support/postgres/mod.rs"]
mod postgres;
#[path = "../support/seeded/mod.rs"]
mod seeded;

mod batches;
mod caps;
mod contention;
mod conversations;
mod counters;
mod database;
mod files;
mod kill;
mod model;
mod ownership;
mod places;
mod responses;
mod seal_key;
mod tls;
