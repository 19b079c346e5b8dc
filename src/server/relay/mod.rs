//! Relay: the answer to one request, pulled from the engine through the [`Rewriter`](crate::wire::Rewriter) to the
//! client.
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
mod contract;
mod exchange;
mod fan_out;
mod priority;
mod resend;
pub(super) mod selection;

use super::admit::body::{AbortedBody, Body};
use super::admit::headers;
use super::admit::quota::Ticket;
use super::panics;
use super::record::Record;
use super::responses::persist::{PendingWrite, ResponseWriter};
use crate::config::Limits;
use crate::error::RetryClass;
use crate::upstream::{Answer, Read, ReadError, Upstream};
use crate::wire::disclosure::EngineKey;
use crate::wire::encode::{Encode, Finished, OutputItem, Persisted};
use crate::wire::fault::{Failure, Fault, Unusable};
use crate::wire::options::Options;
use crate::wire::{Ending, OutputBuffer};
use answer_buffer::AnswerBuffer;
use attempt::{Attempt, AttemptTarget, PendingRequest, Refused, UpstreamRequest, failure_of, report_outcome};
use bytes::Bytes;
use clock::{Clock, Due};
use contract::ContractCheck;
use exchange::{BodyKind, BodyReader, EngineStep, Exchange, body_kind, says_events};
use fan_out::SiblingExchange;
use http::Response;
use http_body::Frame;
use resend::Resend;
use selection::UpstreamSelection;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Upper limit for the reads that are joined in one write, so that a fast engine does not starve other streams of
/// the thread.
const READS: usize = 64;

/// Relay of one answer: the exchange with the engine, the output buffer, the timers and the record.
pub(super) struct Relay {
    /// Exchange with the engine; of several, the one whose turn it is.
    exchange: Exchange,
    /// Exchanges of the other choices, if each choice has one of its own.
    others: Vec<SiblingExchange>,
    /// Index of the worker thread that polls the relay.
    thread: usize,
    /// Data needed to send the request again; `None` once it is too late for that.
    resend: Option<Box<Resend>>,
    buffer: AnswerBuffer,
    /// Bytes received of the answer.
    received: usize,
    clock: Clock,
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
    /// True for SSE, false for one object.
    stream: bool,
    record: Record,
    storing: Storing,
    /// Check of the answer against the API's contract, if it is configured.
    contract: Option<Box<ContractCheck>>,
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

/// Parameters of a new [`Relay`]: the attempt that has started, and the form in which its answer is wanted.
pub(super) struct RelayParams {
    pub(super) attempt: Attempt,
    /// Request and remaining upstreams for further attempts, if these are allowed.
    pub(super) resend: Option<(Box<dyn UpstreamRequest>, UpstreamSelection)>,
    /// Index of the worker thread that polls the relay.
    pub(super) thread: usize,
    pub(super) options: Arc<Options>,
    pub(super) stream: bool,
    pub(super) record: Record,
    /// Writer that stores the answer, if it is to be stored.
    pub(super) writer: Option<Box<ResponseWriter>>,
    /// True if events are numbered, so that none may be removed once the status has been sent.
    pub(super) numbered: bool,
}

impl Relay {
    /// Returns the relay of an attempt, with the further exchanges of its fan-out if it has one.
    pub(super) fn new(params: RelayParams) -> Box<Self> {
        let RelayParams { attempt, resend, thread, options, stream, mut record, writer, numbered } = params;
        let Attempt { chosen, request: PendingRequest { answer, rewriter, others, fallbacks } } = attempt;
        record.sent_to(chosen.upstream(), 1);
        let clock = Clock::new(stream, &record.app.config.timeouts, &options);
        let contract = ContractCheck::new(record.app.config.contract, record.route, stream);
        let mut this = Box::new(Self {
            exchange: Exchange::begin(chosen, answer, 0, fallbacks),
            others: Vec::new(),
            thread,
            resend: resend.map(|(request, selection)| Box::new(Resend::new(request, selection))),
            buffer: AnswerBuffer::new(rewriter, numbered, false),
            received: 0,
            clock,
            comment: false,
            by_events: false,
            output_left: false,
            closed: false,
            end_bytes: 0,
            stream,
            record,
            storing: writer.map_or(Storing::Nothing, Storing::Waiting),
            contract,
        });
        this.pass_limits();
        this.begin_others(others, Duration::ZERO);
        this
    }

    /// Passes the limits of the key's quota to the encoder, for events that report them.
    fn pass_limits(&mut self) {
        if let Some(limits) = self.record.ticket.as_ref().and_then(Ticket::limits) {
            self.buffer.rewriter.limits(limits);
        }
    }

    /// Returns the upstream of the current attempt.
    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        self.exchange.chosen.upstream()
    }

    /// Returns the engines' name of the model that answers, if the client's name stands for others.
    pub(super) fn served(&self) -> Option<&Arc<str>> {
        self.record.served.as_ref()
    }

    /// Records the time that it took to read and plan the request.
    pub(super) fn planned(&mut self, took: Duration) {
        self.record.planning = took;
    }

    /// Turns off keep-alive comments and the early status, for a consumer of the body that needs neither: an error
    /// before the first event is then the whole answer, however late it occurs.
    pub(super) fn disable_keepalive(&mut self) {
        self.clock.disable_keepalive();
    }

    /// Hands over whole events only, for a consumer of the body that processes them.
    pub(super) fn by_events(&mut self) {
        self.by_events = true;
    }

    /// Notes that the status has been sent: from now on a failure is reported as an event.
    pub(super) fn mark_committed(&mut self) {
        self.buffer.commit();
        self.clock.committed();
        self.record.answered(200);
    }

    /// Notes that the status counts as sent, and turns off comments, because no client waits for the answer.
    pub(super) fn run_without_client(&mut self) {
        self.mark_committed();
        self.clock.run_without_client();
    }

    /// Closes the relay and returns its encoder, so that another answer can continue the same stream.
    pub(super) fn into_encoder(mut self: Box<Self>) -> Box<dyn Encode> {
        self.complete_record();
        self.buffer.rewriter.into_encoder()
    }

    /// Ends the answer with a failure, unless it has ended already.
    pub(super) fn give_up(&mut self, failure: impl Into<Failure>) {
        if !self.buffer.ended() {
            self.fail(failure.into());
        }
    }

    fn limits(&self) -> &Limits {
        &self.record.app.config.limits
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
        self.check_contract();
        if let Some(failure) = self.buffer.error_response().cloned() {
            let Exchange { refused, fallbacks, missing_fallback, .. } = &self.exchange;
            let failure = Refused::or_first(refused.as_deref(), *fallbacks, failure);
            let failure = match missing_fallback {
                Some(fallback) => fallback.explain(failure),
                None => failure,
            };
            return self.error_response(&failure);
        }
        self.record.answered(200);
        let head = headers::Success {
            request_id: &self.record.request_id,
            passed: self.forwarded_headers(),
            attempts: self.record.attempts,
            model: self.record.served.as_deref(),
        };
        if self.stream {
            let response = head.stream();
            self.buffer.commit();
            return response.map(|()| stream(self));
        }
        let response = head.object(self.record.started.elapsed());
        self.begin_store();
        std::future::poll_fn(|cx| self.poll_store(cx)).await;
        self.check_contract();
        let out = std::mem::take(&mut self.buffer.out);
        self.record.bytes = out.len();
        self.complete_record();
        response.map(|()| Body::full(out))
    }

    fn error_response(mut self: Box<Self>, failure: &Failure) -> Response<Body> {
        headers::keep_shortest_retry_after(
            &mut self.exchange.passed,
            self.resend.as_ref().and_then(|resend| resend.wait),
        );
        let is_poison = self.resend.as_ref().is_some_and(|resend| resend.selection.is_poison());
        self.complete_record();
        let error = headers::ErrorResponse {
            protocol: self.record.protocol,
            failure,
            is_final: failure.is_final() || is_poison,
            passed: &self.exchange.passed,
            attempts: self.record.attempts,
            elapsed: self.record.started.elapsed(),
        };
        let response = error.response(&self.record.request_id);
        self.record.answered(response.status().as_u16());
        self.record.bytes = response.body().len();
        self.check_error_body(response.body());
        response.map(Body::full)
    }

    /// Reads from the engine until there is output for the client, or there will be no more. Output that is ready
    /// at the same time is sent together.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.clock.reads();
        let mut waits = false;
        for _ in 0..READS {
            if self.buffer.ended() || self.is_full() {
                break;
            }
            if self.record.app.is_cut() {
                self.fail(Fault::Draining.into());
                self.finish_current_choice();
                break;
            }
            waits = self.poll_exchanges(cx).is_pending();
            // Send output that is due before another read, which would mostly find nothing.
            if waits || self.stream && self.has_emptied_socket() && self.buffer.is_due() {
                break;
            }
        }
        if self.buffer.ended() {
            return self.end_attempt(cx);
        }
        if self.stream && self.buffer.is_due() {
            return Poll::Ready(());
        }
        let due = self.clock.poll(cx);
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
                self.clock.committed();
                self.buffer.commit();
                self.comment = true;
            }
        }
        Poll::Ready(())
    }

    /// Handles the end of an attempt. Ready if the answer has ended too; pending if another attempt or further
    /// choices continue it.
    fn end_attempt(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let continues = if self.buffer.rewriter.is_merged() {
            !self.buffer.ended()
        } else {
            self.try_resend() || self.request_missing_choices()
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
        self.stream && self.buffer.out.len() >= self.limits().stream_buffer_bytes / 8 && self.buffer.is_due()
    }

    /// Returns true if the engine's socket held no more than what was read; false if there are several exchanges.
    fn has_emptied_socket(&self) -> bool {
        !self.buffer.rewriter.is_merged()
            && matches!(&self.exchange.step, EngineStep::Reading(answer, _) if answer.has_emptied_socket())
    }

    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.exchange.step {
            EngineStep::Pending(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                match answer {
                    Ok(answer) => self.begin(answer),
                    Err(error) => {
                        self.exchange.step = EngineStep::Done;
                        self.exchange.class = Some(error.class);
                        self.fail(error.public);
                    }
                }
            }
            EngineStep::Reading(..) => ready!(self.poll_body(cx)),
            EngineStep::Done => {}
        }
        Poll::Ready(())
    }

    /// Handles the head of the engine's answer: decides how its body is read, and fails if it cannot be used.
    fn begin(&mut self, answer: Answer) {
        self.exchange.passed = headers::forwarded(&answer.head.headers);
        // Limits that the engine reports concern the client only if its key has no quota (wire-format 4.9).
        if self.record.ticket.is_none()
            && let Some(limits) = headers::limits(&self.exchange.passed)
        {
            self.buffer.rewriter.limits(limits);
        }
        if let Some(key) = self.exchange.chosen.upstream().config.auth.own_key() {
            self.buffer.rewriter.hide_key(EngineKey(key.bytes()));
        }
        self.record.attempts += answer.attempts.saturating_sub(1);
        let (request_id, status) = (&*self.record.request_id, answer.head.status);
        tracing::debug!(request_id, upstream = self.upstream().config.name, status, "an engine answers");
        match body_kind(&answer.head) {
            Ok(body_kind) => self.exchange.step = EngineStep::Reading(Box::new(answer), body_kind),
            Err(why) => self.fail(why.into()),
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { exchange: Exchange { step, chosen, .. }, buffer, received, record, clock, .. } = self;
        let EngineStep::Reading(answer, body_kind) = step else { return Poll::Ready(()) };
        let (limits, upstream) = (&record.app.config.limits, chosen.upstream());
        let mut reading =
            BodyReader { buffer, received, body_kind, limits, upstream, clock, wrong: None, began: None };
        let read = ready!(answer.poll_read(cx, &mut |bytes| reading.bytes(bytes)));
        let BodyReader { wrong, began, .. } = reading;
        let now = Instant::now();
        if let Some(began) = began {
            self.record.rewriting += now.saturating_duration_since(began);
        }
        if self.clock.heard(now, self.buffer.has_content() || !self.stream) {
            self.exchange.chosen.upstream().record_piece(now);
        }
        if self.buffer.rewriter.reader().progress().has_content {
            self.exchange.note_accepted_form();
        }
        if self.buffer.has_content() && self.record.first_token.is_none() {
            let elapsed = self.record.started.elapsed();
            self.record.first_token = Some(elapsed);
            self.exchange.chosen.upstream().figures.first_token.observe(elapsed);
            self.record.progressed(self.chunks());
        }
        if let Some(why) = wrong {
            self.fail(why.into());
            return Poll::Ready(());
        }
        match read {
            Ok(Read::More) => self.end_long_error_body(),
            Ok(Read::End) => self.body_ended(Ending::Clean),
            Err(ReadError::Reset) => self.body_ended(Ending::Reset),
            Err(ReadError::Malformed) => self.body_malformed(),
        }
        Poll::Ready(())
    }

    /// Ends an error response whose text has reached `max_error_bytes`; the rest is not needed.
    fn end_long_error_body(&mut self) {
        if let EngineStep::Reading(_, BodyKind::Error(body)) = &self.exchange.step
            && body.len() >= self.limits().max_error_bytes
        {
            self.body_ended(Ending::Reset);
        }
    }

    /// Returns the number of events that the engine has sent; with several answers, the sum.
    fn chunks(&self) -> u64 {
        let others = self.others.iter().map(SiblingExchange::events);
        self.buffer.rewriter.reader().events() + others.sum::<u64>()
    }

    /// Handles the end of the engine's body, according to the form in which it was read.
    fn body_ended(&mut self, ending: Ending) {
        self.tell_time();
        let Self { exchange: Exchange { step, chosen, class, refused, fallbacks, .. }, buffer, .. } = self;
        let EngineStep::Reading(answer, body_kind) = step else { return };
        if buffer.ended() {
            return;
        }
        if ending == Ending::Reset {
            *class = Some(RetryClass::Reset);
        }
        match body_kind {
            BodyKind::Error(body) => {
                let body = if answer.head.is_encoded() { &[] } else { body.as_ref() };
                let failure = failure_of(answer.head.status, body, &chosen.upstream().config.auth);
                *class = Some(RetryClass::of_answer(answer.head.status, &failure));
                buffer.fail(Refused::or_first(refused.as_deref(), *fallbacks, failure));
            }
            BodyKind::Whole(body) if ending == Ending::Clean => buffer.whole(body),
            BodyKind::Unknown(_) if ending == Ending::Clean && !says_events(&answer.head) => {
                buffer.fail(Unusable::Foreign.into());
            }
            _ => buffer.finish(ending),
        }
    }

    /// Handles HTTP that cannot be parsed any further. Events that were complete before remain valid.
    fn body_malformed(&mut self) {
        if let EngineStep::Reading(_, BodyKind::Events) = &self.exchange.step {
            self.body_ended(Ending::Reset);
        } else {
            self.exchange.class = Some(RetryClass::MaybeProcessed);
            self.fail(Unusable::Malformed.into());
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.tell_time();
        self.exchange.cancel();
        self.buffer.fail(failure);
    }

    /// Tells the rewriter the time, for output that the engine's bytes do not cause.
    fn tell_time(&mut self) {
        self.clock.update();
        self.buffer.rewriter.clock(self.clock.unix_seconds());
    }

    /// Logs that the attempt is over, and writes its failure and the engine's own message into the record.
    fn log_attempt(&mut self) {
        let Self { buffer, exchange, record, resend, .. } = self;
        let (failure, upstream) = (buffer.rewriter.any_failure(), exchange.chosen.upstream());
        if let Some(failure) = failure.filter(|failure| failure.engine.is_some()) {
            let request = resend.as_ref().and_then(|resend| {
                resend.request.text(&AttemptTarget::first(upstream, resend.selection.served()))
            });
            if let Some(request) = request {
                record.note_engine_error(failure, &request);
            }
        }
        record.attempted(upstream, failure);
    }

    /// Logs the attempt, and reports its outcome to the upstream's health tracking.
    fn finish_attempt(&mut self) {
        self.log_attempt();
        let failure = self.buffer.rewriter.any_failure();
        if failure.is_none() {
            self.exchange.note_accepted_form();
        }
        let Exchange { step, chosen, passed, .. } = &mut self.exchange;
        let status = match step {
            EngineStep::Reading(answer, BodyKind::Error(_)) => Some(answer.head.status),
            _ => None,
        };
        report_outcome(chosen, failure, status, passed);
    }

    /// Completes the record when the last bytes are handed over, and releases the engine's connection for reuse if
    /// its answer was read to the end.
    fn complete_record(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.record.summarised(self.buffer.rewriter.summary());
        let is_good = self.buffer.rewriter.any_failure().is_none();
        let is_error = matches!(&self.exchange.step, EngineStep::Reading(_, BodyKind::Error(_)));
        let may_reuse = is_good || is_error;
        // With several exchanges, `finish_current_choice` has finished the attempt of each.
        if !(self.buffer.rewriter.is_merged() && is_good) {
            self.finish_attempt();
        }
        self.resend = None;
        match self.buffer.rewriter.any_failure() {
            Some(failure) => self.record.failed(failure),
            None => self.record.completed(),
        }
        self.check_completeness();
        if !may_reuse {
            return self.exchange.cancel();
        }
        self.give_back();
    }

    /// Returns the engine's connection to its client for reuse, once its last bytes have arrived.
    fn give_back(&mut self) {
        if let EngineStep::Reading(answer, _) = std::mem::replace(&mut self.exchange.step, EngineStep::Done) {
            self.exchange.chosen.client(self.thread).give_back_soon(*answer);
        }
    }

    /// Returns the next bytes of the stream, or a keep-alive comment; `None` at the end. Never fails.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        panics::point("stream", Some(&self.record.request_id));
        if !self.comment && !self.buffer.is_due() {
            ready!(self.poll_fill(cx));
        }
        self.check_contract();
        if self.buffer.ended() {
            self.begin_store();
            if self.buffer.out.is_empty() && !self.comment {
                ready!(self.poll_store(cx));
            }
        }
        let bytes = if std::mem::take(&mut self.comment) {
            self.clock.wrote();
            Bytes::from_static(self.record.protocol.keepalive())
        } else if self.is_complete() {
            self.complete_record();
            return Poll::Ready(None);
        } else {
            self.hand_over()
        };
        self.record.bytes += bytes.len();
        self.record.progressed(self.chunks());
        if self.is_complete() {
            self.complete_record();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Takes the output that the client receives next, and measures the pause before it.
    fn hand_over(&mut self) -> Bytes {
        // Choices that the answer lacks are requested after it, by the same means as a retry.
        if !self.buffer.rewriter.may_lack() {
            self.resend = None;
        }
        self.check_contract();
        let bytes = match &mut self.contract {
            None if !self.by_events => self.buffer.out.take(),
            _ => self.buffer.out.join(),
        };
        if let Some(contract) = &mut self.contract {
            contract.handed_over();
        }
        let was_partial = std::mem::replace(&mut self.output_left, !self.buffer.out.is_empty());
        if let Some(pause) = self.clock.wrote_answer().filter(|_| !was_partial) {
            self.exchange.chosen.upstream().figures.inter_token.observe(pause);
        }
        bytes
    }

    /// Returns true if the answer has ended, all of it has been handed over, and storing is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.buffer.ended()
            && self.buffer.out.is_empty()
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
            self.storing = Storing::Running(writer.store_final(finished));
        }
    }

    fn poll_store(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Storing::Running(storing) = &mut self.storing {
            let persisted = ready!(storing.as_mut().poll(cx)).persisted(&self.record.request_id);
            let AnswerBuffer { rewriter, out, .. } = &mut self.buffer;
            rewriter.encoder_mut().write_end(persisted, out);
            self.storing = Storing::Nothing;
        }
        Poll::Ready(())
    }

    /// Returns the encoder of the answer, which knows its id and its items.
    pub(super) fn encoder(&self) -> &dyn Encode {
        self.buffer.rewriter.encoder()
    }

    /// Returns the answer once it has ended; `None` before, and for APIs whose answers are not stored.
    pub(super) fn finished(&self) -> Option<Finished> {
        self.encoder().finished()
    }

    /// Takes the items since the last pause, if the answer has paused to wait for the outputs of its calls.
    pub(super) fn take_pause(&mut self) -> Option<Vec<OutputItem>> {
        self.buffer.rewriter.encoder_mut().take_pause()
    }

    /// Returns the end of an answer whose end waits for the store. The body's consumer stores the answer itself.
    pub(super) fn write_end(&mut self, persisted: Persisted) -> Bytes {
        let mut end = OutputBuffer::default();
        self.buffer.rewriter.encoder_mut().write_end(persisted, &mut end);
        self.check_end(&end);
        // If the end is written a second time, only the second is sent: count its bytes in place of the first's.
        self.record.bytes += end.len();
        self.record.bytes -= std::mem::replace(&mut self.end_bytes, end.len());
        end.join()
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("rewriter", &self.buffer.rewriter).finish_non_exhaustive()
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
