//! llama.cpp's server: 0c1e570 (recorded), and one snapshot before it (engines A.3).
//!
//! Text that does not fit the grammar for calls is an error, even in the middle of a stream, which then ends without
//! more. With several choices, each has its own usage, and a whole answer has the usage of one choice only: there is
//! no sum.
//!
//! Its version is a build (`b5432-1a2b3c4`), not a release. `/metrics` has counts if the engine runs with
//! `--metrics`; recent builds have no cache gauge any more.

use super::auto::UNION;
use super::rule::RequestRule;
use super::template::PromptRoutes;
use super::{Detection, Engine, Flags, InfoRoute, LoadForm, LoadRoute, Mark, Proof, usual};

pub(super) static ENGINE: Engine = Engine {
    name: "llamacpp",
    detection: Detection {
        owned_by: Some("llamacpp"),
        health: Detection::HEALTH,
        places: &[InfoRoute {
            proof: Some(Proof::Key("default_generation_settings")),
            ..InfoRoute::at("/props")
        }],
        marks: &[
            Mark::sure(&[r#""timings":{"#]),
            Mark {
                texts: &[r#""system_fingerprint":"b"#],
                version: false,
                weak: true,
            },
        ],
        loads: &[LoadRoute {
            path: "/metrics",
            form: LoadForm::Prometheus,
            running: &["llamacpp:requests_processing"],
            waiting: &["llamacpp:requests_deferred"],
            cache: &["llamacpp:kv_cache_usage_ratio"],
        }],
        flags: Flags {
            load: Some("--metrics"),
            context: Some("--ctx-size (the slots of --parallel share it)"),
            ..Flags::NONE
        },
        ..Detection::NONE
    },
    // Its `/tokenize` takes only texts (engines G.11).
    counts_at: "/v1/chat/completions/input_tokens",
    renders: Some(PromptRoutes::Text("/apply-template")),
    requests: &[
        usual::LIMITS,
        usual::TEXT_ALONE,
        usual::TOOLS,
        usual::MESSAGES,
        REASONING,
        usual::PARTS,
    ],
    ..UNION
};

/// Key under which the engine reads reasoning, inferred from counts of prompt tokens.
static REASONING: &[RequestRule] = &[
    usual::thinking_switch(false).with_evidence("engines E.2"),
    usual::reasoning_key("reasoning_content")
        .with_evidence("fixtures/llamacpp/tool-result-reasoning-whole"),
];
