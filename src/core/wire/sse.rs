//! Server-sent events: splits bytes into frames (wire-format 8.1). Knows no JSON.
//!
//! Takes: bytes, cut anywhere. Gives: frames that borrow from them where possible. Remembers: the unfinished line
//! and the unfinished event. Never: more than the size limit.

use memchr::memchr2;

/// Comment that is sent while there is no event, so that nothing on the way takes the connection for dead.
pub const KEEPALIVE: &[u8] = b": keepalive\n\n";
/// Event of the Messages API that keeps the connection of a silent stream alive (messages 4.1).
pub const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";
/// End mark of a stream, after its last event.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Frame: one dispatched event, or the whole body of an answer that is no stream.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// True if the event's name is `error`, so that its data is an error whatever its shape.
    pub error: bool,
    /// Name of the event. Decoders need it where the data does not contain the type (Responses).
    pub name: &'a [u8],
    /// Data of the event: its `data` lines, joined with newlines.
    pub data: &'a [u8],
    /// True if this is the whole body of an answer, not an event of a stream.
    pub whole: bool,
}

impl<'a> Frame<'a> {
    fn event(name: &'a [u8], data: &'a [u8]) -> Self {
        Self {
            error: name == b"error",
            name,
            data,
            whole: false,
        }
    }
}

/// Result of the [`Framer`]: what it found in the bytes, in order.
#[derive(Clone, Copy, Debug)]
pub enum FramerOutput<'a> {
    /// An event, with its name and data.
    Frame(Frame<'a>),
    /// A comment line, which carries no event.
    Comment,
    /// An event larger than the limit; nothing follows it, and the answer fails.
    TooLarge,
}

/// Framer: splits a byte stream into frames, with any line ends and however the reads were cut.
#[derive(Debug)]
pub struct Framer {
    limit: usize,
    start: StreamStart,
    /// True if the last byte was a CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// Beginning of a line whose end has not been read yet.
    line: Vec<u8>,
    /// Data lines of the current event, joined, if they could not be borrowed.
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    overflown: bool,
}

/// Progress at the start of the stream, where a byte-order mark is dropped.
#[derive(Debug, PartialEq, Eq)]
enum StreamStart {
    /// Number of bytes of the mark seen so far.
    Mark(usize),
    Passed,
}

/// Length of the field name before the value of a data line; it does not count towards the size of the event.
const DATA_PREFIX_LEN: usize = b"data: ".len();

/// Number of bytes of an event's name that are kept: more than any known name has.
const NAME_LIMIT: usize = 128;

const MARK: &[u8] = b"\xef\xbb\xbf";

/// Line length in bytes from which its buffer grows to the longest line's size, or by a factor of 16: each smaller
/// step would leave a copy of the line behind.
const LARGE_LINE: usize = 1 << 20;

/// Splits bytes into lines, each with its end: LF, CR LF or CR.
pub fn lines(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = memchr2(b'\n', b'\r', rest).map_or(rest.len(), |at| {
            at + if rest.get(at..).is_some_and(|end| end.starts_with(b"\r\n")) {
                2
            } else {
                1
            }
        });
        let (line, after) = rest.split_at_checked(end)?;
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// Appends to a line of at most `limit` bytes, and grows its buffer in few steps.
fn extend(line: &mut Vec<u8>, more: &[u8], limit: usize) {
    let length = line.len() + more.len();
    if length > LARGE_LINE && length > line.capacity() {
        let size = limit
            .saturating_add(DATA_PREFIX_LEN)
            .min(length.saturating_mul(16));
        line.reserve_exact(size.saturating_sub(line.len()).max(more.len()));
    }
    line.extend_from_slice(more);
}

impl Framer {
    /// Creates a framer. `limit`: most bytes of one event or line (`max_event_bytes`).
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            start: StreamStart::Mark(0),
            after_cr: false,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            name: Vec::new(),
            overflown: false,
        }
    }

    /// Reads the next bytes and hands every complete event, comment or overflow to `found`.
    pub fn push(&mut self, bytes: &[u8], mut found: impl FnMut(FramerOutput<'_>)) {
        let mut rest = bytes;
        if self.start != StreamStart::Passed {
            rest = self.pass_mark(rest);
        }
        // The only data line of the current event, as long as it can be borrowed from this read.
        let mut lone: Option<&[u8]> = None;
        while !self.overflown && !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = memchr2(b'\n', b'\r', rest);
            let (head, tail) = rest.split_at(end.unwrap_or(rest.len()));
            // The same limit applies to a complete line and to one that is still incomplete.
            if self.line.len() + head.len() > self.limit.saturating_add(DATA_PREFIX_LEN) {
                self.overflow(&mut found);
                break;
            }
            if end.is_none() {
                extend(&mut self.line, head, self.limit);
                break;
            }
            self.after_cr = tail.first() == Some(&b'\r');
            rest = tail.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.take_line(head, &mut lone, &mut found);
            } else {
                let mut line = std::mem::take(&mut self.line);
                extend(&mut line, head, self.limit);
                self.handle_line(&line, &mut lone, &mut found);
                line.clear();
                self.line = line;
            }
        }
        if let Some(data) = lone {
            self.data.extend_from_slice(data);
        }
    }

    /// Ends the input. An event without its final line end or blank line is handed over if `complete` returns true
    /// for its data, so that a truncated one is dropped.
    pub fn finish(
        &mut self,
        complete: impl FnOnce(&[u8]) -> bool,
        mut found: impl FnMut(FramerOutput<'_>),
    ) {
        if self.overflown {
            return;
        }
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.handle_line(&line, &mut None, &mut found);
        }
        if self.has_data && complete(&self.data) {
            found(FramerOutput::Frame(Frame::event(&self.name, &self.data)));
        }
        self.reset();
    }

    fn pass_mark<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let StreamStart::Mark(mut seen) = self.start else {
            return bytes;
        };
        for (at, byte) in bytes.iter().enumerate() {
            if MARK.get(seen) != Some(byte) {
                // These bytes are no mark but the beginning of the first line.
                self.start = StreamStart::Passed;
                if seen < MARK.len() {
                    self.line
                        .extend_from_slice(MARK.get(..seen).unwrap_or_default());
                }
                return bytes.get(at..).unwrap_or_default();
            }
            seen += 1;
            if seen == MARK.len() {
                self.start = StreamStart::Passed;
                return bytes.get(at + 1..).unwrap_or_default();
            }
        }
        self.start = StreamStart::Mark(seen);
        &[]
    }

    /// Handles a line that can be borrowed for the rest of this read.
    fn take_line<'a>(
        &mut self,
        line: &'a [u8],
        lone: &mut Option<&'a [u8]>,
        found: &mut impl FnMut(FramerOutput<'_>),
    ) {
        match field(line, b"data") {
            Some(value) if !self.has_data && value.len() <= self.limit => {
                self.has_data = true;
                *lone = Some(value);
            }
            Some(value) => self.add_data(value, lone, found),
            None => self.handle_other_line(line, lone, found),
        }
    }

    /// Handles a line without borrowing it from the read.
    fn handle_line(
        &mut self,
        line: &[u8],
        lone: &mut Option<&[u8]>,
        found: &mut impl FnMut(FramerOutput<'_>),
    ) {
        match field(line, b"data") {
            Some(value) => self.add_data(value, lone, found),
            None => self.handle_other_line(line, lone, found),
        }
    }

    /// Handles a line that is no data line.
    fn handle_other_line(
        &mut self,
        line: &[u8],
        lone: &mut Option<&[u8]>,
        found: &mut impl FnMut(FramerOutput<'_>),
    ) {
        if line.is_empty() {
            if self.has_data {
                let data = lone.take().unwrap_or(&self.data);
                found(FramerOutput::Frame(Frame::event(&self.name, data)));
            }
            self.reset();
        } else if line.first() == Some(&b':') {
            found(FramerOutput::Comment);
        } else if let Some(name) = field(line, b"event") {
            self.set_name(name);
        } else if let Some(value) = field(line, b"error").filter(|value| value.starts_with(b"{")) {
            // llama.cpp writes an error as its own field instead of the data of an event.
            if !self.has_data {
                self.set_name(b"error");
                self.add_data(value, lone, found);
            }
        }
    }

    fn set_name(&mut self, name: &[u8]) {
        self.name.clear();
        self.name
            .extend_from_slice(name.get(..NAME_LIMIT).unwrap_or(name));
    }

    /// Appends a data line to the event's own buffer.
    fn add_data(
        &mut self,
        value: &[u8],
        lone: &mut Option<&[u8]>,
        found: &mut impl FnMut(FramerOutput<'_>),
    ) {
        // A borrowed data line before this one is copied into the buffer first.
        self.data.extend_from_slice(lone.take().unwrap_or_default());
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        if self.data.len() + value.len() > self.limit {
            return self.overflow(found);
        }
        self.data.extend_from_slice(value);
    }

    fn overflow(&mut self, found: &mut impl FnMut(FramerOutput<'_>)) {
        self.overflown = true;
        self.line = Vec::new();
        self.data = Vec::new();
        found(FramerOutput::TooLarge);
    }

    fn reset(&mut self) {
        self.data.clear();
        self.has_data = false;
        self.name.clear();
    }
}

/// Returns the value of a line with this field name: the text after the colon, without one leading space.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest {
        [] => Some(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(reads: &[&[u8]]) -> Vec<String> {
        let mut framer = Framer::new(64);
        let mut seen = Vec::new();
        let mut note = |found: FramerOutput<'_>| {
            seen.push(match found {
                FramerOutput::Frame(frame) => {
                    format!(
                        "{}{}",
                        if frame.error { "!" } else { "" },
                        String::from_utf8_lossy(frame.data)
                    )
                }
                FramerOutput::Comment => ":".to_owned(),
                FramerOutput::TooLarge => "too large".to_owned(),
            });
        };
        for read in reads {
            framer.push(read, &mut note);
        }
        framer.finish(|data| data.ends_with(b"}"), &mut note);
        seen
    }

    #[test]
    fn line_ends_names_comments_and_marks() {
        for (input, expected) in [
            (&b"data: {a}\n\ndata:{b}\r\n\r\n"[..], vec!["{a}", "{b}"]),
            (b"\xef\xbb\xbfdata: {a}\r\rdata: {b}", vec!["{a}", "{b}"]),
            (b"\xef\xbbdata: {a}\n\n", vec![]),
            (
                b": hello\nevent: error\ndata: {a}\n\nevent: x\n\ndata: {b}\n\n",
                vec![":", "!{a}", "{b}"],
            ),
            (KEEPALIVE, vec![":"]),
            (b"data: {a,\ndata: b}\n\n", vec!["{a,\nb}"]),
            (b"id: 1\nretry: 5\nfoo\ndata\n\n", vec![""]),
            (b"data: {a}\n\ndata: {cut", vec!["{a}"]),
            (
                b"data: {a}\n\nerror: {b}\n\ndata: {c}\nerror: {d}\n\nerror: e\n\n",
                vec!["{a}", "!{b}", "{c}"],
            ),
        ] {
            assert_eq!(frames(&[input]), expected);
            for cut in 0..=input.len() {
                let (left, right) = input.split_at(cut);
                assert_eq!(frames(&[left, right]), expected, "cut at {cut}");
            }
            assert_eq!(frames(&input.chunks(1).collect::<Vec<_>>()), expected);
        }
    }

    #[test]
    fn a_line_that_never_ends_is_given_up() {
        let long = [b'x'; 100];
        assert_eq!(
            frames(&[b"data: {a}\n\ndata: ", &long, &long, b"\n\ndata: {b}\n\n"]),
            ["{a}", "too large"]
        );
        assert_eq!(
            frames(&[&[b"data: ".as_slice(), &long, b"\n\n"].concat()]),
            ["too large"]
        );
    }

    /// Checks that the limit is that of an event's data, however many lines it has. Here it is 64 bytes.
    #[test]
    fn the_limit_is_that_of_the_data() {
        let data = |length: usize| "x".repeat(length - 1) + "}";
        for (input, expected) in [
            (format!("data: {}\n\n", data(64)), data(64)),
            (format!("data:{}\n\n", data(64)), data(64)),
            (format!("data:{}\n\n", data(65)), "too large".to_owned()),
            (
                format!("data: {}\ndata: {}\n\n", data(40), data(20)),
                format!("{}\n{}", data(40), data(20)),
            ),
            (
                format!("data: {}\ndata: {}\n\n", data(32), data(31)),
                format!("{}\n{}", data(32), data(31)),
            ),
            (
                format!("data: {}\ndata: {}\n\n", data(32), data(32)),
                "too large".to_owned(),
            ),
        ] {
            assert_eq!(
                frames(&[input.as_bytes()]),
                std::slice::from_ref(&expected),
                "{input}"
            );
            let (left, right) = input.as_bytes().split_at(20);
            assert_eq!(frames(&[left, right]), [expected], "{input} in two");
        }
    }
}
