//! Pods behind Services, named by a scripted Kubernetes API (faults O38). Pods have their own loopback addresses and
//! the port of the Service, as in a cluster.

use crate::sim::prelude::*;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const TOKEN: &str = "CANARY-of-a-service-account";
const LIST: &str =
    "/apis/discovery.k8s.io/v1/namespaces/inference/endpointslices?labelSelector=app%3Dvllm";

/// Returns the target of a watch from this version.
fn watch_from(version: u32) -> String {
    format!(
        "{LIST}&watch=true&allowWatchBookmarks=true&timeoutSeconds=240&resourceVersion={version}"
    )
}

/// Returns the slice of a Service with these pods, each given as name, last number of its address, and readiness.
fn slice(version: u32, pods: &[(&str, u8, bool)]) -> String {
    let endpoints: Vec<_> = pods
        .iter()
        .map(|(name, number, ready)| {
            format!(
                "{{\"addresses\":[\"127.0.0.{number}\"],\"conditions\":{{\"ready\":{ready},\"serving\":true}},\
                 \"targetRef\":{{\"kind\":\"Pod\",\"name\":\"{name}\"}}}}"
            )
        })
        .collect();
    format!(
        "{{\"metadata\":{{\"name\":\"vllm-x\",\"resourceVersion\":\"{version}\"}},\"addressType\":\"IPv4\",\"endpoints\":[{}]}}",
        endpoints.join(",")
    )
}

fn list(version: u32, pods: &[(&str, u8, bool)]) -> Script {
    let body = format!(
        "{{\"kind\":\"EndpointSliceList\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[{}]}}",
        slice(version, pods)
    );
    Script::ok(&body)
}

fn watching() -> Script {
    Script::new().raw(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
    )
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// Creates engines that listen on one port of the addresses 127.0.0.1, 127.0.0.2 and so on.
async fn behind_one_port<const N: usize>(scripts: [Script; N]) -> [Engine; N] {
    let at = |number, port| {
        TcpListener::bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), port)))
    };
    let listeners = loop {
        let first = at(1, 0).expect("a free port");
        let port = first.local_addr().expect("bound").port();
        let others: Result<Vec<_>, _> = (2..=u8::try_from(N).unwrap())
            .map(|number| at(number, port))
            .collect();
        // The port may be in use on another of these addresses.
        if let Ok(others) = others {
            break std::iter::once(first).chain(others);
        }
    };
    let mut engines = Vec::new();
    for (listener, script) in listeners.zip(scripts) {
        engines.push(Engine::on(listener, move |_| script.clone()).await);
    }
    engines.try_into().ok().expect("one for each script")
}

/// Returns a file with the token, one for all tests of this process.
fn token_file() -> &'static Path {
    static FILE: LazyLock<(Folder, PathBuf)> = LazyLock::new(|| {
        let folder = Folder::new();
        let path = folder.write("token", TOKEN);
        (folder, path)
    });
    &FILE.1
}

/// Starts samewire in front of the first engine, as a Service whose pods the API names.
async fn start(api: &Engine, engines: Vec<Engine>) -> World {
    let discovery = format!(
        "[health]\ninterval = 0.05\ntimeout = 10\n[discovery]\nkubernetes = \"{}\"\nnamespace = \"inference\"\ntoken_file = \"{}\"\n",
        api.url(),
        token_file().display()
    );
    let setup = Setup::new()
        .config(&discovery)
        .upstream_keys("name = \"vllm\"\nengine = \"vllm\"\npods = \"app=vllm\"\n");
    let mut engines = engines.into_iter();
    let mut world = World::start(engines.next().expect("a Service"), setup).await;
    world.others = engines.collect();
    world
}

async fn answer(world: &World) -> String {
    world.stream("").await.text().to_owned()
}

#[tokio::test]
async fn fault_o38_pods_come_and_go() {
    let (moved, end, held) = (Gate::default(), Gate::default(), Gate::default());
    let api = Engine::script(Script::new()).await;
    api.set_route(LIST, list(5, &[("a", 2, true), ("late", 3, false)]));
    let watch = watching()
        .chunk(event(
            "BOOKMARK",
            "{\"metadata\":{\"resourceVersion\":\"6\"}}",
        ))
        .wait(&moved)
        .chunk(event("MODIFIED", &slice(7, &[("late", 3, true)])))
        .wait(&end)
        .chunk(event("DELETED", &slice(8, &[])))
        .hang();
    api.set_route(&watch_from(5), watch);
    let slow = Script::stream()
        .text("pod a")
        .wait(&held)
        .text(" to its end")
        .finish("stop");
    let scripts = [
        Script::answer("service", 1),
        slow.done().end(),
        Script::answer("pod b", 1),
    ];
    let world = start(&api, behind_one_port(scripts).await.into()).await;
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm/a\"}", 1)
        .await;
    let mut running = world.begin_until(&Request::stream(""), "pod a").await;
    moved.open();
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm/late\"}", 1)
        .await;
    assert!(answer(&world).await.contains("pod b"));
    held.open();
    running.event_with(" to its end").await;
    running.event_with("[DONE]").await;
    drop(running);
    assert!(
        !world
            .samewire
            .metrics()
            .await
            .contains("samewire_upstream_up{upstream=\"vllm\"}")
    );
    world
        .samewire
        .metric_becomes("samewire_discovery_pods{selector=\"app=vllm\"}", 1)
        .await;
    end.open();
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm\"}", 1)
        .await;
    assert!(answer(&world).await.contains("service"));
    assert_eq!(world.attempt_counts(), [1, 1, 1]);
    world
        .samewire
        .metric_becomes("samewire_discovery_up{selector=\"app=vllm\"}", 1)
        .await;
    // Nothing is left of the pods, so that any number of them can come and go.
    let metrics = world.samewire.metrics().await;
    assert!(!metrics.contains("vllm/a"), "{metrics}");
    assert!(
        api.probes()
            .iter()
            .all(|request| request.header("authorization") == Some(&format!("Bearer {TOKEN}")))
    );
    world.samewire.finished(3).await;
    assert!(!world.samewire.logs().join("\n").contains(TOKEN));
    world.end().await;
}

#[tokio::test]
async fn fault_o38_an_api_that_fails_changes_nothing() {
    let broken = Gate::default();
    let api = Engine::script(Script::new()).await;
    api.set_route(LIST, Script::new().json("403 Forbidden", "{}"));
    let scripts = [
        Script::answer("service", 1),
        Script::answer("pod a", 1),
        Script::answer("pod b", 1),
    ];
    let world = start(&api, behind_one_port(scripts).await.into()).await;
    world
        .samewire
        .logged("the verbs list and watch for endpointslices", 1)
        .await;
    assert!(answer(&world).await.contains("service"), "the URL gets it");
    api.set_route(&watch_from(5), watching().wait(&broken).rst());
    api.set_route(LIST, list(5, &[("a", 2, true)]));
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm/a\"}", 1)
        .await;
    assert!(answer(&world).await.contains("pod a"));
    // The watch breaks, and then the list is no JSON.
    api.set_route(LIST, Script::new().whole("200 OK", "text/html", "<html>"));
    broken.open();
    world
        .samewire
        .metric_becomes("samewire_discovery_up{selector=\"app=vllm\"}", 0)
        .await;
    // The pause before the next attempt grows with each one, so there is a single one more.
    world
        .samewire
        .metric_becomes(
            "samewire_discovery_failures_total{selector=\"app=vllm\"}",
            3,
        )
        .await;
    assert!(
        answer(&world).await.contains("pod a"),
        "the known pods stay in use"
    );
    // Told once for each outage.
    world
        .samewire
        .logged("the Kubernetes API names no pods", 2)
        .await;
    api.set_route(&watch_from(9), watching().hang());
    api.set_route(LIST, list(9, &[("b", 3, true)]));
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm/b\"}", 1)
        .await;
    assert!(answer(&world).await.contains("pod b"));
    world.samewire.logged("the Kubernetes API answers", 2).await;
    world.end().await;
}

#[tokio::test]
async fn fault_o38_a_watch_that_is_too_old_is_begun_anew() {
    let api = Engine::script(Script::new()).await;
    let expired = Gate::default();
    api.set_route(LIST, list(5, &[("a", 2, true)]));
    let gone = event(
        "ERROR",
        "{\"kind\":\"Status\",\"code\":410,\"message\":\"too old resource version\"}",
    );
    api.set_route(&watch_from(5), watching().wait(&expired).chunk(gone).hang());
    let scripts = [
        Script::answer("service", 1),
        Script::answer("pod a", 1),
        Script::answer("pod b", 1),
    ];
    let world = start(&api, behind_one_port(scripts).await.into()).await;
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm/a\"}", 1)
        .await;
    api.set_route(LIST, list(9, &[("a", 2, true), ("b", 3, true)]));
    api.set_route(&watch_from(9), watching().chunk("\n").hang());
    expired.open();
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm/b\"}", 1)
        .await;
    world
        .samewire
        .metric_becomes("samewire_upstream_up{upstream=\"vllm/a\"}", 1)
        .await;
    world
        .samewire
        .metric_becomes(
            "samewire_discovery_failures_total{selector=\"app=vllm\"}",
            0,
        )
        .await;
    world.end().await;
}
