//! The reader of published schemas beside a library for JSON Schema: both judge the answers of all vectors alike, and
//! each of their values in many wrong forms.

use samewire::contract::violation;
use samewire::tree::Value as Tree;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Published schemas, as the library reads them.
struct Library {
    all: Value,
    validators: BTreeMap<String, jsonschema::Validator>,
}

impl Library {
    fn load() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/openai/schemas.subset.json");
        let mut all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        remove_patterns(&mut all);
        Self { all, validators: BTreeMap::new() }
    }

    fn is_valid(&mut self, name: &str, value: &Value) -> bool {
        let all = &self.all;
        let validator = self.validators.entry(name.to_owned()).or_insert_with(|| {
            let schema = json!({"$ref": format!("#/$defs/{name}"), "$defs": all["$defs"]});
            jsonschema::validator_for(&schema).unwrap()
        });
        validator.is_valid(value)
    }

    /// Returns the name of the schema of a frame.
    fn schema(&self, api: &str, value: &Value) -> Option<String> {
        if value.get("error").is_some_and(Value::is_object) && value.get("type").is_none() {
            return (api != "messages" && value["object"] != "response").then(|| "ErrorResponse".to_owned());
        }
        Some(match (api, value["object"].as_str()) {
            ("chat.completions", Some("chat.completion.chunk")) => {
                "CreateChatCompletionStreamResponse".to_owned()
            }
            ("chat.completions", _) => "CreateChatCompletionResponse".to_owned(),
            ("completions", _) => "CreateCompletionResponse".to_owned(),
            ("responses", Some("response")) => "Response".to_owned(),
            ("responses", _) => {
                let members = self.all["$defs"]["ResponseStreamEvent"]["anyOf"].as_array().unwrap();
                let names = members.iter().filter_map(|one| one["$ref"].as_str()?.strip_prefix("#/$defs/"));
                let is_it =
                    |name: &&str| self.all["$defs"][*name]["properties"]["type"]["enum"][0] == value["type"];
                names.into_iter().find(is_it)?.to_owned()
            }
            _ => return None,
        })
    }
}

/// Removes the keyword that the reader leaves out.
fn remove_patterns(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|key, value| key != "pattern" || !value.is_string());
            members.values_mut().for_each(remove_patterns);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_patterns),
        _ => {}
    }
}

/// Returns the paths of all values.
fn paths(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| paths(value, &format!("{at}/{key}"), all))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(number, value)| paths(value, &format!("{at}/{number}"), all));
        }
        _ => {}
    }
}

/// Returns the value with each of its parts replaced or removed, one at a time.
fn changed(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    paths(value, "", &mut all);
    let mut changed = vec![value.clone()];
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(999_999),
        json!(""),
        json!("x".repeat(70)),
        json!([]),
        json!({}),
        json!({"a": 1}),
    ];
    for path in all {
        for other in &others {
            let mut one = value.clone();
            *one.pointer_mut(&path).unwrap() = other.clone();
            changed.push(one);
        }
        let Some((outer, key)) = path.rsplit_once('/') else { continue };
        let mut one = value.clone();
        if one
            .pointer_mut(outer)
            .and_then(Value::as_object_mut)
            .and_then(|members| members.remove(key))
            .is_some()
        {
            changed.push(one);
        }
    }
    changed
}

#[test]
fn schemas_are_read_as_a_library_reads_them() {
    let mut library = Library::load();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/vectors");
    let (mut judged, mut wrong, mut seen) = (0, 0, BTreeMap::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let vector: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let api = vector["client_api"].as_str().unwrap();
        let lines = vector["expected"].as_array().into_iter().flatten();
        let data = lines.filter_map(|line| serde_json::from_str(line.as_str()?.strip_prefix("data: ")?).ok());
        for frame in data.chain([vector["expected_body"].clone()]).filter(Value::is_object) {
            let Some(name) = library.schema(api, &frame) else { continue };
            // A few frames of each schema: most are alike.
            let count = seen.entry(name.clone()).or_insert(0);
            *count += 1;
            if *count > 4 {
                continue;
            }
            for value in changed(&frame) {
                let own = violation(&name, &Tree::read(&value.to_string()));
                assert_eq!(own.is_none(), library.is_valid(&name, &value), "{name} {own:?}: {value}");
                judged += 1;
                wrong += usize::from(own.is_some());
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
    assert!(judged > 10_000 && wrong > judged / 4, "{judged} judged, {wrong} wrong");
}
