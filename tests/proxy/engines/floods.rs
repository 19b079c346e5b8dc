//! Engines without limits: endless answers, events of megabytes, contradictory framing, an ignored close; and the
//! limits that an operator can set against them.

use crate::canonical::{Canonical, grammar};
use crate::clients::leaving::settled;
use crate::clients::patience::readers;
use crate::sim::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn flood(events: u64, size: usize) -> Script {
    Script::stream().then(Step::Flood { events, size })
}

/// The client reads nothing and the engine breaks off: the error frame cannot be written, and a regular end would
/// be false.
#[tokio::test]
async fn fault_u15_an_end_that_cannot_be_told() {
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let gate = Gate::default();
        let script = flood(400, 16 << 10).wait(&gate).close(manner);
        let setup = Setup::new()
            .allow_errors()
            .config("[timeouts]\nclient_write_stall = 1.2");
        let world = World::start(script, setup).await;
        let mut client = Request::stream("").send_narrow(world.proxy()).await;
        client.head().await;
        settled(|| world.engine.written(0)).await;
        gate.open();
        world.samewire.finished(1).await;
        while client.piece().await.is_some() {}
        assert!(
            matches!(client.ended(), Ended::Reset | Ended::Short),
            "{:?}",
            client.ended()
        );
        world.end().await;
    }
}

/// Checks that the last event of a stream is this error.
fn ends_with(answer: &Answer, code: &str) {
    assert_eq!(answer.ended, Ended::LastChunk);
    let last = *grammar(answer.text()).last().expect("an end");
    assert!(last.contains(&format!(r#""code":"{code}""#)), "{last:.500}");
}

#[tokio::test]
async fn fault_u40_an_answer_may_be_so_long_and_no_longer() {
    const LIMIT: usize = 1_000_000;
    let setup = || {
        Setup::new()
            .allow_errors()
            .config(&format!("[limits]\nmax_answer_bytes = {LIMIT}"))
    };
    for size in [0, 100, 16 << 10] {
        let world = World::start(flood(1_000_000, size), setup()).await;
        let answer = world.stream("").await;
        ends_with(&answer, "upstream_invalid_response");
        assert!(answer.body.len() < 2 * LIMIT, "{}", answer.body.len());
        until("the answer is cancelled", || {
            world.engine.active_generations() == 0
        })
        .await;
        assert!(
            world.engine.written(0) < 16 << 20,
            "{}",
            world.engine.written(0)
        );
        let before = world.samewire.allocated();
        let whole = Request::plain(r#","user":"whole""#);
        assert_eq!(
            world.request(&whole).await.failure(),
            "502 server_error upstream_invalid_response"
        );
        let responses = crate::responses::over_chat::prompt("m", r#","stream":true"#);
        let answer = world.request(&responses).await;
        assert!(
            answer.text().contains("event: response.failed"),
            "{:.300}",
            answer.text()
        );
        assert!(
            answer.text().contains("upstream_invalid_response"),
            "the code is told"
        );
        assert!(
            world.samewire.allocated().saturating_sub(before) < 24 << 20,
            "no more is kept than that"
        );
        world.end().await;
    }
    // A shorter answer passes completely.
    let script = flood(50, 16 << 10).stop();
    assert!(
        World::answer(script, setup(), &Request::stream(""))
            .await
            .text()
            .ends_with("data: [DONE]\n\n")
    );
}

#[tokio::test]
async fn fault_u40_an_answer_may_take_so_long_and_no_longer() {
    // Neither tokens nor empty deltas prolong the time.
    let words = Script::stream()
        .tok("a", 1_000, Duration::from_millis(20))
        .hang();
    let hollow = (0..1_000).fold(Script::stream().text("a"), |script, _| {
        script
            .delta("{}", "null")
            .chunk(": alive\n\n")
            .sleep(Duration::from_millis(20))
    });
    for script in [words, hollow.hang()] {
        let setup = Setup::new()
            .allow_errors()
            .config("[timeouts]\ntotal_stream = 0.9\ninter_token = 0.6");
        let world = World::start(script, setup).await;
        for request in [
            Request::stream(""),
            crate::responses::over_chat::prompt("m", r#","stream":true"#),
        ] {
            let start = Instant::now();
            let answer = world.request(&request).await;
            assert_took(start, 850);
            assert!(
                answer.text().contains("upstream_timeout"),
                "{:.300}",
                answer.text()
            );
            assert!(!answer.text().contains("[DONE]"));
            assert_eq!(answer.ended, Ended::LastChunk);
            let idle = || world.engine.active_generations() == 0;
            until("the answer is cancelled", idle).await;
        }
        world.end().await;
    }
}

const WHOLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}"#;

/// Returns answers with contradictory framing, each with the bytes that a smuggler would hide after it.
fn lies() -> Vec<(String, Vec<u8>)> {
    let foreign =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n\"foreign\"";
    let n = WHOLE.len();
    let head =
        |lines: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}\r\n");
    let chunked = |size: &str| {
        format!(
            "{}{size}\r\n{WHOLE}\r\n0\r\n\r\n",
            head("transfer-encoding: chunked\r\n")
        )
    };
    let many: String = (0..10_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let rows = [
        (
            "longer than it says",
            format!("{}{WHOLE}", head(&format!("content-length: {n}\r\n"))),
        ),
        (
            "shorter than it says",
            format!("{}{WHOLE}", head(&format!("content-length: {}\r\n", n + 5))),
        ),
        (
            "a negative length",
            format!("{}{WHOLE}", head("content-length: -5\r\n")),
        ),
        (
            "a signed length",
            format!("{}{WHOLE}", head(&format!("content-length: +{n}\r\n"))),
        ),
        (
            "a hexadecimal length",
            format!("{}{WHOLE}", head(&format!("content-length: {n:#x}\r\n"))),
        ),
        (
            "a huge length",
            format!(
                "{}{WHOLE}",
                head("content-length: 99999999999999999999\r\n")
            ),
        ),
        (
            "no length at all",
            format!("{}{WHOLE}", head("content-length:\r\n")),
        ),
        (
            "two lengths",
            format!(
                "{}{WHOLE}",
                head(&format!(
                    "content-length: {n}\r\ncontent-length: {}\r\n",
                    n + 1
                ))
            ),
        ),
        (
            "two lengths in one",
            format!(
                "{}{WHOLE}",
                head(&format!("content-length: {n}, {}\r\n", n + 1))
            ),
        ),
        (
            "a length of nothing",
            format!("{}{WHOLE}", head("content-length: 0\r\n")),
        ),
        (
            "length and chunks",
            format!(
                "{}{n:x}\r\n{WHOLE}\r\n0\r\n\r\n",
                head(&format!(
                    "content-length: {n}\r\ntransfer-encoding: chunked\r\n"
                ))
            ),
        ),
        ("a chunk size that is none", chunked("xyz")),
        ("a negative chunk", chunked("-1")),
        ("a chunk with a prefix", chunked(&format!("{n:#x}"))),
        ("a chunk of 17 digits", chunked(&format!("f{n:016x}"))),
        (
            "a chunk that is too short",
            chunked(&format!("{:x}", n - 3)),
        ),
        ("a chunk that is too long", chunked(&format!("{:x}", n + 3))),
        (
            "no last chunk",
            format!(
                "{}{n:x}\r\n{WHOLE}\r\n",
                head("transfer-encoding: chunked\r\n")
            ),
        ),
        (
            "an unknown coding",
            format!("{}{WHOLE}", head("transfer-encoding: xchunked\r\n")),
        ),
        (
            "two codings",
            format!("{}{WHOLE}", head("transfer-encoding: gzip, chunked\r\n")),
        ),
        (
            "a header within a header",
            format!(
                "{}{WHOLE}",
                head(&format!("x-a: b\rx-injected: c\r\ncontent-length: {n}\r\n"))
            ),
        ),
        (
            "a NUL in a header",
            format!(
                "{}{WHOLE}",
                head(&format!("x-a: b\0c\r\ncontent-length: {n}\r\n"))
            ),
        ),
        (
            "a folded header",
            format!(
                "{}{WHOLE}",
                head(&format!("x-a: b\r\n c\r\ncontent-length: {n}\r\n"))
            ),
        ),
        (
            "a space before the colon",
            format!("{}{WHOLE}", head(&format!("content-length : {n}\r\n"))),
        ),
        (
            "a head of 1 MB",
            format!(
                "{}{WHOLE}",
                head(&format!(
                    "x-a: {}\r\ncontent-length: {n}\r\n",
                    "y".repeat(1 << 20)
                ))
            ),
        ),
        (
            "10,000 headers",
            format!("{}{WHOLE}", head(&format!("{many}content-length: {n}\r\n"))),
        ),
        (
            "no version",
            format!("200 OK\r\ncontent-length: {n}\r\n\r\n{WHOLE}"),
        ),
        (
            "another version",
            format!("HTTP/9.9 200 OK\r\ncontent-length: {n}\r\n\r\n{WHOLE}"),
        ),
        (
            "a status of two digits",
            format!("HTTP/1.1 20 OK\r\ncontent-length: {n}\r\n\r\n{WHOLE}"),
        ),
        (
            "a status of four digits",
            format!("HTTP/1.1 2000 OK\r\ncontent-length: {n}\r\n\r\n{WHOLE}"),
        ),
        ("nothing that is HTTP", format!("SSH-2.0-x\r\n\r\n{WHOLE}")),
    ];
    rows.into_iter()
        .map(|(what, text)| (what.to_owned(), format!("{text}{foreign}").into_bytes()))
        .collect()
}

/// The next client of the same upstream gets its own answer, whatever the previous answer left on the connection.
#[tokio::test]
async fn fault_u41_framing_that_lies_harms_nobody_else() {
    for (what, bytes) in lies() {
        for close in [false, true] {
            let (bad, good) = (bytes.clone(), Script::answer("good", 2));
            let engine = Engine::answering(move |attempt| match attempt.text().contains("first") {
                true if close => Script::new().raw(bad.clone()).fin(),
                true => Script::new().raw(bad.clone()),
                false => good.clone(),
            });
            let config = "[timeouts]\nfirst_token = 5\ninter_token = 0.5\ntotal_whole = 2";
            let world =
                World::start(engine.await, Setup::new().allow_errors().config(config)).await;
            let first = world.request(&Request::plain(r#","user":"first""#)).await;
            // An answer that is complete by one of its lengths is read by that; the rest of the connection is
            // discarded.
            match what.as_str() {
                "longer than it says" | "length and chunks" => {
                    assert_eq!(first.head.status, 200, "{what}");
                    assert!(
                        first.text().contains(r#""content":"x""#),
                        "{what}: {}",
                        first.text()
                    );
                }
                _ => assert_eq!(
                    (first.head.status, first.fault().kind.as_str()),
                    (502, "server_error"),
                    "{what}"
                ),
            }
            for _ in 0..2 {
                let second = world.stream("").await;
                assert_eq!(
                    second.text(),
                    Canonical::answer("good", 2).text(),
                    "{what}, then another client"
                );
            }
            for text in ["foreign", "injected"] {
                let told = first
                    .head
                    .headers
                    .iter()
                    .any(|(name, value)| name.contains(text) || value.contains(text));
                assert!(
                    !first.text().contains(text) && !told,
                    "{what}: {}",
                    first.text()
                );
            }
            world.end().await;
        }
    }
}

/// Contradictory framing in a stream that has begun: the client gets an error frame, or the end that had already
/// arrived.
#[tokio::test]
async fn fault_u41_framing_that_breaks_in_a_stream() {
    let begun = || Script::stream().tok("a", 2, Duration::ZERO);
    for broken in [
        "xyz\r\n",
        "-5\r\nabc\r\n",
        "5\r\nabcdefgh\r\n",
        "0x5\r\nabcde\r\n",
        "ffffffffffffffffff\r\n",
        "\0\r\n",
        "5;\rx\nabc",
    ] {
        let scripts = vec![
            begun().raw(broken).text("late").done().end(),
            Script::answer("good", 2),
        ];
        let setup = Setup::new()
            .allow_errors()
            .config("[timeouts]\ninter_token = 1");
        let world = World::start(Engine::in_turn(scripts), setup).await;
        let answer = world.stream("").await;
        assert!(
            answer
                .text()
                .starts_with(Canonical::new().role().tok("a", 2).text()),
            "{broken:?}"
        );
        let last = *grammar(answer.text()).last().expect("an end");
        assert!(
            last.starts_with("event: error\n") && !answer.text().contains("late"),
            "{broken:?}: {last}"
        );
        let second = world.stream("").await;
        assert_eq!(
            second.text(),
            Canonical::answer("good", 2).text(),
            "{broken:?}, then another client"
        );
        let attempts = world.engine.attempts();
        assert_ne!(
            attempts[0].connection, attempts[1].connection,
            "{broken:?}: it is not used again"
        );
        world.end().await;
    }
}

/// Short streams one after another on one connection: samewire's delay of the first token, compared with the
/// engine's own.
#[tokio::test]
async fn fault_u45b_short_streams_are_not_slowed_down() {
    const ROUNDS: usize = 100;
    let most = Duration::from_millis(if cfg!(debug_assertions) { 15 } else { 2 });
    let world = World::start(Script::answer("a", 2), Setup::new()).await;
    let request = Request::stream("").bytes();
    let mut medians = Vec::new();
    // On a busy machine, at least one of them is undisturbed.
    for _ in 0..12 {
        let mut added = Vec::new();
        let mut medians_of = [Vec::new(), Vec::new()];
        let (mut direct, mut through) = (
            Client::connect(world.engine.address).await,
            Client::connect(world.proxy()).await,
        );
        for _ in 0..ROUNDS {
            for (client, times) in [&mut direct, &mut through].into_iter().zip(&mut medians_of) {
                let start = Instant::now();
                client.send(&request).await;
                client.event_with_head("a.0").await;
                times.push(start.elapsed());
                client.rest().await;
            }
        }
        for times in &mut medians_of {
            times.sort();
            added.push(times[ROUNDS / 2]);
        }
        medians.push(added[1].saturating_sub(added[0]));
        if medians.last() < Some(&most) {
            break;
        }
    }
    println!("added to the median first token: {medians:?}");
    assert!(medians.last() < Some(&most), "{medians:?}");
    world.end().await;
}

/// Returns a chunk with this many logprobs, and with traces that only the engine needs.
fn heavy(entries: usize) -> String {
    let entry = r#"{"token":"abc","logprob":-0.25,"bytes":[97,98,99],"top_logprobs":[{"token":"abd","logprob":-1.5,"bytes":[97,98,100]}]}"#;
    let content = vec![entry; entries].join(",");
    let ids = vec!["12345"; entries].join(",");
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"t"}},"logprobs":{{"content":[{content}],"refusal":null}},"finish_reason":null,"token_ids":[{ids}]}}],"prompt_logprobs":[{ids}],"prompt_token_ids":[{ids}]}}"#
    )
}

#[tokio::test]
async fn fault_u48_large_events_cost_in_proportion() {
    let large = heavy(22_000);
    assert!(
        large.len() > 2_900_000 && large.len() < 4 << 20,
        "{}",
        large.len()
    );
    let small = heavy(2_200);
    // Without optimisation, a hundred of them would take a minute.
    let (few, many) = if cfg!(debug_assertions) {
        (1, 5)
    } else {
        (20, 100)
    };
    let (one, other) = (large.clone(), small.clone());
    let engine = Engine::answering(move |attempt| {
        let times = |event: &str, count| {
            let begun = Script::stream();
            (0..count).fold(begun, |script, _| script.ev(event)).stop()
        };
        match attempt.text() {
            text if text.contains("few") => times(&one, few),
            text if text.contains("many") => times(&one, many),
            _ => times(&other, few * 10),
        }
    });
    let world = World::start(engine.await, Setup::new()).await;
    let cost = async |name: &str, events: usize| {
        let before = world.samewire.cpu();
        let request = Request::stream(&format!(
            r#","logprobs":true,"top_logprobs":1,"user":"{name}""#
        ));
        let mut client = Client::connect(world.proxy())
            .await
            .with_patience(Duration::from_secs(60));
        client.send(&request.bytes()).await;
        let answer = client.answer().await;
        let frames = grammar(answer.text());
        assert_eq!(
            frames
                .iter()
                .filter(|frame| frame.contains(r#"{"content":"t"}"#))
                .count(),
            events
        );
        assert!(
            !answer.text().contains("12345"),
            "traces that only the engine needs are dropped"
        );
        assert_eq!(
            answer.text().matches(r#""token":"abd""#).count(),
            large.matches("abd").count() * events / if name == "small" { 10 } else { 1 }
        );
        world.samewire.cpu() - before
    };
    cost("few", few).await;
    let (least, most) = (cost("few", few).await, cost("many", many).await);
    let in_pieces = cost("small", few * 10).await;
    println!("{few} events: {least:?}, {many}: {most:?}, {few} in ten pieces each: {in_pieces:?}");
    let slack = Duration::from_millis(300);
    assert!(
        most < least * 10 + slack,
        "five times as many: {least:?} and {most:?}"
    );
    assert!(
        least < in_pieces * 4 + slack,
        "the same in pieces: {in_pieces:?} and {least:?}"
    );
    world.end().await;
}

/// An engine that keeps writing after the close of its connection.
#[tokio::test]
async fn fault_u49_an_engine_that_ignores_the_close() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let begun = Script::stream().text("a").bytes();
    let more = Script::new().text("b").bytes();
    let (told, mut broken) = tokio::sync::mpsc::channel(64);
    let stubborn = tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            let (begun, more, told) = (begun.clone(), more.clone(), told.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 10_000];
                let read = stream.read(&mut request).await.unwrap_or(0);
                if !String::from_utf8_lossy(&request[..read]).starts_with("POST") {
                    let _ = stream
                        .write_all(
                            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                        )
                        .await;
                    return;
                }
                let _ = stream.write_all(&begun).await;
                // Never reads again, so that the close shows only as a write error.
                while stream.write_all(&more).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let _ = told.send(Instant::now()).await;
            });
        }
    });
    let world = World::start(Script::new(), Setup::new().upstream(&url)).await;
    let cancels = async || {
        world
            .samewire
            .sum("samewire_upstream_cancels_total", &[])
            .await
    };
    assert_eq!(cancels().await, 0);
    for n in 1..=5 {
        let client = world.begin_until(&Request::stream(""), "\"b\"").await;
        let cpu = world.samewire.cpu();
        let left = client.leave(if n % 2 == 0 {
            CloseKind::Fin
        } else {
            CloseKind::Rst
        });
        let seen = tokio::time::timeout(PATIENCE, broken.recv())
            .await
            .expect("the connection is closed");
        let took = seen.expect("told").saturating_duration_since(left);
        assert!(took < SOON, "{took:?}");
        world.samewire.finished(n).await;
        assert_eq!(cancels().await, n as u64, "one cancel for each");
        assert!(
            world.samewire.cpu() - cpu < Duration::from_millis(500),
            "nothing is waited for"
        );
    }
    for line in world.samewire.request_lines() {
        assert!(line.contains(r#""end":"client_closed""#), "{line}");
    }
    stubborn.abort();
    world.end().await;
}

/// The configured buffer size is used, not the default: a larger buffer holds more of an answer whose client does
/// not read.
#[tokio::test]
async fn the_buffer_of_a_stream_is_as_large_as_it_is_set() {
    const READERS: usize = 10;
    // On a busy machine the process may still have to read, or to give back, what the engine has written.
    let is_small: fn(u64) -> bool = |held| held < 192 << 10;
    let is_large: fn(u64) -> bool = |held| held > 256 << 10;
    for (buffer, name, is_kept) in [(8 << 10, "small", is_small), (8 << 20, "large", is_large)] {
        let gate = Gate::default();
        let begun = Script::stream().text("ready").wait(&gate);
        let script = begun
            .then(Step::Flood {
                events: 4_000,
                size: 8 << 10,
            })
            .stop();
        let setup = Setup::new().config(&format!("[limits]\nstream_buffer_bytes = {buffer}"));
        let world = World::start(script, setup).await;
        let clients = readers(&world, READERS).await;
        let before = world.samewire.allocated();
        gate.open();
        settled(|| (0..clients.len()).map(|n| world.engine.written(n)).sum()).await;
        let held = || world.samewire.allocated().saturating_sub(before) / READERS as u64;
        until(&format!("the buffer of each client is {name}"), || {
            is_kept(held())
        })
        .await;
        println!("kept for each client with a {name} buffer: {}", held());
        for client in clients {
            client.leave(CloseKind::Rst);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn an_engines_error_is_read_as_far_as_is_set() {
    let body = format!(
        r#"{{"error":{{"message":"said","type":"BadRequestError","code":400}},"padding":"{}"}}"#,
        "p".repeat(10_000)
    );
    for (limit, heard) in [(20_000, true), (1_024, false)] {
        let setup = Setup::new()
            .allow_errors()
            .config(&format!("[limits]\nmax_error_bytes = {limit}"));
        let world = World::start(Script::new().json("400 Bad Request", &body), setup).await;
        for request in [
            Request::stream(""),
            Request::plain(""),
            Request::post("/v1/embeddings", r#"{"model":"m","input":"x"}"#),
        ] {
            let fault = world.request(&request).await.fault();
            assert_eq!(fault.message == "said", heard, "{limit}: {fault:?}");
            // A truncated error cannot be parsed.
            let code = if heard {
                None
            } else {
                Some("upstream_invalid_response")
            };
            assert_eq!(fault.code.as_deref(), code, "{limit}");
        }
        world.end().await;
    }
}

/// A stream held open for tool outputs gets keepalives at the configured interval.
#[tokio::test]
async fn a_held_stream_is_kept_alive() {
    let scripts = vec![crate::responses::over_chat::scripted(
        "tools",
        "chatcmpl-1",
        true,
    )];
    let world = World::start(
        Engine::in_turn(scripts),
        Setup::new().set("keepalive_seconds=1"),
    )
    .await;
    let request = crate::responses::over_chat::prompt(
        "tools",
        &format!(r#",{},"stream":true"#, crate::responses::over_chat::TOOLS),
    );
    let request = request
        .header("x-samewire-dialect", "codex-legacy")
        .header("x-samewire-tool-hold", "1");
    let mut client = world.begin(&request).await;
    let start = Instant::now();
    for _ in 0..2 {
        loop {
            let event = client.event().await.expect("it is held open");
            if event == ": keepalive" {
                break;
            }
        }
    }
    assert_took(start, 1_500);
    client.leave(CloseKind::Fin);
    world.end().await;
}
