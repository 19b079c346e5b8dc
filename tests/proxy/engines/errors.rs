//! Engines that refuse, fail or send invalid answers.

use crate::canonical::{ABORTED, Canonical, INCOMPLETE, INVALID_EVENT, grammar};
use crate::sim::prelude::*;

const JSON: &str = "application/json";

/// Engine's answer: status line, content type, body.
type Refusal = (&'static str, &'static str, String);

/// Returns a setup in which clients get the engines' own error messages.
fn engine_messages() -> Setup {
    Setup::new().allow_errors().set("engine_errors=pass")
}

/// Returns errors in the engines' own shapes, each with the resulting status and body.
fn refusals_in_json() -> Vec<(Refusal, u16, String)> {
    let (bad, server) = ("invalid_request_error", "server_error");
    let nested = |kind: &str, code: u16| {
        format!(r#"{{"error":{{"message":"said","type":"{kind}","param":null,"code":{code}}}}}"#)
    };
    let flat = |kind: &str, code: u16| {
        format!(
            r#"{{"object":"error","message":"said","type":"{kind}","param":null,"code":{code}}}"#
        )
    };
    let long = "This model's maximum context length is 2048 tokens.";
    let missing = "The model `x` does not exist.";
    let detail = r#"{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required"},{"type":"x","loc":["body","n"],"msg":"bad"}]}"#;
    let error = |message: &str, kind: &str, param: &str, code: &str| {
        format!(
            r#"{{"error":{{"message":"{message}","type":"{kind}","param":{param},"code":{code}}}}}"#
        )
    };
    let row = |line: &'static str, body: String, status: u16, expected: String| {
        ((line, JSON, body), status, expected)
    };
    let null = "null";
    vec![
        row(
            "400 Bad Request",
            nested("BadRequestError", 400),
            400,
            error("said", bad, null, null),
        ),
        row(
            "400 Bad Request",
            flat("BadRequestError", 400),
            400,
            error("said", bad, null, null),
        ),
        row(
            "400 Bad Request",
            flat("BadRequestError", 400).replace("said", long),
            400,
            error(long, bad, null, "\"context_length_exceeded\""),
        ),
        row(
            "422 Unprocessable Entity",
            detail.into(),
            400,
            error(
                "messages: Field required; n: bad",
                bad,
                "\"messages\"",
                null,
            ),
        ),
        row(
            "401 Unauthorized",
            r#"{"error":"Unauthorized"}"#.into(),
            401,
            error("Unauthorized", bad, null, "\"invalid_api_key\""),
        ),
        row(
            "403 Forbidden",
            flat("PermissionDeniedError", 403),
            403,
            error("said", "permission_error", null, null),
        ),
        row(
            "404 Not Found",
            nested("NotFoundError", 404).replace("said", missing),
            404,
            error(missing, bad, null, "\"model_not_found\""),
        ),
        row(
            "429 Too Many Requests",
            nested("Too Many Requests", 429),
            429,
            error("said", "rate_limit_error", null, "\"rate_limit_exceeded\""),
        ),
        row(
            "500 Oops",
            flat("InternalServerError", 500),
            500,
            error("said", server, null, "\"internal_error\""),
        ),
        row(
            "501 Oops",
            flat("NotImplementedError", 501),
            501,
            error("said", server, null, "\"not_implemented\""),
        ),
        row(
            "503 Oops",
            flat("ServiceUnavailableError", 503),
            503,
            error("said", server, null, "\"server_is_overloaded\""),
        ),
    ]
}

/// Returns errors that cannot be parsed: statuses from 500 are kept, others become 502.
fn refusals_of_other_kinds() -> Vec<(Refusal, u16, String)> {
    let html = "<html><body><h1>Sorry</h1><p>nginx at 10.0.0.7</p></body></html>";
    let rows = [
        (
            "500 Internal Server Error",
            "text/plain",
            "Internal Server Error".to_owned(),
        ),
        ("502 Bad Gateway", "text/html", html.to_owned()),
        ("503 Service Unavailable", "text/html", html.to_owned()),
        ("504 Gateway Timeout", "text/html", html.to_owned()),
        ("400 Bad Request", "text/html", html.to_owned()),
        ("502 Bad Gateway", "", String::new()),
        ("500 Internal Server Error", JSON, String::new()),
        ("500 Internal Server Error", JSON, "{\"error\":".to_owned()),
        (
            "500 Internal Server Error",
            "text/html",
            format!("<html>{}</html>", "x".repeat(1 << 20)),
        ),
        (
            "500 Internal Server Error",
            JSON,
            format!("{{\"detail\":\"{}", "x".repeat(1 << 20)),
        ),
    ];
    let expected = |line: &str| {
        let status = &line[..3];
        let error = format!(
            r#"{{"error":{{"message":"Server error: the upstream engine returned an invalid response (HTTP {status}).","type":"server_error","param":null,"code":"upstream_invalid_response"}}}}"#
        );
        (
            if status.starts_with('5') {
                status.parse().expect("a status")
            } else {
                502
            },
            error,
        )
    };
    let with_expected = |refusal: Refusal| {
        let (status, error) = expected(refusal.0);
        (refusal, status, error)
    };
    rows.into_iter().map(with_expected).collect()
}

#[tokio::test]
async fn fault_u18_refusals_of_engines() {
    for ((line, kind, body), status, expected) in refusals_in_json()
        .into_iter()
        .chain(refusals_of_other_kinds())
    {
        let world = World::start(Script::new().whole(line, kind, &body), engine_messages()).await;
        for request in [Request::stream(""), Request::plain("")] {
            let answer = world.request(&request).await;
            answer.fault();
            assert_eq!(
                (answer.head.status, answer.text()),
                (status, expected.as_str()),
                "{line} {kind} {body:.200}"
            );
            assert_eq!(
                status == 501,
                answer.head.header("x-should-retry") == Some("false"),
                "{line}"
            );
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u18_error_body_without_end() {
    let head = "HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: 1073741824\r\n\r\n";
    let script = (0..64)
        .fold(Script::new().raw(head), |script, _| {
            script.raw(vec![b' '; 1 << 20])
        })
        .hang();
    let world = World::start(script, Setup::new().allow_errors()).await;
    let before = world.samewire.allocated();
    let answer = world.stream("").await;
    assert_eq!(answer.fault().kind, "server_error");
    assert_eq!(answer.head.status, 500);
    assert!(world.samewire.allocated() < before + (4 << 20));
    until("the rest is not read", || {
        world.engine.active_generations() == 0
    })
    .await;
    assert!(
        world.engine.written(0) < 8 << 20,
        "{}",
        world.engine.written(0)
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u22_long_engine_messages_are_cut() {
    let body = format!(
        r#"{{"error":{{"message":"{}","type":"BadRequestError","code":400}}}}"#,
        "m".repeat(30_000)
    );
    let script = Script::new().json("400 Bad Request", &body);
    let message = World::answer(script, Setup::new(), &Request::stream(""))
        .await
        .fault()
        .message;
    assert!(
        message.starts_with("mmmm") && message.len() <= 2100,
        "{}",
        message.len()
    );
}

#[tokio::test]
async fn fault_u23_retry_after() {
    let error = r#"{"error":{"message":"busy","type":"RateLimitError","param":null,"code":429}}"#;
    let rows = [
        ("retry-after: 7\r\n", Some("7")),
        ("retry-after: 31536000\r\n", Some("60")),
        ("retry-after: 0\r\n", None),
        ("retry-after: -5\r\n", None),
        ("retry-after: soon\r\n", None),
        ("", None),
    ];
    for (line, expected) in rows {
        for status in ["429 Too Many Requests", "503 Service Unavailable"] {
            let script = Script::new().whole_with(status, JSON, line, error);
            let answer =
                World::answer(script, Setup::new().allow_errors(), &Request::stream("")).await;
            // `fault` checks for every 429 and 503 that `retry-after` is present and within its limits.
            answer.fault();
            assert!(status.starts_with(&answer.head.status.to_string()));
            assert!(
                expected.is_none() || answer.head.header("retry-after") == expected,
                "{line}: {:?}",
                answer.head
            );
        }
    }
}

#[tokio::test]
async fn fault_u20_u21_u39_answers_samewire_cannot_use() {
    let sse = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
    let elsewhere = "location: http://127.0.0.1:1/v1/chat/completions\r\n";
    let rows = [
        Script::new().whole_with(
            "200 OK",
            JSON,
            "content-encoding: gzip\r\n",
            b"\x1f\x8b\x08\x00\x00",
        ),
        Script::new().whole_with(
            "200 OK",
            "text/event-stream",
            "content-encoding: br\r\n",
            sse,
        ),
        Script::new().whole_with(
            "500 Oops",
            JSON,
            "content-encoding: gzip\r\n",
            b"\x1f\x8b\x08\x00\x00",
        ),
        Script::new().whole_with("307 Temporary Redirect", "", elsewhere, ""),
        Script::new().whole_with("301 Moved Permanently", "text/html", elsewhere, "<a>"),
        Script::new().whole_with(
            "302 Found",
            JSON,
            "location: /v1/chat/completions/\r\n",
            "{}",
        ),
        Script::new().raw("HTTP/1.1 204 No Content\r\n\r\n"),
        Script::new()
            .raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")
            .hang(),
        Script::new().whole("200 OK", "text/html", "<html>hello</html>"),
        Script::new().whole("200 OK", "", "plain text"),
        Script::ok(""),
        Script::ok("[]"),
        Script::ok("{\"choices\":"),
        Script::new().raw("SSH-2.0-OpenSSH_9.9\r\n").fin(),
        Script::new()
            .raw("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}")
            .fin(),
        Script::new()
            .raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}")
            .fin(),
        Script::new()
            .raw(format!(
                "HTTP/1.1 200 OK\r\nx: {}\r\n\r\n",
                "y".repeat(1 << 20)
            ))
            .fin(),
    ];
    for script in rows {
        let what = String::from_utf8_lossy(&script.bytes())
            .chars()
            .take(120)
            .collect::<String>();
        let world = World::start(script, Setup::new().allow_errors()).await;
        for request in [Request::stream(""), Request::plain("")] {
            let answer = world.request(&request).await;
            let (status, fault) = (answer.head.status, answer.fault());
            let (kind, code) = (fault.kind, fault.code.unwrap_or_default());
            assert!(
                status == 502 || (what.contains(" 500 ") && status == 500),
                "{status} for {what:?}"
            );
            assert_eq!(kind, "server_error", "{what:?}");
            assert!(code.starts_with("upstream_"), "{code} for {what:?}");
            let exact = what.contains("content-encoding") || what.contains(" 30");
            assert!(
                !exact || code == "upstream_invalid_response",
                "{code} for {what:?}"
            );
        }
        assert_eq!(
            world.engine.attempt_count(),
            2,
            "{what:?}: neither followed nor repeated"
        );
        world.end().await;
    }
}

/// A choice without a message, or one sent twice, is a lost answer: it never looks like an empty success.
#[tokio::test]
async fn fault_u54_a_choice_without_a_message_is_no_answer() {
    let answer = |choices: &str| {
        format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m",{choices},"usage":{{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}}}"#
        )
    };
    let good = r#"{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}"#;
    let lost = [
        r#""choices":[{"index":0,"finish_reason":"stop"}]"#.to_owned(),
        r#""choices":[{"index":0,"message":null,"finish_reason":"stop"}]"#.to_owned(),
        r#""choices":[{"index":0,"message":{},"finish_reason":"stop"}]"#.to_owned(),
        r#""choices":[{"index":0,"message":{"content":null},"finish_reason":"stop"}]"#.to_owned(),
        format!(r#""choices":[{good},{good}]"#),
        format!(r#""choices":[{good}],"choices":[{good}]"#),
    ];
    for choices in lost {
        let world = World::start(Script::ok(answer(&choices)), Setup::new().allow_errors()).await;
        for request in [Request::plain(""), Request::stream("")] {
            assert_eq!(
                world.request(&request).await.failure(),
                "502 server_error upstream_invalid_response",
                "{choices}"
            );
        }
        world.end().await;
    }
    // A model may end at once, or be cut before its first token.
    for choices in [
        r#""choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]"#,
        r#""choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":"stop"}]"#,
        r#""choices":[{"index":0,"message":{},"finish_reason":"length"}]"#,
    ] {
        let world = World::start(Script::ok(answer(choices)), Setup::new()).await;
        assert_eq!(
            world.request(&Request::plain("")).await.head.status,
            200,
            "{choices}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u39_early_hints_are_skipped() {
    let hints = Script::new().raw("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n");
    let script = hints.followed_by(Script::answer("a", 2));
    let answer = World::answer(script, Setup::new(), &Request::stream("")).await;
    assert_eq!(answer.text(), Canonical::answer("a", 2).text());
}

#[tokio::test]
async fn fault_u39_bytes_after_done_and_after_the_answer() {
    let begun = || {
        Script::stream()
            .tok("a", 2, Duration::ZERO)
            .finish("stop")
            .usage(1, 2)
            .done()
    };
    let junk = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad";
    let rows = [
        begun().text("late").done().end(),
        begun().ev(r#"{"error":"late"}"#).end(),
        begun().chunk("data: {broken\n\n").end(),
        begun().raw("0\r\nx-trailer: 1\r\n\r\n"),
        begun().raw(format!("0\r\n\r\n{junk}")),
        Script::new().raw([begun().end().bytes(), junk.into()].concat()),
    ];
    for (n, script) in rows.into_iter().enumerate() {
        let world = World::start(script, Setup::new()).await;
        for _ in 0..3 {
            let answer = world.stream("").await;
            assert_eq!(answer.text(), Canonical::answer("a", 2).text(), "row {n}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u41_answer_longer_than_its_length() {
    let rest = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n\"foreign";
    let mut long = Script::completion("x").bytes();
    long.extend_from_slice(rest.as_bytes());
    let world = World::start(Script::new().raw(long), Setup::new()).await;
    for _ in 0..5 {
        let answer = world.request(&Request::plain("")).await;
        assert!(
            answer.head.status == 200 && !answer.text().contains("foreign"),
            "{}",
            answer.text()
        );
    }
    world.end().await;
}

/// Ways in which an engine reports an error in a stream, each with the resulting status, type, code and message.
const IN_BAND: [(&str, u16, &str, &str, &str); 8] = [
    (
        r#"{"error":{"message":"said","type":"BadRequestError","param":null,"code":400}}"#,
        400,
        "invalid_request_error",
        "null",
        "said",
    ),
    (
        r#"{"error":{"message":"said","type":"InternalServerError","code":500}}"#,
        500,
        "server_error",
        "\"internal_error\"",
        "said",
    ),
    (
        r#"{"error":{"object":"error","message":"said","type":"InternalServerError","param":null,"code":500}}"#,
        500,
        "server_error",
        "\"internal_error\"",
        "said",
    ),
    (
        r#"{"error":"said"}"#,
        500,
        "server_error",
        "\"internal_error\"",
        "said",
    ),
    (
        r#"{"object":"error","message":"said","type":"InternalServerError","param":null,"code":500}"#,
        500,
        "server_error",
        "\"internal_error\"",
        "said",
    ),
    (
        r#"{"error":{"message":"said","type":"Too Many Requests","code":429}}"#,
        429,
        "rate_limit_error",
        "\"rate_limit_exceeded\"",
        "said",
    ),
    (
        r#"{"error":{"message":"said","type":"ServiceUnavailableError","code":503}}"#,
        503,
        "server_error",
        "\"server_is_overloaded\"",
        "said",
    ),
    (
        r#"{"error":{"message":"said","type":"server_error","param":null,"code":"internal_error"}}"#,
        500,
        "server_error",
        "\"internal_error\"",
        "said",
    ),
];

#[tokio::test]
async fn fault_u17_error_as_the_first_event() {
    for (data, status, kind, code, message) in IN_BAND {
        let script = Script::new().head_sse().ev(data).done().end();
        let answer = World::answer(script, engine_messages(), &Request::stream("")).await;
        let fault = answer.fault();
        assert_eq!(
            (answer.head.status, fault.kind.as_str()),
            (status, kind),
            "{data}"
        );
        assert_eq!(
            (fault.code.as_deref(), fault.message.as_str()),
            (code_of(code), message),
            "{data}"
        );
    }
}

/// The role chunk was an event, so the response had begun (vectors chat-081 and chat-084).
#[tokio::test]
async fn fault_u17_error_after_the_role() {
    for (data, _, kind, code, message) in IN_BAND {
        let script = Script::stream().ev(data).done().end();
        let answer = World::answer(script, engine_messages(), &Request::stream("")).await;
        assert_eq!(
            (answer.head.status, answer.ended),
            (200, Ended::LastChunk),
            "{data}"
        );
        assert_eq!(
            answer.text(),
            Canonical::new().role().error_as(message, kind, code).text(),
            "{data}"
        );
    }
}

/// Returns an error code as text, from its JSON.
fn code_of(json: &str) -> Option<&str> {
    json.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
}

#[tokio::test]
async fn fault_u17_error_in_the_stream() {
    for (data, _, kind, code, message) in IN_BAND {
        let begun = || Script::stream().tok("a", 2, Duration::ZERO);
        let rows = [
            begun().ev(data).done().end(),
            begun().ev(data).end(),
            begun().ev(data).fin(),
            begun().ev(data).text("late").stop(),
            begun()
                .chunk(format!("event: error\ndata: {data}\n\n"))
                .end(),
        ];
        for script in rows {
            let world = World::start(script, engine_messages()).await;
            let answer = world
                .stream(r#","stream_options":{"include_usage":true}"#)
                .await;
            let expected = Canonical::with_usage()
                .role()
                .tok("a", 2)
                .error_as(message, kind, code);
            assert_eq!(
                (answer.text(), answer.ended),
                (expected.text(), Ended::LastChunk),
                "{data}"
            );
            world.end().await;
        }
    }
}

#[tokio::test]
async fn fault_u16_aborted_by_the_engine() {
    let rows = [
        (r#""abort""#, "vllm"),
        (r#""error""#, "vllm"),
        (r#""cancelled""#, "vllm"),
        (r#""abort""#, "sglang"),
        (r#"{"type":"abort","message":"x"}"#, "sglang"),
    ];
    for (reason, kind) in rows {
        let begun = Script::stream()
            .tok("a", 2, Duration::ZERO)
            .delta("{}", reason)
            .done()
            .end();
        let at_once = Script::stream().delta("{}", reason).done().end();
        let world = World::start_as(
            Engine::in_turn(vec![begun, at_once]),
            kind,
            Setup::new().allow_errors(),
        )
        .await;
        let answer = world.stream("").await;
        let expected = Canonical::new().role().tok("a", 2).error(ABORTED);
        assert_eq!(
            (answer.text(), answer.ended),
            (expected.text(), Ended::LastChunk),
            "{reason}"
        );
        let answer = world.stream("").await;
        assert_eq!(
            answer.failure(),
            "502 server_error upstream_aborted",
            "{reason}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u16_aborted_whole_answer() {
    for (reason, kind) in [
        (r#""abort""#, "vllm"),
        (r#"{"type":"abort","message":"x"}"#, "sglang"),
    ] {
        let body = format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"half"}},"finish_reason":{reason}}}]}}"#
        );
        let answer = World::answer_as(
            Script::ok(&body),
            kind,
            Setup::new().allow_errors(),
            &Request::plain(""),
        )
        .await;
        assert_eq!(
            answer.failure(),
            "502 server_error upstream_aborted",
            "{reason}"
        );
    }
}

#[tokio::test]
async fn fault_u28_u29_u30_events_that_cannot_be_read() {
    let chunk = |inner: &str| {
        format!(r#"{{"id":"chatcmpl-1","created":1,"model":"m","choices":{inner}}}"#).into_bytes()
    };
    let rows: Vec<Vec<u8>> = vec![
        b"{broken".to_vec(),
        b"{\"choices\":[".to_vec(),
        b"hello".to_vec(),
        b"[]".to_vec(),
        b"5".to_vec(),
        b"[DONE".to_vec(),
        chunk("5"),
        chunk("[5]"),
        chunk(r#"[{"index":0,"delta":{"content":5},"finish_reason":null}]"#),
        chunk(r#"[{"index":"0","delta":{"content":"a"},"finish_reason":null}]"#),
        chunk("[{\"index\":0,\"delta\":{\"content\":\"a\u{1}b\"},\"finish_reason\":null}]"),
        [
            chunk(r#"[{"index":0,"delta":{"content":""#),
            b"\xff\xfe".to_vec(),
            b"\"}}]}".to_vec(),
        ]
        .concat(),
    ];
    for data in rows {
        let event = [b"data: ".to_vec(), data.clone(), b"\n\n".to_vec()].concat();
        let begun = Script::stream().tok("a", 2, Duration::ZERO);
        let script = begun.chunk(event).text("late").stop();
        let answer = World::answer(script, Setup::new().allow_errors(), &Request::stream("")).await;
        let expected = Canonical::new().role().tok("a", 2).error(INVALID_EVENT);
        assert_eq!(
            answer.text(),
            expected.text(),
            "{}",
            String::from_utf8_lossy(&data)
        );
    }
}

#[tokio::test]
async fn fault_u29_first_event_that_cannot_be_read() {
    let script = Script::new().head_sse().ev("{broken").done().end();
    let answer = World::answer(script, Setup::new().allow_errors(), &Request::stream("")).await;
    assert_eq!(answer.failure(), "502 server_error upstream_invalid_event");
}

#[tokio::test]
async fn fault_u30_harmless_oddities() {
    let odd = |inner: &str| {
        format!(
            r#"{{"id":"chatcmpl-1","created":1,"model":"m","choices":{inner},"x":{{"y":[1]}}}}"#
        )
    };
    let script = Script::stream()
        .ev("null")
        .ev(&odd("null"))
        .ev(&odd("[]"))
        .ev(&odd(
            r#"[{"index":0,"delta":null,"finish_reason":null,"z":1}]"#,
        ))
        .ev(&odd(
            r#"[{"index":0,"delta":{"content":null,"w":{"v":2}},"finish_reason":null}]"#,
        ))
        .ev(&odd(r#"[{"delta":{"content":"a.0 "}}]"#))
        .ev("{}")
        .stop();
    let world = World::start(script, Setup::new()).await;
    assert_eq!(
        world.stream("").await.text(),
        Canonical::answer("a", 1).text()
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u27_event_without_end() {
    let begun = Script::stream()
        .tok("a", 1, Duration::ZERO)
        .chunk("data: {\"x\":\"");
    let piece = "y".repeat(64 * 1024);
    let script = (0..1024)
        .fold(begun, |script, _| script.chunk(&piece))
        .hang();
    let world = World::start(script, Setup::new().allow_errors()).await;
    let before = world.samewire.allocated();
    let answer = world.stream("").await;
    let blocks = grammar(answer.text());
    let last = blocks.last().expect("an end");
    assert!(
        last.contains(r#""code":"upstream_invalid_event""#),
        "{last}"
    );
    assert!(
        answer
            .text()
            .starts_with(Canonical::new().role().tok("a", 1).text())
    );
    until("the answer is cancelled", || {
        world.engine.active_generations() == 0
    })
    .await;
    assert!(
        world.engine.written(0) < 16 << 20,
        "{}",
        world.engine.written(0)
    );
    let grown = || world.samewire.allocated().saturating_sub(before);
    println!("an event without end: samewire grew by {}", grown());
    // The allocator returns free blocks within a second: memory that stays longer was kept. Its thread does not wake in an
    // idle process for less than 1,024 pages.
    until("the memory is given back", || grown() < 5 << 20).await;
    world.end().await;
}

#[tokio::test]
async fn large_events_within_the_limit_pass() {
    let text = "é".repeat(1 << 20);
    let answer = World::answer(
        Script::stream().text(&text).stop(),
        Setup::new(),
        &Request::stream(""),
    )
    .await;
    let (got, expected) = (
        answer.text().replace(&text, "(text)"),
        Canonical::new().role().content("(text)"),
    );
    assert_eq!(
        got.get(..2000).unwrap_or(&got),
        expected.finish("stop").done().text()
    );
}

/// More bytes than the relay reads at once (1 MiB), all available already: the relay continues without another
/// wakeup.
#[tokio::test]
async fn large_whole_answers_do_not_stall() {
    let text = "a".repeat(8 << 20);
    let answer = World::answer(Script::completion(&text), Setup::new(), &Request::plain("")).await;
    assert!(
        answer.with_status(200).text().contains(&text),
        "the whole text"
    );
}

#[tokio::test]
async fn fault_u45_answer_before_the_body_was_read() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let body =
        r#"{"error":{"message":"too much","type":"BadRequestError","param":null,"code":413}}"#;
    let answer = Script::new().json("413 Payload Too Large", body).bytes();
    let models =
        Script::ok(json!({"object": "list", "data": [{"id": "m", "object": "model"}]})).bytes();
    let early = tokio::spawn(async move {
        // A close with unread bytes is a reset, which would overtake the answer.
        let mut held = Vec::new();
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            let mut head = [0; 1000];
            // Reads the head and little more; the rest of the body is never read.
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut head).await;
            // Probes find a healthy engine.
            let answer = if head.starts_with(b"POST") {
                &answer
            } else {
                &models
            };
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
            held.push(stream);
        }
    });
    let request = Request::stream(&format!(r#","user":"{}""#, "u".repeat(8 << 20)));
    let answer = World::answer(
        Script::new(),
        Setup::new().upstream(&url).allow_errors(),
        &request,
    )
    .await;
    assert_eq!(
        answer.failure(),
        "413 invalid_request_error request_too_large"
    );
    early.abort();
}

/// After an error frame the connection can be used again.
#[tokio::test]
async fn connection_lives_on_after_an_error_frame() {
    let broken = Script::stream().tok("a", 1, Duration::ZERO).fin();
    let engine = Engine::in_turn(vec![broken, Script::answer("b", 1)]).await;
    let world = World::start(engine, Setup::new().allow_errors()).await;
    let mut client = Client::connect(world.proxy()).await;
    let mut answers: Vec<Answer> = Vec::new();
    for _ in 0..2 {
        client.send(&Request::stream("").bytes()).await;
        answers.push(client.answer().await);
    }
    assert_eq!(
        answers[0].text(),
        Canonical::new().role().tok("a", 1).error(INCOMPLETE).text()
    );
    assert_eq!(answers[1].text(), Canonical::answer("b", 1).text());
    world.end().await;
}

/// Values repeated in every frame, such as ids and names, are truncated to a limit.
#[tokio::test]
async fn fault_u51_what_is_said_once_is_not_written_without_a_bound() {
    let huge = "x".repeat(1 << 20);
    let first = format!(
        r#"{{"id":"{huge}","object":"chat.completion.chunk","created":1,"model":"{huge}","system_fingerprint":"{huge}","choices":[{{"index":0,"delta":{{"role":"assistant"}},"finish_reason":null}}]}}"#
    );
    let mut script = Script::new().head_sse().ev(&first);
    for _ in 0..300 {
        script =
            script.ev(r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#);
    }
    let script = script.stop();
    let setup = Setup::new().allow_errors().set("system_fingerprint=pass");
    let answer = World::answer(script, setup, &Request::stream(""))
        .await
        .with_status(200);
    let text = answer.text();
    assert_eq!(text.matches(r#""content":"a""#).count(), 300);
    assert!(text.len() < 512 << 10, "{} bytes", text.len());
    let event: Value = serde_json::from_str(
        text.split("\n\n")
            .next()
            .unwrap()
            .strip_prefix("data: ")
            .unwrap(),
    )
    .unwrap();
    let length = |key: &str| event[key].as_str().unwrap().len();
    assert_eq!(
        (length("id"), length("model"), length("system_fingerprint")),
        (41, 256, 256)
    );
}
