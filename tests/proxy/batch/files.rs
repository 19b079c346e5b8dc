//! Uploads, lists and deletions of files, and their limits.

use super::{batches, content, create, echo, failure, form, line, object, upload, uploaded, world};
use crate::postgres::{connect, database};
use crate::sim::prelude::*;

#[tokio::test]
async fn fault_o31_what_cannot_be_kept_is_refused_and_nothing_stays() {
    let world = world(
        Engine::answering(echo).await,
        "max_file_bytes = 1000000\ntenant_files = 2\ntenant_bytes = 1500000\n",
    )
    .await;
    let part = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file = |value: &str| part("file", value);
    for (body, expected) in [
        (format!("{}--b--", file("x\n")), (400, Some("purpose"))),
        (
            format!("{}{}--b--", part("purpose", "assistants"), file("x\n")),
            (400, Some("purpose")),
        ),
        (
            format!("{}--b--", part("purpose", "batch")),
            (400, Some("file")),
        ),
        (
            format!("{}{}--b--", part("purpose", "batch"), file("")),
            (400, Some("file")),
        ),
        (
            format!(
                "{}{}{}--b--",
                part("purpose", "batch"),
                file("x\n"),
                file("y\n")
            ),
            (400, Some("file")),
        ),
        (
            format!("{}{}--b--", part("purpose", "batch"), file("a\0b\n")),
            (400, Some("file")),
        ),
        (
            format!(
                "{}{}--b--",
                part("purpose", "batch"),
                file(&"x\n".repeat(500_001))
            ),
            (413, Some("file")),
        ),
        (
            format!(
                "{}{}{}{}--b--",
                part("purpose", "batch"),
                part("expires_after[anchor]", "created_at"),
                part("expires_after[seconds]", "1"),
                file("x\n")
            ),
            (400, Some("expires_after.seconds")),
        ),
        (
            format!("{}{}", part("purpose", "batch"), file("x\n")),
            (400, None),
        ),
        ("before it ".repeat(200_000), (413, Some("file"))),
        ("no form".to_owned(), (400, None)),
    ] {
        let answer = world.request(&form(&body)).await;
        assert_eq!(
            failure(&answer),
            (expected.0, expected.1.map(str::to_owned)),
            "{} {}",
            &body[..body.len().min(200)],
            answer.text()
        );
    }
    world.post("/v1/files", "{}").await.with_status(415);
    let list = || Request::get("/v1/files");
    assert_eq!(
        object(world.proxy(), list()).await["data"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    // The limits of a tenant; refused files no longer count.
    let large = "x\n".repeat(400_000);
    let first = uploaded(world.proxy(), &large).await;
    assert_eq!(
        failure(&world.request(&upload(&large)).await),
        (400, Some("file".to_owned()))
    );
    uploaded(world.proxy(), "y\n").await;
    assert_eq!(
        failure(&world.request(&upload("z\n")).await),
        (400, Some("file".to_owned()))
    );
    let gone = object(
        world.proxy(),
        Request::new("DELETE", &format!("/v1/files/{first}")),
    )
    .await;
    assert_eq!(
        (&gone["deleted"], &gone["id"]),
        (&true.into(), &first.as_str().into())
    );
    world
        .get(&format!("/v1/files/{first}/content"))
        .await
        .with_status(404);
    uploaded(world.proxy(), &large).await;
    world.end().await;
}

/// A file that the part of a message names by its id is text for the engine, in a stored conversation after its
/// deletion, too.
#[tokio::test]
async fn files_are_named_in_messages() {
    let engine = Engine::answering(|attempt: &Attempt| {
        Script::completion(&attempt.json()["messages"].to_string())
    })
    .await;
    let world = World::start(
        engine,
        batches("").config("[limits]\nmax_body_bytes = 1048576"),
    )
    .await;
    let of = |purpose: &str, content: &str| {
        form(&format!(
            "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n--b\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"notes.md\"\r\n\r\n{content}\r\n--b--\r\n"
        ))
    };
    let file = object(world.proxy(), of("user_data", "Buy milk.\n")).await;
    assert_eq!(
        (&file["purpose"], &file["filename"]),
        (&json!("user_data"), &json!("notes.md"))
    );
    let listed = object(world.proxy(), Request::get("/v1/files?purpose=user_data")).await;
    assert_eq!(listed["data"], json!([file]));
    let id = file["id"].as_str().unwrap();
    let said = |id: &str| json!([{"role": "user", "content": [{"type": "file", "file": {"file_id": id}}]}]);
    let chat = async |id: &str| {
        let body = json!({"model": "m", "messages": said(id)});
        world.post("/v1/chat/completions", body.to_string()).await
    };
    let answer = chat(id).await.json();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(
        text,
        r#"[{"content":[{"text":"notes.md\nBuy milk.\n","type":"text"}],"role":"user"}]"#
    );

    let input = json!([{"role": "user", "content": [{"type": "input_file", "file_id": id}]}]);
    let first = json!({"model": "m", "input": input}).to_string();
    let first = object(world.proxy(), Request::post("/v1/responses", first)).await;
    object(
        world.proxy(),
        Request::new("DELETE", &format!("/v1/files/{id}")),
    )
    .await;
    let next =
        json!({"model": "m", "input": "And?", "previous_response_id": first["id"]}).to_string();
    let next = object(world.proxy(), Request::post("/v1/responses", next)).await;
    let text = next["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("notes.md\\nBuy milk."), "{text}");

    // An unknown id stays in the request. This engine takes no ids.
    for unknown in [id, "file-of-another"] {
        assert_eq!(
            failure(&chat(unknown).await),
            (400, Some("messages[0].content[0].type".to_owned()))
        );
    }
    let large = object(world.proxy(), of("user_data", &"x\n".repeat(500_000))).await;
    assert_eq!(
        failure(&chat(large["id"].as_str().unwrap()).await),
        (413, Some("file_id".to_owned()))
    );
    assert_eq!(
        failure(
            &world
                .request(&create(large["id"].as_str().unwrap(), "/v1/responses"))
                .await
        )
        .0,
        400
    );
    world.end().await;
}

/// A small request that names a large file takes the file's memory from the budget, for the text and for the body with
/// it, before the file is read.
#[tokio::test]
async fn fault_o11_files_that_are_named_take_their_memory_before_they_are_read() {
    let setup = batches("").config("[limits]\nbodies_in_flight_bytes = 2000000");
    let world = World::start(Engine::answering(echo), setup).await;
    let chat = async |length: usize| {
        let id = uploaded(world.proxy(), &"x\n".repeat(length / 2)).await;
        let content = json!([{"type": "file", "file": {"file_id": id}}]);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]});
        world.post("/v1/chat/completions", body.to_string()).await
    };
    let refused = chat(900_000).await;
    assert_eq!(
        (refused.head.status, refused.fault().code.as_deref()),
        (503, Some("overloaded"))
    );
    world
        .samewire
        .metric_becomes("samewire_bodies_in_flight_bytes", 0)
        .await;
    assert_eq!(chat(600_000).await.head.status, 200);
    world
        .samewire
        .metric_becomes("samewire_bodies_in_flight_bytes", 0)
        .await;
    world.end().await;
}

/// A download is under way until its last byte was handed over: a drain waits for it, and one that breaks off is told as
/// such.
#[tokio::test]
async fn fault_o01_a_drain_waits_for_downloads() {
    let world = World::start(
        Engine::answering(echo),
        batches("").config("[timeouts]\nsettle = 0.2"),
    )
    .await;
    let text = format!("{}\n", "x".repeat(999)).repeat(16 << 10);
    let id = uploaded(world.proxy(), &text).await;
    let begin = async || {
        let mut client = Request::get(&format!("/v1/files/{id}/content"))
            .send_narrow(world.proxy())
            .await;
        assert_eq!(client.head().await.status, 200);
        client
    };
    begin().await.leave(CloseKind::Rst);
    let told = |what: &str| {
        let is_told = |line: &&String| line.contains("/content") && line.contains(what);
        world.samewire.logs().iter().filter(is_told).count() == 1
    };
    until("the download that broke off is told", || {
        told("client_closed")
    })
    .await;
    let mut reader = begin().await;
    let admin = world.samewire.admin;
    let waits = tokio::spawn(async move { Request::get("/drain/wait").answer(admin).await });
    let refused = || std::net::TcpStream::connect(world.proxy()).is_err();
    until("the listener is closed", refused).await;
    let status = world.samewire.admin("/status").await.json();
    assert_eq!(
        (&status["requests_running"], waits.is_finished()),
        (&json!(1), false)
    );
    assert_eq!(reader.rest().await.len(), text.len());
    let drained = within("the drain ends", waits).await.expect("no panic");
    assert_eq!((drained.head.status, drained.text()), (200, "drained\n"));
    assert!(told(r#""end":"complete""#));
    world.end_without_checks();
}

#[tokio::test]
async fn fault_o31_a_client_that_leaves_has_uploaded_nothing() {
    let world = world(Engine::answering(echo).await, "").await;
    let bytes = upload(&"x\n".repeat(300_000)).bytes();
    Client::sending(world.proxy(), &bytes[..bytes.len() / 2])
        .await
        .leave(CloseKind::Rst);
    assert_eq!(
        object(world.proxy(), Request::get("/v1/files")).await["data"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    // In chunks, with a value longer than one that the store keeps.
    let all = upload(&"äöü\n".repeat(100_000)).chunked(977);
    let file = object(world.proxy(), all).await;
    assert_eq!(
        content(world.proxy(), &file["id"]).await,
        "äöü\n".repeat(100_000)
    );
    // A line that is longer than a chunk, between others.
    let lines = format!("a\n{}\nb\nc", "x".repeat(700_000));
    let file = object(world.proxy(), upload(&lines).chunked(97)).await;
    assert_eq!(content(world.proxy(), &file["id"]).await, lines);
    world.end().await;
}

#[tokio::test]
async fn files_and_batches_are_listed_in_pages() {
    let world = world(Engine::answering(echo).await, "tenant_batches = 2\n").await;
    let proxy = world.proxy();
    let mut files = Vec::new();
    for n in 0..3 {
        files.push(uploaded(proxy, &line(&n.to_string(), "x")).await);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let page = object(proxy, Request::get("/v1/files?limit=2&order=asc")).await;
    assert_eq!(
        (&page["data"][0]["id"], &page["has_more"]),
        (&files[0].as_str().into(), &true.into())
    );
    let rest = object(
        proxy,
        Request::get(&format!("/v1/files?order=asc&after={}", files[1])),
    )
    .await;
    assert_eq!(
        (&rest["data"][0]["id"], &rest["has_more"]),
        (&files[2].as_str().into(), &false.into())
    );
    assert_eq!(rest["first_id"], rest["last_id"]);
    let none = object(proxy, Request::get("/v1/files?purpose=batch_output")).await;
    assert_eq!(none["first_id"], Value::Null);
    for query in ["limit=0", "limit=x", "order=up", "purpose=vision"] {
        assert_eq!(
            world.get(&format!("/v1/files?{query}")).await.head.status,
            400,
            "{query}"
        );
    }
    assert_eq!(
        failure(&world.get("/v1/batches?after=batch_x").await),
        (400, Some("after".into()))
    );
    let missing = world
        .request(&create("file-none", "/v1/chat/completions"))
        .await;
    assert_eq!(failure(&missing), (400, Some("input_file_id".into())));
    for target in [
        "/v1/batches/batch_x",
        "/v1/files/file-x",
        "/v1/files/file-x/content",
    ] {
        assert_eq!(world.get(target).await.head.status, 404, "{target}");
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o31_a_file_that_is_needed_stays_and_batches_are_counted() {
    let world = World::start(Script::new().hang(), batches("tenant_batches = 2\n")).await;
    let proxy = world.proxy();
    let file = uploaded(proxy, &line("a", "x")).await;
    let first = object(proxy, create(&file, "/v1/chat/completions")).await;
    let second = object(proxy, create(&file, "/v1/chat/completions")).await;
    assert_eq!(
        world
            .request(&create(&file, "/v1/chat/completions"))
            .await
            .head
            .status,
        429
    );
    let delete = Request::new("DELETE", &format!("/v1/files/{file}"));
    assert_eq!(world.request(&delete).await.head.status, 409);
    for made in [&first, &second] {
        let cancel = format!("/v1/batches/{}/cancel", made["id"].as_str().unwrap());
        object(proxy, Request::post(&cancel, "")).await;
    }
    world.end_without_checks();
}

/// The database says that its disk is full, as a trigger can have it.
#[tokio::test]
async fn fault_o31_a_full_disk_is_no_limit_of_batches() {
    let database = database().await;
    let setup = batches("").args(&["--store", &database]).allow_errors();
    let world = World::start(Script::new().hang(), setup).await;
    let proxy = world.proxy();
    let file = uploaded(proxy, &line("a", "x")).await;
    let first = object(proxy, create(&file, "/v1/chat/completions")).await;
    let cancel = Request::post(
        &format!("/v1/batches/{}/cancel", first["id"].as_str().unwrap()),
        "",
    );
    let admin = connect(&database).await;
    let full = "CREATE FUNCTION full_disk() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no space left' \
                USING ERRCODE = 'disk_full'; END $$ LANGUAGE plpgsql; \
                CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON samewire_batches \
                FOR EACH ROW EXECUTE FUNCTION full_disk()";
    admin.batch_execute(full).await.unwrap();
    for request in [&create(&file, "/v1/chat/completions"), &cancel] {
        let answer = world.request(request).await;
        assert_eq!(
            (answer.head.status, answer.fault().code.as_deref()),
            (503, Some("store_unavailable"))
        );
    }
    admin
        .batch_execute("DROP TRIGGER full_disk ON samewire_batches")
        .await
        .unwrap();
    object(proxy, create(&file, "/v1/chat/completions")).await;
    object(proxy, cancel).await;
    world.end_without_checks();
}

/// The database carries out what its caller has given up: the client, which was told 503, creates another batch.
#[tokio::test]
async fn fault_o31_a_batch_that_was_refused_does_not_run() {
    let database = database().await;
    let setup = batches("")
        .config("[timeouts]\nstore_call = 1")
        .args(&["--store", &database])
        .allow_errors();
    let world = World::start(Engine::answering(echo), setup).await;
    let file = uploaded(world.proxy(), &line("a", "x")).await;
    let admin = connect(&database).await;
    let slow_commit = "CREATE TABLE committed (n BIGINT); \
        CREATE FUNCTION slow_commit() RETURNS trigger AS $$ BEGIN INSERT INTO committed VALUES (1); \
        PERFORM pg_sleep(1.6); RETURN NULL; END $$ LANGUAGE plpgsql; \
        CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON samewire_batches DEFERRABLE INITIALLY DEFERRED \
        FOR EACH ROW EXECUTE FUNCTION slow_commit()";
    admin.batch_execute(slow_commit).await.unwrap();
    let refused = world.request(&create(&file, "/v1/chat/completions")).await;
    assert_eq!(
        (refused.head.status, refused.fault().code.as_deref()),
        (503, Some("store_unavailable"))
    );
    let count = "SELECT (SELECT COUNT(*) FROM committed), (SELECT COUNT(*) FROM samewire_batches)";
    eventually("the batch was there and is removed", async || {
        let row = admin.query_one(count, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1)) == (1, 0)
    })
    .await;
    world.end_without_checks();
}

#[tokio::test]
async fn without_batches_the_paths_are_as_unknown_as_before() {
    let world = World::start(Engine::answering(echo), Setup::new()).await;
    for request in [
        Request::get("/v1/files"),
        upload("x\n"),
        Request::post("/v1/batches", "{}"),
        Request::new("PUT", "/v1/files"),
    ] {
        world.request(&request).await.with_status(404);
    }
    world.end().await;
    let relayed = Setup::new().config("[relay]\npaths = [\"/v1/files\"]");
    let answer = World::answer(
        Script::ok("{\"own\":1}"),
        relayed,
        &Request::post("/v1/files", "{}"),
    )
    .await;
    assert_eq!((answer.head.status, answer.text()), (200, "{\"own\":1}"));
}

/// A batch that is cancelled while its results have no room says nothing of them.
#[tokio::test]
async fn fault_o31_a_batch_that_ends_without_room_names_no_file() {
    let world = world(Engine::answering(echo).await, "tenant_bytes = 2000\n").await;
    let proxy = world.proxy();
    uploaded(proxy, &"x\n".repeat(800)).await;
    let id = super::started(proxy, &line("a", "x")).await;
    let is_told = || {
        world
            .samewire
            .count_logged("results of a batch are not stored yet")
            > 0
    };
    until("there is no room", is_told).await;
    object(
        proxy,
        Request::post(&format!("/v1/batches/{id}/cancel"), ""),
    )
    .await;
    let over = super::ended(proxy, &id).await;
    assert_eq!(
        (&over["status"], &over["output_file_id"]),
        (&"cancelled".into(), &Value::Null)
    );
    assert_eq!(
        over["request_counts"],
        parsed(r#"{"total":1,"completed":0,"failed":0}"#),
        "{over}"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o31_results_without_room_wait_for_some() {
    let world = world(Engine::answering(echo).await, "tenant_bytes = 2000\n").await;
    let proxy = world.proxy();
    let pad = uploaded(proxy, &"x\n".repeat(800)).await;
    let id = super::started(proxy, &line("a", "x")).await;
    let is_told = || {
        world
            .samewire
            .count_logged("results of a batch are not stored yet")
            > 0
    };
    until("there is no room", is_told).await;
    assert_eq!(super::batch(proxy, &id).await["status"], "in_progress");
    object(proxy, Request::new("DELETE", &format!("/v1/files/{pad}"))).await;
    let over = super::ended(proxy, &id).await;
    assert_eq!(
        (&over["status"], &over["request_counts"]["completed"]),
        (&"completed".into(), &1.into())
    );
    assert_eq!(
        super::results(proxy, &over["output_file_id"]).await.len(),
        1
    );
    // The line is not run again for that.
    world.end_after(1).await;
}
