//! Request bodies that are too large, that continue after a refusal, that are compressed, or full of digits: upper
//! bounds of their cost.

use crate::clients::keys::{entry, with};
use crate::sim::prelude::*;
use tokio::task::JoinSet;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Routes that take a body, each with whether its limit is that of chat.
const POSTS: [(&str, bool); 16] = [
    ("/v1/chat/completions", true),
    ("/openai/v1/chat/completions", true),
    (
        "/openai/deployments/m/chat/completions?api-version=2024-10-21",
        true,
    ),
    ("/v1/completions", false),
    ("/openai/v1/completions", false),
    (
        "/openai/deployments/m/completions?api-version=2024-10-21",
        false,
    ),
    ("/v1/embeddings", false),
    ("/openai/v1/embeddings", false),
    ("/v1/responses", true),
    ("/openai/v1/responses", true),
    ("/v1/responses/compact", true),
    ("/v1/responses/input_tokens", true),
    ("/v1/responses/resp_1/tool_outputs", true),
    ("/v1/conversations", true),
    ("/v1/conversations/conv_1", true),
    ("/v1/conversations/conv_1/items", true),
];

/// Returns a head that announces this many bytes, without a body.
fn declared(target: &str, length: usize) -> Request {
    Request::post(target, "")
        .without("content-length")
        .header("content-length", &length.to_string())
}

fn is_too_large(answer: &Answer, what: &str) {
    assert_eq!(
        answer.failure(),
        "413 invalid_request_error request_too_large",
        "{what}"
    );
    assert_eq!(answer.head.header("connection"), Some("close"), "{what}");
}

#[tokio::test]
async fn fault_c05_every_route_has_its_limit() {
    let (chat, other) = (8 * KIB, 2 * KIB);
    let world = World::configured(&format!(
        "[limits]\nmax_body_bytes = {chat}\nother_body_bytes = {other}"
    ))
    .await;
    for (target, is_chat) in POSTS {
        let limit = if is_chat { chat } else { other };
        for length in [limit - 1, limit] {
            let body = " ".repeat(length);
            for request in [
                Request::post(target, body.clone()),
                Request::post(target, body.clone()).chunked(1),
                Request::post(target, body).chunked(MIB),
            ] {
                let answer = world.request(&request).await;
                assert!(
                    matches!(answer.head.status, 400 | 404),
                    "{length} at {target}: it is the content that is judged, not {} {}",
                    answer.head.status,
                    answer.text()
                );
            }
        }
        // An announced length is judged before any byte of the body.
        for length in [limit + 1, usize::MAX / 4] {
            is_too_large(&world.request(&declared(target, length)).await, target);
        }
        let body = " ".repeat(limit + 1);
        for size in [1, MIB] {
            let mut client = Client::connect(world.proxy()).await;
            client
                .try_send(&Request::post(target, body.clone()).chunked(size).bytes())
                .await;
            is_too_large(&client.answer().await, target);
        }
    }
    world.end_after(0).await;
}

/// The length of a chunked body is unknown in advance: it is refused when it exceeds the limit.
#[tokio::test]
async fn fault_c05_no_more_is_kept_than_may_be() {
    const LIMIT: usize = 4 * MIB;
    const CLIENTS: usize = 8;
    let world = World::configured(&format!("[limits]\nmax_body_bytes = {LIMIT}")).await;
    let before = world.samewire.allocated();
    let proxy = world.proxy();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(async move {
            let mut client = Client::connect(proxy).await;
            let head = Request::chat("")
                .without("content-length")
                .header("transfer-encoding", "chunked");
            client.send(&head.head_bytes()).await;
            let chunk = [b"10000\r\n".as_slice(), &[b' '; 64 * KIB], b"\r\n"].concat();
            let mut taken = 0;
            while taken < 64 * MIB && client.try_send(&chunk).await {
                taken += 64 * KIB;
            }
            taken
        });
    }
    let mut most = 0;
    while let Some(taken) = clients.join_next().await {
        let taken = taken.expect("no panic");
        // The kernel's buffers come on top.
        assert!(taken < LIMIT + 24 * MIB, "{taken} bytes were taken");
        most = most.max(world.samewire.allocated().saturating_sub(before));
    }
    println!("grew by {most}");
    assert!(most < (CLIENTS * 2 * LIMIT) as u64, "{most}");
    world.end_after(0).await;
}

/// Sends a request that is refused and continues to send. Returns the answer, and how many bytes were taken for how
/// long after it.
async fn upload(
    world: &World,
    request: &Request,
    piece: usize,
    pause: Duration,
    most: usize,
) -> (Answer, usize, Duration) {
    let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
    let head = client.head().await;
    let (body, answered) = (client.rest().await, Instant::now());
    let answer = Answer {
        head,
        body,
        ended: client.ended(),
        waited: Duration::ZERO,
    };
    let piece = vec![b' '; piece];
    let mut taken = 0;
    while taken < most && client.try_send(&piece).await {
        taken += piece.len();
        tokio::time::sleep(pause).await;
    }
    (answer, taken, answered.elapsed())
}

#[tokio::test]
async fn fault_c06_whatever_was_refused_is_read_no_further() {
    const UPLOAD: usize = 200 * MIB;
    let gate = Gate::default();
    let script = Script::stream().text("a").wait(&gate).stop();
    let setup = Setup::new().config(&format!("{}\n[limits]\nrequests = 1", entry(KEY, "")));
    let world = World::start(script, setup).await;
    let mut running = Client::connect(world.proxy()).await;
    let long = declared("/v1/chat/completions", UPLOAD);
    let fits = declared("/v1/chat/completions", 20 * MIB);
    let chunks = Request::chat("")
        .without("content-length")
        .header("transfer-encoding", "chunked");
    let mut rows = vec![
        (413, long.clone()),
        (401, with(&long, "sk-CANARY-wrong")),
        (401, long.clone().without("authorization")),
        (401, with(&chunks, "sk-CANARY-wrong")),
        (
            415,
            fits.clone()
                .without("content-type")
                .header("content-type", "text/plain"),
        ),
        (415, fits.clone().header("content-encoding", "gzip")),
        (404, long.clone().target("/v1/nothing")),
    ];
    for round in 0..2 {
        for (status, request) in &rows {
            let before = world.samewire.allocated();
            // At full speed: the kernel's buffers take a limited number of bytes more.
            let (answer, taken, took) =
                upload(&world, request, 64 * KIB, Duration::ZERO, UPLOAD).await;
            assert_eq!(
                (answer.head.status, answer.head.header("connection")),
                (*status, Some("close"))
            );
            assert!(
                taken < UPLOAD / 4,
                "{status}: samewire reads on: {taken} bytes"
            );
            assert!(took < PATIENCE, "{status}: {took:?}");
            let grown = world.samewire.allocated().saturating_sub(before);
            assert!(
                grown < 4 << 20,
                "{status}: {grown} bytes of memory are kept"
            );
            // Too slow for the kernel's buffers to fill: at most 64 KiB are taken, and the bytes sent until the close
            // is noticed,
            let (_, taken, _) =
                upload(&world, request, 2 * KIB, Duration::from_millis(5), UPLOAD).await;
            assert!(
                taken <= 256 * KIB,
                "{status}: {taken} bytes after the answer"
            );
            // and none after a second.
            let (_, _, took) = upload(&world, request, 1, Duration::from_millis(20), 10_000).await;
            assert!(took < PATIENCE, "{status}: {took:?} after the answer");
        }
        if round == 0 {
            running.send(&Request::stream("").bytes()).await;
            running.head().await;
            rows = vec![(503, fits.clone())];
        }
    }
    gate.open();
    running.event_with("[DONE]").await;
    running.rest().await;
    world.end_after(1).await;
}

/// 10 GiB of zeros, compressed twice.
const BOMB: &[u8] = include_bytes!("bomb.gz.gz");

#[tokio::test]
async fn fault_c10_nothing_is_ever_unpacked() {
    let world = World::configured("").await;
    // A first request, so that memory allocated once is not counted.
    world
        .request(&Request::chat(BOMB).header("content-encoding", "gzip"))
        .await;
    let (before, cpu) = (world.samewire.allocated(), world.samewire.cpu());
    let encodings = [
        "gzip",
        "gzip, gzip",
        "deflate",
        "br",
        "zstd",
        "identity, gzip",
        "gzip, identity",
        "compress",
        "x",
        "",
        ",",
    ];
    for encoding in encodings {
        for request in [Request::chat(BOMB), Request::chat(BOMB).chunked(1_000)] {
            let answer = world
                .request(&request.header("content-encoding", encoding))
                .await;
            assert_eq!(
                answer.failure(),
                "415 invalid_request_error unsupported_content_encoding",
                "{encoding:?}"
            );
        }
    }
    assert_eq!(
        world.chat(BOMB).await.fault().code.as_deref(),
        Some("invalid_utf8")
    );
    // Two header lines form one list, and a compressed transfer coding is refused as well.
    let twice = Request::chat(BOMB)
        .header("content-encoding", "identity")
        .header("content-encoding", "gzip");
    assert_eq!(world.request(&twice).await.head.status, 415);
    let packed = Request::chat(BOMB)
        .chunked(1_000)
        .without("transfer-encoding");
    let mut client = Client::connect(world.proxy()).await;
    client
        .try_send(&packed.header("transfer-encoding", "gzip, chunked").bytes())
        .await;
    let status = client.try_head().await.map(|head| head.status);
    assert!(matches!(status, None | Some(400 | 501)), "{status:?}");
    assert!(
        world.samewire.allocated() < before + (4 << 20),
        "{before} -> {}",
        world.samewire.allocated()
    );
    let cpu = world.samewire.cpu() - cpu;
    assert!(cpu < Duration::from_secs(2), "{cpu:?}");
    world.end_after(0).await;
}

/// Long numbers cost no more than other text, wherever they are: they are not converted.
#[tokio::test]
async fn fault_c03_digits_cost_no_more_than_text() {
    const ROUNDS: u32 = 5;
    let world = World::configured("").await;
    let cost = async |value: &str, field: &str, status: u16| {
        let request = Request::stream(&format!(r#","{field}":{value}"#));
        let before = world.samewire.cpu();
        for _ in 0..ROUNDS {
            assert_eq!(world.request(&request).await.head.status, status, "{field}");
        }
        world.samewire.cpu() - before
    };
    let text = cost(&format!("\"{}\"", "x".repeat(MIB)), "carried", 200).await;
    let digits = "7".repeat(MIB);
    let bound = text * 6 + Duration::from_millis(200);
    for value in [
        &digits,
        &format!("0.{digits}"),
        &format!("-{digits}e-{digits}"),
        "1e999999999",
    ] {
        let carried = cost(value, "carried", 200).await;
        let read = cost(
            value,
            "temperature",
            if value.starts_with("0.") { 200 } else { 400 },
        )
        .await;
        println!(
            "{:.12}…: {carried:?} carried, {read:?} read, as text {text:?}",
            value
        );
        assert!(
            carried < bound && read < bound,
            "{carried:?} {read:?}, as text {text:?}"
        );
    }
    if !cfg!(debug_assertions) {
        assert!(text < ROUNDS * Duration::from_millis(10), "{text:?}");
    }
    world.end().await;
}
