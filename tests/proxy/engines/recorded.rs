//! Recorded answers through the whole proxy: the worked examples of the wire format and every captured exchange,
//! with the status and headers that only HTTP has.

#![allow(clippy::disallowed_types, reason = "the vectors are JSON of any shape")]

use crate::replay::fixtures;
use crate::sim::prelude::*;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;

/// Script of the engine's next answer; the requests of these tests are sent one after the other.
type Next = Arc<Mutex<Script>>;

/// Returns a setup in which clients get the engines' own error messages: vectors and captures are of the rewriter,
/// which hides none.
fn engine_messages() -> Setup {
    Setup::new().set("engine_errors=pass")
}

async fn world(kind: &str, setup: Setup) -> (World, Next) {
    let next = Next::default();
    let script = Arc::clone(&next);
    let engine =
        Engine::answering(move |_| script.lock().expect("no test panics with the lock").clone())
            .await;
    (
        World::start_as(engine, kind, setup.allow_errors()).await,
        next,
    )
}

/// Returns a head and a body in chunked coding, with a clean end or a reset.
fn answer(head: &str, body: &[u8], clean: bool) -> Script {
    let script = Script::new().raw(format!("{head}transfer-encoding: chunked\r\n\r\n"));
    let script = if body.is_empty() {
        script
    } else {
        script.chunk(body)
    };
    if clean {
        script.end().close(CloseKind::Fin)
    } else {
        script.close(CloseKind::Rst)
    }
}

/// Returns JSON without white space, in the original key order.
fn compact(json: &str) -> String {
    let (mut within, mut escaped) = (false, false);
    let keep = |letter: &char| {
        let kept = within || !letter.is_whitespace();
        within ^= *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        kept
    };
    json.chars().filter(keep).collect()
}

/// Worked example of the wire format.
struct Vector {
    name: String,
    engine: String,
    setup: Setup,
    options: String,
    request: Request,
    script: Script,
    status: u16,
    expected: String,
    retry_after: Option<String>,
    idempotent: bool,
}

/// Returns options as `--set` arguments; nested names are joined by dots.
fn assignments(prefix: &str, options: &Value) -> Vec<String> {
    let one = |(key, value): (&String, &Value)| match value {
        Value::Object(_) => assignments(&format!("{prefix}{key}."), value),
        Value::String(text) => vec![format!("{prefix}{key}={text}")],
        value => vec![format!("{prefix}{key}={value}")],
    };
    options
        .as_object()
        .expect("options are an object")
        .iter()
        .flat_map(one)
        .collect()
}

fn vector(text: &str) -> Option<Vector> {
    #[derive(serde::Deserialize)]
    struct Whole<'a> {
        #[serde(borrow)]
        expected_body: Option<&'a RawValue>,
    }
    let value: Value = serde_json::from_str(text).expect("a vector is JSON");
    let field = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (target, prompt) = match (field("client_api").as_str(), field("upstream_api").as_str()) {
        ("chat.completions", "chat.completions") => ("/v1/chat/completions", "messages"),
        ("completions", "completions") => ("/v1/completions", "prompt"),
        _ => return None,
    };
    // Text that an engine left unparsed: `<think>`.
    if field("name").starts_with("chat-09") {
        return None;
    }
    let mut request = value["request"].clone();
    let asked = request.as_object_mut().expect("a request is an object");
    asked.entry(prompt).or_insert_with(|| match prompt {
        "prompt" => "a".into(),
        _ => json!([{"role": "user", "content": "a"}]),
    });
    if let Some(name) = asked
        .get("tool_choice")
        .and_then(|choice| choice["function"]["name"].as_str())
    {
        let tools = json!([{"type": "function", "function": {"name": name}}]);
        asked.entry("tools").or_insert(tools);
    }
    let whole: Whole<'_> = serde_json::from_str(text).expect("a vector is JSON");
    let expected = match value["expected"].as_array() {
        Some(lines) => lines
            .iter()
            .map(|line| format!("{}\n", line.as_str().expect("lines are text")))
            .collect(),
        None => compact(whole.expected_body.expect("lines or a body").get()),
    };
    let mut options = assignments("", &value["options"]);
    // Vectors use one name for reasoning, unless they set another (wire-format 9).
    if value["options"]["reasoning_field"].is_null() {
        options.push("reasoning_field=reasoning_content".to_owned());
    }
    let setup = options
        .iter()
        .fold(engine_messages(), |setup, option| setup.set(option));
    let status = value["upstream_status"].as_u64().unwrap_or(200);
    let headers = value["upstream_headers"].as_object().into_iter().flatten();
    let lines = headers
        .map(|(name, value)| format!("{name}: {}\r\n", value.as_str().expect("headers are text")));
    let head = format!("HTTP/1.1 {status} X\r\n{}", lines.collect::<String>());
    Some(Vector {
        name: field("name"),
        engine: if ["vllm", "sglang"].contains(&field("engine").as_str()) {
            field("engine")
        } else {
            "generic".into()
        },
        setup,
        options: options.join(" "),
        request: Request::post(target, request.to_string()),
        script: answer(
            &head,
            field("input").as_bytes(),
            field("upstream_eof") != "reset",
        ),
        status: value["expected_status"]
            .as_u64()
            .and_then(|status| status.try_into().ok())
            .unwrap_or(200),
        expected,
        retry_after: value["expected_headers"]["retry-after"]
            .as_str()
            .map(str::to_owned),
        idempotent: value["idempotent"] == Value::Bool(true),
    })
}

/// Replaces a generated id by the one that the vectors' generator gives.
fn with_known_id(got: &str, expected: &str) -> String {
    let known = format!("{:032x}", 1);
    if !expected.contains(&known) {
        return got.to_owned();
    }
    let drawn = got
        .split("\"id\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("an id");
    let suffix = drawn.rsplit('-').next().expect("rsplit gives one");
    got.replace(suffix, &known)
}

#[tokio::test]
async fn every_vector_through_the_proxy() {
    let mut groups: BTreeMap<_, Vec<Vector>> = BTreeMap::new();
    for entry in std::fs::read_dir(fixtures().join("vectors")).expect("the vectors are there") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("UTF-8");
        if let Some(vector) = vector(&text) {
            groups
                .entry((vector.engine.clone(), vector.options.clone()))
                .or_default()
                .push(vector);
        }
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for ((engine, _), vectors) in groups {
        let (world, next) = world(&engine, vectors[0].setup.clone()).await;
        for vector in vectors {
            count += 1;
            *next.lock().expect("no test panics with the lock") = vector.script.clone();
            let mut check = |answer: Answer, again: &str| {
                let got = with_known_id(answer.text(), &vector.expected);
                let retry_after = vector.retry_after.as_deref();
                if answer.head.status != vector.status
                    || got != vector.expected
                    || retry_after.is_some() && answer.head.header("retry-after") != retry_after
                {
                    let (name, status) = (&vector.name, answer.head.status);
                    wrong.push(format!(
                        "{name}{again}:\n{} {}\ngot {status} {got}",
                        vector.status, vector.expected
                    ));
                }
            };
            check(world.request(&vector.request).await, "");
            if vector.idempotent {
                let kind = if vector.expected.starts_with('{') {
                    "application/json"
                } else {
                    "text/event-stream"
                };
                let retry_after = vector
                    .retry_after
                    .as_ref()
                    .map(|seconds| format!("retry-after: {seconds}\r\n"));
                let status = vector.status;
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{}",
                    retry_after.unwrap_or_default()
                );
                *next.lock().expect("no test panics with the lock") =
                    answer(&head, vector.expected.as_bytes(), true);
                check(world.request(&vector.request).await, " again");
            }
        }
        world.end().await;
    }
    assert!(count > 60, "only {count} vectors");
    assert!(
        wrong.is_empty(),
        "{} of {count} differ:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

/// Captured exchange: the request, the engine's answer, and the expected status and body.
struct Capture {
    request: Request,
    script: Script,
    status: u16,
    expected: String,
}

fn capture(folder: &Path) -> Option<Capture> {
    #[derive(serde::Deserialize)]
    struct RecordedRequest<'a> {
        path: String,
        #[serde(borrow)]
        body: &'a RawValue,
    }
    let read = |name: &str| std::fs::read(folder.join(name)).ok();
    let text =
        |name: &str| read(name).map(|bytes| String::from_utf8(bytes).expect("fixtures are UTF-8"));
    let asked = text("request.json")?;
    let asked: RecordedRequest<'_> = serde_json::from_str(&asked).ok()?;
    let body = ["upstream.sse", "upstream.json", "upstream.txt"]
        .into_iter()
        .find_map(read)?;
    let recorded = text("upstream.http")
        .unwrap_or_else(|| "HTTP/1.1 200 OK\ncontent-type: text/event-stream".into());
    let framing = |line: &&str| {
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        !line.trim().is_empty() && !["content-length", "transfer-encoding"].contains(&name.as_str())
    };
    let head: String = recorded
        .lines()
        .filter(framing)
        .map(|line| format!("{}\r\n", line.trim_end()))
        .collect();
    let clean = !text("eof").is_some_and(|eof| eof.starts_with("reset"));
    let names = [
        "chat.sse",
        "chat.json",
        "completions.sse",
        "completions.json",
        "responses.sse",
        "responses.json",
    ];
    let golden = names.into_iter().find_map(text);
    let (status, expected) = match golden {
        Some(golden) => (200, golden),
        None => {
            let error = text("error.json")?;
            let (line, body) = error.split_once('\n').expect("a status line and a body");
            (
                line.trim_start_matches("HTTP ").parse().expect("a status"),
                body.to_owned(),
            )
        }
    };
    // In the fixtures, members that an answer repeats from the request have sorted keys.
    let sorted = serde_json::from_str::<Value>(asked.body.get())
        .expect("a request")
        .to_string();
    let body_sent = if asked.path == "/v1/responses" {
        &sorted
    } else {
        asked.body.get()
    };
    Some(Capture {
        request: Request::post(&asked.path, body_sent),
        script: answer(&head, &body, clean),
        status,
        expected,
    })
}

/// Returns true for ids and times that samewire generates if the engine gave none.
fn is_drawn(text: &str) -> bool {
    text.contains(&format!("{:032x}", 1)) || text.contains("1779866853")
}

/// Removes the times that samewire itself takes.
fn timeless(text: &str) -> String {
    let mut pieces = text.split("\"completed_at\":");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| {
        all + "\"completed_at\":0" + piece.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// Plays every capture of an engine kind for which `plays` holds. Returns how many requests reached the engine, and
/// the answers that differ.
async fn play(kind: &str, setup: Setup, plays: impl Fn(&Capture) -> bool) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let (world, next) = world(kind, setup).await;
    for entry in std::fs::read_dir(fixtures().join(kind)).expect("the captures are there") {
        let folder = entry.expect("an entry").path();
        let Some(capture) = capture(&folder).filter(&plays) else {
            continue;
        };
        *next.lock().expect("no test panics with the lock") = capture.script;
        let before = world.engine.attempt_count();
        let answer = world.request(&capture.request).await;
        if world.engine.attempt_count() == before {
            assert!(
                matches!(answer.head.status, 400..=499),
                "{}",
                folder.display()
            );
            // A request that samewire refuses itself: the engine's recorded answer is never read.
            continue;
        }
        count += 1;
        if folder.ends_with("sglang/responses-too-long") {
            // The engine begins and breaks off before its first event: that becomes an HTTP error.
            assert_eq!(answer.failure(), "502 server_error upstream_incomplete");
            continue;
        }
        if folder.ends_with("error-no-embeddings-rust") {
            // The rewriter does not know the route; the proxy names it.
            assert_eq!(answer.failure(), "404 invalid_request_error");
            continue;
        }
        let (got, expected) = (timeless(answer.text()), timeless(&capture.expected));
        if (answer.head.status, got.trim_end()) != (capture.status, expected.trim_end()) {
            let (name, status) = (folder.display(), capture.status);
            let lines = expected
                .lines()
                .zip(got.lines())
                .filter(|(expected, got)| expected != got);
            let lines: Vec<_> = lines
                .map(|(expected, got)| format!("{expected}\n{got}"))
                .take(2)
                .collect();
            wrong.push(format!(
                "{name}:\n{status}, got {}\n{}",
                answer.head.status,
                lines.join("\n")
            ));
        }
    }
    world.end().await;
    (count, wrong)
}

/// Plays all captures of these requests, of which there must be more than `least`.
async fn play_all(setup: Setup, of: impl Fn(&Request) -> bool + Copy, least: usize) {
    let (mut count, mut wrong) = (0, Vec::new());
    for kind in ["vllm", "sglang"] {
        let plays =
            |capture: &Capture| !is_drawn(&timeless(&capture.expected)) && of(&capture.request);
        let (played, differ) = play(kind, setup.clone(), plays).await;
        count += played;
        wrong.extend(differ);
    }
    assert!(count > least, "only {count} captures");
    assert!(
        wrong.is_empty(),
        "{} of {count} differ:\n{:.20000}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

#[tokio::test]
async fn every_capture_through_the_proxy() {
    play_all(
        engine_messages(),
        |request| request.path() != "/v1/responses",
        100,
    )
    .await;
}

#[tokio::test]
async fn every_capture_of_responses_through_the_proxy() {
    let native = engine_messages().upstream_keys("responses = \"native\"");
    play_all(native, |request| request.path() == "/v1/responses", 30).await;
}
