//! Rules for requests that the operator configures, beyond those of the APIs.

use super::media::Media;
use super::server_tools::ServerToolLists;
use serde::{Deserialize, Serialize};

/// Ranges of values that samewire enforces before a request reaches an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ranges {
    /// Minimal ranges, outside of which an engine would answer nonsense or nothing; the engine judges all other
    /// values.
    #[default]
    Engine,
    /// Ranges of the published API, even if the engine accepts more.
    Api,
}

/// Rules that a request must satisfy, as configured by the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Media addresses that an engine may be sent.
    pub media: Media,
    /// Fields that pass to the engine although they would be refused or dropped, such as `rid` or
    /// `chat_template_kwargs.tools`.
    pub allowed: Vec<String>,
    /// Ranges of values to enforce.
    pub ranges: Ranges,
    /// Limits on the size of a request.
    pub caps: Caps,
    /// Tools that samewire runs for requests that name their servers.
    pub tools: ServerToolLists,
}

impl Rules {
    /// Rules for a request that has already been answered: its media addresses are not judged again.
    pub const ANSWERED: Self = Self {
        media: Media::Unchecked,
        allowed: Vec::new(),
        ranges: Ranges::Engine,
        caps: Caps::PLAIN,
        tools: ServerToolLists(Vec::new()),
    };

    /// Returns true if the operator allows the field with the path `param`.
    pub(super) fn allows(&self, param: &str) -> bool {
        self.allowed.iter().any(|name| name == param)
    }
}

/// Limits on the size of one request (faults 6), so that no client can make parsing or generation arbitrarily
/// expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Maximum nesting depth.
    pub depth: usize,
    /// Maximum number of messages or input items.
    pub messages: usize,
    /// Maximum number of tools.
    pub tools: usize,
    /// Maximum number of stop strings.
    pub stops: usize,
    /// Maximum number of metadata pairs.
    pub pairs: usize,
    /// Maximum number of choices in one answer.
    pub choices: u64,
    /// Maximum number of top logprobs per token; a request for the whole vocabulary counts as a million.
    pub logprobs: u64,
}

impl Caps {
    /// Default limits.
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
