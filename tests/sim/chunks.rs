//! A strict reader of HTTP chunked bodies, fed in any pieces.

/// Reads one chunked body. Keeps what it has not understood yet.
#[derive(Debug, Default)]
pub struct Chunks {
    kept: Vec<u8>,
    ended: bool,
}

/// What [`Chunks::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// The data of one chunk.
    Data(Vec<u8>),
    /// The last chunk and the empty line behind it; the bytes that followed them.
    Last(Vec<u8>),
    /// More bytes are needed.
    Wait,
}

impl Chunks {
    /// Adds bytes as they came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// The next whole chunk. Panics on anything that is not strict chunked coding: a server must write nothing else.
    pub fn next(&mut self) -> Piece {
        assert!(!self.ended, "read past the last chunk");
        let Some(line) = find(&self.kept, b"\r\n") else { return Piece::Wait };
        let size = std::str::from_utf8(&self.kept[..line]).expect("a chunk size is ASCII");
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("chunk size {size:?}"));
        let (start, end) = (line + 2, line + 2 + size);
        if self.kept.len() < end + 2 {
            return Piece::Wait;
        }
        assert_eq!(&self.kept[end..end + 2], b"\r\n", "a chunk ends with CRLF");
        let data = self.kept[start..end].to_vec();
        let rest = self.kept.split_off(end + 2);
        self.kept = rest;
        if size == 0 {
            self.ended = true;
            return Piece::Last(std::mem::take(&mut self.kept));
        }
        Piece::Data(data)
    }
}

/// Where `needle` begins in `hay`.
pub(super) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}
