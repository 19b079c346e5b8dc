//! An engine that keeps to the API: nothing is assumed.

use super::{Detection, Engine, usual};
use crate::request::responses::{NativeTakes, Takes};
use crate::wire::decode::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "generic",
    quirks: Quirks { resends_arguments: false, recurring_ids: false },
    requests: &[usual::LIMITS],
    takes: Takes {
        verbosity: true,
        native: NativeTakes { hosted_items: true, limit_taken_off: 0 },
        ..Takes::PLAIN
    },
    names_models: false,
    detection: Detection::NONE,
};
