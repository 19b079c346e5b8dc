//! Many streams at once, and many one after another.

use crate::canonical::Canonical;
use crate::sim::prelude::*;
use tokio::task::JoinSet;

const STREAMS: usize = 500;
const TOKENS: usize = 50;

/// Returns the name that a request gives its stream.
fn name_of(text: &str) -> &str {
    let (_, rest) = text.split_once("\"user\":\"").expect("a user");
    rest.split('"').next().expect("split gives one")
}

#[tokio::test]
async fn five_hundred_streams_are_complete_and_not_mixed() {
    let engine = Engine::answering(|attempt| {
        Script::stream()
            .tok(name_of(attempt.text()), TOKENS, Duration::from_millis(20))
            .stop()
    });
    let world = World::start(engine.await, Setup::new()).await;
    let proxy = world.proxy();
    let mut streams = JoinSet::new();
    for n in 0..STREAMS {
        streams.spawn(async move {
            let name = format!("stream-{n}-{}", n * 7919);
            let answer = Request::stream(&format!(r#","user":"{name}""#))
                .answer(proxy)
                .await;
            (name, answer)
        });
    }
    let mut most = 0;
    let start = Instant::now();
    while let Some(joined) = streams.join_next().await {
        let (name, answer): (String, Answer) = joined.expect("no panic");
        most = most.max(streams.len());
        assert_eq!(
            (answer.head.status, answer.ended),
            (200, Ended::LastChunk),
            "{name}"
        );
        assert_eq!(answer.text(), Canonical::answer(&name, TOKENS).text());
    }
    println!(
        "{STREAMS} streams of {TOKENS} tokens in {:?}",
        start.elapsed()
    );
    world.end_after(STREAMS).await;
}

/// More connections at once than a thread accepts: the rest waits, and none is dropped.
#[tokio::test]
async fn a_rush_of_connections_loses_none() {
    const CONNECTIONS: usize = 3_500;
    // Many requests in a row on each connection, so that serving takes longer than accepting.
    const REQUESTS: usize = if cfg!(debug_assertions) { 5 } else { 20 };
    let world = World::start(Script::new(), Setup::new().args(&["--threads", "1"])).await;
    let mut clients = Vec::new();
    // The kernel keeps accepting while the process is suspended: on resuming, all connections arrive at once.
    world.samewire.signal("STOP");
    for _ in 0..CONNECTIONS {
        // The last one waits until the others are served.
        let mut client = Client::connect(world.proxy())
            .await
            .with_patience(8 * PATIENCE);
        client
            .send(&Request::get("/v1/nothing").bytes().repeat(REQUESTS))
            .await;
        clients.push(client);
    }
    world.samewire.signal("CONT");
    for (n, client) in clients.iter_mut().enumerate() {
        for _ in 0..REQUESTS {
            let answer = client
                .try_answer()
                .await
                .unwrap_or_else(|| panic!("connection {n} was dropped"));
            assert_eq!(answer.head.status, 404);
        }
    }
    world.end().await;
}

/// Streams whose clients leave at every point leave nothing behind.
#[tokio::test]
async fn fault_c25_churn_leaves_nothing_behind() {
    let engine = Engine::answering(|attempt| {
        Script::stream()
            .tok(name_of(attempt.text()), 20, Duration::from_millis(1))
            .stop()
    });
    let world = World::start(engine.await, Setup::new()).await;
    let proxy = world.proxy();
    let mut clients = JoinSet::new();
    for n in 0..300_u64 {
        clients.spawn(async move {
            let client = Request::stream(&format!(r#","user":"churn-{n}""#))
                .send(proxy)
                .await;
            tokio::time::sleep(Duration::from_micros(n * 7919 % 30_000)).await;
            let manner = if n % 2 == 0 {
                CloseKind::Fin
            } else {
                CloseKind::Rst
            };
            client.leave(manner);
        });
    }
    while let Some(left) = clients.join_next().await {
        left.expect("no panic");
    }
    world.end().await;
}

#[tokio::test]
async fn fault_u45b_small_writes_are_not_held_back() {
    const ROUNDS: usize = 200;
    let world = World::start(Script::answer("a", 2), Setup::new()).await;
    let mut client = Client::connect(world.proxy()).await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        client.send(&Request::stream("").bytes()).await;
        client.event_with_head("a.0").await;
        times.push(start.elapsed());
        client.rest().await;
    }
    times.sort();
    // Of three in four, some time is the machine's, where tests run beside each other.
    let (some, median) = (times[ROUNDS / 4], times[ROUNDS / 2]);
    println!(
        "first token on a reused connection: median {median:?}, worst {:?}",
        times[ROUNDS - 1]
    );
    assert!(
        some < Duration::from_millis(35),
        "{some:?}: a delayed acknowledgement costs 40 ms"
    );
    let connections = world
        .engine
        .attempts()
        .iter()
        .filter(|attempt| !attempt.reused)
        .count();
    assert!(
        connections < ROUNDS / 10,
        "upstream connections are reused: {connections} of {ROUNDS} were new"
    );
    world.end().await;
}

/// The content of running Responses streams is in memory once: it is needed for the objects at their ends. The
/// unused part of a grown buffer takes no resident memory.
#[tokio::test]
async fn what_running_responses_have_said_is_in_memory_once() {
    const PIECE: usize = 1_024;
    const PIECES: usize = 2_100;
    const READERS: usize = 8;
    let gate = Gate::default();
    let chunk = crate::responses::over_chat::chunk(
        "chatcmpl-1",
        &format!(r#"{{"content":"{}"}}"#, "x".repeat(PIECE)),
        "null",
    );
    let mut script = Script::new().head_sse();
    for _ in 0..PIECES {
        script = script.ev(&chunk);
    }
    let script = script
        .wait(&gate)
        .ev(&crate::responses::over_chat::chunk(
            "chatcmpl-1",
            "{}",
            "\"stop\"",
        ))
        .done()
        .end();
    // Each stream pauses until the last one has been read.
    let setup = Setup::new().config("[timeouts]\ninter_token = 600\nclient_write_stall = 600");
    let world = World::start(script, setup).await;
    let read = async |client: &mut Client| {
        for _ in 0..PIECES {
            client.event_with("output_text.delta").await;
        }
    };
    let ask = crate::responses::over_chat::prompt("m", r#","stream":true,"store":false"#).bytes();
    // The first response allocates what every process needs once.
    let mut clients = Vec::new();
    let mut before = 0;
    for n in 0..=READERS {
        let mut client = Client::sending(world.proxy(), &ask).await;
        client.head().await;
        read(&mut client).await;
        clients.push(client);
        if n == 0 {
            before = world.samewire.allocated();
        }
    }
    let each = world.samewire.allocated().saturating_sub(before) / READERS as u64;
    let said = (PIECE * PIECES) as u64;
    println!("{each} bytes for {said}");
    assert!(each >= said / 2, "{each} bytes cannot hold {said}");
    assert!(each <= said * 5 / 4 + 65_536, "{each} bytes for {said}");
    gate.open();
    for mut client in clients {
        client.event_with("event: response.completed").await;
    }
    world.end().await;
}
