//! Runs: neighbouring events of the same form. Two answers are cut into pieces of different number, so that runs and
//! not events are what is aligned.
//!
//! Takes: the events of an answer. Gives: [`Run`]s. Never: more than [`LIMIT`] of them, since aligning takes time and
//! memory in proportion to the product of both numbers.

use super::answer::{Data, Event};
use super::field::Field;
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of runs of an answer. Events after the last of them join an earlier run of their form.
const LIMIT: usize = 1000;
/// Names of the fields of a choice that say something, and what it is called here.
const CHOICE: [(&str, &str); 7] = [
    ("role", "role"),
    ("content", "content"),
    ("reasoning_content", "reasoning"),
    ("reasoning", "reasoning"),
    ("refusal", "refusal"),
    ("text", "text"),
    ("finish_reason", "finish_reason"),
];
/// Names of the fields of a call that say something.
const CALL: [&str; 3] = ["id", "name", "arguments"];
/// Fields that tell typed events apart, in addition to `type`.
const DETAILS: [&str; 7] = [
    "item.type",
    "content_block.type",
    "delta.type",
    "part.type",
    "output_index",
    "content_index",
    "index",
];

/// Form of an event: what it says, regardless of the words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// Event whose `type` says what it is, with details such as the item's type.
    Typed(String, BTreeSet<String>),
    /// Event without a type, with the parts that it says: `role`, `content`, `usage`.
    Parts(BTreeSet<String>),
    /// End mark of a stream.
    Done,
    /// Text that is not JSON.
    Text,
}

impl Shape {
    pub(super) fn of(event: &Event) -> Self {
        let fields = match &event.data {
            Data::Done => return Self::Done,
            Data::Text(_) => return Self::Text,
            Data::Fields(fields) => fields,
        };
        let find = |path: &str| {
            fields
                .iter()
                .find(|field| field.path == path && field.is_said())
        };
        match find("type") {
            Some(kind) => {
                let details = DETAILS.iter().filter_map(|path| Some((path, find(path)?)));
                let details = details
                    .map(|(path, field)| format!("{path} {}", field.value))
                    .collect();
                Self::Typed(kind.value.clone(), details)
            }
            None => Self::Parts(
                fields
                    .iter()
                    .filter(|field| is_there(field))
                    .filter_map(|field| part(&field.place))
                    .collect(),
            ),
        }
    }

    /// Returns what the event says, as a label: `content`, `response.created`.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Done => "[DONE]".to_owned(),
            Self::Text => "text that is not JSON".to_owned(),
            Self::Parts(parts) if parts.is_empty() => "nothing said".to_owned(),
            Self::Parts(parts) => parts
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(" + "),
            Self::Typed(kind, details) => {
                let details = details
                    .iter()
                    .filter_map(|detail| detail.split_once(".type "));
                let mut label = kind.clone();
                details.for_each(|(_, detail)| label += &format!(" {detail}"));
                label
            }
        }
    }

    /// Returns the parts of an event without a type.
    pub(super) fn parts(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Parts(parts) => Some(parts),
            _ => None,
        }
    }

    /// Returns the number of the choice to which an event belongs; `None` if it belongs to none.
    fn choice(&self) -> Option<u32> {
        let part = self
            .parts()?
            .iter()
            .find(|part| !matches!(part.as_str(), "usage" | "error"))?;
        match part
            .strip_prefix("choices[")
            .and_then(|rest| rest.split_once(']'))
        {
            Some((number, _)) => number.parse().ok(),
            None => Some(0),
        }
    }

    /// Returns how alike two forms are, from 0 (not to be aligned) to 1 (equal).
    pub(super) fn likeness(&self, other: &Self) -> f32 {
        match (self, other) {
            (Self::Done, Self::Done) | (Self::Text, Self::Text) => 1.0,
            (Self::Parts(one), Self::Parts(two)) => shared(one, two),
            // Events of one type belong together also where no detail is equal.
            (Self::Typed(one, details), Self::Typed(two, others)) if one == two => {
                0.25 + 0.75 * shared(details, others)
            }
            _ => 0.0,
        }
    }
}

/// Returns the share of elements that are in both sets.
fn shared(one: &BTreeSet<String>, two: &BTreeSet<String>) -> f32 {
    let all = one.union(two).count();
    if all == 0 {
        1.0
    } else {
        one.intersection(two).count() as f32 / all as f32
    }
}

/// Returns true if a field makes its event say something. Usage and an error are objects.
fn is_there(field: &Field) -> bool {
    field.is_said() || matches!(field.path.as_str(), "usage" | "error") && field.value.is_empty()
}

/// Returns the part of an event to which a field in this place belongs; `None` if it is no separate part.
pub(super) fn part(place: &str) -> Option<String> {
    let within = |name: &str| {
        place
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(name) = ["usage", "error"].into_iter().find(|name| within(name)) {
        return Some(name.to_owned());
    }
    let rest = place.strip_prefix("choices[")?;
    let (number, rest) = rest.split_once("].")?;
    let rest = ["delta.", "message."]
        .into_iter()
        .find_map(|outer| rest.strip_prefix(outer))
        .unwrap_or(rest);
    let own = CHOICE
        .iter()
        .find(|(name, _)| *name == rest)
        .map(|(_, part)| (*part).to_owned());
    let call = || {
        let (outer, last) = rest.rsplit_once('.')?;
        let outer = outer.strip_suffix(".function").unwrap_or(outer);
        let is_call =
            outer.starts_with("tool_calls[") && outer.ends_with(']') || outer == "function_call";
        (is_call && CALL.contains(&last)).then(|| format!("{outer}.{last}"))
    };
    let part = own.or_else(call)?;
    Some(if number == "0" {
        part
    } else {
        format!("choices[{number}].{part}")
    })
}

/// Run of events of one form.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) shape: Shape,
    /// Positions of the events in their answer, from 0.
    pub(super) events: Vec<usize>,
}

/// Returns the runs of an answer, in order. Events of several choices come in turns that no client relies on: each
/// choice has its own runs, one choice after the other, and last what belongs to no choice.
pub(super) fn runs(events: &[Event]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    // Last run of each choice; of the only choice and of the rest if there are no others.
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    let shapes: Vec<_> = events.iter().map(Shape::of).collect();
    let has_several = shapes
        .iter()
        .any(|shape| shape.choice().is_some_and(|number| number > 0));
    let lane = |shape: &Shape| {
        if has_several {
            shape.choice().unwrap_or(u32::MAX)
        } else {
            0
        }
    };
    for (at, shape) in shapes.into_iter().enumerate() {
        let lane = lane(&shape);
        let is_same = |run: &usize| runs.get(*run).is_some_and(|run| run.shape == shape);
        let known = if runs.len() >= LIMIT {
            Some(
                runs.iter()
                    .rposition(|run| run.shape == shape)
                    .unwrap_or(LIMIT - 1),
            )
        } else {
            last.get(&lane).copied().filter(is_same)
        };
        match known.and_then(|known| runs.get_mut(known)) {
            Some(run) => run.events.push(at),
            None => {
                last.insert(lane, runs.len());
                runs.push(Run {
                    shape,
                    events: vec![at],
                });
            }
        }
    }
    runs.sort_by_key(|run| lane(&run.shape));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::answer::{Answer, Form};

    fn labels(stream: &str) -> Vec<(String, usize)> {
        let answer = Answer::read(Form::Events, stream.as_bytes(), false, None).unwrap();
        runs(&answer.events)
            .iter()
            .map(|run| (run.shape.label(), run.events.len()))
            .collect()
    }

    #[test]
    fn neighbours_of_one_form_are_a_run() {
        let chunk =
            |delta: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
        let stream = [
            chunk(r#"{"role":"assistant","content":""}"#),
            chunk(r#"{"content":"a","tool_calls":[]}"#),
            chunk(r#"{"content":"b","reasoning_content":null}"#),
            chunk(r#"{"reasoning":"c"}"#),
            chunk(
                r#"{"tool_calls":[{"index":1,"id":"d","function":{"name":"e","arguments":""}}]}"#,
            ),
            "data: {\"choices\":[],\"usage\":{\"total_tokens\":1}}\n\n".to_owned(),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat();
        let expected = [
            ("role", 1),
            ("content", 2),
            ("reasoning", 1),
            ("tool_calls[1].id + tool_calls[1].name", 1),
            ("usage", 1),
            ("[DONE]", 1),
        ];
        assert_eq!(
            labels(&stream),
            expected.map(|(label, count)| (label.to_owned(), count))
        );
    }

    #[test]
    fn choices_have_runs_of_their_own() {
        let chunk = |index: u32| {
            format!(
                "data: {{\"choices\":[{{\"index\":{index},\"delta\":{{\"content\":\"a\"}}}}]}}\n\n"
            )
        };
        let stream = [1, 0, 1, 0, 0].map(chunk).concat() + "data: [DONE]\n\n";
        let expected = [("content", 3), ("choices[1].content", 2), ("[DONE]", 1)];
        assert_eq!(
            labels(&stream),
            expected.map(|(label, count)| (label.to_owned(), count))
        );
    }

    #[test]
    fn typed_events_are_told_apart_by_type_and_item() {
        let stream = concat!(
            "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"message\"}}\n\n",
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"a\"}\n\n",
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"b\"}\n\n",
        );
        let expected = [
            ("response.output_item.added message", 1),
            ("response.output_text.delta", 2),
        ];
        assert_eq!(
            labels(stream),
            expected.map(|(label, count)| (label.to_owned(), count))
        );
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let pair = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"reasoning\":\"a\"}}]}\n\n";
        let found = labels(&pair.repeat(LIMIT));
        assert_eq!(found.len(), LIMIT);
        assert_eq!(
            found.iter().map(|(_, count)| count).sum::<usize>(),
            2 * LIMIT
        );
    }
}
