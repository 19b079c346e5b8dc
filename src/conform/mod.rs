//! The contract of the API as a test suite against any server: few requests, each answer judged by many rows.
//!
//! Takes: a [`crate::exchange::Sender`]. Gives: a [`Report`], also where the server stalls, floods or sends garbage.
//! Never: uses samewire's own reader or writer of the wire, so that a mistake there cannot hide itself.

mod address;
mod answer;
mod chat;
mod completions;
mod errors;
mod group;
mod messages;
mod requests;
mod responses;
mod row;
#[cfg(test)]
mod samples;
mod suite;
mod verdict;

pub(crate) use address::check_address;
pub(crate) use answer::{Answer, Frame};
pub use group::Group;
pub use requests::SuiteRequest;
pub(crate) use requests::{Template, templates};
pub use row::Row;
#[cfg(test)]
pub(crate) use samples::{ROLE, chat_stream, chat_whole, good, without_usage};
pub(crate) use suite::judge;
pub use suite::{Report, Verified, catalogue, requests, run, tokens};
pub use verdict::Verdict;
