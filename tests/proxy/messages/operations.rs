//! What operators see of this API, and how requests find their engines: metrics, log, traces, affinity and quotas.

use crate::clients::keys::{entry, with};
use crate::messages::{
    Folded, engine, fault, hello, message, object, post, stream, streamed, told,
};
use crate::pool::PATIENT;
use crate::responses::over_chat;
use crate::sim::prelude::*;
use std::collections::BTreeSet;

/// Returns the log line of the request with this id.
async fn line(world: &World, id: &str) -> Value {
    let find = || {
        world
            .samewire
            .request_lines()
            .into_iter()
            .find(|line| line.contains(id))
    };
    until("the request's line", || find().is_some()).await;
    serde_json::from_str(&find().unwrap()).unwrap()
}

#[tokio::test]
async fn metrics_and_the_log_name_the_route() {
    let keys = entry(KEY, "name = \"laptop\"");
    let world = World::start(engine(), Setup::new().config(&keys)).await;
    world.wait_until_up().await;
    streamed(
        &world
            .request(&stream("").header("x-request-id", "good-1"))
            .await,
    );
    object(
        &world
            .request(&message("").header("x-request-id", "good-2"))
            .await,
    );
    fault(
        &world
            .request(&post("{").header("x-request-id", "bad-1"))
            .await,
    );
    for id in ["good-1", "good-2"] {
        let line = line(&world, id).await;
        let expected = json!({
            "level": "INFO", "method": "POST", "path": "/v1/messages", "route": "messages", "model": "m", "key": "laptop",
            "status": 200, "end": "complete", "attempts": 1, "error": null, "prompt_tokens": 9, "completion_tokens": 2,
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&line[name], value, "{name}: {line}");
        }
    }
    let bad = line(&world, "bad-1").await;
    assert_eq!(
        (&bad["status"], &bad["route"]),
        (&json!(400), &json!("messages")),
        "{bad}"
    );
    let messages = "route=\"messages\"";
    for (name, labels, count) in [
        (
            "samewire_requests_total",
            &[messages, "status=\"200\"", "end=\"complete\""][..],
            2,
        ),
        ("samewire_requests_total", &[messages, "status=\"400\""], 1),
        ("samewire_requests_total", &["route=\"chat\""], 0),
        (
            "samewire_tokens_total",
            &["kind=\"prompt\"", "model=\"m\""],
            18,
        ),
        (
            "samewire_tokens_total",
            &["kind=\"completion\"", "model=\"m\""],
            4,
        ),
        (
            "samewire_key_tokens_total",
            &["kind=\"prompt\"", "key=\"laptop\""],
            18,
        ),
        (
            "samewire_key_tokens_total",
            &["kind=\"completion\"", "key=\"laptop\""],
            4,
        ),
    ] {
        assert_eq!(
            world.samewire.sum(name, labels).await,
            count,
            "{name} {labels:?}"
        );
    }
    let metrics = world.samewire.metrics().await;
    assert!(
        metrics.contains(r#"samewire_requests_in_flight{route="messages"} 0"#),
        "{metrics}"
    );
    let is_both = |line: &str| {
        line.starts_with("samewire_request_seconds_count")
            && line.contains(messages)
            && line.ends_with(" 2")
    };
    assert!(metrics.lines().any(is_both), "{metrics}");
    world.end().await;
}

/// The status in the log and in the metrics is the one that the client got.
#[tokio::test]
async fn statuses_of_this_api_are_logged_as_they_were_sent() {
    for (script, status) in [
        (
            Script::new().json("503 Busy", r#"{"error":{"message":"busy"}}"#),
            529,
        ),
        (Script::new().rst(), 500),
    ] {
        let world = World::start(script, Setup::new().allow_errors()).await;
        assert_eq!(
            world
                .request(&message("").header("x-request-id", "bad-1"))
                .await
                .head
                .status,
            status
        );
        assert_eq!(line(&world, "bad-1").await["status"], status);
        let labels = ["route=\"messages\"", &format!("status=\"{status}\"")];
        assert_eq!(
            world.samewire.sum("samewire_requests_total", &labels).await,
            1,
            "{status}"
        );
        world.end().await;
    }
}

/// Neither prompts nor answers, tool arguments or thinking are in the log, at its most talkative as well.
#[tokio::test]
async fn nothing_of_a_conversation_is_logged() {
    const SECRET: &str = "sup-9137-secret";
    let script = Script::stream()
        .delta(&json!({"reasoning": SECRET}).to_string(), "null")
        .text(SECRET)
        .delta(&json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": format!("{{\"a\":\"{SECRET}\"}}")}}]}).to_string(), "null")
        .finish("tool_calls")
        .usage(9, 2)
        .done()
        .end();
    let setup = Setup::new()
        .environment("RUST_LOG", "trace")
        .set("unsupported_content=drop");
    let world = World::start(script, setup).await;
    let more = json!({
        "model": "m", "max_tokens": 64, "stream": true, "system": SECRET, "metadata": {"user_id": SECRET},
        "tools": [{"name": "f", "description": SECRET, "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": PROMPT}, {"type": "hologram", "data": SECRET}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": SECRET, "signature": SECRET}, {"type": "text", "text": SECRET}]},
            {"role": "user", "content": SECRET},
        ],
    });
    let message = streamed(&world.request(&post(more.to_string())).await);
    assert_eq!(message["content"][0]["thinking"], SECRET);
    let bad = json!({"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": [{"type": "text", "text": {"x": SECRET}}]}]});
    assert_eq!(
        fault(&world.request(&post(bad.to_string())).await).status,
        400
    );
    world.samewire.finished(2).await;
    let logs = world.samewire.logs().join("\n");
    assert!(!logs.contains(SECRET), "{logs}");
    assert!(
        logs.contains("tools[1].web_search_20250305"),
        "tools left out are logged: {logs}"
    );
    world.end().await;
}

#[cfg(feature = "otlp")]
#[tokio::test]
async fn traces_name_the_route_and_what_it_cost() {
    use crate::collector::{Collector, attributes};
    let collector = Collector::start().await;
    let world = World::start(engine(), Setup::new().config(&collector.config())).await;
    world.wait_until_up().await;
    streamed(
        &world
            .request(&stream("").header("x-request-id", "mine-1"))
            .await,
    );
    let spans = collector.wait(2).await;
    let server = spans
        .iter()
        .find(|span| span.kind == 2)
        .expect("a span of the request");
    let client = spans
        .iter()
        .find(|span| span.kind == 3)
        .expect("a span of the attempt");
    assert_eq!(
        (server.name.as_str(), client.name.as_str()),
        ("POST /v1/messages", "chat m")
    );
    let told = attributes(&server.attributes);
    for (name, value) in [
        ("http.route", "/v1/messages"),
        ("http.response.status_code", "200"),
        ("samewire.request_id", "mine-1"),
    ] {
        assert_eq!(
            told.get(name).map(String::as_str),
            Some(value),
            "{name}: {told:#?}"
        );
    }
    let told = attributes(&client.attributes);
    for (name, value) in [
        ("gen_ai.usage.input_tokens", "9"),
        ("gen_ai.usage.output_tokens", "2"),
    ] {
        assert_eq!(
            told.get(name).map(String::as_str),
            Some(value),
            "{name}: {told:#?}"
        );
    }
    world.end().await;
}

/// All turns of a conversation go to the engine that has its beginning in its cache; thinking, billing text and cache
/// marks, which differ from turn to turn, change nothing about that.
#[tokio::test]
async fn a_conversation_stays_where_it_began() {
    for mode in ["chat", "native"] {
        let engines = Engine::several(4, |attempt| match attempt.target.as_str() {
            "/v1/messages" => Script::ok(
                json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "hm"}], "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}),
            ),
            _ => hello(false),
        });
        let lines = format!("messages = \"{mode}\"");
        let setup = Setup::new()
            .config(PATIENT)
            .config("[affinity]\nby = \"conversation\"");
        let world = World::fleet_up(engines.await, setup, &[lines.as_str(); 4]).await;
        let mut used = BTreeSet::new();
        for talk in 0..48 {
            let mut messages = vec![Value::Null];
            let before = world.attempt_counts();
            for turn in 0..3 {
                // Clients mark the last message for caching, and leave the mark out of earlier ones.
                let mut text = json!({"type": "text", "text": format!("talk {talk} {PROMPT}")});
                if turn == 0 {
                    text["cache_control"] = json!({"type": "ephemeral"});
                }
                messages[0] = json!({"role": "user", "content": [text]});
                let billing = format!("x-anthropic-billing-header: cc_version=2.1.{turn};");
                let system = json!([{"type": "text", "text": billing}, {"type": "text", "text": "Be kind."}]);
                let body =
                    json!({"model": "m", "max_tokens": 64, "system": system, "messages": messages});
                object(&world.request(&post(body.to_string())).await);
                messages.push(json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}, {"type": "text", "text": "hm"}]}));
                messages.push(json!({"role": "user", "content": format!("turn {turn}")}));
            }
            let now = world.attempt_counts();
            let grown: Vec<_> = now
                .iter()
                .zip(&before)
                .map(|(now, then)| now - then)
                .collect();
            assert_eq!(
                grown.iter().filter(|more| **more == 3).count(),
                1,
                "{mode}: all at one engine: {grown:?}"
            );
            used.insert(grown.iter().position(|more| *more == 3).unwrap());
        }
        assert_eq!(used.len(), 4, "{mode}: conversations are spread");
        world.end().await;
    }
}

/// Tokens of messages count against the same budget as those of chat.
#[tokio::test]
async fn tokens_are_charged_to_the_key() {
    let script = |streams: bool| match streams {
        true => Script::stream()
            .text("a")
            .finish("stop")
            .usage(300, 900)
            .done()
            .end(),
        false => hello(false),
    };
    let engine =
        Engine::answering(move |attempt| script(attempt.text().contains(r#""stream":true"#))).await;
    let world = World::start(
        engine,
        Setup::new().config(&entry(KEY, "tokens_per_minute = 1000")),
    )
    .await;
    let answer = world.request(&stream("")).await;
    assert_eq!(told(&answer).error, None);
    assert_eq!(
        answer.head.header("anthropic-ratelimit-tokens-limit"),
        Some("1000")
    );
    world.samewire.finished(1).await;
    for request in [message(""), stream("")] {
        let answer = world.request(&request).await;
        assert_eq!(
            fault(&answer).name(),
            (429, "rate_limit_error", Some("rate_limit_exceeded"))
        );
        let wait: u64 = answer.head.header("retry-after").unwrap().parse().unwrap();
        assert!(
            (9..=13).contains(&wait),
            "200 tokens too many take 12 s: {wait}"
        );
    }
    world
        .request(&Request::plain(""))
        .await
        .with_status(429)
        .fault();
    world.end_after(1).await;
}

/// A stream in progress is in the gauge of its route, and no longer once the client has left.
#[tokio::test]
async fn requests_in_flight() {
    let world = World::start(Script::stream().text("a").hang(), Setup::new()).await;
    let client = world.begin_until(&stream(""), "text_delta").await;
    world
        .samewire
        .metric_becomes(r#"samewire_requests_in_flight{route="messages"}"#, 1)
        .await;
    client.leave(CloseKind::Fin);
    world.end().await;
}

/// The other APIs answer beside this one as before.
#[tokio::test]
async fn the_other_routes_are_as_before() {
    let world = World::start(over_chat::engine(), Setup::new()).await;
    let version = ("anthropic-version", "2023-06-01");
    let response = world
        .request(&over_chat::prompt("text", "").header(version.0, version.1))
        .await;
    assert_eq!(over_chat::object(&response)["object"], "response");
    assert!(response.head.header("openai-version").is_some());
    let chat = Request::chat(r#"{"model":"text","messages":[{"role":"user","content":"x"}]}"#);
    let chat = world.request(&chat.header(version.0, version.1)).await;
    assert_eq!(over_chat::object(&chat)["object"], "chat.completion");
    let mut socket = Socket::open_with(
        world.proxy(),
        &Socket::request("/v1/responses").header(version.0, version.1),
    )
    .await;
    socket
        .send(&crate::responses::socket::prompted("text", ""))
        .await;
    assert_eq!(
        socket.response().await.last().unwrap()["type"],
        "response.completed"
    );
    // There is no WebSocket for this API.
    let upgrade = Socket::request("/v1/messages");
    assert_eq!(fault(&world.request(&upgrade).await).status, 405);
    world.end().await;
}

/// Every feature of the wire that is chosen by key or model works for this API, too.
#[tokio::test]
async fn options_of_keys_and_models() {
    let keys = entry(KEY, "wire.messages_thinking = \"none\"") + &entry("sk-CANARY-other", "");
    let thinks = Script::stream()
        .delta(r#"{"reasoning":"Hm."}"#, "null")
        .text("Hi");
    let world = World::start(thinks.stop(), Setup::new().config(&keys)).await;
    let kinds = |answer: &Answer| {
        let Folded { message, .. } = told(answer);
        let blocks = message["content"].as_array().unwrap().clone();
        blocks
            .iter()
            .map(|block| block["type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&world.request(&stream("")).await), ["text"]);
    assert_eq!(
        kinds(&world.request(&with(&stream(""), "sk-CANARY-other")).await),
        ["thinking", "text"]
    );
    world.end().await;
}
