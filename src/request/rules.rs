//! What an operator says of requests, beyond what the APIs say.

use super::media::Media;

/// What requests may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What media an engine may be told to fetch.
    pub media: Media,
    /// Fields that go on to the engine although they would be refused or dropped, as `rid` or
    /// `chat_template_kwargs.tools`.
    pub allowed: Vec<String>,
    /// How many there may be of what.
    pub caps: Caps,
}

impl Rules {
    /// For a request that has been answered already: its addresses are not judged again.
    pub const ANSWERED: Self = Self { media: Media::Unjudged, allowed: Vec::new(), caps: Caps::PLAIN };

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
    /// Most probable tokens that are told beside the one that was taken.
    pub logprobs: u64,
}

impl Caps {
    /// What they are unless somebody says something else.
    pub const PLAIN: Self =
        Self { depth: 128, messages: 10_000, tools: 1024, stops: 16, pairs: 16, choices: 128, logprobs: 20 };
}

impl Default for Caps {
    fn default() -> Self {
        Self::PLAIN
    }
}
