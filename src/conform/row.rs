//! Rows of the suite: what each states, and what can become of it.

use super::answer::Answer;
use super::group::Group;
use super::requests::SuiteRequest;
use super::verdict::Verdict;

/// Row: one sentence about the answer to one request.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name, which never changes.
    pub id: &'static str,
    /// Request whose answer is judged.
    pub request: SuiteRequest,
    /// Statement that holds if the row passes.
    pub statement: &'static str,
    /// Place of the rule: a section of the wire format, a schema of OpenAI's, or a client that relies on it.
    pub citation: &'static str,
    /// Judge of the answer.
    pub(super) judge: fn(&Answer) -> Verdict,
}

impl Row {
    /// Returns the group of the row.
    pub fn group(&self) -> Group {
        self.request.group()
    }

    /// Returns true if the row judges an answer of any status, cut or not.
    pub(super) fn judges_all(&self) -> bool {
        self.id.ends_with("-status") || self.id.ends_with("-end") || self.group() == Group::Errors
    }
}

/// Rows of some requests. After a request and the beginning of its rows' names, each row has the end of its name, its
/// statement, its citation and its judge.
macro_rules! rows {
    ($($request:ident $start:literal { $($end:literal, $statement:expr, $citation:expr, $judge:expr;)* })*) => {
        &[$($(Row {
            id: concat!($start, "-", $end),
            request: SuiteRequest::$request,
            statement: $statement,
            citation: $citation,
            judge: $judge,
        },)*)*]
    };
}
pub(super) use rows;
