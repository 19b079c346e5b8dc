//! Published schemas of the API, compiled when they are first needed.
#![expect(
    clippy::disallowed_types,
    reason = "the validator takes a tree, which is judged and not written again"
)]
#![expect(clippy::indexing_slicing, reason = "a member that a tree lacks is null")]

use super::rule::Rule;
use super::violation::Broken;
use jsonschema::Validator;
use parking_lot::RwLock;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// Subset of the published description of the API.
const TEXT: &str = include_str!("../../fixtures/openai/schemas.subset.json");

/// Schemas of the process.
static SCHEMAS: LazyLock<Schemas> = LazyLock::new(Schemas::load);

/// Schemas by name.
struct Schemas {
    definitions: Map<String, Value>,
    /// Name of the schema of each event of Responses, by its type.
    events: BTreeMap<String, String>,
    compiled: RwLock<BTreeMap<String, Option<Arc<Validator>>>>,
}

/// Returns the place in the schema that a value violates; `None` if it satisfies the schema. The place names no part
/// of the value.
fn violation(schema: &str, value: &Value) -> Option<String> {
    let validator = SCHEMAS.validator(schema)?;
    let error = validator.iter_errors(value).next()?;
    Some(format!("{schema}{}", error.schema_path()))
}

/// Returns the name of the schema of an event of Responses.
pub(super) fn of_event(kind: &str) -> Option<&'static str> {
    SCHEMAS.events.get(kind).map(String::as_str)
}

/// Checks a value by its schema.
pub(super) fn satisfies(name: &str, value: &Value) -> Result<(), Broken> {
    match violation(name, value) {
        Some(place) => Err((Rule::Schema, place)),
        None => Ok(()),
    }
}

/// Checks an error object.
pub(super) fn error(value: &Value) -> Result<(), Broken> {
    satisfies("ErrorResponse", value)
}

impl Schemas {
    fn load() -> Self {
        let mut all: Map<String, Value> = serde_json::from_str(TEXT).unwrap_or_default();
        let definitions = match all.remove("$defs") {
            Some(Value::Object(definitions)) => definitions,
            _ => Map::new(),
        };
        let members = definitions.get("ResponseStreamEvent").and_then(|union| union["anyOf"].as_array());
        let event = |member: &Value| {
            let name = member["$ref"].as_str()?.strip_prefix("#/$defs/")?;
            let kind = definitions.get(name)?["properties"]["type"]["enum"][0].as_str()?;
            Some((kind.to_owned(), name.to_owned()))
        };
        let events = members.into_iter().flatten().filter_map(event).collect();
        Self { definitions, events, compiled: RwLock::default() }
    }

    fn validator(&self, name: &str) -> Option<Arc<Validator>> {
        if let Some(known) = self.compiled.read().get(name) {
            return known.clone();
        }
        let compiled = self.compile(name).map(Arc::new);
        self.compiled.write().entry(name.to_owned()).or_insert(compiled).clone()
    }

    /// Compiles a schema with only those that it refers to, for time and memory.
    fn compile(&self, name: &str) -> Option<Validator> {
        let needed = self.needed(name);
        let definitions = self.definitions.iter().filter(|(name, _)| needed.contains(*name));
        let definitions: Map<_, _> =
            definitions.map(|(name, schema)| (name.clone(), schema.clone())).collect();
        let schema = Map::from_iter([
            ("$ref".to_owned(), Value::String(format!("#/$defs/{name}"))),
            ("$defs".to_owned(), Value::Object(definitions)),
        ]);
        jsonschema::validator_for(&Value::Object(schema)).ok()
    }

    /// Returns the names of the schemas that this one refers to, and its own.
    fn needed(&self, name: &str) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(name) = open.pop() {
            if let Some(schema) = self.definitions.get(&name).filter(|_| !needed.contains(&name)) {
                references(schema, &mut open);
                needed.insert(name);
            }
        }
        needed
    }
}

/// Adds the names that a schema refers to.
fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
                found.push(name.to_owned());
            }
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_schemas_compile() {
        let own = [
            "CreateChatCompletionStreamResponse",
            "CreateChatCompletionResponse",
            "CreateCompletionResponse",
            "Response",
            "ErrorResponse",
        ];
        let events: Vec<_> = SCHEMAS.events.values().map(String::as_str).collect();
        assert!(events.len() > 50, "{events:?}");
        for name in own.into_iter().chain(events) {
            assert!(SCHEMAS.validator(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_place_names_no_part_of_the_value() {
        let value = serde_json::json!({"error": {"message": 1, "SECRET": "SECRET", "type": "a", "param": null, "code": null}});
        let place = violation("ErrorResponse", &value).unwrap();
        assert!(place.starts_with("ErrorResponse/") && !place.contains("SECRET"), "{place}");
    }
}
