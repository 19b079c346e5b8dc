//! Streams of Responses events, whatever they were made of: every stream obeys the order of wire-format 4.6.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod events;
