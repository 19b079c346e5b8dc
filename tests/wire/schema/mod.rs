//! Every frame, object and error that clients get conforms to the published schema of the OpenAI API, and every key
//! beyond it is one that the wire format allows.

mod responses;

use crate::canonical::{Frame, frames};
use crate::cases::{Answer, Case, Cut, captures, vectors};
use crate::official::Schemas;
use crate::random;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use samewire::wire::Api;
use serde_json::{Value, json};
use std::cell::RefCell;

/// Checks every part of an answer.
fn judge(schemas: &mut Schemas, case: &Case, answer: &Answer) -> Result<(), String> {
    let object = match (case.api, case.streams()) {
        (Api::Chat, true) => "CreateChatCompletionStreamResponse",
        (Api::Chat, false) => "CreateChatCompletionResponse",
        (Api::Completions, _) => "CreateCompletionResponse",
        (Api::Responses, _) => return responses::judge(schemas, case, answer),
        (Api::Messages, _) => return Err("the official schemas know no Messages".to_owned()),
    };
    let parsed = || serde_json::from_str(&answer.body).map_err(|wrong| wrong.to_string());
    if answer.status != 200 {
        return schemas.check("ErrorResponse", &parsed()?);
    }
    if !case.streams() {
        return schemas.check(object, &departing(case, parsed()?));
    }
    for frame in frames(&answer.body)? {
        match frame {
            Frame::Chunk(chunk) => schemas.check(object, &departing(case, chunk))?,
            Frame::Error(error) => schemas.check("ErrorResponse", &error)?,
            Frame::Done => {}
        }
    }
    Ok(())
}

/// Replaces intended departures from the schema by valid values, so that the rest can be checked.
fn departing(case: &Case, mut value: Value) -> Value {
    for choice in value["choices"].as_array_mut().into_iter().flatten() {
        // Legacy logprobs are the engine's own (2.11): the first token of an echoed prompt has none.
        let lists = &mut choice["logprobs"];
        for key in ["token_logprobs", "top_logprobs"] {
            let list = lists.get_mut(key).and_then(Value::as_array_mut);
            list.into_iter()
                .for_each(|list| list.retain(|entry| !entry.is_null()));
        }
        // Annotations are forwarded unchanged (2.1), and random ones do not conform to the API.
        if let Some(annotations) = choice.pointer_mut("/message/annotations") {
            *annotations = json!([]);
        }
        // The schema has no custom tools in streams.
        for call in choice
            .pointer_mut("/delta/tool_calls")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(custom) = call.as_object_mut().and_then(|call| call.remove("custom")) {
                let mut function = json!({"arguments": custom["input"]});
                if custom["name"].is_string() {
                    function["name"] = custom["name"].clone();
                    call["type"] = json!("function");
                }
                call["function"] = function;
            }
        }
        // The finish reasons of 2.6 are the same for both APIs.
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
    let cases: Vec<Case> = captures
        .chain(vectors().into_iter().map(|(case, _)| case))
        .collect();
    let mut wrong = Vec::new();
    for mut case in cases {
        for stream in [case.streams(), !case.streams()] {
            let request = case.request.as_object_mut().unwrap();
            request.insert("stream".to_owned(), Value::Bool(stream));
            if !stream {
                request.remove("stream_options");
            }
            for options in [case.options.clone(), everything(&case.options)] {
                let case = Case {
                    options,
                    ..case.clone()
                };
                let answer = case.run(&Cut::Whole);
                wrong.extend(
                    judge(&mut schemas, &case, &answer)
                        .err()
                        .map(|wrong| format!("{}: {wrong}", case.name)),
                );
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are not what the schema says:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    for addition in [
        "ChatCompletionStreamResponseDelta reasoning",
        "ChatCompletionResponseMessage reasoning_content",
        "CreateChatCompletionStreamResponse choices.*.stop_reason",
        "CreateCompletionResponse choices.*.stop_reason",
        "CreateChatCompletionStreamResponse x_upstream",
        "CreateChatCompletionStreamResponse choices.*.token_ids",
        "CreateChatCompletionStreamResponse prompt_token_ids",
        "CreateChatCompletionResponse prompt_logprobs",
        "ErrorResponse message",
    ] {
        assert!(
            schemas.met.contains(addition),
            "no case shows {addition}: {:?}",
            schemas.met
        );
    }
}

/// Enables all options that add keys.
fn everything(options: &Value) -> Value {
    let mut options = options.clone();
    let added = json!({
        "reasoning_field": "both", "stop_details": true, "unknown_fields": "pass", "system_fingerprint": "pass",
        "force_usage": true, "error_frame": "flat+nested", "role_frame": "openai", "obfuscation": "on_request",
    });
    options
        .as_object_mut()
        .unwrap()
        .extend(added.as_object().unwrap().clone());
    options
}

/// The checks detect the violations they are meant for.
#[test]
fn what_is_wrong_is_noticed() {
    let mut schemas = Schemas::load();
    let good = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
        {"index": 0, "delta": {"content": "a"}, "logprobs": null, "finish_reason": null}]});
    schemas
        .check("CreateChatCompletionStreamResponse", &good)
        .unwrap();
    for (pointer, value) in [
        ("/object", json!("chat.completion")),
        ("/created", json!(1.5)),
        ("/choices/0/finish_reason", json!("abort")),
        ("/choices/0/delta", json!({"content": 5})),
        ("/choices/0/delta", json!({"thinking": "a"})),
        (
            "/choices/0/delta",
            json!({"tool_calls": [{"index": 0, "matched_stop": null}]}),
        ),
        (
            "/choices/0",
            json!({"index": 0, "delta": {}, "finish_reason": null, "weight_versions": [1]}),
        ),
        ("", json!({"error": {}})),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        schemas
            .check("CreateChatCompletionStreamResponse", &bad)
            .unwrap_err();
    }
    let numeric = json!({"error": {"message": "m", "type": "t", "param": null, "code": 400}});
    schemas.check("ErrorResponse", &numeric).unwrap_err();
}

#[test]
fn random_answers() {
    let schemas = RefCell::new(Schemas::load());
    let config = Config {
        cases: 3_000,
        failure_persistence: None,
        ..Config::default()
    };
    let judged = |case: Case| {
        let answer = case.run(&Cut::Whole);
        judge(&mut schemas.borrow_mut(), &case, &answer).map_err(TestCaseError::fail)
    };
    TestRunner::new(config)
        .run(&random::case(), judged)
        .unwrap_or_else(|wrong| panic!("{wrong}"));
}
