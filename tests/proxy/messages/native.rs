//! The Messages API in front of an engine that implements it itself (`messages = "native"`).

use crate::messages::{fault, message, object, post, sent, stream, streamed, told};
use crate::sim::prelude::*;

/// Writes an event of this API, as engines write it.
fn event(script: Script, data: &Value) -> Script {
    let name = data["type"].as_str().unwrap();
    script.chunk(format!("event: {name}\ndata: {data}\n\n"))
}

/// Returns the beginning of an answer: thinking, which the engine signs, and two tokens of text.
fn begun() -> Script {
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let events = [
        json!({"type": "message_start", "message": {"id": "chatcmpl-a4d0", "content": [], "model": "engine-m", "stop_reason": null, "usage": {"input_tokens": 9, "output_tokens": 0}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
        delta(0, json!({"type": "signature_delta", "signature": "0297"})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        delta(1, json!({"type": "text_delta", "text": "Hel"})),
        delta(1, json!({"type": "text_delta", "text": "lo"})),
    ];
    events.iter().fold(Script::new().head_sse(), event)
}

fn finished(script: Script) -> Script {
    let events = [
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 9, "output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ];
    events.iter().fold(script, event)
}

fn whole() -> Value {
    json!({
        "id": "chatcmpl-a4d0", "type": "message", "role": "assistant", "model": "engine-m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "0297"},
            {"type": "text", "text": "Hello"},
        ],
        "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 3},
    })
}

async fn engine() -> Engine {
    Engine::answering(
        |attempt| match attempt.text().contains(r#""stream":true"#) {
            true => finished(begun()).end(),
            false => Script::ok(whole()),
        },
    )
    .await
}

fn native() -> Setup {
    Setup::new().upstream_keys("messages = \"native\"")
}

#[tokio::test]
async fn the_engine_is_asked_as_it_was_asked_and_its_answer_repaired() {
    let world = World::start(engine(), native()).await;
    let more = r#","system":"Be brief.","top_k":5,"thinking":{"type":"enabled","budget_tokens":2000},"stop_sequences":["X"],"metadata":{"user_id":"u"}"#;
    let events = streamed(&world.request(&stream(more)).await);
    let one = object(&world.request(&message(more)).await);
    for message in [&events, &one] {
        assert_eq!(
            (&message["id"], &message["model"]),
            (&json!("msg_a4d0"), &json!("engine-m"))
        );
        assert_eq!(message["content"], whole()["content"]);
        assert_eq!(
            message["usage"],
            json!({"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 3})
        );
    }
    for (attempt, request) in world
        .engine
        .attempts()
        .iter()
        .zip([stream(more), message(more)])
    {
        assert_eq!(
            (attempt.target.as_str(), attempt.header("content-type")),
            ("/v1/messages", Some("application/json"))
        );
        assert_eq!(
            attempt.body,
            request.sent_body(),
            "the engine reads what the client wrote"
        );
    }
    let accepted: Vec<_> = world
        .engine
        .attempts()
        .iter()
        .map(|one| one.header("accept").map(ToOwned::to_owned))
        .collect();
    assert_eq!(
        accepted,
        [
            Some("text/event-stream".to_owned()),
            Some("application/json".to_owned())
        ]
    );
    world.end().await;
}

/// Thinking in a delta that has it under `text`, the key of text deltas.
#[tokio::test]
async fn thinking_may_stand_under_the_key_of_text() {
    let engine = Engine::answering(|_| {
        let events = [
            json!({"type": "message_start", "message": {"id": "1", "content": [], "model": "m", "usage": {"input_tokens": 9, "output_tokens": 0}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "text": "Hm."}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Hi"}}),
        ];
        finished(events.iter().fold(Script::new().head_sse(), event)).end()
    });
    let content = &streamed(&World::answer(engine.await, native(), &stream("")).await)["content"];
    assert_eq!(
        (&content[0]["thinking"], &content[1]["text"]),
        (&json!("Hm."), &json!("Hi")),
        "{content}"
    );
}

#[tokio::test]
async fn the_engine_is_told_its_own_name_of_the_model() {
    let models = "[[model]]\nname = \"m\"\naliases = [\"claude-*\"]\n";
    let world = World::start(engine(), native().config(models)).await;
    for streams in [true, false] {
        let body = json!({"model": "claude-sonnet-4-5", "stream": streams, "max_tokens": 64, "messages": [{"role": "user", "content": PROMPT}]});
        assert_eq!(
            world.request(&post(body.to_string())).await.head.status,
            200
        );
        let mut expected = body;
        expected["model"] = json!("m");
        assert_eq!(
            sent(&world.engine, world.engine.attempt_count() - 1),
            expected
        );
    }
    world.end().await;
}

/// Thinking that the client has without its text gets it back before the engine sees it. The engine judges all other
/// thinking itself: its signatures are its own.
#[tokio::test]
async fn thinking_goes_back_to_the_engine_that_signed_it() {
    let world = World::start(engine(), native()).await;
    let omitted = json!({"type": "adaptive", "display": "omitted"});
    let next = |content: &Value| {
        json!({"model": "m", "max_tokens": 64, "messages": [
            {"role": "user", "content": PROMPT},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "go on"},
        ]})
    };
    let shown = object(&world.request(&message("")).await);
    world
        .request(&post(next(&shown["content"]).to_string()))
        .await;
    assert_eq!(
        sent(&world.engine, 1)["messages"][1]["content"],
        whole()["content"]
    );
    let hidden = object(
        &world
            .request(&message(&format!(r#","thinking":{omitted}"#)))
            .await,
    );
    assert_eq!(hidden["content"][0]["thinking"], "");
    world
        .request(&post(next(&hidden["content"]).to_string()))
        .await;
    assert_eq!(
        sent(&world.engine, 3)["messages"][1]["content"][0]["thinking"],
        "Hm."
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u12_u13_u14_what_breaks_off_is_no_answer() {
    let no_end = || {
        let events = [json!({"type": "content_block_stop", "index": 1})];
        events.iter().fold(begun(), event)
    };
    for (what, script) in [
        (
            "RST",
            begun()
                .sleep(Duration::from_millis(30))
                .close(CloseKind::Rst),
        ),
        ("FIN", begun().fin()),
        ("good HTTP end", begun().end()),
        ("blocks are complete, the message is not", no_end().end()),
        (
            "an end without a reason",
            event(no_end(), &json!({"type": "message_stop"})).end(),
        ),
        (
            "half an event",
            begun()
                .chunk("event: content_block_delta\ndata: {\"type\":\"content_bl")
                .end(),
        ),
    ] {
        let answer = World::answer(script, native().allow_errors(), &stream("")).await;
        let folded = told(&answer);
        let error = folded.error.unwrap_or_else(|| panic!("{what}: no error"));
        assert_eq!(error["error"]["type"], "api_error", "{what}: {error}");
        assert_eq!(
            error["request_id"].as_str(),
            answer.head.header("request-id"),
            "{what}"
        );
        assert_eq!(folded.message["content"][1]["text"], "Hello", "{what}");
        assert!(!answer.text().contains("message_stop"), "{what}");
    }
}

#[tokio::test]
async fn fault_u17_errors_in_the_engines_stream() {
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "said"}});
    for (kind, told_as, status) in [
        ("overloaded_error", "overloaded_error", 529),
        ("rate_limit_error", "rate_limit_error", 429),
        ("invalid_request_error", "invalid_request_error", 400),
        ("api_error", "api_error", 500),
        ("internal_error", "api_error", 500),
    ] {
        let within = event(begun(), &error(kind)).end();
        let first = event(Script::new().head_sse(), &error(kind)).end();
        let world = World::start(
            Engine::in_turn(vec![within, first]),
            native().allow_errors(),
        )
        .await;
        let folded = told(&world.request(&stream("")).await);
        assert_eq!(folded.error.unwrap()["error"]["type"], told_as, "{kind}");
        let told = fault(&world.request(&stream("")).await);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (status, told_as),
            "{kind}"
        );
        world.end().await;
    }
}

/// Errors of the engine's route, in its own shape of them and in that of OpenAI.
#[tokio::test]
async fn fault_u18_statuses_of_the_engine() {
    for (line, kind, expected) in [
        (
            "400 Bad",
            "invalid_request_error",
            (400, "invalid_request_error"),
        ),
        ("404 Bad", "not_found_error", (404, "not_found_error")),
        ("413 Bad", "request_too_large", (413, "request_too_large")),
        ("429 Bad", "rate_limit_error", (429, "rate_limit_error")),
        ("500 Bad", "api_error", (500, "api_error")),
        ("503 Bad", "overloaded_error", (529, "overloaded_error")),
        ("529 Bad", "overloaded_error", (529, "overloaded_error")),
    ] {
        let error = json!({"type": kind, "message": "said"});
        for body in [
            json!({"type": "error", "error": error}),
            json!({"error": error}),
        ] {
            let script = Script::new().json(line, &body.to_string());
            let world = World::start(script, native().allow_errors()).await;
            for request in [message(""), stream("")] {
                let told = fault(&world.request(&request).await);
                assert_eq!((told.status, told.kind.as_str()), expected, "{line} {body}");
            }
            world.end().await;
        }
    }
}

/// An engine that was wrongly said to have the route answers 404.
#[tokio::test]
async fn an_engine_without_the_route() {
    let script = Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#);
    let world = World::start(script, native()).await;
    for request in [message(""), stream("")] {
        assert_eq!(fault(&world.request(&request).await).status, 404);
    }
    world.end().await;
}

#[tokio::test]
async fn the_engines_own_count() {
    let count = |body: Value| {
        Request::post("/v1/messages/count_tokens", body.to_string())
            .header("anthropic-version", "2023-06-01")
    };
    let body = json!({"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": PROMPT}]});
    let world = World::start(
        Engine::script(Script::ok(r#"{"input_tokens":77}"#)),
        native(),
    )
    .await;
    let answer = world.request(&count(body.clone())).await;
    assert_eq!(answer.text(), r#"{"input_tokens":77}"#);
    assert_eq!(world.engine.only().target, "/v1/messages/count_tokens");
    assert_eq!(sent(&world.engine, 0), body);
    world.end().await;
    // Without that route, an answer of one token tells it, together with what the cache had.
    let mut answer = whole();
    answer["usage"] = json!({"input_tokens": 4, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 2, "output_tokens": 1});
    let lacks = Engine::answering(move |attempt| match attempt.target.as_str() {
        "/v1/messages" => Script::ok(&answer),
        _ => Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#),
    });
    let world = World::start(lacks.await, native()).await;
    assert_eq!(
        world.request(&count(body)).await.text(),
        r#"{"input_tokens":36}"#
    );
    let asked = sent(&world.engine, 1);
    assert_eq!(
        (&asked["max_tokens"], asked.get("stream")),
        (&json!(1), None),
        "{asked}"
    );
    world.end().await;
}

/// Only what samewire itself reads is checked; the rest is the engine's to judge.
#[tokio::test]
async fn fault_c13_fields_that_are_wrong() {
    let world = World::start(engine(), native()).await;
    for (body, start) in [
        (
            json!({"model": "m", "max_tokens": 9}),
            "messages: Field required",
        ),
        (
            json!({"model": "m", "max_tokens": "9", "messages": [{"role": "user", "content": "x"}]}),
            "max_tokens: ",
        ),
        (
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": 7}]}),
            "messages.0.content: ",
        ),
        (
            json!({"model": "m", "max_tokens": 9, "stream": 1, "messages": [{"role": "user", "content": "x"}]}),
            "stream: ",
        ),
    ] {
        let told = fault(&world.request(&post(body.to_string())).await);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (400, "invalid_request_error"),
            "{start}"
        );
        assert!(told.message.starts_with(start), "{told:?}");
    }
    assert_eq!(world.engine.attempt_count(), 0);
    let own = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "hologram"}]}], "a_field": 1});
    assert_eq!(world.request(&post(own.to_string())).await.head.status, 200);
    assert_eq!(sent(&world.engine, 0), own);
    world.end().await;
}

/// Addresses that an engine must not fetch are judged in this mode as well.
#[tokio::test]
async fn fault_c34_addresses_in_private_networks() {
    for setup in [native(), Setup::new()] {
        let world = World::start(engine(), setup.allow_errors()).await;
        let image = json!({"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/latest"}});
        let inside = json!([{"type": "tool_result", "tool_use_id": "c1", "content": [image]}]);
        let call = json!([{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]);
        for messages in [
            json!([{"role": "user", "content": [image]}]),
            json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": call}, {"role": "user", "content": inside}]),
        ] {
            let body = json!({"model": "m", "max_tokens": 9, "messages": messages});
            let told = fault(&world.request(&post(body.to_string())).await);
            assert_eq!(
                told.name(),
                (400, "invalid_request_error", Some("forbidden_media_url"))
            );
            assert!(told.message.contains("source.url"), "{told:?}");
        }
        world.end_after(0).await;
    }
}

#[tokio::test]
async fn figures_count_native_answers_too() {
    let world = World::start(engine(), native()).await;
    streamed(&world.request(&stream("")).await);
    object(&world.request(&message("")).await);
    world.samewire.finished(2).await;
    for (name, labels, count) in [
        (
            "samewire_requests_total",
            &["route=\"messages\"", "status=\"200\""][..],
            2,
        ),
        ("samewire_tokens_total", &["kind=\"prompt\""], 18),
        ("samewire_tokens_total", &["kind=\"completion\""], 6),
    ] {
        assert_eq!(
            world.samewire.sum(name, labels).await,
            count,
            "{name} {labels:?}"
        );
    }
    world.end().await;
}

/// Reasoning and calls of the offered tools that the engine leaves in the text are read as in chat.
#[tokio::test]
async fn reasoning_and_calls_in_the_text_are_read() {
    const CALL: &str =
        "<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";
    let said = |text: &str| format!("<think>Hm.</think>{text}");
    let engine = Engine::answering(move |attempt| {
        let text = if attempt.text().contains("tools") {
            said(CALL)
        } else {
            said("Hello!")
        };
        if !attempt.text().contains(r#""stream":true"#) {
            let mut message = whole();
            message["content"] = json!([{"type": "text", "text": text}]);
            return Script::ok(message);
        }
        let start = json!({"type": "message_start", "message": {"id": "1", "content": [], "model": "m", "usage": {"input_tokens": 9, "output_tokens": 0}}});
        let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
        let script = event(event(Script::new().head_sse(), &start), &block);
        let pieces = text.split_inclusive('\n').fold(script, |script, piece| {
            event(script, &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}))
        });
        let ends = [
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
            json!({"type": "message_stop"}),
        ];
        ends.iter().fold(pieces, event).end()
    });
    let tools = r#","tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"shell","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}]"#;
    let none = format!(r#"{tools},"tool_choice":{{"type":"none"}}"#);
    let thinking = r#","thinking":{"type":"enabled","budget_tokens":2000}"#;
    let world = World::start(engine.await, native().set("parser=qwen3")).await;
    for (more, kinds, stop) in [
        ("", "thinking text", "end_turn"),
        (tools, "thinking tool_use", "tool_use"),
        // Nothing may be called, so the markup is text.
        (&none, "thinking text", "end_turn"),
    ] {
        let more = format!("{more}{thinking}");
        for message in [
            streamed(&world.request(&stream(&more)).await),
            object(&world.request(&message(&more)).await),
        ] {
            let blocks = message["content"].as_array().unwrap();
            let found: Vec<_> = blocks
                .iter()
                .map(|block| block["type"].as_str().unwrap())
                .collect();
            assert_eq!(
                (found.join(" ").as_str(), &message["stop_reason"]),
                (kinds, &json!(stop)),
                "{message}"
            );
            assert_eq!(blocks[0]["thinking"].as_str().unwrap().trim(), "Hm.");
            let said = &blocks[1];
            match more.contains("tools") && stop == "tool_use" {
                true => {
                    assert_eq!(
                        (&said["name"], &said["input"]),
                        (&json!("shell"), &json!({"command": "ls"}))
                    )
                }
                false => {
                    let text = if more.contains("tools") {
                        CALL
                    } else {
                        "Hello!"
                    };
                    assert_eq!(said["text"].as_str().unwrap().trim(), text);
                }
            }
        }
    }
    world.end().await;
}

/// A block that samewire does not model, in events where a whole answer was requested: its deltas are added up.
#[tokio::test]
async fn deltas_of_a_foreign_block_are_part_of_a_whole_answer() {
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let tool = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "content": [], "model": "m", "usage": {"input_tokens": 9, "output_tokens": 0}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": tool}),
        delta(json!({"type": "input_json_delta", "partial_json": "{\"query\":"})),
        delta(json!({"type": "input_json_delta", "partial_json": "\"x\"}"})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ];
    let script = events.iter().fold(Script::new().head_sse(), event).end();
    let expected = json!([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}]);
    assert_eq!(
        object(&World::answer(script, native(), &message("")).await)["content"],
        expected
    );
}
