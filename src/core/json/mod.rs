//! JSON without a tree: borrowed text, raw values, objects with leftovers, and the writer.
//!
//! Takes: slices of one event. Gives: borrowed pieces and canonical bytes. Remembers: nothing.
//! Never: builds a tree, reorders keys, changes a number.

mod scan;
mod spelled;
mod strings;

use bytes::{BufMut, BytesMut};
pub use scan::{
    Elements, Invalid, Key, LongStrings, Read, Scanner, elements, pass_part, raw_member, read,
    read_strict,
};
pub(crate) use scan::{leading_text, read_into, read_with_null};
pub use spelled::places_of;
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::Range;
pub use strings::plain_run;

/// JSON value kept as its source text, which has been validated. It passes through unparsed, so that numbers and
/// key order stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// The value `null`.
    pub const NULL: Self = Self("null");

    /// Validates `text` as one JSON value; `None` if it is not valid JSON.
    pub fn of(text: &'a str) -> Option<Self> {
        read(text).ok()
    }

    /// Returns the source text, without white space around it.
    pub fn get(self) -> &'a str {
        self.0
    }

    /// Copies the value, so that it outlives its source.
    pub fn keep(self) -> Kept {
        Kept(self.0.into())
    }
}

impl Default for Raw<'_> {
    fn default() -> Self {
        Self::NULL
    }
}

impl fmt::Display for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Owned copy of a raw value, for values that are needed after their frame is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept(Box<str>);

impl Kept {
    /// Returns the value, borrowed.
    pub fn raw(&self) -> Raw<'_> {
        Raw(&self.0)
    }
}

/// String borrowed from its source, still in the source's spelling.
///
/// Most text of a stream needs no change between engine and client, so it is decoded only where code has to look
/// inside: [`Text::write`] translates one spelling into the canonical one without an allocation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text<'a> {
    body: &'a str,
    spelling: Spelling,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Spelling {
    /// Bytes between the quotes of a JSON string.
    Json,
    /// Plain characters.
    #[default]
    Plain,
}

impl<'a> Text<'a> {
    /// Wraps plain characters, without escapes.
    pub fn plain(body: &'a str) -> Self {
        Self {
            body,
            spelling: Spelling::Plain,
        }
    }

    /// Wraps the inside of a JSON string, with its escapes. The caller guarantees that it is valid.
    pub fn json(body: &'a str) -> Self {
        Self {
            body,
            spelling: Spelling::Json,
        }
    }

    /// Returns the text of a JSON string value; `None` if `raw` is not a string.
    pub fn of(raw: Raw<'a>) -> Option<Self> {
        let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
        Some(Self::json(inner))
    }

    /// Returns the byte range of the text in `data`; `None` if it is no slice of `data` or not in JSON spelling.
    pub(crate) fn place_in(&self, data: &[u8]) -> Option<Range<usize>> {
        let start = self
            .body
            .as_ptr()
            .addr()
            .checked_sub(data.as_ptr().addr())?;
        let place = start..start.checked_add(self.body.len())?;
        (self.spelling == Spelling::Json && place.end <= data.len()).then_some(place)
    }

    /// Returns the text in its source's spelling.
    pub fn spelled(&self) -> &'a str {
        self.body
    }

    /// Returns the length of the spelling in bytes.
    pub fn length(&self) -> usize {
        self.body.len()
    }

    /// Returns true if there are no characters.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Returns the characters. Borrowed unless an escape had to be resolved; a lone surrogate becomes U+FFFD.
    pub fn decoded(&self) -> Cow<'a, str> {
        if self.spelling == Spelling::Plain || memchr::memchr(b'\\', self.body.as_bytes()).is_none()
        {
            return Cow::Borrowed(self.body);
        }
        Cow::Owned(
            self.resolved(|character| character.or(Some(char::REPLACEMENT_CHARACTER)))
                .unwrap_or_default(),
        )
    }

    /// Returns the characters; `None` if there is a lone surrogate among them.
    pub fn characters(&self) -> Option<Cow<'a, str>> {
        self.resolved(|character| character).map(Cow::Owned)
    }

    /// Resolves every escape. `judge` gets its character, or `None` for a lone surrogate, and returns the one to
    /// use; if it returns `None`, so does this function.
    fn resolved(&self, judge: impl Fn(Option<char>) -> Option<char>) -> Option<String> {
        let mut text = String::with_capacity(self.body.len());
        let mut rest = self.body;
        while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
            let (before, escape) = rest.split_at(at);
            text.push_str(before);
            let (character, length) = resolve(escape);
            text.push(judge(character)?);
            rest = escape.get(length..).unwrap_or("");
        }
        text.push_str(rest);
        Some(text)
    }

    /// Appends the canonical spelling, without quotes (wire-format 1.5).
    pub fn write(&self, out: &mut BytesMut) {
        match self.spelling {
            Spelling::Json => respell(self.body, out),
            Spelling::Plain => escape(self.body, out),
        }
    }

    /// Calls `see` with each character; a lone surrogate becomes U+FFFD.
    pub(crate) fn each_character(&self, mut see: impl FnMut(char)) {
        let mut rest = self.body;
        while let Some(first) = rest.chars().next() {
            let (character, length) = match first {
                '\\' if self.spelling == Spelling::Json => unescape(rest),
                character => (character, character.len_utf8()),
            };
            see(character);
            rest = rest.get(length..).unwrap_or("");
        }
    }

    /// Calls `see` once for each character as a JSON scanner sees it: ASCII as itself, anything else as `0x80`.
    pub(crate) fn each_ascii(&self, mut see: impl FnMut(u8)) {
        let mut rest = self.body;
        while let Some(&byte) = rest.as_bytes().first() {
            let (seen, length) = match byte {
                b'\\' if self.spelling == Spelling::Json => {
                    let (character, length) = unescape(rest);
                    (
                        u8::try_from(character)
                            .ok()
                            .filter(u8::is_ascii)
                            .unwrap_or(0x80),
                        length,
                    )
                }
                0..=0x7f => (byte, 1),
                _ => (0x80, rest.chars().next().map_or(1, char::len_utf8)),
            };
            see(seen);
            rest = rest.get(length..).unwrap_or("");
        }
    }

    /// Returns the text from the `from`-th character on, counted as [`Text::each_ascii`] counts.
    pub(crate) fn skip_characters(&self, from: usize) -> Self {
        let mut rest = self.body;
        for _ in 0..from {
            if rest.is_empty() {
                break;
            }
            let length = match rest.as_bytes().first() {
                Some(b'\\') if self.spelling == Spelling::Json => unescape(rest).1,
                _ => rest.chars().next().map_or(0, char::len_utf8),
            };
            rest = rest.get(length..).unwrap_or("");
        }
        Self {
            body: rest,
            spelling: self.spelling,
        }
    }

    /// Returns the first `count` characters, counted as [`Text::each_ascii`] counts.
    pub(crate) fn first_characters(&self, count: usize) -> Self {
        let rest = self.skip_characters(count).body.len();
        Self {
            body: self.body.get(..self.body.len() - rest).unwrap_or(""),
            spelling: self.spelling,
        }
    }

    /// Appends the text in canonical JSON spelling to `piece`.
    pub(crate) fn append_to(&self, piece: &mut Vec<u8>) {
        let mut out = BytesMut::with_capacity(self.body.len());
        self.write(&mut out);
        piece.extend_from_slice(&out);
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.decoded() == other
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

/// Resolves the escape at the start of `text`. Returns the character, U+FFFD for a lone surrogate, and the bytes
/// read.
fn unescape(text: &str) -> (char, usize) {
    let (character, length) = resolve(text);
    (character.unwrap_or(char::REPLACEMENT_CHARACTER), length)
}

/// Resolves the escape at the start of `text`. Returns the character, `None` for a lone surrogate, and the bytes
/// read (both halves of a surrogate pair).
fn resolve(text: &str) -> (Option<char>, usize) {
    let bytes = text.as_bytes();
    let simple = |c| (Some(c), 2);
    match bytes.get(1) {
        Some(b'n') => simple('\n'),
        Some(b't') => simple('\t'),
        Some(b'r') => simple('\r'),
        Some(b'b') => simple('\u{8}'),
        Some(b'f') => simple('\u{c}'),
        Some(b'u') => {
            let high = code_unit(text.get(2..6));
            if (0xd800..0xdc00).contains(&high) && text.get(6..8) == Some("\\u") {
                let low = code_unit(text.get(8..12));
                if (0xdc00..0xe000).contains(&low) {
                    return (
                        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)),
                        12,
                    );
                }
            }
            (char::from_u32(high), 6)
        }
        Some(&other) if other.is_ascii() => simple(char::from(other)),
        _ => (None, 1),
    }
}

fn code_unit(hex: Option<&str>) -> u32 {
    hex.and_then(|hex| u32::from_str_radix(hex, 16).ok())
        .unwrap_or(0xd800)
}

/// Converts JSON spelling to canonical spelling: short escapes stay, others are resolved and escaped again only if
/// they must be.
fn respell(body: &str, out: &mut BytesMut) {
    let mut rest = body;
    // 0xc2 and 0xe2 lead U+0085 and U+2028/U+2029, which line splitters take for line ends.
    loop {
        let (before, special) = rest.split_at(plain_run(rest.as_bytes(), [b'\\', 0xc2, 0xe2], 0));
        out.extend_from_slice(before.as_bytes());
        let length = match special.as_bytes() {
            [] => return,
            [
                b'\\',
                short @ (b'"' | b'\\' | b'n' | b't' | b'r' | b'b' | b'f'),
                ..,
            ] => {
                out.extend_from_slice(&[b'\\', *short]);
                2
            }
            [b'\\', ..] => {
                let (character, length) = unescape(special);
                escape(character.encode_utf8(&mut [0; 4]), out);
                length
            }
            _ => {
                let length = special.chars().next().map_or(1, char::len_utf8);
                escape(special.get(..length).unwrap_or(""), out);
                length
            }
        };
        rest = special.get(length..).unwrap_or("");
    }
}

/// Converts plain characters to canonical spelling.
fn escape(text: &str, out: &mut BytesMut) {
    let mut rest = text;
    loop {
        // 0xc2 and 0xe2 lead U+0085 and U+2028/U+2029.
        let (plain, special) =
            rest.split_at(plain_run(rest.as_bytes(), [b'"', b'\\', 0xc2, 0xe2], 0x20));
        out.extend_from_slice(plain.as_bytes());
        let Some(character) = special.chars().next() else {
            return;
        };
        escape_one(character, out);
        rest = special.get(character.len_utf8()..).unwrap_or("");
    }
}

fn escape_one(character: char, out: &mut BytesMut) {
    let short: &[u8] = match character {
        '"' => b"\\\"",
        '\\' => b"\\\\",
        '\n' => b"\\n",
        '\r' => b"\\r",
        '\t' => b"\\t",
        '\u{8}' => b"\\b",
        '\u{c}' => b"\\f",
        '\u{85}' => b"\\u0085",
        '\u{2028}' => b"\\u2028",
        '\u{2029}' => b"\\u2029",
        '\0'..='\u{1f}' => {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
            return;
        }
        plain => return out.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
    };
    out.extend_from_slice(short);
}

/// Returns the string that is the value of `key`; `None` if `object` is not a JSON object, lacks the key or has
/// another type there.
pub fn member(object: &str, key: &str) -> Option<String> {
    raw_member(object, key)
        .and_then(Text::of)
        .map(|text| text.decoded().into_owned())
}

/// Appends `"text"`, quotes included.
pub fn write_string(text: &str, out: &mut BytesMut) {
    out.put_u8(b'"');
    escape(text, out);
    out.put_u8(b'"');
}

/// Returns `"text"` as [`write_string`] writes it.
pub fn quoted(text: &str) -> String {
    written(text.len() + 2, |out| write_string(text, out))
}

/// Returns the text as [`write_string`] writes it, without the quotes.
pub(crate) fn escaped(text: &str) -> String {
    written(text.len(), |out| escape(text, out))
}

fn written(capacity: usize, write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::with_capacity(capacity);
    write(&mut out);
    String::from_utf8(out.into()).unwrap_or_default()
}

/// Appends a raw value without the white space around its tokens; strings in canonical spelling, numbers unchanged.
pub fn write_compact(raw: &str, out: &mut BytesMut) {
    let mut rest = raw;
    while let Some(at) = rest.find(['"', ' ', '\n', '\t', '\r']) {
        let (before, special) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        if !special.starts_with('"') {
            rest = special.get(1..).unwrap_or("");
            continue;
        }
        let inner = special.get(1..).unwrap_or("");
        let end = string_end(inner);
        out.put_u8(b'"');
        respell(inner.get(..end).unwrap_or(inner), out);
        out.put_u8(b'"');
        rest = inner.get(end + 1..).unwrap_or("");
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Returns a raw value as [`write_compact`] writes it.
pub fn compacted(raw: Raw<'_>) -> String {
    written(raw.get().len(), |out| write_compact(raw.get(), out))
}

/// Returns the position of the closing quote of a string. `inner`: the text after its opening quote.
fn string_end(inner: &str) -> usize {
    let mut from = 0;
    while let Some(at) = inner
        .as_bytes()
        .get(from..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        match inner.as_bytes().get(from + at) {
            Some(b'"') => return from + at,
            _ => from += at + 2,
        }
    }
    inner.len()
}

/// Appends a decimal number.
pub fn write_number(number: impl itoa::Integer, out: &mut BytesMut) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends what `write` writes for each item, with commas between.
#[inline]
pub fn separated<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut BytesMut,
    mut write: impl FnMut(T, &mut BytesMut),
) {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        write(item, out);
    }
}

/// Reads a count. Engines may spell it as a float: accepted if it is whole; `None` for anything else.
pub fn integer(raw: Raw<'_>) -> Option<u64> {
    let text = raw.get();
    if let Ok(number) = text.parse::<u64>() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    // 2^53: floats from there on cannot represent every integer.
    (number >= 0.0 && number.fract() == 0.0 && number < 9_007_199_254_740_992.0)
        .then_some(number as u64)
}

/// Members of an object that its reader does not name, in order. Null values are kept only where the reader asks
/// for them (wire-format 1.6).
#[derive(Clone, Debug, Default)]
pub struct Extras<'a>(Vec<(Cow<'a, str>, Raw<'a>)>);

impl<'a> Extras<'a> {
    /// Returns true if there are no leftovers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of leftover members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over key and value of the leftovers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Raw<'a>)> {
        self.0.iter().map(|(key, raw)| (key.as_ref(), *raw))
    }

    /// Removes all members of a key; returns the value of the first, or `None`.
    pub fn take(&mut self, key: &str) -> Option<Raw<'a>> {
        let found = self
            .0
            .iter()
            .find(|(own, _)| own == key)
            .map(|(_, raw)| *raw)?;
        self.0.retain(|(own, _)| own != key);
        Some(found)
    }

    /// Drops members that are null.
    pub(crate) fn drop_null(&mut self) {
        self.0.retain(|(_, raw)| raw.get() != "null");
    }

    #[doc(hidden)]
    pub fn keep(&mut self, key: Cow<'a, str>, raw: Raw<'a>) {
        self.0.push((key, raw));
    }
}

/// List that nearly always has one element. The first is stored inline, so that this case needs no allocation. An object alone
/// is read as a list of it: text-generation-inference of 2024 streams `tool_calls` so.
#[derive(Clone, Debug)]
pub struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self {
            first: None,
            rest: Vec::new(),
        }
    }
}

impl<T> Few<T> {
    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Iterates over the elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    /// Iterates over the elements mutably, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.rest)
    }
}

impl<'a, T: Read<'a>> Read<'a> for Few<T> {
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        if from.peek()? == b'{' {
            return self.first.get_or_insert_default().read(from);
        }
        from.each_element(|from| {
            if self.first.is_none() {
                return self.first.get_or_insert_default().read(from);
            }
            self.rest.push(from.read()?);
            Some(())
        })
    }
}

/// JSON object as its keys and raw values, in order. The values are validated but not read.
#[derive(Debug, Default)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, Raw<'a>)>);

impl<'a> Members<'a> {
    /// Reads the members of a JSON object; `None` if `text` is not one.
    pub fn of(text: &'a str) -> Option<Self> {
        read(text).ok()
    }

    /// Returns the raw value of a key, the first if it is repeated; `None` if there is none.
    pub fn get(&self, key: &str) -> Option<Raw<'a>> {
        self.0
            .iter()
            .find(|(own, _)| own == key)
            .map(|(_, value)| *value)
    }
}

impl<'a> Read<'a> for Members<'a> {
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        from.each_member(|from, key| {
            self.0.push((key.name()?, from.read()?));
            Some(())
        })
    }
}

/// Declares a struct that reads a JSON object leniently: every field is optional, `null` counts as absent, the last
/// of repeated keys wins, and unnamed members are kept in `rest`.
#[macro_export]
macro_rules! object {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$life:lifetime> {
        $($(#[$fmeta:meta])* $field:ident: $type:ty = $key:literal $(| $alias:literal)*,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $name<$life> {
            $($(#[$fmeta])* pub $field: Option<$type>,)*
            /// Members not named above.
            pub rest: $crate::json::Extras<$life>,
        }

        impl<$life> $crate::json::Read<$life> for $name<$life> {
            fn read(&mut self, from: &mut $crate::json::Scanner<$life>) -> Option<()> {
                from.each_member(|from, key| {
                    let key = key.name()?;
                    match key.as_ref() {
                        $($key $(| $alias)* => self.$field.read(from),)*
                        _ => {
                            let member = from.read()?;
                            if from.keeps_member(member) {
                                self.rest.keep(key, member);
                            }
                            Some(())
                        }
                    }
                })
            }
        }
    };
}
pub use crate::object;

/// Returns a value that is written as a JSON object with these members, in this order.
#[macro_export]
macro_rules! members {
    ($($key:ident $(: $value:expr)?),* $(,)?) => {{
        #[expect(non_camel_case_types, reason = "the type of a member has the member's name")]
        let written = {
            #[derive(serde::Serialize)]
            struct Written<$($key),*> {
                $($key: $key,)*
            }
            Written { $($key $(: $value)?,)* }
        };
        written
    }};
}
pub use crate::members;

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(json_string: &str) -> String {
        let mut out = BytesMut::new();
        Text::of(Raw::of(json_string).unwrap())
            .unwrap()
            .write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn spelling_is_canonical_whatever_the_engine_wrote() {
        for (written, expected) in [
            (r#""plain""#, "plain"),
            (r#""a\/b""#, "a/b"),
            (r#""caf\u00e9 é""#, "café é"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\ud83d x""#, "\u{fffd} x"),
            (r#""\u000a\u0001\u007f""#, "\\n\\u0001\u{7f}"),
            ("\"\u{85}\u{2028}\u{2029}“x”\"", "\\u0085\\u2028\\u2029“x”"),
            (r#""\u2028\"\\\t""#, "\\u2028\\\"\\\\\\t"),
        ] {
            assert_eq!(canonical(written), expected, "{written}");
        }
    }

    #[test]
    fn compact_keeps_order_and_numbers() {
        let mut out = BytesMut::new();
        write_compact(
            "{ \"b\" : [1.50, -0, \"x \\\" y\"],\n \"a\": {} }",
            &mut out,
        );
        assert_eq!(&out[..], br#"{"b":[1.50,-0,"x \" y"],"a":{}}"#);
    }

    #[test]
    fn decoded_and_skipped_agree() {
        let text = Text::json(r"a\u00e9b\n😀c");
        assert_eq!(text.decoded(), "aéb\n😀c");
        assert_eq!(text.skip_characters(4), "😀c");
        assert_eq!(text.first_characters(2), "aé");
    }

    #[test]
    fn counts_may_be_floats_but_not_guesses() {
        let of = |text: &str| integer(Raw::of(text).unwrap());
        assert_eq!(of("12"), Some(12));
        assert_eq!(of("12.0"), Some(12));
        assert_eq!(of("12.5"), None);
        assert_eq!(of("-1"), None);
        assert_eq!(of("\"3\""), None);
    }
}
