//! The relay: the answer to one request, pulled from the engine through the [`Rewriter`](crate::wire::Rewriter) to the client.
//!
//! It is polled by the client's connection and by nothing else: there is no task and no queue between the engine and
//! the client. A client that reads slowly slows the engine; one that is gone drops the relay, and with it the engine's
//! connection.

mod answer_buffer;
mod exchange;
mod fan_out;
mod resend;

use super::attempt::{
    Attempt, AttemptTarget, Refused, SentRequest, UpstreamRequest, UpstreamSelection, tell,
};
use super::body::{Body, Broken as Unsendable};
use super::clock::{Clock, Due, unix_seconds};
use super::persist::{PendingWrite, ResponseWriter};
use super::quota::Ticket;
use super::record::Record;
use super::{event, headers, panics};
use crate::config::Limits;
use crate::error::Class;
use crate::upstream::{Answer, Broken, Read, Upstream};
use crate::wire::encode::Encode;
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::Options;
use crate::wire::{Ending, OutputBuffer};
use answer_buffer::AnswerBuffer;
use bytes::Bytes;
use exchange::{BodyKind, EngineStep, Exchange, ReadOutcome, body_kind, says_events};
use fan_out::SiblingExchange;
use http::Response;
use http_body::Frame;
use resend::Resend;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Reads that are joined in one write at most, so that a fast engine does not starve other streams of the thread.
const READS: usize = 64;

/// One request under way.
pub(super) struct Relay {
    /// The only one, or of several the one whose turn it is.
    exchange: Exchange,
    /// Those of the other choices, where each has one of its own.
    others: Vec<SiblingExchange>,
    /// The thread that this is polled by.
    thread: usize,
    /// The means to ask this upstream or another one again; `None` once it is too late.
    again: Option<Box<Resend>>,
    buffer: AnswerBuffer,
    /// Bytes received of the answer.
    received: usize,
    clock: Clock,
    /// A comment is to be sent.
    comment: bool,
    /// Whole events are handed over, however long.
    by_events: bool,
    /// What was handed over last was not all there was.
    goes_on: bool,
    /// SSE for the client, or one object.
    stream: bool,
    record: Record,
    keep: StoreSink,
}

/// How a response gets into the store.
enum StoreSink {
    /// It does not, or it is there.
    Nothing,
    /// When it is over.
    Later(Box<ResponseWriter>),
    /// Now; its end waits for that.
    Now { storing: PendingWrite, end: OutputBuffer },
}

/// What a request needs to be relayed.
pub(super) struct RelayParams {
    pub(super) attempt: Attempt,
    /// The means to send the request again, if that is allowed.
    pub(super) again: Option<(Box<dyn UpstreamRequest>, UpstreamSelection)>,
    /// The thread that this is polled by.
    pub(super) thread: usize,
    pub(super) options: Arc<Options>,
    pub(super) stream: bool,
    pub(super) record: Record,
    /// What stores the answer.
    pub(super) writer: Option<Box<ResponseWriter>>,
    /// Events are numbered.
    pub(super) numbered: bool,
}

impl Relay {
    /// Begins to send.
    pub(super) fn new(order: RelayParams) -> Box<Self> {
        let RelayParams { attempt, again, thread, options, stream, mut record, writer, numbered } = order;
        let Attempt { chosen, sent: SentRequest { asking, rewriter, fan_out, fallbacks } } = attempt;
        record.attempts = 1;
        record.upstream = Some(Arc::clone(chosen.upstream()));
        let clock = Clock::new(stream, &record.app.config.timeouts, &options);
        let mut this = Box::new(Self {
            exchange: Exchange::begin(chosen, asking, 0, fallbacks),
            others: Vec::new(),
            thread,
            again: again.map(|(request, selection)| Box::new(Resend::new(request, selection))),
            buffer: AnswerBuffer::new(rewriter, numbered, false),
            received: 0,
            clock,
            comment: false,
            by_events: false,
            goes_on: false,
            stream,
            record,
            keep: writer.map_or(StoreSink::Nothing, StoreSink::Later),
        });
        this.tell_limits();
        if let Some(fan_out) = fan_out {
            this.fan_out(*fan_out, Duration::ZERO);
        }
        this
    }

    /// Tells the encoder what there was of the key's quota.
    fn tell_limits(&mut self) {
        if let Some(limits) = self.record.ticket.as_ref().and_then(Ticket::limits) {
            self.buffer.rewriter.limits(limits);
        }
    }

    /// Who is asked.
    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        self.exchange.chosen.upstream()
    }

    /// How long it took to read and plan the request.
    pub(super) fn planned(&mut self, took: Duration) {
        self.record.planning = took;
    }

    /// Nobody waits for a status or for comments: an error before the first event is the whole answer, however late.
    pub(super) fn take_time(&mut self) {
        self.clock.silence();
    }

    /// Who reads on wants whole events.
    pub(super) fn by_events(&mut self) {
        self.by_events = true;
    }

    /// The status has gone out: whatever becomes of the answer is told in events.
    pub(super) fn go_on(&mut self) {
        self.buffer.commit();
        self.clock.committed();
        self.record.answered(200);
    }

    /// The same, and nobody waits for comments.
    pub(super) fn detach(&mut self) {
        self.go_on();
        self.clock.detach();
    }

    /// The encoder of an answer that is over, to go on with another.
    pub(super) fn into_encoder(mut self: Box<Self>) -> Box<dyn Encode> {
        if !self.exchange.is_done() {
            self.close();
        }
        self.buffer.rewriter.into_encoder()
    }

    /// The answer ends here.
    pub(super) fn give_up(&mut self, failure: impl Into<Failure>) {
        if !self.buffer.ended() {
            self.fail(failure.into());
        }
    }

    fn limits(&self) -> &Limits {
        &self.record.app.config.limits
    }

    /// Waits until the status is known: for a stream until the engine has said something or `commit_after`, else for the
    /// whole answer (wire-format 3.1).
    pub(super) async fn answer(self: Box<Self>) -> Response<Body> {
        self.answer_as(Body::arriving).await
    }

    /// Like [`Relay::answer`], with the body of a stream made by `stream`.
    pub(super) async fn answer_as(
        mut self: Box<Self>,
        stream: impl FnOnce(Box<Self>) -> Body,
    ) -> Response<Body> {
        std::future::poll_fn(|cx| self.poll_fill(cx)).await;
        if let Some(failure) = self.buffer.refusal().cloned() {
            let Exchange { refused, fallbacks, lacks, .. } = &self.exchange;
            let failure = Refused::or_first(refused.as_deref(), *fallbacks, failure);
            let failure = match lacks {
                Some(fallback) => fallback.explain(failure),
                None => failure,
            };
            return self.refusal(&failure);
        }
        self.record.answered(200);
        let head = headers::Success {
            request_id: &self.record.request_id,
            passed: self.passed(),
            attempts: self.record.attempts,
        };
        if self.stream {
            let response = head.stream();
            self.buffer.committed = true;
            return response.map(|()| stream(self));
        }
        let response = head.object(self.record.started.elapsed());
        self.hold_end();
        std::future::poll_fn(|cx| self.poll_keep(cx)).await;
        let out = std::mem::take(&mut self.buffer.out);
        self.record.bytes = out.len();
        self.close();
        response.map(|()| Body::full(out))
    }

    fn refusal(mut self: Box<Self>, failure: &Failure) -> Response<Body> {
        headers::soonest(&mut self.exchange.passed, self.again.as_ref().and_then(|again| again.wait));
        let is_poison = self.again.as_ref().is_some_and(|again| again.selection.is_poison());
        self.close();
        let refusal = headers::Refusal {
            failure,
            is_final: failure.is_final() || is_poison,
            passed: &self.exchange.passed,
            attempts: self.record.attempts,
            elapsed: self.record.started.elapsed(),
        };
        let response = refusal.response(&self.record.request_id);
        self.record.answered(response.status().as_u16());
        self.record.bytes = response.body().len();
        response.map(Body::full)
    }

    /// Ready when there is something for the client, or nothing more will be. All that is ready at once goes together.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.clock.reads();
        self.buffer.rewriter.clock(unix_seconds());
        let mut waits = false;
        for _ in 0..READS {
            if self.buffer.ended() || self.is_full() {
                break;
            }
            if self.record.app.is_cut() {
                self.fail(Fault::Draining.into());
                self.settle();
                break;
            }
            waits = self.poll_engines(cx).is_pending();
            // What is due goes out before it is asked whether there is more: then there mostly is none.
            if waits || self.stream && self.has_drained() && self.buffer.is_due() {
                break;
            }
        }
        if self.buffer.ended() {
            return self.over(cx);
        }
        if self.stream && self.buffer.is_due() {
            return Poll::Ready(());
        }
        let due = self.clock.poll(cx);
        if due.is_pending() && !waits {
            // More is there already, and nobody else will say so: other streams first, then on.
            cx.waker().wake_by_ref();
        }
        match ready!(due) {
            Due::Timeout => {
                self.time_out();
                return self.over(cx);
            }
            Due::Comment => {
                self.clock.committed();
                self.buffer.commit();
                self.comment = true;
            }
        }
        Poll::Ready(())
    }

    /// The attempt is over, and with it the answer, if no other one is made.
    fn over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let goes_on = if self.buffer.is_of_several() {
            !self.buffer.ended()
        } else {
            self.is_sent_again() || self.asks_for_the_rest()
        };
        if !goes_on {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// There is enough for one write. The HTTP library takes more of them while it has less than a head's worth left, and
    /// each may be longer by one read; it and the text in the making have about twice the room that they need.
    /// What may not be sent yet does not count: only the engine can release it, and it is about as long as the request
    /// that it repeats.
    fn is_full(&self) -> bool {
        self.stream && self.buffer.out.len() >= self.limits().stream_buffer_bytes / 8 && self.buffer.is_due()
    }

    /// The engine's socket held no more than what was read. Of several that is not asked.
    fn has_drained(&self) -> bool {
        !self.buffer.is_of_several()
            && matches!(&self.exchange.engine, EngineStep::Answers(answer, _) if answer.has_drained())
    }

    fn poll_engine(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.exchange.engine {
            EngineStep::Asked(asked) => {
                let answer = ready!(asked.as_mut().poll(cx));
                match answer {
                    Ok(answer) => self.begin(answer),
                    Err(error) => {
                        self.exchange.engine = EngineStep::Done;
                        self.record.because(&error);
                        self.exchange.class = Some(error.class);
                        self.fail(error.public);
                    }
                }
            }
            EngineStep::Answers(..) => ready!(self.poll_body(cx)),
            EngineStep::Done => {}
        }
        Poll::Ready(())
    }

    /// The head has come.
    fn begin(&mut self, answer: Answer) {
        self.exchange.passed = headers::passed(&answer.head.headers);
        // Beside a quota of the key, what the engine says of limits is not the client's (wire-format 4.9).
        if self.record.ticket.is_none()
            && let Some(limits) = headers::limits(&self.exchange.passed)
        {
            self.buffer.rewriter.limits(limits);
        }
        self.record.attempts += answer.attempts.saturating_sub(1);
        let (request_id, status) = (&self.record.request_id, answer.head.status);
        tracing::debug!(request_id, upstream = self.upstream().config.name, status, "an engine answers");
        match body_kind(&answer.head) {
            Some(body_kind) => self.exchange.engine = EngineStep::Answers(Box::new(answer), body_kind),
            None => self.fail(Fault::InvalidResponse.into()),
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { exchange: Exchange { engine, chosen, .. }, buffer, received, record, .. } = self;
        let EngineStep::Answers(answer, body_kind) = engine else { return Poll::Ready(()) };
        let (limits, upstream) = (&record.app.config.limits, chosen.upstream());
        let mut reading =
            ReadOutcome { buffer, received, body_kind, limits, upstream, wrong: false, began: None };
        let read = ready!(answer.poll_read(cx, &mut |bytes| reading.bytes(bytes)));
        let ReadOutcome { wrong, began, .. } = reading;
        let now = Instant::now();
        if let Some(began) = began {
            self.record.rewriting += now.saturating_duration_since(began);
        }
        if self.clock.heard(now, self.buffer.spoken() || !self.stream) {
            self.exchange.chosen.upstream().heard(now);
        }
        if self.buffer.rewriter.progress().spoken {
            self.exchange.answered();
        }
        if self.buffer.spoken() && self.record.first_token.is_none() {
            let elapsed = self.record.started.elapsed();
            self.record.first_token = Some(elapsed);
            self.exchange.chosen.upstream().figures.first_token.observe(elapsed);
        }
        match read {
            _ if wrong => self.fail(Fault::InvalidResponse.into()),
            Ok(Read::More) => self.refused_early(),
            Ok(Read::End) => self.end(Ending::Clean),
            Err(Broken::Reset) => self.end(Ending::Reset),
            Err(Broken::Malformed) => self.malformed(),
        }
        Poll::Ready(())
    }

    /// An error's text is long enough to be told.
    fn refused_early(&mut self) {
        if let EngineStep::Answers(_, BodyKind::Refusal(body)) = &self.exchange.engine
            && body.len() >= self.limits().max_error_bytes
        {
            self.end(Ending::Reset);
        }
    }

    /// The body is over.
    fn end(&mut self, ending: Ending) {
        let Self { exchange: Exchange { engine, chosen, class, refused, fallbacks, .. }, buffer, .. } = self;
        let EngineStep::Answers(answer, body_kind) = engine else { return };
        if buffer.ended() {
            return;
        }
        if ending == Ending::Reset {
            *class = Some(Class::Reset);
        }
        match body_kind {
            BodyKind::Refusal(body) => {
                let body = if answer.head.is_encoded() { &[] } else { body.as_ref() };
                *class = Some(Class::of_status(answer.head.status));
                let own_key = chosen.upstream().config.auth.are_ours();
                let failure = Failure::of_answer(answer.head.status, body, own_key);
                buffer.fail(Refused::or_first(refused.as_deref(), *fallbacks, failure));
            }
            BodyKind::Whole(body) if ending == Ending::Clean => buffer.whole(body),
            BodyKind::Unknown(_) if ending == Ending::Clean && !says_events(&answer.head) => {
                buffer.fail(Fault::InvalidResponse.into());
            }
            _ => buffer.finish(ending),
        }
    }

    /// HTTP that cannot be read on. What was complete stays complete.
    fn malformed(&mut self) {
        if let EngineStep::Answers(_, BodyKind::Events) = &self.exchange.engine {
            self.end(Ending::Reset);
        } else {
            self.exchange.class = Some(Class::Perhaps);
            self.fail(Fault::InvalidResponse.into());
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.exchange.let_go();
        self.buffer.fail(failure);
    }

    /// The attempt is over, and counted.
    fn counted(&mut self) {
        let Self { buffer, exchange, record, again, .. } = self;
        let (failure, upstream) = (buffer.rewriter.any_failure(), exchange.chosen.upstream());
        if let Some(failure) = failure.filter(|failure| failure.engine.is_some()) {
            let request =
                again.as_ref().and_then(|again| again.request.text(&AttemptTarget::first(upstream)));
            if let Some(request) = request {
                record.engine_said(failure, &request);
            }
        }
        record.attempted(upstream, failure);
    }

    /// The upstream's account of this attempt.
    fn told(&mut self) {
        self.counted();
        let failure = self.buffer.rewriter.any_failure();
        if failure.is_none() {
            self.exchange.answered();
        }
        let Exchange { engine, chosen, passed, .. } = &mut self.exchange;
        let status = match engine {
            EngineStep::Answers(answer, BodyKind::Refusal(_)) => Some(answer.head.status),
            _ => None,
        };
        tell(chosen, failure, status, passed);
    }

    /// The last bytes are on their way: the record is complete, and the engine's connection may serve again.
    fn close(&mut self) {
        self.record.summarised(self.buffer.summary());
        let is_good = self.buffer.rewriter.any_failure().is_none();
        let refused = matches!(&self.exchange.engine, EngineStep::Answers(_, BodyKind::Refusal(_)));
        let whole = is_good || refused;
        // Of several each is told of when it is over.
        if !(self.buffer.is_of_several() && is_good) {
            self.told();
        }
        self.again = None;
        match self.buffer.rewriter.any_failure() {
            Some(failure) => self.record.failed(failure),
            None => self.record.completed(),
        }
        if !whole {
            return self.exchange.let_go();
        }
        self.give_back();
    }

    /// The engine's connection may serve again.
    fn give_back(&mut self) {
        if let EngineStep::Answers(answer, _) = std::mem::replace(&mut self.exchange.engine, EngineStep::Done)
        {
            self.exchange.chosen.client(self.thread).give_back_soon(*answer);
        }
    }

    /// The next bytes of the stream.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unsendable>>> {
        panics::point("stream", Some(&self.record.request_id));
        if !self.comment && !self.buffer.is_due() {
            ready!(self.poll_fill(cx));
        }
        if self.buffer.ended() {
            self.hold_end();
            if self.buffer.out.is_empty() && !self.comment {
                ready!(self.poll_keep(cx));
            }
        }
        let bytes = if std::mem::take(&mut self.comment) {
            Bytes::from_static(b": keepalive\n\n")
        } else if self.is_end() {
            return Poll::Ready(None);
        } else {
            self.hand_over()
        };
        self.record.bytes += bytes.len();
        let goes_on = std::mem::replace(&mut self.goes_on, !self.buffer.out.is_empty());
        if let Some(pause) = self.clock.wrote().filter(|_| !goes_on) {
            self.exchange.chosen.upstream().figures.inter_token.observe(pause);
        }
        if self.is_end() {
            self.close();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn hand_over(&mut self) -> Bytes {
        // The choices that an answer lacks are asked for behind it.
        if !self.buffer.rewriter.may_lack() {
            self.again = None;
        }
        if self.by_events { self.buffer.out.join() } else { self.buffer.out.take() }
    }

    /// Everything has been handed over.
    pub(super) fn is_end(&self) -> bool {
        self.buffer.ended()
            && self.buffer.out.is_empty()
            && !self.comment
            && matches!(self.keep, StoreSink::Nothing)
    }

    /// The answer is over: what says so is held until the answer is stored.
    fn hold_end(&mut self) {
        let StoreSink::Later(_) = &self.keep else { return };
        let StoreSink::Later(writer) = std::mem::replace(&mut self.keep, StoreSink::Nothing) else { return };
        let Self { buffer, stream, .. } = self;
        let end = if *stream { buffer.out.split_end() } else { Some(std::mem::take(&mut buffer.out)) };
        let Some(end) = end else { return };
        let said = end.copied();
        let object = if *stream { event::response_in(&said) } else { std::str::from_utf8(&said).ok() };
        let storing = writer.keep(object.unwrap_or_default());
        self.keep = StoreSink::Now { storing, end };
    }

    fn poll_keep(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let StoreSink::Now { storing, end } = &mut self.keep {
            let kept = ready!(storing.as_mut().poll(cx));
            self.buffer.out = kept.honest(std::mem::take(end), &self.record.request_id);
            self.keep = StoreSink::Nothing;
        }
        Poll::Ready(())
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("rewriter", &self.buffer.rewriter).finish_non_exhaustive()
    }
}

impl http_body::Body for Relay {
    type Data = Bytes;
    type Error = Unsendable;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unsendable>>> {
        self.get_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_end()
    }
}
