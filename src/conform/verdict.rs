//! Verdicts, with evidence that a terminal can show.

use crate::visible::push_visible;

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
}

impl Verdict {
    /// Returns a failure with these bytes as evidence.
    pub(super) fn fail(evidence: &str) -> Self {
        Self::Fail(shown(evidence))
    }

    /// Returns a pass, or else a failure with this evidence.
    pub(super) fn check(holds: bool, evidence: &str) -> Self {
        if holds { Self::Pass } else { Self::fail(evidence) }
    }

    /// Returns the word for people and programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Skipped(_) => "skipped",
            Self::NotOffered => "not offered",
        }
    }

    /// Returns the evidence of a failure, or the reason of a skip.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Fail(detail) | Self::Skipped(detail) => Some(detail),
            Self::Pass | Self::NotOffered => None,
        }
    }
}

/// Most characters of evidence.
const EVIDENCE: usize = 200;

/// Returns text for a terminal: cut, and with everything escaped that a terminal might act on.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut length = 0;
    for character in text.chars() {
        let before = shown.len();
        push_visible(character, &mut shown);
        length += shown.get(before..).map_or(0, |added| added.chars().count());
        if length > EVIDENCE - 1 {
            shown.truncate(before);
            shown.push('…');
            break;
        }
    }
    shown
}
