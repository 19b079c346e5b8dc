//! Repair of event streams that lack the blank lines between events.
//!
//! Takes: bytes of an event stream. Gives: the same, with a blank line between two `data:` lines of which the
//! first is a complete event: recordings lose their blank lines when a tool such as grep filters them by line.
//! Remembers: one line. Never: changes a stream that has its blank lines.

use crate::json::Raw;

/// Inserts the missing blank lines between events, so that the framer can tell them apart.
#[derive(Debug, Default)]
pub(super) struct Separator {
    /// Incomplete last line of the input.
    line: Vec<u8>,
    /// Last `data:` line, unless its event has ended since.
    data: Option<Vec<u8>>,
    /// An `event:` line after `data`, which may belong to the next event.
    name: Vec<u8>,
    jammed: bool,
}

impl Separator {
    /// Returns true once a blank line was missing.
    pub(super) fn is_jammed(&self) -> bool {
        self.jammed
    }

    /// Appends the complete lines to `out`, with the blank lines that they lack.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line(out);
            }
        }
    }

    /// Appends the unfinished line and the pending `event:` line to `out`, at the end of the input.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.end_line(out);
        out.append(&mut self.name);
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.line);
        if self.data.is_some() && self.name.is_empty() && line.starts_with(b"event:") {
            self.name = line;
            return;
        }
        let is_data = line.starts_with(b"data:");
        if is_data && self.data.as_deref().is_some_and(is_complete) {
            self.jammed = true;
            out.extend_from_slice(b"\n");
        }
        out.append(&mut self.name);
        out.extend_from_slice(&line);
        self.data = is_data.then_some(line);
    }
}

/// Returns true if a `data:` line is a complete event by itself: `[DONE]` or valid JSON.
fn is_complete(line: &[u8]) -> bool {
    let data = line.strip_prefix(b"data:").unwrap_or_default().trim_ascii();
    let is_object = || {
        data.starts_with(b"{")
            && std::str::from_utf8(data).is_ok_and(|text| Raw::of(text).is_some())
    };
    data == b"[DONE]" || is_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separated(text: &str, size: usize) -> (String, bool) {
        let (mut separator, mut out) = (Separator::default(), Vec::new());
        text.as_bytes()
            .chunks(size)
            .for_each(|part| separator.push(part, &mut out));
        separator.finish(&mut out);
        (String::from_utf8(out).unwrap(), separator.is_jammed())
    }

    #[test]
    fn blank_lines_are_put_in_where_they_are_missing() {
        for (text, expected) in [
            (
                "data: {}\ndata: {\"a\":1}\ndata: [DONE]\n",
                "data: {}\n\ndata: {\"a\":1}\n\ndata: [DONE]\n",
            ),
            ("data: {}\r\ndata: {}", "data: {}\r\n\ndata: {}"),
            (
                "event: a\ndata: {}\nevent: b\ndata: {}\n",
                "event: a\ndata: {}\n\nevent: b\ndata: {}\n",
            ),
        ] {
            for size in [1, 3, 1000] {
                assert_eq!(separated(text, size), (expected.to_owned(), true), "{size}");
            }
        }
    }

    #[test]
    fn what_has_them_stays() {
        for text in [
            "data: {}\n\ndata: {}\n\n",
            "data: {\ndata: \"a\":1}\n\n",
            "data: {}\nevent: error\n\ndata: {}\n\n",
            "data: {}\r\n\r\ndata: {}\r\n\r\n",
            ": a\ndata: 1\ndata: 2\n\n",
            "data: {}\nevent: a",
            "",
        ] {
            for size in [1, 3, 1000] {
                assert_eq!(separated(text, size), (text.to_owned(), false), "{size}");
            }
        }
    }
}
