//! An engine that leaves reasoning and calls in the text (`parser`), through the process: what it is asked, what clients of
//! both APIs get, and what operators are told.

use crate::canonical::Canonical;
use crate::responses::{ask, events, last};
use crate::sim::{Attempt, Engine, PATIENCE, Request, Script, Setup, World, json_string, until};
use serde_json::Value;

/// What the model writes, as the engine sends it piece by piece.
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
        let script = PIECES.iter().fold(Script::new().head_sse().role(), |script, piece| script.text(piece));
        script.finish("stop").usage(3, 9).done().end()
    })
    .await
}

fn canonical() -> String {
    let call = |fragment: &str| {
        format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{}}}}}]}}"#, json_string(fragment))
    };
    let head = r#"{"tool_calls":[{"index":0,"id":"call_1_0_0","type":"function","function":{"name":"weather","arguments":""}}]}"#;
    let answer = Canonical::new().role().reasoning("I look.").content("One moment.").delta(head, "null");
    let answer = answer.delta(&call("{\"city\":"), "null").delta(&call("\"Bern\"}"), "null");
    answer.finish("tool_calls").done().text().to_owned()
}

#[tokio::test]
async fn reasoning_and_calls_come_out_of_the_text() {
    let world = World::start(engine().await, Setup::new().set("parser=qwen3")).await;
    assert_eq!(world.ask(&Request::stream(TOOLS)).await.text(), canonical());
    let request = r#""model":"m","input":"hi","stream":true,"tools":[{"type":"function","name":"weather"}]"#;
    let streamed = events(&world.ask(&ask(request)).await);
    let items = last(&streamed)["output"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!([&items[2]["name"], &items[2]["arguments"]], ["weather", "{\"city\":\"Bern\"}"]);
    world.end().await;
}

/// Nobody has said what the engine leaves in the text: it is found, and said once.
#[tokio::test]
async fn what_the_engine_could_have_done_is_said_once() {
    let world = World::start(engine().await, Setup::new().set("parser=auto")).await;
    for _ in 0..3 {
        assert_eq!(world.ask(&Request::stream(TOOLS)).await.text(), canonical());
    }
    until("all are logged", PATIENCE, || world.samewire.request_lines().len() >= 3).await;
    let warned = |text: &&String| text.contains("parsed here") && text.contains("WARN");
    assert_eq!(world.samewire.logs().iter().filter(warned).count(), 1);
    world.end().await;
}

/// vLLM without a parser of calls takes none of the model's own choice (engine-quirks E.2).
#[tokio::test]
async fn vllm_is_told_that_nothing_is_called() {
    let world = World::start_as(engine().await, "vllm", Setup::new().set("parser=qwen3")).await;
    assert_eq!(world.ask(&Request::stream(TOOLS)).await.text(), canonical());
    world.ask(&ask(r#""model":"m","input":"hi","tools":[{"type":"function","name":"weather"}]"#)).await;
    for attempt in world.engine.attempts() {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap();
        assert_eq!(body["tool_choice"], "none");
        assert_eq!(body["tools"][0]["function"]["name"], "weather", "the model knows what it may call");
    }
    world.end().await;
}
