//! Tool calls in text, in the formats that models are trained on (engine-quirks F.2).
//!
//! ```text
//! outside ──start of a call──→ grammar ──not one──→ outside, and the text stays as it is
//!    ↑                            │
//!    └────────its end─────────────┘
//! ```
//!
//! Takes: text, cut anywhere. Gives: [`Piece::Content`], [`Piece::Call`] and [`Piece::Arguments`]. Remembers: text of which
//! it is not known whether it is a call, and how far one is. Never: loses text, repairs arguments. A grammar says nothing
//! before it is sure; until then its text can still become content, and at the end of the text it does.

mod json;
mod literal;
mod named;
mod notation;
mod start;
mod tagged;
mod value;

use super::marker::{Found, Markers};
use super::{Emit, Piece};
use crate::wire::rule::Rule;
use crate::wire::tools::Tools;
use start::Try;
use std::sync::Arc;

pub(super) use json::Form as JsonForm;
pub(super) use literal::{Form as LiteralForm, Quotes};
pub(super) use named::Form as NamedForm;
pub(super) use start::Starts;
pub(super) use tagged::{Form as TaggedForm, Keys};

/// Bytes that wait for what they are.
const HELD: usize = 512 << 10;
/// By which part of what is held it grows before it is looked at again.
const GROWTH: usize = 64;

/// What a grammar has made of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// So much of it is read; what follows is needed.
    More(usize),
    /// So much of it is read, and the calls end there.
    Done(usize),
    /// These are no calls. Nothing was said.
    No,
}

/// One way to write calls, from the start of a section to its end.
trait Grammar: std::fmt::Debug + Send {
    /// Reads on: the text goes on from what was read before. `last`: nothing follows.
    fn read(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Step;
}

/// Reads a text from a place on, step by step, each of which gives how much it has read, or how the text ends there.
fn steps(text: &str, from: usize, mut step: impl FnMut(&str) -> Result<usize, Step>) -> Step {
    let mut at = from;
    loop {
        match step(text.get(at..).unwrap_or("")) {
            Ok(read) => at += read,
            Err(Step::More(read)) => return Step::More(at + read),
            Err(Step::Done(read)) => return Step::Done(at + read),
            Err(Step::No) => return Step::No,
        }
    }
}

/// The reader of one choice's calls.
#[derive(Debug)]
pub(super) struct Calls {
    starts: Arc<Starts>,
    /// The marks of all of them, by their places, then what ends a turn.
    marks: Markers,
    state: State,
    held: String,
    /// White space between a call and what may be one.
    blank: String,
    /// How much of what may be a call has been read in vain.
    tried: usize,
}

#[derive(Debug)]
enum State {
    /// Nothing but white space so far.
    Beginning,
    Text,
    /// Behind a call: white space is nothing until text follows.
    Behind,
    /// In what may be a call. Until it is one, all of it is kept, and read from its start again.
    Perhaps(Try),
    Call(Box<dyn Grammar>),
}

impl Calls {
    /// A reader of calls that begin so; nothing, if none does and nothing ends a turn. `turns`: what does.
    pub(super) fn of(starts: &Arc<Starts>, turns: &'static [&'static str]) -> Option<Self> {
        let wanted = starts.len() > 0 || !turns.is_empty();
        let marks = Markers::new(starts.marks().chain(turns.iter().copied()));
        wanted.then(|| Self {
            starts: Arc::clone(starts),
            marks,
            state: State::Beginning,
            held: String::new(),
            blank: String::new(),
            tried: 0,
        })
    }

    /// Whether there is nothing in this text that a call may begin with.
    pub(super) fn passes(&self, text: &str) -> bool {
        let plain = self.held.is_empty() && matches!(self.state, State::Text);
        plain && self.marks.find(text) == Found::Nowhere
    }

    /// Reads on.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        if self.passes(text) {
            return emit(Piece::Content(text));
        }
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let read = self.take(&held, false, emit);
        held.drain(..read);
        self.held = held;
    }

    /// There is no more text.
    pub(super) fn end(&mut self, emit: Emit<'_>) {
        let held = std::mem::take(&mut self.held);
        let read = self.take(&held, true, emit);
        let rest = held.get(read..).unwrap_or("");
        if !rest.is_empty() {
            emit(Piece::Content(rest));
        }
        self.state = State::Beginning;
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

    /// Reads some of the text; nothing: more of it is needed.
    fn step(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        match &mut self.state {
            State::Beginning => self.begin(text, last),
            State::Text | State::Behind => self.outside(text, last, emit),
            State::Perhaps(tried) => {
                let tried = *tried;
                self.perhaps(text, tried, last, emit)
            }
            State::Call(grammar) => {
                if text.is_empty() && !last {
                    return None;
                }
                let step = grammar.read(text, last, &self.starts.tools, emit);
                self.after(step, text, last)
            }
        }
    }

    fn perhaps(&mut self, text: &str, tried: Try, last: bool, emit: Emit<'_>) -> Option<usize> {
        // As it is read from its start again, a long text is only where it has grown by a part of it.
        if !last && text.len() < self.tried + self.tried / GROWTH {
            return None;
        }
        self.tried = 0;
        let Some(mut grammar) = self.starts.grammar(tried) else { return self.no_call(text, tried, emit) };
        let mut called = false;
        let step = grammar.read(text, last, &self.starts.tools, &mut |piece| {
            if !std::mem::replace(&mut called, true) {
                emit(Piece::Opened(Rule::ToolText));
            }
            emit(piece);
        });
        match step {
            _ if called => {
                self.blank.clear();
                self.state = State::Call(grammar);
                self.after(step, text, last)
            }
            Step::More(_) if !last && text.len() <= HELD => {
                self.tried = text.len();
                None
            }
            _ => self.no_call(text, Try { form: tried.form + 1, ..tried }, emit),
        }
    }

    fn after(&mut self, step: Step, text: &str, last: bool) -> Option<usize> {
        match step {
            Step::More(read) if !last && text.len() - read <= HELD => (read > 0).then_some(read),
            Step::More(read) | Step::Done(read) => {
                self.state = State::Behind;
                Some(read)
            }
            Step::No => {
                self.state = State::Behind;
                Some(0)
            }
        }
    }

    /// What was taken for a call is none: another form may take it, or nobody.
    fn no_call(&mut self, text: &str, next: Try, emit: Emit<'_>) -> Option<usize> {
        if self.starts.grammar(next).is_some() {
            self.state = State::Perhaps(next);
            return Some(0);
        }
        // What has no mark may be of another format.
        let mark = self.starts.mark(next.start)?;
        if let Some(start) = self.starts.bare(text, next.start + 1).filter(|_| mark.is_empty()) {
            self.state = State::Perhaps(Try { start, form: 0 });
            return Some(0);
        }
        self.state = State::Text;
        // Behind its beginning another one may begin.
        let length = if mark.is_empty() { text.chars().next()?.len_utf8() } else { mark.len() };
        say(&std::mem::take(&mut self.blank), emit);
        say(text.get(..length)?, emit);
        Some(length)
    }

    /// At the first word: some formats have no mark of their own.
    fn begin(&mut self, text: &str, last: bool) -> Option<usize> {
        if text.trim_start().is_empty() && !last {
            return None;
        }
        self.state =
            self.starts.bare(text, 0).map_or(State::Text, |start| State::Perhaps(Try { start, form: 0 }));
        Some(0)
    }

    fn outside(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        let found = self.marks.find(text);
        let before = if last && !matches!(found, Found::At { .. }) { text.len() } else { found.before(text) };
        let said = text.get(..before)?;
        let blank = matches!(self.state, State::Behind) && said.trim().is_empty();
        if let Found::At { marker, .. } = found {
            if marker < self.starts.len() {
                match blank {
                    true => said.clone_into(&mut self.blank),
                    false => say(said, emit),
                }
                self.state = State::Perhaps(Try { start: marker, form: 0 });
                return Some(before);
            }
            return self.end_of_turn(text, (before, marker), last, emit);
        }
        if blank {
            // It goes with what follows, if that is text.
            return last.then_some(before).filter(|before| *before > 0);
        }
        self.state = State::Text;
        say(said, emit);
        (before > 0).then_some(before)
    }

    /// What ends a turn is nothing at the end, and text before anything else.
    fn end_of_turn(
        &mut self,
        text: &str,
        (before, marker): (usize, usize),
        last: bool,
        emit: Emit<'_>,
    ) -> Option<usize> {
        let behind = before + self.marks.len(marker);
        let over = text.get(behind..)?.trim().is_empty();
        if over && last {
            say(text.get(..before)?, emit);
            return Some(text.len());
        }
        if over {
            say(text.get(..before)?, emit);
            return (before > 0).then_some(before);
        }
        self.state = State::Text;
        say(text.get(..behind)?, emit);
        Some(behind)
    }
}

/// So many bytes of a text, or one that is shorter.
fn near(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// Whether a function may be called so.
fn is_name(name: &str, tools: &Tools) -> bool {
    !name.is_empty() && (!name.contains(ends_name) || tools.know(name))
}

/// How long the name is that a text begins with; `None`: it may go on. A tool of the request has the name that it has.
fn name_length(text: &str, tools: &Tools) -> Option<usize> {
    let end = text.find(ends_name)?;
    if tools.names().any(|name| name.len() > text.len() && name.starts_with(text)) {
        return None;
    }
    let known = tools.names().filter(|name| name.len() > end && text.starts_with(name)).map(str::len).max();
    let Some(known) = known else { return Some(end) };
    text.get(known..)?.find(ends_name).map(|behind| known + behind)
}

/// Whether a sign is none of a function's name: prose goes on behind it.
fn ends_name(sign: char) -> bool {
    sign.is_whitespace() || "<>{}[]()\"',（），。、；：！？「」".contains(sign)
}

fn say(text: &str, emit: Emit<'_>) {
    if !text.is_empty() {
        emit(Piece::Content(text));
    }
}
