//! Answers whose text holds reasoning and calls, as models write them.
#![allow(dead_code, reason = "each test crate uses its part")]

pub mod answers;
pub mod mixed;
pub mod written;

use crate::cases::{Case, Cut};
use proptest::sample::Index;
use samewire::wire::Ending;
use serde_json::{Value, json};
use written::Call;

/// Content of an answer, joined over all its frames, for comparison with what the model wrote.
#[derive(Debug, Default, PartialEq)]
pub struct AnswerParts {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<(String, String)>,
    pub finish: String,
}

pub fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "number": {"type": "integer"}, "share": {"type": "number"},
        "yes": {"type": "boolean"}, "list": {"type": "array"}, "thing": {"type": "object"}}});
    ["get_weather", "f", "g", "a.b-c"]
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": parameters}}))
        .into()
}

pub fn case(parser: &str, stream: bool, input: String, ending: Ending) -> Case {
    Case {
        name: "calls".to_owned(),
        engine: "generic".to_owned(),
        request: json!({"model": "m", "stream": stream, "tools": tools()}),
        options: json!({"parser": parser}),
        input: input.into_bytes(),
        events: stream,
        ending,
        now: 7,
        ..Case::default()
    }
}

/// Returns a case whose stream has its content in these pieces.
pub fn stream(parser: &str, pieces: &[&str], finish: &str) -> Case {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!(
            "data: {}\n\n",
            json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]})
        )
    };
    let chunks: String = pieces
        .iter()
        .map(|piece| chunk(json!({"content": piece}), Value::Null))
        .collect();
    let end = chunk(json!({}), finish.into());
    case(
        parser,
        true,
        format!("{chunks}{end}data: [DONE]\n\n"),
        Ending::Clean,
    )
}

pub fn whole(parser: &str, content: &str, finish: &str) -> Case {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish});
    let input = json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
    case(parser, false, input.to_string(), Ending::Whole)
}

pub fn said(case: &Case) -> AnswerParts {
    let answer = case.run(&Cut::Whole);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut said = AnswerParts::default();
    if !case.events {
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        add(&mut said, &body["choices"][0]["message"]);
        said.finish = body["choices"][0]["finish_reason"]
            .as_str()
            .unwrap()
            .to_owned();
        return said;
    }
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    let lines = answer
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    for line in lines.filter(|line| *line != "[DONE]") {
        let chunk: Value = serde_json::from_str(line).unwrap();
        let choice = &chunk["choices"][0];
        add(&mut said, &choice["delta"]);
        if let Some(finish) = choice["finish_reason"].as_str() {
            finish.clone_into(&mut said.finish);
        }
    }
    said
}

fn add(said: &mut AnswerParts, delta: &Value) {
    said.reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
    said.content += delta["content"].as_str().unwrap_or_default();
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        let at = call["index"]
            .as_u64()
            .map_or(said.calls.len(), |at| at as usize);
        if said.calls.len() <= at {
            said.calls.resize(at + 1, Default::default());
        }
        said.calls[at].0 += call["function"]["name"].as_str().unwrap_or_default();
        said.calls[at].1 += call["function"]["arguments"].as_str().unwrap_or_default();
    }
}

/// Cuts a text at these places, moved to character boundaries.
pub fn cut<'t>(text: &'t str, places: &[Index]) -> Vec<&'t str> {
    let mut at: Vec<_> = places
        .iter()
        .map(|place| text.floor_char_boundary(place.index(text.len() + 1)))
        .collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.dedup();
    at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Parses the arguments, so that they are compared as values: a format without JSON has no spelling to keep.
pub fn meant(calls: &[(String, String)]) -> Vec<Call> {
    let read = |(name, arguments): &(String, String)| {
        let value: Value =
            serde_json::from_str(arguments).unwrap_or_else(|why| panic!("{why}: {arguments}"));
        (name.clone(), value.as_object().unwrap().clone())
    };
    calls.iter().map(read).collect()
}

/// Returns the tag that ends reasoning, for families whose templates have opened it.
pub fn opened(parser: &str) -> &'static str {
    match parser {
        "olmo3" | "minimax_m2" | "step3" | "glm47" | "mimo" | "deepseek_v41" | "gigachat35"
        | "hy_v4" | "iquest_q1" | "minicpm5" => "</think>",
        "kimi_k3" => "<|close|>think<|sep|>",
        "plamo3" => "<|plamo:end_think:plamo|>",
        _ => "",
    }
}
