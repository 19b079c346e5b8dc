//! Tests of the documents, of the comments, and of the shape of the source.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod additions;
mod documents;
#[allow(dead_code, reason = "folders offer more than these tests need")]
#[path = "../support/folder/mod.rs"]
mod folder;
mod layering;
mod markdown;
mod matrix;
mod readme;
