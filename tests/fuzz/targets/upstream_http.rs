//! Raw bytes as an engine's answer, through samewire's HTTP client: the result does not depend on how they arrive,
//! and equals a strict reading of HTTP.

use super::feed::Feed;
use samewire::config::{Config, Timeouts, UpstreamConfig};
use samewire::telemetry::Propagation;
use samewire::upstream::{ReadError, Client, Hops, Outgoing};
use std::sync::OnceLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Largest body in bytes that is read.
const LIMIT: usize = 1 << 20;

/// Result of reading an engine's answer with samewire's HTTP client.
#[derive(Debug, PartialEq)]
enum Read {
    /// Status, body, and how the body ended.
    Answer(u16, Vec<u8>, Result<(), ReadError>),
    /// Error code.
    Error(String),
}

struct World {
    runtime: Runtime,
    listener: TcpListener,
    upstream: UpstreamConfig,
    timeouts: Timeouts,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("[[upstream]]\nurl = \"http://{}\"\n", listener.local_addr().expect("an address"));
        let config = Config::read(&url, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        World { runtime, listener, upstream: config.upstreams[0].clone(), timeouts: config.timeouts }
    })
}

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let at = usize::from(feed.byte()) << 8 | usize::from(feed.byte());
    let bytes = feed.rest();
    let at = at.min(bytes.len());
    let World { runtime, .. } = world();
    let (whole, reused) = runtime.block_on(ask(&[bytes]));
    let (cut, cut_reused) = runtime.block_on(ask(&[&bytes[..at], &bytes[at..]]));
    assert_eq!(cut, whole, "cut at {at}: {}", bytes.escape_ascii());
    assert_eq!(cut_reused, reused, "cut at {at}: {}", bytes.escape_ascii());
    let expected = strictly(bytes);
    match (&whole, &expected) {
        (Read::Answer(status, body, end), Some(strict)) => {
            assert_eq!((status, body), (&strict.status, &strict.body), "{}", bytes.escape_ascii());
            assert_eq!(end.is_ok(), strict.complete, "{end:?}: {}", bytes.escape_ascii());
            // Bytes after an answer must not become the next answer.
            assert!(!reused || strict.surplus == 0 && strict.complete, "{}", bytes.escape_ascii());
        }
        (Read::Error(code), None) => {
            assert!(["upstream_reset", "upstream_invalid_response"].contains(&code.as_str()), "{code}");
            assert!(!reused);
        }
        _ => panic!("{whole:?}, strictly {expected:?}: {}", bytes.escape_ascii()),
    }
}

/// Sends a request; the engine answers with these writes and closes. Returns the result, and true if the connection
/// was kept for another request.
async fn ask(writes: &[&[u8]]) -> (Read, bool) {
    let World { listener, upstream, timeouts, .. } = world();
    let client = Client::new(upstream, timeouts);
    let request = Outgoing {
        method: "GET",
        path: "/health".into(),
        accept: Outgoing::JSON,
        content_type: None,
        authorization: None,
        request_id: "r".to_owned(),
        is_retry: false,
        hops: Hops::default(),
        trace: Propagation::Passed(Vec::new()),
        body: bytes::Bytes::new().into(),
        upload: None,
        recorder: None,
    };
    let (asked, had_read) = tokio::sync::oneshot::channel();
    let engine = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let mut buffer = [0; 1024];
        let _ = stream.read(&mut buffer).await;
        for write in writes {
            // The client closes when it has read enough, so writing may fail.
            let _ = stream.write_all(write).await;
            tokio::task::yield_now().await;
        }
        let _ = stream.shutdown().await;
        let _ = had_read.await;
    };
    let reader = async {
        let read = match client.send(&request).await {
            Err(error) => (Read::Error(error.public.code.expect("a code").into_owned()), false),
            Ok(mut answer) => {
                let status = answer.head.status;
                let (body, end) = match answer.collect(LIMIT).await {
                    Ok(body) => (body, Ok(())),
                    Err((body, broken)) => (body, Err(broken)),
                };
                let before = format!("{client:?}");
                client.give_back(answer);
                (Read::Answer(status, body.to_vec(), end), format!("{client:?}") != before)
            }
        };
        let _ = asked.send(());
        read
    };
    tokio::join!(engine, reader).1
}

/// Response as the HTTP/1.1 standard defines it, read independently of the client under test.
#[derive(Debug)]
struct Strict {
    status: u16,
    body: Vec<u8>,
    complete: bool,
    surplus: usize,
}

/// Reads the first response that is not an interim one.
fn strictly(mut bytes: &[u8]) -> Option<Strict> {
    for _ in 0..=8 {
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Response::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = parsed.parse(bytes) else { return None };
        let status = parsed.code?;
        bytes = &bytes[length..];
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        let values = |name: &str| {
            let found = parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            found.map(|field| field.value.trim_ascii().to_vec()).collect::<Vec<_>>()
        };
        let (codings, lengths) = (values("transfer-encoding"), values("content-length"));
        let over = |status, taken: usize, body: &[u8], complete| {
            Some(Strict { status, body: body.to_vec(), complete, surplus: bytes.len() - taken })
        };
        if matches!(status, 101 | 204 | 304) {
            return over(status, 0, b"", true);
        }
        if !codings.is_empty() {
            if codings.len() > 1 || !codings[0].eq_ignore_ascii_case(b"chunked") {
                return None;
            }
            let (body, taken) = chunks(bytes);
            return Some(Strict { status, body, complete: taken.is_some(), surplus: bytes.len() - taken.unwrap_or(0) });
        }
        if lengths.is_empty() {
            return over(status, bytes.len(), bytes, true);
        }
        let mut length = None;
        for value in lengths.iter().flat_map(|value| value.split(|byte| *byte == b',')) {
            let value = std::str::from_utf8(value).ok()?.trim();
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number: u64 = value.parse().ok().filter(|_| digits)?;
            if length.is_some_and(|other| other != number) {
                return None;
            }
            length = Some(number);
        }
        let length = usize::try_from(length?).unwrap_or(usize::MAX);
        let taken = length.min(bytes.len());
        return over(status, taken, &bytes[..taken], taken == length);
    }
    None
}

/// Returns the data of a chunked body, and its size in bytes if the body is complete.
fn chunks(bytes: &[u8]) -> (Vec<u8>, Option<usize>) {
    let (mut body, mut at) = (Vec::new(), 0);
    let line = |at: usize| {
        let end = bytes[at..].iter().position(|byte| *byte == b'\n')? + at;
        let line = bytes[at..end].strip_suffix(b"\r")?;
        // A line ends in CR LF and contains no other CR or LF.
        (!line.contains(&b'\r')).then_some((line, end + 1))
    };
    loop {
        let Some((size, next)) = line(at) else { return (body, None) };
        let digits = size.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let good = (1..=15).contains(&digits) && matches!(size.get(digits), None | Some(b';' | b' ' | b'\t'));
        let text = std::str::from_utf8(&size[..digits]).expect("ASCII");
        let Some(size) = usize::from_str_radix(text, 16).ok().filter(|_| good) else { return (body, None) };
        at = next;
        if size == 0 {
            break;
        }
        let here = size.min(bytes.len() - at);
        body.extend_from_slice(&bytes[at..at + here]);
        at += here;
        if here < size || !bytes[at..].starts_with(b"\r\n") {
            return (body, None);
        }
        at += 2;
    }
    loop {
        match line(at) {
            Some(([], next)) => return (body, Some(next)),
            Some((_, next)) => at = next,
            None => return (body, None),
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for head in [
        "content-length: 5\r\n\r\nhello",
        "content-length: 5\r\n\r\nhello, this is more",
        "content-length: 5\r\n\r\nhell",
        "content-length: 5, 5\r\ncontent-length: 5\r\n\r\nhello",
        "content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "content-length: +5\r\n\r\nhello",
        "connection: close\r\n\r\nto the end",
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0010;a=b\r\n, this is a body\r\n0\r\nx: y\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\nhello\r\n",
        "transfer-encoding: chunked\r\n\r\n5\r\nhell",
        "a b: c\r\n\r\n",
        "x: \u{e9}\r\n folded\r\n\r\n",
    ] {
        for (line, at) in [("HTTP/1.1 200 OK", 0_u8), ("HTTP/1.0 503 No", 17), ("HTTP/1.1 204", 60)] {
            all.push([&[0, at], format!("{line}\r\n{head}").as_bytes()].concat());
        }
    }
    for text in [
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\nwhatever",
        "HTTP/1.1 200\r\n\r\n",
        "SSH-2.0-x\r\n",
        "",
    ] {
        all.push([&[0, 9], text.as_bytes()].concat());
    }
    all
}
