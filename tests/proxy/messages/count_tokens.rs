//! Counts of tokens before a request is sent: by the engine's tokenizer, or where it has no route for that, by an
//! answer of one token.

use crate::clients::keys::{OTHER, entry};
use crate::messages::{fault, has_no_header_of_openai, sent, with_api_key};
use crate::pool::PATIENT;
use crate::sim::prelude::*;

const COUNT: &str = "/v1/messages/count_tokens";

/// Returns a request for a count, with further members.
fn ask(more: Value) -> Request {
    let mut body = json!({"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": PROMPT}]});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Request::post(COUNT, body.to_string()).header("anthropic-version", "2023-06-01")
}

fn counted(answer: &Answer) -> u64 {
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    assert_eq!(answer.head.header("content-type"), Some("application/json"));
    assert!(answer.head.header("request-id").is_some());
    has_no_header_of_openai(answer);
    let body = answer.json();
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    body["input_tokens"]
        .as_u64()
        .unwrap_or_else(|| panic!("{body}"))
}

/// Starts an engine that answers each path by its own script.
async fn engine(paths: Vec<(&'static str, Script)>) -> Engine {
    Engine::answering(move |attempt| {
        let found = paths.iter().find(|(path, _)| attempt.target == *path);
        let missing = || Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#);
        found.map_or_else(missing, |(_, script)| script.clone())
    })
    .await
}

fn json_of(body: Value) -> Script {
    Script::ok(body)
}

/// Returns a chat answer that cost this many tokens of input.
fn chat(prompt: u64) -> Script {
    json_of(json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "H"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": 1, "total_tokens": prompt + 1},
    }))
}

#[tokio::test]
async fn the_engines_tokenizer_counts() {
    let tokenize = json_of(
        json!({"count": 172, "max_model_len": 4096, "tokens": [1, 2, 3], "token_strs": null}),
    );
    let world = World::start(engine(vec![("/tokenize", tokenize)]), Setup::new()).await;
    let tools = json!([{"name": "f", "description": "does f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}]);
    let answer = world
        .request(&ask(
            json!({"tools": tools, "thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ))
        .await;
    assert_eq!(counted(&answer), 172);
    assert_eq!(
        answer.head.header("x-samewire-dropped"),
        Some("tools[1].web_search_20250305")
    );
    assert_eq!(
        answer.head.header("x-samewire-estimate"),
        None,
        "the engine's own count is exact"
    );
    let attempt = world.engine.only();
    assert_eq!(
        (attempt.method.as_str(), attempt.target.as_str()),
        ("POST", "/tokenize")
    );
    let body = sent(&world.engine, 0);
    assert_eq!(body["model"], "m");
    assert_eq!(
        body["messages"],
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}])
    );
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}}}])
    );
    assert!(
        body.get("stream").is_none() && body.get("max_completion_tokens").is_none(),
        "{body}"
    );
    // Fields that requests for answers have, and counts need not, are accepted.
    assert_eq!(
        counted(
            &world
                .request(&ask(json!({"max_tokens": 5, "stream": true})))
                .await
        ),
        172
    );
    let beta = ask(json!({})).target("/v1/messages/count_tokens?beta=true");
    assert_eq!(counted(&world.request(&beta).await), 172);
    world.end().await;
}

/// An answer of one token counts where the engine has no such route, or one for texts alone.
#[tokio::test]
async fn an_answer_of_one_token_counts() {
    let missing = r#"{"object":"error","message":"[{'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}]","type":"Bad Request","param":null,"code":400}"#;
    let detail =
        r#"{"detail":[{"type":"missing","loc":["body","prompt"],"msg":"Field required"}]}"#;
    for (kind, tokenize) in [
        (
            "vllm",
            Script::new().json("404 Not Found", r#"{"detail":"Not Found"}"#),
        ),
        (
            "vllm",
            Script::new().json(
                "405 Method Not Allowed",
                r#"{"detail":"Method Not Allowed"}"#,
            ),
        ),
        (
            "vllm",
            Script::new().json("501 Not Implemented", r#"{"error":{"message":"no"}}"#),
        ),
        ("vllm", json_of(json!({"tokens": [1]}))),
        ("vllm", json_of(json!({"count": "many"}))),
        ("sglang", Script::new().json("400 Bad Request", missing)),
        (
            "sglang",
            Script::new().json("422 Unprocessable Entity", detail),
        ),
    ] {
        let engine = engine(vec![
            ("/tokenize", tokenize),
            ("/v1/chat/completions", chat(31)),
        ])
        .await;
        let world = World::start_as(engine, kind, Setup::new().allow_errors()).await;
        assert_eq!(
            counted(&world.request(&ask(json!({"max_tokens": 900}))).await),
            31,
            "{kind}"
        );
        let attempts = world.engine.attempts();
        let targets: Vec<_> = attempts
            .iter()
            .map(|attempt| attempt.target.as_str())
            .collect();
        assert_eq!(targets, ["/tokenize", "/v1/chat/completions"], "{kind}");
        let body = sent(&world.engine, 1);
        let limit = body
            .get("max_completion_tokens")
            .or_else(|| body.get("max_tokens"));
        assert_eq!(limit, Some(&json!(1)), "{body}");
        assert!(body.get("stream").is_none(), "{body}");
        // The engine did what was requested, and stays as healthy as before.
        // One token is no call, so a forced one is not requested, whatever the tool is called.
        let tools = json!([{"name": "none", "input_schema": {"type": "object"}}]);
        let forced = json!({"tools": tools, "tool_choice": {"type": "tool", "name": "none"}});
        assert_eq!(counted(&world.request(&ask(forced)).await), 31);
        let body = sent(&world.engine, world.engine.attempts().len() - 1);
        assert_eq!(
            (
                body.get("tool_choice"),
                body["tools"].as_array().map(Vec::len)
            ),
            (None, Some(1)),
            "{body}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn errors_of_engines_are_told_and_not_counted_around() {
    let error = |code: u16| {
        format!(r#"{{"error":{{"message":"said","type":"x","param":null,"code":{code}}}}}"#)
    };
    let unknown = r#"{"error":{"message":"The model `m` does not exist.","type":"NotFoundError","param":null,"code":404}}"#;
    for (script, expected) in [
        (
            Script::new().json("400 Bad", &error(400)),
            (400, "invalid_request_error", None),
        ),
        (
            Script::new().json("404 Bad", unknown),
            (404, "not_found_error", Some("model_not_found")),
        ),
        (
            Script::new().json("429 Bad", &error(429)),
            (429, "rate_limit_error", Some("rate_limit_exceeded")),
        ),
        (
            Script::new().json("500 Bad", &error(500)),
            (500, "api_error", Some("internal_error")),
        ),
        (
            Script::new().json("503 Bad", &error(503)),
            (529, "overloaded_error", Some("server_is_overloaded")),
        ),
        (
            Script::new().rst(),
            (500, "api_error", Some("upstream_reset")),
        ),
    ] {
        let engine = engine(vec![
            ("/tokenize", script),
            ("/v1/chat/completions", chat(31)),
        ])
        .await;
        let world = World::start(engine, Setup::new().allow_errors()).await;
        assert_eq!(
            fault(&world.request(&ask(json!({}))).await).name(),
            expected
        );
        assert!(
            world
                .engine
                .attempts()
                .iter()
                .all(|attempt| attempt.target == "/tokenize")
        );
        world.end().await;
    }
    // No usage in the answer of one token: nobody knows.
    let silent = json_of(
        json!({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
    );
    let engine = engine(vec![("/v1/chat/completions", silent)]);
    let told = fault(&World::answer(engine, Setup::new().allow_errors(), &ask(json!({}))).await);
    assert_eq!(
        told.name(),
        (500, "api_error", Some("upstream_invalid_response"))
    );
}

#[tokio::test]
async fn fault_u06_a_count_that_takes_too_long() {
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\nfirst_token = 0.4");
    let told = fault(&World::answer(Script::new().hang(), setup, &ask(json!({}))).await);
    assert_eq!(
        told.name(),
        (504, "timeout_error", Some("upstream_timeout"))
    );
}

#[tokio::test]
async fn fault_c13_requests_that_cannot_be_counted() {
    let world = World::start(json_of(json!({"count": 1})), Setup::new()).await;
    for (more, start) in [
        (json!({"messages": null}), "messages: "),
        (json!({"messages": 7}), "messages: "),
        (json!({"messages": []}), "messages: "),
        (json!({"tools": "f"}), "tools: "),
        (json!({"system": 7}), "system: "),
    ] {
        let told = fault(&world.request(&ask(more)).await);
        assert_eq!(
            (told.status, told.kind.as_str()),
            (400, "invalid_request_error"),
            "{start}"
        );
        assert!(told.message.starts_with(start), "{told:?}");
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn keys_aliases_and_figures() {
    let keys = entry(KEY, "models = [\"claude-*\"]\nname = \"laptop\"") + &entry(OTHER, "");
    let models = "[[model]]\nname = \"m\"\naliases = [\"claude-*\"]\n";
    let world = World::start(
        engine(vec![("/tokenize", json_of(json!({"count": 5})))]),
        Setup::new().config(&keys).config(models),
    )
    .await;
    let named = ask(json!({"model": "claude-sonnet-4-5"}));
    assert_eq!(counted(&world.request(&with_api_key(&named, KEY)).await), 5);
    assert_eq!(
        sent(&world.engine, 0)["model"],
        "m",
        "the engine knows its own name only"
    );
    let told = fault(&world.request(&with_api_key(&ask(json!({})), KEY)).await);
    assert_eq!(
        told.name(),
        (404, "not_found_error", Some("model_not_found"))
    );
    assert_eq!(
        counted(&world.request(&with_api_key(&ask(json!({})), OTHER)).await),
        5
    );
    let line: Value = serde_json::from_str(&world.samewire.finished(3).await[0]).unwrap();
    assert_members(
        &line,
        &json!({"route": "messages", "path": COUNT, "status": 200, "attempts": 1}),
    );
    let labels = ["route=\"messages\"", "status=\"200\""];
    assert_eq!(
        world.samewire.sum("samewire_requests_total", &labels).await,
        2
    );
    world.end().await;
}

/// A count goes to another engine if the first one fails, and to those alone that serve the model.
#[tokio::test]
async fn fault_u11_a_failed_count_is_tried_elsewhere() {
    let setup = Setup::new().allow_errors().config(PATIENT);
    let bad = engine(vec![(
        "/tokenize",
        Script::new().json("503 Busy", r#"{"error":{"message":"busy"}}"#),
    )])
    .await;
    let good = engine(vec![(
        "/tokenize",
        json_of(json!({"count": 8})).sleep(Duration::ZERO),
    )])
    .await;
    let world = World::fleet_up(vec![bad, good], setup, &[]).await;
    for _ in 0..8 {
        assert_eq!(counted(&world.request(&ask(json!({}))).await), 8);
    }
    assert_eq!(world.others[0].attempt_count(), 8);
    world.end().await;
}

/// vLLM's route does not know an effort: its template does.
#[tokio::test]
async fn efforts_are_counted_as_the_chat_has_them() {
    let tokenize = json_of(json!({"count": 9}));
    let world = World::start_as(engine(vec![("/tokenize", tokenize)]), "vllm", Setup::new()).await;
    let mut asked = 0;
    let mut kwargs = async |request: Request| {
        world.request(&request).await.with_status(200);
        asked += 1;
        sent(&world.engine, asked - 1)["chat_template_kwargs"].clone()
    };
    let counting = |more: &str| {
        Request::post(
            "/v1/responses/input_tokens",
            format!(r#"{{"model":"m","input":"a"{more}}}"#),
        )
    };
    let thinking = json!({"output_config": {"effort": "low"}, "thinking": {"type": "adaptive"}});
    assert_eq!(kwargs(ask(thinking)).await["reasoning_effort"], "low");
    assert_eq!(
        kwargs(counting(r#","reasoning":{"effort":"high"}"#)).await,
        json!({"reasoning_effort": "high"})
    );
    let off = kwargs(counting(r#","reasoning":{"effort":"none"}"#)).await;
    assert_eq!(
        (&off["enable_thinking"], &off["reasoning_effort"]),
        (&json!(false), &json!("none")),
        "{off}"
    );
    assert_eq!(kwargs(counting("")).await, Value::Null);
    world.end().await;
}

/// llama.cpp has its own routes for it; its `/tokenize` takes texts alone.
#[tokio::test]
async fn llamacpp_counts_at_its_own_route() {
    let route = "/v1/chat/completions/input_tokens";
    let count = json_of(json!({"object": "response.input_tokens", "input_tokens": 21}));
    let world = World::start_as(engine(vec![(route, count)]), "llamacpp", Setup::new()).await;
    assert_eq!(counted(&world.request(&ask(json!({}))).await), 21);
    let responses = r#"{"model":"m","input":"a","reasoning":{"effort":"low"}}"#;
    let answer = world.post("/v1/responses/input_tokens", responses).await;
    assert_eq!(
        answer.text(),
        r#"{"object":"response.input_tokens","input_tokens":21}"#
    );
    assert!(
        world
            .engine
            .attempts()
            .iter()
            .all(|attempt| attempt.target == route)
    );
    assert_eq!(sent(&world.engine, 1)["reasoning_effort"], "low");
    world.end().await;
}
