//! Blank lines between events that stand line by line.
//!
//! Takes: bytes of an event stream. Gives: the same, with a blank line between two `data:` lines of which the first is a
//! complete event: recordings lose the blank lines where somebody has filtered them by line. Remembers: one line. Never:
//! changes a stream that has its blank lines.

use crate::json::Raw;

/// Puts in the blank lines that are missing.
#[derive(Debug, Default)]
pub(super) struct Separator {
    /// The line that is not complete.
    line: Vec<u8>,
    /// The last data line, if nothing that ends its event has come since.
    data: Option<Vec<u8>>,
    /// An `event:` line behind it, which may be of the next event.
    name: Vec<u8>,
    jammed: bool,
}

impl Separator {
    /// Whether a blank line was missing.
    pub(super) fn is_jammed(&self) -> bool {
        self.jammed
    }

    /// Appends the lines that are complete to `out`.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line(out);
            }
        }
    }

    /// Appends the rest.
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

/// Whether a data line is an event of its own.
fn is_complete(line: &[u8]) -> bool {
    let data = line.strip_prefix(b"data:").unwrap_or_default().trim_ascii();
    let is_object =
        || data.starts_with(b"{") && std::str::from_utf8(data).is_ok_and(|text| Raw::of(text).is_some());
    data == b"[DONE]" || is_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separated(text: &str, size: usize) -> (String, bool) {
        let (mut separator, mut out) = (Separator::default(), Vec::new());
        text.as_bytes().chunks(size).for_each(|part| separator.push(part, &mut out));
        separator.finish(&mut out);
        (String::from_utf8(out).unwrap(), separator.is_jammed())
    }

    #[test]
    fn blank_lines_are_put_in_where_they_are_missing() {
        for (text, expected) in [
            ("data: {}\ndata: {\"a\":1}\ndata: [DONE]\n", "data: {}\n\ndata: {\"a\":1}\n\ndata: [DONE]\n"),
            ("data: {}\r\ndata: {}", "data: {}\r\n\ndata: {}"),
            ("event: a\ndata: {}\nevent: b\ndata: {}\n", "event: a\ndata: {}\n\nevent: b\ndata: {}\n"),
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
