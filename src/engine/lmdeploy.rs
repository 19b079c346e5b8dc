//! LMDeploy (one snapshot, engine-quirks A.3). It says what it is in its list of models alone.

use super::auto::UNION;
use super::rule::RequestRule;
use super::{Detection, Engine, usual};

pub(super) static ENGINE: Engine = Engine {
    name: "lmdeploy",
    detection: Detection { owned_by: Some("lmdeploy"), ..Detection::NONE },
    requests: REQUESTS,
    ..UNION
};

static REQUESTS: &[RequestRule] = &[
    usual::LEGACY.seen("engine-quirks E.2"),
    usual::CUSTOM_TOOLS.seen("engine-quirks E.2"),
    usual::ONE_CALL.seen("engine-quirks E.2"),
    usual::DEVELOPER.seen("engine-quirks E.2"),
    usual::NO_CALLS.seen("engine-quirks E.3"),
    usual::ARGUMENTS.seen("engine-quirks E.3"),
    usual::TOOL_TEXT.seen("engine-quirks E.3"),
    usual::reasoning_key("reasoning_content").seen("engine-quirks E.3"),
];
