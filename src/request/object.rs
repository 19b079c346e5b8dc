//! Objects inside a request: access to members by key, with the path to the member in every failure.
//!
//! Takes: a raw value and its path. Gives: its members, checked for their type. Never: acts on a key that occurs
//! twice.

use crate::json::{Members, Raw, Text, compacted};
use crate::request::check::{list, repeated};
use crate::request::refusals::{invalid, missing};
use crate::wire::fault::Failure;
use std::borrow::Cow;
use std::collections::HashSet;

/// Number of members up to which pairwise comparison finds duplicates faster than a set.
const FEW: usize = 16;

/// Object inside a request, with its path for error messages.
#[derive(Debug)]
pub(in crate::request) struct RequestObject<'a> {
    path: String,
    members: Vec<(Cow<'a, str>, Raw<'a>)>,
}

impl<'a> RequestObject<'a> {
    /// Parses `raw` as an object at `path`. Fails if it is no object or has a duplicate key.
    pub(in crate::request) fn of(path: impl Into<String>, raw: Raw<'a>) -> Result<Self, Failure> {
        let path = path.into();
        let Some(Members(members)) = Members::of(raw.get()) else {
            return Err(invalid(path, "it must be an object"));
        };
        let object = Self { path, members };
        match object.repeated() {
            Some(key) => Err(repeated(object.path(key))),
            None => Ok(object),
        }
    }

    fn repeated(&self) -> Option<&str> {
        let mut seen = HashSet::new();
        let mut before: &[(Cow<'a, str>, Raw<'a>)] = &[];
        for (at, (key, _)) in self.members.iter().enumerate() {
            let again = match self.members.len() {
                0..=FEW => before.iter().any(|(other, _)| other == key),
                _ => !seen.insert(key.as_ref()),
            };
            if again {
                return Some(key);
            }
            before = self.members.get(..=at).unwrap_or_default();
        }
        None
    }

    /// Returns the path of a member.
    pub(in crate::request) fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// Returns the path of the object.
    pub(in crate::request) fn here(&self) -> &str {
        &self.path
    }

    /// Returns a member unless it is absent or null.
    pub(in crate::request) fn get(&self, key: &str) -> Option<Raw<'a>> {
        let found = self
            .members
            .iter()
            .find(|(own, _)| own == key)
            .map(|(_, raw)| *raw);
        found.filter(|raw| raw.get() != "null")
    }

    pub(in crate::request) fn required(&self, key: &str) -> Result<Raw<'a>, Failure> {
        self.get(key).ok_or_else(|| missing(&self.path(key)))
    }

    /// Returns a string member, if present. Fails on another type.
    pub(in crate::request) fn text(&self, key: &str) -> Result<Option<Text<'a>>, Failure> {
        self.get(key).map(|raw| self.as_text(key, raw)).transpose()
    }

    pub(in crate::request) fn required_text(&self, key: &str) -> Result<Text<'a>, Failure> {
        self.as_text(key, self.required(key)?)
    }

    /// Returns a string with at least one character, such as a name or an id. Fails if it is absent or empty.
    pub(in crate::request) fn required_name(&self, key: &str) -> Result<Text<'a>, Failure> {
        match self.required_text(key)? {
            name if name.is_empty() => Err(invalid(self.path(key), "it must not be empty")),
            name => Ok(name),
        }
    }

    fn as_text(&self, key: &str, raw: Raw<'a>) -> Result<Text<'a>, Failure> {
        Text::of(raw).ok_or_else(|| invalid(self.path(key), "it must be a string"))
    }

    /// Returns a string that must be one of `words`, if present.
    pub(in crate::request) fn word(
        &self,
        key: &str,
        words: &[&str],
    ) -> Result<Option<Cow<'a, str>>, Failure> {
        let Some(word) = self.text(key)?.map(|text| text.decoded()) else {
            return Ok(None);
        };
        if words.contains(&word.as_ref()) {
            return Ok(Some(word));
        }
        Err(invalid(
            self.path(key),
            &format!("it must be {}", alternatives(words)),
        ))
    }

    pub(in crate::request) fn flag(&self, key: &str) -> Result<Option<Raw<'a>>, Failure> {
        match self.get(key) {
            Some(raw) if !matches!(raw.get(), "true" | "false") => {
                Err(invalid(self.path(key), "it must be true or false"))
            }
            flag => Ok(flag),
        }
    }

    /// Returns an object member, if present. Fails on another type.
    pub(in crate::request) fn object(&self, key: &str) -> Result<Option<Self>, Failure> {
        self.get(key)
            .map(|raw| Self::of(self.path(key), raw))
            .transpose()
    }

    /// Returns an object member as raw JSON that is passed on without parsing.
    pub(in crate::request) fn carried(&self, key: &str) -> Result<Option<Raw<'a>>, Failure> {
        match self.get(key) {
            Some(raw) if !raw.get().starts_with('{') => {
                Err(invalid(self.path(key), "it must be an object"))
            }
            object => Ok(object),
        }
    }

    /// Returns the objects of a list; empty if the member is absent. Fails above `most` elements.
    pub(in crate::request) fn objects(&self, key: &str, most: usize) -> Result<Vec<Self>, Failure> {
        let Some(raw) = self.get(key) else {
            return Ok(Vec::new());
        };
        let path = self.path(key);
        let all = list(&path, raw, most)?;
        all.into_iter()
            .enumerate()
            .map(|(at, raw)| Self::of(format!("{path}[{at}]"), raw))
            .collect()
    }

    /// Returns a member as compact JSON, as the answer echoes it.
    pub(in crate::request) fn compact(&self, key: &str) -> Option<String> {
        self.get(key).map(compacted)
    }
}

/// Joins the words for an error message: `a, b or c`.
pub(in crate::request) fn alternatives(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_once_in_small_objects_and_in_large_ones() {
        for count in [2, FEW, FEW + 1, 100] {
            let members: Vec<_> = (0..count).map(|at| format!("\"k{at}\":1")).collect();
            let fine = format!("{{{}}}", members.join(","));
            RequestObject::of("a", Raw::of(&fine).unwrap()).unwrap();
            let twice = format!("{{{},\"\\u006b0\":2}}", members.join(","));
            let failure = RequestObject::of("a", Raw::of(&twice).unwrap()).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some("a.k0"), "{count}");
        }
    }

    #[test]
    fn alternatives_are_a_sentence() {
        for (words, text) in [
            (&["a"][..], "a"),
            (&["a", "b"], "a or b"),
            (&["a", "b", "c"], "a, b or c"),
        ] {
            assert_eq!(alternatives(words), text);
        }
    }
}
