//! Detector of arguments that an engine sends again after they were complete (wire-format 2.5, engines
//! A.1.5).
//!
//! Takes: the arguments of one call in a stream, if its engine may repeat them. Gives: whether the text after the
//! first value is that value again. Remembers: a hash of the first value, and the beginning of a second value up to
//! a bound. Never: drops anything else.

use super::digest::Digest;
use crate::json::{Raw, Text};
use crate::wire::arguments::Arguments;

/// Bytes of a second value that are held until it is complete. Engines send it in one piece; a longer one is passed
/// on.
const LONGEST: usize = 16 << 10;

/// Comparison of a call's first value with the text after it.
#[derive(Debug, Default)]
pub(super) struct Resent {
    first: Digest,
    second: Option<Box<SecondValue>>,
    /// True once other text has followed the first value: from then on nothing is held.
    gave_up: bool,
}

/// Beginning of a second value, held until it proves equal or different.
#[derive(Debug, Default)]
struct SecondValue {
    digest: Digest,
    progress: Arguments,
    /// Text so far, in JSON spelling.
    text: Vec<u8>,
}

/// Result of reading text after the first value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    /// Beginning of a value, which is held.
    Begun,
    /// Complete repetition of the first value, to be dropped.
    Same,
    /// Other text, to be passed on. `Some`: all of it, with what was held before, in JSON spelling; `None`: the
    /// piece itself.
    Other(Option<Vec<u8>>),
}

impl Resent {
    /// Reads a piece of the first value.
    pub(super) fn read(&mut self, piece: &Text<'_>) {
        self.first.read(piece);
    }

    /// Returns the number of characters of the first value so far, if this piece begins with the same.
    pub(super) fn length_in(&self, piece: &Text<'_>) -> Option<usize> {
        let (mut start, length) = (Digest::default(), self.first.length());
        start.read(&piece.first_characters(length));
        start.is_same(&self.first).then_some(length)
    }

    /// Reads a piece of the text after the first value, and holds it if it may be a repetition.
    pub(super) fn take(&mut self, piece: &Text<'_>) -> Repetition {
        if self.gave_up {
            return Repetition::Other(None);
        }
        let mut begun = self.second.take().unwrap_or_default();
        let has_third = begun.progress.read(piece).is_some();
        begun.digest.read(piece);
        let is_whole = begun.progress.is_complete() && !has_third;
        if is_whole && (begun.digest.is_same(&self.first) || self.is_spelled(&begun.text, piece)) {
            return Repetition::Same;
        }
        let is_other = is_whole || has_third || begun.progress.is_broken();
        if is_other || begun.text.len() + piece.length() > LONGEST {
            self.gave_up = true;
            let held = Some(begun.text).filter(|held| !held.is_empty());
            return Repetition::Other(held.map(|mut held| {
                piece.append_to(&mut held);
                held
            }));
        }
        piece.append_to(&mut begun.text);
        self.second = Some(begun);
        Repetition::Begun
    }

    /// Returns true if the text in JSON spelling, and the piece after it, are a JSON string that spells the first value.
    fn is_spelled(&self, text: &[u8], piece: &Text<'_>) -> bool {
        let mut whole = text.to_vec();
        piece.append_to(&mut whole);
        let literal = std::str::from_utf8(&whole)
            .ok()
            .map(|text| Text::json(text).decoded().trim().to_owned());
        let spelled = literal
            .as_deref()
            .filter(|literal| literal.starts_with('"'));
        spelled
            .and_then(Raw::of)
            .and_then(Text::of)
            .is_some_and(|value| self.is_again(&Text::plain(&value.decoded())))
    }

    /// Returns true if the beginning of a second value is held.
    pub(super) fn is_holding(&self) -> bool {
        self.second.is_some()
    }

    /// Returns the held part of a second value that does not continue. Nothing is held afterwards.
    pub(super) fn rest(&mut self) -> Option<Vec<u8>> {
        let begun = self.second.take()?;
        self.gave_up = true;
        Some(begun.text)
    }

    /// Returns true if the first value of another call is the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.first.is_same(&other.first)
    }

    /// Returns true if `text` is the first value.
    pub(super) fn is_again(&self, text: &Text<'_>) -> bool {
        let mut digest = Digest::default();
        digest.read(text);
        digest.is_same(&self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the last of several pieces after the first value turns out to be.
    fn last(pieces: &[&str]) -> Repetition {
        let mut resent = Resent::default();
        resent.read(&Text::plain(r#"{"a":1}"#));
        pieces
            .iter()
            .map(|piece| resent.take(&Text::plain(piece)))
            .last()
            .unwrap()
    }

    #[test]
    fn only_the_same_value_is_a_repetition() {
        let held = |text: &str| Repetition::Other(Some(text.as_bytes().to_vec()));
        for (pieces, expected) in [
            (&[r#"{"a":1}"#][..], Repetition::Same),
            (&[r#"{"a""#], Repetition::Begun),
            (&[r#"{"a""#, ":1}"], Repetition::Same),
            (&[r#"{"a":2}"#], Repetition::Other(None)),
            (&[r#"{"a":1} {"a":1}"#], Repetition::Other(None)),
            (&["]"], Repetition::Other(None)),
            (&[r#"{"a""#, ":2}"], held(r#"{\"a\":2}"#)),
            (&[r#"{"a""#, "]"], held(r#"{\"a\"]"#)),
            (&[r#"{"a":2}"#, r#"{"a":1}"#], Repetition::Other(None)),
            // Once more as a string.
            (&[r#""{\"a\":1}""#], Repetition::Same),
            (&[r#""{\"a\""#, r#":1}""#], Repetition::Same),
            (&[r#""{\"a\":2}""#], Repetition::Other(None)),
        ] {
            assert_eq!(last(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_long_beginning_is_passed_on() {
        let (fits, long) = (
            "[".to_owned() + &"1".repeat(16383),
            "[".to_owned() + &"1".repeat(16384),
        );
        assert_eq!(last(&[&fits]), Repetition::Begun);
        assert_eq!(last(&[&long]), Repetition::Other(None));
        assert_eq!(
            last(&[&fits, "1"]),
            Repetition::Other(Some(long.into_bytes()))
        );
    }
}
