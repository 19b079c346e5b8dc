//! vLLM, Python and Rust front ends.
//!
//! Arguments sent twice: 0.6.0–0.22 (engine-quirks A.1.5). Reasoning in history: 0.16–0.21 read only `reasoning`, before
//! both or neither, later both (engine-quirks E.3; 235 against 222 prompt tokens in the captures of 0.21.0).

use super::Engine;
use crate::request::responses::Takes;
use crate::wire::decode::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "vllm",
    quirks: Quirks { resends_arguments: true },
    reasoning_key: Some("reasoning"),
    takes: Takes { cache_salt: true, ..Takes::PLAIN },
    names_models: true,
    owned_by: Some("vllm"),
};
