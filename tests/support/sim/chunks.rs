//! Strict parser of HTTP chunked bodies, fed in pieces of any size.

/// Parser of one chunked body. Bytes of an incomplete chunk are kept until more arrive.
#[derive(Debug, Default)]
pub struct Chunks {
    kept: Vec<u8>,
    ended: bool,
}

/// Result of [`Chunks::next`]: a chunk, the end of the body, or a request for more bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Data of one chunk.
    Data(Vec<u8>),
    /// End of the body: the last chunk and its empty line, with the bytes that followed them.
    Last(Vec<u8>),
    /// More bytes are needed.
    Wait,
}

impl Chunks {
    /// Appends bytes as they arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// Returns the next complete chunk. Panics on anything but strict chunked coding: a server must write nothing
    /// else.
    pub fn next(&mut self) -> Piece {
        assert!(!self.ended, "read past the last chunk");
        let Some(line) = find(&self.kept, b"\r\n") else {
            return Piece::Wait;
        };
        let size = std::str::from_utf8(&self.kept[..line]).expect("a chunk size is ASCII");
        let size =
            usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("chunk size {size:?}"));
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

/// Returns the position of `needle` in `hay`.
pub(super) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len())
        .position(|window| window == needle)
}
