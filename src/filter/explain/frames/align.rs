//! Alignment of the frames that a client received with the engine's frames that produced them.
//!
//! Takes: the frames that the rewriter makes of each engine frame, and the frames that the client received. Gives:
//! the row of each client frame. Never: changes their order, or leaves one out.

use super::super::leaves::{LeafReader, Value, name};
use super::split::Block;
use crate::wire::sse::PING;
use bytes::Bytes;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Number of frames that one side may have more than the other in one place; beyond it, frames are taken in order.
const AHEAD: usize = 32;
/// Fields whose values differ between two runs of the rewriter.
const VOLATILE: [&str; 8] = [
    "created",
    "created_at",
    "completed_at",
    "encrypted_content",
    "obfuscation",
    "sequence_number",
    "signature",
    "system_fingerprint",
];

/// Frame that the rewriter makes of an engine frame.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Row of the engine frame, or the row after the last one for the end of the answer.
    pub(super) row: usize,
    pub(super) text: Bytes,
}

/// Aligner of one exchange.
pub(super) struct Aligner<'a> {
    /// Times of the engine's frames.
    pub(super) rows: &'a [Duration],
    pub(super) expected: &'a [Expected],
    pub(super) client: &'a [Block<'a>],
}

impl Aligner<'_> {
    /// Returns the row of each client frame; `None` for a frame that no engine frame has produced. Rows never
    /// decrease.
    pub(super) fn rows(&self) -> Vec<Option<usize>> {
        let mut rows = Vec::with_capacity(self.client.len());
        let (mut own, mut other) = (
            Signatures::new(self.expected.len()),
            Signatures::new(self.client.len()),
        );
        let mut next = 0;
        while rows.len() < self.client.len() {
            let here = rows.len();
            if self.is_of_no_row(next, here) {
                rows.push(None);
                continue;
            }
            let Some(expected) = self.expected.get(next) else {
                rows.push(Some(self.rows.len()));
                continue;
            };
            let mut alike =
                |next: usize, here: usize| self.is_alike(next, here, &mut own, &mut other);
            let (skipped, inserted) = (0..=AHEAD)
                .find_map(|count| match () {
                    () if alike(next, here + count) => Some((0, count)),
                    () if alike(next + count, here) => Some((count, 0)),
                    () => None,
                })
                .unwrap_or((0, 0));
            if inserted > 0 {
                rows.push(Some(expected.row));
                continue;
            }
            next += skipped;
            rows.push(self.expected.get(next).map(|expected| expected.row));
            next += 1;
        }
        join_rows(&mut rows);
        rows
    }

    /// Returns true for a frame that samewire has sent by itself, or that left before the engine's frame arrived.
    fn is_of_no_row(&self, next: usize, here: usize) -> bool {
        let Some(block) = self.client.get(here) else {
            return false;
        };
        let expected = self.expected.get(next);
        let is_keepalive = block.text.starts_with(b":") || block.text == PING;
        if is_keepalive && expected.is_none_or(|expected| expected.text != block.text) {
            return true;
        }
        let arrived = expected.and_then(|expected| self.rows.get(expected.row));
        arrived.is_some_and(|arrived| block.at < *arrived)
    }

    fn is_alike(
        &self,
        next: usize,
        here: usize,
        own: &mut Signatures,
        other: &mut Signatures,
    ) -> bool {
        let (Some(expected), Some(block)) = (self.expected.get(next), self.client.get(here)) else {
            return false;
        };
        expected.text == block.text || own.of(next, &expected.text) == other.of(here, block.text)
    }
}

/// Puts a frame of no row that is between two frames of one row into that row, so that the order stays.
fn join_rows(rows: &mut [Option<usize>]) {
    let mut open = 0;
    let mut last = None;
    for place in 0..rows.len() {
        let Some(row) = rows.get(place).copied().flatten() else {
            continue;
        };
        if last == Some(row) {
            rows.iter_mut()
                .take(place)
                .skip(open)
                .for_each(|between| *between = Some(row));
        }
        (last, open) = (Some(row), place + 1);
    }
}

/// Signatures of frames, each computed when it is first needed.
struct Signatures(Vec<Option<u64>>);

impl Signatures {
    fn new(frames: usize) -> Self {
        Self(vec![None; frames])
    }

    fn of(&mut self, place: usize, text: &[u8]) -> u64 {
        match self.0.get_mut(place) {
            Some(known) => *known.get_or_insert_with(|| signature(text)),
            None => signature(text),
        }
    }
}

/// Returns a hash of a frame's text without the ids and times that differ between two runs.
fn signature(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    // A message of a WebSocket is the data of an event, whose name its type repeats.
    for line in String::from_utf8_lossy(text)
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("event:"))
    {
        let data = line
            .strip_prefix("data:")
            .or_else(|| Some(line).filter(|line| line.starts_with('{')));
        let leaves = data.map(|data| LeafReader::default().read(data));
        match leaves.filter(|leaves| !leaves.is_empty()) {
            None => line.hash(&mut hasher),
            Some(leaves) => {
                for leaf in leaves.iter().filter(|leaf| !is_volatile(&leaf.path)) {
                    leaf.path.hash(&mut hasher);
                    match &leaf.value {
                        Value::Text(value) | Value::Other(value) => value.hash(&mut hasher),
                    }
                }
            }
        }
    }
    hasher.finish()
}

fn is_volatile(path: &str) -> bool {
    let name = name(path);
    name == "id" || name.ends_with("_id") || VOLATILE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str, id: u32) -> String {
        match text.starts_with(':') {
            true => format!("{text}\n\n"),
            false => format!("data: {{\"id\":\"{id}\",\"text\":\"{text}\"}}\n\n"),
        }
    }

    /// Aligns frames, each with its row or its time, and returns the rows of the client's.
    fn rows(
        times: &[u64],
        expected: &[(usize, &str)],
        client: &[(u64, &str)],
    ) -> Vec<Option<usize>> {
        let rows: Vec<_> = times.iter().map(|at| Duration::from_millis(*at)).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(row, text)| Expected {
                row: *row,
                text: frame(text, 1).into(),
            })
            .collect();
        let texts: Vec<_> = client
            .iter()
            .map(|(at, text)| (*at, frame(text, 2)))
            .collect();
        let client: Vec<_> = texts
            .iter()
            .map(|(at, text)| Block {
                text: text.as_bytes(),
                at: Duration::from_millis(*at),
            })
            .collect();
        Aligner {
            rows: &rows,
            expected: &expected,
            client: &client,
        }
        .rows()
    }

    #[test]
    fn frames_follow_the_rewriter() {
        let expected = [(0, "a"), (1, "b"), (1, "c"), (2, "d")];
        let client = [(5, "a"), (5, "b"), (5, "c"), (9, "d")];
        assert_eq!(
            rows(&[1, 2, 3], &expected, &client),
            [Some(0), Some(1), Some(1), Some(2)]
        );
        // The client left, or the recording was cut.
        assert_eq!(
            rows(&[1, 2, 3], &expected, &client[..2]),
            [Some(0), Some(1)]
        );
    }

    #[test]
    fn comments_belong_to_no_frame() {
        let expected = [(0, "a"), (1, "b"), (1, "c")];
        let client = [
            (0, ": ping"),
            (5, "a"),
            (6, ": ping"),
            (7, "b"),
            (7, ": ping"),
            (7, "c"),
            (8, ": ping"),
        ];
        let found = rows(&[1, 2], &expected, &client);
        assert_eq!(
            found,
            [None, Some(0), None, Some(1), Some(1), Some(1), None]
        );
        // A relayed comment is the engine's own.
        assert_eq!(rows(&[1], &[(0, ": c")], &[(2, ": c")]), [Some(0)]);
    }

    #[test]
    fn a_difference_ends_where_both_sides_agree_again() {
        let expected = [(0, "a"), (1, "b"), (2, "c"), (3, "d")];
        let more = [(5, "a"), (5, "x"), (5, "b"), (5, "c"), (5, "d"), (5, "y")];
        let found = rows(&[1, 2, 3, 4], &expected, &more);
        assert_eq!(
            found,
            [Some(0), Some(1), Some(1), Some(2), Some(3), Some(4)]
        );
        assert_eq!(
            rows(&[1, 2, 3, 4], &expected, &[(5, "a"), (5, "d")]),
            [Some(0), Some(3)]
        );
        assert_eq!(
            rows(&[1, 2], &expected[..2], &[(5, "x"), (5, "y")]),
            [Some(0), Some(1)]
        );
    }

    #[test]
    fn what_left_before_an_engine_frame_was_not_made_of_it() {
        assert_eq!(
            rows(&[10], &[(0, "a")], &[(4, "a"), (5, "b"), (12, "a")]),
            [None, None, Some(0)]
        );
    }
}
