//! LiteLLM's proxy (its documentation alone, engines G.8): a gateway in front of engines of any kind.
//!
//! Its `/health` sends a prompt to each of its models and wants a key; `/health/liveliness` does neither. It
//! passes on what its engine has sent, so marks in its answers would name that engine.

use super::auto::UNION;
use super::{Detection, Engine, InfoRoute, Proof};
use crate::request::responses::Capabilities;

pub(super) static ENGINE: Engine = Engine {
    name: "litellm",
    detection: Detection {
        health: Some(HEALTH),
        places: &[InfoRoute {
            proof: Some(Proof::Text("I'm alive!")),
            ..InfoRoute::at(HEALTH)
        }],
        ..Detection::NONE
    },
    takes: Capabilities::SEPARATING,
    ..UNION
};

const HEALTH: &str = "/health/liveliness";
