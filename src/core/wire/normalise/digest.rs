//! Hash of a JSON value that does not depend on how the value is spelled.
//!
//! Takes: the text of a value, in pieces. Gives: whether another text is the same value. Remembers: the hash, and
//! an unfinished number or escape. Never: the text.

use crate::json::Text;
use std::fmt::Write as _;

/// Bytes of a number that are buffered, so that it can be hashed by its value. Characters after them are hashed as
/// they are.
const LONGEST_NUMBER: usize = 24;
/// Parameters of FNV-1a. Collisions are no risk: an engine that wanted two texts to count as equal could as well
/// send the first again.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// Hash of a JSON text that is read in pieces. White space between tokens, escapes in strings, and zeros and
/// exponents of numbers do not affect it; the order of members does, since engines that send arguments again keep
/// it.
#[derive(Clone, Debug)]
pub(super) struct Digest {
    hash: u64,
    /// Characters of the text so far.
    length: usize,
    place: DigestPlace,
    number: DigestNumber,
    /// First half of a surrogate pair.
    high: Option<u16>,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            hash: BASIS,
            length: 0,
            place: DigestPlace::default(),
            number: DigestNumber::default(),
            high: None,
        }
    }
}

/// Position in the JSON text, as far as the spelling depends on it.
#[derive(Clone, Copy, Debug, Default)]
enum DigestPlace {
    #[default]
    Outside,
    String,
    Escape,
    /// After `\u`: the number of digits so far, and their value.
    Unicode(u8, u32),
}

/// Number that may continue with the next character.
#[derive(Clone, Copy, Debug)]
struct DigestNumber {
    bytes: [u8; LONGEST_NUMBER],
    length: u8,
}

impl Default for DigestNumber {
    fn default() -> Self {
        Self {
            bytes: [0; LONGEST_NUMBER],
            length: 0,
        }
    }
}

impl Digest {
    /// Reads a piece of the text.
    pub(super) fn read(&mut self, piece: &Text<'_>) {
        piece.each_character(|character| self.step(character));
    }

    /// Returns the number of characters of the text so far.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Returns true if both texts have the same value.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let value = |digest: &Self| {
            let mut digest = digest.clone();
            digest.end_number();
            digest.hash
        };
        value(self) == value(other)
    }

    fn step(&mut self, character: char) {
        self.length += 1;
        match self.place {
            DigestPlace::Outside => self.outside(character),
            DigestPlace::String => match character {
                '"' => {
                    self.end_pair();
                    self.mark(0);
                    self.place = DigestPlace::Outside;
                }
                '\\' => self.place = DigestPlace::Escape,
                character => self.add_character(character),
            },
            DigestPlace::Escape => {
                self.place = DigestPlace::String;
                match character {
                    'u' => self.place = DigestPlace::Unicode(0, 0),
                    'n' => self.add_character('\n'),
                    't' => self.add_character('\t'),
                    'r' => self.add_character('\r'),
                    'b' => self.add_character('\u{8}'),
                    'f' => self.add_character('\u{c}'),
                    other => self.add_character(other),
                }
            }
            DigestPlace::Unicode(count, code) => {
                let code = code << 4 | character.to_digit(16).unwrap_or(0);
                self.place = if count == 3 {
                    DigestPlace::String
                } else {
                    DigestPlace::Unicode(count + 1, code)
                };
                if count == 3 {
                    self.unit(code);
                }
            }
        }
    }

    fn outside(&mut self, character: char) {
        let goes_on = self.number.length > 0 && matches!(character, '+' | '.' | 'e' | 'E');
        if goes_on || character == '-' || character.is_ascii_digit() {
            return self.number(character);
        }
        self.end_number();
        match character {
            ' ' | '\t' | '\r' | '\n' => {}
            '"' => {
                self.mark(1);
                self.place = DigestPlace::String;
            }
            other => self.add(u32::from(other)),
        }
    }

    /// Hashes a character of a string.
    fn add_character(&mut self, character: char) {
        self.end_pair();
        self.add(u32::from(character));
    }

    /// Hashes a UTF-16 code unit from an escape; halves of a surrogate pair are joined.
    fn unit(&mut self, code: u32) {
        match (self.high, code) {
            (Some(high), 0xdc00..0xe000) => {
                self.high = None;
                self.add(0x10000 + ((u32::from(high) - 0xd800) << 10) + (code - 0xdc00));
            }
            (_, 0xd800..0xdc00) => {
                self.end_pair();
                self.high = u16::try_from(code).ok();
            }
            _ => {
                self.end_pair();
                self.add(u32::from(
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                ));
            }
        }
    }

    fn end_pair(&mut self) {
        if self.high.take().is_some() {
            self.add(u32::from(char::REPLACEMENT_CHARACTER));
        }
    }

    fn number(&mut self, character: char) {
        let DigestNumber { bytes, length } = &mut self.number;
        match (bytes.get_mut(usize::from(*length)), u8::try_from(character)) {
            (Some(place), Ok(byte)) => {
                *place = byte;
                *length += 1;
            }
            _ => self.add(u32::from(character)),
        }
    }

    /// Hashes a number that has ended: whole numbers as they are spelled, others by their value.
    fn end_number(&mut self) {
        let DigestNumber { bytes, length } = std::mem::take(&mut self.number);
        let text = bytes
            .get(..length.into())
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default();
        if text.is_empty() {
            return;
        }
        self.mark(2);
        let value = text
            .parse::<f64>()
            .ok()
            .filter(|_| text.contains(['.', 'e', 'E']));
        match value {
            // A float without a fraction is printed like a whole number.
            Some(value) => _ = write!(HashWriter(self), "{value}"),
            None => text
                .chars()
                .for_each(|character| self.add(u32::from(character))),
        }
    }

    /// Hashes a token boundary, as a code above those of all characters: 0 the end of a string, 1 its start, 2 a
    /// number.
    fn mark(&mut self, what: u32) {
        self.add(0x0011_0000 + what);
    }

    fn add(&mut self, code: u32) {
        for byte in code.to_le_bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
}

/// Writer that hashes the text formatted into it.
struct HashWriter<'d>(&'d mut Digest);

impl std::fmt::Write for HashWriter<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        text.chars()
            .for_each(|character| self.0.add(u32::from(character)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str, size: usize) -> Digest {
        let mut digest = Digest::default();
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks(size) {
            let piece: String = piece.iter().collect();
            digest.read(&Text::plain(&piece));
        }
        digest
    }

    #[test]
    fn values_and_not_spellings_count() {
        for (one, other, expected) in [
            (
                r#"{"a":[true,null,""]}"#,
                " { \"a\" : [ true , null , \"\" ] } ",
                true,
            ),
            (r#"{"a":"\u00e9\/\n"}"#, "{\"a\":\"é/\\n\"}", true),
            (r#"["\ud83d\ude00"]"#, r#"["😀"]"#, true),
            (r#"["\ud83d"]"#, r#"["\ud83e"]"#, true),
            (r#"["\ud83d"]"#, r#"[""]"#, false),
            (r#"["\ud83da"]"#, r#"["a"]"#, false),
            (r#"{"a":2.50}"#, r#"{"a":2.5}"#, true),
            (r#"{"a":1.0,"b":1e2}"#, r#"{"a":1,"b":100.0}"#, true),
            ("[9007199254740993]", "[9007199254740992]", false),
            ("[12]", "[1,2]", false),
            ("[1]", r#"["1"]"#, false),
            (r#"["a","b"]"#, r#"["a\",\"b"]"#, false),
            (r#"{"a":" b"}"#, r#"{"a":"b"}"#, false),
            (r#"{"a":1}"#, r#"{"a":2}"#, false),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#, false),
        ] {
            for size in [1, 2, 100] {
                assert_eq!(
                    digest(one, size).is_same(&digest(other, 100)),
                    expected,
                    "{one} {other} {size}"
                );
            }
        }
    }
}
