//! Text in which nothing is left to parse: with the default, `parser = "auto"`, it passes as with `off`.

use crate::cases::{Case, Cut, captures, responses};
use crate::texts::{cut, said, stream, whole};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Recordings of engines that have left reasoning or a call in the text. All other recordings have nothing to parse.
const LEFT: [&str; 16] = [
    "llamacpp/think-opened-tool-whole",
    "sglang/gptoss-markup-raw",
    "sglang/gptoss-tool-role-raw-whole",
    "sglang/reasoning-text-tool-raw",
    "sglang/think-raw",
    "sglang/think-raw-length",
    "sglang/tool-broken-raw-whole",
    "vllm/cached-tokens-whole",
    "vllm/reasoning-text-tool-raw",
    "vllm/text-length",
    "vllm/text-usage",
    "vllm/think-raw",
    "vllm/think-raw-length",
    "vllm/tool-broken-whole",
    "vllm/tool-in-reasoning-whole",
    "vllm/tool-length-whole",
];

/// Models of several families, none of which is taken to begin inside reasoning.
const MODELS: [&str; 8] = [
    "m",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-Coder-30B",
    "openai/gpt-oss-20b",
    "meta-llama/Llama-3.3-70B",
    "mistralai/Mistral-Small",
    "deepseek-ai/DeepSeek-V3.1",
    "google/gemma-4-31b",
];

#[test]
fn recordings_with_nothing_to_parse_are_the_same() {
    let mut changed = BTreeSet::new();
    for case in captures()
        .into_iter()
        .chain(responses())
        .map(|fixture| fixture.case)
    {
        let off = case.clone().unparsed().run(&Cut::Whole);
        if case.run(&Cut::Whole) != off {
            changed.insert(case.name);
        }
    }
    assert_eq!(changed, LEFT.map(str::to_owned).into());
}

fn of_model(case: Case, model: &str, tools: bool) -> Case {
    let mut request = case.request.clone();
    request["model"] = model.into();
    if !tools {
        request.as_object_mut().unwrap().remove("tools");
    }
    Case {
        request,
        options: json!({}),
        ..case
    }
}

/// Generates prose with code, and with words and signs that parsers look for.
fn prose() -> impl Strategy<Value = String> {
    let parts = vec![
        "a",
        " word",
        " ",
        "\n",
        "\n\n",
        "é",
        "世界",
        "\"q\"",
        "\\",
        "{",
        "}",
        "[1](x)",
        "<p>",
        "</div>",
        "<",
        "</",
        "a < b",
        "`<tool_call>`",
        "The tag <tool_call> begins a call. ",
        "</tool_call> ends it. ",
        "Models write </think> after <think>. ",
        "{\"name\": \"f\"}",
        "```json\n{\"a\": [1, 2]}\n```\n",
        "f(a=1)",
        "[f]",
        "functions.f:0 ",
        "<function= begins one. ",
        "|>",
    ];
    prop::collection::vec(select(parts), 0..20)
        .prop_map(|parts| format!("Sure: {}", parts.concat()))
}

/// Checks that an answer may begin with what a call or Harmony may begin with.
#[test]
fn beginnings_that_begin_nothing_stay() {
    let format = json!({"type": "json_object"});
    for (model, format, text) in [
        ("m", Value::Null, "<|channel|> is the marker of a channel."),
        (
            "m",
            Value::Null,
            "<|start|>assistant is how an answer begins.",
        ),
        (
            "openai/gpt-oss-20b",
            Value::Null,
            "Use <|end|> and <|start|>assistant there.",
        ),
        (
            "meta-llama/Llama-3.3-70B",
            Value::Null,
            r#"{"name": "f", "age": 3}"#,
        ),
        (
            "meta-llama/Llama-3.3-70B",
            format,
            r#"{"name": "f", "parameters": {"a": 1}}"#,
        ),
    ] {
        let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
        for case in [stream("off", &letters, "stop"), whole("off", text, "stop")] {
            let mut case = of_model(case, model, true);
            if !format.is_null() {
                case.request["response_format"] = format.clone();
            }
            let said = said(&case);
            assert_eq!(
                (said.content.as_str(), said.reasoning.as_str()),
                (text, ""),
                "{model}"
            );
            assert!(
                said.calls.is_empty() && said.finish == "stop",
                "{model}: {text}"
            );
        }
    }
}

/// Adds log probabilities to a stream: each character is a token.
fn with_logprobs(mut case: Case) -> Case {
    let add = |line: &str| {
        let Some(Ok(mut chunk)) = line
            .strip_prefix("data: ")
            .map(serde_json::from_str::<Value>)
        else {
            return line.to_owned();
        };
        if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str() {
            let token = |token: &str| json!({"token": token, "logprob": -0.5, "bytes": token.as_bytes(), "top_logprobs": []});
            let tokens: Vec<_> = text.split_inclusive(|_: char| true).map(token).collect();
            chunk["choices"][0]["logprobs"] = json!({ "content": tokens });
        }
        format!("data: {chunk}")
    };
    let input = String::from_utf8(case.input).unwrap();
    let lines: Vec<_> = input.split('\n').map(add).collect();
    case.input = lines.join("\n").into_bytes();
    case.request["logprobs"] = true.into();
    case
}

proptest! {
    #![proptest_config(crate::seeded::seeded(512))]

    #[test]
    fn prose_stays_content(
        text in prose(),
        model in select(MODELS.to_vec()),
        tools in any::<bool>(),
        places in prop::collection::vec(any::<Index>(), 0..30),
    ) {
        let pieces = cut(&text, &places);
        for case in [stream("off", &pieces, "stop"), whole("off", &text, "stop")] {
            let said = said(&of_model(case, model, tools));
            prop_assert_eq!((said.content.as_str(), said.reasoning.as_str()), (text.as_str(), ""), "{}", model);
            prop_assert!(said.calls.is_empty() && said.finish == "stop");
        }
    }

    /// Text without the first character of any mark comes in the frames in which the engine sent it.
    #[test]
    fn plain_text_keeps_its_frames(
        words in prop::collection::vec(select(vec!["a", " word", "\n", "\n\n", "é", "世界", "\"q\"", "\\", "{", "(1)", "f(a=1)"]), 0..20),
        tools in any::<bool>(),
        logprobs in any::<bool>(),
    ) {
        let pieces: Vec<_> = std::iter::once("Sure").chain(words).collect();
        let case = of_model(stream("off", &pieces, "stop"), "m", tools);
        let auto = if logprobs { with_logprobs(case) } else { case };
        let off = auto.clone().unparsed();
        prop_assert_eq!(auto.run(&Cut::Whole), off.run(&Cut::Whole));
    }
}
