//! Engines: everything samewire knows about each, as data. A new engine is a file here, its fixtures, and a line in
//! [`ENGINES`].

mod auto;
mod detection;
pub mod fallback;
mod generic;
mod identity;
mod llamacpp;
mod lmdeploy;
mod ollama;
mod openai;
pub mod rule;
mod sglang;
mod tensorrt_llm;
mod transformers;
mod usual;
mod vllm;

pub use detection::{
    Busy, Detection, Load, LoadForm, Mark, OtherFront, Parsers, Place, PlaceReport, Proof, Recognised,
    RouteAnswer, of_answer, recognised, recognised_in,
};
pub use identity::{Front, Identity, NoRelease, Version, Versions};

use crate::request::responses::Capabilities;
use crate::wire::decode::Quirks;
use rule::RequestRule;

/// One engine.
#[derive(Debug)]
pub struct Engine {
    /// The name in configuration, flags and metrics.
    pub name: &'static str,
    /// What its answers need.
    pub quirks: Quirks,
    /// What is changed in requests for it, in this order: its own rules, and lists that it shares with others.
    pub requests: &'static [&'static [RequestRule]],
    /// What it takes of a Responses request.
    pub takes: Capabilities,
    /// Its answers name a model that its list names, or the one that was asked for.
    pub names_models: bool,
    /// By what it is known, and what it tells of itself.
    pub detection: Detection,
}

impl PartialEq for Engine {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Engine {
    /// What is changed in requests for it, in some version or other.
    pub fn rules(&self) -> impl Iterator<Item = &'static RequestRule> + use<> {
        self.requests.iter().copied().flatten()
    }

    /// Whether this says which one it is.
    pub fn is_known(&self) -> bool {
        *self != auto::ENGINE
    }
}

/// Every engine there is. One that cannot say what it is is asked in this order: Ollama last, whose routes others have, too.
pub static ENGINES: &[&Engine] = &[
    &auto::ENGINE,
    &vllm::ENGINE,
    &sglang::ENGINE,
    &llamacpp::ENGINE,
    &tensorrt_llm::ENGINE,
    &lmdeploy::ENGINE,
    &transformers::ENGINE,
    &openai::ENGINE,
    &ollama::ENGINE,
    &generic::ENGINE,
];

/// The engine of that name.
pub fn named(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().copied().find(|engine| engine.name == name)
}
