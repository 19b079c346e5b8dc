//! Headers of a client and of an engine: only the listed ones are forwarded, and only with allowed values.

use super::proxy::{ANSWER, BODY, Answer, answers, client, engine, send};

/// Byte that separates the client's lines from the engine's.
const BETWEEN: u8 = 0;

/// Headers that determine where a message ends, or that change its kind.
const FRAMING: [&str; 7] =
    ["content-length", "transfer-encoding", "host", "connection", "upgrade", "content-type", "expect"];

pub fn run(data: &[u8]) {
    let mut sides = data.splitn(2, |byte| *byte == BETWEEN);
    let [ours, theirs] = [sides.next(), sides.next()].map(|side| lines(side.unwrap_or_default()));
    let seen = send(&client(&joined(&ours)), &engine("200 OK", &joined(&theirs), ANSWER));
    let all = answers(&seen.client).unwrap_or_else(|| panic!("{}", seen.client.escape_ascii()));
    for request in &seen.engine {
        check_request(request, &ours);
    }
    for answer in &all {
        check_answer(answer);
    }
}

/// Returns the header lines that do not change the framing of a message.
fn lines(side: &[u8]) -> Vec<Vec<u8>> {
    let all = side.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let framing = |line: &[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default().trim_ascii();
        FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    all.filter(|line| !framing(line)).map(<[u8]>::to_vec).collect()
}

fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line, &b"\r\n"[..]].concat()).collect()
}

/// Checks the request that the engine received.
fn check_request(request: &[u8], ours: &[Vec<u8>]) {
    let text = String::from_utf8_lossy(request);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert_eq!(body, BODY);
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("POST /v1/chat/completions HTTP/1.1"));
    let mut names = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{head}"));
        // Finds the client's header, with names compared without regard to case.
        let said = |name: &str| {
            ours.iter().any(|line| {
                let line = String::from_utf8_lossy(line);
                line.split_once(':')
                    .is_some_and(|(own, said)| own.eq_ignore_ascii_case(name) && said.trim() == value)
            })
        };
        match name {
            "host" => assert!(value.starts_with("127.0.0.1:"), "{head}"),
            "user-agent" => assert!(value.starts_with("samewire/"), "{head}"),
            "accept" => assert!(value.contains("json") || value.contains("event-stream"), "{head}"),
            "accept-encoding" => assert_eq!(value, "identity"),
            "content-type" => assert_eq!(value, "application/json"),
            "content-length" => assert_eq!(value, BODY.len().to_string()),
            "x-request-id" => assert!(value.starts_with("req_") && value.len() < 48, "{head}"),
            "x-samewire-hop" => assert!(value.len() % 17 == 16 && value.len() <= 8 * 17, "{head}"),
            "authorization" | "tracestate" => assert!(said(name), "{head}"),
            "traceparent" => {
                assert!(value.starts_with("00-") && value.len() == 55, "{head}");
                // A later version is forwarded as version 00, without unknown flags, as W3C requires.
                let (ids, flags) = value[2..].split_at(51);
                let same = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(ids);
                assert!(ours.iter().any(same), "{head}");
                assert!(["00", "01", "02", "03"].contains(&flags), "{head}");
            }
            _ => panic!("{name} crossed: {head}"),
        }
        names.push(name);
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "{head}");
}

/// Checks the headers that the client received.
fn check_answer(answer: &Answer) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    for (name, value) in &answer.headers {
        let good = match name.as_str() {
            "content-type" => value == "application/json" || value == "text/event-stream; charset=utf-8",
            "content-length" | "openai-processing-ms" | "x-samewire-attempts" => value.parse::<u64>().is_ok(),
            "x-request-id" => value.len() <= 128 && value.bytes().all(plain),
            "retry-after" => value.parse().is_ok_and(|seconds: u64| (1..=60).contains(&seconds)),
            "cache-control" | "connection" | "transfer-encoding" | "date" | "x-should-retry" => true,
            "openai-version" | "retry-after-ms" | "x-accel-buffering" => true,
            name => name.starts_with("x-ratelimit-") && value.len() <= 256,
        };
        assert!(good, "{name}: {value} crossed");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let both = |ours: &str, theirs: &str| [ours.as_bytes(), &[BETWEEN], theirs.as_bytes()].concat();
    vec![
        both("", ""),
        both("authorization: Bearer sk-a\ncookie: a=b\nx-forwarded-for: 1.2.3.4", "set-cookie: a=b\nserver: uvicorn"),
        both("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\ntracestate: a=b", "x-ratelimit-limit-requests: 5"),
        both("traceparent: 00-00000000000000000000000000000000-b7ad6b7169203331-01\ntracestate: a=b", "x-request-id: theirs"),
        both("x-request-id: mine-1._", "x-ratelimit-remaining-requests: \u{e9}"),
        both("x-request-id: a b\nuser-agent: curl\naccept: */*", "openai-processing-ms: 5\nopenai-version: 1999"),
        both("X-Request-Id: \u{e9}\nTE: trailers\nRange: bytes=0-1\nIf-None-Match: *", "retry-after: 500\nretry-after-ms: 5"),
        both("Authorization:Basic YTpi\nAuthorization: Bearer b", "location: http://10.0.0.7/\nalt-svc: h2"),
        both("api-key: a\nproxy-authorization: b\nforwarded: for=a", "content-encoding: gzip"),
        both("openai-organization: o\nopenai-beta: x", "content-encoding: identity\nx-samewire-attempts: 9"),
        both("accept: text/html", "x-should-retry: true\ncache-control: public"),
    ]
}
