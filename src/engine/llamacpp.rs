//! llama.cpp's server (one snapshot, engine-quirks A.3).
//!
//! Its version is a build (`b5432-1a2b3c4`), no release. It counts in `/metrics` if told to (`--metrics`); builds of late have
//! no gauge of the cache any more.

use super::auto::UNION;
use super::rule::RequestRule;
use super::{Detection, Engine, Load, LoadForm, Mark, Place, Proof, usual};

pub(super) static ENGINE: Engine = Engine {
    name: "llamacpp",
    detection: Detection {
        owned_by: Some("llamacpp"),
        places: &[Place { proof: Some(Proof::Key("default_generation_settings")), ..Place::at("/props") }],
        marks: &[
            Mark::sure(&[r#""timings":{"#]),
            Mark { texts: &[r#""system_fingerprint":"b"#], version: false, weak: true },
        ],
        other_front: None,
        loads: &[Load {
            path: "/metrics",
            form: LoadForm::Prometheus,
            running: &["llamacpp:requests_processing"],
            waiting: &["llamacpp:requests_deferred"],
            cache: &["llamacpp:kv_cache_usage_ratio"],
        }],
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
    usual::reasoning_key("reasoning_content").seen("engine-quirks E.3"),
];
