//! Streams that are held open for the outputs of their tool calls (wire-format 4.10, `codex-legacy`).

use crate::clients::keys::{OTHER, SECOND, entry, with};
use crate::official::{DIALECT_EVENTS, Schemas};
use crate::responses::over_chat::{TOOLS, ask, chunk, event, object, prompt, scripted};
use crate::responses::tool_outputs::hand_in;
use crate::sim::prelude::*;

fn held(more: &str) -> Request {
    // The published schema requires a description.
    let tools = TOOLS.replace(r#""name":"crm""#, r#""name":"crm","description":"d""#);
    let request = prompt("tools", &format!(r#",{tools},"stream":true{more}"#));
    request
        .header("x-samewire-dialect", "codex-legacy")
        .header("x-samewire-tool-hold", "1")
}

fn pending(answer: &Answer) -> Value {
    assert_eq!(answer.head.status, 202, "{}", answer.text());
    answer.json()["pending"].clone()
}

/// Reads the next event of a stream and checks its sequence number.
async fn next(client: &mut Client, number: &mut u64) -> Value {
    let text = client.event().await.expect("an event");
    let event = event(text.trim_end());
    assert_eq!(event["sequence_number"], *number, "{event}");
    *number += 1;
    event
}

async fn until_event(client: &mut Client, number: &mut u64, kind: &str, call: &str) -> Value {
    loop {
        let event = next(client, number).await;
        if event["type"] == kind && (call.is_empty() || event["item"]["call_id"] == call) {
            return event;
        }
    }
}

/// Reads up to the end of the last call of the recording `tools`.
async fn until_calls(client: &mut Client, number: &mut u64) {
    until_event(client, number, "response.output_item.done", "call_3").await;
}

const ALL: &str = r#"{"tool_outputs":[{"tool_call_id":"call_1","output":"rain"},{"tool_call_id":"call_2","output":"done"},{"tool_call_id":"call_3","output":"7"}]}"#;

async fn open(world: &World, request: &Request) -> (Client, String, u64) {
    let mut client = world.begin(request).await;
    let mut number = 0;
    let created = next(&mut client, &mut number).await;
    (
        client,
        created["response"]["id"].as_str().unwrap().to_owned(),
        number,
    )
}

/// A stream that pauses has no end there, and goes on with the next answer.
#[tokio::test]
async fn a_held_stream_conforms_to_the_schema() {
    let scripts = [
        scripted("tools", "chatcmpl-0", true),
        scripted("text", "chatcmpl-1", true),
    ];
    let world = World::start(Engine::in_turn(scripts.to_vec()), Setup::new()).await;
    let (mut client, id, mut number) = open(&world, &held("")).await;
    let mut schemas = Schemas::load();
    loop {
        let event = next(&mut client, &mut number).await;
        if DIALECT_EVENTS.iter().all(|kind| event["type"] != *kind) {
            schemas.event(&event).unwrap();
        }
        if event["type"] == "response.output_item.done" && event["item"]["call_id"] == "call_3" {
            assert_eq!(pending(&world.request(&hand_in(&id, ALL)).await), json!([]));
        }
        if event["type"] == "response.completed" {
            break;
        }
    }
    assert!(client.event().await.is_none());
    world.end().await;
}

#[tokio::test]
async fn the_answer_goes_on_on_the_same_stream() {
    let scripts = ["tools", "tools", "text", "text"].into_iter().enumerate();
    let scripts = scripts.map(|(at, scene)| scripted(scene, &format!("chatcmpl-{at}"), at < 3));
    let world = World::start(Engine::in_turn(scripts.collect()), Setup::new()).await;
    let (mut client, id, mut number) = open(&world, &held("")).await;
    until_calls(&mut client, &mut number).await;
    let one = r#"{"tool_call_id":"call_2","output":[{"type":"output_text","text":"done"}]}"#;
    assert_eq!(
        pending(&world.request(&hand_in(&id, one)).await),
        json!(["call_1", "call_3"])
    );
    assert_eq!(world.request(&hand_in(&id, one)).await.head.status, 409);
    world
        .request(&hand_in(&id, r#"{"tool_call_id":"call_9","output":"x"}"#))
        .await
        .with_status(400);
    let other = hand_in(&id, one)
        .without("authorization")
        .header("authorization", "Bearer other");
    assert_eq!(world.request(&other).await.head.status, 404);
    let rest = r#"{"tool_outputs":[{"tool_call_id":"call_1","output":"rain"},{"tool_call_id":"call_3","output":"7"}]}"#;
    assert_eq!(
        pending(&world.request(&hand_in(&id, rest)).await),
        json!([])
    );
    // The same calls again, then text: two more answers of the engine.
    until_calls(&mut client, &mut number).await;
    assert_eq!(pending(&world.request(&hand_in(&id, ALL)).await), json!([]));
    let last = until_event(&mut client, &mut number, "response.completed", "").await;
    assert!(client.event().await.is_none());
    let response = &last["response"];
    assert_eq!(response["id"], id);
    let kinds: Vec<_> = response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    let leg = [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "function_call",
    ];
    assert_eq!(kinds, [&leg[..], &leg, &["message"]].concat());
    assert_eq!(response["usage"]["total_tokens"], 39);
    // Outputs are stored, so they cannot be sent again after the stream has ended.
    assert_eq!(world.request(&hand_in(&id, ALL)).await.head.status, 409);
    // The response is stored as a whole, and a later turn sees calls and outputs in order.
    let stored = object(&world.get(&format!("/v1/responses/{id}")).await);
    assert_eq!(&stored, response);
    world
        .request(&ask(&format!(
            r#""model":"m","input":"more","previous_response_id":"{id}""#
        )))
        .await;
    let attempts = world.engine.attempts();
    let roles = |at: usize| {
        let sent = attempts[at].json();
        let messages = sent["messages"].as_array().unwrap().clone();
        messages
            .iter()
            .map(|message| message["role"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let turn = ["assistant", "tool", "tool", "tool"];
    assert_eq!(roles(1), [&["user"][..], &turn].concat());
    assert_eq!(
        roles(3),
        [&["user"][..], &turn, &turn, &["assistant", "user"]].concat()
    );
    let complete = |line: &&String| line.contains("\"end\":\"complete\"");
    until("eight lines", || {
        world
            .samewire
            .request_lines()
            .iter()
            .filter(complete)
            .count()
            == 8
    })
    .await;
    world.end().await;
}

/// A key may set the dialect in which streams are held, and another key of its tenant may send the outputs.
#[tokio::test]
async fn outputs_come_from_any_key_of_the_tenant() {
    let lines = "tenant = \"acme\"\nwire.responses_dialect = \"codex-legacy\"";
    let keys = [
        entry(KEY, lines),
        entry(SECOND, "tenant = \"acme\""),
        entry(OTHER, ""),
    ]
    .concat();
    let scripts = vec![
        scripted("tools", "chatcmpl-1", true),
        scripted("text", "chatcmpl-2", true),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new().config(&keys)).await;
    let (mut client, id, mut number) = open(&world, &held("").without("x-samewire-dialect")).await;
    until_calls(&mut client, &mut number).await;
    assert_eq!(
        world
            .request(&with(&hand_in(&id, ALL), OTHER))
            .await
            .head
            .status,
        404
    );
    assert_eq!(
        pending(&world.request(&with(&hand_in(&id, ALL), SECOND)).await),
        json!([])
    );
    until_event(&mut client, &mut number, "response.completed", "").await;
    assert!(client.event().await.is_none());
    let lines = world.samewire.finished(4).await;
    let told = |line: &String| line.contains(r#""tenant":"acme""#);
    // Two for the held stream, one for the outputs.
    assert_eq!(lines.iter().filter(|line| told(line)).count(), 3);
    world.end().await;
}

/// Outputs may arrive before the end of the engine's answer.
#[tokio::test]
async fn outputs_may_come_early() {
    let gate = Gate::default();
    let calls = scripted("tools", "chatcmpl-1", true);
    let mut late = Script::new();
    let mut steps = calls.0.into_iter();
    while let Some(step) = steps.next() {
        // The last three steps: the finish, the usage and the end.
        if steps.len() == 3 {
            late = late.wait(&gate);
        }
        late = late.then(step);
    }
    let world = World::start(
        Engine::in_turn(vec![late, scripted("text", "chatcmpl-2", true)]),
        Setup::new(),
    )
    .await;
    let (mut client, id, mut number) = open(&world, &held("")).await;
    until_event(
        &mut client,
        &mut number,
        "response.output_item.done",
        "call_1",
    )
    .await;
    let early = hand_in(&id, ALL);
    let handing = early.answer(world.proxy());
    let opening = async {
        gate.open();
    };
    let (answer, ()) = tokio::join!(handing, opening);
    assert_eq!(pending(&answer), json!([]));
    until_event(&mut client, &mut number, "response.completed", "").await;
    world.end().await;
}

#[tokio::test]
async fn a_held_stream_can_fail() {
    let scripts = vec![
        scripted("tools", "chatcmpl-1", true),
        Script::new().json(
            "503 Service Unavailable",
            r#"{"error":{"message":"busy","code":503}}"#,
        ),
        scripted("tools", "chatcmpl-3", true),
    ];
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\ntool_hold = 1");
    let world = World::start(Engine::in_turn(scripts), setup).await;
    // The engine refuses the continuation.
    let (mut client, id, mut number) = open(&world, &held("")).await;
    until_calls(&mut client, &mut number).await;
    world.request(&hand_in(&id, ALL)).await;
    until_event(&mut client, &mut number, "error", "").await;
    let last = until_event(&mut client, &mut number, "response.failed", "").await;
    assert_eq!(last["response"]["output"].as_array().unwrap().len(), 5);
    assert!(client.event().await.is_none());
    // No outputs arrive.
    let (mut client, id, mut number) = open(&world, &held("")).await;
    let told = until_event(&mut client, &mut number, "error", "").await;
    assert_eq!(told["error"]["code"], "tool_outputs_missing");
    until_event(&mut client, &mut number, "response.failed", "").await;
    assert_eq!(
        object(&world.get(&format!("/v1/responses/{id}")).await)["status"],
        "failed"
    );
    world.end().await;
}

/// The wait has keep-alive comments, and ends with the process.
#[tokio::test]
async fn a_shutdown_ends_the_wait() {
    let engine = Engine::in_turn(vec![scripted("tools", "chatcmpl-1", true)]).await;
    let lines = "[timeouts]\nsettle = 0\ndrain = 0.1\n[wire]\nkeepalive_seconds = 1";
    let mut samewire = Samewire::start(&Setup::before(&engine).config(lines)).await;
    let mut client = held("").begin(samewire.proxy).await;
    let mut number = 0;
    until_calls(&mut client, &mut number).await;
    for _ in 0..2 {
        assert_eq!(client.event().await.unwrap().trim_end(), ": keepalive");
    }
    samewire.signal("TERM");
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.contains(r#""code":"draining""#), "{rest}");
    assert!(rest.contains("event: response.failed"), "{rest}");
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    let lines = samewire.request_lines();
    let [line] = &lines[..] else {
        panic!("one line: {lines:?}");
    };
    assert!(
        line.contains(r#""end":"draining""#) && line.contains(r#""completion_tokens":4"#),
        "{line}"
    );
}

#[tokio::test]
async fn only_what_asks_for_it_is_held() {
    let scripts = (0..4)
        .map(|at| scripted("tools", &format!("chatcmpl-{at}"), true))
        .collect();
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    let plain = prompt("tools", &format!(r#",{TOOLS},"stream":true"#));
    for request in [
        plain.clone().header("x-samewire-tool-hold", "1"),
        plain.clone().header("x-samewire-dialect", "codex-legacy"),
        plain
            .header("x-samewire-dialect", "codex-legacy")
            .header("x-samewire-tool-hold", "0"),
    ] {
        assert!(
            world
                .request(&request)
                .await
                .text()
                .contains("event: response.completed")
        );
    }
    // A client that leaves ends its stream.
    let (mut client, id, mut number) = open(&world, &held("")).await;
    until_calls(&mut client, &mut number).await;
    drop(client);
    let late = hand_in(&id, r#"{"tool_call_id":"call_9","output":"x"}"#);
    late.answer_until(world.proxy(), |answer| answer.head.status == 404)
        .await;
    world.end().await;
}

/// Answers that are truncated or have no tool calls end as usual.
#[tokio::test]
async fn an_answer_without_calls_ends() {
    let cut = Script::new()
        .head_sse()
        .ev(&chunk("chatcmpl-2", r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"ci"}}]}"#, "null"))
        .ev(&chunk("chatcmpl-2", "{}", "\"length\""))
        .done()
        .end();
    let world = World::start(
        Engine::in_turn(vec![scripted("text", "chatcmpl-1", true), cut]),
        Setup::new(),
    )
    .await;
    assert!(
        world
            .request(&held(""))
            .await
            .text()
            .contains("event: response.completed")
    );
    assert!(
        world
            .request(&held(""))
            .await
            .text()
            .contains("event: response.incomplete")
    );
    world.end().await;
}

/// A held stream is one request, and its key is charged for every answer of the engine.
#[tokio::test]
async fn all_answers_of_a_stream_are_charged() {
    let scripts = vec![
        scripted("tools", "chatcmpl-1", true),
        scripted("text", "chatcmpl-2", true),
    ];
    let setup = Setup::new().config(&entry(KEY, "tokens_per_month = 104\nconcurrency = 1"));
    let world = World::start(Engine::in_turn(scripts), setup).await;
    let (mut client, id, mut number) = open(&world, &held("")).await;
    until_calls(&mut client, &mut number).await;
    assert_eq!(pending(&world.request(&hand_in(&id, ALL)).await), json!([]));
    let last = until_event(&mut client, &mut number, "response.completed", "").await;
    assert_eq!(last["response"]["usage"]["total_tokens"], 26);
    let limits = next(&mut client, &mut number).await;
    assert_eq!(limits["type"], "response.rate_limits.updated");
    assert_eq!(
        limits["limits"]["primary"]["used_percent"], 0,
        "as it was when the request came"
    );
    assert!(client.event().await.is_none());
    let complete = |line: &&String| line.contains("\"end\":\"complete\"");
    until("three lines", || {
        world
            .samewire
            .request_lines()
            .iter()
            .filter(complete)
            .count()
            == 3
    })
    .await;
    let next = world.request(&prompt("text", "")).await;
    assert_eq!(
        next.head.header("x-ratelimit-remaining-tokens"),
        Some("78"),
        "104 - 26"
    );
    world.end().await;
}

/// Outputs find the stream although its first attempt had an id too: the client has seen nothing of it but a comment.
#[tokio::test]
async fn outputs_find_the_attempt_that_answered() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let mut engines = Vec::new();
    for _ in 0..2 {
        let attempts = Arc::clone(&attempts);
        let engine = Engine::answering(move |_| match attempts.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let role = chunk("chatcmpl-0", r#"{"role":"assistant","content":""}"#, "null");
                Script::new().head_sse().ev(&role).hang()
            }
            1 => scripted("tools", "chatcmpl-1", true),
            _ => scripted("text", "chatcmpl-2", true),
        });
        engines.push(engine.await);
    }
    let config = "[timeouts]\nfirst_token = 0.3\n[wire]\ncommit_after_seconds = 0";
    let world = World::fleet_up(engines, Setup::new().config(config), &[]).await;
    let mut client = world.begin(&held("")).await;
    assert_eq!(client.event().await.unwrap().trim_end(), ": keepalive");
    let mut number = 0;
    let created = next(&mut client, &mut number).await;
    let id = created["response"]["id"].as_str().unwrap().to_owned();
    until_calls(&mut client, &mut number).await;
    assert_eq!(pending(&world.request(&hand_in(&id, ALL)).await), json!([]));
    until_event(&mut client, &mut number, "response.completed", "").await;
    assert!(client.event().await.is_none());
    world.end().await;
}
