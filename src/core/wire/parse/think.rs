//! Reasoning between tags in the text (wire-format 7).
//!
//! ```text
//! before ──start tags──→ inside ──end tag, start of a call──→ after ──start tag (anywhere)──→ inside
//!    └──other text──→ after
//! ```
//!
//! Takes: text, cut anywhere. Gives: [`Piece::Reasoning`] and [`Piece::Content`]. Remembers: white space before the
//! first word, and text that may begin a tag or a call. Never: loses or repairs text.
//!
//! A call ends reasoning even without an end tag (engines F.1). A call marker that the model merely mentions
//! does not: the text after it must parse as a call first. The marker of the option `tool_start` always ends
//! reasoning.

use super::calls::Starts;
use super::calls::code::Code;
use super::held::Held;
use super::marker::{MarkerMatch, Markers, match_start};
use super::{Emit, Piece, TextRoute, WholeText};
use crate::wire::options::{Think as Options, ThinkMode};
use crate::wire::rule::Rule;
use std::borrow::Cow;
use std::sync::Arc;

/// Tags that a model may write instead of those of its family.
pub(super) const PLAIN: [&str; 2] = ["<think>", "</think>"];

/// Index of `<think>` in [`Think::start_tags`].
const PLAIN_TAG: usize = 1;
/// Number of end tags in [`Think::ends`].
const END_TAGS: usize = 2;

/// Place of reasoning in the text, and the tags around it.
#[derive(Clone, Debug, Default)]
pub(super) struct ThinkFormat {
    pub(super) mode: ThinkMode,
    pub(super) start: Cow<'static, str>,
    /// Other start tags of the family.
    pub(super) others: &'static [&'static str],
    pub(super) end: Cow<'static, str>,
    /// True if white space around the reasoning is removed.
    pub(super) trim: bool,
    /// Text that also closes a block and is kept; empty: none.
    pub(super) tool_start: Cow<'static, str>,
}

impl From<&Options> for ThinkFormat {
    fn from(option: &Options) -> Self {
        Self {
            mode: option.mode,
            start: option.start.clone().into(),
            others: &[],
            end: option.end.clone().into(),
            trim: option.trim,
            tool_start: option.tool_start.clone().into(),
        }
    }
}

/// Parser that separates the reasoning of one choice from its answer.
#[derive(Debug)]
pub(super) struct Think {
    mode: ThinkMode,
    /// Start tags: the expected one, `<think>` if the model may write that instead, else empty, and others of the family.
    start_tags: Box<[Cow<'static, str>]>,
    /// Index of the start tag of the current or expected block. Either end tag ends a block that `<think>` began.
    tag: usize,
    /// Start marker of an answer; a text that begins with it has no reasoning. Empty: none.
    answer_start: &'static str,
    starts: Markers,
    /// Markers that end a block: first the end tags, in the order of the start tags, which are removed; then call
    /// markers, which must begin a call and stay; last the one of the option `tool_start`, which stays too.
    ends: Markers,
    calls: Arc<Starts>,
    trim: bool,
    /// True if, in a complete text, an end tag without a start tag ends reasoning: the chat template may have opened
    /// the block.
    may_lack_start: bool,
    /// True if only the model's name suggests that the template opens the block. In a complete text the tags present
    /// decide.
    is_guess: bool,
    /// True while the text has no tag, and templates of the model's family open the block.
    lacks_tags: bool,
    /// Code in the reasoning so far, which may quote calls.
    code: Code,
    state: ThinkState,
    held: Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinkState {
    /// White space only so far.
    Before,
    /// After the start tag, with only white space since then: the tag may be repeated.
    Opened,
    /// Inside a block. `blank`: only white space in it so far.
    Inside { blank: bool },
    /// Outside of a block. `blank`: only white space since the last block.
    After { blank: bool },
}

impl Think {
    /// Creates the parser; `None` if no reasoning is looked for. `unopened`: the template may have opened the block.
    /// `calls`: possible beginnings of a call, which end reasoning. `may_be_plain`: the model may write `<think>` instead
    /// of its family's tag. `answer`: start marker of an answer; a text that begins with it has no reasoning.
    pub(super) fn of(
        format: &ThinkFormat,
        unopened: bool,
        calls: &Arc<Starts>,
        may_be_plain: bool,
        answer: &'static str,
    ) -> Option<Self> {
        if format.mode == ThinkMode::Off {
            return None;
        }
        // The marker of the option comes last: `marker::begins` returns the last of several equal ones.
        let option = std::iter::once(format.tool_start.clone());
        let [plain_start, plain_end] = PLAIN.map(|tag| {
            let is_other = may_be_plain && format.start != PLAIN[0];
            Cow::Borrowed(if is_other { tag } else { "" })
        });
        let ends = [format.end.clone(), plain_end]
            .into_iter()
            .chain(calls.markers_that_end_reasoning().map(Cow::Borrowed))
            .chain(option);
        let state = if format.mode == ThinkMode::Anywhere {
            ThinkState::After { blank: false }
        } else {
            ThinkState::Before
        };
        Some(Self {
            mode: format.mode,
            start_tags: [format.start.clone(), plain_start]
                .into_iter()
                .chain(format.others.iter().map(|tag| Cow::Borrowed(*tag)))
                .collect(),
            tag: 0,
            answer_start: answer,
            starts: Markers::new([format.start.clone()]),
            ends: Markers::new(ends),
            calls: Arc::clone(calls),
            trim: format.trim,
            may_lack_start: unopened,
            is_guess: false,
            lacks_tags: false,
            code: Code::default(),
            state,
            held: Held::default(),
        })
    }

    /// Sets whether only the model's name suggests that the template opens the block, and whether the answer may show that it
    /// does.
    #[must_use]
    pub(super) fn assumed(self, is_guess: bool, may_show: bool) -> Self {
        Self {
            is_guess,
            lacks_tags: may_show,
            ..self
        }
    }

    /// Returns true if the text so far has no tag, though templates of the model's family open the block.
    pub(super) fn lacks_tags(&self) -> bool {
        self.lacks_tags && self.state != ThinkState::Before
    }

    /// Notes tags within a text: an end tag shows that the template had opened the block, a start tag that the text is about
    /// tags.
    fn note_tags(&mut self, text: &str, emit: Emit<'_>) {
        if !self.lacks_tags || !text.contains('<') {
            return;
        }
        let has = |tag: &str| !tag.trim().is_empty() && text.contains(tag.trim());
        let is_end = self.end_without_start(text).is_some();
        let has_start = self.start_tags.iter().any(|tag| has(tag)) || has(PLAIN[0]);
        if is_end && !has_start {
            emit(Piece::Opened);
        }
        self.lacks_tags = !is_end && !has_start && !has(PLAIN[1]);
    }

    /// Announces that the text continues an answer, so that no block is open.
    pub(super) fn expect_answer(&mut self) {
        self.lacks_tags = false;
        self.state = ThinkState::After { blank: false };
    }

    /// Prepares for `text`, which is all the text there will be. Returns true if it is an answer although the
    /// template has opened a block: the model did not reason, and the text has no tag.
    pub(super) fn prepare_whole(&mut self, text: &str, known: Option<WholeText>) -> bool {
        if self.state != ThinkState::Before {
            return false;
        }
        if self.is_guess && known != Some(WholeText::Cut) {
            self.mode = ThinkMode::Auto;
        }
        let end = self.end_without_start(text).filter(|_| self.may_lack_start);
        if end.is_some_and(|end| {
            !text
                .get(..end)
                .is_some_and(|before| before.contains(self.start()))
        }) {
            self.state = ThinkState::Inside { blank: true };
        }
        let ends = || matches!(self.end_in(text, true), MarkerMatch::At { .. });
        let begins = |tag: &Cow<'_, str>| !tag.is_empty() && text.contains(&**tag);
        let has_tag = || text.contains(self.start()) || self.start_tags.iter().any(begins);
        let is_marked = || has_tag() || ends();
        let is_only = known == Some(WholeText::Only);
        let unthought = is_only && self.mode == ThinkMode::Forced && !text.trim().is_empty();
        let unthought = unthought && !is_marked();
        if unthought {
            self.state = ThinkState::After { blank: false };
        }
        unthought
    }

    /// Returns the place of the first end tag that can end a block. Text about tags has them between words or in quotes.
    fn end_without_start(&self, text: &str) -> Option<usize> {
        let length = self.ends.len(0);
        let mut from = 0;
        loop {
            let rest = text.get(from..)?;
            let at = from + self.ends.first_of(rest, 0)?;
            let is_quoted = text.get(..at)?.ends_with([' ', '`', '"', '\'', '('])
                && text
                    .get(at + length..)?
                    .starts_with([' ', '`', '"', '\'', ')', '.', ',', ':', ';', '?', '!']);
            if !is_quoted {
                return Some(at);
            }
            from = at + length;
        }
    }

    /// Returns the start tag of the current or expected block.
    fn start(&self) -> &str {
        self.start_tags.get(self.tag).map_or("", AsRef::as_ref)
    }

    /// Returns how a text without any possible marker passes this parser; `None` if it has to be parsed.
    pub(super) fn route(&self, text: &str) -> Option<TextRoute> {
        let (route, marks) = match self.state {
            ThinkState::Inside { .. } if !self.trim && self.code.passes(text) => {
                (TextRoute::Reasoning, Some(&self.ends))
            }
            ThinkState::After { blank: false } if self.mode == ThinkMode::Anywhere => {
                (TextRoute::Content, Some(&self.starts))
            }
            ThinkState::After { blank: false } => (TextRoute::Content, None),
            _ => return None,
        };
        let passes = marks.is_none_or(|marks| marks.find(text) == MarkerMatch::Nowhere);
        (self.held.is_empty() && passes).then_some(route)
    }

    /// Returns what a text is, all of it and unchanged, also at the beginning of an answer; `None` if it has to be parsed.
    pub(super) fn whole_route(&self, text: &str) -> Option<TextRoute> {
        let begun = text.trim_start();
        let begins = self.state == ThinkState::Before
            && self.held.is_empty()
            && !begun.is_empty()
            && match_start(begun, &self.start_tags) == MarkerMatch::Nowhere;
        match self.mode {
            ThinkMode::Auto if begins => Some(TextRoute::Content),
            ThinkMode::Forced if begins && !self.trim && self.code.passes(text) => {
                let ends = self.ends.find(text) != MarkerMatch::Nowhere;
                (!ends).then_some(TextRoute::Reasoning)
            }
            _ => self.route(text),
        }
    }

    /// Returns true if all further text is content.
    fn has_passed(&self) -> bool {
        self.mode != ThinkMode::Anywhere && matches!(self.state, ThinkState::After { .. })
    }

    /// Parses the next text and emits what is certain; a possible tag at its end stays buffered.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        if self.held.is_empty() && self.has_passed() {
            return self.answer(text, emit);
        }
        if self.held.add_blank(text) {
            return;
        }
        let mut held = self.held.take();
        held.push_str(text);
        let read = self.steps(&held, false, emit);
        held.drain(..read);
        self.held.keep(held, self.ignores_blank());
    }

    /// Returns true if white space alone decides nothing at this place, however much of it there is.
    fn ignores_blank(&self) -> bool {
        match self.state {
            ThinkState::Before => true,
            ThinkState::Inside { .. } => self.trim && !self.ends.begin_blank(),
            ThinkState::Opened | ThinkState::After { .. } => false,
        }
    }

    /// Ends the text and emits the buffered rest, as reasoning inside a block and else as content.
    pub(super) fn end(&mut self, emit: Emit<'_>) {
        let held = self.held.take();
        let read = self.steps(&held, true, emit);
        let rest = held.get(read..).unwrap_or("");
        match self.state {
            ThinkState::Before if self.mode == ThinkMode::Forced => self.reason(rest, true, emit),
            ThinkState::Opened | ThinkState::Inside { .. } => self.reason(rest, true, emit),
            ThinkState::Before | ThinkState::After { .. } => {
                self.answer(rest, emit);
                0
            }
        };
    }

    /// Ends the parser early, because the engine reports reasoning itself. Buffered text was no tag and is emitted.
    pub(super) fn leave(mut self, emit: Emit<'_>) {
        if self.state == ThinkState::Before {
            self.state = ThinkState::After { blank: false };
        }
        self.end(emit);
    }

    /// Parses as much of the text as can be decided and returns its length in bytes. `last`: no more text follows.
    fn steps(&mut self, text: &str, last: bool, emit: Emit<'_>) -> usize {
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(read) = self.step(rest, last, emit) else {
                break;
            };
            at += read;
        }
        at
    }

    /// Parses a prefix of the text and returns its length in bytes; `None` if more text is needed.
    fn step(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        match self.state {
            ThinkState::Before => self.before(text, emit),
            ThinkState::Opened => self.opened(text, emit),
            ThinkState::Inside { .. } => self.inside(text, last, emit),
            ThinkState::After { .. } => self.after(text, emit),
        }
    }

    /// Removes the start tag with the white space before it; without a tag the text stays as it is. In forced mode the
    /// block begins here in any case.
    fn before(&mut self, text: &str, emit: Emit<'_>) -> Option<usize> {
        let begun = text.trim_start();
        let found = if self.start().is_empty() {
            MarkerMatch::At { at: 0, marker: 0 }
        } else {
            match_start(begun, &self.start_tags)
        };
        match found {
            MarkerMatch::At { marker, .. } => {
                self.tag = marker;
                self.lacks_tags = false;
                self.state = ThinkState::Opened;
                emit(Piece::Recognised(Rule::Think));
                return Some(text.len() - begun.len() + self.start().len());
            }
            MarkerMatch::Partial(_) => return None,
            MarkerMatch::Nowhere => {}
        }
        let answers = match match_start(begun, &[self.answer_start]) {
            MarkerMatch::At { .. } => true,
            MarkerMatch::Partial(_) => return None,
            MarkerMatch::Nowhere => false,
        };
        let forced = self.mode == ThinkMode::Forced && !answers;
        if forced {
            let rule = if self.is_guess {
                Rule::ThinkByName
            } else {
                Rule::Think
            };
            emit(Piece::Recognised(rule));
        }
        if forced {
            self.state = ThinkState::Inside { blank: true };
            return Some(0);
        }
        let blank = self.held.take_blank(text);
        self.state = ThinkState::After { blank: false };
        self.answer(text.get(..blank)?, emit);
        Some(blank)
    }

    /// Removes a repeated start tag. White space after the tag is reasoning, unless the option `trim` is set.
    fn opened(&mut self, text: &str, emit: Emit<'_>) -> Option<usize> {
        let begun = text.trim_start();
        let start = self.start();
        let repeated = !start.is_empty() && begun.starts_with(start);
        if !repeated && !start.starts_with(begun) {
            self.state = ThinkState::Inside { blank: true };
            return Some(0);
        }
        let blank = text.len() - begun.len();
        if blank > 0 && !self.trim {
            emit(Piece::Reasoning(text.get(..blank)?));
        }
        let read = blank + if repeated { self.start().len() } else { 0 };
        Some(read).filter(|read| *read > 0)
    }

    fn inside(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let found = self.end_in(text, last);
        let MarkerMatch::At { at, marker } = found else {
            let read = self.reason(text.get(..found.before(text))?, false, emit);
            return Some(read).filter(|read| *read > 0);
        };
        self.reason(text.get(..at)?, true, emit);
        self.state = ThinkState::After { blank: true };
        // The call marker stays in the text: the call parser needs it.
        let is_tag = marker < END_TAGS;
        let is_unopened = std::mem::take(&mut self.lacks_tags);
        if is_tag && is_unopened {
            emit(Piece::Opened);
        }
        Some(at + if is_tag { self.ends.len(marker) } else { 0 })
    }

    /// Finds the first marker in the text that ends a block. A marker whose call is still undecided counts as a
    /// partial match.
    fn end_in(&self, text: &str, last: bool) -> MarkerMatch {
        let (mut from, mut code) = (0, self.code);
        loop {
            let rest = text.get(from..).unwrap_or("");
            match self.ends.find(rest) {
                MarkerMatch::At { at, marker } => {
                    code.read(rest.get(..at).unwrap_or(""));
                    let is_end = match code.is_open() && self.is_call(marker) {
                        true => Some(false),
                        false => self.is_end(rest.get(at..).unwrap_or(""), marker, last),
                    };
                    match is_end {
                        Some(true) => {
                            return MarkerMatch::At {
                                at: from + at,
                                marker,
                            };
                        }
                        Some(false) => {
                            let length = at + self.ends.len(marker);
                            code.read(rest.get(at..length).unwrap_or(""));
                            from += length;
                        }
                        None => return MarkerMatch::Partial(from + at),
                    }
                }
                MarkerMatch::Partial(at) => return MarkerMatch::Partial(from + at),
                MarkerMatch::Nowhere => return MarkerMatch::Nowhere,
            }
        }
    }

    fn is_call(&self, marker: usize) -> bool {
        (END_TAGS..END_TAGS + self.calls.len()).contains(&marker)
    }

    /// Decides if the marker at the beginning of `text` ends a block; `None` if more text is needed. A call counts
    /// only if it is recognised before the next end tag: else the model mentions it inside its reasoning.
    fn is_end(&self, text: &str, marker: usize, last: bool) -> Option<bool> {
        if marker < END_TAGS {
            return Some(marker == 0 || self.tag == PLAIN_TAG);
        }
        if !self.is_call(marker) {
            return Some(true);
        }
        let start = marker - END_TAGS;
        let is_call = self.calls.begins(text, start, last);
        if is_call == Some(false) || self.ends.len(0) == 0 {
            return is_call;
        }
        let looked = Starts::lookahead(text);
        let Some(before) = self
            .ends
            .first_of(looked, 0)
            .and_then(|end| looked.get(..end))
        else {
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
        if let MarkerMatch::At { .. } = found {
            self.state = ThinkState::Inside { blank: true };
            emit(Piece::Recognised(Rule::Think));
            return Some(before + self.start().len());
        }
        Some(before).filter(|read| *read > 0)
    }

    /// Emits text of a block and returns the bytes read. `closes`: the block ends after this text.
    fn reason(&mut self, text: &str, closes: bool, emit: Emit<'_>) -> usize {
        let blank = matches!(
            self.state,
            ThinkState::Inside { blank: true } | ThinkState::Opened | ThinkState::Before
        );
        let begun = if self.trim && blank {
            text.trim_start()
        } else {
            text
        };
        let said = if self.trim { begun.trim_end() } else { begun };
        self.note_tags(said, emit);
        if !said.is_empty() {
            self.state = ThinkState::Inside { blank: false };
            self.code.read(said);
            emit(Piece::Reasoning(said));
        }
        // Trailing white space stays buffered while it may turn out to be before the end tag.
        if closes {
            text.len()
        } else {
            text.len() - begun.len() + said.len()
        }
    }

    /// Emits text outside of blocks; with the option `trim`, without the white space after a block.
    fn answer(&mut self, text: &str, emit: Emit<'_>) {
        self.note_tags(text, emit);
        let begins = matches!(self.state, ThinkState::After { blank: true }) && self.trim;
        let text = if begins { text.trim_start() } else { text };
        if !text.is_empty() {
            self.state = ThinkState::After { blank: false };
            emit(Piece::Content(text));
        }
    }
}
