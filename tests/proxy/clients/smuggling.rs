//! Requests that two parsers may read differently (`smuggling.txt`). Whatever the outcome of one, bytes hidden in
//! it or after it must never be treated as another request.

use crate::sim::Head;
use crate::sim::prelude::*;
use std::fmt::Write as _;
use tokio::time::timeout;

const CORPUS: &str = include_str!("smuggling.txt");

/// Cases that are sent at the same time.
const TOGETHER: usize = 24;

/// Silence after which samewire is assumed to wait for more bytes.
const SILENCE: Duration = Duration::from_millis(1_500);

/// Returns a request body of constant length that names the case, and which of its two requests it is.
fn body(name: &str, case: usize) -> String {
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{name}-{case:03}"}}],"stream":true}}"#
    )
}

/// Returns a request as a smuggler would hide it.
fn marker(case: usize) -> String {
    let body = body("marker", case);
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Outcome of a case and of the marker request after it: which of the two reached the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    One,
    Next,
    Two,
}

struct Case {
    number: usize,
    allowed: &'static [Outcome],
    name: &'static str,
    bytes: Vec<u8>,
}

impl Case {
    /// Returns true if a line of the head starts like Transfer-Encoding.
    fn is_coded(&self) -> bool {
        let text = String::from_utf8_lossy(&self.bytes).to_ascii_lowercase();
        let head = text.split("\r\n\r\n").next().unwrap_or_default();
        head.contains("\ntransfer-encoding:")
    }
}

fn cases() -> Vec<Case> {
    let lines = CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let case = |(number, line): (usize, &'static str)| {
        let mut parts = line.splitn(3, '|');
        let mut part = || {
            parts
                .next()
                .unwrap_or_else(|| panic!("three parts: {line}"))
        };
        let allowed: &[Outcome] = match part().trim() {
            "refused" => &[Outcome::Refused],
            "one" => &[Outcome::One],
            "either" => &[Outcome::Refused, Outcome::One],
            "next" => &[Outcome::Next],
            "two" => &[Outcome::Two],
            other => panic!("no verdict: {other}"),
        };
        let name = part().trim();
        // One space after the bar is a separator; further spaces belong to the case.
        let text = part();
        let bytes = unescaped(&filled(text.strip_prefix(' ').unwrap_or(text), number));
        Case {
            number,
            allowed,
            name,
            bytes,
        }
    };
    lines.enumerate().map(case).collect()
}

/// Replaces the names in braces.
fn filled(text: &str, case: usize) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let close = open
            + rest[open..]
                .find('}')
                .unwrap_or_else(|| panic!("no end: {text}"));
        out.push_str(&rest[..open]);
        out.push_str(&named(&rest[open + 1..close], case));
        rest = &rest[close + 1..];
    }
    out + rest
}

/// Returns the replacement of a name in braces.
fn named(name: &str, case: usize) -> String {
    // Replacements are inserted before escapes are read.
    let plain = |text: &str| {
        text.replace('\\', "\\\\")
            .replace('\r', "\\r")
            .replace('\n', "\\n")
    };
    let (good, marker) = (body("first", case), marker(case));
    let n = good.len();
    let chunk = |data: &str, extension: &str| format!("{:x}{extension}\r\n{data}\r\n", data.len());
    let each = |extension: &str| {
        good.chars().fold(String::new(), |mut out, letter| {
            let _ = write!(out, "{}", chunk(&letter.to_string(), extension));
            out
        })
    };
    let text = match name {
        "post" => {
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                .into()
        }
        "good" => good.clone(),
        "marker" => marker,
        "chunks" => chunk(&good, "") + "0\r\n\r\n",
        "half1" => chunk(&good[..n / 2], ""),
        "half2" => chunk(&good[n / 2..], ""),
        "bytes" => each(""),
        "bytesext" => each(";a=b"),
        "n" => n.to_string(),
        "n1" => (n + 1).to_string(),
        "nm" => (n - 1).to_string(),
        "all" => (n + marker.len()).to_string(),
        "m" => format!("{:x}", marker.len()),
        "m10" => marker.len().to_string(),
        "x" => format!("{n:x}"),
        "X" => format!("{n:X}"),
        "x1" => format!("{:x}", n + 1),
        "xm" => format!("{:x}", n - 1),
        "x16" => format!("{n:016x}"),
        "brace" => "{".into(),
        other => {
            let (what, count) = other
                .strip_prefix("rep ")
                .and_then(|rest| rest.rsplit_once(' '))
                .unwrap_or_else(|| panic!("no name: {other}"));
            return what.repeat(count.parse().expect("a count"));
        }
    };
    plain(&text)
}

/// Returns the bytes of a text with escapes.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digits = [
                    bytes.next().expect("a digit"),
                    bytes.next().expect("another"),
                ];
                u8::from_str_radix(std::str::from_utf8(&digits).expect("digits"), 16).expect("hex")
            }
            other => panic!("no escape: {other:?} in {text:.100}"),
        });
    }
    out
}

/// Way in which a connection ended: by samewire's own decision, or after the client's FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// samewire closed it by itself.
    Closed,
    /// samewire waited for more bytes and closed it after the client's FIN.
    Waited,
}

/// Sends bytes. Returns the heads of all responses and how the connection ended.
pub async fn heads(world: &World, bytes: &[u8]) -> (Vec<Head>, End) {
    let mut client = Client::connect(world.proxy()).await;
    client.try_send(bytes).await;
    let (mut heads, mut end, mut patience) = (Vec::new(), End::Closed, SILENCE);
    loop {
        match timeout(patience, client.try_head()).await {
            Ok(None) => return (heads, end),
            Ok(Some(head)) => {
                (end, patience) = (End::Closed, SILENCE);
                client.rest().await;
                // samewire may keep reading for a second, so that the response is not lost in a reset.
                if head.header("connection") == Some("close") {
                    patience = 5 * SILENCE;
                }
                heads.push(head);
            }
            Err(_) => {
                assert_eq!(end, End::Closed, "a client that has left is not waited for");
                end = End::Waited;
                client.half_close().await;
            }
        }
    }
}

/// Checks that a request at the engine has samewire's own framing, method and target.
fn is_ours(attempt: &Attempt, what: &str) {
    assert_eq!(
        attempt.header("content-length"),
        Some(attempt.body.len().to_string().as_str()),
        "{what}"
    );
    for name in [
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "x-a",
        "keep-alive",
        "connection",
    ] {
        assert_eq!(attempt.header(name), None, "{what}");
    }
    assert_eq!(
        (attempt.method.as_str(), attempt.target.as_str()),
        ("POST", "/v1/chat/completions"),
        "{what}"
    );
    assert!(
        attempt
            .header("host")
            .is_some_and(|host| host.starts_with("127.0.0.1:")),
        "{what}"
    );
}

/// Sends a case with the marker after it. Returns the outcome and its description.
async fn judge(world: &World, case: &Case) -> (Outcome, String) {
    let (first, second) = (body("first", case.number), marker(case.number));
    let (heads, end) = heads(world, &[case.bytes.as_slice(), second.as_bytes()].concat()).await;
    let heads: Vec<_> = heads
        .into_iter()
        .filter(|head| head.status >= 200)
        .collect();
    let statuses: Vec<_> = heads.iter().map(|head| head.status).collect();
    let what = format!("{}: {statuses:?} {end:?}", case.name);
    let attempts = world.engine.attempts();
    let behind = body("marker", case.number);
    let mut reached = [0, 0];
    for attempt in attempts
        .iter()
        .filter(|attempt| attempt.text().contains(&format!("-{:03}\"", case.number)))
    {
        is_ours(attempt, &what);
        let which = [&first, &behind]
            .iter()
            .position(|body| attempt.text().starts_with(&body[..body.len() - 1]));
        reached[which.unwrap_or_else(|| panic!("{what}: the engine got {}", attempt.text()))] += 1;
    }
    let outcome = match reached {
        [0, 0] => Outcome::Refused,
        [1, 0] => Outcome::One,
        [0, 1] => Outcome::Next,
        [1, 1] => Outcome::Two,
        _ => panic!("{what}: {reached:?}"),
    };
    let served = statuses.iter().filter(|status| **status == 200).count();
    let models = case
        .bytes
        .windows(14)
        .any(|bytes| bytes == b"GET /v1/models") as usize
        + case.bytes.starts_with(b"HEAD") as usize;
    assert!(
        served <= reached.iter().sum::<usize>() + models,
        "{what}: who served that?"
    );
    if case.is_coded() {
        assert!(
            heads
                .first()
                .is_none_or(|head| head.header("connection") == Some("close")),
            "{what}: whatever came in chunks ends its connection"
        );
        assert!(heads.len() <= 1, "{what}: one answer");
        assert!(
            heads.is_empty() || end == End::Closed,
            "{what}: the connection ends with the answer"
        );
    }
    (outcome, what)
}

#[tokio::test]
async fn fault_c14_c15_no_request_is_smuggled() {
    let cases = cases();
    assert!(cases.len() >= 200, "{} cases", cases.len());
    // Without keys, odd hosts are refused unless every page may call the API.
    let world = World::configured("[cors]\norigins = [\"*\"]").await;
    let mut wrong = Vec::new();
    for cases in cases.chunks(TOGETHER) {
        let judged = cases.iter().map(|case| judge(&world, case));
        for (case, (outcome, what)) in cases.iter().zip(futures::future::join_all(judged).await) {
            if !case.allowed.contains(&outcome) {
                wrong.push(format!("{outcome:?}: {what}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    assert_eq!(
        world.stream("").await.head.status,
        200,
        "a new connection is served"
    );
    world.end().await;
}

/// The parser of the corpus file is tested here, because the other test relies on it.
#[test]
fn the_corpus_is_read_as_it_is_written() {
    assert_eq!(unescaped("a\\r\\n\\t\\0\\xff\\\\"), b"a\r\n\t\0\xff\\");
    assert_eq!(
        filled("{rep ab 3}{rep   2}-{n}", 0),
        format!("ababab  -{}", body("first", 0).len())
    );
    assert_eq!(body("first", 7).len() + 1, body("marker", 7).len());
    let names: std::collections::BTreeSet<_> = cases().iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases().len(), "each has its own name");
}
