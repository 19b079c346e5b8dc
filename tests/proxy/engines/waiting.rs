//! Engines that are slow, silent or unreachable, and what the client sees meanwhile.

use crate::canonical::{Canonical, grammar};
use crate::sim::prelude::*;
use crate::sim::{refusing, unanswered_address};

/// Returns a setup in which samewire soon gives up an engine that sends nothing, before its first word and after it.
fn silence_is_short() -> Setup {
    Setup::new()
        .allow_errors()
        .config("[timeouts]\nconnect = 0.3\nfirst_token = 0.4\ninter_token = 0.4")
}

/// Returns a setup in which an engine has time for its first word, and little between two of them.
fn pauses_are_short() -> Setup {
    Setup::new()
        .allow_errors()
        .config("[timeouts]\nfirst_token = 10\ninter_token = 0.5")
}

fn timed_out(answer: &Answer) {
    assert_eq!(answer.failure(), "504 server_error upstream_timeout");
}

/// Reads up to the error frame of a timeout, which must be the last event of a body with a regular end.
async fn error_frame_of_a_timeout(client: &mut Client) -> String {
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert_eq!(client.ended(), Ended::LastChunk);
    let blocks = grammar(&rest);
    let last = blocks.last().expect("an end");
    assert!(
        last.starts_with("event: error\n") && last.contains(r#""code":"upstream_timeout""#),
        "{last}"
    );
    rest.clone()
}

#[tokio::test]
async fn fault_u01_refused_connection() {
    let (url, _held) = refusing();
    let world = World::start(Script::new(), Setup::new().upstream(&url).allow_errors()).await;
    let mut times = Vec::new();
    for request in [Request::stream(""), Request::plain("")]
        .iter()
        .cycle()
        .take(40)
    {
        let answer = world.request(request).await;
        assert_eq!(answer.failure(), "502 server_error upstream_unreachable");
        times.push(answer.waited);
    }
    times.sort();
    println!("refused: median {:?}, worst {:?}", times[20], times[39]);
    assert!(times[20] < Duration::from_secs(1), "{times:?}");
    world.end().await;
}

#[tokio::test]
async fn fault_u04_connect_that_hangs() {
    let (url, _held) = unanswered_address();
    let world = World::start(Script::new(), silence_is_short().upstream(&url)).await;
    let start = Instant::now();
    timed_out(&world.stream("").await);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    world.end().await;
}

#[tokio::test]
async fn fault_u06_no_head_ever() {
    let world = World::start(Script::new().hang(), silence_is_short()).await;
    for request in [Request::stream(""), Request::plain("")] {
        let start = Instant::now();
        timed_out(&world.request(&request).await);
        assert_took(start, 350);
    }
    until("the answer is cancelled", || {
        world.engine.active_generations() == 0
    })
    .await;
    // A silent engine gets no second request.
    world.end_after(2).await;
}

#[tokio::test]
async fn fault_u06_no_event_after_a_timed_commit() {
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\nfirst_token = 2")
        .set("commit_after_seconds=1");
    let world = World::start(Script::new().head_sse().hang(), setup).await;
    let start = Instant::now();
    let mut client = world.begin(&Request::stream("")).await;
    assert_took(start, 900);
    let rest = error_frame_of_a_timeout(&mut client).await;
    assert!(
        rest.starts_with(": keepalive\n\n"),
        "a comment shows that the stream lives: {rest}"
    );
    assert!(!rest.contains("assistant"), "no role frame: {rest}");
    world.end().await;
}

#[tokio::test]
async fn fault_u07_late_first_token() {
    let gate = Gate::default();
    let script = Script::new()
        .head_sse()
        .wait(&gate)
        .role()
        .tok("a", 2, Duration::ZERO)
        .stop();
    let setup = Setup::new()
        .set("commit_after_seconds=1")
        .set("keepalive_seconds=1");
    let world = World::start(script, setup).await;
    let mut client = world.begin(&Request::stream("")).await;
    for _ in 0..2 {
        assert_eq!(client.event().await.as_deref(), Some(": keepalive"));
    }
    gate.open();
    assert_eq!(
        String::from_utf8(client.rest().await).expect("UTF-8"),
        Canonical::answer("a", 2).text()
    );
    world.end_after(1).await;
}

/// The first events of a response repeat its request and are held until the engine's first event: however long they
/// are, the engine is read further.
#[tokio::test]
async fn a_long_request_is_repeated_and_the_engine_read_on() {
    let gate = Gate::default();
    let script = Script::stream()
        .wait(&gate)
        .tok("a", 2, Duration::ZERO)
        .stop();
    let setup = Setup::new()
        .config("[timeouts]\nfirst_token = 10")
        .set("commit_after_seconds=1");
    let setup = setup.set("keepalive_seconds=1");
    let world = World::start(script, setup).await;
    let mut client = Client::connect(world.proxy()).await;
    let instructions = "x".repeat(100_000);
    let body =
        format!(r#"{{"model":"m","input":"x","instructions":"{instructions}","stream":true}}"#);
    client
        .send(&Request::post("/v1/responses", body).bytes())
        .await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.event().await.as_deref(), Some(": keepalive"));
    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert_eq!(client.ended(), Ended::LastChunk);
    let last = rest
        .split("\n\n")
        .filter(|block| !block.is_empty())
        .last()
        .expect("events");
    assert!(last.starts_with("event: response.completed\n"), "{last}");
    world.end().await;
}

#[tokio::test]
async fn fault_u08_role_and_nothing_more() {
    let world = World::start(Script::stream().hang(), silence_is_short()).await;
    timed_out(&world.stream("").await);
    world.end_after(1).await;
}

#[tokio::test]
async fn fault_u09_silence_in_the_stream() {
    let world = World::start(
        Script::stream().tok("a", 3, Duration::ZERO).hang(),
        pauses_are_short(),
    )
    .await;
    let mut client = world.begin(&Request::stream("")).await;
    let rest = error_frame_of_a_timeout(&mut client).await;
    assert!(
        rest.starts_with(Canonical::new().role().tok("a", 3).text()),
        "{rest}"
    );
    world.end().await;
}

/// Keepalive comments come from samewire and do not count as a sign of life of the engine.
#[tokio::test]
async fn fault_u09_comments_do_not_put_off_the_end_of_a_silent_stream() {
    let script = Script::stream().tok("a", 3, Duration::ZERO).hang();
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\ninter_token = 2.5")
        .set("keepalive_seconds=1");
    let world = World::start(script, setup).await;
    let mut client = world.begin_until(&Request::stream(""), "a.2").await;
    let start = Instant::now();
    let rest = error_frame_of_a_timeout(&mut client).await;
    assert!(
        (1..=2).contains(&rest.matches(": keepalive\n\n").count()),
        "{rest}"
    );
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    // Nor do they end the pause between two writes of the answer.
    let metrics = world.samewire.metrics().await;
    let mut sums = metrics.lines().filter_map(|line| {
        line.strip_prefix("samewire_inter_token_seconds_sum")?
            .split_once(' ')
    });
    let sum: f64 = sums
        .next()
        .and_then(|(_, sum)| sum.parse().ok())
        .expect("one upstream");
    assert!((2.4..15.0).contains(&sum), "{metrics}");
    world.end().await;
}

/// A stream that has its finish reason is complete even if only `[DONE]` is missing.
#[tokio::test]
async fn silence_after_the_finish_is_a_good_end() {
    let script = Script::stream()
        .tok("a", 3, Duration::ZERO)
        .finish("stop")
        .hang();
    let answer = World::answer(script, pauses_are_short(), &Request::stream("")).await;
    assert_eq!(answer.text(), Canonical::answer("a", 3).text());
}

#[tokio::test]
async fn silence_within_a_whole_answer() {
    let script = Script::new()
        .raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{");
    timed_out(&World::answer(script.hang(), silence_is_short(), &Request::plain("")).await);
}

#[tokio::test]
async fn fault_u10_comments_are_no_first_token() {
    let ping = |script: Script| script.chunk(": ping\n\n").sleep(Duration::from_millis(100));
    let script = (0..200)
        .fold(Script::new().head_sse(), |script, _| ping(script))
        .hang();
    let world = World::start(script, silence_is_short()).await;
    let start = Instant::now();
    timed_out(&world.stream("").await);
    assert!(
        start.elapsed() < PATIENCE,
        "the pings take longer: {:?}",
        start.elapsed()
    );
    world.end().await;
}

#[tokio::test]
async fn fault_u10_comments_keep_a_begun_stream_alive() {
    let ping = |script: Script| script.chunk(": ping\n\n").sleep(Duration::from_millis(100));
    let begun = Script::stream().tok("a", 1, Duration::ZERO);
    let world = World::start(
        (0..10).fold(begun, |script, _| ping(script)).stop(),
        pauses_are_short(),
    )
    .await;
    assert_eq!(
        world.stream("").await.text(),
        Canonical::answer("a", 1).text()
    );
    world.end().await;
}

/// A slow whole answer is not silence: its limit is that of the first token.
#[tokio::test]
async fn slow_engine_within_its_time_is_served() {
    let script = Script::new()
        .sleep(Duration::from_millis(700))
        .followed_by(Script::completion("x"));
    assert_eq!(
        World::answer(script, pauses_are_short(), &Request::plain(""))
            .await
            .head
            .status,
        200
    );
}

#[tokio::test]
async fn keepalive_comments_come_only_between_events() {
    let half = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"con"#;
    let other = "tent\":\"a.1 \"},\"finish_reason\":null}]}\n\n";
    let gates = [Gate::default(), Gate::default()];
    let script = Script::stream()
        .tok("a", 1, Duration::ZERO)
        .wait(&gates[0])
        .chunk(half);
    let script = script.wait(&gates[1]).chunk(other).stop();
    let world = World::start(script, Setup::new().set("keepalive_seconds=1")).await;
    let mut client = world.begin(&Request::stream("")).await;
    let (mut text, mut gates) = (String::new(), gates.iter());
    // One comes between two events, and one while half an event is there.
    while let Some(event) = client.event().await {
        if event == ": keepalive"
            && let Some(gate) = gates.next()
        {
            gate.open();
        }
        text += &(event + "\n\n");
    }
    assert_eq!(client.ended(), Ended::LastChunk);
    assert!(text.matches(": keepalive\n\n").count() >= 2, "{text}");
    grammar(&text);
    assert_eq!(
        text.replace(": keepalive\n\n", ""),
        Canonical::answer("a", 2).text()
    );
    world.end().await;
}

#[tokio::test]
async fn zero_seconds_mean_no_keepalive() {
    let script = Script::stream()
        .tok("a", 1, Duration::ZERO)
        .sleep(Duration::from_millis(1200));
    let world = World::start(script.stop(), Setup::new().set("keepalive_seconds=0")).await;
    assert_eq!(
        world.stream("").await.text(),
        Canonical::answer("a", 1).text()
    );
    world.end().await;
}

#[tokio::test]
async fn error_after_a_timed_commit_is_in_the_stream() {
    let refusal =
        r#"{"error":{"message":"too many","type":"TooManyRequests","param":null,"code":429}}"#;
    let committed = Gate::default();
    let late = Script::new()
        .wait(&committed)
        .json("429 Too Many Requests", refusal);
    let event = Script::new()
        .head_sse()
        .wait(&committed)
        .ev(refusal)
        .done()
        .end();
    let engine = Engine::answering(
        move |attempt| match attempt.text().contains("late-status") {
            true => late.clone(),
            false => event.clone(),
        },
    );
    let world = World::start(
        engine.await,
        Setup::new().set("commit_after_seconds=1").allow_errors(),
    )
    .await;
    let mut clients = Vec::new();
    for moment in ["late-status", "late-event"] {
        clients.push((
            moment,
            world
                .send(&Request::stream(&format!(r#","user":"{moment}""#)))
                .await,
        ));
    }
    for (moment, client) in &mut clients {
        assert_eq!(client.head().await.status, 200, "{moment}");
    }
    committed.open();
    for (moment, client) in &mut clients {
        let text = String::from_utf8(client.rest().await)
            .expect("UTF-8")
            .replace(": keepalive\n\n", "");
        assert_eq!(client.ended(), Ended::LastChunk, "{moment}");
        let expected =
            Canonical::new().error_as("too many", "rate_limit_error", "\"rate_limit_exceeded\"");
        assert_eq!(text, expected.text(), "{moment}");
    }
    world.end().await;
}
