//! A store that is unreachable for a while (fault O17): PostgreSQL behind a relay that is cut.

use crate::operations::replicas::{at, follow, id, on, sound};
use crate::postgres::database;
use crate::postgres::partition::{Partition, RelayState};
use crate::responses::background::is_over;
use crate::responses::over_chat::{object, prompt};
use crate::sim::prelude::*;

async fn cut_off(engine: Engine) -> (Partition, World) {
    let partition = Partition::before(&database().await).await;
    let setup: Setup = on(&partition.url).allow_errors();
    let world = World::start(engine, setup).await;
    (partition, world)
}

async fn over(world: &World, id: &str) -> Value {
    // Shortly after a partition the store may not have recovered yet.
    let is_read = |answer: &Answer| answer.head.status == 200 && is_over(&answer.json());
    at(id, "")
        .answer_within(PATIENCE * 3, world.proxy(), is_read)
        .await
        .json()
}

#[tokio::test]
async fn fault_o17_what_runs_goes_on_through_ten_seconds_without_the_store() {
    const TOKENS: usize = 1_200;
    let stream = Script::stream().tok("a", TOKENS, Duration::from_millis(10));
    let engine = Engine::in_turn(vec![stream.stop(), Script::answer("b", 2)]).await;
    let (partition, world) = cut_off(engine).await;
    let made = object(&world.request(&prompt("m", r#","background":true"#)).await);
    world.engine.wait_attempts(1).await;
    partition.state.send_replace(RelayState::Cut);
    let cut = Instant::now();
    // Chat does not depend on the store.
    assert_eq!(world.stream("").await.head.status, 200);
    // A request whose response must be stored is refused before an engine works for it; others are served without
    // storing.
    let asked = world.engine.attempt_count();
    let refused = world.request(&prompt("m", r#","background":true"#)).await;
    assert_eq!(
        (refused.head.status, refused.fault().code.as_deref()),
        (503, Some("store_unavailable"))
    );
    assert_eq!(world.engine.attempt_count(), asked);
    let unstored = object(&world.request(&prompt("m", "")).await);
    assert_eq!(
        (&unstored["status"], &unstored["store"]),
        (&json!("completed"), &json!(false))
    );
    tokio::time::sleep(Duration::from_secs(10).saturating_sub(cut.elapsed())).await;
    partition.state.send_replace(RelayState::Open);
    let ended = over(&world, &id(&made)).await;
    assert_eq!(ended["status"], "completed", "{}", ended["error"]);
    let text = ended["output"][0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        text,
        (0..TOKENS).map(|n| format!("a.{n} ")).collect::<String>(),
        "nothing was lost meanwhile"
    );
    let events = follow(world.proxy(), at(&id(&made), "?stream=true")).await;
    sound(&events, 0, "response.completed");
    world.end().await;
}

#[tokio::test]
async fn fault_o17_what_says_too_much_meanwhile_fails() {
    // Stored before the store is away, the flood would stay within the limit.
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate);
    let flood = script.then(Step::Flood {
        events: 3_000,
        size: 16 << 10,
    });
    let (partition, world) = cut_off(Engine::script(flood.hang()).await).await;
    partition.state.send_replace(RelayState::Open);
    let made = object(&world.request(&prompt("m", r#","background":true"#)).await);
    world.engine.wait_attempts(1).await;
    partition.state.send_replace(RelayState::Cut);
    let before = world.samewire.allocated();
    gate.open();
    until_within("it is given up", 4 * PATIENCE, || {
        world.engine.active_generations() == 0
    })
    .await;
    let grown = world.samewire.allocated().saturating_sub(before);
    assert!(grown < 160 << 20, "{grown}");
    partition.state.send_replace(RelayState::Open);
    assert_eq!(over(&world, &id(&made)).await["status"], "failed");
    world.end().await;
}
