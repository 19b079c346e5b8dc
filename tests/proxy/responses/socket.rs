//! Responses over a WebSocket: requests and responses (wire-format 4.12).

use crate::responses::over_chat::{
    TOOLS, ask, chunk, engine, event, events, last, object, prompt, scripted,
};
use crate::responses::stored::three_turns;
use crate::sim::prelude::*;

/// Returns a `response.create` message with these members.
pub fn create(members: &str) -> String {
    format!(r#"{{"type":"response.create",{members}}}"#)
}

/// Returns a message with the prompt that must never be logged.
pub fn prompted(model: &str, more: &str) -> String {
    create(&format!(r#""model":"{model}","input":"{PROMPT}"{more}"#))
}

fn id(events: &[Value]) -> String {
    last(events)["id"].as_str().unwrap().to_owned()
}

fn missing() -> (u64, String, String) {
    (
        400,
        "previous_response_not_found".to_owned(),
        "previous_response_id".to_owned(),
    )
}

/// Returns a message that continues a response.
fn onward(previous: &str, more: &str) -> String {
    create(&format!(
        r#""model":"text","previous_response_id":"{previous}"{more}"#
    ))
}

const OUTPUTS: &str = r#""input":[{"type":"function_call_output","call_id":"call_1","output":"rain"},{"type":"custom_tool_call_output","call_id":"call_2","output":"done"},{"type":"function_call_output","call_id":"call_3","output":"Ada"}]"#;

/// Returns the messages in the `n`th request to the engine.
fn messages(world: &World, n: usize) -> Value {
    world.engine.attempts()[n].json()["messages"].clone()
}

/// Starts an engine that answers every request with these deltas, each time under another id.
pub async fn engine_of(deltas: &'static [&'static str]) -> Engine {
    let count = AtomicUsize::new(1);
    Engine::answering(move |_| {
        let id = format!("chatcmpl-{}", count.fetch_add(1, Ordering::Relaxed));
        let mut script = Script::new().head_sse();
        for delta in deltas {
            script = script.ev(&chunk(&id, delta, "null"));
        }
        script.ev(&chunk(&id, "{}", "\"stop\"")).done().end()
    })
    .await
}

#[tokio::test]
async fn messages_are_the_data_of_the_events() {
    let answering = |attempt: &Attempt| {
        let body = attempt.json();
        scripted(body["model"].as_str().unwrap(), "chatcmpl-1", true)
    };
    let world = World::start(
        Engine::answering(answering),
        Setup::new().args(&["--store", "off"]),
    )
    .await;
    let mut socket = Socket::open(world.proxy()).await;
    for model in ["text", "reason", "tools", "limit"] {
        let answer = world
            .request(&prompt(model, &format!(r#","stream":true,{TOOLS}"#)))
            .await;
        // Times differ from run to run.
        let timeless = |mut events: Vec<Value>| {
            for event in &mut events {
                if let Some(response) = event
                    .get_mut("response")
                    .filter(|r| !r["completed_at"].is_null())
                {
                    response["completed_at"] = json!(1);
                }
            }
            events
        };
        socket.send(&prompted(model, &format!(",{TOOLS}"))).await;
        assert_eq!(
            timeless(socket.response().await),
            timeless(events(&answer)),
            "{model}"
        );
    }
    let attempts = world.engine.attempts();
    for pair in attempts.chunks(2) {
        assert_eq!(pair[0].text(), pair[1].text(), "the engine gets the same");
        assert_eq!(
            pair[0].header("authorization"),
            pair[1].header("authorization")
        );
        assert_ne!(
            pair[0].header("x-request-id"),
            pair[1].header("x-request-id")
        );
    }
    world.end().await;
}

#[tokio::test]
async fn each_response_is_a_request_of_its_own() {
    let world = World::start(engine(), Setup::new()).await;
    let request = Socket::request("/v1/responses").header("x-request-id", "mine");
    let mut socket = Socket::open_with(world.proxy(), &request).await;
    assert_eq!(socket.head.header("x-request-id"), Some("mine"));
    for _ in 0..2 {
        socket.exchange(&prompted("text", "")).await;
    }
    socket.send(&create(r#""model":"text""#)).await;
    assert_eq!(
        socket.refused().await,
        (400, "missing_required_parameter".into(), "input".into())
    );
    let lines = world.samewire.finished(4).await;
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["request_id"].as_str().unwrap(),
                line["status"].as_u64().unwrap(),
                &line["end"],
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("mine", 101, &json!("complete")),
            ("mine.1", 200, &json!("complete")),
            ("mine.2", 200, &json!("complete")),
            ("mine.3", 400, &json!("error"))
        ]
    );
    assert_eq!(lines[1]["completion_tokens"], 4);
    let metrics = world.samewire.metrics().await;
    for (status, end, count) in [
        (101, "complete", 1),
        (200, "complete", 2),
        (400, "error", 1),
    ] {
        let is_it = |line: &&str| {
            line.starts_with("samewire_requests_total{route=\"responses\"")
                && line.ends_with(&format!("status=\"{status}\",end=\"{end}\"}} {count}"))
        };
        assert_eq!(metrics.lines().filter(is_it).count(), 1, "{metrics}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_conversation_needs_no_store() {
    for setup in [Setup::new(), Setup::new().args(&["--store", "off"])] {
        let world = World::start(engine(), setup).await;
        let mut socket = Socket::open(world.proxy()).await;
        socket
            .send(&prompted(
                "tools",
                &format!(r#","store":false,"instructions":"once",{TOOLS}"#),
            ))
            .await;
        let first = socket.response().await;
        assert_eq!(last(&first)["store"], false);
        // Only the outputs, and the response they belong to.
        let second = format!(r#","model":"reason","store":false,{OUTPUTS}"#);
        let second = socket
            .exchange(&onward(&id(&first), &second).replacen(r#""model":"text","#, "", 1))
            .await;
        assert_eq!(last(&second)["previous_response_id"], last(&first)["id"]);
        let third = socket
            .exchange(&onward(
                &id(&second),
                r#","store":false,"input":"and now?""#,
            ))
            .await;
        let expected = three_turns();
        assert_eq!(
            messages(&world, 1),
            json!(expected.as_array().unwrap()[..5])
        );
        assert_eq!(messages(&world, 2), expected);
        // An earlier response can be continued, too; but not on another connection, and not over HTTP.
        socket
            .exchange(&onward(&id(&first), &format!(",{OUTPUTS}")))
            .await;
        assert_eq!(messages(&world, 3), messages(&world, 1));
        let mut other = Socket::open(world.proxy()).await;
        for response in [&first, &second, &third] {
            other.send(&onward(&id(response), r#","input":"x""#)).await;
            assert_eq!(other.refused().await, missing());
            let http = ask(&format!(
                r#""model":"text","input":"x","previous_response_id":"{}""#,
                id(response)
            ));
            assert_eq!(world.request(&http).await.head.status, 400);
        }
        world.end_after(4).await;
    }
}

#[tokio::test]
async fn what_is_stored_is_known_everywhere_to_its_tenant() {
    let world = World::start(engine(), Setup::new()).await;
    let stored = object(&world.request(&prompt("text", "")).await);
    let mut socket = Socket::open(world.proxy()).await;
    let second = socket
        .exchange(&onward(stored["id"].as_str().unwrap(), r#","input":"on""#))
        .await;
    let mut other = Socket::open(world.proxy()).await;
    other
        .send(&onward(&id(&second), r#","store":false,"input":"and on""#))
        .await;
    let third = other.response().await;
    // An unstored response continues a stored one, and is continued itself.
    other
        .send(&onward(&id(&third), r#","store":false,"input":"further""#))
        .await;
    other.response().await;
    let said = |text: &str| json!({"role":"user","content":text});
    let answer = json!({"role":"assistant","content":"Hello wörld\n"});
    let all = json!([
        said(PROMPT),
        answer,
        said("on"),
        answer,
        said("and on"),
        answer,
        said("further")
    ]);
    assert_eq!(messages(&world, 3), all);
    let http = ask(&format!(
        r#""model":"text","input":"x","previous_response_id":"{}""#,
        id(&second)
    ));
    assert_eq!(object(&world.request(&http).await)["status"], "completed");
    let stranger = Socket::request("/v1/responses").without("authorization");
    for stranger in [
        stranger.clone().header("authorization", "Bearer other"),
        stranger,
    ] {
        let mut stranger = Socket::open_with(world.proxy(), &stranger).await;
        for known in [stored["id"].as_str().unwrap(), &id(&second)] {
            stranger.send(&onward(known, r#","input":"x""#)).await;
            assert_eq!(stranger.refused().await, missing());
        }
    }
    world.end().await;
}

/// A stored response that continues unstored ones has the whole history in the store.
#[tokio::test]
async fn what_is_stored_after_what_is_not_is_whole() {
    let world = World::start(engine(), Setup::new()).await;
    let mut socket = Socket::open(world.proxy()).await;
    let mut previous = String::new();
    for (store, input) in [(false, "a"), (false, "b"), (true, "c"), (true, "d")] {
        let more = format!(r#","store":{store},"input":"{input}""#);
        let more = if previous.is_empty() {
            create(&format!(r#""model":"text"{more}"#))
        } else {
            onward(&previous, &more)
        };
        let response = socket.exchange(&more).await;
        assert_eq!(last(&response)["store"], store);
        previous = id(&response);
    }
    let listed = object(
        &world
            .get(&format!("/v1/responses/{previous}/input_items"))
            .await,
    );
    assert_eq!(
        listed["data"].as_array().map(Vec::len),
        Some(1),
        "the last one goes on from a stored one"
    );
    let http = ask(&format!(
        r#""model":"text","input":"e","previous_response_id":"{previous}""#
    ));
    object(&world.request(&http).await);
    let said = messages(&world, 4);
    let said = said.as_array().unwrap();
    let inputs: Vec<_> = said
        .iter()
        .filter(|message| message["role"] == "user")
        .collect();
    let inputs: Vec<_> = inputs
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!((said.len(), inputs), (9, vec!["a", "b", "c", "d", "e"]));
    world.end().await;
}

/// A stored response that continues one deleted meanwhile has the whole history in the store, too.
#[tokio::test]
async fn what_was_deleted_meanwhile_is_stored_with_what_goes_on_from_it() {
    let world = World::start(engine(), Setup::new()).await;
    let mut socket = Socket::open(world.proxy()).await;
    let first = id(&socket
        .exchange(&create(r#""model":"text","input":"a""#))
        .await);
    object(
        &world
            .request(&Request::new("DELETE", &format!("/v1/responses/{first}")))
            .await,
    );
    let second = socket.exchange(&onward(&first, r#","input":"b""#)).await;
    assert_eq!(last(&second)["store"], true);
    let http = ask(&format!(
        r#""model":"text","input":"c","previous_response_id":"{}""#,
        id(&second)
    ));
    assert_eq!(object(&world.request(&http).await)["status"], "completed");
    let said = messages(&world, 2);
    assert_eq!(
        (said.as_array().map(Vec::len), &said[0]["content"]),
        (Some(5), &json!("a"))
    );
    world.end().await;
}

/// Items of an unstored response, which only the connection remembers, can be referenced.
#[tokio::test]
async fn what_is_remembered_can_be_referred_to() {
    let world = World::start(engine(), Setup::new().args(&["--store", "off"])).await;
    let mut socket = Socket::open(world.proxy()).await;
    let first = socket
        .exchange(&prompted("text", r#","store":false"#))
        .await;
    let item = last(&first)["output"][0]["id"].as_str().unwrap();
    let refer = |item: &str| {
        onward(
            &id(&first),
            &format!(r#","input":[{{"type":"item_reference","id":"{item}"}}]"#),
        )
    };
    socket.exchange(&refer(item)).await;
    let said = messages(&world, 1).to_string();
    assert_eq!(said.matches("Hello wörld").count(), 2, "{said}");
    socket.send(&refer("msg_none")).await;
    assert_eq!(
        socket.refused().await,
        (404, String::new(), "input[0].id".to_owned())
    );
    world.end().await;
}

#[tokio::test]
async fn a_failed_continuation_is_not_gone_on_from() {
    let refuses = |text: &str| text.contains("REFUSE");
    let breaks = |text: &str| text.contains("BREAK");
    let count = AtomicUsize::new(1);
    let engine = Engine::answering(move |attempt| {
        let id = format!("chatcmpl-{}", count.fetch_add(1, Ordering::Relaxed));
        match attempt.text() {
            text if refuses(text) => {
                Script::new().json("500 Oops", r#"{"error":{"message":"no"}}"#)
            }
            text if breaks(text) => Script::new()
                .head_sse()
                .ev(&chunk(&id, r#"{"content":"a"}"#, "null"))
                .end(),
            _ => scripted("text", &id, true),
        }
    })
    .await;
    let world = World::start(engine, Setup::new().allow_errors()).await;
    let mut socket = Socket::open(world.proxy()).await;
    for (members, status) in [
        (
            r#","input":[{"type":"function_call_output","call_id":"call_9","output":"x"}]"#,
            Some(400),
        ),
        (r#","input":"x","stream":true"#, Some(400)),
        (r#","input":"x","temperature":"hot""#, Some(400)),
        (r#","input":"REFUSE""#, Some(500)),
        (r#","input":"BREAK""#, None),
    ] {
        for (store, found) in [("false", false), ("true", true)] {
            let first = id(&socket
                .exchange(&prompted("text", &format!(r#","store":{store}"#)))
                .await);
            socket.send(&onward(&first, r#","input":"fine""#)).await;
            let second = id(&socket.response().await);
            socket.send(&onward(&first, members)).await;
            match status {
                Some(status) => assert_eq!(socket.refused().await.0, status, "{members}"),
                None => assert_eq!(last(&socket.response().await)["status"], "failed"),
            }
            socket.send(&onward(&first, r#","input":"again""#)).await;
            match found {
                true => assert_eq!(last(&socket.response().await)["status"], "completed"),
                false => assert_eq!(socket.refused().await, missing()),
            }
            // The response that continued it earlier has the whole history.
            let third = socket.exchange(&onward(&second, r#","input":"on""#)).await;
            assert_eq!(last(&third)["status"], "completed");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn sixteen_responses_are_remembered() {
    let world = World::start(engine(), Setup::new()).await;
    let mut socket = Socket::open(world.proxy()).await;
    let mut all = Vec::new();
    for n in 0..18 {
        socket
            .send(&prompted(
                "text",
                &format!(r#","store":false,"metadata":{{"n":"{n}"}}"#),
            ))
            .await;
        all.push(id(&socket.response().await));
    }
    // The third is the oldest one kept; continuing it adds another response.
    for (n, known) in [(1, false), (2, true), (2, false), (17, true)] {
        socket
            .send(&onward(&all[n], r#","store":false,"input":"x""#))
            .await;
        match known {
            true => assert_eq!(last(&socket.response().await)["status"], "completed", "{n}"),
            false => assert_eq!(socket.refused().await, missing(), "{n}"),
        }
    }
    world.end().await;
}

#[tokio::test]
async fn one_at_a_time_in_order_and_no_more_than_sixteen_wait() {
    let (gate, first) = Gate::pair();
    let engine = Engine::answering(move |attempt| {
        let body = attempt.json();
        let n = body["user"].as_str().unwrap().to_owned();
        let text = chunk(
            &format!("chatcmpl-{n}"),
            &format!(r#"{{"content":"{n}"}}"#),
            "null",
        );
        let script = Script::new().head_sse().ev(&text);
        let script = if n == "0" {
            script.wait(&first)
        } else {
            script
        };
        script
            .ev(&chunk(&format!("chatcmpl-{n}"), "{}", "\"stop\""))
            .done()
            .end()
    })
    .await;
    let world = World::start(engine, Setup::new()).await;
    let mut socket = Socket::open(world.proxy()).await;
    for n in 0..=18 {
        match n {
            // Invalid messages wait for their turn as well, so that the client knows which message an error is
            // about.
            5 => socket.send("no JSON").await,
            9 => socket.frame(0x82, b"binary").await,
            n => {
                socket
                    .send(&prompted("m", &format!(r#","user":"{n}""#)))
                    .await
            }
        }
    }
    // One request runs and sixteen wait; further ones are refused at once, whatever the first one is doing.
    let (mut seen, mut refusals) = (0, 0);
    while refusals < 2 || seen < 5 {
        let message = socket.message().await;
        if let Some(status) = message["status"].as_u64() {
            assert_eq!(
                (status, &message["error"]["code"]),
                (429, &json!("rate_limit_exceeded"))
            );
            refusals += 1;
        } else {
            assert_eq!(message["sequence_number"], seen);
            seen += 1;
        }
    }
    assert_eq!(world.engine.attempt_count(), 1, "one at a time");
    gate.open();
    while socket.message().await["type"] != "response.completed" {}
    for n in 1..=16 {
        match n {
            5 | 9 => assert_eq!(
                socket.refused().await,
                (400, "invalid_json".into(), String::new())
            ),
            n => {
                let response = socket.response().await;
                assert_eq!(
                    last(&response)["output"][0]["content"][0]["text"],
                    n.to_string()
                );
            }
        }
    }
    assert_eq!(world.engine.attempt_count(), 15);
    // There is room again.
    socket.exchange(&prompted("m", r#","user":"99""#)).await;
    world.end().await;
}

#[tokio::test]
async fn what_waits_is_bounded_in_bytes_too() {
    let gate = Gate::default();
    let script = Script::new().head_sse().wait(&gate).text("a").stop();
    let world = World::start(
        script,
        Setup::new().config("[limits]\nmax_body_bytes = 4096"),
    )
    .await;
    let mut socket = Socket::open(world.proxy()).await;
    let long = prompted(
        "m",
        &format!(r#","store":false,"metadata":{{"a":"{}"}}"#, "x".repeat(500)),
    );
    let long = format!("{long}{}", " ".repeat(2500 - long.len()));
    for _ in 0..3 {
        socket.send(&long).await;
    }
    assert_eq!(socket.refused().await.1, "rate_limit_exceeded");
    gate.open();
    for _ in 0..2 {
        socket.response().await;
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_message_is_told_and_the_connection_lives() {
    let world = World::start(engine(), Setup::new()).await;
    let mut socket = Socket::open(world.proxy()).await;
    let deep = format!(
        r#"{{"type":"response.create","x":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    for (message, code, param) in [
        ("", "invalid_json", ""),
        ("{", "invalid_json", ""),
        ("[]", "invalid_json", ""),
        ("\"response.create\"", "invalid_json", ""),
        (&deep, "json_too_deep", ""),
        ("{}", "missing_required_parameter", "type"),
        (r#"{"type":"response.cancel"}"#, "invalid_value", "type"),
        (r#"{"type":7}"#, "invalid_value", "type"),
        (
            &prompted("text", r#","stream":true"#),
            "unsupported_parameter",
            "stream",
        ),
        (
            &prompted("text", r#","stream":false"#),
            "unsupported_parameter",
            "stream",
        ),
        (
            &prompted("text", r#","stream_options":{"include_obfuscation":true}"#),
            "unsupported_parameter",
            "stream_options",
        ),
        (
            &prompted("text", r#","background":true"#),
            "unsupported_parameter",
            "background",
        ),
        (
            &prompted("text", r#","background":false"#),
            "unsupported_parameter",
            "background",
        ),
        (
            &create(r#""model":"text""#),
            "missing_required_parameter",
            "input",
        ),
        (
            &create(r#""model":"text","model":"text","input":"x""#),
            "duplicate_key",
            "model",
        ),
        (
            &prompted("text", r#","temperature":"9""#),
            "invalid_value",
            "temperature",
        ),
        (
            &onward("resp_none", r#","input":"x""#),
            "previous_response_not_found",
            "previous_response_id",
        ),
    ] {
        socket.send(message).await;
        assert_eq!(
            socket.refused().await,
            (400, code.to_owned(), param.to_owned()),
            "{message}"
        );
    }
    socket.frame(0x82, prompted("text", "").as_bytes()).await;
    assert_eq!(
        socket.refused().await,
        (400, "invalid_json".into(), String::new())
    );
    assert_eq!(world.engine.attempt_count(), 0);
    assert_eq!(
        last(&socket.exchange(&prompted("text", "")).await)["status"],
        "completed"
    );
    world.end().await;
}

#[tokio::test]
async fn errors_of_the_engine_before_and_in_a_response() {
    let engine = Engine::in_turn(vec![
        // On a reused connection the request would be retried.
        Script::new().rst(),
        Script::new().json("400 Bad Request", r#"{"object":"error","message":"no such thing","type":"BadRequestError","param":null,"code":400}"#),
        // Later than the status of an HTTP response would be held back.
        Script::new().sleep(Duration::from_millis(1500)).json("429 Slow", r#"{"error":{"message":"slow"}}"#),
        Script::stream().ev(r#"{"error":{"message":"late","type":"server_error","code":null}}"#).end(),
        Script::stream().text("Hel").rst(),
        Script::answer("a", 3),
    ])
    .await;
    let world = World::start(
        engine,
        Setup::new().allow_errors().set("commit_after_seconds=1"),
    )
    .await;
    let mut socket = Socket::open(world.proxy()).await;
    let next = prompted("m", "");
    socket.send(&next).await;
    assert_eq!(
        socket.refused().await,
        (502, "upstream_reset".into(), String::new())
    );
    socket.send(&next).await;
    assert_eq!(
        socket.text().await,
        r#"{"type":"error","status":400,"error":{"message":"no such thing","type":"invalid_request_error","param":null,"code":null}}"#
    );
    socket.send(&next).await;
    assert_eq!(
        socket.refused().await,
        (429, "rate_limit_exceeded".into(), String::new())
    );
    for code in ["internal_error", "upstream_incomplete"] {
        let broken = socket.exchange(&next).await;
        let kinds: Vec<_> = broken
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds[..2], ["response.created", "response.in_progress"]);
        assert_eq!(kinds[kinds.len() - 2..], ["error", "response.failed"]);
        let error = &broken[broken.len() - 2];
        assert_eq!(
            (&error["code"], &error["error"]["code"]),
            (&json!(code), &error["code"])
        );
    }
    assert_eq!(last(&socket.exchange(&next).await)["status"], "completed");
    world.end().await;
}

#[tokio::test]
async fn dialects_are_the_connections() {
    let world = World::start(
        engine_of(&[r#"{"reasoning":"Hm."}"#, r#"{"content":"Yes."}"#]),
        Setup::new(),
    )
    .await;
    for (dialect, sign, other) in [
        (
            "openai",
            "response.reasoning_text.delta",
            "response.reasoning.delta",
        ),
        (
            "openresponses",
            "response.reasoning.delta",
            "response.reasoning_text.delta",
        ),
        (
            "codex-legacy",
            "response.reasoning.delta",
            "response.tool_call.delta",
        ),
    ] {
        let request = Socket::request("/v1/responses").header("x-samewire-dialect", dialect);
        let mut socket = Socket::open_with(world.proxy(), &request).await;
        // Twice, because a stray `[DONE]` would come between.
        for _ in 0..2 {
            let response = socket.exchange(&prompted("m", "")).await;
            let has = |kind: &str| response.iter().any(|event| event["type"] == kind);
            assert!(has(sign) && !has(other), "{dialect}: {response:#?}");
        }
    }
    // No response is held open for tool outputs: they come over the connection itself.
    let request = Socket::request("/v1/responses").header("x-samewire-dialect", "codex-legacy");
    let other = World::start(engine(), Setup::new()).await;
    let mut socket =
        Socket::open_with(other.proxy(), &request.header("x-samewire-tool-hold", "1")).await;
    let first = id(&socket
        .exchange(&prompted("tools", &format!(",{TOOLS}")))
        .await);
    socket.send(&onward(&first, &format!(",{OUTPUTS}"))).await;
    assert_eq!(last(&socket.response().await)["status"], "completed");
    other.end().await;
    let request = Socket::request("/v1/responses").header("x-samewire-dialect", "latin");
    let answer = Socket::over(Client::connect(world.proxy()).await, &request.bytes())
        .await
        .err()
        .unwrap();
    assert_eq!(answer.fault().param.as_deref(), Some("x-samewire-dialect"));
    world.end().await;
}

#[tokio::test]
async fn every_responses_route_has_a_websocket() {
    let setup = Setup::new().config("[azure]\napi_versions = [\"2024-10-21\"]\nregion = \"here\"");
    let world = World::start(engine(), setup).await;
    let dated = "/openai/responses?api-version=2024-10-21";
    for target in ["/v1/responses", "/openai/v1/responses", dated] {
        let mut socket = Socket::open_with(world.proxy(), &Socket::request(target)).await;
        assert_eq!(
            socket.head.header("x-ms-region").is_some(),
            target != "/v1/responses"
        );
        socket.send(&prompted("text", r#","store":false"#)).await;
        // Azure's dated versions store every response.
        assert_eq!(last(&socket.response().await)["store"], target == dated);
    }
    let target = "/openai/deployments/reason/responses?api-version=2024-10-21";
    let request = Socket::request(target)
        .without("authorization")
        .header("api-key", KEY);
    let mut socket = Socket::open_with(world.proxy(), &request).await;
    socket
        .send(&create(&format!(r#""input":"{PROMPT}""#)))
        .await;
    assert_eq!(
        last(&socket.response().await)["output"][0]["type"],
        "reasoning"
    );
    assert_eq!(
        world
            .engine
            .attempts()
            .last()
            .unwrap()
            .header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    for target in [
        "/openai/responses",
        "/openai/responses?api-version=2020-01-01",
    ] {
        let bytes = Socket::request(target).bytes();
        let answer = Socket::over(Client::connect(world.proxy()).await, &bytes)
            .await
            .err()
            .unwrap();
        assert_eq!(
            answer.failure(),
            "400 invalid_request_error unsupported_api_version"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c17_what_is_no_upgrade_is_told_what_to_send() {
    let world = World::start(engine(), Setup::new()).await;
    let whole = Socket::request("/v1/responses");
    let old = whole
        .clone()
        .without("sec-websocket-version")
        .header("sec-websocket-version", "8");
    for request in [
        Request::get("/v1/responses"),
        Request::get("/openai/v1/responses"),
        whole.clone().without("connection"),
        whole.clone().without("upgrade"),
        whole.clone().without("upgrade").header("upgrade", "h2c"),
        whole.clone().without("sec-websocket-key"),
        whole.clone().version("HTTP/1.0"),
        whole.clone().body("x"),
        old,
    ] {
        let answer = world.request(&request).await;
        assert_eq!(
            answer.failure(),
            "426 invalid_request_error upgrade_required",
            "{request:?}"
        );
        assert_eq!(answer.head.header("upgrade"), Some("websocket"));
        assert_eq!(answer.head.header("sec-websocket-version"), Some("13"));
    }
    // A foreign page in a user's browser must not act as that user.
    for (origin, status) in [
        ("http://localhost", 101),
        ("https://LOCALHOST", 101),
        ("http://localhost:8080", 403),
        ("https://example.com", 403),
        ("null", 403),
    ] {
        let request = whole.clone().header("origin", origin);
        let opened = Socket::over(Client::connect(world.proxy()).await, &request.bytes()).await;
        let refused = |answer: Answer| {
            assert!(
                answer.fault().message.contains("cors.origins"),
                "{}",
                answer.text()
            );
            answer.head.status
        };
        assert_eq!(opened.map_or_else(refused, |_| 101), status, "{origin}");
    }
    let other = world.request(&Request::new("PUT", "/v1/responses")).await;
    assert_eq!(
        (other.head.status, other.fault().code.as_deref()),
        (405, Some("method_not_supported"))
    );
    // On other routes the upgrade is ignored.
    for target in [
        "/v1/models",
        "/v1/responses/resp_1",
        "/v1/chat/completions",
        "/v1/other",
    ] {
        assert_ne!(
            world.request(&Socket::request(target)).await.head.status,
            101,
            "{target}"
        );
    }
    let post = prompt("text", "")
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    assert_eq!(object(&world.request(&post).await)["status"], "completed");
    world.end().await;
}

/// Codex requests the WebSocket mode by a header, sends a superfluous `stream`, and sends context to the model
/// before the first question.
#[tokio::test]
async fn codex_opens_and_warms_up_its_websocket() {
    let world = World::start(engine(), Setup::new()).await;
    let request =
        Socket::request("/v1/responses").header("openai-beta", "responses_websockets=2026-02-06");
    let mut socket = Socket::open_with(world.proxy(), &request).await;
    // Long enough to be split into several frames: each message must still hold exactly one complete event.
    let long = "word ".repeat(2_000);
    let more = format!(r#","stream":true,"store":false,"generate":false,"instructions":"{long}""#);
    let noted = socket.exchange(&prompted("text", &more)).await;
    let kinds: Vec<_> = noted
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.completed"
        ]
    );
    assert!(
        noted
            .iter()
            .all(|event| event["response"]["instructions"] == long.as_str())
    );
    assert_eq!(
        (&last(&noted)["output"], &last(&noted)["usage"]),
        (&json!([]), &Value::Null)
    );
    assert_eq!(
        (world.engine.attempt_count(), &last(&noted)["store"]),
        (0, &json!(false))
    );
    socket
        .send(&onward(
            &id(&noted),
            r#","stream":true,"store":false,"input":"now""#,
        ))
        .await;
    assert_eq!(last(&socket.response().await)["status"], "completed");
    assert_eq!(
        messages(&world, 0),
        json!([{"role":"user","content":PROMPT}, {"role":"user","content":"now"}])
    );
    socket
        .exchange(&prompted("text", r#","generate":true,"top_k":5"#))
        .await;
    let body = world.engine.attempts()[1].json();
    assert_eq!((body.get("generate"), &body["top_k"]), (None, &json!(5)));
    socket.send(&prompted("text", r#","stream":false"#)).await;
    assert_eq!(socket.refused().await.2, "stream");
    // An invalid input is refused at once.
    let output = r#"[{"type":"function_call_output","call_id":"call_9","output":"x"}]"#;
    socket
        .send(&create(&format!(
            r#""model":"text","generate":false,"input":{output}"#
        )))
        .await;
    assert_eq!(socket.refused().await.2, "input[0].call_id");
    world.end().await;
}

/// The last message is sent after the record is durable, as over HTTP.
#[tokio::test]
async fn what_was_said_is_stored() {
    let world = World::start(engine(), Setup::new()).await;
    let mut socket = Socket::open(world.proxy()).await;
    for _ in 0..10 {
        let response = socket.exchange(&prompted("text", "")).await;
        let stored = object(&world.get(&format!("/v1/responses/{}", id(&response))).await);
        assert_eq!(&stored, last(&response));
    }
    // The WebSocket and HTTP carry the same events.
    let mut client = world.begin(&prompt("text", r#","stream":true"#)).await;
    assert_eq!(
        event(&client.event().await.unwrap())["type"],
        "response.created"
    );
    client.rest().await;
    world.end().await;
}
