//! Answers in another form than requested, or with a wrong content type.

use crate::canonical::{Canonical, usage_object};
use crate::sim::prelude::*;

const WHOLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"total_tokens":8,"completion_tokens":5}}"#;

/// Returns the events of a complete stream.
fn sse() -> String {
    let frames = Canonical::new()
        .role()
        .content("H")
        .content("i")
        .finish("stop");
    let usage = format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"usage\":{}}}\n\n",
        usage_object(3, 5)
    );
    format!("{}{usage}data: [DONE]\n\n", frames.text())
}

/// Returns the canonical whole answer.
fn expected_whole() -> String {
    let usage = usage_object(3, 5);
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"Hi","refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],"usage":{usage}}}"#
    )
}

/// Checks streamed and whole requests against an engine that answers in one form only.
async fn check(script: Script, frames: &Canonical, what: &str) {
    let world = World::start(script, Setup::new()).await;
    let stream = world.stream("").await;
    assert_eq!(stream.text(), frames.text(), "{what}");
    assert_eq!(
        stream.head.header("content-type"),
        Some("text/event-stream; charset=utf-8"),
        "{what}"
    );
    let whole = world.request(&Request::plain("")).await;
    assert_eq!(whole.text(), expected_whole(), "{what}");
    assert_eq!(
        whole.head.header("content-type"),
        Some("application/json"),
        "{what}"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u38_answer_in_the_other_form() {
    let whole = Canonical::new().role().content("Hi").finish("stop").done();
    check(Script::ok(WHOLE), &whole, "JSON for all").await;
    let stream = Canonical::new()
        .role()
        .content("H")
        .content("i")
        .finish("stop")
        .done();
    check(
        Script::new().head_sse().chunk(sse()).end(),
        &stream,
        "SSE for all",
    )
    .await;
}

#[tokio::test]
async fn fault_u37_wrong_labels() {
    let whole = Canonical::new().role().content("Hi").finish("stop").done();
    let stream = Canonical::new()
        .role()
        .content("H")
        .content("i")
        .finish("stop")
        .done();
    for label in [
        "text/plain",
        "application/octet-stream",
        "text/event-stream",
        "",
        "text/html; charset=utf-8",
    ] {
        check(
            Script::new().whole("200 OK", label, format!(" \n{WHOLE}")),
            &whole,
            &format!("JSON as {label:?}"),
        )
        .await;
    }
    for label in [
        "text/plain",
        "application/json",
        "application/octet-stream",
        "",
    ] {
        for text in [
            sse(),
            format!(": comment\n\n{}", sse()),
            format!("\u{feff}{}", sse()),
        ] {
            let script = Script::new().whole("200 OK", label, &text);
            check(script, &stream, &format!("SSE as {label:?}: {text:.12}")).await;
        }
    }
}

/// A stream with the right content type may begin with any lines that are not events, however it is cut.
#[tokio::test]
async fn fault_u53_first_lines_that_say_nothing() {
    let stream = Canonical::new()
        .role()
        .content("H")
        .content("i")
        .finish("stop")
        .done();
    let comment = format!(": {}\n", "c".repeat(1 << 20));
    for start in [
        "foo: 1\n",
        "x\n\n",
        "\n\nheartbeat: {\"a\":1}\r\n\r\n",
        "[]: 1\n",
        "\"id\": 7\n",
        "<!-- -->\n",
        "retry: 5\n",
        "event: ping\n\n",
        "data: null\n\n",
        "data: {}\n\n",
        &comment,
    ] {
        let whole = Script::new()
            .head_sse()
            .chunk(format!("{start}{}", sse()))
            .end();
        let own = Script::new()
            .head_sse()
            .chunk(start)
            .sleep(Duration::from_millis(20))
            .chunk(sse())
            .end();
        let pieces = whole
            .clone()
            .split(if start.len() < 100 { 5 } else { 100_000 });
        for (script, cut) in [
            (whole, "one write"),
            (own, "a separate read"),
            (pieces, "pieces"),
        ] {
            check(script, &stream, &format!("{start:.20?} in {cut}")).await;
        }
    }
}

#[tokio::test]
async fn fault_u38_broken_stream_is_no_whole_answer() {
    let begun = || Script::stream().tok("a", 2, Duration::ZERO);
    let rows = [
        (begun().fin(), 502, "upstream_incomplete"),
        (begun().done().end(), 502, "upstream_incomplete"),
        (
            begun().delta("{}", "\"abort\"").done().end(),
            502,
            "upstream_aborted",
        ),
        (
            begun()
                .ev(r#"{"error":{"message":"x","type":"InternalServerError","code":500}}"#)
                .end(),
            500,
            "internal_error",
        ),
    ];
    for (script, status, code) in rows {
        let answer = World::answer(script, Setup::new().allow_errors(), &Request::plain("")).await;
        assert_eq!(answer.failure(), format!("{status} server_error {code}"));
    }
}

/// The first HTTP chunk of an answer that is none, with the next ones in the same packet: no client gets a part of it.
#[tokio::test]
async fn fault_u37_what_begins_as_no_event_is_no_answer() {
    let requests = [
        Request::stream(""),
        Request::plain(""),
        Request::post(
            "/v1/completions",
            r#"{"model":"m","prompt":"x","stream":true}"#,
        ),
        Request::post(
            "/v1/responses",
            r#"{"model":"m","input":"x","stream":true}"#,
        ),
        Request::post(
            "/v1/messages",
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stream":true}"#,
        ),
    ];
    let head = |label: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {label}\r\ntransfer-encoding: chunked\r\n\r\n")
    };
    for label in ["text/plain", "application/octet-stream"] {
        for beginning in ["foo: bar\n", "<html>", "\u{1}\n"] {
            let script = Script::new()
                .raw(head(label))
                .chunk(format!("{beginning}data: 1\n\n"));
            let script = script.chunk(sse()).end().in_one_write();
            let world = World::start(script, Setup::new().allow_errors()).await;
            for request in &requests {
                let answer = world.request(request).await;
                assert!(
                    answer.head.status >= 500,
                    "{label} {beginning:?}: {}",
                    answer.text()
                );
                assert!(
                    answer.text().contains("upstream_invalid_response"),
                    "{}",
                    answer.text()
                );
            }
            let why = "its body is neither a JSON object nor an event stream";
            until("the log tells why", || {
                world.samewire.count_logged(why) >= requests.len()
            })
            .await;
            world.end().await;
        }
    }
}

/// Chunks of one API in answer to the other have no text that a client would get.
#[tokio::test]
async fn fault_u37_an_answer_of_the_other_api() {
    let legacy = r#"{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"Hi","finish_reason":"stop"}]}"#;
    let completions = |more: &str| {
        Request::post(
            "/v1/completions",
            format!(r#"{{"model":"m","prompt":"x"{more}}}"#),
        )
    };
    for (script, requests) in [
        (
            Script::new().head_sse().chunk(sse()).end(),
            [completions(r#","stream":true"#), completions("")],
        ),
        (
            Script::ok(WHOLE),
            [completions(r#","stream":true"#), completions("")],
        ),
        (
            Script::new().head_sse().ev(legacy).done().end(),
            [Request::stream(""), Request::plain("")],
        ),
        (
            Script::ok(legacy),
            [Request::stream(""), Request::plain("")],
        ),
    ] {
        let world = World::start(script, Setup::new().allow_errors()).await;
        for request in requests {
            assert_eq!(world.request(&request).await.head.status, 502);
        }
        world.end().await;
    }
}
