//! Cancels that race with the end of the response they cancel, on two samewires that share one PostgreSQL (fault
//! C43).

use super::background::{ended, is_over};
use crate::operations::replicas::{another, at, follow, id, on, sound};
use crate::postgres::database;
use crate::responses::over_chat::{ask, object};
use crate::sim::prelude::*;
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Creates a generator with a new seed and prints it. `SAMEWIRE_TEST_SEED` repeats a run.
pub fn random() -> StdRng {
    let seed = match std::env::var("SAMEWIRE_TEST_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => rand::random(),
    };
    println!("SAMEWIRE_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Returns a request for a background response with this number, which takes the engine this long, or for ever with
/// `None`.
pub fn numbered_request(number: usize, takes: Option<Duration>) -> Request {
    let takes = takes.map_or_else(
        || "for ever".to_owned(),
        |takes| takes.as_millis().to_string(),
    );
    ask(&format!(
        r#""model":"m","background":true,"input":"{PROMPT} {number} {takes}""#
    ))
}

fn parse_plan(attempt: &Attempt) -> (usize, Option<Duration>) {
    let (_, behind) = attempt.text().split_once(PROMPT).expect("the prompt");
    let (number, takes) = behind
        .split('"')
        .next()
        .unwrap()
        .trim()
        .split_once(' ')
        .unwrap();
    (
        number.parse().unwrap(),
        takes.parse().ok().map(Duration::from_millis),
    )
}

/// Returns the requests that reached the engine, with their numbers.
pub fn asked_for(engine: &Engine) -> Vec<(usize, Attempt)> {
    engine
        .attempts()
        .into_iter()
        .map(|attempt| (parse_plan(&attempt).0, attempt))
        .collect()
}

/// Starts an engine that takes as long as the request says.
pub async fn timed_engine() -> Engine {
    const TOKENS: u32 = 6;
    Engine::answering(|attempt| {
        let begun = Script::stream();
        match parse_plan(attempt).1 {
            Some(takes) => begun.tok("a", 1 + TOKENS as usize, takes / TOKENS).stop(),
            None => begun.tok("a", 5, Duration::from_millis(3)).hang(),
        }
    })
    .await
}

/// Response object as one client saw it, with the times of request and answer.
struct Seen {
    asked: Instant,
    told: Instant,
    object: Value,
}

async fn see(proxy: SocketAddr, request: Request) -> Seen {
    let asked = Instant::now();
    let object = object(&request.answer(proxy).await);
    Seen {
        asked,
        told: Instant::now(),
        object,
    }
}

/// Checks that there is exactly one final state, and that every request sent after it was first seen got it, too.
/// Returns that state.
fn common_end(seen: Vec<Seen>) -> Value {
    let over = seen.iter().filter(|seen| is_over(&seen.object));
    let first = over.min_by_key(|seen| seen.told).expect("it ends");
    for other in &seen {
        if is_over(&other.object) {
            assert_eq!(other.object, first.object);
        } else {
            assert!(
                other.asked <= first.told,
                "{} after {}",
                other.object,
                first.object
            );
        }
    }
    first.object.clone()
}

fn cancel(id: &str) -> Request {
    Request::post(&format!("/v1/responses/{id}/cancel"), "")
}

/// Checks that the stored response has this final state on both processes, in the object and in the events.
async fn check_stored_end(end: &Value, replicas: [SocketAddr; 2]) {
    let id = id(end);
    for proxy in replicas {
        assert_eq!(object(&at(&id, "").answer(proxy).await), *end);
        let told = follow(proxy, at(&id, "?stream=true")).await;
        assert_eq!(told.last().unwrap()["response"], *end);
        let last = if end["status"] == "completed" {
            "response.completed"
        } else {
            "response.incomplete"
        };
        sound(&told, 0, last);
    }
}

/// Random scenario: one response, and the requests that race with it.
struct Case {
    number: usize,
    takes: Option<Duration>,
    /// Process that runs the response.
    owner: usize,
    /// Processes that cancel, each with the delay after the start; `None` is after the end.
    cancels: Vec<(usize, Option<Duration>)>,
    /// Processes that fetch the object, each with the delay after the start.
    reads: Vec<(usize, Duration)>,
}

impl Case {
    fn any(number: usize, random: &mut StdRng) -> Self {
        let within =
            |random: &mut StdRng, most| Duration::from_millis(random.random_range(0..most));
        // An owner checks every second for cancellations requested elsewhere.
        let takes = (!random.random_ratio(1, 4)).then(|| within(random, 1_300));
        let cancels = (0..random.random_range(1..4)).map(|_| {
            let after = takes.is_none() || random.random_ratio(4, 5);
            let when = after.then(|| {
                if random.random() {
                    Duration::ZERO
                } else {
                    within(random, 1_000)
                }
            });
            (random.random_range(0..2), when)
        });
        let cancels = cancels.collect();
        let looks = (0..6)
            .map(|_| (random.random_range(0..2), within(random, 2_000)))
            .collect();
        Self {
            number,
            takes,
            owner: random.random_range(0..2),
            cancels,
            reads: looks,
        }
    }

    async fn play(&self, replicas: [SocketAddr; 2]) -> Value {
        let begun = object(
            &numbered_request(self.number, self.takes)
                .answer(replicas[self.owner])
                .await,
        );
        let id = id(&begun);
        let cancels = self.cancels.iter().map(|(by, when)| {
            let (id, by) = (&id, replicas[*by]);
            async move {
                match when {
                    Some(when) => tokio::time::sleep(*when).await,
                    None => _ = ended(by, id).await,
                }
                let seen = see(by, cancel(id)).await;
                assert!(is_over(&seen.object), "{}", seen.object);
                seen
            }
        });
        let looks = self.reads.iter().map(|(by, when)| {
            let (id, by) = (&id, replicas[*by]);
            async move {
                tokio::time::sleep(*when).await;
                see(by, at(id, "")).await
            }
        });
        let (mut seen, looked) = tokio::join!(
            futures::future::join_all(cancels),
            futures::future::join_all(looks)
        );
        seen.extend(looked);
        let end = common_end(seen);
        check_stored_end(&end, replicas).await;
        end
    }
}

/// Waits until the engine is idle and checks that each number was requested at most once. Returns which of the
/// attempts samewire closed.
async fn at_rest(engine: &Engine, numbers: usize) -> Vec<Option<bool>> {
    until("the engine stops", || engine.active_generations() == 0).await;
    let mut closed = vec![None; numbers];
    for (number, attempt) in asked_for(engine) {
        assert!(attempt.closed.is_some() || attempt.finished);
        let before = closed[number].replace(attempt.closed.is_some());
        assert!(before.is_none(), "{number} was requested twice");
    }
    closed
}

#[tokio::test]
async fn fault_c43_cancels_race_on_two_replicas() {
    const CASES: usize = 320;
    let mut random = random();
    let setup = on(&database().await);
    let world = World::start(timed_engine(), setup.clone()).await;
    let other = another(&world, &setup).await;
    let replicas = [world.proxy(), other.proxy];
    let cases: Vec<_> = (0..CASES)
        .map(|number| Case::any(number, &mut random))
        .collect();
    let played = cases.iter().map(|case| case.play(replicas));
    let ends: Vec<_> = futures::stream::iter(played).buffered(32).collect().await;
    let closed = at_rest(&world.engine, CASES).await;
    let mut counts = [0, 0];
    for (case, end) in cases.iter().zip(&ends) {
        match end["status"].as_str().unwrap() {
            "cancelled" => counts[0] += 1,
            "completed" => {
                counts[1] += 1;
                assert!(
                    closed[case.number] == Some(false) && case.takes.is_some(),
                    "{end}"
                );
            }
            other => panic!("{other}"),
        }
        assert_eq!(object(&at(&id(end), "").answer(replicas[0]).await), *end);
    }
    assert!(
        counts.iter().all(|count| *count > CASES / 10),
        "cancelled, completed: {counts:?}"
    );
    world.end().await;
}

/// The owner is suspended while other processes take over and end its response. When it resumes, its pending write
/// must not succeed.
#[tokio::test]
async fn fault_c43_cancels_race_with_an_owner_that_stands_still() {
    const ROUNDS: usize = 3;
    const EACH: usize = 20;
    let mut random = random();
    let setup = on(&database().await);
    let world = World::start(timed_engine(), setup.clone().allow_errors()).await;
    let owner = another(&world, &setup).await;
    let third = another(&world, &setup).await;
    let mut ends = Vec::new();
    for round in 0..ROUNDS {
        ends.extend(
            stands_still(
                round * EACH..(round + 1) * EACH,
                &owner,
                [world.proxy(), third.proxy],
                &mut random,
            )
            .await,
        );
    }
    at_rest(&world.engine, ROUNDS * EACH).await;
    for end in &ends {
        check_stored_end(end, [owner.proxy, third.proxy]).await;
    }
    let cancelled = ends
        .iter()
        .filter(|end| end["status"] == "cancelled")
        .count();
    assert!(
        cancelled > ends.len() / 10 && cancelled < ends.len(),
        "{cancelled} of {} cancelled",
        ends.len()
    );
    world.end().await;
}

async fn stands_still(
    numbers: std::ops::Range<usize>,
    owner: &Samewire,
    others: [SocketAddr; 2],
    random: &mut StdRng,
) -> Vec<Value> {
    let within =
        |random: &mut StdRng, from, most| Duration::from_millis(random.random_range(from..most));
    let mut ids = Vec::new();
    for number in numbers {
        let takes = (!random.random_ratio(1, 4)).then(|| within(random, 0, 1_500));
        ids.push(id(&object(
            &numbered_request(number, takes).answer(owner.proxy).await,
        )));
    }
    tokio::time::sleep(within(random, 0, 500)).await;
    owner.signal("STOP");
    // Around the moment from which other processes take over.
    let (stopped, goes_on) = (Instant::now(), within(random, 1_500, 3_000));
    let waits: Vec<_> = ids.iter().map(|_| within(random, 0, 700)).collect();
    let cancels = ids.iter().zip(waits).map(|(id, wait)| async move {
        tokio::time::sleep(wait).await;
        let [a, b] = others.map(|by| see(by, cancel(id)));
        let (a, b) = tokio::join!(a, b);
        assert!(
            is_over(&a.object) && is_over(&b.object),
            "{} {}",
            a.object,
            b.object
        );
        let late = a.asked.elapsed();
        // A lease would have expired after ten seconds at the earliest; half of that may be needed if the owner is
        // suspended within a transaction.
        assert!(late < Duration::from_secs(8), "{late:?}");
        vec![a, b]
    });
    let wakes = async {
        tokio::time::sleep(goes_on.saturating_sub(stopped.elapsed())).await;
        owner.signal("CONT");
    };
    let (seen, ()) = tokio::join!(futures::future::join_all(cancels), wakes);
    let mut ends = Vec::new();
    for (id, mut seen) in ids.iter().zip(seen) {
        for proxy in [owner.proxy, others[0]] {
            seen.push(see(proxy, at(id, "")).await);
        }
        ends.push(common_end(seen));
    }
    ends
}
