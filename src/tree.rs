//! JSON as a tree, for answers that are judged. Values are never written again.

use serde::de::IgnoredAny;
use std::cell::Cell;

/// JSON value. Of members with the same key, the last one counts.
#[expect(
    clippy::disallowed_types,
    reason = "only read: neither the order of keys nor a number is written again"
)]
pub type Value = serde_json::Value;

/// Values for which an object counts beside itself: its map takes memory for several members, even for one.
const OBJECT: usize = 8;

/// Parses a text; null if it is no JSON.
pub fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Parses a text of at most as many values as `left` says, which is counted down to zero, by one also for a text that is
/// no JSON. Null for such a text, and for one of more values.
pub fn read_within(text: &str, left: &Cell<usize>) -> Value {
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    let rest = left
        .get()
        .checked_sub(if is_json { values(text) } else { 1 });
    left.set(rest.unwrap_or(0));
    rest.filter(|_| is_json)
        .map(|_| read(text))
        .unwrap_or_default()
}

/// Returns the number of values in a JSON text at most, with the memory of objects counted as values.
fn values(text: &str) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' if !in_string => count += 1,
            b'{' if !in_string => count += 1 + OBJECT,
            _ => {}
        }
    }
    count
}

/// Views of a value.
pub trait View {
    /// Returns the member of an object; null if there is none.
    fn member(&self, key: &str) -> &Value;

    /// Returns the text at a path of keys and positions, such as `/choices/0/delta`; empty if there is none.
    fn text(&self, path: &str) -> &str;

    /// Returns the elements of a list at a path; none if there is no list.
    fn list(&self, path: &str) -> &[Value];

    /// Returns true if the value says something: it is not null, and no empty text or list.
    fn says(&self) -> bool;

    /// Returns true if values within it have their shapes, each a path and a word, such as `/id text, /created whole`. A
    /// `text` is not empty, a `string?` may be null, and `=` comes before the text that it must be.
    fn fits(&self, shapes: &str) -> bool;
}

impl View for Value {
    fn member(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Self::Null)
    }

    fn text(&self, path: &str) -> &str {
        self.pointer(path).and_then(Self::as_str).unwrap_or("")
    }

    fn list(&self, path: &str) -> &[Value] {
        self.pointer(path)
            .and_then(Self::as_array)
            .map_or(&[], Vec::as_slice)
    }

    fn says(&self) -> bool {
        match self {
            Self::Null => false,
            Self::String(text) => !text.is_empty(),
            Self::Array(list) => !list.is_empty(),
            _ => true,
        }
    }

    fn fits(&self, shapes: &str) -> bool {
        shapes.split(", ").all(|shape| {
            let (path, word) = shape.split_once(' ').unwrap_or((shape, ""));
            let value = self.pointer(path);
            let is = |test: fn(&Self) -> bool| value.is_some_and(test);
            match word {
                "text" => !self.text(path).is_empty(),
                "string" => is(Self::is_string),
                "string?" => is(|value| value.is_null() || value.is_string()),
                "whole" => is(Self::is_u64),
                "number" => is(Self::is_number),
                "list" => is(Self::is_array),
                "empty" => is(|value| value.as_array().is_some_and(Vec::is_empty)),
                "object" => is(Self::is_object),
                "there" => value.is_some(),
                "absent" => value.is_none(),
                _ => word
                    .strip_prefix('=')
                    .is_some_and(|text| value.and_then(Self::as_str) == Some(text)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_paths() {
        let value = read(r#"{"a":[{"b":"c"},-1,2.5,18446744073709551615,true,null],"e":""}"#);
        assert_eq!(
            (
                value.text("/a/0/b"),
                value.text("/a/9"),
                value.list("/a").len()
            ),
            ("c", "", 6)
        );
        assert_eq!(
            value.pointer("/a/3").and_then(Value::as_u64),
            Some(u64::MAX)
        );
        for (path, says) in [("/a", true), ("/a/4", true), ("/a/5", false), ("/e", false)] {
            assert_eq!(value.pointer(path).map(View::says), Some(says), "{path}");
        }
        assert_eq!(read(&"[".repeat(100_000)), Value::Null);
        assert_eq!(read(r#"{"b":1,"b":2,"b":4}"#)["b"], 4);
    }

    #[test]
    fn values_have_shapes() {
        let value = read(r#"{"a":"b","n":null,"w":1,"f":1.5,"e":"","l":[],"o":{"l":[1]}}"#);
        assert!(value.fits(
            "/a text, /a string, /a string?, /a there, /a =b, /n string?, /w whole, /f number"
        ));
        assert!(value.fits("/l list, /l empty, /o object, /o/l list, /x absent, /e string, /e ="));
        for wrong in [
            "/e text",
            "/x text",
            "/n string",
            "/f whole",
            "/o list",
            "/o/l empty",
            "/n absent",
            "/a =c",
        ] {
            assert!(!value.fits(wrong), "{wrong}");
        }
        assert!(!value.fits("/x there") && !value.fits("/a nonsense") && !value.fits("/a"));
    }

    #[test]
    fn values_are_counted() {
        let left = Cell::new(OBJECT + 6);
        assert!(read_within(r#"{"a":[1,"]{,\","]}"#, &left).is_object());
        assert_eq!(left.get(), 2);
        for (text, rest) in [("1 2", 1), ("[[[[", 0), (r#"{"a":[1,2]}"#, 0)] {
            assert_eq!(
                (read_within(text, &left), left.get()),
                (Value::Null, rest),
                "{text}"
            );
        }
    }

    /// A server may send nothing but small objects. The map of one takes 632 bytes, and each value 32.
    #[test]
    fn objects_count_for_the_memory_that_they_take() {
        assert!(size_of::<Value>() <= 32, "{}", size_of::<Value>());
        assert!(values(r#"{"a":1}"#) * 80 > 632 + 2 * size_of::<Value>());
    }
}
