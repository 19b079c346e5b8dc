//! WebSockets as connections: frames, sizes, timeouts and their ends (wire-format 4.12, faults C09, C24, C25, O01,
//! O02).

use crate::clients::leaving::settled;
use crate::responses::over_chat::{engine, last};
use crate::responses::socket::prompted;
use crate::sim::Frame;
use crate::sim::prelude::*;

async fn idle(setup: Setup) -> World {
    World::start(engine(), setup).await
}

#[tokio::test]
async fn messages_in_pieces() {
    let world = idle(Setup::new()).await;
    let mut socket = Socket::open(world.proxy()).await;
    // Multi-byte characters are split, and a ping comes between the frames.
    let text = prompted("text", r#","metadata":{"a":"Zürich – 東京"}"#);
    let pieces: Vec<_> = text.as_bytes().chunks(7).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let kind = if at == 0 { 0x01 } else { 0x00 };
        socket
            .frame(
                if at + 1 == pieces.len() {
                    kind | 0x80
                } else {
                    kind
                },
                piece,
            )
            .await;
        socket.frame(0x89, b"between").await;
    }
    for _ in &pieces {
        if let Some(Frame::Text(text)) = socket.next().await {
            // The last pong may come after the first event.
            assert!(text.contains("response.created"), "{text}");
            break;
        }
    }
    loop {
        match socket.next().await {
            Some(Frame::Text(text)) if text.contains("response.completed") => {
                let message: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(
                    message["response"]["metadata"],
                    json!({"a":"Zürich – 東京"})
                );
                break;
            }
            Some(Frame::Text(_) | Frame::Pong(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    // One byte at a time, and two messages in one write.
    for byte in Socket::masked(0x81, prompted("text", "").as_bytes()) {
        socket.raw(&[byte]).await;
    }
    socket.response().await;
    let one = Socket::masked(0x81, prompted("text", "").as_bytes());
    socket.raw(&[one.clone(), one].concat()).await;
    for _ in 0..2 {
        socket.response().await;
    }
    world.end().await;
}

/// A client may send its first message before the response to its upgrade.
#[tokio::test]
async fn the_first_message_comes_with_the_upgrade() {
    let world = idle(Setup::new()).await;
    let head = Socket::request("/v1/responses").bytes();
    let message = Socket::masked(0x81, prompted("text", "").as_bytes());
    let opened = Socket::over(
        Client::connect(world.proxy()).await,
        &[head, message].concat(),
    )
    .await;
    let mut socket = opened.expect("an upgrade");
    assert_eq!(last(&socket.response().await)["status"], "completed");
    world.end().await;
}

#[tokio::test]
async fn what_is_no_websocket_is_closed_with_the_reason() {
    let world = idle(Setup::new()).await;
    let unmasked = [&[0x81, 2][..], b"{}"].concat();
    for (bytes, code) in [
        (Socket::masked(0x81, b"\"\xc3\x28\""), 1007),
        (
            [
                Socket::masked(0x01, b"\xe2\x82"),
                Socket::masked(0x80, b"x"),
            ]
            .concat(),
            1007,
        ),
        (unmasked, 1002),
        (Socket::masked(0xc1, b"{}"), 1002),
        (Socket::masked(0x80, b"{}"), 1002),
        (Socket::masked(0x83, b"{}"), 1002),
        (Socket::masked(0x09, b"ping in pieces"), 1002),
        (Socket::masked(0x89, &[b'x'; 126]), 1002),
    ] {
        let mut socket = Socket::open(world.proxy()).await;
        // The bytes after it are not read any more, and the client still gets the reason.
        socket.raw(&[&bytes[..], &[b'x'; 10_000]].concat()).await;
        assert_eq!(
            socket.next().await,
            Some(Frame::Close(Some(code))),
            "{bytes:x?}"
        );
        assert_eq!(socket.next().await, None);
    }
    world.end().await;
}

#[tokio::test]
async fn a_client_that_closes_is_answered() {
    let world = idle(Setup::new()).await;
    for (payload, code) in [
        (&[][..], None),
        (&[0x03, 0xe8][..], Some(1000)),
        (b"\x0f\xa0bye", Some(4000)),
    ] {
        let mut socket = Socket::open(world.proxy()).await;
        socket.exchange(&prompted("text", "")).await;
        socket.frame(0x88, payload).await;
        assert_eq!(socket.next().await, Some(Frame::Close(code)));
        assert_eq!(socket.next().await, None);
    }
    // A half-closed connection is closed: a client could no longer end it in an orderly way.
    let mut socket = Socket::open(world.proxy()).await;
    socket.half_close().await;
    assert_eq!(socket.next().await, None);
    world.end().await;
}

#[tokio::test]
async fn fault_c05_a_message_may_be_as_long_as_a_body() {
    let message = prompted("text", "");
    let limit = message.len();
    let world = idle(Setup::new().config(&format!("[limits]\nmax_body_bytes = {limit}"))).await;
    let longer = |n: usize| format!("{message}{}", " ".repeat(n)).into_bytes();
    let halves = |text: &[u8]| {
        let (first, rest) = text.split_at(text.len() / 2);
        [Socket::masked(0x01, first), Socket::masked(0x80, rest)].concat()
    };
    for bytes in [Socket::masked(0x81, &longer(0)), halves(&longer(0))] {
        let mut socket = Socket::open(world.proxy()).await;
        socket.raw(&bytes).await;
        socket.response().await;
    }
    let mut many = Vec::new();
    for n in [1, 40_000] {
        many.extend([
            Socket::masked(0x81, &longer(n)),
            halves(&longer(n)),
            Socket::masked(0x82, &longer(n)),
        ]);
    }
    // Only the header of a very large frame.
    many.push([&[0x81, 0xff][..], &(1_u64 << 62).to_be_bytes(), &[0; 4]].concat());
    for bytes in many {
        let mut socket = Socket::open(world.proxy()).await;
        socket.raw(&bytes).await;
        assert_eq!(
            socket.refused().await,
            (413, "request_too_large".into(), String::new())
        );
        assert_eq!(socket.next().await, Some(Frame::Close(Some(1009))));
        assert_eq!(socket.next().await, None);
    }
    world.end_after(2).await;
}

#[tokio::test]
async fn pings_come_and_are_answered() {
    let setup = Setup::new()
        .set("keepalive_seconds=1")
        .config("[timeouts]\nclient_idle = 0.5\nclient_head = 0.5");
    let world = idle(setup).await;
    let mut socket = Socket::open(world.proxy()).await;
    // Longer than an HTTP connection may be idle.
    for _ in 0..2 {
        assert_eq!(socket.try_frame().await, Ok(Some(Frame::Ping(Vec::new()))));
    }
    socket.frame(0x8a, b"").await;
    socket.frame(0x89, b"are you there").await;
    assert_eq!(
        socket.next().await,
        Some(Frame::Pong(b"are you there".to_vec()))
    );
    socket.exchange(&prompted("text", "")).await;
    world.end().await;
}

/// While an answer is pending, the client gets pings and no SSE comments.
#[tokio::test]
async fn pings_while_the_engine_thinks() {
    let gate = Gate::default();
    let script = Script::new().wait(&gate).head_sse().text("a").stop();
    let setup = Setup::new()
        .set("keepalive_seconds=1")
        .set("commit_after_seconds=1");
    let world = World::start(script, setup).await;
    let mut socket = Socket::open(world.proxy()).await;
    socket.send(&prompted("m", "")).await;
    for _ in 0..2 {
        assert_eq!(socket.try_frame().await, Ok(Some(Frame::Ping(Vec::new()))));
    }
    gate.open();
    socket.response().await;
    world.end().await;
}

#[tokio::test]
async fn an_old_connection_ends_between_two_responses() {
    let gate = Gate::default();
    let script = Script::new()
        .head_sse()
        .text("a")
        .wait(&gate)
        .text("b")
        .stop();
    let world = World::start(script, Setup::new().config("[timeouts]\nsocket_life = 2")).await;
    let old = (
        400,
        "websocket_connection_limit_reached".to_owned(),
        String::new(),
    );
    let start = Instant::now();
    // Opened first, so that it is past its age limit when the quiet one is.
    let mut busy = Socket::open(world.proxy()).await;
    let mut quiet = Socket::open(world.proxy()).await;
    busy.send(&prompted("m", "")).await;
    // This second message must not get its turn any more.
    busy.send(&prompted("m", "")).await;
    assert_eq!(quiet.refused().await, old);
    assert!(
        start.elapsed() > Duration::from_millis(1_900),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(quiet.closed().await, Some(1000));
    gate.open();
    assert_eq!(last(&busy.response().await)["status"], "completed");
    assert_eq!(busy.refused().await, old);
    assert_eq!(busy.closed().await, Some(1000));
    world.end_after(1).await;
}

#[tokio::test]
async fn fault_c24_c25_a_client_that_leaves_ends_its_response() {
    const MOMENTS: [&str; 4] = ["before-head", "prefill", "between-tokens", "writing"];
    let world = World::start(Engine::by_moment(), Setup::new()).await;
    let mut times = Vec::new();
    for moment in MOMENTS {
        for way in ["close", "half", "fin", "rst", "surplus"] {
            let n = world.engine.attempt_count();
            let mut socket = Socket::open(world.proxy()).await;
            socket
                .send(&prompted("m", &format!(r#","user":"{moment}""#)))
                .await;
            until("the request reaches the engine", || {
                world.engine.attempt_count() > n
            })
            .await;
            if matches!(moment, "between-tokens" | "writing") {
                while socket.message().await["type"] != "response.output_text.delta" {}
            }
            let mut left = Instant::now();
            match way {
                "close" => socket.frame(0x88, &[0x03, 0xe8]).await,
                "half" => socket.half_close().await,
                "fin" => left = socket.leave(CloseKind::Fin),
                "rst" => left = socket.leave(CloseKind::Rst),
                // More messages than may wait, so that the close stays after unread bytes.
                _ => {
                    for _ in 0..40 {
                        socket
                            .try_raw(&Socket::masked(0x81, prompted("m", "").as_bytes()))
                            .await;
                    }
                    left = socket.leave(CloseKind::Fin);
                }
            }
            until("the engine sees the close", || {
                world.engine.closed(n).is_some()
            })
            .await;
            let took = world
                .engine
                .closed(n)
                .expect("just seen")
                .0
                .saturating_duration_since(left);
            assert!(took < SOON, "{moment}, {way}: {took:?}");
            assert_eq!(
                world.engine.attempt_count(),
                n + 1,
                "waiting requests are not sent any more"
            );
            times.push(took);
        }
    }
    times.sort();
    println!(
        "left a WebSocket: median {:?}, worst {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    let left = || {
        world
            .samewire
            .request_lines()
            .iter()
            .filter(|line| line.contains("client_closed"))
            .count()
    };
    until("a line for each", || left() == times.len()).await;
    world.end().await;
}

/// More than all buffers on the way hold together.
const EVENTS: u64 = 1_600;
const SIZE: usize = 16 * 1024;

#[tokio::test]
async fn fault_c09_a_slow_reader_slows_the_engine_and_loses_nothing() {
    let gate = Gate::default();
    let script = Script::stream().text("ready").wait(&gate);
    let script = script
        .then(Step::Flood {
            events: EVENTS,
            size: SIZE,
        })
        .stop();
    let world = World::start(script, Setup::new().args(&["--store", "off"])).await;
    let request = Socket::request("/v1/responses").bytes();
    let opened = Socket::over(Client::connect_narrow(world.proxy()).await, &request).await;
    let mut socket = opened.expect("an upgrade");
    socket.send(&prompted("m", "")).await;
    while socket.message().await["delta"] != "ready" {}
    let before = world.samewire.allocated();
    gate.open();
    let held = settled(|| world.engine.written(0)).await;
    let grown = world.samewire.allocated().saturating_sub(before);
    println!("slow reader: the engine got rid of {held} bytes, samewire grew by {grown}");
    assert!(held < 20 << 20, "the engine was not held back: {held}");
    assert!(grown < 8 << 20, "samewire keeps what nobody reads: {grown}");
    for n in 0..EVENTS {
        let message = socket.message().await;
        let (number, text) = message["delta"]
            .as_str()
            .expect("text")
            .split_once(':')
            .expect("a number");
        assert_eq!(
            (number.parse(), text.find(';')),
            (Ok(n), Some(SIZE)),
            "every one, in order and whole"
        );
    }
    while socket.message().await["type"] != "response.completed" {}
    world.end().await;
}

#[tokio::test]
async fn fault_c09_a_client_that_takes_nothing_is_given_up() {
    let script = Script::stream()
        .then(Step::Flood {
            events: EVENTS,
            size: SIZE,
        })
        .hang();
    let setup = Setup::new()
        .config("[timeouts]\nclient_write_stall = 1")
        .set("keepalive_seconds=1");
    let world = World::start(script, setup).await;
    let request = Socket::request("/v1/responses").bytes();
    let opened = Socket::over(Client::connect_narrow(world.proxy()).await, &request).await;
    let mut socket = opened.expect("an upgrade");
    socket.send(&prompted("m", "")).await;
    until("the engine sees the close", || {
        world.engine.closed(0).is_some()
    })
    .await;
    let reset = async {
        loop {
            match socket.try_frame().await {
                Ok(Some(_)) => {}
                end => return end,
            }
        }
    };
    assert_eq!(
        within("the end", reset).await,
        Err(std::io::ErrorKind::ConnectionReset)
    );
    world.end().await;
}

/// Each ping must be answered: a client that sends pings and reads no pongs is not read any more, and is later
/// disconnected.
#[tokio::test]
async fn fault_c44_pings_whose_pongs_nobody_takes_are_not_read() {
    let world = World::configured("[timeouts]\nclient_write_stall = 1").await;
    let request = Socket::request("/v1/responses").bytes();
    let opened = Socket::over(Client::connect_narrow(world.proxy()).await, &request).await;
    let mut socket = opened.expect("an upgrade");
    let before = world.samewire.allocated();
    let much = Socket::masked(0x89, &[b'p'; 125]).repeat(1000);
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_secs(1), socket.try_raw(&much)).await == Ok(true) {
        sent += much.len();
        assert!(sent < 64 << 20, "everything is read");
    }
    let grown = world.samewire.allocated().saturating_sub(before);
    println!("pings: {sent} bytes sent, samewire grew by {grown}");
    assert!(
        grown < 8 << 20,
        "samewire keeps pongs that nobody takes: {grown}"
    );
    // The connection is closed: further writes fail.
    while socket.try_raw(&much).await {}
    world.end().await;
}

/// A client that reads nothing and sends more and more refused messages does not fill the memory.
#[tokio::test]
async fn answers_to_refused_messages_are_bounded() {
    let gate = Gate::default();
    let world = World::start(
        Script::new().head_sse().wait(&gate).text("a").stop(),
        Setup::new(),
    )
    .await;
    let request = Socket::request("/v1/responses").bytes();
    let opened = Socket::over(Client::connect_narrow(world.proxy()).await, &request).await;
    let mut socket = opened.expect("an upgrade");
    let message = Socket::masked(0x81, prompted("m", "").as_bytes());
    let before = world.samewire.allocated();
    let much = message.repeat(1000);
    let mut sent = 0;
    // The connection is not read any more: further bytes stay with the client.
    while tokio::time::timeout(Duration::from_secs(1), socket.raw(&much))
        .await
        .is_ok()
    {
        sent += much.len();
        assert!(sent < 64 << 20, "everything is read");
    }
    let grown = world.samewire.allocated().saturating_sub(before);
    assert!(grown < 8 << 20, "samewire keeps what nobody reads: {grown}");
    drop(socket);
    gate.open();
    world.end().await;
}

#[tokio::test]
async fn only_running_responses_count_as_requests() {
    let gate = Gate::default();
    let script = Script::new().head_sse().text("a").wait(&gate).stop();
    let world = World::start(script, Setup::new().config("[limits]\nrequests = 1")).await;
    let mut sockets = Vec::new();
    for _ in 0..4 {
        sockets.push(Socket::open(world.proxy()).await);
    }
    sockets[0].send(&prompted("m", "")).await;
    sockets[0].message().await;
    sockets.push(Socket::open(world.proxy()).await);
    sockets[4].send(&prompted("m", "")).await;
    assert_eq!(
        sockets[4].refused().await,
        (503, "overloaded".into(), String::new())
    );
    assert_eq!(
        world.get("/v1/models").await.fault().code.as_deref(),
        Some("overloaded")
    );
    gate.open();
    while sockets[0].message().await["type"] != "response.completed" {}
    // Its place is free once it is no longer counted.
    world.samewire.metrics().await;
    sockets[4].send(&prompted("m", "")).await;
    sockets[4].response().await;
    world.end().await;
}

#[tokio::test]
async fn fault_c08_a_message_that_stops_is_timed() {
    let world = idle(
        Setup::new()
            .config("[timeouts]\nclient_body_idle = 0.5")
            .allow_errors(),
    )
    .await;
    let mut socket = Socket::open(world.proxy()).await;
    let mut quiet = Socket::open(world.proxy()).await;
    for _ in 0..2 {
        socket.exchange(&prompted("text", "")).await;
    }
    socket.frame(0x01, &[b' '; 100]).await;
    // Control frames are no part of the message, and between messages nothing is timed.
    for ping in [&mut socket, &mut quiet] {
        ping.frame(0x89, b"ping").await;
        assert_eq!(ping.next().await, Some(Frame::Pong(b"ping".to_vec())));
    }
    assert_eq!(
        socket.refused().await,
        (408, "request_timeout".into(), String::new())
    );
    assert_eq!(socket.closed().await, Some(1013));
    quiet.send(&prompted("text", "")).await;
    quiet.response().await;
    world.end().await;
}

#[tokio::test]
async fn fault_o11_messages_take_their_share_while_they_arrive() {
    const BODIES: &str = "samewire_bodies_in_flight_bytes";
    let world = idle(
        Setup::new()
            .config("[limits]\nbodies_in_flight_bytes = 1000000")
            .allow_errors(),
    )
    .await;
    let begin = |length: usize| {
        let text = prompted(
            "text",
            &format!(r#","metadata":{{"a":"b"}}{}"#, " ".repeat(length)),
        );
        Socket::masked(0x81, text.as_bytes())
    };
    let long = begin(700_000);
    let mut first = Socket::open(world.proxy()).await;
    first.raw(&long[..600_000]).await;
    let holds = |metrics: &str| {
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(BODIES)?.trim().parse::<u64>().ok());
        line.is_some_and(|bytes| bytes >= 600_000)
    };
    world.samewire.metrics_when("the part counts", holds).await;
    let mut second = Socket::open(world.proxy()).await;
    second.try_raw(&begin(500_000)[..499_000]).await;
    assert_eq!(
        second.refused().await,
        (503, "overloaded".into(), String::new())
    );
    assert_eq!(second.closed().await, Some(1013));
    first.raw(&long[600_000..]).await;
    first.response().await;
    world.samewire.metric_becomes(BODIES, 0).await;
    // A message that can never fit is too large.
    first.try_raw(&begin(1_000_001)).await;
    assert_eq!(first.refused().await.0, 413);
    assert_eq!(first.closed().await, Some(1009));
    world.end().await;
}

#[tokio::test]
async fn a_websocket_is_one_of_the_connections() {
    let world = idle(Setup::new().config("[limits]\nconnections = 2")).await;
    let first = Socket::open(world.proxy()).await;
    let mut second = Socket::open(world.proxy()).await;
    let mut third = world.send(&Socket::request("/v1/responses")).await;
    let refused = tokio::time::timeout(Duration::from_millis(300), third.head()).await;
    assert!(refused.is_err(), "the kernel holds it");
    second.send(&prompted("text", "")).await;
    second.response().await;
    first.leave(CloseKind::Fin);
    assert_eq!(third.head().await.status, 101);
    world.end().await;
}

#[tokio::test]
async fn fault_o01_a_shutdown_lets_running_responses_end() {
    let gate = Gate::default();
    let script = Script::new()
        .head_sse()
        .text("a")
        .wait(&gate)
        .text("b")
        .stop();
    let engine = Engine::script(script).await;
    let setup = Setup::new()
        .upstream(&engine.url())
        .config("[timeouts]\nsettle = 0");
    let mut samewire = Samewire::start(&setup).await;
    let (mut quiet, mut busy) = (
        Socket::open(samewire.proxy).await,
        Socket::open(samewire.proxy).await,
    );
    // Does not answer the close frame, and must not delay the shutdown.
    let mut deaf = Socket::open(samewire.proxy).await;
    busy.send(&prompted("m", "")).await;
    while busy.message().await["delta"] != "a" {}
    busy.send(&prompted("m", "")).await;
    samewire.signal("TERM");
    let start = Instant::now();
    assert_eq!(quiet.closed().await, Some(1001));
    assert!(
        start.elapsed() < PATIENCE,
        "at once, not when something else happens"
    );
    assert_eq!(deaf.next().await, Some(Frame::Close(Some(1001))));
    assert!(samewire.running(), "a response is running");
    gate.open();
    while busy.message().await["type"] != "response.completed" {}
    assert_eq!(
        busy.refused().await,
        (503, "draining".into(), String::new()),
        "what waited is told"
    );
    assert_eq!(busy.closed().await, Some(1001));
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert_eq!(engine.attempt_count(), 1);
    drop(deaf);
}

#[tokio::test]
async fn fault_o02_at_the_deadline_a_response_is_cut() {
    let engine = Engine::script(Script::new().head_sse().text("a").hang()).await;
    let setup = Setup::new()
        .upstream(&engine.url())
        .config("[timeouts]\nsettle = 0\ndrain = 0.5");
    let mut samewire = Samewire::start(&setup).await;
    let mut begun = Socket::open(samewire.proxy).await;
    begun.send(&prompted("m", "")).await;
    while begun.message().await["delta"] != "a" {}
    samewire.signal("TERM");
    let error = begun.message().await;
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("error"), &json!("draining"))
    );
    assert_eq!(begun.message().await["response"]["status"], "failed");
    assert_eq!(begun.closed().await, Some(1001));
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn while_the_process_settles_there_are_new_connections_and_then_none() {
    let engine = engine().await;
    let setup = Setup::new()
        .upstream(&engine.url())
        .config("[timeouts]\nsettle = 4");
    let mut samewire = Samewire::start(&setup).await;
    samewire.signal("TERM");
    until("it drains", || {
        samewire.logs().iter().any(|line| line.contains("draining"))
    })
    .await;
    let mut socket = Socket::open(samewire.proxy).await;
    assert_eq!(
        last(&socket.exchange(&prompted("text", "")).await)["status"],
        "completed"
    );
    assert_eq!(socket.closed().await, Some(1001));
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
}
