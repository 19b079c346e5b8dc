//! Bodies of one exchange, in the order in which their bytes came and went.
//!
//! Takes: pieces of bodies. Gives: the same pieces again. Remembers: all of them. Never: moves a byte once it is there,
//! or takes memory that has not been granted.
//!
//! A relayed chunk is recorded twice, as the engine's and as the client's. Both go to the end of one block: a list for
//! each body and one for its times would have the processor fetch several times as much from memory.

use std::time::Duration;

/// Bytes before each piece: its time in microseconds, its body and its length.
const HEADER: usize = 16;
/// Memory of a block apart from its bytes.
const BLOCK: usize = 64;
/// Bytes of the first block. Each further one doubles the log, up to [`LARGEST`].
const SMALLEST: usize = 2 << 10;
/// Bytes of the largest block, apart from one that is made for a longer piece.
const LARGEST: usize = 64 << 10;
/// Marks the rest of a piece that began in another block.
const IS_REST: u32 = 1 << 31;

/// Body that a piece belongs to. An attempt is told by its number in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyPlace {
    /// Request of the client.
    Request,
    /// Answer to the client.
    Answer,
    /// Request of an attempt.
    AttemptRequest(usize),
    /// Answer to an attempt.
    AttemptAnswer(usize),
}

impl BodyPlace {
    /// Returns the place as a number; `None` for an attempt beyond two to the power of 30.
    fn number(self) -> Option<u32> {
        let number = match self {
            Self::Request => 0,
            Self::Answer => 1,
            Self::AttemptRequest(index) => 2 * index + 2,
            Self::AttemptAnswer(index) => 2 * index + 3,
        };
        u32::try_from(number)
            .ok()
            .filter(|number| number & IS_REST == 0)
    }

    fn of(number: u32) -> Self {
        let index = || (number as usize / 2).saturating_sub(1);
        match number {
            0 => Self::Request,
            1 => Self::Answer,
            _ if number.is_multiple_of(2) => Self::AttemptRequest(index()),
            _ => Self::AttemptAnswer(index()),
        }
    }
}

/// Bytes that came or went at once, or a part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyLogEntry<'a> {
    pub(super) place: BodyPlace,
    /// Time since the request arrived.
    pub(super) at: Duration,
    pub(super) bytes: &'a [u8],
    /// True if these bytes came together with those of the entry before, in the same body.
    pub(super) is_rest: bool,
}

/// Pieces of all bodies of one exchange.
#[derive(Debug, Default)]
pub(super) struct BodyLog {
    /// Block that is being filled.
    open: Vec<u8>,
    full: Vec<Vec<u8>>,
    /// Bytes of all blocks.
    held: usize,
}

impl BodyLog {
    /// Appends a piece. `grant` is called for the memory of further blocks. Returns false if it refuses: then the end
    /// of the piece is missing, and nothing may follow.
    pub(super) fn push(
        &mut self,
        place: BodyPlace,
        at: Duration,
        bytes: &[u8],
        mut grant: impl FnMut(usize) -> bool,
    ) -> bool {
        let Some(mut number) = place.number() else {
            return false;
        };
        let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let mut left = bytes;
        while !left.is_empty() {
            let room = self.open.capacity() - self.open.len();
            if room <= HEADER {
                if !self.add_block(HEADER + left.len(), &mut grant) {
                    return false;
                }
                continue;
            }
            let (now, later) = left.split_at(left.len().min(room - HEADER).min(u32::MAX as usize));
            self.open.extend_from_slice(&at.to_le_bytes());
            self.open.extend_from_slice(&number.to_le_bytes());
            self.open
                .extend_from_slice(&(now.len() as u32).to_le_bytes());
            self.open.extend_from_slice(now);
            (left, number) = (later, number | IS_REST);
        }
        true
    }

    /// Begins a block that has room for so many bytes at least. It doubles the log, or adds as much as is
    /// granted.
    fn add_block(&mut self, needed: usize, grant: &mut impl FnMut(usize) -> bool) -> bool {
        let mut size = needed.max(self.held.clamp(SMALLEST, LARGEST));
        while !grant(BLOCK + size) {
            if size == needed {
                return false;
            }
            size = needed.max(size / 2);
        }
        self.held += size;
        let full = std::mem::replace(&mut self.open, Vec::with_capacity(size));
        if !full.is_empty() {
            self.full.push(full);
        }
        true
    }

    /// Returns the pieces in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = BodyLogEntry<'_>> {
        self.full.iter().chain([&self.open]).flat_map(|block| {
            let mut rest = block.as_slice();
            std::iter::from_fn(move || {
                let (entry, after) = entry(rest)?;
                rest = after;
                Some(entry)
            })
        })
    }
}

/// Returns the first entry of a block's rest, and the rest after it.
fn entry(block: &[u8]) -> Option<(BodyLogEntry<'_>, &[u8])> {
    let (at, block) = block.split_first_chunk()?;
    let (number, block) = block.split_first_chunk()?;
    let (length, block) = block.split_first_chunk()?;
    let number = u32::from_le_bytes(*number);
    let (bytes, after) = block.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let entry = BodyLogEntry {
        place: BodyPlace::of(number & !IS_REST),
        at: Duration::from_micros(u64::from_le_bytes(*at)),
        bytes,
        is_rest: number & IS_REST != 0,
    };
    Some((entry, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [BodyPlace; 6] = [
        BodyPlace::Request,
        BodyPlace::Answer,
        BodyPlace::AttemptRequest(0),
        BodyPlace::AttemptAnswer(0),
        BodyPlace::AttemptRequest(7),
        BodyPlace::AttemptAnswer(7),
    ];

    #[test]
    fn places_are_numbered() {
        for place in PLACES {
            assert_eq!(BodyPlace::of(place.number().unwrap()), place);
        }
        assert_eq!(BodyPlace::AttemptAnswer(1 << 31).number(), None);
    }

    /// Pieces of every length come back, whichever block they fall into.
    #[test]
    fn pieces_come_back() {
        let mut log = BodyLog::default();
        let mut expected = Vec::new();
        let mut granted = 0;
        for length in (0..300).chain([5_000, 70_000, 1, 400_000]) {
            let place = PLACES[length % PLACES.len()];
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let at = Duration::from_micros(length as u64);
            assert!(log.push(place, at, &bytes, |more| {
                granted += more;
                true
            }));
            if length > 0 {
                expected.push((place, at, bytes));
            }
        }
        let mut found: Vec<(BodyPlace, Duration, Vec<u8>)> = Vec::new();
        for entry in log.entries() {
            match found.last_mut().filter(|_| entry.is_rest) {
                Some((place, at, bytes)) => {
                    assert_eq!((*place, *at), (entry.place, entry.at));
                    bytes.extend_from_slice(entry.bytes);
                }
                None => found.push((entry.place, entry.at, entry.bytes.to_vec())),
            }
        }
        assert!(found == expected);
        let held: usize = log.full.iter().chain([&log.open]).map(Vec::capacity).sum();
        assert_eq!(
            granted,
            held + BLOCK * (log.full.len() + 1),
            "every byte was granted"
        );
    }

    #[test]
    fn the_log_ends_where_no_more_memory_is_granted() {
        let mut log = BodyLog::default();
        let mut left = 10_000;
        let mut grant = |more: usize| {
            let fits = more <= left;
            left -= if fits { more } else { 0 };
            fits
        };
        while log.push(BodyPlace::Answer, Duration::ZERO, &[b'x'; 100], &mut grant) {}
        let kept: usize = log.entries().map(|entry| entry.bytes.len()).sum();
        assert!((8_000..10_000).contains(&kept), "{kept}");
    }
}
