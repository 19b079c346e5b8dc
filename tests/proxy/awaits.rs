//! A client's connection dropped wherever its task may wait, as if the client had left in that very moment (P12): the first time
//! that it waits behind the request's head, the second time, and so on until nothing is left to wait for. After each, everything
//! is as it was (P11).

use crate::interleavings::{descriptors, is_as_before};
use crate::responses::chunk;
use crate::sim::{Attempt, Client, Ended, Engine, Request, Script, Setup, World};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// More waits than any of these exchanges has.
const MOST: usize = 500;
/// So often the answer must have come whole: its last waits are behind it.
const BEHIND: usize = 8;

const CONFIG: &str = "[timeouts]\nfirst_token = 0.3\npool_idle = 0.3\n[retry]\nbudget_per_second = 1000\n\
                      [health]\ninterval = 60\ndown_after = 100000";
const MS: Duration = Duration::from_millis(1);

/// One thread, so that the order of things is that of one task after the other.
fn setup() -> Setup {
    Setup::new().faulty().args(&["--threads", "1", "--store", "memory"]).config(CONFIG)
}

async fn alone(script: impl Fn(&Attempt) -> Script + Send + Sync + 'static) -> World {
    let world = World::start(Engine::answering(script).await, setup()).await;
    world.is_up().await;
    world
}

/// Sends the request again and again, each time with one wait more before it is dropped; `pieces`: its body comes in two.
/// Gives how many waits it took until the answer of this status was there.
async fn explored(world: &World, status: u16, pieces: bool, request: impl Fn(usize) -> Request) -> usize {
    assert_eq!(ask(world, &request(MOST), pieces).await, Some(status), "undisturbed");
    // What the process opens once, and what it keeps for a while.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let before = descriptors(world);
    let (mut whole, mut dropped) = (0, 0);
    for waits in 0..MOST {
        let request = request(waits).header("x-samewire-leave", &waits.to_string());
        match ask(world, &request, pieces).await {
            Some(answered) if answered == status => whole += 1,
            Some(_) => {}
            None => dropped += 1,
        }
        is_as_before(world, before).await;
        if whole > BEHIND {
            assert!(dropped > 0, "it has to wait for something");
            return waits - BEHIND;
        }
    }
    panic!("after {MOST} waits there is no answer, {dropped} times dropped");
}

/// The status of an answer that came whole.
async fn ask(world: &World, request: &Request, pieces: bool) -> Option<u16> {
    let mut client = Client::connect(world.proxy()).await;
    let bytes = request.bytes();
    let (head, rest) = bytes.split_at(bytes.len() - if pieces { 10 } else { 0 });
    if !client.try_send(head).await {
        return None;
    }
    if pieces {
        tokio::time::sleep(MS).await;
        client.try_send(rest).await;
    }
    let answer = client.try_answer().await?;
    matches!(answer.ended, Ended::LastChunk | Ended::Length).then_some(answer.head.status)
}

fn paced() -> Script {
    Script::new()
        .head_sse()
        .role()
        .sleep(MS)
        .tok("a", 5, MS)
        .sleep(MS)
        .finish("stop")
        .sleep(MS)
        .usage(3, 5)
        .done()
        .end()
}

#[tokio::test]
async fn leaving_at_any_wait_of_a_stream() {
    let world = alone(|_| paced()).await;
    for pieces in [false, true] {
        let waits = explored(&world, 200, pieces, |_| Request::stream("")).await;
        assert!(waits >= 5, "{waits}: each event is waited for");
    }
    world.end().await;
}

#[tokio::test]
async fn leaving_at_any_wait_of_a_whole_answer() {
    const BODY: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}]}"#;
    let world = alone(|_| Script::new().sleep(MS * 3).json("200 OK", BODY)).await;
    explored(&world, 200, true, |_| Request::plain("")).await;
    world.end().await;
}

/// While an engine breaks off, while the pause before the next one lasts, and while that one answers.
#[tokio::test]
async fn leaving_at_any_wait_of_a_second_attempt() {
    let seen = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let mut engines = Vec::new();
    for _ in 0..4 {
        let seen = Arc::clone(&seen);
        let script = move |attempt: &Attempt| {
            let (_, user) = attempt.text().split_once("\"user\":\"").expect("a user");
            let mut seen = seen.lock().expect("no panic");
            let times = seen.entry(user.to_owned()).or_default();
            *times += 1;
            if *times == 1 { Script::new().sleep(MS).rst() } else { paced() }
        };
        engines.push(Engine::answering(script).await);
    }
    let world = World::fleet(engines, setup(), &[]).await;
    world.is_up().await;
    explored(&world, 200, false, |waits| Request::stream(&format!(r#","user":"{waits}""#))).await;
    world.end().await;
}

#[tokio::test]
async fn leaving_at_any_wait_for_an_engine_that_says_nothing() {
    let world = alone(|_| Script::new().head_sse().hang()).await;
    explored(&world, 504, false, |_| Request::stream("")).await;
    world.end().await;
}

/// What is stored is written when the answer is there, and before its end is told.
#[tokio::test]
async fn leaving_at_any_wait_of_a_response() {
    let count = AtomicUsize::new(0);
    let world = alone(move |_| {
        // A record is there once, under the id of its answer.
        let id = format!("chatcmpl-{}", count.fetch_add(1, Ordering::Relaxed));
        let piece = |text: &str| chunk(&id, &format!(r#"{{"content":"{text}"}}"#), "null");
        let stream = Script::new().head_sse().ev(&piece("a")).sleep(MS).ev(&piece("b")).sleep(MS);
        stream.ev(&chunk(&id, "{}", "\"stop\"")).sleep(MS).done().end()
    })
    .await;
    for stream in [true, false] {
        let body = format!(r#"{{"model":"m","input":"x","stream":{stream}}}"#);
        explored(&world, 200, false, |_| Request::post("/v1/responses", body.clone())).await;
    }
    world.end().await;
}
