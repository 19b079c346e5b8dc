//! Multipart form that arrives in pieces (RFC 7578): heads of parts, and their values as they come.
//!
//! Takes: the pieces of a body. Gives: heads and pieces of values. Remembers: at most one head, or as much of a
//! value as could be the beginning of a delimiter. Never: waits, holds a value whole, or reads a form that others
//! could read differently.

use super::refusals::unreadable_form;
use crate::wire::fault::Failure;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// Maximum size of a part's head, in bytes.
const HEAD: usize = 16 << 10;
/// Maximum length of a boundary, in characters. The standard allows 70 (RFC 2046, 5.1.1), python-multipart takes
/// these.
const BOUNDARY: usize = 256;
/// Line end, which is taken to precede the body, because the first delimiter may come without one.
const LINE_END: &[u8] = b"\r\n";

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
    /// The part's value is complete.
    PartEnd,
    /// The form is complete; the bytes after it have no meaning.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormPosition {
    /// Before the first part.
    Preamble,
    AfterDelimiter,
    Head,
    Data,
    Over,
}

/// Incremental reader of a multipart form.
#[derive(Clone, Debug)]
pub struct FormReader {
    /// Line end, two dashes and the boundary.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: FormPosition,
    /// Number of bytes of the body that have been pushed.
    pushed: usize,
    /// Offset of the first part's delimiter, where a part can be inserted.
    opened: Option<usize>,
}

impl FormReader {
    /// Creates a reader for a body with this `content-type`; `None` if it is not a form, or has no boundary that all
    /// servers read alike.
    pub fn of(content_type: &str) -> Option<Self> {
        let (kind, _) = content_type.split_once(';')?;
        let is_boundary = |key: &str| {
            key.get(..8)
                .is_some_and(|front| front.eq_ignore_ascii_case("boundary"))
        };
        let named = parameters(content_type)
            .into_iter()
            .filter(|(key, _)| is_boundary(key));
        let [(key, boundary)] = named.collect::<Vec<_>>()[..] else {
            return None;
        };
        let is_good = kind.trim().eq_ignore_ascii_case("multipart/form-data")
            && key.len() == "boundary".len()
            && (1..=BOUNDARY).contains(&boundary.len())
            && boundary
                .bytes()
                .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'));
        is_good.then(|| Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            buffer: BytesMut::from(LINE_END),
            state: FormPosition::Preamble,
            pushed: 0,
            opened: None,
        })
    }

    /// Adds the next piece of the body. [`event`](Self::event) is called until it gives nothing before another piece
    /// is added.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state != FormPosition::Over {
            self.buffer.extend_from_slice(bytes);
            self.pushed += bytes.len();
        }
    }

    /// Returns the next event, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Fails if the body is no form, if the head of a part is too long, or if others could read it differently.
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
                FormPosition::AfterDelimiter => match self.buffer.first_chunk() {
                    None => return Ok(None),
                    Some(b"--") => {
                        self.state = FormPosition::Over;
                        self.buffer.clear();
                        return Ok(Some(FormEvent::End));
                    }
                    // The line end stays: it ends the line before a head, which may be empty.
                    Some(b"\r\n") => self.state = FormPosition::Head,
                    Some([b' ' | b'\t', _]) => self.buffer.advance(1),
                    Some(_) => {
                        return Err(unreadable_form(
                            "a boundary is not followed by the end of its line",
                        ));
                    }
                },
                FormPosition::Head => {
                    let end = memmem::find(&self.buffer, b"\r\n\r\n").map(|at| at + 4);
                    if end.unwrap_or(self.buffer.len()) > HEAD {
                        return Err(unreadable_form("the head of a part is too long"));
                    }
                    let Some(end) = end else { return Ok(None) };
                    let head = self.buffer.split_to(end);
                    self.state = FormPosition::Data;
                    return part(&head).map(Some);
                }
                FormPosition::Data => match memmem::find(&self.buffer, &self.delimiter) {
                    Some(0) => {
                        self.pass(0);
                        return Ok(Some(FormEvent::PartEnd));
                    }
                    Some(at) => {
                        return Ok(Some(FormEvent::Data(self.buffer.split_to(at).freeze())));
                    }
                    None => {
                        let settled = self.settled();
                        let piece = self.buffer.split_to(settled).freeze();
                        return Ok(Some(piece)
                            .filter(|piece| !piece.is_empty())
                            .map(FormEvent::Data));
                    }
                },
                FormPosition::Over => return Ok(None),
            }
        }
    }

    /// Returns the offset in the body of the next byte to read.
    pub(super) fn place(&self) -> usize {
        (LINE_END.len() + self.pushed).saturating_sub(self.buffer.len() + LINE_END.len())
    }

    /// Returns the offset of the first part's delimiter, where a part can be inserted.
    pub(super) fn opened(&self) -> Option<usize> {
        self.opened
    }

    /// Returns true after the final delimiter.
    pub(super) fn is_over(&self) -> bool {
        self.state == FormPosition::Over
    }

    /// Returns a complete part with this name and value, to be inserted before the first one.
    pub(super) fn written_part(&self, name: &str, value: &str) -> String {
        let boundary =
            String::from_utf8_lossy(self.delimiter.get(LINE_END.len()..).unwrap_or_default());
        format!("{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    /// Skips everything up to the end of the delimiter at `at`.
    fn pass(&mut self, at: usize) {
        self.buffer.advance(at + self.delimiter.len());
        self.state = FormPosition::AfterDelimiter;
        let opened = (self.place() + LINE_END.len()).saturating_sub(self.delimiter.len());
        self.opened.get_or_insert(opened);
    }

    /// Returns the number of bytes that cannot belong to a delimiter.
    fn settled(&self) -> usize {
        self.buffer.len().saturating_sub(self.delimiter.len() - 1)
    }
}

/// Reads the head of a part.
///
/// # Errors
/// Fails on a head in which servers could read different names.
fn part(head: &[u8]) -> Result<FormEvent, Failure> {
    let doubtful = || unreadable_form("the name of a part can be read in several ways");
    let head = String::from_utf8_lossy(head);
    let (mut name, mut file) = (None, None);
    for line in head.split("\r\n") {
        // Some parsers end a line here as well.
        if line.contains(['\r', '\n']) {
            return Err(doubtful());
        }
        let Some((header, value)) = line.split_once(':') else {
            continue;
        };
        if !header.trim().eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        for (key, value) in parameters(value) {
            let key = key.to_ascii_lowercase();
            if key.starts_with("name*") || key == "name" && (name.is_some() || value.contains('\\'))
            {
                return Err(doubtful());
            }
            match key.as_str() {
                "name" => name = Some(value.to_owned()),
                // Browsers do not escape a backslash; only a quote is taken for escaped.
                "filename" => file = Some(value.replace("\\\"", "\"")),
                _ => {}
            }
        }
    }
    Ok(FormEvent::Part {
        name: name.unwrap_or_default(),
        file,
    })
}

/// Parses the parameters of a header value; semicolons within quotes do not separate.
fn parameters(value: &str) -> Vec<(&str, &str)> {
    let (mut found, mut rest) = (Vec::new(), value);
    while let Some((_, after)) = rest.split_once(';') {
        let Some((key, value)) = after.split_once('=') else {
            break;
        };
        // Skips a parameter without a value before this one.
        let key = key.rsplit(';').next().unwrap_or_default().trim();
        let value = value.trim_start();
        let Some(quoted) = value.strip_prefix('"') else {
            let end = value.find(';').unwrap_or(value.len());
            let (word, after) = value.split_at_checked(end).unwrap_or((value, ""));
            found.push((key, word.trim()));
            rest = after;
            continue;
        };
        let end = end_of_quoted(quoted);
        let (word, after) = quoted.split_at_checked(end).unwrap_or((quoted, ""));
        found.push((key, word));
        rest = after;
    }
    found
}

/// Returns the offset of the quote that closes a quoted string.
fn end_of_quoted(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.unwrap_or(text.len())
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
        let mut reader =
            FormReader::of("multipart/form-data; charset=utf-8; boundary=\"b\"").unwrap();
        let (mut parts, mut is_over) = (Vec::new(), false);
        for piece in form.chunks(size) {
            reader.push(piece);
            while let Some(event) = reader.event()? {
                match event {
                    FormEvent::Part { name, file } => parts.push((name, file, Vec::new())),
                    FormEvent::Data(data) => parts.last_mut().unwrap().2.extend_from_slice(&data),
                    FormEvent::PartEnd => {}
                    FormEvent::End => is_over = true,
                }
            }
            assert!(
                reader.buffer.len() <= HEAD + size,
                "it holds a part at most"
            );
        }
        assert!(is_over);
        Ok(parts)
    }

    #[test]
    fn a_form_is_read_however_it_is_cut() {
        let expected = vec![
            ("purpose".to_owned(), None, b"batch".to_vec()),
            (
                "file".to_owned(),
                Some("a \"b\".jsonl".to_owned()),
                b"one\r\n--\r\n--c\r\n".to_vec(),
            ),
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
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=b; boundary*=utf-8''a",
            "multipart/form-data; boundary=\"a\\\"b\"",
            "multipart/mixed; boundary=b",
        ] {
            assert!(FormReader::of(label).is_none(), "{label}");
        }
        assert!(read(b"--bx\r\n", 3).is_err());
        let long = [b"--b\r\na: ".as_slice(), &[b'x'; HEAD + 10]].concat();
        assert!(read(&long, 1000).is_err());
    }
}
