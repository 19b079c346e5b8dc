//! Answers that are passed on byte for byte.
//!
//! The answers are polled only by the client's connection: a client that reads slowly slows the engine, and one that
//! disconnects drops the answer, and with it the engine's connection. If the engine's answer breaks off, so does
//! the client's.

use crate::server::admit::body::AbortedBody;
use crate::server::net::connection::late_timer_extension;
use crate::server::record::Record;
use crate::server::relay::attempt::report_outcome;
use crate::upstream::{Answer, ChosenUpstream, Read, ReadError as BrokenAnswer, Upload};
use crate::wire::fault::{Failure, Fault, Unusable};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Buffer space reserved for each read, in bytes.
const READ_BUFFER: usize = 16 << 10;
/// Reads without a byte of the body after which other streams get their turn.
const EMPTY_READS: usize = 16;

/// Upstream with a request in progress; dropping it before the end of the answer counts as a cancellation.
pub(in crate::server) struct ActiveExchange {
    pub(in crate::server) chosen: ChosenUpstream,
    /// True if nothing of a request is in progress at the upstream, so that dropping this cancels nothing.
    pub(in crate::server) is_over: bool,
}

impl ActiveExchange {
    /// Creates the value for an upstream that has not been sent the request yet.
    pub(in crate::server) fn begin(chosen: ChosenUpstream) -> Self {
        // Until the request is sent, there is nothing to cancel.
        Self {
            chosen,
            is_over: true,
        }
    }
}

impl Drop for ActiveExchange {
    fn drop(&mut self) {
        self.chosen
            .upstream()
            .figures
            .cancels
            .add((!self.is_over).into());
    }
}

/// Beginning of an engine's answer, read before the answer is passed on.
pub(in crate::server) struct StartedAnswer {
    pub(in crate::server) answer: Box<Answer>,
    /// Bytes of the whole body, if the engine has declared them.
    pub(in crate::server) length: Option<u64>,
    /// First bytes of the body.
    pub(in crate::server) first: BytesMut,
    /// Result of the read after those bytes.
    pub(in crate::server) read: Result<Read, BrokenAnswer>,
    /// Headers of the answer that are passed on.
    pub(in crate::server) passed: HeaderMap,
}

/// Answer that is being passed on to the client, with its timers and the record of the request.
pub(in crate::server) struct PassThrough {
    /// `None` once it is complete or has broken off.
    answer: Option<Box<Answer>>,
    underway: ActiveExchange,
    record: Record,
    passed: HeaderMap,
    thread: usize,
    upload: Option<Upload>,
    length: Option<u64>,
    buffer: BytesMut,
    /// True once the answer has broken off. The response is aborted after the bytes already received.
    is_broken: bool,
    /// True once the client's connection has had a turn to send those bytes.
    has_paused: bool,
    /// Time at which the answer must have ended (`timeouts.total_stream`).
    total: Instant,
    /// Longest wait for the engine's next bytes (`timeouts.inter_token`).
    patience: Duration,
    /// Start of the present wait for the engine.
    waiting: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl PassThrough {
    /// Starts to pass an answer on.
    pub(in crate::server) fn new(
        opened: StartedAnswer,
        underway: ActiveExchange,
        (record, thread): (Record, usize),
        upload: Option<Upload>,
    ) -> Box<Self> {
        let StartedAnswer {
            answer,
            length,
            first,
            read,
            passed,
        } = opened;
        let timeouts = &record.app.config.timeouts;
        let (total, patience) = (
            Instant::now() + *timeouts.total_stream,
            *timeouts.inter_token,
        );
        let mut this = Box::new(Self {
            answer: Some(answer),
            underway,
            passed,
            thread,
            upload,
            length,
            buffer: first,
            is_broken: false,
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

    /// Reads from the engine. Ready when there are bytes or none will follow.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..EMPTY_READS {
            if self.record.app.is_cut() {
                self.fail(Fault::Draining.into());
                return Poll::Ready(());
            }
            let Self { answer, buffer, .. } = self;
            let Some(answer) = answer else {
                return Poll::Ready(());
            };
            buffer.reserve(READ_BUFFER);
            let Poll::Ready(read) =
                answer.poll_read(cx, &mut |bytes| buffer.extend_from_slice(bytes))
            else {
                ready!(self.poll_late(cx));
                self.fail(Fault::Timeout.into());
                return Poll::Ready(());
            };
            self.waiting = None;
            self.underway.chosen.upstream().record_piece(Instant::now());
            self.has_read(read);
            if !self.buffer.is_empty() || self.answer.is_none() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when the engine has taken too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let mut since = *self.waiting.get_or_insert(now);
        loop {
            let end = self.total.min(since + self.patience);
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(end)));
            // The timer is not moved for each piece, which would be costly. If it fires early, it is set anew.
            if sleep.deadline() > end || sleep.is_elapsed() {
                sleep.as_mut().reset(end);
            }
            ready!(sleep.as_mut().poll(cx));
            let now = Instant::now();
            match late_timer_extension(end, now) {
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
            Err(BrokenAnswer::Reset) => self.fail(Fault::Incomplete.into()),
            Err(BrokenAnswer::Malformed) => self.fail(Unusable::Malformed.into()),
        }
    }

    /// Handles the end of the answer; the rest is in the buffer.
    fn complete(&mut self) {
        self.record.completed();
        self.report_outcome(None);
        self.underway.is_over = true;
        if let Some(answer) = self.answer.take() {
            self.underway
                .chosen
                .client(self.thread)
                .give_back_soon(*answer);
        }
    }

    /// Handles an answer that breaks off.
    fn fail(&mut self, failure: Failure) {
        self.record.failed(&failure);
        // An engine cannot be blamed if the client has not sent its whole body.
        let upload = self.upload.as_ref();
        if !upload.is_some_and(Upload::has_failed) {
            self.report_outcome(Some(&failure));
        }
        self.underway.is_over = self.answer.take().is_some_and(|answer| answer.has_ended());
        self.is_broken = true;
    }

    /// Reports the outcome of the attempt to the upstream and the record.
    fn report_outcome(&mut self, failure: Option<&Failure>) {
        let chosen = &mut self.underway.chosen;
        self.record.attempted(chosen.upstream(), failure);
        report_outcome(chosen, failure, None, &self.passed);
    }
}

impl http_body::Body for PassThrough {
    type Data = Bytes;
    type Error = AbortedBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        let this = self.get_mut();
        if this.buffer.is_empty() && this.answer.is_some() {
            ready!(this.poll_read(cx));
        }
        if !this.buffer.is_empty() {
            let bytes = this.buffer.split().freeze();
            this.record.bytes += bytes.len();
            this.record.progressed(0);
            if let Some(left) = &mut this.length {
                *left = left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if !this.is_broken {
            return Poll::Ready(None);
        }
        // Bytes already received must not be lost with the connection.
        if !std::mem::replace(&mut this.has_paused, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(AbortedBody)))
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_none() && self.buffer.is_empty() && !self.is_broken
    }

    /// Returns the bytes that are still to come, if the engine has declared them.
    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
