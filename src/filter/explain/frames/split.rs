//! Blocks of a body: the text of each event up to the next one, so that their concatenation is the body.
//!
//! Takes: a body, and the times at which its pieces arrived or left. Gives: blocks with their times. Never: loses a
//! byte.

use super::TimedFrame;
use crate::capture::{RecordedMessage, RecordedPiece};
use crate::wire::BodyForm;
use crate::wire::sse::lines;
use std::borrow::Cow;
use std::time::Duration;

/// Body of one side of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Body, without the framing of HTTP.
    pub body: &'a [u8],
    /// Pieces of the body with their times, in order.
    pub pieces: &'a [RecordedPiece],
    /// True if the body consists of server-sent events, or of messages of a WebSocket.
    pub is_stream: bool,
    /// True if the body consists of messages of a WebSocket, one a line.
    pub is_socket: bool,
}

impl<'a> Side<'a> {
    /// Returns the body of a captured message; its head says of what it consists.
    pub fn of(message: &'a RecordedMessage) -> Self {
        let is_socket = message.head.starts_with("HTTP/1.1 101 ");
        let is_stream = is_socket || message.content_type() == "text/event-stream";
        Self {
            body: &message.body,
            pieces: &message.pieces,
            is_stream,
            is_socket,
        }
    }

    /// Returns the same body, with its form judged by its first byte as well.
    pub(super) fn sniffed(self) -> Self {
        let first = self.body.trim_ascii_start().first();
        let form = first.and_then(|first| BodyForm::of(*first, self.is_stream));
        Self {
            is_stream: form == Some(BodyForm::Events),
            ..self
        }
    }
}

/// Text of an event with the blank lines after it, or a whole body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub(super) text: &'a [u8],
    /// Time at which the event was complete.
    pub(super) at: Duration,
}

impl<'a> Block<'a> {
    /// Returns the bytes as text. Blocks end at line breaks, so that no character is cut.
    pub(super) fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.text)
    }

    pub(super) fn timed(&self) -> TimedFrame<'a> {
        TimedFrame {
            at: self.at,
            text: self.text(),
        }
    }
}

/// Splits a body into the blocks of its events; a body without events is one block.
pub(super) fn blocks<'a>(side: &Side<'a>) -> Vec<Block<'a>> {
    let Side {
        body,
        pieces,
        is_stream,
        is_socket,
    } = *side;
    let mut clock = PieceClock { pieces };
    let mut blocks = Vec::new();
    let mut add = |start: usize, end: usize, event_end: Option<usize>| {
        let text = body.get(start..end).unwrap_or_default();
        if !text.is_empty() {
            let at = clock.time_of(event_end.unwrap_or(end));
            blocks.push(Block { text, at });
        }
    };
    if !is_stream {
        add(0, body.len(), None);
        return blocks;
    }
    let (mut start, mut place) = (0, 0);
    if is_socket {
        for line in body.split_inclusive(|byte| *byte == b'\n') {
            place += line.len();
            add(start, place, None);
            start = place;
        }
        return blocks;
    }
    let (mut has_line, mut event_end) = (false, None);
    for line in lines(body) {
        let next = place + line.len();
        if !matches!(line, b"\n" | b"\r" | b"\r\n") {
            if event_end.is_some() {
                add(start, place, event_end.take());
                start = place;
            }
            has_line = true;
        } else if has_line && event_end.is_none() {
            event_end = Some(next);
        }
        place = next;
    }
    add(start, body.len(), event_end);
    blocks
}

/// Times of the places in a body, requested in order.
struct PieceClock<'a> {
    /// Pieces that end at or after the last place.
    pieces: &'a [RecordedPiece],
}

impl PieceClock<'_> {
    /// Returns the time at which the byte before this place arrived.
    fn time_of(&mut self, place: usize) -> Duration {
        while let [piece, rest @ ..] = self.pieces {
            if piece.end >= place || rest.is_empty() {
                return piece.at;
            }
            self.pieces = rest;
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(body: &str) -> Vec<String> {
        let side = Side {
            body: body.as_bytes(),
            pieces: &[],
            is_stream: true,
            is_socket: false,
        };
        let texts: Vec<_> = blocks(&side)
            .iter()
            .map(|block| String::from_utf8_lossy(block.text).into_owned())
            .collect();
        assert_eq!(texts.concat(), body);
        texts
    }

    #[test]
    fn a_block_ends_with_the_blank_lines_behind_its_event() {
        for (body, expected) in [
            ("", &[][..]),
            ("data: a\n\ndata: b\n\n", &["data: a\n\n", "data: b\n\n"]),
            (
                "data: a\r\n\r\n\r\ndata: b",
                &["data: a\r\n\r\n\r\n", "data: b"],
            ),
            ("data: a\r\rdata: b\r\r", &["data: a\r\r", "data: b\r\r"]),
            (
                "\n\n: c\ndata: a\ndata: b\n\n: d\n\n",
                &["\n\n: c\ndata: a\ndata: b\n\n", ": d\n\n"],
            ),
            ("data: a\n", &["data: a\n"]),
        ] {
            assert_eq!(texts(body), expected, "{body:?}");
        }
    }

    #[test]
    fn an_event_has_the_time_of_the_piece_that_completed_it() {
        let at = Duration::from_millis;
        let pieces = [
            RecordedPiece { at: at(1), end: 4 },
            RecordedPiece { at: at(2), end: 9 },
            RecordedPiece { at: at(3), end: 19 },
        ];
        let side = Side {
            body: b"data: a\n\n\ndata: b\n\n",
            pieces: &pieces,
            is_stream: true,
            is_socket: false,
        };
        let times: Vec<_> = blocks(&side).iter().map(|block| block.at).collect();
        assert_eq!(times, [at(2), at(3)]);
        let whole = Side {
            is_stream: false,
            ..side
        };
        assert_eq!(
            blocks(&whole)
                .iter()
                .map(|block| block.at)
                .collect::<Vec<_>>(),
            [at(3)]
        );
    }
}
