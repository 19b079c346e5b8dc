//! JSON scanner: validates a text in one pass, and copies nothing.
//!
//! Takes: text. Gives: slices of it, typed by the reader ([`Read`]). Remembers: the position and the nesting depth.
//! Never: accepts more than RFC 8259 allows, or more than [`DEPTH`] levels.

use super::strings::Marks;
use super::{Raw, Text};
use std::borrow::Cow;
use std::fmt;

/// Limit on the levels of nesting in a text, which bounds the recursion.
const DEPTH: u32 = 128;
/// Least length of a string that [`LongStrings`] keeps, in bytes.
const LONG: usize = 1 << 9;

/// Type that can be read from JSON text.
///
/// The value is read in place, since the content of a chunk is too large to be returned by value from each level.
pub trait Read<'a>: Default {
    /// Reads the next value into `self`, which is in its [`Default`] state. Returns `None` if the text is not valid
    /// JSON at the scanner's position, or if the value has another type.
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()>;
}

/// Reads a whole text as one value.
///
/// # Errors
/// The text is not JSON, or its value is of another type.
pub fn read<'a, T: Read<'a>>(text: &'a str) -> Result<T, Invalid> {
    let mut value = T::default();
    read_into(text, &mut value).map(|()| value)
}

/// Reads a whole text into `value`, which is in its default state. Fails as [`read`] does.
pub(crate) fn read_into<'a, T: Read<'a>>(text: &'a str, value: &mut T) -> Result<(), Invalid> {
    Scanner::new(text).whole(value)
}

/// Scans one value of a text that has been read before with `pass`, which has to read it.
///
/// # Errors
/// `pass` returned `None`.
pub fn pass_part<'a>(
    part: &'a str,
    pass: impl FnOnce(&mut Scanner<'a>) -> Option<()>,
) -> Result<(), Invalid> {
    LongStrings::UNKNOWN.pass_part(part, pass)
}

/// Reads a whole text as [`read`] does, and checks besides that it has at most `levels` levels of nesting and no half of
/// a surrogate pair. Returns the value, and its long strings for later readers of its parts.
///
/// # Errors
/// The text is not JSON, its value is of another type, or it fails one of the checks.
pub fn read_strict<'a, T: Read<'a>>(
    text: &'a str,
    levels: u32,
) -> Result<(T, LongStrings), Invalid> {
    let mut value = T::default();
    let strings = Strings::Noted(LongStrings::default());
    let mut from = Scanner {
        most_levels: levels.min(DEPTH),
        strings,
        ..Scanner::new(text)
    };
    let read = value.read(&mut from);
    let strings = std::mem::take(&mut from.strings);
    from.finish(read)?;
    Ok((
        value,
        if let Strings::Noted(long) = strings {
            long
        } else {
            LongStrings::default()
        },
    ))
}

/// Long strings of a text that has been read once, by the addresses of their first bytes. Later readers of its parts step
/// over them.
#[derive(Debug, Default)]
pub struct LongStrings(Vec<LongString>);

#[derive(Debug)]
struct LongString {
    address: usize,
    length: usize,
}

impl LongStrings {
    /// Long strings of a text of which none are known.
    pub const UNKNOWN: &'static Self = &Self(Vec::new());

    /// Notes a string, given without its quotes, that comes after all those before.
    fn note(&mut self, body: &str) {
        if body.len() >= LONG {
            self.0.push(LongString {
                address: body.as_ptr() as usize,
                length: body.len(),
            });
        }
    }

    /// Returns the length of the long string with which `rest` begins; `None` if there is none.
    fn length_at(&self, rest: &str) -> Option<usize> {
        let address = rest.as_ptr() as usize;
        let at = self
            .0
            .binary_search_by_key(&address, |string| string.address)
            .ok()?;
        self.0.get(at).map(|string| string.length)
    }

    /// Reads one value of the text to which these strings belong. Strings that `T` does not look into cost hardly
    /// anything.
    ///
    /// # Errors
    /// The value is of another type.
    pub fn read_part<'a, T: Read<'a>>(&'a self, part: &'a str) -> Result<T, Invalid> {
        let mut value = T::default();
        self.scanner(part).whole(&mut value).map(|()| value)
    }

    /// Iterates over the elements of a list of this text, as [`elements`] does.
    pub fn elements<'a>(&'a self, list: &'a str) -> Option<Elements<'a>> {
        Elements::of(self.scanner(list))
    }

    /// Scans one value of this text, as [`pass_part`] does.
    ///
    /// # Errors
    /// `pass` returned `None`.
    pub fn pass_part<'a>(
        &'a self,
        part: &'a str,
        pass: impl FnOnce(&mut Scanner<'a>) -> Option<()>,
    ) -> Result<(), Invalid> {
        let mut from = self.scanner(part);
        let passed = pass(&mut from);
        from.finish(passed)
    }

    /// Returns a scanner of a part of this text.
    fn scanner<'a>(&'a self, part: &'a str) -> Scanner<'a> {
        Scanner {
            strings: Strings::Known(self),
            ..Scanner::new(part)
        }
    }
}

/// Reads a whole text like [`read_into`], but keeps unnamed null members in the [`Extras`](super::Extras).
pub(crate) fn read_with_null<'a, T: Read<'a>>(text: &'a str, value: &mut T) -> Result<(), Invalid> {
    Scanner {
        keeps_null: true,
        ..Scanner::new(text)
    }
    .whole(value)
}

/// Iterates over the elements of a list, each read on demand, so that a long list takes no memory. `list` must be part
/// of a text that has been read. Returns `None` if it is not a list.
pub fn elements(list: &str) -> Option<Elements<'_>> {
    LongStrings::UNKNOWN.elements(list)
}

/// Iterator over the elements of a list.
pub struct Elements<'a> {
    /// Scanner before the next element; `None` after the last.
    from: Option<Scanner<'a>>,
}

impl<'a> Elements<'a> {
    fn of(mut from: Scanner<'a>) -> Option<Self> {
        from.enter(b'[')?;
        let is_empty = from.peek()? == b']';
        Some(Self {
            from: (!is_empty).then_some(from),
        })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Raw<'a>> {
        let mut from = self.from.take()?;
        let element = from.read()?;
        if from.take(b',').is_some() {
            self.from = Some(from);
        }
        Some(element)
    }
}

/// Returns the raw value of a key, the first if it is repeated. `object` must be part of a text that has been read.
/// `None` if it is not a JSON object or lacks the key.
pub fn raw_member<'a>(object: &'a str, key: &str) -> Option<Raw<'a>> {
    let mut value = None;
    let of_object = |from: &mut Scanner<'a>| {
        from.each_member(|from, own| {
            let is_it = value.is_none() && own.name()? == key;
            let read = from.read()?;
            if is_it {
                value = Some(read);
            }
            Some(())
        })
    };
    pass_part(object, of_object).ok()?;
    value
}

/// Returns the start of `text` up to the quote that ends a JSON string, as spelled. The opening quote precedes
/// `text`. `None` if the string is invalid or has no end.
#[inline]
pub(crate) fn leading_text(text: &str) -> Option<&str> {
    Scanner::new(text).string_end().map(|(body, _)| body)
}

/// Parse error: line and column of the first byte that is not allowed, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    line: usize,
    column: usize,
}

impl Invalid {
    /// Computes line and column of a byte; at the end of the text those of the last byte.
    fn at(text: &str, at: usize) -> Self {
        let before = text
            .as_bytes()
            .get(..text.len().min(at + 1))
            .unwrap_or_default();
        let lines = memchr::memchr_iter(b'\n', before).count();
        let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
        Self {
            line: lines + 1,
            column,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Position in a JSON text. After a failure it is that of the byte that is not allowed.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    most_levels: u32,
    keeps_null: bool,
    strings: Strings<'a>,
}

/// Way in which strings are read.
#[derive(Debug, Default)]
enum Strings<'a> {
    /// With their escapes checked.
    #[default]
    Checked,
    /// As those, and without halves of surrogate pairs. Long ones are noted.
    Noted(LongStrings),
    /// To their end, which is all that matters of one in a text that is known to be JSON. Its long strings may be known.
    Known(&'a LongStrings),
}

/// Key of an object, as spelled. Escapes are resolved only if the reader needs the name.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    body: &'a str,
    escaped: bool,
}

impl<'a> Key<'a> {
    /// Returns the characters of the key; `None` if there is a lone surrogate among them.
    #[inline]
    pub fn name(self) -> Option<Cow<'a, str>> {
        if self.escaped {
            Text::json(self.body).characters()
        } else {
            Some(Cow::Borrowed(self.body))
        }
    }
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            most_levels: DEPTH,
            keeps_null: false,
            strings: Strings::Checked,
        }
    }

    fn whole<T: Read<'a>>(mut self, value: &mut T) -> Result<(), Invalid> {
        let read = value.read(&mut self);
        self.finish(read)
    }

    /// Fails if reading failed, or if anything but white space follows the value.
    fn finish(mut self, read: Option<()>) -> Result<(), Invalid> {
        match read {
            Some(()) if self.peek().is_none() => Ok(()),
            _ => Err(Invalid::at(self.text, self.at)),
        }
    }

    /// Returns true if a member that the reader does not name is to be kept.
    pub fn keeps_member(&self, member: Raw<'_>) -> bool {
        self.keeps_null || member.get() != "null"
    }

    /// Reads the next value.
    #[inline]
    pub fn read<T: Read<'a>>(&mut self) -> Option<T> {
        let mut value = T::default();
        value.read(self)?;
        Some(value)
    }

    /// Reads an object. Calls `see` for each key; it has to read the key's value.
    #[inline]
    pub fn each_member(
        &mut self,
        mut see: impl FnMut(&mut Self, Key<'a>) -> Option<()>,
    ) -> Option<()> {
        self.enter(b'{')?;
        if self.peek()? != b'}' {
            loop {
                let (body, escaped) = self.string()?;
                self.take(b':')?;
                see(self, Key { body, escaped })?;
                if self.peek()? != b',' {
                    break;
                }
                self.at += 1;
            }
        }
        self.leave(b'}')
    }

    /// Reads a list. Calls `see` for each element; it has to read the element.
    #[inline]
    pub fn each_element(&mut self, mut see: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.enter(b'[')?;
        if self.peek()? != b']' {
            loop {
                see(self)?;
                if self.peek()? != b',' {
                    break;
                }
                self.at += 1;
            }
        }
        self.leave(b']')
    }

    /// Skips white space and returns the next byte without consuming it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// Consumes `null` if it comes next. Returns true if it did.
    #[inline]
    pub(crate) fn null(&mut self) -> Option<bool> {
        if self.peek()? != b'n' {
            return Some(false);
        }
        self.word("null").map(|()| true)
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    #[inline]
    fn enter(&mut self, bracket: u8) -> Option<()> {
        if self.peek()? != bracket || self.depth == self.most_levels {
            return None;
        }
        self.depth += 1;
        self.at += 1;
        Some(())
    }

    #[inline]
    fn leave(&mut self, bracket: u8) -> Option<()> {
        self.depth -= 1;
        self.take(bracket)
    }

    /// Skips the next value of any type and validates it.
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.any_string().map(|_| ()),
            b'{' => self.each_member(|from, _| from.value()),
            b'[' => self.each_element(Self::value),
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        for byte in word.bytes() {
            if self.byte()? != byte {
                return None;
            }
            self.at += 1;
        }
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.byte()? == b'-' {
            self.at += 1;
        }
        match self.byte()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Skips digits; fails if there is none.
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// Reads a string. Returns the text between its quotes.
    #[inline]
    fn any_string(&mut self) -> Option<&'a str> {
        match &self.strings {
            Strings::Checked => self.string().map(|(body, _)| body),
            Strings::Noted(_) => self.noted_string(),
            Strings::Known(_) => self.known_string(),
        }
    }

    /// Reads a string, checking its escapes. Returns the text between its quotes, and true if it has escapes.
    #[inline]
    fn string(&mut self) -> Option<(&'a str, bool)> {
        self.take(b'"')?;
        self.string_end()
    }

    /// Reads a string after its opening quote; returns the same as [`Self::string`].
    #[inline]
    fn string_end(&mut self) -> Option<(&'a str, bool)> {
        let start = self.at;
        let mut marks = Marks::from(self.text.as_bytes(), start);
        let mut escaped = false;
        loop {
            self.at = marks.next(self.at);
            match self.byte()? {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => return None,
            }
            escaped = true;
        }
        let body = self.text.get(start..self.at)?;
        self.at += 1;
        Some((body, escaped))
    }

    /// Reads a string that may be long, and notes it if it is. Returns the text between its quotes.
    fn noted_string(&mut self) -> Option<&'a str> {
        let (body, _) = self.string()?;
        if let Strings::Noted(long) = &mut self.strings {
            long.note(body);
        }
        Some(body)
    }

    /// Reads a string of a text that is known to be JSON. Returns the text between its quotes.
    fn known_string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let start = self.at;
        if let Strings::Known(long) = self.strings
            && let Some(length) = long.length_at(self.text.get(start..)?)
        {
            self.at += length + 1;
            return self.text.get(start..start + length);
        }
        loop {
            let bytes = self.text.as_bytes();
            self.at += memchr::memchr(b'"', bytes.get(self.at..)?)?;
            let before = bytes.get(start..self.at)?.iter().rev();
            let is_escaped = before.take_while(|byte| **byte == b'\\').count() % 2 == 1;
            self.at += 1;
            if !is_escaped {
                return self.text.get(start..self.at - 1);
            }
        }
    }

    /// Reads an escape. Long prompts have many: a call for each is an eighth of what their request costs.
    #[inline(always)]
    fn escape(&mut self) -> Option<()> {
        let start = self.at;
        self.at += 1;
        match self.byte()? {
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte()?.is_ascii_hexdigit() {
                        return None;
                    }
                    self.at += 1;
                }
                if let Strings::Noted(_) = self.strings {
                    self.at = start;
                    self.at += self.unit_length()?;
                }
            }
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            _ => return None,
        }
        Some(())
    }

    /// Returns the length of the `\u` escape that comes next, or of the two that make up one character. `None` for half
    /// of a surrogate pair.
    fn unit_length(&self) -> Option<usize> {
        let unit = |from: usize| {
            let hex = self.text.get(from..from + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(hex, 16).ok()
        };
        match unit(self.at)? {
            0xd800..=0xdbff => matches!(unit(self.at + 6), Some(0xdc00..=0xdfff)).then_some(12),
            0xdc00..=0xdfff => None,
            _ => Some(6),
        }
    }
}

impl<'a> Read<'a> for Raw<'a> {
    #[inline]
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        from.peek()?;
        let start = from.at;
        from.value()?;
        *self = Self(from.text.get(start..from.at)?);
        Some(())
    }
}

impl<'a> Read<'a> for Text<'a> {
    #[inline]
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        *self = Self::json(from.any_string()?);
        Some(())
    }
}

/// Reads `null` as absent.
impl<'a, T: Read<'a>> Read<'a> for Option<T> {
    #[inline]
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        *self = None;
        if from.null()? {
            Some(())
        } else {
            self.get_or_insert_default().read(from)
        }
    }
}

impl<'a, T: Read<'a>> Read<'a> for Vec<T> {
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        from.each_element(|from| {
            self.push(from.read()?);
            Some(())
        })
    }
}

impl<'a> Read<'a> for u64 {
    #[inline]
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        *self = from.read::<Raw<'_>>()?.get().parse().ok()?;
        Some(())
    }
}

impl<'a> Read<'a> for u32 {
    #[inline]
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        *self = from.read::<u64>()?.try_into().ok()?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Members;
    use serde::de::IgnoredAny;
    use std::collections::HashMap;

    #[test]
    fn typed_values() {
        for text in [
            "0",
            "-0",
            "1.0",
            "1e2",
            "-1",
            "+1",
            "4294967295",
            "4294967296",
            "18446744073709551615",
            "18446744073709551616",
            "null",
            "\"1\"",
            "[]",
            " [1 , 2]",
            "[1,null]",
            "[-1]",
            "{}",
            "true",
            "1 2",
            "",
        ] {
            assert_eq!(
                read(text).ok(),
                serde_json::from_str::<Option<u64>>(text).ok(),
                "{text:?}"
            );
            assert_eq!(
                read(text).ok(),
                serde_json::from_str::<u32>(text).ok(),
                "{text:?}"
            );
            assert_eq!(
                read(text).ok(),
                serde_json::from_str::<Vec<u32>>(text).ok(),
                "{text:?}"
            );
            assert_eq!(
                read(text).ok(),
                serde_json::from_str::<Vec<Option<u64>>>(text).ok(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn levels_are_counted() {
        let nested = |levels: usize| {
            format!(
                "{}{}",
                "[{\"a\":".repeat(levels / 2),
                "}]".repeat(levels / 2)
            )
        };
        let filled = |levels| nested(levels).replacen(":}", ":[]}", 1);
        assert!(Raw::of(&filled(126)).is_some());
        assert!(Raw::of(&filled(128)).is_none());
        assert!(Raw::of(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_some());
        assert!(Raw::of(&format!("{}{}", "[".repeat(129), "]".repeat(129))).is_none());
        assert!(Raw::of(&"[".repeat(1_000_000)).is_none());
        // Sibling lists do not add up to nesting.
        assert!(Raw::of(&format!("[{}[]]", "[],".repeat(1000))).is_some());
    }

    /// Strings of every length end at the first quote that is not escaped, wherever words and blocks begin.
    #[test]
    fn strings_end_where_they_should() {
        for length in (0..200).chain(500..520) {
            for special in [
                "", "\\\"", "\\\\", "\\n", "\\u00e9", "\\x", "\\u12", "\n", "\u{1}", "é", "\"",
            ] {
                for after in [
                    "",
                    "a",
                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                ] {
                    let text = format!("[\"{}{special}{after}\",1]", "a".repeat(length));
                    let expected = serde_json::from_str::<Vec<IgnoredAny>>(&text).is_ok();
                    assert_eq!(read::<Vec<Raw<'_>>>(&text).is_ok(), expected, "{text:?}");
                    let strict = read_strict::<Vec<Raw<'_>>>(&text, DEPTH);
                    assert_eq!(strict.is_ok(), expected, "{text:?}");
                    if expected {
                        let all = elements(&text).map(|all| all.map(Raw::get).collect::<Vec<_>>());
                        let slow: Vec<_> = read::<Vec<Raw<'_>>>(&text)
                            .unwrap()
                            .into_iter()
                            .map(Raw::get)
                            .collect();
                        assert_eq!(all.as_ref(), Some(&slow), "{text:?}");
                        let (read, strings) = strict.unwrap();
                        assert_eq!(
                            read.into_iter().map(Raw::get).collect::<Vec<_>>(),
                            slow,
                            "{text:?}"
                        );
                        let all = strings
                            .elements(&text)
                            .map(|all| all.map(Raw::get).collect::<Vec<_>>());
                        assert_eq!(all, Some(slow), "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn strict_reading_refuses_depth_and_halves_of_pairs() {
        let is_read = |text: &str, levels| read_strict::<Raw<'_>>(text, levels).is_ok();
        assert!(is_read("[[1]]", 2) && !is_read("[[1]]", 1) && !is_read(&"[".repeat(1000), 1000));
        for (text, expected) in [
            (r#""\ud83d\ude00""#, true),
            (r#""\ud83d""#, false),
            (r#""\ud83d\u0041""#, false),
            (r#""\ude00""#, false),
            (r#""\ud83d\ud83d\ude00""#, false),
            (r#""\\ud83d""#, true),
            (r#"{"\ud83d":1}"#, false),
            (r#""\u00e9\uffff""#, true),
        ] {
            assert_eq!(is_read(text, 9), expected, "{text}");
            assert!(Raw::of(text).is_some(), "{text}");
        }
    }

    #[test]
    fn failures_have_a_place() {
        for (text, place) in [
            ("", (1, 0)),
            ("{\"a\":", (1, 5)),
            ("{\"a\":}", (1, 6)),
            ("{\n \"a\": nul}", (2, 10)),
            ("{\n\n}x", (3, 2)),
            ("{\"a\" 1}", (1, 6)),
            ("{\"é\": ?}", (1, 8)),
        ] {
            let error = serde_json::from_str::<HashMap<String, IgnoredAny>>(text).unwrap_err();
            let (line, column) = place;
            assert_eq!(
                read::<Members<'_>>(text).unwrap_err(),
                Invalid { line, column },
                "{text:?}"
            );
            assert_eq!((error.line(), error.column()), place, "{text:?}");
        }
    }
}
