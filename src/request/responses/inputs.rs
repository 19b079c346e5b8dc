//! Inputs of the conversion to an engine's request, besides the client's body: engine capabilities, history,
//! aliases.

use crate::wire::{EngineFacts, TemplateFacts};

/// Capabilities of an engine that decide which optional parts of a Responses request it receives.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// True if the engine supports `verbosity`.
    pub verbosity: bool,
    /// True if the engine supports `cache_salt`.
    pub cache_salt: bool,
    /// True if the engine returns the token ids of its text, and a vocabulary to decode them is present.
    pub token_ids: bool,
    /// True if the engine accepts `tool_choice: "auto"` only with its own call parser enabled.
    pub wants_parser: bool,
    /// Order in which the engine takes requests by their field `priority`.
    pub priority: PriorityOrder,
    /// Facts about the engine's treatment of the model.
    pub facts: EngineFacts,
    /// True if items of hosted tools may appear in the input of the engine's own Responses API.
    pub hosted_items: bool,
    /// Number of tokens that this API subtracts from `max_output_tokens`, added beforehand to compensate.
    pub limit_taken_off: u64,
}

impl Capabilities {
    /// Capabilities that the API itself guarantees, without extensions.
    pub const PLAIN: Self = Self {
        verbosity: false,
        cache_salt: false,
        token_ids: false,
        wants_parser: false,
        priority: PriorityOrder::Unread,
        facts: EngineFacts {
            tells_reasoning: false,
            hides_reasoning: false,
            leaves_calls: false,
            effort_thinks: false,
            shows_prompt: false,
            refuses_special: None,
            template: TemplateFacts::UNKNOWN,
        },
        hosted_items: false,
        limit_taken_off: 0,
    };

    /// Capabilities of servers that separate reasoning from the text whatever their models are.
    pub const SEPARATING: Self = Self {
        facts: EngineFacts {
            tells_reasoning: true,
            ..Self::PLAIN.facts
        },
        ..Self::PLAIN
    };

    /// Capabilities of the OpenAI service and of engines that follow it.
    pub const SERVICE: Self = Self {
        verbosity: true,
        hosted_items: true,
        ..Self::PLAIN
    };
}

/// Order in which an engine takes requests by their field `priority` (engines E.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityOrder {
    /// The engine has no such field.
    Unread,
    /// Lower values come first.
    LowFirst,
    /// Higher values come first.
    HighFirst,
}

/// Inputs of a chat request that are not in the client's body: history, resolved references, keys to sealed
/// content.
#[derive(Clone, Copy)]
pub struct ChatInputs<'a> {
    /// Items of earlier requests and answers as JSON, oldest first.
    pub history: &'a [&'a str],
    /// Referenced items as JSON, each with the index that [`super::ResponsesRequest::references`] gave.
    pub resolved: &'a [(usize, &'a str)],
    /// Opens the `encrypted_content` of reasoning and compaction items; `None` if it cannot be opened.
    pub unseal: &'a dyn Fn(&str) -> Option<String>,
    /// Engine's name for the model, where it differs.
    pub model_alias: Option<&'a str>,
    /// Number of the oldest messages to leave out (`truncation: "auto"`).
    pub skip_oldest: usize,
}

impl Default for ChatInputs<'_> {
    fn default() -> Self {
        Self {
            history: &[],
            resolved: &[],
            unseal: &|_| None,
            model_alias: None,
            skip_oldest: 0,
        }
    }
}
