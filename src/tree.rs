//! JSON as a tree, for answers that are judged. Values are never written again.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
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
    Object(Members),
}

/// Members of an object, in the order of their keys. A map would take hundreds of bytes for an object of one member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members(Box<[(Box<str>, Value)]>);

impl Members {
    fn of(mut all: Vec<(Box<str>, Value)>) -> Self {
        // Of members with the same key, the last one is kept.
        all.reverse();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.dedup_by(|(one, _), (other, _)| one == other);
        Self(all.into_boxed_slice())
    }

    fn place(&self, key: &str) -> Option<usize> {
        self.0.binary_search_by(|(name, _)| (**name).cmp(key)).ok()
    }

    /// Returns the member with this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.place(key).and_then(|at| self.0.get(at)).map(|(_, value)| value)
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the members, each with its key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }
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

    /// Parses a text that has at most as many values as `left` says, which is counted down; `None` if it is no JSON, or
    /// has more of them.
    pub fn parse_within(text: &str, left: &Cell<usize>) -> Option<Self> {
        let mut source = serde_json::Deserializer::from_str(text);
        let value = Builder(Some(left)).deserialize(&mut source).ok()?;
        source.end().is_ok().then_some(value)
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
        let Self::Object(members) = self else { return None };
        let at = members.place(key)?;
        members.0.get_mut(at).map(|(_, value)| value)
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
        Builder(None).deserialize(source)
    }
}

/// Builder of values from the parser's events, with the number of values that are still allowed.
#[derive(Clone, Copy)]
struct Builder<'c>(Option<&'c Cell<usize>>);

impl<'de> DeserializeSeed<'de> for Builder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        if let Some(left) = self.0 {
            left.set(left.get().checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?);
        }
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Builder<'_> {
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
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        list.shrink_to_fit();
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = entries.next_key()? {
            members.push((key, entries.next_value_seed(self)?));
        }
        Ok(Value::Object(Members::of(members)))
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

    #[test]
    fn the_last_member_of_a_key_counts() {
        let mut value = Value::read(r#"{"b":1,"a":{"c":true},"b":2,"":3,"b":4}"#);
        assert_eq!((value.member("b"), value.member("")), (&Value::Whole(4), &Value::Whole(3)));
        *value.member_mut("a").unwrap().member_mut("c").unwrap() = Value::Null;
        let Value::Object(members) = &value else { panic!("{value:?}") };
        let keys: Vec<_> = members.iter().map(|(key, _)| key).collect();
        assert_eq!((keys.as_slice(), members.len()), (&["", "a", "b"][..], 3));
        assert_eq!(value.at("/a/c"), Some(&Value::Null));
        assert_eq!(value.member_mut("d"), None);
    }

    #[test]
    fn values_are_counted() {
        let left = Cell::new(6);
        assert!(Value::parse_within(r#"{"a":[1,2]}"#, &left).is_some());
        assert_eq!(left.get(), 2);
        assert_eq!(Value::parse_within(r#"{"a":[1,2]}"#, &left), None);
        assert_eq!(Value::parse_within("1 2", &Cell::new(9)), None);
    }

    /// A server may send nothing but small objects. Their members are in slices without room for more.
    #[test]
    fn members_are_small() {
        assert!(size_of::<(Box<str>, Value)>() <= 48, "{}", size_of::<(Box<str>, Value)>());
    }
}
