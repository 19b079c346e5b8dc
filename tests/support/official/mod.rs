//! The published schema of the OpenAI API, and every place where the wire format departs from it.
//!
//! Takes: a value and the name of its schema. Gives: the violations. Remembers: which departures have occurred.
#![allow(dead_code, reason = "each test crate uses its part")]

use jsonschema::Validator;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Members that the wire format adds to a schema: the schema's name and the path of the key, where `*` is an index.
const ADDED: [(&str, &str); 25] = [
    // 2.4: no schema of the API names reasoning text.
    ("ChatCompletionStreamResponseDelta", "reasoning_content"),
    ("ChatCompletionStreamResponseDelta", "reasoning"),
    ("ChatCompletionResponseMessage", "reasoning_content"),
    ("ChatCompletionResponseMessage", "reasoning"),
    // 2.9: with `stop_details`.
    (
        "CreateChatCompletionStreamResponse",
        "choices.*.stop_reason",
    ),
    ("CreateChatCompletionResponse", "choices.*.stop_reason"),
    ("CreateCompletionResponse", "choices.*.stop_reason"),
    // 3.2: with `error_frame = "flat+nested"`.
    ("ErrorResponse", "message"),
    ("ErrorResponse", "type"),
    // 3.4: with `usage_limit_reached`.
    ("Error", "plan_type"),
    ("Error", "resets_at"),
    // 1.6: with `unknown_fields = "pass"`, here and in each choice.
    ("", "x_upstream"),
    ("", "choices.*.x_upstream"),
    // 2.10: extensions of the engine that the client requested.
    ("", "token_ids"),
    ("", "prompt_token_ids"),
    ("", "prompt_logprobs"),
    ("", "choices.*.token_ids"),
    ("", "choices.*.prompt_token_ids"),
    ("", "choices.*.prompt_logprobs"),
    // 4.4: Open Responses requires these; the published schema has them only in requests, or not at all.
    ("Response", "frequency_penalty"),
    ("Response", "presence_penalty"),
    ("Response", "store"),
    // 4.4: every item has a status; the published schema gives custom calls one only in lists.
    ("CustomToolCall", "status"),
    ("CustomToolCallOutput", "status"),
    // 4.7: the member that the service sends in addition, and that its client libraries raise.
    ("ResponseErrorEvent", "error"),
];

/// Error codes of failed responses that the service sends and Codex knows (4.7), but that are not in the schema.
const CODES: [&str; 4] = [
    "context_length_exceeded",
    "insufficient_quota",
    "usage_not_included",
    "server_is_overloaded",
];

/// Events of dialects (4.9) that are not in the schema.
pub const DIALECT_EVENTS: [&str; 8] = [
    "response.reasoning.delta",
    "response.reasoning.done",
    "response.reasoning.summary.delta",
    "response.reasoning.summary.added",
    "response.tool_call.delta",
    "response.additional_context",
    "response.error",
    "response.rate_limits.updated",
];

/// Schemas by name, from the published description, with the departures that were met so far.
pub struct Schemas {
    all: Value,
    validators: RefCell<BTreeMap<String, Validator>>,
    /// Name of the schema of each stream event, by event type.
    events: BTreeMap<String, String>,
    /// Departures that have occurred. A departure that no case shows is not tested.
    pub met: BTreeSet<String>,
}

impl Schemas {
    pub fn load() -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/openai/schemas.subset.json");
        let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let members = all["$defs"]["ResponseStreamEvent"]["anyOf"]
            .as_array()
            .unwrap();
        let event = |member: &Value| {
            let name = referred(member).unwrap();
            let kind = all["$defs"][name]["properties"]["type"]["enum"][0]
                .as_str()
                .unwrap();
            (kind.to_owned(), name.to_owned())
        };
        let events = members.iter().map(event).collect();
        Self {
            all,
            validators: RefCell::default(),
            events,
            met: BTreeSet::new(),
        }
    }

    /// Checks a value by the schema of this name.
    pub fn check(&mut self, name: &str, value: &Value) -> Result<(), String> {
        self.validators
            .borrow_mut()
            .entry(name.to_owned())
            .or_insert_with(|| self.validator(name));
        let validators = self.validators.borrow();
        if let Some(wrong) = validators[name].iter_errors(value).next() {
            return Err(format!(
                "{name} at {}: {wrong}\n  {value}",
                wrong.instance_path()
            ));
        }
        drop(validators);
        let mut odd = Vec::new();
        self.unnamed(
            &self.all["$defs"][name],
            value,
            Place {
                of: name,
                at: String::new(),
            },
            &mut odd,
        );
        for (of, place) in odd {
            let added =
                |(name, key): &&(&str, &str)| (*name == of || name.is_empty()) && *key == place;
            match ADDED.iter().find(added) {
                Some((_, key)) => self.met.insert(format!("{of} {key}")),
                None => return Err(format!("{of} has `{place}`\n  {value}")),
            };
        }
        Ok(())
    }

    /// Checks an event of a Responses stream.
    pub fn event(&mut self, event: &Value) -> Result<(), String> {
        let kind = event["type"].as_str().ok_or("an event without a type")?;
        let name = self
            .events
            .get(kind)
            .ok_or_else(|| format!("no event is called {kind}"))?
            .clone();
        let mut event = event.clone();
        self.depart(event.get_mut("response"));
        self.check(&name, &event)
    }

    /// Checks a Responses object.
    pub fn response(&mut self, object: &Value) -> Result<(), String> {
        let mut object = object.clone();
        self.depart(Some(&mut object));
        self.check("Response", &object)
    }

    /// Checks a page of a list.
    pub fn list(&mut self, name: &str, page: &Value) -> Result<(), String> {
        let mut page = page.clone();
        // An empty page has no first item; the schema requires a text there.
        for key in ["first_id", "last_id"] {
            if page["data"] == json!([]) && page[key].is_null() {
                page[key] = json!("");
                self.met.insert(format!("{name} {key}"));
            }
        }
        self.check(name, &page)
    }

    /// Replaces intended departures by valid values, so that the rest can be checked.
    fn depart(&mut self, response: Option<&mut Value>) {
        let Some(code) = response.and_then(|response| response.pointer_mut("/error/code")) else {
            return;
        };
        if CODES.iter().any(|known| *known == code) {
            *code = json!("server_error");
            self.met.insert("Response error.code".to_owned());
        }
    }

    fn validator(&self, name: &str) -> Validator {
        let mut schema = self.all.clone();
        // Keeps only the schemas that this one needs, for speed.
        let needed = self.needed(name);
        schema["$defs"]
            .as_object_mut()
            .unwrap()
            .retain(|name, _| needed.contains(name));
        schema["$ref"] = json!(format!("#/$defs/{name}"));
        jsonschema::validator_for(&schema).unwrap()
    }

    /// Returns the names of an object's members.
    pub fn members(&self, name: &str) -> BTreeSet<String> {
        let mut nodes = Vec::new();
        let mut place = Place {
            of: name,
            at: String::new(),
        };
        self.nodes(&self.all["$defs"][name], &json!({}), &mut place, &mut nodes);
        let named = nodes
            .iter()
            .filter_map(|node| node["properties"].as_object());
        named
            .flat_map(|properties| properties.keys().cloned())
            .collect()
    }

    /// Returns the schemas that this one refers to, and itself.
    fn needed(&self, name: &str) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(name) = open.pop() {
            let text = self.all["$defs"][&name].to_string();
            let names = text
                .split("\"#/$defs/")
                .skip(1)
                .filter_map(|rest| rest.split('"').next());
            open.extend(
                names
                    .filter(|name| !needed.contains(*name))
                    .map(str::to_owned),
            );
            needed.insert(name);
        }
        needed
    }

    /// Returns the keys that the schema does not name.
    fn unnamed<'a>(
        &'a self,
        schema: &'a Value,
        value: &Value,
        mut place: Place<'a>,
        odd: &mut Vec<(String, String)>,
    ) {
        let mut nodes = Vec::new();
        self.nodes(schema, value, &mut place, &mut nodes);
        match value {
            Value::Array(items) => {
                for items_schema in nodes
                    .iter()
                    .map(|node| &node["items"])
                    .filter(|items| items.is_object())
                {
                    items
                        .iter()
                        .for_each(|item| self.unnamed(items_schema, item, place.below("*"), odd));
                }
            }
            Value::Object(members) if !is_free(&nodes) => {
                for (key, value) in members {
                    let named: Vec<&Value> = nodes
                        .iter()
                        .filter_map(|node| node["properties"].get(key))
                        .collect();
                    if named.is_empty() {
                        odd.push((
                            place.of.to_owned(),
                            place.below(key).at.trim_end_matches('.').to_owned(),
                        ));
                    }
                    named
                        .iter()
                        .for_each(|named| self.unnamed(named, value, place.below(key), odd));
                }
            }
            _ => {}
        }
    }

    /// Returns a schema and all schemas it refers to or combines, as far as they can apply to the value.
    fn nodes<'a>(
        &'a self,
        schema: &'a Value,
        value: &Value,
        place: &mut Place<'a>,
        into: &mut Vec<&'a Value>,
    ) {
        into.push(schema);
        if let Some(name) = referred(schema) {
            *place = Place {
                of: name,
                at: String::new(),
            };
            self.nodes(&self.all["$defs"][name], value, place, into);
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            // The combined schema keeps its name.
            self.nodes(part, value, &mut place.clone(), into);
        }
        for key in ["anyOf", "oneOf"] {
            for part in schema[key].as_array().into_iter().flatten() {
                let (mut inner, mut there) = (Vec::new(), place.clone());
                self.nodes(part, value, &mut there, &mut inner);
                let meant = |node: &&Value| {
                    let kinds = node["properties"]["type"]["enum"].as_array();
                    kinds.is_none_or(|kinds| kinds.contains(&value["type"]))
                };
                if value.is_object() && inner.iter().all(meant) && part["type"] != "null" {
                    *place = there;
                    into.append(&mut inner);
                } else if !value.is_object() {
                    into.append(&mut inner);
                }
            }
        }
    }
}

/// Position of a value: the nearest schema with a name, and the path from there.
#[derive(Clone)]
struct Place<'a> {
    of: &'a str,
    at: String,
}

impl Place<'_> {
    fn below(&self, key: &str) -> Self {
        Self {
            of: self.of,
            at: format!("{}{key}.", self.at),
        }
    }
}

/// Returns true if an object may have any keys.
fn is_free(nodes: &[&Value]) -> bool {
    let names = |node: &&Value| {
        node["properties"]
            .as_object()
            .is_some_and(|named| !named.is_empty())
    };
    !nodes.iter().any(names)
        || nodes.iter().any(|node| {
            node.get("additionalProperties")
                .is_some_and(|more| *more != false)
        })
}

fn referred(schema: &Value) -> Option<&str> {
    schema["$ref"]
        .as_str()
        .map(|name| name.trim_start_matches("#/$defs/"))
}
