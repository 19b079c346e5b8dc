//! Requests as engines receive them: the library plans the request of a client for an engine and a version.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub,
    reason = "a test fails by panicking; requests are JSON of any shape"
)]

#[macro_use]
#[path = "../support/fail/mod.rs"]
mod fail;
#[path = "../support/laws/request.rs"]
mod law;
#[path = "../support/messages/mod.rs"]
mod message_form;
#[path = "../support/seeded/mod.rs"]
mod seeded;
#[path = "../support/table/mod.rs"]
mod table;

mod messages;
mod responses;
mod rules;
