//! Memory that large batches take.

use super::{
    batches, create, echo, line, object, prompt_of, results, started, until_batch, upload, uploaded,
};
use crate::sim::prelude::*;

const LINES: usize = 200_000;

/// Blank lines take no memory, also after a line that takes long: they are one range of lines that are done.
#[tokio::test]
async fn fault_o37_blank_lines_take_no_memory() {
    let (gate, folder) = (Gate::default(), Folder::new());
    let held = gate.clone();
    let engine = Engine::answering(move |attempt| match prompt_of(attempt).as_str() {
        "wait" => super::echo_after(Script::new().wait(&held), attempt),
        _ => echo(attempt),
    })
    .await;
    let setup = Setup::stored(&folder)
        .config("[batch]\nenabled = true\n")
        .in_front_of(&engine);
    let samewire = Samewire::start(&setup).await;
    let proxy = samewire.proxy;
    let input = format!(
        "{}{}{}",
        line("a", "wait"),
        "\n".repeat(3 << 19),
        line("b", "quick")
    );
    let mut client = Client::connect(proxy).await.with_patience(PATIENCE * 6);
    client.send(&upload(&input).bytes()).await;
    let file = client.answer().await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let before = samewire.allocated();
    let made = object(proxy, create(&file, "/v1/chat/completions")).await;
    let id = made["id"].as_str().unwrap();
    // The line after them is run once all of them have been read.
    until_within("all of them are read", PATIENCE * 6, || {
        engine.attempt_count() == 2
    })
    .await;
    let grown = samewire.allocated().saturating_sub(before);
    println!("{grown} bytes of memory");
    assert!(grown < 16 << 20, "{grown} bytes");
    gate.open();
    let over = super::ended(proxy, id).await;
    assert_eq!(
        over["request_counts"],
        parsed(r#"{"total":2,"completed":2,"failed":0}"#),
        "{over}"
    );
    assert_eq!(results(proxy, &over["output_file_id"]).await.len(), 2);
}

#[tokio::test]
async fn fault_o37_a_large_file_takes_little_memory() {
    let (engine, folder) = (Engine::answering(echo).await, Folder::new());
    let setup = Setup::stored(&folder)
        .config("[batch]\nenabled = true\n")
        .in_front_of(&engine);
    let samewire = Samewire::start(&setup).await;
    let proxy = samewire.proxy;
    let before = samewire.allocated();
    let input: String = (0..LINES)
        .map(|n| line(&format!("id-{n}"), &"x".repeat(100)))
        .collect();
    let mut client = Client::connect(proxy).await.with_patience(PATIENCE * 6);
    client.send(&upload(&input).bytes()).await;
    let answer = client.answer().await.with_status(200);
    let file = answer.json()["id"].as_str().unwrap().to_owned();
    let made = object(proxy, create(&file, "/v1/chat/completions")).await;
    let id = made["id"].as_str().unwrap();
    let run = until_batch(proxy, id, |batch| {
        batch["request_counts"]["completed"].as_u64() >= Some(500)
    })
    .await;
    assert_eq!(run["request_counts"]["total"], LINES);
    let grown = samewire.allocated().saturating_sub(before);
    println!("{} bytes of input, {grown} bytes of memory", input.len());
    assert!(input.len() > 40 << 20, "{}", input.len());
    assert!(
        grown < 64 << 20,
        "{grown} bytes more for {} bytes of input",
        input.len()
    );
    object(
        proxy,
        Request::post(&format!("/v1/batches/{id}/cancel"), ""),
    )
    .await;
    until_batch(proxy, id, super::is_over).await;
    // The whole content comes back.
    let mut client = Client::connect(proxy).await.with_patience(PATIENCE * 6);
    client
        .send(&Request::get(&format!("/v1/files/{file}/content")).bytes())
        .await;
    assert_eq!(client.answer().await.text(), input);
}

const BODIES: &str = "samewire_bodies_in_flight_bytes";

/// Starts a world in which requests have two megabytes of memory for their bodies.
async fn narrow(engine: Engine) -> World {
    let limits = "[limits]\nbodies_in_flight_bytes = 2000000";
    World::start(engine, batches("").config(limits)).await
}

/// Checks that a client's request finds room in memory.
async fn has_room(world: &World) {
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "c".repeat(900_000)
    );
    world
        .post("/v1/chat/completions", body)
        .await
        .with_status(200);
}

/// Long lines, of which two batches have more than there is memory for: they leave half of it to clients.
#[tokio::test]
async fn fault_o35_lines_leave_memory_to_clients() {
    let (gate, held) = Gate::pair();
    let engine = Engine::answering(move |attempt| {
        let script = Script::new();
        let is_line = prompt_of(attempt).starts_with('l');
        let script = if is_line { script.wait(&held) } else { script };
        script.followed_by(Script::completion("a"))
    });
    let world = narrow(engine.await).await;
    let lines: String = (0..6)
        .map(|n| line(&n.to_string(), &"l".repeat(300_000)))
        .collect();
    let ids = [
        started(world.proxy(), &lines).await,
        started(world.proxy(), &lines).await,
    ];
    // No more than three of the twelve lines have room at once.
    world.engine.wait_attempts(3).await;
    has_room(&world).await;
    assert_eq!(world.engine.attempt_count(), 4);
    gate.open();
    for id in ids {
        let over = super::ended(world.proxy(), &id).await;
        assert_eq!(
            results(world.proxy(), &over["output_file_id"]).await.len(),
            6,
            "{over}"
        );
    }
    world.samewire.metric_becomes(BODIES, 0).await;
    world.end().await;
}

/// Clients that download long lines and do not read take no memory that requests need.
#[tokio::test]
async fn fault_o37_downloads_leave_memory_to_requests() {
    let world = narrow(Engine::answering(echo).await).await;
    let text = format!("{}\n", "x".repeat(300_000)).repeat(64);
    let id = uploaded(world.proxy(), &text).await;
    let download = Request::get(&format!("/v1/files/{id}/content")).bytes();
    let mut idle = Vec::new();
    for _ in 0..6 {
        let mut client = Client::connect_narrow(world.proxy()).await;
        client.send(&download).await;
        client.head().await;
        idle.push(client);
    }
    has_room(&world).await;
    for client in idle {
        client.leave(CloseKind::Rst);
    }
    let mut reader = Client::connect(world.proxy())
        .await
        .with_patience(PATIENCE * 6);
    reader.send(&download).await;
    assert_eq!(reader.answer().await.text(), text);
    world.samewire.metric_becomes(BODIES, 0).await;
    world.end_without_checks();
}
