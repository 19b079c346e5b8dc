//! Calls as tags with a name and a parameter each (Qwen3-Coder, GLM, MiniMax, DeepSeek V3.2, Seed-OSS, Step 3).
//!
//! ```text
//! section ─→ call ─→ name ─→ key ─→ value ─→ key, or end of the call ─→ call, or end of the section
//! ```
//!
//! Values are plain text. What they are in JSON is said by the tool's schema: a text streams as it comes, anything else is
//! told when all of it is there, as it stands where it is such a value, and else as a text. One that is not closed ends with
//! its call, or where the next key begins if the format says so.

use super::super::marker::{Found, Markers, begins};
use super::super::{Emit, Piece};
use super::value::{Arguments, Part};
use super::{Grammar, Step, Tools, is_name, name_length, near, steps};
use crate::json::Raw;
use crate::wire::tools::Types;

/// Bytes in which a name or a key stands with what belongs to it, however they come.
const NAME: usize = 512;
/// Levels of elements in elements.
const DEPTH: usize = 32;

/// What differs between formats. What is empty is not there.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Form {
    /// What may stand before a call, each once.
    pub(in super::super) opens: &'static [&'static str],
    /// What stands before and behind a function's name.
    pub(in super::super) name: (&'static str, &'static str),
    /// What closes a call.
    pub(in super::super) end: &'static str,
    /// What stands before and behind a key.
    pub(in super::super) key: (&'static str, &'static str),
    /// What stands before a value, and what closes it.
    pub(in super::super) value: (&'static str, &'static str),
    /// What may stand behind a call; the last of them ends the section.
    pub(in super::super) closes: &'static [&'static str],
    /// What else a key says.
    pub(in super::super) keys: Keys,
    /// A line break at either end of a value is not part of it.
    pub(in super::super) lines: bool,
    /// A key ends the value before it.
    pub(in super::super) unclosed: bool,
    /// Its start is no sure sign: a name alone is a call's only if a tool of the request has it.
    pub(in super::super) known: bool,
}

impl Form {
    /// What ends a value: first what closes it, then what stays.
    fn value_ends(&self, close: &str) -> Markers {
        let key = if self.unclosed { self.key.0 } else { "" };
        Markers::new([close, key, self.end].into_iter().chain(self.closes.iter().copied()))
    }
}

/// What stands between the marks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Keys {
    /// The key.
    Plain,
    /// `KEY" string="true` or `"false`: whether the value is a text.
    Typed,
    /// The name of the element, which its end repeats. What is no text may hold elements itself.
    Elements,
}

/// The reader of one section.
#[derive(Debug)]
pub(super) struct TaggedGrammar {
    form: &'static Form,
    state: State,
    called: bool,
    /// How many marks there were before a call.
    opened: usize,
    /// The function of the call that goes on.
    name: String,
    /// It has a parameter already.
    some: bool,
    value_ends: Markers,
    body_ends: Markers,
}

#[derive(Debug)]
enum State {
    /// Before a call, or behind one.
    Call,
    Name,
    Key,
    Value(Value),
    /// All parameters in one, as JSON.
    Body(Arguments),
    BodyEnd,
    Over,
}

/// A value that goes on.
#[derive(Debug)]
struct Value {
    types: Types,
    /// It is told as text as it comes.
    text: bool,
    begun: bool,
}

impl TaggedGrammar {
    pub(super) fn new(form: &'static Form) -> Self {
        Self {
            form,
            state: State::Call,
            called: false,
            opened: 0,
            name: String::new(),
            some: false,
            value_ends: form.value_ends(form.value.1),
            body_ends: Markers::new([form.end]),
        }
    }

    fn stop(&self, at: usize) -> Step {
        if self.called { Step::Done(at) } else { Step::No }
    }

    /// The function's name with what stands behind it; `None`: more is needed. Nothing is a name that no call goes on behind.
    fn name(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Result<Option<usize>, ()> {
        let behind = self.form.name.1;
        let all = text.len();
        let text = near(text, NAME);
        let is_cut = last && text.len() == all;
        let more = if last || text.len() < all { Err(()) } else { Ok(None) };
        let begun = text.trim_start();
        let Some(length) = name_length(begun, tools) else { return more };
        let (name, rest) = begun.split_at_checked(length).unwrap_or((begun, ""));
        if !is_name(name, tools) {
            return Err(());
        }
        // Where nothing of its own stands behind a name, the first key or the end of the call does.
        let has_own = !behind.trim().is_empty();
        let own = rest.trim_start();
        let rest = match begins(own, &[if has_own { behind } else { "" }]) {
            Found::At { .. } => own.get(behind.len()..).unwrap_or(""),
            Found::Perhaps(_) => return more,
            Found::Nowhere if has_own => return Err(()),
            Found::Nowhere => own,
        };
        match self.goes_on(name, rest.trim_start(), tools) {
            // It is cut behind its name.
            None if is_cut && has_own => {}
            None => return more,
            Some(false) => return Err(()),
            Some(true) => {}
        }
        self.called = true;
        self.some = false;
        name.clone_into(&mut self.name);
        emit(Piece::Call { name, id: None });
        self.state = State::Key;
        Ok(Some(text.len() - rest.len()))
    }

    /// Whether this is how a call goes on behind its name: with a key, all parameters in one, or its end. `None`: more is
    /// needed.
    fn goes_on(&self, name: &str, text: &str, tools: &Tools) -> Option<bool> {
        let Form { name: (_, behind), key, end, closes, known, .. } = *self.form;
        let is_sure = || tools.know(name);
        match begins(text, &[&[key.0, end], closes].concat()) {
            Found::At { marker: 0, .. } => Some(true),
            Found::At { .. } => Some(!known || is_sure()),
            Found::Perhaps(_) => None,
            Found::Nowhere => Some(text.starts_with('{') && (!behind.trim().is_empty() || is_sure())),
        }
    }

    /// A key with what stands behind it, and before its value.
    fn key(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Result<Option<usize>, ()> {
        let Form { key: (_, behind), value: (before, _), .. } = self.form;
        let all = text.len();
        let text = near(text, NAME);
        let more = if last || text.len() < all { Err(()) } else { Ok(None) };
        let Some(at) = text.find(behind) else { return more };
        let mut read = at + behind.len();
        if !before.is_empty() {
            let rest = text.get(read..).unwrap_or("");
            let begun = rest.trim_start();
            match begins(begun, &[*before]) {
                Found::At { .. } => read += rest.len() - begun.len() + before.len(),
                Found::Perhaps(_) => return more,
                Found::Nowhere => return Err(()),
            }
        }
        let said = text.get(..at).unwrap_or("").trim();
        let (key, types) = match self.form.keys {
            Keys::Plain => (said, tools.types(&self.name, said)),
            Keys::Elements => {
                self.value_ends = self.form.value_ends(&format!("{}{said}>", self.form.value.1));
                (said, tools.types(&self.name, said))
            }
            Keys::Typed => match said.split_once("\" string=\"") {
                Some((key, "false")) => (key, Types { object: true, ..Types::default() }),
                Some((key, _)) => (key, Types::default()),
                None => (said, tools.types(&self.name, said)),
            },
        };
        let mut out = String::from(if self.some { ", " } else { "{" });
        out.push_str(&serde_json::to_string(key).unwrap_or_default());
        out.push_str(": ");
        let text = types.is_text();
        if text {
            out.push('"');
        }
        emit(Piece::Arguments(&out));
        self.some = true;
        self.state = State::Value(Value { types, text, begun: false });
        Ok(Some(read))
    }

    /// A value; gives how much of it is read, and whether it is complete.
    fn value(&mut self, text: &str, last: bool, emit: Emit<'_>) -> (usize, bool) {
        let State::Value(value) = &mut self.state else { return (0, false) };
        let (upto, length) = match self.value_ends.find(text) {
            Found::At { at, marker: 0 } => (at, Some(self.value_ends.len(0))),
            Found::At { at, .. } => (at, Some(0)),
            found => (if last { text.len() } else { found.before(text) }, None),
        };
        let mut said = text.get(..upto).unwrap_or("");
        let begun = value.begun;
        value.begun |= !said.is_empty();
        let mut read = said.len();
        if self.form.lines && !begun {
            said = said.strip_prefix('\n').unwrap_or(said);
        }
        if let Some(length) = length {
            let said = if self.form.lines { said.strip_suffix('\n').unwrap_or(said) } else { said };
            let json = match self.form.keys {
                _ if value.text => escaped(said) + "\"",
                Keys::Elements if said.contains(self.form.key.0) => elements(said, self.form, value.types, 0),
                _ => told(said, value.types),
            };
            emit(Piece::Arguments(&json));
            return (upto + length, true);
        }
        if last {
            // It is cut: what there is of it goes as it is.
            emit(Piece::Arguments(&if value.text { escaped(said) } else { said.to_owned() }));
            return (text.len(), false);
        }
        if !value.text {
            value.begun = false;
            return (0, false);
        }
        if self.form.lines {
            // The last line break may stand before the end.
            let kept = said.strip_suffix('\n').unwrap_or(said);
            read -= said.len() - kept.len();
            said = kept;
        }
        if said.is_empty() {
            value.begun = begun;
            return (0, false);
        }
        emit(Piece::Arguments(&escaped(said)));
        (read, false)
    }

    fn close_call(&self, emit: Emit<'_>) {
        emit(Piece::Arguments(if self.some { "}" } else { "{}" }));
    }
}

/// A text as it stands between quotes in JSON.
fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or("").to_owned()
}

/// A value in JSON: as it stands, if that is one that the schema takes, and else as a text.
fn told(text: &str, types: Types) -> String {
    let bare = text.trim();
    let spelled = match bare {
        "True" | "TRUE" if types.boolean => "true",
        "False" | "FALSE" if types.boolean => "false",
        "None" | "NULL" | "Null" if types.null => "null",
        bare => bare,
    };
    let fits = match spelled.bytes().next() {
        Some(b'"') => types.object && !types.string,
        Some(b'{') => types.object,
        Some(b'[') => types.array || types.object,
        Some(b't' | b'f') => types.boolean || (types.object && !types.string),
        Some(b'n') => types.null || !types.string,
        Some(b'-' | b'0'..=b'9') => types.number || types.integer || (types.object && !types.string),
        _ => false,
    };
    if fits && Raw::of(spelled).is_some() {
        return spelled.to_owned();
    }
    serde_json::to_string(text).unwrap_or_default()
}

/// Elements in an element: an object of them, or a list, if all have the name of list items.
fn elements(text: &str, form: &Form, types: Types, depth: usize) -> String {
    let mut inner = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once(form.key.0).filter(|_| depth < DEPTH) {
        let Some((name, behind)) = behind.split_once(form.key.1) else { break };
        let Some((value, behind)) = behind.split_once(&*format!("{}{name}>", form.value.1)) else { break };
        inner.push((name, elements(value, form, Types { object: true, ..Types::default() }, depth + 1)));
        rest = behind;
    }
    if inner.is_empty() {
        return told(text, types);
    }
    if inner.iter().all(|(name, _)| *name == "item") && !types.object {
        let all: Vec<_> = inner.into_iter().map(|(_, value)| value).collect();
        return format!("[{}]", all.join(", "));
    }
    let all: Vec<_> = inner.iter().map(|(name, value)| format!("\"{}\": {value}", escaped(name))).collect();
    format!("{{{}}}", all.join(", "))
}

impl TaggedGrammar {
    /// Before a call: gives how much is read, or how it ends.
    fn before(&mut self, text: &str, last: bool) -> Result<usize, Step> {
        let Form { opens, name, closes, .. } = *self.form;
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        let marks: Vec<&str> = [&[name.0], opens, closes].concat();
        let Found::At { marker, .. } = begins(begun, &marks) else {
            return Err(match begins(begun, &marks) {
                Found::Perhaps(_) if !last => Step::More(0),
                // Cut in a mark.
                Found::Perhaps(_) if self.called => Step::Done(text.len()),
                _ => self.stop(0),
            });
        };
        let read = blank + marks.get(marker).map_or(0, |mark| mark.len());
        match marker.checked_sub(1 + opens.len()) {
            None if marker == 0 => self.state = State::Name,
            // Behind a call it is a start of its own.
            None if self.called || self.opened == opens.len() => return Err(self.stop(0)),
            None => self.opened += 1,
            Some(_) if !self.called => return Err(Step::No),
            Some(close) if close + 1 == closes.len() => return Err(Step::Done(read)),
            Some(_) => {}
        }
        Ok(read)
    }

    /// Behind a name or a value: a key, or the end of the call.
    fn behind(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Result<usize, Step> {
        let Form { key, end, closes, .. } = *self.form;
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        match begins(begun, &[&[key.0, end], closes].concat()) {
            Found::At { marker: 0, .. } => {
                match self.key(begun.get(key.0.len()..).unwrap_or(""), last, tools, emit) {
                    Ok(Some(read)) => return Ok(blank + key.0.len() + read),
                    Ok(None) => return Err(Step::More(0)),
                    Err(()) if last => return Err(Step::Done(text.len())),
                    Err(()) => {}
                }
            }
            Found::At { marker, .. } => {
                self.close_call(emit);
                self.state = if closes.is_empty() { State::Over } else { State::Call };
                // What stands behind a call closes one that has no end.
                return Ok(blank + if marker == 1 { end.len() } else { 0 });
            }
            Found::Perhaps(_) if !last => return Err(Step::More(0)),
            // Cut between two parameters nothing is closed; anything else ends the call.
            Found::Perhaps(_) => return Err(Step::Done(text.len())),
            Found::Nowhere if begun.is_empty() => return Err(Step::Done(text.len())),
            Found::Nowhere if !self.some && begun.starts_with('{') => {
                self.state = State::Body(Arguments::default());
                return Ok(blank);
            }
            Found::Nowhere => {}
        }
        self.close_call(emit);
        Err(Step::Done(0))
    }

    /// All parameters in one; gives how much is read.
    fn body(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Result<usize, Step> {
        let State::Body(arguments) = &mut self.state else { return Ok(0) };
        let read = match arguments.read(text, &self.body_ends, emit) {
            Part::All(read) => read,
            Part::Some(read) if last => {
                arguments.end(text.get(read..).unwrap_or(""), emit);
                return Err(Step::Done(text.len()));
            }
            Part::Some(read) => return Err(Step::More(read)),
        };
        self.state = State::BodyEnd;
        Ok(read)
    }

    fn body_end(&mut self, text: &str, last: bool) -> Result<usize, Step> {
        let begun = text.trim_start();
        let read = match self.body_ends.at(begun) {
            Found::At { marker, .. } => text.len() - begun.len() + self.body_ends.len(marker),
            Found::Perhaps(_) if !last => return Err(Step::More(0)),
            _ => 0,
        };
        self.state = if self.form.closes.is_empty() { State::Over } else { State::Call };
        Ok(read)
    }

    /// Reads some of the text: gives how much, or how it ends there.
    fn step(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Result<usize, Step> {
        match &self.state {
            State::Call => self.before(text, last),
            State::Name => match self.name(text, last, tools, emit) {
                Ok(Some(read)) => Ok(read),
                Ok(None) => Err(Step::More(0)),
                Err(()) => {
                    // Behind a call it is text, and so is what stands before it.
                    if self.called {
                        emit(Piece::Content(self.form.name.0));
                    }
                    Err(self.stop(0))
                }
            },
            State::Key => self.behind(text, last, tools, emit),
            State::Value(_) => match self.value(text, last, emit) {
                (read, true) => {
                    self.state = State::Key;
                    Ok(read)
                }
                (_, false) if last => Err(Step::Done(text.len())),
                (read, false) => Err(Step::More(read)),
            },
            State::Body(_) => self.body(text, last, emit),
            State::BodyEnd => self.body_end(text, last),
            State::Over => Err(Step::Done(0)),
        }
    }
}

impl Grammar for TaggedGrammar {
    fn read(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> Step {
        steps(text, 0, |text| self.step(text, last, tools, emit))
    }
}
