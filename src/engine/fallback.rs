//! Fallbacks: other forms of a request, for engines that refuse its normal form, and the words in a refusal that
//! call for each form.
//!
//! Takes: a refusal. Gives: the [`Fallback`] that may help. Remembers: nothing; the fallbacks learned about an upstream
//! are kept in `upstream::learned`. Never: decides whether a request is sent again.

use super::efforts::Efforts;
use super::rule::{RequestRule, RuleChange};
use super::usual;
use crate::wire::fault::{Failure, Fault};
use crate::wire::overflow::exceeds_by_its_limit;
use std::fmt;

/// Declares the fallbacks, in the order in which they are written: each with the name of its rule, the change, what it does
/// in words, and the evidence.
macro_rules! fallbacks {
    ($($(#[$doc:meta])* $fallback:ident $(($value:ident))? = $name:literal, $change:expr, $what:expr, $evidence:literal;)*) => {
        /// Fallback: a form in which a request is sent again to the engine that refused it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fallback {
            $($(#[$doc])* $fallback $(($value))?,)*
        }

        /// Place of a fallback's bit in a set.
        enum Place {
            $($fallback,)*
        }

        impl Fallback {
            const ALL: &'static [Self] = &[$(Self::$fallback $(($value::NONE))?,)*];

            /// Returns the rule that brings a request into this form.
            pub fn rule(self) -> &'static RequestRule {
                match self {
                    $(Self::$fallback { .. } => {
                        static RULE: RequestRule =
                            RequestRule::new($name, $what, $change).with_evidence($evidence);
                        &RULE
                    })*
                }
            }

            fn bit(self) -> u16 {
                match self {
                    $(Self::$fallback { .. } => 1 << Place::$fallback as u16,)*
                }
            }
        }
    };
}

fallbacks! {
    /// Merges all system and developer messages into one at the start, because the chat template takes only one, there
    /// (wire-format 2.10).
    SystemMerged = "system_merged", RuleChange::MergeSystem,
        "the texts of all system messages were put into the first message", "engines E.2";
    /// Merges neighbouring messages of one role, because the chat template wants roles that alternate (engines E.2).
    RolesMerged = "roles_merged", RuleChange::OfFinishedBody,
        "neighbouring messages of one role became one, because the model's roles must alternate",
        "engines E.2";
    /// Sets `tool_choice` to `none`, because the engine runs without a parser of calls; samewire reads them from the
    /// model's text (engines E.2).
    CallsInText = "calls_in_text", RuleChange::CallsInText,
        "the engine, which has no parser of calls, was told that nothing is called: calls are read in its text",
        "engines E.2";
    /// Sends one request for each choice, because the engine gives only one.
    FanOut = "fan_out", usual::FAN_OUT.change, usual::FAN_OUT.what, "engines E.2";
    /// Leaves out the limit on the answer, which does not fit into the context beside the prompt. Clients ask for more
    /// than models hold (messages 3.5).
    LimitLeftOut = "limit_left_out", RuleChange::Drop(&["max_completion_tokens", "max_tokens"]),
        "max_tokens was left out, because the context cannot hold so many beside the prompt", "messages 3.5";
    /// Puts the text beside calls and reasoning into the reasoning: the chat template of gpt-oss in llama.cpp takes one of
    /// both (engines E.3).
    TextInReasoning = "text_in_reasoning", RuleChange::OfFinishedBody,
        "text beside reasoning and calls was put into the reasoning, because the model's template takes one of both",
        "engines E.3";
    /// Moves images out of the results of tools into a message of the user, because the engine takes only text from
    /// tools (engines E.3, messages 3.3).
    ImagesAfterTools = "images_after_tools", RuleChange::OfFinishedBody,
        "images in the results of tools were moved into a message of the user, and are named in the results",
        "messages 3.3";
    /// Replaces the effort with the nearest of these (engines E.2).
    Effort(Efforts) = "effort_of_model", RuleChange::LearnedEffort,
        "the effort became the nearest one that the model takes", "engines E.2";
    /// Leaves out the effort, of which the model takes none that is known.
    EffortLeftOut = "effort_left_out", RuleChange::Drop(&["reasoning_effort"]),
        "the effort was left out, because the model refuses it", "engines E.2";
    /// Leaves out a budget of tokens for reasoning that the client gave by another name: vLLM without a reasoning parser
    /// takes none (engines E.2).
    BudgetLeftOut = "budget_left_out", RuleChange::BudgetLeftOut,
        "the budget for reasoning was left out, because the engine has no reasoning parser", "engines E.2";
    /// The prompt is not requested with the answer: a gateway in front of vLLM may refuse the field (engines G.12).
    PromptNotRequested = "prompt_not_requested", RuleChange::Drop(&["return_prompt_text"]),
        "the prompt was not requested with the answer, because the engine refuses that", "engines G.12";
}

/// Set of fallbacks. Upstreams remember which ones they need, for each model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    /// Fallbacks of the set, one bit for each.
    bits: u16,
    /// Efforts of [`Fallback::Effort`]; none without it.
    efforts: Efforts,
}

impl Fallbacks {
    /// Returns the set of which [`Display`](fmt::Display) gives these names; `None` if one is not known.
    pub fn named(names: &str) -> Option<Self> {
        let of = |name: &str| {
            let (name, efforts) = name.split_once(':').unwrap_or((name, ""));
            let efforts = Efforts::of(efforts.split(':').filter(|word| !word.is_empty()))?;
            let fallback = Fallback::ALL
                .iter()
                .copied()
                .find(|fallback| fallback.rule().name == name)?;
            Some(if let Fallback::Effort(_) = fallback {
                Fallback::Effort(efforts)
            } else {
                fallback
            })
        };
        names
            .split(',')
            .filter(|name| !name.is_empty())
            .map(of)
            .collect()
    }

    /// Returns true if the set contains this fallback.
    pub fn has(self, fallback: Fallback) -> bool {
        self.bits & fallback.bit() != 0
    }

    /// Returns the efforts that the model takes; none if that is not known.
    pub fn efforts(self) -> Efforts {
        self.efforts
    }

    /// Returns the set with this fallback added.
    #[must_use]
    pub fn with(self, fallback: Fallback) -> Self {
        let efforts = if let Fallback::Effort(efforts) = fallback {
            efforts
        } else {
            self.efforts
        };
        Self {
            bits: self.bits | fallback.bit(),
            efforts,
        }
    }

    /// Returns the union of the two sets, with the efforts of the other one if it has any.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let efforts = if other.efforts.is_empty() {
            self.efforts
        } else {
            other.efforts
        };
        Self {
            bits: self.bits | other.bits,
            efforts,
        }
    }

    /// Returns the fallbacks that may help after this refusal, in the order in which they are tried, without those of
    /// the set.
    pub fn further(self, refusal: &Failure) -> impl Iterator<Item = Fallback> {
        Fallback::of(refusal).filter(move |fallback| !self.has(*fallback))
    }

    /// Returns the fallbacks that later requests need as well. A limit is judged anew for each prompt, and an effort
    /// without a word for what is accepted may be refused alone.
    #[must_use]
    pub fn lasting(self) -> Self {
        let passing = Fallback::LimitLeftOut.bit() | Fallback::EffortLeftOut.bit();
        Self {
            bits: self.bits & !passing,
            ..self
        }
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }
}

impl fmt::Display for Fallbacks {
    /// Writes the names of the fallbacks' rules, separated by commas. The efforts follow their rule, each with a colon
    /// before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Fallback::ALL.iter().filter(|fallback| self.has(**fallback));
        for (at, fallback) in all.enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}", fallback.rule().name)?;
            if let Fallback::Effort(_) = fallback {
                write!(f, ":{}", self.efforts)?;
            }
        }
        Ok(())
    }
}

impl FromIterator<Fallback> for Fallbacks {
    fn from_iter<T: IntoIterator<Item = Fallback>>(all: T) -> Self {
        all.into_iter().fold(Self::default(), Self::with)
    }
}

/// Field by which vLLM is requested to return the prompt, as refusals name it.
const PROMPT_FIELD: &[&str] = &["return_prompt_text"];

/// Part of vLLM's error message for a budget when it runs without a reasoning parser, in lower case.
const NO_BUDGET: &[&str] = &["thinking_token_budget is set but"];

/// Parts of llama.cpp's error messages for several choices, in lower case: none, or more than it has slots.
const ONE_CHOICE: &[&str] = &[
    "only one completion choice is allowed",
    "field 'n': value must be between",
];

/// Parts of vLLM's error messages for tools when it runs without a parser of calls, in lower case. The last is that of
/// its front end in Rust.
const NO_PARSER_OF_CALLS: &[&str] = &[
    "--tool-call-parser",
    "--enable-auto-tool-choice",
    "tool_call_parser",
    "tool call parser",
    "tool parsing is disabled",
];

/// Parts of the error messages of chat templates that take one system message, at the start, in lower case. Qwen3.5
/// and later use the first; Mistral's own validation names the role.
const ONE_SYSTEM_MESSAGE: &[&str] = &[
    "system message must be",
    "system messages must be",
    "system message can only be",
    "system message should be",
    "system message is only allowed",
    "system messages are only allowed",
    "only one system message",
    "multiple system messages",
    "unexpected role 'system'",
    "unexpected role 'developer'",
    "unexpected message role",
    "unknown role: developer",
];

/// Parts of the error messages of chat templates in which the user and the assistant take turns, in lower case: Gemma
/// 3, Mistral, Devstral, Phi. A late system message breaks that, too.
const ROLES_ALTERNATE: &[&str] = &["roles must alternate"];

/// Part of the message of gpt-oss' chat template in llama.cpp, in lower case.
const CONTENT_AND_THINKING: &[&str] = &["cannot pass both content and thinking"];

/// Parts of refusals of what is no text in the result of a tool, in lower case. Only requests with such a result are
/// sent again.
const TEXT_OF_TOOLS: &[&str] = &[
    "image",
    "content type",
    "content part",
    "content[]",
    "must be a string",
    "valid string",
    "only text",
    "multimodal",
];

/// Words of refusals of an effort, in lower case.
const EFFORT_WORDS: &[&str] = &[
    "reasoning effort",
    "reasoning_effort",
    "thinking effort",
    "thinking_effort",
];

impl Fallback {
    /// Returns the fallbacks that may help after this refusal, in the order in which they are tried. Engines report a
    /// chat template's error with 400, 404 or 500, so the text decides.
    pub fn of(refusal: &Failure) -> impl Iterator<Item = Self> + use<> {
        use Fault::{ContextLength, Internal, InvalidRequest, NotFound, NotImplemented};
        let is_refusal = matches!(
            refusal.fault,
            InvalidRequest | Internal | NotFound | NotImplemented | ContextLength
        );
        let message = if is_refusal {
            refusal.original().to_ascii_lowercase()
        } else {
            String::new()
        };
        let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
        let all = match () {
            () if says(PROMPT_FIELD) => [Some(Self::PromptNotRequested), None],
            () if says(NO_PARSER_OF_CALLS) => [Some(Self::CallsInText), None],
            () if says(ONE_CHOICE) => [Some(Self::FanOut), None],
            () if says(ONE_SYSTEM_MESSAGE) => [Some(Self::SystemMerged), None],
            () if says(ROLES_ALTERNATE) => [Some(Self::SystemMerged), Some(Self::RolesMerged)],
            () if says(CONTENT_AND_THINKING) => [Some(Self::TextInReasoning), None],
            () if says(NO_BUDGET) => [Some(Self::BudgetLeftOut), None],
            () if says(EFFORT_WORDS) => {
                let accepted =
                    Some(Efforts::accepted_by(&message)).filter(|efforts| !efforts.is_empty());
                [accepted.map(Self::Effort), Some(Self::EffortLeftOut)]
            }
            () if exceeds_by_its_limit(refusal) => [Some(Self::LimitLeftOut), None],
            () if says(TEXT_OF_TOOLS) => [Some(Self::ImagesAfterTools), None],
            () => [None, None],
        };
        all.into_iter().flatten()
    }

    /// Returns the refusal with advice for the operator, for requests that cannot be sent in this form.
    pub fn explain(self, refusal: Failure) -> Failure {
        match self {
            Self::CallsInText => {
                const OPTION: &str = "samewire reads the calls itself where its option 'parser' names the model's family";
                let message = refusal.message.trim_end().trim_end_matches('.').to_owned();
                refusal.with_message(format!("{message}. ({OPTION}.)"))
            }
            _ => refusal,
        }
    }

    /// Returns the fallback of this rule, or `None` if it has none.
    pub fn of_rule(rule: &RequestRule) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|fallback| fallback.rule().name == rule.name)
            .copied()
    }

    /// Returns the rules of all fallbacks.
    pub fn rules() -> impl Iterator<Item = &'static RequestRule> {
        Self::ALL.iter().map(|fallback| fallback.rule())
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
            (
                400,
                "System message must be at the beginning.",
                Some(Fallback::SystemMerged),
            ),
            (
                500,
                "Jinja Exception: System message must be at the beginning.",
                Some(Fallback::SystemMerged),
            ),
            (
                404,
                "System message must be at the beginning.",
                Some(Fallback::SystemMerged),
            ),
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
            (
                400,
                "Unexpected role 'system' after role 'user'",
                Some(Fallback::SystemMerged),
            ),
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
            (
                500,
                "Only one completion choice is allowed",
                Some(Fallback::FanOut),
            ),
            (
                400,
                "Field 'n': Value must be between 1 <= value <= 4, but got 5",
                Some(Fallback::FanOut),
            ),
            (
                500,
                "failed to submit chat request: tool parsing is disabled by frontend configuration",
                Some(Fallback::CallsInText),
            ),
            (
                400,
                "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser \
                 and/or --reasoning-config to use thinking_token_budget.",
                Some(Fallback::BudgetLeftOut),
            ),
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
            (
                400,
                "Unknown parameter: 'return_prompt_text'.",
                Some(Fallback::PromptNotRequested),
            ),
            (400, "No user query found in messages.", None),
            (400, "System role not supported", None),
            // An overloaded engine, or one that does not accept the key: no other form helps.
            (429, "System message must be at the beginning.", None),
            (503, "System message must be at the beginning.", None),
            (401, "System message must be at the beginning.", None),
        ] {
            assert_eq!(
                Fallback::of(&refusal(status, message)).next(),
                expected,
                "{status} {message}"
            );
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
