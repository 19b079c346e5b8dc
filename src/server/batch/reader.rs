//! Reader of the lines of an input file, one chunk at a time.

use super::chunk::{HeldChunk, Next, chunk_with};
use crate::server::admit::budget::Budget;
use crate::store::{Key, Store, StoreError};
use bytes::Bytes;
use std::sync::Arc;

/// Position in a file, with the chunk that it is in.
pub(super) struct LineReader {
    store: Arc<Store>,
    key: Key,
    budget: Arc<Budget>,
    /// Number of the next line, from 0 on.
    next: u64,
    chunk: Option<HeldChunk>,
    /// Offset of the next line in the chunk.
    at: usize,
}

/// Text of a line, which is a part of the memory of its chunk.
pub(super) struct LineText(Bytes);

impl LineText {
    pub(super) fn as_str(&self) -> &str {
        simdutf8::basic::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns a part of the text as bytes that are not copied.
    pub(super) fn part(&self, part: &str) -> Bytes {
        self.0.slice_ref(part.as_bytes())
    }
}

impl LineReader {
    /// Creates a reader that begins with the line of this number.
    pub(super) fn new(store: Arc<Store>, key: Key, budget: Arc<Budget>, next: u64) -> Self {
        Self {
            store,
            key,
            budget,
            next,
            chunk: None,
            at: 0,
        }
    }

    /// Reads the next line: its number, and its text without its end, which is a part of its chunk and stays in memory as
    /// long.
    pub(super) async fn next(&mut self) -> Result<Next<(u64, LineText)>, StoreError> {
        let is_here = self
            .chunk
            .as_ref()
            .is_some_and(|chunk| self.next < chunk.first + chunk.lines);
        if !is_here {
            // The last one makes room before the next one comes.
            self.chunk = None;
            let chunk = match chunk_with(&self.store, &self.key, self.next, &self.budget).await? {
                Next::Read(chunk) => chunk,
                Next::NoRoom => return Ok(Next::NoRoom),
                Next::End => return Ok(Next::End),
            };
            let skipped = usize::try_from(self.next - chunk.first).unwrap_or(usize::MAX);
            let mut ends = memchr::memchr_iter(b'\n', &chunk.bytes);
            self.at = match skipped.checked_sub(1) {
                Some(skipped) => ends.nth(skipped).map_or(chunk.bytes.len(), |end| end + 1),
                None => 0,
            };
            self.chunk = Some(chunk);
        }
        let Some(chunk) = &self.chunk else {
            return Ok(Next::End);
        };
        let rest = chunk.bytes.get(self.at..).unwrap_or_default();
        let length = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let line = rest.get(..length).unwrap_or_default();
        let line = if self.next == 0 {
            line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
        } else {
            line
        };
        let end = line
            .iter()
            .rposition(|byte| !b"\n\r".contains(byte))
            .map_or(0, |last| last + 1);
        let line = line.get(..end).unwrap_or_default();
        let found = Next::Read((self.next, LineText(chunk.bytes.slice_ref(line))));
        self.at += length;
        self.next += 1;
        Ok(found)
    }
}
