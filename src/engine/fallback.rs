//! Other forms of a request, for engines that refuse it as it is: by which words of an engine each form is called for.
//!
//! Takes: a refusal. Gives: the [`Fallback`] that may mend it. Remembers: nothing; what was learnt about an upstream stands
//! in `upstream::learnt`. Never: decides whether the engine is asked again.

use super::rule::{Change, RequestRule};
use super::usual;
use crate::wire::fault::{Failure, Fault};
use std::fmt;

/// A form in which a request is sent once more to the engine that refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The texts of all system and developer messages stand in one message, the first (wire-format 2.10).
    SystemMerged,
    /// The engine is told that nothing is called, and calls are read in its text (engine-quirks E.2).
    CallsInText,
    /// Each choice is asked for by a request of its own.
    FanOut,
}

/// A set of fallbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks(u8);

impl Fallbacks {
    /// Whether the set has this one.
    pub fn has(self, fallback: Fallback) -> bool {
        self.0 & fallback.bit() != 0
    }

    /// The set with one more.
    #[must_use]
    pub fn with(self, fallback: Fallback) -> Self {
        Self(self.0 | fallback.bit())
    }

    /// Everything that one of the two sets has.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Fallbacks {
    /// The names of their rules, with commas between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Fallback::ALL.iter().filter(|fallback| self.has(**fallback));
        for (at, fallback) in all.enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}", fallback.rule().name)?;
        }
        Ok(())
    }
}

impl FromIterator<Fallback> for Fallbacks {
    fn from_iter<T: IntoIterator<Item = Fallback>>(all: T) -> Self {
        all.into_iter().fold(Self::default(), Self::with)
    }
}

/// The change of [`Fallback::SystemMerged`].
pub static SYSTEM_MERGED: RequestRule = RequestRule::new(
    "system_merged",
    "the texts of all system messages were put into the first message",
    Change::MergeSystem,
)
.seen("engine-quirks E.2");

/// The change of [`Fallback::CallsInText`].
pub static CALLS_IN_TEXT: RequestRule = RequestRule::new(
    "calls_in_text",
    "the engine, which has no parser of calls, was told that nothing is called: calls are read in its text",
    Change::CallsInText,
)
.seen("engine-quirks E.2");

/// The change of [`Fallback::FanOut`].
pub static FAN_OUT: RequestRule = usual::FAN_OUT.seen("engine-quirks E.2");

/// Part of what llama.cpp's server said of several choices, in lower case.
const ONE_CHOICE: &[&str] = &["only one completion choice is allowed"];

/// Parts of what vLLM says where tools are offered and it runs without a parser of calls, in lower case.
const NO_PARSER_OF_CALLS: &[&str] =
    &["--tool-call-parser", "--enable-auto-tool-choice", "tool_call_parser", "tool call parser"];

/// Parts of what chat templates say that take one system message, at the beginning, in lower case. Qwen3.5 and later say
/// the first; Gemma 3, Mistral and Phi say that roles must alternate, which a late system message breaks; Mistral's own
/// validation names the role.
const ONE_SYSTEM_MESSAGE: &[&str] = &[
    "system message must be",
    "system messages must be",
    "system message can only be",
    "system message should be",
    "system message is only allowed",
    "system messages are only allowed",
    "only one system message",
    "multiple system messages",
    "roles must alternate",
    "unexpected role 'system'",
    "unexpected role 'developer'",
    "unexpected message role",
    "unknown role: developer",
];

impl Fallback {
    const ALL: &'static [Self] = &[Self::SystemMerged, Self::CallsInText, Self::FanOut];

    /// The form that may mend this refusal. Engines report what a chat template raises with 400, 404 or 500, so the text
    /// alone counts.
    pub fn of(refusal: &Failure) -> Option<Self> {
        use Fault::{ContextLength, Internal, InvalidRequest, NotFound, NotImplemented};
        if !matches!(refusal.fault, InvalidRequest | Internal | NotFound | NotImplemented | ContextLength) {
            return None;
        }
        let message = refusal.original().to_ascii_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
        match () {
            () if says(NO_PARSER_OF_CALLS) => Some(Self::CallsInText),
            () if says(ONE_CHOICE) => Some(Self::FanOut),
            () if says(ONE_SYSTEM_MESSAGE) => Some(Self::SystemMerged),
            () => None,
        }
    }

    /// The refusal with what an operator can do, where no request can be made in this form.
    pub fn explain(self, refusal: Failure) -> Failure {
        match self {
            Self::SystemMerged | Self::FanOut => refusal,
            Self::CallsInText => {
                const OPTION: &str =
                    "samewire reads the calls itself where its option 'parser' names the model's family";
                let message = refusal.message.trim_end().trim_end_matches('.').to_owned();
                refusal.with_message(format!("{message}. ({OPTION}.)"))
            }
        }
    }

    /// The rule that gives a request this form.
    pub fn rule(self) -> &'static RequestRule {
        match self {
            Self::SystemMerged => &SYSTEM_MERGED,
            Self::CallsInText => &CALLS_IN_TEXT,
            Self::FanOut => &FAN_OUT,
        }
    }

    /// The form that this change gives a request.
    pub fn of_change(change: Change) -> Option<Self> {
        match change {
            Change::MergeSystem => Some(Self::SystemMerged),
            Change::CallsInText => Some(Self::CallsInText),
            Change::FanOut { .. } => Some(Self::FanOut),
            _ => None,
        }
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, message: &str) -> Failure {
        let body = format!(r#"{{"error":{{"message":"{message}","type":"BadRequestError"}}}}"#);
        Failure::of_answer(status, body.as_bytes(), true)
    }

    #[test]
    fn refusals_are_known_by_their_words() {
        for (status, message, expected) in [
            // vLLM, SGLang; llama.cpp; mlx.
            (400, "System message must be at the beginning.", Some(Fallback::SystemMerged)),
            (500, "Jinja Exception: System message must be at the beginning.", Some(Fallback::SystemMerged)),
            (404, "System message must be at the beginning.", Some(Fallback::SystemMerged)),
            (
                400,
                "Conversation roles must alternate user/assistant/user/assistant/...",
                Some(Fallback::SystemMerged),
            ),
            (
                500,
                "After the optional system message, conversation roles must alternate user and assistant roles",
                Some(Fallback::SystemMerged),
            ),
            (400, "Unexpected role 'system' after role 'user'", Some(Fallback::SystemMerged)),
            (
                400,
                r#"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"#,
                Some(Fallback::CallsInText),
            ),
            (
                400,
                r#"tool_choice=\"required\" requires --tool-call-parser to be set"#,
                Some(Fallback::CallsInText),
            ),
            (500, "Only one completion choice is allowed", Some(Fallback::FanOut)),
            (400, "No user query found in messages.", None),
            (400, "System role not supported", None),
            // The engine has too much to do, or does not know the key: no form mends that.
            (429, "System message must be at the beginning.", None),
            (503, "System message must be at the beginning.", None),
            (401, "System message must be at the beginning.", None),
        ] {
            assert_eq!(Fallback::of(&refusal(status, message)), expected, "{status} {message}");
        }
    }

    #[test]
    fn sets_have_what_was_put_into_them() {
        let none = Fallbacks::default();
        assert!(none.is_empty() && !none.has(Fallback::SystemMerged));
        let one: Fallbacks = [Fallback::SystemMerged].into_iter().collect();
        assert!(
            one.has(Fallback::SystemMerged)
                && none.and(one) == one
                && none.with(Fallback::SystemMerged) == one
        );
    }
}
