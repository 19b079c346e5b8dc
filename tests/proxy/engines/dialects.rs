//! Services that speak Chat Completions in their own dialect. Clients of all three APIs get the same from them as
//! from anybody else.

use crate::sim::prelude::*;

/// Returns the same question in each API, as a stream or whole.
fn questions(stream: bool) -> [Request; 3] {
    let user = json!([{"role": "user", "content": "hi"}]);
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    [
        ("/v1/chat/completions", json!({"model": "m", "messages": user, "stream": stream})),
        ("/v1/responses", json!({"model": "m", "input": "hi", "stream": stream})),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 2048, "thinking": thinking, "messages": user, "stream": stream}),
        ),
    ]
    .map(|(path, body)| Request::post(path, body.to_string()))
}

/// Returns the reasoning and the text of an answer of any of the APIs, streamed or whole.
fn told(answer: &str) -> (String, String) {
    let (mut reasoning, mut text) = (String::new(), String::new());
    let mut add = |thought: &Value, said: &Value| {
        reasoning.push_str(thought.as_str().unwrap_or_default());
        text.push_str(said.as_str().unwrap_or_default());
    };
    let data = answer
        .lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line));
    for frame in data.filter_map(|data| serde_json::from_str::<Value>(data).ok()) {
        for holder in [
            &frame["choices"][0]["delta"],
            &frame["choices"][0]["message"],
        ] {
            add(&holder["reasoning"], &holder["content"]);
        }
        match frame["type"].as_str().unwrap_or_default() {
            "response.reasoning_text.delta" => add(&frame["delta"], &Value::Null),
            "response.output_text.delta" => add(&Value::Null, &frame["delta"]),
            "content_block_delta" => add(&frame["delta"]["thinking"], &frame["delta"]["text"]),
            _ => {}
        }
        for block in frame["content"].as_array().into_iter().flatten() {
            add(&block["thinking"], &block["text"]);
        }
        for item in frame["output"].as_array().into_iter().flatten() {
            let part = &item["content"][0]["text"];
            let (thought, said) = if item["type"] == "reasoning" {
                (part, &Value::Null)
            } else {
                (&Value::Null, part)
            };
            add(thought, said);
        }
    }
    (reasoning, text)
}

/// Returns the script of an answer whose messages are these, as a stream or, of the first alone, whole.
fn script(messages: &[Value], finish: &str, stream: bool) -> Script {
    let envelope = |object: &str, choice: Value| {
        json!({"id": "chatcmpl-1", "object": object, "created": 1, "model": "m", "choices": [choice]})
            .to_string()
    };
    if !stream {
        let choice = json!({"index": 0, "message": messages[0], "finish_reason": finish});
        return Script::ok(envelope("chat.completion", choice));
    }
    let mut script = Script::new().head_sse();
    for delta in messages {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        script = script.ev(&envelope("chat.completion.chunk", choice));
    }
    let end = json!({"index": 0, "delta": {}, "finish_reason": finish});
    script
        .ev(&envelope("chat.completion.chunk", end))
        .done()
        .end()
}

#[tokio::test]
async fn texts_in_lists_of_parts() {
    // Mistral's parts (microsoft/agent-framework#6978), and MiniMax's details (BerriAI/litellm#31890), also beside
    // the same reasoning under its own name.
    let parts = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "I think."}], "closed": true},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo!"},
    ]);
    let details = json!([{"type": "reasoning.text", "text": "I think.", "index": 0}]);
    let rows = [
        vec![json!({"role": "assistant", "content": parts})],
        vec![json!({"role": "assistant", "content": "Hello!", "reasoning_details": details})],
        vec![json!({"content": "Hello!", "reasoning": "I think.", "reasoning_details": details})],
    ];
    for stream in [true, false] {
        for messages in rows.clone() {
            let what = format!("{messages:?}");
            let engine = Engine::answering(move |_| script(&messages, "stop", stream)).await;
            let world = World::start(engine, Setup::new()).await;
            for question in questions(stream) {
                let answer = world.request(&question).await;
                let expected = ("I think.".to_owned(), "Hello!".to_owned());
                assert_eq!(told(answer.text()), expected, "{what}: {}", answer.text());
            }
            world.end().await;
        }
    }
}

/// A finish word that names a failure is an error to every client, one that names a limit or a filter no natural end.
#[tokio::test]
async fn finish_words_of_other_services() {
    const FAILS: [&str; 3] = [
        "\"code\":\"upstream_aborted\"",
        "response.failed",
        "\"type\":\"error\"",
    ];
    const FILTERED: [&str; 3] = [
        "\"finish_reason\":\"content_filter\"",
        "\"reason\":\"content_filter\"",
        "\"stop_reason\":\"refusal\"",
    ];
    const CUT: [&str; 3] = [
        "\"finish_reason\":\"length\"",
        "\"reason\":\"max_output_tokens\"",
        "\"stop_reason\":\"max_tokens\"",
    ];
    for (word, expected) in [
        ("network_error", FAILS),
        ("insufficient_system_resource", FAILS),
        ("ERROR", FAILS),
        ("sensitive", FILTERED),
        ("repetition", CUT),
    ] {
        for stream in [true, false] {
            let message = [json!({"role": "assistant", "content": "Half of"})];
            let engine = Engine::answering(move |_| script(&message, word, stream)).await;
            let world = World::start(engine, Setup::new().upstream_keys("engine = \"vllm\"")).await;
            for (question, expected) in questions(stream).into_iter().zip(expected) {
                let answer = world.request(&question).await;
                // A whole response that fails is an HTTP error.
                let fails_whole = expected == "response.failed" && !stream;
                let expected = if fails_whole {
                    "upstream_aborted"
                } else {
                    expected
                };
                assert!(
                    answer.text().contains(expected),
                    "{word} {stream}: {}",
                    answer.text()
                );
            }
            world.end().await;
        }
    }
}

/// llama.cpp's error in a line `error:` (agentscope-ai/QwenPaw#3560) keeps its message.
#[tokio::test]
async fn errors_in_a_field_of_their_own() {
    let said = "Failed to parse input at pos 61: <tool_call>";
    let engine = Engine::answering(move |_| {
        let choice = json!({"index": 0, "delta": {"content": "Half of"}, "finish_reason": null});
        let chunk = json!({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
        let error = json!({"code": 500, "message": said, "type": "server_error"});
        Script::new()
            .head_sse()
            .ev(&chunk.to_string())
            .chunk(format!("error: {error}\n\n"))
            .end()
    });
    let world = World::start(
        engine.await,
        Setup::new().config("[wire]\nengine_errors = \"pass\"\n"),
    )
    .await;
    for question in questions(true) {
        let answer = world.request(&question).await;
        assert_eq!(told(answer.text()).1, "Half of");
        assert!(
            answer.text().contains(&format!("\"message\":\"{said}\"")),
            "{}",
            answer.text()
        );
    }
    world.end().await;
}

/// A used-up quota of the engine's own account has the same code as one of samewire, in each dialect.
#[tokio::test]
async fn quotas_of_engines_in_the_older_dialect() {
    let error = json!({"error": {"message": "You exceeded your current quota.", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}});
    let engine =
        Engine::answering(move |_| Script::new().json("429 Too Many Requests", &error.to_string()))
            .await;
    let world = World::start(engine, Setup::new()).await;
    let older = |request: Request| request.header("x-samewire-dialect", "codex-legacy");
    for stream in [true, false] {
        let [chat, responses, _] = questions(stream);
        for (request, code) in [
            (responses.clone(), "insufficient_quota"),
            (older(responses), "quota_exceeded"),
            (older(chat), "insufficient_quota"),
        ] {
            assert_eq!(
                world.request(&request).await.failure(),
                format!("429 insufficient_quota {code}")
            );
        }
    }
    let mut socket =
        Socket::open_with(world.proxy(), &older(Socket::request("/v1/responses"))).await;
    socket
        .send(r#"{"type":"response.create","model":"m","input":"hi"}"#)
        .await;
    let refused = socket.message().await;
    assert_eq!(refused["error"]["code"], "quota_exceeded", "{refused}");
    world.end().await;
}
