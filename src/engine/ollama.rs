//! Ollama (one snapshot, engine-quirks A.3). Its models are owned by whoever made them, most by `library`.

use super::auto::UNION;
use super::rule::RequestRule;
use super::{Detection, Engine, Mark, Place, Proof, usual};

pub(super) static ENGINE: Engine = Engine {
    name: "ollama",
    detection: Detection {
        owned_by: Some("library"),
        places: &[Place {
            proof: Some(Proof::Key("version")),
            version: Some("version"),
            ..Place::at("/api/version")
        }],
        marks: &[Mark::sure(&[r#""system_fingerprint":"fp_ollama""#])],
        ..Detection::NONE
    },
    requests: REQUESTS,
    ..UNION
};

static REQUESTS: &[RequestRule] = &[
    usual::LEGACY.seen("engine-quirks E.2"),
    usual::ALLOWED_TOOLS.seen("engine-quirks E.2"),
    usual::CUSTOM_TOOLS.seen("engine-quirks E.2"),
    usual::ONE_CALL.seen("engine-quirks E.2"),
    usual::DEVELOPER.seen("engine-quirks E.2"),
    usual::NO_CALLS.seen("engine-quirks E.3"),
    usual::ARGUMENTS.seen("engine-quirks E.3"),
    usual::TOOL_TEXT.seen("engine-quirks E.3"),
    usual::reasoning_key("reasoning").seen("engine-quirks E.3"),
];
