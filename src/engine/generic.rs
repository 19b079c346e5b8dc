//! An engine that follows the API: no quirks are assumed, and only a doubled token limit is changed in requests.

use super::auto::UNION;
use super::{Engine, usual};
use crate::request::responses::Capabilities;

pub(super) static ENGINE: Engine = Engine {
    name: "generic",
    requests: &[usual::LIMITS],
    takes: Capabilities::SERVICE,
    ..UNION
};
