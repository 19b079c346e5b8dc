//! Several samewires on one PostgreSQL: a response made by one is available on all.

use crate::postgres::{connect, database};
use crate::responses::background::slow;
use crate::responses::over_chat::{engine, object, prompt};
use crate::responses::races::random;
use crate::sim::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Time after a crash within which clients must see the end of every response (O16).
pub const TOLD: Duration = Duration::from_secs(30);

pub fn on(database: &str) -> Setup {
    Setup::new().args(&["--store", database])
}

/// Starts another samewire in front of the world's engine.
pub async fn another(world: &World, setup: &Setup) -> Samewire {
    Samewire::start(&setup.clone().in_front_of(&world.engine)).await
}

pub fn at(id: &str, more: &str) -> Request {
    Request::get(&format!("/v1/responses/{id}{more}"))
}

pub fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

/// Starts a background response that runs until it is stopped.
async fn started(proxy: SocketAddr) -> String {
    let made = object(&prompt("m", r#","background":true"#).answer(proxy).await);
    assert_eq!(made["status"], "queued");
    id(&made)
}

/// Returns the events that a reader gets from here to the end.
pub async fn follow(proxy: SocketAddr, request: Request) -> Vec<Value> {
    let mut client = Client::connect(proxy).await.with_patience(TOLD + PATIENCE);
    client.send(&request.bytes()).await;
    assert_eq!(client.head().await.status, 200);
    let mut events = Vec::new();
    while let Some(event) = client.event().await {
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        events.extend(data.map(|data| serde_json::from_str::<Value>(data).unwrap()));
    }
    events
}

/// Checks that the sequence numbers continue after `after`, and that the only final event is the last one.
pub fn sound(events: &[Value], after: usize, end: &str) {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number + after, "{event}");
    }
    let ends = [
        "response.completed",
        "response.incomplete",
        "response.failed",
    ];
    let ended = events
        .iter()
        .filter(|event| ends.iter().any(|end| event["type"] == *end))
        .count();
    assert_eq!((ended, &events.last().unwrap()["type"]), (1, &json!(end)));
}

/// A response is followed at a replica that does not make it: a drain of that replica waits for the last event.
#[tokio::test]
async fn fault_o01_a_drain_waits_for_those_who_follow_a_response() {
    let gate = Gate::default();
    let script = Script::stream().text("a.0 ").wait(&gate).text("a.1 ");
    let setup = on(&database().await).config("[timeouts]\nsettle = 0.2");
    let world = World::start(script.stop(), setup.clone()).await;
    let other = another(&world, &setup).await;
    let made = started(world.proxy()).await;
    let mut reader = at(&made, "?stream=true")
        .begin_until(other.proxy, "a.0")
        .await;
    let admin = other.admin;
    let waits = tokio::spawn(async move { Request::get("/drain/wait").answer(admin).await });
    let refused = || std::net::TcpStream::connect(other.proxy).is_err();
    until("the listener is closed", refused).await;
    let status = other.admin("/status").await.json();
    assert_eq!(
        (&status["requests_running"], waits.is_finished()),
        (&json!(1), false)
    );
    gate.open();
    let rest = String::from_utf8(reader.rest().await).unwrap();
    assert!(rest.contains("response.completed"), "{rest}");
    let drained = within("the drain ends", waits).await.expect("no panic");
    assert_eq!((drained.head.status, drained.text()), (200, "drained\n"));
    world.end().await;
}

#[tokio::test]
async fn what_one_has_made_the_other_continues_and_removes() {
    let setup = on(&database().await);
    let world = World::start(engine(), setup.clone()).await;
    let other = another(&world, &setup).await;
    let first = object(&world.request(&prompt("text", "")).await);
    assert_eq!(
        object(&at(&id(&first), "").answer(other.proxy).await),
        first
    );
    let next = prompt(
        "text",
        &format!(r#","previous_response_id":"{}""#, id(&first)),
    );
    let second = object(&next.answer(other.proxy).await);
    let body = world.engine.attempts()[1].json();
    assert_eq!(
        body["messages"][1],
        json!({"role": "assistant", "content": "Hello wörld\n"})
    );
    assert_eq!(object(&world.request(&at(&id(&second), "")).await), second);
    let items = [
        world.request(&at(&id(&second), "/input_items")).await,
        at(&id(&second), "/input_items").answer(other.proxy).await,
    ];
    assert_eq!(object(&items[0]), object(&items[1]));
    let gone = Request::new("DELETE", &format!("/v1/responses/{}", id(&second)));
    assert_eq!(world.request(&gone).await.head.status, 200);
    assert_eq!(
        at(&id(&second), "").answer(other.proxy).await.head.status,
        404
    );
    world.end().await;
}

/// Replicas that share a store seal with one key.
#[tokio::test]
async fn what_one_has_sealed_the_other_opens() {
    let setup = on(&database().await);
    let world = World::start(engine(), setup.clone()).await;
    let other = another(&world, &setup).await;
    const INCLUDE: &str = r#","store":false,"include":["reasoning.encrypted_content"]"#;
    let mut item = object(&world.request(&prompt("reason", INCLUDE)).await)["output"][0].clone();
    item["content"] = json!([]);
    let body =
        json!({"model": "text", "store": false, "input": [item, {"role": "user", "content": "x"}]});
    let answer = Request::post("/v1/responses", body.to_string())
        .answer(other.proxy)
        .await;
    assert_eq!(answer.head.header("x-samewire-dropped"), None);
    object(&answer);
    let sent = world.engine.attempts()[1].json();
    assert_eq!(
        sent["messages"][0],
        json!({"role": "assistant", "content": "", "reasoning": "Two and two."})
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c42_c43_the_other_reads_along_from_any_event_and_cancels() {
    let setup = on(&database().await);
    let engine = Engine::in_turn(vec![slow(60), slow(3_000)]).await;
    let world = World::start(engine, setup.clone()).await;
    let other = another(&world, &setup).await;
    let made = started(world.proxy()).await;
    let readers: Vec<_> = (0..8)
        .map(|n| match n {
            0 => at(&made, "?stream=true"),
            n => at(&made, &format!("?stream=true&starting_after={}", n * 9 - 9)),
        })
        .map(|request| tokio::spawn(follow(other.proxy, request)))
        .collect();
    let all = follow(world.proxy(), at(&made, "?stream=true")).await;
    sound(&all, 0, "response.completed");
    for (n, reader) in readers.into_iter().enumerate() {
        let from = n.checked_sub(1).map_or(0, |n| n * 9 + 1);
        assert_eq!(reader.await.unwrap(), all[from..], "from {from}");
    }
    for after in 0..all.len() {
        let request = at(&made, &format!("?stream=true&starting_after={after}"));
        assert_eq!(follow(other.proxy, request).await, all[after + 1..]);
    }
    assert_eq!(
        object(&at(&made, "").answer(other.proxy).await),
        all.last().unwrap()["response"]
    );

    let endless = started(world.proxy()).await;
    until("the engine works", || {
        world.engine.active_generations() == 1
    })
    .await;
    let reader = tokio::spawn(follow(other.proxy, at(&endless, "?stream=true")));
    let cancel = Request::post(&format!("/v1/responses/{endless}/cancel"), "");
    let cancelled = object(&cancel.answer(other.proxy).await);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(object(&world.request(&at(&endless, "")).await), cancelled);
    until("the engine stops", || {
        world.engine.active_generations() == 0
    })
    .await;
    sound(&reader.await.unwrap(), 0, "response.incomplete");
    world.end().await;
}

/// Starts background responses on a samewire that is killed at a random moment. Returns their ids.
async fn killed(world: &World, setup: &Setup, responses: usize, mut random: StdRng) -> Vec<String> {
    let mut pause =
        async || tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
    let replica = another(world, setup).await;
    let mut ids = Vec::new();
    for _ in 0..responses {
        ids.push(started(replica.proxy).await);
        pause().await;
    }
    replica.signal("KILL");
    ids
}

/// Ten samewires are killed and one is suspended. The two others close the responses of these, each once. The
/// suspended one finds on resuming that it owns nothing any more.
#[tokio::test]
async fn fault_o16_what_a_lost_replica_ran_is_closed_once() {
    const KILLED: usize = 10;
    const EACH: usize = 3;
    // Leases end after a third of the usual time, and each still has five heartbeats.
    const LEASE: &str = "[timeouts]\nbackground_lease = 5\nbackground_heartbeat = 1";
    let mut random = random();
    let database = database().await;
    let setup = on(&database).config(LEASE);
    let endless = Script::stream()
        .tok("a", 3_000, Duration::from_millis(15))
        .hang();
    let world = World::start(endless, setup.clone().allow_errors()).await;
    let other = another(&world, &setup).await;
    let stopped = another(&world, &setup).await;
    let mut lost = Vec::new();
    for _ in 0..EACH {
        lost.push(started(stopped.proxy).await);
    }
    let survives = started(world.proxy()).await;
    let kills =
        (0..KILLED).map(|_| killed(&world, &setup, EACH, StdRng::seed_from_u64(random.random())));
    lost.extend(futures::future::join_all(kills).await.concat());
    until("the engine works", || {
        world.engine.active_generations() == EACH + 1
    })
    .await;
    stopped.signal("STOP");
    let crash = Instant::now();
    let readers: Vec<_> = lost
        .iter()
        .map(|id| tokio::spawn(follow(other.proxy, at(id, "?stream=true&starting_after=0"))))
        .collect();
    for id in &lost {
        loop {
            let stored = object(&world.request(&at(id, "")).await);
            if stored["status"] == "failed" {
                let error = &stored["error"];
                assert_eq!(error["code"], "server_error");
                assert!(
                    error["message"]
                        .as_str()
                        .unwrap()
                        .contains("[replica_lost]"),
                    "{error}"
                );
                break;
            }
            assert!(
                ["queued", "in_progress"]
                    .iter()
                    .any(|status| stored["status"] == *status),
                "{stored}"
            );
            assert!(crash.elapsed() < TOLD, "{id} still runs");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    for reader in readers {
        sound(&reader.await.unwrap(), 1, "response.failed");
    }
    assert!(crash.elapsed() < TOLD, "{:?}", crash.elapsed());
    let table = connect(&database).await;
    let rows = async || {
        let sql = "SELECT id, owner, term, state, events, bytes FROM samewire_records \
                   WHERE id <> $1 ORDER BY id";
        let rows = table.query(sql, &[&survives]).await.unwrap();
        let row = |row: &tokio_postgres::Row| {
            let text = |at: usize| row.get::<_, String>(at);
            let number = |at: usize| row.get::<_, i64>(at);
            (text(0), text(1), number(2), number(3), number(4), number(5))
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let closed = rows().await;
    assert_eq!(closed.len(), lost.len());
    // Each was taken over once (term 2), and has failed (state 4).
    assert!(
        closed.iter().all(|row| (row.2, row.3) == (2, 4)),
        "{closed:?}"
    );
    stopped.signal("CONT");
    until("it stops working", || {
        world.engine.active_generations() == 1
    })
    .await;
    assert_eq!(rows().await, closed);
    assert_eq!(
        object(&world.request(&at(&survives, "")).await)["status"],
        "in_progress"
    );
    world
        .post(&format!("/v1/responses/{survives}/cancel"), "")
        .await;
    world.end().await;
}
