//! Engines: everything samewire knows about each engine, as data. A new engine needs a file here, its fixtures, and
//! a line in [`ENGINES`].

mod auto;
mod detection;
pub mod efforts;
pub mod fallback;
mod generic;
mod identity;
mod litellm;
mod llamacpp;
mod lmdeploy;
mod ollama;
mod openai;
pub mod rule;
mod sglang;
pub mod template;
mod tensorrt_llm;
mod transformers;
mod usual;
mod vllm;

pub use detection::{
    DetectedParsers, Detection, EngineLoad, Flags, InfoReport, InfoRoute, LoadForm, LoadRoute,
    Mark, OtherFront, Proof, Recognised, RouteAnswer, of_answer, recognised, recognised_in,
};
pub use identity::{EngineIdentity, EngineVersion, Front, NoRelease, Versions};

use crate::request::responses::Capabilities;
use crate::wire::Quirks;
use rule::RequestRule;
use template::PromptRoutes;

/// Path under which vLLM counts the tokens of a chat (captures `other-tokenize-chat`, `other-tokenize`).
pub const TOKENIZE: &str = "/tokenize";

/// Engine: how one kind of server differs from the API, as data that the decoders, planner and prober read.
#[derive(Debug)]
pub struct Engine {
    /// Name in configuration, flags and metrics.
    pub name: &'static str,
    /// Quirks of its answers, which the decoders and the normaliser handle.
    pub quirks: Quirks,
    /// Changes in requests for it, in the order of application: its own rules, and lists shared with other engines.
    pub requests: &'static [&'static [RequestRule]],
    /// Features of a Responses request that the engine supports.
    pub takes: Capabilities,
    /// True if an answer's model name is always one from the engine's list or the requested one; other names are
    /// errors then.
    pub names_models: bool,
    /// Path of the route that counts the tokens of a chat, whose body it takes.
    pub counts_at: &'static str,
    /// Versions in which an effort of reasoning other than `none` switches thinking on; `None`: it never does.
    pub effort_thinks: Option<Versions>,
    /// Routes that render a chat's prompt; `None`: it has none.
    pub renders: Option<PromptRoutes>,
    /// Versions whose own front end returns the prompt with an answer on request; `None`: it never does.
    pub returns_prompt: Option<Versions>,
    /// Data by which the engine is recognised and reports its version and load.
    pub detection: Detection,
}

impl PartialEq for Engine {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Engine {
    /// Returns all request rules of the engine, whatever versions they apply to.
    pub fn rules(&self) -> impl Iterator<Item = &'static RequestRule> + use<> {
        self.requests.iter().copied().flatten()
    }

    /// Returns true unless this is `auto`, which stands for an engine that is not known yet.
    pub fn is_known(&self) -> bool {
        *self != auto::ENGINE
    }
}

/// List of all engines. An engine that does not identify itself is probed in this order. Ollama comes late, because
/// others have its routes too.
pub static ENGINES: &[&Engine] = &[
    &auto::ENGINE,
    &vllm::ENGINE,
    &sglang::ENGINE,
    &llamacpp::ENGINE,
    &tensorrt_llm::ENGINE,
    &lmdeploy::ENGINE,
    &transformers::ENGINE,
    &litellm::ENGINE,
    &openai::ENGINE,
    &ollama::ENGINE,
    &generic::ENGINE,
];

/// Returns the engine of that name, or `None` if there is none.
pub fn named(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().copied().find(|engine| engine.name == name)
}
