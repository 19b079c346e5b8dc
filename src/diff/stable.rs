//! Values that are the same in all events of an answer, such as its id, or ought to be.

use super::answer::{Data, Event};
use super::field::Field;
use std::collections::{BTreeMap, BTreeSet};

/// Fields with one value for a whole answer.
const WHOLE: [&str; 8] = [
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "response.id",
    "response.created_at",
    "response.model",
];

/// Returns the fields that keep one value on one side and change on the other, each with a description of both.
pub(super) fn differing(a: &[Event], b: &[Event]) -> Vec<(String, String, String)> {
    let (one, two) = (changes(a), changes(b));
    let words = |count: usize| {
        if count == 1 {
            "constant".to_owned()
        } else {
            format!("{count} values")
        }
    };
    let both = one
        .iter()
        .filter_map(|(path, count)| Some((path, *count, *two.get(path)?)));
    both.filter(|(_, one, two)| (*one == 1) != (*two == 1))
        .map(|(path, one, two)| ((*path).to_owned(), words(one), words(two)))
        .collect()
}

/// Returns the largest number of values that a field has where it should have one.
fn changes(events: &[Event]) -> BTreeMap<&str, usize> {
    let mut values: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for event in events {
        let Data::Fields(fields) = &event.data else {
            continue;
        };
        for field in fields.iter().filter(|field| field.is_said()) {
            if let Some(key) = key(field, fields) {
                values.entry(key).or_default().insert(&field.value);
            }
        }
    }
    let mut most = BTreeMap::new();
    for ((path, _), values) in values {
        let count: &mut usize = most.entry(path).or_default();
        *count = values.len().max(*count);
    }
    most
}

/// Returns the name of a field with one value, and of what it belongs to: the answer, an item or a call.
fn key<'f>(field: &'f Field, fields: &'f [Field]) -> Option<(&'f str, String)> {
    let path = field.path.as_str();
    if WHOLE.contains(&path) {
        return Some((path, String::new()));
    }
    if matches!(path, "item_id" | "item.id") {
        let index = fields.iter().find(|other| other.path == "output_index")?;
        return Some(("item_id", index.value.clone()));
    }
    path.ends_with(".tool_calls[].id")
        .then(|| (path, field.place.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::answer::events_of as of;

    #[test]
    fn ids_that_change_are_found() {
        let same = of(&[r#"{"id":"a","created":1}"#, r#"{"id":"a","created":1}"#]);
        let other = of(&[
            r#"{"id":"b","created":1}"#,
            r#"{"id":"c","created":2}"#,
            r#"{"id":"d"}"#,
        ]);
        let found = differing(&same, &other);
        let expected = [
            ("created", "constant", "2 values"),
            ("id", "constant", "3 values"),
        ];
        assert_eq!(
            found,
            expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()))
        );
        assert_eq!(differing(&same, &same), []);
        assert_eq!(
            differing(&same, &of(&["{}", "{}"])),
            [],
            "a field that is missing does not change"
        );
    }

    #[test]
    fn items_and_calls_have_an_id_each() {
        let item = |index: u32, id: &str| format!(r#"{{"output_index":{index},"item_id":"{id}"}}"#);
        let (a, b) = ([item(0, "a"), item(1, "b")], [item(0, "a"), item(0, "b")]);
        let found = differing(
            &of(&a.each_ref().map(String::as_str)),
            &of(&b.each_ref().map(String::as_str)),
        );
        assert_eq!(
            found,
            [(
                "item_id".to_owned(),
                "constant".to_owned(),
                "2 values".to_owned()
            )]
        );
    }
}
