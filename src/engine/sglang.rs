//! SGLang.
//!
//! Arguments sent twice: up to 0.4.9 (engine-quirks A.2.4). Reasoning in history: `reasoning_content` from 0.4.7 on
//! (engine-quirks E.3). Refusals as parts fail its validation, content must stand beside calls up to 0.4.9 (E.3), and up
//! to 0.4.6 only `max_tokens` limits an answer (E.2). Its own Responses takes 2 off `max_output_tokens` (D.2).

use super::Engine;
use crate::request::responses::{NativeTakes, Takes};
use crate::wire::decode::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "sglang",
    quirks: Quirks { resends_arguments: true },
    reasoning_key: Some("reasoning_content"),
    takes: Takes {
        refusal_parts: false,
        content_beside_calls: true,
        max_tokens: true,
        cache_salt: true,
        native: NativeTakes { hosted_items: false, limit_taken_off: 2 },
        ..Takes::PLAIN
    },
    names_models: true,
    owned_by: Some("sglang"),
};
