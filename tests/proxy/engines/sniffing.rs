//! Answers in another form than requested, or with a wrong content type.

use crate::canonical::{Canonical, usage_object};
use crate::sim::{Engine, Request, Script, Setup, World};
use std::time::Duration;

const WHOLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"total_tokens":8,"completion_tokens":5}}"#;

/// Returns the events of a complete stream.
fn sse() -> String {
    let frames = Canonical::new().role().content("H").content("i").finish("stop");
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
    let world = World::start(Engine::script(script).await, Setup::new()).await;
    let stream = world.ask(&Request::stream("")).await;
    assert_eq!(stream.text(), frames.text(), "{what}");
    assert_eq!(stream.head.header("content-type"), Some("text/event-stream; charset=utf-8"), "{what}");
    let whole = world.ask(&Request::plain("")).await;
    assert_eq!(whole.text(), expected_whole(), "{what}");
    assert_eq!(whole.head.header("content-type"), Some("application/json"), "{what}");
    world.end().await;
}

#[tokio::test]
async fn fault_u38_answer_in_the_other_form() {
    let whole = Canonical::new().role().content("Hi").finish("stop").done();
    check(Script::new().json("200 OK", WHOLE), &whole, "JSON for all").await;
    let stream = Canonical::new().role().content("H").content("i").finish("stop").done();
    check(Script::new().head_sse().chunk(sse()).end(), &stream, "SSE for all").await;
}

#[tokio::test]
async fn fault_u37_wrong_labels() {
    let whole = Canonical::new().role().content("Hi").finish("stop").done();
    let stream = Canonical::new().role().content("H").content("i").finish("stop").done();
    for label in
        ["text/plain", "application/octet-stream", "text/event-stream", "", "text/html; charset=utf-8"]
    {
        check(
            Script::new().whole("200 OK", label, format!(" \n{WHOLE}")),
            &whole,
            &format!("JSON as {label:?}"),
        )
        .await;
    }
    for label in ["text/plain", "application/json", "application/octet-stream", ""] {
        for text in [sse(), format!(": comment\n\n{}", sse()), format!("\u{feff}{}", sse())] {
            let script = Script::new().whole("200 OK", label, &text);
            check(script, &stream, &format!("SSE as {label:?}: {text:.12}")).await;
        }
    }
}

/// A stream with the right content type may begin with any lines that are not events, however it is cut.
#[tokio::test]
async fn fault_u53_first_lines_that_say_nothing() {
    let stream = Canonical::new().role().content("H").content("i").finish("stop").done();
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
        let whole = Script::new().head_sse().chunk(format!("{start}{}", sse())).end();
        let own = Script::new().head_sse().chunk(start).sleep(Duration::from_millis(20)).chunk(sse()).end();
        let pieces = whole.clone().split(if start.len() < 100 { 5 } else { 100_000 });
        for (script, cut) in [(whole, "one write"), (own, "a read of its own"), (pieces, "pieces")] {
            check(script, &stream, &format!("{start:.20?} in {cut}")).await;
        }
    }
}

#[tokio::test]
async fn fault_u38_broken_stream_is_no_whole_answer() {
    let begun = || Script::new().head_sse().role().tok("a", 2, Duration::ZERO);
    let rows = [
        (begun().fin(), 502, "upstream_incomplete"),
        (begun().done().end(), 502, "upstream_incomplete"),
        (begun().delta("{}", "\"abort\"").done().end(), 502, "upstream_aborted"),
        (
            begun().ev(r#"{"error":{"message":"x","type":"InternalServerError","code":500}}"#).end(),
            500,
            "internal_error",
        ),
    ];
    for (script, status, code) in rows {
        let world = World::start(Engine::script(script).await, Setup::new().allow_errors()).await;
        let answer = world.ask(&Request::plain("")).await;
        assert_eq!(answer.failure(), (status, "server_error".into(), Some(code.into())));
        world.end().await;
    }
}
