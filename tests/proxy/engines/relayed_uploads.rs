//! Long bodies on relayed routes: their memory, back pressure in both directions, and bodies that break off.

use crate::sim::h2::{H2Behaviour, H2Engine};
use crate::sim::prelude::*;
use crate::sim::{Chunks, Piece};
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const MIB: usize = 1 << 20;

/// Behaviour of the engine towards a request body: how much it reads, and when it answers.
#[derive(Clone)]
enum UploadBehaviour {
    /// Reads all of it and answers.
    Takes,
    /// Reads this many bytes, waits for the gate, and continues.
    Waits(usize, Gate),
    /// Reads this many bytes and answers with this text, without reading further.
    Answers(usize, &'static str),
    /// Reads this many bytes, starts to answer with this text, and continues to read.
    Begins(usize, &'static str),
}

#[derive(Default)]
struct Seen {
    requests: AtomicUsize,
    /// Number of body bytes received.
    taken: AtomicUsize,
    /// Checksum over the bytes and their positions.
    sum: AtomicU64,
    /// True once a body has been received completely.
    whole: AtomicBool,
    /// Time at which a connection ended in the middle of a body.
    broken: Mutex<Option<Instant>>,
    head: Mutex<String>,
}

/// Engine that discards the bodies it receives, and counts and sums their bytes.
struct DiscardingEngine {
    address: SocketAddr,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

impl Drop for DiscardingEngine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl DiscardingEngine {
    async fn start(does: UploadBehaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, seen) = (
            listener.local_addr().expect("bound"),
            Arc::<Seen>::default(),
        );
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, does.clone(), Arc::clone(&shared)));
            }
        });
        Self {
            address,
            seen,
            task,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn taken(&self) -> usize {
        self.seen.taken.load(Ordering::SeqCst)
    }

    fn head(&self) -> String {
        self.seen.head.lock().expect("no panic").clone()
    }
}

fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

async fn serve(mut stream: TcpStream, does: UploadBehaviour, seen: Arc<Seen>) {
    let mut inbox = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = inbox.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            let mut space = [0; 4096];
            match stream.read(&mut space).await {
                Ok(0) | Err(_) => return,
                Ok(count) => inbox.extend_from_slice(&space[..count]),
            }
        };
        let body = inbox.split_off(end);
        let head = String::from_utf8(std::mem::replace(&mut inbox, body))
            .expect("ASCII")
            .to_ascii_lowercase();
        if head.starts_with("get ") {
            let _ = stream.write_all(PROBED.as_bytes()).await;
            continue;
        }
        seen.requests.fetch_add(1, Ordering::SeqCst);
        take(&mut stream, std::mem::take(&mut inbox), &head, &does, &seen).await;
        return;
    }
}

const PROBED: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 35\r\n\r\n{\"object\":\"list\",\"data\":[{\"id\":1}]}";

async fn take(
    stream: &mut TcpStream,
    first: Vec<u8>,
    head: &str,
    does: &UploadBehaviour,
    seen: &Seen,
) {
    *seen.head.lock().expect("no panic") = head.to_owned();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let mut chunks = length.is_none().then(Chunks::default);
    let (mut space, mut piece, mut taken, mut paused) = (vec![0; 64 << 10], first, 0, false);
    loop {
        let mut data = Vec::new();
        let mut is_last = false;
        match &mut chunks {
            None => data = std::mem::take(&mut piece),
            Some(chunks) => {
                chunks.feed(&std::mem::take(&mut piece));
                loop {
                    match chunks.next() {
                        Piece::Data(more) => data.extend(more),
                        Piece::Wait => break,
                        Piece::Last(_) => {
                            is_last = true;
                            break;
                        }
                    }
                }
            }
        }
        taken += data.len();
        seen.taken.fetch_add(data.len(), Ordering::SeqCst);
        seen.sum.store(
            add(seen.sum.load(Ordering::SeqCst), &data),
            Ordering::SeqCst,
        );
        if is_last || length == Some(taken) {
            seen.whole.store(true, Ordering::SeqCst);
            break;
        }
        match does {
            UploadBehaviour::Waits(most, gate) if taken >= *most && !paused => {
                paused = true;
                gate.wait().await;
            }
            UploadBehaviour::Answers(most, answer) if taken >= *most => {
                let _ = stream.write_all(answer.as_bytes()).await;
                // A close with unread bytes is a reset, which would overtake the answer.
                if !answer.is_empty() {
                    tokio::time::sleep(PATIENCE).await;
                }
                return;
            }
            UploadBehaviour::Begins(most, answer) if taken >= *most && !paused => {
                paused = true;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
            _ => {}
        }
        match stream.read(&mut space).await {
            Ok(count @ 1..) => piece = space[..count].to_vec(),
            _ => {
                *seen.broken.lock().expect("no panic") = Some(Instant::now());
                return;
            }
        }
    }
    let answer: &[u8] = match does {
        UploadBehaviour::Begins(..) => b"0\r\n\r\n",
        _ => {
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"text\":\"a\"}"
        }
    };
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
}

async fn world(sink: &DiscardingEngine, setup: Setup) -> World {
    World::start(Script::new(), setup.upstream(&sink.url())).await
}

const FRONT: &str = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
const BACK: &str = "\r\n--b--\r\n";

fn head(length: Option<usize>) -> Request {
    let request = Request::new("POST", "/v1/audio/transcriptions")
        .header("content-type", "multipart/form-data; boundary=b");
    match length {
        Some(length) => request.header("content-length", &length.to_string()),
        None => request.header("transfer-encoding", "chunked"),
    }
}

fn framed(chunked: bool, bytes: &[u8]) -> Vec<u8> {
    if chunked {
        [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
    } else {
        bytes.to_vec()
    }
}

fn audio(n: usize) -> Vec<u8> {
    (0..64 << 10)
        .map(|at| ((at * 31 + n * 17) % 253) as u8)
        .collect()
}

#[tokio::test]
async fn fault_c27b_two_hundred_megabytes_pass_in_bounded_memory() {
    const PIECES: usize = 3200;
    let length = FRONT.len() + PIECES * (64 << 10) + BACK.len();
    assert!(length > 200 * MIB);
    for chunked in [false, true] {
        let sink = DiscardingEngine::start(UploadBehaviour::Takes).await;
        let world = world(&sink, Setup::new()).await;
        world.post("/rerank", "{}").await;
        let (already, requests) = (sink.taken(), sink.seen.requests.load(Ordering::SeqCst));
        sink.seen.sum.store(0, Ordering::SeqCst);
        let before = world.samewire.allocated();
        let mut client = Client::sending(
            world.proxy(),
            &head((!chunked).then_some(length)).head_bytes(),
        )
        .await;
        let (mut sum, mut most) = (0, 0);
        let last = BACK.as_bytes().to_vec();
        let pieces = std::iter::once(FRONT.as_bytes().to_vec())
            .chain((0..PIECES).map(audio))
            .chain([last]);
        for (n, piece) in pieces.enumerate() {
            sum = add(sum, &piece);
            client.send(&framed(chunked, &piece)).await;
            if n % 100 == 0 {
                most = most.max(world.samewire.allocated().saturating_sub(before));
            }
        }
        if chunked {
            client.send(b"0\r\n\r\n").await;
        }
        let answer = client.answer().await;
        assert_eq!(
            (answer.head.status, answer.text()),
            (200, "{\"text\":\"a\"}")
        );
        assert_eq!(sink.taken() - already, length);
        assert_eq!(sink.seen.sum.load(Ordering::SeqCst), sum, "byte for byte");
        assert_eq!(sink.seen.requests.load(Ordering::SeqCst), requests + 1);
        let framing = if chunked {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {length}")
        };
        assert!(sink.head().contains(&framing), "{}", sink.head());
        println!("grew by {most}");
        assert!(most < 8 * MIB as u64, "grew by {most}");
        let line = world.samewire.finished(2).await.remove(1);
        assert!(
            line.contains(&format!(r#""request_bytes":{length}"#)),
            "{line}"
        );
        world.end().await;
    }
}

/// Sends until no more bytes are taken for a while. Returns how many were taken.
async fn fill(client: &mut Client, most: usize) -> usize {
    let (piece, mut taken) = (audio(0), 0);
    while taken < most {
        let sent = tokio::time::timeout(Duration::from_millis(700), client.try_send(&piece)).await;
        match sent {
            Ok(true) => taken += piece.len(),
            _ => break,
        }
    }
    taken
}

#[tokio::test]
async fn a_slow_engine_slows_the_client_and_is_left_with_it() {
    for manner in [CloseKind::Fin, CloseKind::Rst] {
        let gate = Gate::default();
        let sink = DiscardingEngine::start(UploadBehaviour::Waits(MIB, gate.clone())).await;
        let world = world(&sink, Setup::new()).await;
        let before = world.samewire.allocated();
        let mut client = Client::sending(world.proxy(), &head(Some(500 * MIB)).head_bytes()).await;
        client.send(FRONT.as_bytes()).await;
        // The close of a connection comes after the bytes sent before it: a client that has left is noticed when
        // all bytes are read, or at once if it has reset its connection.
        let most = if manner == CloseKind::Rst {
            200 * MIB
        } else {
            2 * MIB
        };
        let taken = fill(&mut client, most).await;
        assert!(
            taken < 60 * MIB,
            "{taken} bytes although the engine takes none"
        );
        let grown = world.samewire.allocated().saturating_sub(before);
        assert!(grown < 8 * MIB as u64, "grew by {grown}");
        let left = client.leave(manner);
        let line = world.samewire.finished(1).await.remove(0);
        let noticed = left.elapsed();
        assert!(noticed < SOON, "{noticed:?}");
        assert!(line.contains(r#""upstream":"#), "{line}");
        assert!(
            line.contains(r#""end":"client_closed""#) || manner == CloseKind::Fin,
            "{line}"
        );
        gate.open();
        until("the engine sees it", || {
            sink.seen.broken.lock().expect("no panic").is_some()
        })
        .await;
        assert!(
            !sink.seen.whole.load(Ordering::SeqCst),
            "half a body does not look like a whole one"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn an_engine_that_answers_early_is_heard() {
    let refusal = "HTTP/1.1 413 Too Large\r\ncontent-type: application/json\r\ncontent-length: 24\r\n\r\n{\"detail\":\"Too long: 1\"}";
    let sink = DiscardingEngine::start(UploadBehaviour::Answers(MIB, refusal)).await;
    let world = world(&sink, Setup::new()).await;
    for chunked in [false, true] {
        let mut client = Client::sending(
            world.proxy(),
            &head((!chunked).then_some(500 * MIB)).head_bytes(),
        )
        .await;
        client.send(&framed(chunked, FRONT.as_bytes())).await;
        let piece = framed(chunked, &audio(1));
        let mut sent = 0;
        while sent < 4 * MIB && client.try_send(&piece).await {
            sent += piece.len();
        }
        let answer = client.answer().await.with_status(413);
        assert!(
            answer.fault().message.contains("Too long"),
            "{}",
            answer.text()
        );
        assert_eq!(answer.head.header("connection"), Some("close"));
        assert_eq!(answer.head.header("x-samewire-attempts"), Some("1"));
    }
    world.end().await;
}

/// The answer begins while the body is still being sent, and both continue.
#[tokio::test]
async fn both_directions_at_once() {
    let begun = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
    let sink = DiscardingEngine::start(UploadBehaviour::Begins(MIB, begun)).await;
    let world = world(&sink, Setup::new()).await;
    let length = FRONT.len() + 4 * MIB;
    let mut client = Client::sending(world.proxy(), &head(Some(length)).head_bytes()).await;
    client.send(FRONT.as_bytes()).await;
    for n in 0..32 {
        client.send(&audio(n)).await;
    }
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.piece().await.as_deref(), Some(&b"one"[..]));
    for n in 32..64 {
        client.send(&audio(n)).await;
    }
    assert_eq!(client.rest().await, b"");
    assert_eq!(client.ended(), Ended::LastChunk);
    assert_eq!(sink.taken(), length);
    world.end().await;
}

/// A body that has been sent in part stays with its upstream; one that has not begun is sent to another.
#[tokio::test]
async fn an_upload_moves_only_before_it_has_begun() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let gone = format!("http://{}", nobody.local_addr().expect("bound"));
    drop(nobody);
    let sink = DiscardingEngine::start(UploadBehaviour::Takes).await;
    let config = format!(
        "[health]\ninterval = 600\n[[upstream]]\nname = \"gone\"\nurl = \"{gone}\"\nengine = \"vllm\"\nmodels = [\"m\"]\nweight = 1000\n\
         [[upstream]]\nname = \"sink\"\nurl = \"{}\"\nengine = \"vllm\"\nmodels = [\"m\"]",
        sink.url()
    );
    let engine = Engine::script(Script::new()).await;
    let mut moved = false;
    let samewire = Samewire::start(&Setup::new().config(&config)).await;
    for _ in 0..3 {
        let mut client = Client::connect(samewire.proxy).await;
        let length = FRONT.len() + 2 * MIB;
        client.send(&head(Some(length)).head_bytes()).await;
        client.send(FRONT.as_bytes()).await;
        for n in 0..32 {
            client.send(&audio(n)).await;
        }
        let answer = client.answer().await.with_status(200);
        moved |= answer.head.header("x-samewire-attempts") == Some("2");
    }
    assert!(moved, "none was sent elsewhere");
    drop(engine);
    // An upload that breaks off in the middle is reported, and not repeated.
    let broken = DiscardingEngine::start(UploadBehaviour::Answers(MIB, "")).await;
    let world = World::start(
        Script::new(),
        Setup::new().upstream(&broken.url()).allow_errors(),
    )
    .await;
    let mut client = Client::sending(world.proxy(), &head(Some(100 * MIB)).head_bytes()).await;
    client.send(FRONT.as_bytes()).await;
    for n in 0..48 {
        client.try_send(&audio(n)).await;
    }
    let answer = client.answer().await;
    assert_eq!(
        (answer.head.status, answer.fault().code.as_deref()),
        (502, Some("upstream_reset"))
    );
    assert_eq!(broken.seen.requests.load(Ordering::SeqCst), 1);
    world.end().await;
}

#[tokio::test]
async fn limits_of_uploads() {
    let sink = DiscardingEngine::start(UploadBehaviour::Takes).await;
    let config = format!(
        "[limits]\nrelay_body_bytes = {}\n[timeouts]\nclient_body_idle = 0.3\nclient_body_total = 0.5",
        2 * MIB
    );
    let world = world(&sink, Setup::new().config(&config)).await;
    let mut client = Client::sending(world.proxy(), &head(Some(2 * MIB + 1)).head_bytes()).await;
    assert_eq!(client.answer().await.head.status, 413);
    let mut client = Client::sending(world.proxy(), &head(None).head_bytes()).await;
    client.send(&framed(true, FRONT.as_bytes())).await;
    for n in 0..40 {
        client.try_send(&framed(true, &audio(n))).await;
    }
    assert_eq!(client.answer().await.head.status, 413);
    // Slow but steady: longer than other bodies may take.
    let length = FRONT.len() + 15 * 10_000;
    let mut client = Client::sending(world.proxy(), &head(Some(length)).head_bytes()).await;
    client.send(FRONT.as_bytes()).await;
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.send(&[7; 10_000]).await;
    }
    assert_eq!(client.answer().await.head.status, 200);
    // samewire does not wait for a stalled upload, neither before an engine gets the request nor after.
    for pieces in [0, 16] {
        let mut client =
            Client::sending(world.proxy(), &head(Some(2 * MIB - 1)).head_bytes()).await;
        client.send(FRONT.as_bytes()).await;
        for n in 0..pieces {
            client.send(&audio(n)).await;
        }
        let answer = client.answer().await;
        assert_eq!(
            (answer.head.status, answer.fault().code.as_deref()),
            (408, Some("request_timeout")),
            "{pieces}"
        );
    }
    // A second model after the first, when everything before it has been sent.
    let second =
        "\r\n--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nother\r\n--b--\r\n";
    let mut client = Client::sending(
        world.proxy(),
        &head(Some(FRONT.len() + MIB + second.len())).head_bytes(),
    )
    .await;
    client.send(FRONT.as_bytes()).await;
    for n in 0..16 {
        client.send(&audio(n)).await;
    }
    client.send(second.as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.head.status, answer.fault().code.as_deref()),
        (400, Some("duplicate_key"))
    );
    until("it is broken off", || {
        sink.seen.broken.lock().expect("no panic").is_some()
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn engines_of_http2_get_bodies_as_they_come() {
    let engine = H2Engine::answering(H2Behaviour::default(), |_| {
        crate::sim::h2::json(200, "{\"text\":\"a\"}")
    })
    .await;
    let nobody = Engine::script(Script::new()).await;
    let setup = Setup::new()
        .config("[health]\ninterval = 600")
        .set("parser=off")
        .upstream_at(&engine.url(), "http = \"2\"");
    let world = World::start(nobody, setup).await;
    let before = world.samewire.allocated();
    for chunked in [false, true] {
        let length = FRONT.len() + 16 * MIB + BACK.len();
        let mut client = Client::sending(
            world.proxy(),
            &head((!chunked).then_some(length)).head_bytes(),
        )
        .await;
        let pieces = std::iter::once(FRONT.as_bytes().to_vec()).chain((0..256).map(audio));
        let mut sent = Vec::new();
        for piece in pieces.chain([BACK.as_bytes().to_vec()]) {
            client.send(&framed(chunked, &piece)).await;
            sent.extend(piece);
        }
        if chunked {
            client.send(b"0\r\n\r\n").await;
        }
        let answer = client.answer().await;
        assert_eq!(
            (answer.head.status, answer.text()),
            (200, "{\"text\":\"a\"}")
        );
        assert!(
            engine.attempts().pop().expect("a request").body == sent,
            "byte for byte"
        );
    }
    let grown = world.samewire.allocated().saturating_sub(before);
    assert!(grown < 8 * MIB as u64, "grew by {grown}");
    world.samewire.finished(2).await;
    assert!(!world.samewire.logs().join("\n").contains(KEY));
    world.end().await;
}
