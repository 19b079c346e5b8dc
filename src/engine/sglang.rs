//! SGLang.
//!
//! Arguments are sent twice up to 0.4.9 (engines A.2.4). Reasoning in history is read from
//! `reasoning_content`, from 0.4.7 on (engines E.3). Refusal parts fail its validation, and up to 0.4.9
//! messages with calls must have content (E.3). Up to 0.4.6 only `max_tokens` limits an answer (E.2). Its own
//! Responses API subtracts 2 from `max_output_tokens` (D.2).
//!
//! `/server_info` exists from 0.5.8 on, `/get_server_info` in all versions; `/version` is 404. `/health` may
//! generate a token (0.5.1 and later), so a probe calls it once and no similar route. `/metrics` has counts if the
//! engine runs with `--enable-metrics`. `/get_load` exists up to 0.5.12 at least and is gone in 0.5.23, which has
//! `/v1/loads` instead; 0.5.12 answers that with 500 (captures `other-get-load`, `other-v1-loads`).
//!
//! Closing the connection aborts a request: a streamed one through the task that ends its answer, a second or two
//! later, any other at the engine's next check for disconnected clients, every four seconds. `/abort_request` would
//! be faster, but needs the administrator's key, if there is one, and a `rid` set by samewire in the body. A late
//! call would abort whichever request has that id by then. samewire therefore does not use it.

use super::auto::UNION;
use super::identity::version;
use super::rule::{Constraint, RequestRule, RuleChange};
use super::template::PromptRoutes;
use super::{Detection, Engine, Flags, InfoRoute, LoadForm, LoadRoute, Mark, Proof, usual};
use crate::request::responses::{Capabilities, PriorityOrder};
use crate::wire::EngineFacts;
use std::time::Duration;

pub(super) static ENGINE: Engine = Engine {
    name: "sglang",
    requests: &[usual::LIMITS, usual::TEXT_ALONE, REQUESTS],
    takes: Capabilities {
        cache_salt: true,
        priority: PriorityOrder::HighFirst,
        limit_taken_off: 2,
        facts: EngineFacts {
            refuses_special: Some(&[]),
            ..Capabilities::PLAIN.facts
        },
        ..Capabilities::PLAIN
    },
    names_models: true,
    renders: Some(PromptRoutes::Tokens {
        tokenize: "/v1/tokenize",
        detokenize: "/v1/detokenize",
        keeps_special: r#","skip_special_tokens":false"#,
    }),
    detection: Detection {
        owned_by: Some("sglang"),
        health: Detection::HEALTH,
        places: &[info_at("/server_info"), info_at("/get_server_info")],
        marks: &[Mark::sure(&[r#""matched_stop":"#])],
        loads: &[
            LoadRoute {
                path: "/metrics",
                form: LoadForm::Prometheus,
                running: &["sglang:num_running_reqs"],
                waiting: &["sglang:num_queue_reqs"],
                cache: &["sglang:token_usage"],
            },
            LoadRoute {
                path: "/v1/loads",
                form: LoadForm::Json {
                    list: Some("loads"),
                    includes_waiting: false,
                },
                running: &["num_running_reqs"],
                waiting: &["num_waiting_reqs"],
                cache: &["token_usage"],
            },
            LoadRoute {
                path: "/get_load",
                form: LoadForm::Json {
                    list: None,
                    includes_waiting: true,
                },
                running: &["num_reqs"],
                waiting: &["num_waiting_reqs"],
                cache: &[],
            },
        ],
        // From 0.5.1 on a health check generates a token, which takes a second, or as long as the prompts queued
        // before it (engines G).
        min_health_timeout: Duration::from_secs(26),
        flags: Flags {
            cached_tokens: Some("--enable-cache-report"),
            keep_alive: Some("SGLANG_TIMEOUT_KEEP_ALIVE=620 (environment)"),
            load: Some("--enable-metrics"),
            context: Some("--context-length"),
        },
        ..Detection::NONE
    },
    ..UNION
};

/// Creates the place that reports version and parsers, among all settings of the server (24 KB).
const fn info_at(path: &'static str) -> InfoRoute {
    InfoRoute {
        path,
        proof: Some(Proof::Key("tool_call_parser")),
        version: Some("version"),
        parsers: Some(("reasoning_parser", "tool_call_parser")),
        http2: Some("enable_http2"),
    }
}

static REQUESTS: &[RequestRule] = &[
    // Members that the engine does not understand, or refuses.
    usual::NULLS.with_evidence("engines E.1"),
    // 0.5.12 respects a limit of 0 (capture err-max-tokens-0); earlier versions take it for no limit.
    limit_of_nothing("max_tokens"),
    limit_of_nothing("max_completion_tokens"),
    // Harmless in later versions; without it, answers of earlier ones have no limit.
    usual::LIMIT_COPIED.with_evidence("engines E.2"),
    usual::EMPTY_STOPS.with_evidence("engines E.2"),
    usual::constraints(
        "guided_ fields became regex, ebnf or a schema",
        usual::GUIDED_KEYS,
        OWN,
    )
    .with_evidence("engines E.2"),
    usual::constraints(
        "structured_outputs became regex, ebnf or a schema",
        usual::STRUCTURED_KEYS,
        OWN,
    )
    .with_evidence("engines E.2"),
    usual::SCHEMA_NAME.with_evidence("engines E.2"),
    // Reasoning.
    usual::thinking_switch(false).with_evidence("engines E.2"),
    usual::REASONING_OBJECT
        .before(version(5, 2))
        .with_evidence("engines E.2"),
    // The first of these versions read only some effort words of the object, and ignore its off switch.
    usual::REASONING_OBJECT_READ
        .from(version(5, 2))
        .with_evidence("engines E.2"),
    usual::NO_REASONING
        .before(version(5, 10))
        .with_evidence("engines E.2"),
    usual::efforts(&["low", "medium", "high"])
        .within(version(5, 1), version(5, 10))
        .with_evidence("engines E.2"),
    usual::efforts(&["none", "low", "medium", "high"])
        .within(version(5, 10), version(5, 12))
        .with_evidence("engines E.2"),
    usual::efforts(&["none", "low", "medium", "high", "max"])
        .within(version(5, 12), version(5, 16))
        .with_evidence("engines E.2"),
    usual::reasoning_key("reasoning_content").with_evidence("engines E.3"),
    // Tools.
    usual::LEGACY.with_evidence("engines E.2"),
    usual::EMPTY_TOOLS.with_evidence("engines E.2"),
    usual::ALLOWED_TOOLS.with_evidence("engines E.2"),
    usual::CHOICE_ALONE.with_evidence("engines E.2"),
    usual::CUSTOM_TOOLS.with_evidence("engines E.2"),
    // The parsers ignore `parallel_tool_calls` in every captured version.
    usual::ONE_CALL.with_evidence("captures of SGLang 0.5.12 and 0.5.23, section 2"),
    // Messages.
    RequestRule::new(
        "developer_role",
        "the role developer, which the engine refuses, became system",
        RuleChange::Developer { always: true },
    )
    .before(version(5, 7))
    .with_evidence("engines E.2"),
    usual::DEVELOPER
        .from(version(5, 7))
        .with_evidence("engines E.2"),
    usual::NO_CALLS.with_evidence("engines E.3"),
    usual::CONTENT_BESIDE_CALLS.with_evidence("engines E.3"),
    usual::ARGUMENTS.with_evidence("engines E.3"),
    usual::TOOL_TEXT.with_evidence("engines E.3"),
    usual::PART_INPUT_TEXT.with_evidence("engines E.3"),
    usual::PART_OUTPUT_TEXT.with_evidence("engines E.3"),
    usual::PART_REFUSAL.with_evidence("engines E.3"),
    usual::PART_INPUT_IMAGE.with_evidence("engines E.3"),
    usual::PART_FILE.with_evidence("engines E.3"),
    usual::PART_INPUT_FILE.with_evidence("engines E.3"),
    usual::go_on(&[("continue_final_message", "true")], true).with_evidence("engines E.3"),
];

const fn limit_of_nothing(key: &'static str) -> RequestRule {
    let change = RuleChange::Range {
        key,
        least: 1,
        why: "this engine would answer without a limit",
    };
    RequestRule::new("limit_of_nothing", "a limit of 0 is refused", change)
        .before(version(5, 12))
        .with_evidence("engines E.2")
}

const OWN: &[Constraint; 4] = &[
    Constraint::Format("json_schema"),
    Constraint::Member("regex"),
    Constraint::Expression("regex"),
    Constraint::Member("ebnf"),
];
