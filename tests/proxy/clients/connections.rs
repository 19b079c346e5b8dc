//! More connections than the limit allows: which are closed, which are refused, and which are unaffected.

use crate::sim::prelude::*;
use std::process::Command;
use tokio::task::JoinSet;

/// Starts an engine whose streams wait in the middle until the gate opens.
async fn halting(gate: &Gate) -> Engine {
    let script = Script::stream().text("a").wait(gate).text("b").stop();
    Engine::script(script).await
}

async fn begin(world: &World) -> Client {
    world.begin_until(&Request::stream(""), r#""a""#).await
}

async fn finish(mut client: Client) {
    client.event_with(r#""b""#).await;
    client.rest().await;
    assert_eq!(client.ended(), Ended::LastChunk);
}

/// Sends a request that needs no engine, and keeps the connection open.
async fn visit(client: &mut Client) {
    client.send(&Request::get("/v1/nothing").bytes()).await;
    assert_eq!(client.answer().await.head.status, 404);
}

#[tokio::test]
async fn fault_c41_the_longest_idle_connection_makes_room() {
    let gate = Gate::default();
    let world = World::start(
        halting(&gate),
        Setup::new().config("[limits]\nconnections = 5"),
    )
    .await;
    let stream = begin(&world).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        let mut client = Client::connect(world.proxy()).await;
        visit(&mut client).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        idle.push(client);
    }
    // The first client is no longer the least recently used one.
    visit(&mut idle[0]).await;
    let mut late = Client::connect(world.proxy()).await;
    visit(&mut late).await;
    assert!(
        idle[1].closes().await,
        "the one that was idle for the longest time"
    );
    for at in [0, 2, 3] {
        visit(&mut idle[at]).await;
    }
    visit(&mut late).await;
    world
        .samewire
        .metric_becomes("samewire_connections_evicted_total", 1)
        .await;
    assert_eq!(
        world
            .samewire
            .metric_now("samewire_connections_refused_total")
            .await,
        0
    );
    gate.open();
    finish(stream).await;
    world.end().await;
}

/// A client that does not read its responses cannot be closed at once: other idle connections are closed instead.
#[tokio::test]
async fn fault_c41_who_does_not_listen_holds_up_nobody() {
    let gate = Gate::default();
    let world = World::start(
        halting(&gate),
        Setup::new().config("[limits]\nconnections = 3"),
    )
    .await;
    let mut deaf = Client::connect_narrow(world.proxy()).await;
    deaf.send(
        "GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n"
            .repeat(1500)
            .as_bytes(),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(world.proxy()).await;
        visit(&mut client).await;
        idle.push(client);
    }
    for _ in 0..4 {
        let mut late = Client::connect(world.proxy()).await;
        visit(&mut late).await;
    }
    drop((deaf, idle));
    gate.open();
    world.end().await;
}

#[tokio::test]
async fn fault_c41_streams_do_not_make_room() {
    let gate = Gate::default();
    let world = World::start(
        halting(&gate),
        Setup::new().config("[limits]\nconnections = 3"),
    )
    .await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(begin(&world).await);
    }
    let start = Instant::now();
    for n in 0..20 {
        let mut client = world.send(&Request::stream("")).await;
        let answer = client.answer().await;
        assert_eq!(answer.failure(), "503 server_error overloaded");
        assert_eq!(answer.head.header("connection"), Some("close"));
        assert!(client.closes().await);
        // The first client waits for a slot; the following ones find out sooner that there is none.
        let took = start.elapsed();
        assert!(
            took > Duration::from_millis(900) && took < PATIENCE,
            "{n}: {took:?}"
        );
    }
    assert_eq!(
        world
            .samewire
            .metric_now("samewire_connections_evicted_total")
            .await,
        0
    );
    // A waiting client gets the slot that becomes free.
    let leaver = streams.pop().expect("three");
    drop(leaver);
    until("the answer is cancelled", || {
        world.engine.active_generations() == 2
    })
    .await;
    while world.get("/v1/nothing").await.head.status == 503 {}
    streams.push(begin(&world).await);
    gate.open();
    for stream in streams {
        finish(stream).await;
    }
    world.end().await;
}

/// Idle connections: silent, or in the middle of a head.
#[tokio::test]
async fn fault_c41_five_thousand_idle_connections() {
    const LIMIT: usize = 200;
    const CLIENTS: usize = 5_000;
    let gate = Gate::default();
    let setup = Setup::new().config(&format!("[limits]\nconnections = {LIMIT}"));
    let world = World::start(halting(&gate), setup).await;
    let stream = begin(&world).await;
    let mut silent = std::collections::VecDeque::new();
    let mut refused = 0;
    for n in 0..CLIENTS {
        let mut client = Client::connect(world.proxy()).await;
        if n % 500 == 0 {
            visit(&mut client).await;
        }
        silent.push_back(client);
        // The test needs descriptors as well: the oldest connections were closed by samewire long ago.
        if silent.len() > LIMIT + 200 {
            let mut first = silent.pop_front().expect("many");
            refused += usize::from(!first.closes().await);
        }
    }
    assert_eq!(refused, 0);
    let mut client = Client::connect(world.proxy()).await;
    visit(&mut client).await;
    gate.open();
    finish(stream).await;
    let evicted = world
        .samewire
        .metric("samewire_connections_evicted_total")
        .await;
    assert!(evicted as usize >= CLIENTS - LIMIT, "{evicted}");
    world.end().await;
}

#[tokio::test]
async fn fault_o10_limits_fit_the_open_files_that_are_allowed() {
    let gate = Gate::default();
    let world = World::start(
        halting(&gate),
        Setup::new().open_files(64).args(&["--threads", "2"]),
    )
    .await;
    world
        .samewire
        .logged(r#""open_files":64,"requests":16,"connections":16"#, 1)
        .await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(begin(&world).await);
    }
    let proxy = world.proxy();
    let (cpu, start) = (world.samewire.cpu(), Instant::now());
    let mut rush = JoinSet::new();
    for n in 0..500 {
        rush.spawn(async move {
            let mut client = Client::connect(proxy).await;
            if n % 2 == 0 && client.try_send(&Request::get("/v1/nothing").bytes()).await {
                client.try_head().await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        });
    }
    for _ in 0..5 {
        assert_eq!(
            world.samewire.admin("/livez").await.head.status,
            200,
            "operators are served"
        );
    }
    while let Some(over) = rush.join_next().await {
        over.expect("an answer or a close");
    }
    let (used, took) = (world.samewire.cpu() - cpu, start.elapsed());
    assert!(used < Duration::from_secs(2), "{used:?} of {took:?}");
    gate.open();
    for stream in streams {
        finish(stream).await;
    }
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

/// The descriptor limit is lowered below the number of open ones while the process runs: accepting pauses.
#[tokio::test]
async fn fault_o10_without_descriptors_accepting_pauses() {
    let gate = Gate::default();
    // Long timers, so that nothing but the running and waiting connections uses descriptors.
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\nclient_head = 300\n[health]\ninterval = 0.2");
    let world = World::start(halting(&gate), setup).await;
    let stream = begin(&world).await;
    // The limit is three above the open descriptors, not counting those with numbers far above the others.
    let folder = format!("/proc/{}/fd", world.samewire.pid());
    let numbers = std::fs::read_dir(folder).expect("it lives").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    let last = numbers.filter(|number| *number < 100).max();
    let limit = format!("--nofile={}:", last.expect("some") + 4);
    let set = Command::new("prlimit")
        .args(["--pid", &world.samewire.pid().to_string(), &limit])
        .status();
    assert!(set.expect("prlimit runs").success());
    // Connections with an incomplete head are not idle: none of them is closed to make room.
    let mut waiting: Vec<Client> = Vec::new();
    while world
        .samewire
        .metric_now("samewire_accept_errors_total")
        .await
        == 0
    {
        assert!(waiting.len() < 100, "descriptors without end");
        waiting.push(Client::sending(world.proxy(), b"P").await);
    }
    // The connections that fetched the metrics have released their descriptors meanwhile.
    for _ in 0..5 {
        waiting.push(Client::sending(world.proxy(), b"P").await);
    }
    let mut late: Vec<Client> = Vec::new();
    for _ in 0..3 {
        late.push(world.send(&Request::get("/v1/nothing")).await);
    }
    let before = world.samewire.cpu();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        assert_eq!(
            world.samewire.admin("/livez").await.head.status,
            200,
            "operators are served"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // No descriptor is left to connect to the engine; this does not count against the engine.
    let mut first = waiting.remove(0);
    first.send(&Request::plain("").bytes()[1..]).await;
    let refused = first.answer().await;
    assert_eq!(
        (refused.head.status, refused.fault().code.as_deref()),
        (503, Some("overloaded"))
    );
    world
        .samewire
        .admin("/readyz?verbose")
        .await
        .with_status(200);
    let errors = world
        .samewire
        .metric_now("samewire_accept_errors_total")
        .await;
    assert!(
        (3..100).contains(&errors),
        "{errors} tries in three seconds"
    );
    let used = world.samewire.cpu() - before;
    assert!(used < Duration::from_millis(600), "{used:?}");
    // Running requests continue, and once there are descriptors again, waiting clients are served.
    gate.open();
    finish(stream).await;
    let set = Command::new("prlimit")
        .args(["--pid", &world.samewire.pid().to_string(), "--nofile=1024:"])
        .status();
    assert!(set.expect("prlimit runs").success(), "prlimit");
    for mut client in late {
        assert_eq!(client.head().await.status, 404);
    }
    drop(waiting);
    world.end().await;
}

/// Thousands of clients reconnect at once, more than the limits allow: each is served or refused.
#[tokio::test]
async fn fault_o27_a_rush_is_served_or_turned_away() {
    // Without optimisation, five thousand take minutes.
    const CLIENTS: usize = if cfg!(debug_assertions) { 2_000 } else { 5_000 };
    let script = Script::answer("a", 3);
    let setup = Setup::new().config("[limits]\nrequests = 64\nconnections = 6000");
    let world = World::start(script, setup).await;
    let proxy = world.proxy();
    let start = Instant::now();
    let mut rush = JoinSet::new();
    for _ in 0..CLIENTS {
        rush.spawn(async move {
            let mut refused = Vec::new();
            loop {
                let mut client = Client::connect(proxy).await.with_patience(4 * PATIENCE);
                client.send(&Request::stream("").bytes()).await;
                let answer = client.answer().await;
                drop(client);
                if answer.head.status == 200 {
                    assert_eq!(answer.ended, Ended::LastChunk);
                    return refused;
                }
                assert_eq!(answer.fault().code.as_deref(), Some("overloaded"));
                let seconds: u64 = answer
                    .head
                    .header("retry-after")
                    .expect("503")
                    .parse()
                    .expect("a number");
                refused.push(seconds);
                // Waits only a hundredth of the requested time, so that the test does not take minutes.
                tokio::time::sleep(Duration::from_millis(10 * seconds)).await;
            }
        });
    }
    let mut asked = Vec::new();
    while let Some(refused) = rush.join_next().await {
        asked.extend(refused.expect("no panic"));
    }
    let took = start.elapsed();
    println!(
        "{CLIENTS} clients in {took:?}, {} times turned away",
        asked.len()
    );
    assert!(asked.iter().all(|seconds| (1..=5).contains(seconds)));
    if asked.len() > 100 {
        assert!(
            (1..=5).all(|seconds| asked.contains(&seconds)),
            "not all at once again"
        );
    }
    world.end().await;
}
