//! Guard against a model that repeats itself without end (wire-format 2.13).
//!
//! Takes: the text of one choice, in pieces. Gives: true once its end is one period, repeated exactly. Remembers: the
//! last [`WINDOW`] bytes. Never: reads an option that is off.

use crate::json::Text;
use crate::wire::options::Guard;
use bytes::{Buf, BytesMut};

/// Bytes of text, as JSON spells it, in which repetition is looked for.
const WINDOW: usize = 64 << 10;
/// Bytes of new text after which it is looked for again.
const STEP: usize = 2 << 10;
/// Bytes at the end that must have occurred before; without them nothing is repeated. At most half of `guard.bytes`.
const TAIL: usize = 32;

/// Text of one choice that may begin to repeat itself.
#[derive(Debug, Default)]
pub(super) struct RepetitionGuard {
    window: BytesMut,
    /// Number of bytes since the last look.
    unread: usize,
}

impl RepetitionGuard {
    /// Reads the next piece. Returns true if the text now ends with as many repeats, and as many bytes of them, as the
    /// limits say.
    pub(super) fn read(&mut self, piece: &Text<'_>, limits: &Guard) -> bool {
        let before = self.window.len();
        piece.write(&mut self.window);
        self.unread += self.window.len() - before;
        if self.unread < STEP {
            return false;
        }
        self.unread = 0;
        self.window
            .advance(self.window.len().saturating_sub(WINDOW));
        let tail = self.window.last_chunk::<TAIL>();
        let earlier = self.window.get(..self.window.len() - 1).zip(tail);
        let recurs =
            earlier.is_some_and(|(text, tail)| memchr::memmem::rfind(text, tail).is_some());
        recurs && repeats(&self.window, limits)
    }
}

/// Returns true if some end of the text is a period, repeated as often as the limits say. Takes time in proportion to
/// the length.
fn repeats(text: &[u8], limits: &Guard) -> bool {
    let backwards: Vec<u8> = text.iter().rev().copied().collect();
    // For each end of the text the longest shorter one that it begins with, backwards: the rest is its period.
    let mut borders: Vec<usize> = Vec::with_capacity(backwards.len());
    let mut border = 0;
    for (at, byte) in backwards.iter().enumerate() {
        while border > 0 && backwards.get(border) != Some(byte) {
            border = borders.get(border - 1).copied().unwrap_or_default();
        }
        if at > 0 && backwards.get(border) == Some(byte) {
            border += 1;
        }
        borders.push(border);
        let length = at + 1;
        if length >= limits.bytes && length / (length - border) >= limits.repeats {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Guard = Guard {
        repeats: 4,
        bytes: 4096,
        ..Guard::OFF
    };

    /// Returns after how many bytes the text is found to repeat itself, read in pieces of this size.
    fn found(text: &str, size: usize) -> Option<usize> {
        let mut guard = RepetitionGuard::default();
        let pieces = text
            .as_bytes()
            .chunks(size)
            .map(|piece| std::str::from_utf8(piece).unwrap());
        let mut read = 0;
        pieces.into_iter().find_map(|piece| {
            read += piece.len();
            guard.read(&Text::plain(piece), &LIMITS).then_some(read)
        })
    }

    /// Returns text of this length that repeats nothing.
    fn prose(length: usize) -> String {
        (0..)
            .map(|n: u32| format!("{n:x} "))
            .flat_map(|word| word.into_bytes())
            .map(char::from)
            .take(length)
            .collect()
    }

    #[test]
    fn whole_periods_are_counted() {
        for period in [1, 2, 31, 32, 33, 700, 1024, 1500, 16_000] {
            let text = prose(3000) + &prose(period).repeat(4096_usize.div_ceil(period).max(4) + 1);
            // The start of the period may end the prose.
            let least = 3000 + (period * 4).max(4096);
            for size in [1, 7, 5000] {
                let at = found(
                    &(text.clone() + &prose(period).repeat(STEP / period + 1)),
                    size,
                );
                let at = at.unwrap_or_else(|| panic!("{period} {size}"));
                assert!(
                    at + period >= least && at <= least + period + STEP + size,
                    "{period} {size}: {at}"
                );
            }
        }
    }

    #[test]
    fn nothing_else_is_a_repetition() {
        let line = "0x00, ".repeat(20);
        for text in [
            prose(200_000),
            // Too few times, or too few bytes.
            prose(20_000) + &prose(20_000) + &prose(20_000),
            (0..200)
                .map(|n| format!("{n}{}", "-".repeat(3000)))
                .collect(),
            // Almost the same.
            (0..2000).map(|n| format!("{line}{n}\n")).collect(),
            // A period that is too long for the window.
            prose(17_000).repeat(12),
        ] {
            assert_eq!(found(&text, 1000), None, "{:.40}", text);
        }
    }
}
