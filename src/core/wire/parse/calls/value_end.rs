//! End of a value in a call that is written as tags (engines F.2).
//!
//! ```text
//! value ──closing tag, and the grammar allows what follows──→ end
//!   ├──closing tag, and other text follows──→ value: the tag is part of it
//!   └──beginning of another call──→ quoted call ──its end──→ value
//! ```
//!
//! Takes: text of a value, cut anywhere. Gives: where the value ends, or how much of it is certain. Remembers: the
//! calls and keys that the value quotes and has not closed. Never: looks further than [`AHEAD`].

use super::super::marker::{MarkerMatch, Markers, match_start};
use super::prefix;
use super::tagged_form::{Keys, TaggedForm};
use crate::wire::repair::MARKS;
use crate::wire::tools::Tools;
use std::borrow::Cow;
use std::collections::HashSet;

/// Limit in bytes on the white space between two markers that belong together.
const BLANK: usize = 1 << 10;
/// Limit in bytes on a name or key with the markers around it.
const NAME: usize = 512;
/// Limit in bytes on the text after the end of a call whose section does not end, in which another end of the value
/// would show that the first one was text.
const AHEAD: usize = 4 << 10;
/// Limit on the places at which a value is read from its beginning to see if it is complete.
const MOST_CHECKED: usize = 64;

/// Call that has the value.
pub(super) struct Call<'c> {
    pub(super) tools: &'c Tools,
    /// Name of the function.
    pub(super) name: &'c str,
    /// Keys that the call has had so far, the value's own included.
    pub(super) given: &'c HashSet<String>,
    /// Returns true if a text is a complete value that no tag can continue.
    pub(super) is_value: &'c dyn Fn(&str) -> bool,
}

/// Search for the end of one value.
#[derive(Debug)]
pub(super) struct ValueEnd {
    form: &'static TaggedForm,
    /// Markers by [`CLOSE`], [`KEY`], [`END`] and [`NAME_START`], then those that follow calls.
    markers: Markers,
    /// True if the call is inside a section, which then has an end.
    in_section: bool,
    /// Number of calls that the value quotes and that have not ended.
    calls: usize,
    /// Number of keys that the value quotes and whose values have not ended.
    keys: usize,
    /// True if a line break, or nothing, precedes the text of the next search.
    after_break: bool,
    /// Number of places that were checked, and the last of them.
    checked: (usize, Option<usize>),
}

/// Marker that closes the value.
const CLOSE: usize = 0;
/// Beginning of a key; empty if values contain such markers.
const KEY: usize = 1;
/// End of a call.
const END: usize = 2;
/// Beginning of a function's name.
const NAME_START: usize = 3;

/// Result of the search; the numbers are bytes of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Place at which the value ends, and length of the marker that closes it (0 if it is not closed).
    End { at: usize, length: usize },
    /// Bytes that are certain to belong to the value.
    More(usize),
}

/// Meaning of a marker in the value.
enum Meaning {
    Text,
    End,
    OpensKey,
    ClosesKey,
    OpensCall,
    /// Number of bytes of the markers that follow the quoted call.
    ClosesCall(usize),
}

impl ValueEnd {
    /// Creates the search. `close`: marker that closes the value. `in_section`: the call is inside a section.
    pub(super) fn new(form: &'static TaggedForm, close: &str, in_section: bool) -> Self {
        let key = match form.keys {
            Keys::Elements => "",
            Keys::Plain | Keys::Typed { .. } => form.key.0,
        };
        let all = [
            close.to_owned().into(),
            key.into(),
            form.end.into(),
            form.name.0.into(),
        ];
        let closes = form.closes.iter().map(|close| Cow::Borrowed(*close));
        Self {
            form,
            markers: Markers::new(all.into_iter().chain(closes)),
            in_section,
            calls: 0,
            keys: 0,
            after_break: true,
            checked: (0, None),
        }
    }

    /// Searches a text from byte `from` on. `last`: no more text follows. What precedes the returned place is
    /// remembered, so the next search begins there.
    pub(super) fn find(&mut self, text: &str, from: usize, last: bool, call: &Call<'_>) -> Found {
        let mut from = from;
        loop {
            let (at, marker) = match self.markers.find_from(text, from) {
                MarkerMatch::At { at, marker } => (at, marker),
                found => {
                    return self.more(text, if last { text.len() } else { found.before(text) });
                }
            };
            let Some(meaning) = self.meaning(text, at, marker, last, call) else {
                return self.more(text, at);
            };
            let length = self.markers.len(marker);
            from = at + length;
            match meaning {
                Meaning::Text => {}
                Meaning::End => {
                    let length = if marker == CLOSE { length } else { 0 };
                    return Found::End { at, length };
                }
                Meaning::OpensKey => self.keys += 1,
                Meaning::ClosesKey => self.keys = self.keys.saturating_sub(1),
                Meaning::OpensCall => self.calls += 1,
                Meaning::ClosesCall(read) => {
                    self.calls -= 1;
                    from += read;
                }
            }
        }
    }

    /// Returns the text without a marker that its end cuts, and without the white space before that.
    pub(super) fn before_cut_marker<'t>(&self, text: &'t str) -> &'t str {
        match self.markers.find_from(text, 0) {
            MarkerMatch::Partial(at) => text.get(..at).unwrap_or("").trim_end(),
            _ => text,
        }
    }

    fn more(&mut self, text: &str, upto: usize) -> Found {
        if let Some(last) = text.get(..upto).and_then(|read| read.chars().next_back()) {
            self.after_break = last == '\n';
        }
        Found::More(upto)
    }

    /// Returns the meaning of the marker at byte `at`; `None` if more text is needed.
    fn meaning(
        &mut self,
        text: &str,
        at: usize,
        marker: usize,
        last: bool,
        call: &Call<'_>,
    ) -> Option<Meaning> {
        let before = text.get(..at).unwrap_or("");
        let rest = text.get(at + self.markers.len(marker)..).unwrap_or("");
        let form = self.form;
        let look = Look { form, last };
        if marker == NAME_START {
            let name = look.call(rest)?;
            return Some(name.map_or(Meaning::Text, |_| Meaning::OpensCall));
        }
        if self.calls > 0 {
            return Some(match marker {
                END => Meaning::ClosesCall(look.closes(rest)?),
                CLOSE if look.ends(rest, call.tools)? => Meaning::End,
                _ => Meaning::Text,
            });
        }
        if self.is_complete(before, call) {
            return Some(Meaning::End);
        }
        match marker {
            CLOSE => self.after_close(&look, rest, call, true),
            KEY => {
                let is_line = before
                    .chars()
                    .next_back()
                    .map_or(self.after_break, |sign| sign == '\n');
                let Some((key, rest)) = look.key(rest)? else {
                    return Some(Meaning::Text);
                };
                let is_key = call.tools.may_have(call.name, key) && !call.given.contains(key);
                let is_next = if form.value.0.is_empty() {
                    is_line
                } else {
                    matches!(
                        look.next(rest, &[form.value.0, form.kind.0])?,
                        Next::Marker(..)
                    )
                };
                Some(if is_key && is_next {
                    Meaning::End
                } else {
                    Meaning::OpensKey
                })
            }
            _ => {
                let is_end = look.ends(text.get(at..).unwrap_or(""), call.tools)?;
                Some(if is_end { Meaning::End } else { Meaning::Text })
            }
        }
    }

    /// Returns the meaning of the marker that closes values, after which this text follows. `may_repeat`: the marker may
    /// come twice.
    fn after_close(
        &self,
        look: &Look,
        text: &str,
        call: &Call<'_>,
        may_repeat: bool,
    ) -> Option<Meaning> {
        let form = self.form;
        let TaggedForm {
            key, end, closes, ..
        } = *form;
        let close = 2 + closes.len();
        let again = match form.keys {
            Keys::Elements => "",
            Keys::Plain | Keys::Typed { .. } => form.value.1,
        };
        let is_end = match look.next(text, &[&[key.0, end], closes, &[again]].concat())? {
            Next::Marker(mark, rest) if mark == close => {
                return match may_repeat && self.keys == 0 {
                    true => self.after_close(look, rest, call, false),
                    false => Some(Meaning::ClosesKey),
                };
            }
            Next::Marker(0, rest) if self.keys > 0 => look
                .key(rest)?
                .is_some_and(|(key, _)| call.tools.may_have(call.name, key)),
            Next::Marker(1, rest) => {
                !self.in_section
                    || look.may_follow_call(rest)?
                    || look.is_last_end(rest, call.tools)?
            }
            Next::Marker(..) | Next::End => true,
            Next::Other => false,
        };
        Some(if is_end {
            Meaning::End
        } else {
            Meaning::ClosesKey
        })
    }

    /// Returns true if this text, with which the value begins, is all of it.
    fn is_complete(&mut self, text: &str, call: &Call<'_>) -> bool {
        let (count, last) = &mut self.checked;
        if *count >= MOST_CHECKED || *last == Some(text.len()) {
            return false;
        }
        *count += 1;
        *last = Some(text.len());
        (call.is_value)(text)
    }
}

/// Look at what follows a marker. Each answer is `None` if more text is needed.
struct Look {
    form: &'static TaggedForm,
    /// True if no more text follows.
    last: bool,
}

/// Text after white space.
enum Next<'t> {
    /// Marker, by its index, and the text after it.
    Marker(usize, &'t str),
    /// End of all text, also within a marker.
    End,
    Other,
}

impl Look {
    fn next<'t>(&self, text: &'t str, marks: &[&str]) -> Option<Next<'t>> {
        let begun = text.trim_start();
        if text.len() - begun.len() > BLANK {
            return Some(Next::Other);
        }
        let is_open = match match_start(begun, marks) {
            MarkerMatch::At { marker, .. } => {
                let length = marks.get(marker).map_or(0, |mark| mark.len());
                return Some(Next::Marker(marker, begun.get(length..).unwrap_or("")));
            }
            MarkerMatch::Partial(_) => true,
            MarkerMatch::Nowhere => begun.is_empty(),
        };
        match (is_open, self.last) {
            (true, false) => None,
            (true, true) => Some(Next::End),
            (false, _) => Some(Next::Other),
        }
    }

    /// Returns true if the text may follow a call in a section: another call, an end of any kind, or nothing.
    fn may_follow_call(&self, text: &str) -> Option<bool> {
        let TaggedForm {
            name,
            opens,
            closes,
            ..
        } = *self.form;
        if closes.is_empty() {
            return Some(true);
        }
        // Shorter marks are no tags.
        let other = MARKS.iter().copied().filter(|mark| mark.len() > 3);
        let marks = [&[name.0, "</think>"], opens, closes].concat();
        let marks: Vec<_> = marks.into_iter().chain(other).collect();
        Some(!matches!(self.next(text, &marks)?, Next::Other))
    }

    /// Returns true if no value ends in the text, which follows a call in a section, before the text ends or a call of
    /// a tool of the request begins.
    fn is_last_end(&self, text: &str, tools: &Tools) -> Option<bool> {
        let TaggedForm { name, value, .. } = *self.form;
        let looked = prefix(text, AHEAD);
        let end = looked.find(value.1);
        let before = looked.get(..end.unwrap_or(looked.len())).unwrap_or("");
        if let Some(at) = before.find(name.0) {
            let called = self.call(text.get(at + name.0.len()..).unwrap_or(""))?;
            if called.is_some_and(|name| tools.contains(name)) {
                return Some(true);
            }
        }
        if end.is_some() || looked.len() < text.len() {
            return Some(false);
        }
        self.last.then_some(true)
    }

    /// Returns true if the text is the end of a call with that of its section, and nothing or a call of a tool of the
    /// request follows.
    fn ends(&self, text: &str, tools: &Tools) -> Option<bool> {
        let TaggedForm {
            name,
            end,
            opens,
            closes,
            ..
        } = *self.form;
        let marks = [&[end], closes, opens, &[name.0]].concat();
        let mut rest = text;
        let mut has_ended = false;
        for _ in 0..marks.len() {
            match self.next(rest, &marks)? {
                Next::Marker(marker, after) if marker <= closes.len() => {
                    rest = after;
                    has_ended = true;
                }
                Next::Marker(..) if !has_ended => return Some(false),
                Next::Marker(marker, after) if marker + 1 < marks.len() => rest = after,
                Next::Marker(_, after) => {
                    return Some(self.call(after)?.is_some_and(|name| tools.contains(name)));
                }
                Next::End => return Some(true),
                Next::Other => return Some(false),
            }
        }
        Some(false)
    }

    /// Returns the bytes of the markers that follow a quoted call.
    fn closes(&self, text: &str) -> Option<usize> {
        let mut rest = text;
        for _ in self.form.closes {
            let Next::Marker(_, after) = self.next(rest, self.form.closes)? else {
                break;
            };
            rest = after;
        }
        Some(text.len() - rest.len())
    }

    /// Returns the name in the text, which follows the beginning of a name, if a key or the end of a call follows
    /// it.
    fn call<'t>(&self, text: &'t str) -> Option<Option<&'t str>> {
        let TaggedForm {
            name: (_, after),
            key,
            end,
            closes,
            ..
        } = *self.form;
        let looked = prefix(text, NAME);
        let more = || (self.last || looked.len() < text.len()).then_some(None);
        let after = after.trim();
        // A quoted name may be a placeholder: any text up to the marker after it, or to the end of its line.
        let ends = |sign: char| sign == '\n' || sign == '<' || after.starts_with(sign);
        let Some(length) = looked.find(ends) else {
            return more();
        };
        let (name, mut rest) = looked.split_at_checked(length).unwrap_or_default();
        let cut = Self {
            form: self.form,
            last: self.last || looked.len() < text.len(),
        };
        if !after.is_empty() {
            let Next::Marker(_, inner) = cut.next(rest, &[after])? else {
                return Some(None);
            };
            rest = inner;
        }
        let is_call = matches!(
            cut.next(rest, &[&[key.0, end], closes].concat())?,
            Next::Marker(..)
        );
        Some(Some(name.trim()).filter(|name| is_call && !name.is_empty()))
    }

    /// Returns the key in the text, which follows the beginning of a key, and what follows the key.
    fn key<'t>(&self, text: &'t str) -> Option<Option<(&'t str, &'t str)>> {
        let looked = prefix(text, NAME);
        let Some((said, _)) = looked.split_once(self.form.key.1) else {
            return (self.last || looked.len() < text.len()).then_some(None);
        };
        let rest = text.get(said.len() + self.form.key.1.len()..).unwrap_or("");
        let key = match self.form.keys {
            Keys::Typed { attribute, .. } => {
                said.split_once(attribute).map_or(said, |(key, _)| key)
            }
            Keys::Plain | Keys::Elements => said,
        };
        Some(Some((key.trim(), rest)))
    }
}
