//! Headers of requests and answers, as clients of Anthropic send and read them.

use crate::clients::keys::entry;
use crate::messages::{
    engine, fault, has_no_header_of_openai, hello, message, object, stream, streamed, with_api_key,
};
use crate::sim::prelude::*;

#[tokio::test]
async fn answers_have_the_headers_that_clients_read() {
    let world = World::start(engine(), Setup::new()).await;
    let whole = world.request(&message("")).await;
    let events = world.request(&stream("")).await;
    assert_eq!(whole.head.header("content-type"), Some("application/json"));
    assert_eq!(
        events.head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    assert_eq!(events.head.header("cache-control"), Some("no-cache"));
    for answer in [&whole, &events] {
        let id = answer.head.header("request-id").expect("an id");
        assert_eq!(answer.head.header("x-request-id"), Some(id));
        has_no_header_of_openai(answer);
        assert_eq!(
            (
                answer.head.header("x-engine-secret"),
                answer.head.header("set-cookie")
            ),
            (None, None)
        );
    }
    assert_ne!(
        whole.head.header("request-id"),
        events.head.header("request-id")
    );
    let (whole, events) = (object(&whole), streamed(&events));
    assert_eq!(whole["content"], json!([{"type": "text", "text": "Hello"}]));
    assert_eq!(whole["content"], events["content"]);
    assert_eq!(
        whole["usage"],
        json!({"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 2})
    );
    assert_eq!(
        (&whole["stop_reason"], &whole["usage"]),
        (&events["stop_reason"], &events["usage"])
    );
    let own = world
        .request(&message("").header("x-request-id", "mine-1"))
        .await;
    assert_eq!(own.head.header("request-id"), Some("mine-1"));
    let attempts = world.engine.attempts();
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.target == "/v1/chat/completions")
    );
    world.end().await;
}

/// The version may be missing, of any date, and betas of any name are no reason to refuse. Nothing of it concerns an
/// engine that only chats.
#[tokio::test]
async fn versions_and_betas_are_taken_as_they_come() {
    let world = World::start(engine(), Setup::new()).await;
    let bare = message("").without("anthropic-version");
    let rows = [
        bare.clone(),
        bare.clone().header("anthropic-version", "2099-01-01"),
        bare.header("anthropic-version", ""),
        message("").header(
            "anthropic-beta",
            "no-such-beta-2099-01-01,interleaved-thinking-2025-05-14",
        ),
        message("")
            .header("anthropic-beta", "a")
            .header("anthropic-beta", "b"),
        message("").header("anthropic-dangerous-direct-browser-access", "true"),
        message("")
            .header("x-app", "cli")
            .header("user-agent", "claude-cli/2.1.0 (external, cli)"),
        // Claude Code and the beta namespace of the libraries use this target.
        message("").target("/v1/messages?beta=true"),
    ];
    let count = rows.len();
    for request in rows {
        let answer = world.request(&request).await;
        assert_eq!(
            object(&answer)["content"][0]["text"],
            "Hello",
            "{request:?}"
        );
        assert!(answer.head.header("request-id").is_some());
    }
    let attempts = world.engine.attempts();
    assert_eq!(attempts.len(), count);
    for attempt in attempts {
        let theirs: Vec<_> = attempt
            .headers
            .iter()
            .filter(|(name, _)| name.starts_with("anthropic-"))
            .collect();
        assert!(theirs.is_empty(), "{theirs:?}");
    }
    world.end().await;
}

/// Limits of an engine, or of a proxy before it, get the names of this API.
#[tokio::test]
async fn limits_have_the_names_of_this_api() {
    let lines = "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 45\r\nx-ratelimit-limit-tokens: \
                 900\r\nx-ratelimit-remaining-tokens: 7\r\nx-ratelimit-reset-requests: 1s\r\nx-ratelimit-more: 1\r\n";
    let whole = String::from_utf8(hello(false).bytes()).unwrap();
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    let limited = Script::new().raw(format!("{head}\r\n{lines}\r\n{body}"));
    let refused = r#"{"error":{"message":"slow down","type":"x","param":null,"code":429}}"#;
    let refused = Script::new().whole_with(
        "429 Too Many Requests",
        "application/json",
        &format!("{lines}retry-after: 7\r\n"),
        refused,
    );
    let world = World::start(Engine::in_turn(vec![limited, refused]), Setup::new()).await;
    for status in [200, 429] {
        let answer = world.request(&message("")).await;
        assert_eq!(answer.head.status, status, "{}", answer.text());
        for (name, value) in [
            ("anthropic-ratelimit-requests-limit", "60"),
            ("anthropic-ratelimit-requests-remaining", "45"),
            ("anthropic-ratelimit-tokens-limit", "900"),
            ("anthropic-ratelimit-tokens-remaining", "7"),
        ] {
            assert_eq!(answer.head.header(name), Some(value), "{status} {name}");
        }
        has_no_header_of_openai(&answer);
        if status == 429 {
            assert_eq!(answer.head.header("retry-after"), Some("7"));
            assert_eq!(
                fault(&answer).name(),
                (429, "rate_limit_error", Some("rate_limit_exceeded"))
            );
        }
    }
    world.end().await;
}

/// Pages of listed origins may send the key in Anthropic's header, and read every header that tells them something.
#[tokio::test]
async fn fault_c17b_pages_use_the_api_with_their_own_headers() {
    const APP: &str = "https://app.example";
    const ASKED: &str =
        "anthropic-dangerous-direct-browser-access,anthropic-version,content-type,x-api-key";
    let setup = Setup::new()
        .config(&entry(KEY, "requests_per_minute = 1"))
        .config(&format!("[cors]\norigins = [\"{APP}\"]"));
    let world = World::start(engine(), setup).await;
    for target in [
        "/v1/messages",
        "/v1/messages?beta=true",
        "/v1/messages/count_tokens",
        "/v1/models",
    ] {
        let preflight = Request::new("OPTIONS", target)
            .without("authorization")
            .header("origin", APP)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", ASKED);
        let answer = world.request(&preflight).await;
        assert_eq!(answer.head.status, 204, "{target}");
        assert_eq!(
            answer.head.header("access-control-allow-origin"),
            Some(APP),
            "{target}"
        );
        assert_eq!(
            answer.head.header("access-control-allow-headers"),
            Some(ASKED),
            "{target}"
        );
    }
    let request = with_api_key(&message(""), KEY).header("origin", APP);
    for status in [200, 429] {
        let answer = world.request(&request).await;
        assert_eq!(answer.head.status, status, "{}", answer.text());
        assert_eq!(answer.head.header("access-control-allow-origin"), Some(APP));
        let exposed = answer
            .head
            .header("access-control-expose-headers")
            .expect("exposed");
        let exposed: Vec<_> = exposed.split(", ").collect();
        let read = [
            "request-id",
            "x-request-id",
            "anthropic-ratelimit-requests-limit",
        ];
        let read = read.iter().chain((status == 429).then_some(&"retry-after"));
        for name in read {
            assert!(answer.head.header(name).is_some(), "{status}: no {name}");
            assert!(exposed.contains(name), "{status}: {name} of {exposed:?}");
        }
    }
    world.end().await;
}

/// HTTP/1.0 clients get a whole stream as well, ended by the close of the connection.
#[tokio::test]
async fn fault_c16_http_1_0() {
    let answer = World::answer(engine(), Setup::new(), &stream("").version("HTTP/1.0")).await;
    assert_eq!((answer.head.status, answer.ended), (200, Ended::Close));
    assert!(
        answer
            .text()
            .ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
    );
}
