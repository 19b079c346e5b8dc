//! Calls as JSON objects with a name and arguments, one or several, in a list or not (Hermes, Llama 3, old Mistral,
//! Granite, InternLM, Jamba, Phi-4 and others).
//!
//! ```text
//! start ─→ [ ─→ { name, arguments } ─→ , or ; ─→ … ─→ ] ─→ end tag
//! ```

use super::super::marker::{Found, Markers};
use super::super::{Emit, Piece};
use super::value::{Arguments, Part, Value, whole};
use super::{Grammar, Step, Tools, near, steps};
use crate::json::{self, Text};
use std::borrow::Cow;

/// Bytes of an object before its arguments, and where they stand before the name.
const HEAD: usize = 4 << 10;
const WHOLE: usize = 256 << 10;

/// What differs between formats.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Form {
    /// The key of the name.
    pub(in super::super) name: &'static str,
    /// What stands behind the last object; empty: nothing.
    pub(in super::super) end: &'static str,
    /// The objects may stand in a list.
    pub(in super::super) list: bool,
    /// What may stand between objects that are not in a list.
    pub(in super::super) separators: &'static str,
    /// Its start is no sure sign either: only tools of the request count, as where there is no start.
    pub(in super::super) known: bool,
}

/// The reader of one section.
#[derive(Debug)]
pub(super) struct JsonGrammar {
    form: &'static Form,
    start: usize,
    /// Nothing but its shape says that it is a call.
    bare: bool,
    state: State,
    listed: bool,
    /// There was a call.
    called: bool,
    stops: Markers,
}

#[derive(Debug)]
enum State {
    Opening,
    Object,
    Arguments(Arguments),
    /// What stands behind the arguments in their object.
    Rest(Value),
    Between,
    Closing,
}

impl JsonGrammar {
    /// A reader of a section that begins with so many bytes of a start.
    pub(super) fn new(form: &'static Form, start: usize) -> Self {
        let stops = Markers::new([form.end]);
        Self { form, start, bare: start == 0, state: State::Opening, listed: false, called: false, stops }
    }

    /// It cannot go on.
    fn stop(&self, at: usize) -> Step {
        if self.called { Step::Done(at) } else { Step::No }
    }

    /// An object up to its arguments; gives how much of it is read.
    fn object(&mut self, text: &str, tools: &Tools, emit: Emit<'_>) -> Result<usize, NoHead> {
        let Head { name, arguments, read } = head(text, self.form.name)?;
        if (self.form.known || self.bare) && !tools.know(&name) {
            return Err(NoHead::Wrong);
        }
        self.called = true;
        emit(Piece::Call { name: &name, id: None });
        self.state = match arguments {
            Spelled::Follow => State::Arguments(Arguments::default()),
            Spelled::Before(text) => {
                Arguments::default().read(text, &self.stops, emit);
                State::Rest(Value::opened())
            }
            Spelled::Missing => {
                emit(Piece::Arguments("{}"));
                State::Between
            }
        };
        Ok(read)
    }
}

/// An object up to where its arguments begin, or to its end.
struct Head<'t> {
    name: Cow<'t, str>,
    arguments: Spelled<'t>,
    read: usize,
}

enum Spelled<'t> {
    /// They begin where the head ends.
    Follow,
    /// They stood before the name; the object goes on.
    Before(&'t str),
    /// There are none, and the object is over.
    Missing,
}

/// Why there is no head.
enum NoHead {
    /// It may come; so many bytes may be waited for.
    More(usize),
    Wrong,
}

/// Text that is read from its beginning.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
    /// Up to where it is looked at.
    upto: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t str {
        near(self.text, self.upto).get(self.at..).unwrap_or("")
    }

    fn more(&self) -> NoHead {
        NoHead::More(self.upto)
    }

    /// The next sign, white space aside, is this one.
    fn sign(&mut self, sign: char) -> Result<bool, NoHead> {
        let rest = self.rest();
        let begun = rest.trim_start();
        self.at += rest.len() - begun.len();
        let is = begun.chars().next().ok_or_else(|| self.more())? == sign;
        self.at += usize::from(is);
        Ok(is)
    }

    /// A whole value.
    fn value(&mut self) -> Result<&'t str, NoHead> {
        let rest = self.rest();
        let begun = rest.trim_start();
        if !begun.starts_with(['{', '[', '"']) {
            // Nothing else stands behind a number or a word.
            let behind = begun.trim_start_matches(is_of_word);
            if !behind.is_empty() && !behind.starts_with([',', ']', '}', ' ', '\t', '\r', '\n']) {
                return Err(NoHead::Wrong);
            }
        }
        let length = whole(rest).ok_or_else(|| self.more())?;
        self.at += length;
        rest.get(..length).map(str::trim).ok_or(NoHead::Wrong)
    }
}

/// Whether a sign is one of a number or a word.
fn is_of_word(sign: char) -> bool {
    sign.is_alphanumeric() || "+-._".contains(sign)
}

/// What stands in a text in quotes.
fn text(json: &str) -> Result<Cow<'_, str>, NoHead> {
    json::read::<Text<'_>>(json).map(|text| text.decoded()).map_err(|_| NoHead::Wrong)
}

/// `named`: the key of the name.
fn head<'t>(text: &'t str, named: &str) -> Result<Head<'t>, NoHead> {
    let mut from = Cursor { text, at: 0, upto: HEAD };
    if !from.sign('{')? {
        return Err(NoHead::Wrong);
    }
    let (mut name, mut before) = (None, None);
    loop {
        if from.sign('}')? {
            let name = name.ok_or(NoHead::Wrong)?;
            let arguments = before.map_or(Spelled::Missing, Spelled::Before);
            // Its end is read with the object.
            let read = if before.is_some() { from.at - 1 } else { from.at };
            return Ok(Head { name, arguments, read });
        }
        if !from.rest().starts_with('"') {
            return Err(NoHead::Wrong);
        }
        let key = self::text(from.value()?)?;
        if !from.sign(':')? {
            return Err(NoHead::Wrong);
        }
        match &*key {
            "arguments" | "parameters" => match name.take() {
                Some(name) => {
                    from.sign('\0')?;
                    return Ok(Head { name, arguments: Spelled::Follow, read: from.at });
                }
                None => {
                    from.upto = from.at + WHOLE;
                    before = Some(from.value()?);
                    from.upto = from.at + HEAD;
                }
            },
            key if key == named => {
                from.sign('\0')?;
                let own = self::text(from.value()?)?;
                if own.is_empty() {
                    return Err(NoHead::Wrong);
                }
                if let Some(before) = before {
                    return Ok(Head { name: own, arguments: Spelled::Before(before), read: from.at });
                }
                name = Some(own);
            }
            _ => {
                from.sign('\0')?;
                from.value()?;
            }
        }
        if !from.sign(',')? && !from.rest().starts_with('}') {
            return Err(NoHead::Wrong);
        }
    }
}

impl JsonGrammar {
    /// Reads some of the text: gives how much, or how it ends there.
    fn step(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Result<usize, Step> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        let next = begun.chars().next();
        match &mut self.state {
            State::Opening | State::Object | State::Between | State::Closing if next.is_none() && !last => {
                Err(Step::More(0))
            }
            State::Opening => {
                self.listed = self.form.list && next == Some('[');
                self.state = State::Object;
                Ok(blank + usize::from(self.listed))
            }
            // Behind the last object there may be a comma.
            State::Object if self.listed && self.called && next == Some(']') => {
                self.state = State::Closing;
                Ok(blank + 1)
            }
            State::Object => match self.object(begun, tools, emit) {
                Ok(read) => Ok(blank + read),
                Err(NoHead::More(most)) if !last && begun.len() <= most => Err(Step::More(0)),
                Err(_) => Err(self.stop(0)),
            },
            State::Arguments(arguments) => match arguments.read(text, &self.stops, emit) {
                Part::All(read) => {
                    self.state = State::Rest(Value::opened());
                    Ok(read)
                }
                Part::Some(read) if last => {
                    arguments.end(text.get(read..).unwrap_or(""), emit);
                    Err(Step::Done(text.len()))
                }
                Part::Some(read) => Err(Step::More(read)),
            },
            State::Rest(value) => match value.read(text, &self.stops) {
                Part::All(read) => {
                    self.state = State::Between;
                    Ok(read)
                }
                Part::Some(_) if last => Err(Step::Done(text.len())),
                Part::Some(read) => Err(Step::More(read)),
            },
            State::Between => self.between(text, last),
            State::Closing => Err(match self.stops.at(begun) {
                Found::At { marker, .. } => Step::Done(blank + self.stops.len(marker)),
                Found::Perhaps(_) if !last => Step::More(0),
                Found::Perhaps(_) => Step::Done(text.len()),
                Found::Nowhere => Step::Done(0),
            }),
        }
    }

    /// Behind an object: another one, or the end.
    fn between(&mut self, text: &str, last: bool) -> Result<usize, Step> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        self.state = State::Closing;
        match begun.chars().next() {
            Some(',') if self.listed => {
                self.state = State::Object;
                Ok(blank + 1)
            }
            Some(']') if self.listed => Ok(blank + 1),
            Some(sign) if !self.listed && self.form.separators.contains(sign) => {
                let behind = begun.get(sign.len_utf8()..).unwrap_or("").trim_start();
                match behind.chars().next() {
                    None if !last => {
                        self.state = State::Between;
                        Err(Step::More(0))
                    }
                    Some('{') => {
                        self.state = State::Object;
                        Ok(text.len() - behind.len())
                    }
                    _ => Ok(0),
                }
            }
            _ => Ok(0),
        }
    }
}

impl Grammar for JsonGrammar {
    fn read(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Step {
        let start = std::mem::take(&mut self.start);
        steps(text, start, |text| self.step(text, last, tools, emit))
    }
}
