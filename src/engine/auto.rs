//! An engine that is unknown, or not identified yet: the union of all engines' rules, as far as they harm none.

use super::rule::RequestRule;
use super::{Detection, Engine, TOKENIZE, usual};
use crate::request::responses::Capabilities;
use crate::wire::Quirks;

pub(super) static ENGINE: Engine = UNION;

/// Defaults of [`ENGINE`], also for engines of which little more is known than how to recognise them.
pub(super) const UNION: Engine = Engine {
    name: "auto",
    quirks: Quirks {
        recurring_ids: false,
    },
    requests: &[usual::LIMITS, REQUESTS],
    takes: Capabilities::PLAIN,
    names_models: false,
    counts_at: TOKENIZE,
    effort_thinks: None,
    renders: None,
    returns_prompt: None,
    detection: Detection::NONE,
};

const REQUESTS: &[RequestRule] = &[
    usual::NULLS.with_evidence("engines E.1"),
    usual::EMPTY_STOPS.with_evidence("engines E.2"),
    usual::SCHEMA_NAME.with_evidence("engines E.2"),
    usual::LEGACY.with_evidence("engines E.2"),
    usual::EMPTY_TOOLS.with_evidence("engines E.2"),
    usual::ALLOWED_TOOLS.with_evidence("engines E.2"),
    usual::CHOICE_ALONE.with_evidence("engines E.2"),
    usual::CUSTOM_TOOLS.with_evidence("engines E.2"),
    usual::ONE_CALL.with_evidence("engines E.2"),
    usual::DEVELOPER.with_evidence("engines E.2"),
    usual::NO_CALLS.with_evidence("engines E.3"),
    usual::CONTENT_BESIDE_CALLS.with_evidence("engines E.3"),
    usual::ARGUMENTS.with_evidence("engines E.3"),
    usual::TOOL_TEXT.with_evidence("engines E.3"),
    usual::PART_INPUT_TEXT.with_evidence("engines E.3"),
    usual::PART_OUTPUT_TEXT.with_evidence("engines E.3"),
    usual::PART_INPUT_IMAGE.with_evidence("engines E.3"),
];
