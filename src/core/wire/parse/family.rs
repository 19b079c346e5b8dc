//! Model family: its names, how its models write reasoning and calls, and the engine flags that parse these
//! (engines F).

use super::calls::format::Format;
use super::message_form::MessageForm;

/// Family of models that share one output format, and what is needed to parse it.
#[derive(Debug)]
pub(super) struct Family {
    /// Names for the configuration: those of the engines' parsers, the one used in logs first.
    pub(super) names: &'static [&'static str],
    /// Substrings of the family's model names, in lower case. `*` matches any text.
    pub(super) models: &'static [&'static str],
    /// True if the model writes Harmony (wire-format 6). The fields about reasoning, answer and calls are then
    /// ignored.
    pub(super) harmony: bool,
    /// Form of the messages that the model writes, if it writes messages. The tags and the answer's markers are then ignored.
    pub(super) messages: Option<&'static MessageForm>,
    /// Tags around the reasoning. Models that are not known to reason may write `<think>`, too.
    pub(super) think: Tags,
    /// Markers around the answer that follows the reasoning; empty if there are none.
    pub(super) answer: (&'static str, &'static str),
    /// Formats in which the models write calls.
    pub(super) calls: &'static [&'static Format],
    /// Which markers are special tokens.
    pub(super) special: Special,
    /// True if tags may have a suffix, such as `:opensource`, which is the checkpoint's.
    pub(super) suffixed: bool,
    /// Markers that end a turn. They are visible only if special tokens are shown.
    pub(super) turns: &'static [&'static str],
    /// True if engines use the parser of these names for models that think by default and for others. The name of the
    /// model then decides if the block is open.
    pub(super) serves_several: bool,
    /// Names of the engines' parsers for the family.
    pub(super) engines: Engines,
}

/// No parsers of an engine.
pub(super) const NONE: (&str, &str) = ("", "");

/// Defaults for the fields that a family does not set.
pub(super) const PLAIN: Family = Family {
    names: &[],
    models: &[],
    harmony: false,
    messages: None,
    think: think(BlockOpening::Never),
    answer: ("", ""),
    calls: &[],
    special: Special::None,
    suffixed: false,
    turns: &[],
    serves_several: false,
    engines: each(NONE, NONE),
};

/// Tags around reasoning, and how the chat template treats the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags {
    /// Cases in which the template opens the block.
    pub(super) opened: BlockOpening,
    /// Tag before the reasoning.
    pub(super) start: &'static str,
    /// Start tags that models write at times in place of `start`, at the beginning of an answer.
    pub(super) others: &'static [&'static str],
    /// Tag after the reasoning.
    pub(super) end: &'static str,
}

/// Behaviour of the chat template: if it opens the reasoning block, the start tag is missing from the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockOpening {
    /// Never opened: a model that reasons writes the start tag itself.
    #[default]
    Never,
    /// Opened only if the request switches reasoning on.
    OnRequest,
    /// Opened unless the request switches reasoning off.
    Always,
}

impl BlockOpening {
    /// Returns true if the block is open where a request has this reasoning switch.
    pub(super) fn opens(self, thinks: Option<bool>) -> bool {
        match self {
            Self::Never => false,
            Self::OnRequest => thinks == Some(true),
            Self::Always => thinks != Some(false),
        }
    }
}

/// Markers that are special tokens. Engines omit these from the text unless the request asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    None,
    /// Call markers only.
    Calls,
    /// Markers of calls and of reasoning.
    All,
}

/// Names of the parsers of vLLM and SGLang for a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engines {
    pub(super) vllm: Parsers,
    pub(super) sglang: Parsers,
}

/// Names of an engine's parsers for reasoning and calls, as its flags take them; empty if it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsers {
    pub(super) reasoning: &'static str,
    pub(super) calls: &'static str,
}

/// Returns the names of parsers, for reasoning and calls, of vLLM and of SGLang.
pub(super) const fn each(
    vllm: (&'static str, &'static str),
    sglang: (&'static str, &'static str),
) -> Engines {
    let (reasoning, calls) = vllm;
    let vllm = Parsers { reasoning, calls };
    let (reasoning, calls) = sglang;
    let sglang = Parsers { reasoning, calls };
    Engines { vllm, sglang }
}

/// Returns the names of parsers that both engines have.
pub(super) const fn both(reasoning: &'static str, calls: &'static str) -> Engines {
    each((reasoning, calls), (reasoning, calls))
}

/// Returns tags around reasoning.
pub(super) const fn tags(opened: BlockOpening, start: &'static str, end: &'static str) -> Tags {
    Tags {
        opened,
        start,
        others: &[],
        end,
    }
}

impl Tags {
    /// Returns the tags with what models write in place of the first.
    pub(super) const fn or(self, others: &'static [&'static str]) -> Self {
        Self { others, ..self }
    }
}

/// Returns the tags `<think>` and `</think>`.
pub(super) const fn think(opened: BlockOpening) -> Tags {
    tags(opened, "<think>", "</think>")
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl Eq for Family {}

impl Family {
    /// Returns the first of the names by which the option `parser` takes the family.
    pub(super) fn name(&self) -> Option<&'static str> {
        self.names.first().copied()
    }

    /// Returns true if vLLM reads the reasoning of both families with the same parser.
    pub(super) fn shares_parser(&self, other: &Self) -> bool {
        let reasoning = |family: &Self| family.engines.vllm.reasoning;
        !reasoning(self).is_empty() && reasoning(self) == reasoning(other)
    }

    /// Returns the flags with which this engine would have parsed reasoning and calls itself; `None` for other
    /// engines, or if it has no such parser.
    pub(super) fn flags(&self, engine: &str, reasoning: bool, calls: bool) -> Option<String> {
        let (parsers, auto) = match engine {
            "vllm" => (self.engines.vllm, "--enable-auto-tool-choice "),
            "sglang" => (self.engines.sglang, ""),
            _ => return None,
        };
        let mut flags = Vec::new();
        if reasoning && !parsers.reasoning.is_empty() {
            flags.push(format!("--reasoning-parser {}", parsers.reasoning));
        }
        if calls && !parsers.calls.is_empty() {
            flags.push(format!("{auto}--tool-call-parser {}", parsers.calls));
        }
        (!flags.is_empty()).then(|| flags.join(" "))
    }
}
