//! Output buffer, and text that an answer writes several times.
//!
//! A Responses stream repeats each text up to four times after its last delta (wire-format 4.6). These repetitions
//! are not copied but share the memory of the item that keeps the text, so a slow reader costs the memory of its
//! text only once.

use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::Arc;

/// Size in bytes at which a rope starts a new chunk. With the piece that ends it, a chunk fits the largest of the
/// allocator's small blocks, 14 KiB; each larger block would take a page beyond its size.
const CHUNK: usize = (14 << 10) - 512;
/// Limit on the bytes of one write. The HTTP library copies what it writes to a buffer that a connection keeps.
const WRITE: usize = 64 << 10;
/// Size in bytes below which text is copied rather than shared.
const SMALL: usize = 1 << 10;

/// Output buffer: canonical bytes, in order, that wait to be sent. Large repeated texts are shared, not copied.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    pieces: VecDeque<Piece>,
    /// Number of bytes in `pieces`, without `open`.
    sealed_bytes: usize,
    /// Bytes after all pieces; new bytes are appended here.
    open: BytesMut,
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    /// Chunks of a shared text from index `next` on, with the number of bytes left.
    Text {
        chunks: Arc<Vec<Bytes>>,
        next: usize,
        bytes: usize,
    },
}

/// Position in the output, for splitting it later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputMark {
    piece: usize,
    /// Number of bytes of that piece before the position.
    offset: usize,
}

impl OutputBuffer {
    /// Returns the buffer at the end of the output, for callers that append bytes directly.
    #[inline]
    pub fn open(&mut self) -> &mut BytesMut {
        &mut self.open
    }

    /// Returns the number of bytes that wait to be sent.
    #[inline]
    pub fn len(&self) -> usize {
        self.sealed_bytes + self.open.len()
    }

    /// Returns true if no bytes wait to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes and returns the next bytes to send, a piece that fits one write; empty if nothing waits.
    pub fn take(&mut self) -> Bytes {
        let (bytes, gone) = match self.pieces.front_mut() {
            None => {
                let length = self.open.len().min(WRITE);
                return self.open.split_to(length).freeze();
            }
            Some(Piece::Bytes(piece)) if piece.len() > WRITE => (piece.split_to(WRITE), false),
            Some(Piece::Bytes(piece)) => (std::mem::take(piece), true),
            Some(Piece::Text {
                chunks,
                next,
                bytes,
            }) => {
                let chunk = chunks.get(*next).cloned().unwrap_or_default();
                *next += 1;
                *bytes -= chunk.len();
                (chunk, *next >= chunks.len())
            }
        };
        self.sealed_bytes -= bytes.len();
        if gone {
            self.pieces.pop_front();
        }
        bytes
    }

    fn take_open(&mut self) -> Bytes {
        self.open.split().freeze()
    }

    /// Removes and returns all bytes, in one contiguous piece.
    pub fn join(&mut self) -> Bytes {
        if self.pieces.is_empty() {
            return self.take_open();
        }
        let all = self.to_vec();
        self.clear();
        all.into()
    }

    /// Returns a copy of all bytes; nothing is removed.
    pub fn to_vec(&self) -> Vec<u8> {
        self.to_vec_with(0)
    }

    /// Returns a copy of all bytes, with room for `more`.
    pub(crate) fn to_vec_with(&self, more: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len() + more);
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => all.extend_from_slice(bytes),
                Piece::Text { chunks, next, .. } => {
                    chunks
                        .iter()
                        .skip(*next)
                        .for_each(|chunk| all.extend_from_slice(chunk));
                }
            }
        }
        all.extend_from_slice(&self.open);
        all
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.sealed_bytes = 0;
        self.open.clear();
    }

    // === places ===

    /// Returns the position of the next byte that is appended.
    pub fn mark(&self) -> OutputMark {
        OutputMark {
            piece: self.pieces.len(),
            offset: self.open.len(),
        }
    }

    /// Splits off all bytes after a position. None of the bytes before it may have been taken since it was marked.
    pub fn split_off(&mut self, at: OutputMark) -> Self {
        let mut rest = Self::default();
        if at.piece >= self.pieces.len() {
            rest.open = self.open.split_off(at.offset.min(self.open.len()));
            return rest;
        }
        rest.pieces = self.pieces.split_off(at.piece);
        rest.open = std::mem::take(&mut self.open);
        if let Some(Piece::Bytes(first)) = rest.pieces.front_mut() {
            // This piece was still open when the position was marked.
            self.open = first.split_to(at.offset.min(first.len())).into();
        }
        rest.sealed_bytes = rest.pieces.iter().map(Piece::len).sum();
        self.sealed_bytes = self.pieces.iter().map(Piece::len).sum();
        rest
    }

    // === writing ===

    /// Appends these bytes.
    #[inline]
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    /// Appends this byte.
    #[inline]
    pub(crate) fn put_u8(&mut self, byte: u8) {
        self.open.put_u8(byte);
    }

    /// Appends a text; the full chunks of a rope are shared, not copied.
    pub(crate) fn push_text(&mut self, text: Spelled<'_>) {
        let rope = match text {
            Spelled::Piece(piece) => return self.open.extend_from_slice(piece),
            Spelled::Whole(rope) => rope,
        };
        let bytes = rope.full.iter().map(Bytes::len).sum();
        if bytes > 0 {
            self.seal();
            self.push(Piece::Text {
                chunks: Arc::clone(&rope.full),
                next: 0,
                bytes,
            });
        }
        self.open.extend_from_slice(&rope.last);
    }

    /// Appends bytes that are in memory anyway; from [`SMALL`] bytes on they are shared, not copied.
    pub(crate) fn share(&mut self, text: &Bytes) {
        if text.len() < SMALL {
            return self.open.extend_from_slice(text);
        }
        self.seal();
        self.push(Piece::Text {
            chunks: Arc::new(vec![text.clone()]),
            next: 0,
            bytes: text.len(),
        });
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            let open = self.open.split().freeze();
            self.push(Piece::Bytes(open));
        }
    }

    fn push(&mut self, piece: Piece) {
        self.sealed_bytes += piece.len();
        self.pieces.push_back(piece);
    }
}

impl From<Bytes> for OutputBuffer {
    fn from(bytes: Bytes) -> Self {
        let mut out = Self::default();
        if !bytes.is_empty() {
            out.push(Piece::Bytes(bytes));
        }
        out
    }
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Text { bytes, .. } => *bytes,
        }
    }
}

/// Rope: a growing text in JSON spelling. It is in memory once, however often it is written, and its spare capacity
/// is bounded.
#[derive(Debug, Default)]
pub(crate) struct Rope {
    full: Arc<Vec<Bytes>>,
    last: BytesMut,
}

impl Rope {
    /// Appends what `write` writes, and returns those bytes.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut BytesMut)) -> &[u8] {
        if self.last.len() >= CHUNK {
            self.begin_chunk();
        }
        let start = self.last.len();
        write(&mut self.last);
        self.last.get(start..).unwrap_or_default()
    }

    fn begin_chunk(&mut self) {
        let chunk = Bytes::copy_from_slice(&self.last);
        Arc::make_mut(&mut self.full).push(chunk);
        self.last.clear();
        if self.last.capacity() > 2 * CHUNK {
            self.last = BytesMut::new();
        }
    }

    /// Ends the text: releases spare capacity, because nothing more will be appended.
    pub(crate) fn close(&mut self) {
        if self.last.len() > SMALL {
            self.begin_chunk();
            self.last = BytesMut::new();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.is_empty()
    }

    /// Returns true if the text equals these bytes.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        let mut chunks = self
            .full
            .iter()
            .map(|chunk| &chunk[..])
            .chain([&self.last[..]]);
        chunks
            .try_fold(bytes, |rest, chunk| rest.strip_prefix(chunk))
            .is_some_and(<[u8]>::is_empty)
    }

    /// Returns a copy of the whole text in one piece.
    pub(crate) fn join(&self) -> String {
        let chunks = self
            .full
            .iter()
            .map(|chunk| &chunk[..])
            .chain([&self.last[..]]);
        // The bytes come from text, so they are valid UTF-8.
        String::from_utf8(chunks.collect::<Vec<_>>().concat()).unwrap_or_default()
    }
}

/// Text in JSON spelling, either a new piece or a repetition of a whole text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spelled<'a> {
    /// A new piece, which is copied to the output.
    Piece(&'a [u8]),
    /// A whole text that was written before in pieces; it is shared.
    Whole(&'a Rope),
}

impl Default for Spelled<'_> {
    fn default() -> Self {
        Self::Piece(b"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(bytes: usize) -> Rope {
        let mut rope = Rope::default();
        for _ in 0..bytes.div_ceil(1000) {
            rope.append(|out| out.extend_from_slice(&[b'r'; 1000]));
        }
        rope
    }

    #[test]
    fn a_text_is_shared_and_told_in_full() {
        for bytes in [0, 1_000, CHUNK - 1, CHUNK, 10 * CHUNK + 7] {
            let mut rope = rope(bytes);
            for _ in 0..2 {
                let mut out = OutputBuffer::default();
                out.extend_from_slice(b"<");
                out.push_text(Spelled::Whole(&rope));
                out.extend_from_slice(b">");
                let expected = format!("<{}>", rope.join());
                assert_eq!(out.len(), expected.len());
                assert_eq!(out.to_vec(), expected.as_bytes());
                let mut taken = Vec::new();
                while !out.is_empty() {
                    taken.extend_from_slice(&out.take());
                }
                assert_eq!(taken, expected.as_bytes());
                rope.close();
            }
        }
    }

    /// Checks that shared bytes are written in order and not copied.
    #[test]
    fn what_is_in_memory_anyway_is_shared() {
        for size in [0, 1, SMALL - 1, SMALL, 3 * CHUNK] {
            let text = Bytes::from(vec![b's'; size]);
            let mut out = OutputBuffer::default();
            out.extend_from_slice(b"before");
            out.share(&text);
            let at = out.mark();
            out.share(&text);
            out.extend_from_slice(b"behind");
            let (first, second) = (
                [b"before", &text[..]].concat(),
                [&text[..], b"behind"].concat(),
            );
            assert_eq!(
                (out.len(), out.to_vec()),
                (first.len() + second.len(), [&first[..], &second].concat())
            );
            if size >= SMALL {
                let piece = out.pieces.get(1).map(|piece| match piece {
                    Piece::Text { chunks, .. } => {
                        chunks.iter().all(|chunk| chunk.as_ptr() == text.as_ptr())
                    }
                    Piece::Bytes(_) => false,
                });
                assert_eq!(piece, Some(true), "no copy");
            }
            let rest = out.split_off(at);
            assert_eq!((out.to_vec(), rest.to_vec()), (first, second), "{size}");
        }
    }
}
