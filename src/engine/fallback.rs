//! Fallbacks: other forms of a request, for engines that refuse its normal form, and the words in a refusal that
//! call for each form.
//!
//! Takes: a refusal. Gives: the [`Fallback`] that may help. Remembers: nothing; what was learned about an upstream is
//! kept in `upstream::learned`. Never: decides whether a request is sent again.

use super::rule::{Change, RequestRule};
use super::usual;
use crate::wire::fault::{Failure, Fault};
use crate::wire::overflow::exceeds_by_its_limit;
use std::fmt;

/// Fallback: a form in which a request is sent again to the engine that refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Merges all system and developer messages into one at the start (wire-format 2.10).
    SystemMerged,
    /// Sets `tool_choice` to `none`; samewire reads the calls from the model's text (engines E.2).
    CallsInText,
    /// Sends one request for each choice.
    FanOut,
    /// Leaves out the limit on the answer, which does not fit into the context beside the prompt. Only for Messages,
    /// whose clients ask for more than models hold (messages 3.5).
    LimitLeftOut,
}

/// Set of fallbacks, one bit for each. Upstreams remember which ones they need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks(u8);

impl Fallbacks {
    /// Returns the set of which [`Display`](fmt::Display) gives these names; `None` if one is not known.
    pub fn named(names: &str) -> Option<Self> {
        let of = |name| Fallback::ALL.iter().copied().find(|fallback| fallback.rule().name == name);
        names.split(',').filter(|name| !name.is_empty()).map(of).collect()
    }

    /// Returns true if the set contains this fallback.
    pub fn has(self, fallback: Fallback) -> bool {
        self.0 & fallback.bit() != 0
    }

    /// Returns the set with this fallback added.
    #[must_use]
    pub fn with(self, fallback: Fallback) -> Self {
        Self(self.0 | fallback.bit())
    }

    /// Returns the union of the two sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the fallback that may help after this refusal, unless the set contains it.
    pub fn further(self, refusal: &Failure) -> Option<Fallback> {
        Fallback::of(refusal).filter(|fallback| !self.has(*fallback))
    }

    /// Returns the fallbacks that later requests need as well. A limit is judged anew for each prompt.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self(self.0 & !Fallback::LimitLeftOut.bit())
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Fallbacks {
    /// Writes the names of the fallbacks' rules, separated by commas.
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

/// Rule of [`Fallback::SystemMerged`]: merges system messages, because the chat template takes only one, at the
/// start.
pub static SYSTEM_MERGED: RequestRule = RequestRule::new(
    "system_merged",
    "the texts of all system messages were put into the first message",
    Change::MergeSystem,
)
.with_evidence("engines E.2");

/// Rule of [`Fallback::CallsInText`]: turns tool parsing off in the engine, because it runs without a parser of
/// calls.
pub static CALLS_IN_TEXT: RequestRule = RequestRule::new(
    "calls_in_text",
    "the engine, which has no parser of calls, was told that nothing is called: calls are read in its text",
    Change::CallsInText,
)
.with_evidence("engines E.2");

/// Rule of [`Fallback::FanOut`]: sends one request for each choice, because the engine gives only one.
pub static FAN_OUT: RequestRule = usual::FAN_OUT.with_evidence("engines E.2");

/// Rule of [`Fallback::LimitLeftOut`]: leaves out a limit that the context cannot hold beside the prompt.
pub static LIMIT_LEFT_OUT: RequestRule = RequestRule::new(
    "limit_left_out",
    "max_tokens was left out, because the context cannot hold so many beside the prompt",
    Change::Drop(&["max_completion_tokens", "max_tokens"]),
)
.with_evidence("messages 3.5");

/// Part of llama.cpp's error message for several choices, in lower case.
const ONE_CHOICE: &[&str] = &["only one completion choice is allowed"];

/// Parts of vLLM's error messages for tools when it runs without a parser of calls, in lower case.
const NO_PARSER_OF_CALLS: &[&str] =
    &["--tool-call-parser", "--enable-auto-tool-choice", "tool_call_parser", "tool call parser"];

/// Parts of the error messages of chat templates that take one system message, at the start, in lower case. Qwen3.5
/// and later use the first; Gemma 3, Mistral and Phi require alternating roles, which a late system message breaks;
/// Mistral's own validation names the role.
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
    const ALL: &'static [Self] = &[Self::SystemMerged, Self::CallsInText, Self::FanOut, Self::LimitLeftOut];

    /// Returns the fallback that may help after this refusal, or `None`. Engines report a chat template's error with
    /// 400, 404 or 500, so the text decides.
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
            () if exceeds_by_its_limit(refusal) => Some(Self::LimitLeftOut),
            () => None,
        }
    }

    /// Returns the refusal with advice for the operator, for requests that cannot be sent in this form.
    pub fn explain(self, refusal: Failure) -> Failure {
        match self {
            Self::SystemMerged | Self::FanOut | Self::LimitLeftOut => refusal,
            Self::CallsInText => {
                const OPTION: &str =
                    "samewire reads the calls itself where its option 'parser' names the model's family";
                let message = refusal.message.trim_end().trim_end_matches('.').to_owned();
                refusal.with_message(format!("{message}. ({OPTION}.)"))
            }
        }
    }

    /// Returns the rule that brings a request into this form.
    pub fn rule(self) -> &'static RequestRule {
        match self {
            Self::SystemMerged => &SYSTEM_MERGED,
            Self::CallsInText => &CALLS_IN_TEXT,
            Self::FanOut => &FAN_OUT,
            Self::LimitLeftOut => &LIMIT_LEFT_OUT,
        }
    }

    /// Returns the fallback that makes this change, or `None` if none does.
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
            (
                400,
                "This model's maximum context length is 2048 tokens. However, you requested 600 output tokens and \
                 your prompt contains 2000 input tokens, for a total of 2600 tokens.",
                Some(Fallback::LimitLeftOut),
            ),
            (
                400,
                "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context length \
                 is only 131072 tokens.",
                Some(Fallback::LimitLeftOut),
            ),
            (
                400,
                "This model's maximum context length is 2048 tokens. However, your request has 2513 input tokens.",
                None,
            ),
            (400, "No user query found in messages.", None),
            (400, "System role not supported", None),
            // An overloaded engine, or one that does not accept the key: no other form helps.
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
                && none.union(one) == one
                && none.with(Fallback::SystemMerged) == one
        );
    }
}
