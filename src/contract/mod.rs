//! Contract of the API, checked for each answer before it leaves: the published schema, and the grammar of streams.
//!
//! Takes: the bytes that a client is about to be sent, in whole frames. Gives: each [`Violation`] with its place.
//! Remembers: what the grammar needs of the frames before. Never: quotes an answer, and shares no code with the
//! encoders that it checks.

mod answer;
mod chat;
mod frames;
mod messages;
mod responses;
mod rule;
mod schema;
mod violation;

pub use answer::AnswerContract;
pub use rule::Rule;
pub use schema::violation;
pub use violation::{Form, Violation};

use serde::{Deserialize, Serialize};

/// Use of the contract: key `mode` of the table `[contract]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Answers go out unchecked.
    #[default]
    Off,
    /// Violations are counted and logged; the answer goes out as it is.
    Count,
    /// The answer fails in place of the frame that violates the contract.
    Strict,
}
