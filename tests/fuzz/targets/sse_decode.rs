//! Bytes, cut anywhere, yield the same events as a reading of the whole buffer.

use super::feed::Feed;
use super::made;
use samewire::wire::sse::{FramerOutput, Framer};

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let limit = if feed.byte() & 1 == 1 { 48 } else { 4 << 20 };
    let sizes = [usize::from(feed.byte()) + 1, usize::from(feed.byte()) + 1];
    let bytes = feed.rest();
    let whole = framed(limit, [bytes].into_iter());
    assert_eq!(framed(limit, bytes.chunks(1)), whole, "byte by byte");
    let mut rest = bytes;
    let pieces = sizes.iter().cycle().map_while(|size| {
        let (piece, left) = rest.split_at((*size).min(rest.len()));
        rest = left;
        (!piece.is_empty()).then_some(piece)
    });
    assert_eq!(framed(limit, pieces), whole, "cut at {sizes:?}");
    if limit > bytes.len() {
        assert_eq!(whole, read(bytes), "the other reading");
    } else {
        let large = |seen: &Seen| matches!(seen, Seen::Event(_, data) if data.len() > limit);
        assert!(!whole.iter().any(large), "an event above the limit");
        let behind = whole.iter().position(|seen| *seen == Seen::TooLarge).map(|at| at + 1);
        assert!(behind.is_none_or(|at| at == whole.len()), "something after the end");
        if behind.is_none() {
            assert_eq!(whole, read(bytes), "the other reading");
        }
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    /// Name and data.
    Event(Vec<u8>, Vec<u8>),
    Comment,
    TooLarge,
}

fn framed<'a>(limit: usize, reads: impl Iterator<Item = &'a [u8]>) -> Vec<Seen> {
    let mut framer = Framer::new(limit);
    let mut all = Vec::new();
    let mut note = |found: FramerOutput<'_>| {
        all.push(match found {
            FramerOutput::Frame(frame) => {
                assert_eq!(frame.error, frame.name == b"error");
                Seen::Event(frame.name.to_vec(), frame.data.to_vec())
            }
            FramerOutput::Comment => Seen::Comment,
            FramerOutput::TooLarge => Seen::TooLarge,
        });
    };
    reads.for_each(|read| framer.push(read, &mut note));
    framer.finish(is_complete, &mut note);
    all
}

/// Tells an event that was cut from one that only lacks its blank line, in a simplified form.
fn is_complete(data: &[u8]) -> bool {
    data.ends_with(b"}")
}

/// Reads a whole stream as the standard defines it: lines, fields, and an event at each empty line.
fn read(bytes: &[u8]) -> Vec<Seen> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (mut all, mut name, mut data) = (Vec::new(), Vec::new(), None::<Vec<u8>>);
    let mut lines = lines(bytes);
    let unfinished = lines.pop().unwrap_or_default();
    let field = |line: &[u8], name: &mut Vec<u8>, data: &mut Option<Vec<u8>>| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => match data {
                Some(data) => data.extend([b"\n", value].concat()),
                None => *data = Some(value.to_vec()),
            },
            b"event" => *name = value[..value.len().min(128)].to_vec(),
            _ => {}
        }
    };
    for line in lines {
        match line {
            [] => {
                let name = std::mem::take(&mut name);
                all.extend(data.take().map(|data| Seen::Event(name, data)));
            }
            [b':', ..] => all.push(Seen::Comment),
            line => field(line, &mut name, &mut data),
        }
    }
    match unfinished {
        [b':', ..] => all.push(Seen::Comment),
        line => field(line, &mut name, &mut data),
    }
    all.extend(data.filter(|data| is_complete(data)).map(|data| Seen::Event(name, data)));
    all
}

/// Returns the lines without their ends; after the last line end there is one more, which may be empty.
fn lines(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        all.push(&bytes[..end]);
        let both = bytes[end..].starts_with(b"\r\n");
        bytes = &bytes[end + 1 + usize::from(both)..];
    }
    all.push(bytes);
    all
}

pub fn seeds() -> Vec<Vec<u8>> {
    let small: [&[u8]; 5] = [
        b"\x01\x03\x00\xef\xbb\xbfdata: {a}\r\rdata: {b}",
        b"\x01\x00\x01: hello\nevent: error\ndata: {a}\n\nevent: x\n\ndata: {b}\r\n\r\n",
        b"\x01\x04\x02data: {a,\ndata: b}\n\nid: 1\nretry: 5\nfoo\ndata\n\n",
        b"\x01\x04\x02data: a line that is longer than all that is allowed here, by some bytes\n\n",
        b"\x00\x06\x28data:x\r\n\r\ndata\r\n\revent\n\ndata: }",
    ];
    let mut all: Vec<_> = small.iter().map(|seed| seed.to_vec()).collect();
    for case in made::exchanges().iter().chain(&made::answers()).filter(|case| case.events) {
        all.push([&[0, 6, 40], &case.input[..]].concat());
    }
    all
}
