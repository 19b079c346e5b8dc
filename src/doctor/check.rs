//! Checks: what each asks about a server, and what can come of it.

use super::outcome::{Found, Judged, Outcome, Severity};
use super::question::Question;
use super::seen::Seen;
use crate::named::named;

named! {
    /// Part of the API that a check belongs to.
    pub enum Topic {
        /// Connections, keys, the list of models.
        Server = "server",
        /// Streams of Chat Completions.
        Streams = "streams",
        /// Reasoning.
        Reasoning = "reasoning",
        /// Usage.
        Usage = "usage",
        /// Tools.
        Tools = "tools",
        /// Requests that clients send.
        Requests = "requests",
        /// Parameters that shape the answer.
        Parameters = "parameters",
        /// Errors.
        Errors = "errors",
        /// Routes beside Chat Completions.
        Routes = "routes",
    }
}

/// Checks of a topic: each with its name, its question, the clients that are affected, the remedy by samewire (with its
/// rule for requests, if it has one) and its judge.
macro_rules! checks {
    (@option) => { None };
    (@option $it:literal) => { Some($it) };
    ($topic:ident: $(
        $id:literal, $question:ident, $affected:expr $(, mends $mends:literal $(by $rule:literal)?)? => $judge:expr;
    )*) => {
        &[$(Check {
            id: $id,
            topic: Topic::$topic,
            question: Question::$question,
            affected: &$affected,
            mends: checks!(@option $($mends)?),
            rule: checks!(@option $($($rule)?)?),
            judge: $judge,
        },)*]
    };
}
pub(super) use checks;

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
        let outcome = (check.judge)(seen).unwrap_or_else(|outcome| outcome);
        let mends = check
            .mends
            .filter(|_| check.rule.is_none_or(|rule| seen.server.has_rule(rule)));
        Self {
            check,
            outcome,
            mends,
        }
    }

    /// Returns the weight.
    pub fn severity(&self) -> Severity {
        self.outcome.severity()
    }

    /// Returns the difference, if there is one.
    pub fn found(&self) -> Option<&Found> {
        if let Outcome::Found(found) = &self.outcome {
            Some(found)
        } else {
            None
        }
    }
}
