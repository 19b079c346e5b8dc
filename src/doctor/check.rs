//! Checks: what each asks about a server, and what can come of it.

use super::question::Question;
use super::seen::{NotSeen, Seen};
use crate::visible::{excerpt, push_visible};
use std::fmt::Write;

/// Part of the API that a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Connections, keys, the list of models.
    Server,
    /// Streams of Chat Completions.
    Streams,
    /// Reasoning.
    Reasoning,
    /// Usage.
    Usage,
    /// Tools.
    Tools,
    /// Requests that clients send.
    Requests,
    /// Parameters that shape the answer.
    Parameters,
    /// Errors.
    Errors,
    /// Routes beside Chat Completions.
    Routes,
}

impl Topic {
    /// List of all topics, in the order of the report.
    pub const ALL: [Self; 9] = [
        Self::Server,
        Self::Streams,
        Self::Reasoning,
        Self::Usage,
        Self::Tools,
        Self::Requests,
        Self::Parameters,
        Self::Errors,
        Self::Routes,
    ];

    /// Returns the name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Streams => "streams",
            Self::Reasoning => "reasoning",
            Self::Usage => "usage",
            Self::Tools => "tools",
            Self::Requests => "requests",
            Self::Parameters => "parameters",
            Self::Errors => "errors",
            Self::Routes => "routes",
        }
    }
}

impl Topic {
    /// Creates a check of this topic.
    pub(super) const fn check(
        self,
        id: &'static str,
        question: Question,
        affected: &'static [&'static str],
        mends: Option<&'static str>,
        judge: fn(&Seen) -> Judged,
    ) -> Check {
        Check { id, topic: self, question, affected, mends, rule: None, judge }
    }
}

impl Check {
    /// Returns the check, whose remedy by samewire is a rule for requests.
    pub(super) const fn by_rule(self, rule: &'static str) -> Self {
        Self { rule: Some(rule), ..self }
    }
}

/// Weight of a finding, from the lightest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The answer is as the API has it.
    Fine,
    /// The answers do not show it.
    NotSeen,
    /// Something differs, or is missing, and no known client fails.
    Note,
    /// Some clients lose something.
    Warning,
    /// Clients fail.
    Broken,
}

impl Severity {
    /// List of all severities, the heaviest first.
    pub const ALL: [Self; 5] = [Self::Broken, Self::Warning, Self::Note, Self::NotSeen, Self::Fine];

    /// Returns the word for people and programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::NotSeen => "not seen",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }
}

/// Check: one question about the server's behaviour.
#[derive(Debug)]
pub struct Check {
    /// Name, which never changes.
    pub id: &'static str,
    /// Part of the API.
    pub topic: Topic,
    /// Question whose answer is judged first; its exchange is saved under that name.
    pub question: Question,
    /// Clients that are affected where something is wrong.
    pub affected: &'static [&'static str],
    /// Remedy by samewire, in plain words; `None`: there is none.
    pub mends: Option<&'static str>,
    /// Rule for requests by which samewire does it, for the engines and versions that have the rule; `None`: for all.
    pub(super) rule: Option<&'static str>,
    pub(super) judge: fn(&Seen) -> Judged,
}

/// Verdict of a check, or the reason why the answers do not show it.
pub(super) type Judged = Result<Outcome, NotSeen>;

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
        Self::Found(Box::new(Found { severity, says, evidence, remedy: Remedy::default() }))
    }

    /// Adds a flag of the engine, if there is one.
    pub(super) fn with_flag(mut self, flag: Option<String>) -> Self {
        if let Self::Found(found) = &mut self {
            found.remedy.engine = flag;
        }
        self
    }

    /// Adds a key of samewire's configuration.
    pub(super) fn with(mut self, table: Table, key: &'static str, value: impl Into<String>) -> Self {
        if let Self::Found(found) = &mut self {
            found.remedy.settings.push(Setting { table, key, value: value.into() });
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

/// Check with its result.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Check.
    pub check: &'static Check,
    /// Result.
    pub outcome: Outcome,
    /// Remedy by samewire for this engine; `None`: there is none.
    pub mends: Option<&'static str>,
}

impl Finding {
    pub(super) fn of(check: &'static Check, seen: &Seen) -> Self {
        let outcome =
            (check.judge)(seen).unwrap_or_else(|NotSeen(why)| Outcome::NotSeen(excerpt(&why, SAYS)));
        let mends = check.mends.filter(|_| check.rule.is_none_or(|rule| seen.server.has_rule(rule)));
        Self { check, outcome, mends }
    }

    /// Returns the weight.
    pub fn severity(&self) -> Severity {
        self.outcome.severity()
    }

    /// Returns the difference, if there is one.
    pub fn found(&self) -> Option<&Found> {
        if let Outcome::Found(found) = &self.outcome { Some(found) } else { None }
    }
}
