//! Settings of a request, and their counterparts for the engine (messages 3.5).

use super::{message_form, options, planned, request, sent};
use bytes::Bytes;
use samewire::engine::fallback::Fallback;
use samewire::engine::named;
use samewire::plan::{Route, message};
use samewire::request::Rules;
use samewire::request::messages::{MessagesContext, MessagesMode, MessagesRequest, Purpose};
use samewire::wire::encode::ThinkingDisplay;
use serde_json::{Value, json};
use std::sync::Arc;

const HI: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

/// Returns the engine's body for a request with these settings, without model, messages and token limit.
fn set(members: &str) -> Value {
    let mut body = sent(&format!("{HI}{members}")).body;
    let fields = body.as_object_mut().unwrap();
    for key in ["model", "messages", "max_completion_tokens"] {
        fields.remove(key);
    }
    body
}

#[test]
fn sampling_and_others() {
    for (members, expected) in [
        ("", json!({})),
        (
            r#","temperature":0.25,"top_p":0.5,"top_k":7"#,
            json!({"temperature": 0.25, "top_p": 0.5, "top_k": 7}),
        ),
        (
            r#","stop_sequences":["a","b"]"#,
            json!({"stop": ["a", "b"]}),
        ),
        (r#","stop_sequences":[]"#, json!({})),
        (r#","metadata":{"user_id":"u"}"#, json!({"user": "u"})),
        (r#","metadata":{}"#, json!({})),
        (
            r#","stream":true"#,
            json!({"stream": true, "stream_options": {"include_usage": true}}),
        ),
        (r#","stream":false"#, json!({})),
        // Of use only to the service itself.
        (
            r#","service_tier":"auto","inference_geo":"us","speed":"fast","cache_control":{"type":"ephemeral"}"#,
            json!({}),
        ),
        (
            r#","diagnostics":{},"user_profile_id":"p","fallbacks":[]"#,
            json!({}),
        ),
        // Settings that only engines know.
        (
            r#","min_p":0.1,"repetition_penalty":1.1"#,
            json!({"min_p": 0.1, "repetition_penalty": 1.1}),
        ),
        (r#","temperature":null,"min_p":null"#, json!({})),
    ] {
        assert_eq!(set(members), expected, "{members}");
    }
}

#[test]
fn structured_outputs() {
    let format =
        r#"{"type":"json_schema","schema":{"type":"object","properties":{"b":{},"a":{}}}}"#;
    let expected = json!({"response_format": {"type": "json_schema", "json_schema": {
        "name": "schema", "schema": {"type": "object", "properties": {"b": {}, "a": {}}}, "strict": true,
    }}});
    assert_eq!(
        set(&format!(r#","output_config":{{"format":{format}}}"#)),
        expected
    );
    assert_eq!(set(&format!(r#","output_format":{format}"#)), expected);
    assert_eq!(set(r#","output_config":{}"#), json!({}));
}

#[test]
fn thinking_and_effort() {
    for (members, effort, display) in [
        ("", None, ThinkingDisplay::Shown),
        (
            r#","thinking":{"type":"enabled","budget_tokens":1024}"#,
            Some("low"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","thinking":{"type":"enabled","budget_tokens":4095}"#,
            Some("low"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","thinking":{"type":"enabled","budget_tokens":4096}"#,
            Some("medium"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","thinking":{"type":"enabled","budget_tokens":16383}"#,
            Some("medium"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","thinking":{"type":"enabled","budget_tokens":16384}"#,
            Some("high"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","thinking":{"type":"adaptive"}"#,
            None,
            ThinkingDisplay::Shown,
        ),
        (
            r#","thinking":{"type":"adaptive","display":"omitted"}"#,
            None,
            ThinkingDisplay::Omitted,
        ),
        (
            r#","thinking":{"type":"disabled"}"#,
            Some("none"),
            ThinkingDisplay::Hidden,
        ),
        (
            r#","thinking":{"type":"between_tools"}"#,
            Some("none"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","output_config":{"effort":"high"}"#,
            Some("high"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","output_config":{"effort":"low"},"thinking":{"type":"enabled","budget_tokens":20000}"#,
            Some("low"),
            ThinkingDisplay::Shown,
        ),
        (
            r#","output_config":{"effort":"high"},"thinking":{"type":"disabled"}"#,
            Some("none"),
            ThinkingDisplay::Hidden,
        ),
    ] {
        let got = sent(&format!("{HI}{members}"));
        assert_eq!(got.body["reasoning_effort"], json!(effort), "{members}");
        assert_eq!(got.asked.display, display, "{members}");
    }
}

/// The effort of a system message wins over that of the request, and stays until another one has one.
#[test]
fn the_effort_of_a_turn() {
    let with = |messages: &str| {
        let members = format!(r#""messages":[{messages}],"output_config":{{"effort":"low"}}"#);
        sent(&members).body
    };
    let system = r#"{"role":"system","content":"s","output_config":{"effort":"high"}}"#;
    let user = r#"{"role":"user","content":"a"}"#;
    assert_eq!(
        with(&format!("{user},{system}"))["reasoning_effort"],
        "high"
    );
    let empty = r#"{"role":"system","content":"t","output_config":{}}"#;
    assert_eq!(
        with(&format!("{user},{system},{empty}"))["reasoning_effort"],
        "high"
    );
    let users = r#"{"role":"user","content":"a","output_config":{"effort":"high"}}"#;
    assert_eq!(with(users)["reasoning_effort"], "low");
    let alone = r#"{"role":"system","output_config":{"effort":"max"}}"#;
    let body = with(&format!("{user},{alone}"));
    assert_eq!(body["reasoning_effort"], "max");
    assert_eq!(
        body["messages"].as_array().unwrap().len(),
        1,
        "it has no text"
    );
}

/// A limit of 0 requests no answer. Engines refuse it, or treat it as no limit.
#[test]
fn a_limit_of_nothing() {
    let got = planned(
        "vllm",
        "{}",
        &format!(r#"{{"model":"m","max_tokens":0,{HI}}}"#),
        None,
    )
    .unwrap();
    assert_eq!(
        (&got.body["max_completion_tokens"], got.asked.limit),
        (&json!(1), Some(0))
    );
}

/// Engines refuse a limit that the context cannot hold beside the prompt. The request goes out once more without it.
#[test]
fn a_limit_that_the_engine_has_refused_is_left_out() {
    let body = Bytes::from(request(HI));
    for engine in ["vllm", "sglang"] {
        let read = message_form::read(
            &body,
            &options("{}"),
            None,
            MessagesMode::Chat,
            Purpose::Answer,
        )
        .unwrap();
        let fallbacks = [Fallback::LimitLeftOut].into_iter().collect();
        let route = Route::new(named(engine).unwrap(), Arc::default(), 1 << 20);
        let (plan, _) = message(&read, &Route { fallbacks, ..route }).unwrap();
        let sent: Value = serde_json::from_slice(&plan.body.joined()).unwrap();
        assert_eq!(
            (&sent["max_completion_tokens"], &sent["max_tokens"]),
            (&Value::Null, &Value::Null),
            "{engine}"
        );
        assert!(
            plan.fallbacks.has(Fallback::LimitLeftOut) && plan.fallbacks.lasting().is_empty(),
            "{engine}"
        );
        assert!(plan.shape.adapted.contains(&"limit_left_out"), "{engine}");
    }
}

#[test]
fn the_option_decides_what_of_the_thinking_is_shown() {
    use ThinkingDisplay::{Hidden, Omitted, Shown};
    for (option, asked, expected) in [
        (
            "shown",
            r#","thinking":{"type":"adaptive","display":"omitted"}"#,
            Shown,
        ),
        ("omitted", "", Omitted),
        ("none", "", Hidden),
        ("shown", r#","thinking":{"type":"disabled"}"#, Hidden),
        (
            "request",
            r#","thinking":{"type":"adaptive","display":"omitted"}"#,
            Omitted,
        ),
    ] {
        let set = format!(r#"{{"messages_thinking":"{option}"}}"#);
        let got = planned("vllm", &set, &request(&format!("{HI}{asked}")), None).unwrap();
        assert_eq!(got.asked.display, expected, "{option} {asked}");
    }
}

/// Clients request more than small models hold. Engines would refuse that.
#[test]
fn a_limit_beyond_the_context_is_left_out() {
    let body = |limit: u64| format!(r#"{{"model":"m","max_tokens":{limit},{HI}}}"#);
    for (limit, context_length, expected) in [
        (4095, Some(4096), Some(4095)),
        (4096, Some(4096), None),
        (32_000, Some(4096), None),
        (32_000, None, Some(32_000)),
    ] {
        let got = planned("vllm", "{}", &body(limit), context_length).unwrap();
        assert_eq!(
            got.body["max_completion_tokens"],
            json!(expected),
            "{limit} of {context_length:?}"
        );
        assert_eq!(
            got.asked.limit,
            Some(limit),
            "the client's own limit decides on the stop reason"
        );
    }
}

/// A count has no limit, and a recorded request may lack anything.
#[test]
fn purposes() {
    let read = |body: &str, mode: MessagesMode, purpose: Purpose| {
        message_form::read(
            &Bytes::from(body.to_owned()),
            &options("{}"),
            None,
            mode,
            purpose,
        )
    };
    for mode in [MessagesMode::Chat, MessagesMode::Native] {
        let counted = format!(r#"{{"model":"m","stream":true,{HI}}}"#);
        assert!(
            !read(&counted, mode, Purpose::Count).unwrap().stream,
            "{mode:?}"
        );
        let limited = read(
            &format!(r#"{{"model":"m","max_tokens":7,{HI}}}"#),
            mode,
            Purpose::Count,
        )
        .unwrap();
        let sent: Value = serde_json::from_slice(&limited.body).unwrap();
        assert_eq!(
            sent["max_completion_tokens"],
            Value::Null,
            "{mode:?}: a count has no limit"
        );
        assert!(read("{}", mode, Purpose::Recall).is_ok(), "{mode:?}");
        assert!(
            read(r#"{"model":"m","max_tokens":1}"#, mode, Purpose::Answer).is_err(),
            "{mode:?}"
        );
    }
    let failure = read(
        &format!(r#"{{"model":"m",{HI}}}"#),
        MessagesMode::Chat,
        Purpose::Answer,
    )
    .unwrap_err();
    assert_eq!(failure.message, "max_tokens: Field required");
}

/// Defaults are members of the engine's request, in the words of chat.
#[test]
fn defaults_of_a_model() {
    let set = |defaults: &[(&str, &str)], body: &str| {
        let defaults: Vec<_> = defaults
            .iter()
            .map(|(key, json)| ((*key).to_owned(), (*json).to_owned()))
            .collect();
        let options = options("{}");
        let context = MessagesContext {
            rules: &Rules::default(),
            options: &options,
            model: None,
            open: &|_| None,
            defaults: &defaults,
            context_length: None,
            mode: MessagesMode::Chat,
            purpose: Purpose::Answer,
        };
        let asked = MessagesRequest::read(&Bytes::from(body.to_owned()), &context).unwrap();
        serde_json::from_slice::<Value>(&asked.body).unwrap()
    };
    // A message has no place for these.
    let sent = set(
        &[("logprobs", "true"), ("n", "2"), ("stream", "true")],
        &format!(r#"{{"model":"m","max_tokens":7,{HI}}}"#),
    );
    assert_eq!(
        (&sent["logprobs"], &sent["n"], &sent["stream"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let words = [
        ("reasoning_effort", "\"low\""),
        ("max_completion_tokens", "100"),
        ("stop", "[\"x\"]"),
    ];
    let sent = set(&words, &format!(r#"{{"model":"m",{HI}}}"#));
    assert_eq!(
        (
            &sent["reasoning_effort"],
            &sent["max_completion_tokens"],
            &sent["stop"]
        ),
        (&json!("low"), &json!(100), &json!(["x"]))
    );
    let sent = set(
        &words,
        &format!(
            r#"{{"model":"m","max_tokens":7,"stop_sequences":["y"],"output_config":{{"effort":"high"}},{HI}}}"#
        ),
    );
    assert_eq!(
        (
            &sent["reasoning_effort"],
            &sent["max_completion_tokens"],
            &sent["stop"]
        ),
        (&json!("high"), &json!(7), &json!(["y"]))
    );
}
