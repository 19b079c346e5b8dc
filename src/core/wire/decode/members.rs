//! Members whose type an engine may get wrong: readers that take any other value for an absent one.
//!
//! Takes: a raw value. Gives: a text, a list or an object. Never: a failure.

use crate::json::{Raw, Read, Text, read};

/// Returns a string that is not empty; `None` for anything else.
pub(super) fn text(raw: Option<Raw<'_>>) -> Option<Text<'_>> {
    raw.and_then(Text::of).filter(|text| !text.is_empty())
}

/// Returns the decoded characters of a string that is not empty; `None` for anything else.
pub(super) fn string(raw: Option<Raw<'_>>) -> Option<String> {
    text(raw).map(|text| text.decoded().into_owned())
}

/// Reads the elements of a list; empty if `raw` is not a list of this type.
pub(super) fn list<'a, T: Read<'a>>(raw: Option<Raw<'a>>) -> Vec<T> {
    raw.and_then(|raw| read(raw.get()).ok()).unwrap_or_default()
}

/// Reads an object; an empty one if `raw` is not an object.
pub(super) fn object<'a, T: Read<'a>>(raw: Option<Raw<'a>>) -> T {
    raw.and_then(|raw| read(raw.get()).ok()).unwrap_or_default()
}
