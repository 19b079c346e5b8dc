//! Search for a text within another one, however it is spelled: as it is, with the escapes of JSON (also of JSON within
//! JSON), or with those of URLs.
//!
//! A server that repeats a key writes it as its language does: PHP writes `\/`, .NET `\u002B`.

use std::ops::Range;

/// Most backslashes before a character, which bounds the time for a text of backslashes alone: JSON within JSON twice has seven.
const SLASHES: usize = 8;

/// Returns the ranges of `text` that spell `word`, in order and without overlap; none for an empty word.
pub fn places_of(word: &[u8], text: &[u8]) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    let Some(first) = word.first() else {
        return places;
    };
    let mut start = 0;
    while let Some(rest) = text.get(start..)
        && let Some(at) = memchr::memchr3(*first, b'\\', b'%', rest)
    {
        start += at;
        match end_of(word, text, start) {
            Some(end) => {
                places.push(start..end);
                start = end;
            }
            None => start += 1,
        }
    }
    places
}

/// Returns the end of the word that begins at `start`; `None` if it does not begin there.
fn end_of(word: &[u8], text: &[u8], start: usize) -> Option<usize> {
    word.iter().try_fold(start, |at, byte| {
        Some(at + spelling(*byte, text.get(at..)?)?)
    })
}

/// Returns the length of the spelling of `byte` at the start of `text`; `None` if the text starts otherwise.
fn spelling(byte: u8, text: &[u8]) -> Option<usize> {
    if text.first() == Some(&byte) {
        return Some(1);
    }
    let slashes = text
        .iter()
        .take(SLASHES)
        .take_while(|byte| **byte == b'\\')
        .count();
    let rest = text.get(slashes..)?;
    let code = |at: usize| {
        let digits = std::str::from_utf8(rest.get(at..at + 2)?).ok()?;
        u8::from_str_radix(digits, 16).ok()
    };
    match rest {
        [b'%', ..] if slashes == 0 && code(1) == Some(byte) => Some(3),
        [b'u', b'0', b'0', ..] if slashes > 0 && code(3) == Some(byte) => Some(slashes + 5),
        [plain, ..] if slashes > 0 && *plain == byte => Some(slashes + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_found() {
        for spelled in [
            r"sk/a+b=",
            r"sk\/a+b=",
            r"sk/a\u002Bb\u003d",
            r"\u0073k\\/a\\u002bb=",
            r"sk\\\/a\\\\u002bb=",
            "sk%2Fa%2bb%3D",
        ] {
            let text = format!("no \\n{spelled}, {spelled}{spelled}");
            let (length, second) = (spelled.len(), 7 + spelled.len());
            let expected = [
                5..5 + length,
                second..second + length,
                second + length..second + 2 * length,
            ];
            assert_eq!(places_of(b"sk/a+b=", text.as_bytes()), expected, "{text}");
        }
        for other in [
            "sk/a b=",
            r"sk/a\u012Bb=",
            r"sk/a\u002",
            "sk/a%2",
            r"sk\/a+b",
            "",
            &"\\".repeat(100_000),
        ] {
            assert_eq!(places_of(b"sk/a+b=", other.as_bytes()), [], "{other}");
        }
        assert_eq!(places_of(b"", b"a"), []);
    }
}
