//! Advice of `doctor`: `--through` tries each configuration that it prints, which has to repair its finding.

use crate::conform::Outcome;
use crate::doctor::examine;
use crate::sim::prelude::*;

const CALL: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

/// Reasoning of a model, and its text or call.
#[derive(Clone, Copy)]
struct Said {
    reasoning: &'static str,
    text: &'static str,
}

/// Form in which an engine writes it, as members of a message.
type Written = fn(Said) -> String;

/// Answers a chat with these members of a message, whole or as a stream. The tokens are one for three characters.
fn chat(is_stream: bool, message: &str, finish: &str) -> Script {
    let tokens = u32::try_from(message.len() / 3).unwrap();
    if is_stream {
        let chunks = Script::stream().delta(&format!("{{{message}}}"), "null");
        return chunks.finish(finish).usage(30, tokens).done().end();
    }
    let body = format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant",{message}}},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":30,"completion_tokens":{tokens},"total_tokens":{}}}}}"#,
        30 + tokens
    );
    Script::ok(&body)
}

/// Starts a vLLM that serves a model of this name and leaves what `written` makes of the model's words.
async fn engine(model: &str, written: Written) -> Engine {
    let engine = Engine::answering(move |attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        if attempt.target != "/v1/chat/completions" || !body["messages"].is_array() {
            return Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#);
        }
        let text = if body["tools"][0].is_object() {
            CALL
        } else {
            "Hello there, how are you today?"
        };
        chat(
            body["stream"] == true,
            &written(Said {
                reasoning: "I think about it.\n",
                text,
            }),
            "stop",
        )
    })
    .await;
    serves(&engine, model);
    engine
}

fn serves(engine: &Engine, model: &str) {
    let models = format!(
        r#"{{"object":"list","data":[{{"id":"{model}","object":"model","owned_by":"vllm","max_model_len":8192}}]}}"#
    );
    engine.set_models(Script::ok(&models));
    engine.set_route("/version", Script::ok(r#"{"version":"0.33.0"}"#));
}

fn content(text: &str) -> String {
    format!(r#""content":{}"#, json_string(text))
}

async fn examined(engine: &Engine) -> Outcome {
    examine(engine, &["--through", "--json"]).await
}

/// Fails unless samewire repairs every finding for which a key of its configuration is advised, and these among them.
fn assert_mended(outcome: &Outcome, ids: &[&str]) {
    let report = outcome.json();
    let findings = report["findings"].as_array().unwrap();
    let advised = findings
        .iter()
        .filter(|finding| finding["config"][0].is_object());
    for finding in advised.clone() {
        assert_eq!(finding["through"]["severity"], "fine", "{finding}");
    }
    let advised: Vec<_> = advised
        .map(|finding| finding["id"].as_str().unwrap())
        .collect();
    for id in ids {
        assert!(advised.contains(id), "{id}: {advised:?} {}", outcome.out);
    }
}

/// Fails unless samewire repairs these findings, whether or not a key of its configuration is advised.
fn assert_repaired(outcome: &Outcome, ids: &[&str]) {
    for id in ids {
        let finding = outcome.check(id);
        assert_eq!(finding["severity"], "broken", "{finding}");
        assert_eq!(finding["through"]["severity"], "fine", "{finding}");
    }
}

/// Chat templates that open the block leave its first tag out of the text (llama.cpp b11549 without its parsers).
#[tokio::test]
async fn reasoning_and_calls_in_the_text_are_mended() {
    let opened = |said: Said| content(&format!("{}</think>\n\n{}", said.reasoning, said.text));
    let begun = |said: Said| {
        content(&format!(
            "<think>\n{}</think>\n\n{}",
            said.reasoning, said.text
        ))
    };
    let rows: [(&str, Written, &str); 4] = [
        ("Qwen3-8B", begun, ""),
        (
            "Qwen3-8B",
            opened,
            "wire = { think = { mode = \"forced\", start = \"<think>\", end = \"</think>\" } }",
        ),
        ("QwQ-32B", opened, ""),
        (
            "mine",
            opened,
            "wire = { think = { mode = \"forced\", start = \"<think>\", end = \"</think>\" } }",
        ),
    ];
    for (model, written, wire) in rows {
        let engine = engine(model, written).await;
        let outcome = examined(&engine).await;
        let config = outcome.json()["advice"]["config"]
            .as_str()
            .unwrap()
            .to_owned();
        let line = config.lines().find(|line| line.starts_with("wire"));
        assert_eq!(line.unwrap_or_default(), wire, "{model}: {config}");
        assert_mended(&outcome, &[]);
        assert_repaired(&outcome, &["reasoning-parser", "tools-parsed"]);
    }
}

/// A parser of reasoning for another model takes all for reasoning, calls among it (vLLM 0.33.0 with `deepseek_r1` before a
/// Qwen3 that does not think).
#[tokio::test]
async fn answers_that_are_all_reasoning_are_mended_where_they_are_whole() {
    let engine = engine("Qwen3-8B", |said| {
        format!(r#""content":"","reasoning":{}"#, json_string(said.text))
    })
    .await;
    let outcome = examined(&engine).await;
    assert_mended(&outcome, &["reasoning-only", "tools-required"]);
    // A stream has sent its reasoning before anybody knows: only the engine's flag helps.
    let stream = outcome.check("reasoning-only-stream");
    assert_eq!(
        (&stream["severity"], &stream["samewire"]),
        (&"broken".into(), &Value::Null),
        "{stream}"
    );
    assert_eq!(stream["engine"], "--reasoning-parser qwen3");
    let config = outcome.json()["advice"]["config"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        config.contains("wire = { promote_reasoning = true }"),
        "{config}"
    );
}

/// A vLLM 0.33.0 with `--tool-call-parser qwen3_coder` swallows the calls of a model that writes them otherwise.
#[tokio::test]
async fn a_parser_of_calls_for_another_model_is_found() {
    let engine = Engine::answering(|attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        let is_stream = body["stream"] == true;
        if !body["tools"][0].is_object() {
            return chat(
                is_stream,
                &content("Hello there, how are you today?"),
                "stop",
            );
        }
        let said = r#""content":null,"reasoning":"\nI should call the weather tool.\n""#;
        let whole = String::from_utf8(chat(false, said, "stop").bytes()).unwrap();
        let body = whole.split("\r\n\r\n").nth(1).unwrap();
        let tokens = Value::from(60);
        let mut body: Value = serde_json::from_str(body).unwrap();
        body["usage"]["completion_tokens"] = tokens;
        match is_stream {
            true => {
                let chunks = Script::stream().delta(&format!("{{{said}}}"), "null");
                chunks.finish("stop").usage(30, 60).done().end()
            }
            false => Script::ok(body),
        }
    })
    .await;
    serves(&engine, "Qwen3-8B");
    let outcome = examined(&engine).await;
    let found = outcome.check("tools-swallowed");
    assert_eq!(found["severity"], "broken", "{found}");
    assert_eq!(
        found["engine"],
        "--enable-auto-tool-choice --tool-call-parser hermes"
    );
    // samewire does not see the call either, and nobody says that it helps.
    assert_eq!(
        (&found["samewire"], &found["config"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(found["through"]["severity"], "broken", "{found}");
}

/// vLLM's front end in Rust says in its own words that it has no parser of calls (0.33.0).
#[tokio::test]
async fn the_flag_for_calls_is_named_for_the_front_end_in_rust() {
    let engine = Engine::answering(|attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        let is_stream = body["stream"] == true;
        match (body["tools"][0].is_object(), body["tool_choice"] == "none") {
            (true, false) => Script::new().json(
                "500 Internal Server Error",
                r#"{"error":{"message":"failed to submit chat request: tool parsing is disabled by frontend configuration","type":"InternalServerError","param":null,"code":500}}"#,
            ),
            (true, true) => chat(is_stream, &content(CALL), "stop"),
            _ if is_stream => Script::new().head_sse().ev(r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#).stop(),
            _ => chat(is_stream, &content("Hello there."), "stop"),
        }
    })
    .await;
    serves(&engine, "Qwen3-8B");
    let outcome = examined(&engine).await;
    assert_eq!(
        outcome.check("tools-accepted")["engine"],
        "--enable-auto-tool-choice --tool-call-parser hermes"
    );
    assert_mended(&outcome, &[]);
    assert_repaired(&outcome, &["tools-accepted"]);
}

/// Servers without a list of models, without a finish reason, or with a template that takes one system message.
#[tokio::test]
async fn other_keys_of_the_configuration_mend_what_they_are_printed_for() {
    let unfinished = Engine::answering(|attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        let systems = body["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|one| one["role"] == "system");
        match body["stream"] == true {
            _ if systems.count() > 1 || body["messages"][2]["role"] == "system" => Script::new()
                .json(
                    "400 Bad Request",
                    r#"{"error":{"message":"System message must be at the beginning."}}"#,
                ),
            true => Script::stream().text("Hi there").done().end(),
            false => chat(false, &content("Hi there"), "stop"),
        }
    })
    .await;
    unfinished.set_models(Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#));
    let outcome = examined(&unfinished).await;
    assert_mended(
        &outcome,
        &[
            "models-list",
            "finish-missing",
            "system-late",
            "system-twice",
        ],
    );
}
