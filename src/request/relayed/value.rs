//! Search for the member `model` in a JSON object that arrives in pieces.

use super::{MODEL, NamedModel, VALUE, too_long};
use crate::request::check;
use crate::request::refusals;
use crate::request::rules::Rules;
use crate::wire::fault::{Failure, Fault};
use memchr::memchr2;

/// Number of bytes kept of a key: longer than any relevant key with all characters escaped.
const KEY: usize = 256;

/// Incremental scanner of a JSON object, which buffers only one key or the model's value.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonScan {
    state: ValueState,
    depth: usize,
    /// True if the next top-level string is a key.
    at_key: bool,
    /// True if the current member is the model.
    at_model: bool,
    /// Buffered bytes of the current string or word.
    token: Vec<u8>,
    /// Offset of the token, if it is buffered.
    token_at: Option<usize>,
    /// Offset after the opening brace, where a member can be inserted.
    pub(super) opened: Option<usize>,
    /// True as long as the object has no member.
    pub(super) is_empty: bool,
    pub(super) named: Option<NamedModel>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ValueState {
    /// Before the opening brace.
    #[default]
    Start,
    Outside,
    Text,
    /// After a backslash in a string.
    Escape,
    /// After the object, or in a body that is no object.
    Over,
}

impl JsonScan {
    /// Returns true once the object has ended.
    pub(super) fn is_over(&self) -> bool {
        self.state == ValueState::Over
    }

    /// Scans the next piece; `base` is its offset in the body.
    pub(super) fn push(&mut self, bytes: &[u8], base: usize, rules: &Rules) -> Result<(), Failure> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            match self.state {
                ValueState::Start => {
                    self.start(byte, base + at)?;
                    at += 1;
                }
                ValueState::Outside => {
                    self.outside(byte, base + at, rules)?;
                    at += 1;
                }
                ValueState::Escape => {
                    self.keep(&[byte])?;
                    self.state = ValueState::Text;
                    at += 1;
                }
                ValueState::Text => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    let length = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    self.keep(rest.get(..length).unwrap_or_default())?;
                    at += length;
                    let Some(byte) = rest.get(length).copied() else {
                        break;
                    };
                    self.keep(&[byte])?;
                    at += 1;
                    if byte == b'\\' {
                        self.state = ValueState::Escape;
                    } else {
                        self.state = ValueState::Outside;
                        self.text_ended(base + at, rules)?;
                    }
                }
                ValueState::Over => break,
            }
        }
        Ok(())
    }

    /// Handles a byte before the object. Fails on UTF-16 and UTF-32, which some engines detect and read.
    fn start(&mut self, byte: u8, at: usize) -> Result<(), Failure> {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            // Byte-order mark.
            0xef | 0xbb | 0xbf if at < 3 => {}
            0 => return Err(Fault::InvalidJson.into()),
            0xfe | 0xff if at == 0 => self.token.push(byte),
            0xfe | 0xff if self.token.first().is_some_and(|first| *first != byte) => {
                return Err(Fault::InvalidJson.into());
            }
            b'{' => {
                (self.state, self.depth, self.at_key, self.is_empty) =
                    (ValueState::Outside, 1, true, true);
                self.opened = Some(at + 1);
            }
            _ => self.state = ValueState::Over,
        }
        Ok(())
    }

    fn outside(&mut self, byte: u8, at: usize, rules: &Rules) -> Result<(), Failure> {
        let top = self.depth == 1;
        if top && matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n') {
            self.word_ended(at)?;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return Ok(()),
            // Engines that detect other encodings than UTF-8 look for these bytes.
            0..=31 => return Err(Fault::InvalidJson.into()),
            _ => {}
        }
        match byte {
            b'"' => {
                self.state = ValueState::Text;
                if top && (self.at_key || self.at_model) {
                    if self.token_at.is_some() {
                        return Err(not_text());
                    }
                    self.token_at = Some(at);
                    self.keep(b"\"")?;
                }
            }
            b'{' | b'[' => {
                if top && self.at_model && !self.at_key {
                    return Err(not_text());
                }
                self.depth += 1;
                if self.depth > rules.caps.depth {
                    return Err(refusals::too_deep(rules.caps.depth));
                }
            }
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.state = ValueState::Over;
                }
            }
            b':' if top => self.at_key = false,
            b',' if top => (self.at_key, self.at_model) = (true, false),
            byte if top && self.at_model && !self.at_key => {
                self.token_at.get_or_insert(at);
                self.keep(&[byte])?;
            }
            _ => {}
        }
        if byte != b'}' || self.depth > 0 {
            self.is_empty = false;
        }
        Ok(())
    }

    /// Buffers bytes of a key or of the model's value. Fails if the value is too long.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.token_at.is_none() {
            return Ok(());
        }
        if self.at_key {
            let room = KEY.saturating_sub(self.token.len());
            self.token
                .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        } else if self.token.len() + bytes.len() > VALUE {
            return Err(too_long());
        } else {
            self.token.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Handles the end of a string at offset `end`: a key, or the model's value.
    fn text_ended(&mut self, end: usize, rules: &Rules) -> Result<(), Failure> {
        let Some(begin) = self.token_at.take() else {
            return Ok(());
        };
        let text = serde_json::from_slice::<String>(&self.token).ok();
        self.token.clear();
        if !self.at_key {
            // Invalid JSON with a second value after the first must not count as the model.
            self.at_model = false;
            let model = text.ok_or_else(not_text)?;
            self.named = Some(NamedModel {
                model,
                at: begin..end,
            });
            return Ok(());
        }
        let key = text.unwrap_or_default();
        check::check_reserved_field(&key, rules)?;
        self.at_model = key == MODEL;
        if self.at_model && self.named.is_some() {
            Err(check::repeated(MODEL.to_owned()))
        } else {
            Ok(())
        }
    }

    /// Handles the end of a word such as `null` at offset `end`, if one is buffered.
    fn word_ended(&mut self, end: usize) -> Result<(), Failure> {
        let Some(begin) = self.token_at.take().filter(|_| !self.at_key) else {
            return Ok(());
        };
        let is_null = self.token == b"null";
        self.token.clear();
        self.at_model = false;
        if !is_null {
            return Err(not_text());
        }
        self.named = Some(NamedModel {
            model: String::new(),
            at: begin..end,
        });
        Ok(())
    }
}

fn not_text() -> Failure {
    refusals::invalid(MODEL, "it must be a string")
}
