//! Content of an answer, read naively from any implementation's bytes: the texts of each choice, joined.
//!
//! Understands the spellings that engines use (wire-format 2.4, 2.5) and ignores frames, order and grammar, so that
//! the rewriter's input and output can be compared.

use samewire::wire::Api;
use serde_json::Value;
use std::collections::BTreeMap;

/// Content of one choice, joined over all frames, without regard to their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceContent {
    pub content: String,
    pub reasoning: String,
    pub refusal: String,
    pub function: (String, String),
    pub calls: Vec<Call>,
    /// Text of each entry's `token` and `logprob`, with the number of alternatives.
    pub logprobs: Vec<String>,
    pub refusal_logprobs: Vec<String>,
    pub finished: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Call {
    pub name: String,
    pub arguments: String,
    /// True if the arguments came as a JSON value, whose spelling may change.
    loose: bool,
    /// End of the first JSON value, if a second one that follows is to be treated as a repetition.
    pub first_value_end: Option<usize>,
    index: Option<u64>,
    id: Option<String>,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        let value = |call: &Self| {
            serde_json::Deserializer::from_str(&call.arguments)
                .into_iter::<Value>()
                .next()?
                .ok()
        };
        let loose = self.loose || other.loose;
        let same = match (self.first_value_end, other.first_value_end) {
            // White space between two values may have come with the first.
            (None, None) => self.arguments == other.arguments,
            _ => self.without_repetitions().trim_end() == other.without_repetitions().trim_end(),
        };
        // If the arguments are more than one value, only zeros at the end of numbers can differ.
        let respelled = || self.arguments.replace('0', "") == other.arguments.replace('0', "");
        // 2.5 rule 13: a call without arguments has an empty object.
        let completed = |call: &Self, other: &Self| {
            call.arguments.trim().is_empty() && other.arguments.trim() == "{}"
        };
        let same = same || completed(self, other) || completed(other, self);
        let same_value = || value(self).is_some_and(|own| value(other) == Some(own)) || respelled();
        self.name == other.name && (same || loose && same_value())
    }
}

impl Call {
    /// Returns the arguments without repetitions of their first value.
    fn without_repetitions(&self) -> String {
        let mut values = serde_json::Deserializer::from_str(&self.arguments).into_iter::<Value>();
        let Some(Ok(first @ (Value::Object(_) | Value::Array(_)))) = values.next() else {
            return self.arguments.clone();
        };
        let (end, mut from) = (values.byte_offset(), values.byte_offset());
        while let Some(Ok(value)) = values.next()
            && value == first
        {
            from = values.byte_offset();
        }
        format!(
            "{}{}",
            &self.arguments[..end],
            self.arguments[from..].trim_start()
        )
    }

    /// Returns true if `given`, sent with a name, belongs to another call: the present arguments are complete and
    /// have another value.
    fn is_followed_by(&self, given: &str) -> bool {
        let mut values = serde_json::Deserializer::from_str(&self.arguments).into_iter::<Value>();
        let Some(Ok(first @ (Value::Object(_) | Value::Array(_)))) = values.next() else {
            return false;
        };
        given.trim_start().starts_with('{')
            && serde_json::from_str::<Value>(given).ok() != Some(first)
    }
}

/// Content of a whole answer, and whether it ended in an error.
#[derive(Clone, Debug, Default)]
pub struct AnswerContent {
    pub choices: BTreeMap<u64, ChoiceContent>,
    pub failed: bool,
    pub done: bool,
}

/// Reads an event stream, or a whole object. With `skip`, events that are not JSON objects are ignored.
pub fn read(api: Api, input: &[u8], events: bool, skip: bool) -> AnswerContent {
    let mut told = AnswerContent::default();
    let all = if events {
        data(input)
    } else {
        vec![(false, String::from_utf8_lossy(input).into_owned())]
    };
    for (error, data) in all {
        if told.done || told.failed {
            break;
        }
        if data.trim() == "[DONE]" {
            told.done = true;
            continue;
        }
        match serde_json::from_str::<Value>(&halves_repaired(&data)) {
            Ok(Value::Object(_)) if error => told.failed = true,
            Ok(event @ Value::Object(_)) => told.event(api, &event),
            // llama.cpp begins a stream with a null.
            Ok(Value::Null) if events && !error => {}
            // 3.3: such an event ends the stream, unless such events are skipped.
            _ if skip => {}
            _ => told.failed = true,
        }
    }
    told
}

/// Returns the data of each event, with true if its name is `error`. An incomplete last event is left out, unless
/// its data is complete.
pub fn data(input: &[u8]) -> Vec<(bool, String)> {
    let text = String::from_utf8_lossy(input)
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut events: Vec<&str> = text.split("\n\n").collect();
    let rest = events.pop().unwrap_or_default();
    let lines = |event: &str| {
        let field = |name: &str| {
            let values = event
                .split('\n')
                .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values
                .map(|value| value.strip_prefix(' ').unwrap_or(value).to_owned())
                .collect::<Vec<_>>()
        };
        let (data, error) = (field("data"), field("error"));
        if data.is_empty() && error.iter().any(|error| error.starts_with('{')) {
            return (true, error);
        }
        (
            field("event").last().is_some_and(|name| name == "error"),
            data,
        )
    };
    let mut found: Vec<_> = events.into_iter().map(lines).collect();
    let (error, rest) = lines(rest.trim_end_matches('\n'));
    let whole = rest.join("\n");
    if whole.trim() == "[DONE]" || serde_json::from_str::<Value>(&halves_repaired(&whole)).is_ok() {
        found.push((error, rest));
    }
    let dispatched = found.into_iter().filter(|(_, data)| !data.is_empty());
    dispatched
        .map(|(error, data)| (error, data.join("\n")))
        .collect()
}

impl AnswerContent {
    fn event(&mut self, api: Api, event: &Value) {
        if event.get("error").is_some_and(|error| !error.is_null()) || event["object"] == "error" {
            self.failed = true;
            return;
        }
        for choice in event["choices"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
        {
            let said = self
                .choices
                .entry(choice["index"].as_u64().unwrap_or(0))
                .or_default();
            let finish = choice["finish_reason"].as_str().unwrap_or_default();
            match api {
                Api::Completions => said.logprobs(&as_lists(&choice["logprobs"], &said.logprobs)),
                _ => said.logprobs(&choice["logprobs"]),
            }
            if api == Api::Completions {
                said.content
                    .push_str(choice["text"].as_str().unwrap_or_default());
            } else if choice["delta"].is_object() {
                said.delta(&choice["delta"], false);
            } else {
                said.delta(&choice["message"], true);
            }
            const ABORTED: [&str; 6] = [
                "abort",
                "aborted",
                "cancelled",
                "canceled",
                "unknown",
                "insufficient_system_resource",
            ];
            if ABORTED.contains(&finish) || finish.to_lowercase().ends_with("error") {
                self.failed = true;
                return;
            }
            said.finished |= !finish.is_empty();
        }
    }
}

impl ChoiceContent {
    fn delta(&mut self, delta: &Value, whole: bool) {
        let is_thought = |part: &&Value| part["type"] == "thinking";
        let parts = || delta["content"].as_array().into_iter().flatten();
        self.content
            .push_str(delta["content"].as_str().unwrap_or_default());
        self.content.extend(
            parts()
                .filter(|part| !is_thought(part))
                .filter_map(|part| part["text"].as_str()),
        );
        let thoughts = parts()
            .filter(is_thought)
            .filter_map(|part| part["thinking"].as_array())
            .flatten();
        let details = delta["reasoning_details"].as_array().into_iter().flatten();
        let later = [
            thoughts
                .filter_map(|part| part["text"].as_str())
                .collect::<String>(),
            details
                .filter_map(|part| part["text"].as_str().or_else(|| part["summary"].as_str()))
                .collect(),
        ];
        let later = later.iter().map(String::as_str);
        let reasoning = std::iter::once(reasoning(delta))
            .chain(later)
            .find(|text| !text.is_empty());
        self.reasoning.push_str(reasoning.unwrap_or_default());
        self.refusal
            .push_str(delta["refusal"].as_str().unwrap_or_default());
        let function = &delta["function_call"];
        self.function
            .0
            .push_str(function["name"].as_str().unwrap_or_default());
        self.function
            .1
            .push_str(function["arguments"].as_str().unwrap_or_default());
        for entry in delta["tool_calls"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
        {
            self.tool(entry, whole);
        }
    }

    /// Reads an entry of `tool_calls`: finds the call it belongs to (2.5 rule 2), and appends its content.
    fn tool(&mut self, entry: &Value, whole: bool) {
        let called = if entry["function"].is_object() {
            &entry["function"]
        } else {
            &entry["custom"]
        };
        let text = |value: &Value| {
            value
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let (id, name, index) = (
            text(&entry["id"]),
            text(&called["name"]),
            entry["index"].as_u64(),
        );
        let given = if called["arguments"].is_null() {
            &called["input"]
        } else {
            &called["arguments"]
        };
        if id.is_none() && name.is_none() && (given.is_null() || given == "") {
            return;
        }
        let at = match index {
            _ if whole => None,
            Some(_) => self
                .calls
                .iter()
                .rposition(|call| call.index == index)
                .filter(|at| {
                    let call = &self.calls[*at];
                    let another = id.is_some() && call.id.is_some() && call.id != id;
                    let another = another
                        || given
                            .as_str()
                            .is_some_and(|given| call.is_followed_by(given));
                    !(another && name.is_some())
                }),
            None if id.is_some() && self.calls.iter().any(|call| call.id == id) => {
                self.calls.iter().rposition(|call| call.id == id)
            }
            None if id.is_some() || name.is_some() => None,
            None => self.calls.len().checked_sub(1),
        };
        let at = at.unwrap_or_else(|| {
            self.calls.push(Call {
                index,
                ..Call::default()
            });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        call.id = call.id.take().or(id);
        if call.name.is_empty() {
            call.name = name.unwrap_or_default();
        }
        match given {
            Value::Null => {}
            Value::String(text) => call.arguments.push_str(text),
            value => {
                call.loose = true;
                call.arguments.push_str(&value.to_string());
            }
        }
    }

    fn logprobs(&mut self, logprobs: &Value) {
        let entry = |entry: &Value| {
            let number = entry["logprob"].as_f64().unwrap_or(-9999.0);
            let others = entry["top_logprobs"].as_array().map_or(0, Vec::len);
            format!("{} {number} {others}", entry["token"])
        };
        let list = |key: &str| {
            logprobs[key]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        self.logprobs.extend(list("content").iter().map(entry));
        self.refusal_logprobs
            .extend(list("refusal").iter().map(entry));
        for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            self.logprobs
                .extend(list(key).iter().map(|value| format!("{key} {value}")));
        }
        // Entries are compared list by list; their order among each other does not matter.
        self.logprobs.sort_by_key(|entry| {
            [
                "tokens ",
                "token_logprobs ",
                "top_logprobs ",
                "text_offset ",
            ]
            .iter()
            .position(|key| entry.starts_with(key))
        });
    }

    /// Returns true if this is the rest of `whole` after a cut at any point.
    pub fn begins(&self, whole: &Self) -> bool {
        let texts = [
            (&self.content, &whole.content),
            (&self.reasoning, &whole.reasoning),
            (&self.refusal, &whole.refusal),
            (&self.function.1, &whole.function.1),
        ];
        let calls = self.calls.len() <= whole.calls.len()
            && self.calls.iter().all(|call| {
                // A name that has not arrived yet may be the forced one.
                whole
                    .calls
                    .iter()
                    .any(|other| call == other || other.arguments.starts_with(&call.arguments))
            });
        texts.iter().all(|(part, whole)| whole.starts_with(*part)) && calls
    }
}

/// Returns logprobs as the lists of a completion: unchanged, or converted from those of a chat (2.11), after those
/// of the earlier text `said`.
fn as_lists(logprobs: &Value, said: &[String]) -> Value {
    let Some(entries) = logprobs["content"]
        .as_array()
        .filter(|_| logprobs["tokens"].is_null())
    else {
        return logprobs.clone();
    };
    let number = |entry: &Value| {
        if entry["logprob"].is_null() {
            (-9999.0).into()
        } else {
            entry["logprob"].clone()
        }
    };
    let tokens = said.iter().filter_map(|said| said.strip_prefix("tokens "));
    let token = |json: &str| {
        serde_json::from_str::<String>(json)
            .unwrap()
            .chars()
            .count()
    };
    let mut offset: usize = tokens.map(token).sum();
    let mut lists = serde_json::json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []});
    for entry in entries {
        let token = entry["token"].as_str().unwrap_or_default();
        let mut top = serde_json::Map::new();
        for other in entry["top_logprobs"].as_array().into_iter().flatten() {
            top.entry(other["token"].as_str().unwrap_or_default())
                .or_insert_with(|| number(other));
        }
        for (key, value) in [
            ("tokens", token.into()),
            ("token_logprobs", number(entry)),
            ("top_logprobs", Value::Object(top)),
            ("text_offset", offset.into()),
        ] {
            lists[key].as_array_mut().unwrap().push(value);
        }
        offset += token.chars().count();
    }
    lists
}

/// Returns the first member with reasoning text, in the order of wire-format 2.4.
fn reasoning(delta: &Value) -> &str {
    let object = &delta["reasoning"];
    let names = [
        &delta["reasoning_content"],
        object,
        &object["text"],
        &object["content"],
        &delta["thinking"],
        &delta["reasoning_text"],
    ];
    names
        .iter()
        .find_map(|value| value.as_str().filter(|text| !text.is_empty()))
        .unwrap_or_default()
}

/// Replaces unpaired surrogates, which are not characters, by U+FFFD, on both sides of the comparison.
fn halves_repaired(json: &str) -> String {
    let mut out = String::new();
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let unit = |from: usize| {
            let digits = rest.get(from..from + 6)?.strip_prefix("\\u")?;
            u32::from_str_radix(digits, 16)
                .ok()
                .filter(|unit| (0xd800..0xe000).contains(unit))
        };
        let length = match (unit(0), unit(6)) {
            (Some(high), Some(low)) if high < 0xdc00 && low >= 0xdc00 => 12,
            (Some(_), _) => {
                out.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out + rest
}
