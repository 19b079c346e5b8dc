//! Ollama (one snapshot, engines A.3; no server was available). `owned_by` of a model is its author, mostly
//! `library`.
//!
//! Answer ids are drawn from 999 numbers. Members that the engine does not understand are silently ignored:
//! `max_completion_tokens`, `tool_choice` and `n`, so each choice is requested separately. An error during an answer
//! becomes an empty chunk, after which the stream ends.

use super::auto::UNION;
use super::rule::RequestRule;
use super::{Detection, Engine, InfoRoute, Mark, Proof, usual};
use crate::request::responses::Capabilities;
use crate::wire::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "ollama",
    detection: Detection {
        owned_by: Some("library"),
        places: &[InfoRoute {
            proof: Some(Proof::Key("version")),
            version: Some("version"),
            ..InfoRoute::at("/api/version")
        }],
        marks: &[Mark::sure(&[r#""system_fingerprint":"fp_ollama""#])],
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
        REASONING,
        usual::PARTS,
    ],
    takes: Capabilities::SEPARATING,
    ..UNION
};

static OWN: &[RequestRule] = &[
    // The engine knows only the older name and silently ignores the newer one; answers would have no limit.
    usual::LIMIT_COPIED.with_evidence("fixtures/described/ollama/length"),
    usual::FAN_OUT.with_evidence("openai/openai.go of its source: neither API's requests have n"),
];

static REASONING: &[RequestRule] =
    &[usual::reasoning_key("reasoning").with_evidence("engines E.3")];
