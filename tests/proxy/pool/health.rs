//! Health of the engine: outcomes of probes, and the readiness derived from them.

use crate::clients::keys::entry;
use crate::sim::prelude::*;

/// Frequent probes with a short timeout.
const QUICK: &str = "[health]\ninterval = 0.02\ntimeout = 0.1";

async fn ready(world: &World) -> u16 {
    world.samewire.admin("/readyz").await.head.status
}

/// Waits until readiness has this status.
async fn becomes(world: &World, status: u16) {
    world.samewire.admin_becomes("/readyz", status).await;
}

fn status(line: &str) -> Script {
    Script::new().whole(line, "", "")
}

#[tokio::test]
async fn fault_o18_an_engine_that_fails_is_not_ready_and_comes_back() {
    let world = World::plain(Setup::new().config(QUICK).allow_errors()).await;
    becomes(&world, 200).await;
    for failing in [
        status("500 Internal Server Error"),
        status("503 Service Unavailable"),
        Script::new().hang(),
    ] {
        world.engine.set_health(failing);
        becomes(&world, 503).await;
        assert_eq!(
            world.samewire.admin("/livez").await.head.status,
            200,
            "a restart would not help"
        );
        world.engine.set_health(status("200 OK"));
        becomes(&world, 200).await;
    }
    // An engine without a health route is judged by its list of models.
    world.engine.set_health(status("404 Not Found"));
    let logged = world.samewire.count_logged("upstream is ready");
    world.engine.wait_probes("/health", 8).await;
    assert_eq!(ready(&world).await, 200);
    // The line of the last change may have been on its way before.
    assert!(
        world.samewire.count_logged("upstream is ready") <= logged + 1,
        "only changes are logged"
    );
    world.end().await;
}

/// Behind one fault there may be another: each is logged once.
#[tokio::test]
async fn fault_o18_each_cause_of_the_trouble_is_logged() {
    let world = World::plain(
        Setup::new()
            .config("[health]\ninterval = 0.02\ntimeout = 60")
            .allow_errors(),
    )
    .await;
    for (at, line) in [
        "500 Internal Server Error",
        "502 Bad Gateway",
        "500 Internal Server Error",
    ]
    .iter()
    .enumerate()
    {
        world.engine.set_health(status(line));
        until(line, || {
            world.samewire.count_logged("upstream is not ready") > at
        })
        .await;
        world.engine.wait_probes("/health", 4).await;
    }
    let lines = world.samewire.logs();
    let told = lines
        .iter()
        .filter(|line| line.contains("upstream is not ready"));
    let found: Vec<_> = told.map(|line| line.contains(r#""status":500"#)).collect();
    assert_eq!(found, [true, false, true], "{lines:#?}");
    world.end().await;
}

/// An engine is up if a gateway refuses the probe for lack of a client's key.
#[tokio::test]
async fn an_engine_that_refuses_the_probe_for_its_key_is_up() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    for code in ["401 Unauthorized", "403 Forbidden"] {
        engine.set_health(status(code));
        engine.set_models(status(code));
    }
    let world = World::start(engine, Setup::new().config(QUICK)).await;
    becomes(&world, 200).await;
    world.engine.wait_probes("/health", 8).await;
    assert_eq!(ready(&world).await, 200);
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
    // If samewire has its own key for the engine, the refusal is a mistake in the configuration: the engine is up.
    let folder = Folder::new();
    let engine = Engine::script(Script::answer("a", 1)).await;
    engine.set_health(status("401 Unauthorized"));
    engine.set_models(status("401 Unauthorized"));
    let setup = Setup::new()
        .config(QUICK)
        .upstream_keys(&folder.key("sk-CANARY-health"))
        .allow_errors();
    let world = World::start(engine, setup).await;
    world.engine.wait_probes("/health", 8).await;
    assert_eq!(ready(&world).await, 200);
    world.samewire.logged("its key was refused", 1).await;
    world.end().await;
}

/// The configured route is requested instead of the engine's own. Where it is missing, the list of
/// models decides.
#[tokio::test]
async fn the_configuration_may_name_the_health_check() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    engine.set_health(status("500 Internal Server Error"));
    engine.set_route("/ping", status("200 OK"));
    let setup = Setup::new()
        .config(&format!("{QUICK}\npath = \"/ping\""))
        .allow_errors();
    let world = World::start(engine, setup).await;
    becomes(&world, 200).await;
    world
        .engine
        .set_route("/ping", status("500 Internal Server Error"));
    becomes(&world, 503).await;
    let why = r#""why":"its health check fails","status":500"#;
    until("it is logged", || world.samewire.count_logged(why) > 0).await;
    world.engine.set_route("/ping", status("404 Not Found"));
    becomes(&world, 200).await;
    assert_eq!(world.engine.probe_count("/health"), 0);
    world.end().await;
}

#[tokio::test]
async fn one_probe_that_fails_proves_nothing() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::new()
        .config(&format!("{QUICK}\ndown_after = 1000000"))
        .allow_errors();
    let world = World::start(engine, setup).await;
    becomes(&world, 200).await;
    world.engine.set_health(status("500 Internal Server Error"));
    world.engine.wait_probes("/health", 8).await;
    assert_eq!(ready(&world).await, 200);
    world.engine.set_health(status("503 Service Unavailable"));
    becomes(&world, 503).await;
    world.end().await;
}

/// Starts a healthy engine with a running stream that continues when the gate opens.
async fn speaking(gate: &Gate) -> (World, Client) {
    let script = Script::stream().text("a").wait(gate).stop();
    let world = World::start(script, Setup::new().config(QUICK).allow_errors()).await;
    becomes(&world, 200).await;
    let client = world.begin_until(&Request::stream(""), "\"a\"").await;
    (world, client)
}

/// An engine that streams is up, however long its answer to a probe takes.
#[tokio::test]
async fn fault_o19_a_busy_engine_may_be_slow_to_say_that_it_is_well() {
    let gate = Gate::default();
    let (world, mut client) = speaking(&gate).await;
    world.engine.set_health(Script::new().hang());
    world.engine.wait_probes("/health", 8).await;
    assert_eq!(ready(&world).await, 200);
    // A failed or refused probe counts in any case.
    world.engine.set_health(status("500 Internal Server Error"));
    becomes(&world, 503).await;
    gate.open();
    client.event_with("[DONE]").await;
    world.engine.set_health(status("200 OK"));
    becomes(&world, 200).await;
    world.end().await;
}

/// An engine that is busy with others' requests answers probes late. If there is no other, it gets requests, and
/// its answer shows at once that it is up.
#[tokio::test]
async fn fault_o19_late_probes_refuse_no_request() {
    let world = World::plain(Setup::new().config(QUICK).allow_errors()).await;
    becomes(&world, 200).await;
    world.engine.set_health(Script::new().hang());
    becomes(&world, 503).await;
    assert_eq!(world.stream("").await.head.status, 200);
    assert_eq!(ready(&world).await, 200);
    // One that refuses its probes gets no requests.
    world.engine.set_health(status("503 Service Unavailable"));
    becomes(&world, 503).await;
    assert_eq!(
        world.stream("").await.failure(),
        "503 server_error no_healthy_upstream"
    );
    world.end().await;
}

/// While another engine is well, one whose probes are late gets no requests.
#[tokio::test]
async fn fault_o19_an_engine_with_late_probes_is_the_last_resort() {
    let engines = [Script::answer("a", 1), Script::answer("b", 1)];
    let world = World::fleet_up(engines, Setup::new().config(QUICK).allow_errors(), &[]).await;
    let is_down = |name: &str| format!("samewire_upstream_up{{upstream=\"{name}\"}} 0");
    world.engine.set_health(Script::new().hang());
    world
        .samewire
        .metrics_when("e0 is late", |metrics| metrics.contains(&is_down("e0")))
        .await;
    let ask = async || assert_eq!(world.stream("").await.head.status, 200);
    for _ in 0..10 {
        ask().await;
    }
    assert_eq!(world.attempt_counts(), [0, 10]);
    world.others[0].set_health(status("503 Service Unavailable"));
    world
        .samewire
        .metrics_when("e1 is down", |metrics| metrics.contains(&is_down("e1")))
        .await;
    ask().await;
    assert_eq!(world.attempt_counts(), [1, 10]);
    world.end().await;
}

/// Streamed tokens count as a sign of life for ten seconds, not longer.
#[tokio::test]
async fn fault_o19_an_engine_that_has_stopped_talking_must_answer_probes() {
    let gate = Gate::default();
    let (world, mut client) = speaking(&gate).await;
    let said = Instant::now();
    world.engine.set_health(Script::new().hang());
    becomes(&world, 503).await;
    assert!(
        said.elapsed() > Duration::from_secs(8),
        "{:?}",
        said.elapsed()
    );
    gate.open();
    client.event_with("[DONE]").await;
    world.engine.set_health(status("200 OK"));
    becomes(&world, 200).await;
    world.end().await;
}

/// A running stream does not excuse a probe whose connection is closed or reset.
#[tokio::test]
async fn fault_o19_probes_that_are_broken_off_count_while_it_streams() {
    for manner in [CloseKind::Rst, CloseKind::Fin] {
        let gate = Gate::default();
        let (world, mut client) = speaking(&gate).await;
        let said = Instant::now();
        world.engine.set_health(Script::new().close(manner));
        becomes(&world, 503).await;
        assert!(
            said.elapsed() < Duration::from_secs(8),
            "{manner:?}: it was silent for that long"
        );
        gate.open();
        client.event_with("[DONE]").await;
        world.end().await;
    }
}

/// The public health route reports the same state as the admin listener, without a key and without details of
/// engines.
#[tokio::test]
async fn clients_are_told_whether_there_is_an_engine() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::new()
        .config(&entry(KEY, ""))
        .config("[limits]\nrequests = 1")
        .config(QUICK)
        .allow_errors();
    let world = World::start(engine, setup).await;
    becomes(&world, 200).await;
    let ask = |method: &str| Request::new(method, "/health").without("authorization");
    let answer = world.request(&ask("GET")).await;
    assert_eq!(
        (answer.head.status, answer.text()),
        (200, r#"{"status":"ok"}"#)
    );
    assert_eq!(answer.head.header("content-type"), Some("application/json"));
    let mut client = Client::sending(
        world.proxy(),
        &[ask("HEAD").bytes(), ask("GET").bytes()].concat(),
    )
    .await;
    let head = client.head_without_body().await;
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("15"))
    );
    assert_eq!(
        client.answer().await.text(),
        r#"{"status":"ok"}"#,
        "the connection goes on"
    );
    assert_eq!(
        world
            .request(&ask("POST").header("content-length", "0"))
            .await
            .head
            .status,
        401
    );
    let post = world
        .request(&Request::new("POST", "/health").header("content-length", "0"))
        .await;
    assert_eq!(
        (post.head.status, post.fault().message.as_str()),
        (405, "/health takes GET, not POST.")
    );
    world.engine.set_health(status("500 Internal Server Error"));
    becomes(&world, 503).await;
    let answer = world.request(&ask("GET")).await;
    assert_eq!(answer.failure(), "503 server_error no_healthy_upstream");
    assert!(
        !answer.text().contains("127.0.0.1") && answer.head.header("retry-after").is_some(),
        "{answer:?}"
    );
    assert_eq!(
        world.samewire.count_logged(r#""status":503"#),
        0,
        "a probe every second fills no log"
    );
    world.engine.set_health(status("200 OK"));
    becomes(&world, 200).await;
    world.end().await;
}

#[tokio::test]
async fn clients_are_told_of_a_drain_and_at_the_limit_of_requests() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let setup = Setup::new().config("[limits]\nrequests = 1").config(QUICK);
    let world = World::start(script, setup).await;
    becomes(&world, 200).await;
    let mut client = world.begin_until(&Request::stream(""), "\"a\"").await;
    assert_eq!(
        world.stream("").await.head.status,
        503,
        "that is one too many"
    );
    assert_eq!(world.get("/health").await.head.status, 200);
    assert_eq!(
        Request::new("POST", "/drain")
            .answer(world.samewire.admin)
            .await
            .head
            .status,
        200
    );
    assert_eq!(
        world.get("/health").await.failure(),
        "503 server_error draining"
    );
    gate.open();
    client.rest().await;
    world.end().await;
}
