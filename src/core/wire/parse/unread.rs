//! Look at the beginning of a text that nothing reads, for a mark that the engine's parser or samewire's would have
//! taken from it.
//!
//! Takes: the first piece of an answer's text. Gives: what it begins with. Remembers: that it has looked. Never:
//! changes the text, or looks at more of it.

use super::families::{FAMILIES, GPT_OSS};
use super::family::Family;
use super::names;
use super::reader::Undecided;
use crate::json::Text;
use std::sync::LazyLock;

/// Characters of the text that are looked at: more than white space and the longest mark take.
const LOOKED_AT: usize = 64;

/// Kind of mark that the text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Calls,
    Harmony,
}

/// Look at the beginning of one answer's text.
#[derive(Debug)]
pub(in crate::wire) struct Beginning {
    /// True until text other than white space has come.
    is_open: bool,
    found: Option<Kind>,
}

/// Mark of reasoning, a call or Harmony with which a text begins that nothing reads, for operators.
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    kind: Kind,
}

/// Marks that prose does not begin with, each with what it marks.
static MARKS: LazyLock<Vec<(&'static str, Kind)>> = LazyLock::new(|| {
    let tags = FAMILIES
        .iter()
        .map(|family| family.think)
        .flat_map(|tags| [tags.start, tags.end]);
    let calls = FAMILIES
        .iter()
        .flat_map(|family| family.calls)
        .flat_map(|format| format.starts);
    let harmony = Undecided::BEGINNINGS
        .into_iter()
        .map(|mark| (mark, Kind::Harmony));
    let all = harmony
        .chain(tags.map(|mark| (mark, Kind::Reasoning)))
        .chain(calls.map(|mark| (*mark, Kind::Calls)));
    all.filter(|(mark, _)| !mark.starts_with(char::is_alphanumeric))
        .collect()
});

impl Beginning {
    pub(in crate::wire) fn new() -> Self {
        Self {
            is_open: true,
            found: None,
        }
    }

    /// Looks at a piece of text. Returns true if it is the first one and begins with a mark.
    #[inline]
    pub(in crate::wire) fn look(&mut self, text: &Text<'_>) -> bool {
        self.is_open && self.look_at(text)
    }

    fn look_at(&mut self, text: &Text<'_>) -> bool {
        // Most texts begin with a letter, and no mark does: they are not compared with any.
        if text
            .first_characters(1)
            .decoded()
            .starts_with(char::is_alphanumeric)
        {
            self.is_open = false;
            return false;
        }
        let beginning = text.first_characters(LOOKED_AT);
        let beginning = beginning.decoded();
        let beginning = beginning.trim_start();
        self.is_open = beginning.is_empty();
        let mark = MARKS.iter().find(|(mark, _)| beginning.starts_with(mark));
        self.found = mark.map(|(_, kind)| *kind);
        self.found.is_some()
    }

    pub(in crate::wire) fn unread(&self) -> Option<Unread> {
        self.found.map(|kind| Unread { kind })
    }
}

impl Unread {
    /// Log message that reports it.
    pub const MESSAGE: &str =
        "the text begins with a mark that nothing reads; clients get it as text";

    /// Returns what the mark stands for, in a word.
    pub fn kind(self) -> &'static str {
        match self.kind {
            Kind::Reasoning => "reasoning",
            Kind::Calls => "calls",
            Kind::Harmony => "harmony",
        }
    }

    /// Returns the command-line flags with which the engine of this name (`vllm`, `sglang`) would have parsed the
    /// text itself; `None` for other engines. `NAME` stands for a parser that the model's name does not tell.
    pub fn flags(self, engine: &str, model: &str) -> Option<String> {
        let (reasoning, calls) = match self.kind {
            Kind::Reasoning => (true, false),
            Kind::Calls => (false, true),
            Kind::Harmony => (true, true),
        };
        self.family(model)
            .flags(engine, reasoning, calls)
            .or_else(|| {
                let auto = match engine {
                    "vllm" => "--enable-auto-tool-choice ",
                    "sglang" => "",
                    _ => return None,
                };
                Some(match self.kind {
                    Kind::Calls => format!("{auto}--tool-call-parser NAME"),
                    _ => "--reasoning-parser NAME".to_owned(),
                })
            })
    }

    /// Returns the option with which samewire reads the text of this model.
    pub fn option(self, model: &str) -> String {
        let name = self
            .family(model)
            .names
            .first()
            .copied()
            .unwrap_or_default();
        match self.kind {
            Kind::Harmony => "harmony = \"text\"".to_owned(),
            _ => format!("parser = \"{name}\""),
        }
    }

    fn family(self, model: &str) -> &'static Family {
        match self.kind {
            Kind::Harmony => &GPT_OSS,
            _ => names::of_model(model),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_piece_with_text_is_looked_at() {
        for (pieces, expected) in [
            (&["<think>"][..], Some("reasoning")),
            (&["", " \\n", "\\n\\u003cthink>x"], Some("reasoning")),
            (&["</think>\\n\\nHi"], Some("reasoning")),
            (&["[THINK]"], Some("reasoning")),
            (&["<tool_call>\\n{"], Some("calls")),
            (&["[TOOL_CALLS]"], Some("calls")),
            (&["<｜tool▁calls▁begin｜>"], Some("calls")),
            (&["<|channel|>analysis"], Some("harmony")),
            (&["a", "<think>"], None),
            (&["<th", "ink>"], None),
            (&["Here is my thought process:"], None),
            (&["functools[{"], None),
            (&["[1]"], None),
            (&["<p>"], None),
        ] {
            let mut beginning = Beginning::new();
            let marks = pieces
                .iter()
                .filter(|piece| beginning.look(&Text::json(piece)))
                .count();
            let found = beginning.unread().map(Unread::kind);
            assert_eq!(
                (found, marks),
                (expected, usize::from(expected.is_some())),
                "{pieces:?}"
            );
        }
    }

    #[test]
    fn operators_learn_the_flag_and_the_option() {
        let unread = |kind| Unread { kind };
        for (kind, engine, model, flags, option) in [
            (
                Kind::Reasoning,
                "vllm",
                "Qwen3-8B",
                Some("--reasoning-parser qwen3"),
                "parser = \"qwen3\"",
            ),
            (
                Kind::Reasoning,
                "sglang",
                "m",
                Some("--reasoning-parser NAME"),
                "parser = \"auto\"",
            ),
            (
                Kind::Calls,
                "vllm",
                "m",
                Some("--enable-auto-tool-choice --tool-call-parser NAME"),
                "parser = \"auto\"",
            ),
            (
                Kind::Harmony,
                "sglang",
                "m",
                Some("--reasoning-parser gpt-oss --tool-call-parser gpt-oss"),
                "harmony = \"text\"",
            ),
            (
                Kind::Calls,
                "llamacpp",
                "glm-4.5",
                None,
                "parser = \"glm45\"",
            ),
        ] {
            assert_eq!(unread(kind).flags(engine, model).as_deref(), flags);
            assert_eq!(unread(kind).option(model), option);
        }
    }
}
