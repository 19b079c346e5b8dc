//! Disclosure of an engine's error: clients get its class and the request id, and its text only where that reveals
//! nothing of the engine's host. The log has everything but the content of the request.

use crate::clients::keys::entry;
use crate::sim::prelude::*;

/// Error text that reveals details of the engine's host.
const TRACE: &str = "CUDA error at /opt/vllm/worker.py:77 on 10.1.2.3:5557";

/// The same without them.
const REDACTED: &str = "CUDA error at … on …";

/// First of the sentences that clients get instead.
const INTERNAL: &str = "Server error: the upstream engine reported an internal error.";

fn error(message: &str) -> String {
    format!(
        r#"{{"error":{{"message":{},"type":"InternalServerError","code":500}}}}"#,
        serde_json::to_string(message).unwrap()
    )
}

/// Returns a setup in which clients read no text of a 5xx status, as those of another machine.
fn masking() -> Setup {
    Setup::new().allow_errors().set("engine_errors=redact_4xx")
}

/// Starts an engine that fails on every route with this message.
async fn failing_engine(status: &'static str, message: &str) -> Engine {
    Engine::script(Script::new().json(status, &error(message))).await
}

/// Returns a request with the prompt for each route that reaches an engine.
fn requests() -> Vec<(&'static str, Request)> {
    let post = |path: &str, body: String| Request::post(path, body);
    vec![
        ("chat stream", Request::stream("")),
        ("chat", Request::plain("")),
        (
            "completions",
            post(
                "/v1/completions",
                format!(r#"{{"model":"m","prompt":"{PROMPT}"}}"#),
            ),
        ),
        (
            "responses stream",
            post(
                "/v1/responses",
                format!(r#"{{"model":"m","input":"{PROMPT}","stream":true}}"#),
            ),
        ),
        (
            "responses",
            post(
                "/v1/responses",
                format!(r#"{{"model":"m","input":"{PROMPT}"}}"#),
            ),
        ),
        (
            "embeddings",
            post(
                "/v1/embeddings",
                format!(r#"{{"model":"m","input":"{PROMPT}"}}"#),
            ),
        ),
        (
            "relayed",
            post("/score", format!(r#"{{"model":"m","text_1":"{PROMPT}"}}"#)),
        ),
    ]
}

/// Returns the message and the request id of an error.
fn refusal(answer: &Answer) -> (String, String) {
    (
        answer.fault().message,
        answer.head.header("x-request-id").unwrap().to_owned(),
    )
}

/// Returns the log line of a request.
async fn line(world: &World, request_id: &str) -> Value {
    let find = || {
        world
            .samewire
            .request_lines()
            .into_iter()
            .find(|line| line.contains(request_id))
    };
    until("the request's line", || find().is_some()).await;
    serde_json::from_str(&find().unwrap()).unwrap()
}

#[tokio::test]
async fn failures_of_an_engine_are_told_by_their_class_and_the_log_has_the_rest() {
    let engine = failing_engine("500 Internal Server Error", &format!("{TRACE}: {PROMPT}")).await;
    let world = World::start(engine, masking()).await;
    for (what, request) in requests() {
        let answer = world.request(&request).await;
        let (message, id) = refusal(&answer);
        assert_eq!(answer.head.status, 500, "{what}");
        assert!(
            message.starts_with(INTERNAL) && message.ends_with(&format!("under request id {id}.")),
            "{what}: {message}"
        );
        let line = line(&world, &id).await;
        assert_eq!(line["engine_status"], 500, "{what}: {line}");
        let text = line["engine_error"].as_str().unwrap();
        // The body of an upload is not kept, so the error text cannot be searched for its content.
        let expected = if what == "relayed" {
            text.starts_with("CUDA error at ")
        } else {
            text == format!("{TRACE}: […]")
        };
        assert!(expected, "{what}: {text}");
    }
    world.end().await;
}

#[tokio::test]
async fn an_operator_decides_how_much_of_an_engines_text_clients_read() {
    let refused = format!("Bad path /opt/vllm/worker.py, see /v1/models: {PROMPT}");
    let (hidden, class) = (
        format!("Bad path …, see /v1/models: {PROMPT}"),
        "The engine refused the request.",
    );
    for (policy, status, message, expected) in [
        ("auto", "400 Bad Request", refused.as_str(), hidden.as_str()),
        ("pass", "400 Bad Request", &refused, &refused),
        ("mask", "400 Bad Request", &refused, class),
        ("redact_4xx", "400 Bad Request", &refused, &hidden),
        ("redact", "503 Service Unavailable", TRACE, REDACTED),
        (
            "redact_4xx",
            "503 Service Unavailable",
            TRACE,
            "The upstream engine is overloaded.",
        ),
        ("pass", "503 Service Unavailable", TRACE, TRACE),
        (
            "mask",
            "503 Service Unavailable",
            TRACE,
            "The upstream engine is overloaded.",
        ),
    ] {
        let setup = Setup::new()
            .allow_errors()
            .set(&format!("engine_errors={policy}"));
        let world = World::start(failing_engine(status, message), setup).await;
        for (what, request) in requests() {
            let told = world.request(&request).await.fault().message;
            let rest = told
                .strip_prefix(expected)
                .unwrap_or_else(|| panic!("{policy} {what}: {told}"));
            assert_eq!(
                rest.is_empty(),
                expected != class && !expected.starts_with("The upstream"),
                "{policy} {what}: {told}"
            );
        }
        world.end().await;
    }
}

/// With `auto`, only clients of the same machine, which need no key, read an engine's text about its own failures.
#[tokio::test]
async fn clients_of_the_same_machine_read_the_engines_text() {
    let with_key = Setup::new().allow_errors().config(&entry(KEY, ""));
    for (setup, expected) in [
        (Setup::new().allow_errors(), REDACTED),
        (with_key, INTERNAL),
    ] {
        let world = World::start(failing_engine("500 Internal Server Error", TRACE), setup).await;
        for (what, request) in requests() {
            let told = world.request(&request).await.fault().message;
            assert!(told.starts_with(expected), "{what}: {told}");
            assert!(
                !told.contains("/opt/vllm") && !told.contains("10.1.2.3"),
                "{what}: {told}"
            );
        }
        world.end().await;
    }
}

/// SGLang appends a line of its source to each validation error.
#[tokio::test]
async fn the_text_before_a_line_of_source_stays() {
    for (body, error) in [
        (
            include_str!("../../../fixtures/sglang/error-bad-json/upstream.json"),
            "{'type': 'json_invalid', 'loc': ('body', 35), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'Expecting value'}}",
        ),
        (
            include_str!("../../../fixtures/sglang/error-validation/upstream.json"),
            "{'type': 'dict_type', 'loc': ('body', 'logit_bias'), 'msg': 'Input should be a valid dictionary', 'input': [[1, 2]]}",
        ),
    ] {
        let script = Script::new().json("400 Bad Request", body);
        let (message, id) =
            refusal(&World::answer(script, Setup::new().allow_errors(), &requests()[1].1).await);
        let rest =
            format!("The rest of the engine's message is in the log, under request id {id}.");
        assert_eq!(message, format!("1 validation error:\n  {error}\n{rest}"));
    }
}

/// The same rules apply in a stream that has begun, where the error is the last frame, and in the events of a
/// response.
#[tokio::test]
async fn errors_in_a_stream_are_told_by_their_class() {
    let begun = |_: &Attempt| Script::stream().text("a").ev(&error(TRACE)).end();
    let world = World::start(Engine::answering(begun), masking()).await;
    for (what, request) in [&requests()[0], &requests()[3]] {
        let answer = world.request(request).await;
        let id = answer.head.header("x-request-id").unwrap().to_owned();
        assert_eq!(answer.head.status, 200, "{what}");
        let text = answer.text();
        let message =
            format!("{INTERNAL} The engine's own message is in the log, under request id {id}.");
        assert!(
            text.contains(&message) && !text.contains("/opt/vllm"),
            "{what}: {text}"
        );
        let line = line(&world, &id).await;
        assert_eq!(line["engine_error"], TRACE, "{what}: {line}");
        assert_eq!(line["engine_status"], Value::Null, "{what}: {line}");
    }
    world.end().await;
}

#[tokio::test]
async fn errors_on_a_websocket_are_told_by_their_class() {
    let world = World::start(
        failing_engine("500 Internal Server Error", TRACE),
        masking(),
    )
    .await;
    let mut socket = Socket::open(world.proxy()).await;
    socket
        .send(&crate::responses::socket::prompted("m", ""))
        .await;
    let said = socket.text().await;
    assert!(
        said.contains(INTERNAL) && !said.contains("/opt/vllm"),
        "{said}"
    );
    drop(socket);
    world.end().await;
}

/// The engine's refusal of samewire's own key is not shown to the client; the log has the reason.
#[tokio::test]
async fn the_log_says_why_an_engine_refuses_samewires_key() {
    let folder = Folder::new();
    let own_key = folder.key("own-key");
    let engine =
        Engine::script(Script::new().json("401 Unauthorized", r#"{"error":"key has expired"}"#))
            .await;
    let world = World::start(engine, Setup::new().allow_errors().upstream_keys(&own_key)).await;
    let answer = world.stream("").await;
    let (message, id) = refusal(&answer);
    assert_eq!(
        (answer.head.status, message.as_str()),
        (502, "The upstream engine refused the proxy.")
    );
    let line = line(&world, &id).await;
    assert_members(
        &line,
        &json!({"engine_status": 401, "engine_error": "key has expired"}),
    );
    assert!(!line.to_string().contains(KEY), "{line}");
    world.end().await;
}

/// A client reads no key of samewire, also where it reads the engine's text, however that spells the key.
#[tokio::test]
async fn clients_do_not_read_samewires_key() {
    let folder = Folder::new();
    let own_key = folder.key("key.of/samewire");
    let plain = error("key.of/samewire is over its limit");
    let [php, dotnet] =
        [("/", "\\/"), ("key.", "key\\u002E")].map(|(from, to)| plain.replace(from, to));
    // An error of status 200 is one, too, except on routes that are relayed byte for byte.
    let statuses = [
        "200 OK",
        "400 Bad Request",
        "429 Too Many Requests",
        "500 Internal Server Error",
    ];
    let told = [plain, php, dotnet]
        .into_iter()
        .flat_map(|told| statuses.map(|status| (status, told.clone())));
    for (status, told) in told {
        let engine = Engine::script(Script::new().json(status, &told)).await;
        let setup = Setup::new().allow_errors().upstream_keys(&own_key);
        let world = World::start(engine, setup.set("engine_errors=pass")).await;
        for (name, request) in requests() {
            if (name, status) == ("relayed", "200 OK") {
                continue;
            }
            let text = world.request(&request).await.text().to_owned();
            assert!(
                text.contains("message\":\"[…] is over its limit"),
                "{name} {text}"
            );
        }
        world.end().await;
    }
}

/// A key has no form that could be known: the log leaves out those of the exchange wherever the engine repeats them, and
/// no client sees samewire's own.
#[tokio::test]
async fn the_log_repeats_no_key_that_an_engine_repeats() {
    let folder = Folder::new();
    let own_key = folder.key("key.of.samewire");
    let said = error("the keys key_of_the_client and key.of.samewire have expired");
    let in_stream = said.clone();
    let engine =
        Engine::answering(
            move |attempt| match attempt.text().contains("\"stream\":true") {
                true => Script::stream().text("a").ev(&in_stream).done().end(),
                false => Script::new().json("400 Bad Request", &said),
            },
        );
    let setup = Setup::new().allow_errors().upstream_keys(&own_key);
    let world = World::start(engine.await, setup.set("engine_errors=pass")).await;
    let streams = requests()
        .into_iter()
        .filter(|(name, _)| name.ends_with("stream"));
    let requests = streams
        .map(|(_, request)| request)
        .chain([Request::plain("")]);
    for request in requests {
        let request = request
            .without("authorization")
            .header("authorization", "Bearer key_of_the_client");
        let answer = world.request(&request).await;
        let text = answer.text();
        assert!(
            text.contains("and […] have expired") && !text.contains("key.of.samewire"),
            "{text}"
        );
        let line = line(&world, answer.head.header("x-request-id").unwrap()).await;
        assert_eq!(
            line["engine_error"], "the keys […] and […] have expired",
            "{line}"
        );
    }
    world.end().await;
}
