//! Verdicts, with evidence that a terminal can show.

use crate::visible::excerpt;

/// Result of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The statement holds.
    Pass,
    /// The statement does not hold: the offending bytes, escaped and cut.
    Fail(String),
    /// The answer cannot be judged, and why.
    Skipped(String),
    /// The server has no such route.
    NotOffered,
    /// The run ended before.
    NotAsked,
}

impl Verdict {
    /// Returns a failure with these bytes as evidence.
    pub(super) fn fail(evidence: &str) -> Self {
        Self::Fail(excerpt(evidence, EVIDENCE))
    }

    /// Returns a pass, or else a failure with this evidence.
    pub(super) fn check(holds: bool, evidence: &str) -> Self {
        if holds {
            Self::Pass
        } else {
            Self::fail(evidence)
        }
    }

    /// Returns the word for people and programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Skipped(_) => "skipped",
            Self::NotOffered => "not offered",
            Self::NotAsked => "not asked",
        }
    }

    /// Returns the evidence of a failure, or the reason of a skip.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Fail(detail) | Self::Skipped(detail) => Some(detail),
            Self::Pass | Self::NotOffered | Self::NotAsked => None,
        }
    }
}

/// Most characters of evidence.
const EVIDENCE: usize = 200;
