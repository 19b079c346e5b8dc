//! Batches from their input to their output.

use super::{
    batch, content, create, echo, echo_after, ended, line, object, prompt_of, refusal, results,
    started, text_of, until_batch, upload, uploaded, world,
};
use crate::sim::prelude::*;

#[tokio::test]
async fn a_batch_is_run_and_told_as_the_api_does() {
    let world = world(Engine::answering(echo).await, "").await;
    let proxy = world.proxy();
    // The last line has no end, and an empty one is none.
    let input = format!(
        "{}\r\n{}",
        line("a", "one"),
        line("b", "two\\n2").trim_end()
    );
    let file = uploaded(proxy, &input).await;
    let shown = object(proxy, Request::get(&format!("/v1/files/{file}"))).await;
    let uploaded = object(proxy, upload("x")).await;
    let id = uploaded["id"].as_str().unwrap();
    assert_eq!(
        object(proxy, Request::get(&format!("/v1/files/{id}"))).await,
        uploaded,
        "as it was told"
    );
    assert_eq!(
        (&shown["object"], &shown["purpose"], &shown["bytes"]),
        (&"file".into(), &"batch".into(), &input.len().into())
    );
    assert_eq!(content(proxy, &shown["id"]).await, input);
    let made = object(proxy, create(&file, "/v1/chat/completions")).await;
    let id = made["id"].as_str().unwrap();
    for (field, value) in [
        ("object", Value::from("batch")),
        ("endpoint", "/v1/chat/completions".into()),
        ("input_file_id", file.as_str().into()),
        ("completion_window", "24h".into()),
        ("output_file_id", Value::Null),
        ("error_file_id", Value::Null),
        ("errors", Value::Null),
        ("metadata", parsed(r#"{"a":"b"}"#)),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert_eq!(
        made["expires_at"].as_u64().unwrap() - made["created_at"].as_u64().unwrap(),
        86_400
    );
    let over = ended(proxy, id).await;
    assert_eq!(
        (&over["status"], &over["error_file_id"]),
        (&"completed".into(), &Value::Null),
        "{over}"
    );
    assert_eq!(
        over["request_counts"],
        parsed(r#"{"total":2,"completed":2,"failed":0}"#)
    );
    assert_eq!(
        (
            &over["usage"]["input_tokens"],
            &over["usage"]["total_tokens"]
        ),
        (&6.into(), &10.into())
    );
    for time in ["in_progress_at", "finalizing_at", "completed_at"] {
        assert!(over[time].as_u64().is_some(), "{time}: {over}");
    }
    let all = results(proxy, &over["output_file_id"]).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((text_of(&all["a"]), text_of(&all["b"])), ("one", "two\n2"));
    assert_eq!(
        (&all["a"]["response"]["status_code"], &all["a"]["error"]),
        (&200.into(), &Value::Null)
    );
    let output = object(
        proxy,
        Request::get(&format!(
            "/v1/files/{}",
            over["output_file_id"].as_str().unwrap()
        )),
    )
    .await;
    assert_eq!(output["purpose"], "batch_output");
    let again = object(proxy, Request::get("/v1/batches?limit=1")).await;
    assert_eq!(
        (&again["data"][0], &again["has_more"]),
        (&over, &false.into())
    );
    world.samewire.logged("a batch has ended", 1).await;
    world
        .samewire
        .metric_becomes("samewire_batch_lines_completed_total", 2)
        .await;
    world.end().await;
}

#[tokio::test]
async fn lines_of_every_endpoint_are_run() {
    let embedding = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}"#;
    let completion = r#"{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"x","finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let engine = Engine::answering(move |attempt| match attempt.target.as_str() {
        "/v1/embeddings" => Script::ok(embedding),
        "/v1/completions" => Script::ok(completion),
        _ => echo(attempt),
    });
    let world = world(engine.await, "").await;
    for (endpoint, body, kind) in [
        ("/v1/embeddings", r#"{"model":"m","input":"x"}"#, "list"),
        (
            "/v1/completions",
            r#"{"model":"m","prompt":"x"}"#,
            "text_completion",
        ),
        (
            "/v1/responses",
            r#"{"model":"m","input":"x","store":false}"#,
            "response",
        ),
    ] {
        let input = format!(
            "{{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"{endpoint}\",\"body\":{body}}}\n"
        );
        let file = uploaded(world.proxy(), &input).await;
        let made = object(world.proxy(), create(&file, endpoint)).await;
        let over = ended(world.proxy(), made["id"].as_str().unwrap()).await;
        assert_eq!(over["status"], "completed", "{over}");
        assert_eq!(over["request_counts"]["completed"], 1, "{over}");
        let all = results(world.proxy(), &over["output_file_id"]).await;
        assert_eq!(all["a"]["response"]["body"]["object"], kind, "{endpoint}");
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o34_mistakes_are_told_with_their_lines() {
    let world = world(Engine::answering(echo).await, "max_lines = 4\n").await;
    let proxy = world.proxy();
    let bad = format!(
        "{}not json\n{}{}",
        line("a", "x"),
        line("a", "x"),
        line("b", "x").replace("/v1/chat/completions", "/v1/responses")
    );
    let over = ended(proxy, &started(proxy, &bad).await).await;
    assert_eq!(
        (&over["status"], &over["output_file_id"]),
        (&"failed".into(), &Value::Null)
    );
    let told: Vec<_> = over["errors"]["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["code"].as_str().unwrap(), e["line"].as_u64()))
        .collect();
    assert_eq!(
        told,
        [
            ("invalid_json_line", Some(2)),
            ("duplicate_custom_id", Some(3)),
            ("invalid_url", Some(4))
        ]
    );
    let many: String = (0..5).map(|n| line(&n.to_string(), "x")).collect();
    for (input, code) in [("\n\n", "empty_file"), (&many, "too_many_tasks")] {
        let over = ended(proxy, &started(proxy, input).await).await;
        assert_eq!(
            (&over["status"], &over["errors"]["data"][0]["code"]),
            (&"failed".into(), &code.into())
        );
    }
    // Nothing of an invalid file is run.
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_o34_failed_lines_are_in_the_file_of_errors() {
    let engine = Engine::answering(|attempt| match prompt_of(attempt).as_str() {
        "bad" => Script::new().json(
            "400 Bad Request",
            r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}"#,
        ),
        _ => echo(attempt),
    });
    let world = world(engine.await, "").await;
    let proxy = world.proxy();
    let refused = line("c", "x").replace("\"model\"", "\"max_tokens\":\"many\",\"model\"");
    let over = ended(
        proxy,
        &started(
            proxy,
            &format!("{}{}{refused}", line("a", "good"), line("b", "bad")),
        )
        .await,
    )
    .await;
    assert_eq!(
        over["request_counts"],
        parsed(r#"{"total":3,"completed":1,"failed":2}"#),
        "{over}"
    );
    assert_eq!(
        results(proxy, &over["output_file_id"])
            .await
            .keys()
            .collect::<Vec<_>>(),
        ["a"]
    );
    let errors = results(proxy, &over["error_file_id"]).await;
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(errors["b"]["response"]["status_code"], 400);
    assert!(
        errors["c"]["response"]["body"]["error"]["message"]
            .as_str()
            .is_some()
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o33_a_cancelled_batch_keeps_what_it_has() {
    let (gate, held) = Gate::pair();
    let engine = Engine::answering(move |attempt| match prompt_of(attempt).as_str() {
        "wait" => echo_after(Script::new().wait(&held), attempt),
        _ => echo(attempt),
    });
    let world = world(engine.await, "concurrency = 2\n").await;
    let proxy = world.proxy();
    let more: String = (0..50).map(|n| line(&format!("n{n}"), "wait")).collect();
    let id = started(proxy, &format!("{}{more}", line("a", "quick"))).await;
    until_batch(proxy, &id, |batch| {
        batch["request_counts"]["completed"] == 1
    })
    .await;
    world.engine.wait_attempts(3).await;
    let cancel = || Request::post(&format!("/v1/batches/{id}/cancel"), "");
    let told = object(proxy, cancel()).await;
    assert_eq!(told["status"], "cancelling");
    assert!(told["cancelling_at"].as_u64().is_some());
    // The owner looks once a second; lines under way are waited for.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(batch(proxy, &id).await["status"], "cancelling");
    gate.open();
    let over = ended(proxy, &id).await;
    assert_eq!(over["status"], "cancelled");
    let all = results(proxy, &over["output_file_id"]).await;
    assert!(
        all.contains_key("a") && all.len() >= 3 && all.len() < 51,
        "{} lines",
        all.len()
    );
    assert_eq!(over["request_counts"]["completed"], all.len());
    let (count, again) = (world.engine.attempt_count(), world.request(&cancel()).await);
    assert_eq!(again.head.status, 200, "a second cancel changes nothing");
    assert_eq!(world.engine.attempt_count(), count);
    let done = started(proxy, &line("z", "x")).await;
    ended(proxy, &done).await;
    world
        .post(&format!("/v1/batches/{done}/cancel"), "")
        .await
        .with_status(409);
    world.end().await;
}

/// A line that waits for another attempt is not tried again after a cancel: its last answer is the result.
#[tokio::test]
async fn fault_o33_a_cancelled_batch_tries_no_more() {
    let busy = refusal("503 Service Unavailable");
    let engine = Engine::answering(move |_| busy.clone()).await;
    let world = World::start(engine, super::batches("").allow_errors()).await;
    let proxy = world.proxy();
    let id = started(proxy, &format!("{}{}", line("a", "x"), line("b", "y"))).await;
    world.engine.wait_attempts(4).await;
    object(
        proxy,
        Request::post(&format!("/v1/batches/{id}/cancel"), ""),
    )
    .await;
    let over = ended(proxy, &id).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(
        over["request_counts"],
        parsed(r#"{"total":2,"completed":0,"failed":2}"#),
        "{over}"
    );
    let errors = results(proxy, &over["error_file_id"]).await;
    assert!(
        errors
            .values()
            .all(|line| line["response"]["status_code"] == 503),
        "{errors:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_o33_a_batch_expires() {
    let engine = Engine::answering(|attempt| match prompt_of(attempt).as_str() {
        "quick" => echo(attempt),
        _ => Script::new().hang(),
    });
    let world = world(engine.await, "concurrency = 2\ncompletion_window = 3\n").await;
    let proxy = world.proxy();
    let more: String = (0..5).map(|n| line(&format!("n{n}"), "hang")).collect();
    let id = started(proxy, &format!("{}{more}", line("a", "quick"))).await;
    let over = ended(proxy, &id).await;
    assert_eq!(over["status"], "expired");
    assert!(
        over["expired_at"].as_u64() >= over["expires_at"].as_u64(),
        "{over}"
    );
    assert_eq!(
        over["request_counts"],
        parsed(r#"{"total":6,"completed":1,"failed":5}"#)
    );
    let errors = results(proxy, &over["error_file_id"]).await;
    assert_eq!(errors.len(), 5);
    assert!(
        errors
            .values()
            .all(|line| line["error"]["code"] == "batch_expired"),
        "{errors:?}"
    );
    world.end().await;
}
