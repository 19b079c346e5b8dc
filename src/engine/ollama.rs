//! Ollama (one snapshot, engine-quirks A.3; no server was to be had). Its models are owned by whoever made them, most by
//! `library`.
//!
//! It draws the id of an answer from 999, and says nothing of requests that it does not understand: `max_completion_tokens`,
//! `tool_choice` and `n` are passed over, so each choice is asked for by itself. An error on the way becomes an empty chunk before the
//! stream just ends.

use super::auto::UNION;
use super::rule::RequestRule;
use super::{Detection, Engine, Mark, Place, Proof, usual};
use crate::wire::decode::Quirks;

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
    quirks: Quirks { recurring_ids: true, ..UNION.quirks },
    requests: &[
        usual::LIMITS,
        usual::TEXT_ALONE,
        OWN,
        usual::TOOLS,
        usual::MESSAGES,
        REASONING,
        usual::PARTS,
    ],
    ..UNION
};

static OWN: &[RequestRule] = &[
    // Its answers were without end otherwise: it knows the older name alone, and says nothing of the newer one.
    usual::LIMIT_COPIED.seen("fixtures/described/ollama/length"),
    usual::FAN_OUT.seen("openai/openai.go of its source: neither API's requests have n"),
];

static REASONING: &[RequestRule] = &[usual::reasoning_key("reasoning").seen("engine-quirks E.3")];
