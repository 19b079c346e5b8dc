//! Rows of the suite: what each states, and what can become of it.

use super::answer::Answer;
use super::ask::Ask;

/// Part of the API that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// List of models.
    Models,
    /// Chat Completions as streams.
    ChatStream,
    /// Chat Completions as one object.
    ChatWhole,
    /// Function calls of Chat Completions.
    Tools,
    /// Completions.
    Completions,
    /// Responses as streams.
    ResponsesStream,
    /// Responses as one object.
    ResponsesWhole,
    /// Messages.
    Messages,
    /// Errors.
    Errors,
}

impl Group {
    /// List of all groups, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Models,
        Self::ChatStream,
        Self::ChatWhole,
        Self::Tools,
        Self::Completions,
        Self::ResponsesStream,
        Self::ResponsesWhole,
        Self::Messages,
        Self::Errors,
    ];

    /// Returns the name, as `--only` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::ChatStream => "chat-stream",
            Self::ChatWhole => "chat-whole",
            Self::Tools => "tools",
            Self::Completions => "completions",
            Self::ResponsesStream => "responses-stream",
            Self::ResponsesWhole => "responses-whole",
            Self::Messages => "messages",
            Self::Errors => "errors",
        }
    }

    /// Returns the group of a request.
    pub(super) fn of(ask: Ask) -> Self {
        match ask {
            Ask::Models => Self::Models,
            Ask::ChatStream | Ask::ChatPlain => Self::ChatStream,
            Ask::ChatWhole => Self::ChatWhole,
            Ask::ToolStream | Ask::ToolWhole => Self::Tools,
            Ask::CompletionsStream | Ask::CompletionsWhole => Self::Completions,
            Ask::ResponsesStream | Ask::ResponsesTool => Self::ResponsesStream,
            Ask::ResponsesWhole => Self::ResponsesWhole,
            Ask::MessagesStream => Self::Messages,
            Ask::BadJson | Ask::UnknownModel | Ask::WrongType | Ask::UnknownRoute => Self::Errors,
        }
    }
}

/// Row: one sentence about the answer to one request.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name, which never changes.
    pub id: &'static str,
    /// Request whose answer is judged.
    pub ask: Ask,
    /// Statement that holds if the row passes.
    pub statement: &'static str,
    /// Place of the rule: a section of the wire format, a schema of OpenAI's, or a client that relies on it.
    pub citation: &'static str,
    /// True if the row judges an answer of any status, cut or not.
    pub(super) always: bool,
    /// Judge of the answer.
    pub(super) judge: fn(&Answer) -> Verdict,
}

impl Row {
    /// Returns the group of the row.
    pub fn group(&self) -> Group {
        Group::of(self.ask)
    }
}

/// Creates a row that judges complete, successful answers.
pub(super) const fn row(
    id: &'static str,
    ask: Ask,
    statement: &'static str,
    citation: &'static str,
    judge: fn(&Answer) -> Verdict,
) -> Row {
    Row { id, ask, statement, citation, always: false, judge }
}

/// Creates a row that judges every answer.
pub(super) const fn always(
    id: &'static str,
    ask: Ask,
    statement: &'static str,
    citation: &'static str,
    judge: fn(&Answer) -> Verdict,
) -> Row {
    Row { id, ask, statement, citation, always: true, judge }
}

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
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut length = 0;
    for c in text.chars() {
        let acts = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        let before = shown.len();
        if acts {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
        length += shown.get(before..).map_or(0, |added| added.chars().count());
        if length > EVIDENCE - 1 {
            shown.truncate(before);
            shown.push('…');
            break;
        }
    }
    shown
}
