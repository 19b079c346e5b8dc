//! Differences in words: texts, arguments, ids, times, counts and names of models, which differ between any two
//! answers.
//!
//! Takes: the events of both answers. Gives: [`WordDifference`]s, one for each field, with its pieces joined.

use super::answer::{Data, Event};
use super::field::{Field, Kind, name};
use super::finding::is_fixed;
use crate::named::named;
use serde::Serialize;
use std::collections::BTreeMap;

named! {
    /// Kind of words. The JSON output contains its name in snake case.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Topic {
        /// Text of the answer, of its reasoning or of an error.
        Text = "text",
        /// Names and arguments of calls.
        Calls = "calls",
        /// Ids.
        Ids = "ids",
        /// Times.
        Times = "times",
        /// Counts of tokens, and numbers that count events.
        Counts = "counts",
        /// Names of models and builds.
        Model = "model",
        /// Other values.
        Other = "other values",
    }
}

/// Field whose words differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WordDifference {
    /// Kind of words.
    pub topic: Topic,
    /// Path of the field, after the type of its events if they have one.
    pub path: String,
    /// Words of A: the pieces of a text joined, or the different values.
    pub a: String,
    /// Words of B.
    pub b: String,
}

/// Number of different values of a field that are listed.
const LISTED: usize = 4;
/// Fields whose pieces form one text.
const TEXTS: [&str; 10] = [
    "content",
    "reasoning_content",
    "reasoning",
    "thinking",
    "text",
    "arguments",
    "partial_json",
    "refusal",
    "delta",
    "signature",
];

/// Returns the fields that both sides have and whose words differ, in the order of their topics.
pub(super) fn differing(a: &[Event], b: &[Event]) -> Vec<WordDifference> {
    let (one, mut two) = (words(a), words(b));
    let both = one
        .into_iter()
        .filter_map(|(path, a)| two.remove(&path).map(|b| (path, a, b)));
    let mut found: Vec<_> = both
        .filter(|(_, a, b)| a.all != b.all)
        .map(|(path, a, b)| WordDifference {
            topic: topic(&path),
            path,
            a: a.shown(),
            b: b.shown(),
        })
        .collect();
    found.sort_by_key(|one| one.topic);
    found
}

/// Words of one field in all events of an answer.
#[derive(Default)]
struct Words {
    /// Pieces of a text, joined, or each value that is new.
    all: Vec<String>,
    is_text: bool,
}

impl Words {
    fn add(&mut self, field: &Field) {
        self.is_text = field.kind == Kind::String && TEXTS.contains(&field.name());
        if let Some(text) = self.all.first_mut().filter(|_| self.is_text) {
            text.push_str(&field.value);
        } else if self.all.len() <= LISTED && !self.all.contains(&field.value) {
            self.all.push(field.value.clone());
        }
    }

    fn shown(&self) -> String {
        let listed = self
            .all
            .iter()
            .take(LISTED)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        if self.all.len() > LISTED {
            format!("{listed}, …")
        } else {
            listed
        }
    }
}

fn words(events: &[Event]) -> BTreeMap<String, Words> {
    let mut all: BTreeMap<String, Words> = BTreeMap::new();
    for event in events {
        let fields = match &event.data {
            Data::Fields(fields) => fields,
            Data::Text(text) => {
                let words = Words {
                    all: vec![text.clone()],
                    is_text: true,
                };
                all.entry("body".to_owned()).or_insert(words);
                continue;
            }
            Data::Done => continue,
        };
        let kind = fields
            .iter()
            .find(|field| field.path == "type" && field.is_said());
        for field in fields
            .iter()
            .filter(|field| field.is_said() && !is_fixed(&field.path, field.name()))
        {
            let place = match kind {
                Some(kind) => format!("{} {}", kind.value, field.place),
                None => field.place.clone(),
            };
            all.entry(place).or_default().add(field);
        }
    }
    all
}

fn topic(place: &str) -> Topic {
    let path = place.rsplit(' ').next().unwrap_or(place);
    let name = name(path);
    let is_call = path.contains("tool_calls") || path.contains("function_call");
    match name {
        "id" => Topic::Ids,
        _ if name.ends_with("_id") => Topic::Ids,
        "created" | "created_at" | "completed_at" => Topic::Times,
        "model" | "system_fingerprint" => Topic::Model,
        "sequence_number" => Topic::Counts,
        _ if name.ends_with("_tokens")
            || path.starts_with("usage.")
            || path.contains(".usage.") =>
        {
            Topic::Counts
        }
        "arguments" | "partial_json" => Topic::Calls,
        "name" if is_call || path.starts_with("item.") => Topic::Calls,
        _ if place.contains("arguments.d") => Topic::Calls,
        "body" | "message" => Topic::Text,
        _ if TEXTS.contains(&name) => Topic::Text,
        _ => Topic::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::answer::events_of as of;

    #[test]
    fn words_are_joined_and_sorted_by_topic() {
        let a = of(&[
            r#"{"id":"x","created":1,"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#,
            r#"{"id":"x","created":1,"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}"#,
        ]);
        let b = of(&[
            r#"{"id":"y","created":1,"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"length"}]}"#,
            r#"{"id":"z","created":2,"usage":{"total_tokens":3}}"#,
        ]);
        let found: Vec<_> = differing(&a, &b)
            .iter()
            .map(|word| format!("{:?} {} {} | {}", word.topic, word.path, word.a, word.b))
            .collect();
        assert_eq!(found, ["Ids id x | y, z", "Times created 1 | 1, 2"]);
    }

    #[test]
    fn every_path_has_its_topic() {
        for (place, expected) in [
            ("choices[0].delta.content", Topic::Text),
            (
                "choices[0].delta.tool_calls[0].function.arguments",
                Topic::Calls,
            ),
            ("choices[0].delta.tool_calls[0].function.name", Topic::Calls),
            ("choices[0].delta.tool_calls[0].id", Topic::Ids),
            ("response.function_call_arguments.delta delta", Topic::Calls),
            ("response.output_text.delta delta", Topic::Text),
            ("response.output_text.delta item_id", Topic::Ids),
            ("response.output_text.delta sequence_number", Topic::Counts),
            ("usage.prompt_tokens_details.cached_tokens", Topic::Counts),
            ("error.message", Topic::Text),
            ("response.created response.temperature", Topic::Other),
        ] {
            assert_eq!(topic(place), expected, "{place}");
        }
    }
}
