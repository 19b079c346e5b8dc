//! Answers that are passed on byte for byte as they come.
//!
//! Polled by the client's connection and by nothing else: a client that reads slowly slows the engine, and one that is gone
//! drops the answer, and with it the engine's connection. An answer that breaks off is broken off towards the client.

use super::attempt::tell;
use super::body::Broken;
use super::connection::overslept;
use super::record::Record;
use crate::upstream::{Answer, Broken as BrokenAnswer, ChosenUpstream, Read, Upload};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes that are made room for at once.
const ROOM: usize = 16 << 10;
/// Reads without a byte of the body after which other streams have their turn.
const READS: usize = 16;

/// An upstream that is asked; it is counted as called off if it is dropped before its answer is over.
pub(super) struct Underway {
    pub(super) chosen: ChosenUpstream,
    pub(super) is_over: bool,
}

impl Underway {
    /// Begins with an upstream that has not been asked yet.
    pub(super) fn begin(chosen: ChosenUpstream) -> Self {
        Self { chosen, is_over: true }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.chosen.upstream().figures.cancels.add((!self.is_over).into());
    }
}

/// The part of an answer that has come before it is passed on.
pub(super) struct Opened {
    pub(super) answer: Box<Answer>,
    /// Bytes of the whole body, where the engine has said so.
    pub(super) length: Option<u64>,
    /// The first bytes of the body.
    pub(super) first: BytesMut,
    /// The result of the read after those bytes.
    pub(super) read: Result<Read, BrokenAnswer>,
    /// Headers of the answer that pass.
    pub(super) passed: HeaderMap,
}

/// An answer on its way to the client.
pub(super) struct PassThrough {
    /// `None`: it is over, or broken off.
    answer: Option<Box<Answer>>,
    underway: Underway,
    record: Record,
    passed: HeaderMap,
    thread: usize,
    upload: Option<Upload>,
    length: Option<u64>,
    buffer: BytesMut,
    /// The answer cannot be read on, which the client sees once it has what came before.
    broken: Option<Fault>,
    /// The client's connection has had a turn to send that.
    has_paused: bool,
    total: Instant,
    patience: Duration,
    /// Since when the engine is waited for.
    waiting: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl PassThrough {
    /// Begins to pass an answer on.
    pub(super) fn new(
        opened: Opened,
        underway: Underway,
        (record, thread): (Record, usize),
        upload: Option<Upload>,
    ) -> Box<Self> {
        let Opened { answer, length, first, read, passed } = opened;
        let timeouts = &record.app.config.timeouts;
        let (total, patience) = (Instant::now() + *timeouts.total_stream, *timeouts.inter_token);
        let mut this = Box::new(Self {
            answer: Some(answer),
            underway,
            passed,
            thread,
            upload,
            length,
            buffer: first,
            broken: None,
            has_paused: false,
            total,
            patience,
            waiting: None,
            sleep: None,
            record,
        });
        this.has_read(read);
        this
    }

    /// Bytes that are still to be handed over, where the engine has said so.
    pub(super) fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Everything has been handed over.
    pub(super) fn is_end(&self) -> bool {
        self.answer.is_none() && self.buffer.is_empty() && self.broken.is_none()
    }

    /// The next bytes.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.buffer.is_empty() && self.answer.is_some() {
            ready!(self.poll_read(cx));
        }
        if !self.buffer.is_empty() {
            let bytes = self.buffer.split().freeze();
            self.record.bytes += bytes.len();
            if let Some(left) = &mut self.length {
                *left = left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &self.broken {
            None => Poll::Ready(None),
            // What has come is not to be lost with the connection.
            Some(_) if !std::mem::replace(&mut self.has_paused, true) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(_) => Poll::Ready(Some(Err(Broken))),
        }
    }

    /// Ready when there are bytes, or nothing more will come.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS {
            if self.record.app.is_cut() {
                self.fail(Fault::Draining);
                return Poll::Ready(());
            }
            let Self { answer, buffer, .. } = self;
            let Some(answer) = answer else { return Poll::Ready(()) };
            buffer.reserve(ROOM);
            let Poll::Ready(read) = answer.poll_read(cx, &mut |bytes| buffer.extend_from_slice(bytes)) else {
                ready!(self.poll_late(cx));
                self.fail(Fault::Timeout);
                return Poll::Ready(());
            };
            self.waiting = None;
            self.underway.chosen.upstream().heard(Instant::now());
            self.has_read(read);
            if !self.buffer.is_empty() || self.answer.is_none() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when the engine takes too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let mut since = *self.waiting.get_or_insert(now);
        loop {
            let end = self.total.min(since + self.patience);
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(end)));
            // Moved for each piece it would cost something: one that comes too early is set anew then.
            if sleep.deadline() > end || sleep.is_elapsed() {
                sleep.as_mut().reset(end);
            }
            ready!(sleep.as_mut().poll(cx));
            let now = Instant::now();
            match overslept(end, now) {
                Some(more) => {
                    (since, self.total) = (since + more, self.total + more);
                    self.waiting = Some(since);
                }
                None if now >= end => return Poll::Ready(()),
                None => {}
            }
        }
    }

    fn has_read(&mut self, read: Result<Read, BrokenAnswer>) {
        match read {
            Ok(Read::More) => {}
            Ok(Read::End) => self.complete(),
            Err(BrokenAnswer::Reset) => self.fail(Fault::Incomplete),
            Err(BrokenAnswer::Malformed) => self.fail(Fault::InvalidResponse),
        }
    }

    /// The answer is complete; what is left of it is in the buffer.
    fn complete(&mut self) {
        self.record.completed();
        self.told(None);
        self.underway.is_over = true;
        if let Some(answer) = self.answer.take() {
            self.underway.chosen.client(self.thread).give_back_soon(*answer);
        }
    }

    /// The answer breaks off.
    fn fail(&mut self, fault: Fault) {
        let failure = Failure::from(fault);
        self.record.failed(&failure);
        // Of a client that has not sent all of its body the engine can expect nothing.
        let upload = self.upload.as_ref();
        if !upload.is_some_and(Upload::has_failed) {
            self.told(Some(&failure));
        }
        self.underway.is_over = self.answer.take().is_some_and(|answer| answer.is_over());
        self.broken = Some(fault);
    }

    /// The upstream's account of the attempt.
    fn told(&mut self, failure: Option<&Failure>) {
        let chosen = &mut self.underway.chosen;
        self.record.attempted(chosen.upstream(), failure);
        tell(chosen, failure, None, &self.passed);
    }
}

impl std::fmt::Debug for PassThrough {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassThrough").field("length", &self.length).finish_non_exhaustive()
    }
}
