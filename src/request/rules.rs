//! What an operator says of requests, beyond what the APIs say.

use super::media::Media;
use serde::{Deserialize, Serialize};

/// Which ranges of values are enforced before a request reaches an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ranges {
    /// Only the ranges outside of which the engine would answer nonsense or nothing; the engine judges all other values.
    #[default]
    Engine,
    /// The ranges of the published API, whatever the engine takes.
    Api,
}

/// What requests may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What media an engine may be told to fetch.
    pub media: Media,
    /// Fields that go on to the engine although they would be refused or dropped, as `rid` or
    /// `chat_template_kwargs.tools`.
    pub allowed: Vec<String>,
    /// Which ranges of values are enforced.
    pub ranges: Ranges,
    /// How many there may be of what.
    pub caps: Caps,
}

impl Rules {
    /// For a request that has been answered already: its addresses are not judged again.
    pub const ANSWERED: Self =
        Self { media: Media::Unjudged, allowed: Vec::new(), ranges: Ranges::Engine, caps: Caps::PLAIN };

    /// Whether the operator has named a field; `param`: the way to it.
    pub(super) fn allows(&self, param: &str) -> bool {
        self.allowed.iter().any(|name| name == param)
    }
}

/// How many there may be of what in one request (faults 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Levels of nesting.
    pub depth: usize,
    /// Messages, or items of an input.
    pub messages: usize,
    /// Tools.
    pub tools: usize,
    /// Stop strings.
    pub stops: usize,
    /// Pairs of metadata.
    pub pairs: usize,
    /// Choices of one answer.
    pub choices: u64,
    /// Most probable tokens that are told beside the one that was taken; the whole vocabulary counts as a million.
    pub logprobs: u64,
}

impl Caps {
    /// What they are unless somebody says something else.
    pub const PLAIN: Self = Self {
        depth: 128,
        messages: 10_000,
        tools: 1024,
        stops: 1024,
        pairs: 16,
        choices: 128,
        logprobs: 1_000_000,
    };
}

impl Default for Caps {
    fn default() -> Self {
        Self::PLAIN
    }
}
