//! Limits of size and time towards clients, each set low enough for a test to reach.

use crate::canonical::{Canonical, grammar};
use crate::sim::prelude::*;

/// Waits for the close of a connection. Returns how long it took, and the status of a response before it.
async fn closed_after(client: &mut Client) -> (Duration, Option<u16>) {
    let start = Instant::now();
    let status = client.try_head().await.map(|head| head.status);
    if status.is_some() {
        client.rest().await;
        assert!(client.closes().await, "an answer, and then the close");
    }
    (start.elapsed(), status)
}

#[tokio::test]
async fn fault_c07_slow_heads() {
    let world = World::configured("[timeouts]\nclient_head = 0.3").await;
    for begun in ["", "P", "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"] {
        let mut client = Client::sending(world.proxy(), begun.as_bytes()).await;
        let (took, status) = closed_after(&mut client).await;
        assert!(
            took < PATIENCE && matches!(status, None | Some(408)),
            "{begun:?}: {took:?} {status:?}"
        );
    }
    // Single bytes now and then do not prolong the time.
    let mut client = Client::connect(world.proxy()).await;
    let mut is_cut = false;
    for byte in Request::stream("").head_bytes() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        is_cut = !client.try_send(&[byte]).await;
        if is_cut {
            break;
        }
    }
    assert!(is_cut, "the drip goes on");
    // Other clients are served meanwhile.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(Client::connect(world.proxy()).await);
    }
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

#[tokio::test]
async fn fault_c08_slow_bodies() {
    let world =
        World::configured("[timeouts]\nclient_body_idle = 0.3\nclient_body_total = 0.8").await;
    let request = Request::stream("");
    for begun in [0, 1, 20] {
        let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
        client.send(&request.sent_body()[..begun]).await;
        let start = Instant::now();
        check_timeout(&client.answer().await, start, 250);
    }
    // Never idle for long, and still too slow: the answer comes before the end of the body.
    let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
    let start = Instant::now();
    let mut answered = None;
    for byte in request.sent_body() {
        client.send(&[*byte]).await;
        if let Ok(head) = tokio::time::timeout(Duration::from_millis(50), client.head()).await {
            answered = Some(head);
            break;
        }
    }
    let (head, body) = (
        answered.expect("an answer within the body"),
        client.rest().await,
    );
    let answer = Answer {
        head,
        body,
        ended: client.ended(),
        waited: Duration::ZERO,
    };
    check_timeout(&answer, start, 750);
    world.end_after(0).await;
}

fn check_timeout(answer: &Answer, start: Instant, least: u64) {
    assert_eq!(
        answer.failure(),
        "408 invalid_request_error request_timeout"
    );
    assert_eq!(answer.head.header("connection"), Some("close"));
    assert_took(start, least);
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let world = World::configured("[timeouts]\nclient_idle = 1").await;
    let mut client = Client::connect(world.proxy()).await;
    for _ in 0..2 {
        client.send(&Request::stream("").bytes()).await;
        client.answer().await;
    }
    let (took, status) = closed_after(&mut client).await;
    assert!(took < PATIENCE && status.is_none(), "{took:?} {status:?}");
    world.end().await;
}

/// An immediate answer ends the timer for its request's head like any other.
#[tokio::test]
async fn a_connection_with_quick_answers_lives_on() {
    let world = World::configured("[timeouts]\nclient_head = 0.3").await;
    for path in ["/nothing", "/v1/responses/resp_none"] {
        let mut client = Client::connect(world.proxy()).await;
        for _ in 0..4 {
            client.send(&Request::get(path).bytes()).await;
            assert_eq!(client.answer().await.head.status, 404, "{path}");
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        // The timer of an incomplete head starts at its own first byte.
        client.send(b"G").await;
        let (took, _) = closed_after(&mut client).await;
        assert!(
            took > Duration::from_millis(200) && took < PATIENCE,
            "{took:?}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c05_limit_to_the_byte() {
    let good = Request::stream("");
    let limit = good.sent_body().len();
    let world = World::configured(&format!("[limits]\nmax_body_bytes = {limit}")).await;
    let longer = |n: usize| Request::chat([good.sent_body(), " ".repeat(n).as_bytes()].concat());
    for (n, status) in [(0, 200), (1, 413), (100_000, 413)] {
        for request in [longer(n), longer(n).chunked(10), longer(n).chunked(1 << 20)] {
            let mut client = Client::connect(world.proxy()).await;
            client.try_send(&request.bytes()).await;
            let answer = client.answer().await;
            assert_eq!(answer.head.status, status, "{n} above: {}", answer.text());
        }
    }
    world.end_after(3).await;
}

#[tokio::test]
async fn requests_above_the_limit_are_turned_away() {
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let world = World::start(script, Setup::new().config("[limits]\nrequests = 2")).await;
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(world.begin(&Request::stream("")).await);
    }
    for request in [Request::stream(""), Request::plain("")] {
        assert_eq!(
            world.request(&request).await.failure(),
            "503 server_error overloaded"
        );
    }
    gate.open();
    for mut client in running {
        client.event_with("[DONE]").await;
        client.rest().await;
    }
    until("room again", || world.samewire.request_lines().len() >= 4).await;
    assert_eq!(world.stream("").await.head.status, 200);
    world.end_after(3).await;
}

fn flood() -> Script {
    Script::stream()
        .then(Step::Flood {
            events: 1000,
            size: 16 * 1024,
        })
        .stop()
}

#[tokio::test]
async fn fault_c09_stopped_reader_is_reset() {
    let world = World::start(
        flood(),
        Setup::new().config("[timeouts]\nclient_write_stall = 0.5"),
    )
    .await;
    let mut client = Request::stream("").send_narrow(world.proxy()).await;
    client.head().await;
    let start = Instant::now();
    until("the answer is cancelled", || {
        world.engine.closed(0).is_some()
    })
    .await;
    assert_took(start, 400);
    while client.piece().await.is_some() {}
    assert!(
        matches!(client.ended(), Ended::Reset | Ended::Short),
        "{:?}: a cut stream must not end well",
        client.ended()
    );
    world.samewire.finished(1).await;
    world.end().await;
}

/// Timers of the engine are suspended while samewire does not read from it: the engine is not to blame for a slow
/// client.
#[tokio::test]
async fn fault_c09_engine_timers_stand_still_while_the_client_does_not_read() {
    let setup = Setup::new().config("[timeouts]\ninter_token = 2\nclient_write_stall = 60");
    let world = World::start(flood(), setup).await;
    let mut client = Request::stream("").send_narrow(world.proxy()).await;
    client.head().await;
    crate::clients::leaving::settled(|| world.engine.written(0)).await;
    // Longer than the engine may be silent.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert_eq!(grammar(&rest).len(), 1003, "every event, and a good end");
    assert!(rest.ends_with("data: [DONE]\n\n"));
    world.end().await;
}

#[tokio::test]
async fn fault_u40_stream_without_end() {
    let script = Script::stream()
        .tok("a", 500, Duration::from_millis(20))
        .hang();
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\ntotal_stream = 1");
    let world = World::start(script, setup).await;
    let start = Instant::now();
    let answer = world.stream("").await;
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "the script takes ten seconds"
    );
    assert_eq!(answer.ended, Ended::LastChunk);
    assert!(
        grammar(answer.text())
            .last()
            .expect("an end")
            .contains(r#""code":"upstream_timeout""#)
    );
    world.end().await;
}

#[tokio::test]
async fn whole_answer_without_end() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let script = (0..1000)
        .fold(Script::new().raw(head), |script, _| {
            script.chunk(" ".repeat(64 * 1024))
        })
        .hang();
    let setup = Setup::new()
        .allow_errors()
        .config("[limits]\nmax_answer_bytes = 1000000");
    let world = World::start(script, setup).await;
    let answer = world.request(&Request::plain("")).await;
    assert_eq!(
        answer.failure(),
        "502 server_error upstream_invalid_response"
    );
    until("the answer is cancelled", || {
        world.engine.active_generations() == 0
    })
    .await;
    assert!(world.engine.written(0) < 16 << 20);
    world.end().await;
}

#[tokio::test]
async fn whole_answer_that_takes_too_long() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let drip = |script: Script| script.chunk(" ").sleep(Duration::from_millis(100));
    let script = (0..100)
        .fold(Script::new().raw(head), |script, _| drip(script))
        .hang();
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\ntotal_whole = 0.3");
    let answer = World::answer(script, setup, &Request::plain("")).await;
    assert_eq!(answer.failure(), "504 server_error upstream_timeout");
}

#[tokio::test]
async fn fault_o02_drain_deadline() {
    let script = Script::stream().tok("a", 2, Duration::ZERO).hang();
    let engine = Engine::script(script).await;
    let setup = Setup::before(&engine).config("[timeouts]\nsettle = 0\ndrain = 0.5");
    let mut samewire = Samewire::start(&setup).await;
    let mut client = Request::stream("").begin_until(samewire.proxy, "a.1").await;
    samewire.signal("TERM");
    let start = Instant::now();
    let last = client.event().await.expect("an error frame");
    assert!(
        last.starts_with("event: error\n") && last.contains(r#""code":"draining""#),
        "{last}"
    );
    assert_eq!(
        (client.event().await, client.ended()),
        (None, Ended::LastChunk)
    );
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert_took(start, 450);
    until("the answer is cancelled", || {
        engine.active_generations() == 0
    })
    .await;
}

#[tokio::test]
async fn fault_o01_requests_in_the_settle_window_are_served() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::before(&engine);
    let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 4")).await;
    samewire.signal("TERM");
    let start = Instant::now();
    while samewire.admin("/readyz").await.head.status != 503 {
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "readiness goes first"
        );
    }
    let answer = Request::stream("").answer(samewire.proxy).await;
    assert_eq!(answer.text(), Canonical::answer("a", 1).text());
    assert_eq!(
        answer.head.header("connection"),
        Some("close"),
        "the client goes elsewhere next time"
    );
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert!(start.elapsed() > Duration::from_secs(3));
}
