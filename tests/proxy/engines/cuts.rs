//! Streams that break off. Every token that arrived is delivered, and the end looks successful only if it was.

use crate::canonical::{Canonical, INCOMPLETE, grammar};
use crate::sim::prelude::*;

/// Checks that the answer is a 200 in valid HTTP with exactly this body.
fn check(answer: &Answer, expected: &Canonical, what: &str) {
    assert_eq!(
        (answer.head.status, answer.ended),
        (200, Ended::LastChunk),
        "{what}: {}",
        answer.text()
    );
    assert_eq!(answer.text(), expected.text(), "{what}");
    grammar(answer.text());
}

#[tokio::test]
async fn fault_u12_u13_u14_broken_streams() {
    let some = || Script::stream().tok("a", 3, Duration::ZERO);
    let token =
        "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lost";
    let by_length = Script::new().raw(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99999\r\n\r\n"
            .to_owned()
            + &events(&some()),
    );
    let by_close = Script::new().raw(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            .to_owned()
            + &events(&some()),
    );
    let rows = [
        ("FIN without the last chunk", some().fin()),
        ("RST", some().rst()),
        ("good HTTP end without finish", some().end()),
        ("[DONE] without finish", some().done().end()),
        ("half an event, then FIN", some().chunk(token).fin()),
        ("half an event, then RST", some().chunk(token).rst()),
        (
            "half an event, then a good HTTP end",
            some().chunk(token).end(),
        ),
        ("half a chunk", some().raw(format!("ff\r\n{token}")).fin()),
        ("half a chunk size", some().raw("f").fin()),
        ("a bad chunk size", some().raw("zz\r\n").fin()),
        ("shorter than its length", by_length.fin()),
        ("close-delimited", by_close.fin()),
    ];
    for (what, script) in rows {
        let world = World::start(script, Setup::new().allow_errors()).await;
        let expected = Canonical::new().role().tok("a", 3).error(INCOMPLETE);
        check(&world.stream("").await, &expected, what);
        assert_eq!(
            world.engine.attempt_count(),
            1,
            "{what}: not tried again after the first byte"
        );
        world.end().await;
    }
}

/// Returns the SSE text of a script that has a head and chunks.
fn events(script: &Script) -> String {
    let bytes = script.bytes();
    let start = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a head")
        + 4;
    let mut chunks = crate::sim::Chunks::default();
    chunks.feed(&bytes[start..]);
    let mut text = Vec::new();
    while let crate::sim::Piece::Data(data) = chunks.next() {
        text.extend(data);
    }
    String::from_utf8(text).expect("UTF-8")
}

#[tokio::test]
async fn missing_done_after_the_finish_is_added() {
    let whole = || Script::stream().tok("a", 3, Duration::ZERO).finish("stop");
    for (what, script) in [
        ("good HTTP end", whole().end()),
        ("FIN", whole().fin()),
        ("RST", whole().sleep(Duration::from_millis(30)).rst()),
        ("usage, then FIN", whole().usage(3, 5).fin()),
    ] {
        let setup = Setup::new().allow_errors();
        check(
            &World::answer(script, setup, &Request::stream("")).await,
            &Canonical::answer("a", 3),
            what,
        );
    }
}

#[tokio::test]
async fn fault_u11_reset_before_any_byte() {
    let rows = [
        ("RST", Script::new().rst()),
        ("FIN", Script::new().fin()),
        (
            "RST later",
            Script::new().sleep(Duration::from_millis(50)).rst(),
        ),
    ];
    for (what, script) in rows {
        let world = World::start(script, Setup::new().allow_errors()).await;
        for request in [Request::stream(""), Request::plain("")] {
            assert_eq!(
                world.request(&request).await.failure(),
                "502 server_error upstream_reset",
                "{what}"
            );
        }
        assert_eq!(
            world.engine.attempt_count(),
            2,
            "{what}: there is no other upstream to try"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn cut_before_anything_meaningful_is_an_http_error() {
    let rows = [
        ("head", Script::new().head_sse().fin()),
        ("head and a good HTTP end", Script::new().head_sse().end()),
        ("role", Script::stream().fin()),
        (
            "role, then RST",
            Script::stream().sleep(Duration::from_millis(30)).rst(),
        ),
        ("role and [DONE]", Script::stream().done().end()),
        (
            "a comment",
            Script::new().head_sse().chunk(": hello\n\n").fin(),
        ),
    ];
    for (what, script) in rows {
        let answer = World::answer(script, Setup::new().allow_errors(), &Request::stream("")).await;
        assert_eq!(
            answer.failure(),
            "502 server_error upstream_incomplete",
            "{what}"
        );
    }
}

#[tokio::test]
async fn fault_u13_whole_answer_cut_short() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{\"id\":\"chatcmpl-1\"";
    for script in [
        Script::new().raw(head).fin(),
        Script::new()
            .raw(head)
            .sleep(Duration::from_millis(30))
            .rst(),
    ] {
        let failure = World::answer(script, Setup::new().allow_errors(), &Request::plain(""))
            .await
            .failure();
        let code = failure.strip_prefix("502 server_error ").expect(&failure);
        assert!(
            [
                "upstream_incomplete",
                "upstream_reset",
                "upstream_invalid_response"
            ]
            .contains(&code)
        );
    }
}

#[tokio::test]
async fn fault_u12b_tokens_that_come_together_with_the_cut() {
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let script = Script::stream()
            .tok("a", 6, Duration::ZERO)
            .in_one_write()
            .close(manner);
        let world = World::start(script, Setup::new().allow_errors()).await;
        let expected = Canonical::new().role().tok("a", 6).error(INCOMPLETE);
        for round in 0..100 {
            check(
                &world.stream("").await,
                &expected,
                &format!("{manner:?}, round {round}"),
            );
        }
        world.end().await;
    }
}

/// A burst of tokens and a cut, in a stream that is already running.
#[tokio::test]
async fn fault_u12b_burst_and_cut_in_a_running_stream() {
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let burst = Script::new()
            .tok("b", 6, Duration::ZERO)
            .in_one_write()
            .close(manner);
        let begun = Script::stream()
            .tok("a", 1, Duration::ZERO)
            .sleep(Duration::from_millis(5));
        let world = World::start(begun.followed_by(burst), Setup::new().allow_errors()).await;
        let expected = Canonical::new()
            .role()
            .tok("a", 1)
            .tok("b", 6)
            .error(INCOMPLETE);
        for round in 0..100 {
            check(
                &world.stream("").await,
                &expected,
                &format!("{manner:?}, round {round}"),
            );
        }
        world.end().await;
    }
}

/// Returns the outcome of a stream whose events are cut after the bytes `sse`: the client's text, or the error
/// code.
fn cut_outcome(sse: &str) -> Result<String, &'static str> {
    let mut canonical = Canonical::new();
    let (mut finished, mut seen) = (false, false);
    for data in sse
        .split("\n\n")
        .map_while(|block| block.strip_prefix("data: "))
    {
        let complete = data.trim_end() == "[DONE]"
            || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok();
        if !complete {
            break;
        }
        if data.contains("\"assistant\"") {
            canonical = canonical.role();
        } else if let Some((_, text)) = data.split_once("\"content\":\"") {
            canonical = canonical.content(text.split('"').next().expect("split gives one"));
            seen = true;
        } else if data.contains("\"stop\"") {
            finished = true;
        }
    }
    match (seen, finished) {
        (false, _) => Err("upstream_incomplete"),
        (true, true) => Ok(canonical.finish("stop").done().text().to_owned()),
        (true, false) => Ok(canonical.error(INCOMPLETE).text().to_owned()),
    }
}

/// Cuts a recorded stream at every byte, in this manner.
async fn cut_everywhere(manner: CloseKind, step: usize) {
    let whole = Script::stream()
        .text("Hé")
        .text("llo 🤔")
        .finish("stop")
        .usage(3, 5)
        .done()
        .end();
    let bytes = Arc::new(whole.bytes());
    let head = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a head")
        + 4;
    let at = Arc::new(AtomicUsize::new(0));
    let (cut, recorded) = (Arc::clone(&at), Arc::clone(&bytes));
    let answering = move |_: &_| {
        Script::new()
            .raw(&recorded[..cut.load(Ordering::SeqCst)])
            .close(manner)
    };
    let world = World::start(Engine::answering(answering), Setup::new().allow_errors()).await;
    for n in (1..=bytes.len()).step_by(step) {
        at.store(n, Ordering::SeqCst);
        let answer = world.stream("").await;
        let what = format!("{manner:?} after {n} of {} bytes", bytes.len());
        let outcome = if n < head {
            Err("")
        } else {
            cut_outcome(&dechunked(&bytes[head..n]))
        };
        match outcome {
            Ok(expected) => {
                assert_eq!(
                    (answer.head.status, answer.ended),
                    (200, Ended::LastChunk),
                    "{what}: {}",
                    answer.text()
                );
                assert_eq!(answer.text(), expected, "{what}");
            }
            Err(code) => {
                assert_ne!(answer.head.status, 200, "{what}: {}", answer.text());
                let failure = answer.failure();
                let told = failure.strip_prefix("502 server_error ").expect(&failure);
                assert!(code.is_empty() || told == code, "{what}: {failure}");
            }
        }
    }
    world.end().await;
}

/// Decodes a chunked body that breaks off anywhere. An incomplete character at the end is left out.
fn dechunked(mut bytes: &[u8]) -> String {
    let mut data = Vec::new();
    while let Some(line) = bytes.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..line]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        let rest = &bytes[line + 2..];
        data.extend_from_slice(&rest[..size.min(rest.len())]);
        bytes = &rest[(size + 2).min(rest.len())..];
    }
    let valid = match std::str::from_utf8(&data) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    data.truncate(valid);
    String::from_utf8(data).expect("just checked")
}

#[tokio::test]
async fn fault_u13_cut_at_every_byte_by_fin() {
    cut_everywhere(CloseKind::Fin, 1).await;
}

#[tokio::test]
async fn fault_u12_cut_at_every_byte_by_rst() {
    cut_everywhere(CloseKind::Rst, 1).await;
}

/// The same bytes in pieces of any size give the same frames.
#[tokio::test]
async fn fault_u25_pieces_of_any_size() {
    let texts = "zwölf 🤔 \u{2028}日本";
    let expected = Canonical::new()
        .role()
        .delta("{\"content\":\"zwölf 🤔 \\u2028日本\"}", "null")
        .content("data: [DONE]\n\nevent: error\n\n")
        .finish("stop")
        .done();
    for every in [1, 2, 3, 7, 64, 1000] {
        let script = Script::stream()
            .text(texts)
            .text("data: [DONE]\n\nevent: error\n\n");
        let script = script.finish("stop").usage(3, 5).done().end().split(every);
        let world = World::start(script, Setup::new()).await;
        check(
            &world.stream("").await,
            &expected,
            &format!("pieces of {every}"),
        );
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u24_line_endings() {
    let sse = events(&Script::answer("a", 3));
    let variants = [
        sse.replace('\n', "\r\n"),
        sse.replace('\n', "\r"),
        sse.replace("data: ", "data:"),
        format!("\u{feff}{sse}"),
        sse.replace(
            "data: ",
            ": comment\nid: 7\nretry: 5\nevent: message\ndata: ",
        ),
        sse.replace("\"choices\"", "\ndata: \"choices\""),
        sse.trim_end().to_owned(),
    ];
    let engine = |sse: &str| Script::new().head_sse().chunk(sse).end();
    for (n, variant) in variants.iter().enumerate() {
        for script in [engine(variant), engine(variant).split(1)] {
            let world = World::start(script, Setup::new()).await;
            check(
                &world.stream("").await,
                &Canonical::answer("a", 3),
                &format!("variant {n}"),
            );
            world.end().await;
        }
    }
}

#[tokio::test]
async fn fault_u03_reused_connection_that_has_just_closed() {
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let engine = Engine::answering(move |attempt| {
            if attempt.reused {
                Script::new().close(manner)
            } else {
                Script::answer("a", 2)
            }
        });
        let world = World::start(engine.await, Setup::new()).await;
        for round in 0..20 {
            for request in [Request::stream(""), Request::stream(r#","user":"again""#)] {
                check(
                    &world.request(&request).await,
                    &Canonical::answer("a", 2),
                    &format!("{manner:?}, round {round}"),
                );
            }
        }
        let attempts = world.engine.attempts();
        assert!(
            attempts.iter().any(|attempt| attempt.reused),
            "connections are kept, or this test tests nothing"
        );
        let fresh = attempts.iter().filter(|attempt| !attempt.reused).count();
        assert_eq!(fresh, 40, "one replay, on a fresh connection");
        world.end().await;
    }
}

#[tokio::test]
async fn fault_u03_engine_that_closes_idle_connections() {
    let world = World::start(Script::answer("a", 2).fin(), Setup::new()).await;
    for round in 0..50 {
        check(
            &world.stream("").await,
            &Canonical::answer("a", 2),
            &format!("round {round}"),
        );
    }
    world.end_after(50).await;
}

/// Engines close idle connections, sometimes at the moment the next request is sent. Ten thousand clients must not
/// notice.
#[tokio::test]
async fn fault_u03_ten_thousand_requests_around_the_time_of_the_close() {
    const CLIENTS: usize = 20;
    for (manner, requests, filling) in [
        (CloseKind::Fin, 5_000, 0),
        (CloseKind::Rst, 5_000, 0),
        (CloseKind::Fin, 200, 300_000),
    ] {
        let (served, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, races) = (Arc::clone(&served), Arc::clone(&lost));
        let engine = Engine::answering(move |attempt| {
            let n = count.fetch_add(1, Ordering::Relaxed);
            races.fetch_add(usize::from(attempt.reused), Ordering::Relaxed);
            // Some connections are kept open, the others are closed after about the time that clients wait between
            // two requests.
            let idle = Duration::from_micros(n as u64 * 7_919 % 6_000);
            if n.is_multiple_of(4) {
                Script::answer("a", 2)
            } else {
                Script::answer("a", 2).sleep(idle).close(manner)
            }
        });
        let world = World::start(engine.await, Setup::new()).await;
        let (proxy, mut clients) = (world.proxy(), tokio::task::JoinSet::new());
        for client in 0..CLIENTS {
            clients.spawn(async move {
                let request = Request::stream(&format!(r#","user":"{}""#, "x".repeat(filling)));
                let mut connection = Client::connect(proxy).await;
                for round in 0..requests / CLIENTS {
                    connection.send(&request.bytes()).await;
                    check(
                        &connection.answer().await,
                        &Canonical::answer("a", 2),
                        &format!("{manner:?}, round {round}"),
                    );
                    tokio::time::sleep(Duration::from_micros(
                        ((client * 31 + round) * 6_133 % 6_000) as u64,
                    ))
                    .await;
                }
            });
        }
        while let Some(client) = clients.join_next().await {
            client.expect("no panic");
        }
        let (asked, reused) = (served.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
        println!("{manner:?}: {requests} requests, {reused} on connections that were kept");
        assert!(
            reused > requests / 10,
            "connections are kept, or this test tests nothing"
        );
        assert!(asked <= requests + reused, "each is answered once");
        let metrics = world.samewire.metrics().await;
        assert!(
            !metrics
                .lines()
                .any(|line| line.starts_with("samewire_upstream_attempts_total")
                    && !line.contains("ok")),
            "{metrics}"
        );
        world.end().await;
    }
}
