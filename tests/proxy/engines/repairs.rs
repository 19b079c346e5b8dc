//! Arguments of calls that are no JSON, through the process: repaired if the option `repair_arguments` says so, else passed
//! as the model wrote them (wire-format 2.5 rule 15). Calls read from text stay text without JSON (wire-format 7.2).
//! The arguments are those of reports engines-070, 082, 206.

use crate::sim::prelude::*;

/// Requests of one client in each API.
const APIS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

fn request(path: &str, stream: bool) -> Request {
    let schema = json!({"type": "object", "properties": {}});
    let function = json!({"name": "f", "parameters": schema});
    let messages = json!([{"role": "user", "content": "a"}]);
    let body = match path {
        "/v1/responses" => {
            let tool = json!({"type": "function", "name": "f", "parameters": schema});
            json!({"model": "m", "stream": stream, "input": "a", "tools": [tool]})
        }
        "/v1/messages" => {
            let tool = json!({"name": "f", "input_schema": schema});
            json!({"model": "m", "stream": stream, "max_tokens": 100, "messages": messages, "tools": [tool]})
        }
        _ => {
            let tool = json!({"type": "function", "function": function});
            json!({"model": "m", "stream": stream, "messages": messages, "tools": [tool]})
        }
    };
    Request::post(path, body.to_string())
}

/// Returns an engine that answers with a call of these arguments, in pieces of three characters or whole.
async fn calling(arguments: &'static str, finish: &'static str) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        if !attempt.text().contains(r#""stream":true"#) {
            let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}});
            let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            let choice = json!({"index": 0, "message": message, "finish_reason": finish});
            return Script::ok(json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}));
        }
        let head = r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}"#;
        let letters: Vec<char> = arguments.chars().collect();
        let pieces = letters.chunks(3).map(|piece| {
            let piece = json_string(&piece.iter().collect::<String>());
            format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{piece}}}}}]}}"#)
        });
        let script = Script::stream().delta(head, "null");
        pieces.fold(script, |script, piece| script.delta(&piece, "null")).finish(finish).usage(3, 9).done().end()
    })
    .await
}

/// Returns an engine that answers with this text, in pieces of three characters or whole.
async fn saying(text: &'static str, finish: &'static str) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        if !attempt.text().contains(r#""stream":true"#) {
            let message = json!({"role": "assistant", "content": text});
            let choice = json!({"index": 0, "message": message, "finish_reason": finish});
            return Script::ok(json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}));
        }
        let letters: Vec<char> = text.chars().collect();
        let pieces = letters.chunks(3).map(|piece| piece.iter().collect::<String>());
        let script = Script::stream();
        pieces.fold(script, |script, piece| script.text(&piece)).finish(finish).usage(3, if finish == "length" { 100 } else { 9 }).done().end()
    })
    .await
}

/// Content of an answer as a client reads it: text, arguments of the call, and why the answer ended.
#[derive(Debug, PartialEq)]
struct Got {
    text: String,
    arguments: Option<String>,
    end: String,
}

/// Reads an answer in the form of its API. A client of Messages gets arguments of a whole answer as an object.
fn read(path: &str, stream: bool, body: &str) -> Got {
    let lines = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|line| *line != "[DONE]");
    let events: Vec<Value> = match stream {
        true => lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
        false => vec![serde_json::from_str(body).unwrap()],
    };
    let mut got = Got {
        text: String::new(),
        arguments: None,
        end: String::new(),
    };
    let add = |arguments: &mut Option<String>, more: &Value| {
        if let Some(more) = more.as_str() {
            arguments.get_or_insert_default().push_str(more);
        }
    };
    for event in &events {
        match path {
            "/v1/responses" => {
                let response = if stream { &event["response"] } else { event };
                for item in response["output"].as_array().into_iter().flatten() {
                    add(&mut got.arguments, &item["arguments"]);
                    got.text += item["content"][0]["text"].as_str().unwrap_or_default();
                }
                if let Some(status) = response["status"].as_str() {
                    status.clone_into(&mut got.end);
                }
            }
            "/v1/messages" => {
                for block in event["content"].as_array().into_iter().flatten() {
                    got.text += block["text"].as_str().unwrap_or_default();
                    if block["type"] == "tool_use" {
                        got.arguments = Some(block["input"].to_string());
                    }
                }
                add(&mut got.arguments, &event["delta"]["partial_json"]);
                got.text += event["delta"]["text"].as_str().unwrap_or_default();
                for end in [&event["stop_reason"], &event["delta"]["stop_reason"]] {
                    end.as_str()
                        .unwrap_or(&got.end.clone())
                        .clone_into(&mut got.end);
                }
            }
            _ => {
                let choice = &event["choices"][0];
                let message = if stream {
                    &choice["delta"]
                } else {
                    &choice["message"]
                };
                got.text += message["content"].as_str().unwrap_or_default();
                add(
                    &mut got.arguments,
                    &message["tool_calls"][0]["function"]["arguments"],
                );
                choice["finish_reason"]
                    .as_str()
                    .unwrap_or(&got.end.clone())
                    .clone_into(&mut got.end);
            }
        }
    }
    got
}

/// Returns the word with which each API says that the answer is complete and has a call, is complete and has none, or was
/// cut.
fn ends(path: &str) -> [&'static str; 3] {
    match path {
        "/v1/responses" => ["completed", "completed", "incomplete"],
        "/v1/messages" => ["tool_use", "end_turn", "max_tokens"],
        _ => ["tool_calls", "stop", "length"],
    }
}

async fn times(world: &World, rule: &str) -> u64 {
    world
        .samewire
        .sum("samewire_rewrites_total", &[&format!("rule=\"{rule}\"")])
        .await
}

#[tokio::test]
async fn calls_of_an_engine_are_repaired_in_each_api() {
    for (option, arguments, expected, rule) in [
        (
            "tail",
            r#"{"a":1}</tool_call>"#,
            r#"{"a":1}"#,
            "tool_arguments_tail",
        ),
        (
            "json",
            "{\"a\":1}\"}\n",
            r#"{"a":1}"#,
            "tool_arguments_tail",
        ),
        (
            "json",
            "{'a': 'b'}",
            r#"{"a": "b"}"#,
            "tool_arguments_quotes",
        ),
        (
            "json",
            r#"{"a": True}"#,
            r#"{"a": true}"#,
            "tool_arguments_words",
        ),
        (
            "json",
            r#"{"a":[1,],}"#,
            r#"{"a":[1]}"#,
            "tool_arguments_comma",
        ),
        (
            "json",
            "{\"a\":\"b\nc\"}",
            r#"{"a":"b\nc"}"#,
            "tool_arguments_controls",
        ),
        (
            "json",
            r#"{"city":"Oslo""#,
            r#"{"city":"Oslo"}"#,
            "tool_arguments_brackets",
        ),
    ] {
        let setup = Setup::new().set(&format!("repair_arguments={option}"));
        let world = World::start(calling(arguments, "tool_calls"), setup).await;
        for path in APIS {
            for stream in [true, false] {
                let answer = world.request(&request(path, stream)).await;
                let got = read(path, stream, answer.text());
                let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                let said = got.arguments.as_deref().unwrap_or_default();
                assert_eq!(value(said), value(expected), "{path} {arguments}");
                assert!(path == "/v1/messages" || said == expected, "{path} {said}");
                assert_eq!(got.end, ends(path)[0], "{path} {arguments}");
            }
        }
        assert_eq!(times(&world, rule).await, 6, "{arguments}");
        assert_eq!(
            times(&world, "tool_arguments_invalid").await,
            0,
            "{arguments}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn what_is_no_mistake_of_the_list_passes_and_a_cut_stays_one() {
    for (option, arguments, finish, end, invalid) in [
        ("off", r#"{"a":1}</tool_call>"#, "tool_calls", 0, 4),
        ("off", "{'a': 1}", "tool_calls", 0, 4),
        ("tail", "{'a': 1}", "tool_calls", 0, 4),
        ("json", "}!}!", "tool_calls", 0, 4),
        ("json", r#"{"a":1} and"#, "tool_calls", 0, 4),
        ("json", r#"{"a": 1, "b" : [ 2 ] }"#, "tool_calls", 0, 0),
        ("json", r#"{"city":"Oslo""#, "length", 2, 0),
        ("json", r#"{"city":"Osl"#, "tool_calls", 2, 0),
        ("tail", r#"{"city":"Oslo""#, "tool_calls", 2, 0),
    ] {
        let setup = Setup::new().set(&format!("repair_arguments={option}"));
        let world = World::start(calling(arguments, finish), setup).await;
        for path in ["/v1/chat/completions", "/v1/responses"] {
            for stream in [true, false] {
                let answer = world.request(&request(path, stream)).await;
                let expected = Got {
                    text: String::new(),
                    arguments: Some(arguments.to_owned()),
                    end: ends(path)[end].to_owned(),
                };
                assert_eq!(
                    read(path, stream, answer.text()),
                    expected,
                    "{path} {option}"
                );
            }
        }
        assert_eq!(
            times(&world, "tool_arguments_invalid").await,
            invalid,
            "{option} {arguments}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn calls_in_text_need_json_in_each_api() {
    const MISTAKEN: &str =
        "Well.<tool_call>{\"name\": \"f\", \"arguments\": {'a': True}}</tool_call>";
    const GARBLED: &str = "Well.<tool_call>{\"name\": \"f\", \"arguments\": {a: True}}</tool_call>";
    const CUT: &str = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1";
    for (text, finish, said, arguments, end) in [
        // Repaired whatever `repair_arguments` says.
        (MISTAKEN, "stop", "Well.", Some("{\"a\": true}"), 0),
        (GARBLED, "stop", GARBLED, None, 1),
        (CUT, "length", "", Some("{\"a\": 1"), 2),
    ] {
        let setup = Setup::new().set("parser=hermes");
        let world = World::start(saying(text, finish), setup).await;
        for path in APIS {
            for stream in [true, false] {
                // A whole message has no room for half an object.
                if path == "/v1/messages" && !stream && finish == "length" {
                    continue;
                }
                let answer = world.request(&request(path, stream)).await;
                let got = read(path, stream, answer.text());
                let is_object = path == "/v1/messages" && !stream;
                let arguments = arguments.map(|text| {
                    if is_object {
                        text.replace(' ', "")
                    } else {
                        text.to_owned()
                    }
                });
                let expected = Got {
                    text: said.to_owned(),
                    arguments,
                    end: ends(path)[end].to_owned(),
                };
                assert_eq!(got, expected, "{path} {text} {stream}");
            }
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_off_completes_no_call() {
    let head = r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1"}}]}"#;
    let script = Script::stream().delta(head, "null").rst();
    let setup = Setup::new().allow_errors().set("repair_arguments=json");
    let world = World::start(script, setup).await;
    let answer = world.request(&request("/v1/chat/completions", true)).await;
    assert!(
        answer.text().contains(r#""arguments":"{\"a\":1"}"#),
        "{}",
        answer.text()
    );
    assert!(
        answer.text().contains(r#"data: {"error":"#),
        "{}",
        answer.text()
    );
    assert_eq!(times(&world, "tool_arguments_brackets").await, 0);
    world.end().await;
}

/// While a call is held, the client gets comments, and then the call.
#[tokio::test]
async fn comments_flow_while_a_call_is_held() {
    let gate = Gate::default();
    let script = Script::stream().text("Well.");
    let script = script.text("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"");
    let script = script.wait(&gate).text("b\"}}</tool_call>").stop();
    let world = World::start(
        script,
        Setup::new().set("parser=hermes").set("keepalive_seconds=1"),
    )
    .await;
    let mut client = world.begin(&request("/v1/chat/completions", true)).await;
    while client.event().await.as_deref() != Some(": keepalive") {}
    gate.open();
    let rest = String::from_utf8(client.rest().await).unwrap();
    assert!(
        rest.contains(r#""arguments":"{\"a\": \"b\"}""#) && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    world.end().await;
}
