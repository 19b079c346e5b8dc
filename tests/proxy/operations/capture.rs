//! Captured exchanges: switched on and off at the admin address, listed, and downloaded as folders.

use crate::clients::keys::{OTHER, entry};
use crate::messages::hello;
use crate::responses::socket::prompted;
use crate::sim::prelude::*;
use samewire::replay::load;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn on() -> Setup {
    Setup::new().config("[capture]\nenabled = true")
}

async fn list(samewire: &Samewire, query: &str) -> Value {
    samewire
        .admin(&format!("/captures{query}"))
        .await
        .with_status(200)
        .json()
}

/// Waits until so many exchanges have ended, and returns them, the newest first.
async fn captured(samewire: &Samewire, count: usize) -> Vec<Value> {
    let found = |answer: &Answer| answer.json()["exchanges"].as_array().unwrap().clone();
    let all = Request::get("/captures")
        .answer_until(samewire.admin, |answer| found(answer).len() == count)
        .await;
    found(&all.with_status(200))
}

async fn post(samewire: &Samewire, target: &str, body: &Value) -> Answer {
    Request::post(target, body.to_string())
        .answer(samewire.admin)
        .await
}

/// Downloads an exchange. Returns its files by their paths within the folder.
async fn files(samewire: &Samewire, id: &str) -> BTreeMap<String, Vec<u8>> {
    let answer = samewire.admin(&format!("/captures/{id}")).await;
    assert_eq!(
        (answer.head.status, answer.head.header("content-type")),
        (200, Some("application/x-tar"))
    );
    assert_eq!(answer.head.header("cache-control"), Some("no-store"));
    let mut archive = tar::Archive::new(answer.body.as_slice());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry
            .path()
            .unwrap()
            .iter()
            .skip(1)
            .collect::<PathBuf>()
            .display()
            .to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (path, content)
    });
    entries.collect()
}

fn text<'a>(files: &'a BTreeMap<String, Vec<u8>>, name: &str) -> &'a str {
    std::str::from_utf8(
        files
            .get(name)
            .unwrap_or_else(|| panic!("{name} in {:?}", files.keys())),
    )
    .unwrap()
}

fn ids(exchanges: &[Value]) -> Vec<&str> {
    exchanges
        .iter()
        .map(|exchange| exchange["id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn an_exchange_is_kept_as_it_went_over_the_wire() {
    let world = World::start(hello(true), on()).await;
    let request = Request::stream("").header("x-request-id", "exchange-1");
    let answer = world.request(&request).await;
    let exchanges = captured(&world.samewire, 1).await;
    let exchange = &exchanges[0];
    for (name, expected) in [
        ("id", json!("exchange-1")),
        ("method", json!("POST")),
        ("path", json!("/v1/chat/completions")),
        ("model", json!("m")),
        ("engine", json!("vllm")),
        ("status", json!(200)),
        ("end", json!("complete")),
        ("attempts", json!(1)),
        ("client_bytes", json!(answer.body.len())),
        ("is_cut", json!(false)),
    ] {
        assert_eq!(exchange[name], expected, "{name} in {exchange}");
    }
    let files = files(&world.samewire, "exchange-1").await;
    let engine_request: Value = serde_json::from_str(text(&files, "request.json")).unwrap();
    assert_eq!(engine_request["path"], "/v1/chat/completions");
    let sent = world.engine.attempts()[0].json();
    assert_eq!(engine_request["body"], sent);
    let upstream = text(&files, "upstream.sse");
    assert!(
        upstream.contains(r#""token_ids":null"#) && upstream.ends_with("data: [DONE]\n\n"),
        "{upstream}"
    );
    let head = text(&files, "upstream.http");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n")
            && head.contains("\r\ncontent-type: text/event-stream"),
        "{head}"
    );
    assert_eq!(text(&files, "client/upstream.sse"), answer.text());
    let client: Value = serde_json::from_str(text(&files, "client/request.json")).unwrap();
    assert_eq!(client["body"]["messages"], sent["messages"]);
    for (body, timing) in [
        ("upstream.sse", "timing.txt"),
        ("client/upstream.sse", "client/timing.txt"),
    ] {
        let lines = text(&files, timing)
            .lines()
            .filter(|line| !line.starts_with('#'));
        let sum: usize = lines
            .map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap())
            .sum();
        assert_eq!(sum, files[body].len(), "{timing}");
    }
    assert!(text(&files, "about.md").contains("complete, status 200"));
    assert!(!files.contains_key("eof") && !files.contains_key("client/eof"));
    world.end().await;
}

/// The folder of an exchange is a scenario: `replay` serves it, and `rewrite` makes of the engine's bytes what the
/// client got.
#[tokio::test]
async fn a_captured_folder_is_a_scenario() {
    let world = World::start(hello(true), on()).await;
    world
        .request(&Request::stream("").header("x-request-id", "one"))
        .await;
    captured(&world.samewire, 1).await;
    let archive = world.samewire.admin("/captures/one").await.body;
    let folder = world.samewire.config().with_file_name("captured");
    tar::Archive::new(archive.as_slice())
        .unpack(&folder)
        .unwrap();
    let scenarios = load(std::slice::from_ref(&folder)).unwrap();
    assert_eq!(scenarios.len(), 1);
    assert_eq!(
        (
            scenarios[0].status.as_u16(),
            scenarios[0].stream,
            scenarios[0].reset
        ),
        (200, true, false)
    );
    assert_eq!(scenarios[0].engine.map(|engine| engine.name), Some("vllm"));
    let files = files(&world.samewire, "one").await;
    assert_eq!(scenarios[0].frames.concat(), files["upstream.sse"]);
    let explained = Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args(["rewrite", "--engine", "vllm", "--request"])
        .arg(folder.join("vllm-one/client/request.json"))
        .stdin(std::fs::File::open(folder.join("vllm-one/upstream.sse")).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&explained.stdout),
        text(&files, "client/upstream.sse")
    );
    world.end().await;
}

/// The folder has the options of the answer, so that a later configuration does not change its explanation.
#[tokio::test]
async fn an_exchange_is_explained_by_the_options_of_its_time() {
    let long = Script::stream()
        .delta(r#"{"reasoning":"R"}"#, "null")
        .text("A")
        .stop();
    let setup =
        on().config("[wire]\nreasoning_field = \"reasoning\"\nfingerprint_salt = \"CANARY-SALT\"");
    let world = World::start(long, setup).await;
    let answer = world
        .request(&Request::stream("").header("x-request-id", "one"))
        .await;
    captured(&world.samewire, 1).await;
    let files = files(&world.samewire, "one").await;
    let record: Value = serde_json::from_str(text(&files, "rewrite.json")).unwrap();
    assert_eq!(
        (&record["engine"], &record["options"]["reasoning_field"]),
        (&json!("vllm"), &json!("reasoning"))
    );
    assert!(!text(&files, "rewrite.json").contains("CANARY-SALT"));
    let folder = world.samewire.config().with_file_name("explained");
    tar::Archive::new(world.samewire.admin("/captures/one").await.body.as_slice())
        .unpack(&folder)
        .unwrap();
    let rewrite = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_samewire"))
            .args(["rewrite", "--request"])
            .arg(folder.join("vllm-one/client/request.json"))
            .args(more)
            .stdin(std::fs::File::open(folder.join("vllm-one/upstream.sse")).unwrap())
            .output()
            .unwrap();
        (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(rewrite(&[]).0, answer.text());
    assert!(
        rewrite(&["--set", "reasoning_field=both"])
            .0
            .contains("\"reasoning_content\":\"R\"")
    );
    std::fs::write(
        folder.join("vllm-one/rewrite.json"),
        "{\n\"engin\": \"vllm\"}",
    )
    .unwrap();
    assert!(
        rewrite(&[])
            .1
            .contains("rewrite.json: unknown field `engin`"),
        "{}",
        rewrite(&[]).1
    );
    std::fs::remove_file(folder.join("vllm-one/rewrite.json")).unwrap();
    assert_ne!(rewrite(&[]).0, answer.text());
    std::fs::write(
        folder.join("vllm-one/client/request.json"),
        "{\"path\":\"/v1/chat/completions\",\n\"bdy\":{}}",
    )
    .unwrap();
    assert!(
        rewrite(&[])
            .1
            .contains("request.json: line 2: bdy: unknown; is body meant?"),
        "{}",
        rewrite(&[]).1
    );

    let before = world.samewire.admin("/captures/one/frames").await.body;
    let before: Value = serde_json::from_slice(&before).unwrap();
    let config = std::fs::read_to_string(world.samewire.config()).unwrap();
    world
        .samewire
        .reconfigure(&config.replace("\"reasoning\"", "\"both\""))
        .await;
    let after = world.samewire.admin("/captures/one/frames").await.body;
    let after: Value = serde_json::from_slice(&after).unwrap();
    assert_eq!(after["rows"], before["rows"]);
    world.end().await;
}

/// Operators who all download at once get the exchange, and other requests of operators are answered meanwhile.
#[tokio::test]
async fn many_downloads_at_once_are_answered() {
    let long = Script::stream()
        .tok("t", 1_000, Duration::ZERO)
        .in_one_write();
    let world = World::start(long.stop(), on()).await;
    world
        .request(&Request::stream("").header("x-request-id", "long"))
        .await;
    captured(&world.samewire, 1).await;
    let expected = world.samewire.admin("/captures/long").await.body;
    assert!(expected.len() > 200 << 10, "{}", expected.len());
    let all = (0..200).map(|_| world.samewire.admin("/captures/long"));
    let alive = async { world.samewire.admin("/livez").await.head.status };
    let (all, alive) = tokio::join!(futures::future::join_all(all), alive);
    assert_eq!(alive, 200);
    assert!(
        all.iter()
            .all(|answer| answer.head.status == 200 && answer.body == expected)
    );
    world.end().await;
}

#[tokio::test]
async fn it_is_switched_on_for_what_is_wanted() {
    let engine = Engine::answering(|attempt| match attempt.text().contains("break") {
        true => Script::stream().text("Hel").rst(),
        false => hello(true),
    });
    let world = World::start(engine.await, Setup::new().allow_errors()).await;
    let send = async |id: &str, more: &str| {
        world
            .request(&Request::stream(more).header("x-request-id", id))
            .await;
    };
    send("before", "").await;
    assert_eq!(list(&world.samewire, "").await["capturing"], Value::Null);
    let started = post(
        &world.samewire,
        "/captures/start",
        &json!({"time": "5m", "only_failures": true}),
    )
    .await;
    assert_eq!(started.head.status, 200, "{}", started.text());
    send("good", "").await;
    send("bad", r#","user":"break""#).await;
    let exchanges = captured(&world.samewire, 1).await;
    assert_eq!(
        (ids(&exchanges), &exchanges[0]["end"]),
        (vec!["bad"], &json!("error"))
    );
    let state = list(&world.samewire, "").await["capturing"].clone();
    assert_eq!(state["only_failures"], true);
    assert!(
        (1.0..=300.0).contains(&state["seconds_left"].as_f64().unwrap()),
        "{state}"
    );
    let files = files(&world.samewire, "bad").await;
    assert_eq!(text(&files, "eof"), "reset\n");
    assert!(text(&files, "client/upstream.sse").contains("event: error"));

    for (target, body, why) in [
        (
            "/captures/start",
            json!({"key": "somebody"}),
            "key: there are no keys in [auth]",
        ),
        (
            "/captures/start",
            json!({"only_failure": true}),
            "only_failure: unknown; is only_failures meant?",
        ),
        ("/captures/start", json!({"time": "soon"}), "time: "),
        (
            "/captures/start",
            json!({"model": 5}),
            "model: expected a string",
        ),
        ("/captures/start?model=m", json!({}), "leave out the query"),
    ] {
        let refused = post(&world.samewire, target, &body).await;
        assert_eq!(refused.head.status, 400, "{target} {body}");
        assert!(
            refused.text().contains(why),
            "{target} {body}: {}",
            refused.text()
        );
    }
    post(
        &world.samewire,
        "/captures/start",
        &json!({"model": "other"}),
    )
    .await;
    send("of another model", "").await;
    post(&world.samewire, "/captures/start", &json!({})).await;
    send("all", "").await;
    assert_eq!(ids(&captured(&world.samewire, 2).await), ["all", "bad"]);
    assert_eq!(
        list(&world.samewire, "?failed=1").await["exchanges"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        list(&world.samewire, "?model=m&limit=1").await["exchanges"][0]["id"],
        "all"
    );
    post(&world.samewire, "/captures/stop", &json!({})).await;
    send("after", "").await;
    for (method, target, why) in [
        ("DELETE", "/captures?model=m", "leave out the query"),
        (
            "GET",
            "/captures?end=completed",
            "end: must be one of complete",
        ),
        ("GET", "/captures?failed=yes", "failed: must be 1 or 0"),
    ] {
        let refused = Request::new(method, target)
            .answer(world.samewire.admin)
            .await;
        assert_eq!(refused.head.status, 400, "{target}");
        assert!(refused.text().contains(why), "{target}: {}", refused.text());
    }
    let forget = async |target: &str| {
        Request::new("DELETE", target)
            .answer(world.samewire.admin)
            .await
    };
    let unknown = forget("/captures/nobody").await;
    assert_eq!(
        (unknown.head.status, unknown.text()),
        (404, "there is no captured exchange of this id\n")
    );
    // As for a download, the ending tells ids from routes.
    assert_eq!(
        forget("/captures/bad.tar").await.text(),
        "{\"forgotten\":1}\n"
    );
    assert_eq!(ids(&captured(&world.samewire, 1).await), ["all"]);
    assert_eq!(forget("/captures").await.text(), "{\"forgotten\":1}\n");
    assert_eq!(list(&world.samewire, "").await["used_bytes"], 0);
    world.end().await;
}

#[tokio::test]
async fn a_key_may_have_single_requests_captured() {
    let keys = entry(KEY, "name = \"may\"\ncapture = true") + &entry(OTHER, "name = \"may-not\"");
    let world = World::start(hello(true), Setup::new().config(&keys)).await;
    let send = async |id: &str, key: &str, header: &str| {
        let request = Request::stream("")
            .without("authorization")
            .header("x-request-id", id);
        let request = request.header("authorization", &format!("Bearer {key}"));
        world
            .request(&request.header("x-samewire-capture", header))
            .await;
    };
    send("a", KEY, "0").await;
    send("b", OTHER, "1").await;
    send("c", KEY, "1").await;
    let exchanges = captured(&world.samewire, 1).await;
    assert_eq!(
        (ids(&exchanges), &exchanges[0]["key"]),
        (vec!["c"], &json!("may"))
    );
    for (name, content) in files(&world.samewire, "c").await {
        assert!(
            !String::from_utf8_lossy(&content).contains(KEY),
            "{name} has the key"
        );
    }
    let refused = post(&world.samewire, "/captures/start", &json!({"key": "my"})).await;
    assert_eq!(
        (refused.head.status, refused.text()),
        (
            400,
            "key: no key has this name; there are may, may-not; is may meant?\n"
        )
    );
    let started = post(
        &world.samewire,
        "/captures/start",
        &json!({"key": "may-not"}),
    )
    .await;
    assert_eq!(started.head.status, 200, "{}", started.text());
    world.end().await;
}

/// A request that is refused by its only engine has one attempt, with the engine's answer.
#[tokio::test]
async fn an_attempt_that_is_not_made_is_not_captured() {
    let refusal = r#"{"object":"error","message":"max_tokens is too large","type":"BadRequestError","code":400}"#;
    let world = World::start(Script::new().json("400 Bad Request", refusal), on()).await;
    world
        .request(&Request::plain("").header("x-request-id", "refused"))
        .await
        .with_status(400);
    let exchanges = captured(&world.samewire, 1).await;
    assert_eq!(exchanges[0]["attempts"], 1);
    let files = files(&world.samewire, "refused").await;
    assert!(text(&files, "upstream.json").contains("max_tokens is too large"));
    assert!(
        !files.keys().any(|path| path.starts_with("attempt-")),
        "{:?}",
        files.keys()
    );
    world.end().await;
}

/// A conversation that is too long is sent again without its oldest messages: each request is a separate attempt.
#[tokio::test]
async fn each_shortened_request_is_an_attempt() {
    let refusal = r#"{"error":{"message":"This model's maximum context length is 5 tokens.","type":"BadRequestError","code":400}}"#;
    let whole = r#"{"id":"c-2","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"fits"},"finish_reason":"stop"}]}"#;
    let engine = Engine::answering(move |attempt| match attempt.text().contains("oldest") {
        true => Script::new().json("400 Bad Request", refusal),
        false => Script::ok(whole),
    });
    let world = World::start(engine.await, on().allow_errors()).await;
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let input = [
        message("user", "oldest"),
        message("assistant", "a"),
        message("user", "last"),
    ];
    let request = json!({"model": "m", "input": input, "truncation": "auto", "store": false});
    let request =
        Request::post("/v1/responses", request.to_string()).header("x-request-id", "shortened");
    let answer = world.request(&request).await;
    assert!(answer.text().contains("fits"), "{}", answer.text());
    assert_eq!(captured(&world.samewire, 1).await[0]["attempts"], 2);
    let files = files(&world.samewire, "shortened").await;
    for (folder, is_whole, answer) in [("attempt-1/", true, refusal), ("", false, whole)] {
        let request: Value =
            serde_json::from_str(text(&files, &format!("{folder}request.json"))).unwrap();
        assert!(
            request["body"]["messages"].is_array(),
            "{folder}: {request}"
        );
        assert_eq!(
            request.to_string().contains("oldest"),
            is_whole,
            "{folder}: {request}"
        );
        assert_eq!(text(&files, &format!("{folder}upstream.json")), answer);
        assert!(files.contains_key(&format!("{folder}rewrite.json")));
    }
    world.end().await;
}

/// A body that streams to the engine is captured on both sides.
#[tokio::test]
async fn uploads_are_kept_as_they_stream() {
    let world = World::start(Script::ok(r#"{"text":"hi"}"#), on()).await;
    let sound = "x".repeat(600_000);
    let form = format!(
        "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{sound}\r\n--b--\r\n"
    );
    let request = Request::post("/v1/audio/transcriptions", form.clone())
        .without("content-type")
        .header("content-type", "multipart/form-data; boundary=b")
        .header("x-request-id", "upload");
    world.request(&request).await.with_status(200);
    captured(&world.samewire, 1).await;
    let files = files(&world.samewire, "upload").await;
    for name in ["request.json", "client/request.json"] {
        let request: Value = serde_json::from_str(text(&files, name)).unwrap();
        assert!(
            request["body_raw"] == form,
            "{name}: {:.300}",
            request.to_string()
        );
    }
    world.end().await;
}

/// The messages of a response over a WebSocket are kept, one a line.
#[tokio::test]
async fn responses_over_a_socket_are_kept_on_both_sides() {
    let world = World::start(hello(true), on()).await;
    let mut socket = Socket::open(world.proxy()).await;
    let events = socket.exchange(&prompted("m", "")).await;
    // The upgrade is a separate exchange.
    let exchanges = captured(&world.samewire, 2).await;
    let exchange = exchanges
        .iter()
        .find(|exchange| exchange["attempts"] == 1)
        .unwrap();
    let files = files(&world.samewire, exchange["id"].as_str().unwrap()).await;
    let lines: Vec<Value> = text(&files, "client/upstream.txt")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, events);
    let request: Value = serde_json::from_str(text(&files, "client/request.json")).unwrap();
    assert_eq!(request["body"]["type"], "response.create");
    assert!(text(&files, "upstream.sse").ends_with("data: [DONE]\n\n"));
    // Each message is beside the engine's frame that made it, with the changes.
    let frames = world
        .samewire
        .admin(&format!(
            "/captures/{}/frames",
            exchange["id"].as_str().unwrap()
        ))
        .await;
    let frames = frames.json();
    assert_eq!(
        (&frames["is_explained"], &frames["why_not"]),
        (&json!(true), &Value::Null),
        "{frames}"
    );
    let rows = frames["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| {
            row["engine"]["text"]
                .as_str()
                .is_some_and(|text| text.contains("Hel"))
        })
        .unwrap();
    let client = row["client"].as_array().unwrap();
    assert!(
        client.iter().any(|message| message["text"]
            .as_str()
            .unwrap()
            .contains("\"delta\":\"Hel\"")),
        "{row}"
    );
    assert!(
        client
            .iter()
            .all(|message| message["text"].as_str().unwrap().lines().count() == 1),
        "{row}"
    );
    assert!(
        row["changes"]
            .as_array()
            .is_some_and(|changes| !changes.is_empty()),
        "{row}"
    );
    world.end().await;
}

#[tokio::test]
async fn the_ring_is_bounded() {
    let setup = Setup::new().config(
        "[capture]\nenabled = true\nexchanges = 3\nbytes = \"64KiB\"\nexchange_bytes = \"32KiB\"",
    );
    let long = Script::stream().text(&"x".repeat(100_000)).stop();
    let engine = Engine::answering(move |attempt| match attempt.text().contains("long") {
        true => long.clone(),
        false => hello(true),
    });
    let world = World::start(engine.await, setup).await;
    for id in ["a", "b", "c", "d", "e"] {
        world
            .request(&Request::stream("").header("x-request-id", id))
            .await
            .with_status(200);
        until("its line", || {
            world
                .samewire
                .request_lines()
                .iter()
                .any(|line| line.contains(&format!("\"request_id\":\"{id}\"")))
        })
        .await;
    }
    let kept = captured(&world.samewire, 3).await;
    assert_eq!(ids(&kept), ["e", "d", "c"]);
    let whole = world
        .request(&Request::stream(r#","user":"long""#).header("x-request-id", "long"))
        .await;
    assert!(whole.body.len() > 100_000, "the client gets all of it");
    world.samewire.admin_becomes("/captures/long", 200).await;
    let state = list(&world.samewire, "").await;
    assert_members(
        &state["exchanges"][0],
        &json!({"id": "long", "is_cut": true}),
    );
    assert!(
        state["used_bytes"].as_u64().unwrap() <= 64 << 10,
        "{}",
        state["used_bytes"]
    );
    assert!(text(&files(&world.samewire, "long").await, "about.md").contains("bytes are missing"));
    world.end().await;
}

#[tokio::test]
async fn mistakes_are_named() {
    let world = World::start(hello(true), Setup::new()).await;
    for (body, why) in [
        (json!({"only_failure": true}), "only_failure"),
        (json!({"time": "5 parsecs"}), "time"),
        (json!({"model": 5}), "expected a string"),
        (json!([]), "must be a JSON object"),
    ] {
        let answer = post(&world.samewire, "/captures/start", &body).await;
        assert_eq!(answer.head.status, 400, "{body}");
        assert!(answer.text().contains(why), "{body}: {}", answer.text());
    }
    let answer = world
        .samewire
        .admin("/captures?modle=m")
        .await
        .with_status(400);
    assert!(
        answer.text().contains("modle") && answer.text().contains("model"),
        "{}",
        answer.text()
    );
    assert_eq!(
        world.samewire.admin("/captures/none").await.head.status,
        404
    );
    assert_eq!(
        world.samewire.admin("/captures/start").await.head.status,
        405,
        "no effect by GET"
    );
    world.end().await;
}

/// Clients choose names and ids: none forges a line of `about.md`, and each is reached.
#[tokio::test]
async fn names_of_clients_forge_nothing() {
    let world = World::configured("[capture]\nenabled = true").await;
    let model = r"m\n- outcome: forged\u001b[31m\u202e";
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"x"}}]}}"#);
    for id in ["start", "stop", "one.tar", "one"] {
        let request =
            Request::post("/v1/chat/completions", body.clone()).header("x-request-id", id);
        assert_eq!(world.request(&request).await.head.status, 200);
    }
    captured(&world.samewire, 4).await;
    for id in ["start", "stop", "one.tar", "one"] {
        let all = files(&world.samewire, &format!("{id}.tar")).await;
        let about = String::from_utf8(all["about.md"].clone()).unwrap();
        assert!(about.starts_with(&format!("# {id}\n")), "{about}");
        assert_eq!(about.matches("\n- outcome").count(), 1, "{about}");
        assert!(!about.contains(['\u{1b}', '\u{202e}']), "{about}");
        assert_eq!(
            world
                .samewire
                .admin(&format!("/captures/{id}/frames"))
                .await
                .head
                .status,
            200,
            "{id}"
        );
    }
    world.end().await;
}

/// Frames of an exchange take much more memory than its bytes, so that a flood of comments is not shown.
#[tokio::test]
async fn an_exchange_of_too_many_frames_is_not_shown() {
    let setup = Setup::new().config("[capture]\nenabled = true");
    let flood = Script::new()
        .head_sse()
        .chunk(": c\n\n".repeat(110_000))
        .text("a")
        .stop();
    let world = World::start(flood, setup).await;
    assert_eq!(
        world
            .request(&Request::stream("").header("x-request-id", "flood"))
            .await
            .head
            .status,
        200
    );
    captured(&world.samewire, 1).await;
    let answer = world.samewire.admin("/captures/flood/frames").await;
    let frames = answer.json();
    assert_eq!(frames["rows"], json!([]));
    let why = frames["why_not"].as_str().unwrap();
    assert!(
        why.contains("more than 200000 lines") && answer.body.len() < 10_000,
        "{why}"
    );
    world.end().await;
}
