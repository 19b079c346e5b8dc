//! Shallow parsing of a request body: keys and raw values with their places, and edits that leave every other
//! byte.
//!
//! Takes: the body as the client sent it. Gives: the members, and an edited copy. Never: re-serialises what it
//! carries.

use super::EngineBody;
use super::refusals::too_deep;
use crate::json::{self, LongStrings, Raw, Read, Scanner};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::ops::Range;

/// Maximum nesting depth of a body.
const DEPTH: usize = 128;

/// Limits on an object parsed member by member: number of members, and bytes of a key. No real request has as
/// many; each member costs many times the memory of its few bytes, and each key is kept (property P15).
const MEMBERS: usize = 1 << 12;
const KEY: usize = 1 << 10;

/// Maximum number of edits to one body, since an edit takes more memory than the bytes it replaces.
const EDITS: usize = 1 << 16;

/// Body of which the parts between edits are not copied: least length in bytes, and most edits.
const SHARED: usize = 1 << 15;
const FEW_EDITS: usize = 1 << 5;

/// Members of an object, up to the limit on their number, so that a hostile body cannot exhaust memory.
#[derive(Default)]
struct BoundedMembers<'a> {
    kept: Vec<Field<'a>>,
    /// True if the object has more members than allowed.
    too_many: bool,
    /// True if a key exceeds the length limit.
    long_key: bool,
}

impl<'a> Read<'a> for BoundedMembers<'a> {
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        from.each_member(|from, key| {
            let (key, value) = (key.name()?, from.read()?);
            self.too_many = self.kept.len() == MEMBERS;
            self.long_key |= key.len() > KEY;
            if !self.too_many && !self.long_key {
                self.kept.push(Field { key, value });
            }
            Some(())
        })
    }
}

/// Member of an object.
#[derive(Debug)]
pub struct Field<'a> {
    /// Key, with escapes resolved.
    pub key: Cow<'a, str>,
    /// Raw value, not parsed.
    pub value: Raw<'a>,
}

/// Place of a member in the body's text, for use after the parsed [`Field`] is gone.
#[derive(Clone, Debug)]
pub struct MemberSpan {
    /// Key with escapes resolved, if it was written with escapes and so has no plain bytes in the text.
    resolved: Option<Box<str>>,
    /// Range of the value.
    pub at: Range<usize>,
    /// Range of the key's characters, if it was written without escapes.
    pub key_at: Option<Range<usize>>,
}

impl MemberSpan {
    /// Returns the place of a member in `whole`, the text that it was read from.
    pub(crate) fn of(field: &Field<'_>, whole: &str) -> Self {
        let (resolved, key_at) = match &field.key {
            Cow::Borrowed(key) => (None, Some(place(whole, key))),
            Cow::Owned(key) => (Some(key.as_str().into()), None),
        };
        Self {
            resolved,
            at: place(whole, field.value.get()),
            key_at,
        }
    }

    /// Returns the key. `text` is the text that the span belongs to.
    pub(crate) fn key<'s>(&'s self, text: &'s str) -> &'s str {
        let written = || {
            self.key_at
                .clone()
                .and_then(|at| text.get(at))
                .unwrap_or_default()
        };
        self.resolved.as_deref().unwrap_or_else(written)
    }
}

/// Returns the text of a body: UTF-8, without a leading byte-order mark or lone surrogates, at most 128 levels
/// deep.
///
/// # Errors
/// `invalid_utf8` and `json_too_deep` (faults C02, C12).
pub fn text(body: &[u8]) -> Result<&str, Failure> {
    let text = utf8(body)?;
    check_depth_and_surrogates(text.as_bytes(), DEPTH)?;
    Ok(text)
}

/// Returns the text of a body without a leading byte-order mark.
///
/// # Errors
/// `invalid_utf8` (faults C02).
pub(super) fn utf8(body: &[u8]) -> Result<&str, Failure> {
    let text = simdutf8::compat::from_utf8(body).map_err(|error| {
        let message = format!(
            "The request body is not valid UTF-8 (byte {}).",
            error.valid_up_to()
        );
        Failure::from(Fault::InvalidUtf8).with_message(message)
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Checks what a lenient reader does not: nesting depth and lone surrogates.
fn check_depth_and_surrogates(bytes: &[u8], levels: usize) -> Result<(), Failure> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > levels {
                    return Err(too_deep(levels));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = skip_string(bytes, at)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the offset after the string whose characters start at `at`. Fails on a lone surrogate.
fn skip_string(bytes: &[u8], mut at: usize) -> Result<usize, Failure> {
    while let Some(next) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += next;
        if bytes.get(at) == Some(&b'"') {
            return Ok(at + 1);
        }
        let unit = |from: usize| {
            let escape = bytes.get(from..from + 6)?;
            let hex = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
            u16::from_str_radix(hex, 16).ok()
        };
        at += match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                let message = format!("The request body has half of a surrogate pair (byte {at}).");
                return Err(Failure::from(Fault::InvalidUtf8).with_message(message));
            }
            Some(_) => 6,
            None => 2,
        };
    }
    Ok(bytes.len())
}

/// Checks that a body is a JSON object.
///
/// # Errors
/// Fails like [`text`] and [`read`].
pub(crate) fn check_object(body: &[u8]) -> Result<(), Failure> {
    let text = text(body)?;
    read(text).map(|_| ())
}

/// Parses the members of an object.
///
/// # Errors
/// `invalid_json` with the position, never the text around it; `invalid_value` for too many members or an overlong
/// key.
pub fn read(object: &str) -> Result<Vec<Field<'_>>, Failure> {
    if !object.trim_start().starts_with('{') && Raw::of(object).is_some() {
        let message = "The request body is not valid JSON for this API: it must be an object.";
        return Err(Failure::from(Fault::InvalidJson).with_message(message));
    }
    fields_of(json::read(object))
}

/// Parses the members of a whole body, in one pass over its bytes. At most `levels` levels of nesting are allowed. Returns
/// its long strings, too.
///
/// # Errors
/// Fails like [`text`] and [`read`].
pub(super) fn read_body(
    text: &str,
    levels: usize,
) -> Result<(Vec<Field<'_>>, LongStrings), Failure> {
    let levels = levels.min(DEPTH);
    match json::read_strict(text, u32::try_from(levels).unwrap_or(u32::MAX)) {
        Ok((members, strings)) => Ok((fields_of(Ok(members))?, strings)),
        // Mistakes are reported in the order of the checks.
        Err(_) => {
            check_depth_and_surrogates(text.as_bytes(), levels)?;
            Ok((read(text)?, LongStrings::default()))
        }
    }
}

/// Parses the members of an object like [`read`]. It must be part of a text that has been read, with these long strings.
///
/// # Errors
/// Fails like [`read`].
pub(super) fn read_known<'a>(
    strings: &'a LongStrings,
    object: &'a str,
) -> Result<Vec<Field<'a>>, Failure> {
    if !object.starts_with('{') {
        return read(object);
    }
    fields_of(strings.read_part(object))
}

/// Parses the members of an object like [`read`]. It must be part of a text that has been read.
///
/// # Errors
/// Fails like [`read`].
pub fn read_part(object: &str) -> Result<Vec<Field<'_>>, Failure> {
    read_known(LongStrings::UNKNOWN, object)
}

fn fields_of(read: Result<BoundedMembers<'_>, json::Invalid>) -> Result<Vec<Field<'_>>, Failure> {
    let BoundedMembers {
        kept,
        too_many,
        long_key,
    } = read.map_err(|invalid| {
        let message = format!("The request body is not valid JSON ({invalid}).");
        Failure::from(Fault::InvalidJson).with_message(message)
    })?;
    if too_many {
        let message = format!("The request has an object of more than {MEMBERS} members.");
        return Err(Failure::from(Fault::InvalidValue).with_message(message));
    }
    if long_key {
        let message = format!("The request has an object with a key of more than {KEY} bytes.");
        return Err(Failure::from(Fault::InvalidValue).with_message(message));
    }
    Ok(kept)
}

/// Adds members that the body lacks or has as null, each given as key and JSON. The two names of the token limit
/// count as one. A body that cannot be parsed stays unchanged.
pub fn with_defaults(body: Bytes, defaults: &[(String, String)]) -> Bytes {
    // The next reader reports a body that cannot be parsed.
    let Ok(text) = text(&body) else { return body };
    let Ok(fields) = read(text) else { return body };
    let has = |key: &str| {
        fields
            .iter()
            .any(|field| field.key == key && field.value.get() != "null")
    };
    let says = |key: &str| match key {
        "max_tokens" | "max_completion_tokens" => has("max_tokens") || has("max_completion_tokens"),
        key => has(key),
    };
    let mut edits = Edits::default();
    let end = text.trim_end().len().saturating_sub(1);
    let mut any = !fields.is_empty();
    for (key, json) in defaults.iter().filter(|(key, _)| !says(key)) {
        if let Some(null) = fields.iter().find(|field| field.key == key.as_str()) {
            edits.replace(place(text, null.value.get()), json.as_str());
            continue;
        }
        let name = serde_json::to_string(key).unwrap_or_default();
        edits.replace(
            end..end,
            format!("{}{name}:{json}", if any { "," } else { "" }),
        );
        any = true;
    }
    edits.apply(&body.slice_ref(text.as_bytes()))
}

/// Returns the range of `part` in `whole`, of which it must be a slice.
pub(crate) fn place(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

/// Returns the range of a member's value in the text of an object; `None` if there is no such member.
pub(crate) fn member_place(text: &str, key: &str) -> Option<Range<usize>> {
    let fields = read(text).ok()?;
    fields
        .iter()
        .find(|field| field.key == key)
        .map(|field| place(text, field.value.get()))
}

/// Replacements of ranges of a body, collected first and applied once. Everything outside them stays byte for
/// byte.
#[derive(Clone, Debug, Default)]
pub struct Edits(Vec<(Range<usize>, Vec<u8>)>);

impl Edits {
    /// Replaces `range` by `with`; of overlapping ranges, the first counts. Ignored once the limit on edits is
    /// exceeded.
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Vec<u8>>) {
        if !self.exceeds_limit() {
            self.0.push((range, with.into()));
        }
    }

    /// Returns true if the limit on edits is exceeded, in which case later edits have been discarded.
    pub(crate) fn exceeds_limit(&self) -> bool {
        self.0.len() > EDITS
    }

    /// Applies all edits to the body, unless there are more than the limit.
    ///
    /// # Errors
    /// `invalid_value`
    pub(crate) fn apply_within_limit(self, body: &Bytes) -> Result<Bytes, Failure> {
        if self.exceeds_limit() {
            let message = format!(
                "The request has more than {EDITS} places that must be written anew for the engine."
            );
            return Err(Failure::from(Fault::InvalidValue).with_message(message));
        }
        Ok(self.apply(body))
    }

    /// Sets the model name: replaces its value at `place`, or inserts the member at the front.
    pub(crate) fn name_model(&mut self, text: &str, place: Option<Range<usize>>, model: &str) {
        let name = serde_json::to_string(model).unwrap_or_default();
        if let Some(place) = place {
            return self.replace(place, name);
        }
        let Some(at) = text.find('{').map(|brace| brace + 1) else {
            return;
        };
        let is_empty = text
            .get(at..)
            .is_some_and(|rest| rest.trim_start().starts_with('}'));
        self.replace(
            at..at,
            format!("\"model\":{name}{}", if is_empty { "" } else { "," }),
        );
    }

    /// Removes the members for which `out` returns true, each with its comma. `members` must be all members of the
    /// object.
    pub fn remove(&mut self, text: &str, members: &[Field<'_>], out: impl Fn(&Field<'_>) -> bool) {
        let spans: Vec<_> = members
            .iter()
            .map(|member| MemberSpan::of(member, text))
            .collect();
        self.remove_at(text, &spans, |at| members.get(at).is_some_and(&out));
    }

    /// Removes members by their index, like [`Self::remove`].
    pub(crate) fn remove_at(
        &mut self,
        text: &str,
        members: &[MemberSpan],
        out: impl Fn(usize) -> bool,
    ) {
        let mut at = 0;
        while let Some(field) = members.get(at) {
            if !out(at) {
                at += 1;
                continue;
            }
            let last = (at..members.len()).take_while(|at| out(*at)).count() + at - 1;
            let end = members.get(last).map_or(field.at.end, |last| last.at.end);
            let range = match at.checked_sub(1).and_then(|before| members.get(before)) {
                // After a kept member, a removed run includes the comma before it, else the comma after it.
                Some(kept) => kept.at.end..end,
                None => {
                    let after = text.get(end..).unwrap_or("");
                    let comma = after.trim_start().strip_prefix(',').map(str::trim_start);
                    let to = comma.map_or(end, |next| text.len() - next.len());
                    let quote = field.key_at.as_ref().map(|key| key.start.saturating_sub(1));
                    let brace = || {
                        text.get(..field.at.start)
                            .and_then(|head| head.rfind('{'))
                            .map(|brace| brace + 1)
                    };
                    quote.or_else(brace).unwrap_or(end)..to
                }
            };
            self.replace(range, "");
            at = last + 1;
        }
    }

    /// Appends the edits of another part of the body, up to the limit.
    pub fn extend(&mut self, more: Self) {
        // One edit more than allowed marks the limit as exceeded.
        self.0.extend(
            more.0
                .into_iter()
                .take(EDITS + 1 - self.0.len().min(EDITS + 1)),
        );
    }

    /// Returns true if there are no edits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies all edits as [`Self::apply_within_limit`] does. Of a long body with few edits, the parts between them stay
    /// where they are.
    ///
    /// # Errors
    /// `invalid_value`
    pub(crate) fn apply_in_place(mut self, body: &Bytes) -> Result<EngineBody, Failure> {
        if body.len() < SHARED || self.0.len() > FEW_EDITS || self.0.is_empty() {
            return self.apply_within_limit(body).map(EngineBody::from);
        }
        let mut pieces = Vec::with_capacity(2 * self.0.len() + 1);
        let rest = self.each_piece(body.len(), |kept, with| {
            pieces.push(body.slice(kept));
            pieces.push(with.into());
        });
        pieces.push(body.slice(rest..));
        Ok(pieces.into_iter().collect())
    }

    /// Applies all edits; without any, the same bytes are returned without a copy.
    pub fn apply(mut self, body: &Bytes) -> Bytes {
        if self.0.is_empty() {
            return body.clone();
        }
        let grown: usize = self.0.iter().map(|(_, with)| with.len()).sum();
        let mut out = BytesMut::with_capacity(body.len() + grown);
        let rest = self.each_piece(body.len(), |kept, with| {
            out.extend_from_slice(body.get(kept).unwrap_or_default());
            out.extend_from_slice(&with);
        });
        out.extend_from_slice(body.get(rest..).unwrap_or_default());
        out.freeze()
    }

    /// Calls `see` with each part of a body that is kept before an edit, and with what replaces the bytes after it.
    /// Returns the place of the rest, which is kept too.
    fn each_piece(&mut self, length: usize, mut see: impl FnMut(Range<usize>, Vec<u8>)) -> usize {
        self.0.sort_by_key(|(range, _)| range.start);
        let mut from = 0;
        for (range, with) in self.0.drain(..) {
            // An edit inside a removed range is dropped with it.
            if range.start < from || range.start > length {
                continue;
            }
            see(from..range.start, with);
            from = range.end.max(from).min(length);
        }
        from
    }
}

/// Returns a JSON object without the members of this key, or `None` if it has none.
pub fn without(object: &Bytes, key: &str) -> Option<Bytes> {
    let text = text(object).ok()?;
    let members = read(text).ok()?;
    members.iter().any(|member| member.key == key).then(|| {
        let mut edits = Edits::default();
        edits.remove(text, &members, |member| member.key == key);
        edits.apply(&object.slice(object.len() - text.len()..))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_more_members_than_anything_has_is_refused() {
        let body = |members: usize| format!("{{{}\"b\":0}}", "\"a\":0,".repeat(members - 1));
        let most = body(MEMBERS);
        assert_eq!(read(&most).unwrap().len(), MEMBERS);
        for more in [MEMBERS + 1, MEMBERS + 2, 2 * MEMBERS].map(body) {
            assert_eq!(read(&more).unwrap_err().fault, Fault::InvalidValue);
        }
        let body = |bytes: usize| format!("{{\"{}\":0}}", "a".repeat(bytes));
        let (most, more) = (body(KEY), body(KEY + 1));
        assert_eq!(read(&most).unwrap().len(), 1);
        assert_eq!(read(&more).unwrap_err().fault, Fault::InvalidValue);
    }

    #[test]
    fn more_edits_than_a_body_may_take_are_refused() {
        let edited = |count: usize| {
            let mut edits = Edits::default();
            (0..count).for_each(|at| edits.replace(at..at + 1, "ab"));
            let mut more = Edits::default();
            more.extend(edits);
            more.apply_within_limit(&Bytes::from("x".repeat(2 * EDITS)))
        };
        assert_eq!(edited(EDITS).unwrap().len(), 3 * EDITS);
        for count in [EDITS + 1, 2 * EDITS] {
            assert_eq!(edited(count).unwrap_err().fault, Fault::InvalidValue);
        }
    }

    /// Edits of a long body that overlap, touch, or lie beyond its end.
    #[test]
    fn long_bodies_are_edited_in_place() {
        let body = Bytes::from("x".repeat(SHARED));
        for edits in [
            vec![
                (100..200, "a"),
                (5..5, "b"),
                (200..300, ""),
                (SHARED..SHARED, "end"),
            ],
            vec![(0..SHARED, "all")],
            vec![(10..20, "a"), (15..16, "inside"), (0..0, "first")],
            vec![
                (SHARED - 1..SHARED + 9, "c"),
                (SHARED + 1..SHARED + 2, "beyond"),
            ],
            vec![],
        ] {
            let mut in_place = Edits::default();
            edits
                .iter()
                .for_each(|(range, with)| in_place.replace(range.clone(), *with));
            let copied = in_place.clone().apply(&body);
            let in_place = in_place.apply_in_place(&body).unwrap();
            assert_eq!(in_place.joined(), copied, "{edits:?}");
            let memory = body.as_ptr_range();
            let own = in_place
                .pieces()
                .iter()
                .filter(|piece| memory.contains(&piece.as_ptr()));
            let kept: usize = own.map(Bytes::len).sum();
            assert!(in_place.len() - kept < 20, "{edits:?}");
        }
    }

    #[test]
    fn members_go_with_their_comma() {
        let body = r#"{"a": 1, "b" : [1, 2] ,"c":3}"#;
        for (keys, expected) in [
            ("a", r#"{"b" : [1, 2] ,"c":3}"#),
            ("b", r#"{"a": 1 ,"c":3}"#),
            ("c", r#"{"a": 1, "b" : [1, 2]}"#),
            ("ab", r#"{"c":3}"#),
            ("bc", r#"{"a": 1}"#),
            ("ac", r#"{"b" : [1, 2]}"#),
            ("abc", "{}"),
            ("", body),
        ] {
            let fields = read(body).unwrap();
            let mut edits = Edits::default();
            edits.remove(body, &fields, |field| keys.contains(field.key.as_ref()));
            assert_eq!(
                edits.apply(&Bytes::from(body)),
                expected.as_bytes(),
                "{keys}"
            );
        }
    }

    #[test]
    fn defaults_stand_behind_what_is_said() {
        let defaults = [("top_k", "5"), ("max_tokens", "64"), ("stop", "[\"\\n\"]")];
        let defaults = defaults.map(|(key, json)| (key.to_owned(), json.to_owned()));
        for (body, expected) in [
            ("{}", r#"{"top_k":5,"max_tokens":64,"stop":["\n"]}"#),
            (
                r#"{"top_k":1,"stop":"x","max_completion_tokens":9}"#,
                r#"{"top_k":1,"stop":"x","max_completion_tokens":9}"#,
            ),
            (
                "\u{feff}{ \"stop\": null, \"top_k\": 1 } ",
                r#"{ "stop": ["\n"], "top_k": 1 ,"max_tokens":64} "#,
            ),
            ("[1]", "[1]"),
            ("{", "{"),
        ] {
            let body = Bytes::from(body);
            assert_eq!(
                with_defaults(body, &defaults),
                expected.as_bytes(),
                "{expected}"
            );
        }
    }

    #[test]
    fn depth_and_surrogates() {
        let code = |body: &[u8]| {
            text(body)
                .map(|_| ())
                .map_err(|failure| failure.code.unwrap().into_owned())
        };
        assert_eq!(code("[".repeat(128).as_bytes()), Ok(()));
        assert_eq!(
            code(format!("{{\"a\":{}", "[".repeat(128)).as_bytes()),
            Err("json_too_deep".to_owned()),
            "behind a string"
        );
        assert_eq!(
            code(format!("{{\"a\":\"{}\"}}", "[".repeat(200)).as_bytes()),
            Ok(()),
            "inside a string"
        );
        assert_eq!(
            code("[".repeat(100_000).as_bytes()),
            Err("json_too_deep".to_owned())
        );
        assert_eq!(code(br#"{"a":"[[[\"[[\\"}"#), Ok(()));
        assert_eq!(code(br#"{"a":"\ud83d\ude00 \u0000"}"#), Ok(()));
        assert_eq!(code(br#"{"a":"\ud83d"}"#), Err("invalid_utf8".to_owned()));
        assert_eq!(code(br#"{"a":"\udc00"}"#), Err("invalid_utf8".to_owned()));
        assert_eq!(
            code(br#"{"a":"\n\ud83d"}"#),
            Err("invalid_utf8".to_owned()),
            "behind another escape"
        );
        assert_eq!(code(b"{\"a\":\"\xff\"}"), Err("invalid_utf8".to_owned()));
        assert_eq!(text(b"\xef\xbb\xbf{}").unwrap(), "{}");
    }

    #[test]
    fn an_object_is_returned_without_a_member() {
        let without = |object: &'static str, key: &str| without(&Bytes::from(object), key);
        assert_eq!(without(r#"{"a":1,"b":2}"#, "a").unwrap(), r#"{"b":2}"#);
        assert_eq!(without(r#"{"a":1}"#, "a").unwrap(), "{}");
        assert_eq!(
            without("\u{feff}{\"a\":1,\"b\":2,\"a\":3}", "a").unwrap(),
            r#"{"b":2}"#
        );
        assert_eq!(without(r#"{"a":1}"#, "b"), None);
        assert_eq!(without("[]", "a"), None);
    }
}
