//! Responses: every event, and every final object of an answer.

use crate::cases::{Answer, Case, Cut, captures, response_vectors, responses};
use crate::official::{DIALECT_EVENTS, Schemas};
use crate::random;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use samewire::wire::{Api, Ending};
use serde_json::{Value, json};
use std::cell::RefCell;

/// Checks every part of an answer.
pub fn judge(schemas: &mut Schemas, case: &Case, answer: &Answer) -> Result<(), String> {
    let parsed =
        |text: &str| serde_json::from_str::<Value>(text).map_err(|wrong| wrong.to_string());
    if answer.status != 200 {
        return schemas.check("ErrorResponse", &parsed(&answer.body)?);
    }
    if !case.streams() {
        return schemas.response(&parsed(&answer.body)?);
    }
    for data in answer
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
    {
        // 4.9: the end mark of one dialect, and the names that the two others add or change.
        if data == "[DONE]" {
            continue;
        }
        let event = parsed(data)?;
        if case.options["responses_dialect"] == "openai"
            || !DIALECT_EVENTS.iter().any(|kind| event["type"] == *kind)
        {
            schemas.event(&event)?;
        }
    }
    Ok(())
}

/// Converts a chat case into a Responses request with the same engine answer.
fn of_chat(case: Case) -> Case {
    let stream = case.streams();
    Case {
        api: Api::Responses,
        request: json!({"stream": stream}),
        options: json!({}),
        ..case
    }
}

fn sent_once(case: &Case) -> bool {
    case.api == Api::Chat && case.request["n"].as_u64().unwrap_or(1) == 1
}

/// Returns a case streamed and whole, with reasoning in each possible place, in each dialect.
fn each_way(case: &Case) -> Vec<Case> {
    let options = [
        ("openai", "content"),
        ("openai", "summary"),
        ("openai", "both"),
        ("openai", "none"),
        ("openresponses", "content"),
        ("codex-legacy", "both"),
    ];
    let mut ways = Vec::new();
    for (dialect, reasoning) in options {
        for stream in [true, false] {
            let mut case = case.clone();
            case.options["responses_dialect"] = json!(dialect);
            case.options["responses_reasoning"] = json!(reasoning);
            case.request["stream"] = json!(stream);
            ways.push(case);
        }
    }
    ways
}

/// Checks all these cases, and returns the schemas with the departures that occurred.
fn all(cases: impl Iterator<Item = Case>) -> Schemas {
    let mut schemas = Schemas::load();
    let mut wrong = Vec::new();
    for case in cases {
        let answer = case.run(&Cut::Whole);
        let told = judge(&mut schemas, &case, &answer).err();
        wrong.extend(told.map(|wrong| format!("{} {}: {wrong}", case.name, case.options)));
    }
    assert!(
        wrong.is_empty(),
        "{} are not what the schema says:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    schemas
}

fn own() -> impl Iterator<Item = Case> {
    responses().into_iter().map(|fixture| fixture.case)
}

fn chats() -> impl Iterator<Item = Case> {
    captures()
        .into_iter()
        .map(|fixture| fixture.case)
        .filter(sent_once)
        .map(of_chat)
}

#[test]
fn captures_and_vectors_of_responses() {
    let vectors = response_vectors().into_iter().map(|(case, _)| case);
    let schemas = all(own()
        .chain(vectors)
        .chain(chats())
        .flat_map(|case| each_way(&case)));
    for departure in [
        "Response store",
        "Response frequency_penalty",
        "ResponseErrorEvent error",
    ] {
        assert!(
            schemas.met.contains(departure),
            "no case shows {departure}: {:?}",
            schemas.met
        );
    }
}

/// Responses whose engine breaks off at any point.
#[test]
fn responses_that_break_off() {
    let cut = |case: Case| {
        let length = case.input.len();
        (1..24).map(move |part| {
            let input = case.input[..length * part / 24].to_vec();
            Case {
                input,
                ending: Ending::Reset,
                ..case.clone()
            }
        })
    };
    all(own()
        .chain(chats())
        .filter(|case| case.events)
        .flat_map(cut));
}

/// Parameters of the request that a response object repeats.
#[test]
fn what_responses_repeat() {
    let requests = [
        json!({"instructions": "Be brief.", "max_output_tokens": 16, "max_tool_calls": 2, "metadata": {"a": "b"}}),
        json!({"temperature": 0.5, "top_p": 1, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k"}),
        json!({"reasoning": {"effort": "low"}}),
        json!({"reasoning": {"effort": "high", "summary": "auto"}, "truncation": "auto", "service_tier": "auto"}),
        json!({"text": {"format": {"type": "json_object"}, "verbosity": "low"}, "parallel_tool_calls": false}),
        json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}}),
        json!({"tool_choice": "none", "tools": [
            {"type": "function", "name": "f"},
            {"type": "function", "name": "g", "parameters": {"type": "object"}, "strict": true, "description": "d"},
            {"type": "custom", "name": "c"},
            {"type": "custom", "name": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
            {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "h"}]}]}),
        json!({"tool_choice": {"type": "function", "name": "f"}, "tools": [{"type": "function", "name": "f"}]}),
        json!({"tool_choice": {"type": "custom", "name": "c"}, "tools": [{"type": "custom", "name": "c"}]}),
        json!({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            "tools": [{"type": "function", "name": "f"}]}),
        json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
        json!({"store": false, "background": false, "previous_response_id": "resp_1"}),
    ];
    let asked = requests.iter().flat_map(|request| {
        chats().filter(|case| case.status == 200).map(move |case| {
            let mut asked = request.clone();
            asked["stream"] = case.request["stream"].clone();
            Case {
                request: asked,
                ..case
            }
        })
    });
    all(asked);
}

#[test]
fn random_responses() {
    let schemas = RefCell::new(Schemas::load());
    let config = Config {
        cases: 1_000,
        failure_persistence: None,
        ..Config::default()
    };
    let judged = |case: Case| {
        let case = of_chat(case);
        let answer = case.run(&Cut::Whole);
        judge(&mut schemas.borrow_mut(), &case, &answer).map_err(TestCaseError::fail)
    };
    let strategy = random::case().prop_filter("one choice of a chat", sent_once);
    TestRunner::new(config)
        .run(&strategy, judged)
        .unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// The checks detect the violations they are meant for.
#[test]
fn what_is_wrong_in_responses_is_noticed() {
    let mut schemas = Schemas::load();
    let case = response_vectors().remove(0).0;
    let object = |pointer: &str, value: Value, schemas: &mut Schemas| {
        let mut case = case.clone();
        case.request["stream"] = json!(false);
        let mut object: Value = serde_json::from_str(&case.run(&Cut::Whole).body).unwrap();
        *object.pointer_mut(pointer).unwrap() = value;
        schemas.response(&object)
    };
    object("/object", json!("response"), &mut schemas).unwrap();
    // 4.7: a code that is not in the schema, but is sent and known.
    object(
        "/error",
        json!({"code": "insufficient_quota", "message": "m"}),
        &mut schemas,
    )
    .unwrap();
    assert!(schemas.met.contains("Response error.code"));
    for (pointer, value) in [
        ("/object", json!("responses")),
        ("/status", json!("done")),
        ("/created_at", json!("now")),
        ("/output/0/type", json!("text")),
        (
            "/output/0/content/0",
            json!({"type": "output_text", "text": "a", "logprobs": []}),
        ),
        (
            "/output/0/content/0",
            json!({"type": "refusal", "refusal": "a", "annotations": []}),
        ),
        (
            "/usage",
            json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}),
        ),
        (
            "/text",
            json!({"format": {"type": "text"}, "verbosity": "medium", "effort": null}),
        ),
        ("/metadata", json!({"a": 1})),
        ("/error", json!({"code": "no_such_code", "message": "m"})),
        ("", json!({})),
    ] {
        let told = format!("{pointer} {value}");
        assert!(
            object(pointer, value, &mut schemas).is_err(),
            "{told} passes"
        );
    }
    let event = json!({"type": "response.refusal.delta", "sequence_number": 4, "item_id": "m", "output_index": 0,
        "content_index": 0, "delta": "a"});
    schemas.event(&event).unwrap();
    for (key, value) in [
        ("type", json!("response.text")),
        ("item_id", Value::Null),
        ("logprobs", json!([])),
    ] {
        let mut event = event.clone();
        event[key] = value;
        assert!(schemas.event(&event).is_err(), "{event} passes");
    }
}
