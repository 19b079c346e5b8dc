//! Raw bytes of a client, through the whole of samewire: every response is valid, and the engine gets only requests
//! that samewire writes.

use super::proxy::{ANSWER, BODY, answers, engine, send_any};
use serde_json::Value;

pub fn run(data: &[u8]) {
    // This preface selects HTTP/2, which `h2_frames` tests.
    if data.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") {
        return;
    }
    let seen = send_any(data, &engine("200 OK", b"", ANSWER));
    let told = || format!("{}\n{}", data.escape_ascii(), seen.client.escape_ascii());
    let all = answers(&seen.client).unwrap_or_else(|| panic!("no answers: {}", told()));
    for answer in &all {
        let known = [
            100, 101, 200, 400, 401, 404, 405, 406, 408, 413, 414, 415, 417, 426, 429, 431, 501, 502, 503, 505,
        ];
        assert!(known.contains(&answer.status), "{answer:?}: {}", told());
        if answer.status >= 400 && !answer.body.is_empty() {
            let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert!(body["error"]["message"].is_string(), "{}", told());
        }
        let odd = |byte: &u8| *byte < 0x20 && *byte != b'\t' || *byte == 0x7f;
        assert!(!answer.headers.iter().any(|(_, value)| value.as_bytes().iter().any(odd)));
    }
    // One request to the engine for each successful response, each in samewire's own framing.
    let good = all.iter().filter(|answer| answer.status == 200).count();
    assert!(seen.engine.len() <= good.max(1) + 1, "{} asked: {}", seen.engine.len(), told());
    for request in &seen.engine {
        let text = String::from_utf8_lossy(request);
        let ok = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize"];
        assert!(ok.iter().any(|path| text.starts_with(&format!("POST {path} HTTP/1.1\r\n"))), "{text}");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let length = BODY.len();
    let post = |lines: &str| format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{lines}\r\n{BODY}");
    let mut all: Vec<String> = vec![
        post(&format!("content-length: {length}\r\n")),
        post(&format!("content-length: {length}\r\n")).repeat(2),
        post(&format!("content-length: {length}\r\ncontent-length: {length}\r\n")),
        post(&format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n")),
        post(&format!("Content-Length : {length}\r\n")),
        post(&format!("content-length: +{length}\r\n")),
        post(&format!("content-length: {length}\r\nconnection: keep-alive, x\r\nx: y\r\n")),
        post(&format!("content-length: {length}\r\nexpect: 100-continue\r\n")),
        post(&format!("content-length: {length}\r\n x: folded\r\n")),
        post(&format!("content-length: {length}\r\ncontent-type: text/plain\r\naccept: text/html\r\n")),
        post(&format!("content-length: {}\r\n", length + 5)),
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{length:x};a=b\r\n{BODY}\r\n0\r\nx: y\r\n\r\n"),
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n{length:x}\r\n{BODY}\r\n0\r\n\r\n"),
    ];
    for line in [
        "GET /v1/models HTTP/1.1\r\nhost: a",
        "GET /v1/models HTTP/1.0",
        "GET /v1/models HTTP/1.1",
        "GET /v1/models HTTP/1.1\r\nhost: a\r\nhost: b",
        "GET http://other/v1/models HTTP/1.1\r\nhost: a",
        "GET /v1/responses/resp_1?stream=true&starting_after=1 HTTP/1.1\r\nhost: a",
        "GET /v1/responses/%00%ff..%2f HTTP/1.1\r\nhost: a",
        "DELETE /v1/responses/a%20b HTTP/1.1\r\nhost: a",
        "POST /v1/responses/resp_1/cancel HTTP/1.1\r\nhost: a\r\ncontent-length: 0",
        "GET /v1/responses HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "OPTIONS * HTTP/1.1\r\nhost: a",
        "PRI * HTTP/2.0",
        "CONNECT a:1 HTTP/1.1\r\nhost: a",
        "get /v1/models http/1.1\r\nhost: a",
        "GET /v1/models HTTP/1.1\nhost: a",
        "GET /v1/models HTTP/1.1\r\nhost: a\r\nx-request-id: a b\u{1}",
        "POST /openai/deployments/m/chat/completions?api-version=2024-10-21 HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        all.push(format!("{line}\r\n\r\n"));
    }
    all.push(format!("GET /v1/models HTTP/1.1\r\nhost: a\r\n{}\r\n", "a: b\r\n".repeat(120)));
    all.into_iter().map(String::into_bytes).collect()
}
