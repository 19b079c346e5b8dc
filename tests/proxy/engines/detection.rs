//! Identification of engines: kind, version and front end, from their own answers, and again when something changes
//! (engines G).

use crate::sim::prelude::*;

/// Frequent probes, each with an identification.
const QUICK: &str = "[health]\ninterval = 0.02\ntimeout = 0.5\nidentify = 0";
/// Frequent probes, with one identification at the start and more only for a reason.
const ONCE: &str = "[health]\ninterval = 0.02\ntimeout = 0.5\nidentify = 3600";
/// Log message for a change of identity.
const NEWS: &str = "what the upstream is";

fn listed(owner: &str) -> Script {
    let model = json!({"id": "m", "object": "model", "created": 7, "owned_by": owner});
    Script::ok(json!({"object": "list", "data": [model]}))
}

fn version(text: &str) -> Script {
    Script::ok(json!({"version": text}))
}

/// Returns an answer with a few of the settings that SGLang reports, in the order of its capture.
fn server_info(version: &str, reasoning: Option<&str>, tools: Option<&str>) -> Script {
    let info = json!({
        "model_path": "models/sq", "api_key": null, "served_model_name": "m", "enable_cache_report": true,
        "reasoning_parser": reasoning, "tool_call_parser": tools, "dp_size": 1,
        "internal_states": [{"version": "none of this", "last_gen_throughput": 128.1}], "version": version,
    });
    Script::ok(info)
}

/// Returns the same answer without the header `server`.
fn without_server_header(status: &str, body: &str) -> Script {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: ");
    Script::new().raw(format!("{head}{}\r\n\r\n{body}", body.len()))
}

fn unauthorized() -> Script {
    Script::new().json("401 Unauthorized", r#"{"error":"Unauthorized"}"#)
}

async fn vllm(of: &str) -> Engine {
    let engine = Engine::script(Script::answer("a", 1)).await;
    engine.set_models(listed("vllm"));
    engine.set_route("/version", version(of));
    engine
}

/// Starts an engine that does not identify itself, and a samewire that has to find out.
async fn unknown(answer: Script, setup: Setup) -> World {
    let engine = Engine::script(answer).await;
    engine.set_models(unauthorized());
    World::start_as(engine, "auto", setup).await
}

/// Returns the line that describes the only upstream.
async fn upstream_line(world: &World) -> String {
    let answer = world.samewire.admin("/readyz?verbose").await;
    let line = answer
        .text()
        .lines()
        .find(|line| line.starts_with("upstream="));
    line.expect("a line for the upstream").to_owned()
}

/// Waits until the description contains all of these texts.
async fn becomes(world: &World, what: &[&str]) -> String {
    let mut line = String::new();
    eventually(&format!("{what:?}"), async || {
        line = upstream_line(world).await;
        what.iter()
            .all(|word| line.split(' ').any(|said| said == *word))
    })
    .await;
    line
}

async fn becomes_ready(world: &World) {
    within("it is ready", world.wait_until_up()).await;
}

/// Returns the metric that describes the upstream.
async fn info(world: &World) -> String {
    let metrics = world.samewire.metrics().await;
    let mut all = metrics
        .lines()
        .filter(|line| line.starts_with("samewire_upstream_info{"));
    let (one, more) = (all.next().expect("a series").to_owned(), all.next());
    assert_eq!(more, None, "one for each upstream");
    let (_, rest) = one.split_once("\",").expect("the upstream first");
    rest.to_owned()
}

#[tokio::test]
async fn an_engine_says_what_it_is_before_it_is_asked_for_anything() {
    for (says, expected) in [
        ("0.6.3.post1", "0.6.3.post1"),
        ("0.21.0", "0.21.0"),
        ("0.1.dev1+g1a2b3c4", "unknown"),
    ] {
        let world = World::start_as(vllm(says), "auto", Setup::new().config(ONCE)).await;
        becomes_ready(&world).await;
        let word = if expected == "unknown" {
            "version=unreleased"
        } else {
            &format!("version={expected}")
        };
        let line = upstream_line(&world).await;
        for word in [
            word,
            "engine=vllm",
            "found_by=/v1/models",
            "version_by=/version",
            "front_end=own",
            "ready=yes",
        ] {
            assert!(line.split(' ').any(|known| known == word), "{word}: {line}");
        }
        let labels = format!(r#"engine="vllm",version="{expected}",front_end="own"}} 1"#);
        assert_eq!(info(&world).await, labels);
        world.engine.wait_probes("/v1/models", 5).await;
        assert_eq!(
            world.engine.probe_count("/version"),
            1,
            "it is not requested again and again"
        );
        world.samewire.logged(NEWS, 1).await;
        assert!(
            world
                .samewire
                .admin("/readyz")
                .await
                .text()
                .lines()
                .eq(["ok"]),
            "operators who want more say so"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn sglang_tells_its_version_and_parsers_where_it_tells_them() {
    for (place, of, reasoning, tools) in [
        ("/server_info", "0.5.12", Some("qwen3"), Some("qwen")),
        ("/get_server_info", "0.4.9.post6", None, Some("qwen25")),
        ("/get_server_info", "0.4.0", None, None),
    ] {
        let engine = Engine::script(Script::answer("a", 1)).await;
        engine.set_models(listed("sglang"));
        engine.set_route(place, server_info(of, reasoning, tools));
        let world = World::start_as(engine, "auto", Setup::new().config(ONCE)).await;
        becomes_ready(&world).await;
        let expected = [
            "engine=sglang".to_owned(),
            format!("version={of}"),
            format!("version_by={place}"),
            format!("reasoning_parser={}", reasoning.unwrap_or("none")),
            format!("tool_call_parser={}", tools.unwrap_or("none")),
        ];
        becomes(
            &world,
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
        assert!(
            world.engine.probe_count("/health") > 0
                && world.engine.probe_count("/health_generate") == 0
        );
        world.end().await;
    }
}

#[tokio::test]
async fn other_engines_are_known_too() {
    for (owner, place, says, expected) in [
        (
            "tensorrt_llm",
            "/version",
            version("1.2.0"),
            ["engine=tensorrt_llm", "version=1.2.0"],
        ),
        (
            "llamacpp",
            "/version",
            version("1.2.0"),
            ["engine=llamacpp", "version=unknown"],
        ),
        (
            "lmdeploy",
            "/version",
            version("1.2.0"),
            ["engine=lmdeploy", "version=unknown"],
        ),
        (
            "library",
            "/api/version",
            version("0.12.3"),
            ["engine=ollama", "version=0.12.3"],
        ),
        (
            "somebody",
            "/api/version",
            version("0.12.3"),
            ["engine=ollama", "found_by=/api/version"],
        ),
        (
            "somebody",
            "/version",
            version("0.21.0"),
            ["engine=auto", "version=unknown"],
        ),
    ] {
        let engine = Engine::script(Script::answer("a", 1)).await;
        engine.set_models(listed(owner));
        engine.set_route(place, says);
        let world = World::start_as(engine, "auto", Setup::new().config(QUICK)).await;
        becomes_ready(&world).await;
        world.engine.wait_probes("/v1/models", 2).await;
        becomes(&world, &expected).await;
        assert_eq!(world.stream("").await.head.status, 200);
        world.end().await;
    }
}

/// The health check of a gateway may cost money: one that nobody knows is judged by its list of models, and LiteLLM
/// has a route that costs nothing.
#[tokio::test]
async fn probes_of_a_gateway_cost_nothing() {
    for models in [listed("openai"), unauthorized()] {
        for knows in [false, true] {
            let engine = Engine::script(stream(&[ROLE, VLLM])).await;
            engine.set_models(models.clone());
            engine.set_health(Script::new().hang());
            if knows {
                engine.set_route("/health/liveliness", Script::ok("\"I'm alive!\""));
            }
            let world =
                World::start_as(engine, "auto", Setup::new().config(ONCE).allow_errors()).await;
            becomes_ready(&world).await;
            let expected = if knows {
                ["engine=litellm", "found_by=/health/liveliness"]
            } else {
                ["engine=auto", "found_by=nothing"]
            };
            becomes(&world, &expected).await;
            // The marks of the engine behind it do not cause requests for its health.
            assert_eq!(world.stream("").await.head.status, 200);
            world.engine.wait_probes("/v1/models", 5).await;
            assert_eq!(world.engine.probe_count("/health"), 0);
            assert!(upstream_line(&world).await.contains("ready=yes"));
            if knows {
                becomes(&world, &expected).await;
                let failing = Script::new().whole("500 Internal Server Error", "", "");
                world.engine.set_route("/health/liveliness", failing);
                becomes(&world, &["ready=no"]).await;
            }
            world.end().await;
        }
    }
}

/// An upstream without a list of models gets requests for its health.
#[tokio::test]
async fn what_lists_no_models_has_a_health_check() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    engine.set_models(Script::new().whole("404 Not Found", "", ""));
    let world = World::start_as(engine, "generic", Setup::new().config(QUICK).allow_errors()).await;
    becomes_ready(&world).await;
    assert!(world.engine.probe_count("/health") > 0);
    world
        .engine
        .set_health(Script::new().whole("500 Internal Server Error", "", ""));
    becomes(&world, &["ready=no"]).await;
    world.end().await;
}

/// The Rust front end is recognised: it is not uvicorn and has no Responses. A gateway may hide the former, and an
/// old engine may lack the latter.
#[tokio::test]
async fn the_front_end_in_rust_is_told_from_the_usual_one() {
    let missing = || without_server_header("404 Not Found", "");
    for (of, server, responses, front) in [
        ("0.22.1", None, missing(), "rust"),
        (
            "0.22.1",
            None,
            without_server_header("401 Unauthorized", ""),
            "rust",
        ),
        (
            "0.22.1",
            None,
            without_server_header("405 Method Not Allowed", "{}"),
            "own",
        ),
        (
            "0.22.1",
            None,
            without_server_header("404 Not Found", r#"{"detail":"Not Found"}"#),
            "own",
        ),
        ("0.22.1", Some("gateway"), missing(), "rust"),
        (
            "0.22.1",
            Some("gateway"),
            without_server_header("401 Unauthorized", ""),
            "own",
        ),
        ("0.22.1", Some("uvicorn"), missing(), "own"),
        ("0.9.2", None, missing(), "own"),
    ] {
        let engine = vllm("").await;
        let body = json!({"version": of}).to_string();
        engine.set_route(
            "/version",
            match server {
                None => without_server_header("200 OK", &body),
                Some("uvicorn") => version(of),
                Some(name) => without_server_header(&format!("200 OK\r\nserver: {name}"), &body),
            },
        );
        engine.set_route("/v1/responses", responses);
        let world = World::start_as(engine, "auto", Setup::new().config(ONCE)).await;
        becomes_ready(&world).await;
        let line = becomes(&world, &[&format!("version={of}")]).await;
        assert!(
            line.contains(&format!("front_end={front}")),
            "{of} {server:?}: {line}"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn an_engine_that_refuses_probes_is_identified_by_other_routes() {
    let world = unknown(Script::answer("a", 1), Setup::new().config(QUICK)).await;
    becomes_ready(&world).await;
    becomes(
        &world,
        &["engine=auto", "found_by=nothing", "version=unknown"],
    )
    .await;
    world.engine.set_route("/version", version("0.10.2"));
    world.engine.wait_probes("/v1/models", 4).await;
    becomes(&world, &["engine=auto"]).await;
    let metrics =
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 0.0\n";
    world.engine.set_route(
        "/metrics",
        Script::new().whole("200 OK", "text/plain", metrics),
    );
    becomes(
        &world,
        &["engine=vllm", "found_by=/metrics", "version=0.10.2"],
    )
    .await;
    // Another engine replaces the first.
    world.engine.set_route("/metrics", unauthorized());
    world.engine.set_route("/version", unauthorized());
    world
        .engine
        .set_route("/server_info", server_info("0.5.12", Some("qwen3"), None));
    becomes(
        &world,
        &[
            "engine=sglang",
            "found_by=/server_info",
            "version=0.5.12",
            "reasoning_parser=qwen3",
        ],
    )
    .await;
    world.engine.set_route("/server_info", unauthorized());
    becomes(
        &world,
        &["engine=auto", "found_by=nothing", "version=unknown"],
    )
    .await;
    world.end().await;
}

/// Returns a stream of these events.
fn stream(events: &[&str]) -> Script {
    events
        .iter()
        .fold(Script::new().head_sse(), |script, event| script.ev(event))
        .done()
        .end()
}

const ROLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#;
const VLLM: &str = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]}"#;
const VLLM_USAGE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1},"system_fingerprint":"vllm-0.21.0-0536b55b"}"#;
const SGLANG: &str = r#"{"id":"8d94de008afd4c0ba4cb30e1a28349ab","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"reasoning_content":null,"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}]}"#;
const SGLANG_END: &str = r#"{"id":"8d94de008afd4c0ba4cb30e1a28349ab","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"reasoning_content":null},"logprobs":null,"finish_reason":"stop","matched_stop":32002}]}"#;

#[tokio::test]
async fn an_engine_that_refuses_all_probes_is_identified_by_its_answers() {
    for (events, expected) in [
        (
            &[ROLE, VLLM, VLLM_USAGE][..],
            &[
                "engine=vllm",
                "found_by=answers",
                "version=0.21.0",
                "version_by=answers",
            ][..],
        ),
        (
            &[ROLE, VLLM],
            &["engine=vllm", "found_by=answers", "version=unknown"],
        ),
        (
            &[SGLANG, SGLANG_END],
            &["engine=sglang", "found_by=answers", "version=unknown"],
        ),
    ] {
        let world = unknown(stream(events), Setup::new().config(QUICK)).await;
        becomes_ready(&world).await;
        world.engine.wait_probes("/v1/models", 3).await;
        assert_eq!(world.stream("").await.head.status, 200);
        becomes(&world, expected).await;
        // Probes refused for lack of a key do not discard known facts.
        world.engine.wait_probes("/v1/models", 5).await;
        becomes(&world, expected).await;
        world.end().await;
    }
}

#[tokio::test]
async fn what_a_model_says_names_no_engine() {
    let says = r#"{"matched_stop": 1, "matched_stop":null,"system_fingerprint":"vllm-9.9.9-x","stop_reason":"id":"chatcmpl-"#;
    let world = unknown(
        Script::stream().text(says).stop(),
        Setup::new().config(QUICK),
    )
    .await;
    becomes_ready(&world).await;
    world.engine.wait_probes("/v1/models", 3).await;
    assert!(
        world.stream("").await.text().contains("matched_stop"),
        "the words went through"
    );
    world.engine.wait_probes("/v1/models", 3).await;
    becomes(&world, &["engine=auto", "version=unknown"]).await;
    world.end().await;
}

/// A rolling upgrade behind one address is noticed although the engine is never down.
#[tokio::test]
async fn another_version_under_the_same_address_is_noticed() {
    let world = World::start_as(vllm("0.21.0"), "auto", Setup::new().config(QUICK)).await;
    becomes_ready(&world).await;
    becomes(&world, &["version=0.21.0"]).await;
    for of in ["0.32.0", "0.6.3.post1"] {
        world.engine.set_route("/version", version(of));
        becomes(&world, &[&format!("version={of}"), "engine=vllm"]).await;
        assert_eq!(
            info(&world).await,
            format!(r#"engine="vllm",version="{of}",front_end="own"}} 1"#)
        );
        assert_eq!(world.stream("").await.head.status, 200);
    }
    // Another engine: nothing known of the first one is kept.
    world.engine.set_models(listed("sglang"));
    becomes(&world, &["engine=sglang", "version=unknown"]).await;
    world
        .engine
        .set_route("/get_server_info", server_info("0.4.9", None, None));
    becomes(&world, &["engine=sglang", "version=0.4.9"]).await;
    world.engine.wait_probes("/v1/models", 5).await;
    // Each change once.
    world.samewire.logged(NEWS, 5).await;
    world.end().await;
}

/// An engine is identified again after an outage, because it may be another one.
#[tokio::test]
async fn an_engine_is_identified_again_after_an_outage() {
    let world = World::start_as(
        vllm("0.21.0"),
        "auto",
        Setup::new().config(ONCE).allow_errors(),
    )
    .await;
    becomes_ready(&world).await;
    becomes(&world, &["version=0.21.0"]).await;
    world
        .engine
        .set_health(Script::new().whole("503 Service Unavailable", "", ""));
    becomes(&world, &["ready=no", "version=0.21.0"]).await;
    world.engine.set_route("/version", version("0.32.0"));
    world
        .engine
        .set_health(Script::new().whole("200 OK", "", ""));
    becomes(&world, &["ready=yes", "version=0.32.0"]).await;
    world.end().await;
}

/// A stream that breaks off triggers a new identification, even if no probe has failed.
#[tokio::test]
async fn an_answer_that_breaks_off_is_a_reason_to_look() {
    let engine = Engine::script(Script::stream().text("a").rst()).await;
    engine.set_models(listed("vllm"));
    engine.set_route("/version", version("0.21.0"));
    let world = World::start_as(engine, "auto", Setup::new().config(ONCE).allow_errors()).await;
    becomes_ready(&world).await;
    becomes(&world, &["version=0.21.0"]).await;
    world.engine.set_route("/version", version("0.32.0"));
    world.engine.wait_probes("/v1/models", 5).await;
    becomes(&world, &["version=0.21.0"]).await;
    world.stream("").await;
    becomes(&world, &["version=0.32.0"]).await;
    world.end().await;
}

/// Answers to identification requests do not affect an engine's health, whatever they contain.
#[tokio::test]
async fn identification_does_not_affect_health() {
    let huge = "x".repeat(3 << 20);
    for odd in [
        Script::new().hang(),
        Script::new().rst(),
        Script::new().raw("CANARY nothing of HTTP\r\n\r\n").fin(),
        Script::new().whole("500 Internal Server Error", "", "CANARY"),
        Script::ok(r#"["CANARY"]"#),
        Script::ok(r#"{"version":{"CANARY":1}}"#),
        Script::ok(r#"{"version":"CANARY\n\"} 1"}"#),
        Script::ok(json!({"version": huge})),
        server_info("99999.1.1", Some("CANARY parser\"}"), Some(&"p".repeat(65))),
    ] {
        let engine = Engine::script(Script::answer("a", 1)).await;
        engine.set_models(listed("sglang"));
        engine.set_route("/server_info", odd);
        let world = World::start_as(engine, "auto", Setup::new().config(QUICK)).await;
        becomes_ready(&world).await;
        // One of them has certainly begun after it was ready, and has ended.
        world.engine.wait_probes("/v1/models", 2).await;
        let line = upstream_line(&world).await;
        assert!(
            line.contains("ready=yes engine=sglang") && !line.contains("CANARY"),
            "{line}"
        );
        assert_eq!(world.samewire.admin("/readyz").await.head.status, 200);
        assert_eq!(
            info(&world).await,
            r#"engine="sglang",version="unknown",front_end="own"} 1"#
        );
        world.end().await;
    }
}

/// A configured engine kind is kept; only the rest is detected.
#[tokio::test]
async fn a_configured_engine_stays_what_it_is() {
    let engine = vllm("0.21.0").await;
    engine.set_route("/server_info", server_info("0.5.12", Some("qwen3"), None));
    let world = World::start_as(engine, "sglang", Setup::new().config(QUICK)).await;
    becomes_ready(&world).await;
    becomes(
        &world,
        &["engine=sglang", "found_by=configuration", "version=0.5.12"],
    )
    .await;
    world.end().await;
    let world = World::start_as(vllm("0.21.0"), "generic", Setup::new().config(QUICK)).await;
    becomes_ready(&world).await;
    world.engine.wait_probes("/v1/models", 3).await;
    becomes(&world, &["engine=generic", "version=unknown"]).await;
    assert_eq!(world.engine.probe_count("/version"), 0);
    world.end().await;
}

/// The engine's own API key is sent with every identification request, and the client's key never is.
#[tokio::test]
async fn an_engines_own_key_goes_with_what_it_is_asked_and_nobody_elses() {
    let folder = Folder::new();
    let keys = folder.key("sk-CANARY-detection");
    for (setup, expected) in [
        (
            Setup::new().upstream_keys(&keys),
            Some("Bearer sk-CANARY-detection"),
        ),
        (Setup::new(), None),
    ] {
        let world = World::start_as(vllm("0.21.0"), "auto", setup.config(QUICK)).await;
        becomes_ready(&world).await;
        becomes(&world, &["version=0.21.0"]).await;
        world.stream("").await;
        let probes = world.engine.probes();
        assert!(
            probes
                .iter()
                .all(|probe| probe.header("authorization") == expected)
        );
        world.end().await;
    }
}
