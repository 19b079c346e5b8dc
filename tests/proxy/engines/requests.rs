//! Requests as the engine receives them: the client's body with a few documented changes, and none of its headers.

use crate::sim::prelude::*;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Members of a JSON object in order, with their values verbatim.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Returns the members of an object as text.
fn members(body: &str) -> Vec<(String, String)> {
    let parsed: Members = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    parsed
        .0
        .into_iter()
        .map(|(name, raw)| (name, raw.get().to_owned()))
        .collect()
}

/// Sends one body and returns the request that arrived at the engine.
async fn arrived(kind: &str, body: &str) -> Attempt {
    let engine = Engine::answering(|attempt| {
        if attempt.text().contains("\"stream\":true") {
            return Script::answer("a", 1);
        }
        Script::completion("x")
    });
    let world = World::start_as(engine.await, kind, Setup::new()).await;
    world.chat(body).await.with_status(200);
    let attempt = world.engine.only();
    world.end().await;
    attempt
}

/// Values that a careless JSON library changes: digits, escapes, key order, white space, repeated keys.
const ODD: &str = r#"[{"role":"user","content":[ {"text":"é\u00e9\/\ud83d\ude00\u0000","type":"text" } ],"z":1,"a":-0,
   "big":123456789012345678901234567890, "small":0.10000000000000000555,"exp":1E+400,"twice":1,"twice":2 }]"#;

#[tokio::test]
async fn fault_c03_body_that_needs_no_change_arrives_byte_for_byte() {
    let bodies = [
        format!(r#"{{"model":"m", "messages":{ODD} ,"top_k":40,"seed":12345678901234567890}}"#),
        format!(
            "\n{{ \"tools\":[{{\"type\":\"function\",\"function\":{{\"name\":\"f\",\"parameters\":{{\"maximum\":1e999,\"b\":{{}},\"a\":[ ]}}}}}}],\n\t\"model\":\"m\",\"messages\":{ODD},\"stream\":true,\"stream_options\":{{\"include_usage\":true}}}}\n"
        ),
        format!(
            r#"{{"messages":{ODD},"stream":false,"model":"m","chat_template_kwargs":{{"x":1,"x":2}},"n":1}}"#
        ),
        format!(
            r#"{{"messages":{ODD},"model":"m","user":"{}"}}"#,
            "u".repeat(1 << 20)
        ),
        format!(
            r#"{{"model":"m","messages":{ODD},"metadata_x":{}}}"#,
            "7".repeat(1 << 20)
        ),
    ];
    for body in bodies {
        let attempt = arrived("vllm", &body).await;
        assert!(
            attempt.text() == body.as_str(),
            "sent {:.3000}\ngot  {:.3000}",
            body,
            attempt.text()
        );
        assert_eq!(
            attempt.header("content-length"),
            Some(body.len().to_string().as_str())
        );
        assert_eq!(attempt.header("transfer-encoding"), None);
    }
}

#[tokio::test]
async fn usage_is_asked_for_and_nothing_else_changes() {
    let rows = [
        ("", r#"{"include_usage":true}"#),
        (r#""stream_options":null,"#, r#"{"include_usage":true}"#),
        (r#""stream_options":{},"#, r#"{"include_usage":true}"#),
        (
            r#""stream_options":{"include_usage":false},"#,
            r#"{"include_usage":true}"#,
        ),
        (
            r#""stream_options":{"x":1.50,"include_usage":true},"#,
            r#"{"x":1.50,"include_usage":true}"#,
        ),
        (
            r#""stream_options":{"x":1.50},"#,
            r#"{"x":1.50,"include_usage":true}"#,
        ),
        (
            r#""stream_options":{"include_usage":true,"include_obfuscation":false},"#,
            r#"{"include_usage":true}"#,
        ),
    ];
    for (options, expected) in rows {
        let body =
            format!(r#"{{"model":"m",{options}"messages":{ODD},"stream":true,"top_p":0.90}}"#);
        let attempt = arrived("vllm", &body).await;
        let mut got = members(attempt.text());
        let at = got
            .iter()
            .position(|(name, _)| name == "stream_options")
            .expect("stream_options is sent");
        let (mut asked, mut wanted) = (members(&got.remove(at).1), members(expected));
        asked.sort();
        wanted.sort();
        assert_eq!(asked, wanted, "{options}");
        let rest: Vec<_> = members(&body)
            .into_iter()
            .filter(|(name, _)| name != "stream_options")
            .collect();
        assert_eq!(got, rest, "{options}");
    }
}

#[tokio::test]
async fn reasoning_gets_the_name_the_engine_reads() {
    let said = r#"a \"reasoning_content\" and \"reasoning\": kept"#;
    let body = |name: &str| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{said}","reasoning_content":1}},{{"content":"b","{name}":"why\u0021", "role":"assistant","tool_calls":[{{"id":"1","type":"function","function":{{"name":"f","arguments":"{{\"reasoning\":1}}"}}}}]}},{{"role":"tool","tool_call_id":"1","content":"x"}}]}}"#
        )
    };
    for (kind, expected) in [("vllm", "reasoning"), ("sglang", "reasoning_content")] {
        for name in ["reasoning", "reasoning_content"] {
            assert_eq!(
                arrived(kind, &body(name)).await.text(),
                body(expected),
                "{kind} {name}"
            );
        }
    }
}

#[tokio::test]
async fn fault_c21_no_header_of_the_client_reaches_the_engine() {
    let world = World::plain(Setup::new()).await;
    let mut request = Request::stream("")
        .header("accept", "text/event-stream")
        .header("user-agent", "OpenAI/Python");
    for name in [
        "x-forwarded-for",
        "forwarded",
        "cookie",
        "te",
        "proxy-authorization",
        "x-api-key",
        "api-key",
        "openai-organization",
        "x-stainless-lang",
        "range",
        "if-none-match",
        "trailer",
        "keep-alive",
        "tracestate",
        "x-real-ip",
        "origin",
        "referer",
        "x-anything",
    ] {
        request = request.header(name, "evil");
    }
    request = request
        .header("connection", "x-request-id, content-type, te")
        .header("accept-encoding", "gzip, br")
        .header("traceparent", "garbage")
        .header("x-request-id", "the-client-s-own");
    let answer = world.request(&request).await;
    assert_eq!(answer.head.header("x-request-id"), Some("the-client-s-own"));
    assert_eq!(answer.head.header("content-encoding"), None);
    check_head(&world.engine.only(), &world);
    world.end().await;
}

/// Checks the complete list of headers that an engine receives.
fn check_head(attempt: &Attempt, world: &World) {
    assert!(
        attempt
            .head
            .starts_with(b"POST /v1/chat/completions HTTP/1.1\r\n")
    );
    let agent = format!("samewire/{}", env!("CARGO_PKG_VERSION"));
    let host = world.engine.address.to_string();
    let length = attempt.body.len().to_string();
    let key = format!("Bearer {KEY}");
    let written = [
        ("host", host.as_str()),
        ("content-type", "application/json"),
        ("accept-encoding", "identity"),
        ("content-length", &length),
        ("authorization", &key),
        ("user-agent", &agent),
    ];
    for (name, value) in written {
        assert_eq!(attempt.header(name), Some(value), "{name}");
    }
    let id = attempt
        .header("x-request-id")
        .expect("the engine gets an id");
    let (id, n) = id.rsplit_once('-').expect("with the number of the attempt");
    assert!(crate::engines::answers::minted(id) && n == "1", "{id}-{n}");
    let known = |name: &str| {
        written.iter().any(|(n, _)| *n == name)
            || ["x-request-id", "accept", "traceparent", "x-samewire-hop"].contains(&name)
    };
    for (name, value) in &attempt.headers {
        assert!(known(name), "{name} went to the engine");
        assert!(
            !value.contains("evil") && !value.contains("garbage"),
            "{name}: {value}"
        );
    }
}

#[tokio::test]
async fn valid_trace_context_goes_on() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let world = World::plain(Setup::new()).await;
    world
        .request(&Request::stream("").header("traceparent", parent))
        .await;
    let attempt = world.engine.only();
    let passed = attempt.header("traceparent").expect("a trace goes on");
    assert_eq!(&passed[..36], &parent[..36], "the same trace");
    world.end().await;
}

#[tokio::test]
async fn upstream_may_be_given_with_or_without_v1() {
    for suffix in ["", "/", "/v1", "/v1/"] {
        let engine = Engine::script(Script::answer("a", 1)).await;
        let setup = Setup::new().upstream(&format!("{}{suffix}", engine.url()));
        let world = World::start(engine, setup).await;
        assert_eq!(world.stream("").await.head.status, 200);
        assert_eq!(
            world.engine.only().target,
            "/v1/chat/completions",
            "{suffix:?}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn fault_c20_text_of_the_body_never_becomes_a_header() {
    let evil = r"m\r\nx-injected: 1\u0000\u007f";
    let world = World::plain(Setup::new()).await;
    let body = format!(
        r#"{{"model":"{evil}","user":"{evil}","messages":[{{"role":"user","name":"{evil}","content":"{PROMPT}{evil}"}}],"metadata":{{"{evil}":"{evil}"}},"tools":[{{"type":"function","function":{{"name":"{evil}","parameters":{{}}}}}}],"stream":true,"stream_options":{{"include_usage":true}}}}"#
    );
    let answer = world.chat(body.as_str()).await.with_status(200);
    assert_eq!(answer.head.header("x-injected"), None);
    let attempt = world.engine.only();
    assert_eq!(attempt.header("x-injected"), None);
    assert_eq!(attempt.text(), body);
    world.samewire.finished(1).await;
    let logs = world.samewire.logs();
    assert!(
        logs.iter()
            .all(|line| !line.starts_with("x-injected") && line.starts_with('{')),
        "{logs:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u43_large_body_arrives_whole() {
    let world = World::plain(Setup::new()).await;
    let text: String = (0..1_500_000_u64)
        .map(|i| char::from(b'a' + (i * 7919 % 25) as u8))
        .collect();
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{PROMPT}{text}"}}],"stream":true,"stream_options":{{"include_usage":true}}}}"#
    );
    for request in [
        Request::chat(body.as_str()),
        Request::chat(body.as_str()).chunked(100_000),
    ] {
        assert_eq!(world.request(&request).await.head.status, 200);
    }
    let attempts = world.engine.attempts();
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.body == body.as_bytes())
            && attempts.len() == 2
    );
    world.end().await;
}

/// A long body is sent from the buffer in which it arrived, around the members that samewire writes.
#[tokio::test]
async fn fault_u43_large_body_with_changes_arrives_whole() {
    let world = World::plain(Setup::new()).await;
    let text: String = (0..3_000_000_u64)
        .map(|i| char::from(b'a' + (i * 7919 % 25) as u8))
        .collect();
    let body = |include: bool, user: &str| {
        format!(
            r#"{{"model":"m","stream_options":{{"include_usage":{include}}},"messages":[{{"role":"user","content":"{PROMPT}{text}"}}],"stream":true{user}}}"#
        )
    };
    for user in [String::new(), format!(r#","user":"{text}""#)] {
        let request = || Request::chat(body(false, &user).as_str());
        for request in [request(), request().chunked(100_000)] {
            assert_eq!(world.request(&request).await.head.status, 200);
        }
        let expected = body(true, &user);
        let attempts = world.engine.attempts();
        assert!(
            attempts
                .iter()
                .rev()
                .take(2)
                .all(|attempt| attempt.body == expected.as_bytes())
        );
    }
    world.end().await;
}

/// Changes made because an engine does not accept a member are counted under its name.
#[tokio::test]
async fn what_was_changed_for_an_engine_is_counted() {
    let world = World::start_as(Script::answer("a", 1), "vllm", Setup::new()).await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[],"tool_choice":"auto","n":null,"stream":true}"#;
    world.chat(body).await.with_status(200);
    let expected = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"stream_options":{"include_usage":true}}"#;
    assert_eq!(world.engine.only().text(), expected);
    let metrics = world.samewire.metrics().await;
    for rule in ["empty_tools", "null_members"] {
        let line = format!("samewire_rewrites_total{{engine=\"vllm\",rule=\"{rule}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    world.end().await;
}
