//! End of a JSON value in text that may be cut anywhere. The value is not validated: brackets and quotes alone
//! decide where it ends.

use super::super::marker::{MarkerMatch, Markers};
use super::super::{Emit, Piece};
use super::Step;
use crate::json::{self, Text};

const NULL: &str = "null";
/// Arguments of a call that has none.
const NONE: &str = "{}";

/// Scanner state within one value.
#[derive(Debug, Default)]
pub(super) struct Value {
    begun: bool,
    /// True if the value is a number or a word, which ends before the next delimiter.
    bare: bool,
    depth: u32,
    string: bool,
    escaped: bool,
}

/// Result of scanning for the end of a value; the numbers are bytes of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes that belong to the value, which continues.
    Some(usize),
    /// Bytes that belong to the value, which is complete.
    All(usize),
}

impl Value {
    /// Creates the scanner for objects or lists of which `depth` opening brackets have already been read.
    pub(super) fn opened(depth: u32) -> Self {
        Self {
            begun: true,
            depth,
            ..Self::default()
        }
    }

    /// Scans the next text. A marker of `stops` outside of a string ends a value that does not end by itself.
    pub(super) fn read(&mut self, text: &str, stops: &Markers) -> Part {
        for (at, byte) in text.bytes().enumerate() {
            if !self.string {
                match stops.at_boundary(text, at) {
                    Some(MarkerMatch::At { .. }) => return Part::All(at),
                    Some(MarkerMatch::Partial(_)) => return Part::Some(at),
                    _ => {}
                }
            }
            if let Some(length) = self.byte(byte) {
                return Part::All(at + length);
            }
        }
        Part::Some(text.len())
    }

    /// Scans one byte. If the value ends at or before it, returns how many bytes (1 or 0) still belong to the value.
    fn byte(&mut self, byte: u8) -> Option<usize> {
        if self.string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.string = false;
                    return (self.depth == 0).then_some(1);
                }
                _ => {}
            }
            return None;
        }
        match byte {
            b'}' | b']' if self.depth == 0 => return Some(0),
            b'}' | b']' => {
                self.depth -= 1;
                return (self.depth == 0).then_some(1);
            }
            b',' if self.depth == 0 => return Some(0),
            b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => return self.bare.then_some(0),
            _ if self.bare && self.depth == 0 => {}
            b'{' | b'[' => self.depth += 1,
            b'"' => self.string = true,
            _ if self.depth == 0 => self.bare = true,
            _ => {}
        }
        self.begun = true;
        None
    }

    /// Returns true if any byte of the value has been scanned, leading white space aside.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }
}

/// Returns the length in bytes of the value that a text begins with; `None` if the value does not end within the
/// text.
pub(super) fn value_length(text: &str) -> Option<usize> {
    match Value::default().read(text, &Markers::default()) {
        Part::All(length) => Some(length),
        Part::Some(_) => None,
    }
}

/// Parser for the arguments of a call, emitted as they arrive. A JSON string is replaced by its contents; `null` and
/// a blank string mean no arguments.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    value: Value,
    /// Arguments in a JSON string, which is kept back until it is complete; `None` if they are no string.
    quoted: Option<QuotedArguments>,
    said: bool,
}

/// JSON string that is kept back: its text comes again with each read, and is scanned once.
#[derive(Debug)]
struct QuotedArguments {
    value: Value,
    /// White space before the string, in bytes.
    blank: usize,
    /// Bytes that have been scanned, the white space included.
    scanned: usize,
}

impl Arguments {
    /// Parses the next text and emits arguments. `stops`: markers that end a value that does not end by itself.
    pub(super) fn read(&mut self, text: &str, stops: &Markers, emit: Emit<'_>) -> Part {
        if self.quoted.is_some() {
            return self.read_quoted(text, emit);
        }
        let begun = text.trim_start();
        let blank = if self.value.has_begun() {
            0
        } else {
            text.len() - begun.len()
        };
        let rest = text.get(blank..).unwrap_or("");
        if !self.value.has_begun() && rest.starts_with('"') {
            self.quoted = Some(QuotedArguments {
                value: Value::default(),
                blank,
                scanned: blank,
            });
            return self.read_quoted(text, emit);
        }
        // `null` means no arguments; text that may still become `null` is kept back.
        if !self.value.has_begun() && !rest.is_empty() && NULL.starts_with(rest) && rest != NULL {
            return Part::Some(0);
        }
        if !self.value.has_begun() && rest.starts_with(NULL) {
            self.say(NONE, emit);
            return Part::All(blank + NULL.len());
        }
        let part = self.value.read(rest, stops);
        let (Part::Some(length) | Part::All(length)) = part;
        self.say(rest.get(..length).unwrap_or(""), emit);
        match part {
            Part::Some(length) => Part::Some(blank + length),
            Part::All(length) => Part::All(blank + length),
        }
    }

    /// Parses a text that begins with the string, all of which is read at once when it is complete: no part of it is
    /// emitted before.
    fn read_quoted(&mut self, text: &str, emit: Emit<'_>) -> Part {
        let Some(QuotedArguments {
            value,
            blank,
            scanned,
        }) = &mut self.quoted
        else {
            return Part::Some(0);
        };
        let end = match value.read(text.get(*scanned..).unwrap_or(""), &Markers::default()) {
            Part::All(length) => *scanned + length,
            Part::Some(length) => {
                *scanned += length;
                return Part::Some(0);
            }
        };
        let quoted = text.get(*blank..end).unwrap_or("");
        let said =
            json::read::<Text<'_>>(quoted).map_or_else(|_| quoted.into(), |text| text.decoded());
        self.say(if said.trim().is_empty() { NONE } else { &said }, emit);
        Part::All(end)
    }

    /// Parses the next text and emits arguments. Returns the bytes read if they are complete, else the step with which
    /// the parsing stops. `last`: no more text follows, so a rest that it cuts off is emitted, unless the rest is the
    /// beginning of a marker.
    pub(super) fn step(
        &mut self,
        text: &str,
        stops: &Markers,
        last: bool,
        emit: Emit<'_>,
    ) -> Result<usize, Step> {
        match self.read(text, stops, &mut *emit) {
            Part::All(read) => Ok(read),
            Part::Some(read) if last => {
                let rest = text.get(read..).unwrap_or("");
                if !matches!(stops.match_at_start(rest), MarkerMatch::Partial(_)) {
                    self.say(rest, emit);
                }
                Err(Step::Done(text.len()))
            }
            Part::Some(read) => Err(Step::More(read)),
        }
    }

    fn say(&mut self, text: &str, emit: Emit<'_>) {
        if !text.is_empty() {
            self.said = true;
            emit(Piece::Arguments(text));
        }
    }

    /// Returns true if any arguments have been emitted.
    pub(super) fn has_emitted(&self) -> bool {
        self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_end_where_they_end_however_they_are_cut() {
        for (text, length) in [
            (r#"{"a":{"b":[1,"}"]}} rest"#, 19),
            (r#""a\"}" , 1"#, 6),
            ("12, 3", 2),
            ("null}", 4),
            (" \n true ", 7),
            (r#"["\\"]"#, 6),
        ] {
            assert_eq!(value_length(text), Some(length), "{text}");
            for cut in 0..length {
                let (mut value, stops) = (Value::default(), Markers::default());
                let (before, after) = text.split_at(cut);
                assert_eq!(value.read(before, &stops), Part::Some(cut), "{text} {cut}");
                assert_eq!(
                    value.read(after, &stops),
                    Part::All(length - cut),
                    "{text} {cut}"
                );
            }
        }
        assert_eq!(value_length(r#"{"a":"}"#), None);
    }

    #[test]
    fn what_never_ends_is_stopped() {
        let stops = Markers::new(["</t>"]);
        let mut value = Value::default();
        assert_eq!(
            value.read(r#"{"a":"</t>","b":[1</"#, &stops),
            Part::Some(18)
        );
        assert_eq!(value.read("</t>", &stops), Part::All(0));
    }

    #[test]
    fn words_contain_brackets_and_quotes() {
        for (text, length) in [("12{,", 3), ("a\"b,", 3), ("x[1],", 3)] {
            assert_eq!(value_length(text), Some(length), "{text}");
        }
    }

    #[test]
    fn arguments_in_each_spelling() {
        // Pieces of text; the arguments emitted, and what the last piece gave.
        for (pieces, expected, last) in [
            (&[r#" {"a": 1} x"#][..], r#"{"a": 1}"#, Part::All(9)),
            (&["  null x"], "{}", Part::All(6)),
            (&["nu"], "", Part::Some(0)),
            (&["", "nul"], "", Part::Some(0)),
            (&[""], "", Part::Some(0)),
            (&["  \"{\\\"a\\\":1}\" x"], "{\"a\":1}", Part::All(13)),
            (&[" \" \" x"], "{}", Part::All(4)),
            (&["\"{"], "", Part::Some(0)),
            (&["12 "], "12", Part::All(2)),
            (&[r#"{"a":"#, "null}"], r#"{"a":null}"#, Part::All(5)),
        ] {
            let (mut arguments, mut said) = (Arguments::default(), String::new());
            let mut found = Part::Some(0);
            for piece in pieces {
                found = arguments.read(piece, &Markers::default(), &mut |piece| {
                    let Piece::Arguments(text) = piece else {
                        panic!("arguments alone")
                    };
                    said.push_str(text);
                });
            }
            assert_eq!((said.as_str(), found), (expected, last), "{pieces:?}");
            assert_eq!(arguments.has_emitted(), !expected.is_empty(), "{pieces:?}");
        }
    }

    /// A string is kept back, so its text comes again with each read.
    #[test]
    fn a_string_is_read_however_it_is_cut() {
        let text = r#"  "{\"a\":\"\u00e9 é\"}"  x"#;
        let complete = text.len() - "  x".len();
        for step in 1..text.len() {
            let (mut arguments, mut said, mut found) =
                (Arguments::default(), String::new(), Part::Some(0));
            let ends = (3..complete)
                .step_by(step)
                .filter(|end| text.is_char_boundary(*end));
            for end in ends.chain([text.len()]) {
                assert_eq!((said.as_str(), found), ("", Part::Some(0)), "{step} {end}");
                found = arguments.read(&text[..end], &Markers::default(), &mut |piece| {
                    let Piece::Arguments(text) = piece else {
                        panic!("arguments alone")
                    };
                    said.push_str(text);
                });
            }
            assert_eq!(
                (said.as_str(), found),
                (r#"{"a":"é é"}"#, Part::All(complete)),
                "{step}"
            );
        }
    }

    #[test]
    fn what_the_end_cuts_off_is_emitted() {
        for (last, expected, step) in [(true, "\"{", Step::Done(2)), (false, "", Step::More(0))] {
            let mut said = String::new();
            let found = Arguments::default().step("\"{", &Markers::default(), last, &mut |piece| {
                let Piece::Arguments(text) = piece else {
                    panic!("arguments alone")
                };
                said.push_str(text);
            });
            assert_eq!(
                (said.as_str(), found),
                (expected, Err(step)),
                "last: {last}"
            );
        }
    }
}
