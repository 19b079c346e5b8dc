//! Routes whose answers are one object, read completely before anything is sent to the client: failures are retried
//! on another engine as everywhere (faults 7).

use crate::pool::PATIENT;
use crate::sim::prelude::*;

const GOOD: &str = r#"{"object":"list","model":"m","data":[{"index":0,"object":"embedding","embedding":[1]}],"usage":{"prompt_tokens":1,"total_tokens":1}}"#;

fn good() -> Script {
    Script::ok(GOOD)
}

/// Starts engines with these scripts and waits until their models are known.
async fn fleet(scripts: Vec<Script>, config: &str) -> World {
    World::fleet_up(
        scripts,
        Setup::new().allow_errors().config(PATIENT).config(config),
        &[],
    )
    .await
}

async fn embedded(world: &World) -> Answer {
    world
        .post("/v1/embeddings", r#"{"model":"m","input":"x"}"#)
        .await
}

#[tokio::test]
async fn who_pushes_back_says_when_to_come_again() {
    let pushing = |status: &str, seconds: u64| {
        let line = format!("retry-after: {seconds}\r\n");
        Script::new().whole_with(
            status,
            "application/json",
            &line,
            r#"{"error":{"message":"busy"}}"#,
        )
    };
    for (first, second) in [(20, 7), (7, 20)] {
        let scripts = vec![
            pushing("429 Too Many Requests", first),
            pushing("429 Too Many Requests", second),
        ];
        let world = fleet(scripts, "").await;
        let answer = embedded(&world).await;
        assert_eq!(
            (answer.head.status, answer.head.header("retry-after")),
            (429, Some("7"))
        );
        assert_eq!(world.attempt_counts(), [1, 1]);
        world.end().await;
    }
}

#[tokio::test]
async fn who_says_nothing_is_passed_over_while_there_is_time() {
    let times = "[timeouts]\nfirst_token = 0.3\ntotal_whole = 30";
    let world = fleet(vec![Script::new().hang(), good()], times).await;
    while world.attempt_counts()[0] == 0 {
        assert_eq!(embedded(&world).await.head.status, 200);
    }
    assert_eq!(embedded(&world).await.head.status, 200);
    world.end().await;
    let times = "[timeouts]\nfirst_token = 0.3\ntotal_whole = 0.5";
    let world = fleet(vec![Script::new().hang(), Script::new().hang()], times).await;
    assert_eq!(
        (
            embedded(&world).await.head.status,
            world.attempt_counts().iter().sum::<usize>()
        ),
        (504, 1)
    );
    world.end().await;
}

/// An answer that is too large is not requested again from another engine.
#[tokio::test]
async fn an_endless_object_is_asked_for_once() {
    let endless = format!(r#"{{"object":"list","data":["{}"]}}"#, "x".repeat(3 << 20));
    let scripts = vec![Script::ok(&endless); 2];
    let world = fleet(scripts, "[limits]\nmax_answer_bytes = 1000000").await;
    assert_eq!(
        embedded(&world).await.fault().code.as_deref(),
        Some("upstream_invalid_response")
    );
    assert_eq!(world.attempt_counts().iter().sum::<usize>(), 1);
    world.end().await;
}

/// An engine that hangs does not keep the models of the others out of the list, and is listed as the last probe saw it.
#[tokio::test]
async fn a_list_does_not_wait_for_the_one_that_hangs() {
    let world = fleet(vec![good(), good()], "").await;
    let both = world.get("/v1/models").await;
    world.engine.set_models(Script::new().hang());
    let one = world.get("/v1/models").await;
    assert_eq!((one.head.status, one.text()), (200, both.text()));
    world.others[0].set_models(Script::new().hang());
    let none = world.get("/v1/models").await;
    assert_eq!((none.head.status, none.text()), (200, both.text()));
    world.end().await;
}

/// Both front ends in Rust lack the route, and say so with an empty 404 (as recorded).
#[tokio::test]
async fn an_engine_without_embeddings_is_named() {
    for script in [
        Script::new().raw(include_str!(
            "../../../fixtures/vllm/error-no-embeddings-rust/upstream.http"
        )),
        Script::new().raw(include_str!(
            "../../../fixtures/sglang/error-no-embeddings-rust/upstream.http"
        )),
        Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#),
    ] {
        let world = fleet(vec![script.clone(), script], "").await;
        for _ in 0..5 {
            let answer = embedded(&world).await;
            assert_eq!(answer.failure(), "404 invalid_request_error");
            assert_eq!(
                answer.fault().message,
                "The upstream engine does not serve POST /v1/embeddings."
            );
        }
        assert_eq!(world.attempt_counts().iter().sum::<usize>(), 5);
        world.samewire.finished(5).await;
        assert_eq!(world.samewire.count_logged("ejected"), 0);
        world.end().await;
    }
}
