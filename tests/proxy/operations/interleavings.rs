//! Clients and engines that misbehave at random and all at once. The guarantees must still hold: no retry once the
//! client has received a part of the answer (P6), each client gets only its own answer (P14), each answer has the
//! right end, and afterwards everything is as it was (P11, P12).
//!
//! Every run draws a seed and prints it; `SAMEWIRE_TEST_SEED` repeats it. `SAMEWIRE_TEST_SECONDS` makes the run
//! longer.

use crate::responses::races::random;
use crate::sim::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{HashMap, HashSet};
use tokio::task::JoinSet;

const TOKENS: usize = 12;
const ENGINES: usize = 6;
/// Largest number of engines that may see one request.
const MAX_ENGINES: usize = 4;
/// Limit of concurrent requests.
const PERMITS: usize = 48;

const CONFIG: &str = "[limits]\nrequests = 48\n[timeouts]\nfirst_token = 0.5\ninter_token = 0.4\npool_idle = 0.3\n\
                      client_head = 2\nclient_body_idle = 1\n\
                      [retry]\nmax_attempts = 4\nbudget_per_second = 1000\n[health]\ninterval = 60\ndown_after = 100000";

fn setup() -> Setup {
    Setup::new().allow_errors().config(CONFIG)
}

/// Faults that an engine may have in an attempt.
const FAULTS: [&str; 13] = [
    "none", "rst", "fin", "cut", "end", "abort", "error", "garbage", "push", "500", "400", "hang",
    "slow",
];

/// Parses `NAME.FAULT.AT.TIMES`: the fault occurs after `AT` tokens, in the first `TIMES` attempts.
fn parse_fault(text: &str) -> (&str, &str, usize, usize) {
    let (_, rest) = text.split_once("\"user\":\"").expect("a user");
    let mut parts = rest.split('"').next().expect("split gives one").split('.');
    let mut part = || parts.next().expect("four parts");
    let (name, fault) = (part(), part());
    (
        name,
        fault,
        part().parse().expect("a number"),
        part().parse().expect("a number"),
    )
}

/// Engines that each request reached, attempt by attempt.
type Counts = Arc<Mutex<HashMap<String, Vec<usize>>>>;

fn script(attempt: &Attempt, engine: usize, counts: &Counts) -> Script {
    let (name, fault, at, times) = parse_fault(attempt.text());
    let n = {
        let mut counts = counts.lock().expect("no panic");
        let asked = counts.entry(name.to_owned()).or_default();
        asked.push(engine);
        asked.len() - 1
    };
    let said = format!("{name}-{n}-");
    let good = || Script::stream().tok(&said, TOKENS, Duration::from_millis(1));
    let cut = || Script::stream().tok(&said, at, Duration::from_millis(1));
    if n >= times {
        return good().stop();
    }
    let refused = |status: &str| {
        Script::new().json(
            status,
            r#"{"error":{"message":"no","type":"t","code":null}}"#,
        )
    };
    match fault {
        "none" => good().stop(),
        "rst" => Script::new().rst(),
        "fin" => Script::new().fin(),
        "cut" => cut().rst(),
        "end" => cut().end(),
        "abort" => cut().finish("abort").done().end(),
        "error" => cut()
            .ev(r#"{"error":{"message":"no","type":"t","code":500}}"#)
            .done()
            .end(),
        "garbage" => cut().ev("{\"id\":").hang(),
        "push" => refused("429 Too Many Requests"),
        "500" => refused("500 Internal Server Error"),
        "400" => refused("400 Bad Request"),
        "hang" => cut().hang(),
        "hold" => Script::stream().tok(&said, 100, Duration::from_millis(100)),
        _ => Script::new()
            .sleep(Duration::from_millis(60))
            .head_sse()
            .tok(&said, TOKENS, Duration::ZERO)
            .stop(),
    }
}

async fn fleet(counts: &Counts) -> World {
    let mut engines = Vec::new();
    for place in 0..ENGINES {
        let counts = Arc::clone(counts);
        engines.push(Engine::answering(move |attempt| script(attempt, place, &counts)).await);
    }

    World::fleet_up(engines, setup(), &[]).await
}

/// Returns the number of descriptors of the process.
pub fn descriptors(world: &World) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", world.samewire.pid()))
        .expect("it lives")
        .count()
}

/// Checks that everything is as it was: no work, no connection and no permit is left over.
pub async fn is_as_before(world: &World, before: usize) {
    until("no generation", || {
        world
            .engines()
            .all(|engine| engine.active_generations() == 0)
    })
    .await;
    world.samewire.metrics().await;
    until("the descriptors are back", || descriptors(world) <= before).await;
}

/// Checks that no permit was lost: exactly as many concurrent requests are served as allowed.
async fn all_permits_are_there(world: &World) {
    let mut clients = Vec::new();
    for n in 0..=PERMITS {
        let mut client = world
            .send(&Request::stream(&format!(
                r#","user":"permit{n}.hold.1.9""#
            )))
            .await;
        let head = client.head().await;
        assert_eq!(
            head.status,
            if n < PERMITS { 200 } else { 503 },
            "{n} at once"
        );
        clients.push(client);
    }
}

/// Behaviour of one random client: its request, the fault it provokes, and whether it leaves.
struct RandomClient {
    request: Request,
    name: String,
    fault: &'static str,
    /// True if the fault occurs in every attempt.
    always: bool,
    leaves: Option<(u64, CloseKind)>,
    part: Option<usize>,
}

impl RandomClient {
    fn drawn(random: &mut StdRng, n: usize) -> Self {
        let fault = FAULTS[random.random_range(0..FAULTS.len())];
        let (at, always) = (random.random_range(0..TOKENS), random.random_ratio(1, 4));
        let name = format!("w{n}x{:x}", random.random_range(0..u32::MAX));
        let user = format!(
            r#","user":"{name}.{fault}.{at}.{}""#,
            if always { 9 } else { 1 }
        );
        let request = Request::stream(&user);
        let manner = if random.random_ratio(1, 2) {
            CloseKind::Fin
        } else {
            CloseKind::Rst
        };
        let leaves = random
            .random_ratio(1, 2)
            .then(|| (random.random_range(0..40_000), manner));
        let length = request.bytes().len();
        let part = random
            .random_ratio(1, 12)
            .then(|| random.random_range(0..length));
        Self {
            request,
            name,
            fault,
            always,
            leaves,
            part,
        }
    }

    /// Sends the request, and leaves or checks the answer. Returns true if another engine made up for a fault, and
    /// `None` if the fault was not one to retry.
    async fn go(self, proxy: SocketAddr, counts: Counts) -> Option<bool> {
        let mut client = Client::connect(proxy).await;
        let mut bytes = self.request.bytes();
        if let Some(part) = self.part {
            bytes.truncate(part);
        }
        client.send(&bytes).await;
        if let Some((after, manner)) = self
            .leaves
            .or_else(|| self.part.map(|_| (20_000, CloseKind::Rst)))
        {
            tokio::time::sleep(Duration::from_micros(after)).await;
            client.leave(manner);
            return None;
        }
        let answer = client.answer().await;
        let asked = counts
            .lock()
            .expect("no panic")
            .get(&self.name)
            .cloned()
            .unwrap_or_default();
        self.check(&answer, &asked)
    }

    /// Checks that the answer is a part of this request's own answer, from the last attempt only.
    fn check(&self, answer: &Answer, asked: &[usize]) -> Option<bool> {
        let (name, fault, text) = (&self.name, self.fault, answer.text());
        let what = || {
            format!(
                "{name}, {fault}, always {}, engines {asked:?}: {text}",
                self.always
            )
        };
        let engines: HashSet<usize> = asked.iter().copied().collect();
        // A kept connection that had just been closed is replaced once, at the same engine.
        assert!(asked.len() <= engines.len() + 1, "{}", what());
        assert!(
            engines.len()
                <= if ["rst", "fin"].contains(&fault) {
                    2
                } else {
                    MAX_ENGINES
                },
            "{}",
            what()
        );
        if answer.head.status != 200 {
            let code = answer.fault().code;
            // All engines may have requested a pause.
            let pushed = asked.is_empty() && code.as_deref() == Some("rate_limit_exceeded");
            assert!(pushed || !["none", "slow"].contains(&fault), "{}", what());
            // These faults are not retried.
            let last = ["400", "garbage", "end"].contains(&fault);
            // If another engine got the request, it succeeded, unless the fault occurs there as well.
            assert!(self.always || last || engines.len() < 2, "{}", what());
            return (!self.always && !last && !pushed).then_some(false);
        }
        assert_eq!(answer.ended, Ended::LastChunk, "{}", what());
        let tokens: Vec<&str> = text
            .split("\"content\":\"")
            .skip(1)
            .map(|rest| rest.split(" \"").next().expect("split gives one"))
            .collect();
        for (n, token) in tokens.iter().enumerate() {
            assert_eq!(
                *token,
                format!("{name}-{}-.{n}", asked.len() - 1),
                "{}",
                what()
            );
        }
        let complete = text.ends_with("data: [DONE]\n\n");
        assert_eq!(
            complete,
            text.contains(r#""finish_reason":"stop""#),
            "{}",
            what()
        );
        assert_eq!(complete, !text.contains("event: error\n"), "{}", what());
        assert!(!complete || tokens.len() == TOKENS, "{}", what());
        let due = ["none", "slow"].contains(&fault) || asked.len() > 1 && !self.always;
        assert_eq!(complete, due, "{}", what());
        (engines.len() > 1).then_some(complete)
    }
}

fn seconds(default: u64) -> Duration {
    let given = std::env::var("SAMEWIRE_TEST_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(default))
}

#[tokio::test]
async fn random_faults_leave_the_process_as_it_was() {
    let (counts, mut random) = (Counts::default(), random());
    let world = fleet(&counts).await;
    // Lets descriptors settle that every process opens once.
    world.stream(r#","user":"first.none.0.1""#).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let before = descriptors(&world);
    let (start, length, mut n) = (Instant::now(), seconds(10), 0);
    let mut made_good = [0; 2];
    while start.elapsed() < length {
        let mut walks = JoinSet::new();
        for _ in 0..PERMITS * 3 / 4 {
            let walk = RandomClient::drawn(&mut random, n);
            walks.spawn(walk.go(world.proxy(), Arc::clone(&counts)));
            n += 1;
        }
        while let Some(walked) = walks.join_next().await {
            if let Some(good) = walked.expect("no panic") {
                made_good[usize::from(good)] += 1;
            }
        }
        is_as_before(&world, before).await;
    }
    let [not, good] = made_good;
    println!("{n} requests; {good} made good by another engine, {not} not, for want of one");
    assert!(good > 5, "others get requests");
    // Engines that refused as overloaded get no requests for a second.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    all_permits_are_there(&world).await;
    is_as_before(&world, before).await;
    world.end().await;
}

/// Clients leave at every stage of a request: during the body, before the engine answers, between tokens, during a
/// failure, in the pause before a retry, and after the end.
#[tokio::test]
async fn leaving_at_any_moment_leaves_nothing() {
    const STEPS: u64 = 80;
    let counts = Counts::default();
    let world = fleet(&counts).await;
    world.stream(r#","user":"first.none.0.1""#).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let before = descriptors(&world);
    let mut random = StdRng::seed_from_u64(7);
    for (fault, times, life) in [
        ("none", 1, 30),
        ("rst", 1, 320),
        ("rst", 9, 320),
        ("500", 1, 320),
        ("error", 1, 20),
        ("slow", 1, 80),
        ("hang", 1, 450),
    ] {
        let mut clients = JoinSet::new();
        for step in 0..STEPS {
            let (proxy, user) = (
                world.proxy(),
                format!(r#","user":"l{fault}{times}s{step}.{fault}.2.{times}""#),
            );
            let after =
                Duration::from_micros(life * 1_000 * step / STEPS + random.random_range(0..500));
            let streaming = step % 4 != 0;
            clients.spawn(async move {
                // Spread over time, and never more than can be served at once.
                tokio::time::sleep(Duration::from_millis(step * 12)).await;
                let mut client = Client::connect(proxy).await;
                let request = if streaming {
                    Request::stream(&user)
                } else {
                    Request::plain(&user)
                };
                let bytes = request.bytes();
                let (head, rest) = bytes.split_at(bytes.len() / 2);
                client.send(head).await;
                client.send(rest).await;
                tokio::time::sleep(after).await;
                client.leave(if step % 2 == 0 {
                    CloseKind::Fin
                } else {
                    CloseKind::Rst
                });
            });
        }
        while let Some(left) = clients.join_next().await {
            left.expect("no panic");
        }
        is_as_before(&world, before).await;
    }
    all_permits_are_there(&world).await;
    is_as_before(&world, before).await;
    world.end().await;
}
