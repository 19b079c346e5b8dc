//! Client connections dropped at every await point of their task, as if the client had left at that moment (P12):
//! at the first await after the request head, then at the second, and so on until no await is left. After each drop
//! everything is as it was (P11).

use crate::operations::interleavings::{descriptors, is_as_before};
use crate::responses::over_chat::chunk;
use crate::sim::prelude::*;
use std::collections::HashMap;

/// Upper bound of the awaits in any of these exchanges.
const MOST: usize = 500;
/// Number of complete answers after which the exchange counts as explored: its last await is then passed.
const BEHIND: usize = 8;

const CONFIG: &str =
    "[retry]\nbudget_per_second = 1000\n[health]\ninterval = 60\ndown_after = 100000";
/// Seconds in which an engine that answers has begun to, also on a busy machine.
const ENOUGH: f32 = 10.0;
const MS: Duration = Duration::from_millis(1);

/// Returns a setup with one worker thread, so that the order of events is that of the tasks. An engine has
/// `first_token` seconds for its first word.
fn setup(first_token: f32) -> Setup {
    let times = format!("[timeouts]\nfirst_token = {first_token}\npool_idle = 0.3");
    Setup::new()
        .allow_errors()
        .args(&["--threads", "1", "--store", "memory"])
        .config(&times)
        .config(CONFIG)
}

async fn alone(
    first_token: f32,
    script: impl Fn(&Attempt) -> Script + Send + Sync + 'static,
) -> World {
    let world = World::start(Engine::answering(script), setup(first_token)).await;
    world.wait_until_up().await;
    world
}

/// Sends the request repeatedly, each time dropped one await later. With `pieces`, the body is sent in two parts.
/// Returns how many awaits came before the complete answer with this status.
async fn explored(
    world: &World,
    status: u16,
    pieces: bool,
    request: impl Fn(usize) -> Request,
) -> usize {
    assert_eq!(
        send(world, &request(MOST), pieces).await,
        Some(status),
        "undisturbed"
    );
    // Lets descriptors settle that the process opens once or keeps for a while.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let before = descriptors(world);
    let (mut whole, mut dropped) = (0, 0);
    for waits in 0..MOST {
        let request = request(waits).header("x-samewire-leave", &waits.to_string());
        match send(world, &request, pieces).await {
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

/// Sends a request and returns the status of its answer, or `None` if the answer is incomplete.
async fn send(world: &World, request: &Request, pieces: bool) -> Option<u16> {
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
    Script::stream()
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
    let world = alone(ENOUGH, |_| paced()).await;
    for pieces in [false, true] {
        let waits = explored(&world, 200, pieces, |_| Request::stream("")).await;
        assert!(waits >= 5, "{waits}: each event is waited for");
    }
    world.end().await;
}

#[tokio::test]
async fn leaving_at_any_wait_of_a_whole_answer() {
    let world = alone(ENOUGH, |_| {
        Script::new()
            .sleep(MS * 3)
            .followed_by(Script::completion("whole"))
    })
    .await;
    explored(&world, 200, true, |_| Request::plain("")).await;
    world.end().await;
}

/// Leaving while an engine breaks off, during the pause before the next attempt, and while the next engine answers.
#[tokio::test]
async fn leaving_at_any_wait_of_a_second_attempt() {
    let seen = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let script = move |attempt: &Attempt| {
        let (_, user) = attempt.text().split_once("\"user\":\"").expect("a user");
        let mut seen = seen.lock().expect("no panic");
        let times = seen.entry(user.to_owned()).or_default();
        *times += 1;
        if *times == 1 {
            Script::new().sleep(MS).rst()
        } else {
            paced()
        }
    };
    let world = World::fleet_up(Engine::several(4, script).await, setup(ENOUGH), &[]).await;
    explored(&world, 200, false, |waits| {
        Request::stream(&format!(r#","user":"{waits}""#))
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn leaving_at_any_wait_for_an_engine_that_says_nothing() {
    let world = alone(0.1, |_| Script::new().head_sse().hang()).await;
    explored(&world, 504, false, |_| Request::stream("")).await;
    world.end().await;
}

/// Leaving around the write to the store, which happens when the answer is complete and before its end is sent.
#[tokio::test]
async fn leaving_at_any_wait_of_a_response() {
    let count = AtomicUsize::new(0);
    let world = alone(ENOUGH, move |_| {
        // A record can be stored only once under the id of its answer.
        let id = format!("chatcmpl-{}", count.fetch_add(1, Ordering::Relaxed));
        let piece = |text: &str| chunk(&id, &format!(r#"{{"content":"{text}"}}"#), "null");
        let stream = Script::new()
            .head_sse()
            .ev(&piece("a"))
            .sleep(MS)
            .ev(&piece("b"))
            .sleep(MS);
        stream
            .ev(&chunk(&id, "{}", "\"stop\""))
            .sleep(MS)
            .done()
            .end()
    })
    .await;
    for stream in [true, false] {
        let body = format!(r#"{{"model":"m","input":"x","stream":{stream}}}"#);
        explored(&world, 200, false, |_| {
            Request::post("/v1/responses", body.clone())
        })
        .await;
    }
    world.end().await;
}
