//! Command line and configuration, as far as they need no server: commands that end by themselves, and files and
//! flags as the library reads them. Commands that serve are in the binary `proxy`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub,
    reason = "a test fails by panicking; recordings are JSON of any shape"
)]

#[macro_use]
#[path = "../support/fail/mod.rs"]
mod fail;
#[path = "../support/cases/mod.rs"]
mod cases;
#[allow(dead_code, reason = "folders offer more than these tests need")]
#[path = "../support/folder/mod.rs"]
mod folder;

mod commands;
mod config;
mod diff;
mod rewrite;
