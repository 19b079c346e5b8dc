//! LMDeploy: 0.18.0 (recorded, without its kernels), and 0.16 (engines A.3). Only its list of models
//! identifies it. Every completion has the id `-1`.
//!
//! Message parts of an unknown type are ignored, and their content is lost. Efforts and tool choices are validated;
//! null is refused. The engine applies `allowed_tools` itself, and reads reasoning in messages under either name.

use super::auto::UNION;
use super::rule::RequestRule;
use super::{Detection, Engine, usual};
use crate::wire::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "lmdeploy",
    detection: Detection {
        owned_by: Some("lmdeploy"),
        health: Detection::HEALTH,
        ..Detection::NONE
    },
    quirks: Quirks {
        recurring_ids: true,
    },
    requests: &[
        usual::LIMITS,
        usual::TEXT_ALONE,
        OWN,
        usual::MESSAGES,
        REASONING,
        usual::PARTS,
    ],
    ..UNION
};

static OWN: &[RequestRule] = &[
    usual::NULLS.with_evidence("fixtures/lmdeploy/error-nulls"),
    usual::SCHEMA_NAME.with_evidence("fixtures/lmdeploy/error-schema-name"),
    usual::NO_REASONING.with_evidence("fixtures/lmdeploy/thinking-off"),
    usual::efforts(&["low", "medium", "high", "max"])
        .with_evidence("fixtures/lmdeploy/error-effort"),
    usual::LEGACY.with_evidence("engines E.2"),
    usual::CUSTOM_TOOLS.with_evidence("fixtures/lmdeploy/error-custom-tool"),
    usual::ONE_CALL.with_evidence("engines E.2"),
];

static REASONING: &[RequestRule] =
    &[usual::reasoning_key("reasoning_content").with_evidence("engines E.3")];
