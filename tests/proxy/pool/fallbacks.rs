//! Names of `[[model]]` that mean several models: weights, fallbacks, and what clients and operators see.

use crate::clients::keys::{entry, with};
use crate::pool::{PATIENT, refused, requested};
use crate::responses::over_chat::object;
use crate::sim::prelude::*;
use crate::sim::refusing;
use std::collections::BTreeSet;

/// Name of a large model, and of a small one if that does not answer.
const CHAT: &str = "[wire]\nmodel_name = \"requested\"\n[[model]]\nname = \"chat\"\nto = [{ model = \"big\" }]\nfallbacks = [\"small\"]";

/// Starts an engine that lists these models and answers each request with this script.
async fn listing(models: &[&str], script: Script) -> Engine {
    let engine = Engine::script(script).await;
    engine.set_models(list(models));
    engine
}

/// Returns a list of these models.
fn list(models: &[&str]) -> Script {
    let list: Vec<_> = models
        .iter()
        .map(|id| json!({"id": id, "object": "model", "created": 7, "owned_by": "vllm", "max_model_len": 100 * id.len()}))
        .collect();
    Script::ok(json!({"object": "list", "data": list}))
}

/// Returns a whole answer as this model.
fn whole(model: &str) -> Script {
    Script::ok(
        json!({"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [{"index": 0, "message": {"role": "assistant", "content": model}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}),
    )
}

async fn fleet(engines: Vec<Engine>, config: &str, lines: &[&str]) -> World {
    let setup = Setup::new().allow_errors().config(PATIENT).config(config);

    World::fleet_up(engines, setup, lines).await
}

fn of(model: &str) -> Request {
    Request::chat(
        json!({"model": model, "messages": [{"role": "user", "content": "x"}]}).to_string(),
    )
}

/// Returns the model that served, and the number of attempts.
fn served(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (
        answer.head.header("x-samewire-model"),
        answer.head.header("x-samewire-attempts"),
    )
}

#[tokio::test]
async fn fault_u58_another_model_answers_where_engines_fail() {
    for (what, script) in [
        ("429", refused("429 Too Many Requests")),
        ("503", refused("503 Service Unavailable")),
        ("500", refused("500 Internal Server Error")),
        ("reset", Script::new().rst()),
        ("reset after the role", Script::stream().rst()),
    ] {
        for stream in [false, true] {
            let small = if stream {
                Script::answer("good", 2)
            } else {
                whole("small")
            };
            let engines = vec![
                listing(&["big"], script.clone()).await,
                listing(&["small"], small).await,
            ];
            let world = fleet(engines, CHAT, &[]).await;
            let body = json!({"model": "chat", "stream": stream, "messages": [{"role": "user", "content": "x"}]});
            let answer = world.chat(body.to_string()).await;
            assert_eq!(answer.head.status, 200, "{what}: {}", answer.text());
            assert_eq!(served(&answer), (Some("small"), Some("2")), "{what}");
            assert!(
                answer.text().contains(r#""model":"chat""#),
                "{what}: the client's name: {}",
                answer.text()
            );
            assert_eq!(
                requested(&world.engine),
                ["big".to_owned()].into(),
                "{what}"
            );
            assert_eq!(
                requested(&world.others[0]),
                ["small".to_owned()].into(),
                "{what}"
            );
            let metrics = world.samewire.metrics().await;
            let counted = "samewire_model_fallbacks_total{model=\"chat\",to=\"small\"} 1";
            assert!(metrics.contains(counted), "{what}: {metrics}");
            let line = world.samewire.finished(1).await.remove(0);
            assert!(
                line.contains(r#""model":"chat","served_model":"small""#),
                "{what}: {line}"
            );
            world.end().await;
        }
    }
}

#[tokio::test]
async fn fault_u58_a_refused_connection_leads_to_another_model() {
    let (nobody, _held) = refusing();
    let lines = format!("[[upstream]]\nname = \"gone\"\nurl = \"{nobody}\"\nmodels = [\"big\"]");
    let world = fleet(
        vec![listing(&["small"], whole("small")).await],
        CHAT,
        &[&lines],
    )
    .await;
    for _ in 0..8 {
        let answer = world.request(&of("chat")).await;
        assert_eq!(
            (answer.head.status, served(&answer).0),
            (200, Some("small")),
            "{}",
            answer.text()
        );
    }
    // An ejected engine gets no request while another model answers.
    let answer = world.request(&of("chat")).await;
    assert_eq!(served(&answer), (Some("small"), Some("1")));
    // Without a fallback its failure is all there is.
    assert_eq!(world.request(&of("big")).await.head.status, 502);
    world.end().await;
}

#[tokio::test]
async fn fault_u58_engines_that_are_down_or_push_back_are_not_asked() {
    let big = listing(&["big"], refused("429 Too Many Requests")).await;
    let engines = vec![big, listing(&["small"], whole("small")).await];
    let setup = Setup::new()
        .allow_errors()
        .config("[health]\ninterval = 0.05\ntimeout = 0.5")
        .config(CHAT);
    let world = World::fleet_up(engines, setup, &[]).await;
    assert_eq!(
        served(&world.request(&of("chat")).await),
        (Some("small"), Some("2"))
    );
    let answer = world.request(&of("chat")).await;
    assert_eq!(
        served(&answer),
        (Some("small"), Some("1")),
        "it has requested a pause"
    );
    assert_eq!(world.engine.attempt_count(), 1);
    world.engine.crash().await;
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"e0\"}", 0)
        .await;
    assert_eq!(
        served(&world.request(&of("chat")).await),
        (Some("small"), Some("1")),
        "it is down"
    );
    let listed = object(&world.get("/v1/models").await);
    let listed: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(
        listed,
        ["small", "chat"],
        "the name is there as long as one model is"
    );
    world.end().await;
}

/// Errors that another engine would give as well, and everything after the first word, stay with their model.
#[tokio::test]
async fn fault_u58_never_behind_the_first_word_or_for_the_clients_mistakes() {
    let said = Script::stream().text("said ").rst();
    for (script, status) in [
        (said, 200),
        (refused("400 Bad Request"), 400),
        (refused("404 Not Found"), 404),
        (refused("501 Not Implemented"), 501),
    ] {
        let engines = vec![
            listing(&["big"], script).await,
            listing(&["small"], whole("small")).await,
        ];
        let world = fleet(engines, CHAT, &[]).await;
        let body = json!({"model": "chat", "stream": true, "messages": [{"role": "user", "content": "x"}]});
        let answer = world.chat(body.to_string()).await;
        assert_eq!(answer.head.status, status, "{}", answer.text());
        assert_eq!(world.attempt_counts(), [1, 0], "{status}");
        assert!(
            !world
                .samewire
                .metrics()
                .await
                .contains("samewire_model_fallbacks_total{"),
            "{status}"
        );
        world.end().await;
    }
}

/// Nothing is left: the client gets the last failure, and the retry rules count all models together.
#[tokio::test]
async fn fault_u58_when_no_model_answers_the_client_is_told() {
    let full = || refused("503 Service Unavailable");
    let engines = vec![
        listing(&["big"], full()).await,
        listing(&["small"], full()).await,
    ];
    let world = fleet(engines, CHAT, &[]).await;
    let answer = world.request(&of("chat")).await;
    assert_eq!(
        (
            answer.head.status,
            answer.head.header("x-samewire-attempts")
        ),
        (503, Some("2"))
    );
    let answer = world.request(&of("chat")).await;
    assert_eq!(answer.head.status, 503, "both have requested a pause");
    assert!(answer.head.header("retry-after").is_some());
    assert_eq!(world.attempt_counts(), [1, 1]);
    world.end().await;
}

#[tokio::test]
async fn weights_share_the_requests_and_conversations_keep_their_model() {
    let engines = vec![
        listing(&["old"], whole("old")).await,
        listing(&["new"], whole("new")).await,
    ];
    let config = "[affinity]\nby = \"header\"\nheader = \"x-session\"\n[[model]]\nname = \"chat\"\nto = [{ model = \"old\", weight = 80 }, { model = \"new\", weight = 20 }]";
    let world = fleet(engines, config, &[]).await;
    for _ in 0..100 {
        assert_eq!(world.request(&of("chat")).await.head.status, 200);
    }
    let shares = world.attempt_counts();
    assert!((5..=40).contains(&shares[1]), "a fifth: {shares:?}");
    let mut seen = BTreeSet::new();
    for session in 0..30 {
        let request = of("chat").header("x-session", &session.to_string());
        let first = world.request(&request).await;
        let model = served(&first).0.unwrap().to_owned();
        for _ in 0..3 {
            assert_eq!(
                served(&world.request(&request).await).0,
                Some(model.as_str()),
                "session {session}"
            );
        }
        seen.insert(model);
    }
    assert_eq!(seen, ["new", "old"].map(str::to_owned).into());
    world.end().await;
}

/// Adapters of one engine, of which the newer one gets a share; and a name that an engine has too.
#[tokio::test]
async fn one_engine_may_serve_all_models_of_a_name() {
    let engine = listing(&["chat", "adapter"], whole("x")).await;
    let config = "[[model]]\nname = \"chat\"\nto = [{ model = \"chat\" }, { model = \"adapter\" }]";
    let world = fleet(vec![engine], config, &[]).await;
    for _ in 0..40 {
        let answer = world.request(&of("chat")).await;
        assert_eq!(object(&answer)["model"], "x", "by default the engine's own");
        assert!(matches!(served(&answer).0, Some("chat" | "adapter")));
    }
    assert_eq!(
        requested(&world.engine),
        ["adapter", "chat"].map(str::to_owned).into()
    );
    // A model with its own name needs no header.
    assert_eq!(
        served(&world.request(&of("adapter")).await),
        (None, Some("1"))
    );
    world.end().await;
}

#[tokio::test]
async fn keys_are_checked_for_the_name_that_the_client_asks_for() {
    let engines = vec![
        listing(&["big"], refused("503 Busy")).await,
        listing(&["small"], whole("small")).await,
    ];
    let world = fleet(
        engines,
        &format!("{}{CHAT}", entry(KEY, "models = [\"chat\"]")),
        &[],
    )
    .await;
    let answer = world.request(&with(&of("chat"), KEY)).await;
    assert_eq!(
        (answer.head.status, served(&answer).0),
        (200, Some("small")),
        "{}",
        answer.text()
    );
    for model in ["big", "small"] {
        assert_eq!(
            world.request(&with(&of(model), KEY)).await.head.status,
            404,
            "{model}"
        );
    }
    let listed = object(&world.request(&with(&Request::get("/v1/models"), KEY)).await);
    let listed = listed["data"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["id"]), (1, &json!("chat")));
    assert_eq!(
        listed[0]["context_length"], 300,
        "the shortest of those that may answer"
    );
    assert_eq!(
        world
            .request(&with(&Request::get("/v1/models/chat"), KEY))
            .await
            .head
            .status,
        200
    );
    world.end().await;
}

/// Other routes resolve names as well, and a stored response continues with the name that made it.
#[tokio::test]
async fn every_route_asks_the_model_behind_the_name() {
    let vectors = json!({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "small", "usage": {"prompt_tokens": 1, "total_tokens": 1}});
    let small = Engine::answering(move |attempt| match attempt.target.as_str() {
        "/v1/embeddings" => Script::ok(&vectors),
        "/v1/rerank" => Script::ok(r#"{"results":[]}"#),
        _ => whole("small"),
    });
    let small = small.await;
    small.set_models(list(&["small"]));
    let world = fleet(
        vec![listing(&["big"], refused("503 Busy")).await, small],
        CHAT,
        &[],
    )
    .await;
    let post = |path: &str, body: Value| Request::post(path, body.to_string());
    let first = world
        .request(&post(
            "/v1/responses",
            json!({"model": "chat", "input": "x", "store": true}),
        ))
        .await;
    assert_eq!(served(&first).0, Some("small"));
    let first = object(&first);
    assert_eq!(first["model"], "chat");
    let next = json!({"model": "chat", "input": "y", "previous_response_id": first["id"]});
    let next = world.request(&post("/v1/responses", next)).await;
    assert_eq!(
        (object(&next)["model"].as_str(), served(&next).0),
        (Some("chat"), Some("small"))
    );
    let body =
        json!({"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]});
    let message = world
        .request(&post("/v1/messages", body).header("anthropic-version", "2023-06-01"))
        .await;
    assert_eq!(
        (object(&message)["model"].as_str(), served(&message).0),
        (Some("chat"), Some("small"))
    );
    let vector = world
        .request(&post(
            "/v1/embeddings",
            json!({"model": "chat", "input": "x"}),
        ))
        .await;
    assert_eq!(
        (object(&vector)["model"].as_str(), served(&vector).0),
        (Some("small"), Some("small"))
    );
    let body = json!({"model": "chat", "query": "x", "documents": ["y"]});
    let ranked = world.request(&post("/v1/rerank", body)).await;
    assert_eq!(
        (ranked.head.status, served(&ranked).0),
        (200, Some("small")),
        "{}",
        ranked.text()
    );
    assert_eq!(requested(&world.others[0]), ["small".to_owned()].into());
    world.end().await;
}

#[tokio::test]
async fn a_reload_changes_what_a_name_stands_for() {
    let engines = vec![
        listing(&["old"], whole("old")).await,
        listing(&["new"], whole("new")).await,
    ];
    let urls: Vec<_> = engines.iter().map(Engine::url).collect();
    let name =
        |model: &str| format!("[[model]]\nname = \"chat\"\nto = [{{ model = \"{model}\" }}]\n");
    let world = fleet(engines, &name("old"), &[]).await;
    assert_eq!(served(&world.request(&of("chat")).await).0, Some("old"));
    let upstreams: String = urls
        .iter()
        .enumerate()
        .map(|(n, url)| {
            format!("[[upstream]]\nname = \"e{n}\"\nurl = \"{url}\"\nengine = \"vllm\"\n")
        })
        .collect();
    world
        .samewire
        .reconfigure(&format!("{PATIENT}\n{}{upstreams}", name("new")))
        .await;
    assert_eq!(served(&world.request(&of("chat")).await).0, Some("new"));
    world.end().await;
}

/// An engine that gives one choice gets a request for each. All of them come from the first model.
#[tokio::test]
async fn fault_u58_the_choices_of_one_answer_come_from_one_model() {
    let front = "front_end = \"rust\"\nengine_version = \"0.22.0\"";
    let big = Engine::answering(|attempt| match attempt.header("x-request-id") {
        Some(id) if id.ends_with("-1-1") => refused("503 Service Unavailable"),
        _ => whole("big"),
    });
    let big = big.await;
    big.set_models(list(&["big"]));
    let world = fleet(
        vec![big, listing(&["small"], whole("small")).await],
        CHAT,
        &[front, front],
    )
    .await;
    let body = json!({"model": "chat", "n": 2, "messages": [{"role": "user", "content": "x"}]});
    world.chat(body.to_string()).await.with_status(503);
    assert_eq!(world.attempt_counts(), [2, 0]);
    // Where the first model is known to be full, the other one makes all of them.
    let answer = world.chat(body.to_string()).await;
    assert_eq!(
        (answer.head.status, served(&answer).0),
        (200, Some("small")),
        "{}",
        answer.text()
    );
    assert_eq!(object(&answer)["choices"].as_array().map(Vec::len), Some(2));
    assert_eq!(world.attempt_counts(), [2, 2]);
    world.end().await;
}

#[tokio::test]
async fn a_target_may_name_the_only_upstream_that_is_asked() {
    let engines = vec![
        listing(&["m"], whole("m")).await,
        listing(&["m"], whole("m")).await,
    ];
    let config = "[[model]]\nname = \"chat\"\nto = [{ model = \"m\", upstream = \"e1\" }]";
    let world = fleet(engines, config, &[]).await;
    for _ in 0..20 {
        assert_eq!(
            served(&world.request(&of("chat")).await),
            (Some("m"), Some("1"))
        );
    }
    assert_eq!(world.attempt_counts(), [0, 20]);
    world.end().await;
}
