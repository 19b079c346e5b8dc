//! An engine that is unknown, or not identified yet: the union of all engines' rules, as far as they harm none.

use super::rule::RequestRule;
use super::{Detection, Engine, usual};
use crate::request::responses::Capabilities;
use crate::wire::decode::Quirks;

pub(super) static ENGINE: Engine = UNION;

/// Defaults of [`ENGINE`], also for engines of which little more is known than how to recognise them.
pub(super) const UNION: Engine = Engine {
    name: "auto",
    quirks: Quirks { resends_arguments: true, recurring_ids: false },
    requests: &[usual::LIMITS, REQUESTS],
    takes: Capabilities::PLAIN,
    names_models: false,
    detection: Detection::NONE,
};

const REQUESTS: &[RequestRule] = &[
    usual::NULLS.seen("engine-quirks E.1"),
    usual::EMPTY_STOPS.seen("engine-quirks E.2"),
    usual::SCHEMA_NAME.seen("engine-quirks E.2"),
    usual::LEGACY.seen("engine-quirks E.2"),
    usual::EMPTY_TOOLS.seen("engine-quirks E.2"),
    usual::ALLOWED_TOOLS.seen("engine-quirks E.2"),
    usual::CHOICE_ALONE.seen("engine-quirks E.2"),
    usual::CUSTOM_TOOLS.seen("engine-quirks E.2"),
    usual::ONE_CALL.seen("engine-quirks E.2"),
    usual::DEVELOPER.seen("engine-quirks E.2"),
    usual::NO_CALLS.seen("engine-quirks E.3"),
    usual::CONTENT_BESIDE_CALLS.seen("engine-quirks E.3"),
    usual::ARGUMENTS.seen("engine-quirks E.3"),
    usual::TOOL_TEXT.seen("engine-quirks E.3"),
    usual::PART_INPUT_TEXT.seen("engine-quirks E.3"),
    usual::PART_OUTPUT_TEXT.seen("engine-quirks E.3"),
    usual::PART_INPUT_IMAGE.seen("engine-quirks E.3"),
];
