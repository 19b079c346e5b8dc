//! Bytes of JSON strings that matter to a scanner: quotes, backslashes and control characters, found many at a time.
//!
//! Takes: bytes. Gives: the places of those that matter. Remembers: the block at hand.
//! Never: resolves an escape.

use wide::u8x16;

/// Bytes that are looked at together.
const BLOCK: usize = 16;
/// Blocks without a mark after which a search that has a start-up cost is worth it.
const CLEAN: usize = 16;

/// Search for the marks of a string: bytes that end it, begin an escape, or are not allowed in it.
pub(super) struct Marks<'a> {
    bytes: &'a [u8],
    /// Place of the block at hand.
    at: usize,
    /// A bit for each mark of the block.
    left: u32,
}

impl<'a> Marks<'a> {
    /// Begins a search at a place of `bytes`.
    pub(super) fn from(bytes: &'a [u8], at: usize) -> Self {
        Self {
            bytes,
            at,
            left: marks(bytes, at),
        }
    }

    /// Returns the place of the first mark at or after `from`, which is not before earlier ones; the end of the bytes if
    /// there is none.
    #[inline]
    pub(super) fn next(&mut self, from: usize) -> usize {
        let seen = from - self.at;
        if seen < BLOCK {
            self.left &= u32::MAX << seen;
        } else {
            *self = Self::from(self.bytes, from);
        }
        let mut clean = 0;
        while self.left == 0 {
            clean += 1;
            self.at += BLOCK;
            if clean == CLEAN {
                clean = 0;
                self.at += clean_run(self.bytes.get(self.at..).unwrap_or_default());
            }
            self.left = marks(self.bytes, self.at);
        }
        self.at + self.left.trailing_zeros() as usize
    }
}

/// Returns a bit for each mark of the block at this place. The end of the bytes counts as one.
#[inline]
fn marks(bytes: &[u8], at: usize) -> u32 {
    let rest = bytes.get(at..).unwrap_or_default();
    let block = match rest.first_chunk() {
        Some(block) => *block,
        None => {
            let mut block = [0; BLOCK];
            block
                .iter_mut()
                .zip(rest)
                .for_each(|(to, from)| *to = *from);
            block
        }
    };
    let block = u8x16::new(block);
    let control = block.min(u8x16::splat(0x1f)).simd_eq(block);
    (control | block.simd_eq(u8x16::splat(b'"')) | block.simd_eq(u8x16::splat(b'\\'))).to_bitmask()
}

/// Returns the number of bytes before the first mark. Fast where marks are rare.
fn clean_run(bytes: &[u8]) -> usize {
    let run = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    let run = bytes.get(..run).unwrap_or_default();
    // Without an early end, this loop is vectorised.
    let is_allowed = run.iter().fold(u8::MAX, |least, byte| least.min(*byte)) >= 0x20;
    if is_allowed {
        run.len()
    } else {
        run.iter().take_while(|byte| **byte >= 0x20).count()
    }
}

/// Returns the number of bytes before the first that is one of `these` or below `limit` (at most 0x80).
///
/// Answers consist of words: for short runs, eight bytes at a time are faster than a vectorised search, which has a
/// start-up cost.
#[inline]
pub fn plain_run<const N: usize>(bytes: &[u8], these: [u8; N], limit: u8) -> usize {
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let (words, rest) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Marks the bytes below `limit`. A borrow may mark one too many, but only after a true match.
        let below =
            |word: u64, limit: u8| word.wrapping_sub(u64::from_le_bytes([limit; 8])) & !word & HIGH;
        let equal = |byte: u8| below(word ^ u64::from_le_bytes([byte; 8]), 1);
        let found = these
            .into_iter()
            .fold(below(word, limit), |found, byte| found | equal(byte));
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let special = |byte: &u8| *byte < limit || these.contains(byte);
    words.len() * 8 + rest.iter().position(special).unwrap_or(rest.len())
}
