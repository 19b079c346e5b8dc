//! Grammar of Responses streams (wire-format 4.6, 4.7, 4.9).

use super::rule::Rule;
use super::schema::{self, satisfies};
use super::violation::{Broken, keeps};
use crate::tree::Value;
use std::collections::BTreeMap;

/// Error codes of failed responses that the service sends, and its published schema does not name (4.7).
const CODES: [&str; 4] =
    ["context_length_exceeded", "insufficient_quota", "usage_not_included", "server_is_overloaded"];
/// Events of other dialects than `openai` (4.9).
const DIALECTS: [&str; 7] = [
    "response.tool_call.delta",
    "response.reasoning.delta",
    "response.reasoning.done",
    "response.reasoning.summary.added",
    "response.reasoning.summary.delta",
    "response.additional_context",
    "response.error",
];
/// Event of a dialect that follows the terminal event.
const LIMITS: &str = "response.rate_limits.updated";

/// Stream of events, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Number of the next event; `None` before the first.
    next: Option<u64>,
    id: Option<Value>,
    /// True if the first event was another than number 0: the stream continues an earlier one.
    is_continued: bool,
    /// Position in the output of the first of `items`; `None` while it is not known.
    first_item: Option<u64>,
    items: Vec<Item>,
    is_failing: bool,
    is_over: bool,
    /// True after the end mark of a dialect that has one.
    is_done: bool,
}

/// Item, as far as it has come.
#[derive(Debug, Default)]
struct Item {
    /// Members that never change: id, type, name and call id.
    fixed: [Value; 4],
    /// Item as its last event told it.
    done: Option<Value>,
    /// Texts of parts and arguments, by the event's family and the part's number.
    texts: BTreeMap<(String, u64), String>,
}

/// Checks a whole object.
pub(super) fn object(mut value: Value) -> Result<(), Broken> {
    depart(&mut value);
    satisfies("Response", &value)
}

/// Replaces what is not judged by valid values, so that the rest can be checked: an error code that the schema does not
/// name, and members that repeat the request as the client sent it (4.4).
fn depart(response: &mut Value) {
    let echoed = [
        ("tools", Value::List(Vec::new())),
        ("tool_choice", Value::Text("auto".to_owned())),
        ("reasoning", Value::Null),
        ("temperature", Value::Null),
        ("top_p", Value::Null),
    ];
    for (key, valid) in echoed {
        if let Some(member) = response.member_mut(key) {
            *member = valid;
        }
    }
    let code = response.member_mut("error").and_then(|error| error.member_mut("code"));
    if let Some(code) = code.filter(|code| code.as_text().is_some_and(|code| CODES.contains(&code))) {
        *code = Value::Text("server_error".to_owned());
    }
}

/// Returns the members of an item that never change.
fn fixed(item: &Value) -> [Value; 4] {
    ["id", "type", "name", "call_id"].map(|key| item.member(key).clone())
}

impl Events {
    pub(super) fn has_ended(&self) -> bool {
        self.is_over
    }

    /// Checks the end mark, which one dialect has.
    pub(super) fn done(&mut self) -> Result<(), Broken> {
        let is_first = !std::mem::replace(&mut self.is_done, true);
        keeps(is_first && self.is_over, Rule::AfterEnd, "[DONE]")
    }

    /// Checks an event. `name`: that of its frame, if frames have names.
    pub(super) fn event(&mut self, name: Option<&str>, mut event: Value) -> Result<(), Broken> {
        let kind = event.member("type").as_text().unwrap_or_default().to_owned();
        keeps(name.is_none_or(|name| name == kind), Rule::Framing, "name")?;
        let Some(number) = event.member("sequence_number").as_whole() else {
            return Err((Rule::Numbering, "sequence_number".to_owned()));
        };
        let expected = self.next.replace(number + 1);
        if expected.is_none() {
            self.is_continued = number > 0;
            self.first_item = (number == 0).then_some(0);
        }
        keeps(expected.is_none_or(|expected| expected == number), Rule::Numbering, "sequence_number")?;
        keeps(!self.is_done && (!self.is_over || kind == LIMITS), Rule::AfterEnd, "event")?;
        if DIALECTS.contains(&kind.as_str()) || kind == LIMITS {
            return Ok(());
        }
        self.by_schema(&kind, &mut event)?;
        keeps(
            !self.is_failing || kind == "response.failed",
            Rule::Order,
            "event between error and response.failed",
        )?;
        match kind.as_str() {
            "response.created" | "response.queued" | "response.in_progress" => {
                self.begins(&kind, &event, number)
            }
            "response.completed" | "response.incomplete" | "response.failed" => self.ends(&kind, &event),
            "error" => {
                self.is_failing = true;
                Ok(())
            }
            "response.output_item.added" => self.added(&event),
            "response.output_item.done" => self.finished(event),
            _ => self.inner(&kind, &event),
        }
    }

    /// Checks an event by its schema. An event with the whole response is judged by the schema of the response, so
    /// that it is compiled once.
    fn by_schema(&self, kind: &str, event: &mut Value) -> Result<(), Broken> {
        if let Some(response) = event.member_mut("response") {
            depart(response);
            return satisfies("Response", response);
        }
        let schema =
            schema::of_event(kind).ok_or_else(|| (Rule::Schema, "ResponseStreamEvent/type".to_owned()))?;
        satisfies(schema, event)
    }

    fn begins(&mut self, kind: &str, event: &Value, number: u64) -> Result<(), Broken> {
        keeps(
            self.items.is_empty() && (number == 0) == (kind == "response.created"),
            Rule::Order,
            "first events",
        )?;
        self.same_id(event)
    }

    fn same_id(&mut self, event: &Value) -> Result<(), Broken> {
        let id = event.member("response").member("id");
        let first = self.id.get_or_insert_with(|| id.clone());
        keeps(first == id, Rule::Envelope, "response.id")
    }

    fn ends(&mut self, kind: &str, event: &Value) -> Result<(), Broken> {
        self.is_over = true;
        keeps(self.id.is_some() || self.is_continued, Rule::Order, "end before response.created")?;
        self.same_id(event)?;
        let response = &event.member("response");
        let status = response.member("status").as_text().unwrap_or_default();
        let fits = kind.strip_prefix("response.") == Some(status)
            || kind == "response.incomplete" && status == "cancelled";
        keeps(fits, Rule::Order, "status")?;
        let is_cut = kind == "response.failed" || status == "cancelled";
        let output = response.member("output").as_list().unwrap_or_default();
        let first =
            self.first_item.map_or(output.len(), |first| usize::try_from(first).unwrap_or(usize::MAX));
        let output = output.get(first..).unwrap_or_default();
        keeps(is_cut || output.len() == self.items.len(), Rule::Output, "output")?;
        let same = |(item, last): (&Item, &Value)| item.done.as_ref().map_or(is_cut, |done| done == last);
        keeps(self.items.iter().zip(output).all(same), Rule::Output, "output")
    }

    fn added(&mut self, event: &Value) -> Result<(), Broken> {
        keeps(self.next > Some(2), Rule::Order, "item before response.in_progress")?;
        let number = event.member("output_index").as_whole().unwrap_or_default();
        let first = *self.first_item.get_or_insert(number);
        keeps(number == first + self.items.len() as u64, Rule::Order, "output_index")?;
        self.items.push(Item { fixed: fixed(event.member("item")), ..Item::default() });
        Ok(())
    }

    fn finished(&mut self, mut event: Value) -> Result<(), Broken> {
        let item = self.open(&event)?;
        let done = event.member_mut("item").map(std::mem::take).unwrap_or_default();
        keeps(item.fixed == fixed(&done), Rule::Order, "item changed")?;
        item.done = Some(done);
        item.texts.clear();
        Ok(())
    }

    /// Returns the item that an event belongs to, which must be open.
    fn open(&mut self, event: &Value) -> Result<&mut Item, Broken> {
        let number =
            event.member("output_index").as_whole().and_then(|number| number.checked_sub(self.first_item?));
        let item = number.and_then(|number| self.items.get_mut(usize::try_from(number).ok()?));
        item.filter(|item| item.done.is_none()).ok_or_else(|| (Rule::Order, "item is not open".to_owned()))
    }

    /// Checks an event within an item: a delta, the complete text, a part.
    fn inner(&mut self, kind: &str, event: &Value) -> Result<(), Broken> {
        let item = self.open(event)?;
        let [id, ..] = &item.fixed;
        keeps(id == event.member("item_id"), Rule::Order, "item_id")?;
        let part =
            ["content_index", "summary_index"].into_iter().find_map(|key| event.member(key).as_whole());
        let part = part.unwrap_or_default();
        if let (Some(family), Some(delta)) = (kind.strip_suffix(".delta"), event.member("delta").as_text()) {
            item.texts.entry((family.to_owned(), part)).or_default().push_str(delta);
            return Ok(());
        }
        let Some(family) = kind.strip_suffix(".done") else {
            return Ok(());
        };
        let text = ["text", "refusal", "arguments", "input", "code"]
            .into_iter()
            .find_map(|key| event.member(key).as_text());
        let Some(text) = text else { return Ok(()) };
        let told = item.texts.remove(&(family.to_owned(), part)).unwrap_or_default();
        keeps(told == text, Rule::Text, "text is not the sum of its deltas")
    }
}
