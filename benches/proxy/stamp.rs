//! The time of sending, inside a chunk.
//!
//! Takes: what arrives of an answer.
//! Gives: a chunk with the time in it; the times found.
//! Remembers: the chunk, rendered once; the beginning of a stamp that is split across two reads.
//! Never: reads any clock but the monotonic one, which all processes of a machine share.

use crate::frames::delta;
use rustix::time::{ClockId, clock_gettime};

/// Room for a stamp, as it is rendered into a chunk: nanoseconds between two marks that are nowhere else in an
/// answer. JSON spells it one way only, so that proxies that write chunks anew keep it.
const BLANK: &str = "@000000000000000000@";
const MARK: u8 = b'@';

/// Returns the monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Delta whose text is a stamp.
pub(crate) struct Stamped {
    delta: Vec<u8>,
    /// Position of the first digit.
    digits: usize,
}

impl Stamped {
    pub(crate) fn new() -> Self {
        let delta = delta(BLANK);
        let mark = memchr::memchr(MARK, &delta).unwrap();
        Self {
            delta,
            digits: mark + 1,
        }
    }

    /// Returns the delta with the present time in it.
    pub(crate) fn now(&mut self) -> &[u8] {
        let mut rest = now();
        for digit in self.delta[self.digits..][..BLANK.len() - 2]
            .iter_mut()
            .rev()
        {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        &self.delta
    }
}

/// Reader of the stamps in an answer.
#[derive(Default)]
pub(crate) struct Stamps {
    rest: Vec<u8>,
    /// Times found and not yet taken.
    pub(crate) found: Vec<u64>,
}

impl Stamps {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(ahead) = memchr::memchr(MARK, &self.rest[from..]) {
            let begin = from + ahead;
            let Some(stamp) = self.rest.get(begin..begin + BLANK.len()) else {
                self.rest.drain(..begin);
                return;
            };
            from = match read(stamp) {
                Some(nanoseconds) => {
                    self.found.push(nanoseconds);
                    begin + BLANK.len()
                }
                None => begin + 1,
            };
        }
        self.rest.clear();
    }
}

fn read(stamp: &[u8]) -> Option<u64> {
    let digits = stamp.strip_prefix(&[MARK])?.strip_suffix(&[MARK])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
