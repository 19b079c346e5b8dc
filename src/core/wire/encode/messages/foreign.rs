//! Block that samewire does not model, in a whole message: the JSON of its start with the deltas added, as the official
//! libraries add them up.
//!
//! Takes: the start, and each delta. Gives: one object. Remembers: its members as JSON. Never: interprets a member.

use crate::json::{Members, Raw, Text, separated, write_compact, write_string};
use bytes::{BufMut, BytesMut};

/// Key of the deltas by which a tool's `input` comes as text.
const PARTIAL_INPUT: &str = "partial_json";

/// Foreign block as far as it has come.
pub(super) struct ForeignBlock {
    members: Vec<(String, Member)>,
    /// JSON of `input` from deltas.
    input: String,
}

/// Value of a member.
enum Member {
    /// JSON as it came.
    Json(String),
    /// Text to which deltas add.
    Text(String),
    /// JSON of a list to which deltas add, without its last bracket.
    List(String),
}

impl Member {
    /// Returns the text of the member to which a delta adds; another value is replaced.
    fn as_text(&mut self) -> &mut String {
        if let Self::Json(json) = self {
            let text = Raw::of(json)
                .and_then(Text::of)
                .map(|text| text.decoded().into_owned());
            *self = Self::Text(text.unwrap_or_default());
        }
        let (Self::Json(text) | Self::Text(text) | Self::List(text)) = self;
        text
    }

    /// Returns the elements of the list to which a delta adds; another value is replaced.
    fn as_list(&mut self) -> &mut String {
        if let Self::Json(json) = self {
            let list = json
                .trim()
                .strip_suffix(']')
                .filter(|list| list.starts_with('['));
            *self = Self::List(list.unwrap_or("[").trim_end().to_owned());
        }
        let (Self::Json(text) | Self::Text(text) | Self::List(text)) = self;
        text
    }
}

impl ForeignBlock {
    /// Begins with the block's start.
    pub(super) fn of(start: &str) -> Self {
        let Members(members) = Members::of(start).unwrap_or_default();
        let members = members.into_iter();
        let members =
            members.map(|(key, value)| (key.into_owned(), Member::Json(value.get().to_owned())));
        Self {
            members: members.collect(),
            input: String::new(),
        }
    }

    /// Adds a delta: a text goes on, a citation is one more, anything else takes the place of its member.
    pub(super) fn add(&mut self, delta: Raw<'_>) {
        let Members(members) = Members::of(delta.get()).unwrap_or_default();
        for (key, value) in members.into_iter().filter(|(key, _)| key != "type") {
            match (&*key, Text::of(value)) {
                (PARTIAL_INPUT, Some(text)) => self.input.push_str(&text.decoded()),
                ("citation", _) => self.change("citations", |citations| {
                    let list = citations.as_list();
                    list.push_str(if list == "[" { "" } else { "," });
                    list.push_str(value.get());
                }),
                (key, Some(text)) => {
                    self.change(key, |own| own.as_text().push_str(&text.decoded()))
                }
                (key, None) => self.change(key, |own| *own = Member::Json(value.get().to_owned())),
            }
        }
    }

    /// Writes the block.
    pub(super) fn write(mut self, out: &mut BytesMut) {
        if Raw::of(&self.input).is_some() {
            let input = std::mem::take(&mut self.input);
            self.change("input", |own| *own = Member::Json(input));
        }
        out.put_u8(b'{');
        separated(&self.members, out, |(key, value), out| {
            write_string(key, out);
            out.put_u8(b':');
            match value {
                Member::Json(json) => write_compact(json, out),
                Member::Text(text) => write_string(text, out),
                Member::List(list) => write_compact(&format!("{list}]"), out),
            }
        });
        out.put_u8(b'}');
    }

    /// Changes a member, which is null if it is new.
    fn change(&mut self, key: &str, change: impl FnOnce(&mut Member)) {
        if let Some((_, own)) = self.members.iter_mut().find(|(own, _)| own == key) {
            return change(own);
        }
        let mut new = Member::Json("null".to_owned());
        change(&mut new);
        self.members.push((key.to_owned(), new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_add_up() {
        for (start, deltas, expected) in [
            (
                r#"{"type":"server_tool_use","id":"s","input":{}}"#,
                &[
                    r#"{"type":"input_json_delta","partial_json":"{\"q\""}"#,
                    r#"{"type":"input_json_delta","partial_json":":1}"}"#,
                ][..],
                r#"{"type":"server_tool_use","id":"s","input":{"q":1}}"#,
            ),
            // Input that is no JSON leaves what the start has.
            (
                r#"{"type":"x","input":{}}"#,
                &[r#"{"type":"input_json_delta","partial_json":"{"}"#],
                r#"{"type":"x","input":{}}"#,
            ),
            (
                r#"{"type":"x","text":"a"}"#,
                &[
                    r#"{"type":"text_delta","text":"\"b"}"#,
                    r#"{"type":"y","new":"c","n":1}"#,
                    r#"{"n":2}"#,
                ],
                r#"{"type":"x","text":"a\"b","new":"c","n":2}"#,
            ),
            (
                r#"{"type":"x","citations":[]}"#,
                &[
                    r#"{"type":"citations_delta","citation":{"a":1}}"#,
                    r#"{"citation":2}"#,
                ],
                r#"{"type":"x","citations":[{"a":1},2]}"#,
            ),
            (
                r#"{"type":"x"}"#,
                &[r#"{"citation":1}"#, "null", "3"],
                r#"{"type":"x","citations":[1]}"#,
            ),
            ("{}", &[], "{}"),
        ] {
            let (mut block, mut out) = (ForeignBlock::of(start), BytesMut::new());
            deltas
                .iter()
                .for_each(|delta| block.add(Raw::of(delta).unwrap()));
            block.write(&mut out);
            assert_eq!(
                std::str::from_utf8(&out).unwrap(),
                expected,
                "{start} {deltas:?}"
            );
        }
    }
}
