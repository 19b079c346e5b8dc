//! A request body as a shallow object: keys and raw values with their places, and edits that leave every other byte.
//!
//! Takes: the body as the client sent it. Gives: the members, and an edited copy. Never: re-serialises what it carries.

use crate::json::{self, Raw, Read, Scanner};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::ops::Range;

/// Levels of nesting that a body may have.
const DEPTH: usize = 128;

/// Members that an object may have which is read one by one, and bytes of a key: nothing has as many, and each member takes
/// many times the memory of its few bytes, each key is kept (property P15).
const MEMBERS: usize = 1 << 12;
const KEY: usize = 1 << 10;

/// Edits that one body may take: each takes more memory than what it replaces.
const EDITS: usize = 1 << 16;

/// The members of an object, as many as it may have.
#[derive(Default)]
struct BoundedMembers<'a> {
    kept: Vec<(Cow<'a, str>, Raw<'a>)>,
    /// There were more.
    over: bool,
    /// One has a longer key than anything has.
    long_key: bool,
}

impl<'a> Read<'a> for BoundedMembers<'a> {
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        from.each_member(|from, key| {
            let member = (key.name()?, from.read()?);
            self.over = self.kept.len() == MEMBERS;
            self.long_key |= member.0.len() > KEY;
            if !self.over && !self.long_key {
                self.kept.push(member);
            }
            Some(())
        })
    }
}

/// One member of an object, with its place in the text of the whole body.
#[derive(Debug)]
pub struct Field<'a> {
    /// The key.
    pub key: Cow<'a, str>,
    /// The value, unread.
    pub value: Raw<'a>,
    /// Where the value stands.
    pub at: Range<usize>,
    /// Where the key's characters stand, if it was written without escapes.
    pub key_at: Option<Range<usize>>,
}

/// Where a member of an object stands, its value unread.
#[derive(Clone, Debug)]
pub struct MemberSpan {
    /// The key, if it was written with escapes: its characters stand nowhere as they are.
    resolved: Option<Box<str>>,
    /// Where the value stands.
    pub at: Range<usize>,
    /// Where the key's characters stand, if it was written without escapes.
    pub key_at: Option<Range<usize>>,
}

impl From<&Field<'_>> for MemberSpan {
    fn from(field: &Field<'_>) -> Self {
        let resolved = field.key_at.is_none().then(|| field.key.as_ref().into());
        Self { resolved, at: field.at.clone(), key_at: field.key_at.clone() }
    }
}

impl MemberSpan {
    /// The key. `text`: the one that it stands in.
    pub(crate) fn key<'s>(&'s self, text: &'s str) -> &'s str {
        let written = || self.key_at.clone().and_then(|at| text.get(at)).unwrap_or_default();
        self.resolved.as_deref().unwrap_or_else(written)
    }
}

/// The text of a body: UTF-8, a leading byte-order mark dropped, no lone surrogates, at most 128 levels deep.
///
/// # Errors
/// `invalid_utf8` and `json_too_deep` (faults C02, C12).
pub fn text(body: &[u8]) -> Result<&str, Failure> {
    text_within(body, DEPTH)
}

/// The same with fewer levels.
pub(super) fn text_within(body: &[u8], levels: usize) -> Result<&str, Failure> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let message = format!("The request body is not valid UTF-8 (byte {}).", error.valid_up_to());
        Failure::from(Fault::InvalidUtf8).with_message(message)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    survey(text.as_bytes(), levels.min(DEPTH))?;
    Ok(text)
}

/// One pass over the bytes for what the JSON reader does not look at: depth and halves of surrogate pairs.
fn survey(bytes: &[u8], levels: usize) -> Result<(), Failure> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > levels {
                    let message = format!("The request body is nested more than {levels} levels deep.");
                    return Err(Failure::from(Fault::TooDeep).with_message(message));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = skip_string(bytes, at)?,
            _ => {}
        }
    }
    Ok(())
}

/// The place after the string whose characters start at `at`.
fn skip_string(bytes: &[u8], mut at: usize) -> Result<usize, Failure> {
    while let Some(next) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
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

/// The members of the object that `object` is, a part of `whole` (or all of it).
///
/// # Errors
/// `invalid_json` with the position, never the text around it; `invalid_value` for more members than anything has.
pub fn read<'a>(whole: &'a str, object: &'a str) -> Result<Vec<Field<'a>>, Failure> {
    if !object.trim_start().starts_with('{') && Raw::of(object).is_some() {
        let message = "The request body is not valid JSON for this API: it must be an object.";
        return Err(Failure::from(Fault::InvalidJson).with_message(message));
    }
    let BoundedMembers { kept, over, long_key } = json::read(object).map_err(|invalid| {
        let message = format!("The request body is not valid JSON ({invalid}).");
        Failure::from(Fault::InvalidJson).with_message(message)
    })?;
    if over {
        let message = format!("The request has an object of more than {MEMBERS} members.");
        return Err(Failure::from(Fault::InvalidValue).with_message(message));
    }
    if long_key {
        let message = format!("The request has an object with a key of more than {KEY} bytes.");
        return Err(Failure::from(Fault::InvalidValue).with_message(message));
    }
    Ok(kept
        .into_iter()
        .map(|(key, value)| {
            let at = place(whole, value.get());
            let key_at = match &key {
                Cow::Borrowed(key) => Some(place(whole, key)),
                Cow::Owned(_) => None,
            };
            Field { key, value, at, key_at }
        })
        .collect())
}

/// The body with members that it lacks, each a key and JSON. A token limit is one by whichever of its two names.
pub fn with_defaults(body: Bytes, defaults: &[(String, String)]) -> Bytes {
    // What cannot be read is told by whoever reads it next.
    let Ok(text) = text(&body) else { return body };
    let Ok(fields) = read(text, text) else { return body };
    let has = |key: &str| fields.iter().any(|field| field.key == key && field.value.get() != "null");
    let says = |key: &str| match key {
        "max_tokens" | "max_completion_tokens" => has("max_tokens") || has("max_completion_tokens"),
        key => has(key),
    };
    let mut edits = Edits::default();
    let end = text.trim_end().len().saturating_sub(1);
    let mut any = !fields.is_empty();
    for (key, json) in defaults.iter().filter(|(key, _)| !says(key)) {
        if let Some(null) = fields.iter().find(|field| field.key == key.as_str()) {
            edits.replace(null.at.clone(), json.as_str());
            continue;
        }
        let name = serde_json::to_string(key).unwrap_or_default();
        edits.replace(end..end, format!("{}{name}:{json}", if any { "," } else { "" }));
        any = true;
    }
    edits.apply(&body.slice_ref(text.as_bytes()))
}

/// Where `part` stands in `whole`, of which it is a slice.
pub(crate) fn place(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

/// Replacements of ranges of a body. Everything outside them stays byte for byte.
#[derive(Clone, Debug, Default)]
pub struct Edits(Vec<(Range<usize>, Vec<u8>)>);

impl Edits {
    /// Puts `with` in the place of `range`; of ranges that overlap, the first counts.
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Vec<u8>>) {
        if !self.is_over() {
            self.0.push((range, with.into()));
        }
    }

    /// Whether there are more than one body may take: what was to be edited besides is not known any more.
    pub(crate) fn is_over(&self) -> bool {
        self.0.len() > EDITS
    }

    /// The body with all edits, unless there are more than it may take.
    ///
    /// # Errors
    /// `invalid_value`
    pub(crate) fn apply_within_limit(self, body: &Bytes) -> Result<Bytes, Failure> {
        if self.is_over() {
            let message =
                format!("The request has more than {EDITS} places that must be written anew for the engine.");
            return Err(Failure::from(Fault::InvalidValue).with_message(message));
        }
        Ok(self.apply(body))
    }

    /// Names the model: in the place of what the body says of it, else as its first member.
    pub(crate) fn name_model(&mut self, text: &str, place: Option<Range<usize>>, model: &str) {
        let name = serde_json::to_string(model).unwrap_or_default();
        if let Some(place) = place {
            return self.replace(place, name);
        }
        let Some(at) = text.find('{').map(|brace| brace + 1) else { return };
        let is_empty = text.get(at..).is_some_and(|rest| rest.trim_start().starts_with('}'));
        self.replace(at..at, format!("\"model\":{name}{}", if is_empty { "" } else { "," }));
    }

    /// Takes members out of their object, each with the comma that belongs to it. `members`: all of the object's.
    pub fn remove(&mut self, text: &str, members: &[Field<'_>], out: impl Fn(&Field<'_>) -> bool) {
        let spans: Vec<_> = members.iter().map(MemberSpan::from).collect();
        self.remove_spots(text, &spans, |at| members.get(at).is_some_and(&out));
    }

    /// The same by the members' numbers.
    pub(crate) fn remove_spots(&mut self, text: &str, members: &[MemberSpan], out: impl Fn(usize) -> bool) {
        let mut at = 0;
        while let Some(field) = members.get(at) {
            if !out(at) {
                at += 1;
                continue;
            }
            let last = (at..members.len()).take_while(|at| out(*at)).count() + at - 1;
            let end = members.get(last).map_or(field.at.end, |last| last.at.end);
            let range = match at.checked_sub(1).and_then(|before| members.get(before)) {
                // With a member before it, the run goes with the comma before it, else with the one behind it.
                Some(kept) => kept.at.end..end,
                None => {
                    let behind = text.get(end..).unwrap_or("");
                    let comma = behind.trim_start().strip_prefix(',').map(str::trim_start);
                    let to = comma.map_or(end, |next| text.len() - next.len());
                    let quote = field.key_at.as_ref().map(|key| key.start.saturating_sub(1));
                    let brace =
                        || text.get(..field.at.start).and_then(|head| head.rfind('{')).map(|brace| brace + 1);
                    quote.or_else(brace).unwrap_or(end)..to
                }
            };
            self.replace(range, "");
            at = last + 1;
        }
    }

    /// Adds those of another part of the body.
    pub fn extend(&mut self, more: Self) {
        // One more than there may be says that there are more.
        self.0.extend(more.0.into_iter().take(EDITS + 1 - self.0.len().min(EDITS + 1)));
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The body with all edits; the very same bytes if there are none.
    pub fn apply(mut self, body: &Bytes) -> Bytes {
        if self.0.is_empty() {
            return body.clone();
        }
        self.0.sort_by_key(|(range, _)| range.start);
        let grown: usize = self.0.iter().map(|(_, with)| with.len()).sum();
        let mut out = BytesMut::with_capacity(body.len() + grown);
        let mut from = 0;
        for (range, with) in self.0 {
            // What is inside of what has gone is gone with it.
            let Some(kept) = body.get(from..range.start) else { continue };
            out.extend_from_slice(kept);
            out.extend_from_slice(&with);
            from = range.end.max(from);
        }
        out.extend_from_slice(body.get(from..).unwrap_or_default());
        out.freeze()
    }
}

/// Returns a JSON object without the members of this key, or `None` if it has none.
pub fn without(object: &Bytes, key: &str) -> Option<Bytes> {
    let text = text(object).ok()?;
    let members = read(text, text).ok()?;
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
        let (most, more) = (body(MEMBERS), body(MEMBERS + 1));
        assert_eq!(read(&most, &most).unwrap().len(), MEMBERS);
        assert_eq!(read(&more, &more).unwrap_err().fault, Fault::InvalidValue);
        let body = |bytes: usize| format!("{{\"{}\":0}}", "a".repeat(bytes));
        let (most, more) = (body(KEY), body(KEY + 1));
        assert_eq!(read(&most, &most).unwrap().len(), 1);
        assert_eq!(read(&more, &more).unwrap_err().fault, Fault::InvalidValue);
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
            let fields = read(body, body).unwrap();
            let mut edits = Edits::default();
            edits.remove(body, &fields, |field| keys.contains(field.key.as_ref()));
            assert_eq!(edits.apply(&Bytes::from(body)), expected.as_bytes(), "{keys}");
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
            assert_eq!(with_defaults(body, &defaults), expected.as_bytes(), "{expected}");
        }
    }

    #[test]
    fn depth_and_surrogates() {
        let code = |body: &[u8]| text(body).map(|_| ()).map_err(|failure| failure.code.unwrap().into_owned());
        assert_eq!(code("[".repeat(128).as_bytes()), Ok(()));
        assert_eq!(code("[".repeat(100_000).as_bytes()), Err("json_too_deep".to_owned()));
        assert_eq!(code(br#"{"a":"[[[\"[[\\"}"#), Ok(()));
        assert_eq!(code(br#"{"a":"\ud83d\ude00 \u0000"}"#), Ok(()));
        assert_eq!(code(br#"{"a":"\ud83d"}"#), Err("invalid_utf8".to_owned()));
        assert_eq!(code(br#"{"a":"\udc00"}"#), Err("invalid_utf8".to_owned()));
        assert_eq!(code(b"{\"a\":\"\xff\"}"), Err("invalid_utf8".to_owned()));
        assert_eq!(text(b"\xef\xbb\xbf{}").unwrap(), "{}");
    }
}
