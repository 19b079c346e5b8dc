//! Options of the wire format (wire-format 1.9), as data: one enum for each choice, and [`Options`] with the
//! defaults.

use super::parse::names::EXAMPLES;
use crate::json::{self, Raw};
use crate::nearest::suggest;
use crate::quantity::{read_seconds, read_size};
use core::fmt;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)* }
    )*};
}

choices! {
    /// Key under which reasoning text reaches the client (2.4). Client libraries disagree on the name.
    ReasoningField {
        /// `reasoning_content`
        ReasoningContent = "reasoning_content",
        /// `reasoning`
        Reasoning = "reasoning",
        /// Both keys with the same text, so that clients of either convention read it.
        #[default] Both = "both",
        /// Removal: answers have no reasoning text, and nothing else changes.
        None = "none",
    }

    /// Content of the role frame, the first frame of a choice (2.3 rule 2).
    RoleFrame {
        /// The role alone, in the first frame of each choice.
        #[default] Bare = "bare",
        /// The OpenAI service's form: role, empty content, null refusal.
        Openai = "openai",
    }

    /// Finish reason of an answer to a `tool_choice` that forces a named function (2.6).
    NamedToolChoiceFinish {
        /// `tool_calls`, the same as for every other call, although the engine may say `stop`.
        #[default] ToolCalls = "tool_calls",
        /// `stop` stays `stop`, as the OpenAI service has it for forced functions.
        Openai = "openai",
    }

    /// Meaning of `[DONE]` without a finish reason, which some engines forget to send (3.3).
    MissingFinish {
        /// The answer is incomplete and fails with `upstream_incomplete`.
        #[default] Error = "error",
        /// The choice stopped normally, for engines that are known to omit the finish.
        Stop = "stop",
    }

    /// Shape of the error frame in a stream (3.2).
    ErrorFrame {
        /// `{"error":{…}}`, as openai-python and openai-node expect it.
        #[default] Nested = "nested",
        /// Error object with `message` and `type` repeated at the top, for clients that look for them there.
        FlatNested = "flat+nested",
    }

    /// Share of an engine's own error text that clients see (3.4).
    EngineErrors {
        /// `redact` for clients of the same machine, `redact_4xx` for others; the configuration says which
        /// ([`EngineErrors::resolved`]).
        #[default] Auto = "auto",
        /// Text without what reveals the engine's host, up to a stack trace.
        Redact = "redact",
        /// Text without what reveals the engine's host with a 4xx status; no text with a 5xx status.
        Redact4xx = "redact_4xx",
        /// The whole text, whatever the status.
        Pass = "pass",
        /// No text of the engine: clients read the fixed message of the class and the request id.
        Mask = "mask",
    }

    /// Treatment of an engine event whose data is not a JSON object (3.3).
    InvalidEvent {
        /// The stream ends with the error `upstream_invalid_event`.
        #[default] Error = "error",
        /// The event is dropped and counted under the rule `invalid_skipped`.
        Skip = "skip",
    }

    /// Treatment of `system_fingerprint`, which may reveal the engine and its version (2.7).
    SystemFingerprint {
        /// Removed from all frames and answers, so that clients do not learn the engine's build.
        #[default] Strip = "strip",
        /// Replaced with a hash, salted with `fingerprint_salt`, that still shows when the engine changes.
        Hash = "hash",
        /// Kept as the engine sends it.
        Pass = "pass",
    }

    /// Treatment of fields in an engine's answer that the format does not name (1.6).
    UnknownFields {
        /// Removed, at every level of the answer.
        #[default] Strip = "strip",
        /// Kept under `x_upstream` of the chunk or of the choice.
        Pass = "pass",
        /// Kept in place, null values included; those of a delta or message move to the choice's `x_upstream`.
        InPlace = "in_place",
    }

    /// Treatment of the ids that engines give to tool calls (2.5 rule 8).
    ToolCallIds {
        /// Engine-specific prefixes become `call_`; other ids are opaque and stay, because chat templates may parse
        /// them.
        #[default] Canonical = "canonical",
        /// Ids stay as the engine sends them; only missing ones are derived.
        Preserve = "preserve",
        /// Ids are replaced with a hash unless they are `call_` and at most 59 letters, digits, `_` and `-`.
        Strict = "strict",
    }

    /// Repair of a tool call's arguments that are no JSON (2.5 rule 15).
    RepairArguments {
        /// No repair: arguments pass as the model wrote them.
        #[default] Off = "off",
        /// Markup after a complete value is dropped, such as `</tool_call>`.
        Tail = "tail",
        /// The same, and a fixed list of mistakes in the value is corrected, for which the value is held to its end.
        Json = "json",
    }

    /// Treatment of usage that the engine sends on every chunk (2.8).
    ContinuousUsage {
        /// Removed from all other frames; only the usage frame has it.
        #[default] Strip = "strip",
        /// Kept on the frames if the request asked for it (`continuous_usage_stats`).
        Pass = "pass",
        /// Kept on the frames on which the engine sends it, for engines configured to send it always.
        Always = "always",
    }

    /// Set of events and fields in a Responses stream, for clients of different specifications (4.9).
    ResponsesDialect {
        /// Events of the OpenAI service alone.
        #[default] Openai = "openai",
        /// Events of the Open Responses specification instead of the service's.
        Openresponses = "openresponses",
        /// Events of the OpenAI service and older ones; at the end, the used share of the client's limits.
        CodexLegacy = "codex-legacy",
    }

    /// Place of reasoning text in a Responses answer; clients differ in which one they read (4.5).
    ResponsesReasoning {
        /// Content of reasoning items; also their summary if the request has `reasoning.summary`.
        Content = "content",
        /// Summary of reasoning items, the only part that some clients show.
        Summary = "summary",
        /// Content and summary, with the same text: many clients show the summary alone, and do not ask for it.
        #[default] Both = "both",
        /// No place: reasoning is removed from the answer.
        None = "none",
    }

    /// Padding of delta frames, which hides the length of their text from observers of the connection (2.9).
    Obfuscation {
        /// No padding, whatever the request asks for.
        #[default] Off = "off",
        /// Padding if the request asks for it (`stream_options.include_obfuscation`).
        OnRequest = "on_request",
    }

    /// Treatment of fields in a request that the API does not name (2.10).
    RequestUnknown {
        /// Forwarded unchanged, because engines have many extensions.
        #[default] Pass = "pass",
        /// Removed from the request that the engine gets; the rest is sent.
        Drop = "drop",
        /// Refused: the whole request fails with `unknown_parameter`.
        Reject = "reject",
    }

    /// Treatment of a tool in a Responses request that the engine cannot serve (4.2).
    UnsupportedTools {
        /// Removed; the log and the header `x-samewire-dropped` name it.
        #[default] Drop = "drop",
        /// Refused: the whole request fails with `unsupported_value`.
        Reject = "reject",
    }

    /// Treatment of a content block in a Messages request that no engine can read, such as a PDF (messages 3.3).
    UnsupportedContent {
        /// Refused: the whole request fails with the path of the block.
        #[default] Reject = "reject",
        /// Removed; the log and the header `x-samewire-dropped` name it.
        Drop = "drop",
    }

    /// Treatment of a system block in a Messages request that only carries a client's billing text (messages 3.2).
    BillingBlock {
        /// Removed: it changes from request to request, and would spoil the engine's prefix cache.
        #[default] Drop = "drop",
        /// Kept as any other text.
        Keep = "keep",
    }

    /// Share of the thinking that a client of Messages sees (messages 4.3).
    MessagesThinking {
        /// Share that the request asks for: the text, or blocks without it.
        #[default] Request = "request",
        /// The text, unless the request switches thinking off.
        Shown = "shown",
        /// Blocks without text, whose signature carries it in sealed form.
        Omitted = "omitted",
        /// No blocks of thinking.
        None = "none",
    }

    /// Treatment of system messages after the first, or after other messages (2.10).
    SystemMessages {
        /// Kept; merged once the engine's chat template has refused them.
        #[default] Auto = "auto",
        /// Kept in every case; they are never merged.
        Keep = "keep",
        /// Merged into one message at the start, for chat templates that take only one.
        Merge = "merge",
    }

    /// Role of the chat message that carries the `instructions` of a Responses request (4.2).
    InstructionsRole {
        /// `system`
        #[default] System = "system",
        /// `developer`
        Developer = "developer",
    }

    /// Treatment of messages with the role `developer` in the input of a request (2.10, 4.3).
    DeveloperRole {
        /// Replaced with `system`, which every chat template knows.
        #[default] System = "system",
        /// Kept, for models whose chat template knows the role.
        Developer = "developer",
    }

    /// Treatment of the `prompt_cache_key` of a Responses request: ignored, or used to separate prompts in the
    /// engine's cache (4.2).
    PromptCacheKey {
        /// Removed: prompts of different keys share the engine's cache.
        #[default] Drop = "drop",
        /// Sent as `cache_salt` to engines that support it: prompts of different keys share no cache entries.
        CacheSalt = "cache_salt",
    }

    /// Treatment of text in the Harmony format of gpt-oss that an engine left unparsed (6).
    Harmony {
        /// Passed on as ordinary text, markers included.
        #[default] Off = "off",
        /// Parsed as text, by the markers of the format in it.
        Text = "text",
        /// Parsed by its tokens, if the engine sends them and there is a vocabulary; else as text.
        Tokens = "tokens",
    }

    /// Place of reasoning in text that an engine left unparsed (7).
    ThinkMode {
        /// No place: the text is not searched for reasoning.
        #[default] Off = "off",
        /// A block at the start, if the text begins with its start tag.
        Auto = "auto",
        /// The start, without a tag: the chat template has already opened the block.
        Forced = "forced",
        /// Every block between a start tag and an end tag, anywhere in the text.
        Anywhere = "anywhere",
    }

    /// End of an answer that repeats itself (2.13).
    GuardFinish {
        /// The finish reason `length`: the answer was cut.
        #[default] Length = "length",
        /// The error `upstream_incomplete`.
        Error = "error",
    }
}

impl EngineErrors {
    /// Returns the policy that `auto` stands for; any other is kept. `is_private`: only the machine itself can connect,
    /// and without a key, so clients are the operator's own.
    #[must_use]
    pub fn resolved(self, is_private: bool) -> Self {
        match self {
            Self::Auto if is_private => Self::Redact,
            Self::Auto => Self::Redact4xx,
            _ => self,
        }
    }
}

/// Guard against a model that repeats the same text without end (2.13). Streams alone are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guard {
    /// Number of repeats, each the same to the byte, at which the text is cut; 0: it is not watched.
    #[serde(deserialize_with = "read_repeats")]
    pub repeats: usize,
    /// Bytes, as JSON spells them, that the repeats must have together.
    #[serde(deserialize_with = "read_guard_bytes")]
    pub bytes: usize,
    /// End of the answer: the finish reason `length`, or an error.
    pub finish: GuardFinish,
}

impl Guard {
    /// No guard, which is the default.
    pub const OFF: Self = Self {
        repeats: 0,
        bytes: 4096,
        finish: GuardFinish::Length,
    };

    /// Returns true if it is [`Guard::OFF`].
    pub fn is_default(&self) -> bool {
        *self == Self::OFF
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self::OFF
    }
}

/// Reads `guard.repeats`: 0, or at least 2.
fn read_repeats<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let repeats = usize::deserialize(from)?;
    if repeats == 1 {
        return Err(de::Error::custom("must be 0 (off) or at least 2"));
    }
    Ok(repeats)
}

/// Reads `guard.bytes`, which the window of the guard must hold.
fn read_guard_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let bytes = read_size(from)?;
    if !(64..=32 << 10).contains(&bytes) {
        return Err(de::Error::custom("must be 64 to 32768"));
    }
    Ok(bytes)
}

/// Tags and whitespace rules by which reasoning is found in text that an engine left unparsed (7).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Think {
    /// Place in the text where reasoning may be; `off` disables the search.
    pub mode: ThinkMode,
    /// Tag that opens a block of reasoning; it is removed from the text.
    pub start: String,
    /// Tag that closes a block of reasoning; it is removed from the text.
    pub end: String,
    /// True if white space around the reasoning is removed.
    pub trim: bool,
    /// Text that also closes a block and is kept, such as the beginning of a call; empty: none.
    #[serde(deserialize_with = "text_or_null")]
    pub tool_start: String,
}

/// Reads a text, or `null` as the empty text.
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

/// Parser of the model's text, for engines that do not separate reasoning and calls themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Parser {
    /// No parser: text passes as the engine sends it.
    Off,
    /// Parser chosen for each answer by the model's chat template, its name, and the markers found in the text.
    #[default]
    Auto,
    /// Parser of this family of models, by its name.
    Family(String),
}

impl Parser {
    /// Returns the names of all families of models that have a parser.
    pub fn names() -> impl Iterator<Item = &'static str> {
        super::parse::names::names()
    }
}

impl TryFrom<String> for Parser {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ if super::parse::names::is_parser_name(&name) => Ok(Self::Family(name)),
            // Parsers of vLLM and SGLang whose grammar is a part of the checkpoint.
            "hf" | "response_template" => Err(format!(
                "{name} reads a grammar that only the engine has; take auto, or the name of the model's own parser"
            )),
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

/// Which reasoning becomes text, if it is all of a whole answer (2.4). Written as `true`, `false` or `"schema"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromoteReasoning {
    /// None.
    #[default]
    Never,
    /// JSON, if the request asks for an answer in a format.
    Schema,
    /// Any.
    Always,
}

impl PromoteReasoning {
    /// Returns true if this reasoning becomes text.
    pub(super) fn takes(self, reasoning: &str) -> bool {
        let is_json = || {
            reasoning.trim_start().starts_with(['{', '['])
                && json::read::<Raw<'_>>(reasoning).is_ok()
        };
        self == Self::Always || self == Self::Schema && is_json()
    }
}

impl Serialize for PromoteReasoning {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Schema => to.serialize_str("schema"),
            _ => to.serialize_bool(*self == Self::Always),
        }
    }
}

impl<'de> Deserialize<'de> for PromoteReasoning {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Written;

        impl Visitor<'_> for Written {
            type Value = PromoteReasoning;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"schema\"")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<PromoteReasoning, E> {
                Ok(if value {
                    PromoteReasoning::Always
                } else {
                    PromoteReasoning::Never
                })
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<PromoteReasoning, E> {
                match word {
                    "schema" => Ok(PromoteReasoning::Schema),
                    _ => Err(E::custom("must be true, false or \"schema\"")),
                }
            }
        }

        from.deserialize_any(Written)
    }
}

/// Declares the options. One without a default has that of its type.
macro_rules! options {
    ($($(#[$doc:meta])* $field:ident: $type:ty $(= $default:expr)?,)*) => {
        /// Options of the wire format, with the defaults of wire-format 1.9. Each one changes answers or requests of all
        /// clients that it applies to.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Options { $($(#[$doc])* pub $field: $type,)* }

        impl Default for Options {
            fn default() -> Self {
                Self { $($field: options!(@default $($default)?),)* }
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}

options! {
    /// Key under which reasoning text is in Chat Completions answers.
    reasoning_field: ReasoningField,
    /// Which whole answers of nothing but reasoning, which ended by themselves, become the answer's text.
    promote_reasoning: PromoteReasoning = PromoteReasoning::Schema,
    /// Content of the role frame, the first frame of each choice.
    role_frame: RoleFrame,
    /// Finish reason of an answer to a forced function: `tool_calls` or the engine's `stop`.
    named_tool_choice_finish: NamedToolChoiceFinish,
    /// Meaning of `[DONE]` without a finish: an error, or a normal stop.
    missing_finish: MissingFinish,
    /// Shape of the error frame: nested, or flat and nested.
    error_frame: ErrorFrame,
    /// Share of an engine's own error text that clients see; the log has all of it.
    engine_errors: EngineErrors,
    /// True if `[DONE]` follows an error frame, which is otherwise the last frame.
    done_after_error: bool,
    /// Treatment of engine events whose data is not a JSON object.
    invalid_event: InvalidEvent,
    /// Treatment of `system_fingerprint` in answers: removed, hashed or kept.
    system_fingerprint: SystemFingerprint,
    /// Salt of the hash, if `system_fingerprint` is `hash`.
    fingerprint_salt: String,
    /// True if `stop_reason` or `matched_stop` of the engine is kept, as `stop_reason`.
    stop_details: bool,
    /// Treatment of answer fields that the format does not name.
    unknown_fields: UnknownFields,
    /// Treatment of the ids that engines give to tool calls.
    tool_call_ids: ToolCallIds,
    /// Repair of a tool call's arguments that are no JSON.
    repair_arguments: RepairArguments,
    /// Guard against a model that repeats itself. The file has it as `[guard]`.
    #[serde(skip_serializing_if = "Guard::is_default")]
    guard: Guard,
    /// Model name in answers: `upstream`, `requested`, or a fixed name that every answer carries.
    model_name: String = "upstream".to_owned(),
    /// Treatment of usage that the engine sends on every chunk.
    continuous_usage: ContinuousUsage,
    /// True if usage is sent even if the client did not ask for it.
    force_usage: bool,
    /// Padding of delta frames, which hides the length of their text.
    obfuscation: Obfuscation,
    /// Seconds of silence before a keep-alive comment, or a ping on a WebSocket, is sent; 0: never.
    #[serde(deserialize_with = "read_seconds")]
    keepalive_seconds: u64 = 15,
    /// Longest time, in seconds, that the status line waits for the first engine event (3.1).
    #[serde(deserialize_with = "read_seconds")]
    commit_after_seconds: u64 = 10,
    /// Tags by which reasoning is found in unparsed text.
    think: Think,
    /// Parser of reasoning and calls in text that the engine left unparsed.
    parser: Parser,
    /// Treatment of Harmony text that the engine left unparsed.
    harmony: Harmony,
    /// Treatment of request fields that the API does not name.
    request_unknown: RequestUnknown,
    /// Set of events in a Responses stream; the request header `x-samewire-dialect` overrides it.
    responses_dialect: ResponsesDialect,
    /// Place of reasoning text in a Responses answer.
    responses_reasoning: ResponsesReasoning,
    /// Treatment of tools in a Responses or Messages request that the engine cannot serve.
    unsupported_tools: UnsupportedTools,
    /// Treatment of content blocks in a Messages request that no engine can read.
    unsupported_content: UnsupportedContent,
    /// Treatment of a client's billing text in the system prompt of a Messages request.
    billing_block: BillingBlock,
    /// Share of the thinking that a client of Messages sees.
    messages_thinking: MessagesThinking,
    /// Role of the message that carries the `instructions` of a Responses request.
    instructions_role: InstructionsRole,
    /// Treatment of messages with the role `developer`: `system` instead, or kept.
    developer_role: DeveloperRole,
    /// Treatment of the `prompt_cache_key` of a Responses request.
    prompt_cache_key: PromptCacheKey,
    /// Treatment of system messages after the first, or after other messages.
    system_messages: SystemMessages,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsers_have_known_names() {
        assert_eq!(
            Parser::try_from("hermes".to_owned()),
            Ok(Parser::Family("hermes".to_owned()))
        );
        let refused = Parser::try_from("hermis".to_owned()).unwrap_err();
        assert!(
            refused.contains("must be off, auto or the name of a parser"),
            "{refused}"
        );
        for name in ["hf", "response_template"] {
            let refused = Parser::try_from(name.to_owned()).unwrap_err();
            assert!(refused.starts_with(name), "{refused}");
        }
    }
}
