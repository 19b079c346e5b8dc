//! An engine that keeps to the API: nothing is assumed.

use super::Engine;
use crate::wire::decode::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "generic",
    quirks: Quirks { resends_arguments: false },
    reasoning_key: None,
    owned_by: None,
};
