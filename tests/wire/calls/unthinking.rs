//! Answers whose reasoning may be the answer itself: the request has switched thinking off, or asks for JSON.

use crate::cases::Case;
use crate::texts::{case, said};
use proptest::prelude::*;
use proptest::sample::select;
use samewire::wire::Ending;
use serde_json::{Value, json};

const OFF: [&str; 3] = [
    r#"{"reasoning_effort":"none"}"#,
    r#"{"chat_template_kwargs":{"thinking":false}}"#,
    r#"{"think":false}"#,
];

/// Piece of an answer: its key in the delta, and its text.
type Piece = (&'static str, &'static str);

fn with(request: &str, case: Case) -> Case {
    let mut case = case;
    let more: Value = serde_json::from_str(request).unwrap();
    case.request
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    case
}

fn choice(key: &str, value: Value, finish: Value) -> Value {
    json!({"id": "chatcmpl-1", "created": 5, "model": "m",
        "choices": [{"index": 0, key: value, "finish_reason": finish}]})
}

/// Returns the answer to `request` as a stream and as one body.
fn answers(request: &str, pieces: &[Piece], finish: &str) -> [Case; 2] {
    let call = json!([{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let value = |(key, text): &Piece| {
        if *key == "tool_calls" {
            call.clone()
        } else {
            (*text).into()
        }
    };
    let deltas = pieces
        .iter()
        .map(|piece| choice("delta", json!({piece.0: value(piece)}), Value::Null));
    let chunks = deltas.chain([choice("delta", json!({}), finish.into())]);
    let stream: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).collect();
    let mut message = json!({"role": "assistant"});
    for key in ["content", "reasoning"] {
        let text: String = pieces
            .iter()
            .filter(|piece| piece.0 == key)
            .map(|piece| piece.1)
            .collect();
        message[key] = if text.is_empty() {
            Value::Null
        } else {
            text.into()
        };
    }
    if pieces.iter().any(|piece| piece.0 == "tool_calls") {
        message["tool_calls"] = call.clone();
    }
    let whole = choice("message", message, finish.into()).to_string();
    [
        with(
            request,
            case(
                "off",
                true,
                format!("{stream}data: [DONE]\n\n"),
                Ending::Clean,
            ),
        ),
        with(request, case("off", false, whole, Ending::Whole)),
    ]
}

proptest! {
    #![proptest_config(crate::seeded::seeded(512))]

    #[test]
    fn reasoning_alone_is_the_answer(
        request in select(OFF.to_vec()),
        hides in any::<bool>(),
        pieces in prop::collection::vec(select(vec![
            ("reasoning", "a"), ("reasoning", "\\\"é\n"), ("reasoning", "b "), ("content", ""),
            ("content", "c"), ("tool_calls", ""),
        ]), 1..6),
        finish in select(vec!["stop", "length"]),
    ) {
        let text_of = |key: &str| -> String {
            pieces.iter().filter(|piece| piece.0 == key).map(|piece| piece.1).collect()
        };
        let (reasoning, content) = (text_of("reasoning"), text_of("content"));
        // Engines send a call once.
        prop_assume!(pieces.iter().filter(|piece| piece.0 == "tool_calls").count() < 2);
        prop_assume!(pieces.iter().any(|piece| piece.0 == "tool_calls" || !piece.1.is_empty()));
        let calls = pieces.iter().any(|piece| piece.0 == "tool_calls");
        let is_answer = content.is_empty() && !calls && finish == "stop";
        let expected = match (is_answer, hides) {
            (true, _) => (String::new(), reasoning),
            (false, true) => (String::new(), content),
            (false, false) => (reasoning, content),
        };
        for case in answers(request, &pieces, finish) {
            let case = if hides { with(r#"{"include_reasoning":false}"#, case) } else { case };
            let is_stream = case.events;
            let said = said(&case);
            prop_assert_eq!((said.reasoning, said.content), expected.clone(), "stream: {}", is_stream);
            prop_assert_eq!(said.calls.len(), usize::from(calls));
        }
    }
}

/// A model that thinks in spite of the switch is not held back for ever, and the option says no.
#[test]
fn a_long_thought_is_one() {
    let long = "hm ".repeat(30_000);
    let long: &'static str = Box::leak(long.into_boxed_str());
    let [stream, _] = answers(OFF[0], &[("reasoning", long), ("reasoning", "a")], "stop");
    assert_eq!(said(&stream).reasoning, format!("{long}a"));
    for mut case in answers(OFF[0], &[("reasoning", "a")], "stop") {
        case.options["promote_reasoning"] = false.into();
        assert_eq!(said(&case).reasoning, "a");
    }
    for case in answers("{}", &[("reasoning", "a")], "stop") {
        assert_eq!(said(&case).reasoning, "a", "nothing was switched off");
    }
    for mut case in answers(OFF[0], &[("reasoning", "a")], "stop") {
        case.request["model"] = "openai/gpt-oss-20b".into();
        assert_eq!(said(&case).reasoning, "a", "it always thinks");
    }
}

/// Checks that JSON in the reasoning is the answer if the request asks for a format and nothing else comes.
#[test]
fn reasoning_in_json_is_the_answer_in_a_format() {
    const FORMAT: &str = r#"{"response_format": {"type": "json_object"}}"#;
    let json = [
        ("reasoning", " \n"),
        ("reasoning", "{\"a\":"),
        ("reasoning", " 1}"),
    ];
    let text = " \n{\"a\": 1}";
    let cut = [("reasoning", "{\"a\":")];
    let words = [("reasoning", "Hm "), ("reasoning", "{}")];
    let both = [("reasoning", "{}"), ("content", "1")];
    for (pieces, finish, reasoning, content) in [
        (&json[..], "stop", "", text),
        (&json, "length", text, ""),
        (&cut, "stop", "{\"a\":", ""),
        (&words, "stop", "Hm {}", ""),
        (&both, "stop", "{}", "1"),
    ] {
        for mut case in answers(FORMAT, pieces, finish) {
            case.options["promote_reasoning"] = "schema".into();
            for hides in [false, true] {
                let request = if hides {
                    r#"{"include_reasoning":false}"#
                } else {
                    "{}"
                };
                let told = said(&with(request, case.clone()));
                let shown = if hides { "" } else { reasoning };
                assert_eq!(
                    (&*told.reasoning, &*told.content),
                    (shown, content),
                    "{pieces:?}"
                );
            }
        }
    }
    for case in answers("{}", &json, "stop") {
        let mut case = case;
        case.options["promote_reasoning"] = "schema".into();
        assert_eq!(said(&case).reasoning, text, "no format was asked for");
    }
}
