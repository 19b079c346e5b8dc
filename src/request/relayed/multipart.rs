//! Search for the part `model` in a multipart form that arrives in pieces (RFC 7578).

use super::{MODEL, NamedModel, VALUE, too_long, unreadable};
use crate::request::check;
use crate::request::refusals;
use crate::request::rules::Rules;
use crate::wire::fault::Failure;
use memchr::memchr;

/// Maximum size of a part's head, in bytes.
const HEAD: usize = 16 << 10;
/// Maximum length of a boundary, in characters (RFC 2046, 5.1.1).
const BOUNDARY: usize = 70;

/// Incremental parser of a multipart form, which buffers only part heads and the model's value.
#[derive(Clone, Debug)]
pub(super) struct FormScan {
    /// Delimiter between two parts: a line end, two dashes and the boundary.
    delimiter: Vec<u8>,
    state: FormState,
    /// Number of delimiter bytes matched so far.
    matched: usize,
    /// Head of the current part, up to the byte last read.
    head: Vec<u8>,
    /// Value of the current part, if it names the model.
    value: Vec<u8>,
    /// Offset of that value; `None` in any other part.
    value_at: Option<usize>,
    /// Offset of the first part, where a part can be inserted.
    pub(super) opened: Option<usize>,
    pub(super) named: Option<NamedModel>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormState {
    /// Inside a part, or before the first.
    Data,
    /// After a delimiter.
    Behind,
    /// After a delimiter and a dash.
    Dash,
    /// After a delimiter and a carriage return.
    Return,
    Head,
    Over,
}

impl FormScan {
    /// Creates a parser from the parameters of the form's `content-type`. Returns `None` without a valid boundary.
    pub(super) fn of(parameters: &str) -> Option<Self> {
        let boundary = parameters.split(';').find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
        })?;
        let good = (1..=BOUNDARY).contains(&boundary.len())
            && boundary.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        good.then(|| Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            state: FormState::Data,
            // The first delimiter may come without the line end.
            matched: 2,
            head: Vec::new(),
            value: Vec::new(),
            value_at: None,
            opened: None,
            named: None,
        })
    }

    /// Returns true after the final delimiter.
    pub(super) fn is_over(&self) -> bool {
        self.state == FormState::Over
    }

    /// Returns a complete form part that names the model, for insertion before the first part.
    pub(super) fn part(&self, model: &str) -> String {
        let boundary = String::from_utf8_lossy(self.delimiter.get(2..).unwrap_or_default());
        format!("{boundary}\r\ncontent-disposition: form-data; name=\"{MODEL}\"\r\n\r\n{model}\r\n")
    }

    /// Parses the next piece; `base` is its offset in the body.
    pub(super) fn push(&mut self, bytes: &[u8], base: usize, rules: &Rules) -> Result<(), Failure> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if self.state == FormState::Data && self.matched == 0 {
                let rest = bytes.get(at..).unwrap_or_default();
                let length = memchr(b'\r', rest).unwrap_or(rest.len());
                self.keep(rest.get(..length).unwrap_or_default())?;
                at += length;
                if length == rest.len() {
                    break;
                }
                self.matched = 1;
                at += 1;
                continue;
            }
            at += 1;
            self.byte(byte, base + at, rules)?;
        }
        Ok(())
    }

    /// Parses one byte, whose end is at offset `end`.
    fn byte(&mut self, byte: u8, end: usize, rules: &Rules) -> Result<(), Failure> {
        match (self.state, byte) {
            (FormState::Data, byte) => return self.data(byte, end),
            (FormState::Behind, b'-') => self.state = FormState::Dash,
            (FormState::Dash, b'-') => self.state = FormState::Over,
            (FormState::Behind, b'\r') => self.state = FormState::Return,
            (FormState::Behind, b' ' | b'\t') => {}
            (FormState::Return, b'\n') => {
                self.state = FormState::Head;
                self.head.clear();
                self.head.extend_from_slice(b"\r\n");
            }
            (FormState::Head, byte) => {
                self.head.push(byte);
                if self.head.len() > HEAD {
                    return Err(unreadable("the head of a part is too long"));
                }
                if self.head.ends_with(b"\r\n\r\n") {
                    return self.begin(end, rules);
                }
            }
            (FormState::Over, _) => {}
            (FormState::Behind | FormState::Dash | FormState::Return, _) => {
                return Err(unreadable("a boundary is followed by something else than the end of its line"));
            }
        }
        Ok(())
    }

    /// Handles a byte of part data, which may belong to a delimiter.
    fn data(&mut self, byte: u8, end: usize) -> Result<(), Failure> {
        if self.delimiter.get(self.matched) == Some(&byte) {
            self.matched += 1;
            if self.matched < self.delimiter.len() {
                return Ok(());
            }
            let begin = end.saturating_sub(self.delimiter.len());
            // The first delimiter may come without the line end.
            let opened = end.saturating_sub(self.delimiter.len() - 2);
            self.opened.get_or_insert(opened);
            self.matched = 0;
            self.state = FormState::Behind;
            return self.part_ended(begin);
        }
        // A carriage return occurs only at the front of a delimiter, so a match cannot restart within one.
        let passed = self.delimiter.get(..self.matched).unwrap_or_default().to_vec();
        self.keep(&passed)?;
        if byte == b'\r' {
            self.matched = 1;
            return Ok(());
        }
        self.matched = 0;
        self.keep(&[byte])
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.value_at.is_none() {
            return Ok(());
        }
        if self.value.len() + bytes.len() > VALUE {
            return Err(too_long());
        }
        self.value.extend_from_slice(bytes);
        Ok(())
    }

    /// Handles the end of a part's head at offset `end`. Fails on a forbidden field or a second model.
    fn begin(&mut self, end: usize, rules: &Rules) -> Result<(), Failure> {
        self.state = FormState::Data;
        let name = name(&self.head)?;
        check::check_reserved_field(&name, rules)?;
        if name == MODEL {
            if self.named.is_some() {
                return Err(check::repeated(MODEL.to_owned()));
            }
            self.value_at = Some(end);
        }
        Ok(())
    }

    /// Handles the end of a part's data at offset `end`: stores the model if this part names it.
    fn part_ended(&mut self, end: usize) -> Result<(), Failure> {
        let Some(begin) = self.value_at.take() else { return Ok(()) };
        let model = String::from_utf8(std::mem::take(&mut self.value));
        let model = model.map_err(|_| refusals::invalid(MODEL, "it must be text in UTF-8"))?;
        self.named = Some(NamedModel { model, at: begin..end.max(begin) });
        Ok(())
    }
}

/// Returns the name of a part; empty if it has none.
///
/// # Errors
/// Fails on a head in which engines could read different names.
fn name(head: &[u8]) -> Result<String, Failure> {
    let doubtful = || unreadable("the name of a part can be read in several ways");
    let head = String::from_utf8_lossy(head);
    let mut found = None;
    for line in head.split("\r\n") {
        let Some((field, value)) = line.split_once(':') else { continue };
        if !field.trim().eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        for (key, value) in parameters(value) {
            let is_extended = key.to_ascii_lowercase().starts_with("name*");
            if is_extended || key.eq_ignore_ascii_case("name") && (found.is_some() || value.contains('\\')) {
                return Err(doubtful());
            }
            if key.eq_ignore_ascii_case("name") {
                found = Some(value.to_owned());
            }
        }
    }
    Ok(found.unwrap_or_default())
}

/// Parses the parameters of a header value; semicolons within quotes do not separate.
fn parameters(value: &str) -> Vec<(&str, &str)> {
    let (mut found, mut rest) = (Vec::new(), value);
    while let Some((_, after)) = rest.split_once(';') {
        let Some((key, value)) = after.split_once('=') else { break };
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
