//! Compares the library with the slow, obvious implementation of the wire format (`tests/support/slow`): all
//! fixtures and random streams run through both.

use crate::cases::{Case, captures, vectors};
use crate::laws::differential::both;
use crate::random::library_case;
use crate::seeded::seeded;
use crate::slow;
use proptest::prelude::*;

#[test]
fn fixtures_and_vectors() {
    // The slow implementation knows no engines: it keeps their ids, and calls that the client does not allow.
    let captures = captures().into_iter().map(|fixture| Case { engine: "auto".to_owned(), ..fixture.case });
    let captures = captures.filter(|case| !case.wants_one_call());
    // The slow implementation does not parse Harmony.
    let vectors = vectors().into_iter().map(|(case, _)| case).filter(|case| !case.parses_text());
    let wrong: Vec<String> = captures.chain(vectors).filter_map(|case| both(&case).err()).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Chunks that differ in little but their text: the JSON around the text, and the texts that may be put there.
const AROUND: [(&str, &str); 6] = [
    (r#"{"index":0,"delta":{"content":""#, r#""},"logprobs":null,"finish_reason":null,"token_ids":null}"#),
    (r#"{"index":0,"delta":{"reasoning_content":""#, r#""},"logprobs":null,"finish_reason":null}"#),
    (r#"{"index":0,"delta":{"role":"assistant","content":""#, r#""},"finish_reason":null,"new":"key"}"#),
    (r#"{"index":0,"delta":{"content":""#, r#""},"finish_reason":"stop","stop_reason":null}"#),
    (r#"{"index":0,"text":""#, r#"","logprobs":null,"finish_reason":null}"#),
    (r#"{"index":1,"delta":{"content":""#, r#"","reasoning":null},"finish_reason":null}"#),
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
    let runs = proptest::collection::vec((0..AROUND.len(), proptest::collection::vec(text, 1..7)), 1..6);
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
            request: serde_json::json!({"model": "m", "stream": true, "n": 2}),
            options: serde_json::json!({"unknown_fields": unknown, "reasoning_field": field}),
            upstream_status: 200,
            upstream_headers: [("content-type".to_owned(), "text/event-stream".to_owned())].into(),
            input,
            eof_reset: false,
            now: 1_760_000_000,
        }
    })
}

proptest! {
    #![proptest_config(seeded(20_000))]

    #[test]
    fn chunks_that_are_alike(case in like_chunks()) {
        if let Err(difference) = both(&library_case(&case)) {
            return Err(TestCaseError::fail(difference));
        }
    }

    #[test]
    fn random_streams(case in slow::random::case(), promotes in proptest::bool::weighted(0.25)) {
        let mut case = case;
        case.options["promote_reasoning"] = promotes.into();
        if let Err(difference) = both(&library_case(&case)) {
            return Err(TestCaseError::fail(difference));
        }
    }
}
