//! Requests with wrong, ambiguous or outdated framing. An ambiguous request may be answered, but its connection is
//! closed afterwards, and the bytes after it are never treated as another request.

use crate::canonical::{Canonical, INCOMPLETE};
use crate::clients::smuggling::{End, heads};
use crate::sim::prelude::*;

/// Text that only the marker request contains.
const MARKER: &str = "smuggled";

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true}"#;

/// Returns a second request as a smuggler would hide it.
fn marker() -> String {
    let body = GOOD.replace("\"a\"", &format!("\"{MARKER}\""));
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Returns the head of a chat request with these lines, each ended by CRLF.
fn head(lines: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{lines}\r\n"
    )
}

/// Sends bytes. Returns the statuses of all responses and how the connection ended.
async fn statuses(world: &World, bytes: &[u8]) -> (Vec<u16>, End) {
    let (heads, end) = heads(world, bytes).await;
    (heads.iter().map(|head| head.status).collect(), end)
}

fn markers(world: &World) -> usize {
    world
        .engine
        .attempts()
        .iter()
        .filter(|attempt| attempt.text().contains(MARKER))
        .count()
}

#[tokio::test]
async fn fault_c14_content_length() {
    let n = GOOD.len();
    let invalid = [
        "content-length: -1\r\n".to_owned(),
        format!("content-length: +{n}\r\n"),
        format!("content-length: {n:#x}\r\n"),
        format!("content-length: {n}, {}\r\n", n + 1),
        "content-length:\r\n".to_owned(),
        "content-length: 5 5\r\n".to_owned(),
        "content-length: 5;5\r\n".to_owned(),
        "content-length: five\r\n".to_owned(),
        format!("content-length: {n}\r\ncontent-length: {}\r\n", n + 1),
        "content-length: 99999999999999999999999999\r\n".to_owned(),
        "content-length: 18446744073709551616\r\n".to_owned(),
        format!("content-length : {n}\r\n"),
        format!(" content-length: {n}\r\n"),
    ];
    let world = World::plain(Setup::new()).await;
    for lines in invalid {
        let (statuses, end) = statuses(
            &world,
            format!("{}{GOOD}{}", head(&lines), marker()).as_bytes(),
        )
        .await;
        assert!(
            matches!(statuses[..], [] | [400]) && end == End::Closed,
            "{lines:?}: {statuses:?} {end:?}"
        );
        assert_eq!(world.engine.attempt_count(), 0, "{lines:?}");
    }
    // Equal duplicates have one meaning, whether accepted or refused. The marker after the body is then a real
    // request.
    for lines in [
        format!("content-length: {n}\r\ncontent-length: {n}\r\n"),
        format!("content-length: {n}, {n}\r\n"),
    ] {
        let (statuses, _) = statuses(&world, format!("{}{GOOD}", head(&lines)).as_bytes()).await;
        assert!(
            matches!(statuses[..], [200] | [400]),
            "{lines:?}: {statuses:?}"
        );
    }
    assert!(
        world
            .engine
            .attempts()
            .iter()
            .all(|attempt| attempt.text().starts_with(&GOOD[..n - 1]))
    );
    assert_eq!(
        world.stream("").await.head.status,
        200,
        "a new connection is served"
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c14_declared_too_short() {
    let world = World::plain(Setup::new()).await;
    let n = GOOD.len() - 5;
    let bytes = format!("{}{GOOD}", head(&format!("content-length: {n}\r\n")));
    let (statuses, _) = statuses(&world, bytes.as_bytes()).await;
    assert!(matches!(statuses[..], [400] | [400, 400]), "{statuses:?}");
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c15_transfer_encoding() {
    let (n, size) = (GOOD.len(), format!("{:x}", GOOD.len()));
    let chunked = format!("{size}\r\n{GOOD}\r\n0\r\n\r\n");
    let heads = [
        "transfer-encoding: chunked\r\n".to_owned(),
        "Transfer-Encoding: Chunked\r\n".to_owned(),
        format!("content-length: {n}\r\ntransfer-encoding: chunked\r\n"),
        format!("transfer-encoding: chunked\r\ncontent-length: {n}\r\n"),
        "transfer-encoding: chunked\r\ncontent-length: 0\r\n".to_owned(),
        "content-length: 6\r\ntransfer-encoding: chunked\r\n".to_owned(),
        "transfer-encoding: chunked, identity\r\n".to_owned(),
        "transfer-encoding: identity, chunked\r\n".to_owned(),
        "transfer-encoding: identity\r\n".to_owned(),
        "transfer-encoding: xchunked\r\n".to_owned(),
        "transfer-encoding: chunkedx\r\n".to_owned(),
        "transfer-encoding: gzip, chunked\r\n".to_owned(),
        "transfer-encoding: chunked, chunked\r\n".to_owned(),
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n".to_owned(),
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n".to_owned(),
        "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n".to_owned(),
        "transfer-encoding:\tchunked\r\n".to_owned(),
        "transfer-encoding: chunked\t\r\n".to_owned(),
        "transfer-encoding: \x0bchunked\r\n".to_owned(),
        "transfer-encoding:\r\n chunked\r\n".to_owned(),
        "transfer-encoding : chunked\r\n".to_owned(),
        " transfer-encoding: chunked\r\n".to_owned(),
        "x: y\r\n transfer-encoding: chunked\r\n".to_owned(),
        "x: y\ntransfer-encoding: chunked\r\n".to_owned(),
        "transfer-encoding: \"chunked\"\r\n".to_owned(),
        "transfer-encoding: chunked;q=1\r\n".to_owned(),
        "transfer-encoding\0: chunked\r\n".to_owned(),
        "transfer_encoding: chunked\r\ntransfer-encoding: chunked\r\n".to_owned(),
        "transfer-encoding:\r\n".to_owned(),
    ];
    let world = World::plain(Setup::new()).await;
    for lines in heads {
        doubtful(
            &world,
            &format!("{}{chunked}{}", head(&lines), marker()),
            &lines,
        )
        .await;
        doubtful(
            &world,
            &format!("{}0\r\n\r\n{}", head(&lines), marker()),
            &lines,
        )
        .await;
    }
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

/// Checks that there is at most one response, that the connection is closed after it, and that the marker request
/// is lost.
async fn doubtful(world: &World, bytes: &str, what: &str) {
    let (statuses, end) = statuses(world, bytes.as_bytes()).await;
    assert!(
        matches!(statuses[..], [] | [200 | 400 | 408 | 413 | 501]),
        "{what:.80?}: {statuses:?}"
    );
    assert!(
        statuses.is_empty() || end == End::Closed,
        "{what:.80?}: the connection must end with the answer"
    );
    assert_eq!(
        markers(world),
        0,
        "{what:.80?} let a second request through"
    );
    for attempt in world.engine.attempts() {
        assert_eq!(attempt.header("transfer-encoding"), None, "{what:.80?}");
        assert_eq!(
            attempt.header("content-length"),
            Some(attempt.body.len().to_string().as_str())
        );
    }
}

#[tokio::test]
async fn fault_c15_chunk_framing() {
    let size = format!("{:x}", GOOD.len());
    let bodies = [
        format!("-1\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("0x{size}\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("+{size}\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("{size:0>17}\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("ffffffffffffffff1\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("ffffffffffffffff\r\n{GOOD}\r\n0\r\n\r\n"),
        format!(" {size}\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("{size} \r\n{GOOD}\r\n0\r\n\r\n"),
        format!("{size}\n{GOOD}\r\n0\r\n\r\n"),
        format!("{size}\r\n{GOOD}\n0\r\n\r\n"),
        format!("{size}\r\n{GOOD}0\r\n\r\n"),
        format!("{size}\r\n{GOOD}xx\r\n0\r\n\r\n"),
        format!("{size};a=b\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("{size};{}\r\n{GOOD}\r\n0\r\n\r\n", "e".repeat(1 << 20)),
        format!("{size};a\nb\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("\r\n{size}\r\n{GOOD}\r\n0\r\n\r\n"),
        format!("{size}\r\n{GOOD}\r\n0\r\ncontent-length: 5\r\n\r\n"),
        format!("{size}\r\n{GOOD}\r\n0\r\nhost: evil\r\n\r\n"),
        format!(
            "{size}\r\n{GOOD}\r\n0\r\ntransfer-encoding: chunked\r\nx: {}\r\n\r\n",
            "t".repeat(100_000)
        ),
        format!("{size}\r\n{GOOD}\r\n00\r\n\r\n"),
        format!("{size}\r\n{GOOD}\r\n0\r\n"),
        format!("{size}\r\n{GOOD}\r\n"),
        "g\r\n".to_owned(),
    ];
    let world = World::plain(Setup::new()).await;
    for body in bodies {
        doubtful(
            &world,
            &format!(
                "{}{body}{}",
                head("transfer-encoding: chunked\r\n"),
                marker()
            ),
            &body,
        )
        .await;
    }
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

#[tokio::test]
async fn fault_c15_chunked_request_is_served_and_its_connection_closed() {
    let world = World::plain(Setup::new()).await;
    for size in [1, 7, 1 << 20] {
        let mut client = world.send(&Request::chat(GOOD).chunked(size)).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.head.status, answer.head.header("connection")),
            (200, Some("close")),
            "{}",
            answer.text()
        );
        assert!(client.closes().await);
    }
    let refused = world.request(&Request::chat("{").chunked(1)).await;
    assert_eq!(
        (refused.head.status, refused.head.header("connection")),
        (400, Some("close"))
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c16_http_1_0() {
    let world = World::plain(Setup::new()).await;
    for keep_alive in [false, true] {
        let request = Request::stream("").version("HTTP/1.0");
        let request = if keep_alive {
            request.header("connection", "keep-alive")
        } else {
            request.without("host")
        };
        let answer = world.request(&request).await.with_status(200);
        assert_eq!(answer.head.header("transfer-encoding"), None);
        assert_eq!(answer.ended, Ended::Close, "the close ends the body");
        assert_eq!(answer.text(), Canonical::answer("a", 1).text());
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c16_http_1_0_is_told_of_failures() {
    let cut = Script::stream().tok("a", 2, Duration::ZERO).fin();
    let refusal = r#"{"error":{"message":"no","type":"server_error","code":null}}"#;
    let fails = Script::new().json("500 Internal Server Error", refusal);
    let world = World::start(
        Engine::in_turn(vec![cut, fails]),
        Setup::new().allow_errors(),
    )
    .await;
    let request = Request::stream("").version("HTTP/1.0").without("host");
    let answer = world.request(&request).await;
    assert_eq!(
        (answer.head.status, answer.ended),
        (200, Ended::Close),
        "{}",
        answer.text()
    );
    assert_eq!(answer.head.header("transfer-encoding"), None);
    assert_eq!(
        answer.text(),
        Canonical::new().role().tok("a", 2).error(INCOMPLETE).text()
    );
    let mut client = world.send(&request).await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.head.status, answer.fault().kind.as_str()),
        (500, "server_error")
    );
    assert_eq!(answer.head.header("transfer-encoding"), None);
    assert!(client.closes().await);
    world.end().await;
}

#[tokio::test]
async fn fault_c16_other_versions() {
    let world = World::plain(Setup::new()).await;
    let requests = [
        "GET /v1/models\r\n\r\n".to_owned(),
        "GET /v1/models\r\n".to_owned(),
        format!(
            "POST /v1/chat/completions HTTP/3.7\r\nhost: x\r\ncontent-length: {}\r\n\r\n{GOOD}",
            GOOD.len()
        ),
        format!(
            "POST /v1/chat/completions http/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{GOOD}",
            GOOD.len()
        ),
        "POST  /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "PO ST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03\r\n\r\n".to_owned(),
    ];
    for request in requests {
        let (statuses, _) = statuses(&world, request.as_bytes()).await;
        assert!(
            matches!(statuses[..], [] | [400 | 505]),
            "{request:?}: {statuses:?}"
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c18_oversized_heads() {
    let world = World::plain(Setup::new()).await;
    let fields = |n: usize| (0..n).map(|i| format!("x-{i}: y\r\n")).collect::<String>();
    let rows = [
        (head(&format!("x: {}\r\n", "v".repeat(40 * 1024))), 431),
        (head(&fields(200)), 431),
        (
            head("").replace(
                "/v1/chat/completions",
                &format!("/v1/{}", "p".repeat(70_000)),
            ),
            414,
        ),
        (
            head("").replace(
                "/v1/chat/completions",
                &format!("/v1/{}", "p".repeat(9 * 1024)),
            ),
            414,
        ),
    ];
    for (request, expected) in rows {
        let (statuses, end) = statuses(&world, request.as_bytes()).await;
        let fits = |status: &u16| *status == expected || (expected == 414 && *status == 431);
        assert!(
            statuses.len() <= 1 && statuses.iter().all(fits),
            "{request:.60?}: {statuses:?}"
        );
        assert_eq!(end, End::Closed, "{request:.60?}: {statuses:?}");
    }
    let within = head(&format!(
        "x: {}\r\ncontent-length: {}\r\nconnection: close\r\n",
        "v".repeat(20 * 1024),
        GOOD.len()
    ));
    assert_eq!(
        statuses(&world, format!("{within}{GOOD}").as_bytes())
            .await
            .0,
        [200]
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c20_control_characters_in_the_head() {
    let world = World::plain(Setup::new()).await;
    let table: [&[u8]; 12] = [
        b"x-a: b\0c\r\n",
        b"x-a: b\rc\r\n",
        b"x-a\x7f: b\r\n",
        b"x a: b\r\n",
        b": b\r\n",
        b"x-request-id: a\x01b\r\n",
        "x-a: 😀\r\n".as_bytes(),
        "user-agent: Zoë\r\n".as_bytes(),
        b"x-a: caf\xe9\r\n",
        "x-é: a\r\n".as_bytes(),
        "x-request-id: é\r\n".as_bytes(),
        "authorization: Bearer ü\r\n".as_bytes(),
    ];
    for line in table {
        let mut bytes = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n",
            GOOD.len()
        )
        .into_bytes();
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(format!("\r\n{GOOD}").as_bytes());
        let (statuses, end) = statuses(&world, &bytes).await;
        assert!(
            matches!(statuses[..], [] | [400]) && end == End::Closed,
            "{line:?}: {statuses:?}"
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c38_pipelined_requests_are_answered_in_order() {
    let engine = Engine::answering(|attempt| {
        let name = if attempt.text().contains("second") {
            "second"
        } else {
            "first"
        };
        Script::stream()
            .tok(name, 5, Duration::from_millis(5))
            .stop()
    });
    let world = World::start(engine.await, Setup::new()).await;
    let mut client = Client::connect(world.proxy()).await;
    let second = Request::chat(GOOD.replace("\"a\"", "\"second\""));
    client
        .send(&[Request::chat(GOOD).bytes(), second.bytes()].concat())
        .await;
    for name in ["first", "second"] {
        let answer = client.answer().await;
        assert_eq!(answer.text(), Canonical::answer(name, 5).text());
        assert_eq!(answer.ended, Ended::LastChunk);
    }
    // A malformed second request: the first response is complete, then the connection is closed.
    let mut client = Client::sending(
        world.proxy(),
        &[Request::chat(GOOD).bytes(), b"GARBAGE\r\n\r\n".to_vec()].concat(),
    )
    .await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.text(), answer.ended),
        (Canonical::answer("first", 5).text(), Ended::LastChunk)
    );
    let next = client.try_head().await.map(|head| head.status);
    assert!(matches!(next, None | Some(400)), "{next:?}");
    assert!(client.closes().await);
    world.end().await;
}

/// The second request may be read ahead completely or in part.
#[tokio::test]
async fn fault_c38_a_second_request_while_the_first_is_answered() {
    for size in [200, 20_000] {
        let gate = Gate::default();
        let first = Script::stream()
            .text("first.0 ")
            .wait(&gate)
            .text("first.1 ");
        let first = first.stop();
        let engine = Engine::answering(move |attempt| match attempt.text() {
            text if text.contains("second") => Script::answer("second", 2),
            text if text.contains("another") => Script::answer("another", 1),
            _ => first.clone(),
        });
        let world = World::start(engine.await, Setup::new()).await;
        let mut client = world.begin_until(&Request::chat(GOOD), "first.0").await;
        let text = format!("\"second{}\"", "x".repeat(size));
        client
            .send(&Request::chat(GOOD.replace("\"a\"", &text)).bytes())
            .await;
        // Leaves time for the engine to continue, if it wrongly did.
        for _ in 0..20 {
            let answer = world.chat(GOOD.replace("\"a\"", "\"another\"")).await;
            assert_eq!(answer.text(), Canonical::answer("another", 1).text());
        }
        let seconds = || {
            world
                .engine
                .attempts()
                .iter()
                .filter(|a| a.text().contains("second"))
                .count()
        };
        assert_eq!(seconds(), 0, "{size}: not before the first has its answer");
        gate.open();
        let rest = String::from_utf8(client.rest().await).unwrap();
        assert_eq!(
            rest,
            Canonical::new()
                .content("first.1 ")
                .finish("stop")
                .done()
                .text(),
            "{size}"
        );
        assert_eq!(client.ended(), Ended::LastChunk, "{size}");
        let answer = client.answer().await;
        assert_eq!(
            (answer.text(), answer.ended),
            (Canonical::answer("second", 2).text(), Ended::LastChunk)
        );
        assert_eq!(seconds(), 1, "{size}");
        let attempts = world.engine.attempts();
        let second = attempts
            .iter()
            .find(|attempt| attempt.text().contains("second"))
            .unwrap();
        assert!(second.text().contains(&text), "{size}: whole");
        world.end().await;
    }
}

#[tokio::test]
async fn prompt_text_in_a_bad_request_stays_out_of_the_answer() {
    let world = World::plain(Setup::new()).await;
    let body = format!(
        r#"{{"model":"m","messages":{},"stream":true}}"#,
        json_string(PROMPT)
    );
    assert!(
        !world
            .chat(body)
            .await
            .with_status(400)
            .text()
            .contains(PROMPT)
    );
    world.end().await;
}
