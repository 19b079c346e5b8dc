//! HTTP/2 towards clients: the same responses as over HTTP/1.1, timers and limits of each stream, and the shutdown
//! of the process.

use crate::canonical::{Canonical, grammar};
use crate::sim::prelude::*;
use crate::sim::tls::{Authority, connect as tls_connect, file_key_line};
use crate::sim::{H2Client, Hangup, RawH2Client, frame, kinds};
use tokio_rustls::rustls::ClientConfig;

/// Error codes (RFC 9113, 7).
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const INTERNAL_ERROR: u32 = 2;
const ENHANCE_YOUR_CALM: u32 = 11;

async fn world(config: &str) -> World {
    World::start(Script::answer("a", 3), Setup::new().config(config)).await
}

fn stream_until(gate: &Gate) -> Script {
    Script::stream()
        .text("begun")
        .wait(gate)
        .text("ended")
        .stop()
}

/// Returns the header names of a response, without those that belong to the protocol.
fn names(names: impl Iterator<Item = String>) -> Vec<String> {
    let own = ["connection", "transfer-encoding", "date"];
    let mut names: Vec<_> = names.filter(|name| !own.contains(&name.as_str())).collect();
    names.sort();
    names
}

#[tokio::test]
async fn answers_are_those_of_http1_to_the_byte() {
    let world = world("").await;
    let mut client = H2Client::open(world.proxy()).await;
    let responses = |stream| {
        Request::post(
            "/v1/responses",
            format!(r#"{{"model":"m","input":"a","store":false,"stream":{stream}}}"#),
        )
    };
    let requests = [
        Request::stream(""),
        Request::stream(r#","stream_options":{"include_usage":true}"#),
        Request::get("/v1/models"),
        Request::get("/v1/nothing"),
        Request::new("DELETE", "/v1/models"),
        Request::chat("{"),
        Request::plain("").header("content-encoding", "gzip"),
        Request::get("//v1/models"),
        Request::post(
            "/openai/deployments/m/chat/completions?api-version=2024-10-21",
            "[]",
        ),
        Request::get("/v1/responses"),
    ];
    for request in &requests {
        let (one, two) = (world.request(request).await, client.request(request).await);
        assert_eq!(two.status, one.head.status, "{request:?}");
        assert_eq!(two.text(), one.text(), "{request:?}");
        assert_eq!(two.reset_reason, None);
        let mut old = names(one.head.headers.iter().map(|(name, _)| name.clone()));
        old.retain(|name| name != "upgrade");
        assert_eq!(
            names(two.headers.keys().map(ToString::to_string)),
            old,
            "{request:?}"
        );
        assert!(!two.headers.contains_key("connection") && !two.headers.contains_key("upgrade"));
        assert!(two.headers.contains_key("date"));
    }
    let answer = client.request(&Request::stream("")).await;
    assert_eq!(answer.text(), Canonical::answer("a", 3).text());
    let answer = client.request(&responses(true)).await;
    assert!(
        answer.text().contains("event: response.completed\n"),
        "{}",
        answer.text()
    );
    let head = client.request(&Request::new("HEAD", "/v1/models")).await;
    assert!(head.body.is_empty() && head.reset_reason.is_none());
    world.samewire.finished(2 * requests.len() + 3).await;
    world.end().await;
}

#[tokio::test]
async fn streams_of_one_connection_run_beside_each_other() {
    const STREAMS: usize = 20;
    let gate = Gate::default();
    let world = World::start(stream_until(&gate), Setup::new()).await;
    let mut client = H2Client::open(world.proxy()).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        open.push(client.begin(&Request::stream("")).await.expect("a head"));
    }
    assert_eq!(world.engine.active_generations(), STREAMS);
    let counted = format!("samewire_requests_in_flight{{route=\"chat\"}} {STREAMS}");
    assert!(
        world
            .samewire
            .metrics_now()
            .await
            .lines()
            .any(|line| line == counted)
    );
    assert_eq!(
        client.request(&Request::get("/v1/nothing")).await.status,
        404
    );
    gate.open();
    for response in open {
        let answer = H2Client::read(response).await;
        assert!(answer.text().contains("ended") && answer.text().ends_with("data: [DONE]\n\n"));
    }
    world.end().await;
}

#[tokio::test]
async fn requests_above_the_limit_are_turned_away_on_any_connection() {
    let gate = Gate::default();
    let world = World::start(
        stream_until(&gate),
        Setup::new().config("[limits]\nrequests = 2"),
    )
    .await;
    let mut client = H2Client::open(world.proxy()).await;
    let first = client.begin(&Request::stream("")).await.expect("a head");
    let second = client.begin(&Request::stream("")).await.expect("a head");
    let answer = client.request(&Request::stream("")).await;
    assert_eq!((answer.status, answer.code()), (503, "overloaded".into()));
    gate.open();
    for response in [first, second] {
        assert!(H2Client::read(response).await.text().contains("ended"));
    }
    world.end().await;
}

/// The protocol is recognised even if the preface arrives byte by byte or turns out to be other bytes.
#[tokio::test]
async fn what_is_spoken_is_seen_however_it_is_cut() {
    let world = world("").await;
    let start = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(kinds::SETTINGS, 0, 0, &[]),
    ]
    .concat();
    let all = [start, RawH2Client::request(1, &Request::get("/v1/nothing"))].concat();
    for size in [1, 3, 24, 25, all.len()] {
        let mut client = Client::connect(world.proxy()).await;
        for piece in all.chunks(size) {
            client.send(piece).await;
            tokio::task::yield_now().await;
        }
        let mut raw = RawH2Client::resumed(client);
        assert_eq!(raw.next_of(kinds::HEADERS, 1).await.status(), 404, "{size}");
    }
    for size in [1, 2, 3, 1000] {
        let mut client = Client::connect(world.proxy()).await;
        for piece in Request::get("/v1/nothing").bytes().chunks(size) {
            client.send(piece).await;
        }
        assert_eq!(client.answer().await.head.status, 404, "{size}");
    }
    // A method may begin like the preface, and most of a preface is not a preface.
    for begun in [
        "PRIX /v1/nothing HTTP/1.1\r\nhost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ] {
        let mut client = Client::sending(world.proxy(), begun.as_bytes()).await;
        let status = client.try_head().await.map(|head| head.status);
        assert!(
            matches!(status, None | Some(400 | 404 | 405 | 505)),
            "{begun:?}: {status:?}"
        );
    }
    world.end().await;
}

fn speaks(authority: &Authority, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&authority.client(None));
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

#[tokio::test]
async fn tls_says_what_is_spoken() {
    let (authority, folder) = (Authority::new("tests"), Folder::new());
    let pair = authority.sign("localhost", 300);
    let config = format!(
        "[tls]\n{}{}",
        file_key_line("cert_file", &folder.write("cert.pem", &pair.certificate)),
        file_key_line("key_file", &folder.write("key.pem", &pair.key))
    );
    let world = world(&config).await;
    for (protocols, agreed) in [
        (&[&b"h2"[..], b"http/1.1"][..], Some(&b"h2"[..])),
        (&[b"h2"], Some(b"h2")),
        (&[b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let stream = tls_connect(world.proxy(), &speaks(&authority, protocols))
            .await
            .expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        if agreed == Some(b"h2") {
            let mut client = H2Client::over(stream).await;
            for _ in 0..2 {
                let answer = client.request(&Request::stream("")).await;
                assert_eq!(answer.text(), Canonical::answer("a", 3).text());
            }
        } else {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = stream;
            stream
                .write_all(&Request::get("/v1/nothing").bytes())
                .await
                .expect("it is taken");
            let mut start = [0; 12];
            stream.read_exact(&mut start).await.expect("an answer");
            assert_eq!(&start, b"HTTP/1.1 404");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c07_slow_heads_of_http2() {
    let world = world("[timeouts]\nclient_head = 0.3").await;
    let head = RawH2Client::head(1, &RawH2Client::fields(&Request::get("/v1/nothing")), true);
    let unended = frame(kinds::HEADERS, 1, 1, b"\0\x03abc\x01d");
    for (name, begun) in [
        ("half", &head[..head.len() - 1]),
        ("few", &head[..5]),
        ("unended", &unended),
    ] {
        let mut raw = RawH2Client::open(world.proxy()).await;
        // Acknowledging other frames would complete the interrupted frame.
        raw.ignores_control_frames = true;
        raw.send(begun).await;
        let start = Instant::now();
        let (code, _) = raw.read_to_end().await;
        assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{name}");
        let took = start.elapsed();
        assert!(
            took > Duration::from_millis(250) && took < PATIENCE,
            "{name}: {took:?}"
        );
    }
    // No settings after the preface, or half of the preface.
    for begun in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\n"] {
        let client = Client::sending(world.proxy(), begun.as_bytes()).await;
        let start = Instant::now();
        let mut raw = RawH2Client::resumed(client);
        raw.ignores_control_frames = true;
        let _ = raw.read_to_end().await;
        assert!(start.elapsed() < PATIENCE, "{begun:?}");
    }
    // Single bytes now and then do not prolong the time, and a connection that is merely idle stays open.
    let mut idle = RawH2Client::open(world.proxy()).await;
    let mut raw = RawH2Client::open(world.proxy()).await;
    let mut is_cut = false;
    for byte in &head {
        tokio::time::sleep(Duration::from_millis(100)).await;
        is_cut = !raw.try_send(&[*byte]).await;
        if is_cut {
            break;
        }
    }
    assert!(is_cut, "the drip goes on");
    idle.send_request(1, &Request::get("/v1/nothing")).await;
    assert_eq!(idle.next_of(kinds::HEADERS, 1).await.status(), 404);
    world.end().await;
}

#[tokio::test]
async fn fault_c08_slow_bodies_of_http2() {
    let gate = Gate::default();
    let setup = Setup::new().config("[timeouts]\nclient_head = 0.2\nclient_body_idle = 0.3");
    let world = World::start(stream_until(&gate), setup).await;
    let mut raw = RawH2Client::with_request(world.proxy(), &Request::stream("")).await;
    raw.read_until(1, "begun").await;
    for (stream, sent) in [(3, &b""[..]), (5, b"{"), (7, b"{\"model\"")] {
        let mut bytes =
            RawH2Client::head(stream, &RawH2Client::fields(&Request::stream("")), false);
        if !sent.is_empty() {
            bytes.extend(frame(kinds::DATA, 0, stream, sent));
        }
        raw.send(&bytes).await;
        let start = Instant::now();
        assert_eq!(raw.any_head().await, (stream, 408));
        assert_took(start, 250);
        // Late frames belong to no stream and do no harm.
        raw.send(&frame(kinds::DATA, 1, stream, b"}")).await;
    }
    gate.open();
    raw.read_until(1, "[DONE]").await;
    world.end().await;
}

#[tokio::test]
async fn fault_c05_limits_of_bodies_of_http2() {
    let good = Request::stream("");
    let limit = good.sent_body().len();
    let world = world(&format!("[limits]\nmax_body_bytes = {limit}")).await;
    let mut client = H2Client::open(world.proxy()).await;
    let longer = |n: usize| Request::chat([good.sent_body(), " ".repeat(n).as_bytes()].concat());
    for (n, status) in [(0, 200), (1, 413), (100_000, 413)] {
        for request in [longer(n), longer(n).without("content-length")] {
            let answer = client.request(&request).await;
            assert_eq!(answer.status, status, "{n} above: {}", answer.text());
        }
    }
    // A `content-length` that differs from the body's.
    for length in ["3", "999", "x", "-1", "+5"] {
        let request = good
            .clone()
            .without("content-length")
            .header("content-length", length);
        let mut raw = RawH2Client::with_request(world.proxy(), &request).await;
        let reset = loop {
            let frame = raw.next().await.expect("an answer");
            match frame.kind {
                kinds::RST_STREAM => break true,
                kinds::HEADERS => break frame.status() == 200,
                _ => {}
            }
        };
        assert!(reset, "{length}");
    }
    world.end_after(2).await;
}

/// A refused request whose client keeps sending costs no more than the window that the stream had.
#[tokio::test]
async fn fault_c06_refused_uploads_of_http2() {
    let world = world("[limits]\nmax_body_bytes = 1000").await;
    let mut raw = RawH2Client::open(world.proxy()).await;
    let request = Request::chat("")
        .without("content-length")
        .header("content-length", "1000000000");
    raw.send(&RawH2Client::head(1, &RawH2Client::fields(&request), false))
        .await;
    assert_eq!(raw.any_head().await, (1, 413));
    let reset = raw.next_of(kinds::RST_STREAM, 1).await;
    assert_eq!(reset.number(0), NO_ERROR);
    let before = world.samewire.allocated();
    for _ in 0..3 {
        raw.send(&frame(kinds::DATA, 0, 1, &[b' '; 16_384])).await;
    }
    raw.send_request(3, &Request::get("/v1/nothing")).await;
    raw.next_of(kinds::HEADERS, 3).await;
    assert!(world.samewire.allocated().saturating_sub(before) < 4 << 20);
    world.end().await;
}

#[tokio::test]
async fn heads_that_are_none_end_their_stream() {
    let world = world("").await;
    let good = || Request::get("/v1/nothing");
    for (request, status) in [
        (good(), Some(404)),
        (good().header("te", "trailers"), Some(404)),
        (good().without("host"), Some(400)),
        (good().header("connection", "close"), None),
        (good().header("transfer-encoding", "chunked"), None),
        (good().header("upgrade", "websocket"), None),
        (good().header(":path", "/v1/models"), None),
        (good().header(":status", "200"), None),
        (good().target(""), None),
        (Request::new("CONNECT", "/"), None),
        (good().header("x-emoji", "\u{1f600}"), Some(400)),
        (good().header(":protocol", "websocket"), None),
    ] {
        let mut raw = RawH2Client::with_request(world.proxy(), &request).await;
        let seen = loop {
            match raw.next().await.expect("an answer") {
                frame if frame.kind == kinds::HEADERS => break Some(frame.status()),
                frame if frame.kind == kinds::RST_STREAM => break None,
                frame => assert_ne!(frame.kind, kinds::GOAWAY, "{request:?}"),
            }
        };
        assert_eq!(seen, status, "{request:?}");
        // Other streams continue.
        raw.send_request(3, &good()).await;
        assert_eq!(raw.next_of(kinds::HEADERS, 3).await.stream, 3);
    }
    // Invalid header fields: the header block after them cannot be trusted.
    for request in [
        good().header("X-Upper", "a"),
        good().header("x-line", "a\r\nx-injected: 1"),
        good().header("cookie", "a\0b"),
    ] {
        let mut raw = RawH2Client::with_request(world.proxy(), &request).await;
        assert_eq!(
            raw.read_to_end().await.0,
            Some(PROTOCOL_ERROR),
            "{request:?}"
        );
    }
    // Two different names for the host.
    let mut raw = RawH2Client::open(world.proxy()).await;
    let mut block = RawH2Client::fields(&good());
    RawH2Client::field("host", "other", &mut block);
    raw.send(&RawH2Client::head(1, &block, true)).await;
    assert_eq!(raw.next_of(kinds::HEADERS, 1).await.status(), 400);
    world.end_after(0).await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let world = world("").await;
    let mut raw = RawH2Client::open(world.proxy()).await;
    let request = Request::plain("").header("expect", "100-continue");
    raw.send(&RawH2Client::head(1, &RawH2Client::fields(&request), false))
        .await;
    assert_eq!(raw.next_of(kinds::HEADERS, 1).await.status(), 100);
    raw.send(&frame(kinds::DATA, 1, 1, request.sent_body()))
        .await;
    assert_eq!(raw.next_of(kinds::HEADERS, 1).await.stream, 1);
    assert_eq!(world.engine.wait_attempts(1).await.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn fault_o25_a_bug_ends_one_stream_and_no_other() {
    let gate = Gate::default();
    let world = World::start(stream_until(&gate), Setup::new().allow_errors()).await;
    let mut raw = RawH2Client::with_request(world.proxy(), &Request::stream("")).await;
    raw.read_until(1, "begun").await;
    for (stream, place) in [(3, "handler"), (5, "stream")] {
        let request = Request::stream("").header("x-samewire-panic", place);
        raw.send_request(
            stream,
            &request.header("x-request-id", &format!("bug-{place}")),
        )
        .await;
        assert_eq!(
            raw.next_of(kinds::RST_STREAM, stream).await.number(0),
            INTERNAL_ERROR,
            "{place}"
        );
    }
    gate.open();
    raw.read_until(1, "[DONE]").await;
    world.end_after_panics(2).await;
}

#[tokio::test]
async fn idle_connections_of_http2_are_closed() {
    let gate = Gate::default();
    let world = World::start(
        stream_until(&gate),
        Setup::new().config("[timeouts]\nclient_idle = 0.6"),
    )
    .await;
    let mut raw = RawH2Client::with_request(world.proxy(), &Request::stream("")).await;
    raw.read_until(1, "begun").await;
    // A long-running stream keeps the connection busy; a ping does not.
    tokio::time::sleep(Duration::from_millis(800)).await;
    gate.open();
    raw.read_until(1, "[DONE]").await;
    let start = Instant::now();
    for _ in 0..5 {
        raw.send(&frame(kinds::PING, 0, 0, &[1; 8])).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(raw.read_to_end().await, (Some(NO_ERROR), Hangup::Fin));
    assert_took(start, 500);
    world.end().await;
}

#[tokio::test]
async fn a_silent_client_is_asked_whether_it_is_there() {
    let gate = Gate::default();
    let world = World::start(
        stream_until(&gate),
        Setup::new().config("[timeouts]\nclient_ping = 0.5"),
    )
    .await;
    let mut raw = RawH2Client::open(world.proxy()).await;
    let mut idle = RawH2Client::open(world.proxy()).await;
    raw.send_request(1, &Request::stream("")).await;
    let start = Instant::now();
    for _ in 0..2 {
        raw.next_of(kinds::PING, 0).await;
    }
    assert!(
        start.elapsed() > Duration::from_millis(800),
        "{:?}",
        start.elapsed()
    );
    raw.ignores_control_frames = true;
    let start = Instant::now();
    assert_eq!(raw.read_to_end().await.0, Some(NO_ERROR));
    assert_took(start, 300);
    until("the answer is cancelled", || {
        world.engine.active_generations() == 0
    })
    .await;
    // A connection without streams gets no pings.
    idle.send_request(1, &Request::get("/v1/nothing")).await;
    while let Ok(frame) = idle.next().await {
        assert_ne!(frame.kind, kinds::PING);
        if frame.is_last() {
            break;
        }
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c41_connections_of_http2_with_streams_do_not_make_room() {
    let gate = Gate::default();
    let world = World::start(
        stream_until(&gate),
        Setup::new().config("[limits]\nconnections = 3"),
    )
    .await;
    let mut busy = RawH2Client::with_request(world.proxy(), &Request::stream("")).await;
    busy.send_request(3, &Request::get("/v1/nothing")).await;
    busy.next_of(kinds::HEADERS, 3).await;
    let mut idle = RawH2Client::with_request(world.proxy(), &Request::get("/v1/nothing")).await;
    idle.next_of(kinds::DATA, 1).await;
    let _second = RawH2Client::open(world.proxy()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..2 {
        assert_eq!(world.get("/v1/nothing").await.head.status, 404);
    }
    assert_eq!(idle.read_to_end().await, (Some(NO_ERROR), Hangup::Fin));
    gate.open();
    busy.read_until(1, "[DONE]").await;
    world.end().await;
}

#[tokio::test]
async fn fault_o01_http2_is_told_to_go_and_its_streams_end_as_they_should() {
    let gate = Gate::default();
    let engine = Engine::script(stream_until(&gate)).await;
    let setup = Setup::before(&engine);
    let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 1")).await;
    let mut raw = RawH2Client::open(samewire.proxy).await;
    let mut idle = RawH2Client::open(samewire.proxy).await;
    // Connection whose client does not answer the ping sent with GOAWAY.
    let mut deaf = RawH2Client::open(samewire.proxy).await;
    deaf.ignores_control_frames = true;
    for client in [&mut raw, &mut idle, &mut deaf] {
        client.send_request(1, &Request::get("/v1/nothing")).await;
        client.next_of(kinds::DATA, 1).await;
    }
    raw.ignores_control_frames = true;
    raw.send_request(3, &Request::stream("")).await;
    raw.read_until(3, "begun").await;
    samewire.signal("TERM");
    until("it settles", || {
        samewire.logs().iter().any(|line| line.contains("draining"))
    })
    .await;
    // During the settle time everything continues.
    raw.send_request(5, &Request::get("/v1/nothing")).await;
    assert_eq!(raw.any_head().await.0, 5);
    let goaway = raw.next_of(kinds::GOAWAY, 0).await;
    assert_eq!(
        (goaway.number(0), goaway.number(4)),
        (0x7fff_ffff, NO_ERROR)
    );
    assert_eq!(idle.read_to_end().await, (Some(NO_ERROR), Hangup::Fin));
    assert_eq!(deaf.read_to_end().await, (Some(NO_ERROR), Hangup::Fin));
    // A client that sends a request before it has read the GOAWAY gets a complete error.
    raw.send_request(7, &Request::stream("")).await;
    assert_eq!(raw.any_head().await, (7, 503));
    gate.open();
    raw.read_until(3, "[DONE]").await;
    assert_eq!(raw.read_to_end().await.1, Hangup::Fin);
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert_eq!(engine.attempt_count(), 1);
}

#[tokio::test]
async fn fault_o02_streams_of_http2_are_told_at_the_deadline() {
    let engine = Engine::script(Script::stream().text("begun").hang()).await;
    let setup = Setup::before(&engine);
    let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 0\ndrain = 0.5")).await;
    let mut client = H2Client::open(samewire.proxy).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(client.begin(&Request::stream("")).await.expect("a head"));
    }
    samewire.signal("TERM");
    let start = Instant::now();
    for response in open {
        let answer = H2Client::read(response).await;
        assert_eq!(answer.reset_reason, None);
        let last = grammar(answer.text()).last().cloned().expect("an end");
        assert!(last.contains(r#""code":"draining""#), "{last}");
    }
    assert!(client.closes().await);
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    assert_took(start, 450);
    until("the answer is cancelled", || {
        engine.active_generations() == 0
    })
    .await;
}
