//! Several choices from an engine that gives one per request: it gets one request for each choice, and the client gets
//! one answer.

use crate::clients::keys::{SECOND, entry, with};
use crate::pool::PATIENT;
use crate::sim::ErrorBody;
use crate::sim::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Configuration of a front end that gives one choice.
const RUST: &str = "front_end = \"rust\"\nengine_version = \"0.22.0\"";

/// Returns the choice that an upstream request is for.
fn choice_of(attempt: &Attempt) -> usize {
    let id = attempt.header("x-request-id").expect("an id");
    id.rsplit('-')
        .next()
        .and_then(|choice| choice.parse().ok())
        .expect("the choice at its end")
}

fn streams(attempt: &Attempt) -> bool {
    attempt.text().contains(r#""stream":true"#)
}

/// Returns a chunk, or a whole object, of the engine's answer for a choice. Each has its own id.
fn object(choice: usize, kind: &str, members: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-{choice}abc","object":"{kind}","created":{},"model":"m",{members}}}"#,
        choice + 1
    )
}

fn delta(choice: usize, delta: &str, finish: &str) -> String {
    let entry = format!(r#""choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]"#);
    object(choice, "chat.completion.chunk", &entry)
}

fn usage(choice: usize) -> String {
    let completion = 5 + choice;
    format!(
        r#""usage":{{"prompt_tokens":3,"completion_tokens":{completion},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}},"completion_tokens_details":{{"reasoning_tokens":{choice}}}}}"#,
        3 + completion,
        2 + choice
    )
}

trait OfChoice {
    fn says(self, choice: usize, text: &str) -> Self;
    fn begins(self, choice: usize) -> Self;
    fn ends(self, choice: usize) -> Self;
}

impl OfChoice for Script {
    fn says(self, choice: usize, text: &str) -> Self {
        self.ev(&delta(
            choice,
            &format!(r#"{{"content":{}}}"#, json_string(text)),
            "null",
        ))
    }

    fn begins(self, choice: usize) -> Self {
        self.head_sse().ev(&delta(
            choice,
            r#"{"role":"assistant","content":""}"#,
            "null",
        ))
    }

    fn ends(self, choice: usize) -> Self {
        let usage = object(
            choice,
            "chat.completion.chunk",
            &format!(r#""choices":[],{}"#, usage(choice)),
        );
        self.ev(&delta(choice, "{}", "\"stop\""))
            .ev(&usage)
            .done()
            .end()
    }
}

fn stream(choice: usize) -> Script {
    let text = |n| format!("{choice}.{n} ");
    Script::new()
        .begins(choice)
        .says(choice, &text(0))
        .says(choice, &text(1))
        .ends(choice)
}

fn whole(choice: usize) -> Script {
    let message = format!(r#"{{"role":"assistant","content":"{choice}.0 {choice}.1 "}}"#);
    let entry = format!(r#""choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}],"#);
    Script::ok(object(choice, "chat.completion", &(entry + &usage(choice))))
}

fn good(attempt: &Attempt) -> Script {
    let choice = choice_of(attempt);
    if streams(attempt) {
        stream(choice)
    } else {
        whole(choice)
    }
}

async fn world(
    answering: impl Fn(&Attempt) -> Script + Send + Sync + 'static,
    setup: Setup,
) -> World {
    let setup = setup.upstream_keys(&format!("engine = \"vllm\"\n{RUST}"));
    World::start(Engine::answering(answering), setup).await
}

/// Content of a client's stream, by choice, with its end and its usage.
#[derive(Debug, Default, PartialEq)]
struct StreamContent {
    /// Frames of each choice, without the members that all frames share.
    choices: BTreeMap<u64, Vec<Value>>,
    usage: Option<Value>,
    error: Option<Value>,
    done: bool,
}

impl StreamContent {
    /// Parses a stream and checks what must hold for every stream.
    fn of(text: &str) -> Self {
        let mut told = Self::default();
        let mut head = None;
        for event in text
            .strip_suffix("\n\n")
            .expect("whole events")
            .split("\n\n")
        {
            assert!(told.error.is_none() && !told.done, "after the end: {event}");
            if let Some(error) = event.strip_prefix("event: error\ndata: ") {
                told.error = Some(serde_json::from_str(error).expect("JSON"));
                continue;
            }
            let data = event
                .strip_prefix("data: ")
                .unwrap_or_else(|| panic!("{event}"));
            if data == "[DONE]" {
                told.done = true;
                continue;
            }
            let chunk: Value = serde_json::from_str(data).expect("JSON");
            let of = json!([
                chunk["id"],
                chunk["created"],
                chunk["model"],
                chunk["object"]
            ]);
            assert_eq!(
                head.get_or_insert_with(|| of.clone()),
                &of,
                "one id, one time, one model"
            );
            assert!(told.usage.is_none(), "usage is last");
            let Some(choice) = chunk["choices"].get(0) else {
                told.usage = Some(chunk["usage"].clone());
                continue;
            };
            let index = choice["index"].as_u64().expect("an index");
            let known = told.choices.len() as u64;
            let frames = told.choices.entry(index).or_default();
            if frames.is_empty() {
                assert_eq!(
                    (index, &choice["delta"]["role"]),
                    (known, &json!("assistant")),
                    "{chunk}"
                );
            } else {
                assert_eq!(
                    choice["delta"]["role"],
                    Value::Null,
                    "a role comes once: {chunk}"
                );
                let last = frames.last().expect("not empty");
                assert_eq!(
                    last["finish_reason"],
                    Value::Null,
                    "a finish is last: {chunk}"
                );
            }
            frames.push(json!({"delta": choice["delta"], "finish_reason": choice["finish_reason"], "logprobs": choice["logprobs"]}));
        }
        told
    }

    fn text(&self, choice: u64) -> String {
        self.choices[&choice]
            .iter()
            .filter_map(|frame| frame["delta"]["content"].as_str())
            .collect()
    }

    fn finish(&self, choice: u64) -> &Value {
        &self.choices[&choice].last().expect("frames")["finish_reason"]
    }
}

fn n(count: usize) -> String {
    format!(r#","n":{count},"stream_options":{{"include_usage":true}}"#)
}

/// Returns the usage of this many choices: the prompt counts once.
fn usage_of(count: u64) -> Value {
    let completion: u64 = (0..count).map(|choice| 5 + choice).sum();
    json!({"prompt_tokens": 3, "completion_tokens": completion, "total_tokens": 3 + completion,
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": (0..count).sum::<u64>(), "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}})
}

/// Checks that a stream ended well and has this many choices with their texts. Returns its usage.
fn choices_of(answer: &Answer, count: usize) -> Option<Value> {
    assert_eq!((answer.head.status, answer.ended), (200, Ended::LastChunk));
    let told = StreamContent::of(answer.text());
    assert_eq!((told.done, &told.error), (true, &None), "{}", answer.text());
    assert_eq!(told.choices.len(), count);
    for choice in 0..count as u64 {
        assert_eq!(told.text(choice), format!("{choice}.0 {choice}.1 "));
        assert_eq!(told.finish(choice), "stop");
    }
    told.usage
}

#[tokio::test]
async fn a_stream_has_all_choices() {
    let world = world(good, Setup::new()).await;
    for count in [2_usize, 3, 16] {
        let answer = world.stream(&n(count)).await;
        assert_eq!(answer.head.header("x-samewire-attempts"), Some("1"));
        assert_eq!(choices_of(&answer, count), Some(usage_of(count as u64)));
    }
    // Usage is not sent unless requested.
    let told = StreamContent::of(world.stream(r#","n":2"#).await.text());
    assert_eq!((told.done, told.usage), (true, None));
    let attempts = world.engine.attempts();
    assert_eq!(attempts.len(), 23);
    for attempt in &attempts {
        let body = attempt.json();
        assert_eq!(
            (&body["n"], &body["stream_options"]["include_usage"]),
            (&json!(1), &json!(true))
        );
    }
    let ids: std::collections::HashSet<_> = attempts
        .iter()
        .map(|attempt| attempt.header("x-request-id").expect("an id"))
        .collect();
    assert_eq!(ids.len(), 23, "engines call their work after them");
    assert!(world.samewire.finished(4).await[0].contains(r#""completion_tokens":11,"#));
    for (name, label, value) in [
        ("samewire_rewrites_total", r#"rule="fan_out"}"#, 4),
        ("samewire_upstream_attempts_total", r#"outcome="ok"}"#, 23),
        ("samewire_requests_total", r#"end="complete"}"#, 4),
    ] {
        assert_eq!(world.samewire.sum(name, &[label]).await, value, "{name}");
    }
    world.end().await;
}

/// Choices are in order, whichever arrives first.
#[tokio::test]
async fn a_whole_answer_has_all_choices() {
    let (gate, held) = Gate::pair();
    let answering = move |attempt: &Attempt| match choice_of(attempt) {
        0 => Script::new().wait(&held).followed_by(good(attempt)),
        _ => good(attempt),
    };
    let world = world(answering, Setup::new()).await;
    let mut client = world.send(&Request::plain(r#","n":3"#)).await;
    world.engine.wait_attempts(3).await;
    until("the others are over", || {
        world.engine.active_generations() == 1
    })
    .await;
    gate.open();
    let answer = client.answer().await;
    assert_eq!(
        (answer.head.status, answer.ended),
        (200, Ended::Length),
        "{}",
        answer.text()
    );
    let body = answer.json();
    assert_eq!(body["usage"], usage_of(3));
    let choices: Vec<_> = body["choices"].as_array().expect("a list").iter().collect();
    for (at, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], at);
        assert_eq!(choice["message"]["content"], format!("{at}.0 {at}.1 "));
        assert_eq!(choice["finish_reason"], "stop");
    }
    assert_eq!(choices.len(), 3);
    world.end().await;
}

/// Engines that stream to clients that want an object, and the reverse.
#[tokio::test]
async fn either_form_becomes_the_other() {
    let other = |attempt: &Attempt| {
        if streams(attempt) {
            whole(choice_of(attempt))
        } else {
            stream(choice_of(attempt))
        }
    };
    let world = world(other, Setup::new()).await;
    let told = StreamContent::of(world.stream(&n(2)).await.text());
    assert_eq!(
        (told.text(1), told.usage, told.done),
        ("1.0 1.1 ".to_owned(), Some(usage_of(2)), true)
    );
    let body = world.request(&Request::plain(r#","n":2"#)).await.json();
    assert_eq!(
        (&body["choices"][1]["message"]["content"], &body["usage"]),
        (&json!("1.0 1.1 "), &usage_of(2))
    );
    world.end().await;
}

#[tokio::test]
async fn completions_have_all_choices() {
    let answering = |attempt: &Attempt| {
        let choice = choice_of(attempt);
        let entry = |text: &str, finish: &str| {
            let members = format!(
                r#""choices":[{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{finish}}}],{}"#,
                usage(choice)
            );
            object(choice, "text_completion", &members)
        };
        match streams(attempt) {
            true => Script::new()
                .head_sse()
                .ev(&entry(&format!("{choice}.0 "), "null"))
                .ev(&entry("", "\"stop\""))
                .done()
                .end(),
            false => Script::ok(entry(&format!("{choice}.0 "), "\"stop\"")),
        }
    };
    let world = world(answering, Setup::new()).await;
    let ask = |more: &str| {
        Request::post(
            "/v1/completions",
            format!(r#"{{"model":"m","prompt":"CANARY","n":2{more}}}"#),
        )
    };
    let body = world.request(&ask("")).await.json();
    for choice in [0, 1] {
        assert_eq!(
            body["choices"][choice]["text"],
            format!("{choice}.0 "),
            "{body}"
        );
        assert_eq!(body["choices"][choice]["index"], choice);
    }
    assert_eq!(body["usage"], usage_of(2));
    let answer = world
        .request(&ask(
            r#","stream":true,"stream_options":{"include_usage":true}"#,
        ))
        .await;
    let events: Vec<_> = answer.text().trim_end().split("\n\n").collect();
    let chunk = |at: usize| -> Value {
        serde_json::from_str(events[at].strip_prefix("data: ").expect("data")).expect("JSON")
    };
    assert_eq!(
        (events.len(), events[5]),
        (6, "data: [DONE]"),
        "{events:#?}"
    );
    assert_eq!(chunk(4)["usage"], usage_of(2));
    for choice in [0, 1] {
        let own = (0..4)
            .map(chunk)
            .filter(|chunk| chunk["choices"][0]["index"] == choice);
        let texts: Vec<_> = own
            .map(|chunk| chunk["choices"][0]["text"].clone())
            .collect();
        assert_eq!(texts, [json!(format!("{choice}.0 ")), json!("")]);
    }
    world.end().await;
}

/// Old engine versions mix up the tool calls of a stream's choices.
#[tokio::test]
async fn calls_of_old_engines_are_not_mixed_up() {
    let call = |choice: usize| {
        let entry = format!(
            r#"{{"tool_calls":[{{"index":0,"id":"call_{choice}","type":"function","function":{{"name":"f","arguments":"{{\"c\":{choice}}}"}}}}]}}"#
        );
        delta(choice, &entry, "null")
    };
    let answering = move |attempt: &Attempt| {
        let choice = choice_of(attempt);
        Script::new()
            .begins(choice)
            .ev(&call(choice))
            .ev(&delta(choice, "{}", "\"tool_calls\""))
            .done()
            .end()
    };
    let setup = Setup::new().upstream_keys("engine = \"vllm\"\nengine_version = \"0.19.1\"");
    let world = World::start(Engine::answering(answering), setup).await;
    let tools = r#","n":2,"tools":[{"type":"function","function":{"name":"f"}}]"#;
    let told = StreamContent::of(world.stream(tools).await.text());
    for choice in [0, 1] {
        let call = &told.choices[&choice][1]["delta"]["tool_calls"][0];
        assert_eq!(call["id"], format!("call_{choice}"), "{told:?}");
        assert_eq!(told.finish(choice), "tool_calls");
    }
    assert!(told.done);
    world.end_after(2).await;
}

#[tokio::test]
async fn seeds_differ() {
    let world = world(good, Setup::new()).await;
    for request in [
        Request::stream(r#","n":3,"seed":41"#),
        Request::plain(r#","n":3,"seed":41"#),
    ] {
        let before = world.engine.attempt_count();
        assert_eq!(world.request(&request).await.head.status, 200);
        let mut seeds: Vec<_> = world.engine.attempts()[before..]
            .iter()
            .map(|attempt| {
                let body = attempt.json();
                (choice_of(attempt), body["seed"].as_u64().expect("a seed"))
            })
            .collect();
        seeds.sort_unstable();
        assert_eq!(seeds, [(0, 41), (1, 42), (2, 43)]);
    }
    world.end().await;
}

/// Metrics count one client request, and one upstream request for each choice that still runs.
#[tokio::test]
async fn what_is_under_way_is_counted() {
    let (gate, held) = Gate::pair();
    let answering = move |attempt: &Attempt| {
        let choice = choice_of(attempt);
        let script = Script::new().begins(choice).says(choice, "a");
        if choice == 1 {
            script.ends(choice)
        } else {
            script.wait(&held).ends(choice)
        }
    };
    let keys = entry(KEY, "requests_per_minute = 2\ntokens_per_minute = 1000");
    let world = world(answering, Setup::new().config(&keys)).await;
    let mut client = world.send(&Request::stream(&n(3))).await;
    let head = client.head().await;
    assert_eq!(
        head.header("x-ratelimit-remaining-requests"),
        Some("1"),
        "it is one request"
    );
    let has = |metrics: &str, name: &str| {
        metrics
            .lines()
            .any(|line| line.starts_with(name) && line.ends_with("} 2"))
    };
    let streams = |metrics: &str| has(metrics, "samewire_upstream_active_streams{");
    let metrics = world
        .samewire
        .metrics_when("only the second choice has ended", streams)
        .await;
    assert!(
        metrics.contains("samewire_requests_in_flight{route=\"chat\"} 1\n"),
        "{metrics}"
    );
    gate.open();
    assert!(client.rest().await.ends_with(b"data: [DONE]\n\n"));
    let lines = world.samewire.finished(1).await;
    assert!(lines[0].contains(r#""completion_tokens":18,"#), "{lines:?}");
    world.end().await;
}

#[tokio::test]
async fn more_choices_than_there_may_be_are_refused() {
    let world = world(good, Setup::new().config("[limits]\nmax_choices = 4\n")).await;
    for request in [Request::stream(r#","n":5"#), Request::plain(r#","n":5"#)] {
        let ErrorBody { param, message, .. } = world.request(&request).await.fault();
        assert_eq!(param.as_deref(), Some("n"), "{message}");
    }
    assert_eq!(world.engine.attempt_count(), 0);
    assert_eq!(world.stream(r#","n":4"#).await.head.status, 200);
    world.end().await;
}

/// The limit on an answer's size applies to all choices together.
#[tokio::test]
async fn the_size_limit_applies_to_all_choices_together() {
    let long = |attempt: &Attempt| {
        let choice = choice_of(attempt);
        let text = "x".repeat(400_000);
        let message = format!(
            r#""choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]"#
        );
        Script::ok(object(choice, "chat.completion", &message))
    };
    let world = world(
        long,
        Setup::new()
            .allow_errors()
            .config("[limits]\nmax_answer_bytes = 1000000\n"),
    )
    .await;
    assert_eq!(
        world
            .request(&Request::plain(r#","n":2"#))
            .await
            .head
            .status,
        200
    );
    world
        .request(&Request::plain(r#","n":3"#))
        .await
        .with_status(502)
        .fault();
    world.end().await;
}

/// Bytes that a choice's body does not share with the client's count against the memory budget: a key's priority makes
/// copies; a seed is a small piece between parts of the client's body.
#[tokio::test]
async fn bodies_of_all_choices_count_against_the_budget() {
    let (gate, held) = Gate::pair();
    let answering = move |attempt: &Attempt| Script::new().wait(&held).followed_by(good(attempt));
    let keys = [entry(KEY, ""), entry(SECOND, "priority = 7")].concat();
    let setup = Setup::new().config(&format!(
        "[limits]\nbodies_in_flight_bytes = 1000000\n{keys}"
    ));
    let world = world(answering, setup).await;
    let user = "u".repeat(200_000);
    let request = |key, more: &str| {
        with(
            &Request::stream(&format!(r#","n":8,"user":"{user}"{more}"#)),
            key,
        )
    };
    world
        .request(&request(SECOND, ""))
        .await
        .with_status(503)
        .fault();
    assert_eq!(world.engine.attempt_count(), 0);
    for (client, more) in [(1, ""), (2, r#","seed":1"#)] {
        let mut answer = world.send(&request(KEY, more)).await;
        world.engine.wait_attempts(8 * client).await;
        gate.open();
        assert_eq!(answer.head().await.status, 200);
        assert!(answer.rest().await.ends_with(b"data: [DONE]\n\n"));
    }
    world.end().await;
}

/// Ways in which one of several answers breaks, and whether the client may have received a part of it before.
const BREAKS: [(&str, bool); 9] = [
    ("closed", false),
    ("reset", false),
    ("refused", false),
    ("overloaded", false),
    ("nonsense", false),
    ("error", false),
    ("cut", true),
    ("garbled", true),
    ("aborted", true),
];

fn broken(how: &str, choice: usize) -> Script {
    let speaking = || Script::new().begins(choice).says(choice, "half");
    let refusal = r#"{"error":{"message":"no","type":"server_error","code":null}}"#;
    match how {
        "closed" => Script::new().fin(),
        "reset" => Script::new().rst(),
        "refused" => Script::new().json("500 Internal Server Error", refusal),
        "overloaded" => Script::new().json("503 Service Unavailable", refusal),
        "nonsense" => Script::new().whole("200 OK", "text/html", "<html>"),
        "error" => Script::new().head_sse().ev(refusal).end(),
        "cut" => speaking().close(CloseKind::Rst),
        "garbled" => speaking().ev("{\"id\":").end(),
        "aborted" => speaking()
            .ev(&delta(choice, "{}", "\"abort\""))
            .done()
            .end(),
        other => panic!("{other}"),
    }
}

/// The client gets the same error as with one choice if no choice has content yet.
#[tokio::test]
async fn a_choice_that_fails_before_any_content_fails_the_answer() {
    for choice in 0..3 {
        for (how, speaks) in BREAKS {
            for is_stream in [true, false] {
                let answering = move |attempt: &Attempt| {
                    let is_it =
                        attempt.text().contains("\"alone\"") || choice_of(attempt) == choice;
                    match is_it {
                        true => broken(how, choice),
                        false => Script::new().begins(9).hang(),
                    }
                };
                let world = world(answering, Setup::new().allow_errors()).await;
                let ask = |more: &str| {
                    if is_stream {
                        Request::stream(more)
                    } else {
                        Request::plain(more)
                    }
                };
                let what = format!("{how} of {choice}, stream {is_stream}");
                let alone = world.request(&ask(r#","user":"alone""#)).await;
                let answer = world.request(&ask(r#","n":3"#)).await;
                if speaks && is_stream && answer.head.status == 200 {
                    // The failing choice's own text was already being sent.
                    let told = StreamContent::of(answer.text());
                    assert!(
                        told.error.is_some() && !told.done && told.usage.is_none(),
                        "{what}: {told:?}"
                    );
                    assert_eq!(alone.head.status, 200, "{what}");
                    assert_eq!(told.error, StreamContent::of(alone.text()).error, "{what}");
                } else if alone.head.status == 200 {
                    // The role frame was already being sent.
                    let error = StreamContent::of(alone.text()).error.expect("an error");
                    let own = answer.json();
                    assert_eq!(own["error"], error["error"], "{what}");
                } else {
                    assert_eq!(answer.failure(), alone.failure(), "{what}");
                }
                world.end().await;
            }
        }
    }
}

/// The stream ends with the error if other choices have content, and without anything that looks finished.
#[tokio::test]
async fn one_that_breaks_in_a_stream_ends_it() {
    for choice in 0..3 {
        for (how, _) in BREAKS {
            let (gate, held) = Gate::pair();
            let answering = move |attempt: &Attempt| match choice_of(attempt) {
                own if own == choice => Script::new().wait(&held).followed_by(broken(how, choice)),
                // One choice is complete already.
                own if own == (choice + 1) % 3 => stream(own),
                own => Script::new().begins(own).says(own, "b").hang(),
            };
            let world = world(answering, Setup::new().allow_errors()).await;
            let mut client = world.begin(&Request::stream(&n(3))).await;
            let mut text = String::new();
            while !(text.contains(r#""content":"b""#) && text.contains(r#""finish_reason":"stop""#))
            {
                text += &(client.event().await.expect("the others go on") + "\n\n");
            }
            gate.open();
            text += std::str::from_utf8(&client.rest().await).expect("UTF-8");
            assert_eq!(client.ended(), Ended::LastChunk);
            let what = format!("{how} of {choice}: {text}");
            let (_, error) = text
                .rsplit_once("event: error\ndata: ")
                .unwrap_or_else(|| panic!("{what}"));
            let error: Value = serde_json::from_str(error.trim_end()).expect("JSON");
            assert!(error["error"]["message"].is_string(), "{what}");
            assert!(
                !text.contains("[DONE]") && !text.contains("prompt_tokens"),
                "{what}"
            );
            assert_eq!(text.matches("\"finish_reason\":\"").count(), 1, "{what}");
            world.end().await;
        }
    }
}

/// A whole answer is sent only when all of it is there: one broken choice fails it.
#[tokio::test]
async fn one_that_breaks_in_a_whole_answer_fails_it() {
    for how in ["closed", "refused", "cut", "short"] {
        let answering = move |attempt: &Attempt| match (choice_of(attempt), how) {
            (0, _) => whole(0),
            (1, "short") => Script::new()
                .raw("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"id\":")
                .fin(),
            (1, how) => broken(how, 1),
            _ => Script::new().hang(),
        };
        let world = world(answering, Setup::new().allow_errors()).await;
        let answer = world.request(&Request::plain(r#","n":3"#)).await;
        assert!(answer.head.status >= 500, "{how}: {}", answer.text());
        answer.fault();
        world.end().await;
    }
}

#[tokio::test]
async fn engines_that_take_too_long_are_called_off() {
    let answering = |attempt: &Attempt| match choice_of(attempt) {
        1 => Script::new().hang(),
        _ if attempt.text().contains("silent") => Script::new().begins(0).hang(),
        choice => stream(choice),
    };
    let times = "[timeouts]\nfirst_token = 0.3\ninter_token = 0.3\n";
    let world = world(answering, Setup::new().allow_errors().config(times)).await;
    let told = StreamContent::of(world.stream(&n(3)).await.text());
    assert_eq!(
        told.error.expect("an error")["error"]["code"],
        "upstream_timeout"
    );
    assert!(!told.done && told.usage.is_none());
    world
        .stream(r#","n":3,"user":"silent""#)
        .await
        .with_status(504)
        .fault();
    world.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_calls_all_of_them_off() {
    let answering = |attempt: &Attempt| {
        let choice = choice_of(attempt);
        match attempt.text() {
            text if text.contains("prefill") => Script::new().hang(),
            text if text.contains("writing") => Script::new()
                .begins(choice)
                .then(Step::Flood {
                    events: 10_000,
                    size: 4096,
                })
                .hang(),
            _ => Script::new().begins(choice).says(choice, "a").hang(),
        }
    };
    let world = world(answering, Setup::new()).await;
    let mut times = Vec::new();
    for (moment, is_stream) in [
        ("prefill", true),
        ("prefill", false),
        ("between", true),
        ("writing", true),
        ("between", false),
    ] {
        for manner in [CloseKind::Fin, CloseKind::Rst] {
            let before = world.engine.attempt_count();
            let more = format!(r#","n":4,"user":"{moment}""#);
            let request = if is_stream {
                Request::stream(&more)
            } else {
                Request::plain(&more)
            };
            let mut client = world.send(&request).await;
            world.engine.wait_attempts(before + 4).await;
            if is_stream && moment != "prefill" {
                client.event_with_head("content").await;
            }
            let left = client.leave(manner);
            for attempt in before..before + 4 {
                until("the engine sees the close", || {
                    world.engine.closed(attempt).is_some()
                })
                .await;
                let (seen, _) = world.engine.closed(attempt).expect("just seen");
                let time = seen.saturating_duration_since(left);
                assert!(time < SOON, "{moment}, {manner:?}: {time:?}");
                times.push(time);
            }
        }
    }
    times.sort();
    println!(
        "called off: median {:?}, worst {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    world.end().await;
}

/// Another engine answers a choice that has failed; the other choices continue.
#[tokio::test]
async fn each_choice_may_be_answered_elsewhere() {
    for how in ["reset", "refused", "overloaded"] {
        for is_stream in [true, false] {
            let (has_failed, retried) = (Arc::new(AtomicBool::new(false)), Gate::default());
            let answering = move |attempt: &Attempt| {
                if choice_of(attempt) == 1 {
                    if !has_failed.swap(true, Ordering::SeqCst) {
                        return broken(how, 1);
                    }
                    retried.open();
                }
                // The other choices wait for this one, so that nothing has been sent when it fails.
                Script::new().wait(&retried).followed_by(good(attempt))
            };
            let engines = Engine::several(2, answering).await;
            let setup = Setup::new().allow_errors().config(PATIENT);
            let world = World::fleet_up(engines, setup, &[RUST, RUST]).await;
            let request = if is_stream {
                Request::stream(&n(3))
            } else {
                Request::plain(r#","n":3"#)
            };
            let answer = world.request(&request).await;
            let what = format!("{how}, stream {is_stream}: {}", answer.text());
            assert_eq!(
                answer.head.header("x-samewire-attempts"),
                Some("2"),
                "{what}"
            );
            assert_eq!(answer.head.status, 200, "{what}");
            if is_stream {
                let told = StreamContent::of(answer.text());
                assert_eq!(
                    (told.done, &told.usage),
                    (true, &Some(usage_of(3))),
                    "{what}"
                );
                assert_eq!(
                    (told.text(0), told.text(1)),
                    ("0.0 0.1 ".to_owned(), "1.0 1.1 ".to_owned())
                );
            } else {
                let body = answer.json();
                assert_eq!(
                    (&body["usage"], body["choices"].as_array().map(Vec::len)),
                    (&usage_of(3), Some(3))
                );
            }
            let mut shares = world.attempt_counts();
            shares.sort_unstable();
            assert_eq!(shares, [1, 3], "{what}");
            world.end().await;
        }
    }
}

/// A request that breaks its engine reaches at most two engines, over all choices together.
#[tokio::test]
async fn all_choices_go_the_same_way() {
    let engines = (0..5).map(|_| Script::new().rst());
    let setup = Setup::new().allow_errors().config(PATIENT);
    let world = World::fleet_up(engines, setup, &[RUST; 5]).await;
    let answer = world.stream(&n(8)).await;
    assert_eq!(answer.fault().code.as_deref(), Some("upstream_reset"));
    assert_eq!(
        answer.head.header("x-should-retry"),
        Some("false"),
        "another try would break two more"
    );
    let asked = world
        .attempt_counts()
        .into_iter()
        .filter(|requests| *requests > 0)
        .count();
    assert_eq!(asked, 2, "{:?}", world.attempt_counts());
    world.end().await;
}

/// An engine that gives several choices fails, and one that gives a single choice answers instead.
#[tokio::test]
async fn who_gives_one_steps_in_for_who_gives_several() {
    let engines = vec![
        Engine::script(broken("refused", 0)).await,
        Engine::answering(good).await,
    ];
    let setup = Setup::new().allow_errors().config(PATIENT);
    let world = World::fleet_up(engines, setup, &["", RUST]).await;
    // Chance decides which engine is first.
    let (mut asked, mut twice) = (0, 0);
    while asked < 8 || twice == 0 {
        assert!(asked < 64, "the other one gets no request");
        asked += 1;
        let answer = world.stream(&n(2)).await;
        let told = StreamContent::of(answer.text());
        assert_eq!(
            (told.done, told.choices.len(), told.usage),
            (true, 2, Some(usage_of(2)))
        );
        twice += usize::from(answer.head.header("x-samewire-attempts") == Some("2"));
    }
    world.end().await;
}

/// Returns an answer with several choices from one engine.
fn native(choices: &[Vec<String>], rng: &mut StdRng) -> Script {
    let mut left: Vec<_> = choices.iter().map(|texts| texts.iter()).collect();
    let entry = |choice: usize, delta: &str, finish: &str| {
        let entry =
            format!(r#""choices":[{{"index":{choice},"delta":{delta},"finish_reason":{finish}}}]"#);
        object(0, "chat.completion.chunk", &entry)
    };
    let mut script = Script::new().head_sse();
    for choice in 0..choices.len() {
        script = script.ev(&entry(
            choice,
            r#"{"role":"assistant","content":""}"#,
            "null",
        ));
    }
    let mut open: Vec<_> = (0..choices.len()).collect();
    while !open.is_empty() {
        let at = rng.random_range(0..open.len());
        let choice = open[at];
        script = match left[choice].next() {
            Some(text) => script.ev(&entry(choice, text, "null")),
            None => {
                open.swap_remove(at);
                script.ev(&entry(choice, "{}", "\"stop\""))
            }
        };
    }
    script
        .ev(&object(
            0,
            "chat.completion.chunk",
            r#""choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9,"total_tokens":12}"#,
        ))
        .done()
        .end()
}

/// The same choices, one from each of several answers, at any pace and in any pieces, give the same frames.
#[tokio::test]
async fn what_several_answers_make_is_what_one_makes() {
    type Choices = Arc<Mutex<(Vec<Vec<String>>, u64)>>;
    let case: Choices = Arc::default();
    let (one, several) = (Arc::clone(&case), Arc::clone(&case));
    let natively = move |_: &Attempt| {
        let (choices, seed) = &*one.lock().expect("no panic");
        native(choices, &mut StdRng::seed_from_u64(*seed))
    };
    let by_choice = move |attempt: &Attempt| {
        let (choices, seed) = &*several.lock().expect("no panic");
        let choice = choice_of(attempt);
        let mut rng = StdRng::seed_from_u64(seed + choice as u64);
        let mut script = Script::new().begins(choice);
        for text in &choices[choice] {
            script = script.ev(&delta(choice, text, "null"));
            if rng.random_range(0..4) == 0 {
                script = script.sleep(Duration::from_millis(rng.random_range(0..5)));
            }
        }
        let usage = if choice == 0 { 9 } else { 0 };
        let usage = format!(
            r#""choices":[],"usage":{{"prompt_tokens":3,"completion_tokens":{usage},"total_tokens":{}}}"#,
            3 + usage
        );
        let script = script.ev(&delta(choice, "{}", "\"stop\""));
        let script = script
            .ev(&object(choice, "chat.completion.chunk", &usage))
            .done()
            .end();
        if rng.random() {
            script.split(rng.random_range(1..200))
        } else {
            script
        }
    };
    let fanned = world(by_choice, Setup::new()).await;
    let natively = World::start(Engine::answering(natively), Setup::new()).await;
    let mut rng = StdRng::seed_from_u64(7);
    for seed in 0..60_u64 {
        let count = rng.random_range(2..6_usize);
        let choices: Vec<Vec<String>> = (0..count)
            .map(|_| {
                (0..rng.random_range(1..8))
                    .map(|n| match rng.random_range(0..4) {
                        0 => format!(r#"{{"reasoning":"r{n} "}}"#),
                        1 => format!(r#"{{"content":"é\n{n} "}}"#),
                        _ => format!(r#"{{"content":"c{n} "}}"#),
                    })
                    .collect()
            })
            .collect();
        *case.lock().expect("no panic") = (choices, seed * 100);
        for request in [
            Request::stream(&n(count)),
            Request::plain(&format!(r#","n":{count}"#)),
        ] {
            let (expected, got) = (
                natively.request(&request).await,
                fanned.request(&request).await,
            );
            assert_eq!(
                (expected.head.status, got.head.status),
                (200, 200),
                "{seed}: {}",
                got.text()
            );
            if request
                .sent_body()
                .windows(8)
                .any(|word| word == b"\"stream\"")
            {
                assert_eq!(
                    StreamContent::of(got.text()),
                    StreamContent::of(expected.text()),
                    "{seed}"
                );
                continue;
            }
            let [mut expected, mut got] = [expected, got].map(|answer| answer.json());
            for body in [&mut expected, &mut got] {
                // These members are taken from whichever answer came first.
                body["id"] = Value::Null;
                body["created"] = Value::Null;
            }
            assert_eq!(got, expected, "{seed}");
        }
    }
    natively.end().await;
    fanned.end().await;
}

// === an engine that nobody has named ===

/// Returns the choice that a request to a multi-choice engine is for; `None` if it is for all.
fn part_of(attempt: &Attempt) -> Option<usize> {
    let id = attempt.header("x-request-id").expect("an id");
    let mut parts = id.split('-').skip(2);
    parts.next().map(|choice| choice.parse().expect("a number"))
}

/// Starts an engine that does not identify itself and answers by `answering`.
async fn unnamed(
    answering: impl Fn(&Attempt) -> Script + Send + Sync + 'static,
    setup: Setup,
) -> World {
    let engine = Engine::answering(answering).await;
    engine.set_models(Script::ok(
        r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#,
    ));
    World::start_as(engine, "auto", setup).await
}

/// Answers with one choice, however many the request wants.
fn one(attempt: &Attempt) -> Script {
    let choice = part_of(attempt).unwrap_or(0);
    if streams(attempt) {
        stream(choice)
    } else {
        whole(choice)
    }
}

fn asked(attempts: &[Attempt]) -> Vec<u64> {
    let n = |attempt: &Attempt| attempt.json()["n"].as_u64();
    attempts
        .iter()
        .map(|attempt| n(attempt).expect("a number"))
        .collect()
}

/// Missing choices are requested after those that the engine gave, and from then on at once.
#[tokio::test]
async fn an_engine_that_gives_one_is_asked_for_the_others() {
    for streamed in [true, false] {
        for count in [2_usize, 4] {
            let world = unnamed(one, Setup::new()).await;
            for round in 0..2 {
                let attempts = world.engine.attempt_count();
                if streamed {
                    let answer = world.stream(&n(count)).await;
                    assert_eq!(
                        choices_of(&answer, count),
                        Some(usage_of(count as u64)),
                        "{round}"
                    );
                } else {
                    let answer = world
                        .request(&Request::plain(&format!(r#","n":{count}"#)))
                        .await
                        .with_status(200);
                    let body = answer.json();
                    assert_eq!(body["usage"], usage_of(count as u64), "{round}");
                    let choices = body["choices"].as_array().expect("a list");
                    assert_eq!(choices.len(), count);
                    for (at, choice) in choices.iter().enumerate() {
                        assert_eq!(choice["index"], at);
                        assert_eq!(choice["message"]["content"], format!("{at}.0 {at}.1 "));
                    }
                }
                let mut expected = vec![1; count];
                expected[0] = if round == 0 { count as u64 } else { 1 };
                assert_eq!(
                    asked(&world.engine.attempts()[attempts..]),
                    expected,
                    "{round}"
                );
            }
            // Usage is not sent unless requested; one choice is one request.
            let told = StreamContent::of(world.stream(r#","n":2"#).await.text());
            assert_eq!((told.done, told.usage, told.choices.len()), (true, None, 2));
            let attempts = world.engine.attempt_count();
            world.stream("").await;
            assert_eq!(world.engine.attempt_count(), attempts + 1);
            world.samewire.finished(4).await;
            assert_eq!(
                world
                    .samewire
                    .sum("samewire_rewrites_total", &["rule=\"fan_out\""])
                    .await,
                3
            );
            world.end().await;
        }
    }
}

/// A stream without requested usage: missing choices are added, and no usage is sent.
#[tokio::test]
async fn a_first_stream_without_usage_asked_for_has_all_choices() {
    let world = unnamed(one, Setup::new()).await;
    let told = StreamContent::of(world.stream(r#","n":2"#).await.text());
    assert_eq!(
        (told.done, told.usage.clone(), told.choices.len()),
        (true, None, 2)
    );
    assert_eq!(
        (told.text(0), told.text(1)),
        ("0.0 0.1 ".to_owned(), "1.0 1.1 ".to_owned())
    );
    world.end().await;
}

/// An engine that gives two of three choices gets a request for the third; an engine that gives all gets none.
#[tokio::test]
async fn an_engine_that_gives_some_is_asked_for_the_rest() {
    for given in [2_usize, 3] {
        let some = move |attempt: &Attempt| {
            if let Some(choice) = part_of(attempt) {
                return stream(choice);
            }
            let mut script = Script::new().head_sse();
            let of = |choice: usize, delta: &str, finish: &str| {
                let entry = format!(
                    r#""choices":[{{"index":{choice},"delta":{delta},"finish_reason":{finish}}}]"#
                );
                object(0, "chat.completion.chunk", &entry)
            };
            for choice in 0..given {
                let text = format!(r#"{{"role":"assistant","content":"{choice}.0 {choice}.1 "}}"#);
                script = script
                    .ev(&of(choice, &text, "null"))
                    .ev(&of(choice, "{}", "\"stop\""));
            }
            script.done().end()
        };
        let world = unnamed(some, Setup::new()).await;
        let told = StreamContent::of(world.stream(&n(3)).await.text());
        assert_eq!(
            (told.done, told.choices.len(), told.usage),
            (true, 3, None),
            "usage of a part is no sum"
        );
        for choice in 0..3 {
            assert_eq!(
                StreamContent::of(world.stream(r#","n":3"#).await.text()).text(choice),
                format!("{choice}.0 {choice}.1 ")
            );
        }
        assert_eq!(asked(&world.engine.attempts()[..1]), [3]);
        assert_eq!(
            part_of(&world.engine.attempts()[1]),
            if given == 2 { Some(2) } else { None }
        );
        world.end().await;
    }
}

/// A failure of the additional requests fails the answer, and leaves nothing running.
#[tokio::test]
async fn a_rest_that_fails_fails_the_answer() {
    let broken = |attempt: &Attempt| match part_of(attempt) {
        Some(_) => Script::new().json(
            "500 Internal Server Error",
            r#"{"error":{"message":"no","code":500}}"#,
        ),
        None => one(attempt),
    };
    let world = unnamed(broken, Setup::new().allow_errors()).await;
    let told = StreamContent::of(world.stream(&n(2)).await.text());
    assert_eq!((told.done, told.text(0)), (false, "0.0 0.1 ".to_owned()));
    assert_eq!(
        told.error.expect("an error")["error"]["code"],
        "internal_error"
    );
    world.end().await;
    let world = unnamed(broken, Setup::new().allow_errors()).await;
    let answer = world.request(&Request::plain(r#","n":2"#)).await;
    assert_eq!(answer.failure(), "500 server_error internal_error");
    world.end().await;
}

/// Choices of several prompts cannot be told apart: the engine's own answer is the result.
#[tokio::test]
async fn several_prompts_are_not_asked_for_again() {
    let one = |_: &Attempt| {
        Script::ok(
            r#"{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}]}"#,
        )
    };
    let world = unnamed(one, Setup::new().allow_errors()).await;
    let answer = world
        .post(
            "/v1/completions",
            r#"{"model":"m","prompt":["a","b"],"n":2}"#,
        )
        .await;
    assert_eq!(
        (answer.head.status, world.engine.attempt_count()),
        (502, 1),
        "{}",
        answer.text()
    );
    world.end().await;
}

/// A client that leaves during the additional requests cancels them.
#[tokio::test]
async fn a_client_that_leaves_calls_the_rest_off() {
    let slow = |attempt: &Attempt| match part_of(attempt) {
        Some(choice) => Script::new().begins(choice).hang(),
        None => one(attempt),
    };
    let world = unnamed(slow, Setup::new()).await;
    let client = world.send(&Request::stream(&n(3))).await;
    world.engine.wait_attempts(3).await;
    until("both are under way", || {
        world.engine.active_generations() == 2
    })
    .await;
    let left = client.leave(CloseKind::Rst);
    until("both are called off", || {
        world.engine.active_generations() == 0
    })
    .await;
    for part in [1, 2] {
        let (closed, _) = world.engine.closed(part).expect("called off");
        assert!(closed.saturating_duration_since(left) < SOON);
    }
    world.end().await;
}
