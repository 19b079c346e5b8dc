//! Thinking over several turns: signed by samewire, kept by the client, and given back to the engine if it is what it
//! was.

use crate::clients::keys::{OTHER, SECOND, entry, with};
use crate::messages::{object, post, sent, streamed};
use crate::sim::prelude::*;

const THOUGHT: &str = "The user wants the \"weather\", ünd I need f.\n";

/// Starts an engine that thinks, says something and calls a tool, in the words of one kind of engine.
async fn thinker(kind: &str) -> Engine {
    let key = if kind == "sglang" {
        "reasoning_content"
    } else {
        "reasoning"
    };
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
    Engine::answering(move |attempt| {
        if !attempt.text().contains(r#""stream":true"#) {
            let mut message =
                json!({"role": "assistant", "content": "One moment.", "tool_calls": [call]});
            message[key] = json!(THOUGHT);
            let body = json!({
                "id": "chatcmpl-2", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
            });
            return Script::ok(body);
        }
        let (first, second) = THOUGHT.split_at(12);
        Script::stream()
            .delta(&json!({key: first}).to_string(), "null")
            .delta(&json!({key: second}).to_string(), "null")
            .text("One moment.")
            .delta(&json!({"tool_calls": [call]}).to_string(), "null")
            .finish("tool_calls")
            .usage(9, 4)
            .done()
            .end()
    })
    .await
}

fn tools() -> Value {
    json!([{"name": "f", "input_schema": {"type": "object"}}])
}

/// Returns the first turn, with further members.
fn first(more: &Value) -> Request {
    turn(json!([{"role": "user", "content": PROMPT}]), more)
}

/// Returns the turn that gives this message back, with the result of its call.
fn next(message: &Value, more: &Value) -> Request {
    let result = json!([{"type": "tool_result", "tool_use_id": "call_1", "content": "1"}]);
    turn(
        json!([
            {"role": "user", "content": PROMPT},
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": result},
        ]),
        more,
    )
}

fn turn(messages: Value, more: &Value) -> Request {
    let mut body = json!({"model": "m", "max_tokens": 64, "messages": messages, "tools": tools()});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    post(body.to_string())
}

/// Returns the assistant's message in the engine's last request.
fn given_back(engine: &Engine) -> Value {
    sent(engine, engine.attempt_count() - 1)["messages"][1].clone()
}

fn expected(key: Option<&str>) -> Value {
    let mut message = json!({
        "role": "assistant", "content": "One moment.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}],
    });
    if let Some(key) = key {
        message[key] = json!(THOUGHT);
    }
    message
}

async fn dropped(samewire: &Samewire) -> u64 {
    samewire
        .sum("samewire_rewrites_total", &["rule=\"thinking_dropped\""])
        .await
}

/// Returns a signature that differs in one character in the middle.
fn altered(signature: &str) -> String {
    let at = signature.len() / 2;
    let other = if signature.as_bytes()[at] == b'A' {
        "B"
    } else {
        "A"
    };
    format!("{}{other}{}", &signature[..at], &signature[at + 1..])
}

#[tokio::test]
async fn thinking_goes_back_under_the_name_that_the_engine_reads() {
    for (kind, key) in [("vllm", "reasoning"), ("sglang", "reasoning_content")] {
        let world = World::start_as(thinker(kind), kind, Setup::new()).await;
        let whole = object(&world.request(&first(&json!({}))).await);
        let folded = streamed(&world.request(&first(&json!({"stream": true}))).await);
        for message in [&whole, &folded] {
            let kinds: Vec<_> = message["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(|block| &block["type"])
                .collect();
            assert_eq!(kinds, ["thinking", "text", "tool_use"], "{message}");
            let block = &message["content"][0];
            assert_eq!(block["thinking"], THOUGHT, "{kind}");
            let signature = block["signature"].as_str().unwrap();
            assert!(signature.starts_with("swt1."), "{signature}");
            for stream in [true, false] {
                world
                    .request(&next(message, &json!({"stream": stream})))
                    .await
                    .with_status(200);
                assert_eq!(given_back(&world.engine), expected(Some(key)), "{kind}");
            }
        }
        assert_eq!(dropped(&world.samewire).await, 0);
        world.end().await;
    }
}

/// Thinking that is not what samewire signed is left out, and the session goes on.
#[tokio::test]
async fn fault_c47_what_was_altered_is_dropped_and_counted() {
    let world = World::start(thinker("vllm"), Setup::new()).await;
    let good = object(&world.request(&first(&json!({}))).await);
    let signature = good["content"][0]["signature"].as_str().unwrap().to_owned();
    let other = object(
        &world
            .request(&first(
                &json!({"thinking": {"type": "adaptive", "display": "omitted"}}),
            ))
            .await,
    );
    let with_block = |block: Value| {
        let mut message = good.clone();
        message["content"][0] = block;
        message
    };
    let thinking = |text: &str, signature: &str| {
        with_block(json!({"type": "thinking", "thinking": text, "signature": signature}))
    };
    let rows = [
        ("another text", thinking("I need g.", &signature)),
        ("a shorter text", thinking(&THOUGHT[..10], &signature)),
        ("no text", thinking("", &signature)),
        ("another signature", thinking(THOUGHT, &altered(&signature))),
        (
            "a cut signature",
            thinking(THOUGHT, &signature[..signature.len() - 4]),
        ),
        ("no signature", thinking(THOUGHT, "")),
        (
            "a signature of Anthropic",
            thinking(THOUGHT, "EqQBCgIYAhIMLq0"),
        ),
        (
            "a signature of another kind",
            thinking(THOUGHT, &signature.replace("swt1.", "swr1.")),
        ),
        (
            "the seal of a text, for another",
            thinking("x", other["content"][0]["signature"].as_str().unwrap()),
        ),
        (
            "redacted",
            with_block(json!({"type": "redacted_thinking", "data": "EqQBCgIYAhIMLq0"})),
        ),
        (
            "no member but the type",
            with_block(json!({"type": "thinking"})),
        ),
    ];
    for (n, (what, message)) in rows.iter().enumerate() {
        let answer = world.request(&next(message, &json!({}))).await;
        assert_eq!(answer.head.status, 200, "{what}: {}", answer.text());
        assert_eq!(given_back(&world.engine), expected(None), "{what}");
        assert_eq!(dropped(&world.samewire).await, n as u64 + 1, "{what}");
        assert_eq!(
            answer.head.header("x-samewire-dropped"),
            None,
            "{what}: this is no loss to tell of"
        );
    }
    world.end().await;
}

/// A client that does not want to see thinking has its text in the signature, which only samewire can read.
#[tokio::test]
async fn omitted_thinking_is_restored() {
    let omitted =
        json!({"thinking": {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}});
    let mut streaming = omitted.clone();
    streaming["stream"] = json!(true);
    let world = World::start(thinker("vllm"), Setup::new()).await;
    let whole = world.request(&first(&omitted)).await;
    let events = world.request(&first(&streaming)).await;
    for answer in [&whole, &events] {
        assert!(!answer.text().contains("I need f"), "{}", answer.text());
    }
    for message in [object(&whole), streamed(&events)] {
        let block = &message["content"][0];
        assert_eq!(
            (&block["type"], &block["thinking"]),
            (&json!("thinking"), &json!(""))
        );
        world
            .request(&next(&message, &omitted))
            .await
            .with_status(200);
        assert_eq!(given_back(&world.engine), expected(Some("reasoning")));
    }
    assert_eq!(dropped(&world.samewire).await, 0);
    world.end().await;
}

/// A client that switched thinking off sees none, and the operator's option overrides clients' requests.
#[tokio::test]
async fn thinking_that_nobody_sees() {
    let rows = [
        ("request", json!({"thinking": {"type": "disabled"}}), None),
        ("none", json!({}), None),
        ("omitted", json!({}), Some("")),
        (
            "shown",
            json!({"thinking": {"type": "adaptive", "display": "omitted"}}),
            Some(THOUGHT),
        ),
        ("shown", json!({"thinking": {"type": "disabled"}}), None),
    ];
    for (option, more, seen) in rows {
        let setup = Setup::new().set(&format!("messages_thinking={option}"));
        let world = World::start(thinker("vllm"), setup).await;
        let mut streaming = more.clone();
        streaming["stream"] = json!(true);
        for message in [
            object(&world.request(&first(&more)).await),
            streamed(&world.request(&first(&streaming)).await),
        ] {
            let blocks = message["content"].as_array().unwrap();
            let thinking = blocks.iter().find(|block| block["type"] == "thinking");
            assert_eq!(
                thinking.map(|block| block["thinking"].as_str().unwrap()),
                seen,
                "{option} {more}"
            );
            assert_eq!(blocks.last().unwrap()["type"], "tool_use");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_c32_thinking_of_another_tenant_is_dropped() {
    let keys =
        entry(KEY, "tenant = \"acme\"") + &entry(SECOND, "tenant = \"acme\"") + &entry(OTHER, "");
    let world = World::start(thinker("vllm"), Setup::new().config(&keys)).await;
    for display in ["summarized", "omitted"] {
        let more = json!({"thinking": {"type": "adaptive", "display": display}});
        let message = object(&world.request(&first(&more)).await);
        for (key, reasoning) in [
            (KEY, Some("reasoning")),
            (SECOND, Some("reasoning")),
            (OTHER, None),
        ] {
            world
                .request(&with(&next(&message, &more), key))
                .await
                .with_status(200);
            assert_eq!(
                given_back(&world.engine),
                expected(reasoning),
                "{display} {key}"
            );
        }
    }
    assert_eq!(dropped(&world.samewire).await, 2);
    world.end().await;
}

/// Processes with the same file of keys read each other's signatures, also after the key has been replaced; with keys
/// of their own they do not.
#[tokio::test]
async fn signatures_live_as_long_as_their_key() {
    let folder = Folder::new();
    let keys = folder.path("keys");
    let old = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
    let new = "k2 HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
    let engine = thinker("vllm").await;
    let process = Setup::before(&engine);
    let sealed = process
        .clone()
        .config(&format!("[seal]\nkeys_file = \"{}\"", keys.display()));
    let rows = [
        (&sealed, old.to_owned(), old.to_owned(), Some("reasoning")),
        (
            &sealed,
            old.to_owned(),
            format!("{new}{old}"),
            Some("reasoning"),
        ),
        (&sealed, old.to_owned(), new.to_owned(), None),
        (&process, old.to_owned(), old.to_owned(), None),
    ];
    for (setup, before, after, reasoning) in rows {
        folder.write("keys", &before);
        let one = Samewire::start(setup).await;
        let message = object(&first(&json!({})).answer(one.proxy).await);
        folder.write("keys", &after);
        let other = Samewire::start(setup).await;
        next(&message, &json!({}))
            .answer(other.proxy)
            .await
            .with_status(200);
        assert_eq!(given_back(&engine), expected(reasoning), "{before} {after}");
        assert_eq!(dropped(&other).await, u64::from(reasoning.is_none()));
        for samewire in [one, other] {
            let logs = samewire.logs().join("\n");
            assert!(
                !logs.contains("swt1.") && !logs.contains(KEY) && !logs.contains("I need f"),
                "{logs}"
            );
        }
    }
}

/// Thinking that is dropped changes the engine's prompt no further: the same turn without it is the same request.
#[tokio::test]
async fn dropped_thinking_leaves_the_request_of_a_turn_without_it() {
    let world = World::start(thinker("vllm"), Setup::new()).await;
    let mut message = object(&world.request(&first(&json!({}))).await);
    message["content"][0]["signature"] = json!("EqQBCgIYAhIMLq0");
    world.request(&next(&message, &json!({}))).await;
    message["content"].as_array_mut().unwrap().remove(0);
    world.request(&next(&message, &json!({}))).await;
    let attempts = world.engine.attempts();
    assert_eq!(attempts[1].body, attempts[2].body);
    world.end().await;
}
