//! Successful responses: statuses, headers, bytes.

use crate::canonical::{Canonical, grammar, usage_object};
use crate::sim::Head;
use crate::sim::prelude::*;

const ENVELOPE: &str = r#""id":"9f0","object":"chat.completion.chunk","created":1,"model":"m""#;

/// Checks every header of a response: none of them may come from the engine.
fn check_names(head: &Head) {
    const ALLOWED: &str = " content-type x-request-id retry-after x-should-retry x-samewire-attempts cache-control \
        x-accel-buffering openai-processing-ms openai-version date content-length transfer-encoding connection allow ";
    for (name, _) in &head.headers {
        assert!(
            ALLOWED.contains(&format!(" {name} ")),
            "header {name} must not be sent"
        );
    }
}

#[tokio::test]
async fn stream_has_the_headers_of_a_stream() {
    let world = World::start(Script::answer("a", 3), Setup::new()).await;
    let answer = world
        .request(&Request::stream("").header("x-request-id", "my.id_1-A"))
        .await;
    let head = &answer.head;
    assert_eq!((head.status, head.version.as_str()), (200, "HTTP/1.1"));
    assert_eq!(
        head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    assert!(
        head.header("cache-control")
            .is_some_and(|value| value.contains("no-cache")),
        "{head:?}"
    );
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(head.header("x-request-id"), Some("my.id_1-A"));
    assert_eq!(head.header("content-length"), None);
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    check_names(head);
    assert_eq!(answer.ended, Ended::LastChunk);
    assert_eq!(answer.text(), Canonical::answer("a", 3).text());
    world.end().await;
}

#[tokio::test]
async fn json_answer_is_canonical_and_has_the_headers_of_one() {
    let body = r#"{"id":"chatcmpl-7","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":"why"},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"system_fingerprint":"vllm-0.21","usage":{"prompt_tokens":3,"total_tokens":8,"completion_tokens":5,"prompt_tokens_details":null},"prompt_logprobs":null,"kv_transfer_params":null}"#;
    let world = World::start(Script::ok(body), Setup::new()).await;
    let answer = world.request(&Request::plain("")).await;
    let usage = usage_object(3, 5);
    let expected = format!(
        r#"{{"id":"chatcmpl-7","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"Hi","reasoning_content":"why","reasoning":"why","refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],"usage":{usage}}}"#
    );
    assert_eq!(answer.text(), expected);
    assert_eq!(answer.head.status, 200);
    assert_eq!(answer.head.header("content-type"), Some("application/json"));
    assert!(
        answer
            .head
            .header("cache-control")
            .is_some_and(|value| value.contains("no-store")),
        "{:?}",
        answer.head
    );
    assert_eq!(answer.ended, Ended::Length);
    check_names(&answer.head);
    assert_eq!(
        world
            .request(&Request::plain(r#","stream":false"#))
            .await
            .text(),
        expected
    );
    world.end().await;
}

#[tokio::test]
async fn request_id_is_echoed_if_harmless_and_minted_otherwise() {
    let (long, too_long) = ("a".repeat(128), "a".repeat(129));
    let table = [
        ("abc.DEF_1-2", true),
        (long.as_str(), true),
        (too_long.as_str(), false),
        ("two words", false),
        ("a:b", false),
        ("a\"b", false),
        ("", false),
    ];
    let world = World::plain(Setup::new()).await;
    for (given, echoed) in table {
        for request in [
            Request::stream(""),
            Request::chat("{"),
            Request::get("/v1/nothing"),
        ] {
            let answer = world.request(&request.header("x-request-id", given)).await;
            let id = answer
                .head
                .header("x-request-id")
                .expect("every answer has an id");
            assert_eq!(id == given, echoed, "{given:?} became {id:?}");
            assert!(echoed || minted(id), "{id:?}");
        }
    }
    let ids = [world.stream("").await, world.stream("").await];
    assert_ne!(
        ids[0].head.header("x-request-id"),
        ids[1].head.header("x-request-id")
    );
    world.end().await;
}

/// Returns true if this is `req_` and 32 hex digits.
pub fn minted(id: &str) -> bool {
    let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    id.strip_prefix("req_")
        .is_some_and(|rest| rest.len() == 32 && rest.chars().all(hex))
}

#[tokio::test]
async fn vllm_stream_comes_out_canonical() {
    let engine = Script::stream()
        .delta(r#"{"reasoning":"Think"}"#, "null")
        .delta(r#"{"reasoning":" é\u2028🤔"}"#, "null")
        .delta(r#"{"content":"Hi "}"#, "null")
        .delta(
            r#"{"tool_calls":[{"id":"chatcmpl-tool-ab","type":"function","index":0,"function":{"name":"f","arguments":""}}]}"#,
            "null",
        )
        .delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}"#, "null")
        .delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#, "\"tool_calls\"")
        .usage(3, 5)
        .done()
        .end();
    let world = World::start(engine, Setup::new()).await;
    let answer = world
        .stream(r#","stream_options":{"include_usage":true}"#)
        .await;
    let expected = Canonical::with_usage()
        .role()
        .reasoning("Think")
        .delta(r#"{"reasoning_content":" é\u2028🤔","reasoning":" é\u2028🤔"}"#, "null")
        .content("Hi ")
        .delta(
            r#"{"tool_calls":[{"index":0,"id":"call_ab","type":"function","function":{"name":"f","arguments":""}}]}"#,
            "null",
        )
        .delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}"#, "null")
        .delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#, "null")
        .finish("tool_calls")
        .usage(3, 5)
        .done();
    assert_eq!(answer.text(), expected.text());
    grammar(answer.text());
    world.end().await;
}

#[tokio::test]
async fn sglang_stream_comes_out_canonical() {
    let chunk = |created: u32, delta: &str, finish: &str| {
        let envelope = ENVELOPE.replace("\"created\":1", &format!("\"created\":{created}"));
        format!(
            r#"{{{envelope},"choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish},"matched_stop":null}}]}}"#
        )
    };
    let engine = Script::new()
        .head_sse()
        .ev(&chunk(1, r#"{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null}"#, "null"))
        .ev(&chunk(2, r#"{"role":null,"content":null,"reasoning_content":"Think","tool_calls":null}"#, "null"))
        .ev(&chunk(3, r#"{"role":null,"content":"Hi","reasoning_content":null,"tool_calls":null}"#, "null"))
        .ev(&chunk(4, r#"{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}"#, "\"stop\""))
        .ev(&format!(
            r#"{{{ENVELOPE},"choices":[],"usage":{{"prompt_tokens":3,"total_tokens":8,"completion_tokens":5,"prompt_tokens_details":null,"reasoning_tokens":0}}}}"#
        ))
        .done()
        .end();
    let answer = World::answer_as(engine, "sglang", Setup::new(), &Request::stream("")).await;
    let expected = Canonical::with_id("chatcmpl-9f0")
        .role()
        .reasoning("Think")
        .content("Hi")
        .finish("stop")
        .done();
    assert_eq!(answer.text(), expected.text());
}

#[tokio::test]
async fn completions_come_out_canonical() {
    let chunk = |text: &str, finish: &str| {
        format!(
            r#"{{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{finish},"stop_reason":null,"prompt_logprobs":null}}]}}"#
        )
    };
    let engine = Script::new()
        .head_sse()
        .ev(&chunk("a", "null"))
        .ev(&chunk("b", "\"length\""))
        .done()
        .end();
    let world = World::start(engine, Setup::new()).await;
    let body = format!(r#"{{"model":"m","prompt":"{PROMPT}","stream":true}}"#);
    let answer = world.post("/v1/completions", body).await;
    let frame = |text: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"text\":\"{text}\",\"index\":0,\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let expected = [
        frame("a", "null"),
        frame("b", "null"),
        frame("", "\"length\""),
        "data: [DONE]\n\n".into(),
    ]
    .concat();
    assert_eq!(answer.text(), expected);
    assert_eq!(world.engine.only().target, "/v1/completions");
    world.end().await;
}

/// The status and the head are not sent before the engine's first event.
#[tokio::test]
async fn status_is_held_until_the_first_event() {
    let error =
        r#"{"error":{"message":"too many","type":"TooManyRequests","param":null,"code":429}}"#;
    let script = Script::new()
        .head_sse()
        .chunk(": ping\n\n")
        .sleep(Duration::from_millis(50))
        .ev(error)
        .done()
        .end();
    let answer = World::answer(script, Setup::new().allow_errors(), &Request::stream(""))
        .await
        .with_status(429);
    assert_eq!(
        answer.fault().name(),
        ("rate_limit_error", Some("rate_limit_exceeded"))
    );
}

/// Each frame reaches the client at once, even if the engine sends nothing after it.
#[tokio::test]
async fn each_frame_is_flushed_when_it_is_ready() {
    let gates: [Gate; 3] = Default::default();
    let script = Script::stream()
        .text("one")
        .wait(&gates[0])
        .text("two")
        .wait(&gates[1]);
    let script = script.finish("stop").wait(&gates[2]).done().end();
    let world = World::start(script, Setup::new()).await;
    let mut client = world.begin_until(&Request::stream(""), "assistant").await;
    client.event_with("one").await;
    gates[0].open();
    client.event_with("two").await;
    gates[1].open();
    gates[2].open();
    client.event_with("\"stop\"").await;
    assert_eq!(client.event().await.as_deref(), Some("data: [DONE]"));
    assert_eq!(client.event().await, None);
    assert_eq!(client.ended(), Ended::LastChunk);
    world.end().await;
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let world = World::start(Script::answer("a", 2), Setup::new()).await;
    let mut client = Client::connect(world.proxy()).await;
    for _ in 0..5 {
        for request in [
            Request::stream(""),
            Request::get("/v1/nothing"),
            Request::chat("["),
        ] {
            client.send(&request.bytes()).await;
            client.answer().await;
        }
    }
    world.end_after(5).await;
}

#[tokio::test]
async fn embeddings_pass_with_usage_normalised() {
    let vector = "[0.10000000000000000555,-1e-7,3]";
    let body = format!(
        r#"{{"id":"embd-1","object":"list","created":1,"model":"m","data":[{{"index":0,"object":"embedding","embedding":{vector}}}],"usage":{{"prompt_tokens":4,"total_tokens":4,"completion_tokens":0,"prompt_tokens_details":null}}}}"#
    );
    let world = World::start(Script::ok(&body), Setup::new()).await;
    let asked = format!(r#"{{"model":"m","input":"{PROMPT}"}}"#);
    let answer = world
        .post("/v1/embeddings", asked.as_str())
        .await
        .with_status(200);
    for part in [
        r#""object":"list""#,
        r#""model":"m""#,
        vector,
        r#""usage":{"prompt_tokens":4,"total_tokens":4}"#,
    ] {
        assert!(answer.text().contains(part), "{part} in {}", answer.text());
    }
    let attempt = world.engine.only();
    assert_eq!(
        (attempt.target.as_str(), attempt.text()),
        ("/v1/embeddings", asked.as_str())
    );
    world.end().await;
}

#[tokio::test]
async fn errors_of_embeddings_are_normalised() {
    let error = r#"{"object":"error","message":"no embedding model","type":"BadRequestError","param":null,"code":400}"#;
    let world = World::start(Script::new().json("400 Bad Request", error), Setup::new()).await;
    let answer = world
        .post("/v1/embeddings", r#"{"model":"m","input":"x"}"#)
        .await
        .with_status(400);
    assert_eq!(
        answer.text(),
        r#"{"error":{"message":"no embedding model","type":"invalid_request_error","param":null,"code":null}}"#
    );
    world.end().await;
}

/// The engine's rate-limit headers reach the client on every route (wire-format 5).
#[tokio::test]
async fn embeddings_pass_on_how_long_to_wait() {
    let body =
        r#"{"object":"error","message":"full","type":"TooManyRequests","param":null,"code":429}"#;
    let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nretry-after-ms: 6500\r\nx-ratelimit-left: 0\r\n";
    let script = Script::new().raw(format!(
        "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let world = World::start(script, Setup::new()).await;
    let answer = world
        .post("/v1/embeddings", r#"{"model":"m","input":"x"}"#)
        .await
        .with_status(429);
    for (name, value) in [
        ("retry-after", "7"),
        ("retry-after-ms", "6500"),
        ("x-ratelimit-left", "0"),
    ] {
        assert_eq!(answer.head.header(name), Some(value), "{name}");
    }
    world.end().await;
}
