//! Fields of a JSON value, each with path, type and value.
//!
//! Takes: the data of an event. Gives: [`Field`]s, containers included. `explain` has its own reader, which
//! leaves out what does not matter there: an empty `delta`, empty `choices`, lists without objects.

use crate::json::{self, Members, Raw, Text, compacted, integer};
use serde::Serialize;
use std::fmt;

/// Maximum depth of values that are read; deeper ones are single values.
const DEPTH: usize = 32;

/// Type of a value, as far as a client tells types apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Null,
    Boolean,
    Number,
    String,
    /// List without elements. It is a separate type: engines write `tool_calls: []` where others write nothing.
    EmptyList,
    List,
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::String => "string",
            Self::EmptyList => "[]",
            Self::List => "list",
            Self::Object => "object",
        })
    }
}

/// Field of a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Path with `[]` for the elements of lists, so that the elements are one field: `choices[].delta.content`.
    pub(super) path: String,
    /// Path with the numbers of choices, calls and elements: `choices[0].delta.content`.
    pub(super) place: String,
    pub(super) kind: Kind,
    /// Characters of a string, or the value as JSON; empty for an object and a list of objects.
    pub(super) value: String,
}

impl Field {
    /// Returns the field's own name.
    pub(super) fn name(&self) -> &str {
        name(&self.path)
    }

    /// Returns true if the value is neither null nor empty, and no container of fields.
    pub(super) fn is_said(&self) -> bool {
        !self.value.is_empty() && !matches!(self.kind, Kind::Null | Kind::EmptyList | Kind::Object)
    }
}

/// Returns the last segment of a path.
pub(super) fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Returns the fields of a JSON value; `None` if the text is no JSON.
pub(super) fn read(text: &str) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let place = Place {
        path: String::new(),
        place: String::new(),
    };
    value(Raw::of(text)?, place, 0, &mut fields);
    Some(fields)
}

struct Place {
    path: String,
    place: String,
}

impl Place {
    fn member(&self, key: &str) -> Self {
        let joined = |to: &str| {
            if to.is_empty() {
                key.to_owned()
            } else {
                format!("{to}.{key}")
            }
        };
        Self {
            path: joined(&self.path),
            place: joined(&self.place),
        }
    }

    fn element(&self, number: u64) -> Self {
        Self {
            path: format!("{}[]", self.path),
            place: format!("{}[{number}]", self.place),
        }
    }

    fn field(self, kind: Kind, value: String) -> Field {
        Field {
            path: self.path,
            place: self.place,
            kind,
            value,
        }
    }
}

fn value(raw: Raw<'_>, at: Place, depth: usize, to: &mut Vec<Field>) {
    if let Some(text) = Text::of(raw) {
        return to.push(at.field(Kind::String, text.decoded().into_owned()));
    }
    let (is_deep, text) = (depth >= DEPTH, raw.get());
    match text.as_bytes().first() {
        Some(b'{') if is_deep => to.push(at.field(Kind::Object, String::new())),
        Some(b'{') => object(raw, at, depth, to),
        Some(b'[') => list(raw, at, is_deep, depth, to),
        Some(b'n') => to.push(at.field(Kind::Null, "null".to_owned())),
        Some(b't' | b'f') => to.push(at.field(Kind::Boolean, text.to_owned())),
        _ => to.push(at.field(Kind::Number, text.to_owned())),
    }
}

fn object(raw: Raw<'_>, at: Place, depth: usize, to: &mut Vec<Field>) {
    let members = Members::of(raw.get()).unwrap_or_default();
    let places: Vec<_> = members
        .0
        .iter()
        .map(|(key, raw)| (at.member(key), *raw))
        .collect();
    // The outermost object is the event itself.
    if depth > 0 {
        to.push(at.field(Kind::Object, String::new()));
    }
    places
        .into_iter()
        .for_each(|(place, raw)| value(raw, place, depth + 1, to));
}

/// Reads a list. Its elements are fields if they are objects; a list of other values is one value.
fn list(raw: Raw<'_>, at: Place, is_deep: bool, depth: usize, to: &mut Vec<Field>) {
    let all: Vec<Raw<'_>> = json::read(raw.get()).unwrap_or_default();
    if all.is_empty() {
        return to.push(at.field(Kind::EmptyList, "[]".to_owned()));
    }
    if is_deep || !all.iter().all(|element| element.get().starts_with('{')) {
        return to.push(at.field(Kind::List, compacted(raw)));
    }
    let is_numbered = matches!(name(&at.path), "choices" | "tool_calls");
    let places: Vec<_> = (0..)
        .zip(all)
        .map(|(position, element)| {
            let index = Members::of(element.get())
                .and_then(|members| members.get("index"))
                .and_then(integer);
            (
                at.element(index.filter(|_| is_numbered).unwrap_or(position)),
                element,
            )
        })
        .collect();
    to.push(at.field(Kind::List, String::new()));
    places
        .into_iter()
        .for_each(|(place, element)| value(element, place, depth + 1, to));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_path_place_and_type() {
        let text = r#"{"choices":[{"index":1,"delta":{"content":"\u00e9","tool_calls":[{"index":2,"id":null}]}}],
            "token_ids":[1, 2],"empty":[],"none":{}}"#;
        let fields = read(text).unwrap();
        let shown: Vec<_> = fields
            .iter()
            .map(|field| {
                format!(
                    "{} {} {}={}",
                    field.path, field.place, field.kind, field.value
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "choices choices list=",
                "choices[] choices[1] object=",
                "choices[].index choices[1].index number=1",
                "choices[].delta choices[1].delta object=",
                "choices[].delta.content choices[1].delta.content string=é",
                "choices[].delta.tool_calls choices[1].delta.tool_calls list=",
                "choices[].delta.tool_calls[] choices[1].delta.tool_calls[2] object=",
                "choices[].delta.tool_calls[].index choices[1].delta.tool_calls[2].index number=2",
                "choices[].delta.tool_calls[].id choices[1].delta.tool_calls[2].id null=null",
                "token_ids token_ids list=[1,2]",
                "empty empty []=[]",
                "none none object=",
            ]
        );
        assert_eq!(read("{"), None);
    }

    #[test]
    fn deep_nesting_ends_as_one_value() {
        let deep = |count: usize| format!("{}1{}", "{\"a\":".repeat(count), "}".repeat(count));
        assert_eq!(read(&deep(40)).map(|fields| fields.len()), Some(DEPTH));
    }
}
