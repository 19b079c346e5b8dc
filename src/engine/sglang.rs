//! SGLang.
//!
//! Arguments sent twice: up to 0.4.9 (engine-quirks A.2.4). Reasoning in history: `reasoning_content` from 0.4.7 on
//! (engine-quirks E.3).

use super::Engine;
use crate::wire::decode::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "sglang",
    quirks: Quirks { resends_arguments: true },
    reasoning_key: Some("reasoning_content"),
    owned_by: Some("sglang"),
};
