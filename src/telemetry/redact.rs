//! Redaction of an engine's error text for the log: removes what it quotes from the request.
//!
//! Engines quote the request in their errors (pydantic's `input_value=…`, a prompt that is too long). Prompts must
//! not appear in the log, so every run of [`WINDOW`] bytes or more that also occurs in the request is removed, except
//! the model's name and runs of lower-case letters and underscores, which are mostly names of fields. If the request
//! is no longer available, all text in quotes and brackets is removed.

use std::collections::HashMap;
use std::ops::Range;

/// Replacement for removed text.
const REDACTED: &str = "[…]";
/// Shortest run of bytes shared with the request that counts as a quotation.
const WINDOW: usize = 12;
/// Bytes that are compared first, through a hash table.
const ANCHOR: usize = 8;
/// Distance between two anchors in the request: every run of [`WINDOW`] bytes contains one.
const STEP: usize = WINDOW - ANCHOR + 1;
/// Bytes of the request that are unescaped and searched at a time.
const CHUNK: usize = 256 << 10;
/// Bytes that two chunks share, so that a quotation at the end of one is complete in the next.
const OVERLAP: usize = 4 << 10;
/// Maximum number of comparisons per text. Repetitive requests would need many more; the whole text is then
/// removed.
const COMPARISONS: usize = 1 << 20;
/// Bits of a filter that rejects most positions of the request before the hash table is consulted.
const BITS: usize = 1 << 15;

/// Words after which engines quote the request without quotation marks.
const QUOTING: [&str; 5] = ["input_value=", "'input':", "\"input\":", "input:", "got:"];

/// Returns the text without its quotations of the request's JSON. `request`: `None` if it is not available.
/// `model`: name of the model, which is kept.
pub fn redacted(text: &str, request: Option<&[u8]>, model: &str) -> String {
    let text = &without_keys(text);
    match request {
        Some(request) => without(
            text,
            &Quotations::of(text.as_bytes()).found_in(request),
            model,
        ),
        None => without_quotes(text),
    }
}

/// Returns the text without keys: words that begin with `sk-`, and those after `Bearer`.
fn without_keys(text: &str) -> String {
    const KEY: &str = "sk-";
    const SCHEME: &str = "bearer";
    let is_part =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '*');
    // Characters of a token (RFC 6750, 2.1).
    let is_of_key = |letter: char| is_part(letter) || matches!(letter, '~' | '+' | '/' | '=');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_after_scheme = false;
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|letter: char| !is_part(letter))
            .unwrap_or(rest.len())
            .max(first.len_utf8());
        let (word, mut after) = rest.split_at(end);
        let is_key =
            word.starts_with(KEY) && word.len() > KEY.len() || is_after_scheme && is_part(first);
        out.push_str(if is_key { REDACTED } else { word });
        if is_key {
            after = after.trim_start_matches(is_of_key);
        }
        is_after_scheme = match is_part(first) {
            true => word.eq_ignore_ascii_case(SCHEME),
            false => is_after_scheme && word == " ",
        };
        rest = after;
    }
    out
}

/// Returns the text without the marked bytes. Keeps identifiers and the model's name.
fn without(text: &str, taken: &[bool], model: &str) -> String {
    let kept = names(text, model);
    let mut out = String::with_capacity(text.len());
    let mut was_taken = false;
    let mut at = 0;
    while at < text.len() {
        let run = taken.get(at..).unwrap_or_default();
        let is_taken = run.first().copied().unwrap_or(false);
        let end = at
            + run
                .iter()
                .position(|other| *other != is_taken)
                .unwrap_or(text.len() - at);
        // Bytes of one character stay together.
        let (start, end) = (text.ceil_char_boundary(at), text.ceil_char_boundary(end));
        let part = text.get(start..end).unwrap_or_default();
        let stays = !is_taken
            || is_word(part)
            || kept
                .iter()
                .any(|kept| kept.start <= start && end <= kept.end);
        if stays {
            out.push_str(part);
        } else if !was_taken {
            out.push_str(REDACTED);
        }
        was_taken = !stays;
        at = end.max(at + 1);
    }
    out
}

/// Returns true if the text has only lower-case letters and underscores, as names of fields do. A lower-case password
/// is kept, too.
fn is_word(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Returns the positions of the model's name, with the quotes around it.
fn names(text: &str, model: &str) -> Vec<Range<usize>> {
    if model.is_empty() {
        return Vec::new();
    }
    let around = |(at, name): (usize, &str)| {
        let before = text
            .get(..at)
            .unwrap_or_default()
            .trim_end_matches(['"', '\'', '`', ' ', ':']);
        let after = text.get(at + name.len()..).unwrap_or_default();
        let more = after.len() - after.trim_start_matches(['"', '\'', '`', ',', ' ']).len();
        before.len()..at + name.len() + more
    };
    text.match_indices(model).map(around).collect()
}

/// Returns the text without everything in quotes, brackets and braces, and without what follows a word in
/// [`QUOTING`].
fn without_quotes(text: &str) -> String {
    let end = QUOTING.iter().filter_map(|word| text.find(word)).min();
    let mut out = String::new();
    // Ends of what is open, each with whether it has a backslash.
    let mut open: Vec<(char, bool)> = Vec::new();
    let (mut before, mut is_escaped) = (' ', false);
    let mut letters = text
        .get(..end.unwrap_or(text.len()))
        .unwrap_or(text)
        .chars()
        .peekable();
    while let Some(letter) = letters.next() {
        // An apostrophe within a word is not a quotation mark.
        let is_apostrophe =
            letter == '\'' && letters.peek().is_some_and(|next| next.is_alphanumeric());
        let closes = open.last() == Some(&(letter, is_escaped)) && !is_apostrophe;
        let is_quoted = matches!(open.last(), Some(('"' | '`' | '\'', _)));
        let opens = match letter {
            _ if is_quoted => None,
            '{' => Some(('}', false)),
            '[' => Some((']', false)),
            '"' | '`' => Some((letter, is_escaped)),
            '\'' if !before.is_alphanumeric() => Some((letter, is_escaped)),
            _ => None,
        };
        if closes {
            open.pop();
        } else if let Some(end) = opens {
            if open.is_empty() {
                out.push_str(REDACTED);
            }
            open.push(end);
        } else if open.is_empty() {
            out.push(letter);
        }
        is_escaped = letter == '\\' && !is_escaped;
        before = letter;
    }
    if end.is_some() {
        out.push_str(REDACTED);
    }
    out
}

/// Search for the parts of a text that also occur in the request.
struct Quotations<'t> {
    text: &'t [u8],
    anchors: HashMap<[u8; ANCHOR], Vec<usize>>,
    bits: Vec<bool>,
    found: Vec<bool>,
    left: usize,
}

impl<'t> Quotations<'t> {
    fn of(text: &'t [u8]) -> Self {
        let mut anchors: HashMap<_, Vec<_>> = HashMap::new();
        let mut bits = vec![false; BITS];
        for (at, anchor) in text.windows(ANCHOR).enumerate() {
            let Some(anchor) = anchor.first_chunk::<ANCHOR>() else {
                continue;
            };
            anchors.entry(*anchor).or_default().push(at);
            if let Some(bit) = bits.get_mut(bit(anchor)) {
                *bit = true;
            }
        }
        Self {
            text,
            anchors,
            bits,
            found: vec![false; text.len()],
            left: COMPARISONS,
        }
    }

    /// Returns, for each byte of the text, true if it belongs to a quotation of the request.
    fn found_in(mut self, request: &[u8]) -> Vec<bool> {
        let mut plain = Vec::new();
        let mut at = 0;
        while at < request.len() {
            let chunk = request
                .get(at..(at + CHUNK + OVERLAP).min(request.len()))
                .unwrap_or_default();
            plain.clear();
            unescape(chunk, &mut plain);
            if self.search(&plain).is_none() {
                return vec![true; self.text.len()];
            }
            at += CHUNK;
        }
        self.found
    }

    /// Searches a part of the request. Returns `None` once the limit of comparisons is reached.
    fn search(&mut self, request: &[u8]) -> Option<()> {
        for at in (0..request.len().saturating_sub(ANCHOR - 1)).step_by(STEP) {
            let Some(anchor) = request
                .get(at..)
                .and_then(|rest| rest.first_chunk::<ANCHOR>())
            else {
                break;
            };
            if !self.bits.get(bit(anchor)).copied().unwrap_or(false) {
                continue;
            }
            for place in self
                .anchors
                .get(anchor)
                .map(Vec::as_slice)
                .unwrap_or_default()
            {
                let (before, after) = shared((self.text, *place), (request, at));
                self.left = self.left.checked_sub(1 + before + after)?;
                if before + after >= WINDOW {
                    let run = self.found.get_mut(place - before..place + after);
                    run.into_iter().flatten().for_each(|found| *found = true);
                }
            }
        }
        Some(())
    }
}

/// Returns the numbers of equal bytes before and after two positions.
fn shared((text, place): (&[u8], usize), (request, at): (&[u8], usize)) -> (usize, usize) {
    let halves = text
        .split_at_checked(place)
        .zip(request.split_at_checked(at));
    let Some(((front, back), (other_front, other_back))) = halves else {
        return (0, 0);
    };
    let same = |(one, other): &(&u8, &u8)| one == other;
    let before = front
        .iter()
        .rev()
        .zip(other_front.iter().rev())
        .take_while(same)
        .count();
    (before, back.iter().zip(other_back).take_while(same).count())
}

fn bit(anchor: &[u8; ANCHOR]) -> usize {
    let mixed = u64::from_le_bytes(*anchor).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    usize::try_from(mixed).unwrap_or(0) % BITS
}

/// Appends JSON text with its string escapes resolved, the way engines quote it.
fn unescape(json: &[u8], out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(at);
        out.extend_from_slice(plain);
        let (letter, length) = match escape.get(1) {
            Some(b'n') => ('\n', 2),
            Some(b't') => ('\t', 2),
            Some(b'r') => ('\r', 2),
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'u') => unicode(escape),
            Some(other) => (char::from(*other), 2),
            None => ('\\', 1),
        };
        out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        rest = escape.get(length..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// Decodes a `\uXXXX` escape or a surrogate pair, and returns the character with the length of the escape in
/// bytes.
fn unicode(escape: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = escape
            .get(at..at + 4)
            .and_then(|digits| std::str::from_utf8(digits).ok())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(2) else {
        return ('\\', 1);
    };
    let second = escape
        .get(6..8)
        .filter(|next| *next == b"\\u")
        .and_then(|_| unit(8));
    let both = char::decode_utf16([Some(first), second].into_iter().flatten()).next();
    match both {
        Some(Ok(letter)) => (letter, if letter.len_utf16() == 2 { 12 } else { 6 }),
        _ => (char::REPLACEMENT_CHARACTER, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_removed() {
        for (text, expected) in [
            (
                "Incorrect API key provided: sk-ENGINEKEY123.",
                "Incorrect API key provided: […]",
            ),
            (
                "bad header Authorization: Bearer abc_DEF-1, sorry",
                "bad header Authorization: Bearer […], sorry",
            ),
            ("a task-list and a bearer", "a task-list and a bearer"),
            ("Bearer abc+DEF/ghi==, sk-a/b~c", "Bearer […], […]"),
        ] {
            assert_eq!(redacted(text, Some(b"{}"), ""), expected);
            assert_eq!(redacted(text, None, ""), expected);
        }
    }

    #[test]
    fn quotations_of_the_request_are_taken_out() {
        let request = br#"{"model":"org/some-model-7b","messages":[{"role":"user","content":"My secret is \"K9-\u00e9\u4f60\u597d\u4f60\u597d\ud83d\ude00\"\nDo not tell."}],"max_completion_tokens":5}"#;
        for (text, expected) in [
            (
                "max_completion_tokens must be at least 6.",
                "max_completion_tokens must be at least 6.",
            ),
            (
                "The model `org/some-model-7b` does not exist.",
                "The model `org/some-model-7b` does not exist.",
            ),
            ("Bad prompt: My secret is \"K9-é: no", "Bad prompt: […]: no"),
            ("quoted: 你好你好😀", "quoted: […]"),
            ("in repr: 'K9-x\\nDo not tell.'", "in repr: 'K9-x\\n[…]'"),
            ("secret", "secret"),
            ("", ""),
        ] {
            assert_eq!(
                redacted(text, Some(request), "org/some-model-7b"),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn long_requests_are_searched_whole() {
        for before in [
            0,
            1,
            2,
            3,
            4,
            CHUNK - 20,
            CHUNK - 3,
            CHUNK,
            CHUNK + OVERLAP - 7,
            3 * CHUNK + 11,
        ] {
            let request = format!(
                "{{\"a\":\"{}CANARY-PROMPT-1\"}}",
                "x\\n".repeat(before / 3) + &"y".repeat(before % 3)
            );
            let text = redacted(
                "engine says: CANARY-PROMPT-1!",
                Some(request.as_bytes()),
                "",
            );
            assert_eq!(text, "engine says: […]!", "{before}");
        }
    }

    #[test]
    fn a_request_of_one_letter_is_given_up() {
        let text = "A".repeat(2048);
        let request = ("A".repeat(WINDOW - 1) + "b").repeat(400_000);
        assert_eq!(redacted(&text, Some(request.as_bytes()), ""), REDACTED);
    }

    #[test]
    fn without_the_request_all_that_may_be_a_quotation_goes() {
        for (text, expected) in [
            (
                "CUDA out of memory. Tried 2 GiB",
                "CUDA out of memory. Tried 2 GiB",
            ),
            (
                "the model's tool 'CANARY' (\"CANARY {x}\") [CANARY] is unknown",
                "the model's tool […] ([…]) […] is unknown",
            ),
            (
                "Input should be valid [type=x, input_value=CANARY",
                "Input should be valid […][…]",
            ),
            ("it isn't `CANARY", "it isn't […]"),
            (r#""he said \"CANARY 123\" to me" failed"#, "[…] failed"),
            (r#"body was \"CANARY "1" 2\", bad"#, r"body was \[…], bad"),
            ("'CANARY isn't yours 4711' failed", "[…] failed"),
            (r#""CANARY [1" failed"#, "[…] failed"),
        ] {
            assert_eq!(redacted(text, None, ""), expected);
        }
    }
}
