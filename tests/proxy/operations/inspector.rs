//! Routes of the admin listener that the inspector's page reads: requests, the state of the process, captured
//! exchanges.

use crate::clients::keys::entry;
use crate::messages::hello;
use crate::responses::over_chat::prompt;
use crate::sim::prelude::*;
use std::cell::Cell;
use std::path::{Path, PathBuf};

fn on() -> Setup {
    Setup::new().config("[capture]\nenabled = true\nexchanges = 1000")
}

async fn told(samewire: &Samewire, target: &str) -> Value {
    let answer = samewire.admin(target).await;
    assert_eq!(
        (answer.head.status, answer.head.header("cache-control")),
        (200, Some("no-store")),
        "{target}"
    );
    assert_eq!(answer.head.header("content-type"), Some("application/json"));
    answer.json()
}

/// Waits until an exchange has been captured, and returns its frames.
async fn frames(samewire: &Samewire, id: &str) -> Value {
    let target = format!("/captures/{id}/frames");
    samewire.admin_becomes(&target, 200).await;
    told(samewire, &target).await
}

/// Returns the texts of both sides.
fn texts(frames: &Value) -> (String, String) {
    let rows = frames["rows"].as_array().unwrap();
    let text = |frame: &Value| frame["text"].as_str().unwrap_or_default().to_owned();
    let engine = rows.iter().map(|row| text(&row["engine"]));
    let client = rows
        .iter()
        .flat_map(|row| row["client"].as_array().unwrap())
        .map(text);
    (engine.collect(), client.collect())
}

async fn send(world: &World, id: &str, request: Request) -> Answer {
    world.request(&request.header("x-request-id", id)).await
}

/// Waits until the list of requests has the expected content.
async fn requests(samewire: &Samewire, is_there: impl Fn(&Value) -> bool) -> Value {
    Request::get("/requests")
        .answer_until(samewire.admin, |answer| is_there(&answer.json()))
        .await
        .json()
}

#[tokio::test]
async fn frames_stand_beside_what_they_became() {
    let world = World::start(hello(true), on()).await;
    let answer = send(&world, "one", Request::stream("")).await;
    let frames = frames(&world.samewire, "one").await;
    assert_members(
        &frames,
        &json!({"id": "one", "is_explained": true, "why_not": null}),
    );
    assert_eq!(
        (&frames["summary"]["status"], &frames["is_cut"]),
        (&json!(200), &json!(false))
    );
    let (engine, client) = texts(&frames);
    assert_eq!(client, answer.text());
    assert!(
        engine.contains("token_ids") && engine.ends_with("data: [DONE]\n\n"),
        "{engine}"
    );
    let asked: Value = serde_json::from_str(frames["request"]["engine"].as_str().unwrap()).unwrap();
    assert_eq!(asked, world.engine.attempts()[0].json());
    assert!(
        frames["request"]["client"]
            .as_str()
            .unwrap()
            .contains("\"stream\":true")
    );
    assert_eq!(frames["attempts"][0]["engine"], "vllm");
    assert_eq!(
        (
            &frames["attempts"][0]["status"],
            frames["attempts"].as_array().unwrap().len()
        ),
        (&json!(200), 1)
    );
    let rows = frames["rows"].as_array().unwrap();
    let hel = rows
        .iter()
        .find(|row| row["engine"]["text"].as_str().unwrap().contains("Hel"))
        .unwrap();
    let received = hel["client"].as_array().unwrap();
    assert!(
        received.len() == 1 && received[0]["text"].as_str().unwrap().contains("Hel"),
        "{hel}"
    );
    assert!(hel["engine"]["at_ms"].as_f64().unwrap() <= received[0]["at_ms"].as_f64().unwrap());
    let changed: Vec<&Value> = rows
        .iter()
        .flat_map(|row| row["changes"].as_array().unwrap())
        .collect();
    assert!(!changed.is_empty());
    for change in changed {
        assert!(
            change["text"].is_string() && change["times"].as_u64().unwrap() >= 1,
            "{change}"
        );
        if let Some(rule) = change["rule"].as_str() {
            assert!(
                frames["rules"][rule]
                    .as_str()
                    .is_some_and(|words| words.len() > 5),
                "{rule}"
            );
        }
    }
    world.end().await;
}

#[tokio::test]
async fn frames_of_every_kind_of_exchange_are_complete() {
    let whole = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning":null},"finish_reason":"stop"}]}"#;
    let engine = Engine::answering(move |attempt| match attempt.text() {
        text if text.contains("break") => Script::stream().text("Hel").rst(),
        text if text.contains("refuse") => Script::new().json(
            "400 Bad Request",
            r#"{"error":{"message":"no","code":400}}"#,
        ),
        text if text.contains("\"stream\":true") => hello(true),
        _ => Script::ok(whole),
    });
    let world = World::start(engine.await, on().allow_errors()).await;
    let message =
        r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}],"stream":true}"#;
    for (id, request, is_explained) in [
        ("stream", Request::stream(""), true),
        ("whole", Request::plain(""), true),
        ("broken", Request::stream(r#","user":"break""#), true),
        ("refused", Request::stream(r#","user":"refuse""#), true),
        ("response", prompt("m", r#","stream":true"#), true),
        ("response-whole", prompt("m", ""), true),
        ("message", Request::post("/v1/messages", message), true),
        ("models", Request::get("/v1/models"), false),
        ("invalid", Request::chat("{"), false),
    ] {
        let answer = send(&world, id, request).await;
        let frames = frames(&world.samewire, id).await;
        assert_eq!(texts(&frames).1, answer.text(), "{id}");
        assert_eq!(
            (&frames["is_explained"], frames["why_not"].is_null()),
            (&json!(is_explained), is_explained),
            "{id}"
        );
        if id.contains("whole") || id == "refused" {
            assert_eq!(
                frames["rows"].as_array().unwrap().len(),
                1,
                "{id}: {frames}"
            );
        }
    }
    assert_eq!(
        world
            .samewire
            .admin("/captures/none/frames")
            .await
            .head
            .status,
        404
    );
    world.end().await;
}

/// A client may send one id with several requests, and ids that paths cannot name.
#[tokio::test]
async fn exchanges_with_one_id_are_told_apart_by_their_numbers() {
    let world = World::start(hello(true), on()).await;
    for prompt in ["one", "two"] {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{prompt}"}}],"stream":true}}"#
        );
        assert_eq!(
            send(&world, "same", Request::post("/v1/chat/completions", body))
                .await
                .head
                .status,
            200
        );
    }
    let listed = requests(&world.samewire, |all| {
        all["ended"]
            .as_array()
            .is_some_and(|ended| ended.len() == 2)
    });
    let numbers: Vec<_> = listed.await["ended"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["number"].clone())
        .collect();
    for (number, prompt) in numbers.iter().zip(["two", "one"]) {
        let query = format!("number={number}");
        let target = format!("/captures/same/frames?{query}");
        world.samewire.admin_becomes(&target, 200).await;
        let found = told(&world.samewire, &target).await;
        assert_eq!(found["summary"]["number"], *number);
        assert!(
            found["request"]["client"]
                .as_str()
                .unwrap()
                .contains(prompt),
            "{found}"
        );
        assert_eq!(found["attempts"][0]["file"], "upstream.sse");
        let archive = world
            .samewire
            .admin(&format!("/captures/same.tar?{query}"))
            .await;
        assert!(String::from_utf8_lossy(&archive.body).contains(prompt));
    }
    for (query, status) in [("number=99999", 404), ("number=x", 400), ("nubmer=1", 400)] {
        for path in ["/captures/same/frames", "/captures/same"] {
            assert_eq!(
                world
                    .samewire
                    .admin(&format!("{path}?{query}"))
                    .await
                    .head
                    .status,
                status,
                "{query}"
            );
        }
    }
    for id in [".", ".."] {
        let given = send(&world, id, Request::stream("")).await;
        assert!(
            given
                .head
                .header("x-request-id")
                .unwrap()
                .starts_with("req_"),
            "{id}"
        );
    }
    world.end().await;
}

/// Every recording, played by an engine: the rows hold all that the engine sent and all that the client received.
#[tokio::test]
async fn frames_of_every_recording_are_complete() {
    let recordings: Vec<PathBuf> = ["vllm", "sglang"]
        .iter()
        .flat_map(|engine| {
            std::fs::read_dir(
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("fixtures")
                    .join(engine),
            )
            .unwrap()
        })
        .map(|entry| entry.unwrap().path())
        .filter(|folder| folder.join("upstream.sse").exists())
        .collect();
    assert!(recordings.len() > 50);
    let folders = recordings.clone();
    let engine = Engine::answering(move |attempt| {
        let id = attempt.header("x-request-id").unwrap_or_default();
        let number = id
            .strip_prefix("recording-")
            .and_then(|rest| rest.split('-').next()?.parse::<usize>().ok());
        let Some(folder) = number.and_then(|number| folders.get(number)) else {
            return hello(true);
        };
        let script = Script::new()
            .head_sse()
            .chunk(std::fs::read(folder.join("upstream.sse")).unwrap());
        if folder.join("eof").exists() {
            script.rst()
        } else {
            script.end()
        }
    });
    let world = World::start_as(engine.await, "auto", on().allow_errors()).await;
    let mut explained = 0;
    for (number, folder) in recordings.iter().enumerate() {
        let request: Value =
            serde_json::from_slice(&std::fs::read(folder.join("request.json")).unwrap()).unwrap();
        let path = request["path"].as_str().unwrap();
        let id = format!("recording-{number}");
        let answer = send(
            &world,
            &id,
            Request::post(path, request["body"].to_string()),
        )
        .await;
        let frames = frames(&world.samewire, &id).await;
        assert_eq!(texts(&frames).1, answer.text(), "{}", folder.display());
        explained += usize::from(frames["is_explained"] == true);
    }
    assert!(
        explained > recordings.len() / 2,
        "{explained} of {}",
        recordings.len()
    );
    world.end_without_checks();
}

/// Explaining a long answer does not hold up other requests of operators.
#[tokio::test]
async fn a_long_exchange_is_prepared_aside() {
    let setup = Setup::new()
        .config("[capture]\nenabled = true\nbytes = \"64MiB\"\nexchange_bytes = \"32MiB\"");
    let long = Script::stream()
        .tok("t", 5_000, Duration::ZERO)
        .in_one_write();
    let world = World::start(long.stop(), setup).await;
    let answer = send(&world, "long", Request::stream("")).await;
    let captures = Request::get("/captures");
    captures
        .answer_until(world.samewire.admin, |answer| {
            answer.text().contains("\"long\"")
        })
        .await;
    let is_explained = Cell::new(false);
    let explained = async {
        let frames = told(&world.samewire, "/captures/long/frames").await;
        is_explained.set(true);
        frames
    };
    let meanwhile = async {
        let mut answered = 0;
        while !is_explained.get() {
            assert_eq!(world.samewire.admin("/livez").await.head.status, 200);
            answered += 1;
        }
        answered
    };
    let (frames, answered) = tokio::join!(explained, meanwhile);
    // One may have been answered before the explanation began, and one after it.
    assert!(answered > 2, "{answered}");
    assert_eq!(texts(&frames).1, answer.text());
    assert!(frames["rows"].as_array().unwrap().len() > 5_000);
    world.end().await;
}

#[tokio::test]
async fn requests_are_listed_while_they_run_and_after() {
    let gate = Gate::default();
    let script = Script::stream()
        .text("Hel")
        .wait(&gate)
        .text("lo")
        .finish("stop")
        .usage(9, 7)
        .done()
        .end();
    let world = World::start(script, Setup::new().config(&entry(KEY, "name = \"mine\""))).await;
    let mut client = Client::connect(world.proxy()).await;
    client
        .send(
            &Request::stream(r#","stream_options":{"include_usage":true}"#)
                .header("x-request-id", "one")
                .bytes(),
        )
        .await;
    client.event_with_head("Hel").await;
    let list = requests(&world.samewire, |list| {
        list["running"][0]["state"] == "streaming"
    })
    .await;
    let running = &list["running"][0];
    for (name, expected) in [
        ("id", json!("one")),
        ("method", json!("POST")),
        ("path", json!("/v1/chat/completions")),
        ("model", json!("m")),
        ("key", json!("mine")),
        ("engine", json!("vllm")),
        ("attempts", json!(1)),
        ("end", Value::Null),
        ("side", Value::Null),
        ("total_ms", Value::Null),
        ("is_captured", json!(false)),
    ] {
        assert_eq!(running[name], expected, "{name} in {running}");
    }
    assert!(
        running["bytes"].as_u64().unwrap() > 0 && running["first_token_ms"].as_f64().unwrap() > 0.0,
        "{running}"
    );
    assert!(!list.to_string().contains("messages"), "no content: {list}");
    gate.open();
    client.rest().await;
    let list = requests(&world.samewire, |list| list["ended"][0]["id"] == "one").await;
    let ended = &list["ended"][0];
    assert_members(
        ended,
        &json!({"state": "ended", "end": "complete", "status": 200}),
    );
    assert_eq!(
        (&ended["tokens"], &ended["side"]),
        (&json!(7), &Value::Null)
    );
    assert!(ended["total_ms"].as_f64().unwrap() >= ended["first_token_ms"].as_f64().unwrap());
    assert_eq!(list["running"].as_array().unwrap().len(), 0);
    world.end().await;
}

#[tokio::test]
async fn a_request_that_is_given_up_does_not_stay() {
    let world = World::start(
        Script::stream().text("Hel").hang(),
        Setup::new().allow_errors(),
    )
    .await;
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let client = world.begin_until(&Request::stream(""), "Hel").await;
        requests(&world.samewire, |list| {
            list["running"].as_array().unwrap().len() == 1
        })
        .await;
        client.leave(manner);
        let list = requests(&world.samewire, |list| {
            list["running"].as_array().unwrap().is_empty()
        })
        .await;
        assert_members(
            &list["ended"][0],
            &json!({"end": "client_closed", "side": "client"}),
        );
    }
    world.end().await;
}

#[tokio::test]
async fn the_ended_requests_are_bounded() {
    let world = World::start(hello(true), Setup::new().allow_errors()).await;
    let mut client = Client::connect(world.proxy()).await;
    for number in 0..205 {
        let request =
            Request::get("/v1/responses/none").header("x-request-id", &format!("request-{number}"));
        client.send(&request.bytes()).await;
        client.answer().await;
    }
    let list = requests(&world.samewire, |list| {
        list["ended"][0]["id"] == "request-204"
    })
    .await;
    let ended = list["ended"].as_array().unwrap();
    assert_eq!((ended.len(), &ended[199]["id"]), (200, &json!("request-5")));
    assert_members(
        &ended[0],
        &json!({"side": "client", "status": 404, "upstream": null}),
    );
    world.end().await;
}

#[tokio::test]
async fn the_status_tells_what_is_there() {
    let world = World::start(hello(true), Setup::new()).await;
    send(&world, "one", Request::stream("")).await;
    world.samewire.finished(1).await;
    let status = told(&world.samewire, "/status").await;
    assert_members(
        &status,
        &json!({"ready": true, "why": null, "requests_running": 0}),
    );
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        status["now"].as_f64().unwrap() > 1.7e9 && status["uptime_seconds"].as_f64().unwrap() > 0.0
    );
    assert!(
        status["base_url"].as_str().unwrap().ends_with("/v1"),
        "{status}"
    );
    let capture = &status["capture"];
    assert_members(
        capture,
        &json!({"is_on": false, "criteria": null, "held": 0}),
    );
    assert_eq!(
        (&capture["max_exchanges"], &capture["max_bytes"]),
        (&json!(200), &json!(64 << 20))
    );
    let upstream = &status["upstreams"][0];
    assert_members(
        upstream,
        &json!({"engine": "vllm", "circuit": "closed", "in_flight": 0}),
    );
    let drift = status["drift"].as_array().unwrap();
    let used = drift
        .iter()
        .find(|used| used["engine"] == "vllm")
        .expect("a rule was used");
    assert!(
        used["count"].as_u64().unwrap() > 0 && used["what"].as_str().unwrap().len() > 5,
        "{used}"
    );
    let start = json!({"time": "5m", "model": "m"}).to_string();
    Request::post("/captures/start", start)
        .answer(world.samewire.admin)
        .await;
    let capture = told(&world.samewire, "/status").await["capture"].clone();
    assert_eq!(
        (&capture["is_on"], &capture["criteria"]),
        (
            &json!(true),
            &json!({"key": null, "model": "m", "only_failures": false})
        )
    );
    assert!(
        capture["until"].as_f64().unwrap() > status["now"].as_f64().unwrap() + 290.0,
        "{capture}"
    );
    world.end().await;
}

#[tokio::test]
async fn the_history_has_a_point_for_each_step() {
    let world = World::start(hello(true), Setup::new().config("root_path = \"\"")).await;
    assert_eq!(told(&world.samewire, "/history").await["step_seconds"], 5);
    send(&world, "one", Request::stream("")).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let point = loop {
        let history = told(&world.samewire, "/history").await;
        let points = history["points"].as_array().unwrap();
        if let Some(point) = points.iter().find(|point| point["requests"] != 0) {
            break point.clone();
        }
        assert!(tokio::time::Instant::now() < deadline, "{history}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(
        (
            &point["requests"],
            &point["errors"],
            &point["first_token"]["count"]
        ),
        (&json!(1), &json!(0), &json!(1))
    );
    assert_eq!(point["tokens"], 2);
    assert!(
        point["first_token"]["p95_ms"].as_f64().unwrap() > 0.0,
        "{point}"
    );
    let text = std::fs::read_to_string(world.samewire.config()).unwrap();
    world
        .samewire
        .reconfigure(&format!("{text}\n# Read again.\n"))
        .await;
    let after = told(&world.samewire, "/history").await;
    assert!(
        after["points"].as_array().unwrap().contains(&point),
        "it survives a reload: {after}"
    );
    world.end().await;
}

#[tokio::test]
async fn the_page_and_its_files_are_served() {
    let world = World::start(hello(true), Setup::new()).await;
    let folder = world.samewire.admin("/ui").await;
    assert_eq!(
        (folder.head.status, folder.head.header("location")),
        (308, Some("/ui/"))
    );
    let page = world.samewire.admin("/ui/").await;
    assert_eq!(
        (page.head.status, page.head.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(page.head.header(name), Some(value), "{name}");
    }
    for (name, kind) in [
        ("main.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("index.html", "text/html; charset=utf-8"),
        ("vendor/htm-preact.js", "text/javascript; charset=utf-8"),
        ("vendor/LICENSES", "text/plain; charset=utf-8"),
    ] {
        let file = world.samewire.admin(&format!("/ui/{name}")).await;
        assert_eq!(
            (file.head.status, file.head.header("content-type")),
            (200, Some(kind)),
            "{name}"
        );
        assert_eq!(file.head.header("content-security-policy"), Some(policy));
        let tag = file.head.header("etag").unwrap().to_owned();
        let again = Request::get(&format!("/ui/{name}"))
            .header("if-none-match", &tag)
            .answer(world.samewire.admin)
            .await;
        assert_eq!((again.head.status, again.body.len()), (304, 0), "{name}");
        assert_eq!(again.head.header("etag"), Some(tag.as_str()));
    }
    for name in ["none.js", "../mod.rs", "%2e%2e/mod.rs", "vendor/"] {
        assert_eq!(
            world
                .samewire
                .admin(&format!("/ui/{name}"))
                .await
                .head
                .status,
            404,
            "{name}"
        );
    }
    for target in ["/ui/", "/ui/main.js", "/requests", "/status", "/history"] {
        let foreign = Request::get(target)
            .header("origin", "https://example.com")
            .answer(world.samewire.admin)
            .await;
        assert_eq!(foreign.head.status, 403, "{target}");
    }
    let start = Request::get("/")
        .header("accept", "text/html")
        .answer(world.samewire.admin)
        .await;
    assert!(start.text().contains("href=\"/ui/\""), "{}", start.text());
    let url = format!("http://{}/ui/", world.samewire.admin);
    world
        .samewire
        .logged(&format!("the inspector is at {url}"), 1)
        .await;
    world.end().await;
}
