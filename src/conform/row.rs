//! Rows of the suite: what each states, and what can become of it.

use super::answer::Answer;
use super::ask::Ask;
use super::group::Group;
use super::verdict::Verdict;

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
        self.ask.group()
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
    Row { always: true, ..row(id, ask, statement, citation, judge) }
}
