//! Abuse over HTTP/2: floods, bombs, streams that are cancelled or not read (faults C09, C19, C22, C24, C25, U15).

use crate::clients::leaving::settled;
use crate::sim::prelude::*;
use crate::sim::{H2Client, H2Frame, RawH2Client, frame, kinds};

/// Error codes (RFC 9113, 7).
const CANCEL: u32 = 8;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Setting for the initial flow-control window of a stream.
const INITIAL_WINDOW_SIZE: u16 = 4;

async fn world(script: Script, config: &str) -> World {
    World::start(script, Setup::new().config(config)).await
}

fn nothing() -> Request {
    Request::get("/v1/nothing")
}

/// Checks that other clients are served meanwhile.
async fn check_others(world: &World) {
    assert_eq!(world.get("/v1/nothing").await.head.status, 404);
    let mut client = H2Client::open(world.proxy()).await;
    assert_eq!(
        client.request(&Request::get("/v1/nothing")).await.status,
        404
    );
}

#[tokio::test]
async fn fault_c19_many_fields_are_refused_before_anything_looks_at_them() {
    let world = world(Script::answer("a", 1), "").await;
    let with = |n: usize, add: &dyn Fn(&mut Vec<u8>)| {
        let mut block = RawH2Client::fields(&nothing().without("authorization"));
        (0..n).for_each(|_| add(&mut block));
        block
    };
    let crumb = |block: &mut Vec<u8>| RawH2Client::field("cookie", "a", block);
    for (n, status) in [(100, 404), (101, 431), (500, 431)] {
        let mut raw = RawH2Client::open(world.proxy()).await;
        raw.send(&RawH2Client::head(1, &with(n, &crumb), true))
            .await;
        assert_eq!(raw.any_head().await, (1, status), "{n}");
    }
    // 50,000 cookie crumbs; and a field that is sent once and then referred to by one byte.
    let crumbs = with(50_000, &|block| block.push(0x80 | 32));
    let mut repeated = with(0, &crumb);
    repeated.push(0x40);
    repeated.extend(&frameless("x-long", &"v".repeat(4000)));
    repeated.extend([0xbe; 16_000]);
    check_others(&world).await;
    let before = world.samewire.allocated();
    let mut open = Vec::new();
    for n in 0..100 {
        let mut raw = RawH2Client::open(world.proxy()).await;
        raw.send(&RawH2Client::head(
            1,
            if n % 2 == 0 { &crumbs } else { &repeated },
            true,
        ))
        .await;
        open.push(raw);
    }
    for raw in &mut open {
        let refused = loop {
            match raw.next().await {
                Ok(frame) if frame.kind == kinds::HEADERS => break frame.status() == 431,
                Ok(frame) if matches!(frame.kind, kinds::RST_STREAM | kinds::GOAWAY) => break true,
                Ok(_) => {}
                Err(_) => break true,
            }
        };
        assert!(refused);
    }
    let grown = world.samewire.allocated().saturating_sub(before);
    println!("heads of many fields: 100 connections, {grown} bytes");
    assert!(grown < 50 << 20, "{grown}");
    check_others(&world).await;
    world.end_after(0).await;
}

/// Encodes a header field without the leading byte that says how it is indexed.
fn frameless(name: &str, value: &str) -> Vec<u8> {
    let mut block = Vec::new();
    RawH2Client::field(name, value, &mut block);
    block.split_off(1)
}

#[tokio::test]
async fn fault_c22_rapid_resets_end_the_connection_and_leave_nothing() {
    let world = world(Script::stream().hang(), "").await;
    let request = Request::stream("");
    let before = world.samewire.allocated();
    for at_once in [true, false] {
        let asked = world.engine.attempt_count();
        let mut raw = RawH2Client::open(world.proxy()).await;
        let start = Instant::now();
        let mut sent = 0;
        for n in 0..10_000 {
            let pair = [
                RawH2Client::request(2 * n + 1, &request),
                RawH2Client::reset(2 * n + 1),
            ];
            let taken = if at_once {
                raw.try_send(&pair.concat()).await
            } else {
                let taken = raw.try_send(&pair[0]).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
                taken && raw.try_send(&pair[1]).await
            };
            sent = n;
            if !taken || (!at_once && n > 300) {
                break;
            }
        }
        // Frames that the client keeps sending may reset the connection before the GOAWAY is read.
        let (code, end) = raw.read_to_end().await;
        println!(
            "rapid resets: {sent} sent, {code:?}, {end:?}, {:?}",
            start.elapsed()
        );
        assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
        assert!(
            world.engine.attempt_count() - asked <= 200,
            "{}",
            world.engine.attempt_count()
        );
        until("nothing is left", || world.engine.active_generations() == 0).await;
    }
    check_others(&world).await;
    assert!(world.samewire.allocated().saturating_sub(before) < 50 << 20);
    world.end().await;
}

/// Exactly as many resets as allowed, and the key that sets the limit.
#[tokio::test]
async fn fault_c22_the_last_reset_that_may_be() {
    for (config, most) in [("", 200), ("[limits]\nh2_resets = 5", 5)] {
        let world = world(Script::answer("a", 1), config).await;
        let mut raw = RawH2Client::open(world.proxy()).await;
        let answered = async |raw: &mut RawH2Client, n: u32| {
            raw.send_request(2 * n + 1, &nothing()).await;
            raw.next_of(kinds::DATA, 2 * n + 1).await;
        };
        for n in 0..most - 1 {
            raw.send(
                &[
                    RawH2Client::request(2 * n + 1, &Request::plain("")),
                    RawH2Client::reset(2 * n + 1),
                ]
                .concat(),
            )
            .await;
        }
        answered(&mut raw, most).await;
        raw.send(
            &[
                RawH2Client::request(2 * most + 3, &nothing()),
                RawH2Client::reset(2 * most + 3),
            ]
            .concat(),
        )
        .await;
        assert_eq!(raw.read_to_end().await.0, Some(ENHANCE_YOUR_CALM), "{most}");
        world.end().await;
    }
}

/// The client makes errors for which the server must reset streams: those resets count as the client's own.
#[tokio::test]
async fn fault_c45_resets_that_the_client_provokes_count_as_its_own() {
    let world = world(Script::stream().hang(), "").await;
    let request = Request::stream("");
    type Mistake = fn(u32) -> Vec<u8>;
    let mistakes: [(&str, Mistake); 5] = [
        ("a window that overflows", |stream| {
            RawH2Client::window_update(stream, 0x7fff_ffff)
        }),
        ("a window of nothing", |stream| {
            RawH2Client::window_update(stream, 0)
        }),
        ("data after the end", |stream| {
            frame(kinds::DATA, 0, stream, b"a")
        }),
        ("a head after the end", |stream| {
            RawH2Client::head(stream, &RawH2Client::fields(&nothing()), true)
        }),
        ("a stream that depends on itself", |stream| {
            frame(2, 0, stream, &[&stream.to_be_bytes()[..], &[9]].concat())
        }),
    ];
    let before = world.samewire.allocated();
    for (name, mistake) in mistakes {
        for at_once in [true, false] {
            let asked = world.engine.attempt_count();
            let mut raw = RawH2Client::open(world.proxy()).await;
            let mut sent = 0;
            while sent < 1_000 {
                let stream = 2 * sent + 1;
                let taken = if at_once {
                    raw.try_send(
                        &[RawH2Client::request(stream, &request), mistake(stream)].concat(),
                    )
                    .await
                } else {
                    let taken = raw.try_send(&RawH2Client::request(stream, &request)).await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    taken && raw.try_send(&mistake(stream)).await
                };
                sent += 1;
                if !taken {
                    break;
                }
            }
            let (code, end) = raw.read_to_end().await;
            let begun = world.engine.attempt_count() - asked;
            println!("{name}: {sent} sent, {begun} begun, {code:?}, {end:?}");
            assert!(begun <= 200, "{name}: {begun}");
            until("nothing is left", || world.engine.active_generations() == 0).await;
        }
        let grown = world.samewire.allocated().saturating_sub(before);
        assert!(grown < 50 << 20, "{name}: {grown}");
    }
    check_others(&world).await;
    world.end().await;
}

#[tokio::test]
async fn fault_c22_floods_end_their_connection_alone() {
    let world = world(Script::answer("a", 1), "").await;
    let settings = frame(kinds::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let ping = frame(kinds::PING, 0, 0, &[7; 8]);
    let unknown = frame(77, 0, 0, &[1; 3]);
    let priority = frame(2, 0, 1, &[0, 0, 0, 0, 9]);
    let start = RawH2Client::head(1, &RawH2Client::fields(&nothing()), true);
    let mut unended = start.clone();
    unended[4] &= !4;
    let more = frame(kinds::CONTINUATION, 0, 1, b"\0\x01a\x01b");
    let empty = frame(kinds::CONTINUATION, 0, 1, b"");
    let (before, cpu) = (world.samewire.allocated(), world.samewire.cpu());
    for (name, begun, again) in [
        ("settings", &start, &settings),
        ("pings", &start, &ping),
        ("unknown", &start, &unknown),
        ("priority", &start, &priority),
        ("continuation", &unended, &more),
        ("empty continuation", &unended, &empty),
    ] {
        let mut raw = RawH2Client::open(world.proxy()).await;
        raw.ignores_control_frames = true;
        raw.send(begun).await;
        let start = Instant::now();
        let many = again.repeat(1000);
        let mut sent = 0;
        while raw.try_send(&many).await {
            sent += 1000;
            assert!(
                start.elapsed() < PATIENCE && sent < 10_000_000,
                "{name} without end"
            );
        }
        let (code, end) = raw.read_to_end().await;
        println!("{name}: {sent} taken, {code:?}, {end:?}");
        check_others(&world).await;
    }
    let used = world.samewire.cpu() - cpu;
    println!("floods: {used:?}");
    assert!(used < Duration::from_secs(8), "{used:?}");
    assert!(world.samewire.allocated().saturating_sub(before) < 50 << 20);
    world.end().await;
}

#[tokio::test]
async fn fault_c22_what_breaks_the_protocol_ends_the_connection() {
    let world = world(Script::stream().text("begun").hang(), "").await;
    let most = RawH2Client::window_update(0, 0x7fff_ffff);
    for (name, bytes) in [
        ("windows that overflow", [most.clone(), most].concat()),
        ("a window of nothing", RawH2Client::window_update(0, 0)),
        ("a frame too long", frame(kinds::DATA, 0, 1, &[0; 20_000])),
        ("data of no stream", frame(kinds::DATA, 0, 0, b"a")),
        (
            "a head that cannot be read",
            frame(kinds::HEADERS, 5, 3, &[0xff; 40]),
        ),
        ("a ping too short", frame(kinds::PING, 0, 0, b"a")),
        (
            "settings that are none",
            frame(kinds::SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
        ),
        (
            "a stream that cannot be",
            RawH2Client::request(4, &nothing()),
        ),
        (
            "a stream that was before",
            RawH2Client::request(1, &nothing()),
        ),
        ("a push", frame(5, 4, 1, &[0, 0, 0, 2])),
        (
            "a preface again",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        ),
    ] {
        let n = world.engine.attempt_count();
        let mut raw = RawH2Client::with_request(world.proxy(), &Request::stream("")).await;
        raw.read_until(1, "begun").await;
        let sent = Instant::now();
        raw.send(&bytes).await;
        let (code, _) = raw.read_to_end().await;
        assert!(code.is_some_and(|code| code != 0), "{name}: {code:?}");
        until("the answer is cancelled", || {
            world.engine.closed(n).is_some()
        })
        .await;
        let (seen, _) = world.engine.closed(n).expect("just seen");
        assert!(seen.saturating_duration_since(sent) < SOON, "{name}");
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c22_more_streams_than_may_be_are_refused() {
    for (config, most) in [("", 100), ("[limits]\nh2_streams = 3", 3)] {
        let gate = Gate::default();
        let world = world(Script::stream().text("a").wait(&gate).stop(), config).await;
        let mut raw = RawH2Client::open(world.proxy()).await;
        let settings = raw.next_of(kinds::SETTINGS, 0).await;
        assert!(
            settings
                .payload
                .chunks(6)
                .any(|pair| pair == [0, 3, 0, 0, 0, most as u8]),
            "{settings:?}"
        );
        for n in 0..most {
            raw.send_request(2 * n + 1, &Request::stream("")).await;
        }
        for n in most..most + 20 {
            raw.send_request(2 * n + 1, &Request::stream("")).await;
            assert_eq!(
                raw.next_of(kinds::RST_STREAM, 2 * n + 1).await.number(0),
                REFUSED_STREAM
            );
        }
        assert_eq!(
            world.engine.wait_attempts(most as usize).await.len(),
            most as usize
        );
        gate.open();
        let mut ended = 0;
        while ended < most {
            ended += u32::from(raw.next().await.expect("a frame").is_last());
        }
        raw.send_request(2 * most + 101, &nothing()).await;
        assert_eq!(raw.any_head().await, (2 * most + 101, 404));
        world.end().await;
    }
}

/// The flow-control windows offered to clients are the configured ones.
#[tokio::test]
async fn windows_are_those_of_the_configuration() {
    let other = "[limits]\nh2_stream_window_bytes = 2000\nh2_connection_window_bytes = 200000\nmax_head_bytes = 8192";
    for (config, stream, connection, head) in [
        ("", 65_536_u32, 100 * 65_536, 32_768_u32),
        (other, 2000, 200_000, 8192),
    ] {
        let world = world(Script::answer("a", 1), config).await;
        let mut raw = RawH2Client::open(world.proxy()).await;
        let settings = raw.next_of(kinds::SETTINGS, 0).await;
        for (id, value) in [(4, stream), (6, head)] {
            let pair = [&[0, id][..], &value.to_be_bytes()].concat();
            assert!(
                settings.payload.chunks(6).any(|have| have == pair),
                "{id}: {settings:?}"
            );
        }
        let more = raw.next_of(kinds::WINDOW_UPDATE, 0).await;
        assert_eq!(more.number(0), connection - 65_535);
        // Bodies longer than the window are accepted; a client that exceeds the window is not.
        let body = [
            Request::plain("").sent_body(),
            " ".repeat(200_000).as_bytes(),
        ]
        .concat();
        let mut client = H2Client::open(world.proxy()).await;
        assert_ne!(client.request(&Request::chat(body)).await.status, 413);
        raw.send(&RawH2Client::head(
            1,
            &RawH2Client::fields(&Request::chat("").without("content-length")),
            false,
        ))
        .await;
        let piece = frame(kinds::DATA, 0, 1, &[b' '; 16_000]);
        raw.send(&piece.repeat(80)).await;
        let frame = loop {
            match raw.next().await.expect("an end of it") {
                frame if matches!(frame.kind, kinds::RST_STREAM | kinds::GOAWAY) => break frame,
                frame => drop(frame),
            }
        };
        println!("a window that is ignored: {frame:?}");
        drop(raw);
        world.end().await;
    }
}

/// Progress of the response when the client cancels it.
const MOMENTS: [&str; 5] = [
    "before-head",
    "prefill",
    "between-tokens",
    "writing",
    "blocked",
];

fn script_for(moment: &str) -> Script {
    let stream = Script::new().head_sse();
    match moment {
        "before-head" => Script::new().hang(),
        "prefill" => stream.role().hang(),
        "between-tokens" => stream.role().tok("a", 2, Duration::ZERO).hang(),
        _ => stream
            .role()
            .tok("a", 2, Duration::ZERO)
            .then(Step::Flood {
                events: 10_000,
                size: 4096,
            })
            .hang(),
    }
}

#[tokio::test]
async fn fault_c25_a_stream_that_is_reset_closes_its_engine_and_no_other() {
    let moment = |text: &str| {
        MOMENTS
            .into_iter()
            .find(|moment| text.contains(moment))
            .expect("a moment")
    };
    let engine = Engine::answering(move |attempt| script_for(moment(attempt.text()))).await;
    let world = World::start(engine, Setup::new()).await;
    let mut raw = RawH2Client::open_with(
        Client::connect(world.proxy()).await,
        &[(INITIAL_WINDOW_SIZE, 100_000)],
    )
    .await;
    raw.send(&RawH2Client::window_update(0, 1 << 30)).await;
    let request_at = |moment: &str| Request::stream(&format!(r#","user":"{moment}""#));
    // Stream that stays open throughout.
    raw.send_request(1, &request_at("between-tokens")).await;
    raw.read_until(1, "a.1").await;
    let mut times = Vec::new();
    for round in 0..3 {
        for (at, moment) in (0..).zip(MOMENTS) {
            let (n, id) = (world.engine.attempt_count(), 3 + 2 * (round * 5 + at));
            raw.send_request(id, &request_at(moment)).await;
            until("the request reaches the engine", || {
                world.engine.attempt_count() > n
            })
            .await;
            match moment {
                "before-head" => {}
                "prefill" => until("it has answered", || world.engine.written(n) > 0).await,
                "blocked" => _ = settled(|| world.engine.written(n)).await,
                _ => raw.read_until(id, "a.1").await,
            }
            let left = Instant::now();
            raw.send(&RawH2Client::reset(id)).await;
            until("the engine sees the close", || {
                world.engine.closed(n).is_some()
            })
            .await;
            let (seen, _) = world.engine.closed(n).expect("just seen");
            times.push(seen.saturating_duration_since(left));
            assert_eq!(
                world.engine.attempt_count(),
                n + 1,
                "not tried again for a client that has left"
            );
        }
    }
    times.sort();
    println!(
        "called off: median {:?}, worst {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    assert!(times.iter().all(|time| *time < SOON), "{times:?}");
    for line in world.samewire.finished(times.len()).await {
        assert!(line.contains(r#""end":"client_closed""#), "{line}");
    }
    let metrics = world.samewire.metrics_now().await;
    let cancels = metrics
        .lines()
        .find(|line| line.starts_with("samewire_upstream_cancels_total"));
    assert_eq!(
        cancels.and_then(|line| line.rsplit(' ').next()),
        Some(&*times.len().to_string()),
        "exactly once each"
    );
    assert_eq!(world.engine.active_generations(), 1);
    let left = raw.leave(CloseKind::Fin);
    until("the first goes with the connection", || {
        world.engine.active_generations() == 0
    })
    .await;
    assert!(left.elapsed() < SOON);
    world.end().await;
}

const EVENTS: u64 = 500;
const SIZE: usize = 16 << 10;

fn flood() -> Script {
    Script::stream()
        .text("ready")
        .then(Step::Flood {
            events: EVENTS,
            size: SIZE,
        })
        .stop()
}

/// A stream whose client stops reading slows its engine down. Other streams of the connection are unaffected, and
/// when the client resumes, every byte is there.
#[tokio::test]
async fn fault_c09_a_stopped_window_stops_its_engine_alone() {
    let world = world(flood(), "").await;
    let mut client = H2Client::open(world.proxy()).await;
    let before = world.samewire.allocated();
    let slow = client.begin(&Request::stream("")).await.expect("a head");
    let held = settled(|| world.engine.written(0)).await;
    println!("a stopped window: the engine got rid of {held} bytes");
    assert!(
        held < (EVENTS * SIZE as u64) / 2,
        "the engine was not held back: {held}"
    );
    assert!(world.samewire.allocated().saturating_sub(before) < 8 << 20);
    for _ in 0..3 {
        assert_eq!(client.request(&nothing()).await.status, 404);
    }
    let answer = H2Client::read(slow).await;
    let text = answer.text();
    assert_eq!(
        (answer.reset_reason, text.ends_with("data: [DONE]\n\n")),
        (None, true)
    );
    let numbers = text
        .split("\"content\":\"")
        .skip(2)
        .filter_map(|rest| rest.split(':').next()?.parse::<u64>().ok());
    assert!(numbers.eq(0..EVENTS), "every event comes, in order");
    world.end().await;
}

/// Opens a connection whose streams have no window.
async fn stalled(world: &World) -> RawH2Client {
    RawH2Client::open_with(
        Client::connect(world.proxy()).await,
        &[(INITIAL_WINDOW_SIZE, 0)],
    )
    .await
}

/// Reads up to the reset of a stream, before which this stream must not end well.
async fn reset_of(raw: &mut RawH2Client, stream: u32) -> H2Frame {
    loop {
        let frame = raw.next().await.expect("a frame");
        assert!(
            frame.stream != stream || !frame.is_last(),
            "a cut stream must not end well"
        );
        if frame.kind == kinds::RST_STREAM {
            return frame;
        }
    }
}

#[tokio::test]
async fn fault_c09_a_stopped_window_has_its_stream_reset_alone() {
    let (gate, waits) = Gate::pair();
    let engine = Engine::answering(move |attempt| match attempt.text().contains("lasts") {
        true => Script::stream()
            .text("begun")
            .wait(&waits)
            .text("ended")
            .stop(),
        false => flood(),
    });
    let world = World::start(
        engine.await,
        Setup::new().config("[timeouts]\nclient_write_stall = 0.5"),
    )
    .await;
    let mut raw = RawH2Client::open(world.proxy()).await;
    raw.send(&RawH2Client::window_update(0, 1 << 30)).await;
    raw.send_request(1, &Request::stream(r#","user":"lasts""#))
        .await;
    raw.read_until(1, "begun").await;
    raw.send_request(3, &Request::stream("")).await;
    let start = Instant::now();
    let reset = reset_of(&mut raw, 3).await;
    assert_eq!((reset.stream, reset.number(0)), (3, CANCEL));
    assert_took(start, 400);
    until("the answer is cancelled", || {
        world.engine.active_generations() == 1
    })
    .await;
    gate.open();
    raw.read_until(1, "[DONE]").await;
    world.end().await;
}

/// A client that opens the window by single bytes stalls the stream; one that opens it further is only slow.
#[tokio::test]
async fn fault_c44_a_window_of_a_byte_now_and_then_is_a_stall() {
    let world = World::start(
        flood(),
        Setup::new().config("[timeouts]\nclient_write_stall = 1"),
    )
    .await;
    // Two updates in the time of a stall are enough of the larger ones, and there are five.
    for (room, is_cut) in [(1, true), (800, false)] {
        let mut raw = stalled(&world).await;
        raw.send_request(1, &Request::stream("")).await;
        raw.next_of(kinds::HEADERS, 1).await;
        let start = Instant::now();
        let mut cut = None;
        let limit = if is_cut {
            PATIENCE
        } else {
            Duration::from_millis(3_500)
        };
        while cut.is_none() && start.elapsed() < limit {
            raw.send(&RawH2Client::window_update(1, room)).await;
            let frame = tokio::time::timeout(Duration::from_millis(200), reset_of(&mut raw, 1));
            cut = frame.await.ok();
        }
        assert_eq!(
            cut.as_ref().map(|frame| (frame.stream, frame.number(0))),
            is_cut.then_some((1, CANCEL)),
            "{room}"
        );
    }
    world.end().await;
}

/// The engine breaks off while the client's window is closed: the stream is reset, because no error can be written.
#[tokio::test]
async fn fault_u15_an_error_that_cannot_be_told_resets_the_stream() {
    let script = Script::stream()
        .text("a")
        .sleep(Duration::from_millis(100))
        .rst();
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\nclient_write_stall = 0.5");
    let world = World::start(script, setup).await;
    let mut raw = stalled(&world).await;
    raw.send_request(1, &Request::stream("")).await;
    raw.next_of(kinds::HEADERS, 1).await;
    reset_of(&mut raw, 1).await;
    check_others(&world).await;
    world.end().await;
}

/// A thousand streams, all without any window.
#[tokio::test]
async fn fault_c22_no_window_and_a_thousand_streams() {
    let world = world(
        Script::answer("a", 200),
        "[timeouts]\nclient_write_stall = 1",
    )
    .await;
    let before = world.samewire.allocated();
    let mut raw = stalled(&world).await;
    for n in 0..1000 {
        if !raw
            .try_send(&RawH2Client::request(2 * n + 1, &Request::stream("")))
            .await
        {
            break;
        }
    }
    // Either the connection is closed for so many refusals, or each stream ends by itself.
    let (mut refused, mut called_off) = (0, 0);
    while refused + called_off < 1000 {
        let Ok(frame) = raw.next().await else { break };
        assert!(!frame.is_last());
        match frame.kind {
            kinds::GOAWAY => assert_eq!(frame.number(4), ENHANCE_YOUR_CALM),
            kinds::RST_STREAM if frame.number(0) == REFUSED_STREAM => refused += 1,
            kinds::RST_STREAM => called_off += 1,
            _ => {}
        }
    }
    println!("a thousand streams: {refused} refused, {called_off} called off");
    assert!(refused > 100, "{refused} and {called_off}");
    assert!(world.engine.attempt_count() <= 100);
    until("nothing is left", || world.engine.active_generations() == 0).await;
    let grown = world.samewire.allocated().saturating_sub(before);
    assert!(grown < 50 << 20, "{grown}");
    check_others(&world).await;
    world.end().await;
}
