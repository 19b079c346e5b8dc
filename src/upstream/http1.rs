//! Parser for HTTP/1.1 answers, independent of sockets.
//!
//! Takes: bytes, cut anywhere. Gives: a [`ResponseHead`]; then which of the bytes are body and which are framing.
//! Never: guesses. Framing that can be read in two ways is an error, so that one answer cannot pass for two.
//!
//! Why not the HTTP library's client: it drives each connection in its own task, and passing each token from
//! task to task costs more than the rest of the proxy taken together (`benches/proxy`). It also hides whether a
//! connection has served before, and where an answer broke off.

use bytes::{Buf, BytesMut};
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};

/// Upper limit for the interim answers (1xx) before the answer.
pub(super) const MAX_INTERIM: usize = 8;
/// Upper limit for the bytes of a head.
pub(super) const HEAD_LIMIT: usize = 64 << 10;
const HEADERS: usize = 100;
/// Upper limit for the bytes of chunk extensions, and of trailers.
const SKIPPED: u32 = 16 << 10;

/// Error for an answer that is not HTTP, or whose framing is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Head of an answer: status, headers, and what they say about the end of the body.
#[derive(Debug)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// Header fields, as the engine sent them.
    pub headers: HeaderMap,
    /// Framing of the body.
    pub(super) framing: BodyFraming,
    /// True if another request may follow on the connection.
    pub(super) reusable: bool,
}

impl ResponseHead {
    /// Returns true if the body has a content coding, although none was accepted in the request.
    pub fn is_encoded(&self) -> bool {
        let identity = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
        !self.headers.get_all(CONTENT_ENCODING).iter().all(identity)
    }

    /// Creates the head of an HTTP/2 answer, whose stream itself marks the end of the body.
    pub(super) fn of_stream(status: u16, headers: HeaderMap) -> Self {
        Self {
            status,
            headers,
            framing: BodyFraming::Close,
            reusable: false,
        }
    }

    /// Takes the head of the answer from the front of `buffer`, past interim answers, which `interim` counts;
    /// `None` while it is incomplete. After too many interim answers, the next one counts as the answer.
    pub(super) fn take(
        buffer: &mut BytesMut,
        interim: &mut usize,
    ) -> Result<Option<Self>, Malformed> {
        while let Some((head, length)) = Self::read(buffer)? {
            buffer.advance(length);
            if !matches!(head.status, 100 | 102..=199) || *interim >= MAX_INTERIM {
                return Ok(Some(head));
            }
            *interim += 1;
        }
        Ok(None)
    }

    /// Reads a head and returns it with its length in bytes; `None` while it is incomplete. Fails if it is
    /// malformed or too large.
    fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Response::new(&mut fields);
        let length = match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_LIMIT => return Ok(None),
            _ => return Err(Malformed),
        };
        let mut headers = HeaderMap::with_capacity(parsed.headers.len());
        for field in &*parsed.headers {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
            headers.append(name, header_value(field.value)?);
        }
        let status = parsed.code.ok_or(Malformed)?;
        let framing = BodyFraming::of(status, &headers)?;
        let both = headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH);
        let reusable = parsed.version == Some(1)
            && framing != BodyFraming::Close
            && !both
            && !says_close(&headers);
        Ok(Some((
            Self {
                status,
                headers,
                framing,
                reusable,
            },
            length,
        )))
    }
}

/// Values that engines send with every answer. They cost no further memory.
const USUAL: [&str; 6] = [
    "application/json",
    "text/event-stream; charset=utf-8",
    "text/event-stream",
    "uvicorn",
    "chunked",
    "keep-alive",
];

fn header_value(bytes: &[u8]) -> Result<HeaderValue, Malformed> {
    match USUAL.iter().find(|usual| usual.as_bytes() == bytes) {
        Some(usual) => Ok(HeaderValue::from_static(usual)),
        None => HeaderValue::from_bytes(bytes).map_err(|_| Malformed),
    }
}

fn says_close(headers: &HeaderMap) -> bool {
    let values = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("close"))
}

/// Framing of a body: the rule for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// Number of bytes that are left.
    Length(u64),
    /// Chunked coding, with the state of its parser.
    Chunked(ChunkState),
    /// Body ends with the connection.
    Close,
    /// Body is complete.
    Over,
}

/// State within a chunked body: the element that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkState {
    /// Digits of a chunk's size.
    Size { value: u64, digits: u8 },
    /// Rest of the line with the size.
    Extension { value: u64, skipped: u32 },
    /// Line feed after the size.
    SizeEnd { value: u64 },
    /// Bytes of the chunk.
    Data { left: u64 },
    /// Line end after a chunk.
    DataEnd { cr: bool },
    /// Trailers, up to an empty line.
    Trailer { empty: bool, cr: bool, skipped: u32 },
}

/// Division of the front of the input into framing and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Number of bytes of framing,
    pub(super) framing: usize,
    /// followed by this number of bytes of body.
    pub(super) data: usize,
}

impl BodyFraming {
    fn of(status: u16, headers: &HeaderMap) -> Result<Self, Malformed> {
        if matches!(status, 100..=199 | 204 | 304) {
            return Ok(Self::Over);
        }
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        if let Some(coding) = codings.next() {
            let chunked =
                coding.as_bytes().eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
            return if chunked {
                Ok(Self::Chunked(ChunkState::START))
            } else {
                Err(Malformed)
            };
        }
        let mut length = None;
        for value in headers.get_all(CONTENT_LENGTH) {
            for text in value.to_str().map_err(|_| Malformed)?.split(',') {
                let text = text.trim();
                // `parse` alone would take a plus sign.
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let number: u64 = text.parse().ok().filter(|_| digits).ok_or(Malformed)?;
                if length.replace(number).is_some_and(|other| other != number) {
                    return Err(Malformed);
                }
            }
        }
        Ok(match length {
            Some(0) => Self::Over,
            Some(length) => Self::Length(length),
            None => Self::Close,
        })
    }

    /// Classifies the front of `bytes` and advances. Two zeros mean that the body is over, and the bytes are not
    /// part of it. Fails if the framing is malformed.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Split, Malformed> {
        let most = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match self {
            Self::Over => Ok(Split {
                framing: 0,
                data: 0,
            }),
            Self::Close => Ok(Split {
                framing: 0,
                data: bytes.len(),
            }),
            Self::Length(left) => {
                let data = most.min(*left);
                *self = if data == *left {
                    Self::Over
                } else {
                    Self::Length(*left - data)
                };
                Ok(Split {
                    framing: 0,
                    data: usize::try_from(data).unwrap_or(bytes.len()),
                })
            }
            Self::Chunked(_) => self.chunked(bytes),
        }
    }

    fn chunked(&mut self, bytes: &[u8]) -> Result<Split, Malformed> {
        for (framing, byte) in bytes.iter().copied().enumerate() {
            let Self::Chunked(chunk) = *self else {
                return Ok(Split { framing, data: 0 });
            };
            if let ChunkState::Data { left } = chunk {
                let here = u64::try_from(bytes.len() - framing).unwrap_or(u64::MAX);
                let data = here.min(left);
                let next = if data == left {
                    ChunkState::DataEnd { cr: false }
                } else {
                    ChunkState::Data { left: left - data }
                };
                *self = Self::Chunked(next);
                return Ok(Split {
                    framing,
                    data: usize::try_from(data).unwrap_or(0),
                });
            }
            *self = chunk.after(byte)?;
        }
        Ok(Split {
            framing: bytes.len(),
            data: 0,
        })
    }
}

impl ChunkState {
    const START: Self = Self::Size {
        value: 0,
        digits: 0,
    };

    fn after(self, byte: u8) -> Result<BodyFraming, Malformed> {
        let next = match (self, byte) {
            (Self::Size { value, digits: 1.. }, b'\r') => Self::SizeEnd { value },
            (Self::Size { value, digits: 1.. }, b';' | b' ' | b'\t') => {
                Self::Extension { value, skipped: 0 }
            }
            (Self::Size { value, digits }, byte) => {
                let digit = char::from(byte)
                    .to_digit(16)
                    .filter(|_| digits < 15)
                    .ok_or(Malformed)?;
                Self::Size {
                    value: value * 16 + u64::from(digit),
                    digits: digits + 1,
                }
            }
            (Self::Extension { value, .. }, b'\r') => Self::SizeEnd { value },
            (
                Self::Extension {
                    skipped: SKIPPED.., ..
                },
                _,
            )
            | (Self::Extension { .. }, b'\n') => {
                return Err(Malformed);
            }
            (Self::Extension { value, skipped }, _) => Self::Extension {
                value,
                skipped: skipped + 1,
            },
            (Self::SizeEnd { value: 0 }, b'\n') => Self::Trailer {
                empty: true,
                cr: false,
                skipped: 0,
            },
            (Self::SizeEnd { value }, b'\n') => Self::Data { left: value },
            (Self::DataEnd { cr: false }, b'\r') => Self::DataEnd { cr: true },
            (Self::DataEnd { cr: true }, b'\n') => Self::START,
            (
                Self::Trailer {
                    empty: true,
                    cr: true,
                    ..
                },
                b'\n',
            ) => return Ok(BodyFraming::Over),
            (
                Self::Trailer {
                    cr: true, skipped, ..
                },
                b'\n',
            ) => Self::Trailer {
                empty: true,
                cr: false,
                skipped,
            },
            (
                Self::Trailer {
                    cr: false,
                    empty,
                    skipped,
                },
                b'\r',
            ) => Self::Trailer {
                empty,
                cr: true,
                skipped,
            },
            (
                Self::Trailer {
                    cr: false, skipped, ..
                },
                byte,
            ) if byte != b'\n' && skipped < SKIPPED => Self::Trailer {
                empty: false,
                cr: false,
                skipped: skipped + 1,
            },
            _ => return Err(Malformed),
        };
        Ok(BodyFraming::Chunked(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the body in `bytes`, fed in pieces of `size`, the framing at the end, and the number of bytes used.
    fn body(
        mut framing: BodyFraming,
        bytes: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, BodyFraming, usize), Malformed> {
        let (mut found, mut used) = (Vec::new(), 0);
        for piece in bytes.chunks(size) {
            let mut piece = piece;
            while !piece.is_empty() && framing != BodyFraming::Over {
                let step = framing.step(piece)?;
                found.extend_from_slice(&piece[step.framing..step.framing + step.data]);
                piece = &piece[step.framing + step.data..];
                used += step.framing + step.data;
            }
        }
        Ok((found, framing, used))
    }

    #[test]
    fn chunks_cut_anywhere() {
        let text = b"5\r\nhello\r\n0010;a=b\r\n, this is a body\r\n0\r\nx: y\r\n\r\nrest";
        for size in 1..=text.len() {
            let (found, framing, used) =
                body(BodyFraming::Chunked(ChunkState::START), text, size).unwrap();
            assert_eq!(found, b"hello, this is a body", "{size}");
            assert_eq!(
                (framing, &text[used..]),
                (BodyFraming::Over, &b"rest"[..]),
                "{size}"
            );
        }
    }

    #[test]
    fn doubtful_chunks_are_refused() {
        for text in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+5\r\n",
            "0x5\r\n",
            " 5\r\n",
            "5\nhello\r\n",
            "5\r\nhello0\r\n",
            "5\r\nhello\n",
            "10000000000000000\r\n",
            "1000000000000000\r\n",
            "5;\nhello",
            "0\r\n\n",
            "0\r\nx: y\n\r\n",
            "5\rhello",
        ] {
            assert!(
                body(BodyFraming::Chunked(ChunkState::START), text.as_bytes(), 64).is_err(),
                "{text:?}"
            );
        }
        let extension = format!("5;{}\r\nhello", "x".repeat(20_000));
        assert!(
            body(
                BodyFraming::Chunked(ChunkState::START),
                extension.as_bytes(),
                4096
            )
            .is_err()
        );
        let trailers = format!("0\r\n{}\r\n", "x: y\r\n".repeat(20_000));
        assert!(
            body(
                BodyFraming::Chunked(ChunkState::START),
                trailers.as_bytes(),
                4096
            )
            .is_err()
        );
        // The most that is allowed.
        assert!(
            body(
                BodyFraming::Chunked(ChunkState::START),
                b"000000000000005\r\nhello",
                64
            )
            .is_ok()
        );
        let trailer = |bytes: usize| format!("0\r\n{}\r\n\r\n", "x".repeat(bytes));
        assert!(
            body(
                BodyFraming::Chunked(ChunkState::START),
                trailer(16_384).as_bytes(),
                4096
            )
            .is_ok()
        );
        assert!(
            body(
                BodyFraming::Chunked(ChunkState::START),
                trailer(16_385).as_bytes(),
                4096
            )
            .is_err()
        );
    }

    #[test]
    fn heads() {
        let head = |lines: &str| ResponseHead::read(format!("HTTP/1.1 {lines}\r\n\r\n").as_bytes());
        for (lines, framing, reusable) in [
            ("200 OK\r\ncontent-length: 5", BodyFraming::Length(5), true),
            ("200 OK\r\ncontent-length: 0", BodyFraming::Over, true),
            (
                "200 OK\r\ncontent-length: 5, 5\r\ncontent-length: 5",
                BodyFraming::Length(5),
                true,
            ),
            (
                "200\r\ntransfer-encoding: Chunked",
                BodyFraming::Chunked(ChunkState::START),
                true,
            ),
            (
                "200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
                BodyFraming::Chunked(ChunkState::START),
                false,
            ),
            (
                "200 OK\r\ncontent-length: 5\r\nconnection: x, Close",
                BodyFraming::Length(5),
                false,
            ),
            ("200 OK", BodyFraming::Close, false),
            (
                "204 No Content\r\ncontent-length: 5",
                BodyFraming::Over,
                true,
            ),
        ] {
            let (head, _) = head(lines).unwrap().unwrap();
            assert_eq!(
                (head.framing, head.reusable),
                (framing, reusable),
                "{lines}"
            );
        }
        for lines in [
            "200 OK\r\ncontent-length: -1",
            "200 OK\r\ncontent-length: +5",
            "200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
            "200 OK\r\ncontent-length: ",
            "200 OK\r\ncontent-length: 99999999999999999999",
            "200 OK\r\ntransfer-encoding: gzip, chunked",
            "200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "200 OK\r\na b: c",
            "2000 OK",
        ] {
            assert!(head(lines).is_err(), "{lines}");
        }
        assert!(
            ResponseHead::read(b"HTTP/1.1 200 OK\r\ncontent-le")
                .unwrap()
                .is_none()
        );
        let unfinished = |bytes: usize| format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(bytes - 20));
        assert!(
            ResponseHead::read(unfinished(65_535).as_bytes())
                .unwrap()
                .is_none()
        );
        assert!(ResponseHead::read(unfinished(65_536).as_bytes()).is_err());
        assert!(ResponseHead::read(unfinished(70_000).as_bytes()).is_err());
        assert!(ResponseHead::read(b"SSH-2.0-x\r\n").is_err());
        assert!(ResponseHead::read(&b"HTTP/1.1 200 OK\r\nx: y\r\n".repeat(5000)).is_err());
    }

    #[test]
    fn a_body_is_encoded_unless_it_is_identity() {
        for (lines, is_encoded) in [
            ("", false),
            ("content-encoding: Identity\r\n", false),
            ("content-encoding: gzip\r\n", true),
            (
                "content-encoding: identity\r\ncontent-encoding: br\r\n",
                true,
            ),
        ] {
            let (head, _) =
                ResponseHead::read(format!("HTTP/1.1 200 OK\r\n{lines}\r\n").as_bytes())
                    .unwrap()
                    .unwrap();
            assert_eq!(head.is_encoded(), is_encoded, "{lines}");
        }
    }

    /// Checks that eight interim answers are passed over, and that the switch to another protocol is an answer.
    #[test]
    fn interim_answers_are_passed_over() {
        let take = |text: &str| {
            let (mut buffer, mut interim) = (BytesMut::from(text), 0);
            let head = ResponseHead::take(&mut buffer, &mut interim).unwrap();
            (
                head.map(|head| head.status),
                interim,
                String::from_utf8(buffer.to_vec()).unwrap(),
            )
        };
        let (interim, good) = (
            "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        );
        assert_eq!(
            take(&format!("{good}body")),
            (Some(200), 0, "body".to_owned())
        );
        assert_eq!(
            take(&format!("{}{good}body", interim.repeat(8))),
            (Some(200), 8, "body".to_owned())
        );
        assert_eq!(
            take(&format!("{}{good}", interim.repeat(9))),
            (Some(103), 8, good.to_owned())
        );
        assert_eq!(
            take(&format!("{interim}HTTP/1.1 2")),
            (None, 1, "HTTP/1.1 2".to_owned())
        );
        let switched = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(take(switched), (Some(101), 0, String::new()));
    }
}
