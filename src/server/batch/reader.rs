//! Reader of the lines of an input file, one chunk at a time.

use crate::store::{Chunk, Error, Key, Store};
use std::sync::Arc;

/// Position in a file, with the chunk that it is in.
pub(super) struct LineReader {
    store: Arc<Store>,
    key: Key,
    /// Number of the next line, from 0 on.
    next: u64,
    chunk: Option<Chunk>,
    /// Offset of the next line in the chunk.
    at: usize,
}

impl LineReader {
    /// Creates a reader that begins with the line of this number.
    pub(super) fn new(store: Arc<Store>, key: Key, next: u64) -> Self {
        Self { store, key, next, chunk: None, at: 0 }
    }

    /// Returns the next line with its number, without its end; `None` behind the last one.
    pub(super) async fn next(&mut self) -> Result<Option<(u64, String)>, Error> {
        let is_here = self.chunk.as_ref().is_some_and(|chunk| self.next < chunk.first + chunk.lines);
        if !is_here {
            let chunk = self.store.chunk_with_line(self.key.clone(), self.next).await?;
            let Some(chunk) = chunk else { return Ok(None) };
            let skipped = usize::try_from(self.next - chunk.first).unwrap_or(usize::MAX);
            let mut ends = memchr::memchr_iter(b'\n', chunk.body.as_bytes());
            self.at = match skipped.checked_sub(1) {
                Some(skipped) => ends.nth(skipped).map_or(chunk.body.len(), |end| end + 1),
                None => 0,
            };
            self.chunk = Some(chunk);
        }
        let Some(chunk) = &self.chunk else { return Ok(None) };
        let rest = chunk.body.get(self.at..).unwrap_or_default();
        let length = memchr::memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |end| end + 1);
        let line = rest.get(..length).unwrap_or_default().trim_end_matches(['\n', '\r']);
        let line = if self.next == 0 { line.strip_prefix('\u{feff}').unwrap_or(line) } else { line };
        let found = (self.next, line.to_owned());
        self.at += length;
        self.next += 1;
        Ok(Some(found))
    }
}
