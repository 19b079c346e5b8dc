//! Time from a client's leaving to the moment when its engine sees the cancellation.

use super::percentile;
use crate::lock::alone;
use crate::sim::prelude::*;
use crate::sim::{RawH2Client, unanswered_address};

/// Number of cancellations of each kind.
const ROUNDS: usize = 100;
/// Limit for 95 of 100 cancellations, and the limit for all, each on top of the machine's own delay.
const MOST: Duration = Duration::from_millis(100);
const WORST: Duration = Duration::from_secs(1);

/// Progress of the engine when the client leaves.
const MOMENTS: [&str; 4] = ["before-head", "prefill", "between-tokens", "writing"];

/// Ways in which a client leaves, over HTTP/1.1 and over HTTP/2.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// Closes its HTTP/1.1 connection, in this manner.
    Closes(CloseKind),
    /// Resets its HTTP/2 stream.
    ResetsStream,
}

const MANNERS: [Leaves; 3] = [
    Leaves::Closes(CloseKind::Fin),
    Leaves::Closes(CloseKind::Rst),
    Leaves::ResetsStream,
];

/// Sends a request to `to`, waits until the engine has reached the moment, and leaves. Returns the time until the
/// engine saw it.
async fn leave_at(engine: &Engine, to: SocketAddr, moment: &str, leaves: Leaves) -> Duration {
    let n = engine.attempt_count();
    let request = Request::stream(&format!(r#","user":"{moment}""#));
    let has_come = async || {
        until("the request reaches the engine", || {
            engine.attempt_count() > n
        })
        .await;
        if moment != "before-head" {
            until("the engine has answered", || engine.written(n) > 0).await;
        }
    };
    let left = match leaves {
        Leaves::Closes(manner) => {
            let client = request.send(to).await;
            has_come().await;
            client.leave(manner)
        }
        Leaves::ResetsStream => {
            let mut raw = RawH2Client::with_request(to, &request).await;
            has_come().await;
            let left = Instant::now();
            raw.send(&RawH2Client::reset(1)).await;
            until("the engine sees it", || engine.closed(n).is_some()).await;
            left
        }
    };
    until("the engine sees it", || engine.closed(n).is_some()).await;
    let (seen, _) = engine.closed(n).expect("just seen");
    assert_eq!(
        engine.attempt_count(),
        n + 1,
        "not tried again for a client that has left"
    );
    seen.saturating_duration_since(left)
}

/// Returns the machine's own delay: the same without samewire between client and engine.
async fn without_samewire(engine: &Engine) -> Duration {
    leave_at(
        engine,
        engine.address,
        "between-tokens",
        Leaves::Closes(CloseKind::Fin),
    )
    .await
}

/// Checks the times against the limits, on top of those of the machine.
fn judge(name: &str, mut through: Vec<Duration>, mut machine: Vec<Duration>) {
    let at = |times: &mut [Duration]| [50, 95, 100].map(|hundredths| percentile(times, hundredths));
    let ([median, most, worst], [of_machine, noise, worst_noise]) =
        (at(&mut through), at(&mut machine));
    println!(
        "{name}: {median:?}, 95 of 100 {most:?}, all {worst:?}; the machine {of_machine:?}, {noise:?}, {worst_noise:?}"
    );
    assert!(most <= MOST + noise, "{name}: {through:?}");
    assert!(worst <= WORST + worst_noise, "{name}: {through:?}");
}

#[tokio::test]
async fn fault_c24_c25_an_engine_is_let_go_of_within_100_ms() {
    let _alone = alone().await;
    let world = World::start(Engine::by_moment(), Setup::new()).await;
    for leaves in MANNERS {
        for moment in MOMENTS {
            let (mut through, mut machine) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                through.push(leave_at(&world.engine, world.proxy(), moment, leaves).await);
                machine.push(without_samewire(&world.engine).await);
            }
            judge(&format!("{leaves:?}, {moment}"), through, machine);
        }
    }
    let count = ROUNDS * MANNERS.len() * MOMENTS.len();
    let lines = || world.samewire.request_lines();
    until("a line for each request", || lines().len() >= count).await;
    assert_eq!(
        lines()
            .iter()
            .filter(|line| line.contains(r#""end":"client_closed""#))
            .count(),
        count
    );
    world.end().await;
}

/// Leaves once the request is there. Returns the time until its log line reports it. `n` is the number of earlier
/// lines.
async fn leave_without_engine(
    samewire: &Samewire,
    n: usize,
    manner: CloseKind,
    client: Client,
) -> Duration {
    let left = client.leave(manner);
    // Polls more often than the fixture does, because there is no engine that records the time.
    while samewire.request_lines().len() == n {
        assert!(left.elapsed() < PATIENCE, "the request is never given up");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    left.elapsed()
}

#[tokio::test]
async fn fault_c24_a_connect_is_given_up_within_100_ms() {
    let _alone = alone().await;
    let direct = Engine::script(Script::up_to("between-tokens")).await;
    let (url, _held) = unanswered_address();
    let patient = "[timeouts]\nconnect = 10";
    let world = World::start(
        Script::new(),
        Setup::new().upstream(&url).allow_errors().config(patient),
    )
    .await;
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let (mut through, mut machine) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let n = world.samewire.request_lines().len();
            let client = world.send(&Request::stream("")).await;
            // The request is in flight, and can only be waiting for the connect.
            while !in_flight(&world.samewire).await {}
            through.push(leave_without_engine(&world.samewire, n, manner, client).await);
            machine.push(without_samewire(&direct).await);
        }
        judge(&format!("{manner:?}, during connect"), through, machine);
    }
    let lines = world.samewire.request_lines();
    assert!(
        lines
            .iter()
            .all(|line| line.contains(r#""end":"client_closed""#)),
        "{lines:#?}"
    );
    world.end().await;
}

async fn in_flight(samewire: &Samewire) -> bool {
    let metrics = samewire.metrics_now().await;
    metrics
        .lines()
        .any(|line| line.starts_with("samewire_requests_in_flight") && !line.ends_with(" 0"))
}

/// The client leaves in the pause before the second attempt, which lasts from 25 to 250 ms.
#[tokio::test]
async fn fault_c24_a_pause_before_another_attempt_ends_within_100_ms() {
    let _alone = alone().await;
    const STAYS: &str = "a client that stays";
    let failing = || {
        Engine::answering(|attempt| match attempt.text().contains(STAYS) {
            true => Script::answer("a", 1),
            false => Script::new().json(
                "500 Internal Server Error",
                r#"{"error":{"message":"no","type":"server_error","code":null}}"#,
            ),
        })
    };
    let direct = Engine::script(Script::up_to("between-tokens")).await;
    let setup = Setup::new()
        .allow_errors()
        .config("[retry]\nbudget_percent = 100\nbudget_per_second = 100");
    let world = World::fleet_up([failing(), failing()], setup, &[]).await;
    let stays = Request::stream(&format!(r#","user":"{STAYS}""#));
    let asked = || world.attempt_counts().iter().sum::<usize>();
    let failed = || {
        let attempts = world.engines().flat_map(Engine::attempts);
        attempts.filter(|attempt| attempt.finished).count()
    };
    let (mut through, mut machine, mut again) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        let (lines, before, ended) = (world.samewire.request_lines().len(), asked(), failed());
        let client = world.send(&Request::stream("")).await;
        until("the first attempt has failed", || failed() > ended).await;
        let manner = if round % 2 == 0 {
            CloseKind::Fin
        } else {
            CloseKind::Rst
        };
        through.push(leave_without_engine(&world.samewire, lines, manner, client).await);
        machine.push(without_samewire(&direct).await);
        again += asked() - before - 1;
        // Five failures in a row would eject the engine.
        for n in 0..4 {
            assert_eq!(world.request(&stays).await.head.status, 200);
            until("its line", || {
                world.samewire.request_lines().len() > lines + 1 + n
            })
            .await;
        }
    }
    judge("in the pause before another attempt", through, machine);
    // Some clients leave too late for that.
    assert!(again <= ROUNDS / 3, "sent again for {again} of {ROUNDS}");
    world.end().await;
}
