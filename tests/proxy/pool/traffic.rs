//! Restarts of an engine, and of samewire itself, under a constant rate of requests.

use crate::canonical::{Canonical, grammar};
use crate::sim::prelude::*;
use std::net::TcpListener;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

/// Tokens of each answer, and the pause between two of them.
const TOKENS: usize = 10;
const PACE: Duration = Duration::from_millis(15);

/// Interval between requests: 200 a second.
const EACH: Duration = Duration::from_millis(5);

const PROBES: &str = "[health]\ninterval = 0.1\ntimeout = 0.5";

fn paced(name: &str) -> Script {
    Script::stream().tok(name, TOKENS, PACE).stop()
}

/// Outcome of one request during a restart, judged after the traffic has stopped.
struct RequestOutcome {
    sent: Instant,
    /// Time until the head of its answer.
    waited: Duration,
    status: u16,
    retry_after: Option<String>,
    text: String,
    ended: Ended,
}

impl RequestOutcome {
    async fn of(proxy: SocketAddr) -> Self {
        let sent = Instant::now();
        let answer = Request::stream("").answer(proxy).await;
        Self {
            sent,
            waited: answer.waited,
            status: answer.head.status,
            retry_after: answer.head.header("retry-after").map(str::to_owned),
            text: answer.text().to_owned(),
            ended: answer.ended,
        }
    }

    fn is_whole(&self, name: &str) -> bool {
        self.status == 200
            && self.text == Canonical::answer(name, TOKENS).text()
            && self.ended == Ended::LastChunk
    }

    /// Returns true if the answer had begun and was cut: it is a prefix of the full answer, followed by an error.
    fn is_broken(&self, name: &str) -> bool {
        let blocks = grammar(&self.text);
        let Some((last, before)) = blocks.split_last() else {
            return false;
        };
        let said: String = before.iter().map(|block| format!("{block}\n\n")).collect();
        let whole = Canonical::answer(name, TOKENS);
        self.status == 200
            && self.ended == Ended::LastChunk
            && last.starts_with("event: error\n")
            && whole.text().starts_with(&said)
    }

    fn is_refused(&self) -> bool {
        self.status == 503
            && self.text.contains(r#""code":"no_healthy_upstream""#)
            && self.retry_after.as_deref() == Some("5")
    }
}

/// Requests sent at a constant rate in the background, with their outcomes.
struct Traffic {
    stop: Gate,
    task: JoinHandle<Vec<RequestOutcome>>,
}

impl Traffic {
    fn start(proxy: SocketAddr) -> Self {
        let (stop, stopped) = Gate::pair();
        let task = tokio::spawn(async move {
            let (mut running, mut fates) = (JoinSet::new(), Vec::new());
            let mut ticks = tokio::time::interval(EACH);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => drop(running.spawn(RequestOutcome::of(proxy))),
                    Some(fate) = running.join_next() => fates.push(fate.expect("no panic")),
                    () = stopped.wait() => break,
                }
            }
            fates.extend(running.join_all().await);
            fates
        });
        Self { stop, task }
    }

    async fn end(self) -> Vec<RequestOutcome> {
        self.stop.open();
        self.task.await.expect("no panic")
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Returns a listener at an address whose ports other tests do not use, so that the port stays free while the
/// engine is down.
fn reserved_listener() -> TcpListener {
    TcpListener::bind("127.0.0.44:0").expect("a free port")
}

/// Waits until the engine gets no requests, and those that were on their way to it have ended.
async fn is_down(world: &World) {
    for metric in ["samewire_upstream_up", "samewire_upstream_active_streams"] {
        world
            .samewire
            .metric_becomes(&format!("{metric}{{upstream=\"e0\"}}"), 0)
            .await;
    }
}

/// Restarts the engine at its address in loading state, and checks that only probes reach it.
async fn comes_back(world: &mut World) {
    let listener = TcpListener::bind(world.engine.address).expect("its place is free");
    world.engine = Engine::on(listener, |_| paced("new")).await;
    world
        .engine
        .set_health(Script::new().whole("503 Service Unavailable", "", ""));
    until("it is probed", || world.engine.probes().len() >= 5).await;
    assert_eq!(
        world.engine.attempt_count(),
        0,
        "only probes while it loads"
    );
}

/// The engine resets connections, is gone, answers 503 while it loads, then is up: the other engine answers every
/// request that can be answered.
#[tokio::test]
async fn fault_u44_a_restart_under_two_hundred_requests_a_second() {
    let old = Engine::on(reserved_listener(), |_| paced("old")).await;
    let other = Engine::answering(|_| paced("other")).await;
    let mut world = World::fleet_up(
        vec![old, other],
        Setup::new().config(PROBES).allow_errors(),
        &[],
    )
    .await;
    let traffic = Traffic::start(world.proxy());
    until("both are at work", || {
        world.attempt_counts().iter().all(|&share| share >= 100)
    })
    .await;
    let running = world.engine.active_generations();
    world.engine.crash().await;
    let crashed = Instant::now();
    is_down(&world).await;
    let more = async |world: &World, requests: usize| {
        let asked = world.others[0].attempt_count() + requests;
        until("the other one goes on", || {
            world.others[0].attempt_count() >= asked
        })
        .await;
    };
    more(&world, 200).await;
    comes_back(&mut world).await;
    more(&world, 100).await;
    assert_eq!(
        world.engine.attempt_count(),
        0,
        "only probes while it loads"
    );
    world
        .engine
        .set_health(Script::new().whole("200 OK", "", ""));
    let limit = Duration::from_secs(10);
    until_within("it is back in rotation", limit, || {
        world.engine.attempt_count() > 0
    })
    .await;
    // The engine is not flooded at once, and has its full share in the end.
    let share = async |requests: usize| {
        let before = world.attempt_counts();
        more(&world, requests).await;
        let grown: Vec<_> = world
            .attempt_counts()
            .iter()
            .zip(before)
            .map(|(now, then)| now - then)
            .collect();
        grown[0] * 100 / (grown[0] + grown[1])
    };
    let first = share(100).await;
    assert!(first < 40, "{first} % at first");
    let start = Instant::now();
    let mut last = first;
    while last < 42 {
        assert!(start.elapsed() < PATIENCE * 2, "{last} %");
        last = share(100).await;
    }
    let fates = traffic.end().await;
    let broken = fates.iter().filter(|fate| fate.is_broken("old")).count();
    println!(
        "{} requests, {broken} broken of {running} that ran; {first} % then {last} %",
        fates.len()
    );
    for fate in &fates {
        let whole = ["old", "other", "new"]
            .iter()
            .any(|name| fate.is_whole(name));
        let cut = fate.is_broken("old") && fate.sent <= crashed;
        assert!(whole || cut, "{}: {}", fate.status, fate.text);
    }
    assert!(broken > 0, "none of {running}");
    world.end().await;
}

/// Running streams end with an error if there is no other engine, and new requests are refused at once.
#[tokio::test]
async fn fault_u44_a_restart_of_the_only_engine() {
    let old = Engine::on(reserved_listener(), |_| paced("old")).await;
    let mut world =
        World::fleet_up(vec![old], Setup::new().config(PROBES).allow_errors(), &[]).await;
    let traffic = Traffic::start(world.proxy());
    until("it is at work", || world.engine.attempt_count() >= 100).await;
    world.engine.crash().await;
    let crashed = Instant::now();
    is_down(&world).await;
    let down = Instant::now();
    comes_back(&mut world).await;
    let good = Instant::now();
    world
        .engine
        .set_health(Script::new().whole("200 OK", "", ""));
    until("it is back in rotation", || {
        world.engine.attempt_count() > 100
    })
    .await;
    let fates = traffic.end().await;
    let refused: Vec<_> = fates
        .iter()
        .filter(|fate| (down..good).contains(&fate.sent))
        .collect();
    assert!(
        refused.len() > 20 && refused.iter().all(|fate| fate.is_refused()),
        "{}",
        refused.len()
    );
    let median = median(refused.iter().map(|fate| fate.waited).collect());
    println!("{} refused, median {median:?}", refused.len());
    assert!(median < Duration::from_secs(1), "{median:?}");
    for fate in &fates {
        let fine = match fate.status {
            200 => {
                fate.is_whole("old")
                    || fate.is_whole("new") && fate.sent > good
                    || fate.is_broken("old") && fate.sent <= crashed
            }
            502 => fate.sent <= down,
            _ => fate.is_refused(),
        };
        assert!(fine, "{}: {}", fate.status, fate.text);
    }
    world.end().await;
}

/// Running streams end normally, and requests during the settle time are served.
#[tokio::test]
async fn fault_o01_five_hundred_streams_end_and_nobody_is_turned_away() {
    const STREAMS: usize = 500;
    const SETTLE: Duration = Duration::from_secs(3);
    let gate = Gate::default();
    let (begun, end) = (gate.clone(), |script: Script| {
        script.finish("stop").usage(3, 5).done().end()
    });
    let engine = Engine::answering(move |attempt| match attempt.text().contains("long") {
        true => end(Script::stream()
            .tok("a", 5, Duration::ZERO)
            .wait(&begun)
            .text("a.5 ")
            .text("a.6 ")),
        false => Script::answer("short", 3),
    });
    let engine = engine.await;
    let setup = Setup::before(&engine);
    let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 3")).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut client = Client::connect(samewire.proxy)
            .await
            .with_patience(PATIENCE * 4);
        client
            .send(&Request::stream(r#","user":"long""#).bytes())
            .await;
        streams.push(client);
    }
    until("all are begun", || engine.attempt_count() == STREAMS).await;
    let start = Instant::now();
    samewire.signal("TERM");
    const SERVED: usize = 10;
    for _ in 0..SERVED {
        let answer = Request::stream("").answer(samewire.proxy).await;
        assert_eq!(answer.text(), Canonical::answer("short", 3).text());
        assert_eq!(answer.head.header("connection"), Some("close"));
    }
    while TcpStream::connect(samewire.proxy).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = start.elapsed();
    assert!(took >= SETTLE, "{took:?}");
    assert!(samewire.running(), "streams run");
    gate.open();
    for mut stream in streams {
        let answer = stream.answer().await;
        assert_eq!(
            (answer.text(), answer.ended),
            (Canonical::answer("a", 7).text(), Ended::LastChunk)
        );
    }
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert_eq!(engine.attempt_count(), STREAMS + SERVED);
}
