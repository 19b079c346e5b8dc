//! The contract of the API as a test suite against any server: few requests, each answer judged by many rows.
//!
//! Takes: a [`crate::exchange::Sender`]. Gives: a [`Report`], also where the server stalls, floods or sends garbage.
//! Never: uses samewire's own reader or writer of the wire, so that a mistake there cannot hide itself.
#![expect(clippy::disallowed_types, reason = "answers of any server are JSON of any shape")]

mod answer;
mod ask;
mod chat;
mod completions;
mod errors;
mod messages;
mod report;
mod responses;
mod row;
mod suite;

pub use ask::{Ask, Model};
pub use report::{Look, json, junit, summary, table};
pub use row::{Group, Row, Verdict};
pub use suite::{Report, Verified, asks, catalogue, run, tokens};
