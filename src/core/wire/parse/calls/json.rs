//! Calls as JSON objects with a name and arguments, either one object, several, or a list (Hermes, Llama 3, old
//! Mistral, Granite, InternLM, Jamba, Phi-4 and others).
//!
//! ```text
//! start ─→ [ ─→ { name, arguments } ─→ , or ; ─→ … ─→ ] ─→ end tag
//! ```
//!
//! Between two tags, the objects may be in a code fence, and follow each other without a separator; name and arguments
//! may be in an object of their own, `function`, as in the API.

use super::super::marker::{MarkerMatch, Markers};
use super::super::{Emit, Piece};
use super::format::JsonForm;
use super::value::{Arguments, Part, Value, value_length};
use super::{Grammar, Notation, Step, Tools, prefix};
use crate::json::{self, Text};
use crate::wire::options::RepairArguments;
use crate::wire::repair::{self, ArgumentsEnd};
use std::borrow::Cow;

/// Limit in bytes on the members of an object before its arguments; `WHOLE` limits arguments that precede the name.
const HEAD: usize = 4 << 10;
const WHOLE: usize = 256 << 10;

const FENCE: &str = "```";
/// Limit in bytes on the line of a code fence: its backticks and the name of a language.
const LONGEST_FENCE: usize = 16;

/// Returns true if a code fence begins the text, or the text may become one.
fn is_fence(text: &str) -> bool {
    text.starts_with(FENCE) || FENCE.starts_with(text)
}

/// Parser for one section of JSON calls.
#[derive(Debug)]
pub(super) struct JsonGrammar {
    form: &'static JsonForm,
    start: usize,
    /// True if no marker precedes the section.
    is_bare: bool,
    state: JsonState,
    listed: bool,
    /// True once the section has had a call.
    called: bool,
    /// True while a code fence is open.
    fenced: bool,
    stops: Markers,
}

#[derive(Debug)]
enum JsonState {
    Opening,
    Object,
    /// Arguments, and the number of objects around them.
    Arguments(Arguments, u32),
    /// Members after the arguments, up to the end of the call.
    Rest(Value),
    Between,
    Closing,
}

impl JsonGrammar {
    /// Creates the parser for a section whose start marker has `start` bytes; these are skipped first.
    pub(super) fn new(form: &'static JsonForm, start: usize) -> Self {
        let stops = Markers::new([form.end]);
        Self {
            form,
            start,
            state: JsonState::Opening,
            is_bare: start == 0,
            listed: false,
            called: false,
            fenced: false,
            stops,
        }
    }

    /// Returns the step for text that does not continue the section: the calls end, or there were none.
    fn stop(&self, at: usize) -> Step {
        if self.called {
            Step::Done(at)
        } else {
            Step::No
        }
    }

    /// Parses an object up to its arguments, emits the call, and returns the bytes read. Fails if it is no call.
    fn object(&mut self, text: &str, tools: &Tools, emit: Emit<'_>) -> Result<usize, HeadError> {
        let is_quoted = |text: &str| text.trim_start().starts_with('\'');
        if !self.form.end.is_empty() && text.strip_prefix('{').is_some_and(is_quoted) {
            return self.python_object(text, tools, emit);
        }
        let Head {
            name,
            arguments,
            depth,
            read,
        } = head(text, self.form)?;
        // Without a marker, an object that only has a name is an answer in JSON.
        let has_name_alone = self.is_bare && matches!(arguments, ArgumentsPlace::Missing);
        if has_name_alone || !tools.contains(&name) {
            return Err(HeadError::Wrong);
        }
        self.called = true;
        emit(Piece::Call {
            name: &name,
            id: None,
        });
        self.state = match arguments {
            ArgumentsPlace::Follow => JsonState::Arguments(Arguments::default(), depth),
            ArgumentsPlace::Before(text) => {
                Arguments::default().read(text, &self.stops, emit);
                JsonState::Rest(Value::opened(depth))
            }
            ArgumentsPlace::Missing => {
                emit(Piece::Arguments("{}"));
                JsonState::Between
            }
        };
        Ok(read)
    }
}

impl JsonGrammar {
    /// Parses an object in the notation of Python: all of it, up to the end marker. Returns the bytes read. Fails if it is
    /// no call, or too long.
    fn python_object(
        &mut self,
        text: &str,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, HeadError> {
        let end = prefix(text, HEAD).find(self.form.end);
        let end = end.ok_or(HeadError::More(HEAD))?;
        let object = text.get(..end).unwrap_or(text).trim_end();
        let repaired = repair::repaired(object, RepairArguments::Json, ArgumentsEnd::Marked);
        let json = repaired.ok_or(HeadError::Wrong)?.text;
        let mut inner = Self {
            is_bare: false,
            ..Self::new(self.form, 0)
        };
        inner.read(&json, true, tools, emit);
        self.called |= inner.called;
        self.state = JsonState::Between;
        inner.called.then_some(end).ok_or(HeadError::Wrong)
    }
}

/// Beginning of an object: up to its arguments, or to the end of an object without any.
struct Head<'t> {
    name: Cow<'t, str>,
    arguments: ArgumentsPlace<'t>,
    /// Number of objects that are open at its end, without the arguments.
    depth: u32,
    read: usize,
}

enum ArgumentsPlace<'t> {
    /// Arguments begin where the head ends.
    Follow,
    /// Arguments preceded the name; the object continues.
    Before(&'t str),
    /// Arguments are missing, and the object is complete.
    Missing,
}

/// Reason why no head could be read.
enum HeadError {
    /// Incomplete head; worth waiting for until the text has this many bytes.
    More(usize),
    Wrong,
}

/// Read position in a text that is parsed from its beginning each time.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
    /// Offset in bytes up to which the text is examined.
    upto: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t str {
        prefix(self.text, self.upto).get(self.at..).unwrap_or("")
    }

    fn more(&self) -> HeadError {
        HeadError::More(self.upto)
    }

    /// Returns true if the next character, white space aside, is `sign`, and then skips it. Fails if the text ends.
    fn sign(&mut self, sign: char) -> Result<bool, HeadError> {
        let rest = self.rest();
        let begun = rest.trim_start();
        self.at += rest.len() - begun.len();
        let is = begun.chars().next().ok_or_else(|| self.more())? == sign;
        self.at += usize::from(is);
        Ok(is)
    }

    /// Reads a complete value of any type and returns its text. Fails if it is incomplete, or a word that runs on.
    fn value(&mut self) -> Result<&'t str, HeadError> {
        let rest = self.rest();
        let begun = rest.trim_start();
        if !begun.starts_with(['{', '[', '"']) {
            // Only a delimiter may follow a number or word.
            let after = begun.trim_start_matches(is_of_word);
            if !after.is_empty() && !after.starts_with([',', ']', '}', ' ', '\t', '\r', '\n']) {
                return Err(HeadError::Wrong);
            }
        }
        let length = value_length(rest).ok_or_else(|| self.more())?;
        self.at += length;
        rest.get(..length).map(str::trim).ok_or(HeadError::Wrong)
    }
}

/// Returns true if a character may be part of a number or word.
fn is_of_word(sign: char) -> bool {
    sign.is_alphanumeric() || "+-._".contains(sign)
}

/// Returns the decoded contents of a JSON string. Fails if it is none.
fn text(json: &str) -> Result<Cow<'_, str>, HeadError> {
    json::read::<Text<'_>>(json)
        .map(|text| text.decoded())
        .map_err(|_| HeadError::Wrong)
}

/// Parses the beginning of an object from its opening brace on. Fails if more text is needed, or if the object is no
/// call.
fn head<'t>(text: &'t str, form: &JsonForm) -> Result<Head<'t>, HeadError> {
    let mut from = Cursor {
        text,
        at: 0,
        upto: HEAD,
    };
    if !from.sign('{')? {
        return Err(HeadError::Wrong);
    }
    let (mut name, mut before, mut depth) = (None, None, 1);
    loop {
        if from.sign('}')? {
            let name = name.ok_or(HeadError::Wrong)?;
            let (arguments, read) = match before.or_else(|| (depth > 1).then_some("{}")) {
                // The closing brace is left to the state `Rest`, which reads the end of the object.
                Some(before) => (ArgumentsPlace::Before(before), from.at - 1),
                None => (ArgumentsPlace::Missing, from.at),
            };
            return Ok(Head {
                name,
                arguments,
                depth,
                read,
            });
        }
        if !from.rest().starts_with('"') {
            return Err(HeadError::Wrong);
        }
        let key = self::text(from.value()?)?;
        if !from.sign(':')? {
            return Err(HeadError::Wrong);
        }
        match &*key {
            key if form.name.is_empty() => {
                from.sign('\0')?;
                return Ok(Head {
                    name: key.to_owned().into(),
                    arguments: ArgumentsPlace::Follow,
                    depth,
                    read: from.at,
                });
            }
            // In the API's shape, `parameters` is the schema of a tool.
            "parameters" if depth > 1 => return Err(HeadError::Wrong),
            "arguments" | "parameters" | "args" => match name.take() {
                Some(name) => {
                    from.sign('\0')?;
                    return Ok(Head {
                        name,
                        arguments: ArgumentsPlace::Follow,
                        depth,
                        read: from.at,
                    });
                }
                None => {
                    from.upto = from.at + WHOLE;
                    before = Some(from.value()?);
                    from.upto = from.at + HEAD;
                }
            },
            key if key == form.name => {
                from.sign('\0')?;
                let own = self::text(from.value()?)?;
                if own.is_empty() {
                    return Err(HeadError::Wrong);
                }
                if let Some(before) = before {
                    return Ok(Head {
                        name: own,
                        arguments: ArgumentsPlace::Before(before),
                        depth,
                        read: from.at,
                    });
                }
                name = Some(own);
            }
            "function" if name.is_none() && !form.end.is_empty() && from.sign('{')? => {
                depth += 1;
                continue;
            }
            _ => {
                from.sign('\0')?;
                from.value()?;
            }
        }
        if !from.sign(',')? && !from.rest().starts_with('}') {
            return Err(HeadError::Wrong);
        }
    }
}

impl JsonGrammar {
    /// Parses the separator before another object, or the end of the list. Returns the bytes read.
    fn between(&mut self, text: &str, last: bool) -> Result<usize, Step> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        self.state = JsonState::Closing;
        match begun.chars().next() {
            Some(',') if self.listed => {
                self.state = JsonState::Object;
                Ok(blank + 1)
            }
            Some(']') if self.listed => Ok(blank + 1),
            Some('{')
                if !self.listed
                    && (!self.form.end.is_empty() || !self.form.separators.is_empty()) =>
            {
                self.state = JsonState::Object;
                Ok(blank)
            }
            Some(sign) if !self.listed && self.form.separators.contains(sign) => {
                let after = begun.get(sign.len_utf8()..).unwrap_or("").trim_start();
                match after.chars().next() {
                    None if !last => {
                        self.state = JsonState::Between;
                        Err(Step::More(0))
                    }
                    Some('{') => {
                        self.state = JsonState::Object;
                        Ok(text.len() - after.len())
                    }
                    _ => Ok(0),
                }
            }
            _ => Ok(0),
        }
    }
}

impl Grammar for JsonGrammar {
    fn step(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, Step> {
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        let next = begun.chars().next();
        match &mut self.state {
            JsonState::Opening | JsonState::Object | JsonState::Between | JsonState::Closing
                if next.is_none() && !last =>
            {
                Err(Step::More(0))
            }
            JsonState::Opening if !self.fenced && !self.form.end.is_empty() && is_fence(begun) => {
                let line = prefix(begun, LONGEST_FENCE).find('\n');
                match line {
                    Some(line) => {
                        self.fenced = true;
                        Ok(blank + line)
                    }
                    None if !last && begun.len() < LONGEST_FENCE => Err(Step::More(0)),
                    None => Err(Step::No),
                }
            }
            JsonState::Opening => {
                self.listed = self.form.list && next == Some('[');
                self.state = JsonState::Object;
                Ok(blank + usize::from(self.listed))
            }
            // A comma may follow the last object.
            JsonState::Object if self.listed && self.called && next == Some(']') => {
                self.state = JsonState::Closing;
                Ok(blank + 1)
            }
            JsonState::Object => match self.object(begun, tools, emit) {
                Ok(read) => Ok(blank + read),
                Err(HeadError::More(most)) if !last && begun.len() <= most => Err(Step::More(0)),
                Err(_) => Err(self.stop(0)),
            },
            JsonState::Arguments(arguments, depth) => {
                let depth = *depth;
                let read = arguments.step(text, &self.stops, last, emit)?;
                self.state = JsonState::Rest(Value::opened(depth));
                Ok(read)
            }
            JsonState::Rest(value) => match value.read(text, &self.stops) {
                Part::All(read) => {
                    self.state = JsonState::Between;
                    Ok(read)
                }
                Part::Some(_) if last => Err(Step::Done(text.len())),
                Part::Some(read) => Err(Step::More(read)),
            },
            JsonState::Between => self.between(text, last),
            JsonState::Closing if self.fenced && is_fence(begun) => {
                if begun.len() < FENCE.len() {
                    return Err(if last {
                        Step::Done(text.len())
                    } else {
                        Step::More(0)
                    });
                }
                self.fenced = false;
                Ok(blank + FENCE.len())
            }
            JsonState::Closing => Err(match self.stops.match_at_start(begun) {
                MarkerMatch::At { marker, .. } => Step::Done(blank + self.stops.len(marker)),
                MarkerMatch::Partial(_) if !last => Step::More(0),
                MarkerMatch::Partial(_) => Step::Done(text.len()),
                MarkerMatch::Nowhere => Step::Done(0),
            }),
        }
    }

    fn ignores_blank(&self) -> bool {
        !matches!(self.state, JsonState::Arguments(..) | JsonState::Rest(_))
    }

    fn notation(&self) -> Notation {
        match self.state {
            JsonState::Arguments(..) => Notation::OpenJson,
            _ => Notation::EndedJson,
        }
    }

    fn take_marker_length(&mut self) -> usize {
        std::mem::take(&mut self.start)
    }
}
