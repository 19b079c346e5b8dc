//! Harmony on the level of tokens: words that only look like markers are words.

use super::{Cut, data, word};
use crate::cases::Case;
use bytes::Bytes;
use samewire::engine::named;
use samewire::plan::{Route, shape};
use samewire::request::ChatRequest;
use samewire::wire::{Api, OutputBuffer, Rewriter, Stamp, Vocabulary};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// Vocabulary of this test.
const TOKENS: [&[u8]; 12] = [
    b"analysis",
    b"final",
    b"commentary to",
    b"=functions.f ",
    b"json",
    b"We",
    b" say <|end|>",
    b"{\"a\":1}",
    b"\xc3",
    b"\xa9",
    b"assistant",
    b" to=functions.g",
];

const START: u32 = 200_006;
const CHANNEL: u32 = 200_005;
const CONSTRAIN: u32 = 200_003;
const MESSAGE: u32 = 200_008;
const END: u32 = 200_007;
const CALL: u32 = 200_012;
const RETURN: u32 = 200_002;

fn vocabulary() -> Arc<Vocabulary> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut file = String::new();
    for (rank, token) in TOKENS.iter().enumerate() {
        for three in token.chunks(3) {
            let bits = three
                .iter()
                .chain(&[0, 0])
                .take(3)
                .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
            for at in 0..4 {
                let letter = char::from(LETTERS[bits >> (18 - 6 * at) & 63]);
                file.push(if at > three.len() { '=' } else { letter });
            }
        }
        writeln!(file, " {rank}").unwrap();
    }
    Arc::new(Vocabulary::read(&file).unwrap())
}

/// Returns the frames after the role.
fn said(option: &str, chunks: &[Value], finish: &str) -> Vec<String> {
    let case = stream(option, chunks, finish);
    let bodies = [case.input.len(), 7, 1].map(|size| run(&case, size));
    assert!(
        bodies.iter().all(|body| *body == bodies[0]),
        "the cuts matter"
    );
    let frames = data(&bodies[0]).map(|chunk| chunk["choices"][0].clone());
    frames.skip(1).map(|choice| word(&choice)).collect()
}

/// Returns a stream of these chunks. Each holds the members of a choice besides its index: a delta, and tokens.
fn stream(option: &str, chunks: &[Value], finish: &str) -> Case {
    let frame = |choice: &Value| {
        let mut choice = choice.clone();
        choice["index"] = 0.into();
        format!(
            "data: {}\n\n",
            json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]})
        )
    };
    let mut input: String = chunks.iter().map(frame).collect();
    input += &frame(&json!({"delta": {}, "finish_reason": finish}));
    input += "data: [DONE]\n\n";
    let case = super::case(Api::Chat, true, input);
    Case {
        options: json!({"harmony": option}),
        ..case
    }
}

fn run(case: &Case, size: usize) -> String {
    let body = Bytes::from(case.request.to_string());
    let ask = ChatRequest::recall(Api::Chat, &body).unwrap();
    let options = Arc::new(serde_json::from_value(case.options.clone()).unwrap());
    let route = Route::new(named("vllm").unwrap(), options, 1 << 20);
    let route = Route {
        vocabulary: Some(vocabulary()),
        ..route
    };
    let mut rewriter = Rewriter::new(
        shape(&ask, &route),
        Stamp {
            now: 7,
            ..Stamp::default()
        },
    );
    let mut out = OutputBuffer::default();
    for read in case.input.chunks(size) {
        rewriter.push(read, &mut out);
    }
    rewriter.finish(case.ending, &mut out);
    String::from_utf8(out.to_vec()).unwrap()
}

/// Returns a chunk of an engine that shows special tokens.
fn chunk(text: &str, tokens: &[u32]) -> Value {
    json!({"delta": {"content": text}, "token_ids": tokens})
}

/// Returns a chunk of an engine that hides special tokens.
fn hidden(tokens: &[u32]) -> Value {
    json!({"delta": {}, "token_ids": tokens})
}

#[test]
fn markers_are_tokens() {
    let shown = [
        chunk("<|channel|>analysis<|message|>", &[CHANNEL, 0, MESSAGE]),
        chunk("We", &[5]),
        chunk(" say <|end|>", &[6]),
        chunk("<|end|><|start|>assistant", &[END, START, 10]),
        chunk("<|channel|>commentary to", &[CHANNEL, 2]),
        chunk(
            "=functions.f <|constrain|>json<|message|>",
            &[3, CONSTRAIN, 4, MESSAGE],
        ),
        chunk("{\"a\":1}", &[7]),
        chunk("<|call|>", &[CALL]),
    ];
    // Text that could begin a marker has its own frame, so that the output, read again, gives the same.
    let expected = [
        "r:We",
        "r: say ",
        "r:<|end|>",
        "f0:f",
        "a0:{\"a\":1}",
        "tool_calls",
    ];
    assert_eq!(said("tokens", &shown, "stop"), expected);
    // Parsed as text, the same characters end the message.
    assert_eq!(
        said("text", &shown, "stop")[..3],
        ["r:We", "r: say ", "f0:f"]
    );
    // An engine that hides special tokens: only the text differs.
    let concealed = [
        hidden(&[CHANNEL]),
        chunk("analysis", &[0]),
        hidden(&[MESSAGE]),
        chunk("We", &[5]),
        hidden(&[END, START]),
        chunk("assistant", &[10]),
        chunk("final", &[CHANNEL, 1]),
        chunk("We", &[MESSAGE, 5]),
        hidden(&[RETURN]),
    ];
    assert_eq!(said("tokens", &concealed, "stop"), ["r:We", "c:We", "stop"]);
}

#[test]
fn characters_of_several_tokens() {
    let begin = chunk("", &[]);
    let halves = [
        begin,
        chunk("<|channel|>final<|message|>", &[CHANNEL, 1, MESSAGE]),
        chunk("", &[8]),
        json!({"delta": {"content": "é"}, "token_ids": [9]}),
        chunk("We", &[5, 8]),
        chunk("<|return|>", &[RETURN]),
    ];
    // A chunk without text and tokens has no effect; half a character waits for the other half, or becomes U+FFFD.
    assert_eq!(
        said("tokens", &halves, "stop").concat(),
        "c:éc:Wec:\u{fffd}stop"
    );
}

/// The text is parsed if there are no tokens.
#[test]
fn the_text_is_read_where_there_are_no_tokens() {
    let chunks = [
        "<|channel|>analysis<|message|>A<|end|>",
        "<|channel|>final<|message|>B",
    ]
    .map(|text| json!({"delta": {"content": text}, "token_ids": null}));
    assert_eq!(said("tokens", &chunks, "stop"), ["r:A", "c:B", "stop"]);
    let case = stream("tokens", &chunks, "stop");
    assert!(
        case.run(&Cut::Whole)
            .body
            .contains("\"reasoning_content\":\"A\""),
        "also without a vocabulary"
    );
}

/// An engine that parses hides the parsed text, but still sends its tokens.
#[test]
fn an_engine_that_parses_is_left_alone() {
    let call = json!({"tool_calls": [{"index": 0, "id": "call_a", "function": {"name": "g", "arguments": "{}"}}]});
    let chunks = [
        hidden(&[CHANNEL]),
        hidden(&[2, 3, MESSAGE]),
        json!({"delta": call, "token_ids": [7]}),
        hidden(&[CALL]),
    ];
    assert_eq!(
        said("tokens", &chunks, "stop"),
        ["f0:g", "a0:{}", "tool_calls"]
    );
    let chunks = [
        hidden(&[CHANNEL]),
        hidden(&[0, MESSAGE]),
        json!({"delta": {"reasoning": "We"}, "token_ids": [5]}),
        hidden(&[END, START, 10, CHANNEL, 1, MESSAGE]),
        chunk("We", &[5]),
    ];
    assert_eq!(said("tokens", &chunks, "stop"), ["r:We", "c:We", "stop"]);
}
