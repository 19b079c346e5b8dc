//! HTTP/2 frames of a connection, counted as they pass in both directions (RFC 9113, 4.1).
//!
//! Takes: bytes, cut anywhere. Gives: the limits that the client has exceeded, and whether a frame or a header
//! block is incomplete. Never: reads the payload of a frame, except the code of a reset that is written. Invalid
//! frames are reported by the library.

use crate::server::net::connection::PREFACE;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Period in which frames are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Factor for frames that cause only work (settings, pings and the like): a client may send this many per window
/// for each reset it is allowed.
const IDLE_FRAMES_PER_RESET: usize = 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Size of a frame header in bytes.
const HEAD: usize = 9;

/// Codes of resets that answer a client's mistake: PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED,
/// FRAME_SIZE_ERROR (RFC 9113, 7). A client can provoke one for each of its requests, so that the server cancels
/// them.
const MISTAKES: [u32; 4] = [1, 3, 5, 6];

/// Scanner that finds the end of each frame in one direction. It keeps a frame's header and a reset's code, no
/// payload.
#[derive(Debug, Default)]
struct FrameScanner {
    head: [u8; HEAD],
    /// Bytes of the header that have passed.
    known: usize,
    /// Bytes of the payload that have not passed yet.
    left: usize,
    /// Last four bytes of a reset: its code.
    code: u32,
}

impl FrameScanner {
    /// Advances `bytes` past the end of the current frame and returns true; returns false if all bytes are used up
    /// before it.
    fn finds_end(&mut self, bytes: &mut &[u8]) -> bool {
        if self.known < HEAD {
            let count = (HEAD - self.known).min(bytes.len());
            let (head, after) = bytes.split_at(count);
            if let Some(space) = self.head.get_mut(self.known..self.known + count) {
                space.copy_from_slice(head);
            }
            (self.known, *bytes) = (self.known + count, after);
            if self.known < HEAD {
                return false;
            }
            let [high, middle, low, ..] = self.head;
            self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        }
        let (payload, after) = bytes.split_at(self.left.min(bytes.len()));
        if self.kind() == RST_STREAM {
            self.code = payload
                .iter()
                .fold(self.code, |code, byte| code << 8 | u32::from(*byte));
        }
        (self.left, *bytes) = (self.left - payload.len(), after);
        if self.left == 0 {
            self.known = 0;
        }
        self.left == 0
    }

    fn kind(&self) -> u8 {
        let [_, _, _, kind, ..] = self.head;
        kind
    }

    fn flags(&self) -> u8 {
        let [_, _, _, _, flags, ..] = self.head;
        flags
    }
}

/// Frame counters of a connection in both directions, by which clients that cause needless work are detected.
#[derive(Debug)]
pub(super) struct FrameCounts {
    /// Bytes of the connection preface that are still to come.
    preface: usize,
    received: FrameScanner,
    written: FrameScanner,
    /// True if a header block continues in the next frame.
    in_header_block: bool,
    /// True until the first complete frame has arrived.
    first: bool,
    /// Number of frames received; a header block of several frames counts once.
    whole: u64,
    /// Times of the last resets, by the client or for its mistakes, within the window.
    resets: VecDeque<Instant>,
    most: usize,
    /// Start of the window and number of other frames in it that cause only work.
    idle_frames: (Option<Instant>, usize),
}

/// Limit that a client has exceeded, for which its connection is closed with ENHANCE_YOUR_CALM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// Too many streams were reset, by the client or because of its mistakes.
    Resets,
    /// Too many frames that cause only work.
    IdleFrames,
}

impl FrameCounts {
    /// Creates the counters; `most` is the number of resets in ten seconds at which the client is refused.
    pub(super) fn new(most: usize) -> Self {
        Self {
            preface: PREFACE.len(),
            received: FrameScanner::default(),
            written: FrameScanner::default(),
            in_header_block: false,
            first: true,
            whole: 0,
            resets: VecDeque::new(),
            most,
            idle_frames: (None, 0),
        }
    }

    /// Returns true if the preface, a frame or a header block is incomplete.
    pub(super) fn is_waiting(&self) -> bool {
        self.first || self.in_header_block || self.received.known > 0
    }

    /// Returns the number of frames received; a header block of several frames counts once.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// Returns true if the incomplete frame is a part of a body.
    pub(super) fn is_body(&self) -> bool {
        !self.in_header_block && self.received.known == HEAD && self.received.kind() == DATA
    }

    /// Counts received bytes. Fails with the number of bytes to accept if the client exceeds a limit.
    pub(super) fn take(&mut self, bytes: &[u8], now: Instant) -> Result<(), (Excess, usize)> {
        let mut rest = bytes;
        let preface = self.preface.min(rest.len());
        self.preface -= preface;
        rest = rest.get(preface..).unwrap_or_default();
        while !rest.is_empty() && self.received.finds_end(&mut rest) {
            self.first = false;
            let over = self.over(now);
            self.whole += u64::from(!self.in_header_block);
            over.map_err(|excess| (excess, bytes.len() - rest.len()))?;
        }
        Ok(())
    }

    /// Counts written bytes. The time is requested only if a reset is counted. Fails if the client has exceeded a
    /// limit.
    pub(super) fn write(
        &mut self,
        mut bytes: &[u8],
        now: impl Fn() -> Instant,
    ) -> Result<(), Excess> {
        while !bytes.is_empty() && self.written.finds_end(&mut bytes) {
            if self.written.kind() == RST_STREAM && MISTAKES.contains(&self.written.code) {
                self.reset(now())?;
            }
        }
        Ok(())
    }

    /// Counts a complete frame of the client. Fails if a limit is exceeded.
    fn over(&mut self, now: Instant) -> Result<(), Excess> {
        match self.received.kind() {
            HEADERS | CONTINUATION => {
                self.in_header_block = self.received.flags() & END_HEADERS == 0
            }
            RST_STREAM => self.reset(now)?,
            DATA | WINDOW_UPDATE => {}
            _ => {
                let (since, count) = &mut self.idle_frames;
                if since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
                    (*since, *count) = (Some(now), 0);
                }
                *count += 1;
                if *count > self.most.saturating_mul(IDLE_FRAMES_PER_RESET) {
                    return Err(Excess::IdleFrames);
                }
            }
        }
        Ok(())
    }

    /// Counts a stream that was reset, by the client or for its mistake. Fails if there were too many in the
    /// window.
    fn reset(&mut self, now: Instant) -> Result<(), Excess> {
        while self
            .resets
            .front()
            .is_some_and(|reset| now.duration_since(*reset) >= WINDOW)
        {
            self.resets.pop_front();
        }
        self.resets.push_back(now);
        if self.resets.len() >= self.most {
            Err(Excess::Resets)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let size = u32::try_from(length).unwrap().to_be_bytes();
        let mut bytes = vec![size[1], size[2], size[3], kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD + length, 7);
        bytes
    }

    fn begun(most: usize) -> FrameCounts {
        let mut frames = FrameCounts::new(most);
        let start = [PREFACE, &frame(4, 0, 6)].concat();
        assert_eq!(frames.take(&start, Instant::now()), Ok(()));
        assert!(!frames.is_waiting());
        frames
    }

    #[test]
    fn wherever_the_bytes_are_cut() {
        let mut bytes = PREFACE.to_vec();
        for (kind, flags, length) in [
            (4, 0, 6),
            (HEADERS, 0, 300),
            (CONTINUATION, END_HEADERS, 0),
            (DATA, 0, 70_000),
            (RST_STREAM, 0, 4),
        ] {
            bytes.extend(frame(kind, flags, length));
        }
        let now = Instant::now();
        for size in [1, 2, 8, 9, 10, 33, 1000, bytes.len()] {
            let mut frames = FrameCounts::new(2);
            assert!(frames.is_waiting());
            for piece in bytes.chunks(size) {
                assert_eq!(frames.take(piece, now), Ok(()), "{size}");
            }
            assert!(!frames.is_waiting() && !frames.is_body());
            let more = frame(RST_STREAM, 0, 4);
            let again = [more.as_slice(), b"rest"].concat();
            assert_eq!(frames.take(&again, now), Err((Excess::Resets, more.len())));
        }
    }

    #[test]
    fn resets_that_are_written_count_where_they_answer_a_mistake() {
        let reset = |code: u8| {
            let mut bytes = frame(RST_STREAM, 0, 4);
            bytes[HEAD..].copy_from_slice(&[0, 0, 0, code]);
            bytes
        };
        let now = Instant::now();
        let mut others = frame(4, 0, 6);
        for code in [0, 2, 4, 7, 8, 9, 10, 11] {
            others.extend(frame(DATA, 0, 50));
            others.extend(reset(code));
        }
        for size in [1, 3, 9, 13, others.len()] {
            let mut frames = begun(2);
            for piece in others.chunks(size) {
                assert_eq!(frames.write(piece, || now), Ok(()), "{size}");
            }
            for (n, piece) in [reset(1), reset(5)].concat().chunks(size).enumerate() {
                let last = (n + 1) * size >= 26;
                let over = if last { Err(Excess::Resets) } else { Ok(()) };
                assert_eq!(frames.write(piece, || now), over, "{size}");
            }
        }
        for code in MISTAKES {
            let mut frames = begun(2);
            assert_eq!(frames.take(&frame(RST_STREAM, 0, 4), now), Ok(()));
            let code = u8::try_from(code).unwrap();
            assert_eq!(
                frames.write(&reset(code), || now),
                Err(Excess::Resets),
                "both kinds count together"
            );
        }
    }

    #[test]
    fn resets_are_counted_in_any_ten_seconds() {
        let (mut frames, start) = (begun(3), Instant::now());
        let reset = frame(RST_STREAM, 0, 4);
        for seconds in [0, 9, 11, 20, 22, 31] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(frames.take(&reset, now), Ok(()), "{seconds}");
        }
        let late = start + Duration::from_millis(31_999);
        assert_eq!(
            frames.take(&reset, late),
            Err((Excess::Resets, reset.len()))
        );
        assert!(frames.resets.len() <= 3);
    }

    #[test]
    fn talk_is_counted_and_windows_are_not() {
        let (mut frames, now) = (begun(2), Instant::now());
        for _ in 0..1000 {
            assert_eq!(frames.take(&frame(WINDOW_UPDATE, 0, 4), now), Ok(()));
            assert_eq!(frames.take(&frame(DATA, 0, 0), now), Ok(()));
        }
        // The first settings frame is one of them.
        for _ in 0..19 {
            assert_eq!(frames.take(&frame(6, 0, 8), now), Ok(()));
        }
        assert!(matches!(
            frames.take(&frame(6, 0, 8), now),
            Err((Excess::IdleFrames, _))
        ));
        let later = now + WINDOW + Duration::from_secs(1);
        assert_eq!(frames.take(&frame(6, 0, 8), later), Ok(()));
    }

    #[test]
    fn what_is_half_here() {
        let (mut frames, now) = (begun(2), Instant::now());
        let head = frame(HEADERS, 0, 4);
        frames.take(&head[..3], now).unwrap();
        assert!(frames.is_waiting() && !frames.is_body());
        frames.take(&head[3..], now).unwrap();
        assert!(frames.is_waiting(), "its end has not come");
        frames
            .take(&frame(CONTINUATION, END_HEADERS, 4), now)
            .unwrap();
        assert!(!frames.is_waiting());
        frames.take(&frame(DATA, 0, 4)[..10], now).unwrap();
        assert!(frames.is_waiting() && frames.is_body());
    }
}
