//! `transformers serve`: 5.23.0 (recorded), and one snapshot before it (engines A.3, E, G).
//!
//! Both versions refuse unknown members. Members that they know but do not implement were refused once and
//! are now ignored with a log line, so samewire removes them. Usage is on the finish chunk, requested or not,
//! and there is no `[DONE]`. From some version on, reasoning and whole calls are separated from text.
//!
//! The id of an answer is the request's `x-request-id`, whoever set it, so ids may repeat. An incomplete call is
//! lost in streams, and a 500 otherwise; a stop string is part of the text.

use super::auto::UNION;
use super::rule::{Change, RequestRule};
use super::{Detection, Engine, Version, usual};
use crate::wire::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "transformers",
    detection: Detection { health: Detection::HEALTH, ..Detection::NONE },
    quirks: Quirks { recurring_ids: true },
    requests: &[usual::LIMITS, usual::TEXT_ALONE, usual::TOOLS, OWN, usual::MESSAGES],
    ..UNION
};

static OWN: &[RequestRule] = &[
    usual::CHOICE_NONE.with_evidence("fixtures/transformers/tool-none-called"),
    RequestRule::new("no_stream_options", "stream_options were left out", Change::NoStreamOptions)
        .with_evidence("engines E.1"),
    usual::LIMIT_RENAMED.with_evidence("engines E.1"),
    usual::OPENAI_FIELDS_DROPPED.with_evidence("engines E.1"),
    usual::REASONING_OBJECT.with_evidence("fixtures/transformers/error-unknown-field"),
    usual::NO_REASONING.from(Version::new(5, 23, 0)).with_evidence("fixtures/transformers/thinking-off"),
    RequestRule::new(
        "fields_without_effect",
        "fields that the engine refuses, and that ask for nothing here, were left out",
        Change::Drop(&["user", "parallel_tool_calls", "reasoning_effort", "reasoning", "tool_choice"]),
    )
    .with_evidence("engines E.1"),
    usual::FAN_OUT.with_evidence("fixtures/transformers/n2-one"),
    RequestRule::new("choices", "n, where it asks for one choice, was left out", Change::Drop(&["n"]))
        .with_evidence("engines E.1"),
];
