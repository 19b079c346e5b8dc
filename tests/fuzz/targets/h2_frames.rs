//! HTTP/2 frames of a client, through the whole of samewire: the responses are frames in a valid order, and the
//! engine gets only requests that samewire writes.

use super::proxy::{ANSWER, BODY, engine, send_frames};
use std::collections::HashSet;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

pub fn run(data: &[u8]) {
    // Without the preface the bytes would be read as HTTP/1.1.
    let bytes = if data.starts_with(PREFACE) { data.to_vec() } else { [PREFACE, data].concat() };
    let seen = send_frames(&bytes, &engine("200 OK", b"", ANSWER));
    let told = || format!("{}\n{}", data.escape_ascii(), seen.client.escape_ascii());
    let (mut rest, mut over, mut begun) = (seen.client.as_slice(), HashSet::new(), HashSet::new());
    let mut kinds = Vec::new();
    while let Some((kind, flags, stream, payload)) = frame(&mut rest) {
        assert!(payload.len() <= 16_384, "{}", told());
        if kinds.is_empty() {
            assert_eq!((kind, flags, stream), (SETTINGS, 0, 0), "{}", told());
        }
        kinds.push(kind);
        match kind {
            SETTINGS | PING | GOAWAY => assert_eq!(stream, 0, "{}", told()),
            WINDOW_UPDATE => assert_eq!(payload.len(), 4, "{}", told()),
            HEADERS | CONTINUATION => {
                assert!(stream % 2 == 1 && !over.contains(&stream), "{}", told());
                begun.insert(stream);
            }
            DATA => assert!(begun.contains(&stream) && !over.contains(&stream), "{}", told()),
            RST_STREAM => assert!(stream > 0, "{}", told()),
            other => panic!("a frame of kind {other}: {}", told()),
        }
        if kind == RST_STREAM || matches!(kind, HEADERS | DATA) && flags & 1 == 1 {
            over.insert(stream);
        }
    }
    assert!(rest.is_empty(), "half a frame: {}", told());
    assert!(seen.engine.len() <= begun.len() + over.len() + 1, "{} asked: {}", seen.engine.len(), told());
    for request in &seen.engine {
        let text = String::from_utf8_lossy(request);
        let ok = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize"];
        assert!(ok.iter().any(|path| text.starts_with(&format!("POST {path} HTTP/1.1\r\n"))), "{text}");
    }
}

/// Takes a frame from the bytes: kind, flags, stream and payload.
fn frame<'b>(bytes: &mut &'b [u8]) -> Option<(u8, u8, u32, &'b [u8])> {
    let (head, rest) = bytes.split_at_checked(9)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let (payload, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

fn made(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

pub fn seeds() -> Vec<Vec<u8>> {
    let settings = made(SETTINGS, 0, 0, &[]);
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/chat/completions"), (":authority", "a")];
    let get = [(":method", "GET"), (":scheme", "http"), (":path", "/v1/models"), (":authority", "a")];
    let head = |stream, flags, all: &[(&str, &str)]| made(HEADERS, flags, stream, &fields(all));
    let asked = |stream| [head(stream, 4, &post), made(DATA, 1, stream, BODY.as_bytes())].concat();
    let reset = |stream| made(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    let with = |name, value| head(1, 5, &[&get[..], &[(name, value)]].concat());
    let block = fields(&get);
    let (first, second) = block.split_at(9);
    let sized = |id: u8, value: u32| made(SETTINGS, 0, 0, &[&[0, id][..], &value.to_be_bytes()].concat());
    let room = |stream, size: u32| made(WINDOW_UPDATE, 0, stream, &size.to_be_bytes());
    let parts: Vec<Vec<Vec<u8>>> = vec![
        vec![head(1, 5, &get)],
        vec![asked(1)],
        vec![asked(1), asked(3), head(5, 5, &get)],
        vec![asked(1), reset(1), asked(3)],
        (0..30).map(|n| [head(2 * n + 1, 5, &get), reset(2 * n + 1)].concat()).collect(),
        vec![made(HEADERS, 1, 1, first), made(CONTINUATION, 4, 1, second)],
        vec![made(HEADERS, 1, 1, first), made(PING, 0, 0, &[1; 8])],
        vec![made(HEADERS, 1, 1, first), made(CONTINUATION, 0, 1, &[]).repeat(20)],
        vec![with("cookie", "a"), with("connection", "close")],
        vec![with("te", "trailers")],
        vec![with("content-length", "5")],
        vec![with(":path", "/v1/x")],
        vec![with("X-Upper", "a")],
        vec![head(1, 4, &post), made(DATA, 9, 1, b"\x03{}\0\0\0")],
        vec![head(1, 4, &post), made(DATA, 0, 1, b"{").repeat(50), made(DATA, 1, 1, b"}")],
        vec![head(1, 4, &post), made(DATA, 0, 1, BODY.as_bytes()), head(1, 5, &[("x-trailer", "a")])],
        vec![sized(4, 0), asked(1)],
        vec![sized(4, 3), asked(1), room(1, 10), room(1, 1000), room(0, 1000)],
        vec![sized(4, u32::MAX)],
        vec![sized(1, 0), sized(3, 0), sized(5, 16_384), sized(6, 1), asked(1)],
        vec![room(0, 0)],
        vec![room(0, 0x7fff_ffff), room(0, 0x7fff_ffff)],
        vec![made(PING, 0, 0, &[1; 8]), made(PING, 1, 0, &[2; 8]), made(PING, 0, 1, &[1; 8])],
        vec![made(GOAWAY, 0, 0, &[0; 8]), asked(1)],
        vec![made(2, 0, 1, &[0, 0, 0, 3, 9]), asked(1)],
        vec![made(2, 0, 1, &[0, 0, 0, 1, 9])],
        vec![made(5, 4, 1, &[0, 0, 0, 2])],
        vec![made(77, 255, 1, b"unknown"), asked(1)],
        vec![asked(2)],
        vec![asked(3), asked(1)],
        vec![made(HEADERS, 5, 1, &[0x82, 0x84, 0x86, 0x41, 1, b'a'])],
        vec![made(HEADERS, 5, 1, &[0x3f, 0xe1, 0xff, 3, 0x82, 0x84, 0x86])],
        vec![made(HEADERS, 5, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])],
        vec![made(HEADERS, 5, 1, &[0x40, 0x81, 0xff, 0x81, 0xff])],
        vec![made(HEADERS, 0x2d, 1, &[&[0, 0, 0, 0, 0][..], &block].concat())],
        vec![head(1, 5, &[(":method", "CONNECT"), (":authority", "a:1")])],
        vec![head(1, 5, &[(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "a")])],
    ];
    let mut all: Vec<Vec<u8>> =
        parts.into_iter().map(|parts| [settings.clone(), parts.concat()].concat()).collect();
    all.push([PREFACE, &asked(1)].concat());
    all.push(settings);
    all
}
