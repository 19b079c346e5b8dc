//! Streams of Responses events, whatever they were made from: every stream obeys the order of wire-format 4.6.

mod ways;

use crate::cases::{Answer, Case, Cut, captures, response_vectors, responses};
use crate::events::fold;
use crate::seeded::seeded;
use proptest::prelude::*;
use samewire::wire::{Api, BodyForm};
use serde_json::{Value, json};

/// Checks the answer to a case by folding its events, if it is a stream.
fn check(case: &Case, wrong: &mut Vec<String>) {
    let answer = case.run(&Cut::Whole);
    if answer.status != 200 || !case.streams() {
        return;
    }
    if let Err(told) = fold(&answer.body) {
        wrong.push(format!("{}: {told}", case.name));
    }
}

fn none(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Converts a chat case into one with a Responses client.
fn of_chat(case: &Case, options: Value) -> Case {
    let stream = case.streams();
    Case {
        api: Api::Responses,
        request: json!({"stream": stream}),
        options,
        ..case.clone()
    }
}

fn chats() -> impl Iterator<Item = Case> {
    let asked_once =
        |case: &Case| case.api == Api::Chat && case.request["n"].as_u64().unwrap_or(1) == 1;
    captures()
        .into_iter()
        .map(|fixture| fixture.case)
        .filter(asked_once)
}

/// Reasoning is hidden if the client says so by the member of Chat Completions.
#[test]
fn reasoning_is_left_out_where_the_client_says_so() {
    let mut reasons = 0;
    for case in chats().map(|case| of_chat(&case, json!({}))) {
        let kinds = |case: &Case| -> Option<Vec<String>> {
            let output = object(case)?["output"].as_array()?.clone();
            Some(
                output
                    .iter()
                    .map(|item| item["type"].as_str().unwrap_or_default().to_owned())
                    .collect(),
            )
        };
        let says = |include: bool| {
            let mut case = case.clone();
            case.request["include_reasoning"] = include.into();
            kinds(&case)
        };
        let all = kinds(&case);
        assert_eq!(says(true), all, "{}", case.name);
        let Some(all) = all else { continue };
        reasons += all.iter().filter(|kind| *kind == "reasoning").count();
        let others: Vec<_> = all.into_iter().filter(|kind| kind != "reasoning").collect();
        assert_eq!(says(false), Some(others), "{}", case.name);
    }
    assert!(reasons > 0, "some reason");
}

const OPTIONS: [&str; 6] = [
    r#"{}"#,
    r#"{"responses_reasoning":"summary"}"#,
    r#"{"responses_reasoning":"both"}"#,
    r#"{"responses_reasoning":"none"}"#,
    r#"{"responses_dialect":"openresponses"}"#,
    r#"{"responses_dialect":"codex-legacy"}"#,
];

#[test]
fn events_of_the_engines_own_answers() {
    let mut wrong = Vec::new();
    for options in OPTIONS {
        for mut case in responses().into_iter().map(|fixture| fixture.case) {
            case.options = serde_json::from_str(options).unwrap();
            check(&case, &mut wrong);
        }
    }
    response_vectors()
        .iter()
        .for_each(|(case, _)| check(case, &mut wrong));
    none(&wrong);
}

#[test]
fn events_of_chat_answers() {
    let mut wrong = Vec::new();
    for options in OPTIONS {
        chats().for_each(|case| {
            check(
                &of_chat(&case, serde_json::from_str(options).unwrap()),
                &mut wrong,
            )
        });
    }
    none(&wrong);
}

/// A canonical answer is unchanged when it is rewritten again.
#[test]
fn canonical_events_stay() {
    let mut wrong = Vec::new();
    for options in OPTIONS {
        let options: Value = serde_json::from_str(options).unwrap();
        let own = responses().into_iter().map(|fixture| Case {
            options: options.clone(),
            ..fixture.case
        });
        for case in own.chain(chats().map(|case| of_chat(&case, options.clone()))) {
            let answer = case.run(&Cut::Whole);
            let again = case.fed_back(&answer.body).run(&Cut::Whole);
            if answer.status == 200 && again != answer {
                let lines = answer.body.lines().zip(again.body.lines());
                let (first, second) = lines
                    .into_iter()
                    .find(|(first, second)| first != second)
                    .unwrap_or_default();
                wrong.push(format!("{} {options}\n  {first}\n  {second}", case.name));
            }
        }
    }
    none(&wrong);
}

/// Returns the object at the end of a stream, or the whole object, without members that differ between answers.
fn object(case: &Case) -> Option<Value> {
    let Answer { status: 200, body } = case.run(&Cut::Whole) else {
        return None;
    };
    let mut object = match BodyForm::of(body.as_bytes()[0], false) {
        Some(BodyForm::Events) => fold(&body).unwrap(),
        _ => serde_json::from_str(&body).unwrap(),
    };
    for key in [
        "id",
        "created_at",
        "completed_at",
        "usage",
        "temperature",
        "top_p",
    ] {
        object.as_object_mut().unwrap().remove(key);
    }
    for item in object["output"].as_array_mut().unwrap() {
        let item = item.as_object_mut().unwrap();
        item.remove("id");
        item.remove("call_id");
    }
    Some(object)
}

/// An engine that sends the same answer in both forms gives the same items.
#[test]
fn streamed_and_whole_agree() {
    let all = responses();
    let mut pairs = 0;
    for whole in &all {
        let Some(name) = whole.case.name.strip_suffix("-whole") else {
            continue;
        };
        let Some(streamed) = all.iter().find(|fixture| fixture.case.name == name) else {
            continue;
        };
        let (mut streamed, mut whole) = (
            object(&streamed.case).unwrap(),
            object(&whole.case).unwrap(),
        );
        // vLLM sends the line ends between reasoning and a call only in the stream, LMDeploy in both forms.
        let blank = |item: &Value| {
            item["content"][0]["text"]
                .as_str()
                .is_some_and(|text| text.trim().is_empty())
        };
        for object in [&mut streamed, &mut whole] {
            object["output"]
                .as_array_mut()
                .unwrap()
                .retain(|item| item["type"] != "message" || !blank(item));
        }
        assert_eq!(streamed, whole, "{name}");
        pairs += 1;
    }
    assert!(pairs >= 8, "{pairs} pairs");
}

/// A whole object is converted into the events of a stream, which add up to the same object.
#[test]
fn one_object_becomes_events() {
    let mut seen = 0;
    for fixture in responses()
        .into_iter()
        .filter(|fixture| !fixture.case.events)
    {
        let Some(whole) = object(&fixture.case) else {
            continue;
        };
        let mut streamed = fixture.case.clone();
        streamed.request["stream"] = json!(true);
        assert_eq!(object(&streamed).unwrap(), whole, "{}", streamed.name);
        seen += 1;
    }
    assert!(seen >= 8, "{seen} objects");
}

/// Returns an engine's stream of these events.
fn engine(events: &[Value]) -> Case {
    let input = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect::<String>()
        .into_bytes();
    let request = json!({"stream": true});
    Case {
        input,
        request,
        ..response_vectors().remove(0).0
    }
    .upstream_of(Api::Responses)
}

/// Returns the object that a stream of these events ends with, after checking that it is canonical.
fn final_object(events: &[Value]) -> Value {
    let case = engine(events);
    let answer = case.run(&Cut::Whole);
    assert_eq!(case.fed_back(&answer.body).run(&Cut::Whole), answer);
    fold(&answer.body).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.body))
}

fn ev(kind: &str, more: Value) -> Value {
    let mut event = json!({"type": format!("response.{kind}")});
    event
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    event
}

fn created() -> Value {
    ev(
        "created",
        json!({"response": {"id": "resp_1", "created_at": 5.0, "model": "m"}}),
    )
}

fn completed(output: Value) -> Value {
    ev(
        "completed",
        json!({"response": {"id": "resp_1", "status": "completed", "output": output}}),
    )
}

/// Arguments of a chat engine's call, split into the part before other output begins and the part after it.
#[test]
fn a_call_takes_what_comes_behind_other_output_until_it_is_complete() {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        json!({"id": "1", "created": 1, "model": "m", "choices": [choice]})
    };
    for (before, behind, all) in [
        (r#"{"a":"#, "1}", r#"{"a":1}"#),
        // Complete, then sent again.
        (r#"{"a":1}{"a""#, ":1}", r#"{"a":1}{"a":1}"#),
        // The call has ended: an item that is done takes no more arguments.
        (r#"{"a":1}"#, r#", "b""#, r#"{"a":1}"#),
    ] {
        let call =
            json!([{"index": 0, "id": "call_a", "function": {"name": "f", "arguments": before}}]);
        let rest = json!([{"index": 0, "function": {"arguments": behind}}]);
        let chunks = [
            chunk(json!({"tool_calls": call}), Value::Null),
            chunk(json!({"content": "text"}), Value::Null),
            chunk(json!({"tool_calls": rest}), Value::Null),
            chunk(json!({}), json!("tool_calls")),
        ];
        // Other engines are known to send arguments twice, and the repetition is dropped.
        let case = Case {
            engine: "generic".into(),
            ..engine(&chunks).upstream_of(Api::Chat)
        };
        let object = object(&case).unwrap();
        let [call, message] = &object["output"].as_array().unwrap()[..] else {
            panic!("{object}")
        };
        assert_eq!(
            (&call["arguments"], &message["content"][0]["text"]),
            (&json!(all), &json!("text"))
        );
    }
}

/// Items of unknown types are forwarded, with their own events and without any.
#[test]
fn foreign_items_pass() {
    let call = |status: &str| json!({"type": "code_interpreter_call", "code": "1", "id": "x", "status": status, "output_index": 7});
    let search =
        json!({"id": "y", "action": {"type": "search", "query": "q"}, "type": "web_search_call"});
    let events = [
        created(),
        ev(
            "output_item.added",
            json!({"output_index": 3, "item": call("in_progress")}),
        ),
        ev(
            "code_interpreter_call.in_progress",
            json!({"item_id": "x", "output_index": 3, "more": 1}),
        ),
        ev(
            "code_interpreter_call_code.delta",
            json!({"item_id": "x", "delta": "1", "sequence_number": -1}),
        ),
        ev("code_interpreter_call.dreaming", json!({"item_id": "x"})),
        ev("image_generation_call.generating", json!({"item_id": "z"})),
        ev(
            "output_item.done",
            json!({"output_index": 3, "item": call("completed")}),
        ),
        ev("output_text.delta", json!({"item_id": "m", "delta": "a"})),
        completed(
            json!([call("completed"), {"type": "message", "content": [{"type": "output_text", "text": "a"}]}, search]),
        ),
    ];
    let output = final_object(&events)["output"].clone();
    let expected = json!([
        {"id": "ci_1_0", "type": "code_interpreter_call", "status": "completed", "code": "1"},
        {"id": "msg_1_1", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]},
        {"id": "ws_1_2", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
    ]);
    assert_eq!(output, expected);
    let body = engine(&events).run(&Cut::Whole).body;
    for (kind, times) in [
        ("code_interpreter_call.in_progress", 1),
        ("code_interpreter_call_code.delta", 1),
        ("code_interpreter_call.dreaming", 0),
        ("image_generation_call.generating", 0),
        ("web_search_call.searching", 1),
    ] {
        assert_eq!(
            body.matches(&format!("event: response.{kind}\n")).count(),
            times,
            "{kind}"
        );
    }
}

/// Text that an engine sends late, twice or in another form reaches the client once.
#[test]
fn every_text_is_told_once() {
    let text =
        |text: &str| json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": arguments});
    let added = |item: Value| ev("output_item.added", json!({"item": item}));
    let done = |item: Value| ev("output_item.done", json!({"item": item}));
    let message =
        |events: &[Value]| final_object(events)["output"][0]["content"][0]["text"].clone();
    let calls = |events: &[Value]| {
        let told = final_object(events);
        let of = |item: &Value| {
            format!(
                "{}={}",
                item["call_id"].as_str().unwrap(),
                item["arguments"].as_str().unwrap()
            )
        };
        told["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(of)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let delta = ev("output_text.delta", json!({"delta": "a"}));
    let none = completed(json!([]));
    // The rest of a text, in each of the places that hold all of it.
    for whole in [
        ev("output_text.done", json!({"text": "ab"})),
        ev(
            "content_part.done",
            json!({"part": {"type": "output_text", "text": "ab"}}),
        ),
        done(text("ab")),
        completed(json!([text("ab")])),
    ] {
        assert_eq!(
            message(&[created(), delta.clone(), whole.clone(), none.clone()]),
            "ab",
            "{whole}"
        );
        assert_eq!(
            message(&[created(), whole.clone(), none.clone()]),
            "ab",
            "{whole}"
        );
    }
    // A text that is done is not extended, whatever the final object has.
    assert_eq!(
        message(&[
            created(),
            delta,
            done(text("a")),
            completed(json!([text("ax")]))
        ]),
        "a"
    );
    // Two interleaved calls, then one without an `added` event, and one only in the final object.
    let piece = |id: &str, delta: &str| {
        ev(
            "function_call_arguments.delta",
            json!({"item_id": id, "delta": delta}),
        )
    };
    let begin = |id: &str, call_id: &str| {
        let mut item = call(call_id, "");
        item["id"] = json!(id);
        added(item)
    };
    let events = [
        created(),
        begin("1", "a"),
        begin("2", "b"),
        piece("2", "{\"y\""),
        piece("1", "{\"x\":1"),
        done(call("b", "{\"y\":2}")),
        done(call("a", "{\"x\":1}")),
        ev(
            "tool_call.delta",
            json!({"delta": {"content": [{"type": "tool_call", "id": "a", "name": "f", "arguments": "{}"}, {"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}]}}),
        ),
        completed(json!([
            call("a", "{\"x\":1}"),
            call("b", "{\"y\":2}"),
            call("c", "{}"),
            call("d", "{\"z\":3}")
        ])),
    ];
    assert_eq!(calls(&events), "a={\"x\":1} b={\"y\":2} c={} d={\"z\":3}");
}

/// Custom tools, namespaces, summaries, refusals, annotations and encrypted reasoning are all kept.
#[test]
fn nothing_that_is_modelled_is_lost() {
    let output = json!([
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": [], "encrypted_content": "e+/="},
        {"type": "reasoning", "summary": [], "encrypted_content": "f"},
        {"type": "message", "status": "incomplete", "content": [
            {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "u"}]},
            {"type": "refusal", "refusal": "no"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "{}{} x"},
        {"type": "function_call", "call_id": "d", "name": "f", "namespace": "n", "arguments": {"a": 1}, "status": "completed"},
    ]);
    let expected = json!([
        {"id": "rs_1_0", "type": "reasoning", "status": "completed", "summary": [{"type": "summary_text", "text": "s"}], "content": [], "encrypted_content": "e+/="},
        {"id": "rs_1_1", "type": "reasoning", "status": "completed", "summary": [], "content": [], "encrypted_content": "f"},
        {"id": "msg_1_2", "type": "message", "status": "incomplete", "role": "assistant", "content": [
            {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "u"}], "logprobs": []},
            {"type": "refusal", "refusal": "no"}]},
        {"id": "ctc_1_3", "type": "custom_tool_call", "status": "completed", "call_id": "c", "name": "p", "input": "{}{} x"},
        {"id": "fc_1_4", "type": "function_call", "status": "completed", "call_id": "d", "name": "f", "namespace": "n", "arguments": "{\"a\":1}"},
    ]);
    assert_eq!(
        final_object(&[created(), completed(output)])["output"],
        expected
    );
}

/// Encrypted reasoning in a separate event belongs to the open item, or to one that has ended.
#[test]
fn encrypted_reasoning_may_come_late() {
    let delta = ev("reasoning_text.delta", json!({"delta": "r"}));
    let context = ev(
        "additional_context",
        json!({"context": {"reasoning.encrypted_content": "e"}}),
    );
    let done = ev(
        "output_item.done",
        json!({"item": {"type": "reasoning", "content": [{"text": "r"}]}}),
    );
    for events in [
        [created(), delta.clone(), context.clone(), done.clone()],
        [created(), delta, done, context],
    ] {
        let told = final_object(&[&events[..], &[completed(json!([]))]].concat());
        assert_eq!(told["output"][0]["encrypted_content"], "e");
        assert_eq!(told["output"].as_array().unwrap().len(), 1);
    }
}

/// Final events of an engine's answer, and the status that each results in.
#[test]
fn ends_are_told_as_they_are() {
    let end =
        |kind: &str, response: Value| vec![created(), ev(kind, json!({"response": response}))];
    let limit =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    let filter =
        json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}});
    let failed = json!({"status": "failed", "error": {"code": "server_error", "message": "no"}});
    let error =
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null});
    for (events, status, reason) in [
        (
            end("completed", json!({"status": "completed"})),
            "completed",
            Value::Null,
        ),
        (
            end("completed", limit.clone()),
            "incomplete",
            json!("max_output_tokens"),
        ),
        (
            end("incomplete", limit),
            "incomplete",
            json!("max_output_tokens"),
        ),
        (
            end("incomplete", filter),
            "incomplete",
            json!("content_filter"),
        ),
        (end("failed", failed), "failed", json!("server_error")),
        (
            end("completed", json!({"status": "cancelled"})),
            "failed",
            json!("server_error"),
        ),
        (
            vec![created(), error],
            "failed",
            json!("rate_limit_exceeded"),
        ),
        (vec![created()], "failed", json!("server_error")),
    ] {
        let told = final_object(&events);
        assert_eq!(told["status"], status, "{events:?}");
        let why = told["incomplete_details"]["reason"]
            .as_str()
            .or_else(|| told["error"]["code"].as_str());
        assert_eq!(json!(why), reason, "{events:?}");
    }
}

/// Generates the events of an engine's answer in random order, some twice, some missing, some damaged.
fn shuffled() -> impl Strategy<Value = Case> {
    let all: Vec<Case> = responses()
        .into_iter()
        .map(|fixture| fixture.case)
        .filter(|case| case.events)
        .collect();
    let picks = proptest::collection::vec((any::<prop::sample::Index>(), 0u8..12), 0..24);
    let spoilt = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (
        prop::sample::select(all),
        picks,
        spoilt,
        0usize..OPTIONS.len(),
    )
        .prop_map(|(case, picks, spoilt, options)| {
            let events: Vec<&[u8]> = split(&case.input);
            let mut input = Vec::new();
            let mut next = 0;
            for (index, turn) in picks {
                // Most events stay in order.
                next = if turn == 0 {
                    index.index(events.len())
                } else {
                    next + 1
                };
                input.extend_from_slice(events[next % events.len()]);
                if turn == 1 {
                    input.extend_from_slice(events[next % events.len()]);
                }
            }
            let spoilt = if input.is_empty() { Vec::new() } else { spoilt };
            for (index, byte) in spoilt {
                let at = index.index(input.len());
                input[at] = byte;
            }
            Case {
                input,
                options: serde_json::from_str(OPTIONS[options]).unwrap(),
                ..case
            }
        })
}

/// Generates events of every type in random order, for items of which some share their ids.
fn invented() -> impl Strategy<Value = Case> {
    let picks = proptest::collection::vec(any::<prop::sample::Index>(), 0..14);
    (picks, 0usize..OPTIONS.len()).prop_map(|(picks, options)| {
        let pool = pool();
        let events: Vec<Value> = picks
            .iter()
            .map(|index| pool[index.index(pool.len())].clone())
            .collect();
        Case {
            options: serde_json::from_str(OPTIONS[options]).unwrap(),
            ..engine(&events)
        }
    })
}

fn pool() -> Vec<Value> {
    let parts = json!([
        {"type": "output_text", "text": "ab", "annotations": [{"n": 1}]},
        {"type": "refusal", "refusal": "no"}]);
    let items = [
        json!({"type": "message", "content": []}),
        json!({"type": "message", "content": parts, "status": "incomplete"}),
        json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "ab"}], "content": [{"text": "ab"}]}),
        json!({"type": "reasoning", "encrypted_content": "e"}),
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}),
        json!({"type": "function_call", "call_id": "d", "name": "f", "namespace": "n", "arguments": "{\"a\""}),
        json!({"type": "custom_tool_call", "call_id": "e", "name": "p", "input": "ab"}),
        json!({"type": "web_search_call", "status": "completed", "action": {}}),
        json!({"type": "mcp_call", "status": "failed", "name": "f", "server_label": "s"}),
    ];
    let mut pool = vec![
        created(),
        json!({"type": "error", "message": "no"}),
        ev(
            "tool_call.delta",
            json!({"delta": {"content": [{"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}]}}),
        ),
        ev(
            "failed",
            json!({"response": {"status": "failed", "output": items}}),
        ),
        ev(
            "incomplete",
            json!({"response": {"status": "incomplete", "output": items}}),
        ),
    ];
    for count in [0, 1, 3, items.len()] {
        pool.push(completed(json!(items[..count])));
        pool.push(completed(json!(items[items.len() - count..])));
    }
    for id in ["x", "y"] {
        for item in &items {
            let mut item = item.clone();
            item["id"] = json!(id);
            pool.push(ev("output_item.added", json!({"item": item})));
            pool.push(ev("output_item.done", json!({"item": item})));
        }
        for stem in [
            "output_text",
            "refusal",
            "reasoning_text",
            "reasoning",
            "reasoning_summary_text",
            "function_call_arguments",
            "custom_tool_call_input",
            "mcp_call_arguments",
        ] {
            pool.push(ev(
                &format!("{stem}.delta"),
                json!({"item_id": id, "delta": "a"}),
            ));
            pool.push(ev(
                &format!("{stem}.done"),
                json!({"item_id": id, "text": "ab", "refusal": "ab", "arguments": "ab", "name": "f"}),
            ));
        }
        for part in parts.as_array().unwrap() {
            pool.push(ev(
                "content_part.added",
                json!({"item_id": id, "part": part}),
            ));
            pool.push(ev(
                "content_part.done",
                json!({"item_id": id, "part": part}),
            ));
        }
        pool.push(ev(
            "output_text.annotation.added",
            json!({"item_id": id, "annotation": {"n": 2}}),
        ));
        pool.push(ev("web_search_call.searching", json!({"item_id": id})));
    }
    pool
}

/// Splits a stream into events, each with its blank line.
fn split(input: &[u8]) -> Vec<&[u8]> {
    let text = std::str::from_utf8(input).unwrap();
    text.split_inclusive("\n\n").map(str::as_bytes).collect()
}

/// Checks what holds for any input: no panic, events in order, and independence of the cuts.
fn holds(case: &Case) -> Result<(), String> {
    let answer = case.run(&Cut::Whole);
    let told = |what: &str, seen: &str| {
        let input = case.input.escape_ascii();
        format!(
            "{what}\n  {} {}\n  input {input}\n  output {}\n  {seen}",
            case.name, case.options, answer.body
        )
    };
    if case.run(&Cut::Bytes) != answer {
        return Err(told("the cut matters", ""));
    }
    if answer.status != 200 {
        return Ok(());
    }
    if case.streams() {
        fold(&answer.body).map_err(|wrong| told(&wrong, ""))?;
    }
    Ok(())
}

/// Checks that an answer is unchanged when it is rewritten again.
fn stays(case: &Case) -> Result<(), String> {
    let answer = case.run(&Cut::Whole);
    let again = case.fed_back(&answer.body).run(&Cut::Whole);
    match answer.status == 200 && again != answer {
        true => Err(format!(
            "{}\n{}\n{}",
            case.input.escape_ascii(),
            answer.body,
            again.body
        )),
        false => Ok(()),
    }
}

proptest! {
    #![proptest_config(seeded(4_000))]

    #[test]
    fn events_in_any_order(case in shuffled()) {
        holds(&case).map_err(TestCaseError::fail)?;
        stays(&case).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_events(case in invented()) {
        holds(&case).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), events: bool) {
        let case = Case { input: bytes, events, ..engine(&[]) };
        holds(&case).map_err(TestCaseError::fail)?;
    }
}
