//! Room at engines for the lines of batches.

use super::{
    batches, echo, echo_after, ended, line, object, prompt_of, refusal, started, until_batch, world,
};
use crate::sim::prelude::*;

/// Returns lines for a model, with these ids.
fn lines(model: &str, ids: std::ops::Range<usize>) -> String {
    let asked = format!("\"model\":\"{model}\"");
    ids.map(|n| line(&format!("{model}-{n}"), "x").replace("\"model\":\"m\"", &asked))
        .collect()
}

/// Starts one engine for the model `busy`, and one for `free` that echoes. `config` has further settings, `[batch]` last.
async fn two_models(busy: Engine, config: &str, batch: &str) -> World {
    let setup = batches(batch).allow_errors().config(config);
    let free = Engine::answering(echo).await;
    World::fleet(
        vec![busy, free],
        setup,
        &["models = [\"busy\"]", "models = [\"free\"]"],
    )
    .await
}

/// Returns an engine that answers once the gate is open.
async fn gated(gate: &Gate) -> Engine {
    let held = gate.clone();
    Engine::answering(move |attempt| echo_after(Script::new().wait(&held), attempt)).await
}

/// Opens the gate, and checks that all of these lines are then completed.
async fn complete(gate: &Gate, world: &World, id: &str, lines: usize) {
    gate.open();
    let over = ended(world.proxy(), id).await;
    let counts = format!(r#"{{"total":{lines},"completed":{lines},"failed":0}}"#);
    assert_eq!(over["request_counts"], parsed(&counts), "{over}");
}

fn completed(batch: &Value) -> &Value {
    &batch["request_counts"]["completed"]
}

#[tokio::test]
async fn fault_o35_lines_give_way_to_clients() {
    let (gate, held) = Gate::pair();
    let engine = Engine::answering(move |attempt| match prompt_of(attempt).as_str() {
        "line" => echo(attempt),
        _ => echo_after(Script::new().wait(&held), attempt),
    });
    let world = world(engine.await, "upstream_requests = 1\n").await;
    let proxy = world.proxy();
    let live = tokio::spawn(async move { Request::plain("").answer(proxy).await });
    world.engine.wait_attempts(1).await;
    let id = started(proxy, &line("a", "line")).await;
    until_batch(proxy, &id, |batch| batch["status"] == "in_progress").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        world.engine.attempt_count(),
        1,
        "no line begins beside the client's request"
    );
    gate.open();
    assert_eq!(live.await.unwrap().head.status, 200);
    assert_eq!(ended(proxy, &id).await["status"], "completed");
    world.end().await;
}

/// Lines that begin at the same moment count as well, before they have reached the engine.
#[tokio::test]
async fn fault_o35_an_engine_gets_no_more_lines_than_allowed() {
    let gate = Gate::default();
    let world = world(gated(&gate).await, "upstream_requests = 2\n").await;
    let proxy = world.proxy();
    let id = started(
        proxy,
        &(0..20)
            .map(|n| line(&format!("n{n}"), "x"))
            .collect::<String>(),
    )
    .await;
    world.engine.wait_attempts(2).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.engine.attempt_count(), 2);
    complete(&gate, &world, &id, 20).await;
    world.end().await;
}

#[tokio::test]
async fn fault_o35_a_line_waits_for_an_engine_that_is_busy() {
    let n = AtomicUsize::new(0);
    let engine = Engine::answering(move |attempt| match n.fetch_add(1, Ordering::Relaxed) {
        0 => refusal("429 Too Many Requests"),
        _ => echo(attempt),
    });
    let world = world(engine.await, "").await;
    let over = ended(
        world.proxy(),
        &started(world.proxy(), &line("a", "x")).await,
    )
    .await;
    assert_eq!(
        over["request_counts"],
        parsed(r#"{"total":1,"completed":1,"failed":0}"#),
        "{over}"
    );
    world.end().await;
}

/// Lines of a model whose engine is full let those of another model pass.
#[tokio::test]
async fn fault_o35_a_full_engine_holds_no_other_models_back() {
    let gate = Gate::default();
    let world = two_models(
        gated(&gate).await,
        "",
        "concurrency = 2\nupstream_requests = 1\n",
    )
    .await;
    let proxy = world.proxy();
    let id = started(
        proxy,
        &[lines("busy", 0..40), lines("free", 0..40)].concat(),
    )
    .await;
    until_batch(proxy, &id, |batch| completed(batch) == 40).await;
    assert_eq!(world.attempt_counts(), [1, 40]);
    complete(&gate, &world, &id, 80).await;
    world.end().await;
}

/// Lines that an engine turns away again and again leave the slots to those of another model.
#[tokio::test]
async fn fault_o35_an_engine_that_turns_lines_away_holds_no_other_models_back() {
    let busy = refusal("503 Service Unavailable");
    let world = two_models(Engine::script(busy).await, "", "concurrency = 2\n").await;
    let proxy = world.proxy();
    let id = started(
        proxy,
        &[lines("busy", 0..20), lines("free", 0..20)].concat(),
    )
    .await;
    until_batch(proxy, &id, |batch| completed(batch) == 20).await;
    object(
        proxy,
        Request::post(&format!("/v1/batches/{id}/cancel"), ""),
    )
    .await;
    let over = ended(proxy, &id).await;
    assert_eq!(
        (&over["status"], completed(&over)),
        (&"cancelled".into(), &20.into()),
        "{over}"
    );
    // No more lines than run at once are tried again and again.
    assert!(
        (1..=2).contains(&over["request_counts"]["failed"].as_u64().unwrap()),
        "{over}"
    );
    world.end().await;
}

/// Lines that are drawn for a target with room pass those of the same name that wait for a full one.
#[tokio::test]
async fn fault_o35_a_full_target_leaves_the_lines_of_others() {
    let gate = Gate::default();
    let chat = "[[model]]\nname = \"chat\"\nto = [{ model = \"busy\" }, { model = \"free\" }]\n";
    let world = two_models(
        gated(&gate).await,
        chat,
        "concurrency = 2\nupstream_requests = 1\n",
    )
    .await;
    let proxy = world.proxy();
    let id = started(proxy, &lines("chat", 0..60)).await;
    // Of 60 lines about 30 are drawn for either one.
    until_batch(proxy, &id, |batch| completed(batch).as_u64() > Some(10)).await;
    assert_eq!(world.engine.attempt_count(), 1);
    complete(&gate, &world, &id, 60).await;
    world.end().await;
}

/// A fallback is no room for a line while its model's own engine answers.
#[tokio::test]
async fn fault_o35_a_fallback_gives_no_room_beside_an_engine_that_answers() {
    let gate = Gate::default();
    let chat = "[[model]]\nname = \"chat\"\nto = [{ model = \"busy\" }]\nfallbacks = [\"free\"]\n";
    let world = two_models(gated(&gate).await, chat, "upstream_requests = 1\n").await;
    let proxy = world.proxy();
    let id = started(proxy, &lines("chat", 0..8)).await;
    world.engine.wait_attempts(1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.attempt_counts(), [1, 0]);
    complete(&gate, &world, &id, 8).await;
    assert_eq!(world.attempt_counts(), [8, 0]);
    world.end().await;
}
