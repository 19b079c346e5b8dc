//! The routes under `/openai/`, as clients of Azure use them.

use crate::sim::prelude::*;

const DEPLOYED: &str = "/openai/deployments/gpt%2F4o/chat/completions?api-version=2024-10-21";

fn chat(target: &str, body: &str) -> Request {
    Request::post(target, body)
}

/// Returns the request bodies that reached the engine.
fn bodies(world: &World) -> Vec<String> {
    world
        .engine
        .attempts()
        .iter()
        .map(|attempt| attempt.text().to_owned())
        .collect()
}

#[tokio::test]
async fn the_deployment_names_the_model() {
    let world = World::plain(Setup::new()).await;
    for body in [
        r#"{"stream":true,"messages":[{"role":"user","content":"x"}]}"#,
        r#"{"model":"another","stream":true,"messages":[{"role":"user","content":"x"}]}"#,
    ] {
        world.request(&chat(DEPLOYED, body)).await.with_status(200);
    }
    let end = r#""stream":true,"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true}}"#;
    let expected = format!(r#"{{"model":"gpt/4o",{end}"#);
    assert_eq!(bodies(&world), [expected.as_str(), expected.as_str()]);
    let targets: Vec<_> = world
        .engine
        .attempts()
        .iter()
        .map(|attempt| attempt.target.clone())
        .collect();
    assert_eq!(targets, ["/v1/chat/completions", "/v1/chat/completions"]);
    world.end().await;
}

#[tokio::test]
async fn versions_are_checked_on_dated_routes_alone() {
    let config =
        "[azure]\napi_versions = [\"2024-10-21\", \"2025-04-01-preview\"]\nregion = \"here\"";
    let world = World::configured(config).await;
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;
    for (target, status) in [
        (
            "/openai/deployments/m/chat/completions?api-version=2024-10-21",
            200,
        ),
        (
            "/openai/deployments/m/chat/completions?a=b&api-version=2025-04-01-preview",
            200,
        ),
        ("/openai/v1/chat/completions", 200),
        ("/openai/v1/chat/completions?api-version=preview", 200),
        ("/openai/deployments/m/chat/completions", 400),
        ("/openai/deployments/m/chat/completions?api-version=", 400),
        (
            "/openai/deployments/m/chat/completions?api-version=latest",
            400,
        ),
        (
            "/openai/deployments/m/chat/completions?api-version=2023-05-15",
            400,
        ),
        ("/openai/deployments/m/nothing?api-version=2024-10-21", 404),
        (
            "/openai/deployments//chat/completions?api-version=2024-10-21",
            404,
        ),
        ("/openai/chat/completions?api-version=2024-10-21", 404),
        ("/openai/v1/v1/chat/completions", 404),
    ] {
        let answer = world.request(&chat(target, body)).await;
        assert_eq!(answer.head.status, status, "{target}: {}", answer.text());
        if status == 400 {
            let fault = answer.fault();
            assert_eq!(
                fault.name(),
                ("invalid_request_error", Some("unsupported_api_version")),
                "{target}"
            );
            assert_eq!(fault.param.as_deref(), Some("api-version"), "{target}");
        }
    }
    world.end_after(4).await;
}

#[tokio::test]
async fn heads_say_what_clients_of_azure_look_for() {
    let config = "[azure]\napi_versions = [\"2024-10-21\"]\nregion = \"here\"";
    let world = World::configured(config).await;
    let body = r#"{"stream":true,"messages":[{"role":"user","content":"x"}]}"#;
    let request = chat(DEPLOYED, body)
        .header("x-request-id", "mine-1")
        .header("x-ms-client-request-id", "theirs-2");
    for (request, version) in [
        (request.clone(), 200),
        (
            request.target("/openai/deployments/m/chat/completions"),
            400,
        ),
    ] {
        let answer = world.request(&request).await;
        assert_eq!(answer.head.status, version);
        for (name, value) in [
            ("apim-request-id", "mine-1"),
            ("x-ms-request-id", "mine-1"),
            ("x-ms-client-request-id", "theirs-2"),
            ("x-ms-region", "here"),
            ("api-supported-versions", "2024-10-21"),
            ("openai-version", "2020-10-01"),
        ] {
            assert_eq!(answer.head.header(name), Some(value), "{name}");
        }
    }
    let plain = world.stream("").await;
    assert_eq!(plain.head.header("apim-request-id"), None);
    world.end().await;
}

#[tokio::test]
async fn azures_own_key_wins_on_its_own_routes() {
    let world = World::plain(Setup::new()).await;
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;
    for target in [
        DEPLOYED,
        "/openai/v1/chat/completions",
        "/v1/chat/completions",
    ] {
        let answer = world
            .request(&chat(target, body).header("api-key", "azure-key"))
            .await;
        assert_eq!(answer.head.status, 200, "{target}");
    }
    let keys: Vec<_> = world
        .engine
        .attempts()
        .iter()
        .map(|attempt| {
            attempt
                .header("authorization")
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    let own = format!("Bearer {}", KEY);
    assert_eq!(keys, ["Bearer azure-key", "Bearer azure-key", own.as_str()]);
    world.end().await;
}
