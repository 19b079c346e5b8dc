//! Not known, or not known yet: the union of what all engines need.

use super::Engine;
use crate::request::responses::Takes;
use crate::wire::decode::Quirks;

pub(super) static ENGINE: Engine = Engine {
    name: "auto",
    quirks: Quirks { resends_arguments: true },
    reasoning_key: None,
    takes: Takes { content_beside_calls: true, ..Takes::PLAIN },
    names_models: false,
    owned_by: None,
};
