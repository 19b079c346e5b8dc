//! JSON as a tree, for answers that are judged. Values are never written again.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// JSON value. Of members with the same key, the last one counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// Null.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// Number that is whole and not negative.
    Whole(u64),
    /// Any other number.
    Number(f64),
    /// Text.
    Text(String),
    /// List.
    List(Vec<Self>),
    /// Object.
    Object(BTreeMap<String, Self>),
}

impl Value {
    /// Parses a text; `None` if it is no JSON.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Parses a text; null if it is no JSON.
    pub fn read(text: &str) -> Self {
        Self::parse(text).unwrap_or_default()
    }

    /// Returns the member of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(key),
            _ => None,
        }
    }

    /// Returns the value at a path of keys and positions, such as `/choices/0/delta`.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('/').skip(1).try_fold(self, |value, step| match value {
            Self::List(list) => list.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        })
    }

    /// Returns the text at a path; empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        self.at(path).and_then(Self::as_text).unwrap_or("")
    }

    /// Returns the member of an object; null if there is none.
    pub fn member(&self, key: &str) -> &Self {
        static NULL: Value = Value::Null;
        self.get(key).unwrap_or(&NULL)
    }

    /// Returns the member of an object, to change it.
    pub fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        if let Self::Object(members) = self { members.get_mut(key) } else { None }
    }

    /// Returns the text of a value.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the number, if it is whole and not negative.
    pub fn as_whole(&self) -> Option<u64> {
        if let Self::Whole(number) = self { Some(*number) } else { None }
    }

    /// Returns the number, which may be rounded.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "large numbers are only compared with small ones")]
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the elements of a list.
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// Returns true for null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns true for a text.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Returns true for a number that is whole and not negative.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Returns true for a number.
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Number(_))
    }

    /// Returns true for a list.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::List(_))
    }

    /// Returns true for an object.
    pub fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Returns true if the value says something: it is not null, and no empty text or list.
    pub fn says(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.is_empty(),
            _ => true,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(Builder)
    }
}

/// Builder of values from the parser's events.
struct Builder;

impl<'de> Visitor<'de> for Builder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Whole(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "negative numbers are only told from whole ones")]
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Number(value as f64), Value::Whole))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry()? {
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_paths() {
        let value = Value::read(r#"{"a":[{"b":"c"},-1,2.5,18446744073709551615,true,null],"e":""}"#);
        assert_eq!(value.text("/a/0/b"), "c");
        assert_eq!(value.at("/a/3").and_then(Value::as_whole), Some(u64::MAX));
        assert!(value.at("/a/1").is_some_and(|number| number.is_number() && !number.is_whole()));
        assert_eq!(value.at("/a/4"), Some(&Value::Bool(true)));
        for (path, says) in [("/a", true), ("/a/4", true), ("/a/5", false), ("/e", false)] {
            assert_eq!(value.at(path).map(Value::says), Some(says), "{path}");
        }
        for path in ["/a/9", "/a/x", "/b", "/a/0/b/c"] {
            assert_eq!(value.at(path), None, "{path}");
        }
        assert_eq!(Value::read(&"[".repeat(100_000)), Value::Null);
    }
}
