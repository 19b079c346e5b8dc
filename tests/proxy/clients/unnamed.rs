//! Requests without a model (wire-format 2.10).

use crate::clients::keys::{OTHER, entry, with};
use crate::responses::over_chat::ask;
use crate::sim::prelude::*;

/// Ways to omit the model.
const NAMELESS: [&str; 3] = ["", r#""model":null,"#, r#""model":"","#];

fn chat(model: &str) -> Request {
    Request::chat(format!(
        r#"{{{model}"messages":[{{"role":"user","content":"x"}}],"stream":true}}"#
    ))
}

fn list(models: Value) -> Script {
    Script::ok(json!({"object": "list", "data": models}))
}

/// Starts an engine that lists these models, and answers as the one requested.
async fn listing(names: &[&str]) -> Engine {
    let engine = Engine::answering(|attempt| match attempt.text().contains("\"prompt\"") {
        true => Script::ok(r#"{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}]}"#),
        false => Script::answer("a", 1),
    })
    .await;
    let models: Vec<_> = names
        .iter()
        .map(|id| json!({"id": id, "object": "model", "created": 1, "owned_by": "vllm"}))
        .collect();
    engine.set_models(list(json!(models)));
    engine
}

/// Returns the model named in the last request to an engine.
fn requested(engine: &Engine) -> Option<String> {
    let body = engine.attempts().last().unwrap().json();
    body["model"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn the_only_model_is_meant() {
    let world = World::start(listing(&["only"]), Setup::new()).await;
    world.wait_until_up().await;
    for model in NAMELESS {
        let requests = [
            chat(model),
            Request::post("/v1/completions", format!(r#"{{{model}"prompt":"a"}}"#)),
            ask(&format!(r#"{model}"input":"a","stream":true"#)),
        ];
        for request in requests {
            let answer = world.request(&request).await;
            assert_eq!(
                answer.head.status,
                200,
                "{model} {}: {}",
                request.path(),
                answer.text()
            );
            assert_eq!(
                requested(&world.engine).as_deref(),
                Some("only"),
                "{model} {}",
                request.path()
            );
        }
    }
    let mut socket = Socket::open(world.proxy()).await;
    socket
        .send(r#"{"type":"response.create","input":"a"}"#)
        .await;
    assert_eq!(
        socket.response().await.last().unwrap()["type"],
        "response.completed"
    );
    assert_eq!(requested(&world.engine).as_deref(), Some("only"));
    world.end().await;
}

#[tokio::test]
async fn embeddings_are_of_the_only_model() {
    let answer = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"only","usage":{"prompt_tokens":1,"total_tokens":1}}"#;
    let engine = Engine::script(Script::ok(answer)).await;
    engine.set_models(list(json!([{"id": "only"}])));
    let world = World::start(engine, Setup::new()).await;
    world
        .post("/v1/embeddings", r#"{"input":"a"}"#)
        .await
        .with_status(200);
    assert_eq!(requested(&world.engine).as_deref(), Some("only"));
    world.end().await;
}

#[tokio::test]
async fn one_of_several_has_to_be_named() {
    let world = World::start(listing(&["a", "b"]), Setup::new()).await;
    world.wait_until_up().await;
    for request in [
        chat(""),
        ask(r#""input":"a""#),
        Request::post("/v1/embeddings", r#"{"input":"a"}"#),
    ] {
        let answer = world.request(&request).await;
        let fault = answer.fault();
        assert_eq!(
            (answer.head.status, fault.param.as_deref()),
            (400, Some("model")),
            "{}",
            answer.text()
        );
        assert_eq!(fault.code.as_deref(), Some("missing_required_parameter"));
        assert!(fault.message.contains("`a`, `b`"), "{}", fault.message);
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn the_operator_says_which_one_is_meant() {
    let models =
        "[[model]]\nname = \"b\"\naliases = [\"house\"]\ndefaults = { temperature = 0.25 }\n";
    let setup = Setup::new()
        .config("default_model = \"house\"")
        .config(models);
    let world = World::start(listing(&["a", "b"]), setup).await;
    for model in NAMELESS {
        for request in [
            chat(model),
            ask(&format!(r#"{model}"input":"a","stream":true"#)),
        ] {
            world.request(&request).await.with_status(200);
            assert_eq!(requested(&world.engine).as_deref(), Some("b"));
            let sent = world.engine.attempts().last().unwrap().text().to_owned();
            assert!(
                sent.contains(r#""temperature":0.25"#),
                "its defaults are: {sent}"
            );
        }
    }
    world.end().await;
}

/// Adapters, and further names of the same weights, do not make the model ambiguous: the engine's first name is
/// used.
#[tokio::test]
async fn adapters_do_not_make_several() {
    let engine = listing(&[]).await;
    engine.set_models(list(json!([
        {"id": "base", "root": "/weights", "parent": null},
        {"id": "gpt-4o", "root": "/weights", "parent": null},
        {"id": "lora", "root": "/lora", "parent": "base"},
    ])));
    let world = World::start(engine, Setup::new()).await;
    world.wait_until_up().await;
    assert_eq!(world.request(&chat("")).await.head.status, 200);
    assert_eq!(requested(&world.engine).as_deref(), Some("base"));
    world.end().await;
}

/// An engine that lists no models chooses the model itself.
#[tokio::test]
async fn an_engine_that_lists_nothing_chooses_by_itself() {
    let engine = listing(&[]).await;
    engine.set_models(Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#));
    let world = World::start(engine, Setup::new()).await;
    for request in [chat(""), ask(r#""input":"a","stream":true"#)] {
        world.request(&request).await.with_status(200);
        assert_eq!(requested(&world.engine), None);
    }
    world.end().await;
}

/// The list is fetched, with the client's key, if it is not known yet.
#[tokio::test]
async fn the_list_is_asked_for_where_it_is_not_known() {
    let engine = listing(&["only"]).await;
    let world = World::start(engine, Setup::new().config("[health]\ninterval = 600")).await;
    // Works whether or not the first probe has completed.
    assert_eq!(world.request(&chat("")).await.head.status, 200);
    assert_eq!(requested(&world.engine).as_deref(), Some("only"));
    world.end().await;
}

/// The default model is the only one that the client's key may use, if there are several.
#[tokio::test]
async fn a_key_means_what_it_may_use() {
    let config = entry(KEY, "models = [\"b\"]") + &entry(OTHER, "");
    let setup = Setup::new().config("default_model = \"a\"").config(&config);
    let world = World::start(listing(&["a", "b", "c"]), setup).await;
    world.wait_until_up().await;
    assert_eq!(world.request(&chat("")).await.head.status, 200);
    assert_eq!(requested(&world.engine).as_deref(), Some("b"));
    assert_eq!(
        world.request(&with(&chat(""), OTHER)).await.head.status,
        200
    );
    assert_eq!(requested(&world.engine).as_deref(), Some("a"));
    world.end().await;
}

#[tokio::test]
async fn of_several_engines_the_one_model_that_all_have_is_meant() {
    let engines = [listing(&["m"]), listing(&["m"])];
    let world = World::fleet_up(engines, Setup::new(), &[]).await;
    for request in [chat(""), ask(r#""input":"a","stream":true"#)] {
        world.request(&request).await.with_status(200);
    }
    let all = world
        .engines()
        .flat_map(Engine::attempts)
        .map(|attempt| attempt.text().to_owned());
    assert!(all.into_iter().all(|body| body.contains(r#""model":"m""#)));
    world.end().await;
}
