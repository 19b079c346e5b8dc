//! Published schemas of the API: the part of JSON Schema that they use.
//!
//! A library for JSON Schema would weigh more than all that it is used for (docs/architecture.md#libraries). A test holds
//! this reader to the verdicts of such a library.

use super::rule::Rule;
use super::violation::Broken;
use crate::tree::{Members, Value};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Subset of the published description of the API.
const TEXT: &str = include_str!("../../fixtures/openai/schemas.subset.json");
/// Start of a reference to a definition.
const DEFINITION: &str = "#/$defs/";
/// Schema of which the alternatives are the events of a Responses stream.
const EVENTS: &str = "ResponseStreamEvent";

/// Schemas of the process.
static SCHEMAS: LazyLock<Schemas> = LazyLock::new(Schemas::load);

/// Schemas by name.
#[derive(Debug, Default)]
struct Schemas {
    definitions: BTreeMap<String, Schema>,
    /// Name of the schema of each event of Responses, by its type.
    events: BTreeMap<String, String>,
}

/// Schema: the keywords that have a say. `format` and what describes a schema have none, and neither has `pattern`: it
/// stands only where a response repeats the request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Schema {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    r#type: Option<Type>,
    r#enum: Option<Vec<String>>,
    properties: BTreeMap<String, Self>,
    required: Vec<String>,
    additional_properties: Option<Additional>,
    property_names: Option<Box<Self>>,
    max_properties: Option<usize>,
    items: Option<Box<Self>>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    all_of: Vec<Self>,
    any_of: Option<Vec<Self>>,
    one_of: Option<Vec<Self>>,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

/// Schema of members that `properties` does not name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Additional {
    Allowed(bool),
    Schema(Box<Schema>),
}

/// Path in the schema to what a value violates.
type Place = String;

/// Returns the place in the schema that a value violates; `None` if it satisfies the schema, or if there is no schema
/// of this name. The place names no part of the value.
pub fn violation(schema: &str, value: &Value) -> Option<String> {
    let place = SCHEMAS.definitions.get(schema)?.check(value).err()?;
    Some(format!("{schema}{place}"))
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
        /// Document with the schemas.
        #[derive(Default, Deserialize)]
        struct Document {
            #[serde(rename = "$defs")]
            definitions: BTreeMap<String, Schema>,
        }
        // A test reads the document, so that it can be read.
        let Document { definitions } = serde_json::from_str(TEXT).unwrap_or_default();
        let members = definitions.get(EVENTS).and_then(|union| union.any_of.as_deref());
        let event = |member: &Schema| {
            let name = member.referred()?;
            let kind = definitions.get(name)?.properties.get("type")?.r#enum.as_ref()?.first()?;
            Some((kind.clone(), name.to_owned()))
        };
        let events = members.into_iter().flatten().filter_map(event).collect();
        Self { definitions, events }
    }
}

impl Schema {
    /// Returns the name of the definition that the schema refers to.
    fn referred(&self) -> Option<&str> {
        self.reference.as_deref()?.strip_prefix(DEFINITION)
    }

    /// Checks a value. Fails with the path within this schema.
    fn check(&self, value: &Value) -> Result<(), Place> {
        if let Some(kind) = self.r#type {
            keeps(kind.is_of(value), "/type")?;
        }
        if let Some(words) = &self.r#enum {
            keeps(value.as_text().is_some_and(|text| words.iter().any(|word| word == text)), "/enum")?;
        }
        if let Some(definition) = self.referred().and_then(|name| SCHEMAS.definitions.get(name)) {
            definition.check(value).map_err(below("/$ref"))?;
        }
        match value {
            Value::Text(text) => self.check_length(text)?,
            Value::Whole(_) | Value::Number(_) => self.check_number(value)?,
            Value::List(list) => self.check_list(list)?,
            Value::Object(members) => self.check_object(members)?,
            Value::Null | Value::Bool(_) => {}
        }
        for part in &self.all_of {
            part.check(value).map_err(below("/allOf"))?;
        }
        let fitting = |parts: &[Self]| parts.iter().filter(|part| part.check(value).is_ok()).take(2).count();
        keeps(self.any_of.as_deref().is_none_or(|parts| fitting(parts) > 0), "/anyOf")?;
        keeps(self.one_of.as_deref().is_none_or(|parts| fitting(parts) == 1), "/oneOf")
    }

    fn check_length(&self, text: &str) -> Result<(), Place> {
        if self.min_length.is_some() || self.max_length.is_some() {
            let length = text.chars().count();
            keeps(self.min_length.is_none_or(|least| length >= least), "/minLength")?;
            keeps(self.max_length.is_none_or(|most| length <= most), "/maxLength")?;
        }
        Ok(())
    }

    fn check_number(&self, value: &Value) -> Result<(), Place> {
        let number = value.as_number().unwrap_or_default();
        keeps(self.minimum.is_none_or(|least| number >= least), "/minimum")?;
        keeps(self.maximum.is_none_or(|most| number <= most), "/maximum")
    }

    fn check_list(&self, list: &[Value]) -> Result<(), Place> {
        keeps(self.min_items.is_none_or(|least| list.len() >= least), "/minItems")?;
        keeps(self.max_items.is_none_or(|most| list.len() <= most), "/maxItems")?;
        let Some(items) = &self.items else { return Ok(()) };
        list.iter().try_for_each(|item| items.check(item).map_err(below("/items")))
    }

    fn check_object(&self, members: &Members) -> Result<(), Place> {
        keeps(self.max_properties.is_none_or(|most| members.len() <= most), "/maxProperties")?;
        for key in &self.required {
            keeps(members.get(key).is_some(), &format!("/required/{key}"))?;
        }
        for (key, value) in members.iter() {
            if let Some(names) = &self.property_names {
                names.check(&Value::Text(key.to_owned())).map_err(below("/propertyNames"))?;
            }
            match (self.properties.get(key), &self.additional_properties) {
                (Some(schema), _) => {
                    schema.check(value).map_err(|place| format!("/properties/{key}{place}"))?;
                }
                (None, Some(Additional::Allowed(false))) => keeps(false, "/additionalProperties")?,
                (None, Some(Additional::Schema(schema))) => {
                    schema.check(value).map_err(below("/additionalProperties"))?;
                }
                (None, _) => {}
            }
        }
        Ok(())
    }
}

impl Type {
    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => matches!(value, Value::Bool(_)),
            Self::Integer => value.as_number().is_some_and(|number| number.fract() == 0.0),
            Self::Number => value.is_number(),
            Self::String => value.is_text(),
            Self::Array => value.is_list(),
            Self::Object => value.is_object(),
        }
    }
}

/// Fails with a place unless `holds`.
fn keeps(holds: bool, place: &str) -> Result<(), Place> {
    if holds { Ok(()) } else { Err(place.to_owned()) }
}

/// Returns what puts a place below a keyword.
fn below(keyword: &'static str) -> impl Fn(Place) -> Place {
    move |place| format!("{keyword}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_read() {
        assert!(SCHEMAS.definitions.len() > 300, "{}", SCHEMAS.definitions.len());
        assert!(SCHEMAS.events.len() > 50, "{:?}", SCHEMAS.events);
        for name in SCHEMAS.events.values() {
            assert!(SCHEMAS.definitions.contains_key(name), "{name}");
        }
    }

    /// A keyword that is not read would be a rule that never fails.
    #[test]
    fn all_keywords_are_known() {
        const KNOWN: [&str; 23] = [
            "$ref",
            "type",
            "enum",
            "properties",
            "required",
            "additionalProperties",
            "propertyNames",
            "maxProperties",
            "items",
            "minItems",
            "maxItems",
            "minLength",
            "maxLength",
            "minimum",
            "maximum",
            "allOf",
            "anyOf",
            "oneOf",
            "pattern",
            "default",
            "deprecated",
            "format",
            "title",
        ];
        fn check(schema: &Value) {
            let Value::Object(keywords) = schema else { return };
            for (keyword, value) in keywords.iter() {
                assert!(KNOWN.contains(&keyword), "{keyword}");
                match (keyword, value) {
                    ("properties", Value::Object(members)) => {
                        members.iter().for_each(|(_, schema)| check(schema))
                    }
                    ("items" | "additionalProperties" | "propertyNames", schema) => check(schema),
                    ("allOf" | "anyOf" | "oneOf", Value::List(parts)) => parts.iter().for_each(check),
                    _ => {}
                }
            }
        }
        let document = Value::read(TEXT);
        let Value::Object(definitions) = document.member("$defs") else { panic!("no definitions") };
        definitions.iter().for_each(|(_, schema)| check(schema));
    }

    #[test]
    fn the_place_names_no_part_of_the_value() {
        let value =
            Value::read(r#"{"error":{"message":1,"SECRET":"SECRET","type":"a","param":null,"code":null}}"#);
        let place = violation("ErrorResponse", &value).unwrap();
        assert_eq!(place, "ErrorResponse/properties/error/$ref/properties/message/type");
    }
}
