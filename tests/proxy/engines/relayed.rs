//! Routes of engines that are relayed unchanged: their targets, the model they are for, and which fields pass.

use crate::clients::keys::{entry, with};
use crate::sim::H2Client;
use crate::sim::prelude::*;

const BOUNDARY: &str = "b-1";

/// Paths that are relayed by default.
const PATHS: [&str; 17] = [
    "/v1/rerank",
    "/rerank",
    "/v2/rerank",
    "/v1/score",
    "/score",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    "/v1/moderations",
    "/generate",
];

fn ok() -> Script {
    Script::ok(r#"{ "result": [1.50, 2] }"#)
}

async fn world(setup: Setup) -> World {
    World::start(ok(), setup).await
}

fn json(target: &str, body: &str) -> Request {
    Request::post(target, body)
}

/// Returns a multipart form of these parts, each a disposition and a value.
fn form(target: &str, parts: &[(&str, &[u8])]) -> Request {
    let mut body = Vec::new();
    for (disposition, value) in parts {
        body.extend(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n")
                .bytes(),
        );
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend(format!("--{BOUNDARY}--\r\n").bytes());
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    Request::new("POST", target)
        .header("content-type", &kind)
        .body(body)
}

const MODEL: &str = r#"name="model""#;
const FILE: &str = r#"name="file"; filename="a.wav""#;

fn is_ok(answer: &Answer, what: &str) {
    assert_eq!(
        (answer.head.status, answer.text()),
        (200, r#"{ "result": [1.50, 2] }"#),
        "{what}"
    );
}

#[tokio::test]
async fn every_route_passes_both_ways_byte_for_byte() {
    let world = world(Setup::new()).await;
    let body = r#"{ "model":"m", "x": 1.50, "y":[ ] }"#;
    for path in PATHS {
        let answer = world
            .request(&json(path, body).header("cookie", "CANARY"))
            .await;
        is_ok(&answer, path);
        assert_eq!(answer.ended, Ended::Length, "{path}");
        assert_eq!(
            answer.head.header("content-type"),
            Some("application/json"),
            "{path}"
        );
        assert_eq!(
            answer.head.header("x-samewire-attempts"),
            Some("1"),
            "{path}"
        );
        assert_eq!(answer.head.header("server"), None, "{path}");
        let attempt = world.engine.attempts().pop().expect("an attempt");
        assert_eq!(
            (
                attempt.method.as_str(),
                attempt.target.as_str(),
                attempt.text()
            ),
            ("POST", path, body)
        );
        assert_eq!(
            attempt.header("content-type"),
            Some("application/json"),
            "{path}"
        );
        assert_eq!(attempt.header("cookie"), None, "{path}");
        assert!(
            attempt
                .header("x-request-id")
                .is_some_and(|id| id.ends_with("-1")),
            "{path}"
        );
        for method in ["GET", "PUT", "DELETE"] {
            let answer = world
                .request(&Request::new(method, path).header("content-length", "0"))
                .await;
            assert_eq!(
                (answer.head.status, answer.head.header("allow")),
                (405, Some("POST")),
                "{method} {path}"
            );
        }
    }
    for path in [
        "/v1/load_lora_adapter",
        "/sleep",
        "/flush_cache",
        "/update_weights_from_disk",
        "/abort_request",
        "/server_info",
        "/start_profile",
        "/rerank/",
        "/v1/audio",
        "/v3/rerank",
    ] {
        assert_eq!(
            world.request(&json(path, body)).await.head.status,
            404,
            "{path}"
        );
    }
    assert_eq!(world.engine.attempt_count(), PATHS.len());
    let counted = world.samewire.metrics().await;
    assert!(
        counted.contains(r#"samewire_requests_total{route="relay""#),
        "{counted}"
    );
    let lines = world
        .samewire
        .logged(r#""model":"m","status":200"#, PATHS.len())
        .await;
    assert!(
        lines.iter().all(|line| line.contains(r#""route":"relay""#)),
        "{lines:#?}"
    );
    world.end().await;
}

/// Routes that control an engine or reveal its state are not relayed, however they are spelled.
#[tokio::test]
async fn fault_c27b_steering_routes_are_not_there() {
    let world = world(Setup::new().allow_errors()).await;
    let steering = [
        "flush_cache",
        "server_info",
        "get_server_info",
        "abort_request",
        "sleep",
        "wake_up",
        "metrics",
        "start_profile",
        "update_weights_from_disk",
        "v1/load_lora_adapter",
    ];
    for name in steering {
        let spellings = [
            format!("/{name}"),
            format!("//{name}"),
            format!("/{name}/"),
            format!("/./{name}"),
            format!("/generate/../{name}"),
            format!("/generate/%2e%2e/{name}"),
            format!("/generate%2f..%2f{name}"),
            format!("/generate;/../{name}"),
            format!("/{}", name.to_ascii_uppercase()),
            format!("/%{:02x}{}", name.as_bytes()[0], &name[1..]),
            format!("/openai/v1/{name}"),
            format!("/openai/v1/../{name}"),
            format!("/openai/deployments/m/{name}?api-version=2024-10-21"),
            format!("/openai/deployments/m/../../{name}?api-version=2024-10-21"),
        ];
        for target in spellings {
            let answer = world.request(&json(&target, "{}")).await;
            assert_eq!(answer.head.status, 404, "{target}: {}", answer.text());
        }
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn the_operator_adds_and_removes_paths() {
    let world =
        world(Setup::new().config("[relay]\npaths = [\"!/generate\", \"/flush_cache\"]")).await;
    assert_eq!(
        world.request(&json("/generate", "{}")).await.head.status,
        404
    );
    is_ok(
        &world.request(&json("/flush_cache?timeout=3", "{}")).await,
        "added",
    );
    assert_eq!(world.engine.only().target, "/flush_cache?timeout=3");
    world.end().await;
}

#[tokio::test]
async fn binary_answers_and_streams_pass_with_their_labels() {
    let audio: Vec<u8> = (0..200_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-disposition: attachment; filename=\"a.mp3\"\r\n\
                metadata: {\"n\":1}\r\nset-cookie: a=b\r\ntransfer-encoding: chunked\r\n\r\n";
    let gate = Gate::default();
    let scripts = vec![
        audio
            .chunks(7_000)
            .fold(Script::new().raw(head), |script, piece| script.chunk(piece))
            .end(),
        Script::new()
            .head_sse()
            .chunk("data: one\n\n")
            .wait(&gate)
            .chunk("data: two")
            .end(),
        Script::new().raw("HTTP/1.1 204 No Content\r\n\r\n"),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    let speech =
        json("/v1/audio/speech", r#"{"model":"m","input":"x"}"#).header("accept", "audio/mpeg");
    let answer = world.request(&speech).await;
    assert!(answer.body == audio, "{} bytes", answer.body.len());
    assert_eq!(answer.head.header("content-type"), Some("audio/mpeg"));
    assert_eq!(
        answer.head.header("content-disposition"),
        Some("attachment; filename=\"a.mp3\"")
    );
    assert_eq!(answer.head.header("metadata"), Some("{\"n\":1}"));
    assert_eq!(answer.head.header("set-cookie"), None);
    assert_eq!(world.engine.only().header("accept"), Some("audio/mpeg"));
    let mut client = world
        .send(&json(
            "/v1/audio/transcriptions",
            r#"{"model":"m","stream":true}"#,
        ))
        .await;
    let head = client.head().await;
    assert_eq!(
        head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(
        client.piece().await.as_deref(),
        Some(&b"data: one\n\n"[..]),
        "it does not wait for the next"
    );
    gate.open();
    assert_eq!(client.rest().await, b"data: two");
    let answer = world.request(&json("/rerank", "{}")).await;
    assert_eq!((answer.head.status, answer.body.len()), (204, 0));
    world.end().await;
}

#[tokio::test]
async fn fault_c27b_an_answer_that_breaks_off_is_broken_off() {
    let begun = || Script::new().raw("HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n");
    let scripts = vec![
        begun()
            .raw("transfer-encoding: chunked\r\n\r\n")
            .chunk("abc")
            .fin(),
        begun()
            .raw("transfer-encoding: chunked\r\n\r\n")
            .chunk("abc")
            .rst(),
        begun().raw("content-length: 10\r\n\r\nabc").fin(),
        begun()
            .raw("transfer-encoding: chunked\r\n\r\n")
            .chunk("abc")
            .raw("x\r\n")
            .hang(),
    ];
    let count = scripts.len();
    let engine = Engine::in_turn([scripts.clone(), scripts].concat()).await;
    let world = World::start(engine, Setup::new().allow_errors()).await;
    for n in 0..count {
        let answer = world
            .request(&json("/v1/audio/speech", r#"{"model":"m"}"#))
            .await;
        assert_eq!((answer.head.status, answer.text()), (200, "abc"), "{n}");
        assert!(
            matches!(answer.ended, Ended::Short | Ended::Reset),
            "{n}: {:?}",
            answer.ended
        );
    }
    for n in 0..count {
        let mut client = crate::sim::RawH2Client::open(world.proxy()).await;
        client
            .send_request(1, &json("/v1/audio/speech", r#"{"model":"m"}"#))
            .await;
        let reset = loop {
            match client.next().await {
                Ok(frame) if frame.kind == crate::sim::kinds::RST_STREAM => break true,
                Ok(frame) if frame.stream == 1 && frame.flags & 1 == 1 => break false,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        assert!(reset, "{n} in HTTP/2");
    }
    let broken = || world.samewire.count_logged(r#""end":"error""#) == 2 * count;
    until("all of them are told of", broken).await;
    world.end().await;
}

#[tokio::test]
async fn fault_c27b_errors_of_the_engine_are_canonical() {
    let scripts = vec![
        Script::new().json(
            "400 Bad Request",
            r#"{"object":"error","message":"too long","type":"BadRequestError","code":400}"#,
        ),
        Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#),
        Script::new().whole("404 Not Found", "text/plain", "404 page not found"),
        Script::new().json(
            "422 Unprocessable Entity",
            r#"{"detail":[{"loc":["body","query"],"msg":"Field required","type":"missing"}]}"#,
        ),
        Script::new().whole("500 Oops", "text/html", "<html>"),
        Script::new().raw("HTTP/1.1 307 Elsewhere\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n"),
        Script::new().fin(),
    ];
    let world = World::start(Engine::in_turn(scripts), Setup::new().allow_errors()).await;
    for (status, what) in [
        (400, "too long"),
        (404, "does not serve POST /v1/rerank"),
        (404, "does not serve POST /v1/rerank"),
        (422, "query"),
        (500, "invalid response"),
        (502, "invalid response"),
        (502, "closed the connection"),
    ] {
        let answer = world
            .request(&json("/v1/rerank?x=1", r#"{"model":"m"}"#))
            .await;
        let fault = answer.fault();
        let status = if answer.head.status == 400 && status == 422 {
            400
        } else {
            status
        };
        assert_eq!(answer.head.status, status, "{}", answer.text());
        assert!(fault.message.contains(what), "{what}: {}", answer.text());
    }
    world.end().await;
}

#[tokio::test]
async fn the_model_decides_who_is_asked() {
    let lines = ["models = [\"chat\"]", "models = [\"whisper\", \"w-1\"]"];
    let engines = [ok(), ok()];
    let setup = Setup::new().config("[[model]]\nname = \"w-1\"\naliases = [\"whisper-1\"]");
    let world = World::fleet(engines, setup, &lines).await;
    let audio = vec![7; 100_000];
    let target = "/v1/audio/transcriptions";
    for (request, to, model) in [
        (json("/tokenize", r#"{"model":"chat"}"#), 0, "chat"),
        (
            json("/tokenize", r#"{"prompt":"x","model":"whisper"}"#),
            1,
            "whisper",
        ),
        (
            form(target, &[(MODEL, b"whisper"), (FILE, &audio)]),
            1,
            "whisper",
        ),
        (
            form(target, &[(FILE, &audio), (MODEL, b"whisper")]),
            1,
            "whisper",
        ),
        (
            form(target, &[(FILE, &audio), (MODEL, b"whisper-1")]),
            1,
            "w-1",
        ),
        (
            form(target, &[(MODEL, b"whisper-1"), (FILE, &audio)]),
            1,
            "w-1",
        ),
        (
            form(target, &[(MODEL, b"whisper-1"), (FILE, &audio)]).chunked(3_000),
            1,
            "w-1",
        ),
        (
            json("/rerank", r#"{"query":"x","model":"whisper-1"}"#),
            1,
            "w-1",
        ),
    ] {
        let before = world.attempt_counts();
        is_ok(&world.request(&request).await, model);
        let after = world.attempt_counts();
        assert_eq!(
            (after[to], after[1 - to]),
            (before[to] + 1, before[1 - to]),
            "{model}"
        );
        let attempt = world
            .engines()
            .nth(to)
            .and_then(|engine| engine.attempts().pop())
            .expect("an attempt");
        let body = String::from_utf8_lossy(&attempt.body).into_owned();
        let named = body.contains(&format!("\"model\":\"{model}\""))
            || body.contains(&format!("name=\"model\"\r\n\r\n{model}\r\n--{BOUNDARY}"));
        assert!(named, "{model}: {}", &body[..body.len().min(300)]);
    }
    for (request, code) in [
        (json("/rerank", r#"{"model":"nobody"}"#), "model_not_found"),
        (
            json("/rerank", r#"{"query":"x"}"#),
            "missing_required_parameter",
        ),
        (
            form(target, &[(FILE, &audio)]),
            "missing_required_parameter",
        ),
        (
            json("/rerank", r#"{"model":"chat","model":"whisper"}"#),
            "duplicate_key",
        ),
        (
            form(target, &[(MODEL, b"chat"), (MODEL, b"whisper")]),
            "duplicate_key",
        ),
        (
            json("/generate", r#"{"model":"chat","bootstrap_host":"x"}"#),
            "forbidden_parameter",
        ),
    ] {
        let answer = world.request(&request).await;
        assert_eq!(
            answer.fault().code.as_deref(),
            Some(code),
            "{}",
            answer.text()
        );
    }
    world.end().await;
}

/// The model comes so late in the body that it is not found: this is an error, unless the model does not matter.
#[tokio::test]
async fn fault_c27b_a_model_behind_a_long_file() {
    let limits = "[limits]\nrelay_buffer_bytes = 65536";
    let audio = vec![7; 2 << 20];
    let request = form(
        "/v1/audio/transcriptions",
        &[(FILE, &audio), (MODEL, b"whisper")],
    );
    let engines = [ok(), ok()];
    let world = World::fleet(
        engines,
        Setup::new().config(limits),
        &["models = [\"chat\"]", "models = [\"whisper\"]"],
    )
    .await;
    let answer = world.request(&request).await.with_status(400);
    assert!(
        answer.fault().message.contains("Put it before the file"),
        "{}",
        answer.text()
    );
    world.end().await;
    let world = self::world(Setup::new()).await;
    is_ok(&world.request(&request).await, "one engine");
    assert!(world.engine.only().body == request.sent_body());
    world.end().await;
}

#[tokio::test]
async fn keys_open_their_models_alone() {
    let keys = [
        entry("sk-CANARY-one", "models = [\"m\"]"),
        entry("sk-CANARY-two", "models = [\"m\", \"n\"]"),
        entry("sk-CANARY-few", "requests_per_minute = 1"),
    ];
    let world = world(Setup::new().config(&keys.concat())).await;
    let long = vec![7; 400_000];
    let named = |model: &str| json("/rerank", &format!(r#"{{"model":"{model}"}}"#));
    let file = |model: &[u8]| form("/v1/audio/transcriptions", &[(FILE, &long), (MODEL, model)]);
    let nothing = json("/rerank", r#"{"query":"x"}"#);
    let other = || {
        json("/generate", "")
            .without("content-type")
            .header("content-type", "text/x")
    };
    for (request, key, status) in [
        (named("m"), "sk-CANARY-wrong", 401),
        (named("m"), "sk-CANARY-one", 200),
        (named("n"), "sk-CANARY-one", 404),
        (named("n"), "sk-CANARY-two", 200),
        (file(b"n"), "sk-CANARY-two", 200),
        (file(b"x"), "sk-CANARY-two", 404),
        (nothing.clone(), "sk-CANARY-two", 200),
        (other().body("{\"model\":\"x\"}"), "sk-CANARY-one", 400),
        (other().body("x"), "sk-CANARY-two", 400),
        (nothing.clone(), "sk-CANARY-few", 200),
        (nothing.clone(), "sk-CANARY-few", 429),
    ] {
        let answer = world.request(&with(&request, key)).await;
        assert_eq!(answer.head.status, status, "{key} {}", answer.text());
    }
    // The only available model is named explicitly, so that the engine uses no other.
    let before = world.engine.attempt_count();
    is_ok(
        &world.request(&with(&nothing, "sk-CANARY-one")).await,
        "the only model",
    );
    assert_eq!(
        world.engine.attempts()[before].text(),
        r#"{"model":"m","query":"x"}"#
    );
    world.end().await;
}

#[tokio::test]
async fn short_bodies_are_sent_to_another_engine() {
    let busy = Script::new().json("503 Busy", r#"{"message":"busy"}"#);
    for script in [
        busy,
        Script::new().rst(),
        Script::new()
            .raw("HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 9\r\n\r\n")
            .fin(),
    ] {
        let engines = [script, ok()];
        // The first engine gets nearly all first attempts.
        let world = World::fleet_up(engines, Setup::new().allow_errors(), &["weight = 100"]).await;
        let request = form(
            "/v1/audio/transcriptions",
            &[(MODEL, b"m"), (FILE, &[7; 100_000])],
        );
        let mut moved = false;
        for _ in 0..20 {
            let answer = world.request(&request).await;
            is_ok(&answer, "the other one");
            moved |= answer.head.header("x-samewire-attempts") == Some("2");
        }
        assert!(moved, "none was sent twice: {:?}", world.attempt_counts());
        assert!(
            world.others[0]
                .attempts()
                .iter()
                .all(|attempt| attempt.body == request.sent_body())
        );
        world.end().await;
    }
}

#[tokio::test]
async fn clients_of_azure_reach_them_too() {
    let world = world(Setup::new()).await;
    let dated = "api-version=2024-10-21";
    let file = |target: &str| form(target, &[(FILE, b"audio")]);
    for (request, target, body) in [
        (
            json(
                &format!("/openai/deployments/d%2F1/images/generations?{dated}&x=1"),
                r#"{"model":"y"}"#,
            ),
            "/v1/images/generations?x=1",
            r#"{"model":"d/1"}"#,
        ),
        (
            json(
                &format!("/openai/deployments/d/audio/speech?{dated}"),
                r#"{"input":"x"}"#,
            ),
            "/v1/audio/speech",
            r#"{"model":"d","input":"x"}"#,
        ),
        (
            json(
                "/openai/v1/moderations?api-version=preview",
                r#"{"input":"x"}"#,
            ),
            "/v1/moderations",
            r#"{"input":"x"}"#,
        ),
        (
            json(&format!("/openai/moderations?{dated}"), r#"{"input":"x"}"#),
            "/v1/moderations",
            r#"{"input":"x"}"#,
        ),
    ] {
        let request = request.without("authorization").header("api-key", "k");
        let answer = world.request(&request).await;
        is_ok(&answer, target);
        assert!(answer.head.header("apim-request-id").is_some(), "{target}");
        let attempt = world.engine.attempts().pop().expect("an attempt");
        assert_eq!((attempt.target.as_str(), attempt.text()), (target, body));
    }
    is_ok(
        &world
            .request(&file(&format!(
                "/openai/deployments/d/audio/transcriptions?{dated}"
            )))
            .await,
        "a form",
    );
    let sent = world.engine.attempts().pop().expect("an attempt");
    let expected = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nd\r\n--{BOUNDARY}\r\n"
    );
    assert!(sent.text().starts_with(&expected), "{}", sent.text());
    for (target, status) in [
        ("/openai/deployments/d/audio/speech", 400),
        (
            "/openai/deployments//audio/speech?api-version=2024-10-21",
            404,
        ),
        (
            "/openai/deployments/d/flush_cache?api-version=2024-10-21",
            404,
        ),
        ("/openai/rerank?api-version=latest", 400),
    ] {
        assert_eq!(
            world.request(&json(target, "{}")).await.head.status,
            status,
            "{target}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn embeddings_in_other_forms_are_relayed() {
    let bytes = Script::new().whole_with(
        "200 OK",
        "application/octet-stream",
        "metadata: {}\r\n",
        [0, 159, 146, 150],
    );
    let plain = r#"{"object":"list","id":"x","data":[{"index":0,"object":"embedding","embedding":[0.1]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}"#;
    let engine = Engine::answering(move |attempt| match attempt.text().contains("bytes") {
        true => bytes.clone(),
        false => Script::ok(plain),
    });
    let setup = Setup::new().config("[[model]]\nname = \"m\"\naliases = [\"a\"]");
    let world = World::start(engine.await, setup).await;
    let messages = r#"{"model":"a","messages":[{"role":"user","content":"x"}]}"#;
    let answer = world.request(&json("/v1/embeddings", messages)).await;
    assert_eq!(
        (answer.head.status, answer.text()),
        (200, plain),
        "byte for byte"
    );
    assert_eq!(
        world.engine.only().text(),
        messages.replace("\"a\"", "\"m\"")
    );
    let answer = world
        .request(&json(
            "/v1/embeddings",
            r#"{"model":"m","input":"x","encoding_format":"bytes"}"#,
        ))
        .await;
    assert_eq!(
        (answer.head.status, answer.body.as_slice()),
        (200, &[0, 159, 146, 150][..])
    );
    assert_eq!(
        answer.head.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(answer.head.header("metadata"), Some("{}"));
    let answer = world
        .request(&json(
            "/v1/embeddings",
            r#"{"model":"m","input":[[1,2],[3]]}"#,
        ))
        .await;
    assert!(
        !answer.text().contains("\"id\""),
        "the API's own form is normalised: {}",
        answer.text()
    );
    let target = "/openai/deployments/a/embeddings?api-version=2024-10-21";
    for body in [r#"{"input":"x"}"#, r#"{"model":"y","input":"x"}"#] {
        world.request(&json(target, body)).await.with_status(200);
        let attempt = world.engine.attempts().pop().expect("an attempt");
        assert_eq!(
            (attempt.target.as_str(), attempt.text()),
            ("/v1/embeddings", r#"{"model":"m","input":"x"}"#)
        );
    }
    assert_eq!(
        world
            .request(&json("/v1/embeddings", r#"{"model":"m"}"#))
            .await
            .head
            .status,
        400
    );
    world.end().await;
}

/// A body with the content type that `curl -d` sends counts as JSON if it begins like it; other content types pass
/// unchanged.
#[tokio::test]
async fn labels_of_bodies() {
    let world = world(Setup::new()).await;
    for (label, body, expected) in [
        (None, r#"{"model":"m"}"#, Some("application/json")),
        (
            Some("application/x-www-form-urlencoded"),
            r#"{"model":"m"}"#,
            Some("application/json"),
        ),
        (
            Some("application/x-www-form-urlencoded"),
            "a=b",
            Some("application/x-www-form-urlencoded"),
        ),
        (Some("audio/wav"), "RIFF", Some("audio/wav")),
    ] {
        let request = json("/pooling", body).without("content-type");
        let request = label.iter().fold(request, |request, label| {
            request.header("content-type", label)
        });
        is_ok(&world.request(&request).await, body);
        let attempt = world.engine.attempts().pop().expect("an attempt");
        assert_eq!(
            (attempt.header("content-type"), attempt.text()),
            (expected, body)
        );
    }
    let packed = json("/pooling", "{}").header("content-encoding", "gzip");
    assert_eq!(world.request(&packed).await.head.status, 415);
    world.end().await;
}

#[tokio::test]
async fn fault_c27b_the_engine_stops_when_the_client_has_left() {
    let begun = Script::new().head_sse().chunk("data: one\n\n").hang();
    for (script, has_begun) in [(Script::new().hang(), false), (begun, true)] {
        let world = World::start(script, Setup::new()).await;
        for manner in [CloseKind::Fin, CloseKind::Rst] {
            let before = world.engine.attempt_count();
            let mut client = world.send(&json("/generate", r#"{"model":"m"}"#)).await;
            world.engine.wait_attempts(before + 1).await;
            if has_begun {
                client.event_with_head("one").await;
            }
            let left = client.leave(manner);
            until("it stops", || world.engine.closed(before).is_some()).await;
            let (closed, _) = world.engine.closed(before).expect("closed");
            assert!(closed.saturating_duration_since(left) < SOON);
        }
        let lines = world.samewire.finished(2).await;
        assert!(
            lines
                .iter()
                .all(|line| line.contains(r#""end":"client_closed""#)),
            "{lines:#?}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn silent_engines_are_given_up() {
    let scripts = vec![
        Script::new().hang(),
        Script::new().head_sse().chunk("data: one\n\n").hang(),
    ];
    let limits = "[timeouts]\nfirst_token = 0.3\ninter_token = 0.3";
    let world = World::start(
        Engine::in_turn(scripts),
        Setup::new().config(limits).allow_errors(),
    )
    .await;
    let answer = world.request(&json("/generate", r#"{"model":"m"}"#)).await;
    assert_eq!(
        (answer.head.status, answer.fault().code.as_deref()),
        (504, Some("upstream_timeout"))
    );
    let answer = world.request(&json("/generate", r#"{"model":"m"}"#)).await;
    assert_eq!((answer.head.status, answer.text()), (200, "data: one\n\n"));
    assert!(
        matches!(answer.ended, Ended::Short | Ended::Reset),
        "{:?}",
        answer.ended
    );
    world.end().await;
}

#[tokio::test]
async fn http2_clients_are_served_alike() {
    let world = world(Setup::new()).await;
    let mut client = H2Client::open(world.proxy()).await;
    let request = form(
        "/v1/audio/transcriptions",
        &[(MODEL, b"m"), (FILE, &[7; 600_000])],
    );
    for request in [
        request.clone(),
        request.clone().without("content-length"),
        json("/rerank", r#"{"model":"m"}"#),
    ] {
        let answer = client.request(&request).await;
        assert_eq!(
            (answer.status, answer.text()),
            (200, r#"{ "result": [1.50, 2] }"#)
        );
        assert!(world.engine.attempts().pop().expect("an attempt").body == request.sent_body());
    }
    world.end().await;
}

/// SageMaker's clients use one route for everything: depending on its body, a request is treated as one of a known
/// API, or is relayed.
#[tokio::test]
async fn a_route_for_everything_is_rewritten_by_what_its_bodies_hold() {
    let engine = Engine::answering(|attempt| match attempt.target.as_str() {
        "/v1/chat/completions" => Script::answer("a", 1),
        _ => Script::ok(r#"{"own":1}"#),
    });
    let setup = Setup::new().config("[relay]\nrewritten = [\"/invocations\"]");
    let world = World::start(engine.await, setup).await;
    let chat = world
        .request(&Request::stream("").target("/invocations"))
        .await;
    assert_eq!(chat.text(), world.stream("").await.text());
    let other = world
        .post("/invocations", r#"{"model":"m","input":"a"}"#)
        .await;
    assert_eq!((other.head.status, other.text()), (200, r#"{"own":1}"#));
    world.get("/invocations").await.with_status(405);
    let targets: Vec<_> = world
        .engine
        .attempts()
        .into_iter()
        .map(|attempt| attempt.target)
        .collect();
    assert_eq!(
        targets,
        [
            "/v1/chat/completions",
            "/v1/chat/completions",
            "/invocations"
        ]
    );
    world.end().await;
}
