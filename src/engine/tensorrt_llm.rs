//! TensorRT-LLM's `trtllm-serve` (one snapshot, engine-quirks A.3).
//!
//! Its `/metrics` are no gauges but what happened since somebody last read them: reading them takes them from whoever else
//! does, so its load is not asked for.

use super::auto::UNION;
use super::rule::{Change, RequestRule};
use super::{Detection, Engine, Mark, Place, usual};

pub(super) static ENGINE: Engine = Engine {
    name: "tensorrt_llm",
    detection: Detection {
        owned_by: Some("tensorrt_llm"),
        places: &[Place { version: Some("version"), ..Place::at("/version") }],
        marks: &[Mark::sure(&[r#""avg_decoded_tokens_per_iter":"#])],
        ..Detection::NONE
    },
    requests: REQUESTS,
    ..UNION
};

static REQUESTS: &[RequestRule] = &[
    RequestRule::new(
        "fields_of_the_service",
        "fields that the engine refuses and can do without were left out",
        Change::Drop(usual::OF_THE_SERVICE),
    )
    .seen("engine-quirks E.1"),
    usual::LEGACY.seen("engine-quirks E.2"),
    usual::EMPTY_TOOLS.seen("engine-quirks E.2"),
    usual::ALLOWED_TOOLS.seen("engine-quirks E.2"),
    usual::CUSTOM_TOOLS.seen("engine-quirks E.2"),
    usual::ONE_CALL.seen("engine-quirks E.2"),
    usual::DEVELOPER.seen("engine-quirks E.2"),
    usual::NO_CALLS.seen("engine-quirks E.3"),
    usual::ARGUMENTS.seen("engine-quirks E.3"),
    usual::TOOL_TEXT.seen("engine-quirks E.3"),
];
