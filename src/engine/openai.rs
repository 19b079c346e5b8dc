//! The OpenAI service itself, and Azure OpenAI, which sends the same answers with content filter results added.
//!
//! The service supports its whole API (custom tools, `allowed_tools`, the role `developer`, legacy functions, file
//! parts), so none of that is rewritten. Unknown members are refused (`unknown_parameter`), in an old and a new
//! wording. Members that only tune an engine are therefore removed, and so is reasoning in messages, which the
//! service does not read. Members that restrict the answer (`guided_regex`, `min_tokens`, `chat_template` …) stay,
//! so that the service refuses them by name: without them the answer would look as if it complied.
//!
//! Azure is reached at its routes without a date, `https://NAME.openai.azure.com/openai/v1`, which take the key as
//! `authorization: Bearer`. Its first chunk holds only filter results (`choices`, `id` and `model` are empty); with
//! the asynchronous filter, chunks without `delta` come in between.
//!
//! `owned_by` in its list of models is `openai`, `system` or a customer's name. Gateways report `openai` for
//! whatever engine is behind them, so it proves nothing.

use super::auto::UNION;
use super::rule::{Constraint, RequestRule, RuleChange};
use super::{Detection, Engine, Mark, usual};
use crate::request::responses::Capabilities;

pub(super) static ENGINE: Engine = Engine {
    name: "openai",
    requests: &[usual::LIMITS, REQUESTS],
    takes: Capabilities {
        facts: Capabilities::SEPARATING.facts,
        ..Capabilities::SERVICE
    },
    // `names_models` stays false: an alias for the latest version of a model is answered with that version's name, and
    // Azure's list has no deployments.
    detection: Detection {
        marks: &[
            Mark::sure(&[r#""prompt_filter_results":"#]),
            Mark::sure(&[r#""content_filter_results":"#]),
            Mark {
                texts: &[r#""obfuscation":""#, r#""service_tier":""#],
                version: false,
                weak: true,
            },
        ],
        ..Detection::NONE
    },
    ..UNION
};

static REQUESTS: &[RequestRule] = &[
    // Members that the service does not understand, or refuses.
    usual::NULLS.with_evidence("engines E.1"),
    RequestRule::new(
        "fields_of_engines",
        "fields of other engines that only tune them were left out",
        RuleChange::Drop(ENGINE_FIELDS),
    )
    .with_evidence("fixtures/described/openai/error-unknown-parameter"),
    usual::constraints(
        "guided_json became response_format",
        usual::GUIDED_KEYS,
        SCHEMA_ALONE,
    )
    .with_evidence("engines E.2"),
    usual::constraints(
        "a schema in structured_outputs became response_format",
        usual::STRUCTURED_KEYS,
        SCHEMA_ALONE,
    )
    .with_evidence("engines E.2"),
    usual::SCHEMA_NAME.with_evidence("engines E.2"),
    // Reasoning.
    usual::REASONING_OBJECT.with_evidence("fixtures/described/openai/error-unknown-parameter"),
    RequestRule::new(
        "no_reasoning_in_messages",
        "reasoning in messages, which the service does not read, was left out",
        RuleChange::DropOfAssistant(&["reasoning_content", "reasoning"]),
    )
    .with_evidence("fixtures/described/openai/error-unknown-parameter"),
    // Tools.
    usual::EMPTY_TOOLS.with_evidence("engines E.2"),
    usual::CHOICE_ALONE.with_evidence("engines E.2"),
    // Messages.
    usual::NO_CALLS.with_evidence("engines E.3"),
];

/// Members of vLLM and SGLang that can be removed, because the answer without them still fits the request.
const ENGINE_FIELDS: &[&str] = &[
    "add_generation_prompt",
    "add_special_tokens",
    "cache_salt",
    "chat_template_kwargs",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "include_reasoning",
    "kv_transfer_params",
    "length_penalty",
    "min_p",
    "mm_processor_kwargs",
    "priority",
    "repetition_penalty",
    "request_id",
    "return_prompt_text",
    "return_token_ids",
    "rid",
    "separate_reasoning",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stream_reasoning",
    "top_k",
];

const SCHEMA_ALONE: &[Constraint; 4] = &[
    Constraint::Format("response_format"),
    Constraint::Unsupported,
    Constraint::Unsupported,
    Constraint::Unsupported,
];
