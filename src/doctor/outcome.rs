//! Outcomes of checks: how grave a difference is, which bytes show it, and what helps.

use crate::named::named;
use crate::visible::{excerpt, push_visible};
use std::fmt::Write;

named! {
    /// Weight of a finding, from the lightest.
    pub enum Severity {
        /// The answer is as the API has it.
        Fine = "fine",
        /// The answers do not show it.
        NotSeen = "not seen",
        /// Something differs, or is missing, and no known client fails.
        Note = "note",
        /// Some clients lose something.
        Warning = "warning",
        /// Clients fail.
        Broken = "broken",
    }
}

/// Result of a check, or of a step of one that may end it.
pub(super) type Judged<T = Outcome> = Result<T, Outcome>;

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the API has it, in plain words.
    Fine(String),
    /// The answers do not show it, and why.
    NotSeen(String),
    /// Something differs.
    Found(Box<Found>),
}

/// Difference that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Weight.
    pub severity: Severity,
    /// Difference in plain words, cut, with every character visible.
    pub says: String,
    /// Bytes that show it, cut, with every character visible.
    pub evidence: String,
    /// Remedy beside samewire's defaults.
    pub remedy: Remedy,
}

/// Remedy beside samewire's defaults: settings of the engine and of samewire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedy {
    /// Flag or environment variable of the engine.
    pub engine: Option<String>,
    /// Keys of samewire's configuration.
    pub settings: Vec<Setting>,
}

/// Key of samewire's configuration with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Table of the key.
    pub table: Table,
    /// Key.
    pub key: &'static str,
    /// Value as TOML.
    pub value: String,
}

/// Table of samewire's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// `[timeouts]`
    Timeouts,
    /// `[[upstream]]`
    Upstream,
    /// `wire` of `[[upstream]]`
    Wire,
}

/// Most characters of evidence, and of a sentence, which may quote the server.
const EVIDENCE: usize = 300;
const SAYS: usize = 600;

impl Outcome {
    pub(super) fn fine(says: impl Into<String>) -> Judged {
        Ok(Self::Fine(says.into()))
    }

    pub(super) fn not_seen(why: impl AsRef<str>) -> Self {
        Self::NotSeen(excerpt(why.as_ref(), SAYS))
    }

    pub(super) fn note(says: impl Into<String>, evidence: &str) -> Self {
        Self::found(Severity::Note, says.into(), evidence)
    }

    pub(super) fn warning(says: impl Into<String>, evidence: &str) -> Self {
        Self::found(Severity::Warning, says.into(), evidence)
    }

    pub(super) fn broken(says: impl Into<String>, evidence: &str) -> Self {
        Self::found(Severity::Broken, says.into(), evidence)
    }

    fn found(severity: Severity, says: String, evidence: &str) -> Self {
        let (says, evidence) = (excerpt(&says, SAYS), excerpt(relevant(evidence), EVIDENCE));
        Self::Found(Box::new(Found {
            severity,
            says,
            evidence,
            remedy: Remedy::default(),
        }))
    }

    /// Adds a flag of the engine, if there is one.
    pub(super) fn with_flag(mut self, flag: Option<String>) -> Self {
        if let Self::Found(found) = &mut self {
            found.remedy.engine = flag;
        }
        self
    }

    /// Adds a key of samewire's configuration.
    pub(super) fn with(
        mut self,
        table: Table,
        key: &'static str,
        value: impl Into<String>,
    ) -> Self {
        if let Self::Found(found) = &mut self {
            found.remedy.settings.push(Setting {
                table,
                key,
                value: value.into(),
            });
        }
        self
    }

    /// Returns the weight.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Fine(_) => Severity::Fine,
            Self::NotSeen(_) => Severity::NotSeen,
            Self::Found(found) => found.severity,
        }
    }

    /// Returns the result in plain words.
    pub fn says(&self) -> &str {
        match self {
            Self::Fine(says) | Self::NotSeen(says) => says,
            Self::Found(found) => &found.says,
        }
    }
}

/// Returns a text as a value of TOML, on one line and with every character visible.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for character in text.chars() {
        let mut plain = String::new();
        push_visible(character, &mut plain);
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if plain.chars().eq([character]) => quoted.push(character),
            _ => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(character));
            }
        }
    }
    quoted + "\""
}

/// Returns the part of a chunk that says something: from its choices on.
fn relevant(evidence: &str) -> &str {
    let is_chunk = evidence.starts_with('{') && evidence.contains("\"chat.completion");
    let at = evidence.find("\"choices\"").filter(|_| is_chunk);
    at.and_then(|at| evidence.get(at..)).unwrap_or(evidence)
}
