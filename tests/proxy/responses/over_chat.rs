//! The Responses API in front of an engine that implements only Chat Completions.

use crate::sim::prelude::*;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prepared answer of the engine, selected by the model name: its deltas, the same as one message, and its finish
/// reason.
struct Scene {
    model: &'static str,
    deltas: &'static [&'static str],
    message: &'static str,
    finish: &'static str,
}

const SCENES: &[Scene] = &[
    Scene {
        model: "text",
        deltas: &[r#"{"content":"Hello"}"#, r#"{"content":" wörld\n"}"#],
        message: r#"{"role":"assistant","content":"Hello wörld\n"}"#,
        finish: "stop",
    },
    Scene {
        model: "reason",
        deltas: &[
            r#"{"reasoning":"Two and "}"#,
            r#"{"reasoning":"two."}"#,
            r#"{"content":"Four."}"#,
        ],
        message: r#"{"role":"assistant","reasoning":"Two and two.","content":"Four."}"#,
        finish: "stop",
    },
    Scene {
        model: "tools",
        deltas: &[
            r#"{"reasoning":"I ask."}"#,
            r#"{"content":"Looking."}"#,
            r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"Bern\"}"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"patch","arguments":"{\"input\": \"*** \\\"Begin\\\"\"}"}}]}"#,
            r#"{"tool_calls":[{"index":2,"id":"call_3","type":"function","function":{"name":"crm__find","arguments":"{\"id\": 7}"}}]}"#,
        ],
        message: r#"{"role":"assistant","reasoning":"I ask.","content":"Looking.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Bern\"}"}},{"id":"call_2","type":"function","function":{"name":"patch","arguments":"{\"input\": \"*** \\\"Begin\\\"\"}"}},{"id":"call_3","type":"function","function":{"name":"crm__find","arguments":"{\"id\": 7}"}}]}"#,
        finish: "tool_calls",
    },
    Scene {
        model: "limit",
        deltas: &[r#"{"content":"Hel"}"#],
        message: r#"{"role":"assistant","content":"Hel"}"#,
        finish: "length",
    },
];

/// Tools that the scene of the same name calls.
pub const TOOLS: &str = r#""tools":[{"type":"function","name":"weather","parameters":{"type":"object"}},{"type":"custom","name":"patch"},{"type":"namespace","name":"crm","tools":[{"type":"function","name":"find","parameters":{"type":"object"}}]}]"#;

/// Starts an engine that plays the scene of the requested model and gives each answer its own id.
pub async fn engine() -> Engine {
    let count = AtomicUsize::new(1);
    Engine::answering(move |attempt| {
        let body = attempt.json();
        let scene = SCENES
            .iter()
            .find(|scene| body["model"] == scene.model)
            .unwrap();
        let id = format!("chatcmpl-{}", count.fetch_add(1, Ordering::Relaxed));
        said(scene, &id, body["stream"] == true)
    })
    .await
}

/// Returns the scene of a model, under this id.
pub fn scripted(model: &str, id: &str, stream: bool) -> Script {
    said(
        SCENES.iter().find(|scene| model == scene.model).unwrap(),
        id,
        stream,
    )
}

fn said(scene: &Scene, id: &str, stream: bool) -> Script {
    let usage = r#"{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8}}"#;
    if !stream {
        return Script::ok(format!(
            r#"{{"id":"{id}","object":"chat.completion","created":1,"model":"engine-m","choices":[{{"index":0,"message":{},"finish_reason":"{}"}}],"usage":{usage}}}"#,
            scene.message, scene.finish
        ));
    }
    let mut script =
        Script::new()
            .head_sse()
            .ev(&chunk(id, r#"{"role":"assistant","content":""}"#, "null"));
    for delta in scene.deltas {
        script = script.ev(&chunk(id, delta, "null"));
    }
    let last = format!(
        r#"{{"id":"{id}","object":"chat.completion.chunk","created":1,"model":"engine-m","choices":[],"usage":{usage}}}"#
    );
    script
        .ev(&chunk(id, "{}", &format!("\"{}\"", scene.finish)))
        .ev(&last)
        .done()
        .end()
}

/// Returns a chunk of a chat stream, under this id.
pub fn chunk(id: &str, delta: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"{id}","object":"chat.completion.chunk","created":1,"model":"engine-m","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
    )
}

/// Returns a Responses request with these members.
pub fn ask(members: &str) -> Request {
    Request::post("/v1/responses", format!("{{{members}}}"))
}

/// Returns a request with the prompt that must never be logged.
pub fn prompt(model: &str, more: &str) -> Request {
    ask(&format!(r#""model":"{model}","input":"{PROMPT}"{more}"#))
}

/// Parses an answer that is one object.
pub fn object(answer: &Answer) -> Value {
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns the data of all events, after checking names and sequence numbers.
pub fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    assert_eq!(answer.ended, Ended::LastChunk);
    let all: Vec<_> = answer.text().split_terminator("\n\n").map(event).collect();
    for (at, event) in all.iter().enumerate() {
        assert_eq!(event["sequence_number"], at, "{event}");
    }
    all
}

/// Parses the data of one event and checks that its type equals its name.
pub fn event(text: &str) -> Value {
    let (name, data) = text
        .split_once("\ndata: ")
        .unwrap_or_else(|| panic!("{text}"));
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
    data
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| {
            event["type"]
                .as_str()
                .unwrap()
                .trim_start_matches("response.")
        })
        .collect()
}

/// Returns the response object in the last event.
pub fn last(events: &[Value]) -> &Value {
    &events.last().unwrap()["response"]
}

#[tokio::test]
async fn text_in_events_and_as_one_object() {
    let world = World::start(engine(), Setup::new()).await;
    let more = r#","instructions":"Be \u0062rief.","max_output_tokens":7,"temperature":1,"metadata":{"a":"b"},"user":"u","reasoning":{"effort":"low"}"#;
    let streamed = events(
        &world
            .request(&prompt("text", &format!(r#"{more},"stream":true"#)))
            .await,
    );
    assert_eq!(
        kinds(&streamed),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed"
        ]
    );
    let whole = object(&world.request(&prompt("text", more)).await);
    let last = last(&streamed);
    assert_eq!(last["output"][0], streamed[8]["item"]);
    assert_eq!(last["output"][0]["content"][0]["text"], "Hello wörld\n");
    for response in [last, &whole] {
        assert_eq!(
            response["usage"],
            json!({"input_tokens":9,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":13})
        );
        assert_eq!(
            [
                &response["status"],
                &response["store"],
                &response["metadata"],
                &response["instructions"]
            ],
            [
                &json!("completed"),
                &json!(true),
                &json!({"a":"b"}),
                &json!("Be brief.")
            ]
        );
    }
    assert_eq!(whole["output"][0]["content"], last["output"][0]["content"]);
    let attempts = world.engine.attempts();
    let body = |stream: &str| {
        format!(
            r#"{{"model":"text","messages":[{{"role":"system","content":"Be brief."}},{{"role":"user","content":"{PROMPT}"}}]{stream},"max_completion_tokens":7,"temperature":1,"reasoning_effort":"low","user":"u"}}"#
        )
    };
    let streaming = body(r#","stream":true,"stream_options":{"include_usage":true}"#);
    assert_eq!(
        [attempts[0].text(), attempts[1].text()],
        [streaming.as_str(), body("").as_str()]
    );
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.target == "/v1/chat/completions")
    );
    world.end().await;
}

#[tokio::test]
async fn calls_come_back_as_what_was_offered() {
    let world = World::start(engine(), Setup::new()).await;
    let streamed = events(
        &world
            .request(&prompt("tools", &format!(r#",{TOOLS},"stream":true"#)))
            .await,
    );
    let whole = object(&world.request(&prompt("tools", &format!(",{TOOLS}"))).await);
    for response in [last(&streamed), &whole] {
        let mut output = response["output"].as_array().unwrap().clone();
        for (at, item) in output.iter_mut().enumerate() {
            let id = item.as_object_mut().unwrap().remove("id").unwrap();
            if response["id"] == last(&streamed)["id"] {
                let done = streamed.iter().find(|event| {
                    event["type"] == "response.output_item.done" && event["output_index"] == at
                });
                assert_eq!(done.unwrap()["item"]["id"], id);
            }
        }
        assert_eq!(
            output,
            [
                json!({"type":"reasoning","status":"completed","summary":[{"type":"summary_text","text":"I ask."}],"content":[{"type":"reasoning_text","text":"I ask."}]}),
                json!({"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Looking.","annotations":[],"logprobs":[]}]}),
                json!({"type":"function_call","status":"completed","call_id":"call_1","name":"weather","arguments":"{\"city\":\"Bern\"}"}),
                json!({"type":"custom_tool_call","status":"completed","call_id":"call_2","name":"patch","input":"*** \"Begin\""}),
                json!({"type":"function_call","status":"completed","call_id":"call_3","name":"find","namespace":"crm","arguments":"{\"id\": 7}"}),
            ]
        );
    }
    let custom = kinds(&streamed)
        .into_iter()
        .filter(|kind| kind.starts_with("custom_tool_call_input"));
    assert_eq!(
        custom.collect::<Vec<_>>(),
        [
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done"
        ]
    );
    let sent = world.engine.attempts()[0].json();
    let names: Vec<_> = sent["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["function"]["name"])
        .collect();
    assert_eq!(names, ["weather", "patch", "crm__find"]);
    assert_eq!(
        sent["tools"][1]["function"]["parameters"]["required"],
        json!(["input"])
    );
    world.end().await;
}

#[tokio::test]
async fn reasoning_is_an_item_before_the_message() {
    let streamed = events(
        &World::answer(
            engine(),
            Setup::new(),
            &prompt("reason", r#","stream":true"#),
        )
        .await,
    );
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds(&streamed), expected);
    assert_eq!(
        (&streamed[9]["text"], &streamed[11]["text"]),
        (&json!("Two and two."), &json!("Two and two."))
    );
    assert_eq!(streamed[16]["output_index"], 1);
    assert_eq!(streamed[16]["content_index"], 0);
}

/// Reasoning comes as a summary, too, unless the configuration saves it for those who request it (wire-format 4.5).
#[tokio::test]
async fn reasoning_comes_as_a_summary() {
    for (option, word, summarised) in [
        ("both", "", true),
        ("both", r#","reasoning":{"summary":null}"#, true),
        ("content", r#","reasoning":{"summary":"auto"}"#, true),
        ("content", r#","reasoning":{"summary":"concise"}"#, true),
        ("content", r#","reasoning":{"summary":"detailed"}"#, true),
        ("content", r#","reasoning":{"summary":null}"#, false),
        ("content", r#","reasoning":{"summary":"none"}"#, false),
    ] {
        let what = format!("{option} {word}");
        let setup = match option {
            "both" => Setup::new(),
            option => Setup::new().set(&format!("responses_reasoning={option}")),
        };
        let world = World::start(engine(), setup).await;
        let whole = world.request(&prompt("reason", word)).await.json();
        let streamed = events(
            &world
                .request(&prompt("reason", &format!(r#"{word},"stream":true"#)))
                .await,
        );
        for object in [&whole, last(&streamed)] {
            let item = &object["output"][0];
            assert_eq!(item["content"][0]["text"], "Two and two.", "{what}: {item}");
            let summary = if summarised {
                json!("Two and two.")
            } else {
                Value::Null
            };
            assert_eq!(item["summary"][0]["text"], summary, "{what}: {item}");
        }
        let deltas = kinds(&streamed)
            .iter()
            .filter(|kind| **kind == "reasoning_summary_text.delta")
            .count();
        assert_eq!(deltas, if summarised { 2 } else { 0 }, "{what}");
        world.end().await;
    }
    let world = World::start(engine(), Setup::new().set("responses_reasoning=none")).await;
    let answer = world
        .request(&prompt("reason", r#","reasoning":{"summary":"auto"}"#))
        .await;
    assert!(!answer.text().contains("Two and two."), "{}", answer.text());
    world.end().await;
}

/// `completed_at` is the time of the end, never before `created_at` (wire-format 4.4).
#[tokio::test]
async fn completed_at_is_the_time_of_the_end() {
    let gate = Gate::default();
    let slow = Script::new()
        .head_sse()
        .ev(&chunk(
            "chatcmpl-2",
            r#"{"role":"assistant","content":"a"}"#,
            "null",
        ))
        .wait(&gate)
        .ev(&chunk("chatcmpl-2", "{}", "\"stop\""))
        .done()
        .end();
    // An engine whose clock is ahead.
    let ahead = r#"{"id":"chatcmpl-3","object":"chat.completion","created":99999999999,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;
    let scripts = vec![slow, Script::ok(ahead)];
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    let seconds = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let mut client = world.begin(&prompt("m", r#","stream":true"#)).await;
    let begun = seconds();
    // Waits until the clock shows another second.
    while seconds() <= begun {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let released = seconds();
    gate.open();
    let mut all = Vec::new();
    while let Some(text) = client.event().await {
        all.extend(
            Some(text)
                .filter(|text| !text.starts_with(':'))
                .map(|text| event(&text)),
        );
    }
    let completed = last(&all)["completed_at"].as_u64().unwrap();
    assert!(
        (released..=seconds()).contains(&completed),
        "{completed}, released at {released}"
    );
    let stored = object(
        &world
            .get(&format!(
                "/v1/responses/{}",
                last(&all)["id"].as_str().unwrap()
            ))
            .await,
    );
    assert_eq!(stored["completed_at"], completed);
    let whole = object(&world.request(&prompt("m", "")).await);
    assert_eq!(whole["created_at"], 99_999_999_999_u64);
    assert_eq!(whole["completed_at"], whole["created_at"]);
    world.end().await;
}

#[tokio::test]
async fn a_limit_makes_an_incomplete_response() {
    let world = World::start(engine(), Setup::new()).await;
    let streamed = events(&world.request(&prompt("limit", r#","stream":true"#)).await);
    assert_eq!(streamed.last().unwrap()["type"], "response.incomplete");
    let whole = object(&world.request(&prompt("limit", "")).await);
    for response in [last(&streamed), &whole] {
        assert_eq!(response["status"], "incomplete");
        assert_eq!(
            response["incomplete_details"],
            json!({"reason":"max_output_tokens"})
        );
        assert_eq!(response["output"][0]["status"], "incomplete");
        assert_eq!(response["completed_at"], Value::Null);
        assert_eq!(response["usage"]["total_tokens"], 13);
    }
    world.end().await;
}

#[tokio::test]
async fn what_fails_before_the_first_event_is_an_http_error() {
    let error =
        r#"{"error":{"message":"too busy","type":"RateLimitError","param":null,"code":429}}"#;
    let by_status = || Script::new().json("429 Too Many Requests", error);
    let by_event = || Script::new().head_sse().ev(error).done().end();
    let scripts = vec![by_status(), by_status(), by_event()];
    let world = World::start(Engine::in_turn(scripts), Setup::new().allow_errors()).await;
    for stream in ["", r#","stream":true"#, r#","stream":true"#] {
        let answer = world.request(&prompt("m", stream)).await;
        assert_eq!(answer.failure(), "429 rate_limit_error rate_limit_exceeded");
        assert_eq!(answer.fault().message, "too busy");
    }
    world.end().await;
}

#[tokio::test]
async fn what_fails_in_the_stream_is_told_twice_and_stored() {
    let begun = |id: &str| {
        let role = chunk(id, r#"{"role":"assistant","content":""}"#, "null");
        Script::new()
            .head_sse()
            .ev(&role)
            .ev(&chunk(id, r#"{"content":"Half"}"#, "null"))
    };
    let error = r#"{"error":{"message":"out of memory","type":"InternalServerError","param":null,"code":500}}"#;
    let scripts = vec![
        begun("chatcmpl-1").ev(error).done().end(),
        begun("chatcmpl-2").end(),
        begun("chatcmpl-3").rst(),
        begun("chatcmpl-4").ev("{\"id\":").end(),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new().allow_errors()).await;
    for (id, code) in [
        ("resp_1", "internal_error"),
        ("resp_2", "upstream_incomplete"),
        ("resp_3", "upstream_incomplete"),
        ("resp_4", "upstream_invalid_event"),
    ] {
        let streamed = events(&world.request(&prompt("m", r#","stream":true"#)).await);
        let all = kinds(&streamed);
        assert_eq!(
            all[all.len() - 3..],
            ["output_text.delta", "error", "failed"]
        );
        let error = &streamed[streamed.len() - 2];
        assert_eq!([&error["code"], &error["error"]["code"]], [code, code]);
        assert_eq!(error["message"], error["error"]["message"]);
        let response = last(&streamed);
        assert_eq!([&response["id"], &response["status"]], [id, "failed"]);
        assert_eq!(
            response["error"],
            json!({"code":"server_error","message":error["message"]})
        );
        assert_eq!(response["output"][0]["status"], "incomplete");
        let stored = object(&world.get(&format!("/v1/responses/{id}")).await);
        assert_eq!(&stored, response);
    }
    world.end().await;
}

#[tokio::test]
async fn what_fails_after_a_timed_commit_still_begins_with_its_response() {
    let gate = Gate::default();
    let role = chunk("chatcmpl-2", r#"{"role":"assistant","content":""}"#, "null");
    let error =
        r#"{"error":{"message":"too many","type":"TooManyRequests","param":null,"code":429}}"#;
    let scripts = vec![
        Script::new().head_sse().wait(&gate).ev(error).done().end(),
        Script::new().head_sse().ev(&role).wait(&gate).end(),
        Script::new()
            .wait(&gate)
            .json("429 Too Many Requests", error),
    ];
    let (n, setup) = (
        scripts.len(),
        Setup::new().set("commit_after_seconds=1").allow_errors(),
    );
    let world = World::start(Engine::in_turn(scripts), setup).await;
    let mut clients = Vec::new();
    for at in 0..n {
        let client = world.send(&prompt("asked", r#","stream":true"#)).await;
        world.engine.wait_attempts(at + 1).await;
        clients.push(client);
    }
    for client in &mut clients {
        client.head().await;
        assert_eq!(client.event().await.as_deref(), Some(": keepalive"));
    }
    gate.open();
    for client in &mut clients {
        let mut all = Vec::new();
        while let Some(text) = client.event().await {
            all.extend(
                Some(text)
                    .filter(|text| !text.starts_with(':'))
                    .map(|text| event(&text)),
            );
        }
        assert_eq!(kinds(&all), ["created", "in_progress", "error", "failed"]);
        assert!(
            all.iter()
                .enumerate()
                .all(|(at, event)| event["sequence_number"] == at),
            "{all:?}"
        );
        let id = last(&all)["id"].as_str().unwrap();
        assert!(
            id.len() > "resp_".len() && id == all[0]["response"]["id"],
            "{id}"
        );
        assert!(["asked", "engine-m"].contains(&last(&all)["model"].as_str().unwrap()));
        assert_eq!(
            &object(&world.get(&format!("/v1/responses/{id}")).await),
            last(&all)
        );
    }
    world.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_engine_and_leaves_nothing() {
    let begun = Script::new()
        .head_sse()
        .ev(&chunk(
            "chatcmpl-1",
            r#"{"role":"assistant","content":""}"#,
            "null",
        ))
        .ev(&chunk("chatcmpl-1", r#"{"content":"Half"}"#, "null"))
        .hang();
    let whole = Script::new()
        .raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{\"id\":\"chatcmpl-1\",")
        .hang();
    let world = World::start(Engine::in_turn(vec![begun, whole]), Setup::new()).await;
    for (n, stream) in [(0, r#","stream":true"#), (1, "")] {
        let mut client = world.send(&prompt("m", stream)).await;
        if n == 0 {
            client.event_with_head("output_text.delta").await;
        }
        until("the engine has answered", || world.engine.written(n) > 0).await;
        client.leave(CloseKind::Fin);
        until("the engine sees the close", || {
            world.engine.closed(n).is_some()
        })
        .await;
    }
    assert_eq!(
        world.get("/v1/responses/resp_1").await.failure(),
        "404 invalid_request_error"
    );
    world.end().await;
}

#[tokio::test]
async fn dialects_are_chosen_by_a_header() {
    let world = World::start(engine(), Setup::new()).await;
    let request = prompt("reason", r#","stream":true"#);
    for (dialect, has, ends) in [
        ("openai", "event: response.reasoning_text.delta\n", false),
        ("openresponses", "event: response.reasoning.delta\n", true),
        ("codex-legacy", "event: response.reasoning.delta\n", false),
    ] {
        let answer = world
            .request(&request.clone().header("x-samewire-dialect", dialect))
            .await
            .with_status(200);
        assert!(answer.text().contains(has), "{dialect}: {}", answer.text());
        assert_eq!(
            answer.text().ends_with("\n\ndata: [DONE]\n\n"),
            ends,
            "{dialect}"
        );
        let canonical = answer
            .text()
            .contains("event: response.reasoning_text.delta\n");
        assert_eq!(canonical, dialect != "openresponses", "{dialect}");
    }
    let answer = world
        .request(&request.header("x-samewire-dialect", "OpenAI"))
        .await
        .with_status(400);
    assert_eq!(answer.fault().param.as_deref(), Some("x-samewire-dialect"));
    world.end_after(3).await;
}

#[tokio::test]
async fn what_is_left_out_is_named() {
    let world = World::start(engine(), Setup::new()).await;
    let tools = r#","tools":[{"type":"web_search"},{"type":"function","name":"f"},{"type":"mcp","server_label":"x"}]"#;
    let answer = world.request(&prompt("text", tools)).await;
    let response = object(&answer);
    assert_eq!(
        answer.head.header("x-samewire-dropped"),
        Some("tools[0].web_search,tools[2].mcp")
    );
    assert_eq!(response["tools"].as_array().unwrap().len(), 1);
    let sent = world.engine.attempts()[0].json();
    assert_eq!(sent["tools"].as_array().unwrap().len(), 1);
    let many = vec![r#"{"type":"web_search"}"#; 1024].join(",");
    let answer = world
        .request(&prompt("text", &format!(r#","tools":[{many}]"#)))
        .await;
    let named = answer.head.header("x-samewire-dropped").unwrap();
    assert!(
        named.len() <= 4096,
        "clients take heads of 16 KiB: {}",
        named.len()
    );
    assert!(
        object(&world.request(&prompt("text", "")).await)["tools"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    world.end().await;
}

#[tokio::test]
async fn bad_requests_reach_no_engine() {
    let world = World::start(engine(), Setup::new()).await;
    let ok = r#""model":"text","input":"x""#;
    for (members, code, param) in [
        (r#""model":"text""#.to_owned(), Some("missing_required_parameter"), "input"),
        (r#""model":"text","input":7"#.to_owned(), Some("invalid_value"), "input"),
        (r#""model":"text","input":[]"#.to_owned(), Some("invalid_value"), "input"),
        (
            r#""model":"text","input":[{"role":"robot","content":"x"}]"#.to_owned(),
            Some("invalid_value"),
            "input[0].role",
        ),
        (
            r#""model":"text","input":[{"type":"function_call_output","call_id":"c9","output":"x"}]"#
                .to_owned(),
            None,
            "input[0].call_id",
        ),
        (
            r#""model":"text","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]"#
                .to_owned(),
            Some("unsupported_parameter"),
            "input[0].content[0].file_id",
        ),
        (format!(r#"{ok},"background":true,"store":false"#), Some("invalid_value"), "background"),
        (
            format!(r#"{ok},"stream_options":{{"include_obfuscation":true}}"#),
            Some("invalid_value"),
            "stream_options",
        ),
        (format!(r#"{ok},"stream":"true""#), Some("invalid_value"), "stream"),
        (format!(r#"{ok},"store":"yes""#), Some("invalid_value"), "store"),
        (format!(r#"{ok},"include":["everything"]"#), Some("invalid_value"), "include[0]"),
        (format!(r#"{ok},"temperature":"3""#), Some("invalid_value"), "temperature"),
        (format!(r#"{ok},"max_output_tokens":0"#), Some("invalid_value"), "max_output_tokens"),
        (format!(r#"{ok},"prompt":{{"id":"p"}}"#), Some("unsupported_parameter"), "prompt"),
        (format!(r#"{ok},"conversation":"conv_1""#), None, "conversation"),
        (format!(r#"{ok},"conversation":{{"id":7}}"#), Some("invalid_value"), "conversation.id"),
        (format!(r#"{ok},"messages":[]"#), Some("unsupported_parameter"), "messages"),
        (format!(r#"{ok},"max_tokens":5"#), Some("unsupported_parameter"), "max_tokens"),
        (format!(r#"{ok},"tool_choice":"required""#), Some("invalid_value"), "tool_choice"),
        (
            format!(r#"{ok},"tools":[{{"type":"web_search"}}],"tool_choice":{{"type":"web_search"}}"#),
            Some("unsupported_value"),
            "tools[0].type",
        ),
        (format!(r#"{ok},"model":"text""#), Some("duplicate_key"), "model"),
        (
            format!(r#"{ok},"previous_response_id":"resp_0""#),
            Some("previous_response_not_found"),
            "previous_response_id",
        ),
        (format!(r#"{ok},"previous_response_id":7"#), Some("invalid_value"), "previous_response_id"),
        (
            r#""model":"text","input":[{"type":"item_reference","id":"msg_0"}]"#.to_owned(),
            None,
            "input[0].id",
        ),
    ] {
        let answer = world.request(&ask(&members)).await;
        let missing = members.contains("item_reference") || members.contains("conv_1");
        assert_eq!(answer.head.status, if missing { 404 } else { 400 }, "{members}: {}", answer.text());
        let fault = answer.fault();
        assert_eq!(fault.name(), ("invalid_request_error", code), "{members}: {fault:?}");
        assert_eq!(fault.param.as_deref(), Some(param), "{members}: {fault:?}");
    }
    world.end_after(0).await;
}

/// Rate-limit headers of a gateway before the engine are converted into the older API's events, for clients of that
/// dialect.
#[tokio::test]
async fn limits_are_told_in_the_older_events() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 45\r\n\r\n";
    let answer = |head: &str| {
        Script::new()
            .raw(head)
            .ev(&chunk("chatcmpl-1", r#"{"content":"a"}"#, "null"))
            .ev(&chunk("chatcmpl-1", "{}", "\"stop\""))
            .done()
            .end()
    };
    let without = head.replace("x-ratelimit-remaining-requests: 45\r\n", "");
    let scripts = vec![answer(head), answer(head), answer(&without)];
    let world = World::start(
        Engine::in_turn(scripts),
        Setup::new().args(&["--store", "off"]),
    )
    .await;
    let legacy = prompt("m", r#","stream":true"#).header("x-samewire-dialect", "codex-legacy");
    let told = events(&world.request(&legacy).await);
    let [before, after] = &told[told.len() - 2..] else {
        panic!("{told:?}")
    };
    assert_eq!(before["type"], "response.completed");
    let number = told.len() - 1;
    assert_eq!(
        *after,
        json!({"type":"response.rate_limits.updated","sequence_number":number,"response":{"id":"resp_1"},"limits":{"primary":{"used_percent":25,"window_minutes":1}}})
    );
    for request in [prompt("m", r#","stream":true"#), legacy] {
        assert_eq!(
            events(&world.request(&request).await).last().unwrap()["type"],
            "response.completed"
        );
    }
    world.end().await;
}
