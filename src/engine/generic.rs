//! An engine that follows the API: no quirks are assumed, and only a doubled token limit is changed in requests.

use super::{Detection, Engine, TOKENIZE, usual};
use crate::request::responses::Capabilities;
use crate::wire::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "generic",
    quirks: Quirks { recurring_ids: false },
    requests: &[usual::LIMITS],
    takes: Capabilities::SERVICE,
    names_models: false,
    counts_at: TOKENIZE,
    detection: Detection::NONE,
};
