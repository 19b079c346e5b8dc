//! Details that `GET /v1/models` gives about each model.

use crate::sim::prelude::*;

async fn engine() -> Engine {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let all = json!([
        {"id": "base", "object": "model", "created": 1, "owned_by": "vllm", "root": "/weights", "parent": null, "max_model_len": 2048, "permission": []},
        {"id": "adapter", "object": "model", "created": 1, "owned_by": "vllm", "root": "/lora", "parent": "base", "max_model_len": null},
        {"id": "org/cpp", "object": "model", "created": 1, "owned_by": "llamacpp", "meta": {"n_ctx_train": 512}},
    ]);
    engine.set_models(Script::ok(json!({"object": "list", "data": all})));
    engine
}

async fn told(world: &World, target: &str) -> Value {
    world.get(target).await.with_status(200).json()
}

#[tokio::test]
async fn what_engines_tell_of_a_model_is_kept() {
    let models = "[[model]]\nname = \"org/cpp\"\naliases = [\"small\"]\ncontext_length = 256\n";
    let world = World::start(engine(), Setup::new().config(models)).await;
    let list = told(&world, "/v1/models").await;
    let expected = json!([
        {"id": "base", "object": "model", "created": 1, "owned_by": "vllm", "root": "/weights", "parent": null, "max_model_len": 2048, "context_length": 2048},
        {"id": "adapter", "object": "model", "created": 1, "owned_by": "vllm", "root": "/lora", "parent": "base"},
        {"id": "org/cpp", "object": "model", "created": 1, "owned_by": "llamacpp", "context_length": 256},
        {"id": "small", "object": "model", "created": 1, "owned_by": "llamacpp", "context_length": 256},
    ]);
    assert_eq!(list, json!({"object": "list", "data": expected}));
    assert_eq!(told(&world, "/v1/models/small").await, expected[3]);
    assert_eq!(told(&world, "/v1/models/org/cpp").await, expected[2]);
    let found = world.get("/v1/models/adapter").await.with_status(200);
    assert_eq!(
        (found.json(), found.head.header("content-type")),
        (expected[1].clone(), Some("application/json"))
    );
    assert!(
        found
            .text()
            .starts_with(r#"{"id":"adapter","object":"model","created":"#),
        "{}",
        found.text()
    );
    let text = world.get("/v1/models").await.text().to_owned();
    assert!(
        text.starts_with(r#"{"object":"list","data":[{"id":"base","object":"model","#),
        "{text}"
    );
    let missing = world.get("/v1/models/other").await;
    assert_eq!(
        missing.failure(),
        "404 invalid_request_error model_not_found"
    );
    world.end().await;
}

/// The Codex CLI sends its version and reads its own list; `tests/agents` has the CLI itself read it.
#[tokio::test]
async fn the_catalogue_of_codex_stands_beside_the_list() {
    let world = World::start(
        engine(),
        Setup::new().config("[codex]\ninstructions = \"Be brief.\""),
    )
    .await;
    let plain = told(&world, "/v1/models").await;
    let list = told(&world, "/v1/models?client_version=0.169.0").await;
    assert_eq!(list["data"], plain["data"]);
    assert!(plain.get("models").is_none());
    let models = list["models"].as_array().unwrap();
    assert_eq!(models.len(), 3);
    assert_eq!(
        (&models[0]["slug"], &models[0]["context_window"]),
        (&json!("base"), &json!(2048))
    );
    assert_eq!(models[0]["base_instructions"], "Be brief.");
    assert!(models[1].get("context_window").is_none());
    // Without the first, Codex has no tool for edits.
    for model in models {
        assert_eq!(model["apply_patch_tool_type"], "freeform");
        assert_eq!(model["supports_search_tool"], true);
    }
    world.end().await;
}
