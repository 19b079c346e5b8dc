//! The wire format: what the library makes of any bytes of an engine.
//!
//! Each module holds one kind of evidence: worked examples and recordings with their exact output, laws on random
//! and mangled input, a second implementation to compare with, the published schema of the API, and the fuzz
//! targets. No process is started and no network is used.

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
#[path = "../support/canonical/mod.rs"]
mod canonical;
#[path = "../support/cases/mod.rs"]
mod cases;
#[path = "../support/events/mod.rs"]
mod events;
#[path = "../support/laws/mod.rs"]
mod laws;
#[path = "../support/official/mod.rs"]
mod official;
#[path = "../support/random/mod.rs"]
mod random;
#[path = "../support/seeded/mod.rs"]
mod seeded;
#[path = "../support/slow/mod.rs"]
mod slow;
#[path = "../support/table/mod.rs"]
mod table;
#[path = "../support/texts/mod.rs"]
mod texts;

mod agree;
mod calls;
mod differential;
mod frames;
mod fuzz_seeds;
mod golden;
mod growth;
mod harmony;
mod json;
mod lossless;
mod messages;
mod properties;
mod reference;
mod response_events;
mod responses;
mod schema;
mod splits;
mod vectors;
