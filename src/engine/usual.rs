//! Request rules that several engines share. Each engine's own file states which of them it needs, in which
//! versions, on what evidence.

use super::rule::{Becomes, Constraint, RequestRule, RuleChange};

/// Tool rules for servers that only format prompts with chat templates, which are nearly all of them.
pub(super) const TOOLS: &[RequestRule] = &[
    LEGACY.with_evidence("engines E.2"),
    ALLOWED_TOOLS.with_evidence("engines E.2"),
    CUSTOM_TOOLS.with_evidence("fixtures/llamacpp/error-custom-tool"),
    ONE_CALL.with_evidence("fixtures/llamacpp/tool-parallel-unwanted"),
];

/// Message rules that all of those servers need.
pub(super) const MESSAGES: &[RequestRule] = &[
    DEVELOPER.with_evidence("engines E.2"),
    NO_CALLS.with_evidence("engines E.3"),
    ARGUMENTS.with_evidence("fixtures/llamacpp/error-arguments"),
    TOOL_TEXT.with_evidence("engines E.3"),
];

/// Part rules for servers that know only text, image and audio parts, and refuse or ignore any other type.
pub(super) const PARTS: &[RequestRule] = &[
    PART_INPUT_TEXT.with_evidence("fixtures/llamacpp/error-part"),
    PART_OUTPUT_TEXT.with_evidence("fixtures/llamacpp/error-part"),
    PART_REFUSAL.with_evidence("fixtures/llamacpp/error-part"),
    PART_INPUT_IMAGE.with_evidence("fixtures/llamacpp/error-part"),
    PART_FILE.with_evidence("fixtures/llamacpp/error-part"),
    PART_INPUT_FILE.with_evidence("fixtures/lmdeploy/part-lost-whole"),
];

/// Declares rules: each with its name, what it does in words, and the change.
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal, $what:expr, $change:expr;)*) => {
        $($(#[$doc])* pub(super) const $rule: RequestRule = RequestRule::new($name, $what, $change);)*
    };
}

rules! {
    /// Recent vLLM versions answer 400 to an empty list of tools. The tool choice is removed with it.
    EMPTY_TOOLS = "empty_tools", "an empty list of tools was left out", RuleChange::EmptyTools;
    CHOICE_ALONE = "choice_without_tools", "tool_choice without tools was left out", RuleChange::ChoiceAlone;
    CHOICE_NONE = "choice_none",
        "tools that must not be called were left out, so that they are not in the prompt",
        RuleChange::ChoiceNone;
    ALLOWED_TOOLS = "allowed_tools", "tools that are not among the allowed ones were left out",
        RuleChange::AllowedTools;
    CUSTOM_TOOLS = "custom_tools", "custom tools became functions of one string", RuleChange::CustomTools;
    LEGACY = "legacy_functions", "functions, function_call and the role function became tools",
        RuleChange::LegacyFunctions;
    /// Removes members that are null. First: it reads the client's own values, also of members that a rule has set since.
    NULLS = "null_members", "members that were null were left out", RuleChange::Nulls;
    EMPTY_STOPS = "empty_stops", "stop strings without a character were left out", RuleChange::EmptyStops;
    SCHEMA_NAME = "schema_name", "a schema got a name", RuleChange::SchemaName;
    NO_CALLS = "empty_tool_calls", "tool_calls without a call were left out", RuleChange::NoCalls;
    ARGUMENTS = "arguments_object", "arguments became a JSON object", RuleChange::Arguments;
    TOOL_TEXT = "tool_message_text", "the parts of a tool's text became one string", RuleChange::ToolText;
    CONTENT_BESIDE_CALLS = "content_beside_calls", "empty content was put beside tool calls",
        RuleChange::ContentBesideCalls;
    DEVELOPER = "developer_role", "the role developer became system", RuleChange::Developer { always: false };
    ONE_CALL = "one_call", "calls after the first are left out of the answer", RuleChange::OneCall;
    NO_REASONING = "no_reasoning", "the effort none became the switches of chat templates",
        RuleChange::NoReasoning;
    /// Rule for engines that give one choice, whatever `n` says.
    FAN_OUT = "fan_out", FAN_OUT_TEXT, RuleChange::FanOut { calls: false };
    /// Rule for engines that give several choices, but mix up their calls in streams.
    FAN_OUT_CALLS = "fan_out", FAN_OUT_TEXT, RuleChange::FanOut { calls: true };
    /// Renames `max_completion_tokens` for engines that do not know this newer name.
    LIMIT_RENAMED = "max_tokens", "max_completion_tokens became max_tokens",
        RuleChange::Rename("max_completion_tokens", "max_tokens");
    /// Copies `max_completion_tokens` to `max_tokens` for engines whose newer versions know both names.
    LIMIT_COPIED = "max_tokens", "max_completion_tokens was said as max_tokens too",
        RuleChange::Copy("max_completion_tokens", "max_tokens");
    PART_INPUT_TEXT = "part_input_text", "a part input_text became text",
        RuleChange::Part("input_text", Becomes::Text("text"));
    PART_OUTPUT_TEXT = "part_output_text", "a part output_text became text",
        RuleChange::Part("output_text", Becomes::Text("text"));
    PART_REFUSAL = "part_refusal", "a part refusal became text",
        RuleChange::Part("refusal", Becomes::Text("refusal"));
    PART_INPUT_IMAGE = "part_input_image", "a part input_image became image_url",
        RuleChange::Part("input_image", Becomes::ImageUrl);
    PART_FILE = "part_file", "a part file became text", RuleChange::Part("file", Becomes::FileText);
    PART_INPUT_FILE = "part_input_file", "a part input_file became text",
        RuleChange::Part("input_file", Becomes::FileText);
    /// Removes fields that have no effect on an engine's answer, for engines that refuse unknown fields.
    OPENAI_FIELDS_DROPPED = "fields_of_the_service",
        "fields that the engine refuses and can do without were left out",
        RuleChange::Drop(OPENAI_FIELDS);
}

pub(super) const REASONING_OBJECT: RequestRule = reasoning_object(false);
/// Same as [`REASONING_OBJECT`] for engines that read more of the object, such as its switch for reasoning.
pub(super) const REASONING_OBJECT_READ: RequestRule = reasoning_object(true);

/// Creates the rule that turns other services' switches for reasoning into those of chat templates. `budget`: the
/// engine reads `thinking_token_budget`.
pub(super) const fn thinking_switch(budget: bool) -> RequestRule {
    RequestRule::new(
        "thinking_switch",
        "thinking, enable_thinking or think became the switches of chat templates",
        RuleChange::ThinkingSwitch { budget },
    )
}

const FAN_OUT_TEXT: &str = "each choice was asked for by a request of its own";

const fn reasoning_object(is_read: bool) -> RequestRule {
    RequestRule::new(
        "reasoning_object",
        "reasoning became reasoning_effort",
        RuleChange::ReasoningObject { is_read },
    )
}

/// Creates the rule that replaces an effort with the nearest one that the engine knows.
pub(super) const fn efforts(known: &'static [&'static str]) -> RequestRule {
    RequestRule::new(
        "effort",
        "the effort became the nearest one that the engine knows",
        RuleChange::Efforts(known),
    )
}

/// Creates the rule that moves reasoning in messages to the key that the engine reads.
pub(super) const fn reasoning_key(key: &'static str) -> RequestRule {
    RequestRule::new(
        "reasoning_key",
        "reasoning in messages got the key that the engine reads",
        RuleChange::ReasoningKey(key),
    )
}

/// Creates the rule that respells members which constrain the answer, from the keys in `unread`.
pub(super) const fn constraints(
    what: &'static str,
    unread: &'static [&'static str; 4],
    read: &'static [Constraint; 4],
) -> RequestRule {
    RequestRule::new("constraints", what, RuleChange::Constrain { unread, read })
}

/// Members of vLLM up to 0.11 that constrain the answer.
pub(super) const GUIDED_KEYS: &[&str; 4] = &[
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
];
/// Members within `structured_outputs` that constrain the answer, in vLLM from 0.11 on.
pub(super) const STRUCTURED_KEYS: &[&str; 4] = &[
    "structured_outputs.json",
    "structured_outputs.regex",
    "structured_outputs.choice",
    "structured_outputs.grammar",
];

/// Creates the rule that lets the engine continue the last message, with the members that tell it to. `items`: also
/// when the message is a finished item of a Responses request.
pub(super) const fn go_on(
    members: &'static [(&'static str, &'static str)],
    items: bool,
) -> RequestRule {
    RequestRule::new(
        "go_on",
        "the last message is the assistant's: it is gone on with",
        RuleChange::ContinueMessage { members, items },
    )
}

/// Resolves a token limit given under both names in favour of the newer one: the service refuses both together, vLLM
/// uses the newer one, SGLang the older one (capture vllm-0.21.0/chat-both-max).
pub(super) const LIMITS: &[RequestRule] = &[RequestRule::new(
    "max_tokens_twice",
    "max_tokens was left out beside max_completion_tokens",
    RuleChange::Supersede("max_completion_tokens", "max_tokens"),
)
.with_evidence("engines E.2")];

/// Rules for engines that answer with text alone. The engine would ignore these members, or refuse them in words of
/// its own; the client could take its answer for what it asked for.
pub(super) const TEXT_ALONE: &[RequestRule] = &[
    refused("audio", &[], TEXT).with_evidence("engines E.2"),
    refused("modalities", &["\"text\""], TEXT).with_evidence("engines E.2"),
];
const TEXT: &str = "this engine answers with text alone";

const fn refused(
    key: &'static str,
    but: &'static [&'static str],
    why: &'static str,
) -> RequestRule {
    RequestRule::new(
        key,
        "what the engine does not have is refused",
        RuleChange::Refuse {
            key,
            supported: but,
            why,
        },
    )
}

/// Fields of the OpenAI service that have no effect on an engine's answer.
const OPENAI_FIELDS: &[&str] = &[
    "store",
    "metadata",
    "service_tier",
    "prediction",
    "modalities",
    "verbosity",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "moderation",
    "web_search_options",
];
