//! Markers around an answer, which some models write after their reasoning
//! (engines F.1: ERNIE, Hunyuan, Cohere).
//!
//! ```text
//! before ──start──→ inside ──end, and nothing or a call after it──→ over
//!    └──other text──→ plain ──end, and a call after it──┘
//! ```
//!
//! Takes: text that is not reasoning, cut anywhere. Gives: the same text without the markers, and without a line
//! break next to them. Remembers: white space before the first word, and text that may be the end marker. Never:
//! removes a marker that is part of the answer. Markers that are special tokens cannot occur inside an answer. An
//! end marker between answer and call is removed even if the start marker was missing, because nothing else can
//! be there.

use super::calls::Starts;
use super::held::Held;
use super::marker::{MarkerMatch, Markers};
use std::sync::Arc;

/// White space allowed between the end marker and a call, in bytes. With more of it the marker counts as text.
const BLANK: usize = 1 << 10;

/// Parser that removes the answer markers of one choice.
#[derive(Debug)]
pub(super) struct AnswerMarkers {
    start: &'static str,
    end: Markers,
    /// True if the markers are special tokens, which a model cannot write as text.
    special: bool,
    calls: Arc<Starts>,
    /// Markers that a call may begin with.
    starts: Markers,
    state: WrapperState,
    held: Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrapperState {
    /// White space only so far.
    Before,
    Inside,
    /// Answer without a start marker: only an end marker directly before a call is removed.
    Plain,
    /// After the end marker: the rest is text.
    Over,
}

impl AnswerMarkers {
    /// Creates the parser for a pair of markers; `None` if the family has none. `calls`: possible beginnings of a
    /// call.
    pub(super) fn of(
        (start, end): (&'static str, &'static str),
        calls: &Arc<Starts>,
    ) -> Option<Self> {
        let (end, special) = (Markers::new([end]), start.starts_with("<|"));
        let new = || Self {
            start,
            end,
            special,
            calls: Arc::clone(calls),
            starts: Markers::new(calls.markers_that_end_reasoning()),
            state: WrapperState::Before,
            held: Held::default(),
        };
        (!start.is_empty()).then(new)
    }

    /// Returns true if this text passes unchanged and nothing is buffered before it, so that parsing can be skipped.
    pub(super) fn passes(&self, text: &str) -> bool {
        let plain = match self.state {
            WrapperState::Before => false,
            WrapperState::Inside => {
                (self.special || !text.ends_with('\n'))
                    && self.end.find(text) == MarkerMatch::Nowhere
            }
            WrapperState::Plain => self.end.find(text) == MarkerMatch::Nowhere,
            WrapperState::Over => true,
        };
        plain && self.held.is_empty()
    }

    /// Parses the next text and passes the answer text to `say`; a possible marker at its end stays buffered.
    pub(super) fn read(&mut self, text: &str, say: &mut dyn FnMut(&str)) {
        if self.passes(text) {
            return say(text);
        }
        if self.held.add_blank(text) {
            return;
        }
        let mut held = self.held.take();
        held.push_str(text);
        let mut at = 0;
        while let Some(read) = self.step(held.get(at..).unwrap_or(""), false, say) {
            at += read;
        }
        held.drain(..at);
        self.held.keep(held, self.state == WrapperState::Before);
    }

    /// Ends the text: passes on the buffered rest, unless that is an end marker, which is dropped.
    pub(super) fn finish(&mut self, say: &mut dyn FnMut(&str)) {
        let mut held = self.held.take();
        let mut at = 0;
        while let Some(read) = self.step(held.get(at..).unwrap_or(""), true, say) {
            at += read;
        }
        held.drain(..at);
        let is_end = self.state == WrapperState::Inside
            && !self.special
            && matches!(
                self.end
                    .match_at_start(held.strip_prefix('\n').unwrap_or(&held)),
                MarkerMatch::At { .. }
            );
        if !held.is_empty() && !is_end {
            say(&held);
        }
    }

    /// Parses a prefix of the text and returns its length in bytes; `None` if more text is needed.
    fn step(&mut self, text: &str, last: bool, say: &mut dyn FnMut(&str)) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        match self.state {
            WrapperState::Before => self.before(text),
            WrapperState::Inside | WrapperState::Plain => self.inside(text, last, say),
            WrapperState::Over => {
                say(text);
                Some(text.len())
            }
        }
    }

    fn before(&mut self, text: &str) -> Option<usize> {
        let begun = text.trim_start();
        let Some(rest) = begun.strip_prefix(self.start) else {
            if self.start.starts_with(begun) {
                return None;
            }
            self.state = if self.special {
                WrapperState::Over
            } else {
                WrapperState::Plain
            };
            return Some(0);
        };
        let read = text.len() - rest.len();
        if self.special {
            self.state = WrapperState::Inside;
            return Some(read);
        }
        // A line break directly after the marker is removed with it, so wait for the next character.
        let next = rest.chars().next()?;
        self.state = WrapperState::Inside;
        Some(read + usize::from(next == '\n'))
    }

    /// Passes on answer text up to a possible end marker. Returns the bytes read, or `None` if more text is needed.
    fn inside(&mut self, text: &str, last: bool, say: &mut dyn FnMut(&str)) -> Option<usize> {
        let found = self.end.find(text);
        let before = text.get(..found.before(text))?;
        // A line break directly before the end marker is removed with it.
        let loses_line = self.state == WrapperState::Inside && !self.special;
        let said = before
            .strip_suffix('\n')
            .filter(|_| loses_line)
            .unwrap_or(before);
        if let MarkerMatch::At { marker, .. } = found {
            let after = before.len() + self.end.len(marker);
            let call = if self.special {
                Some(Some(after))
            } else {
                self.call(text, after, last)
            };
            let (said, read) = match call {
                Some(Some(call)) => {
                    self.state = WrapperState::Over;
                    (said, call)
                }
                Some(None) => (text.get(..after)?, after),
                None => (said, said.len()),
            };
            say_non_empty(said, say);
            return Some(read).filter(|read| *read > 0);
        }
        say_non_empty(said, say);
        Some(said.len()).filter(|read| *read > 0)
    }

    /// Finds a call directly after an end marker, with only white space between them. Returns `Some(Some(offset))`
    /// of the call, `Some(None)` if something else is there, and `None` if more text is needed.
    fn call(&self, text: &str, after: usize, last: bool) -> Option<Option<usize>> {
        let rest = text.get(after..).unwrap_or("");
        let begun = rest.trim_start();
        if rest.len() - begun.len() > BLANK {
            return Some(None);
        }
        if begun.is_empty() {
            return None;
        }
        let is_call = match self.starts.match_at_start(begun) {
            MarkerMatch::At { marker, .. } => self.calls.begins(begun, marker, last)?,
            MarkerMatch::Partial(_) if !last => return None,
            _ => false,
        };
        Some(is_call.then(|| after + rest.len() - begun.len()))
    }
}

fn say_non_empty(text: &str, say: &mut dyn FnMut(&str)) {
    if !text.is_empty() {
        say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::format::QWEN_CALLS;
    use super::*;
    use crate::wire::tools::Tools;

    const TAGS: (&str, &str) = ("<answer>", "</answer>");
    const TOKENS: (&str, &str) = ("<|A|>", "<|Z|>");

    fn read(marks: (&'static str, &'static str), pieces: &[&str]) -> String {
        let tools = Arc::new(Tools::read(r#"[{"function":{"name":"f"}}]"#));
        let calls = Arc::new(Starts::of(&[&QWEN_CALLS], &tools));
        let mut wrapper = AnswerMarkers::of(marks, &calls).unwrap();
        let mut said = String::new();
        pieces
            .iter()
            .for_each(|piece| wrapper.read(piece, &mut |text| said.push_str(text)));
        wrapper.finish(&mut |text| said.push_str(text));
        said
    }

    /// Asserts that each text yields the expected one, both in one piece and character by character.
    fn check(marks: (&'static str, &'static str), all: &[(&str, &str)]) {
        for (text, expected) in all {
            let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
            let both = (read(marks, &[text]), read(marks, &letters));
            assert_eq!(
                (both.0.as_str(), both.1.as_str()),
                (*expected, *expected),
                "{text:?}"
            );
        }
    }

    #[test]
    fn marks_go_and_everything_else_stays() {
        let all = [
            ("\n<answer>\na b\n</answer>\n", "a b"),
            ("<answer>a</answer>", "a"),
            ("<answer>a", "a"),
            ("<answer>a\n", "a\n"),
            ("<answer>a\n\n</answer>", "a\n"),
            ("<answer></answer>", ""),
            ("<answer>", "<answer>"),
            ("<answer>a</answer> b</answer>", "a</answer> b"),
            ("<answer>a</ans", "a</ans"),
            (
                "<answer>a\n</answer>\n<tool_call>{\"name\":\"f\"}</answer>",
                "a<tool_call>{\"name\":\"f\"}</answer>",
            ),
            (
                "<answer>a</answer>\n<tool_call>b",
                "a</answer>\n<tool_call>b",
            ),
            (
                "a</answer> <tool_call>{\"name\":\"f\"}",
                "a<tool_call>{\"name\":\"f\"}",
            ),
            ("a</answer> b</answer>", "a</answer> b</answer>"),
            ("a</answer> <tool_", "a</answer> <tool_"),
            ("a<answer>b</answer>", "a<answer>b</answer>"),
            ("\n <ans", "\n <ans"),
            ("\n", "\n"),
            ("", ""),
        ];
        check(TAGS, &all);
    }

    #[test]
    fn marks_that_are_tokens_end_an_answer_whatever_follows() {
        let all = [
            ("<|A|>\na\n<|Z|>\n", "\na\n\n"),
            ("<|A|>a<|Z|>b<|Z|>", "ab<|Z|>"),
            ("<|A|><|Z|>", ""),
            ("<|A|>a<|Z", "a<|Z"),
            ("a<|A|>b<|Z|>", "a<|A|>b<|Z|>"),
        ];
        check(TOKENS, &all);
    }
}
