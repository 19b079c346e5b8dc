//! `transformers serve`: 5.23.0 (recorded), and one snapshot before it (engines A.3, E, G).
//!
//! Both versions refuse unknown members. The snapshot also refuses members that it knows but does not implement; 5.23.0
//! ignores them with a log line. samewire removes them for both. Usage is on the finish chunk, requested or not,
//! and there is no `[DONE]`. From some version on, reasoning and whole calls are separated from text.
//!
//! The id of an answer is the request's `x-request-id`, which clients may set, so ids may repeat. An incomplete call
//! is lost in streams, and a 500 otherwise; a stop string is part of the text.

use super::auto::UNION;
use super::rule::{RequestRule, RuleChange};
use super::{Detection, Engine, EngineVersion, usual};
use crate::wire::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "transformers",
    detection: Detection {
        health: Detection::HEALTH,
        ..Detection::NONE
    },
    quirks: Quirks {
        recurring_ids: true,
    },
    requests: &[
        usual::LIMITS,
        usual::TEXT_ALONE,
        usual::TOOLS,
        OWN,
        usual::MESSAGES,
    ],
    ..UNION
};

static OWN: &[RequestRule] = &[
    usual::CHOICE_NONE.with_evidence("fixtures/transformers/tool-none-called"),
    RequestRule::new(
        "no_stream_options",
        "stream_options were left out",
        RuleChange::NoStreamOptions,
    )
    .with_evidence("engines E.1"),
    usual::LIMIT_RENAMED.with_evidence("engines E.1"),
    usual::OPENAI_FIELDS_DROPPED.with_evidence("engines E.1"),
    usual::REASONING_OBJECT.with_evidence("fixtures/transformers/error-unknown-field"),
    usual::NO_REASONING
        .from(EngineVersion::new(5, 23, 0))
        .with_evidence("fixtures/transformers/thinking-off"),
    RequestRule::new(
        "fields_without_effect",
        "fields that the engine refuses, and that ask for nothing here, were left out",
        RuleChange::Drop(&[
            "user",
            "parallel_tool_calls",
            "reasoning_effort",
            "reasoning",
            "tool_choice",
        ]),
    )
    .with_evidence("engines E.1"),
    usual::FAN_OUT.with_evidence("fixtures/transformers/n2-one"),
    RequestRule::new(
        "choices",
        "n, where it asks for one choice, was left out",
        RuleChange::Drop(&["n"]),
    )
    .with_evidence("engines E.1"),
];
