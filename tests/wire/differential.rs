//! Compares the library with the slow, obvious implementation of the wire format (`tests/support/slow`): all
//! fixtures and random streams run through both.

use crate::cases::{Case, captures, vectors};
use crate::laws::differential::both;
use crate::random::library_case;
use crate::seeded::seeded;
use crate::slow;
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn fixtures_and_vectors() {
    // The slow implementation knows no engines: it keeps their ids, and calls that the client does not allow.
    let captures = captures().into_iter().map(|fixture| Case {
        engine: "auto".to_owned(),
        ..fixture.case
    });
    let captures = captures.filter(|case| !case.wants_one_call());
    // The slow implementation does not parse Harmony.
    let vectors = vectors().into_iter().map(|(case, _)| case);
    let cases = captures
        .chain(vectors)
        .filter(|case| !case.parses_text())
        .map(Case::unparsed);
    let wrong: Vec<String> = cases.filter_map(|case| both(&case).err()).collect();
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Chunks that differ in little but their text: the JSON around the text, and the texts that may be put there.
const AROUND: [(&str, &str); 6] = [
    (
        r#"{"index":0,"delta":{"content":""#,
        r#""},"logprobs":null,"finish_reason":null,"token_ids":null}"#,
    ),
    (
        r#"{"index":0,"delta":{"reasoning_content":""#,
        r#""},"logprobs":null,"finish_reason":null}"#,
    ),
    (
        r#"{"index":0,"delta":{"role":"assistant","content":""#,
        r#""},"finish_reason":null,"new":"key"}"#,
    ),
    (
        r#"{"index":0,"delta":{"content":""#,
        r#""},"finish_reason":"stop","stop_reason":null}"#,
    ),
    (
        r#"{"index":0,"text":""#,
        r#"","logprobs":null,"finish_reason":null}"#,
    ),
    (
        r#"{"index":1,"delta":{"content":""#,
        r#"","reasoning":null},"finish_reason":null}"#,
    ),
];
const TEXTS: [&[u8]; 16] = [
    b" word",
    b"",
    b"\\n\\t\\u0041\\/",
    b"\\ud83d\\ude00",
    b"\\ud83d",
    "\u{85}\u{2028}\u{10ffff}é".as_bytes(),
    b"\x01",
    b"\xff\xfe",
    b"\\",
    b"\\x",
    b"\",\"content\":\"other",
    b"\"",
    b"\",\"role\":null,\"x\":\"y",
    b"</think>",
    b"null",
    b" a longer text that takes more than eight bytes at a time, or sixteen",
];

fn like_chunks() -> impl Strategy<Value = slow::Case> {
    let text = prop_oneof![6 => 0..1_usize, 3 => 0..TEXTS.len()];
    let runs = proptest::collection::vec(
        (0..AROUND.len(), proptest::collection::vec(text, 1..7)),
        1..6,
    );
    (runs, 0..8_u8).prop_map(|(runs, options)| {
        let legacy = options & 1 != 0;
        let mut input = Vec::new();
        for (around, texts) in runs {
            // Chunks of the other API are used only occasionally.
            let around = if (around == 4) == legacy { around } else { [0, 4][usize::from(legacy)] };
            for text in texts {
                let (before, behind) = AROUND[around];
                input.extend(
                    br#"data: {"id":"a","created":1,"model":"m","system_fingerprint":"f","choices":["#,
                );
                input.extend(before.as_bytes());
                input.extend(TEXTS[text]);
                input.extend(behind.as_bytes());
                input.extend(b"]}\n\n");
            }
        }
        input.extend(b"data: [DONE]\n\n");
        let api = if legacy { "completions" } else { "chat.completions" };
        let unknown = if options & 2 != 0 { "pass" } else { "strip" };
        let field = if options & 4 != 0 { "both" } else { "reasoning_content" };
        slow::Case {
            client_api: api.to_owned(),
            upstream_api: api.to_owned(),
            request: json!({"model": "m", "stream": true, "n": 2}),
            options: json!({"unknown_fields": unknown, "reasoning_field": field}),
            upstream_status: 200,
            upstream_headers: [("content-type".to_owned(), "text/event-stream".to_owned())].into(),
            input,
            eof_reset: false,
            now: 1_760_000_000,
        }
    })
}

/// Returns a chunk, or a whole body, of an engine with this choice.
fn object(choice: &Value, usage: Option<u8>) -> String {
    let usage = usage
        .map(|tokens| json!({"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}));
    let choices = if choice.is_null() {
        json!([])
    } else {
        json!([choice])
    };
    json!({"id": "a", "created": 1, "model": "m", "choices": choices, "usage": usage}).to_string()
}

/// Calls with arguments that are mostly no JSON, in one piece or several, mixed with each other or with text, in an
/// answer that ends, is cut or breaks off.
fn garbled_calls() -> impl Strategy<Value = slow::Case> {
    let call = (
        slow::random::garbled(),
        proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
    );
    let calls = proptest::collection::vec(call, 1..4);
    let repair = proptest::sample::select(vec!["off", "tail", "json"]);
    let finish = proptest::sample::select(vec!["tool_calls", "stop", "length", ""]);
    (calls, repair, finish, 0..64_u8).prop_map(|(calls, repair, finish, how)| {
        let [whole, streams, mixed, with_text, at_limit, late_name] =
            [0, 1, 2, 3, 4, 5].map(|bit| how >> bit & 1 == 1);
        let entry = |at: usize, function: Value| json!({"index": at, "function": function});
        let usage = Some(if at_limit { 9 } else { 5 });
        let input = if whole {
            let entry = |(at, (arguments, _)): (usize, &(String, Vec<_>))| {
                entry(at, json!({"name": "f", "arguments": arguments}))
            };
            let entries: Vec<_> = calls.iter().enumerate().map(entry).collect();
            let message = json!({"role": "assistant", "content": null, "tool_calls": entries});
            object(&json!({"index": 0, "message": message, "finish_reason": finish}), usage)
        } else {
            let choice =
                |delta: Value, finish: Value| json!({"index": 0, "delta": delta, "finish_reason": finish});
            // Each delta with its place: calls that are mixed take turns.
            let mut deltas = Vec::new();
            for (at, (arguments, places)) in calls.iter().enumerate() {
                let mut ends: Vec<usize> = places
                    .iter()
                    .map(|place| arguments.floor_char_boundary(place.index(arguments.len() + 1)))
                    .collect();
                ends.extend([0, arguments.len()]);
                ends.sort_unstable();
                let pieces = ends.windows(2).map(|pair| &arguments[pair[0]..pair[1]]);
                for (turn, piece) in pieces.enumerate() {
                    let mut function = json!({"arguments": piece});
                    if turn == usize::from(late_name) {
                        function["name"] = "f".into();
                    }
                    let place = if mixed { (turn, at) } else { (at, turn) };
                    deltas.push((place, json!({"tool_calls": [entry(at, function)]})));
                }
                if with_text {
                    deltas.push(((at, usize::from(mixed)), json!({"content": "x"})));
                }
            }
            deltas.sort_by_key(|(place, _)| *place);
            let mut chunks: Vec<String> =
                deltas.into_iter().map(|(_, delta)| object(&choice(delta, Value::Null), None)).collect();
            if !finish.is_empty() {
                chunks.push(object(&choice(json!({}), finish.into()), None));
                chunks.push(object(&Value::Null, usage));
                chunks.push("[DONE]".to_owned());
            }
            chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
        };
        let content_type = if whole { "application/json" } else { "text/event-stream" };
        slow::Case {
            client_api: "chat.completions".to_owned(),
            upstream_api: "chat.completions".to_owned(),
            request: json!({"model": "m", "stream": streams, "max_tokens": 9}),
            options: json!({"repair_arguments": repair}),
            upstream_status: 200,
            upstream_headers: [("content-type".to_owned(), content_type.to_owned())].into(),
            input: input.into_bytes(),
            eof_reset: false,
            now: 1_760_000_000,
        }
    })
}

proptest! {
    #![proptest_config(seeded(20_000))]

    #[test]
    fn garbled_arguments(case in garbled_calls()) {
        if let Err(difference) = both(&library_case(&case)) {
            return Err(TestCaseError::fail(difference));
        }
    }

    #[test]
    fn chunks_that_are_alike(case in like_chunks()) {
        if let Err(difference) = both(&library_case(&case)) {
            return Err(TestCaseError::fail(difference));
        }
    }

    #[test]
    fn random_streams(
        case in slow::random::case(),
        promotes in proptest::bool::weighted(0.25),
        continues in proptest::bool::weighted(0.1),
        repair in proptest::sample::select(vec!["off", "off", "tail", "json"]),
    ) {
        let mut case = case;
        case.options["repair_arguments"] = repair.into();
        case.options["promote_reasoning"] = promotes.into();
        if continues {
            case.request["continue_final_message"] = true.into();
        }
        if let Err(difference) = both(&library_case(&case)) {
            return Err(TestCaseError::fail(difference));
        }
    }
}
