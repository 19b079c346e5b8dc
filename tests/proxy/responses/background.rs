//! Background responses: no client waits while they are generated.

use crate::sim::prelude::*;

const ASK: &str = r#"{"model":"m","background":true,"input":"hello"}"#;

fn create() -> Request {
    Request::post("/v1/responses", ASK)
}

/// Starts a background response and returns its id.
async fn started(world: &World) -> String {
    let object = world.request(&create()).await.with_status(200).json();
    assert_eq!(
        (&object["status"], &object["background"]),
        (&"queued".into(), &true.into())
    );
    object["id"].as_str().expect("an id").to_owned()
}

async fn object(world: &World, id: &str) -> Value {
    parsed(world.get(&format!("/v1/responses/{id}")).await.text())
}

/// Waits until a response has ended, and returns it.
pub async fn ended(proxy: SocketAddr, id: &str) -> Value {
    let get = Request::get(&format!("/v1/responses/{id}"));
    get.answer_until(proxy, |answer| is_over(&answer.json()))
        .await
        .with_status(200)
        .json()
}

pub fn is_over(response: &Value) -> bool {
    let status = response["status"]
        .as_str()
        .unwrap_or_else(|| panic!("no status: {response}"));
    !["queued", "in_progress"].contains(&status)
}

/// Returns the data of a stream's events.
fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(parsed)
        .collect()
}

async fn replay(world: &World, id: &str, query: &str) -> Vec<Value> {
    let answer = world
        .get(&format!("/v1/responses/{id}?stream=true{query}"))
        .await
        .with_status(200);
    events(answer.text())
}

fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().expect("a type"))
        .collect()
}

/// Returns a script slow enough for tests to act while it runs.
pub fn slow(tokens: usize) -> Script {
    Script::stream()
        .tok("a", tokens, Duration::from_millis(10))
        .stop()
}

#[tokio::test]
async fn fault_c42_polled_and_read_again_from_everywhere() {
    let world = World::start(slow(30), Setup::new()).await;
    let id = started(&world).await;
    // Three readers while the response runs, one of them starting in the middle.
    let (all, twin, some) = tokio::join!(
        replay(&world, &id, ""),
        replay(&world, &id, ""),
        replay(&world, &id, "&starting_after=7")
    );
    assert_eq!(all, twin, "two at once are told the same");
    let object = ended(world.proxy(), &id).await;
    assert_eq!(object["status"], "completed");
    assert_eq!(
        types(&all)[..3],
        [
            "response.created",
            "response.queued",
            "response.in_progress"
        ]
    );
    for (number, event) in all.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    let last = all.last().expect("events");
    assert_eq!(
        (&last["type"], &last["response"]),
        (&"response.completed".into(), &object)
    );
    assert_eq!(some, all[8..]);
    for after in 0..all.len() {
        assert_eq!(
            replay(&world, &id, &format!("&starting_after={after}")).await,
            all[after + 1..]
        );
    }
    assert!(
        replay(&world, &id, "&starting_after=100000")
            .await
            .is_empty()
    );
    for bad in ["-1", "x", "1.5"] {
        let answer = world
            .get(&format!(
                "/v1/responses/{id}?stream=true&starting_after={bad}"
            ))
            .await;
        assert_eq!(
            (answer.head.status, answer.fault().param.as_deref()),
            (400, Some("starting_after")),
            "{bad}"
        );
    }
    let asked = world.engine.only();
    assert_eq!(
        asked.json()["stream"],
        true,
        "what comes is stored as it comes"
    );
    let gone = Request::new("DELETE", &format!("/v1/responses/{id}"));
    assert_eq!(world.request(&gone).await.head.status, 200);
    for after in ["", "&starting_after=3"] {
        let again = Request::get(&format!("/v1/responses/{id}?stream=true{after}"));
        assert_eq!(
            world.request(&again).await.failure(),
            "404 invalid_request_error"
        );
    }
    // Nothing is made anew for those who read again.
    world.end_after(1).await;
}

#[tokio::test]
async fn streamed_from_the_beginning() {
    let world = World::start(slow(5), Setup::new()).await;
    let request = Request::post(
        "/v1/responses",
        ASK.replace("\"input\"", "\"stream\":true,\"input\""),
    );
    let answer = world.request(&request).await;
    let told = events(answer.text());
    assert_eq!(told.last().expect("events")["type"], "response.completed");
    let id = told[0]["response"]["id"].as_str().expect("an id");
    assert_eq!(replay(&world, id, "").await, told);
    world.end().await;
}

/// A dialect whose streams end with `[DONE]` also ends stored streams with it.
#[tokio::test]
async fn stored_streams_end_with_done_in_that_dialect() {
    let world = World::start(slow(2), Setup::new()).await;
    let dialect = |request: Request| request.header("x-samewire-dialect", "openresponses");
    let body = ASK.replace("\"input\"", "\"stream\":true,\"input\"");
    let made = world
        .request(&dialect(Request::post("/v1/responses", body)))
        .await;
    let first = made
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .expect("an event");
    let id = parsed(first)["response"]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let again = Request::get(&format!("/v1/responses/{id}?stream=true"));
    for (request, marked) in [(dialect(again.clone()), true), (again, false)] {
        assert_eq!(
            world
                .request(&request)
                .await
                .text()
                .ends_with("\n\ndata: [DONE]\n\n"),
            marked
        );
    }
    assert!(made.text().ends_with("\n\ndata: [DONE]\n\n"));
    world.end().await;
}

#[tokio::test]
async fn cancelled_once_and_for_good() {
    let world = World::start(slow(10_000), Setup::new()).await;
    let id = started(&world).await;
    until("the engine works", || {
        world.engine.active_generations() == 1
    })
    .await;
    let cancel = Request::post(&format!("/v1/responses/{id}/cancel"), "");
    let first = world.request(&cancel).await;
    assert_eq!(first.json()["status"], "cancelled", "{}", first.text());
    until("the engine stops", || {
        world.engine.active_generations() == 0
    })
    .await;
    assert_eq!(world.request(&cancel).await.text(), first.text());
    assert_eq!(object(&world, &id).await, first.json());
    assert_eq!(
        replay(&world, &id, "").await.last().expect("events")["type"],
        "response.incomplete"
    );
    world.end().await;
}

/// Two cancels at once, at a random moment: exactly one final state is reached, and it stays.
#[tokio::test]
async fn fault_c43_cancels_race_with_the_end() {
    let script = Script::stream().tok("a", 4, Duration::from_millis(3));
    let world = World::start(script.stop(), Setup::new()).await;
    let (mut cancelled, mut completed) = (0, 0);
    for round in 0..40_u64 {
        let race = |n: u64| {
            let world = &world;
            async move {
                let id = started(world).await;
                // The moments range from before the engine's request until after the response has ended.
                match n {
                    9 => _ = ended(world.proxy(), &id).await,
                    _ => tokio::time::sleep(Duration::from_micros(round * n % 300 * 100)).await,
                }
                let cancel = Request::post(&format!("/v1/responses/{id}/cancel"), "");
                let (first, second, seen) = tokio::join!(
                    world.request(&cancel),
                    world.request(&cancel),
                    object(world, &id)
                );
                let end = first.json();
                assert_eq!(end, second.json());
                assert_eq!(object(world, &id).await, end);
                let states = [
                    "queued",
                    "in_progress",
                    end["status"].as_str().expect("a status"),
                ];
                assert!(
                    states.contains(&seen["status"].as_str().expect("a status")),
                    "{seen}"
                );
                assert_eq!(
                    replay(world, &id, "").await.last().expect("events")["response"],
                    end
                );
                end["status"].as_str().expect("a status").to_owned()
            }
        };
        for end in futures::future::join_all((0..10).map(race)).await {
            match end.as_str() {
                "cancelled" => cancelled += 1,
                "completed" => completed += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert!(
        cancelled > 0 && completed > 0,
        "{cancelled} cancelled, {completed} completed"
    );
    world.end().await;
}

/// A cancel closes the engine's connection at once, even while the engine is silent; the median time is measured.
#[tokio::test]
async fn fault_c43_a_cancel_reaches_the_engine_at_once() {
    const ROUNDS: usize = 30;
    let scripts = [
        Script::new().hang(),
        Script::new().head_sse().hang(),
        Script::stream().tok("a", 3, Duration::ZERO).hang(),
    ];
    let scripts = scripts.into_iter().cycle().take(ROUNDS).collect();
    let world = World::start(Engine::in_turn(scripts), Setup::new()).await;
    let mut times = Vec::new();
    for n in 0..ROUNDS {
        let id = started(&world).await;
        until("the engine works", || world.engine.attempt_count() > n).await;
        let asked = Instant::now();
        let answer = world.post(&format!("/v1/responses/{id}/cancel"), "").await;
        assert_eq!(answer.json()["status"], "cancelled");
        until("the answer is cancelled", || {
            world.engine.closed(n).is_some()
        })
        .await;
        let (closed, _) = world.engine.closed(n).expect("just seen");
        times.push(closed.saturating_duration_since(asked));
    }
    times.sort();
    println!(
        "cancelled: median {:?}, worst {:?}",
        times[ROUNDS / 2],
        times[ROUNDS - 1]
    );
    assert!(times[ROUNDS / 2] < SOON, "{times:?}");
    world.end().await;
}

#[tokio::test]
async fn what_ended_is_not_cancelled() {
    let world = World::start(slow(1), Setup::new()).await;
    let id = started(&world).await;
    let object = ended(world.proxy(), &id).await;
    assert_eq!(
        world
            .post(&format!("/v1/responses/{id}/cancel"), "")
            .await
            .json(),
        object
    );
    world.end().await;
}

/// Checks that a background response ends as failed, and that its events say so.
async fn check_failure(world: World) {
    let id = started(&world).await;
    let object = ended(world.proxy(), &id).await;
    assert_eq!(
        (&object["status"], &object["error"]["code"]),
        (&"failed".into(), &"server_error".into())
    );
    let told = replay(&world, &id, "").await;
    assert_eq!(types(&told)[told.len() - 2..], ["error", "response.failed"]);
    world.end().await;
}

#[tokio::test]
async fn an_engine_that_refuses_makes_a_failed_response() {
    let script = Script::new()
        .raw("HTTP/1.1 500 Oops\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        .fin();
    let world = World::start(script, Setup::new().allow_errors()).await;
    check_failure(world).await;
}

/// A response whose final state exceeds the store's limit fails, and does not stay in progress.
#[tokio::test]
async fn fault_o14_an_end_that_has_no_room_is_a_failure() {
    let stream = Script::stream().tok("a", 1_000, Duration::ZERO).stop();
    let setup = Setup::new()
        .config("[store]\nmax_bytes = 50000")
        .allow_errors();
    let world = World::start(stream, setup).await;
    check_failure(world).await;
}

#[tokio::test]
async fn without_a_store_there_is_no_background() {
    let world = World::start(slow(1), Setup::new().args(&["--store", "off"])).await;
    let answer = world.request(&create()).await;
    assert_eq!(
        (answer.head.status, answer.fault().param.as_deref()),
        (400, Some("background"))
    );
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_o02_a_shutdown_ends_it_as_failed() {
    let folder = Folder::new();
    let setup = || Setup::stored(&folder).config("[timeouts]\nsettle = 0\ndrain = 0.2");
    let mut world = World::start(slow(10_000), setup()).await;
    let id = started(&world).await;
    until("the engine works", || {
        world.engine.active_generations() == 1
    })
    .await;
    world.samewire.signal("TERM");
    assert_eq!(world.samewire.exit(PATIENCE).await.code(), Some(0));
    world.samewire = Samewire::start(&setup().upstream(&world.engine.url())).await;
    let object = object(&world, &id).await;
    assert_eq!(
        (&object["status"], &object["error"]["code"]),
        (&"failed".into(), &"server_error".into())
    );
    assert_eq!(
        replay(&world, &id, "").await.last().expect("events")["response"],
        object
    );
    world.end().await;
}

/// A response that the store assigns to this process, but that no task runs, is closed. Otherwise it would stay in
/// progress as long as the process lives.
#[tokio::test]
async fn what_has_lost_its_task_is_closed() {
    let folder = Folder::new();
    let world = World::start(slow(10_000), Setup::stored(&folder)).await;
    let id = started(&world).await;
    until("the engine works", || {
        world.engine.active_generations() == 1
    })
    .await;
    let orphaned = format!("resp_{}", "0".repeat(32));
    let columns = "kind, version, state, created, touched, expires, background, previous, conversation, owner, term, \
                   lease, cancel, 0, bytes, request, response";
    let copy = format!(
        "INSERT INTO samewire_records SELECT tenant, '{orphaned}', {columns} FROM samewire_records WHERE id = '{id}'"
    );
    let table = rusqlite::Connection::open(folder.path("store.db")).expect("the store's file");
    table.busy_timeout(PATIENCE).expect("a limit");
    assert_eq!(table.execute(&copy, ()), Ok(1));
    let closed = ended(world.proxy(), &orphaned).await;
    assert_eq!(
        (&closed["status"], &closed["error"]["code"]),
        (&"failed".into(), &"server_error".into())
    );
    assert_eq!(
        object(&world, &id).await["status"],
        "in_progress",
        "the other one runs on"
    );
    let answer = world.post(&format!("/v1/responses/{id}/cancel"), "").await;
    assert_eq!(answer.json()["status"], "cancelled");
    world.end().await;
}

/// A second process on the same store reads, follows and cancels a response, also one left by a killed process.
#[tokio::test]
async fn fault_c43_two_processes_on_one_store() {
    let folder = Folder::new();
    let setup = || Setup::stored(&folder);
    let mut world = World::start(slow(10_000), setup()).await;
    let other = Samewire::start(&setup().upstream(&world.engine.url())).await;
    let id = started(&world).await;
    until("the engine works", || {
        world.engine.active_generations() == 1
    })
    .await;
    let cancelled = Request::post(&format!("/v1/responses/{id}/cancel"), "")
        .answer(other.proxy)
        .await;
    assert_eq!(
        cancelled.json()["status"],
        "cancelled",
        "{}",
        cancelled.text()
    );
    let lost = started(&world).await;
    // Waits until some events are stored.
    let mut reader = Request::get(&format!("/v1/responses/{lost}?stream=true"))
        .begin(other.proxy)
        .await;
    while !reader
        .event()
        .await
        .expect("an event")
        .contains("output_text.delta")
    {}
    world.samewire.signal("KILL");
    world.samewire.exit(PATIENCE).await;
    let start = Instant::now();
    let cancelled = Request::post(&format!("/v1/responses/{lost}/cancel"), "")
        .answer(other.proxy)
        .await;
    // The owner would have had two seconds to react; its lease lasts ten more.
    assert!(
        start.elapsed() < Duration::from_secs(9),
        "{:?}",
        start.elapsed()
    );
    let object = cancelled.json();
    assert_eq!(
        (&object["status"], &object["error"]),
        (&"cancelled".into(), &Value::Null)
    );
    assert_eq!(
        Request::get(&format!("/v1/responses/{lost}"))
            .answer(other.proxy)
            .await
            .json(),
        object
    );
    let told = Request::get(&format!("/v1/responses/{lost}?stream=true"))
        .answer(other.proxy)
        .await;
    let told = events(told.text());
    for (number, event) in told.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    assert_eq!(told.last().expect("events")["type"], "response.incomplete");
    // The text of the events read so far is in the object, too.
    let deltas: String = told
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(
        object["output"][0]["content"][0]["text"]
            .as_str()
            .unwrap_or_default(),
        deltas
    );
    assert_eq!(told.last().expect("events")["response"], object);
    world.samewire = other;
    world.end().await;
}

/// A process that renews its lease keeps its responses for longer than the lease. The responses of a dead process
/// are closed once its lease has expired.
#[tokio::test]
async fn fault_o16_a_lease_is_as_long_as_is_said() {
    let folder = Folder::new();
    let short = "[timeouts]\nbackground_lease = 2\nbackground_heartbeat = 0.2";
    let setup = || Setup::stored(&folder).config(short);
    let mut world = World::start(slow(10_000), setup().allow_errors()).await;
    let other = Samewire::start(&setup().upstream(&world.engine.url())).await;
    let id = started(&world).await;
    until("the engine works", || {
        world.engine.active_generations() == 1
    })
    .await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        let object = Request::get(&format!("/v1/responses/{id}"))
            .answer(other.proxy)
            .await
            .json();
        let status = object["status"].as_str().expect("a status");
        assert!(
            ["queued", "in_progress"].contains(&status),
            "{status} after {:?}",
            start.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.samewire.signal("KILL");
    world.samewire.exit(PATIENCE).await;
    let start = Instant::now();
    world.samewire = other;
    assert_eq!(ended(world.proxy(), &id).await["status"], "failed");
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "the usual lease lasts longer: {:?}",
        start.elapsed()
    );
    world.end().await;
}
