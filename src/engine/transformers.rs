//! `transformers serve`, of which one snapshot was read (engine-quirks A.3, E, G). It refuses what it does not know, and what it
//! knows and does not do: usage stands on its finish chunk whether one asks or not.

use super::auto::UNION;
use super::rule::{Change, RequestRule};
use super::{Detection, Engine, usual};

pub(super) static ENGINE: Engine =
    Engine { name: "transformers", requests: REQUESTS, detection: Detection::NONE, ..UNION };

static REQUESTS: &[RequestRule] = &[
    RequestRule::new("no_stream_options", "stream_options were left out", Change::NoStreamOptions)
        .seen("engine-quirks E.1"),
    usual::LIMIT_RENAMED.seen("engine-quirks E.1"),
    RequestRule::new(
        "fields_of_the_service",
        "fields that the engine refuses and can do without were left out",
        Change::Drop(usual::OF_THE_SERVICE),
    )
    .seen("engine-quirks E.1"),
    RequestRule::new(
        "fields_without_effect",
        "fields that the engine refuses, and that ask for nothing here, were left out",
        Change::Drop(&["user", "parallel_tool_calls", "reasoning_effort", "reasoning", "tool_choice"]),
    )
    .seen("engine-quirks E.1"),
    usual::FAN_OUT.seen("engine-quirks E.1"),
    RequestRule::new("choices", "n, where it asks for one choice, was left out", Change::Drop(&["n"]))
        .seen("engine-quirks E.1"),
    usual::DEVELOPER.seen("engine-quirks E.2"),
    usual::NO_CALLS.seen("engine-quirks E.3"),
    usual::ARGUMENTS.seen("engine-quirks E.3"),
    usual::TOOL_TEXT.seen("engine-quirks E.3"),
];
