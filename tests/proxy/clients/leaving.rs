//! Clients that leave, and clients that stop reading: for the former the engine must stop, for the latter it must
//! wait.

use crate::sim::MOMENTS;
use crate::sim::prelude::*;

/// Sends a request, waits for the moment and leaves. Returns the time until the engine saw the close.
async fn leave_at(
    world: &World,
    moment: &str,
    streaming: bool,
    manner: CloseKind,
    surplus: usize,
) -> Duration {
    let n = world.engine.attempt_count();
    let user = format!(r#","user":"{moment}""#);
    let request = if streaming {
        Request::stream(&user)
    } else {
        Request::plain(&user)
    };
    let mut client = world.send(&request).await;
    client.send(&b"X".repeat(surplus)).await;
    until("the request reaches the engine", || {
        world.engine.attempt_count() > n
    })
    .await;
    if moment != "before-head" {
        until("the engine has answered", || world.engine.written(n) > 0).await;
    }
    if streaming && matches!(moment, "between-tokens" | "writing") {
        client.event_with_head("content").await;
    }
    let left = client.leave(manner);
    until("the engine sees the close", || {
        world.engine.closed(n).is_some()
    })
    .await;
    let (seen, _) = world.engine.closed(n).expect("just seen");
    assert_eq!(
        world.engine.attempt_count(),
        n + 1,
        "not tried again for a client that has left"
    );
    seen.saturating_duration_since(left)
}

/// Leaves `rounds` times at each of the moments, in both manners, and checks the times.
async fn check(rows: &[(&str, bool)], rounds: usize, surplus: usize, name: &str) {
    let world = World::start(Engine::by_moment(), Setup::new()).await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        for &(moment, streaming) in rows {
            for manner in [CloseKind::Fin, CloseKind::Rst] {
                let time = leave_at(&world, moment, streaming, manner, surplus).await;
                assert!(
                    time < SOON,
                    "{moment}, streaming {streaming}, {manner:?}: {time:?}"
                );
                times.push(time);
            }
        }
    }
    times.sort();
    println!(
        "{name}: median {:?}, worst {:?} of {}",
        times[times.len() / 2],
        times[times.len() - 1],
        times.len()
    );
    let lines = || world.samewire.request_lines();
    until("a line for each request", || lines().len() >= times.len()).await;
    for line in lines() {
        assert!(line.contains(r#""end":"client_closed""#), "{line}");
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c24_disconnect_before_the_first_token_closes_the_engine() {
    let rows = [
        ("before-head", true),
        ("prefill", true),
        ("after-role", true),
    ];
    check(&rows, 5, 0, "left before the first token").await;
}

#[tokio::test]
async fn fault_c24_disconnect_while_a_whole_answer_is_made_closes_the_engine() {
    check(
        &[("before-head", false), ("half-body", false)],
        5,
        0,
        "left before a whole answer",
    )
    .await;
}

#[tokio::test]
async fn fault_c25_disconnect_in_the_stream_closes_the_engine() {
    check(
        &[("between-tokens", true), ("writing", true)],
        5,
        0,
        "left between tokens",
    )
    .await;
}

#[tokio::test]
async fn fault_c26_disconnect_behind_a_surplus_byte_closes_the_engine() {
    let rows = [
        ("before-head", true),
        ("before-head", false),
        ("prefill", true),
        ("between-tokens", true),
    ];
    check(&rows, 2, 1, "left after a surplus byte").await;
}

/// More surplus bytes than are ever read ahead, so that the close of the connection stays after unread bytes.
#[tokio::test]
async fn fault_c26_disconnect_behind_many_surplus_bytes_closes_the_engine() {
    let rows = [
        ("before-head", true),
        ("before-head", false),
        ("prefill", true),
        ("between-tokens", true),
    ];
    for surplus in [9_000, 20_000, 100_000] {
        check(&rows, 1, surplus, "left after surplus bytes").await;
    }
}

#[tokio::test]
async fn fault_c24_disconnect_while_connecting() {
    let (url, _held) = crate::sim::unanswered_address();
    let world = World::start(Script::new(), Setup::new().upstream(&url).allow_errors()).await;
    let client = world.send(&Request::stream("")).await;
    let is_busy =
        |line: &str| line.starts_with("samewire_requests_in_flight") && !line.ends_with(" 0");
    let in_flight = |metrics: &str| metrics.lines().any(is_busy);
    world
        .samewire
        .metrics_when("the request is in flight", in_flight)
        .await;
    let left = client.leave(CloseKind::Fin);
    until("the request is given up", || {
        world
            .samewire
            .request_lines()
            .iter()
            .any(|line| line.contains(r#""end":"client_closed""#))
    })
    .await;
    assert!(left.elapsed() < SOON, "{:?}", left.elapsed());
    world.end().await;
}

/// Clients that leave do not count as failures of the engine, however many do so one after the other.
#[tokio::test]
async fn fault_c24_c25_disconnects_are_no_failures_of_the_engine() {
    const EACH: usize = 15;
    let engines = Engine::several(2, |attempt| {
        let moment = MOMENTS
            .into_iter()
            .find(|moment| attempt.text().contains(moment));
        moment.map_or_else(|| Script::answer("a", 2), Script::up_to)
    });
    let world = World::fleet_up(engines.await, Setup::new(), &[]).await;
    let idle = || {
        world
            .engines()
            .all(|engine| engine.active_generations() == 0)
    };
    let mut left = 0;
    for (moment, manner) in [
        ("prefill", CloseKind::Fin),
        ("between-tokens", CloseKind::Rst),
    ] {
        for _ in 0..EACH {
            let mut client = world
                .send(&Request::stream(&format!(r#","user":"{moment}""#)))
                .await;
            until("it has the request", || {
                world.attempt_counts().iter().sum::<usize>() > left
            })
            .await;
            if moment == "between-tokens" {
                client.event_with_head("content").await;
            }
            client.leave(manner);
            until("the answer is cancelled", idle).await;
            left += 1;
        }
    }
    let lines = || world.samewire.request_lines();
    until("a line for each request", || lines().len() >= left).await;
    let lines = lines();
    for line in &lines {
        assert!(
            line.contains(r#""end":"client_closed""#) && line.contains(r#""level":"INFO""#),
            "{line}"
        );
    }
    let with = |status: &str| lines.iter().filter(|line| line.contains(status)).count();
    assert_eq!(
        (with(r#""status":499,"#), with(r#""status":200,"#)),
        (EACH, EACH),
        "{lines:#?}"
    );
    let cancels = world
        .samewire
        .sum("samewire_upstream_cancels_total", &[])
        .await;
    assert_eq!(cancels, left as u64, "once");
    let before = world.attempt_counts();
    assert_eq!(before.iter().sum::<usize>(), left, "none is tried again");
    for _ in 0..30 {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    let shares = world.attempt_counts();
    assert!(
        shares.iter().zip(&before).all(|(now, then)| now > then),
        "{before:?} {shares:?}"
    );
    world.samewire.finished(left + 30).await;
    assert_eq!(world.samewire.count_logged("ejected"), 0);
    world.end().await;
}

/// A client that closes the connection after its answer does not count as one that left.
#[tokio::test]
async fn close_after_the_answer_is_no_disconnect() {
    let world = World::start(Script::answer("a", 2), Setup::new()).await;
    for _ in 0..10 {
        world.stream("").await;
    }
    let lines = world.samewire.finished(10).await;
    assert!(
        lines
            .iter()
            .all(|line| line.contains(r#""end":"complete""#)),
        "{lines:#?}"
    );
    world.end().await;
}

/// Events of these answers of 26 MB, which is more than the sockets and buffers between engine and client hold.
const EVENTS: u64 = 1_600;
const SIZE: usize = 16 * 1024;

#[tokio::test]
async fn fault_c09_slow_reader_slows_the_engine_and_loses_nothing() {
    let gate = Gate::default();
    let script = Script::stream().text("ready").wait(&gate);
    let script = script
        .then(Step::Flood {
            events: EVENTS,
            size: SIZE,
        })
        .stop();
    let world = World::start(script, Setup::new()).await;
    let mut client = Request::stream("").send_narrow(world.proxy()).await;
    client.event_with_head("ready").await;
    let before = world.samewire.allocated();
    gate.open();
    client.event_with("\"0:x").await;
    let held = settled(|| world.engine.written(0)).await;
    let grown = world.samewire.allocated().saturating_sub(before);
    println!("slow reader: the engine got rid of {held} bytes, samewire grew by {grown}");
    assert!(held < 20 << 20, "the engine was not held back: {held}");
    assert!(grown < 8 << 20, "samewire keeps what nobody reads: {grown}");
    for n in 1..EVENTS {
        let event = client.event().await.expect("another event");
        let (_, text) = event.split_once("\"content\":\"").expect("content");
        let (number, text) = text.split_once(':').expect("a numbered event");
        assert_eq!(
            (number.parse(), text.find(';')),
            (Ok(n), Some(SIZE)),
            "every event comes, in order and whole"
        );
    }
    client.event_with("[DONE]").await;
    assert_eq!(
        (client.event().await, client.ended()),
        (None, Ended::LastChunk)
    );
    assert!(world.samewire.allocated().saturating_sub(before) < 8 << 20);
    world.end().await;
}

#[tokio::test]
async fn fault_c09_stopped_reader_that_leaves_closes_the_engine() {
    let script = Script::stream()
        .then(Step::Flood {
            events: EVENTS,
            size: SIZE,
        })
        .hang();
    let world = World::start(script, Setup::new()).await;
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let n = world.engine.attempt_count();
        let mut client = Request::stream("").send_narrow(world.proxy()).await;
        client.head().await;
        settled(|| world.engine.written(n)).await;
        let left = client.leave(manner);
        until("the engine sees the close", || {
            world.engine.closed(n).is_some()
        })
        .await;
        let (seen, _) = world.engine.closed(n).expect("just seen");
        assert!(seen.saturating_duration_since(left) < SOON, "{manner:?}");
    }
    world.end().await;
}

/// Returns the value once it has been above zero and unchanged for half a second.
pub async fn settled(mut value: impl FnMut() -> u64) -> u64 {
    let (mut last, mut since, start) = (0, Instant::now(), Instant::now());
    loop {
        let now = value();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if last > 0 && since.elapsed() > Duration::from_millis(500) {
            return last;
        }
        assert!(start.elapsed() < PATIENCE, "never settles");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
