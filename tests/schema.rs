//! Every frame, object and error that clients get is what the published schema of the OpenAI API says, and every key
//! beyond it is one that the wire format allows.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod canonical;
mod cases;
mod random;
mod slow;

use canonical::{Frame, frames};
use cases::{Answer, Case, Cut, captures, fixtures, vectors};
use jsonschema::Validator;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use samewire::wire::Api;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// What the wire format adds to the schema, and where: `*` stands for the place in a list.
const ADDED: [(&str, &str); 12] = [
    // 2.4: no schema of the API names reasoning text.
    ("CreateChatCompletionStreamResponse", "choices.*.delta.reasoning_content"),
    ("CreateChatCompletionStreamResponse", "choices.*.delta.reasoning"),
    ("CreateChatCompletionResponse", "choices.*.message.reasoning_content"),
    ("CreateChatCompletionResponse", "choices.*.message.reasoning"),
    // 2.9: with `stop_details`.
    ("CreateChatCompletionStreamResponse", "choices.*.stop_reason"),
    ("CreateChatCompletionResponse", "choices.*.stop_reason"),
    ("CreateCompletionResponse", "choices.*.stop_reason"),
    // 3.2: with `error_frame = "flat+nested"`.
    ("ErrorResponse", "message"),
    ("ErrorResponse", "type"),
    // 3.4: with `usage_limit_reached`.
    ("ErrorResponse", "error.plan_type"),
    ("ErrorResponse", "error.resets_at"),
    // 1.6: with `unknown_fields = "pass"`, here and in each choice.
    ("", "x_upstream"),
];

/// The schemas by name.
struct Schemas {
    all: Value,
    validators: Vec<(&'static str, Validator)>,
    /// Additions that were met: what the format allows and no case shows is not tested.
    met: BTreeSet<String>,
}

const NAMES: [&str; 4] = [
    "CreateChatCompletionStreamResponse",
    "CreateChatCompletionResponse",
    "CreateCompletionResponse",
    "ErrorResponse",
];

impl Schemas {
    fn load() -> Self {
        let path = fixtures().join("openai/schemas.subset.json");
        let mut all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        // Only what these four need: the schemas of other APIs hold keywords of older drafts.
        let needed = needed(&all);
        all["$defs"].as_object_mut().unwrap().retain(|name, _| needed.contains(name));
        let validators = NAMES.map(|name| {
            let mut schema = all.clone();
            schema["$ref"] = json!(format!("#/$defs/{name}"));
            (name, jsonschema::validator_for(&schema).unwrap())
        });
        Self { all, validators: validators.into(), met: BTreeSet::new() }
    }

    fn check(&mut self, name: &'static str, value: &Value) -> Result<(), String> {
        let validator = &self.validators.iter().find(|(known, _)| *known == name).unwrap().1;
        if let Some(wrong) = validator.iter_errors(value).next() {
            return Err(format!("{name} at {}: {wrong}\n  {value}", wrong.instance_path()));
        }
        let mut odd = Vec::new();
        self.unnamed(&self.all["$defs"][name], value, "", &mut odd);
        for place in odd {
            let added = |(of, key): &&(&str, &str)| {
                (*of == name && *key == place)
                    || (of.is_empty() && ["x_upstream", "choices.*.x_upstream"].contains(&place.as_str()))
            };
            match ADDED.iter().find(added) {
                Some((_, key)) => self.met.insert(format!("{name} {key}")),
                None => return Err(format!("{name} has `{place}`\n  {value}")),
            };
        }
        Ok(())
    }

    /// The places of keys that the schema does not name.
    fn unnamed(&self, schema: &Value, value: &Value, at: &str, odd: &mut Vec<String>) {
        let mut nodes = Vec::new();
        self.nodes(schema, &mut nodes);
        match value {
            Value::Array(items) => {
                for items_schema in nodes.iter().map(|node| &node["items"]).filter(|items| items.is_object())
                {
                    items.iter().for_each(|item| self.unnamed(items_schema, item, &format!("{at}*."), odd));
                }
            }
            Value::Object(members) if nodes.iter().all(|node| !node["additionalProperties"].is_object()) => {
                for (key, value) in members {
                    let named: Vec<&Value> =
                        nodes.iter().filter_map(|node| node["properties"].get(key)).collect();
                    if named.is_empty() {
                        odd.push(format!("{at}{key}"));
                    }
                    named.iter().for_each(|named| self.unnamed(named, value, &format!("{at}{key}."), odd));
                }
            }
            _ => {}
        }
    }

    /// A schema and all it refers to or is put together from.
    fn nodes<'a>(&'a self, schema: &'a Value, into: &mut Vec<&'a Value>) {
        into.push(schema);
        if let Some(name) = schema["$ref"].as_str() {
            self.nodes(&self.all["$defs"][name.trim_start_matches("#/$defs/")], into);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            schema[key].as_array().into_iter().flatten().for_each(|part| self.nodes(part, into));
        }
    }

    /// Everything of one answer.
    fn answer(&mut self, case: &Case, answer: &Answer) -> Result<(), String> {
        let object = match (case.api, case.streams()) {
            (Api::Chat, true) => "CreateChatCompletionStreamResponse",
            (Api::Chat, false) => "CreateChatCompletionResponse",
            (Api::Completions, _) => "CreateCompletionResponse",
            (Api::Responses, _) => return Err("events of Responses are for tests/responses.rs".to_owned()),
        };
        let parsed = || serde_json::from_str(&answer.body).map_err(|wrong| wrong.to_string());
        if answer.status != 200 {
            return self.check("ErrorResponse", &parsed()?);
        }
        if !case.streams() {
            return self.check(object, &departing(case, parsed()?));
        }
        for frame in frames(&answer.body)? {
            match frame {
                Frame::Chunk(chunk) => self.check(object, &departing(case, chunk))?,
                Frame::Error(error) => self.check("ErrorResponse", &error)?,
                Frame::Done => {}
            }
        }
        Ok(())
    }
}

/// The schemas that the four refer to, and they themselves.
fn needed(all: &Value) -> BTreeSet<String> {
    let mut needed = BTreeSet::new();
    let mut open: Vec<String> = NAMES.map(str::to_owned).into();
    while let Some(name) = open.pop() {
        let text = all["$defs"][&name].to_string();
        let names = text.split("\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next());
        open.extend(names.filter(|name| !needed.contains(*name)).map(str::to_owned));
        needed.insert(name);
    }
    needed
}

/// Where the format departs from the schema on purpose, put right so that the rest can be judged.
fn departing(case: &Case, mut value: Value) -> Value {
    for choice in value["choices"].as_array_mut().into_iter().flatten() {
        // Legacy logprobs are the engine's own (2.11): the first token of an echoed prompt has none.
        let lists = &mut choice["logprobs"];
        for key in ["token_logprobs", "top_logprobs"] {
            let list = lists.get_mut(key).and_then(Value::as_array_mut);
            list.into_iter().for_each(|list| list.retain(|entry| !entry.is_null()));
        }
        // Annotations are carried as they came (2.1), and random ones are not of the API's making.
        if let Some(annotations) = choice.pointer_mut("/message/annotations") {
            *annotations = json!([]);
        }
        // The words of 2.6 are the same for both APIs.
        if case.api == Api::Completions && choice["finish_reason"] == "function_call" {
            choice["finish_reason"] = json!("stop");
        }
    }
    value
}

#[test]
fn captures_and_vectors() {
    let mut schemas = Schemas::load();
    let captures = captures().into_iter().map(|fixture| fixture.case);
    let cases: Vec<Case> = captures.chain(vectors().into_iter().map(|(case, _)| case)).collect();
    let mut wrong = Vec::new();
    for mut case in cases {
        for stream in [case.streams(), !case.streams()] {
            let request = case.request.as_object_mut().unwrap();
            request.insert("stream".to_owned(), Value::Bool(stream));
            if !stream {
                request.remove("stream_options");
            }
            for options in [case.options.clone(), everything(&case.options)] {
                let case = Case { options, ..case.clone() };
                let answer = case.run(&Cut::Whole);
                wrong.extend(
                    schemas.answer(&case, &answer).err().map(|wrong| format!("{}: {wrong}", case.name)),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{} are not what the schema says:\n{}", wrong.len(), wrong.join("\n"));
    for addition in [
        "CreateChatCompletionStreamResponse choices.*.delta.reasoning",
        "CreateChatCompletionResponse choices.*.message.reasoning_content",
        "CreateChatCompletionStreamResponse choices.*.stop_reason",
        "CreateCompletionResponse choices.*.stop_reason",
        "CreateChatCompletionStreamResponse x_upstream",
        "ErrorResponse message",
    ] {
        assert!(schemas.met.contains(addition), "no case shows {addition}: {:?}", schemas.met);
    }
}

/// The options that add keys, all of them.
fn everything(options: &Value) -> Value {
    let mut options = options.clone();
    let added = json!({
        "reasoning_field": "both", "stop_details": true, "unknown_fields": "pass", "system_fingerprint": "pass",
        "force_usage": true, "error_frame": "flat+nested", "role_frame": "openai", "obfuscation": "on_request",
    });
    options.as_object_mut().unwrap().extend(added.as_object().unwrap().clone());
    options
}

/// The checks themselves notice what they are for.
#[test]
fn what_is_wrong_is_noticed() {
    let mut schemas = Schemas::load();
    let good = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
        {"index": 0, "delta": {"content": "a"}, "logprobs": null, "finish_reason": null}]});
    schemas.check("CreateChatCompletionStreamResponse", &good).unwrap();
    for (pointer, value) in [
        ("/object", json!("chat.completion")),
        ("/created", json!(1.5)),
        ("/choices/0/finish_reason", json!("abort")),
        ("/choices/0/delta", json!({"content": 5})),
        ("/choices/0/delta", json!({"thinking": "a"})),
        ("/choices/0/delta", json!({"tool_calls": [{"index": 0, "matched_stop": null}]})),
        ("/choices/0", json!({"index": 0, "delta": {}, "finish_reason": null, "token_ids": [1]})),
        ("", json!({"error": {}})),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        schemas.check("CreateChatCompletionStreamResponse", &bad).unwrap_err();
    }
    let numeric = json!({"error": {"message": "m", "type": "t", "param": null, "code": 400}});
    schemas.check("ErrorResponse", &numeric).unwrap_err();
}

#[test]
fn random_answers() {
    let schemas = RefCell::new(Schemas::load());
    let config = Config { cases: 3_000, failure_persistence: None, ..Config::default() };
    let judged = |case: Case| {
        let answer = case.run(&Cut::Whole);
        schemas.borrow_mut().answer(&case, &answer).map_err(TestCaseError::fail)
    };
    TestRunner::new(config).run(&random::case(), judged).unwrap_or_else(|wrong| panic!("{wrong}"));
}
