//! An engine that leaves reasoning and tool calls in the text (`parser`), tested through the process: its requests,
//! what clients of both APIs get, and what operators see.

use crate::canonical::Canonical;
use crate::responses::over_chat::{ask, events, last, object};
use crate::sim::prelude::*;

/// Model output, in the pieces that the engine sends.
const PIECES: [&str; 8] = [
    "<thi",
    "nk>I look.",
    "</think>",
    "One moment.",
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": ",
    "{\"city\":",
    "\"Bern\"}",
    "}\n</tool_call>",
];

const TOOLS: &str = r#","tools":[{"type":"function","function":{"name":"weather"}}]"#;

async fn engine() -> Engine {
    Engine::answering(|_: &Attempt| {
        let script = PIECES
            .iter()
            .fold(Script::stream(), |script, piece| script.text(piece));
        script.finish("stop").usage(3, 9).done().end()
    })
    .await
}

fn canonical() -> String {
    let call = |fragment: &str| {
        format!(
            r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{}}}}}]}}"#,
            json_string(fragment)
        )
    };
    let head = r#"{"tool_calls":[{"index":0,"id":"call_1_0_0","type":"function","function":{"name":"weather","arguments":""}}]}"#;
    let answer = Canonical::new()
        .role()
        .reasoning("I look.")
        .content("One moment.")
        .delta(head, "null");
    let answer = answer.delta(&call("{\"city\":\"Bern\"}"), "null");
    answer.finish("tool_calls").done().text().to_owned()
}

#[tokio::test]
async fn reasoning_and_calls_come_out_of_the_text() {
    let world = World::start(engine(), Setup::new().set("parser=qwen3")).await;
    assert_eq!(world.stream(TOOLS).await.text(), canonical());
    let request =
        r#""model":"m","input":"hi","stream":true,"tools":[{"type":"function","name":"weather"}]"#;
    let streamed = events(&world.request(&ask(request)).await);
    let items = last(&streamed)["output"].as_array().unwrap();
    let kinds: Vec<_> = items
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(
        [&items[2]["name"], &items[2]["arguments"]],
        ["weather", "{\"city\":\"Bern\"}"]
    );
    world.end().await;
}

/// The format of the text is detected without a setting, and reported once.
#[tokio::test]
async fn what_the_engine_could_have_done_is_said_once() {
    let world = World::start(engine(), Setup::new()).await;
    for _ in 0..3 {
        assert_eq!(world.stream(TOOLS).await.text(), canonical());
    }
    until("all are logged", || {
        world.samewire.request_lines().len() >= 3
    })
    .await;
    let warned = |text: &&String| text.contains("parsed here") && text.contains("WARN");
    assert_eq!(world.samewire.logs().iter().filter(warned).count(), 1);
    world.end().await;
}

/// vLLM without a tool-call parser refuses calls of the model's own choice, so it is sent `tool_choice: none`
/// (engines E.2).
#[tokio::test]
async fn vllm_is_told_that_nothing_is_called() {
    let world = World::start_as(engine(), "vllm", Setup::new().set("parser=qwen3")).await;
    assert_eq!(world.stream(TOOLS).await.text(), canonical());
    world
        .request(&ask(
            r#""model":"m","input":"hi","tools":[{"type":"function","name":"weather"}]"#,
        ))
        .await;
    for attempt in world.engine.attempts() {
        let body = attempt.json();
        assert_eq!(body["tool_choice"], "none");
        assert_eq!(
            body["tools"][0]["function"]["name"], "weather",
            "the model knows what it may call"
        );
    }
    world.end().await;
}

// === engines that refuse to parse, and models that are known by their names ===

/// Returns the error of vLLM 0.21.0 without a tool-call parser for this tool choice (captures
/// `noparser-chat-tool-*`).
fn refusal(choice: &Value) -> Option<String> {
    match choice {
        Value::Null => Some("\"auto\"".to_owned()),
        Value::String(word) if word == "none" => None,
        Value::String(word) => Some(format!("\"{word}\"")),
        _ => Some("\"function=ChatCompletionNamedFunction(name='weather') type='function'\"".to_owned()),
    }
    .map(|choice| match choice.as_str() {
        "\"auto\"" => {
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"
                .to_owned()
        }
        choice => format!("tool_choice={choice} requires --tool-call-parser to be set"),
    })
}

/// Starts a vLLM without a tool-call parser, whose model writes these pieces.
async fn without_parser(pieces: &'static [&'static str]) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        let body = attempt.json();
        match refusal(&body["tool_choice"]).filter(|_| body["tools"].is_array()) {
            Some(message) => {
                let error = json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": 400}});
                Script::new().json("400 Bad Request", &error.to_string())
            }
            None => said(attempt, pieces),
        }
    })
    .await
}

/// Starts vLLM's front end in Rust without a tool-call parser: it refuses tools in its own words (capture
/// `rust-noparser-tools` of vLLM 0.33.0).
async fn rust_without_parser(pieces: &'static [&'static str]) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        let body = attempt.json();
        if body["tools"].is_array() && body["tool_choice"] != "none" {
            let message = "failed to submit chat request: tool parsing is disabled by frontend configuration";
            let error =
                json!({"error": {"message": message, "type": "server_error", "param": null, "code": 500}});
            return Script::new().json("500 Internal Server Error", &error.to_string());
        }
        said(attempt, pieces)
    })
    .await
}

/// Returns an answer of these pieces, streamed or whole as requested.
fn said(attempt: &Attempt, pieces: &[&str]) -> Script {
    if !attempt.text().contains(r#""stream":true"#) {
        let message = json!({"role": "assistant", "content": pieces.concat()});
        let object = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}});
        return Script::ok(object);
    }
    let script = pieces
        .iter()
        .fold(Script::stream(), |script, piece| script.text(piece));
    script.finish("stop").usage(3, 9).done().end()
}

/// Content of a chat answer, streamed or whole.
#[derive(Debug, Default, PartialEq)]
struct ChatContent {
    reasoning: String,
    content: String,
    /// Name and arguments of each tool call.
    calls: Vec<(String, String)>,
    finish: String,
}

impl ChatContent {
    fn of(answer: &Answer) -> Self {
        assert_eq!(answer.head.status, 200, "{}", answer.text());
        let whole = answer.text().starts_with('{');
        let data: Vec<Value> = match whole {
            true => vec![answer.json()],
            false => {
                let events = answer
                    .text()
                    .split("\n\n")
                    .filter_map(|event| event.strip_prefix("data: "));
                events
                    .filter(|data| data.starts_with('{'))
                    .map(|data| serde_json::from_str(data).unwrap())
                    .collect()
            }
        };
        let mut told = Self::default();
        for choice in data.iter().map(|chunk| &chunk["choices"][0]) {
            let part = if whole {
                &choice["message"]
            } else {
                &choice["delta"]
            };
            let text = |key: &str| part[key].as_str().unwrap_or_default();
            told.reasoning += text("reasoning_content");
            told.content += text("content");
            told.finish += choice["finish_reason"].as_str().unwrap_or_default();
            for call in part["tool_calls"].as_array().into_iter().flatten() {
                let text = |key: &str| call["function"][key].as_str().unwrap_or_default();
                if !text("name").is_empty() {
                    told.calls.push((text("name").to_owned(), String::new()));
                }
                told.calls.last_mut().unwrap().1 += text("arguments");
            }
        }
        told
    }

    fn text(reasoning: &str, content: &str) -> Self {
        let finish = "stop".to_owned();
        Self {
            reasoning: reasoning.to_owned(),
            content: content.to_owned(),
            calls: Vec::new(),
            finish,
        }
    }

    fn call() -> Self {
        let calls = vec![("weather".to_owned(), "{\"city\":\"Bern\"}".to_owned())];
        Self {
            calls,
            finish: "tool_calls".to_owned(),
            ..Self::text("I look.", "One moment.")
        }
    }
}

fn chat(model: &str, stream: bool, more: &str) -> Request {
    Request::chat(format!(
        r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]{more}}}"#
    ))
}

const TWO_TOOLS: &str = r#","tools":[{"type":"function","function":{"name":"weather"}},{"type":"function","function":{"name":"time"}}]"#;

/// A model whose name tells its family needs no configuration.
#[tokio::test]
async fn tools_work_on_a_vllm_without_a_parser_of_calls() {
    const MODEL: &str = "Qwen/Qwen3-8B";
    let named = r#","tool_choice":{"type":"function","function":{"name":"weather"}}"#;
    for (is_rust, choice, setup) in [
        (false, "", Setup::new()),
        (false, "", Setup::new().set("parser=off")),
        (false, r#","tool_choice":"auto""#, Setup::new()),
        (false, r#","tool_choice":"required""#, Setup::new()),
        (
            false,
            r#","tool_choice":"required""#,
            Setup::new().set("parser=qwen3"),
        ),
        (false, named, Setup::new()),
        (true, "", Setup::new()),
        (true, r#","tool_choice":"required""#, Setup::new()),
        (true, named, Setup::new()),
    ] {
        let engine = match is_rust {
            true => rust_without_parser(&PIECES).await,
            false => without_parser(&PIECES).await,
        };
        let world = World::start(engine, setup).await;
        for (stream, attempts) in [(true, "2"), (true, "1"), (false, "1")] {
            let answer = world
                .request(&chat(MODEL, stream, &format!("{TWO_TOOLS}{choice}")))
                .await;
            assert_eq!(
                ChatContent::of(&answer),
                ChatContent::call(),
                "{choice} {stream}"
            );
            assert_eq!(
                answer.head.header("x-samewire-attempts"),
                Some(attempts),
                "{choice} {stream}"
            );
        }
        for attempt in &world.engine.attempts()[1..] {
            let body = attempt.json();
            assert_eq!(body["tool_choice"], "none");
            let seen = body["tools"].as_array().unwrap().len();
            assert_eq!(
                seen,
                if choice == named { 1 } else { 2 },
                "the model sees what it may call"
            );
        }
        world.samewire.finished(3).await;
        let flags = "--enable-auto-tool-choice --tool-call-parser hermes";
        let warned = |line: &&String| line.contains("WARN") && line.contains(flags);
        assert_eq!(world.samewire.logs().iter().filter(warned).count(), 1);
        let metrics = world.samewire.metrics().await;
        assert!(
            metrics
                .lines()
                .any(|line| line.contains(r#"rule="calls_in_text"} 3"#)),
            "{metrics}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn tools_of_responses_work_on_a_vllm_without_a_parser_of_calls() {
    for choice in [
        "",
        r#","tool_choice":"required""#,
        r#","tool_choice":{"type":"function","name":"weather"}"#,
    ] {
        for (stream, attempts) in [(true, 2), (false, 2)] {
            let world = World::start(without_parser(&PIECES), Setup::new()).await;
            let request = format!(
                r#""model":"Qwen/Qwen3-8B","input":"hi","stream":{stream},"tools":[{{"type":"function","name":"weather"}}]{choice}"#
            );
            let answer = world.request(&ask(&request)).await;
            let response = if stream {
                last(&events(&answer)).clone()
            } else {
                object(&answer)
            };
            let items = response["output"]
                .as_array()
                .unwrap_or_else(|| panic!("{response}"));
            let kinds: Vec<_> = items
                .iter()
                .map(|item| item["type"].as_str().unwrap())
                .collect();
            assert_eq!(kinds, ["reasoning", "message", "function_call"], "{choice}");
            assert_eq!(
                [&items[2]["name"], &items[2]["arguments"]],
                ["weather", "{\"city\":\"Bern\"}"]
            );
            assert_eq!(world.engine.attempt_count(), attempts, "{choice}");
            world.end().await;
        }
    }
}

/// A model of an unknown family: the client gets the engine's own words, and the option that helps.
#[tokio::test]
async fn a_refusal_for_want_of_a_parser_names_the_option() {
    let world = World::start(without_parser(&PIECES), Setup::new()).await;
    for stream in [true, false] {
        let answer = world.request(&chat("m", stream, TWO_TOOLS)).await;
        assert_eq!(
            (
                answer.head.status,
                answer.head.header("x-samewire-attempts")
            ),
            (400, Some("1"))
        );
        let message = answer.fault().message;
        assert!(
            message.starts_with("\"auto\" tool choice requires --enable-auto-tool-choice"),
            "{message}"
        );
        assert!(message.contains("option 'parser'"), "{message}");
    }
    world.end().await;
}

const HARMONY: [&str; 7] = [
    "<|chan",
    "nel|>analysis<|message|>I ",
    "look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>",
    "{\"city\":",
    "\"Bern\"}<|call|>",
    "<|start|>assistant<|channel|>final<|message|>",
    "One moment.<|return|>",
];

/// gpt-oss in an engine that leaves Harmony in the text: by its name, and by its first words.
#[tokio::test]
async fn gpt_oss_is_read_wherever_it_is_recognised() {
    for (model, more) in [
        ("openai/gpt-oss-20b", ""),
        ("openai/gpt-oss-20b", TOOLS),
        ("m", TOOLS),
    ] {
        let engine = Engine::answering(|attempt: &Attempt| said(attempt, &HARMONY)).await;
        let world = World::start_as(engine, "sglang", Setup::new()).await;
        for stream in [true, false] {
            assert_eq!(
                ChatContent::of(&world.request(&chat(model, stream, more)).await),
                ChatContent::call(),
                "{model} {stream}"
            );
        }
        // The engine keeps the special tokens by itself.
        for attempt in world.engine.attempts() {
            assert!(
                !attempt.text().contains("skip_special_tokens"),
                "{}",
                attempt.text()
            );
        }
        until("both are logged", || {
            world.samewire.request_lines().len() >= 2
        })
        .await;
        let flags = "--reasoning-parser gpt-oss --tool-call-parser gpt-oss";
        let warned = |line: &&String| line.contains("WARN") && line.contains(flags);
        assert_eq!(world.samewire.logs().iter().filter(warned).count(), 1);
        world.end().await;
    }
}

/// Text that only begins like Harmony stays, and so does that of an engine that parses gpt-oss itself.
#[tokio::test]
async fn what_is_no_harmony_stays_as_it_is() {
    let text: [&[&str]; 3] = [
        &["<|chan", "ge|> is ", "not a marker"],
        &["<|start|>", "over"],
        &["<"],
    ];
    for pieces in text {
        let pieces: Vec<&'static str> = pieces.to_vec();
        let expected = ChatContent::text("", &pieces.concat());
        let engine = Engine::answering(move |attempt: &Attempt| said(attempt, &pieces)).await;
        let world = World::start(engine, Setup::new()).await;
        for stream in [true, false] {
            assert_eq!(
                ChatContent::of(&world.request(&chat("m", stream, "")).await),
                expected,
                "{stream}"
            );
        }
        world.end().await;
    }
    let engine = Engine::script(
        Script::stream()
            .delta(r#"{"reasoning":"I look."}"#, "null")
            .text("One <|channel|>moment.")
            .finish("stop")
            .usage(3, 9)
            .done()
            .end(),
    );
    let world = World::start(engine.await, Setup::new()).await;
    let told = ChatContent::of(&world.request(&chat("openai/gpt-oss-20b", true, "")).await);
    assert_eq!(told, ChatContent::text("I look.", "One <|channel|>moment."));
    world.end().await;
}

/// The chat template has opened the block: the text is reasoning up to its end, unless the engine reports reasoning.
#[tokio::test]
async fn models_that_think_from_the_start_are_known_by_their_names() {
    const THOUGHT: [&str; 3] = ["I lo", "ok.</thi", "nk>One moment."];
    for model in [
        "deepseek-ai/DeepSeek-R1",
        "Qwen/QwQ-32B",
        "Qwen/Qwen3-4B-Thinking-2507",
    ] {
        let engine = Engine::answering(|attempt: &Attempt| said(attempt, &THOUGHT)).await;
        let world = World::start(engine, Setup::new()).await;
        for stream in [true, false] {
            let told = ChatContent::of(&world.request(&chat(model, stream, "")).await);
            assert_eq!(
                told,
                ChatContent::text("I look.", "One moment."),
                "{model} {stream}"
            );
        }
        world.end().await;
    }
    // An answer constrained to a format begins with it, and a model told not to reason begins with its answer.
    let engine = Engine::answering(|attempt: &Attempt| said(attempt, &["{\"a\"", ":1}"])).await;
    let world = World::start(engine, Setup::new()).await;
    for more in [
        r#","response_format":{"type":"json_object"}"#,
        r#","structured_outputs":{"regex":"a"}"#,
        r#","chat_template_kwargs":{"enable_thinking":false}"#,
        r#","include_reasoning":false"#,
    ] {
        let told = ChatContent::of(
            &world
                .request(&chat("deepseek-ai/DeepSeek-R1", true, more))
                .await,
        );
        assert_eq!(told, ChatContent::text("", "{\"a\":1}"), "{more}");
    }
    world.end().await;
    // An engine that has once sent parsed reasoning is known to parse.
    let parsed = |attempt: &Attempt| match attempt.text().contains("think hard") {
        true => {
            let script = Script::stream().delta(r#"{"reasoning":"I look."}"#, "null");
            script
                .text("One moment.")
                .finish("stop")
                .usage(3, 9)
                .done()
                .end()
        }
        false => said(attempt, &["At once."]),
    };
    let world = World::start(Engine::answering(parsed), Setup::new()).await;
    let hard = chat("deepseek-ai/DeepSeek-R1", true, r#","user":"think hard""#);
    assert_eq!(
        ChatContent::of(&world.request(&hard).await),
        ChatContent::text("I look.", "One moment.")
    );
    world.samewire.finished(1).await;
    let told = ChatContent::of(
        &world
            .request(&chat("deepseek-ai/DeepSeek-R1", true, ""))
            .await,
    );
    assert_eq!(told, ChatContent::text("", "At once."));
    world.end().await;
}

/// Returns the script of an answer with this text, streamed or whole.
fn saying(text: &str, stream: bool) -> Script {
    if stream {
        return Script::stream().text(text).text("x").stop();
    }
    let text = json_string(text);
    Script::ok(format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":{text}}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}}}"#
    ))
}

/// A text that begins with a mark, and that no option has read, passes: operators are told once for each model, with
/// the engine's flag and the option, and each is counted.
#[tokio::test]
async fn marks_that_stay_in_the_text_are_told() {
    for (text, mark, flags, option) in [
        (
            "<think>CANARY",
            "reasoning",
            "--reasoning-parser NAME",
            r#"parser = \"auto\""#,
        ),
        (
            "<tool_call>CANARY",
            "calls",
            "--enable-auto-tool-choice --tool-call-parser NAME",
            r#"parser = \"auto\""#,
        ),
        (
            "<|channel|>analysis<|message|>CANARY",
            "harmony",
            "--reasoning-parser openai_gptoss --enable-auto-tool-choice --tool-call-parser openai",
            r#"harmony = \"text\""#,
        ),
    ] {
        let engine = Engine::answering(move |asked: &Attempt| {
            saying(text, asked.text().contains("\"stream\":true"))
        })
        .await;
        let world = World::start(engine, Setup::new().set("parser=off")).await;
        for stream in [true, false] {
            for (path, input) in [
                (
                    "/v1/chat/completions",
                    r#""messages":[{"role":"user","content":"a"}]"#,
                ),
                ("/v1/responses", r#""input":"a""#),
                (
                    "/v1/messages",
                    r#""max_tokens":9,"messages":[{"role":"user","content":"a"}]"#,
                ),
            ] {
                let body = format!(r#"{{"model":"m","stream":{stream},{input}}}"#);
                let answer = world.post(path, body).await;
                assert!(
                    answer.text().contains("CANARY"),
                    "{path}: {}",
                    answer.text()
                );
            }
        }
        let counted = "samewire_rewrites_total{engine=\"vllm\",rule=\"text_markup\"}";
        world.samewire.metric_becomes(counted, 6).await;
        let lines = world.samewire.logged("a mark that nothing reads", 1).await;
        for part in [
            format!(r#""mark":"{mark}""#),
            format!(r#""flags":"{flags}""#),
            format!(r#""option":"{option}""#),
            r#""level":"WARN""#.to_owned(),
            r#""model":"m""#.to_owned(),
        ] {
            assert!(lines[0].contains(&part), "{part}: {}", lines[0]);
        }
        assert_eq!(world.samewire.count_logged("CANARY"), 0);
        world.end().await;
    }
    // A text that an option reads, or that begins otherwise, is not told.
    for (text, option) in [
        ("<think>a</think>b", "parser=auto"),
        ("a <think>", "parser=off"),
    ] {
        let world = World::start(saying(text, true), Setup::new().set(option)).await;
        world.stream("").await;
        until("it is logged", || {
            !world.samewire.request_lines().is_empty()
        })
        .await;
        assert!(!world.samewire.metrics_now().await.contains("text_markup"));
        assert_eq!(world.samewire.count_logged("a mark that nothing reads"), 0);
        world.end().await;
    }
}
