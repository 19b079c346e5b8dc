//! Events that are written and read again are the same events.

use super::feed::Feed;
use crate::cases::{Case, Cut};
use samewire::wire::Api;
use serde_json::{Value, json};

const LONGEST: usize = 64;

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let legacy = feed.byte() & 1 == 1;
    let (mut chunks, mut content, mut reasoning) = (Vec::new(), String::new(), String::new());
    let mut calls: Vec<String> = Vec::new();
    while !feed.0.is_empty() && chunks.len() < LONGEST {
        let kind = feed.byte();
        let text = feed.text();
        let delta = match kind % 4 {
            _ if legacy => {
                content.push_str(&text);
                json!({"index": 0, "text": text})
            }
            0 | 1 => {
                content.push_str(&text);
                json!({"index": 0, "delta": {"content": text}})
            }
            2 => {
                reasoning.push_str(&text);
                json!({"index": 0, "delta": {"reasoning_content": text}})
            }
            _ => {
                let index = calls.len();
                let arguments = json!({ "a": text }).to_string();
                let (front, back) = arguments.split_at(5);
                let id = format!("call_{index}");
                let start = json!([{"index": index, "id": id, "type": "function",
                    "function": {"name": "f", "arguments": front}}]);
                chunks.push(json!({"index": 0, "delta": {"tool_calls": start}}));
                let rest = json!([{"index": index, "function": {"arguments": back}}]);
                calls.push(arguments.clone());
                json!({"index": 0, "delta": {"tool_calls": rest}})
            }
        };
        chunks.push(delta);
    }
    let last = if legacy { json!({"index": 0, "text": ""}) } else { json!({"index": 0, "delta": {}}) };
    chunks.push(finished(last, if calls.is_empty() { "stop" } else { "tool_calls" }));
    let case = case(legacy, &chunks);
    let written = case.run(&Cut::Whole);
    assert_eq!(written.status, 200, "{}", written.body);
    let again = case.fed_back(&written.body);
    assert_eq!(again.transcript(), case.transcript(), "{}", written.body);
    assert_eq!(again.run(&Cut::Bytes), written);
    assert_eq!(said(&written.body), (content, reasoning, calls.concat()), "{}", written.body);
}

fn finished(mut choice: Value, reason: &str) -> Value {
    choice["finish_reason"] = json!(reason);
    choice
}

fn case(legacy: bool, chunks: &[Value]) -> Case {
    let api = if legacy { Api::Completions } else { Api::Chat };
    let chunk = |choice| json!({"id": "a", "created": 1, "model": "m", "choices": [choice]});
    let events = chunks.iter().map(|choice| format!("data: {}\n\n", chunk(choice)));
    Case {
        name: "events".to_owned(),
        api,
        upstream: api,
        engine: "vllm".to_owned(),
        input: (events.collect::<String>() + "data: [DONE]\n\n").into_bytes(),
        ..Case::default()
    }
}

/// Returns content, reasoning and arguments of a canonical stream, read line by line.
fn said(body: &str) -> (String, String, String) {
    let (mut content, mut reasoning, mut arguments) = Default::default();
    let add = |to: &mut String, from: &Value| to.push_str(from.as_str().unwrap_or_default());
    // Canonical output has no line separators but the line end, so any way of splitting lines works.
    for data in body.split('\n').filter_map(|line| line.strip_prefix("data: {")) {
        let chunk: Value = serde_json::from_str(&format!("{{{data}")).expect("a frame is JSON");
        let choice = &chunk["choices"][0];
        add(&mut content, &choice["text"]);
        add(&mut content, &choice["delta"]["content"]);
        add(&mut reasoning, &choice["delta"]["reasoning_content"]);
        add(&mut arguments, &choice["delta"]["tool_calls"][0]["function"]["arguments"]);
    }
    assert!(!body.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}']), "a line end in a line");
    (content, reasoning, arguments)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = ["", "a", "\n\r\n\"\\\u{0}", "\u{85}\u{2028}\u{2029}\u{1f600}é", "data: [DONE]\n\n", "</think>"];
    let mut all = Vec::new();
    for legacy in [0, 1] {
        for first in 0..4 {
            let mut seed = vec![legacy];
            for (kind, text) in (first..).zip(texts) {
                seed.extend([kind, text.len() as u8]);
                seed.extend(text.as_bytes());
            }
            all.push(seed);
        }
    }
    all
}
