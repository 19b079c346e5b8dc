//! Multipart form that arrives in pieces (RFC 7578): heads of parts, and their values as they come.
//!
//! Takes: the pieces of a body. Gives: heads and pieces of values. Remembers: at most one head, or as much of a
//! value as could be the beginning of a delimiter. Never: waits, holds a value whole.

use super::refusals::unreadable_form;
use crate::wire::fault::Failure;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// Maximum size of a part's head, in bytes.
const HEAD: usize = 16 << 10;
/// Maximum length of a boundary, in characters (RFC 2046, 5.1.1).
const BOUNDARY: usize = 70;

/// Event of a form.
#[derive(Debug, PartialEq, Eq)]
pub enum FormEvent {
    /// A part begins.
    Part {
        /// Name of the field; empty if the part names none.
        name: String,
        /// Name of the file, if the part is one.
        file: Option<String>,
    },
    /// Next piece of the part's value.
    Data(Bytes),
    /// The form is complete; the bytes after it have no meaning.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormPosition {
    /// Before the first part.
    Preamble,
    /// Behind a delimiter.
    Behind,
    Head,
    Data,
    Over,
}

/// Incremental reader of a multipart form.
#[derive(Debug)]
pub struct FormReader {
    /// Line end, two dashes and the boundary.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: FormPosition,
}

impl FormReader {
    /// Creates a reader for a body with this `content-type`; `None` if it is not a form with a valid boundary.
    pub fn of(content_type: &str) -> Option<Self> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameters.split(';').find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
        })?;
        let is_good = (1..=BOUNDARY).contains(&boundary.len())
            && boundary.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        is_good.then(|| Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // The first delimiter may come without the line end.
            buffer: BytesMut::from(b"\r\n".as_slice()),
            state: FormPosition::Preamble,
        })
    }

    /// Adds the next piece of the body. [`event`](Self::event) is called until it gives nothing before another piece
    /// is added.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state != FormPosition::Over {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Returns the next event, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Fails if the body is no form, or the head of a part is too long.
    pub fn event(&mut self) -> Result<Option<FormEvent>, Failure> {
        loop {
            match self.state {
                FormPosition::Preamble => match memmem::find(&self.buffer, &self.delimiter) {
                    Some(at) => self.pass(at),
                    None => {
                        self.buffer.advance(self.settled());
                        return Ok(None);
                    }
                },
                FormPosition::Behind => match self.buffer.first_chunk() {
                    None => return Ok(None),
                    Some(b"--") => {
                        self.state = FormPosition::Over;
                        self.buffer.clear();
                        return Ok(Some(FormEvent::End));
                    }
                    // The line end stays: it ends the line before a head, which may be empty.
                    Some(b"\r\n") => self.state = FormPosition::Head,
                    Some([b' ' | b'\t', _]) => self.buffer.advance(1),
                    Some(_) => return Err(unreadable_form("a delimiter is not on a line of its own")),
                },
                FormPosition::Head => {
                    let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") else {
                        let is_long = self.buffer.len() > HEAD;
                        return if is_long {
                            Err(unreadable_form("a part's head is too long"))
                        } else {
                            Ok(None)
                        };
                    };
                    if end > HEAD {
                        return Err(unreadable_form("a part's head is too long"));
                    }
                    let head = self.buffer.split_to(end + 4);
                    self.state = FormPosition::Data;
                    // The line end may begin the next delimiter, if the value is empty.
                    return Ok(Some(part(&head)));
                }
                FormPosition::Data => match memmem::find(&self.buffer, &self.delimiter) {
                    Some(0) => self.pass(0),
                    Some(at) => return Ok(Some(FormEvent::Data(self.buffer.split_to(at).freeze()))),
                    None => {
                        let settled = self.settled();
                        let piece = self.buffer.split_to(settled).freeze();
                        return Ok(Some(piece).filter(|piece| !piece.is_empty()).map(FormEvent::Data));
                    }
                },
                FormPosition::Over => return Ok(None),
            }
        }
    }

    /// Skips everything up to the end of the delimiter at `at`.
    fn pass(&mut self, at: usize) {
        self.buffer.advance(at + self.delimiter.len());
        self.state = FormPosition::Behind;
    }

    /// Returns the number of bytes that cannot belong to a delimiter.
    fn settled(&self) -> usize {
        self.buffer.len().saturating_sub(self.delimiter.len() - 1)
    }
}

/// Reads the head of a part.
fn part(head: &[u8]) -> FormEvent {
    let head = String::from_utf8_lossy(head);
    let (mut name, mut file) = (String::new(), None);
    for line in head.split("\r\n") {
        let Some((header, value)) = line.split_once(':') else { continue };
        if header.trim().eq_ignore_ascii_case("content-disposition") {
            name = parameter(value, "name").unwrap_or_default();
            file = parameter(value, "filename");
        }
    }
    FormEvent::Part { name, file }
}

/// Returns the value of a parameter of a header, without its quotes.
fn parameter(header: &str, key: &str) -> Option<String> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once(';') {
        let (name, value) = after.split_once('=')?;
        let value = value.trim_start();
        let (text, left) = match value.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let end = value.find(';').unwrap_or(value.len());
                let (text, left) = value.split_at(end);
                (text.trim().to_owned(), left)
            }
        };
        if name.trim().eq_ignore_ascii_case(key) {
            return Some(text);
        }
        rest = left;
    }
    None
}

/// Returns a quoted text up to its closing quote, and what follows.
fn unquoted(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (out, text.get(at + 1..).unwrap_or_default()),
            '\\' => match characters.next() {
                // Browsers do not escape a backslash; only a quote is taken for escaped.
                Some((_, '"')) => out.push('"'),
                Some((_, other)) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            _ => out.push(character),
        }
    }
    (out, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b  \r\n\
        Content-Type: application/x\r\ncontent-disposition: form-data; filename=\"a \\\"b\\\".jsonl\"; name=file\r\n\r\n\
        one\r\n--\r\n--c\r\n\r\n--b\r\n\r\n\r\n--b--\r\nbehind";

    /// Name, file name and value of a part.
    type Part = (String, Option<String>, Vec<u8>);

    /// Returns the parts with their values.
    fn read(form: &[u8], size: usize) -> Result<Vec<Part>, Failure> {
        let mut reader = FormReader::of("multipart/form-data; charset=utf-8; boundary=\"b\"").unwrap();
        let (mut parts, mut is_over) = (Vec::new(), false);
        for piece in form.chunks(size) {
            reader.push(piece);
            while let Some(event) = reader.event()? {
                match event {
                    FormEvent::Part { name, file } => parts.push((name, file, Vec::new())),
                    FormEvent::Data(data) => parts.last_mut().unwrap().2.extend_from_slice(&data),
                    FormEvent::End => is_over = true,
                }
            }
            assert!(reader.buffer.len() <= HEAD + size, "it holds a part at most");
        }
        assert!(is_over);
        Ok(parts)
    }

    #[test]
    fn a_form_is_read_however_it_is_cut() {
        let expected = vec![
            ("purpose".to_owned(), None, b"batch".to_vec()),
            ("file".to_owned(), Some("a \"b\".jsonl".to_owned()), b"one\r\n--\r\n--c\r\n".to_vec()),
            (String::new(), None, Vec::new()),
        ];
        for size in 1..=FORM.len() {
            assert_eq!(read(FORM, size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for label in [
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=b",
        ] {
            assert!(FormReader::of(label).is_none(), "{label}");
        }
        assert!(read(b"--bx\r\n", 3).is_err());
        let long = [b"--b\r\na: ".as_slice(), &[b'x'; HEAD + 10]].concat();
        assert!(read(&long, 1000).is_err());
    }
}
