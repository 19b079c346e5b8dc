//! Engines: everything samewire knows about each, as data. A new engine is a file here, its fixtures, and a line in
//! [`ENGINES`].

mod auto;
mod generic;
mod sglang;
mod vllm;

use crate::request::responses::Takes;
use crate::wire::decode::Quirks;

/// One engine.
#[derive(Debug)]
pub struct Engine {
    /// The name in configuration, flags and metrics.
    pub name: &'static str,
    /// What its answers need.
    pub quirks: Quirks,
    /// The key under which it reads reasoning in assistant messages; `None`: what the client sent goes on.
    pub reasoning_key: Option<&'static str>,
    /// What it takes of a Responses request.
    pub takes: Takes,
    /// Its answers name a model that its list names, or the one that was asked for.
    pub names_models: bool,
    /// `owned_by` in its list of models, by which it is recognised.
    pub owned_by: Option<&'static str>,
}

impl PartialEq for Engine {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Engine {
    /// What it takes of a Responses request, its key of reasoning included.
    pub fn takes(&self) -> Takes {
        Takes { reasoning_key: self.reasoning_key.unwrap_or(self.takes.reasoning_key), ..self.takes }
    }
}

/// Every engine there is.
pub static ENGINES: &[&Engine] = &[&auto::ENGINE, &vllm::ENGINE, &sglang::ENGINE, &generic::ENGINE];

/// The engine of that name.
pub fn named(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().copied().find(|engine| engine.name == name)
}

/// The engine that lists its models with this `owned_by`.
pub fn recognised(owned_by: &str) -> Option<&'static Engine> {
    ENGINES.iter().copied().find(|engine| engine.owned_by == Some(owned_by))
}
