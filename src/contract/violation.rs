//! Violations of the contract, and the form of the answers that are checked.

use super::rule::Rule;

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Stream of server-sent events, or of JSON, one event a line, for readers inside of the process.
    Stream,
    /// Object that is the whole answer.
    Whole,
}

/// Violation of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Rule that is violated.
    pub rule: Rule,
    /// Place: a path in the schema, or a short description without any text of the answer.
    pub place: String,
    /// Offset of the frame in the bytes that were checked.
    pub at: usize,
    /// Number of frames from this one to the end of the bytes.
    pub frames: u64,
}

/// Rule that a frame violates, and the place.
pub(super) type Broken = (Rule, String);

/// Fails with a rule unless `is_kept`.
pub(super) fn keeps(is_kept: bool, rule: Rule, place: &str) -> Result<(), Broken> {
    if is_kept { Ok(()) } else { Err((rule, place.to_owned())) }
}
