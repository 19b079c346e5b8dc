//! Messages of Anthropic, made of recorded and of random chat answers: valid events, the same content as the chat answer,
//! the same bytes for each engine, and no end that the engine has not sent (messages 4, 7.2).

use crate::cases::messages::fold::fold;
use crate::cases::{Answer, Case, Cut, captures, message_vectors};
use crate::laws::cut::cuts;
use crate::laws::message::check;
use crate::random;
use crate::seeded::seeded;
use proptest::prelude::*;
use samewire::wire::{Api, Ending, OutputBuffer};
use serde_json::{Value, json};

const OPTIONS: [&str; 3] = [
    "{}",
    r#"{"messages_thinking":"omitted"}"#,
    r#"{"messages_thinking":"none"}"#,
];

/// Converts a chat case into one with a client of Messages.
fn of_chat(case: &Case, stream: bool, options: &str) -> Case {
    let request = json!({"model": "m", "stream": stream, "messages": []});
    let options = serde_json::from_str(options).unwrap();
    Case {
        api: Api::Messages,
        request,
        options,
        ..case.clone()
    }
    .unparsed()
}

fn chats() -> impl Iterator<Item = Case> {
    let asked_once =
        |case: &Case| case.api == Api::Chat && case.request["n"].as_u64().unwrap_or(1) == 1;
    captures()
        .into_iter()
        .map(|fixture| fixture.case)
        .filter(asked_once)
}

#[test]
fn recorded_answers() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for options in OPTIONS {
        for stream in [true, false] {
            for case in chats().map(|case| of_chat(&case, stream, options)) {
                seen += 1;
                wrong.extend(
                    check(&case, &[7, 3])
                        .err()
                        .map(|wrong| format!("{}: {wrong}", case.name)),
                );
            }
        }
    }
    assert!(seen > 500, "{seen} answers");
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn worked_examples_obey_the_laws() {
    for (case, _) in message_vectors() {
        // Signatures made with a key differ in each form; tests sign with none.
        check(&case, &[5, 11]).unwrap_or_else(|wrong| panic!("{}: {wrong}", case.name));
    }
}

proptest! {
    #![proptest_config(seeded(2_000))]

    #[test]
    fn random_answers(case in random::case(), stream in any::<bool>(), option in 0..3_usize) {
        // A message has one choice.
        if case.api != Api::Chat || case.request["n"].as_u64().unwrap_or(1) > 1 {
            return Ok(());
        }
        let case = of_chat(&case, stream, OPTIONS[option]);
        if let Err(wrong) = check(&case, &[9, 2]) {
            return Err(TestCaseError::fail(wrong));
        }
    }
}

/// A broken answer ends in `event: error`, and never in `message_stop`.
#[test]
fn a_cut_answer_never_looks_finished() {
    let mut seen = 0;
    let vectors = message_vectors()
        .into_iter()
        .map(|(case, _)| case)
        .filter(|case| case.status == 200 && case.events);
    for case in vectors {
        let whole = case.run(&Cut::Whole);
        for at in cuts(&case.input) {
            for ending in [Ending::Clean, Ending::Reset, Ending::Timeout] {
                let cut = Case {
                    input: case.input[..at].to_vec(),
                    ending,
                    ..case.clone()
                };
                let answer = cut.run(&Cut::Whole);
                seen += 1;
                if answer.status != 200 {
                    continue;
                }
                if !case.streams() {
                    assert_eq!(
                        complete(&answer),
                        complete(&whole),
                        "{} cut at {at}",
                        case.name
                    );
                    continue;
                }
                let folded = fold(&answer.body)
                    .unwrap_or_else(|wrong| panic!("{} cut at {at}: {wrong}", case.name));
                let says_end = ["finish_reason\":\"", "stop_reason\":\""]
                    .iter()
                    .any(|word| String::from_utf8_lossy(&cut.input).contains(word));
                assert!(
                    folded.error.is_some() || says_end,
                    "{} cut at {at}: {}",
                    case.name,
                    answer.body
                );
            }
        }
    }
    assert!(seen > 50_000, "{seen} cuts");
}

/// Returns a whole message without its counts, which a cut may have lost.
fn complete(answer: &Answer) -> Value {
    let mut message: Value = serde_json::from_str(&answer.body).unwrap();
    message.as_object_mut().unwrap().remove("usage");
    message
}

/// The same answer in the shapes of vLLM and SGLang becomes the same bytes.
#[test]
fn engines_cannot_be_told_apart() {
    let vectors = message_vectors();
    let of = |name: &str| {
        let (case, _) = vectors
            .iter()
            .find(|(case, _)| case.name.starts_with(name))
            .unwrap();
        case.run(&Cut::Whole)
    };
    assert_eq!(of("msg-040"), of("msg-041"));
}

/// A client that requests no tokens fills the engine's cache, and gets no answer.
#[test]
fn a_limit_of_nothing_has_no_answer() {
    let vectors = message_vectors();
    let (case, _) = vectors
        .iter()
        .find(|(case, _)| case.name == "msg-005-reasoning-text-tool")
        .unwrap();
    let mut case = case.clone();
    case.request["max_tokens"] = json!(0);
    let streamed = fold(&case.run(&Cut::Whole).body).unwrap();
    assert_eq!(streamed.error, None);
    assert_eq!(
        (
            &streamed.message["content"],
            &streamed.message["stop_reason"]
        ),
        (&json!([]), &json!("max_tokens"))
    );
    case.request["stream"] = json!(false);
    let whole: Value = serde_json::from_str(&case.run(&Cut::Whole).body).unwrap();
    assert_eq!(
        (&whole["content"], &whole["stop_reason"]),
        (&json!([]), &json!("max_tokens"))
    );
}

/// The official libraries fail on arguments that are white space alone.
#[test]
fn white_space_before_arguments_waits() {
    let chunk = |args: &str| {
        json!({"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "c", "function": {"name": "f", "arguments": args}},
        ]}}]})
    };
    let end = json!({"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [
        {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
    ]});
    for (pieces, expected) in [
        (vec![" ", "\n", "{\"a\":", "1}"], json!({"a": 1})),
        (vec![" ", " "], json!({})),
        (vec![" ", "[1]"], json!({"raw_arguments": " [1]"})),
    ] {
        let chunks = pieces.iter().map(|piece| chunk(piece)).chain([end.clone()]);
        let input: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).collect();
        let (case, _) = message_vectors().swap_remove(0);
        let case = Case {
            input: (input + "data: [DONE]\n\n").into_bytes(),
            ..case
        };
        let folded = fold(&case.run(&Cut::Whole).body).unwrap();
        assert_eq!(
            folded.message["content"][0]["input"], expected,
            "{pieces:?}"
        );
        check(&case, &[4, 9]).unwrap();
    }
}

/// The client has the call already, and may run it.
#[test]
fn fault_u56_arguments_behind_the_end_of_their_call() {
    let chunk = |delta: Value| json!({"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta}]});
    let call = |index: u64, args: &str| {
        chunk(
            json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "function": {
                "name": "f", "arguments": args,
            }}]}),
        )
    };
    let more = chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"b\":2}"}}]}));
    let chunks = [call(0, "{}"), call(1, "{}"), more];
    let input: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    let (case, _) = message_vectors().swap_remove(0);
    let case = Case {
        input: input.into_bytes(),
        engine: "generic".to_owned(),
        ..case
    };
    let folded = fold(&case.run(&Cut::Whole).body).unwrap();
    let error = folded.error.unwrap();
    assert_eq!(
        error["error"]["details"]["error_code"], "upstream_invalid_tool_call",
        "{error}"
    );
    assert_eq!(folded.message["content"][0]["input"], json!({}));
    // Nothing more is read, and an object is not an empty success.
    let mut rewriter = case.rewriter(false);
    let mut out = OutputBuffer::default();
    rewriter.push(&case.input, &mut out);
    assert!(rewriter.progress().ended && rewriter.reader.failure().is_some());
    let mut whole = case.clone();
    whole.request["stream"] = json!(false);
    let answer = whole.run(&Cut::Whole);
    assert!(
        answer.status == 500 && answer.body.contains("upstream_invalid_tool_call"),
        "{answer:?}"
    );
}

/// Returns the message that a client gets of an engine's own events.
fn native(events: &[Value]) -> Value {
    native_of(message_vectors().swap_remove(0).0, events)
}

/// Returns the message that a client gets of an engine's own events for the request of this case.
fn native_of(case: Case, events: &[Value]) -> Value {
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}});
    let end = [
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ];
    let all = [&[start], events, &end].concat();
    let input: String = all
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let case = Case {
        input: input.into_bytes(),
        upstream: Api::Messages,
        engine: "generic".to_owned(),
        ..case
    };
    let folded = fold(&case.run(&Cut::Whole).body).unwrap();
    assert_eq!(folded.error, None);
    folded.message
}

fn started(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn text(index: u64, text: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}})
}

fn stopped(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

/// Calls without arguments, and blocks that samewire does not model, keep their places.
#[test]
fn native_blocks_stay_in_order() {
    let call = |name: &str, input: Value| json!({"type": "tool_use", "id": name, "name": name, "input": input});
    let empty = json!({"type": "text", "text": ""});
    let message = native(&[
        started(0, call("f", json!({}))),
        stopped(0),
        started(1, empty.clone()),
        text(1, "a"),
        stopped(1),
        started(
            2,
            json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        ),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        stopped(2),
        started(3, empty.clone()),
        text(3, "b"),
        stopped(3),
        started(4, empty),
        text(4, "c"),
        stopped(4),
    ]);
    let kinds: Vec<_> = message["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].clone())
        .collect();
    assert_eq!(
        kinds,
        ["tool_use", "text", "server_tool_use", "text", "text"]
    );
    assert_eq!(message["content"][4]["text"], "c");
    // A call that continues after others.
    let piece = |index: u64, json: &str| json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": json}});
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let message = native(&[
        started(0, call("f", json!({}))),
        piece(0, "{\"a\":"),
        started(
            1,
            json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        ),
        piece(1, "{}"),
        stopped(1),
        started(2, thinking),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "signature_delta", "signature": "own"}}),
        stopped(2),
        piece(0, "1}"),
        stopped(0),
    ]);
    let blocks = message["content"].as_array().unwrap();
    assert_eq!(
        (&blocks[0]["input"], &blocks[1]["type"]),
        (&json!({"a": 1}), &json!("server_tool_use"))
    );
    assert_eq!(blocks[2]["signature"], "own");
    // The whole input comes with the start, of two calls whose blocks overlap.
    let message = native(&[
        started(0, call("f", json!({"a": 1}))),
        started(1, call("g", json!({"b": 2}))),
        stopped(1),
        stopped(0),
    ]);
    let inputs: Vec<_> = message["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["input"].clone())
        .collect();
    assert_eq!(inputs, [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(message["stop_reason"], "tool_use");
    // The input has another number than its call.
    let message = native(&[
        started(0, call("f", json!({}))),
        stopped(0),
        started(1, call("g", json!({}))),
        piece(2, "{\"b\": 2}"),
        stopped(1),
    ]);
    assert_eq!(message["content"][1]["input"], json!({"b": 2}));
}

/// Checks that the text of an engine's own messages is read, and that the end of a block is the end of its text.
#[test]
fn native_text_is_read() {
    let (mut case, _) = message_vectors().swap_remove(0);
    case.options = json!({"parser": "hermes"});
    case.request["tools"] = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    let empty = json!({"type": "text", "text": ""});
    let answer =
        "<think>r</think>a<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
    let letters = answer.split_inclusive(|_: char| true);
    let events: Vec<_> = [started(0, empty.clone())]
        .into_iter()
        .chain(letters.map(|letter| text(0, letter)))
        .chain([stopped(0), started(1, empty), text(1, "b<"), stopped(1)])
        .collect();
    let message = native_of(case, &events);
    let content = message["content"].as_array().unwrap();
    let kinds: Vec<_> = content.iter().map(|block| block["type"].as_str()).collect();
    let expected = ["thinking", "text", "tool_use", "text"].map(Some);
    assert_eq!(kinds, expected, "{message}");
    assert_eq!(
        [
            &content[0]["thinking"],
            &content[1]["text"],
            &content[3]["text"]
        ],
        ["r", "a", "b<"]
    );
    assert_eq!(content[2]["input"], json!({"a": 1}));
}

/// A zero at the end does not undo a count from the start, and no count is too large.
#[test]
fn native_counts_add_up() {
    let of = |first: Value, last: Value| {
        let events = [
            json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": first}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}),
            json!({"type": "message_stop"}),
        ];
        let input: String = events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect();
        let (case, _) = message_vectors().swap_remove(0);
        let case = Case {
            input: input.into_bytes(),
            upstream: Api::Messages,
            ..case
        };
        fold(&case.run(&Cut::Whole).body).unwrap().message["usage"].clone()
    };
    assert_eq!(
        of(
            json!({"input_tokens": 10, "cache_creation_input_tokens": 90, "cache_read_input_tokens": 5}),
            json!({"input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 7})
        ),
        json!({"input_tokens": 10, "cache_creation_input_tokens": 90, "cache_read_input_tokens": 5, "output_tokens": 7})
    );
    let huge = json!({"input_tokens": u64::MAX, "cache_creation_input_tokens": u64::MAX, "cache_read_input_tokens": u64::MAX, "output_tokens": u64::MAX});
    assert!(of(huge.clone(), huge)["output_tokens"].is_u64());
}

/// The events that wait for a call that is never complete are bounded, however small they are.
#[test]
fn what_waits_behind_a_call_is_bounded() {
    let chunk = |delta: Value| {
        let chunk = json!({"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta}]});
        format!("data: {chunk}\n\n").into_bytes()
    };
    let (case, _) = message_vectors().swap_remove(0);
    let mut rewriter = Case {
        engine: "generic".to_owned(),
        ..case
    }
    .rewriter(false);
    let mut out = OutputBuffer::default();
    let call = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":"}}]});
    rewriter.push(&chunk(call), &mut out);
    let (text, thought) = (
        chunk(json!({"content": "x"})),
        chunk(json!({"reasoning": "y"})),
    );
    let mut pieces = 0;
    while !rewriter.progress().ended {
        rewriter.push(if pieces % 2 == 0 { &text } else { &thought }, &mut out);
        pieces += 1;
        assert!(pieces < 100_000, "no end");
    }
    assert!(pieces > 10_000, "{pieces}");
    let body = String::from_utf8(out.to_vec()).unwrap();
    let error = fold(&body).unwrap().error.unwrap();
    assert_eq!(
        error["error"]["details"]["error_code"],
        "upstream_invalid_tool_call"
    );
    assert!(
        body.len() < 4_000,
        "nothing that waited is sent: {} bytes",
        body.len()
    );
}
