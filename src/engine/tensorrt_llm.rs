//! TensorRT-LLM's `trtllm-serve` (one snapshot, engines A.3).
//!
//! `/metrics` has no gauges but the events since the last read. Reading them would take them from any other reader,
//! so samewire does not read the load. Stream ids count requests since the engine's start.

use super::auto::UNION;
use super::rule::RequestRule;
use super::{Detection, Engine, InfoRoute, Mark, usual};
use crate::wire::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "tensorrt_llm",
    detection: Detection {
        owned_by: Some("tensorrt_llm"),
        health: Detection::HEALTH,
        places: &[InfoRoute {
            version: Some("version"),
            ..InfoRoute::at("/version")
        }],
        marks: &[Mark::sure(&[r#""avg_decoded_tokens_per_iter":"#])],
        ..Detection::NONE
    },
    quirks: Quirks {
        recurring_ids: true,
    },
    requests: &[
        usual::LIMITS,
        usual::TEXT_ALONE,
        OWN,
        usual::TOOLS,
        usual::MESSAGES,
    ],
    ..UNION
};

static OWN: &[RequestRule] = &[
    usual::OPENAI_FIELDS_DROPPED
        .with_evidence("fixtures/described/tensorrt_llm/error-unknown-field"),
    usual::EMPTY_TOOLS.with_evidence("engines E.2"),
];
