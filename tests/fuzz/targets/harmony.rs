//! Harmony text that an engine left unparsed: no panic, canonical grammar, and independence of the cuts.

use super::feed::{Feed, some};
use crate::canonical;
use crate::cases::{Case, Cut, vectors};
use crate::laws::response;
use samewire::wire::Api;
use serde_json::{Value, json};

const MARKERS: [&str; 7] =
    ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"];

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let way = feed.byte();
    let size = usize::from(feed.byte()) + 1;
    let text = String::from_utf8_lossy(feed.rest()).into_owned();
    let finish = if way & 1 == 0 { "stop" } else { "length" };
    let characters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = characters.chunks(size).map(|piece| piece.iter().collect()).collect();
    let [one, cut] = [vec![text.clone()], pieces].map(|pieces| stream(Api::Chat, &pieces, finish));
    let answer = collected(&one, &cut, &format!("{text:?} in pieces of {size}"));
    if !MARKERS.iter().any(|marker| text.contains(marker)) && !begins_marker(&text) {
        assert_eq!(text_of(&answer), text, "{answer}");
    }
    let responses = stream(Api::Responses, &[text], finish);
    response::check(&Case { options: json!({}), ..responses }, &[size]).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Checks both cases, which differ in the cuts of their text only, and returns their answer as a whole one.
pub(super) fn collected(one: &Case, cut: &Case, what: &str) -> String {
    let [one, cut] = [one, cut].map(|case| {
        let answer = case.run(&Cut::Whole);
        canonical::check(case, &answer).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.body));
        assert_eq!(case.run(&Cut::Bytes), answer);
        let mut case = case.clone();
        case.request["stream"] = false.into();
        let whole = case.run(&Cut::Whole);
        (whole.status, whole.body)
    });
    assert_eq!(cut, one, "{what}");
    one.1
}

/// Returns the text of a whole answer.
pub(super) fn text_of(answer: &str) -> String {
    let object: Value = serde_json::from_str(answer).expect("JSON");
    object["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

/// Returns true if the end of the text could be the beginning of a marker.
fn begins_marker(text: &str) -> bool {
    MARKERS.iter().any(|marker| (1..marker.len()).any(|length| text.ends_with(&marker[..length])))
}

pub(super) fn stream(api: Api, pieces: &[String], finish: &str) -> Case {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]}))
    };
    let mut input: String = pieces.iter().map(|piece| chunk(json!({"content": piece}), Value::Null)).collect();
    input += &chunk(json!({}), json!(finish));
    input += "data: [DONE]\n\n";
    Case {
        name: "harmony".to_owned(),
        api,
        engine: "generic".to_owned(),
        options: json!({"harmony": "text"}),
        input: input.into_bytes(),
        now: 7,
        ..Case::default()
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut texts: Vec<String> = [
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
        "<|channel|>commentary<|message|>P<|end|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}",
        "<|start|>assistant<|channel|>analysis to=browser.search code<|message|>{\"query\":\"q\"}<|call|>",
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>x<|end|>plain",
        "plain < <| <|en <|end",
        "<|channel|>analysis to=python<|message|>1+1<|call|><|channel|>final<|message|>é\u{1f600}",
    ]
    .map(str::to_owned)
    .into();
    for (case, _) in vectors().into_iter().filter(|(case, _)| case.parses_text()) {
        texts.push(content(&case));
    }
    let mut all = Vec::new();
    for (at, text) in (0_u8..).zip(some(texts, 100)) {
        all.push([&[at % 2, at % 7], text.as_bytes()].concat());
    }
    all
}

/// Returns the text of a stream.
fn content(case: &Case) -> String {
    let text = String::from_utf8_lossy(&case.input);
    let chunks = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}
