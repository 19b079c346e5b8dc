//! vLLM, with its front ends in Python and in Rust.
//!
//! Arguments are sent twice in 0.6.0–0.22 (engines A.1.5). Reasoning in history: 0.16–0.21 read only
//! `reasoning`, earlier versions read both keys or neither, later ones both (engines E.3; 235 against 222
//! prompt tokens in the captures of 0.21.0).
//!
//! `/version` and `/metrics` need no key. TensorRT-LLM has the same `/version`, so that route alone proves nothing.
//! The last chunk of an answer names the version from 0.21 on (`vllm-0.21.0-0536b55b`), unless a flag hides it. The
//! front end in Rust has no `/v1/responses` and does not run on uvicorn (engines G.5). The cache gauge was
//! renamed in 0.9.2.
//!
//! Closing the connection aborts a request, streamed or not (engines G). No other call is needed;
//! `/abort_requests` exists in special deployments only.

use super::auto::UNION;
use super::identity::version;
use super::rule::{Constraint, RequestRule, RuleChange};
use super::template::PromptRoutes;
use super::{
    Detection, Engine, Flags, Front, InfoRoute, LoadForm, LoadRoute, Mark, OtherFront, Proof,
    TOKENIZE, Versions, usual,
};
use crate::request::responses::{Capabilities, PriorityOrder};
use crate::wire::EngineFacts;

pub(super) static ENGINE: Engine = Engine {
    name: "vllm",
    requests: &[usual::LIMITS, usual::TEXT_ALONE, REQUESTS],
    takes: Capabilities {
        cache_salt: true,
        token_ids: true,
        wants_parser: true,
        priority: PriorityOrder::LowFirst,
        facts: EngineFacts {
            // Mistral's own tokenizer does, and to 0.7 the server ends then (vllm-project/vllm#14094).
            refuses_special: Some(&["mistral"]),
            ..Capabilities::PLAIN.facts
        },
        ..Capabilities::PLAIN
    },
    names_models: true,
    effort_thinks: Some(Versions::from(version(22, 0))),
    renders: Some(PromptRoutes::Tokens {
        tokenize: TOKENIZE,
        detokenize: "/detokenize",
        keeps_special: "",
    }),
    returns_prompt: Some(Versions::from(version(21, 0))),
    detection: Detection {
        owned_by: Some("vllm"),
        health: Detection::HEALTH,
        places: &[
            InfoRoute {
                version: Some("version"),
                ..InfoRoute::at("/version")
            },
            InfoRoute {
                proof: Some(Proof::Text("vllm:num_requests_running")),
                ..InfoRoute::at("/metrics")
            },
        ],
        marks: &[
            Mark {
                texts: &[r#""system_fingerprint":"vllm-"#],
                version: true,
                weak: false,
            },
            Mark {
                texts: &[r#""stop_reason":"#, r#""id":"chatcmpl-"#],
                version: false,
                weak: true,
            },
        ],
        other_front: Some(OtherFront {
            front: Front::Rust,
            versions: Versions::from(version(22, 0)),
            usual_server: "uvicorn",
            missing_route: "/v1/responses",
        }),
        loads: &[LoadRoute {
            path: "/metrics",
            form: LoadForm::Prometheus,
            running: &["vllm:num_requests_running"],
            waiting: &["vllm:num_requests_waiting"],
            cache: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        }],
        flags: Flags {
            cached_tokens: Some("--enable-prompt-tokens-details"),
            keep_alive: Some("VLLM_HTTP_TIMEOUT_KEEP_ALIVE=620 (environment)"),
            load: None,
            context: Some("--max-model-len"),
        },
        ..Detection::NONE
    },
    ..UNION
};

static REQUESTS: &[RequestRule] = &[
    // Members that the engine does not understand, or refuses.
    usual::NULLS.with_evidence("engines E.1"),
    usual::LIMIT_RENAMED
        .before(version(6, 4))
        .with_evidence("engines E.2"),
    usual::OPENAI_FIELDS_DROPPED
        .before(version(6, 5))
        .with_evidence("engines E.1"),
    RequestRule::new(
        "fields_of_later_versions",
        "fields that the engine does not know yet were left out",
        RuleChange::Drop(&["parallel_tool_calls", "reasoning_effort", "reasoning"]),
    )
    .before(version(6, 5))
    .with_evidence("engines E.1"),
    usual::EMPTY_STOPS.with_evidence("engines E.2"),
    // Constraints: the old spelling is ignored from 0.12 on, the new one known from 0.11 on.
    usual::constraints(
        "guided_ fields became structured_outputs",
        usual::GUIDED_KEYS,
        STRUCTURED,
    )
    .from(version(12, 0))
    .with_evidence("engines E.2"),
    usual::constraints(
        "structured_outputs became guided_ fields",
        usual::STRUCTURED_KEYS,
        GUIDED,
    )
    .before(version(11, 0))
    .with_evidence("engines E.2"),
    usual::SCHEMA_NAME.with_evidence("engines E.2"),
    usual::FAN_OUT
        .behind(Front::Rust)
        .with_evidence("engines E.2"),
    // Reasoning. A budget before 0.19 is ignored (wheels of 0.18.0 and 0.19.0, `sampling_params.py`).
    usual::thinking_switch(false)
        .before(version(19, 0))
        .with_evidence("engines E.2"),
    usual::thinking_switch(true)
        .from(version(19, 0))
        .with_evidence("engines E.2"),
    usual::REASONING_OBJECT.with_evidence("engines E.2"),
    usual::NO_REASONING
        .before(version(22, 0))
        .with_evidence("engines E.2"),
    usual::efforts(&["low", "medium", "high"])
        .within(version(10, 1), version(18, 0))
        .with_evidence("engines E.2"),
    usual::efforts(&["none", "low", "medium", "high"])
        .within(version(18, 0), version(21, 0))
        .with_evidence("engines E.2"),
    RequestRule::new(
        "effort_harmony",
        "the effort became the nearest one that gpt-oss knows",
        RuleChange::HarmonyEfforts(&["low", "medium", "high"]),
    )
    .from(version(10, 1))
    .with_evidence("captures of vLLM 0.21.0, section 2: minimal is a 400"),
    usual::reasoning_key("reasoning").with_evidence("engines E.3"),
    // Tools.
    usual::LEGACY.with_evidence("engines E.2"),
    usual::EMPTY_TOOLS.with_evidence("engines E.2"),
    usual::ALLOWED_TOOLS.with_evidence("engines E.2"),
    usual::CHOICE_NONE.with_evidence("engines E.2"),
    usual::CHOICE_ALONE.with_evidence("engines E.2"),
    // One parser for all choices of a stream, up to 0.19.
    usual::FAN_OUT_CALLS
        .before(version(20, 0))
        .with_evidence("engines A.1.5"),
    usual::CUSTOM_TOOLS.with_evidence("engines E.2"),
    usual::ONE_CALL.with_evidence("engines E.2"),
    // Messages.
    usual::DEVELOPER
        .before(version(23, 0))
        .with_evidence("engines E.2"),
    usual::NO_CALLS.with_evidence("engines E.3"),
    usual::ARGUMENTS.with_evidence("engines E.3"),
    usual::TOOL_TEXT.with_evidence("engines E.3"),
    // Some versions in between take them, and take the others as well.
    usual::PART_INPUT_TEXT.with_evidence("engines E.3: vLLM 0.32.0 answers 400"),
    usual::PART_INPUT_IMAGE.with_evidence("engines E.3: vLLM 0.32.0 answers 400"),
    usual::PART_OUTPUT_TEXT.with_evidence("engines E.3: vLLM 0.32.0 answers 400"),
    usual::PART_FILE.with_evidence("engines E.3"),
    usual::PART_INPUT_FILE.with_evidence("engines E.3"),
    usual::go_on(
        &[
            ("continue_final_message", "true"),
            ("add_generation_prompt", "false"),
        ],
        false,
    )
    .with_evidence("engines E.3"),
];

const GUIDED: &[Constraint; 4] = &[
    Constraint::Member("guided_json"),
    Constraint::Member("guided_regex"),
    Constraint::Member("guided_choice"),
    Constraint::Member("guided_grammar"),
];
const STRUCTURED: &[Constraint; 4] = &[
    Constraint::Inside("structured_outputs", "json"),
    Constraint::Inside("structured_outputs", "regex"),
    Constraint::Inside("structured_outputs", "choice"),
    Constraint::Inside("structured_outputs", "grammar"),
];
