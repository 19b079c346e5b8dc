//! Tool calls in text, in the formats that models are trained on (engines F.2).
//!
//! ```text
//! outside ──start of a call──→ grammar ──not one──→ outside, and the text stays as it is
//!    ↑                            │
//!    └────────its end─────────────┘
//! ```
//!
//! Takes: text, cut anywhere. Gives: [`Piece::Content`], [`Piece::Call`] and [`Piece::Arguments`]. Remembers: text
//! that may still become a call, and the position inside the current call. Never: loses text. A grammar emits nothing
//! until it is certain of a call; until then its text can still become content, and does so if the text ends. A call
//! whose arguments the model writes as JSON is held until they end ([`section`]).

pub(super) mod code;
pub(super) mod format;
mod json;
mod literal;
mod named;
mod notation;
mod section;
mod start;
mod tagged;
mod tagged_form;
mod trailing;
mod value;
mod value_end;

use super::family::Tags;
use super::held::Held;
use super::marker::{MarkerMatch, Markers, match_start};
use super::{Emit, Piece};
use crate::wire::rule::Rule;
use crate::wire::tools::Tools;
use code::Code;
use format::Format;
use section::Section;
use start::{Candidate, ends};
use std::sync::Arc;

pub(super) use start::Starts;
pub(super) use trailing::TrailingCalls;

/// Limit on undecided text in bytes. A longer candidate is no call; a call with more unread text ends there.
const MAX_BUFFERED: usize = 512 << 10;
/// Fraction (1/64) by which a candidate must grow before it is parsed again, which bounds the total work.
const GROWTH_FRACTION: usize = 64;

/// Result of giving text to a grammar; the numbers are bytes of that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Bytes read; the grammar needs more text to continue.
    More(usize),
    /// Bytes read; the section of calls ends there.
    Done(usize),
    /// Text that is no call. The grammar has emitted nothing.
    No,
}

/// Form in which a model writes the arguments of the current call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// Another form than JSON: the grammar makes the JSON.
    Other,
    /// JSON that has not ended.
    OpenJson,
    /// JSON that has ended.
    EndedJson,
}

/// Parser for one way to write calls, used for one section: from its start marker to its end.
trait Grammar: std::fmt::Debug + Send {
    /// Parses a prefix of the text. Returns the bytes read, or the step with which the parsing stops.
    fn step(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, Step>;

    /// Returns true if white space alone decides nothing at this place, however much of it there is.
    fn ignores_blank(&self) -> bool;

    /// Returns how the arguments of the last call are written.
    fn notation(&self) -> Notation;

    /// Returns the number of bytes of the start marker, which are skipped; 0 from the second call on.
    fn take_marker_length(&mut self) -> usize {
        0
    }

    /// Parses the text, which continues where the last call of `read` stopped. `last`: no more text follows.
    fn read(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Step {
        let mut at = self.take_marker_length();
        loop {
            match self.step(text.get(at..).unwrap_or(""), last, tools, &mut *emit) {
                Ok(read) => at += read,
                Err(Step::More(read)) => return Step::More(at + read),
                Err(Step::Done(read)) => return Step::Done(at + read),
                Err(Step::No) => return Step::No,
            }
        }
    }
}

/// Parser for the tool calls of one choice.
#[derive(Debug)]
pub(super) struct Calls {
    starts: Arc<Starts>,
    /// Start markers of calls, by their index in `starts`, followed by `stray_ends`.
    markers: Markers,
    stray_ends: StrayEnds,
    /// Tags of a block of reasoning that may follow a call; empty once the engine has sent reasoning or calls itself.
    block_starts: Markers,
    block_ends: Markers,
    state: CallsState,
    held: Held,
    /// White space between a call and a candidate; becomes content only if the candidate is no call.
    blank: String,
    /// Length in bytes of the candidate when it was last parsed without a decision.
    parsed_length: usize,
    /// Number of calls that are text because of their arguments.
    rejected: usize,
    /// True if the engine's own reasoning precedes the text. White space between them passes at once.
    follows_reasoning: bool,
    /// Code in the content so far; `None` if it does not matter.
    code: Option<Code>,
    /// True if only calls in code are read.
    in_code: bool,
}

/// Ends that are removed where they end nothing: all of them after a call, those of turns and of reasoning before the
/// first word, those of turns also at the end of the text.
#[derive(Clone, Debug, Default)]
pub(super) struct StrayEnds {
    /// Ends of turns, then those of reasoning and of calls.
    ends: Vec<&'static str>,
    /// Number of ends of turns.
    turns: usize,
    /// Number of ends that are removed before the first word.
    before_text: usize,
}

/// Ends of reasoning that models write before their answer, whatever those of their family are.
const OTHER_CLOSES: [&str; 2] = ["</think>", "</thinking>"];

/// Limit in bytes on the ends of turns, and the white space around them, that are held until the text ends.
const MOST_HELD: usize = 1 << 10;

impl StrayEnds {
    /// Collects the ends of turns, of reasoning, and of calls in these formats. Words cannot be stray ends.
    pub(super) fn of(
        turns: &[&'static str],
        close: &'static str,
        formats: &[&'static Format],
    ) -> Self {
        let calls = ends(formats);
        let close = Some(close)
            .filter(|close| !close.is_empty() && !close.starts_with(char::is_alphanumeric));
        let others = close.map_or(&[][..], |_| &OTHER_CLOSES);
        let closes = close.into_iter().chain(others.iter().copied());
        let closes = closes.filter(|close| !turns.contains(close));
        let before_text: Vec<_> = turns.iter().copied().chain(closes).collect();
        Self {
            turns: turns.len(),
            before_text: before_text.len(),
            ends: [before_text, calls].concat(),
        }
    }

    /// Returns a text without the ends of turns at its end.
    fn without_turns<'t>(&self, text: &'t str) -> &'t str {
        let turns = self.ends.get(..self.turns).unwrap_or(&[]);
        let mut kept = text;
        while let Some(rest) = turns
            .iter()
            .find_map(|turn| kept.trim_end().strip_suffix(turn))
        {
            kept = rest;
        }
        kept
    }

    /// Returns the ends that are removed before the first word.
    fn before_text(&self) -> &[&'static str] {
        self.ends.get(..self.before_text).unwrap_or(&self.ends)
    }
}

/// Limit on the calls of a text that are rejected for their arguments, after which no more are looked for: each may read
/// the rest of the text for its end.
const MOST_REJECTED: usize = 64;

#[derive(Debug)]
enum CallsState {
    /// White space only so far.
    Beginning,
    Text,
    /// After a call. White space is dropped, unless text follows.
    Behind,
    /// Candidate for a call. Its whole text stays buffered and is parsed again from its start until a grammar
    /// decides.
    Candidate(Candidate),
    Call(Section),
    /// After a call in code, which is quoted unless nothing follows.
    Quoted(Box<TrailingCalls>),
    /// At a call outside of the code that is read.
    Stopped,
    /// Block of reasoning after a call.
    Block,
}

impl Calls {
    /// Creates the parser; `None` if there is nothing to look for. `blocks`: tags of reasoning that may follow a call.
    pub(super) fn of(starts: &Arc<Starts>, stray_ends: StrayEnds, blocks: Tags) -> Option<Self> {
        let is_needed = starts.len() > 0 || !stray_ends.ends.is_empty();
        is_needed.then(|| Self {
            markers: Markers::new(starts.markers().chain(stray_ends.ends.iter().copied())),
            stray_ends,
            block_starts: Markers::new(starts_of(blocks)),
            block_ends: Markers::new([blocks.end]),
            state: CallsState::Beginning,
            code: Some(Code::default()),
            ..Self::within(starts)
        })
    }

    /// Creates the parser for the middle of a text that is no answer by itself, in which code does not matter.
    pub(super) fn within(starts: &Arc<Starts>) -> Self {
        Self {
            starts: Arc::clone(starts),
            markers: Markers::new(starts.markers()),
            stray_ends: StrayEnds::default(),
            block_starts: Markers::default(),
            block_ends: Markers::default(),
            state: CallsState::Text,
            held: Held::default(),
            blank: String::new(),
            parsed_length: 0,
            rejected: 0,
            follows_reasoning: false,
            code: None,
            in_code: false,
        }
    }

    /// Creates the parser for a message that is for a tool.
    pub(super) fn in_message(starts: &Arc<Starts>) -> Self {
        Self {
            state: CallsState::Beginning,
            ..Self::within(starts)
        }
    }

    /// Returns true in the middle of a call.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.state, CallsState::Call(_) | CallsState::Candidate(_))
    }

    /// Creates the parser for calls in code, which stops at a call outside of it. It knows the same ends.
    fn in_code(&self, code: Code) -> Self {
        Self {
            markers: self.markers.clone(),
            stray_ends: self.stray_ends.clone(),
            code: Some(code),
            in_code: true,
            ..Self::within(&self.starts)
        }
    }

    /// Goes on in the middle of an answer, where no call begins without a marker.
    pub(super) fn follow_content(&mut self) {
        self.state = CallsState::Text;
    }

    /// Goes on as after the engine's own reasoning.
    pub(super) fn follow_reasoning(&mut self) {
        self.follows_reasoning = true;
        self.block_starts = Markers::default();
    }

    /// Ends the text before a call that the engine reports, and goes on as after a call. A start marker with nothing after it is
    /// dropped: the engine has read the rest of that call. Words that begin calls stay.
    pub(super) fn leave_to_call(&mut self, emit: Emit<'_>) {
        self.end_quotation(emit);
        let held = self.held.take();
        let is_marker = matches!(self.state, CallsState::Candidate(_))
            && !held.starts_with(char::is_alphanumeric)
            && self.starts.markers().any(|mark| mark == held.trim_end());
        if is_marker {
            self.blank.clear();
        } else {
            self.held.keep(held, self.ignores_blank());
        }
        self.end(true, emit);
        self.state = CallsState::Behind;
        self.block_starts = Markers::default();
    }

    /// Returns true at a call outside of the code.
    fn is_stopped(&self) -> bool {
        matches!(self.state, CallsState::Stopped)
    }

    /// Returns the number of bytes at the end of the text that are not decided.
    pub(super) fn held_length(&self) -> usize {
        self.held.len() + self.blank.len()
    }

    /// Returns true if this text passes unchanged: nothing is buffered, and no marker begins in it.
    pub(super) fn passes(&self, text: &str) -> bool {
        matches!(self.state, CallsState::Text) && self.has_none(text)
    }

    /// Returns the same as [`Calls::passes`], also for a text at the beginning of an answer.
    pub(super) fn passes_whole(&self, text: &str) -> bool {
        let begins = matches!(self.state, CallsState::Beginning)
            && !text.trim_start().is_empty()
            && self.starts.find_bare(text, 0).is_none();
        (begins || matches!(self.state, CallsState::Text)) && self.has_none(text)
    }

    fn has_none(&self, text: &str) -> bool {
        self.held.is_empty()
            && self.code.is_none_or(|code| code.passes(text))
            && self.markers.find(text) == MarkerMatch::Nowhere
    }

    /// Parses the next text and emits what is certain; candidates for a call stay buffered.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        if self.passes_whole(text) {
            self.state = CallsState::Text;
            return self.say(text, emit);
        }
        // A call with too much unread text ends, so that white space decides something there.
        let may_wait = !matches!(self.state, CallsState::Call(_))
            || self.held.len() + text.len() <= MAX_BUFFERED;
        if may_wait && self.held.add_blank(text) {
            return;
        }
        let mut held = self.held.take();
        held.push_str(text);
        let read = self.take(&held, false, emit);
        held.drain(..read);
        self.held.keep(held, self.ignores_blank());
    }

    /// Emits content, and notes the code in it.
    fn say(&mut self, text: &str, emit: Emit<'_>) {
        if let Some(code) = &mut self.code {
            code.read(text);
        }
        emit_content(text, emit);
    }

    fn say_blank(&mut self, emit: Emit<'_>) {
        let blank = std::mem::take(&mut self.blank);
        self.say(&blank, emit);
    }

    fn ignores_blank(&self) -> bool {
        match &self.state {
            CallsState::Beginning | CallsState::Behind => true,
            CallsState::Text
            | CallsState::Candidate(_)
            | CallsState::Quoted(_)
            | CallsState::Stopped
            | CallsState::Block => false,
            CallsState::Call(section) => section.ignores_blank(),
        }
    }

    /// Ends the text: emits the buffered rest and starts over, so that the next text is parsed like the first one. `complete`:
    /// nothing follows, and the model has finished by itself.
    pub(super) fn end(&mut self, complete: bool, emit: Emit<'_>) {
        if !complete {
            self.end_quotation(emit);
        }
        let held = self.held.take();
        let read = self.take(&held, true, emit);
        let rest = held.get(read..).unwrap_or("");
        if self.is_stopped() {
            return self.held.keep(rest.to_owned(), false);
        }
        self.say(rest, emit);
        self.state = CallsState::Beginning;
        self.code = self.code.map(|_| Code::default());
    }

    fn take(&mut self, text: &str, last: bool, emit: Emit<'_>) -> usize {
        let mut at = 0;
        while let Some(read) = self.step(text.get(at..).unwrap_or(""), last, emit) {
            at += read;
            if last && at == text.len() {
                break;
            }
        }
        at
    }

    /// Parses a prefix of the text and returns its length in bytes; `None` if more text is needed.
    fn step(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        match &mut self.state {
            CallsState::Beginning => self.begin(text, last, emit),
            CallsState::Text => self.outside(text, last, emit),
            CallsState::Behind => self.behind(text, last, emit),
            CallsState::Block => self.block(text, last, emit),
            CallsState::Quoted(_) => self.quoted(text, last, emit),
            CallsState::Stopped => None,
            CallsState::Candidate(tried) => {
                let tried = *tried;
                self.try_candidate(text, tried, last, emit)
            }
            CallsState::Call(section) if section.has_read(text) && !last => None,
            CallsState::Call(_) => {
                let CallsState::Call(mut section) =
                    std::mem::replace(&mut self.state, CallsState::Behind)
                else {
                    return None;
                };
                let step = section.read(text, last, &self.starts.tools, emit);
                self.after(section, step, text, last, emit)
            }
        }
    }

    fn try_candidate(
        &mut self,
        text: &str,
        tried: Candidate,
        last: bool,
        emit: Emit<'_>,
    ) -> Option<usize> {
        // The candidate is parsed from its start each time, so a long one only after it has grown by a fraction.
        if !last && text.len() < self.parsed_length + self.parsed_length / GROWTH_FRACTION {
            return None;
        }
        self.parsed_length = 0;
        let Some(grammar) = self.starts.grammar(tried) else {
            return self.reject_candidate(text, tried, emit);
        };
        let mut section = Section::new(grammar, tried);
        let step = section.read(text, last, &self.starts.tools, emit);
        match step {
            _ if section.has_begun() => self.after(section, step, text, last, emit),
            Step::More(_) if !last && text.len() <= MAX_BUFFERED => {
                self.parsed_length = text.len();
                None
            }
            _ => self.reject_candidate(text, tried.next_form(), emit),
        }
    }

    /// Continues after a section has read a text: waits for more of it, or ends it. Returns the bytes that are decided.
    fn after(
        &mut self,
        mut section: Section,
        step: Step,
        text: &str,
        last: bool,
        emit: Emit<'_>,
    ) -> Option<usize> {
        let waits = matches!(step, Step::More(read) if !last && text.len() - read <= MAX_BUFFERED);
        if !waits && step != Step::No {
            section.release(emit);
        }
        if let (Step::No, Some(end)) = (step, section.rejected()) {
            // All of it: a call inside it would be an argument.
            if section.has_called() {
                self.blank.clear();
            }
            let start = section.take_read();
            self.rejected += 1;
            self.state = CallsState::Text;
            self.say_blank(emit);
            self.say(text.get(start..end)?, emit);
            return Some(end);
        }
        if section.has_called() {
            self.blank.clear();
        } else if step == Step::No {
            return self.reject_candidate(text, section.candidate().next_form(), emit);
        }
        let read = section.take_read();
        if waits {
            self.state = CallsState::Call(section);
            return (read > 0).then_some(read);
        }
        self.state = CallsState::Behind;
        Some(read)
    }

    /// Rejects a candidate: the next form that fits its start gets the text, else the marker is emitted as content.
    fn reject_candidate(&mut self, text: &str, next: Candidate, emit: Emit<'_>) -> Option<usize> {
        if self.starts.grammar(next).is_some() {
            self.state = CallsState::Candidate(next);
            return Some(0);
        }
        // Text without a marker may also belong to the next format that needs none.
        let marker = self.starts.marker(next.start_index)?;
        if let Some(start_index) = self
            .starts
            .find_bare(text, next.start_index + 1)
            .filter(|_| marker.is_empty())
        {
            self.state = CallsState::Candidate(Candidate {
                start_index,
                form_index: 0,
            });
            return Some(0);
        }
        self.state = CallsState::Text;
        // Another call may begin directly after the marker, so only the marker is emitted.
        let length = if marker.is_empty() {
            text.chars().next()?.len_utf8()
        } else {
            marker.len()
        };
        self.say_blank(emit);
        self.say(text.get(..length)?, emit);
        Some(length)
    }

    /// Checks the first word of the text, because some formats have no start marker.
    fn begin(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        if self.follows_reasoning && blank > 0 {
            self.say(text.get(..blank)?, emit);
            return Some(blank);
        }
        if begun.is_empty() && !last {
            return None;
        }
        let ends = self.stray_ends.before_text();
        match match_start(begun, ends) {
            MarkerMatch::At { marker, .. } => {
                let length = ends.get(marker).map_or(0, |end| end.len());
                return Some(blank + length);
            }
            MarkerMatch::Partial(_) if !last => return None,
            _ => {}
        }
        if let Some(start_index) = self.starts.find_bare(text, 0) {
            self.state = CallsState::Candidate(Candidate {
                start_index,
                form_index: 0,
            });
            return Some(0);
        }
        let blank = self.held.take_blank(text);
        self.state = CallsState::Text;
        self.say(text.get(..blank)?, emit);
        Some(blank)
    }

    /// Begins a block of reasoning after a call, if its tag is all that follows.
    fn behind(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let begun = text.trim_start();
        match self.block_starts.match_at_start(begun) {
            MarkerMatch::At { marker, .. } => {
                self.state = CallsState::Block;
                emit(Piece::Recognised(Rule::Think));
                Some(text.len() - begun.len() + self.block_starts.len(marker))
            }
            MarkerMatch::Partial(_) if !last && !begun.is_empty() => None,
            _ => self.outside(text, last, emit),
        }
    }

    fn outside(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        let found = self.markers.find(text);
        let before = if last && !matches!(found, MarkerMatch::At { .. }) {
            text.len()
        } else {
            found.before(text)
        };
        let said = text.get(..before)?;
        let blank = matches!(self.state, CallsState::Behind) && said.trim().is_empty();
        if let MarkerMatch::At { marker, .. } = found {
            if marker < self.starts.len() && self.rejected >= MOST_REJECTED {
                self.state = CallsState::Text;
                let after = before + self.markers.len(marker);
                self.say(text.get(..after)?, emit);
                return Some(after);
            }
            if marker < self.starts.len() {
                match blank {
                    true => said.clone_into(&mut self.blank),
                    false => self.say(said, emit),
                }
                let candidate = Candidate {
                    start_index: marker,
                    form_index: 0,
                };
                self.state = match self.code.and_then(Code::at_call) {
                    Some(code) if !self.in_code => {
                        CallsState::Quoted(Box::new(TrailingCalls::new(self.in_code(code))))
                    }
                    None if self.in_code => CallsState::Stopped,
                    _ => CallsState::Candidate(candidate),
                };
                return Some(before);
            }
            let after = before + self.markers.len(marker);
            if blank {
                return Some(after);
            }
            if marker < self.starts.len() + self.stray_ends.turns {
                return self.end_of_turn(text, before, last, emit);
            }
            self.state = CallsState::Text;
            self.say(text.get(..after)?, emit);
            return Some(after);
        }
        if blank {
            // White space is emitted together with the text that follows, if any does.
            return last.then_some(before).filter(|before| *before > 0);
        }
        self.state = CallsState::Text;
        self.say(said, emit);
        (before > 0).then_some(before)
    }

    /// Ends the text after a call in code, if there is one: it is quoted.
    fn end_quotation(&mut self, emit: Emit<'_>) {
        if matches!(self.state, CallsState::Quoted(_)) {
            self.state = CallsState::Text;
            let held = self.held.take();
            self.say(self.stray_ends.without_turns(&held), emit);
        }
    }

    /// Reads on from a call in code on, which is text if anything but the end of the code follows.
    fn quoted(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let CallsState::Quoted(mut calls) = std::mem::replace(&mut self.state, CallsState::Text)
        else {
            return None;
        };
        let decided = match calls.decide(text) {
            0 if text.len() > MAX_BUFFERED => text.len(),
            decided => decided,
        };
        if decided > 0 {
            // Backticks in arguments are no code.
            self.code = calls.code();
            emit_content(text.get(..decided)?, emit);
            return Some(decided);
        }
        if last {
            let code = &mut self.code;
            let read = calls.end(text, &mut |piece| {
                if let (Piece::Content(text), Some(code)) = (piece, code.as_mut()) {
                    code.read(text);
                }
                emit(piece);
            });
            return Some(read);
        }
        self.state = CallsState::Quoted(calls);
        None
    }

    /// Reads on in a block of reasoning.
    fn block(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        let found = self.block_ends.find(text);
        let (before, read) = match found {
            MarkerMatch::At { at, marker } => (at, at + self.block_ends.len(marker)),
            _ if last => (text.len(), text.len()),
            found => (found.before(text), found.before(text)),
        };
        if before > 0 {
            emit(Piece::Reasoning(text.get(..before)?));
        }
        if matches!(found, MarkerMatch::At { .. }) {
            self.state = CallsState::Behind;
        }
        (read > 0).then_some(read)
    }

    /// Handles the end of a turn, at byte `before`, after other text: it is removed if only ends of turns follow it, and
    /// is content before anything else.
    fn end_of_turn(
        &mut self,
        text: &str,
        before: usize,
        last: bool,
        emit: Emit<'_>,
    ) -> Option<usize> {
        let turns = self.stray_ends.ends.get(..self.stray_ends.turns)?;
        let (said, held) = text.split_at_checked(before)?;
        let mut rest = held;
        // The limit counts from the end of the text, so that it does not depend on how much has arrived.
        let is_over = loop {
            match match_start(rest, turns) {
                _ if held.len() - rest.len() > MOST_HELD => break false,
                _ if rest.is_empty() => break true,
                MarkerMatch::At { marker, .. } => {
                    rest = rest.get(turns.get(marker)?.len()..)?.trim_start();
                }
                MarkerMatch::Partial(_) if !last => break true,
                _ => break false,
            }
        };
        if is_over && last {
            self.say(said, emit);
            return Some(text.len());
        }
        if is_over {
            if !said.is_empty() {
                self.state = CallsState::Text;
            }
            self.say(said, emit);
            return (before > 0).then_some(before);
        }
        self.state = CallsState::Text;
        let MarkerMatch::At { marker, .. } = match_start(held, turns) else {
            return None;
        };
        let read = before + turns.get(marker)?.len();
        self.say(text.get(..read)?, emit);
        Some(read)
    }
}

/// Returns the first `most` bytes of a text, rounded down to a whole character, or a shorter text unchanged.
fn prefix(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// Returns the length in bytes of the function name that a text begins with; `None` if the name may continue. Names
/// of the request's tools may contain any character.
fn name_length(text: &str, tools: &Tools) -> Option<usize> {
    let end = text.find(ends_name)?;
    if tools
        .names()
        .any(|name| name.len() > text.len() && name.starts_with(text))
    {
        return None;
    }
    let known = tools
        .names()
        .filter(|name| name.len() > end && text.starts_with(name))
        .map(str::len)
        .max();
    let Some(known) = known else { return Some(end) };
    text.get(known..)?
        .find(ends_name)
        .map(|after| known + after)
}

/// Returns the start tags of blocks. Words may be text.
fn starts_of(tags: Tags) -> Vec<&'static str> {
    let all = [&[tags.start], tags.others].concat();
    let is_mark = |tag: &&str| !tag.starts_with(char::is_alphanumeric);
    all.into_iter().filter(is_mark).collect()
}

fn emit_content(text: &str, emit: Emit<'_>) {
    if !text.is_empty() {
        emit(Piece::Content(text));
    }
}

/// Returns true if a character cannot be part of an ordinary function name; such characters tell prose from a call.
fn ends_name(sign: char) -> bool {
    sign.is_whitespace() || "<>{}[]()\"',（），。、；：！？「」".contains(sign)
}
