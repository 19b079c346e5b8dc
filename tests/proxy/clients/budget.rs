//! Memory that requests may take, and the rate at which their bodies must arrive.

use crate::canonical::Canonical;
use crate::clients::leaving::settled;
use crate::responses::background::ended;
use crate::sim::prelude::*;
use tokio::task::JoinSet;

const BODIES: &str = "samewire_bodies_in_flight_bytes";

/// Returns a valid request of this length.
fn long(bytes: usize) -> Request {
    let (before, after) = (
        r#"{"model":"m","stream":true,"messages":[{"role":"user","content":""#,
        r#""}]}"#,
    );
    let padding = "x".repeat(bytes - before.len() - after.len());
    Request::chat(format!("{before}{padding}{after}"))
}

fn is_overloaded(answer: &Answer) {
    assert_eq!(answer.failure(), "503 server_error overloaded");
    assert_eq!(answer.head.header("connection"), Some("close"));
}

#[tokio::test]
async fn fault_o11_bodies_share_what_there_is() {
    let world = World::configured("[limits]\nbodies_in_flight_bytes = 1000000").await;
    let first = long(600_000);
    let mut slow = Client::sending(world.proxy(), &first.head_bytes()).await;
    slow.send(&first.sent_body()[..1000]).await;
    // The declared length is reserved before the body comes.
    world.samewire.metric_becomes(BODIES, 600_000).await;
    // With a `content-length` the refusal comes before the body is read; with chunks, once the body no longer fits.
    let mut second = Client::sending(world.proxy(), &long(500_000).head_bytes()).await;
    is_overloaded(&second.answer().await);
    let mut chunks = Client::connect(world.proxy()).await;
    chunks
        .try_send(&long(500_000).chunked(10_000).bytes())
        .await;
    is_overloaded(&chunks.answer().await);
    // A refused body takes nothing.
    world.samewire.metric_becomes(BODIES, 600_000).await;
    assert_eq!(world.request(&long(300_000)).await.head.status, 200);
    world.samewire.metric_becomes(BODIES, 600_000).await;
    assert_eq!(
        world
            .request(&long(300_000).chunked(10_000))
            .await
            .head
            .status,
        200
    );
    slow.send(&first.sent_body()[1000..]).await;
    assert_eq!(slow.answer().await.head.status, 200);
    world.samewire.metric_becomes(BODIES, 0).await;
    assert_eq!(
        world.request(&long(900_000)).await.head.status,
        200,
        "all of it is free again"
    );
    world.samewire.metric_becomes(BODIES, 0).await;
    // A body that can never fit is too large, now and later.
    assert_eq!(
        world
            .request(&long(1_000_001))
            .await
            .fault()
            .code
            .as_deref(),
        Some("request_too_large")
    );
    // A client that leaves releases its memory.
    let leaver = Client::sending(world.proxy(), &long(900_000).head_bytes()).await;
    world.samewire.metric_becomes(BODIES, 900_000).await;
    drop(leaver);
    world.samewire.metric_becomes(BODIES, 0).await;
    world.end().await;
}

/// A body is counted only as long as a part of it is kept: a long stream does not need it any more.
#[tokio::test]
async fn fault_o11_a_stream_gives_its_body_back() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let setup = Setup::new().config("[limits]\nbodies_in_flight_bytes = 1000000");
    let world = World::start(script, setup).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = world.begin(&long(900_000)).await;
        world.samewire.metric_becomes(BODIES, 0).await;
        clients.push(client);
    }
    gate.open();
    for mut client in clients {
        client.rest().await;
    }
    world.end().await;
}

#[tokio::test]
async fn fault_o11_when_memory_is_short_new_requests_are_refused() {
    const HELD: usize = 96 << 20;
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).text("b").stop();
    let setup = Setup::new().config(&format!(
        "[limits]\nmemory_bytes = {}\nbodies_in_flight_bytes = {}\nmax_body_bytes = {}",
        80 << 20,
        HELD * 2,
        HELD * 2
    ));
    let world = World::start(script, setup).await;
    let mut stream = world.begin(&Request::stream("")).await;
    let mut holder = Client::connect(world.proxy()).await;
    let head = Request::chat("").header("x-length", "").head_bytes();
    let head = String::from_utf8(head)
        .expect("ASCII")
        .replace("content-length: 0", &format!("content-length: {HELD}"));
    holder.send(head.as_bytes()).await;
    let piece = vec![b' '; 1 << 20];
    for _ in 0..(HELD >> 20) - 1 {
        holder.send(&piece).await;
    }
    let models = Request::get("/v1/models");
    let refused = models
        .answer_until(world.proxy(), |answer| answer.head.status == 503)
        .await;
    assert_eq!(refused.fault().code.as_deref(), Some("overloaded"));
    // Running requests continue, and once memory is free again, new ones are served.
    gate.open();
    stream.event_with(r#""b""#).await;
    stream.event_with("[DONE]").await;
    stream.rest().await;
    drop(holder);
    Request::stream("")
        .answer_until(world.proxy(), |answer| answer.head.status == 200)
        .await;
    world.end().await;
}

/// Waves of large bodies against a small memory budget: some are served, the rest is told to retry, and the process
/// stays within its memory.
#[tokio::test]
async fn fault_o11_waves_of_large_bodies() {
    const MEMORY: u64 = 256 << 20;
    let world = World::configured(&format!("[limits]\nmemory_bytes = {MEMORY}")).await;
    let request = long(27 << 20).bytes();
    let request: &'static [u8] = request.leak();
    let proxy = world.proxy();
    let mut most = 0;
    for wave in 0..3 {
        let mut clients = JoinSet::new();
        for _ in 0..60 {
            clients.spawn(async move {
                let mut client = Client::connect(proxy)
                    .await
                    .with_patience(Duration::from_secs(60));
                let _ = client.try_send(request).await;
                client.try_head().await.map(|head| head.status)
            });
        }
        let mut served = 0;
        while let Some(status) = clients.join_next().await {
            let status = status.expect("no panic");
            assert!(matches!(status, Some(200 | 503) | None), "{status:?}");
            served += usize::from(status == Some(200));
            most = most.max(world.samewire.allocated());
        }
        assert!(served > 0, "wave {wave}");
    }
    println!("at most {most} bytes were resident");
    assert!(most < MEMORY, "{most}");
    world.end().await;
}

/// A thousand clients stop reading while their engines have much more to send, in a process with little memory: all
/// engines are held back, and new clients are served.
#[tokio::test]
async fn fault_o11_a_thousand_stopped_readers() {
    const READERS: usize = 1_000;
    const MEMORY: u64 = 256 << 20;
    let gate = Gate::default();
    let begun = Script::stream().text("ready").wait(&gate);
    let flood = begun
        .then(Step::Flood {
            events: 3_200,
            size: 16 << 10,
        })
        .stop();
    let engine = Engine::answering(move |attempt| match attempt.text().contains("stops") {
        true => flood.clone(),
        false => Script::answer("a", 1),
    });
    let setup = Setup::new().config(&format!("[limits]\nmemory_bytes = {MEMORY}"));
    let world = World::start(engine.await, setup).await;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut client = Request::stream(r#","user":"stops""#)
            .send_narrow(world.proxy())
            .await;
        client.event_with_head("ready").await;
        readers.push(client);
    }
    gate.open();
    let written = settled(|| (0..READERS).map(|n| world.engine.written(n)).sum()).await;
    let resident = world.samewire.allocated();
    println!("{resident} bytes are resident, {written} were sent to {READERS} readers");
    assert!(resident < MEMORY, "{resident}");
    assert_eq!(
        world.stream("").await.text(),
        Canonical::answer("a", 1).text()
    );
    assert_eq!(
        world.engine.active_generations(),
        READERS,
        "nobody was cut off"
    );
    drop(readers);
    world.end().await;
}

#[tokio::test]
async fn fault_c08_bodies_below_the_rate() {
    let world =
        World::configured("[timeouts]\nclient_body_rate = 1000\nclient_body_window = 1").await;
    let request = long(4_000);
    for (piece, pause, status) in [(10, 50, 408), (200, 20, 200)] {
        let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
        let start = Instant::now();
        for piece in request.sent_body().chunks(piece) {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if start.elapsed() > Duration::from_secs(3) || !client.try_send(piece).await {
                break;
            }
        }
        let answer = client.answer().await;
        assert_eq!(answer.head.status, status);
        if status == 408 {
            assert_eq!(answer.fault().code.as_deref(), Some("request_timeout"));
            assert!(start.elapsed() > Duration::from_millis(900));
        }
    }
    world.end().await;
}

/// Processor time that this thread has used.
fn thread_cpu() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = schedstat.split_whitespace().next();
    Duration::from_nanos(nanoseconds.expect("a field").parse().expect("a number"))
}

/// A drip costs samewire a few times what it costs the client, whatever the machine.
#[tokio::test]
async fn fault_c08_a_hundred_drips_cost_little() {
    let world = World::configured("").await;
    let request = long(100_000).chunked(1);
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(Client::sending(world.proxy(), &request.head_bytes()).await);
    }
    let (cpu, sent) = (world.samewire.cpu(), thread_cpu());
    for chunk in request.sent_body().chunks(6).take(20) {
        for client in &mut clients {
            client.send(chunk).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (used, sent) = (world.samewire.cpu() - cpu, thread_cpu() - sent);
    println!("{used:?}, and {sent:?} to send them");
    assert!(used < 5 * sent, "{used:?}, and {sent:?} to send them");
    drop(clients);
    world.end().await;
}

/// Checks heads with this many headers, this long a value, and this long a target: of each two, the first is within
/// its limit.
async fn check_heads(config: &str, fields: [usize; 2], values: [usize; 2], targets: [usize; 2]) {
    let world = World::configured(config).await;
    let nothing = || Request::get("/v1/nothing");
    // Two headers are present already: host and authorization.
    let field = |n: usize| (0..n - 2).fold(nothing(), |all, n| all.header(&format!("x-{n}"), "y"));
    let value = |n: usize| nothing().header("x-long", &"v".repeat(n));
    let target = |n: usize| Request::get(&format!("/v1/{}", "p".repeat(n - 4)));
    for (request, status) in [
        (field(fields[0]), 404),
        (field(fields[1]), 431),
        (value(values[0]), 404),
        (value(values[1]), 431),
        (target(targets[0]), 404),
        (target(targets[1]), 414),
    ] {
        let mut client = Client::connect(world.proxy()).await;
        client.try_send(&request.bytes()).await;
        assert_eq!(client.head().await.status, status, "{:.40}", request.path());
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c18_limits_of_heads_to_the_byte() {
    let limits = "[limits]\nmax_head_bytes = 16384\nmax_headers = 20\nmax_uri_bytes = 1000";
    check_heads(limits, [20, 21], [15_000, 17_000], [1_000, 1_001]).await;
}

#[tokio::test]
async fn fault_c18_default_limits_of_heads() {
    check_heads("", [100, 101], [31 << 10, 33 << 10], [8_192, 8_193]).await;
}

#[tokio::test]
async fn limit_of_other_bodies() {
    let world = World::configured("[limits]\nother_body_bytes = 2000").await;
    let body = |n: usize| {
        let rest = r#"{"model":"m","prompt":""}"#;
        Request::post(
            "/v1/completions",
            rest.replace("\"\"", &format!("\"{}\"", "x".repeat(n - rest.len()))),
        )
    };
    assert_ne!(world.request(&body(2000)).await.head.status, 413);
    assert_eq!(world.request(&body(2001)).await.head.status, 413);
    world.end().await;
}

async fn object(world: &World, id: &str) -> Value {
    world.get(&format!("/v1/responses/{id}")).await.json()
}

#[tokio::test]
async fn responses_in_the_background_wait_for_each_other() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let setup = Setup::new()
        .config("[limits]\nbackground_running = 1\nbackground_queued = 2\nrequests = 1");
    let world = World::start(script, setup).await;
    let create = Request::post(
        "/v1/responses",
        r#"{"model":"m","background":true,"input":"hello"}"#,
    );
    let mut ids = Vec::new();
    for _ in 0..3 {
        let object = world.request(&create).await.json();
        assert_eq!(object["status"], "queued", "{object}");
        ids.push(object["id"].as_str().expect("an id").to_owned());
        world.engine.wait_attempts(1).await;
    }
    let answer = world.request(&create).await;
    assert_eq!(answer.failure(), "429 rate_limit_error concurrency_limit");
    // A queued response is reported as queued, and can be cancelled without reaching the engine.
    let first = Request::get(&format!("/v1/responses/{}?stream=true", ids[1]));
    let mut reader = world.begin_until(&first, "response.queued").await;
    assert_eq!(object(&world, &ids[1]).await["status"], "queued");
    let cancelled = world
        .post(&format!("/v1/responses/{}/cancel", ids[1]), "")
        .await;
    assert!(
        cancelled.text().contains(r#""status":"cancelled""#),
        "{}",
        cancelled.text()
    );
    reader.rest().await;
    assert_eq!(world.engine.attempt_count(), 1);
    // The slot of the cancelled response is free.
    create
        .answer_until(world.proxy(), |answer| answer.head.status != 429)
        .await;
    gate.open();
    for id in [&ids[0], &ids[2]] {
        assert_eq!(ended(world.proxy(), id).await["status"], "completed");
    }
    world.engine.wait_attempts(3).await;
    world.end().await;
}

/// Readers of stored events get keepalives as often as readers of live streams.
#[tokio::test]
async fn keepalives_of_readers_come_as_often_as_is_said() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let world = World::start(script, Setup::new().set("keepalive_seconds=1")).await;
    let ask = r#"{"model":"m","background":true,"stream":true,"input":"hello"}"#;
    let mut reader = world.begin(&Request::post("/v1/responses", ask)).await;
    let start = Instant::now();
    for _ in 0..2 {
        reader.event_with(": keepalive").await;
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    gate.open();
    reader.rest().await;
    world.end().await;
}

#[tokio::test]
async fn the_flush_timeout_bounds_the_last_write() {
    let script = Script::stream()
        .then(Step::Flood {
            events: 2000,
            size: 16 * 1024,
        })
        .hang();
    for (flush, least, most) in [("0.2", 0, 2_500), ("3", 2_800, 12_000)] {
        let engine = Engine::script(script.clone()).await;
        let setup = Setup::before(&engine);
        let setup = setup.config(&format!(
            "[timeouts]\nsettle = 0\ndrain = 0.1\nflush = {flush}"
        ));
        let mut samewire = Samewire::start(&setup).await;
        // A client that does not read cannot receive an error.
        let mut client = Request::stream("").send_narrow(samewire.proxy).await;
        client.head().await;
        settled(|| engine.written(0)).await;
        let start = Instant::now();
        samewire.stop().await;
        let took = start.elapsed().as_millis();
        assert!((least..most).contains(&took), "flush = {flush}: {took} ms");
    }
}

#[tokio::test]
async fn an_operation_of_the_store_has_as_long_as_is_said() {
    let folder = Folder::new();
    let world = World::plain(Setup::stored(&folder).config("[timeouts]\nstore_call = 0.3")).await;
    let create = Request::post("/v1/conversations", "{}");
    assert_eq!(world.request(&create).await.head.status, 200);
    let lock = rusqlite::Connection::open(folder.path("store.db")).expect("the store's file");
    lock.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    let start = Instant::now();
    assert_eq!(
        world.request(&create).await.fault().code.as_deref(),
        Some("store_unavailable")
    );
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(250) && took < Duration::from_secs(4),
        "{took:?}"
    );
    drop(lock);
    world.end().await;
}

#[tokio::test]
async fn what_is_stored_lives_as_long_as_is_said() {
    let world = World::configured("[store]\nttl = 1").await;
    let answer = world
        .post("/v1/responses", r#"{"model":"m","input":"hello"}"#)
        .await;
    let object = answer.json();
    let it = Request::get(&format!(
        "/v1/responses/{}",
        object["id"].as_str().expect("an id")
    ));
    let start = Instant::now();
    it.answer_until(world.proxy(), |answer| answer.head.status != 200)
        .await
        .with_status(404);
    assert!(
        start.elapsed() > Duration::from_millis(700),
        "{:?}",
        start.elapsed()
    );
    world.end().await;
}

#[tokio::test]
async fn events_may_be_as_long_as_is_said() {
    let answer = |length: usize| Script::stream().text(&"x".repeat(length)).stop();
    for (length, good) in [(1_000, true), (3_000, false)] {
        let setup = Setup::new()
            .allow_errors()
            .config("[limits]\nmax_event_bytes = 2000");
        let answer = World::answer(answer(length), setup, &Request::stream("")).await;
        assert_eq!(
            answer.text().ends_with("data: [DONE]\n\n"),
            good,
            "{}",
            answer.text()
        );
        assert_eq!(answer.text().contains("upstream_invalid_event"), !good);
    }
}

#[tokio::test]
async fn unused_connections_to_the_engine_are_closed_when_it_is_said() {
    let world = World::configured("[timeouts]\npool_idle = 0.2\n[health]\ninterval = 60").await;
    assert_eq!(world.stream("").await.head.status, 200);
    // One of the connections is the probe's.
    let open = world.engine.open_connections();
    let closed = || world.engine.open_connections() < open;
    until("a connection is closed", closed).await;
    world.end().await;
}
