//! Quotas of API keys: concurrent, per minute, per day and per month.

use crate::clients::keys::{OTHER, SECOND, entry, with};
use crate::operations::replicas::on;
use crate::postgres::partition::{Partition, RelayState};
use crate::postgres::{connect, database};
use crate::responses::over_chat::{events, prompt};
use crate::responses::socket::prompted;
use crate::sim::prelude::*;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

async fn world(lines: &str, script: Script) -> World {
    let keys = [entry(KEY, lines), entry(OTHER, "")].concat();
    World::start(script, Setup::new().config(&keys)).await
}

/// Returns an answer that cost this many tokens.
fn costly(prompt: u32, completion: u32) -> Script {
    Script::stream()
        .text("a")
        .finish("stop")
        .usage(prompt, completion)
        .done()
        .end()
}

fn limits(answer: &Answer, what: &str) -> Option<(u64, u64, String)> {
    let header = |part: &str| answer.head.header(&format!("x-ratelimit-{part}-{what}"));
    let number = |part| header(part)?.parse().ok();
    Some((
        number("limit")?,
        number("remaining")?,
        header("reset")?.to_owned(),
    ))
}

fn refused(answer: &Answer, code: &str) -> u64 {
    assert_eq!(answer.failure(), format!("429 rate_limit_error {code}"));
    answer
        .head
        .header("retry-after")
        .expect("429")
        .parse()
        .expect("a number")
}

#[tokio::test]
async fn requests_of_a_key_in_a_minute() {
    let world = world("requests_per_minute = 3", Script::answer("a", 1)).await;
    for (request, left) in [
        (Request::stream(""), 2),
        (prompt("m", r#","stream":true"#), 1),
        (Request::stream(""), 0),
    ] {
        let answer = world.request(&request).await.with_status(200);
        let (limit, remaining, reset) = limits(&answer, "requests").expect("all three headers");
        assert_eq!((limit, remaining), (3, left));
        assert!(reset.ends_with('s'), "{reset}");
        assert_eq!(limits(&answer, "tokens"), None);
    }
    let answer = world.stream("").await;
    let wait = refused(&answer, "rate_limit_exceeded");
    assert!((1..=20).contains(&wait), "{wait}");
    assert_eq!(
        limits(&answer, "requests").map(|(limit, left, _)| (limit, left)),
        Some((3, 0))
    );
    // Requests that reach no engine are not counted, and another key is unaffected.
    assert_ne!(world.get("/v1/models").await.head.status, 429);
    for _ in 0..5 {
        let answer = world.request(&with(&Request::stream(""), OTHER)).await;
        assert_eq!(
            (answer.head.status, limits(&answer, "requests")),
            (200, None)
        );
    }
    world.end_after(8).await;
}

#[tokio::test]
async fn tokens_of_a_key_in_a_minute() {
    let world = world("tokens_per_minute = 1000", costly(300, 900)).await;
    let answer = world.stream("").await.with_status(200);
    assert_eq!(
        limits(&answer, "tokens").map(|(limit, left, _)| (limit, left)),
        Some((1000, 999))
    );
    world.samewire.finished(1).await;
    // The budget is overdrawn by 200 tokens: at 1,000 a minute that takes 12 seconds to recover.
    let answer = world.stream("").await;
    let wait = refused(&answer, "rate_limit_exceeded");
    assert!((10..=13).contains(&wait), "{wait}");
    let (_, left, reset) = limits(&answer, "tokens").expect("all three headers");
    assert_eq!((left, reset.as_str()), (0, "1m0s"));
    world.end_after(1).await;
}

#[tokio::test]
async fn requests_of_a_key_at_once() {
    let gate = Gate::default();
    let world = world(
        "concurrency = 2",
        Script::stream().text("a").wait(&gate).stop(),
    )
    .await;
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(world.begin(&Request::stream("")).await);
    }
    refused(&world.stream("").await, "concurrency_limit");
    refused(&world.request(&prompt("m", "")).await, "concurrency_limit");
    // A client that leaves frees its slot, and so does a finished request.
    drop(running.pop());
    world.samewire.finished(3).await;
    running.push(world.begin(&Request::stream("")).await);
    gate.open();
    for mut client in running {
        client.rest().await;
    }
    world.samewire.finished(5).await;
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

/// Rate-limit headers of the engine are replaced by those of the client's key.
#[tokio::test]
async fn limits_of_the_engine_are_not_those_of_a_key() {
    let body = r#"{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;
    let lines = "x-ratelimit-limit-requests: 7\r\nx-ratelimit-remaining-tokens: 5\r\n";
    let script = Script::new().whole_with("200 OK", "application/json", lines, body);
    let world = world("requests_per_minute = 100", script).await;
    let answer = world.request(&Request::plain("")).await;
    assert_eq!(
        limits(&answer, "requests").map(|(limit, left, _)| (limit, left)),
        Some((100, 99))
    );
    assert_eq!(answer.head.header("x-ratelimit-remaining-tokens"), None);
    let answer = world.request(&with(&Request::plain(""), OTHER)).await;
    assert_eq!(answer.head.header("x-ratelimit-limit-requests"), Some("7"));
    assert_eq!(
        answer.head.header("x-ratelimit-remaining-tokens"),
        Some("5")
    );
    world.end().await;
}

const DAY: u64 = 86_400;

/// Returns seconds since 1970, waiting first if the day is about to end, so that one test stays within a day.
async fn now() -> u64 {
    loop {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let left = DAY - now % DAY;
        if left > 60 {
            return now;
        }
        tokio::time::sleep(Duration::from_secs(left)).await;
    }
}

/// Checks the error of a key that has used up its quota. No client library retries such a request.
fn used_up(answer: &Answer, kind: &str) -> Value {
    assert_eq!(
        answer.failure(),
        format!("429 {kind} {kind}"),
        "{}",
        answer.text()
    );
    assert_eq!(
        answer.head.header("retry-after"),
        Some("60"),
        "as long as may be"
    );
    assert_eq!(answer.head.header("x-should-retry"), Some("false"));
    answer.json()["error"].take()
}

#[tokio::test]
async fn a_used_up_day_is_told_as_the_key_is_configured() {
    let now = now().await;
    let midnight = now - now % DAY + DAY;
    let keys = [
        entry(KEY, "requests_per_day = 2"),
        entry(
            OTHER,
            "requests_per_day = 1\nwhen_used_up = \"usage_limit_reached\"\nplan = \"team\"",
        ),
        entry(
            SECOND,
            "tokens_per_day = 1000\nwhen_used_up = \"usage_limit_reached\"",
        ),
    ];
    let world = World::start(costly(300, 900), Setup::new().config(&keys.concat())).await;
    for left in [1, 0] {
        let answer = world.stream("").await.with_status(200);
        let (limit, remaining, reset) = limits(&answer, "requests").expect("all three headers");
        assert_eq!((limit, remaining), (2, left));
        assert!(reset.ends_with('s'), "{reset}");
        assert_eq!(limits(&answer, "tokens"), None);
    }
    for request in [Request::stream(""), prompt("m", "")] {
        let answer = world.request(&request).await;
        let error = used_up(&answer, "insufficient_quota");
        let message = error["message"].as_str().unwrap();
        assert!(
            message
                .starts_with("You exceeded your current quota: this key may use 2 requests a day"),
            "{message}"
        );
        assert_eq!(error.as_object().unwrap().len(), 4, "{error}");
        assert_eq!(
            limits(&answer, "requests").map(|(limit, left, _)| (limit, left)),
            Some((2, 0))
        );
    }
    // In one dialect the code has an older name.
    let legacy = prompt("m", "").header("x-samewire-dialect", "codex-legacy");
    let answer = world.request(&legacy).await;
    assert_eq!(answer.failure(), "429 insufficient_quota quota_exceeded");
    assert_eq!(
        world
            .request(&with(&Request::stream(""), OTHER))
            .await
            .head
            .status,
        200
    );
    let error = used_up(
        &world.request(&with(&Request::stream(""), OTHER)).await,
        "usage_limit_reached",
    );
    assert_eq!(
        (&error["plan_type"], &error["resets_at"]),
        (&json!("team"), &json!(midnight))
    );
    // The answer that exceeds the token limit is delivered completely.
    let answer = world.request(&with(&Request::stream(""), SECOND)).await;
    assert_eq!(
        limits(&answer, "tokens").map(|(limit, left, _)| (limit, left)),
        Some((1000, 1000))
    );
    assert!(answer.text().contains("[DONE]"));
    world.samewire.finished(8).await;
    let answer = world.request(&with(&Request::stream(""), SECOND)).await;
    let error = used_up(&answer, "usage_limit_reached");
    assert_eq!(
        (error.get("plan_type"), &error["resets_at"]),
        (None, &json!(midnight))
    );
    assert_eq!(
        limits(&answer, "tokens").map(|(limit, left, _)| (limit, left)),
        Some((1000, 0))
    );
    world.end_after(4).await;
}

/// A request that reached no engine is not charged to the daily quota.
#[tokio::test]
async fn refused_requests_are_not_charged() {
    now().await;
    let world = world("requests_per_day = 1", Script::answer("a", 1)).await;
    for _ in 0..3 {
        assert_eq!(
            world.post("/v1/chat/completions", "{").await.head.status,
            400
        );
    }
    assert_eq!(world.stream("").await.head.status, 200);
    used_up(&world.stream("").await, "insufficient_quota");
    world.end().await;
}

#[tokio::test]
async fn models_that_a_plan_does_not_have() {
    let keys = [
        entry(KEY, "models_not_included = [\"big\"]"),
        entry(OTHER, "models = [\"m\"]\nmodels_not_included = [\"*\"]"),
        entry(SECOND, "models = [\"m\"]"),
    ];
    let world = World::plain(Setup::new().config(&keys.concat())).await;
    for (key, model, expected) in [
        (KEY, "m", None),
        (KEY, "big", Some((403, "usage_not_included"))),
        (OTHER, "m", None),
        (OTHER, "big", Some((403, "usage_not_included"))),
        (SECOND, "big", Some((404, "model_not_found"))),
    ] {
        let answer = world
            .request(&with(&prompt(model, r#","stream":true"#), key))
            .await;
        let Some((status, code)) = expected else {
            assert_eq!(answer.head.status, 200, "{key} {model}");
            continue;
        };
        let fault = answer.fault();
        assert_eq!(
            (answer.head.status, fault.code.as_deref()),
            (status, Some(code)),
            "{key} {model}"
        );
        assert_eq!(fault.param.as_deref(), Some("model"));
        if status == 403 {
            assert_eq!(fault.kind, code, "type and code are equal");
        }
    }
    world.end_after(2).await;
}

async fn restart(world: &mut World, setup: &Setup, signal: &str) {
    world.samewire.signal(signal);
    world.samewire.exit(PATIENCE).await;
    world.samewire = Samewire::start(&setup.clone().in_front_of(&world.engine)).await;
}

#[tokio::test]
async fn a_quota_outlives_the_process() {
    now().await;
    let folder = Folder::new();
    let keys = [
        entry(KEY, "requests_per_day = 3"),
        entry(OTHER, "tokens_per_month = 2000"),
    ]
    .concat();
    let setup = Setup::stored(&folder)
        .config("[timeouts]\nsettle = 0")
        .config(&keys);
    let mut world = World::start(costly(300, 900), setup.clone()).await;
    for key in [KEY, OTHER] {
        assert_eq!(
            world
                .request(&with(&Request::stream(""), key))
                .await
                .head
                .status,
            200
        );
    }
    // Charges not yet written are written before an orderly shutdown.
    restart(&mut world, &setup, "TERM").await;
    let answer = world.stream("").await;
    assert_eq!(
        limits(&answer, "requests").map(|(limit, left, _)| (limit, left)),
        Some((3, 1))
    );
    let answer = world.request(&with(&Request::stream(""), OTHER)).await;
    assert_eq!(
        limits(&answer, "tokens").map(|(limit, left, _)| (limit, left)),
        Some((2000, 800))
    );
    let database = rusqlite::Connection::open(folder.path("store.db")).unwrap();
    let counted = || -> i64 {
        let sql = "SELECT SUM(amount) FROM samewire_counters WHERE kind IN (0, 3)";
        database.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    // Four requests of two keys; each request used 1,200 tokens.
    until("it is written", || counted() == 4 + 4 * 1_200).await;
    restart(&mut world, &setup, "KILL").await;
    used_up(
        &world.request(&with(&Request::stream(""), OTHER)).await,
        "insufficient_quota",
    );
    assert_eq!(world.stream("").await.head.status, 200);
    used_up(&world.stream("").await, "insufficient_quota");
    // The names of counters do not reveal the keys.
    let names: String = database
        .query_row(
            "SELECT group_concat(name) FROM samewire_counters",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(!names.contains("CANARY"), "{names}");
    world.end().await;
}

/// Waits until the database holds this amount of a kind.
async fn written(database: &str, kind: i64, amount: i64) {
    let table = connect(database).await;
    let sql = "SELECT CAST(SUM(amount) AS BIGINT) FROM samewire_counters WHERE kind = $1";
    let start = Instant::now();
    while table
        .query_one(sql, &[&kind])
        .await
        .unwrap()
        .get::<_, Option<i64>>(0)
        < Some(amount)
    {
        assert!(start.elapsed() < Duration::from_secs(20), "counts are lost");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn replicas_share_a_quota() {
    now().await;
    let database = database().await;
    let setup = on(&database).config(&entry(KEY, "tokens_per_day = 5000"));
    let world = World::start(costly(300, 900), setup.clone()).await;
    let replica = setup.in_front_of(&world.engine);
    let other = Samewire::start(&replica).await;
    for proxy in [
        world.proxy(),
        other.proxy,
        world.proxy(),
        other.proxy,
        world.proxy(),
    ] {
        assert_eq!(Request::stream("").answer(proxy).await.head.status, 200);
    }
    // No process has used up the quota by itself: each learns of the other's usage within about a second.
    for proxy in [world.proxy(), other.proxy] {
        Request::stream("")
            .answer_until(proxy, |answer| answer.head.status != 200)
            .await;
        used_up(
            &Request::stream("").answer(proxy).await,
            "insufficient_quota",
        );
    }
    // A process that starts later knows the written counts from its first request on.
    written(&database, 1, 5 * 1_200).await;
    let attempts = world.engine.attempt_count();
    let late = Samewire::start(&replica).await;
    used_up(
        &Request::stream("").answer(late.proxy).await,
        "insufficient_quota",
    );
    world.end_after(attempts).await;
}

/// While the store is unreachable, no request is refused for that reason: the process counts in memory and writes
/// it later.
#[tokio::test]
async fn fault_o17_a_quota_without_its_store() {
    now().await;
    let database = database().await;
    let partition = Partition::before(&database).await;
    let setup = on(&partition.url)
        .allow_errors()
        .config(&entry(KEY, "requests_per_month = 4"));
    let world = World::plain(setup).await;
    let send = async || world.stream("").await;
    assert_eq!(send().await.head.status, 200);
    partition.state.send_replace(RelayState::Closed);
    for _ in 0..2 {
        assert_eq!(send().await.head.status, 200);
    }
    let failures = async || {
        world
            .samewire
            .metric("samewire_quota_store_failures_total")
            .await
    };
    eventually("the failure is noticed", async || failures().await != 0).await;
    assert_eq!(send().await.head.status, 200);
    used_up(&send().await, "insufficient_quota");
    let warned = "quotas of a day or a month go by what this process knows";
    world.samewire.logged(warned, 1).await;
    partition.state.send_replace(RelayState::Open);
    written(&database, 2, 4).await;
    until("it is over", || {
        world
            .samewire
            .count_logged("are shared through the store again")
            == 1
    })
    .await;
    world.end().await;
}

/// Lines that share limits of a minute through the store.
fn shared(when_away: &str) -> String {
    format!("[shared_limits]\nenabled = true\nwhen_away = \"{when_away}\"\n")
}

#[tokio::test]
async fn replicas_share_the_limits_of_a_minute() {
    for (limit, script) in [
        ("requests_per_minute = 40", costly(1, 1)),
        // An answer costs 1,200.
        ("tokens_per_minute = 48000", costly(300, 900)),
    ] {
        let database = database().await;
        let keys = [entry(KEY, limit), entry(OTHER, "")].concat();
        let setup = on(&database).config(&format!("{}{keys}", shared("open")));
        let world = World::start(script, setup.clone()).await;
        let replica = setup.in_front_of(&world.engine);
        let other = Samewire::start(&replica).await;
        // Each has read the other's counts before the next request.
        for (samewire, proxy) in [(&world.samewire, world.proxy()), (&other, other.proxy)] {
            assert_eq!(Request::stream("").answer(proxy).await.head.status, 200);
            eventually("counts of others are read", async || {
                samewire.metrics().await.contains("op=\"counts_of_others\"")
            })
            .await;
            assert_eq!(Request::stream("").answer(proxy).await.head.status, 200);
        }
        for _ in 0..34 {
            assert_eq!(
                Request::stream("").answer(world.proxy()).await.head.status,
                200,
                "{limit}"
            );
        }
        // The other process has let in two requests, and has no room for more than the refill.
        let start = Instant::now();
        let mut more = 0;
        while Request::stream("").answer(other.proxy).await.head.status == 200 {
            more += 1;
            assert!(start.elapsed() < PATIENCE, "still let in");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(more < 30, "{limit}: {more} of its own limit");
        refused(
            &Request::stream("").answer(other.proxy).await,
            "rate_limit_exceeded",
        );
        let free = with(&Request::stream(""), OTHER).answer(other.proxy).await;
        assert_eq!(free.head.status, 200, "a key without a limit");
        world.end().await;
    }
}

#[tokio::test]
async fn fault_o39_shared_limits_without_their_store() {
    for closed in [false, true] {
        let database = database().await;
        let partition = Partition::before(&database).await;
        let keys = [
            entry(KEY, "requests_per_minute = 1000"),
            entry(OTHER, "concurrency = 5"),
        ]
        .concat();
        let when_away = shared(if closed { "closed" } else { "open" });
        let setup = on(&partition.url)
            .allow_errors()
            .config(&format!("{when_away}{keys}"));
        let world = World::plain(setup).await;
        let send = async || world.stream("").await;
        assert_eq!(send().await.head.status, 200);
        partition.state.send_replace(RelayState::Closed);
        let start = Instant::now();
        if closed {
            while send().await.head.status == 200 {
                assert!(start.elapsed() < PATIENCE, "still let in");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let answer = send().await;
            assert_eq!(answer.failure(), "503 server_error store_unavailable");
            assert!(answer.head.header("retry-after").is_some());
            let free = world.request(&with(&Request::stream(""), OTHER)).await;
            assert_eq!(free.head.status, 200, "a key without such a limit");
        } else {
            while world
                .samewire
                .metric("samewire_quota_store_failures_total")
                .await
                == 0
            {
                assert_eq!(send().await.head.status, 200);
                assert!(start.elapsed() < PATIENCE, "nobody has noticed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(send().await.head.status, 200);
        }
        partition.state.send_replace(RelayState::Open);
        until("it is over", || {
            world
                .samewire
                .count_logged("are shared through the store again")
                >= 1
        })
        .await;
        assert_eq!(send().await.head.status, 200, "closed: {closed}");
        world.end().await;
    }
}

#[tokio::test]
async fn fault_o05_another_quota_counts_on() {
    now().await;
    let engine = Engine::script(Script::answer("a", 1)).await;
    let keys = |most: u64| entry(KEY, &format!("requests_per_day = {most}"));
    let world = World::fleet(vec![engine], Setup::new().config(&keys(2)), &[]).await;
    let upstream = format!(
        "[[upstream]]\nurl = \"{}\"\nengine = \"vllm\"\n",
        world.engine.url()
    );
    let send = async || world.stream("").await;
    for status in [200, 200, 429] {
        assert_eq!(send().await.head.status, status);
    }
    world
        .samewire
        .reconfigure(&format!("{}{upstream}", keys(3)))
        .await;
    for status in [200, 429] {
        assert_eq!(send().await.head.status, status);
    }
    // Also after a time without a quota.
    world
        .samewire
        .reconfigure(&format!("{}{upstream}", entry(KEY, "")))
        .await;
    assert_eq!(send().await.head.status, 200);
    world
        .samewire
        .reconfigure(&format!("{}{upstream}", keys(3)))
        .await;
    used_up(&send().await, "insufficient_quota");
    world.end().await;
}

/// Returns the limit and the sequence number of the rate-limit event of the older API description, if there is one.
fn told(events: &[Value]) -> Option<(u64, u64)> {
    let (last, before) = events.split_last().unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    if last["type"] != "response.rate_limits.updated" {
        assert!(
            before
                .iter()
                .all(|event| event["type"] != "response.rate_limits.updated"),
            "{before:?}"
        );
        return None;
    }
    assert_eq!(before.last().unwrap()["type"], "response.completed");
    assert_eq!(number(&last["sequence_number"]), before.len() as u64);
    assert_eq!(last["response"], json!({"id": before[0]["response"]["id"]}));
    let primary = &last["limits"]["primary"];
    assert_eq!(last["limits"], json!({"primary": primary}), "nothing else");
    Some((
        number(&primary["used_percent"]),
        number(&primary["window_minutes"]),
    ))
}

/// Returns an answer of an engine whose head and events report its own limits.
fn with_limits(native: bool) -> Script {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\
                x-ratelimit-limit-requests: 100\r\nx-ratelimit-remaining-requests: 1\r\n\r\n";
    let script = Script::new().raw(head);
    if !native {
        return script.role().text("a").stop();
    }
    let event = |kind: &str, status: &str| {
        let response = json!({"id": "resp_9", "object": "response", "created_at": 5, "model": "m", "status": status, "output": []});
        json!({"type": format!("response.{kind}"), "response": response}).to_string()
    };
    script
        .ev(&event("created", "in_progress"))
        .ev(r#"{"type":"response.output_text.delta","item_id":"x","output_index":0,"content_index":0,"delta":"H"}"#)
        .ev(&event("completed", "completed"))
        .end()
}

/// Head and event report the same limits of the key, whatever limits the engine reports, on every transport.
#[tokio::test]
async fn limits_of_a_key_are_told_in_the_older_events() {
    now().await;
    let keys = entry(KEY, "requests_per_minute = 10\nrequests_per_day = 40");
    for (native, lines) in [(false, ""), (true, "responses = \"native\"")] {
        let setup = Setup::new()
            .config(&keys)
            .upstream_keys(lines)
            .upstream_keys("engine = \"vllm\"");
        let world = World::start(Engine::answering(move |_| with_limits(native)), setup).await;
        let legacy = |more: &str| prompt("m", more).header("x-samewire-dialect", "codex-legacy");
        let answer = world
            .request(&legacy(r#","stream":true,"store":false"#))
            .await;
        assert_eq!(told(&events(&answer)), Some((10, 1)), "native: {native}");
        assert_eq!(
            limits(&answer, "requests").map(|(limit, left, _)| (limit, left)),
            Some((10, 9))
        );
        // Other dialects have no such event.
        let answer = world
            .request(&prompt("m", r#","stream":true,"store":false"#))
            .await;
        assert_eq!(told(&events(&answer)), None);
        // A background response, read at once and again.
        let answer = world
            .request(&legacy(r#","stream":true,"background":true"#))
            .await;
        let background = events(&answer);
        assert_eq!(told(&background), Some((30, 1)));
        let id = background[0]["response"]["id"].as_str().unwrap();
        let again = Request::get(&format!("/v1/responses/{id}?stream=true"));
        let replayed = world
            .request(&again.clone().header("x-samewire-dialect", "codex-legacy"))
            .await;
        assert_eq!(events(&replayed), background);
        assert_eq!(told(&events(&world.request(&again).await)), None);
        world.end().await;
        let setup = Setup::new()
            .config(&keys)
            .upstream_keys(lines)
            .upstream_keys("engine = \"vllm\"");
        let world = World::start(Engine::answering(move |_| with_limits(native)), setup).await;
        let request = Socket::request("/v1/responses").header("x-samewire-dialect", "codex-legacy");
        let mut socket = Socket::open_with(world.proxy(), &request).await;
        for (percent, more) in [(10, ""), (20, ""), (30, r#","generate":false"#)] {
            let mut said = socket.exchange(&prompted("m", more)).await;
            said.push(socket.message().await);
            assert_eq!(told(&said), Some((percent, 1)));
        }
        world.end().await;
    }
}

/// The event reports the limit of the key that is used up most.
#[tokio::test]
async fn the_nearest_limit_is_told() {
    now().await;
    let keys = entry(KEY, "requests_per_minute = 100\nrequests_per_day = 4");
    let world = World::start(
        Engine::answering(|_| with_limits(false)),
        Setup::new().config(&keys),
    )
    .await;
    let legacy =
        prompt("m", r#","stream":true,"store":false"#).header("x-samewire-dialect", "codex-legacy");
    for percent in [25, 50] {
        let answer = world.request(&legacy).await;
        assert_eq!(told(&events(&answer)), Some((percent, 1_440)));
        let left = 4 - percent / 25;
        assert_eq!(
            limits(&answer, "requests").map(|(limit, left, _)| (limit, left)),
            Some((4, left))
        );
    }
    world.end().await;
}

/// Continuing a response with tool outputs sends a request to the engine, and counts as one.
#[tokio::test]
async fn going_on_with_outputs_of_tools_counts() {
    now().await;
    let keys = entry(KEY, "requests_per_day = 2");
    let call = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    // Ids of responses are unique.
    let calls = [call.to_owned(), call.replace("chatcmpl-1", "chatcmpl-2")];
    let engine = Engine::in_turn(calls.iter().map(Script::ok).collect()).await;
    let world = World::start(engine, Setup::new().config(&keys)).await;
    let tools = r#","tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]"#;
    let made = world.request(&prompt("m", tools)).await.json();
    let outputs = |id: &str| {
        let body = r#"{"tool_call_id":"call_1","output":"rain"}"#;
        Request::post(&format!("/v1/responses/{id}/tool_outputs"), body)
    };
    let id = made["id"].as_str().unwrap();
    let next = world.request(&outputs(id)).await.with_status(200);
    assert_eq!(
        limits(&next, "requests").map(|(limit, left, _)| (limit, left)),
        Some((2, 0))
    );
    let next = next.json();
    let id = next["id"].as_str().unwrap();
    for _ in 0..2 {
        // The outputs may be sent again later.
        used_up(&world.request(&outputs(id)).await, "insufficient_quota");
    }
    world.end_after(2).await;
}

#[test]
fn check_says_what_a_restart_forgets() {
    let folder = Folder::new();
    let path = folder.file("samewire.toml", &entry(KEY, "requests_per_month = 4"));
    for (store, forgets) in [
        ("memory", true),
        ("off", true),
        ("sqlite:/tmp/none.db", false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
        command.args([
            "check",
            "--upstream",
            "http://127.0.0.1:1",
            "--store",
            store,
            "--config",
        ]);
        let output = command.arg(&path).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(
            shown.contains("a restart begins at 0"),
            forgets,
            "{store}: {shown}"
        );
    }
}
