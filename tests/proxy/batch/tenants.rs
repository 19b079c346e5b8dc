//! Batches of several tenants, and the rights of the keys that create them.

use super::{create, echo, line, upload};
use crate::clients::keys::{entry, with};
use crate::sim::prelude::*;

fn key(name: &str, more: &str) -> String {
    entry(
        &format!("sk-{name}"),
        &format!("name = \"{name}\"\ntenant = \"{name}\"\n{more}"),
    )
}

async fn object(world: &World, key: &str, request: Request) -> Value {
    world
        .request(&with(&request, key))
        .await
        .with_status(200)
        .json()
}

/// Waits for the end of a batch of this key's tenant.
async fn over(world: &World, key: &str, id: &str) -> Value {
    let show = with(&Request::get(&format!("/v1/batches/{id}")), key);
    let is_over = |answer: &Answer| super::is_over(&answer.json());
    show.answer_within(PATIENCE * 6, world.proxy(), is_over)
        .await
        .with_status(200)
        .json()
}

#[tokio::test]
async fn fault_o36_a_tenant_has_its_own_files_and_its_own_rights() {
    let config = |revoked: bool| {
        let second = if revoked { "disabled = true" } else { "" };
        format!(
            "[batch]\nenabled = true\n{}{}",
            key("one", "models = [\"other\"]\nrequests_per_day = 100"),
            key("two", second)
        )
    };
    let world = World::start(Engine::answering(echo), Setup::new().config(&config(false))).await;
    let file = object(&world, "sk-two", upload(&line("a", "x"))).await;
    let id = file["id"].as_str().unwrap();
    for request in [
        Request::get(&format!("/v1/files/{id}")),
        Request::get(&format!("/v1/files/{id}/content")),
        Request::new("DELETE", &format!("/v1/files/{id}")),
    ] {
        assert_eq!(
            world.request(&with(&request, "sk-one")).await.head.status,
            404
        );
    }
    world
        .request(&with(&create(id, "/v1/chat/completions"), "sk-one"))
        .await
        .with_status(400);
    assert_eq!(
        object(&world, "sk-one", Request::get("/v1/files")).await["data"],
        parsed("[]")
    );
    let made = object(&world, "sk-two", create(id, "/v1/chat/completions")).await;
    let batch = made["id"].as_str().unwrap();
    let ended_batch = over(&world, "sk-two", batch).await;
    assert_eq!(
        ended_batch["request_counts"]["completed"], 1,
        "{ended_batch}"
    );
    for request in [
        Request::get(&format!("/v1/batches/{batch}")),
        Request::post(&format!("/v1/batches/{batch}/cancel"), ""),
    ] {
        assert_eq!(
            world.request(&with(&request, "sk-one")).await.head.status,
            404
        );
    }
    // A model that the key may not use is refused on a line as elsewhere.
    let file = object(&world, "sk-one", upload(&line("a", "x"))).await;
    let made = object(
        &world,
        "sk-one",
        create(file["id"].as_str().unwrap(), "/v1/chat/completions"),
    )
    .await;
    let refused = over(&world, "sk-one", made["id"].as_str().unwrap()).await;
    let errors = object_lines(&world, "sk-one", &refused["error_file_id"]).await;
    assert_eq!(errors[0]["response"]["status_code"], 404, "{errors:?}");
    let metrics = world.samewire.metrics().await;
    assert!(
        metrics.contains("samewire_key_requests_total{key=\"two\"}"),
        "{metrics}"
    );
    world.end().await;
}

async fn object_lines(world: &World, key: &str, file: &Value) -> Vec<Value> {
    let request = Request::get(&format!(
        "/v1/files/{}/content",
        file.as_str().expect("a file")
    ));
    let answer = world.request(&with(&request, key)).await;
    answer.text().lines().map(parsed).collect()
}

#[tokio::test]
async fn fault_o36_without_keys_the_key_of_a_client_tells_its_tenant() {
    let world = super::world(Engine::answering(echo).await, "").await;
    let file = object(&world, "sk-a", upload(&line("a", "x"))).await;
    let target = format!("/v1/files/{}", file["id"].as_str().unwrap());
    assert_eq!(
        world
            .request(&with(&Request::get(&target), "sk-b"))
            .await
            .head
            .status,
        404
    );
    let made = object(
        &world,
        "sk-a",
        create(file["id"].as_str().unwrap(), "/v1/chat/completions"),
    )
    .await;
    over(&world, "sk-a", made["id"].as_str().unwrap()).await;
    // A client's key for the engine is not kept, so lines are sent without it.
    assert_eq!(world.engine.only().header("authorization"), None);
    world.end().await;
}

#[tokio::test]
async fn fault_o36_a_revoked_key_runs_no_more_lines() {
    let config = |revoked: bool| {
        let disabled = if revoked { "disabled = true" } else { "" };
        let reader = key("reader", "").replace("tenant = \"reader\"", "tenant = \"two\"");
        format!(
            "[batch]\nenabled = true\nconcurrency = 1\n{}{reader}",
            key("two", disabled)
        )
    };
    let (gate, held) = Gate::pair();
    let engine =
        Engine::answering(move |attempt| super::echo_after(Script::new().wait(&held), attempt));
    let world = World::start(engine.await, Setup::new().config(&config(false))).await;
    let file = object(
        &world,
        "sk-two",
        upload(&[line("a", "x"), line("b", "y")].concat()),
    )
    .await;
    let made = object(
        &world,
        "sk-two",
        create(file["id"].as_str().unwrap(), "/v1/chat/completions"),
    )
    .await;
    world.engine.wait_attempts(1).await;
    world.samewire.reconfigure(&config(true)).await;
    gate.open();
    let ended = over(&world, "sk-reader", made["id"].as_str().unwrap()).await;
    assert_eq!(
        ended["request_counts"],
        parsed(r#"{"total":2,"completed":1,"failed":1}"#),
        "{ended}"
    );
    let errors = object_lines(&world, "sk-reader", &ended["error_file_id"]).await;
    assert_eq!(errors[0]["response"]["status_code"], 401, "{errors:?}");
    world.end_after(1).await;
}
