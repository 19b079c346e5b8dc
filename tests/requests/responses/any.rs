//! Any input gives either an error that names a parameter, or a chat request with messages and without a null.

use crate::law::check;
use crate::seeded::seeded;
use proptest::prelude::*;
use samewire::engine::ENGINES;
use samewire::request::Rules;
use samewire::request::responses::{ChatInputs, ResponsesMode, ResponsesRequest};
use samewire::wire::options::Options;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Words with a meaning in some place, so that random requests get past the first checks.
const WORDS: &[&str] = &[
    "",
    "m",
    "auto",
    "required",
    "none",
    "low",
    "user",
    "assistant",
    "developer",
    "system",
    "message",
    "reasoning",
    "function",
    "custom",
    "namespace",
    "web_search",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "item_reference",
    "compaction",
    "web_search_call",
    "input_text",
    "output_text",
    "input_image",
    "input_file",
    "input_audio",
    "refusal",
    "reasoning_text",
    "summary_text",
    "allowed_tools",
    "json_schema",
    "grammar",
    "lark",
    "message.output_text.logprobs",
    "c1",
    "swr1.x",
    "{}",
    "{\"a\":1}",
    "a\u{0}\u{2028}\u{85}\"\\é😀",
];

/// Keys of everything that is read.
const KEYS: &[&str] = &[
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "temperature",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "include",
    "stream",
    "store",
    "background",
    "previous_response_id",
    "conversation",
    "truncation",
    "metadata",
    "user",
    "prompt_cache_key",
    "type",
    "role",
    "content",
    "id",
    "call_id",
    "name",
    "namespace",
    "arguments",
    "output",
    "summary",
    "encrypted_content",
    "image_url",
    "file_data",
    "file_id",
    "input_audio",
    "data",
    "format",
    "schema",
    "mode",
    "effort",
    "verbosity",
    "refusal",
    "top_k",
    "description",
    "parameters",
    "syntax",
    "definition",
];

fn word() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => proptest::sample::select(WORDS).prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => (-2i64..30).prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
    ]
}

/// Generates any value made of the known keys.
fn value() -> impl Strategy<Value = Value> {
    word().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((proptest::sample::select(KEYS), inner), 0..7)
                .prop_map(|all| all
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<Map<_, _>>())
                .prop_map(Value::from),
        ]
    })
}

fn text() -> impl Strategy<Value = Value> {
    proptest::sample::select(WORDS).prop_map(Value::from)
}

fn id() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&["c1", "c2", "c3"][..])
}

/// Generates items that are nearly always valid.
fn item() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        text().prop_map(|text| json!({"type": "input_text", "text": text})),
        text().prop_map(|text| json!({"type": "refusal", "refusal": text})),
        text().prop_map(|url| json!({"type": "input_image", "image_url": url, "detail": null})),
    ];
    let role = proptest::sample::select(&["user", "assistant", "developer", "system"][..]);
    prop_oneof![
        (role.clone(), text()).prop_map(|(role, text)| json!({"role": role, "content": text})),
        (role, proptest::collection::vec(part, 0..4))
            .prop_map(|(role, parts)| json!({"type": "message", "role": role, "content": parts})),
        text().prop_map(|text| json!({"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]})),
        (id(), text()).prop_map(|(id, text)| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": text})),
        (id(), text()).prop_map(|(id, text)| json!({"type": "custom_tool_call", "namespace": "n", "call_id": id, "name": "g", "input": text})),
        (id(), text()).prop_map(|(id, text)| json!({"type": "function_call_output", "call_id": id, "output": text})),
        value(),
    ]
}

/// Generates a request that is valid except for a few members.
fn body() -> impl Strategy<Value = Value> {
    let members = proptest::collection::vec((proptest::sample::select(KEYS), value()), 0..3);
    (proptest::collection::vec(item(), 1..8), members, any::<bool>()).prop_map(|(items, members, tools)| {
        let mut body = json!({"model": "m", "input": items});
        if tools {
            body["tools"] = json!([{"type": "function", "name": "f"}, {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "g"}]}]);
        }
        for (key, value) in members {
            body[key] = value;
        }
        body
    })
}

proptest! {
    #![proptest_config(seeded(3_000))]

    #[test]
    fn any_value_gives_a_request_or_a_refusal(body in value()) {
        check(&body).map_err(TestCaseError::fail)?;
    }

    /// Bytes of a valid request, with random edits.
    #[test]
    fn mangled_requests_give_a_request_or_a_refusal(body in body(), edits in proptest::collection::vec((any::<usize>(), any::<u8>(), 0usize..4), 1..4)) {
        let mut bytes = body.to_string().into_bytes();
        for (at, byte, cut) in edits {
            let at = at % bytes.len();
            bytes.splice(at..(at + cut).min(bytes.len()), (cut != 1).then_some(byte));
            bytes.push(b' ');
        }
        let options = Options::default();
        let rules = Arc::new(Rules::ANSWERED);
        let sent = ResponsesRequest::read_for(&bytes.into(), &options, ResponsesMode::Chat, None, &rules)
            .and_then(|asked| asked.chat(&ChatInputs::default(), &ENGINES[0].takes, &options));
        match sent {
            Ok(sent) => drop(serde_json::from_slice::<Value>(&sent).map_err(|error| TestCaseError::fail(error.to_string()))?),
            Err(failure) => prop_assert_eq!(failure.status, 400),
        }
    }

    #[test]
    fn nearly_valid_requests_give_a_request_or_a_refusal(body in body()) {
        check(&body).map_err(TestCaseError::fail)?;
    }
}

/// A share of the random requests is accepted, so that the test above is not vacuous.
#[test]
fn some_of_the_random_requests_are_accepted() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let passed = (0..500)
        .filter(|_| check(&body().new_tree(&mut runner).unwrap().current()).unwrap())
        .count();
    assert!(passed > 50, "{passed} of 500");
}
