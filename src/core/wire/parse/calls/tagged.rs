//! Calls as tags, with a tag for the name and for each parameter (Qwen3-Coder, GLM, Hunyuan, MiniMax M2 and M3,
//! DeepSeek V3.2 and V4, Seed-OSS, Step 3).
//!
//! ```text
//! section ─→ call ─→ name ─→ key ─→ value ─→ key, or end of the call ─→ call, or end of the section
//! ```
//!
//! Values are plain text; the tool's schema decides their JSON type. A string streams as it arrives. Any other value
//! is emitted when it is complete: unchanged if it is valid JSON of a type that the schema allows, else as a string.
//! An unclosed value ends with its call, or at the next key ([`super::value_end`]).

use super::super::marker::{MarkerMatch, Markers, match_start};
use super::super::{Emit, Piece};
use super::tagged_form::{Keys, TaggedForm};
use super::value::Arguments;
use super::value_end::{Call, Found, ValueEnd};
use super::{Grammar, Notation, Step, Tools, name_length, prefix};
use crate::json::Raw;
use crate::wire::options::RepairArguments;
use crate::wire::repair::{ArgumentsEnd, repaired};
use crate::wire::tools::Types;
use std::borrow::Cow;
use std::collections::HashSet;

/// Limit in bytes on a name or key with the markers around it, however the text is cut.
const NAME: usize = 512;
/// Nesting limit of elements inside elements.
const DEPTH: usize = 32;

/// Parser for one section of tagged calls.
#[derive(Debug)]
pub(super) struct TaggedGrammar {
    form: &'static TaggedForm,
    state: TaggedState,
    called: bool,
    /// Number of `opens` markers read before the current call.
    opened: usize,
    /// Function name of the current call; selects the schema of its parameters.
    name: String,
    /// Keys of the current call.
    given: HashSet<String>,
    body_ends: Markers,
}

#[derive(Debug)]
enum TaggedState {
    /// Before or after a call.
    Call,
    Name,
    Key,
    /// At a key whose first marker is missing.
    BareKey,
    Value(OpenValue),
    /// Parameters written as one JSON object instead of tags.
    Body(Arguments),
    BodyEnd,
    Over,
}

/// Parameter value that is not yet complete.
#[derive(Debug)]
struct OpenValue {
    types: Types,
    /// True if the value is a string, which streams as it arrives.
    text: bool,
    begun: bool,
    end: ValueEnd,
    /// Bytes of the value, kept back until it is complete, that have been searched for its end.
    searched: usize,
}

impl TaggedGrammar {
    pub(super) fn new(form: &'static TaggedForm) -> Self {
        Self {
            form,
            state: TaggedState::Call,
            called: false,
            opened: 0,
            name: String::new(),
            given: HashSet::new(),
            body_ends: Markers::new([form.end]),
        }
    }

    fn stop(&self, at: usize) -> Step {
        if self.called {
            Step::Done(at)
        } else {
            Step::No
        }
    }

    /// Parses the function name and the marker after it; `Ok(None)` if more text is needed. Fails if it is no name,
    /// or if nothing that belongs to a call follows it.
    fn name(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<Option<usize>, ()> {
        let after = self.form.name.1;
        let all = text.len();
        let text = prefix(text, NAME);
        let is_cut = last && text.len() == all;
        let more = if last || text.len() < all {
            Err(())
        } else {
            Ok(None)
        };
        let begun = text.trim_start();
        let Some(length) = name_length(begun, tools) else {
            return more;
        };
        let (name, mut rest) = begun.split_at_checked(length).unwrap_or((begun, ""));
        if !tools.contains(name) {
            let name = self.name_before_key(name, tools).ok_or(())?;
            let TaggedForm { key, value, .. } = self.form;
            for mark in [key.1, value.0] {
                match match_start(rest, &[mark]) {
                    MarkerMatch::At { .. } => {}
                    MarkerMatch::Partial(_) => return more,
                    MarkerMatch::Nowhere => return Err(()),
                }
                rest = rest.get(mark.len()..).unwrap_or("").trim_start();
            }
            self.begin_call(name, emit);
            self.state = TaggedState::BareKey;
            return Ok(Some(text.len() - begun.len() + name.len()));
        }
        // Formats without a marker after a name continue there: the first key or the end of the call follows directly.
        let has_own = !after.trim().is_empty();
        let own = rest.trim_start();
        let rest = match match_start(own, &[if has_own { after } else { "" }]) {
            MarkerMatch::At { .. } => own.get(after.len()..).unwrap_or(""),
            MarkerMatch::Partial(_) => return more,
            MarkerMatch::Nowhere if has_own => return Err(()),
            MarkerMatch::Nowhere => own,
        };
        let Some(rest) = after_marker(rest, self.form.attributes) else {
            return more;
        };
        match self.goes_on(rest.trim_start(), name, tools) {
            // The text ends after the name; the marker after it was enough to recognise a call.
            None if is_cut && has_own => {}
            None => return more,
            Some(false) => return Err(()),
            Some(true) => {}
        }
        self.begin_call(name, emit);
        self.state = match rest.trim_start().starts_with('{') {
            true => TaggedState::Body(Arguments::default()),
            false => TaggedState::Key,
        };
        Ok(Some(text.len() - rest.len()))
    }

    /// Returns the name of a tool that runs into one of its keys, because the marker between the two is missing (GLM 5.1,
    /// vllm-project/vllm#47190). Only a key between two tags can lack the first.
    fn name_before_key<'t>(&self, joined: &'t str, tools: &Tools) -> Option<&'t str> {
        let is_joined = |name: &&str| {
            let key = joined.strip_prefix(name);
            key.is_some_and(|key| !key.is_empty() && tools.may_have(name, key))
        };
        let name = tools
            .names()
            .filter(is_joined)
            .max_by_key(|name| name.len())?;
        let has_tags = self.form.key.0.ends_with('>');
        joined.get(..name.len()).filter(|_| has_tags)
    }

    fn begin_call(&mut self, name: &str, emit: Emit<'_>) {
        self.called = true;
        self.given.clear();
        name.clone_into(&mut self.name);
        emit(Piece::Call { name, id: None });
    }

    /// Returns true if the text after a name continues a call: with a key, with all parameters in one object, or
    /// with the end of the call. `None` if more text is needed.
    fn goes_on(&self, text: &str, name: &str, tools: &Tools) -> Option<bool> {
        let TaggedForm {
            key, end, closes, ..
        } = *self.form;
        match match_start(text, &[&[key.0, end], closes].concat()) {
            MarkerMatch::At { .. } => Some(true),
            MarkerMatch::Partial(_) => None,
            MarkerMatch::Nowhere if text.starts_with('{') => Some(true),
            MarkerMatch::Nowhere => match self.untagged(text, name, tools) {
                Ok(found) => found.map(|_| true),
                Err(()) => Some(false),
            },
        }
    }

    /// Returns a short value whose first tag is missing, with its key, which the closing tag repeats, and the number of
    /// bytes read (MiniMax M3, vllm-project/vllm#51075); `Ok(None)` if more text is needed.
    fn untagged<'t>(
        &self,
        text: &'t str,
        name: &str,
        tools: &Tools,
    ) -> Result<Option<(&'t str, &'t str, usize)>, ()> {
        let TaggedForm { key, value, .. } = self.form;
        let begin = key.0.trim_end_matches('<');
        let inner = text.strip_prefix(begin);
        let inner = inner
            .filter(|_| self.form.keys == Keys::Elements)
            .ok_or(())?;
        let short = prefix(inner, NAME);
        let parts = short.split_once(value.1);
        let parts = parts.and_then(|(said, rest)| Some((rest.split_once(key.1)?.0, said)));
        match parts {
            Some((key, said)) if tools.may_have(name, key) => {
                let read = begin.len() + said.len() + value.1.len() + key.len();
                Ok(Some((key, said, read + self.form.key.1.len())))
            }
            None if short.len() == inner.len() => Ok(None),
            _ => Err(()),
        }
    }

    /// Parses a key up to the start of its value and emits its JSON; `Ok(None)` if more text is needed. Fails if it
    /// is no key.
    fn key(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<Option<usize>, ()> {
        let TaggedForm {
            key: (_, after),
            kind,
            value: (before, _),
            xml,
            ..
        } = self.form;
        let all = text.len();
        let text = prefix(text, NAME);
        let more = if last || text.len() < all {
            Err(())
        } else {
            Ok(None)
        };
        let Some(at) = text.find(after) else {
            return more;
        };
        let mut read = at + after.len();
        if !before.is_empty() {
            let rest = text.get(read..).unwrap_or("");
            let mut begun = rest.trim_start();
            match match_start(begun, &[kind.0]) {
                MarkerMatch::At { .. } => match after_marker(begun, kind.1) {
                    Some(after) => begun = after.trim_start(),
                    None => return more,
                },
                MarkerMatch::Partial(_) => return more,
                MarkerMatch::Nowhere => {}
            }
            match match_start(begun, &[*before]) {
                MarkerMatch::At { .. } => read += rest.len() - begun.len() + before.len(),
                MarkerMatch::Partial(_) => return more,
                MarkerMatch::Nowhere => return Err(()),
            }
        }
        let said = text.get(..at).unwrap_or("").trim();
        let (key, types) = match self.form.keys {
            Keys::Plain | Keys::Elements => (said, tools.types(&self.name, said)),
            Keys::Typed { attribute, string } => match said.split_once(attribute) {
                Some((key, kind)) if kind.trim_end_matches('"') == string => {
                    (key, Types::default())
                }
                Some((key, _)) => (
                    key,
                    Types {
                        object: true,
                        ..Types::default()
                    },
                ),
                None => (said.trim_end_matches('"'), tools.types(&self.name, said)),
            },
        };
        // Entities and the marks of a CDATA section may be cut.
        let text = types.is_text() && !xml;
        self.begin_value(key, if text { "\"" } else { "" }, emit);
        let close = match self.form.keys {
            Keys::Elements => format!("{}{said}>", self.form.value.1),
            Keys::Plain | Keys::Typed { .. } => self.form.value.1.to_owned(),
        };
        self.state = TaggedState::Value(OpenValue {
            types,
            text,
            begun: false,
            end: ValueEnd::new(self.form, &close, self.opened > 0),
            searched: 0,
        });
        Ok(Some(read))
    }

    /// Parses and emits a value. Returns the bytes read, and true if the value is complete.
    fn value(&mut self, text: &str, last: bool, tools: &Tools, emit: Emit<'_>) -> (usize, bool) {
        let TaggedState::Value(value) = &mut self.state else {
            return (0, false);
        };
        let (is_text, types) = (value.text, value.types);
        let call = Call {
            tools,
            name: &self.name,
            given: &self.given,
            is_value: &|said| !is_text && json_of(said, types).is_some(),
        };
        let (upto, length) = match value.end.find(text, value.searched, last, &call) {
            Found::End { at, length } => (at, Some(length)),
            Found::More(upto) => (upto, None),
        };
        let mut said = text.get(..upto).unwrap_or("");
        let begun = value.begun;
        value.begun |= !said.is_empty();
        let mut read = said.len();
        if self.form.lines && !begun {
            said = said.strip_prefix('\n').unwrap_or(said);
        }
        if let Some(length) = length {
            let said = if self.form.lines {
                said.strip_suffix('\n').unwrap_or(said)
            } else {
                said
            };
            let json = match self.form.keys {
                _ if value.text => escaped(said) + "\"",
                _ if self.form.xml => value_json(&xml_text(said), value.types),
                Keys::Elements if said.contains(self.form.key.0) => {
                    elements(said, self.form, value.types, 0)
                }
                _ => value_json(said, value.types),
            };
            emit(Piece::Arguments(&json));
            return (upto + length, true);
        }
        if last {
            // The text ends inside the value: its beginning is emitted, and the JSON stays incomplete.
            // A whole value does not end in half a marker.
            let whole = value.end.before_cut_marker(said);
            let is_whole = !value.text && json_of(whole, types).is_some();
            let said = if is_whole { whole } else { said };
            emit(Piece::Arguments(&match self.form.xml {
                true if types.is_text() => format!("\"{}", escaped(&xml_text(said))),
                true => xml_text(said).into_owned(),
                false if value.text => escaped(said),
                false => said.to_owned(),
            }));
            return (text.len(), false);
        }
        if !value.text {
            value.begun = false;
            value.searched = upto;
            return (0, false);
        }
        if self.form.lines {
            // The last line break may precede the closing marker, so it stays buffered.
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

    /// Emits a key, and the beginning of its value.
    fn begin_value(&mut self, key: &str, json: &str, emit: Emit<'_>) {
        let separator = if self.given.is_empty() { "{" } else { ", " };
        let key_json = serde_json::to_string(key).unwrap_or_default();
        emit(Piece::Arguments(&format!("{separator}{key_json}: {json}")));
        self.given.insert(key.to_owned());
    }

    fn close_call(&self, emit: Emit<'_>) {
        emit(Piece::Arguments(if self.given.is_empty() {
            "{}"
        } else {
            "}"
        }));
    }
}

/// Returns the text after the first occurrence of a marker, which may be empty; `None` if it does not occur.
fn after_marker<'t>(text: &'t str, marker: &str) -> Option<&'t str> {
    let at = text.find(marker)?;
    text.get(at + marker.len()..)
}

/// Returns the text of an XML element: a CDATA section as it is, else with its entities resolved.
fn xml_text(text: &str) -> Cow<'_, str> {
    if let Some(section) = text.trim().strip_prefix("<![CDATA[") {
        return section.strip_suffix("]]>").unwrap_or(section).into();
    }
    if !text.contains('&') {
        return text.into();
    }
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    let resolved = entities
        .into_iter()
        .fold(text.to_owned(), |text, (entity, sign)| {
            text.replace(entity, sign)
        });
    resolved.into()
}

/// Returns a text escaped for JSON, without the quotes around it.
fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    quoted
        .get(1..quoted.len().saturating_sub(1))
        .unwrap_or("")
        .to_owned()
}

/// Returns the JSON of a value: unchanged if it is valid JSON of a type that the schema allows, repaired if the schema
/// wants an object or a list and no string, else as a string.
fn value_json(text: &str, types: Types) -> String {
    let repaired = || {
        let bare = text.trim();
        let is_wanted = match bare.bytes().next() {
            Some(b'{') => types.object && !types.string,
            Some(b'[') => types.array && !types.string,
            _ => false,
        };
        repaired(bare, RepairArguments::Json, ArgumentsEnd::Marked)
            .filter(|_| is_wanted)
            .map(|found| found.text)
    };
    json_of(text, types)
        .or_else(repaired)
        .unwrap_or_else(|| serde_json::to_string(text).unwrap_or_default())
}

/// Returns a value that is valid JSON of a type that the schema allows, else `None`.
fn json_of(text: &str, types: Types) -> Option<String> {
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
        Some(b'-' | b'0'..=b'9') => {
            types.number || types.integer || (types.object && !types.string)
        }
        _ => false,
    };
    (fits && Raw::of(spelled).is_some()).then(|| spelled.to_owned())
}

/// Returns the JSON of a value that contains elements: an object, or an array if all are called `item` and the
/// schema does not ask for an object.
fn elements(text: &str, form: &TaggedForm, types: Types, depth: usize) -> String {
    let mut inner = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(form.key.0).filter(|_| depth < DEPTH) {
        let Some((name, after)) = after.split_once(form.key.1) else {
            break;
        };
        let Some((value, after)) = after.split_once(&*format!("{}{name}>", form.value.1)) else {
            break;
        };
        inner.push((
            name,
            elements(
                value,
                form,
                Types {
                    object: true,
                    ..Types::default()
                },
                depth + 1,
            ),
        ));
        rest = after;
    }
    if inner.is_empty() {
        return value_json(text, types);
    }
    if inner.iter().all(|(name, _)| *name == "item") && !types.object {
        let all: Vec<_> = inner.into_iter().map(|(_, value)| value).collect();
        return format!("[{}]", all.join(", "));
    }
    let all: Vec<_> = inner
        .iter()
        .map(|(name, value)| format!("\"{}\": {value}", escaped(name)))
        .collect();
    format!("{{{}}}", all.join(", "))
}

impl TaggedGrammar {
    /// Parses the markers before a call. Returns the bytes read, or the step with which the section ends.
    fn before(&mut self, text: &str, last: bool) -> Result<usize, Step> {
        let TaggedForm {
            opens,
            name,
            closes,
            ..
        } = *self.form;
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        let marks: Vec<&str> = [&[name.0], opens, closes].concat();
        let MarkerMatch::At { marker, .. } = match_start(begun, &marks) else {
            return Err(match match_start(begun, &marks) {
                MarkerMatch::Partial(_) if !last => Step::More(0),
                // The text ends within a marker.
                MarkerMatch::Partial(_) if self.called => Step::Done(text.len()),
                _ => self.stop(0),
            });
        };
        let read = blank + marks.get(marker).map_or(0, |mark| mark.len());
        match marker.checked_sub(1 + opens.len()) {
            None if marker == 0 => self.state = TaggedState::Name,
            // After a call, such a marker starts a new section, which has its own grammar.
            None if self.called || self.opened == opens.len() => return Err(self.stop(0)),
            None => self.opened += 1,
            Some(_) if !self.called => return Err(Step::No),
            Some(close) if close + 1 == closes.len() => return Err(Step::Done(read)),
            Some(_) => {}
        }
        Ok(read)
    }

    /// Parses a key or the end of the call, whichever follows a name or value.
    fn key_or_end(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, Step> {
        let TaggedForm {
            key,
            end,
            closes,
            value,
            keys,
            ..
        } = *self.form;
        let begun = text.trim_start();
        let blank = text.len() - begun.len();
        // Models close a value twice at times (ggml-org/llama.cpp#24807).
        let (stray, after) = match keys {
            Keys::Elements => (value.1, key.1),
            Keys::Plain | Keys::Typed { .. } => (value.1, ""),
        };
        match match_start(begun, &[&[key.0, end], closes, &[stray]].concat()) {
            MarkerMatch::At { marker, .. } if marker == 2 + closes.len() => {
                return match after_marker(begun.get(stray.len()..).unwrap_or(""), after) {
                    Some(rest) => Ok(text.len() - rest.len()),
                    None if last => Err(Step::Done(text.len())),
                    None => Err(Step::More(0)),
                };
            }
            MarkerMatch::At { marker: 0, .. } => {
                match self.key(begun.get(key.0.len()..).unwrap_or(""), last, tools, emit) {
                    Ok(Some(read)) => return Ok(blank + key.0.len() + read),
                    Ok(None) => return Err(Step::More(0)),
                    Err(()) if last => return Err(Step::Done(text.len())),
                    Err(()) => {}
                }
            }
            MarkerMatch::At { marker, .. } => {
                self.close_call(emit);
                self.state = if closes.is_empty() {
                    TaggedState::Over
                } else {
                    TaggedState::Call
                };
                // A marker that follows calls also closes a call without an end marker.
                return Ok(blank + if marker == 1 { end.len() } else { 0 });
            }
            MarkerMatch::Partial(_) if !last => return Err(Step::More(0)),
            // Text that ends between two parameters leaves the call open; any other text ends it.
            MarkerMatch::Partial(_) => return Err(Step::Done(text.len())),
            MarkerMatch::Nowhere if begun.is_empty() => return Err(Step::Done(text.len())),
            MarkerMatch::Nowhere => match self.untagged(begun, &self.name, tools) {
                Ok(Some((key, said, read))) => {
                    let json = value_json(said, tools.types(&self.name, key));
                    self.begin_value(key, &json, emit);
                    return Ok(blank + read);
                }
                Ok(None) if !last => return Err(Step::More(0)),
                Ok(None) => return Err(Step::Done(text.len())),
                Err(()) => {}
            },
        }
        self.close_call(emit);
        Err(Step::Done(0))
    }

    /// Parses parameters written as one JSON object. Returns the bytes read, or the step with which the section
    /// ends.
    fn body(&mut self, text: &str, last: bool, emit: Emit<'_>) -> Result<usize, Step> {
        let TaggedState::Body(arguments) = &mut self.state else {
            return Ok(0);
        };
        let read = arguments.step(text, &self.body_ends, last, emit)?;
        self.state = TaggedState::BodyEnd;
        Ok(read)
    }

    fn body_end(&mut self, text: &str, last: bool) -> Result<usize, Step> {
        let begun = text.trim_start();
        let read = match self.body_ends.match_at_start(begun) {
            MarkerMatch::At { marker, .. } => text.len() - begun.len() + self.body_ends.len(marker),
            MarkerMatch::Partial(_) if !last => return Err(Step::More(0)),
            // The text ends within the marker.
            MarkerMatch::Partial(_) if !begun.is_empty() => return Err(Step::Done(text.len())),
            _ => 0,
        };
        self.state = if self.form.closes.is_empty() {
            TaggedState::Over
        } else {
            TaggedState::Call
        };
        Ok(read)
    }
}

impl Grammar for TaggedGrammar {
    fn step(
        &mut self,
        text: &str,
        last: bool,
        tools: &Tools,
        emit: Emit<'_>,
    ) -> Result<usize, Step> {
        match &self.state {
            TaggedState::Call => self.before(text, last),
            TaggedState::Name => match self.name(text, last, tools, emit) {
                Ok(Some(read)) => Ok(read),
                Ok(None) => Err(Step::More(0)),
                Err(()) => {
                    // After a call this is text, and so is the marker in front of it.
                    if self.called {
                        emit(Piece::Content(self.form.name.0));
                    }
                    Err(self.stop(0))
                }
            },
            TaggedState::Key => self.key_or_end(text, last, tools, emit),
            TaggedState::BareKey => match self.key(text, last, tools, emit) {
                Ok(Some(read)) => Ok(read),
                Ok(None) => Err(Step::More(0)),
                Err(()) => Err(Step::Done(0)),
            },
            TaggedState::Value(_) => match self.value(text, last, tools, emit) {
                (read, true) => {
                    self.state = TaggedState::Key;
                    Ok(read)
                }
                (_, false) if last => Err(Step::Done(text.len())),
                (read, false) => Err(Step::More(read)),
            },
            TaggedState::Body(_) => self.body(text, last, emit),
            TaggedState::BodyEnd => self.body_end(text, last),
            TaggedState::Over => Err(Step::Done(0)),
        }
    }

    fn ignores_blank(&self) -> bool {
        // The white space before a name has a limit, and that in a value is part of it.
        matches!(
            self.state,
            TaggedState::Call | TaggedState::Key | TaggedState::BodyEnd
        )
    }

    fn notation(&self) -> Notation {
        match self.state {
            TaggedState::Body(_) => Notation::OpenJson,
            TaggedState::BodyEnd => Notation::EndedJson,
            _ => Notation::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_of_a_type_that_the_schema_allows() {
        let types = |word: &str| Types {
            string: word.contains('s'),
            integer: word.contains('i'),
            number: word.contains('n'),
            boolean: word.contains('b'),
            null: word.contains('0'),
            object: word.contains('o'),
            array: word.contains('a'),
        };
        for (text, word, expected) in [
            (" 1 ", "i", "1"),
            ("1.5", "n", "1.5"),
            ("-1", "i", "-1"),
            ("1", "s", "\"1\""),
            ("1", "o", "1"),
            ("1", "os", "\"1\""),
            ("1", "b", "\"1\""),
            ("1x", "i", "\"1x\""),
            ("true", "b", "true"),
            ("True", "b", "true"),
            ("FALSE", "b", "false"),
            ("True", "i", "\"True\""),
            ("true", "o", "true"),
            ("true", "os", "\"true\""),
            ("true", "i", "\"true\""),
            ("null", "0s", "null"),
            ("None", "0", "null"),
            ("None", "i", "\"None\""),
            ("null", "i", "null"),
            ("null", "s", "\"null\""),
            ("[1]", "a", "[1]"),
            ("[1]", "o", "[1]"),
            ("[1]", "i", "\"[1]\""),
            ("{}", "o", "{}"),
            ("{}", "a", "\"{}\""),
            ("\"x\"", "o", "\"x\""),
            ("\"x\"", "os", r#""\"x\"""#),
            ("\"x\"", "i", r#""\"x\"""#),
            ("x", "io", "\"x\""),
            ("{'a': True}", "o", r#"{"a": true}"#),
            ("{'a': True}", "os", r#""{'a': True}""#),
            ("['a', 'b',]", "a", r#"["a", "b"]"#),
            ("['a']", "o", r#""['a']""#),
            ("{a}", "o", r#""{a}""#),
        ] {
            assert_eq!(value_json(text, types(word)), expected, "{text} as {word}");
        }
    }
}
