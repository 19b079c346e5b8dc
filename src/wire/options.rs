//! The options of the wire format (wire-format 1.9), as data.

use super::parse::EXAMPLES;
use crate::nearest::suggest;
use crate::quantity::read_seconds;
use serde::{Deserialize, Deserializer, Serialize};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)* }
    };
}

choice! {
    /// The key under which reasoning text reaches the client (2.4).
    ReasoningField {
        /// `reasoning_content`
        ReasoningContent = "reasoning_content",
        /// `reasoning`
        Reasoning = "reasoning",
        /// Both keys with the same text, so that clients of either convention read it.
        #[default] Both = "both",
        /// The text is removed, nothing else.
        None = "none",
    }
}
choice! {
    /// What the role frame carries (2.3 rule 2).
    RoleFrame {
        /// Only the role.
        #[default] Bare = "bare",
        /// As the OpenAI service: role, empty content, null refusal.
        Openai = "openai",
    }
}
choice! {
    /// How an answer to a forced named function finishes (2.6).
    NamedToolChoiceFinish {
        /// `tool_calls`, as for every other call.
        #[default] ToolCalls = "tool_calls",
        /// `stop` stays `stop`, as in the OpenAI service.
        Openai = "openai",
    }
}
choice! {
    /// What `[DONE]` without a finish means (3.3).
    MissingFinish {
        /// The answer is incomplete.
        #[default] Error = "error",
        /// The engine is known to forget it.
        Stop = "stop",
    }
}
choice! {
    /// The shape of the error frame (3.2).
    ErrorFrame {
        /// `{"error":{…}}`
        #[default] Nested = "nested",
        /// The same with `message` and `type` repeated at the top.
        FlatNested = "flat+nested",
    }
}
choice! {
    /// How much of an engine's own error text clients read (3.4).
    EngineErrors {
        /// All of it with a 4xx status, but for what it tells of the engine's host; with a 5xx status none of it.
        #[default] Auto = "auto",
        /// All of it.
        Pass = "pass",
        /// None of it.
        Mask = "mask",
    }
}
choice! {
    /// What a data line that is not a JSON object does (3.3).
    InvalidEvent {
        /// It ends the stream with an error.
        #[default] Error = "error",
        /// It is dropped and counted.
        Skip = "skip",
    }
}
choice! {
    /// What becomes of `system_fingerprint` (2.7).
    SystemFingerprint {
        /// Removed.
        #[default] Strip = "strip",
        /// Salted hash.
        Hash = "hash",
        /// Kept.
        Pass = "pass",
    }
}
choice! {
    /// What becomes of fields the format does not name (1.6).
    UnknownFields {
        /// Removed.
        #[default] Strip = "strip",
        /// Kept under `x_upstream`.
        Pass = "pass",
        /// Kept where they are, those that are null too; in a delta or message, under the choice's `x_upstream`.
        InPlace = "in_place",
    }
}
choice! {
    /// How tool call ids are treated (2.5 rule 8).
    ToolCallIds {
        /// Engine prefixes become `call_`, opaque ids stay.
        #[default] Canonical = "canonical",
        /// Only missing ids are filled.
        Preserve = "preserve",
        /// Everything else than `call_…` is replaced.
        Strict = "strict",
    }
}
choice! {
    /// What becomes of usage on every chunk (2.8).
    ContinuousUsage {
        /// Only the usage frame has it.
        #[default] Strip = "strip",
        /// Left on the frames if the request asked for it.
        Pass = "pass",
        /// Left on the frames on which the engine gives it, for engines that were told to give it always.
        Always = "always",
    }
}
choice! {
    /// Which events a Responses stream has (4.9).
    ResponsesDialect {
        /// Those of the OpenAI service.
        #[default] Openai = "openai",
        /// Those of the Open Responses specification.
        Openresponses = "openresponses",
        /// Those of the OpenAI service and older ones.
        CodexLegacy = "codex-legacy",
    }
}
choice! {
    /// Where reasoning stands in a Responses answer (4.5).
    ResponsesReasoning {
        /// In the content of reasoning items.
        #[default] Content = "content",
        /// In their summary.
        Summary = "summary",
        /// In both.
        Both = "both",
        /// Nowhere.
        None = "none",
    }
}
choice! {
    /// Padding of delta frames (2.9).
    Obfuscation {
        /// Never.
        #[default] Off = "off",
        /// Where the request asks for it.
        OnRequest = "on_request",
    }
}
choice! {
    /// What becomes of request fields the format does not name (2.10).
    RequestUnknown {
        /// Forwarded untouched: engines have many extensions.
        #[default] Pass = "pass",
        /// Left out of the engine's request.
        Drop = "drop",
        /// The request is refused.
        Reject = "reject",
    }
}
choice! {
    /// What becomes of a tool of a Responses request that the engine does not serve (4.2).
    UnsupportedTools {
        /// Left out, and named.
        #[default] Drop = "drop",
        /// The request is refused.
        Reject = "reject",
    }
}
choice! {
    /// The treatment of further system messages, and of those behind other messages (2.10).
    SystemMessages {
        /// Kept, unless the engine's chat template refuses them.
        #[default] Auto = "auto",
        /// Kept.
        Keep = "keep",
        /// Their texts are put into one message, the first.
        Merge = "merge",
    }
}
choice! {
    /// The role of the message that carries the `instructions` of a Responses request (4.2).
    InstructionsRole {
        /// `system`
        #[default] System = "system",
        /// `developer`
        Developer = "developer",
    }
}
choice! {
    /// What becomes of the role `developer` in the input of a Responses request (4.3).
    DeveloperRole {
        /// It becomes `system`, which every chat template knows.
        #[default] System = "system",
        /// Kept.
        Developer = "developer",
    }
}
choice! {
    /// What becomes of the `prompt_cache_key` of a Responses request (4.2).
    PromptCacheKey {
        /// Left out: prompts of different keys share the engine's cache.
        #[default] Drop = "drop",
        /// Sent as `cache_salt` to engines that know it: prompts of different keys share nothing.
        CacheSalt = "cache_salt",
    }
}
choice! {
    /// What becomes of Harmony text that an engine left unparsed (6).
    Harmony {
        /// It is text like any other.
        #[default] Off = "off",
        /// It is parsed.
        Text = "text",
        /// Its tokens are, where the engine tells them and there is a vocabulary; else the text.
        Tokens = "tokens",
    }
}
choice! {
    /// Where reasoning is looked for in the text (7).
    ThinkMode {
        /// Nowhere.
        #[default] Off = "off",
        /// In a block at the beginning, if the text begins with its tag.
        Auto = "auto",
        /// From the beginning on: the chat template has opened the block.
        Forced = "forced",
        /// Between every start tag and end tag.
        Anywhere = "anywhere",
    }
}

/// How reasoning stands in text that an engine left unparsed (7).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Think {
    /// Where it is looked for.
    pub mode: ThinkMode,
    /// What opens a block.
    pub start: String,
    /// What closes it.
    pub end: String,
    /// White space around it goes.
    pub trim: bool,
    /// What else closes a block, and stays: the beginning of a call; empty: nothing.
    #[serde(deserialize_with = "text_or_null")]
    pub tool_start: String,
}

/// A text, or `null` for none.
fn text_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(from).map(Option::unwrap_or_default)
}

impl Default for Think {
    fn default() -> Self {
        Self {
            mode: ThinkMode::Off,
            start: "<think>".to_owned(),
            end: "</think>".to_owned(),
            trim: false,
            tool_start: String::new(),
        }
    }
}

/// Who parses the model's text where the engine does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Parser {
    /// Nobody.
    #[default]
    Off,
    /// Whoever knows the markers that are seen in it.
    Auto,
    /// The parser of this family of models.
    Family(String),
}

impl Parser {
    /// The names of all families.
    pub fn names() -> impl Iterator<Item = &'static str> {
        super::parse::names()
    }
}

impl TryFrom<String> for Parser {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ if super::parse::knows(&name) => Ok(Self::Family(name)),
            _ => {
                let why = format!("must be off, auto or the name of a parser: {EXAMPLES}");
                Err(suggest(why, &name, Self::names().chain(["off", "auto"])))
            }
        }
    }
}

impl From<Parser> for String {
    fn from(parser: Parser) -> Self {
        match parser {
            Parser::Off => "off".to_owned(),
            Parser::Auto => "auto".to_owned(),
            Parser::Family(name) => name,
        }
    }
}

/// Every option of the wire format, with the defaults of wire-format 1.9.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Name of the reasoning key.
    pub reasoning_field: ReasoningField,
    /// Whether a whole answer that is nothing but reasoning, and ended of itself, is taken for the answer's text.
    pub promote_reasoning: bool,
    /// Shape of the role frame.
    pub role_frame: RoleFrame,
    /// Finish of an answer to a forced function.
    pub named_tool_choice_finish: NamedToolChoiceFinish,
    /// Meaning of `[DONE]` without a finish.
    pub missing_finish: MissingFinish,
    /// Shape of the error frame.
    pub error_frame: ErrorFrame,
    /// How much of an engine's own error text clients read.
    pub engine_errors: EngineErrors,
    /// Whether `[DONE]` follows an error frame.
    pub done_after_error: bool,
    /// Treatment of events that are not JSON objects.
    pub invalid_event: InvalidEvent,
    /// Treatment of the fingerprint.
    pub system_fingerprint: SystemFingerprint,
    /// Salt of the hashed fingerprint.
    pub fingerprint_salt: String,
    /// Whether `stop_reason` is kept.
    pub stop_details: bool,
    /// Treatment of unknown fields.
    pub unknown_fields: UnknownFields,
    /// Treatment of tool call ids.
    pub tool_call_ids: ToolCallIds,
    /// `upstream`, `requested`, or a fixed name that every answer carries.
    pub model_name: String,
    /// Treatment of usage on every chunk.
    pub continuous_usage: ContinuousUsage,
    /// Whether usage is sent although nobody asked.
    pub force_usage: bool,
    /// Padding of delta frames.
    pub obfuscation: Obfuscation,
    /// Seconds of silence before a keep-alive comment; 0 for none.
    #[serde(deserialize_with = "read_seconds")]
    pub keepalive_seconds: u64,
    /// Seconds that the status may wait for the first engine event (3.1).
    #[serde(deserialize_with = "read_seconds")]
    pub commit_after_seconds: u64,
    /// Treatment of reasoning in text.
    pub think: Think,
    /// Treatment of reasoning and calls in text.
    pub parser: Parser,
    /// Treatment of Harmony text.
    pub harmony: Harmony,
    /// Treatment of unknown request fields.
    pub request_unknown: RequestUnknown,
    /// Events of a Responses stream.
    pub responses_dialect: ResponsesDialect,
    /// Place of reasoning in a Responses answer.
    pub responses_reasoning: ResponsesReasoning,
    /// Treatment of tools that the engine does not serve.
    pub unsupported_tools: UnsupportedTools,
    /// Role of the instructions.
    pub instructions_role: InstructionsRole,
    /// Treatment of the role `developer`.
    pub developer_role: DeveloperRole,
    /// Treatment of the prompt's cache key.
    pub prompt_cache_key: PromptCacheKey,
    /// Treatment of system messages besides the first.
    pub system_messages: SystemMessages,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reasoning_field: ReasoningField::default(),
            promote_reasoning: false,
            role_frame: RoleFrame::default(),
            named_tool_choice_finish: NamedToolChoiceFinish::default(),
            missing_finish: MissingFinish::default(),
            error_frame: ErrorFrame::default(),
            engine_errors: EngineErrors::default(),
            done_after_error: false,
            invalid_event: InvalidEvent::default(),
            system_fingerprint: SystemFingerprint::default(),
            fingerprint_salt: String::new(),
            stop_details: false,
            unknown_fields: UnknownFields::default(),
            tool_call_ids: ToolCallIds::default(),
            model_name: "upstream".to_owned(),
            continuous_usage: ContinuousUsage::default(),
            force_usage: false,
            obfuscation: Obfuscation::default(),
            keepalive_seconds: 15,
            commit_after_seconds: 10,
            think: Think::default(),
            parser: Parser::default(),
            harmony: Harmony::default(),
            request_unknown: RequestUnknown::default(),
            responses_dialect: ResponsesDialect::default(),
            responses_reasoning: ResponsesReasoning::default(),
            unsupported_tools: UnsupportedTools::default(),
            instructions_role: InstructionsRole::default(),
            developer_role: DeveloperRole::default(),
            prompt_cache_key: PromptCacheKey::default(),
            system_messages: SystemMessages::default(),
        }
    }
}
