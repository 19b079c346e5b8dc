//! Relay: the answer to one request, pulled from the engine through an [`AnswerReader`](crate::wire::AnswerReader) and
//! the [`AnswerWriter`](crate::wire::AnswerWriter) to the client.
//!
//! The relay runs only when the body's consumer polls it, mostly the client's connection: over HTTP/1.1 there is no
//! task and no queue between the engine and the client. A client that reads slowly slows the engine down; a client
//! that leaves drops the relay, and with it the engine's connection.
//!
//! Takes: an attempt that has started, and the means to repeat it. Gives: a response, whole or as a stream.
//! Remembers: output that the client has not taken, the timers and the record. Never: sends the end of a stored
//! answer before the store has reported its outcome.

mod answer_buffer;
pub(super) mod attempt;
pub(super) mod clock;
mod exchange;
mod fan_out;
mod leg;
pub(super) mod planned;
mod priority;
mod resend;
pub(super) mod rounds;
pub(super) mod selection;

use super::admit::body::{AbortedBody, Body};
use super::admit::quota::Ticket;
use super::headers;
use super::panics;
use super::record::Record;
use super::storage::persist::{PendingWrite, ResponseWriter};
use crate::config::Limits;
use crate::error::RetryClass;
use crate::wire::OutputBuffer;
use crate::wire::encode::{Finished, Persisted, Response as Encoder};
use crate::wire::fault::{Failure, Fault};
use answer_buffer::AnswerBuffer;
use attempt::{Attempt, FirstRefusal, PendingRequest};
use bytes::Bytes;
use clock::{Due, RelayTimers};
use exchange::{BodyKind, EngineExchange, EngineStep};
use fan_out::missing_choices;
use http::{HeaderMap, Response};
use http_body::Frame;
use leg::{Leg, Legs};
use planned::Planned;
use resend::{Resend, siblings, try_resend};
use rounds::RoundState;
use selection::UpstreamSelection;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Upper limit for the reads that are joined in one write, so that a fast engine does not starve other streams of
/// the thread.
const READS: usize = 64;

/// Relay of one answer: the legs, each with an engine's answer, and the client's side.
pub(super) struct Relay {
    legs: Legs,
    client: ClientSide,
    /// True if a keep-alive comment is to be sent.
    comment: bool,
    /// True if only whole events are handed over, however long they are.
    by_events: bool,
    /// True if the last hand-over left bytes in the buffer.
    output_left: bool,
    /// True once the record is complete and the engine's connection released.
    closed: bool,
    /// Bytes of the end that [`Self::write_end`] has returned.
    end_bytes: usize,
    storing: Storing,
    /// Rounds of an answer that pauses after calls.
    rounds: Option<RoundState>,
}

/// State that all legs of a relay share: the output for the client, its timers and the record.
struct ClientSide {
    /// Index of the worker thread that polls the relay.
    thread: usize,
    /// Data needed to send the request again; `None` once it is too late for that.
    resend: Option<Box<Resend>>,
    buffer: AnswerBuffer,
    /// Bytes received of the answer.
    received: usize,
    clock: RelayTimers,
    /// True for SSE, false for one object.
    stream: bool,
    record: Record,
}

impl ClientSide {
    /// Passes the limits of the key's quota to the encoder, for events that report them.
    fn pass_limits(&mut self) {
        if let Some(limits) = self.record.ticket.as_ref().and_then(Ticket::limits) {
            self.buffer.writer.limits(limits);
        }
    }

    /// Tells the writer the time, for output that the engine's bytes do not cause.
    fn tell_time(&mut self) {
        self.clock.update();
        self.buffer.writer.clock(self.clock.unix_seconds());
    }
}

/// Progress of storing the response, whose end the client must not see before.
enum Storing {
    /// Nothing to store, or storing is over.
    Nothing,
    /// Waiting until the answer has ended.
    Waiting(Box<ResponseWriter>),
    /// Running: the end of the answer is written when the store has reported.
    Running(PendingWrite),
}

impl Relay {
    /// Returns the relay of a planned request, with the further exchanges of its fan-out if it has one. `thread`: the
    /// index of the worker thread that polls the relay.
    pub(super) fn new(planned: Planned, mut record: Record, thread: usize) -> Box<Self> {
        let Planned {
            attempt,
            resend,
            options,
            stream,
            writer,
            rounds,
        } = planned;
        let Attempt {
            chosen,
            request:
                PendingRequest {
                    answer,
                    reader,
                    writer: output,
                    others,
                    fallbacks,
                },
        } = attempt;
        // Calls that the client has approved run first.
        let is_paused = output.is_paused();
        if !is_paused {
            record.sent_to(chosen.upstream(), 1);
        }
        let clock = RelayTimers::new(stream, &record.app.config.timeouts, &options);
        let (resend, selection) = resend
            .map(|(request, selection)| (Box::new(Resend::new(request)), selection))
            .unzip();
        let mut exchange = EngineExchange::begin(chosen, answer, fallbacks);
        if is_paused {
            exchange.withdraw();
        }
        let mut legs = Legs::new(Leg {
            exchange,
            reader,
            selection,
        });
        legs.add(siblings(&legs.first, others, Duration::ZERO));
        let buffer = AnswerBuffer::new(output);
        let mut client = ClientSide {
            thread,
            resend,
            buffer,
            received: 0,
            clock,
            stream,
            record,
        };
        client.pass_limits();
        Box::new(Self {
            legs,
            client,
            comment: false,
            by_events: false,
            output_left: false,
            closed: false,
            end_bytes: 0,
            storing: writer.map_or(Storing::Nothing, Storing::Waiting),
            rounds: rounds.map(RoundState::new),
        })
    }

    /// Records the time that it took to read and plan the request.
    pub(super) fn planned(&mut self, took: Duration) {
        self.client.record.planning = took;
    }

    /// Turns off keep-alive comments and the early status, for a consumer of the body that needs neither: an error
    /// before the first event is then the whole answer, however late it occurs.
    pub(super) fn disable_keepalive(&mut self) {
        self.client.clock.disable_keepalive();
    }

    /// Hands over whole events only, for a consumer of the body that processes them.
    pub(super) fn by_events(&mut self) {
        self.by_events = true;
    }

    /// Notes that the status has been sent: from now on a failure is reported as an event.
    pub(super) fn mark_committed(&mut self) {
        self.client.buffer.commit();
        self.client.clock.committed();
        self.client.record.answered(200);
    }

    /// Notes that the status counts as sent, and turns off comments, because no client waits for the answer.
    pub(super) fn run_without_client(&mut self) {
        self.mark_committed();
        self.client.clock.run_without_client();
    }

    /// Ends the answer with a failure, unless it has ended already.
    pub(super) fn give_up(&mut self, failure: impl Into<Failure>) {
        if !self.ended() {
            self.fail(failure.into());
        }
    }

    fn limits(&self) -> &Limits {
        &self.client.record.app.config.limits
    }

    /// Returns the response once its status is known: for a stream when the engine has sent content or after
    /// `commit_after`, otherwise when the whole answer has arrived (wire-format 3.1).
    pub(super) async fn answer(self: Box<Self>) -> Response<Body> {
        self.answer_as(Body::arriving).await
    }

    /// Returns the same response as [`Relay::answer`], but with the body of a stream made by `stream`.
    pub(super) async fn answer_as(
        mut self: Box<Self>,
        stream: impl FnOnce(Box<Self>) -> Body,
    ) -> Response<Body> {
        std::future::poll_fn(|cx| self.poll_fill(cx)).await;
        if let Some(failure) = self
            .client
            .buffer
            .error_response(&self.legs.first.reader)
            .cloned()
        {
            let EngineExchange {
                refused,
                fallbacks,
                missing_fallback,
                ..
            } = &self.legs.first.exchange;
            let failure = FirstRefusal::or_first(refused.as_deref(), *fallbacks, failure);
            let failure = match missing_fallback {
                Some(fallback) => fallback.explain(failure),
                None => failure,
            };
            return self.error_response(&failure);
        }
        self.client.record.answered(200);
        let head = self.client.record.success(self.forwarded_headers());
        if self.client.stream {
            let response = head.stream();
            self.client.buffer.commit();
            return response.map(|()| stream(self));
        }
        let response = head.object(self.client.record.started.elapsed());
        self.begin_store();
        std::future::poll_fn(|cx| self.poll_store(cx)).await;
        let out = std::mem::take(&mut self.client.buffer.out);
        self.client.record.bytes = out.len();
        self.complete_record();
        response.map(|()| Body::full(out))
    }

    fn error_response(mut self: Box<Self>, failure: &Failure) -> Response<Body> {
        headers::keep_shortest_retry_after(
            &mut self.legs.first.exchange.passed,
            self.client.resend.as_ref().and_then(|resend| resend.wait),
        );
        let has_two_resets = self
            .legs
            .first
            .selection
            .as_ref()
            .is_some_and(UpstreamSelection::has_two_resets);
        self.complete_record();
        let passed = &self.legs.first.exchange.passed;
        self.client
            .record
            .error_response(failure, has_two_resets, passed)
            .map(Body::full)
    }

    /// Reads from the engine until there is output for the client, or there will be no more. Output that is ready
    /// at the same time is sent together.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.clock.reads();
        let mut waits = false;
        for _ in 0..READS {
            if self.ended() || self.is_full() {
                break;
            }
            if self.client.record.app.is_cut() {
                self.fail(Fault::Draining.into());
                self.finish_choice(0);
                break;
            }
            waits = self.poll_legs(cx).is_pending();
            // Send output that is due before another read, which would mostly find nothing.
            if waits || self.client.stream && self.has_emptied_socket() && self.is_due() {
                break;
            }
        }
        if self.ended() {
            return self.end_attempt(cx);
        }
        if self.client.stream && self.is_due() {
            return Poll::Ready(());
        }
        let due = self.client.clock.poll(cx);
        if due.is_pending() && !waits {
            // More input is ready, and no other wake-up will follow: let other streams run first, then continue.
            cx.waker().wake_by_ref();
        }
        match ready!(due) {
            Due::Timeout => {
                self.time_out();
                return self.end_attempt(cx);
            }
            Due::ClientOutput => {
                self.client.clock.committed();
                self.client.buffer.commit();
                self.comment = true;
            }
        }
        Poll::Ready(())
    }

    /// Handles the end of an attempt. Ready if the answer has ended too; pending if another attempt or further
    /// choices continue it.
    fn end_attempt(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let continues = match self.client.buffer.writer.is_merged() {
            true => !self.ended(),
            false => self.resend() || self.request_missing_choices(),
        };
        if !continues {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns true if there is enough output for one write: an eighth of `stream_buffer_bytes`. The rest is left for
    /// what else waits. Hyper accepts frames until it holds `max_head_bytes`, a frame may exceed the eighth by one
    /// read from the engine, and growing buffers hold up to twice their content. Output that may not be sent yet does
    /// not count: only the engine can release it, and it is about as long as the request that it repeats.
    fn is_full(&self) -> bool {
        self.client.stream
            && self.client.buffer.out.len() >= self.limits().stream_buffer_bytes / 8
            && self.is_due()
    }

    /// Returns true if the engine's socket held no more than what was read; false if there are several exchanges.
    fn has_emptied_socket(&self) -> bool {
        !self.client.buffer.writer.is_merged()
            && matches!(&self.legs.first.exchange.step, EngineStep::Reading(answer, _) if answer.has_emptied_socket())
    }

    /// Returns the number of events that the engine has sent; with several answers, the sum.
    fn chunks(&self) -> u64 {
        self.legs.iter().map(|leg| leg.reader.events()).sum()
    }

    /// Returns true once the answer has ended.
    fn ended(&self) -> bool {
        self.client.buffer.ended(&self.legs.first.reader)
    }

    /// Returns true if there is output that may be sent, or the answer has ended.
    fn is_due(&self) -> bool {
        self.client.buffer.is_due(&self.legs.first.reader)
    }

    /// Reads from each engine answer. Pending if none has anything.
    fn poll_legs(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.client.buffer.writer.is_paused() {
            return self.poll_pause(cx);
        }
        if !self.client.buffer.writer.is_merged() {
            // Most answers: the caller sees by itself how the only leg has ended.
            return self.legs.first.poll(&mut self.client, cx);
        }
        let mut polled = Poll::Pending;
        for at in 0..self.legs.len() {
            let Some(leg) = self.legs.get_mut(at) else {
                break;
            };
            if leg.poll(&mut self.client, cx).is_ready() {
                polled = Poll::Ready(());
            }
            self.finish_choice(at);
            if self.ended() {
                break;
            }
            if self.is_full() {
                self.legs.rotate(at + 1);
                break;
            }
        }
        self.remove_finished();
        polled
    }

    /// Ends each engine answer with a timeout, or the wait for outputs.
    fn time_out(&mut self) {
        self.client.tell_time();
        if self.client.buffer.writer.is_paused() {
            return self.fail(Fault::OutputsMissing.into());
        }
        let class = if self.client.clock.has_half() {
            RetryClass::MaybeProcessed
        } else {
            RetryClass::Never
        };
        for at in 0..self.legs.len() {
            let Some(leg) = self.legs.get_mut(at) else {
                break;
            };
            leg.time_out(class, &mut self.client);
            self.finish_choice(at);
            if self.ended() {
                break;
            }
        }
        self.remove_finished();
    }

    /// Handles the end of one choice of a merged answer: success, a failure that is retried elsewhere, or a failure of
    /// all choices.
    fn finish_choice(&mut self, at: usize) {
        let Self { legs, client, .. } = self;
        let Some(leg) = legs
            .get_mut(at)
            .filter(|_| client.buffer.writer.is_merged())
        else {
            return;
        };
        let is_over = client.buffer.ended(&leg.reader) && leg.exchange.is_done();
        if !leg.reader.progress().ended || is_over {
            return;
        }
        if leg.reader.failure().is_none() {
            leg.finish_attempt(client);
            return leg.give_back(client.thread);
        }
        if try_resend(leg, client).is_none() {
            client.buffer.give_up(&leg.reader);
            // The others are not needed.
            legs.keep_alone(at, |other| {
                client.buffer.writer.add_summary(other.reader.summary())
            });
        }
    }

    /// Removes the legs of a merged answer that are finished; one always stays.
    fn remove_finished(&mut self) {
        let Self { legs, client, .. } = self;
        if client.buffer.writer.is_merged() {
            legs.remove_finished(|leg| client.buffer.writer.add_summary(leg.reader.summary()));
        }
    }

    /// Sends the request again. Returns true if there is another attempt.
    fn resend(&mut self) -> bool {
        let Some(more) = try_resend(&mut self.legs.first, &mut self.client) else {
            return false;
        };
        self.legs.add(more);
        true
    }

    /// Requests the choices that are missing. Returns false if none is, or they cannot be requested.
    fn request_missing_choices(&mut self) -> bool {
        match missing_choices(&mut self.legs.first, &mut self.client) {
            Some(legs) => self.legs = legs,
            None => return false,
        }
        true
    }

    /// Returns the headers to pass to the client; with several answers those of one that has arrived.
    fn forwarded_headers(&self) -> &HeaderMap {
        let mut all = self.legs.iter().map(|leg| &leg.exchange.passed);
        all.find(|passed| !passed.is_empty())
            .unwrap_or(&self.legs.first.exchange.passed)
    }

    /// Completes the record when the last bytes are handed over, and releases the engine's connection for reuse if
    /// its answer was read to the end.
    fn complete_record(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let Self {
            legs: Legs { first: leg, .. },
            client,
            ..
        } = self;
        client
            .record
            .summarised(client.buffer.writer.summary(leg.reader.summary()));
        let is_good = leg.reader.failure().is_none();
        let is_error = matches!(
            &leg.exchange.step,
            EngineStep::Reading(_, BodyKind::Error(_))
        );
        // With several legs, `finish_choice` has finished the attempt of each.
        if !(client.buffer.writer.is_merged() && is_good) {
            leg.finish_attempt(client);
        }
        client.resend = None;
        match leg.reader.failure() {
            Some(failure) => client.record.failed(failure),
            None => client.record.completed(),
        }
        if is_good || is_error {
            leg.give_back(client.thread)
        } else {
            leg.exchange.cancel()
        }
    }

    /// Returns the next bytes of the stream, or a keep-alive comment; `None` at the end. Never fails.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        panics::point("stream", Some(&self.client.record.request_id));
        if !self.comment && !self.is_due() {
            ready!(self.poll_fill(cx));
        }
        if self.ended() {
            self.begin_store();
            if self.client.buffer.out.is_empty() && !self.comment {
                ready!(self.poll_store(cx));
            }
        }
        let bytes = if std::mem::take(&mut self.comment) {
            self.client.clock.wrote();
            Bytes::from_static(self.client.record.protocol.keepalive())
        } else if self.is_complete() {
            self.complete_record();
            return Poll::Ready(None);
        } else {
            self.hand_over()
        };
        self.client.record.bytes += bytes.len();
        self.client.record.progressed(self.chunks());
        if self.is_complete() {
            self.complete_record();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Takes the output that the client receives next, and measures the pause before it.
    fn hand_over(&mut self) -> Bytes {
        // Choices that the answer lacks and further rounds are requested after it, by the same means as a retry.
        let is_over = !self.legs.first.reader.may_lack() && self.rounds.is_none();
        if self.client.resend.is_some() && is_over {
            (self.client.resend, self.legs.first.selection) = (None, None);
        }
        self.begin_rounds();
        let bytes = if self.by_events {
            self.client.buffer.out.join()
        } else {
            self.client.buffer.out.take()
        };
        let was_partial =
            std::mem::replace(&mut self.output_left, !self.client.buffer.out.is_empty());
        if let Some(pause) = self.client.clock.wrote_answer().filter(|_| !was_partial) {
            self.legs
                .first
                .exchange
                .chosen
                .upstream()
                .figures
                .inter_token
                .observe(pause);
        }
        bytes
    }

    /// Returns true if the answer has ended, all of it has been handed over, and storing is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.ended()
            && self.client.buffer.out.is_empty()
            && !self.comment
            && matches!(self.storing, Storing::Nothing)
    }

    /// Starts to store an answer that has ended. Its end is written later, because it states if the answer is
    /// stored.
    fn begin_store(&mut self) {
        if let Storing::Waiting(_) = &self.storing
            && let Storing::Waiting(writer) = std::mem::replace(&mut self.storing, Storing::Nothing)
            && let Some(finished) = self.finished()
        {
            self.storing = Storing::Running(match self.rounds.take() {
                Some(rounds) => rounds.store(*writer, finished),
                None => writer.store_final(finished),
            });
        }
    }

    fn poll_store(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Storing::Running(storing) = &mut self.storing {
            let persisted =
                ready!(storing.as_mut().poll(cx)).persisted(&self.client.record.request_id);
            let AnswerBuffer { writer, out, .. } = &mut self.client.buffer;
            if let Some(response) = writer.response_mut() {
                response.write_end(persisted, out);
            }
            self.storing = Storing::Nothing;
        }
        Poll::Ready(())
    }

    /// Returns the encoder of a Responses answer, which knows its id and its items.
    pub(super) fn response(&self) -> Option<&Encoder> {
        self.client.buffer.writer.response()
    }

    /// Returns the answer once it has ended; `None` before, and for APIs whose answers are not stored.
    pub(super) fn finished(&self) -> Option<Finished> {
        self.response()?.finished()
    }

    /// Returns the end of an answer whose end waits for the store. The body's consumer stores the answer itself.
    pub(super) fn write_end(&mut self, persisted: Persisted) -> Bytes {
        let mut end = OutputBuffer::default();
        if let Some(response) = self.client.buffer.writer.response_mut() {
            response.write_end(persisted, &mut end);
        }
        // If the end is written a second time, only the second is sent: count its bytes in place of the first's.
        self.client.record.bytes += end.len();
        self.client.record.bytes -= std::mem::replace(&mut self.end_bytes, end.len());
        end.join()
    }
}

impl http_body::Body for Relay {
    type Data = Bytes;
    type Error = AbortedBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        self.get_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_complete()
    }
}
