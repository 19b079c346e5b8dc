//! Report of output that an engine left unparsed, for operators.
//!
//! Takes: what the parsers recognised. Gives: a message and the engine's flags. Remembers: the kinds that were seen.
//! Never: text of an answer.

use super::family::{BlockOpening, Family};
use super::names;

/// Kinds of unparsed output seen in an answer, kept to warn operators about missing engine flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnparsedKinds {
    pub(super) reasoning: bool,
    pub(super) calls: bool,
    pub(super) harmony: bool,
    /// True if the engine itself sent reasoning separately from the text.
    pub(super) engine_sent_reasoning: bool,
    /// True if the template had opened a block of reasoning, false if not; `None` if the answer does not show it.
    pub(super) opened: Option<bool>,
}

/// Unparsed output found in an answer although no parser was configured. Logged once per family, so that operators
/// can enable the engine's own parsers.
#[derive(Clone, Copy, Debug)]
pub struct Unparsed {
    pub(super) family: &'static Family,
    pub(super) found: UnparsedKinds,
}

impl Unparsed {
    /// Log message that reports unparsed output.
    pub const MESSAGE: &str = "reasoning or calls are left in the text and parsed here";
    /// Log text that introduces the flags of [`Unparsed::flags`].
    pub const REMEDY: &str = "the engine parses them with these flags";

    /// Returns a report for a model of this name, for those who have seen its output themselves.
    pub fn of_model(model: &str, reasoning: bool, calls: bool) -> Self {
        let found = UnparsedKinds {
            reasoning,
            calls,
            ..UnparsedKinds::default()
        };
        Self {
            family: names::of_model(model),
            found,
        }
    }

    /// Returns the first configuration name of the model family whose format was recognised, or an empty string.
    pub fn family(&self) -> &'static str {
        self.family.name().unwrap_or_default()
    }

    /// Returns true if the family's chat template opens the block of reasoning, so that the text lacks its first tag.
    pub fn opens_reasoning(&self) -> bool {
        self.family.think.opened == BlockOpening::Always
    }

    /// Returns true if `other` is of the same family and covers everything found here, so that a second warning
    /// would add nothing.
    pub fn is_within(&self, other: &Self) -> bool {
        let has = |own: bool, other: bool| !own || other;
        self.family() == other.family()
            && has(self.found.reasoning, other.found.reasoning)
            && has(self.found.calls, other.found.calls)
    }

    /// Returns the command-line flags with which the engine of this name (`vllm`, `sglang`) would have parsed the
    /// text itself; `None` if there are none.
    pub fn flags(&self, engine: &str) -> Option<String> {
        self.family
            .flags(engine, self.found.reasoning, self.found.calls)
    }
}
