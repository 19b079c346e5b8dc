//! Lists of models as clients of Anthropic read them, and the names by which models are requested.

use crate::clients::keys::{OTHER, entry};
use crate::messages::{
    engine as plain, fault, has_no_header_of_openai, message, object, post, sent, with_api_key,
};
use crate::sim::prelude::*;

/// Starts an engine that lists these models.
async fn listing(models: &[(&str, Option<u64>)]) -> Engine {
    let engine = plain().await;
    let all: Vec<_> = models
        .iter()
        .map(|(id, length)| json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "vllm", "max_model_len": length}))
        .collect();
    engine.set_models(Script::ok(json!({"object": "list", "data": all})));
    engine
}

fn get(target: &str) -> Request {
    Request::get(target).header("anthropic-version", "2023-06-01")
}

fn parsed(answer: &Answer) -> Value {
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    assert!(answer.head.header("request-id").is_some());
    has_no_header_of_openai(answer);
    answer.json()
}

fn ids(page: &Value) -> Vec<&str> {
    page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect()
}

fn of(model: &str) -> Request {
    let body = json!({"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": PROMPT}]});
    post(body.to_string())
}

fn info(id: &str, tokens: Option<u64>) -> Value {
    json!({"type": "model", "id": id, "display_name": id, "created_at": "2023-11-14T22:13:20Z", "max_input_tokens": tokens, "max_tokens": tokens, "capabilities": null, "lifecycle": "active", "line": null, "deprecated_at": null, "retires_at": null})
}

#[tokio::test]
async fn models_are_told_in_the_clients_own_shape() {
    let world = World::start(
        listing(&[("org/one", Some(2048)), ("two", None)]),
        Setup::new(),
    )
    .await;
    let list = parsed(&world.request(&get("/v1/models")).await);
    let expected = json!({
        "data": [info("org/one", Some(2048)), info("two", None)],
        "has_more": false, "first_id": "org/one", "last_id": "two",
    });
    assert_eq!(list, expected);
    for target in [
        "/v1/models/org/one",
        "/v1/models/org%2Fone",
        "/v1/models/org/one?beta=true",
    ] {
        assert_eq!(
            parsed(&world.request(&get(target)).await),
            expected["data"][0],
            "{target}"
        );
    }
    let told = fault(&world.request(&get("/v1/models/three")).await);
    assert_eq!(
        told.name(),
        (404, "not_found_error", Some("model_not_found"))
    );
    // Without the header, the list is OpenAI's.
    let theirs = world.get("/v1/models").await.json();
    assert_eq!(
        (&theirs["object"], &theirs["data"][0]["object"]),
        (&json!("list"), &json!("model"))
    );
    world.get("/v1/models/three").await.with_status(404).fault();
    // With the header, another method is refused in this API's form.
    let posted = Request::post("/v1/models", "{}").header("anthropic-version", "x");
    assert_eq!(fault(&world.request(&posted).await).status, 405);
    world.end().await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let names: Vec<String> = (0..25).map(|n| format!("m{n:02}")).collect();
    let models: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
    let world = World::start(listing(&models), Setup::new()).await;
    let rows: [(&str, std::ops::Range<usize>, bool); 12] = [
        ("", 0..20, true),
        ("?limit=25", 0..25, false),
        ("?limit=1000", 0..25, false),
        ("?limit=3", 0..3, true),
        ("?limit=3&after_id=m02", 3..6, true),
        ("?after_id=m04", 5..25, false),
        ("?limit=3&after_id=m21", 22..25, false),
        ("?after_id=m24", 25..25, false),
        ("?limit=3&before_id=m10", 7..10, true),
        ("?limit=3&before_id=m02", 0..2, false),
        ("?before_id=m00", 0..0, false),
        ("?limit=2&after_id=m03&before_id=m06", 4..6, false),
    ];
    for (query, range, has_more) in rows {
        let page = parsed(&world.request(&get(&format!("/v1/models{query}"))).await);
        assert_eq!(ids(&page), &names[range.clone()], "{query}");
        assert_eq!(page["has_more"], has_more, "{query}");
        let of = |at: Option<usize>| at.map_or(Value::Null, |at| json!(names[at]));
        let (first, last) = (range.clone().next(), range.last());
        assert_eq!(
            (&page["first_id"], &page["last_id"]),
            (&of(first), &of(last)),
            "{query}"
        );
    }
    // A client that follows `last_id` sees each model once.
    let (mut seen, mut query) = (Vec::new(), "?limit=7".to_owned());
    loop {
        let page = parsed(&world.request(&get(&format!("/v1/models{query}"))).await);
        seen.extend(ids(&page).into_iter().map(ToOwned::to_owned));
        if page["has_more"] == false {
            break;
        }
        query = format!("?limit=7&after_id={}", page["last_id"].as_str().unwrap());
    }
    assert_eq!(seen, names);
    for query in [
        "?limit=0",
        "?limit=1001",
        "?limit=-1",
        "?limit=ten",
        "?limit=",
        "?limit=1.5",
    ] {
        let told = fault(&world.request(&get(&format!("/v1/models{query}"))).await);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (400, "invalid_request_error"),
            "{query}"
        );
        assert!(told.message.contains("limit"), "{told:?}");
    }
    world.end().await;
}

/// The names of models that have a slash are encoded in the query, as the libraries do it.
#[tokio::test]
async fn ids_in_a_query_may_be_encoded() {
    let world = World::start(listing(&[("org/one", None), ("two", None)]), Setup::new()).await;
    for id in ["org/one", "org%2Fone"] {
        let page = parsed(
            &world
                .request(&get(&format!("/v1/models?after_id={id}")))
                .await,
        );
        assert_eq!(ids(&page), ["two"], "{id}");
        let page = parsed(
            &world
                .request(&get(&format!("/v1/models?before_id={id}")))
                .await,
        );
        assert!(ids(&page).is_empty(), "{id}");
    }
    world.end().await;
}

/// Claude Code requests models by Anthropic's names, which the configuration gives to a model of the engine.
#[tokio::test]
async fn patterns_lead_to_the_model() {
    let models = "[[model]]\nname = \"big\"\naliases = [\"claude-*\", \"claude-exact\"]\n\
                  [[model]]\nname = \"small\"\naliases = [\"claude-3-5-haiku-*\", \"claude-3-5-haiku-latest\", \"*-mini\"]\n";
    let engine = listing(&[
        ("big", Some(4096)),
        ("small", Some(512)),
        ("claude-listed", None),
    ])
    .await;
    let world = World::start(engine, Setup::new().config(models)).await;
    world.wait_until_up().await;
    for (asked, model) in [
        ("claude-sonnet-4-5", "big"),
        ("claude-opus-4-5-20251101", "big"),
        ("claude-exact", "big"),
        ("claude-3-5-haiku-latest", "small"),
        ("gpt-4o-mini", "small"),
        ("big", "big"),
        ("claude-listed", "claude-listed"),
        ("Claude-x", "Claude-x"),
    ] {
        let n = world.engine.attempt_count();
        let answer = object(&world.request(&of(asked)).await);
        assert_eq!(sent(&world.engine, n)["model"], model, "{asked}");
        assert_eq!(answer["role"], "assistant");
    }
    let list = parsed(&world.request(&get("/v1/models")).await);
    assert_eq!(
        ids(&list),
        [
            "big",
            "small",
            "claude-listed",
            "claude-exact",
            "claude-3-5-haiku-latest"
        ],
        "patterns are no names"
    );
    let one = parsed(&world.request(&get("/v1/models/claude-sonnet-4-5")).await);
    assert_eq!(one, info("claude-sonnet-4-5", Some(4096)));
    let theirs = world.get("/v1/models/claude-sonnet-4-5").await.json();
    assert_eq!(
        (&theirs["id"], &theirs["object"]),
        (&json!("claude-sonnet-4-5"), &json!("model"))
    );
    assert_eq!(
        fault(&world.request(&get("/v1/models/gpt-5")).await).status,
        404
    );
    // The pattern itself is no name either: a client cannot request it.
    assert_eq!(
        fault(&world.request(&get("/v1/models/*-maxi")).await).status,
        404
    );
    world.end().await;
}

/// Patterns serve every API alike; the name in the answer is the engine's own or the client's, as configured.
#[tokio::test]
async fn patterns_serve_every_api() {
    let models = "[[model]]\nname = \"m\"\naliases = [\"claude-*\"]\nwire = { model_name = \"requested\" }\n";
    let world = World::start(plain(), Setup::new().config(models)).await;
    assert_eq!(
        object(&world.request(&of("claude-sonnet-4-5")).await)["model"],
        "claude-sonnet-4-5"
    );
    let chat = r#"{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"x"}]}"#;
    let chat = world.chat(chat).await.json();
    assert_eq!(chat["model"], "claude-sonnet-4-5");
    assert!((0..2).all(|n| sent(&world.engine, n)["model"] == "m"));
    world.end().await;
}

#[tokio::test]
async fn fault_c31_patterns_of_keys() {
    let keys =
        entry(KEY, "models = [\"claude-*\"]") + &entry(OTHER, "models = [\"big\", \"claude-3-*\"]");
    let models = "[[model]]\nname = \"big\"\naliases = [\"claude-*\", \"claude-named\"]\n";
    let engine = listing(&[("big", None), ("small", None)]).await;
    let world = World::start(engine, Setup::new().config(models).config(&keys)).await;
    world.wait_until_up().await;
    for (key, model, status) in [
        (KEY, "claude-sonnet-4-5", 200),
        (KEY, "claude-named", 200),
        (KEY, "big", 404),
        (KEY, "small", 404),
        (OTHER, "big", 200),
        (OTHER, "claude-3-haiku", 200),
        (OTHER, "claude-sonnet-4-5", 404),
    ] {
        let answer = world.request(&with_api_key(&of(model), key)).await;
        assert_eq!(answer.head.status, status, "{model}: {}", answer.text());
        let one = world
            .request(&with_api_key(&get(&format!("/v1/models/{model}")), key))
            .await;
        assert_eq!(one.head.status, status, "{model}: {}", one.text());
    }
    let list = parsed(&world.request(&with_api_key(&get("/v1/models"), KEY)).await);
    assert_eq!(ids(&list), ["claude-named"]);
    let list = parsed(
        &world
            .request(&with_api_key(&get("/v1/models"), OTHER))
            .await,
    );
    assert_eq!(ids(&list), ["big"]);
    world.end().await;
}

/// A request without a model goes to the only one that there is, and the answer names it.
#[tokio::test]
async fn a_request_without_a_model() {
    let world = World::start(listing(&[("only", None)]), Setup::new()).await;
    let body = format!(r#"{{"max_tokens":9,"messages":[{{"role":"user","content":"{PROMPT}"}}]}}"#);
    object(&world.request(&post(body)).await);
    assert_eq!(sent(&world.engine, 0)["model"], "only");
    assert_eq!(object(&world.request(&message("")).await)["model"], "m");
    world.end().await;
}

/// Claude Code that is told nothing but the address names models of Anthropic's.
#[tokio::test]
async fn the_only_model_answers_for_anthropics() {
    let engine = listing(&[("only", None)]).await;
    // Before the first probe, too.
    let world = World::start(engine, Setup::new().config("[health]\ninterval = 600")).await;
    for name in [
        "claude-opus-5-5",
        "claude-opus-5-5",
        "claude-haiku-4-5-20251001",
    ] {
        object(&world.request(&of(name)).await);
        let count = of(name).target("/v1/messages/count_tokens");
        assert_eq!(world.request(&count).await.head.status, 200, "{name}");
    }
    object(&world.request(&of("Claude-x")).await);
    let chat = r#"{"model":"claude-opus-5-5","messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(world.chat(chat).await.head.status, 200);
    let attempts = world.engine.attempts();
    let asked = attempts
        .iter()
        .filter(|attempt| attempt.target == "/v1/chat/completions");
    let asked: Vec<Value> = asked.map(|attempt| attempt.json()).collect();
    let (others, meant): (Vec<_>, Vec<_>) = asked.iter().partition(|body| body["model"] != "only");
    assert!(meant.len() >= 3, "{asked:?}");
    let others: Vec<_> = others
        .iter()
        .map(|body| body["model"].as_str().unwrap())
        .collect();
    assert_eq!(
        others,
        ["Claude-x", "claude-opus-5-5"],
        "no name of Anthropic's, and a route without them"
    );
    let told = world.samewire.logged("200,000 tokens", 2).await;
    for (line, name) in told
        .iter()
        .zip(["claude-opus-5-5", "claude-haiku-4-5-20251001"])
    {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["asked"], &line["model"]),
            (&json!(name), &json!("only")),
            "{line}"
        );
        assert_eq!(line["level"], "WARN", "{line}");
    }
    world.end().await;
}

#[tokio::test]
async fn one_of_several_answers_for_anthropics_where_the_operator_says_which() {
    for (config, asked) in [("", "claude-opus-5-5"), ("default_model = \"two\"", "two")] {
        let engine = listing(&[("one", None), ("two", None)]).await;
        let world = World::start(engine, Setup::new().config(config)).await;
        object(&world.request(&of("claude-opus-5-5")).await);
        assert_eq!(sent(&world.engine, 0)["model"], asked, "{config}");
        world.end().await;
    }
}
