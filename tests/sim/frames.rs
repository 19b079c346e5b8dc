//! Frames of HTTP/2, as both sides of it write and read them.

/// Kinds of frames.
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

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Flags of frames.
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame of samewire's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The four bytes from this place: a code, an increment.
    pub fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    /// Nothing follows it on its stream.
    pub fn is_last(&self) -> bool {
        matches!(self.kind, kinds::DATA | kinds::HEADERS) && self.flags & END_STREAM != 0
    }

    /// The status of a head.
    pub fn status(&self) -> u16 {
        assert_eq!(self.kind, kinds::HEADERS, "{self:?}");
        // The size of the table may come first, of which this client wants none.
        let fields = &self.payload[self.payload.iter().take_while(|byte| *byte >> 5 == 1).count()..];
        match fields[0] {
            at @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(at - 0x88)],
            // Its name from the table, its value in Huffman's code.
            0x48 | 0x08 | 0x18 => digits(&fields[2..2 + usize::from(fields[1] & 0x7f)]),
            other => panic!("no status begins with {other:#x}"),
        }
    }
}

/// Digits in Huffman's code (RFC 7541, appendix B): five bits up to 2, six above.
fn digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |all, bit| all << 1 | u16::from(*bit));
    let (mut value, mut at) = (0, 0);
    for _ in 0..3 {
        let short = number(&bits[at..at + 5]);
        let digit = if short < 3 { short } else { number(&bits[at..at + 6]) - 0x19 + 3 };
        at += if short < 3 { 5 } else { 6 };
        value = value * 10 + digit;
    }
    value
}
