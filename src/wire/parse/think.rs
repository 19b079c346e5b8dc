//! Reasoning between tags in the text (wire-format 7).
//!
//! ```text
//! before ──start tags──→ inside ──end tag, start of a call──→ after ──start tag (anywhere)──→ inside
//!    └──other text──→ after
//! ```
//!
//! Takes: text, cut anywhere. Gives: [`Piece::Reasoning`] and [`Piece::Content`]. Remembers: white space before the first
//! word, and text that may begin a tag or a call. Never: loses or repairs anything.
//!
//! A call ends reasoning without an end tag (engine-quirks F.1); a mark of calls that the model only names does not: what
//! follows it is read as a call before it counts. What the option `tool_start` says ends it in any case.

use super::calls::Starts;
use super::marker::{Found, Markers};
use super::{Emit, Piece, TextRoute};
use crate::wire::options::{Think as Options, ThinkMode};
use crate::wire::rule::Rule;
use std::sync::Arc;

/// The reader of one choice's reasoning.
#[derive(Debug)]
pub(super) struct Think {
    mode: ThinkMode,
    start: Box<str>,
    starts: Markers,
    /// What ends a block: the end tag, which goes; marks of calls, where one follows, and the option's, which stay.
    ends: Markers,
    calls: Arc<Starts>,
    trim: bool,
    /// Of a whole text, what stands before an end without a start is reasoning: the template may have opened the block.
    unopened: bool,
    /// Whether only the model's name says that the template opens the block. In a whole text, the tags that are there decide.
    assumed: bool,
    /// The model says nothing but one text, and ends of itself.
    only_text: bool,
    state: State,
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Before,
    /// Behind the start tag, and nothing but white space since: it may be repeated.
    Opened,
    /// `blank`: nothing but white space in this block so far.
    Inside { blank: bool },
    /// `blank`: nothing but white space behind a block so far.
    After { blank: bool },
}

impl Think {
    /// A reader; nothing if the text is to be left as it is. `unopened`: the template may have opened the block. `calls`:
    /// what they may begin with.
    pub(super) fn of(options: &Options, unopened: bool, calls: &Arc<Starts>) -> Option<Self> {
        if options.mode == ThinkMode::Off {
            return None;
        }
        // The option's stands last: of two that are the same, it counts.
        let option = std::iter::once(options.tool_start.as_str());
        let ends = std::iter::once(options.end.as_str()).chain(calls.marks_of_calls()).chain(option);
        let state =
            if options.mode == ThinkMode::Anywhere { State::After { blank: false } } else { State::Before };
        Some(Self {
            mode: options.mode,
            start: options.start.as_str().into(),
            starts: Markers::new([options.start.as_str()]),
            ends: Markers::new(ends),
            calls: Arc::clone(calls),
            trim: options.trim,
            unopened,
            assumed: false,
            only_text: false,
            state,
            held: String::new(),
        })
    }

    /// Sets whether only the model's name says that the template opens the block.
    #[must_use]
    pub(super) fn assumed(self, assumed: bool) -> Self {
        Self { assumed, ..self }
    }

    /// The model says nothing but the text that is read next, and ends of itself.
    pub(super) fn only_text(&mut self) {
        self.only_text = true;
    }

    /// This is all the text there will be. Gives whether it is an answer although the template has opened a block: the
    /// model did not think.
    pub(super) fn foresee(&mut self, text: &str) -> bool {
        if self.state != State::Before {
            return false;
        }
        if self.assumed {
            self.mode = ThinkMode::Auto;
        }
        let end = self.ends.first_of(text, 0).filter(|_| self.unopened);
        if end.is_some_and(|end| !text.get(..end).is_some_and(|before| before.contains(&*self.start))) {
            self.state = State::Inside { blank: true };
        }
        let ends = || matches!(self.end_in(text, true), Found::At { .. });
        let is_marked = || text.contains(&*self.start) || ends();
        let unthought = self.only_text && self.mode == ThinkMode::Forced && !text.trim().is_empty();
        let unthought = unthought && !is_marked();
        if unthought {
            self.state = State::After { blank: false };
        }
        unthought
    }

    /// How this text goes through.
    pub(super) fn route(&self, text: &str) -> Option<TextRoute> {
        let (route, marks) = match self.state {
            State::Inside { .. } if !self.trim => (TextRoute::Reasoning, Some(&self.ends)),
            State::After { blank: false } if self.mode == ThinkMode::Anywhere => {
                (TextRoute::Content, Some(&self.starts))
            }
            State::After { blank: false } => (TextRoute::Content, None),
            _ => return None,
        };
        let passes = marks.is_none_or(|marks| marks.find(text) == Found::Nowhere);
        (self.held.is_empty() && passes).then_some(route)
    }

    /// Everything from here on is content.
    fn has_passed(&self) -> bool {
        self.mode != ThinkMode::Anywhere && matches!(self.state, State::After { .. })
    }

    /// Reads on.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        if self.held.is_empty() && self.has_passed() {
            return self.answer(text, emit);
        }
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let read = self.steps(&held, false, emit);
        held.drain(..read);
        self.held = held;
    }

    /// There is no more text.
    pub(super) fn end(&mut self, emit: Emit<'_>) {
        let held = std::mem::take(&mut self.held);
        let read = self.steps(&held, true, emit);
        let rest = held.get(read..).unwrap_or("");
        match self.state {
            State::Before if self.mode == ThinkMode::Forced => self.reason(rest, true, emit),
            State::Opened | State::Inside { .. } => self.reason(rest, true, emit),
            State::Before | State::After { .. } => {
                self.answer(rest, emit);
                0
            }
        };
    }

    /// It is not needed any more: what is held was the beginning of no tag.
    pub(super) fn leave(mut self, emit: Emit<'_>) {
        if self.state == State::Before {
            self.state = State::After { blank: false };
        }
        self.end(emit);
    }

    /// Reads as much of the text as can be told, and says how much that is. `last`: nothing follows.
    fn steps(&mut self, text: &str, last: bool, emit: Emit<'_>) -> usize {
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(read) = self.step(rest, last, emit) else { break };
            at += read;
        }
        at
    }

    /// Reads some of the text, and says how much; nothing: more of it is needed.
    fn step(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        match self.state {
            State::Before => self.before(text, emit),
            State::Opened => self.opened(text, emit),
            State::Inside { .. } => self.inside(text, last, emit),
            State::After { .. } => self.after(text, emit),
        }
    }

    /// White space and a start tag at the beginning go; else what is there stays.
    fn before(&mut self, text: &str, emit: Emit<'_>) -> Option<usize> {
        let begun = text.trim_start();
        if begun.starts_with(&*self.start) {
            self.state = State::Opened;
            emit(Piece::Opened(Rule::Think));
            return Some(text.len() - begun.len() + self.start.len());
        }
        if self.start.starts_with(begun) {
            return None;
        }
        let forced = self.mode == ThinkMode::Forced;
        if forced {
            emit(Piece::Opened(Rule::Think));
        }
        self.state = if forced { State::Inside { blank: true } } else { State::After { blank: false } };
        Some(0)
    }

    /// A start tag that is repeated goes; white space is reasoning.
    fn opened(&mut self, text: &str, emit: Emit<'_>) -> Option<usize> {
        let begun = text.trim_start();
        let repeated = !self.start.is_empty() && begun.starts_with(&*self.start);
        if !repeated && !self.start.starts_with(begun) {
            self.state = State::Inside { blank: true };
            return Some(0);
        }
        let blank = text.len() - begun.len();
        if blank > 0 && !self.trim {
            emit(Piece::Reasoning(text.get(..blank)?));
        }
        let read = blank + if repeated { self.start.len() } else { 0 };
        Some(read).filter(|read| *read > 0)
    }

    fn inside(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let found = self.end_in(text, last);
        let Found::At { at, marker } = found else {
            let read = self.reason(text.get(..found.before(text))?, false, emit);
            return Some(read).filter(|read| *read > 0);
        };
        self.reason(text.get(..at)?, true, emit);
        self.state = State::After { blank: true };
        // Where a call begins, that is the call's.
        Some(at + if marker == 0 { self.ends.len(0) } else { 0 })
    }

    /// The first end of a block in a text.
    fn end_in(&self, text: &str, last: bool) -> Found {
        let mut from = 0;
        loop {
            let rest = text.get(from..).unwrap_or("");
            match self.ends.find(rest) {
                Found::At { at, marker } => {
                    let is_end = self.is_end(rest.get(at..).unwrap_or(""), marker, last);
                    match is_end {
                        Some(true) => return Found::At { at: from + at, marker },
                        Some(false) => from += at + self.ends.len(marker),
                        None => return Found::Perhaps(from + at),
                    }
                }
                Found::Perhaps(at) => return Found::Perhaps(from + at),
                Found::Nowhere => return Found::Nowhere,
            }
        }
    }

    /// Whether a mark at the beginning of this text ends a block; `None`: more of it is needed. A call that is not told before
    /// the end tag is none.
    fn is_end(&self, text: &str, marker: usize, last: bool) -> Option<bool> {
        let Some(start) = marker.checked_sub(1).filter(|start| *start < self.calls.len()) else {
            return Some(true);
        };
        let is_call = self.calls.begins(text, start, last);
        if is_call == Some(false) || self.ends.len(0) == 0 {
            return is_call;
        }
        let looked = Starts::looked_at(text);
        let Some(before) = self.ends.first_of(looked, 0).and_then(|end| looked.get(..end)) else {
            return is_call;
        };
        Some(self.calls.begins(before, start, false) == Some(true))
    }

    fn after(&mut self, text: &str, emit: Emit<'_>) -> Option<usize> {
        if self.mode != ThinkMode::Anywhere {
            self.answer(text, emit);
            return Some(text.len());
        }
        let found = self.starts.find(text);
        let before = found.before(text);
        self.answer(text.get(..before)?, emit);
        if let Found::At { .. } = found {
            self.state = State::Inside { blank: true };
            emit(Piece::Opened(Rule::Think));
            return Some(before + self.start.len());
        }
        Some(before).filter(|read| *read > 0)
    }

    /// Text in a block; gives how much of it is read. `closes`: the block ends behind it.
    fn reason(&mut self, text: &str, closes: bool, emit: Emit<'_>) -> usize {
        let blank = matches!(self.state, State::Inside { blank: true } | State::Opened | State::Before);
        let begun = if self.trim && blank { text.trim_start() } else { text };
        let said = if self.trim { begun.trim_end() } else { begun };
        if !said.is_empty() {
            self.state = State::Inside { blank: false };
            emit(Piece::Reasoning(said));
        }
        // What may turn out to be the end's white space waits.
        if closes { text.len() } else { text.len() - begun.len() + said.len() }
    }

    /// Text outside of blocks.
    fn answer(&mut self, text: &str, emit: Emit<'_>) {
        let begins = matches!(self.state, State::After { blank: true }) && self.trim;
        let text = if begins { text.trim_start() } else { text };
        if !text.is_empty() {
            self.state = State::After { blank: false };
            emit(Piece::Content(text));
        }
    }
}
