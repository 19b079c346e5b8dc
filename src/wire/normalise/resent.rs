//! Arguments that come once more after they were complete (wire-format 2.5, engine-quirks A.1.5).
//!
//! Takes: the arguments of one call, as far as they are sent in a stream by an engine that may repeat them. Gives: whether
//! what stands behind the first value is that value again. Remembers: a hash of it, and the beginning of a second value up to a
//! bound. Never: drops anything else.

use super::digest::Digest;
use crate::json::Text;
use crate::wire::arguments::Arguments;

/// Bytes of a second value that are held until it is complete. Engines send it in one piece; what is longer is passed on.
const LONGEST: usize = 16 << 10;

/// A value, and what stands behind it.
#[derive(Debug, Default)]
pub(super) struct Resent {
    first: Digest,
    second: Option<Box<SecondValue>>,
    /// Something else has come behind the first value: nothing is held any more.
    passes: bool,
}

/// The beginning of a second value.
#[derive(Debug, Default)]
struct SecondValue {
    digest: Digest,
    progress: Arguments,
    /// In JSON spelling.
    text: Vec<u8>,
}

/// The kinds of text behind the first value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SecondText {
    /// The beginning of a value.
    Begun,
    /// The first value once more.
    Same,
    /// Anything else, to be passed on; with what was held before it, in JSON spelling, if anything was.
    Other(Option<Vec<u8>>),
}

impl Resent {
    /// Reads a piece of the first value.
    pub(super) fn read(&mut self, piece: &Text<'_>) {
        self.first.read(piece);
    }

    /// Takes a piece of what stands behind it.
    pub(super) fn take(&mut self, piece: &Text<'_>) -> SecondText {
        if self.passes {
            return SecondText::Other(None);
        }
        let mut begun = self.second.take().unwrap_or_default();
        let has_third = begun.progress.read(piece).is_some();
        begun.digest.read(piece);
        let is_whole = begun.progress.is_complete() && !has_third;
        if is_whole && begun.digest.is_same(&self.first) {
            return SecondText::Same;
        }
        let is_other = is_whole || has_third || begun.progress.is_broken();
        if is_other || begun.text.len() + piece.length() > LONGEST {
            self.passes = true;
            let held = Some(begun.text).filter(|held| !held.is_empty());
            return SecondText::Other(held.map(|mut held| {
                piece.append_to(&mut held);
                held
            }));
        }
        piece.append_to(&mut begun.text);
        self.second = Some(begun);
        SecondText::Begun
    }

    /// Gives what is held of a second value that does not go on.
    pub(super) fn rest(&mut self) -> Option<Vec<u8>> {
        let begun = self.second.take()?;
        self.passes = true;
        Some(begun.text)
    }

    /// Whether this text is the first value.
    pub(super) fn is_again(&self, text: &Text<'_>) -> bool {
        let mut digest = Digest::default();
        digest.read(text);
        digest.is_same(&self.first)
    }
}
