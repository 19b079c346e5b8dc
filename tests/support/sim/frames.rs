//! HTTP/2 frames, shared by the client and the engine of the tests.

/// Frame types.
pub mod kinds {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Connection preface that a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Frame flags.
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a length")
        .to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// HTTP/2 frame received from samewire, undecoded except for its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns the four bytes at `at` as a number: an error code or a window increment.
    pub fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    /// Returns true if the frame ends its stream.
    pub fn is_last(&self) -> bool {
        matches!(self.kind, kinds::DATA | kinds::HEADERS) && self.flags & END_STREAM != 0
    }

    /// Returns the status in a response head.
    pub fn status(&self) -> u16 {
        assert_eq!(self.kind, kinds::HEADERS, "{self:?}");
        // A table size update may come first; this client allows no table.
        let fields = &self.payload[self
            .payload
            .iter()
            .take_while(|byte| *byte >> 5 == 1)
            .count()..];
        match fields[0] {
            at @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(at - 0x88)],
            // The name is in the table, the value in Huffman code.
            0x48 | 0x08 | 0x18 => digits(&fields[2..2 + usize::from(fields[1] & 0x7f)]),
            other => panic!("no status begins with {other:#x}"),
        }
    }
}

/// Decodes three digits in Huffman code (RFC 7541, appendix B): five bits up to 2, six above.
fn digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
        .collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |all, bit| all << 1 | u16::from(*bit));
    let (mut value, mut at) = (0, 0);
    for _ in 0..3 {
        let short = number(&bits[at..at + 5]);
        let digit = if short < 3 {
            short
        } else {
            number(&bits[at..at + 6]) - 0x19 + 3
        };
        at += if short < 3 { 5 } else { 6 };
        value = value * 10 + digit;
    }
    value
}
