//! Tool outputs, sent one by one (wire-format 4.10).

use crate::responses::over_chat::{TOOLS, ask, engine, events, last, object, prompt, scripted};
use crate::sim::prelude::*;

pub(super) fn hand_in(id: &str, body: &str) -> Request {
    Request::post(&format!("/v1/responses/{id}/tool_outputs"), body)
}

/// Creates a response with the three tool calls of the scene and returns its id.
async fn called(world: &World, more: &str) -> String {
    let response = object(
        &world
            .request(&prompt("tools", &format!(",{TOOLS}{more}")))
            .await,
    );
    response["id"].as_str().unwrap().to_owned()
}

const ALL: &str = r#"{"tool_outputs":[{"tool_call_id":"call_1","output":"rain"},{"tool_call_id":"call_2","output":"done"},{"tool_call_id":"call_3","output":"7"}]}"#;

fn waits(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.head.status, 202, "{}", answer.text());
    let body = answer.json();
    assert_eq!(
        [&body["object"], &body["status"]],
        ["response.tool_outputs", "waiting"]
    );
    body["pending"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn the_last_output_goes_on() {
    let world = World::start(engine(), Setup::new()).await;
    let more = r#","instructions":"Be brief.","temperature":0.5,"max_output_tokens":9,"metadata":{"a":"b"},"user":"u""#;
    let id = called(&world, more).await;
    // In any order, in several forms.
    let one = hand_in(&id, r#"{"tool_call_id":"call_3","output":"7"}"#);
    let answer = world.request(&one).await;
    assert_eq!(waits(&answer), ["call_1", "call_2"]);
    assert!(answer.text().starts_with(&format!(
        r#"{{"object":"response.tool_outputs","response_id":"{id}","status":"waiting","pending":["#
    )));
    let two = r#"{"tool_outputs":[{"tool_call_id":"call_1","output":[{"type":"output_text","text":"rain"}]}]}"#;
    assert_eq!(waits(&world.request(&hand_in(&id, two)).await), ["call_2"]);
    let three = hand_in(
        &id,
        r#"{"tool_call_id":"call_2","output":"done","stream":true}"#,
    );
    let told = events(&world.request(&three).await);
    let response = last(&told);
    assert_eq!(response["previous_response_id"], id);
    assert_ne!(response["id"], id);
    assert_eq!(
        [
            &response["metadata"],
            &response["temperature"],
            &response["instructions"],
            &response["user"]
        ],
        [
            &json!({"a":"b"}),
            &json!(0.5),
            &json!("Be brief."),
            &Value::Null
        ]
    );
    let attempts = world.engine.attempts();
    let sent = attempts[1].json();
    let roles: Vec<_> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "tool", "tool", "tool"]
    );
    let tools: Vec<_> = sent["messages"].as_array().unwrap()[3..]
        .iter()
        .map(|message| {
            (
                message["tool_call_id"].as_str().unwrap(),
                message["content"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        tools,
        [("call_1", "rain"), ("call_2", "done"), ("call_3", "7")]
    );
    assert_eq!(sent["max_completion_tokens"], 9);
    assert_eq!(sent["tools"].as_array().unwrap().len(), 3);
    // The input of the response can be read.
    let items = Request::get(&format!(
        "/v1/responses/{}/input_items?order=asc",
        response["id"].as_str().unwrap()
    ));
    let items = object(&world.request(&items).await);
    let kinds: Vec<_> = items["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "function_call_output",
            "custom_tool_call_output",
            "function_call_output"
        ]
    );
    world.end().await;
}

#[tokio::test]
async fn outputs_that_cannot_be_taken() {
    let world = World::start(engine(), Setup::new()).await;
    let id = called(&world, "").await;
    let plain = object(&world.request(&prompt("text", "")).await);
    let plain = plain["id"].as_str().unwrap();
    let taken = r#"{"tool_call_id":"call_1","output":"rain"}"#;
    waits(&world.request(&hand_in(&id, taken)).await);
    for (id, body, status, param, code) in [
        ("resp_none", taken, 404, None, None),
        (plain, taken, 400, None, None),
        (
            &id,
            r#"{"tool_call_id":"call_9","output":"x"}"#,
            400,
            Some("tool_call_id"),
            Some("invalid_value"),
        ),
        (
            &id,
            r#"{"tool_outputs":[{"tool_call_id":"call_2","output":"x"},{"tool_call_id":"call_9","output":"x"}]}"#,
            400,
            Some("tool_outputs[1].tool_call_id"),
            Some("invalid_value"),
        ),
        (&id, taken, 409, Some("tool_call_id"), Some("conflict")),
        (
            &id,
            r#"{"tool_outputs":[{"tool_call_id":"call_2","output":"x"},{"tool_call_id":"call_2","output":"y"}]}"#,
            409,
            Some("tool_outputs[1].tool_call_id"),
            Some("conflict"),
        ),
        (
            &id,
            r#"{"tool_call_id":"call_2"}"#,
            400,
            Some("output"),
            Some("missing_required_parameter"),
        ),
        (&id, "{", 400, None, Some("invalid_json")),
    ] {
        let answer = world.request(&hand_in(id, body)).await;
        assert_eq!(answer.head.status, status, "{body}: {}", answer.text());
        let error = answer.json();
        assert_eq!(error["error"]["param"].as_str(), param, "{body}: {error}");
        assert_eq!(error["error"]["code"].as_str(), code, "{body}: {error}");
    }
    // Nothing of the refused outputs was stored.
    let answer = world
        .request(&hand_in(&id, r#"{"tool_call_id":"call_3","output":"x"}"#))
        .await;
    assert_eq!(waits(&answer), ["call_2"]);
    // Responses of other tenants are not found.
    let other = hand_in(&id, taken)
        .without("authorization")
        .header("authorization", "Bearer other");
    assert_eq!(world.request(&other).await.head.status, 404);
    world.end().await;
}

/// The same outputs may be sent again if the engine refuses the continuation.
#[tokio::test]
async fn a_failure_gives_the_outputs_back() {
    let scripts = vec![
        scripted("tools", "chatcmpl-1", false),
        Script::new().json(
            "503 Service Unavailable",
            r#"{"error":{"message":"busy","code":503}}"#,
        ),
        scripted("text", "chatcmpl-2", false),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new().allow_errors()).await;
    let id = called(&world, "").await;
    assert_eq!(world.request(&hand_in(&id, ALL)).await.head.status, 503);
    assert_eq!(
        object(&world.request(&hand_in(&id, ALL)).await)["previous_response_id"],
        id
    );
    assert_eq!(world.request(&hand_in(&id, ALL)).await.head.status, 409);
    world.end().await;
}

/// A client that leaves before the answer may send the outputs again.
#[tokio::test]
async fn a_client_that_leaves_gives_the_outputs_back() {
    let scripts = vec![
        scripted("tools", "chatcmpl-1", false),
        Script::new().hang(),
        scripted("text", "chatcmpl-2", false),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    let id = called(&world, "").await;
    let client = world.send(&hand_in(&id, ALL)).await;
    world.engine.wait_attempts(2).await;
    drop(client);
    let answer = hand_in(&id, ALL)
        .answer_until(world.proxy(), |answer| answer.head.status != 409)
        .await;
    assert_eq!(object(&answer)["previous_response_id"], id);
    world.end().await;
}

/// Concurrent outputs in any combination: each counts once, and one request continues the response.
#[tokio::test]
async fn concurrent_outputs_each_count_once() {
    let folder = Folder::new();
    let world = World::start(engine(), Setup::stored(&folder)).await;
    for _ in 0..10 {
        let id = called(&world, "").await;
        let before = world.engine.attempt_count();
        let statuses = Mutex::new(Vec::new());
        let all = (0..9).map(|n| {
            let body = format!(r#"{{"tool_call_id":"call_{}","output":"{n}"}}"#, n % 3 + 1);
            let (world, statuses, id) = (&world, &statuses, &id);
            async move {
                let mut client = world.send(&hand_in(id, &body)).await;
                let status = client.answer().await.head.status;
                statuses.lock().unwrap().push(status);
            }
        });
        futures::future::join_all(all).await;
        let mut statuses = statuses.into_inner().unwrap();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 202, 202, 409, 409, 409, 409, 409, 409]);
        assert_eq!(world.engine.attempt_count(), before + 1);
    }
    world.end().await;
}

/// A client may request a stream by its `accept` header alone.
#[tokio::test]
async fn the_accept_header_asks_for_a_stream() {
    let world = World::start(engine(), Setup::new()).await;
    let id = called(&world, "").await;
    let told = events(
        &world
            .request(&hand_in(&id, ALL).header("accept", "text/event-stream"))
            .await,
    );
    assert_eq!(last(&told)["status"], "completed");
    world
        .request(&Request::new("DELETE", &format!("/v1/responses/{id}")))
        .await;
    assert_eq!(world.request(&hand_in(&id, ALL)).await.head.status, 404);
    assert_eq!(
        object(&world.request(&ask(r#""model":"text","input":"x""#)).await)["status"],
        "completed"
    );
    world.end().await;
}
