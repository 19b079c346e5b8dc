//! Marks around an answer, which some models write behind their reasoning (engine-quirks F.1: ERNIE, Hunyuan, Cohere).
//!
//! ```text
//! before ──start──→ inside ──end, and nothing or a call behind it──→ over
//!    └──other text──→ plain ──end, and a call behind it──┘
//! ```
//!
//! Takes: text that is no reasoning, cut anywhere. Gives: the same without the marks, and without a line break beside them.
//! Remembers: white space before the first word, and what may be the end. Never: takes away a mark that stands in the text;
//! one that is a token of its own stands in no answer that the other has begun. Between an answer and a call only its end can
//! stand, whether its start was there or not.

use super::calls::Starts;
use super::marker::{Found, Markers};
use std::sync::Arc;

/// Bytes of white space that may stand behind an end.
const BLANK: usize = 1 << 10;

/// The reader of one choice's answer.
#[derive(Debug)]
pub(super) struct Wrapper {
    start: &'static str,
    end: Markers,
    /// The marks are tokens of their own.
    special: bool,
    calls: Arc<Starts>,
    /// What they may begin with.
    starts: Markers,
    state: State,
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Before,
    Inside,
    /// There are no marks, or none but the end before a call.
    Plain,
    /// Everything from here on is text.
    Over,
}

impl Wrapper {
    /// A reader of an answer between these marks; `None`: the family has none. `calls`: what they may begin with.
    pub(super) fn of((start, end): (&'static str, &'static str), calls: &Arc<Starts>) -> Option<Self> {
        let (end, special) = (Markers::new([end]), start.starts_with("<|"));
        let new = || Self {
            start,
            end,
            special,
            calls: Arc::clone(calls),
            starts: Markers::new(calls.marks_of_calls()),
            state: State::Before,
            held: String::new(),
        };
        (!start.is_empty()).then(new)
    }

    /// Whether this text stays as it is.
    pub(super) fn passes(&self, text: &str) -> bool {
        let plain = match self.state {
            State::Before => false,
            State::Inside => (self.special || !text.ends_with('\n')) && self.end.find(text) == Found::Nowhere,
            State::Plain => self.end.find(text) == Found::Nowhere,
            State::Over => true,
        };
        plain && self.held.is_empty()
    }

    /// Reads on.
    pub(super) fn read(&mut self, text: &str, say: &mut dyn FnMut(&str)) {
        if self.passes(text) {
            return say(text);
        }
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let mut at = 0;
        while let Some(read) = self.step(held.get(at..).unwrap_or(""), false, say) {
            at += read;
        }
        held.drain(..at);
        self.held = held;
    }

    /// There is no more text.
    pub(super) fn finish(&mut self, say: &mut dyn FnMut(&str)) {
        let mut held = std::mem::take(&mut self.held);
        let mut at = 0;
        while let Some(read) = self.step(held.get(at..).unwrap_or(""), true, say) {
            at += read;
        }
        held.drain(..at);
        let is_end = self.state == State::Inside
            && !self.special
            && matches!(self.end.at(held.strip_prefix('\n').unwrap_or(&held)), Found::At { .. });
        if !held.is_empty() && !is_end {
            say(&held);
        }
    }

    /// Reads some of the text, and says how much; nothing: more of it is needed.
    fn step(&mut self, text: &str, last: bool, say: &mut dyn FnMut(&str)) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        match self.state {
            State::Before => self.before(text),
            State::Inside | State::Plain => self.inside(text, last, say),
            State::Over => {
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
            self.state = if self.special { State::Over } else { State::Plain };
            return Some(0);
        };
        let read = text.len() - rest.len();
        if self.special {
            self.state = State::Inside;
            return Some(read);
        }
        // A line break goes along, as soon as it is there.
        let next = rest.chars().next()?;
        self.state = State::Inside;
        Some(read + usize::from(next == '\n'))
    }

    /// Text with the end behind it, if that is what it is.
    fn inside(&mut self, text: &str, last: bool, say: &mut dyn FnMut(&str)) -> Option<usize> {
        let found = self.end.find(text);
        let before = text.get(..found.before(text))?;
        // A line break may stand before the end.
        let loses_line = self.state == State::Inside && !self.special;
        let said = before.strip_suffix('\n').filter(|_| loses_line).unwrap_or(before);
        if let Found::At { marker, .. } = found {
            let behind = before.len() + self.end.len(marker);
            let call = if self.special { Some(Some(behind)) } else { self.call(text, behind, last) };
            let (said, read) = match call {
                Some(Some(call)) => {
                    self.state = State::Over;
                    (said, call)
                }
                Some(None) => (text.get(..behind)?, behind),
                None => (said, said.len()),
            };
            tell(said, say);
            return Some(read).filter(|read| *read > 0);
        }
        tell(said, say);
        Some(said.len()).filter(|read| *read > 0)
    }

    /// Where in the text a call begins behind an end, with nothing but white space between them; `Some(None)`: something else
    /// stands there. `None`: more is needed.
    fn call(&self, text: &str, behind: usize, last: bool) -> Option<Option<usize>> {
        let rest = text.get(behind..).unwrap_or("");
        let begun = rest.trim_start();
        if rest.len() - begun.len() > BLANK {
            return Some(None);
        }
        if begun.is_empty() {
            return None;
        }
        let is_call = match self.starts.at(begun) {
            Found::At { marker, .. } => self.calls.begins(begun, marker, last)?,
            Found::Perhaps(_) if !last => return None,
            _ => false,
        };
        Some(is_call.then(|| behind + rest.len() - begun.len()))
    }
}

fn tell(text: &str, say: &mut dyn FnMut(&str)) {
    if !text.is_empty() {
        say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::HERMES;
    use super::*;
    use crate::wire::tools::Tools;

    const TAGS: (&str, &str) = ("<answer>", "</answer>");
    const TOKENS: (&str, &str) = ("<|A|>", "<|Z|>");

    fn read(marks: (&'static str, &'static str), pieces: &[&str]) -> String {
        let tools = Arc::new(Tools::read(r#"[{"function":{"name":"f"}}]"#));
        let calls = Arc::new(Starts::of(&[&HERMES], &tools));
        let mut wrapper = Wrapper::of(marks, &calls).unwrap();
        let mut said = String::new();
        pieces.iter().for_each(|piece| wrapper.read(piece, &mut |text| said.push_str(text)));
        wrapper.finish(&mut |text| said.push_str(text));
        said
    }

    /// Each text comes out as the other, in one piece and letter by letter.
    fn check(marks: (&'static str, &'static str), all: &[(&str, &str)]) {
        for (text, expected) in all {
            let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
            let both = (read(marks, &[text]), read(marks, &letters));
            assert_eq!((both.0.as_str(), both.1.as_str()), (*expected, *expected), "{text:?}");
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
            ("<answer>a</answer>\n<tool_call>b", "a</answer>\n<tool_call>b"),
            ("a</answer> <tool_call>{\"name\":\"f\"}", "a<tool_call>{\"name\":\"f\"}"),
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
