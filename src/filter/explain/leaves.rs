//! Fields of a frame, each with path and value, so that two frames can be compared field by field.
//!
//! Takes: the JSON of an engine's chunk, of a canonical frame or of a request. Gives: [`Leaf`]s. Never: a tree.

use crate::json::{self, Members, Raw, Text, compacted};
use crate::visible::cut;

/// Maximum nesting depth of objects read as fields; a deeper object is one value.
const DEPTH: usize = 8;
/// Maximum number of characters shown of a value, so that a finding fits on a line.
const SHOWN: usize = 40;
/// Fields with the same value in all frames of an answer, such as its id, so that they do not distinguish a frame.
const ENVELOPE: [&str; 7] = [
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "type",
    "index",
];
/// Fields that carry model output, in pieces.
const TEXTS: [&str; 8] = [
    "content",
    "reasoning_content",
    "reasoning",
    "thinking",
    "text",
    "arguments",
    "partial_json",
    "refusal",
];
/// Objects left out of paths, since a choice has only one of them.
const TRANSPARENT: [&str; 2] = ["delta", "message"];
/// Fields whose value is kept whole, without paths into it: individual probabilities do not matter here.
const OPAQUE: [&str; 2] = ["logprobs", "prompt_logprobs"];

/// Value of a field, comparable regardless of how the JSON is spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A string, with its escapes resolved.
    Text(String),
    /// Another value, as JSON without white space.
    Other(String),
}

impl Value {
    fn of(raw: Raw<'_>) -> Self {
        match Text::of(raw) {
            Some(text) => Self::Text(text.decoded().into_owned()),
            None => Self::Other(compacted(raw)),
        }
    }

    pub(super) fn is_null(&self) -> bool {
        *self == Self::Other("null".to_owned())
    }

    /// Returns true if the value is empty: null, `[]`, `{}` or an empty string.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Other(value) => ["null", "[]", "{}"].contains(&value.as_str()),
        }
    }

    /// Returns the content of a string value.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(_) => None,
        }
    }

    /// Returns the value as JSON, cut after 40 characters.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Other(value) => cut(value, SHOWN),
            Self::Text(text) => json::quoted(&cut(text, SHOWN)),
        }
    }
}

/// Field with a scalar or opaque value, the unit in which frames are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Path of object names down to the field, separated by dots. `choices[0]`, `delta` and `message` are left
    /// out.
    pub(super) path: String,
    pub(super) value: Value,
}

impl Leaf {
    pub(super) fn is_text(&self) -> bool {
        is_text(&self.path)
    }

    /// Returns true if the field belongs to the whole answer and is equal in each frame.
    pub(super) fn is_envelope(&self) -> bool {
        is_envelope(&self.path)
    }
}

/// Returns true if a field with this path carries model output.
pub(super) fn is_text(path: &str) -> bool {
    TEXTS.contains(&name(path))
}

/// Returns true if a field with this path belongs to the whole answer.
pub(super) fn is_envelope(path: &str) -> bool {
    ENVELOPE.contains(&name(path))
        && !path.contains("tool_calls")
        && !path.contains("function_call")
}

/// Returns the last segment of a path, which is the field's own name.
pub(super) fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Reads the frames of one answer. Tool calls are numbered in order of appearance, so that engine and canonical
/// calls match even if their `index` differs.
#[derive(Debug, Default)]
pub(super) struct LeafReader {
    calls: Vec<String>,
}

impl LeafReader {
    /// Returns the fields of a frame; empty if `data` is no JSON object.
    pub(super) fn read(&mut self, data: &str) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        if let Some(members) = Members::of(data.trim()) {
            self.object(members, "", 0, &mut leaves);
        }
        leaves
    }

    fn object(
        &mut self,
        Members(members): Members<'_>,
        path: &str,
        depth: usize,
        to: &mut Vec<Leaf>,
    ) {
        for (key, raw) in members {
            let joined = if path.is_empty() {
                key.to_string()
            } else {
                format!("{path}.{key}")
            };
            let is_opaque = depth >= DEPTH || OPAQUE.contains(&key.as_ref());
            match Members::of(raw.get()).filter(|_| !is_opaque) {
                Some(inner) if TRANSPARENT.contains(&key.as_ref()) => {
                    self.object(inner, path, depth + 1, to);
                }
                Some(inner) if !inner.0.is_empty() => self.object(inner, &joined, depth + 1, to),
                None if key == "choices" && raw.get() == "[]" => {}
                None if !is_opaque => self.list(&key, raw, joined, depth, to),
                _ => to.push(Leaf {
                    path: joined,
                    value: Value::of(raw),
                }),
            }
        }
    }

    /// Reads a value that may be a list of objects: each element gets its number in the path.
    fn list(&mut self, key: &str, raw: Raw<'_>, path: String, depth: usize, to: &mut Vec<Leaf>) {
        let elements = json::read::<Vec<Raw<'_>>>(raw.get()).ok();
        let objects: Option<Vec<Members<'_>>> = elements.and_then(|all| {
            all.into_iter()
                .map(|element| Members::of(element.get()))
                .collect()
        });
        let Some(objects) = objects.filter(|all| !all.is_empty()) else {
            return to.push(Leaf {
                path,
                value: Value::of(raw),
            });
        };
        for (at, members) in objects.into_iter().enumerate() {
            let number = match key {
                "choices" => members
                    .get("index")
                    .and_then(json::integer)
                    .map_or(at, |index| index as usize),
                "tool_calls" => self.call(members.get("index"), at),
                _ => at,
            };
            let path = match (key, number) {
                ("choices", 0) => String::new(),
                (_, 0) if key == "tool_calls" => path.clone(),
                _ => format!("{path}[{number}]"),
            };
            // The path already contains the index of the choice.
            let members = match key {
                "choices" => Members(
                    members
                        .0
                        .into_iter()
                        .filter(|(key, _)| key != "index")
                        .collect(),
                ),
                _ => members,
            };
            self.object(members, &path, depth + 1, to);
        }
    }

    /// Returns the running number of a tool call, by its `index` or else its position.
    fn call(&mut self, index: Option<Raw<'_>>, at: usize) -> usize {
        let index = index.map_or_else(|| format!("at {at}"), |raw| raw.get().to_owned());
        match self.calls.iter().position(|known| *known == index) {
            Some(number) => number,
            None => {
                self.calls.push(index);
                self.calls.len() - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &str) -> String {
        let leaves = LeafReader::default().read(data);
        leaves
            .iter()
            .map(|leaf| format!("{}={}", leaf.path, leaf.value.shown()))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn fields_have_short_paths() {
        for (data, expected) in [
            (
                r#"{"id":"a","choices":[{"index":0,"delta":{"content":"\u00e9"},"finish_reason":null}]}"#,
                r#"id="a" content="é" finish_reason=null"#,
            ),
            (
                r#"{"choices":[{"index":1,"delta":{}}],"usage":{"a":{"b":1}}}"#,
                "usage.a.b=1",
            ),
            (
                r#"{"choices":[{"index":1,"message":{"content":"a"}}]}"#,
                r#"choices[1].content="a""#,
            ),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"index":3,"id":"x"},{"index":5,"function":{"arguments":"{"}}]}}]}"#,
                r#"tool_calls.index=3 tool_calls.id="x" tool_calls[1].index=5 tool_calls[1].function.arguments="{""#,
            ),
            (
                r#"{"token_ids":[1, 2],"logprobs":{"content":[{"token":"a"}]}}"#,
                r#"token_ids=[1,2] logprobs={"content":[{"token":"a"}]}"#,
            ),
            (
                r#"{"type":"response.output_text.delta","delta":"a"}"#,
                r#"type="response.output_text.delta" delta="a""#,
            ),
            ("[DONE]", ""),
        ] {
            assert_eq!(shown(data), expected);
        }
        let long = format!(r#"{{"a":"{}"}}"#, "é".repeat(41));
        assert_eq!(shown(&long), format!("a=\"{}…\"", "é".repeat(40)));
    }
}
