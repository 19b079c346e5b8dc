//! Tracks the JSON text of a tool call's arguments across its pieces, to know when the value is complete.

use crate::json::Text;

/// State of an incremental JSON validator over one call's arguments. It detects that a value is complete, broken, or
/// followed by a second one.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    stage: Stage,
    /// Objects and arrays that are open, outermost first.
    open: Vec<Nest>,
    /// True if a second value began after the first was complete.
    has_second: bool,
    /// True if the first value was followed by something that cannot begin a value.
    spoiled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nest {
    Object,
    Array,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Before a value, at the start or after a colon or comma.
    #[default]
    Value,
    /// After `[`: a value or the end of the array.
    FirstElement,
    /// After `{`: a key or the end of the object.
    FirstKey,
    /// After a comma in an object, before the next key.
    Key,
    /// After a key, before its colon.
    Colon,
    /// After a value inside an object or array: a comma or the end.
    Next,
    /// Inside a string; true: the string is a key.
    String(bool),
    /// After a backslash; true: the string is a key.
    Escape(bool),
    /// Inside `\u`: whether the string is a key, and the number of digits missing.
    Unicode(bool, u8),
    Number(Number),
    /// Remaining bytes of `true`, `false` or `null`.
    Word(&'static [u8]),
    /// End: one complete object or array, which no further byte can extend.
    Complete,
    /// End: one complete string, word or number.
    Scalar,
    /// Error: the text cannot be JSON any more.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Dot,
    Fraction,
    E,
    ESign,
    Exponent,
}

impl Number {
    /// Returns true if the digits so far are a complete number.
    fn is_whole(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::Exponent)
    }

    fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::Zero | Self::Digits, b'.') => Self::Dot,
            (Self::Dot | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Self::E,
            (Self::E, b'+' | b'-') => Self::ESign,
            (Self::E | Self::ESign | Self::Exponent, b'0'..=b'9') => Self::Exponent,
            _ => return None,
        })
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

impl Arguments {
    /// Reads a piece. If a second value has begun, returns the number of this piece's characters that belong to the
    /// first value.
    pub(super) fn read(&mut self, piece: &Text<'_>) -> Option<usize> {
        let (mut at, mut end) = (0, 0);
        let mut passes = false;
        piece.each_ascii(|byte| {
            if self.stage != Stage::Complete {
                self.step(byte);
                end = at + 1;
            } else if !self.has_second && !passes && !is_space(byte) {
                self.has_second = byte.is_ascii_digit() || b"{[\"-tfn".contains(&byte);
                passes = !self.has_second;
                self.spoiled |= passes;
            }
            at += 1;
        });
        self.has_second.then_some(end)
    }

    /// Returns true if the text so far is one complete JSON value, followed by nothing but white space.
    pub(super) fn is_complete(&self) -> bool {
        match self.stage {
            Stage::Complete | Stage::Scalar => !self.spoiled && !self.has_second,
            Stage::Number(number) => self.open.is_empty() && number.is_whole(),
            _ => false,
        }
    }

    /// Returns true if the first value is a complete object or array, which no further byte can extend.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == Stage::Complete
    }

    /// Returns true if the text cannot become valid JSON any more.
    pub(super) fn is_broken(&self) -> bool {
        self.stage == Stage::Broken || self.spoiled
    }

    /// Forgets the second value, after the caller has dropped its text.
    pub(super) fn drop_second(&mut self) {
        self.has_second = false;
    }

    fn step(&mut self, byte: u8) {
        self.stage = match (self.stage, byte) {
            (Stage::String(key), b'"') if key => Stage::Colon,
            (Stage::String(_), b'"') => self.after_value(Stage::Scalar),
            (Stage::String(key), b'\\') => Stage::Escape(key),
            (Stage::String(key), 0x20..) => Stage::String(key),
            (Stage::Escape(key), b'u') => Stage::Unicode(key, 4),
            (Stage::Escape(key), b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                Stage::String(key)
            }
            (Stage::Unicode(key, left), byte) if byte.is_ascii_hexdigit() => match left {
                1 => Stage::String(key),
                left => Stage::Unicode(key, left - 1),
            },
            (Stage::Word([next, rest @ ..]), byte) if *next == byte => match rest {
                [] => self.after_value(Stage::Scalar),
                rest => Stage::Word(rest),
            },
            (Stage::Number(number), byte) => match number.step(byte) {
                Some(number) => Stage::Number(number),
                None if number.is_whole() && self.open.is_empty() && is_space(byte) => Stage::Scalar,
                None if number.is_whole() && !self.open.is_empty() => {
                    self.stage = Stage::Next;
                    return self.step(byte);
                }
                None => Stage::Broken,
            },
            (
                Stage::String(_) | Stage::Escape(_) | Stage::Unicode(..) | Stage::Word(_) | Stage::Broken,
                _,
            ) => Stage::Broken,
            (stage, byte) if is_space(byte) => stage,
            (Stage::Value | Stage::FirstElement, byte) if byte != b']' => self.begin(byte),
            (Stage::FirstElement, _) => self.close(Nest::Array),
            (Stage::FirstKey | Stage::Key, b'"') => Stage::String(true),
            (Stage::Colon, b':') => Stage::Value,
            (Stage::Next, b',') => match self.open.last() {
                Some(Nest::Object) => Stage::Key,
                _ => Stage::Value,
            },
            (Stage::FirstKey | Stage::Next, b'}') => self.close(Nest::Object),
            (Stage::Next, b']') => self.close(Nest::Array),
            _ => Stage::Broken,
        };
    }

    fn begin(&mut self, byte: u8) -> Stage {
        match byte {
            b'{' => {
                self.open.push(Nest::Object);
                Stage::FirstKey
            }
            b'[' => {
                self.open.push(Nest::Array);
                Stage::FirstElement
            }
            b'"' => Stage::String(false),
            b'-' => Stage::Number(Number::Minus),
            b'0' => Stage::Number(Number::Zero),
            b'1'..=b'9' => Stage::Number(Number::Digits),
            b't' => Stage::Word(b"rue"),
            b'f' => Stage::Word(b"alse"),
            b'n' => Stage::Word(b"ull"),
            _ => Stage::Broken,
        }
    }

    fn close(&mut self, nest: Nest) -> Stage {
        match self.open.pop() {
            Some(open) if open == nest => self.after_value(Stage::Complete),
            _ => Stage::Broken,
        }
    }

    fn after_value(&self, alone: Stage) -> Stage {
        if self.open.is_empty() { alone } else { Stage::Next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completeness_and_repetition() {
        for (pieces, complete, cut) in [
            (&["{\\\"a\\\": [1, \\\"}\\\", {}, -1.5e3]", "}"][..], true, None),
            (&["{\\\"city\\\": \\\"Par"], false, None),
            (&[""], false, None),
            (&["  12 "], true, None),
            (&["nul"], false, None),
            (&["{a}"], false, None),
            (&["{\\\"k\\\": \\\"\\\\\\\"}\\\"}"], true, None),
            (&["{}", " \\n", "{\\\"a\\\""], true, Some(0)),
            (&["{} {}"], true, Some(2)),
            (&["{}", "}"], false, None),
            (&["{\\\"a\\\":1", "]"], false, None),
        ] {
            let mut arguments = Arguments::default();
            let found = pieces.iter().map(|piece| arguments.read(&Text::json(piece))).fold(None, Option::or);
            assert_eq!((arguments.is_complete(), found), (complete && cut.is_none(), cut), "{pieces:?}");
            arguments.drop_second();
            assert_eq!(arguments.is_complete(), complete, "{pieces:?}");
        }
    }

    #[test]
    fn agrees_with_a_parser() {
        for text in [
            "1",
            "01",
            "1.",
            "1.0",
            "-",
            "1e5",
            "1e",
            "\"a\\u00e9\"",
            "\"\\u00g\"",
            "[1,]",
            "[,]",
            "{\"a\":}",
            "[[]]",
            "{\"a\":1,}",
            "true",
            "tru",
            "{\"a\":1}",
            "[1 2]",
            "\"a\" \"b\"",
        ] {
            let mut arguments = Arguments::default();
            arguments.read(&Text::plain(text));
            let parsed = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            assert_eq!(arguments.is_complete(), parsed, "{text}");
        }
    }
}
