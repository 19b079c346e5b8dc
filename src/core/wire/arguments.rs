//! Tracks the JSON text of a tool call's arguments across its pieces, to know when the value is complete.

use crate::json::Text;

/// State of an incremental JSON validator over one call's arguments. It detects that a value is complete, broken, or
/// followed by a second one.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    stage: ArgumentState,
    /// Objects and arrays that are open, outermost first.
    open: Vec<Nest>,
    /// True if a second value began after the first was complete.
    has_second: bool,
    /// True if the first value was followed by something that cannot begin a value.
    has_trailing_text: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nest {
    Object,
    Array,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ArgumentState {
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
    Number(ArgumentNumber),
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
enum ArgumentNumber {
    Minus,
    Zero,
    Digits,
    Dot,
    Fraction,
    E,
    ESign,
    Exponent,
}

impl ArgumentNumber {
    /// Returns true if the digits so far are a complete number.
    fn is_whole(self) -> bool {
        matches!(
            self,
            Self::Zero | Self::Digits | Self::Fraction | Self::Exponent
        )
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
        piece.each_ascii(|byte| {
            if self.stage != ArgumentState::Complete {
                self.step(byte);
                end = at + 1;
            } else if !self.has_second && !self.has_trailing_text && !is_space(byte) {
                self.has_second = byte.is_ascii_digit() || b"{[\"-tfn".contains(&byte);
                self.has_trailing_text = !self.has_second;
            }
            at += 1;
        });
        self.has_second.then_some(end)
    }

    /// Reads a text up to the end of the first object or array. Returns the number of bytes up to there; `None` if the
    /// text does not close it.
    pub(super) fn read_value(&mut self, text: &str) -> Option<usize> {
        let mut bytes = text.bytes().enumerate();
        bytes.find_map(|(at, byte)| {
            self.step(byte);
            self.is_closed().then_some(at + 1)
        })
    }

    /// Returns true if the text so far is one complete JSON value, followed by nothing but white space.
    pub(super) fn is_complete(&self) -> bool {
        match self.stage {
            ArgumentState::Complete | ArgumentState::Scalar => {
                !self.has_trailing_text && !self.has_second
            }
            ArgumentState::Number(number) => self.open.is_empty() && number.is_whole(),
            _ => false,
        }
    }

    /// Returns true if the first value is a complete object or array, which no further byte can extend.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == ArgumentState::Complete
    }

    /// Returns true if the text cannot become valid JSON any more.
    pub(super) fn is_broken(&self) -> bool {
        self.stage == ArgumentState::Broken || self.has_trailing_text
    }

    /// Returns true if there is nothing but white space.
    pub(super) fn is_absent(&self) -> bool {
        self.stage == ArgumentState::Value && self.open.is_empty()
    }

    /// Returns true if a value has begun that more text could complete.
    pub(super) fn is_open(&self) -> bool {
        let has_ended = matches!(
            self.stage,
            ArgumentState::Complete | ArgumentState::Scalar | ArgumentState::Broken
        );
        !has_ended && !self.is_absent() && !self.is_complete()
    }

    /// Forgets the second value, after the caller has dropped its text.
    pub(super) fn drop_second(&mut self) {
        self.has_second = false;
    }

    fn step(&mut self, byte: u8) {
        self.stage = match (self.stage, byte) {
            (ArgumentState::String(key), b'"') if key => ArgumentState::Colon,
            (ArgumentState::String(_), b'"') => self.after_value(ArgumentState::Scalar),
            (ArgumentState::String(key), b'\\') => ArgumentState::Escape(key),
            (ArgumentState::String(key), 0x20..) => ArgumentState::String(key),
            (ArgumentState::Escape(key), b'u') => ArgumentState::Unicode(key, 4),
            (
                ArgumentState::Escape(key),
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
            ) => ArgumentState::String(key),
            (ArgumentState::Unicode(key, left), byte) if byte.is_ascii_hexdigit() => match left {
                1 => ArgumentState::String(key),
                left => ArgumentState::Unicode(key, left - 1),
            },
            (ArgumentState::Word([next, rest @ ..]), byte) if *next == byte => match rest {
                [] => self.after_value(ArgumentState::Scalar),
                rest => ArgumentState::Word(rest),
            },
            (ArgumentState::Number(number), byte) => match number.step(byte) {
                Some(number) => ArgumentState::Number(number),
                None if number.is_whole() && self.open.is_empty() && is_space(byte) => {
                    ArgumentState::Scalar
                }
                None if number.is_whole() && !self.open.is_empty() => {
                    self.stage = ArgumentState::Next;
                    return self.step(byte);
                }
                None => ArgumentState::Broken,
            },
            (
                ArgumentState::String(_)
                | ArgumentState::Escape(_)
                | ArgumentState::Unicode(..)
                | ArgumentState::Word(_)
                | ArgumentState::Broken,
                _,
            ) => ArgumentState::Broken,
            (stage, byte) if is_space(byte) => stage,
            (ArgumentState::Value | ArgumentState::FirstElement, byte) if byte != b']' => {
                self.begin(byte)
            }
            (ArgumentState::FirstElement, _) => self.close(Nest::Array),
            (ArgumentState::FirstKey | ArgumentState::Key, b'"') => ArgumentState::String(true),
            (ArgumentState::Colon, b':') => ArgumentState::Value,
            (ArgumentState::Next, b',') => match self.open.last() {
                Some(Nest::Object) => ArgumentState::Key,
                _ => ArgumentState::Value,
            },
            (ArgumentState::FirstKey | ArgumentState::Next, b'}') => self.close(Nest::Object),
            (ArgumentState::Next, b']') => self.close(Nest::Array),
            _ => ArgumentState::Broken,
        };
    }

    fn begin(&mut self, byte: u8) -> ArgumentState {
        match byte {
            b'{' => {
                self.open.push(Nest::Object);
                ArgumentState::FirstKey
            }
            b'[' => {
                self.open.push(Nest::Array);
                ArgumentState::FirstElement
            }
            b'"' => ArgumentState::String(false),
            b'-' => ArgumentState::Number(ArgumentNumber::Minus),
            b'0' => ArgumentState::Number(ArgumentNumber::Zero),
            b'1'..=b'9' => ArgumentState::Number(ArgumentNumber::Digits),
            b't' => ArgumentState::Word(b"rue"),
            b'f' => ArgumentState::Word(b"alse"),
            b'n' => ArgumentState::Word(b"ull"),
            _ => ArgumentState::Broken,
        }
    }

    fn close(&mut self, nest: Nest) -> ArgumentState {
        match self.open.pop() {
            Some(open) if open == nest => self.after_value(ArgumentState::Complete),
            _ => ArgumentState::Broken,
        }
    }

    fn after_value(&self, alone: ArgumentState) -> ArgumentState {
        if self.open.is_empty() {
            alone
        } else {
            ArgumentState::Next
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completeness_and_repetition() {
        for (pieces, complete, cut) in [
            (
                &["{\\\"a\\\": [1, \\\"}\\\", {}, -1.5e3]", "}"][..],
                true,
                None,
            ),
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
            let found = pieces
                .iter()
                .map(|piece| arguments.read(&Text::json(piece)))
                .fold(None, Option::or);
            assert_eq!(
                (arguments.is_complete(), found),
                (complete && cut.is_none(), cut),
                "{pieces:?}"
            );
            arguments.drop_second();
            assert_eq!(arguments.is_complete(), complete, "{pieces:?}");
        }
    }

    /// Reads a text in one piece.
    fn read(text: &str) -> Arguments {
        let mut arguments = Arguments::default();
        arguments.read(&Text::plain(text));
        arguments
    }

    fn is_json(text: &str) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    }

    /// Every text of up to five of these tokens: the empty space between them is where grammars go wrong.
    #[test]
    fn agrees_with_a_parser() {
        const TOKENS: [&str; 16] = [
            "{", "}", "[", "]", ":", ",", "\"a\"", "\"", "\\u00e9", "0", "-1", ".5", "e+2", "tru",
            "e", " ",
        ];
        let mut texts = vec![String::new()];
        let mut from = 0;
        for _ in 0..4 {
            let to = texts.len();
            for at in from..to {
                let longer: Vec<_> = TOKENS
                    .iter()
                    .map(|token| texts[at].clone() + token)
                    .collect();
                texts.extend(longer);
            }
            from = to;
        }
        assert!(texts.len() > 60_000);
        for text in &texts {
            // One complete value may have the beginning of another one after it.
            let arguments = read(text);
            assert_eq!(arguments.is_complete(), is_json(text), "{text}");
            assert!(!(arguments.is_broken() && is_json(text)), "{text}");
            assert!(
                !arguments.is_closed()
                    || !arguments.is_complete()
                    || text.trim().ends_with(['}', ']']),
                "{text}"
            );
        }
    }

    #[test]
    fn single_texts_agree_with_a_parser() {
        for text in [
            "01",
            "-",
            "-0",
            "-01",
            "1.",
            "1e",
            "1e+",
            "1e-5",
            "1E5",
            "1.5.5",
            "\"\\u00gg\"",
            "\"\\u00G0\"",
            "\"\\ n\"",
            "\"\\n\"",
            "\"a\nb\"",
            "t rue",
            "trux",
            "nul",
            "null",
            "false",
            "[1,]",
            "[,]",
            "[1 2]",
            "{\"a\":}",
            "{\"a\":1,}",
            "{1:2}",
            "{\"a\":1,\"b\":[2,{}]}",
            "[1,\"a\":2]",
            "{\"a\":1,2}",
            "[\"a\",2]",
            "\"a\" \"b\"",
            "1 ",
            "[1.5 ]",
            "[- ]",
            "[1e ]",
        ] {
            assert_eq!(read(text).is_complete(), is_json(text), "{text}");
        }
    }

    #[test]
    fn ends_are_told_from_errors() {
        for (text, closed, broken) in [
            ("", false, false),
            ("{\"a\":1", false, false),
            ("{\"a\":1}", true, false),
            ("[]", true, false),
            ("12", false, false),
            ("\"a\"", false, false),
            ("{a", false, true),
            ("[1]]", true, true),
            ("tx", false, true),
        ] {
            let arguments = read(text);
            assert_eq!(
                (arguments.is_closed(), arguments.is_broken()),
                (closed, broken),
                "{text}"
            );
        }
    }
}
