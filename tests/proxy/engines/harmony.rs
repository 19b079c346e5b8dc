//! An engine that leaves Harmony text unparsed (`harmony = "text"`), tested through the process: its requests, and
//! what clients of both APIs get.

use crate::canonical::Canonical;
use crate::responses::over_chat::{ask, events, last, object, prompt};
use crate::sim::prelude::*;

/// Model output, in the pieces that the engine sends.
const PIECES: [&str; 8] = [
    "<|channel|>analysis<|mess",
    "age|>I ",
    "look.<|end|>",
    "<|start|>assistant<|channel|>commentary<|message|>One moment.<|end|><|start|>",
    "assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>",
    "{\"city\":",
    "\"Bern\"}<|",
    "call|>",
];

async fn engine() -> Engine {
    Engine::answering(|attempt: &Attempt| {
        let body = attempt.json();
        if body["stream"] == true {
            let script = Script::stream();
            let script = PIECES.iter().fold(script, |script, piece| script.text(piece));
            return script.finish("stop").usage(3, 9).done().end();
        }
        let content = json_string(&PIECES.concat());
        Script::ok(format!(
                r#"{{"id":"chatcmpl-2","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":{content}}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3,"completion_tokens":9,"total_tokens":12}}}}"#
            ))
    })
    .await
}

fn parsed() -> Setup {
    Setup::new().set("harmony=text")
}

/// Returns the values of `skip_special_tokens` that the engine received.
fn asked(world: &World) -> Vec<Value> {
    let body = |attempt: Attempt| attempt.json();
    world
        .engine
        .attempts()
        .into_iter()
        .map(|attempt| body(attempt)["skip_special_tokens"].clone())
        .collect()
}

#[tokio::test]
async fn chat_gets_reasoning_text_and_a_call() {
    let world = World::start(engine(), parsed()).await;
    let call = |fragment: &str| {
        format!(
            r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{}}}}}]}}"#,
            json_string(fragment)
        )
    };
    let expected = Canonical::new()
        .role()
        .reasoning("I ")
        .reasoning("look.")
        .content("One moment.")
        .delta(
            r#"{"tool_calls":[{"index":0,"id":"call_1_0_0","type":"function","function":{"name":"weather","arguments":""}}]}"#,
            "null",
        )
        .delta(&call("{\"city\":\"Bern\"}"), "null")
        .finish("tool_calls")
        .done();
    assert_eq!(world.stream("").await.text(), expected.text());
    let whole = object(&world.request(&Request::plain("")).await);
    let message = &whole["choices"][0]["message"];
    assert_eq!(
        [&message["reasoning_content"], &message["content"]],
        ["I look.", "One moment."]
    );
    let function = json!({"name": "weather", "arguments": "{\"city\":\"Bern\"}"});
    assert_eq!(message["tool_calls"][0]["function"], function);
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(asked(&world), [false, false]);
    assert_eq!(
        world
            .samewire
            .sum("samewire_rewrites_total", &["rule=\"harmony\""])
            .await,
        6
    );
    world.end().await;
}

#[tokio::test]
async fn responses_get_an_item_for_each_message() {
    let world = World::start(engine(), parsed()).await;
    let streamed = events(&world.request(&prompt("m", r#","stream":true"#)).await);
    let whole = object(&world.request(&prompt("m", "")).await);
    for response in [last(&streamed), &whole] {
        let items = response["output"].as_array().unwrap();
        let kinds: Vec<_> = items
            .iter()
            .map(|item| item["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call"]);
        assert_eq!(
            [
                &items[0]["content"][0]["text"],
                &items[1]["content"][0]["text"]
            ],
            ["I look.", "One moment."]
        );
        assert_eq!(
            [&items[2]["name"], &items[2]["arguments"]],
            ["weather", "{\"city\":\"Bern\"}"]
        );
        assert_eq!(response["status"], "completed");
    }
    assert_eq!(asked(&world), [false, false]);
    world.end().await;
}

#[tokio::test]
async fn the_engine_is_asked_for_markers_unless_the_client_says_what_it_wants() {
    let world = World::start(engine(), parsed()).await;
    world
        .request(&Request::plain(r#","skip_special_tokens":true"#))
        .await;
    world
        .request(&ask(
            r#""model":"m","input":"hi","skip_special_tokens":true"#,
        ))
        .await;
    assert_eq!(asked(&world), [true, true]);
    world.end().await;
    let world = World::start(engine(), Setup::new().set("parser=off")).await;
    let whole = object(&world.request(&Request::plain("")).await);
    assert_eq!(whole["choices"][0]["message"]["content"], PIECES.concat());
    assert_eq!(asked(&world), [Value::Null]);
    world.end().await;
}
