//! Affinity by the beginnings of prompts (`[affinity] by = "prefix"`), through each API.

use crate::pool::PATIENT;
use crate::responses::over_chat::scripted;
use crate::sim::prelude::*;
use std::collections::BTreeSet;

/// Number of chats that the engines have answered, from which these get their ids.
static COUNT: AtomicUsize = AtomicUsize::new(0);
const COMPLETION: &str = r#"{"id":"cmpl-1","object":"text_completion","created":1,"model":"text","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}]}"#;

/// Starts four engines that answer chats and Completions, and a proxy that chooses by prefix.
async fn fleet() -> World {
    let mut engines = Vec::new();
    for _ in 0..4 {
        let engine =
            Engine::answering(
                |attempt| match attempt.target.ends_with("/chat/completions") {
                    true => scripted(
                        "text",
                        &format!("chatcmpl-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
                        true,
                    ),
                    false => Script::ok(COMPLETION),
                },
            )
            .await;
        engine.set_models(Script::models(&["text"]));
        engines.push(engine);
    }
    let prefix = "[affinity]\nby = \"prefix\"";

    World::fleet_up(engines, Setup::new().config(PATIENT).config(prefix), &[]).await
}

/// Sends a request, and returns its answer with the place of the engine that got it.
async fn send(world: &World, request: &Request) -> (Value, usize) {
    let before = world.attempt_counts();
    let answer = world.request(request).await.with_status(200);
    let after = world.attempt_counts();
    // A request that still counts takes up the engine's share of so few.
    world.samewire.metrics().await;
    let engine = after
        .iter()
        .zip(&before)
        .position(|(now, then)| now > then)
        .unwrap();
    (
        serde_json::from_str(answer.text()).unwrap_or_default(),
        engine,
    )
}

/// Returns the number of requests that the metrics count as chosen by prefix.
async fn hits(world: &World) -> u64 {
    world
        .samewire
        .sum("samewire_upstream_prefix_hits_total", &[])
        .await
}

const SYSTEMS: [&str; 8] = [
    "kind, ", "curt, ", "wise, ", "loud, ", "calm, ", "neat, ", "warm, ", "cold, ",
];

/// Unlike by conversation, prompts that begin alike meet, whatever the user says.
#[tokio::test]
async fn prompts_that_begin_alike_go_where_that_beginning_is_known() {
    let world = fleet().await;
    let chat = |system: &str, turns: &[&str]| {
        let mut messages = vec![json!({"role": "system", "content": system.repeat(400)})];
        messages.extend(
            turns
                .iter()
                .map(|said| json!({"role": "user", "content": said})),
        );
        Request::chat(json!({"model": "text", "stream": true, "messages": messages}).to_string())
    };
    let mut used = BTreeSet::new();
    for system in SYSTEMS {
        let (_, first) = send(&world, &chat(system, &["hello"])).await;
        for turns in [&["another user"][..], &["hello", "and more"], &["a third"]] {
            assert_eq!(
                send(&world, &chat(system, turns)).await.1,
                first,
                "{system}{turns:?}"
            );
        }
        used.insert(first);
    }
    assert!(used.len() > 1, "other prompts go elsewhere: {used:?}");
    assert_eq!(
        hits(&world).await,
        24,
        "three of four prompts found their beginning"
    );
    // One that has gone is not waited for.
    let (_, gone) = send(&world, &chat("kind, ", &["hello"])).await;
    world.engines().nth(gone).unwrap().crash().await;
    let (_, next) = send(&world, &chat("kind, ", &["hello"])).await;
    assert_ne!(next, gone);
    assert_eq!(
        send(&world, &chat("kind, ", &["somebody else"])).await.1,
        next
    );
    world.end().await;
}

/// Turns of a Responses conversation meet, whether the client sends the items again or names the response before.
#[tokio::test]
async fn every_api_has_prompts_that_begin_alike() {
    let world = fleet().await;
    for system in SYSTEMS {
        let long = system.repeat(400);
        let responses = |input: Value, previous: Option<&str>| {
            let body = json!({"model": "text", "instructions": long, "input": input, "previous_response_id": previous});
            Request::post("/v1/responses", body.to_string())
        };
        let (response, first) = send(&world, &responses(json!(format!("{long}hello")), None)).await;
        let id = response["id"].as_str().unwrap();
        let (_, next) = send(&world, &responses(json!("and more"), Some(id))).await;
        assert_eq!(next, first, "{system}: continued");
        let mut items = vec![json!({"role": "user", "content": format!("{long}hello")})];
        items.extend(response["output"].as_array().unwrap().clone());
        items.push(json!({"role": "user", "content": "and more"}));
        assert_eq!(
            send(&world, &responses(json!(items), None)).await.1,
            first,
            "{system}: sent again"
        );

        let messages = |said: &str| {
            let body = json!({"model": "text", "max_tokens": 9, "system": long, "messages": [{"role": "user", "content": said}]});
            Request::post("/v1/messages", body.to_string())
                .header("anthropic-version", "2023-06-01")
        };
        let (_, first) = send(&world, &messages("hello")).await;
        assert_eq!(
            send(&world, &messages("another user")).await.1,
            first,
            "{system}: Messages"
        );

        let completions = |end: &str| {
            Request::post(
                "/v1/completions",
                json!({"model": "text", "prompt": format!("{long}{end}")}).to_string(),
            )
        };
        let (_, first) = send(&world, &completions("hello")).await;
        assert_eq!(
            send(&world, &completions("another")).await.1,
            first,
            "{system}: Completions"
        );
    }
    assert_eq!(
        hits(&world).await,
        40,
        "five for each: the prompt of Completions begins like the instructions"
    );
    world.end().await;
}
