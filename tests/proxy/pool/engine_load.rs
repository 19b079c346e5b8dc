//! Load reported by engines: fetched with the probes if configured, exposed as metrics, and used to choose an
//! engine.

use crate::pool::{let_go, open_streams};
use crate::sim::prelude::*;

/// Frequent probes that also fetch the engine's load.
const LOADED: &str = "[health]\ninterval = 0.02\ntimeout = 0.3\nengine_load = true";

/// Returns vLLM's metrics with these numbers, among others.
fn vllm(running: usize, waiting: usize) -> Script {
    let labels = r#"{engine="0",model_name="m"}"#;
    let text = format!(
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n\
         # TYPE vllm:num_requests_running gauge\n\
         vllm:num_requests_running{labels} {running}.0\n\
         vllm:num_requests_waiting{labels} {waiting}.0\n\
         vllm:kv_cache_usage_perc{labels} 0.25\n\
         vllm:num_preemptions_total{labels} 7.0\n"
    );
    Script::new().whole("200 OK", "text/plain; version=0.0.4; charset=utf-8", text)
}

/// Starts an engine whose answers wait at a gate.
async fn waiting(gate: &Gate) -> Engine {
    let script = Script::stream().text("x").wait(gate).stop();
    Engine::script(script).await
}

/// Waits until the metrics contain this line, or no longer contain it.
async fn shows(world: &World, line: &str, shown: bool) {
    let is_so = |metrics: &str| metrics.lines().any(|known| known == line) == shown;
    world.samewire.metrics_when(line, is_so).await;
}

/// Returns a metric line of the engine with this name.
fn series(world: &World, name: &str, more: &str, value: &str) -> String {
    let upstream = world.engine.address;
    format!("samewire_upstream_engine_{name}{{upstream=\"{upstream}\"{more}}} {value}")
}

#[tokio::test]
async fn what_an_engine_has_to_do_is_shown() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    engine.set_route("/metrics", vllm(3, 2));
    let world = World::start(engine, Setup::new().config(LOADED).allow_errors()).await;
    let running = series(&world, "requests", ",state=\"running\"", "3");
    shows(&world, &running, true).await;
    shows(
        &world,
        &series(&world, "requests", ",state=\"waiting\"", "2"),
        true,
    )
    .await;
    shows(&world, &series(&world, "cache_usage", "", "0.25"), true).await;
    let ready = world.samewire.admin("/readyz?verbose").await;
    let told = "in_flight=0 engine_running=3 engine_waiting=2 engine_cache_usage=0.25";
    assert!(ready.text().contains(told), "{}", ready.text());
    // The engine no longer reports its load: no outdated value is shown.
    for odd in [
        Script::new().whole("404 Not Found", "", ""),
        Script::new().whole("200 OK", "text/plain", "vllm:num_requests_running CANARY\n"),
        Script::new().whole(
            "200 OK",
            "text/plain",
            format!("# {}\n", "x".repeat(3 << 20)),
        ),
        Script::new().hang(),
        Script::new().rst(),
    ] {
        world.engine.set_route("/metrics", odd);
        shows(&world, &running, false).await;
        world.engine.wait_probes("/health", 3).await;
        assert_eq!(
            world.samewire.admin("/readyz").await.head.status,
            200,
            "that is no sickness"
        );
        world.engine.set_route("/metrics", vllm(3, 2));
        // An engine that reported nothing is queried again at the next identification.
        let before = world.samewire.count_logged("upstream is not ready");
        world
            .engine
            .set_health(Script::new().whole("503 Service Unavailable", "", ""));
        until("it is down", || {
            world.samewire.count_logged("upstream is not ready") > before
        })
        .await;
        world
            .engine
            .set_health(Script::new().whole("200 OK", "", ""));
        shows(&world, &running, true).await;
    }
    world.end().await;
}

#[tokio::test]
async fn load_is_not_fetched_unless_configured() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    engine.set_route("/metrics", vllm(3, 2));
    let world = World::start(engine, Setup::new().config("[health]\ninterval = 0.02")).await;
    world.engine.wait_probes("/health", 8).await;
    assert_eq!(world.engine.probe_count("/metrics"), 0);
    assert!(
        !world
            .samewire
            .metrics()
            .await
            .contains("samewire_upstream_engine_requests{")
    );
    world.end().await;
}

/// SGLang has metrics only if enabled; of its other routes, the first that answers is used from then on.
#[tokio::test]
async fn sglang_is_asked_where_it_answers() {
    let labels = r#"{model_name="m",tp_rank="0"}"#;
    let metrics = format!(
        "sglang:num_running_reqs{labels} 4.0\nsglang:num_queue_reqs{labels} 1.0\nsglang:token_usage{labels} 0.5\n"
    );
    let loads = json!({"loads": [{"num_running_reqs": 3, "num_waiting_reqs": 1}, {"num_running_reqs": 1, "num_waiting_reqs": 0}]});
    let get_load =
        json!([{"dp_rank": null, "num_reqs": 5, "num_waiting_reqs": 1, "num_tokens": 9}]);
    for (place, says) in [
        (
            "/metrics",
            Script::new().whole("200 OK", "text/plain", metrics),
        ),
        ("/v1/loads", Script::ok(loads)),
        ("/get_load", Script::ok(get_load)),
    ] {
        let engine = Engine::script(Script::answer("a", 1)).await;
        engine.set_route(
            "/v1/loads",
            Script::new().whole("500 Internal Server Error", "", "Internal Server Error"),
        );
        engine.set_route(place, says);
        let world = World::start_as(engine, "sglang", Setup::new().config(LOADED)).await;
        shows(
            &world,
            &series(&world, "requests", ",state=\"running\"", "4"),
            true,
        )
        .await;
        shows(
            &world,
            &series(&world, "requests", ",state=\"waiting\"", "1"),
            true,
        )
        .await;
        world.engine.wait_probes("/health", 5).await;
        for other in ["/metrics", "/v1/loads", "/get_load"]
            .iter()
            .filter(|other| **other != place)
        {
            assert!(
                world.engine.probe_count(other) <= 1,
                "{other} again and again"
            );
        }
        world.end().await;
    }
}

/// Waits until samewire knows the load of both engines.
async fn known(world: &World) {
    let known = |metrics: &str| {
        metrics
            .matches("samewire_upstream_engine_requests{")
            .count()
            >= 4
    };
    world
        .samewire
        .metrics_when("both say what they have to do", known)
        .await;
    for engine in world.engines() {
        engine.wait_probes("/health", 2).await;
    }
}

#[tokio::test]
async fn requests_that_others_have_sent_count() {
    let gate = Gate::default();
    let engines = vec![waiting(&gate).await, waiting(&gate).await];
    engines[0].set_route("/metrics", vllm(7, 3));
    engines[1].set_route("/metrics", vllm(0, 0));
    // The reported load stays constant: these engines do not count.
    let world = World::fleet(engines, Setup::new().config(LOADED), &[]).await;
    known(&world).await;
    let first = open_streams(&world, &Request::stream(""), 10).await;
    assert_eq!(
        world.attempt_counts(),
        [0, 10],
        "the first one has ten of others"
    );
    let_go(&gate, first).await;
    world.end().await;
    // Requests sent by samewire are not counted twice, as its own and as load reported by the engine.
    let gate = Gate::default();
    let engines = vec![waiting(&gate).await, waiting(&gate).await];
    engines
        .iter()
        .for_each(|engine| engine.set_route("/metrics", vllm(0, 0)));
    let world = World::fleet(engines, Setup::new().config(LOADED), &[]).await;
    known(&world).await;
    let mut clients = open_streams(&world, &Request::stream(""), 10).await;
    assert_eq!(world.attempt_counts(), [5, 5]);
    world.engine.set_route("/metrics", vllm(4, 1));
    known(&world).await;
    clients.extend(open_streams(&world, &Request::stream(""), 10).await);
    assert_eq!(world.attempt_counts(), [10, 10]);
    let_go(&gate, clients).await;
    world.end().await;
}

#[tokio::test]
async fn where_nobody_asks_only_our_own_requests_count() {
    let gate = Gate::default();
    let engines = vec![waiting(&gate).await, waiting(&gate).await];
    engines[0].set_route("/metrics", vllm(7, 3));
    let world = World::fleet_up(
        engines,
        Setup::new().config("[health]\ninterval = 0.02"),
        &[],
    )
    .await;
    let clients = open_streams(&world, &Request::stream(""), 10).await;
    assert_eq!(world.attempt_counts(), [5, 5]);
    let_go(&gate, clients).await;
    world.end().await;
}
