//! The relay: the answer to one request, pulled from the engine through the [`Rewriter`] to the client.
//!
//! It is polled by the client's connection and by nothing else: there is no task and no queue between the engine and
//! the client. A client that reads slowly slows the engine; one that is gone drops the relay, and with it the engine's
//! connection.

use super::body::{Body, Broken as Unsendable};
use super::keep::{Keeper, Keeping};
use super::record::Record;
use super::{auth, event, headers};
use crate::config::{Limits, Timeouts};
use crate::error::Error;
use crate::telemetry::Gauge;
use crate::upstream::{Answer, Broken, Client, Head, Outgoing, Read};
use crate::wire::encode::Encode;
use crate::wire::fault::{Failure, Fault};
use crate::wire::{Ending, Form, Out, Rewriter};
use bytes::{Bytes, BytesMut};
use http::Response;
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Reads that are joined in one write at most, so that a fast engine does not starve other streams of the thread.
const READS: usize = 64;
/// Bytes before the first one that tells what an answer is.
const BLANK: usize = 64;

/// What the relay does next with the engine.
enum Engine {
    /// It waits for the head of the answer.
    Asked(Asking),
    /// It reads the body.
    Answers(Box<Answer>, Manner),
    /// It has let go of it.
    Done,
}

/// A request on its way, up to the head of its answer.
pub(super) type Asking = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// How a body is read.
enum Manner {
    /// Not known before its first byte; so many blanks went before.
    Unknown(usize),
    /// As an event stream.
    Events,
    /// As one object.
    Whole(BytesMut),
    /// As an error.
    Refusal(BytesMut),
}

/// One request under way.
pub(super) struct Relay {
    engine: Engine,
    client: Arc<Client>,
    pen: Pen,
    /// Bytes received from the engine.
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
    own_key: bool,
    /// Headers of the engine's answer that pass.
    passed: http::HeaderMap,
    record: Record,
    keep: Keep,
    lease: Lease,
}

/// How a response gets into the store.
enum Keep {
    /// It does not, or it is there.
    Nothing,
    /// When it is over.
    Later(Box<Keeper>),
    /// Now; its end waits for that.
    Now { storing: Keeping, end: Out },
}

/// The rewriter and what it has written.
///
/// A role is no answer yet: it is held until something follows it (faults 1). If an event of the engine then says what
/// went wrong, that goes behind the role, in the stream (wire-format 3.2); if the engine falls silent or breaks off, the
/// client sees the error alone.
struct Pen {
    rewriter: Rewriter,
    /// Canonical bytes that have not been handed over.
    out: Out,
    /// It ended before the engine said anything.
    unspoken: bool,
    /// Events are numbered: once the status has gone out, none of them may be taken back.
    numbered: bool,
    /// The status has gone out.
    committed: bool,
}

impl Pen {
    /// Pushes line by line until the engine speaks, so that the role can be told apart from what follows.
    fn push(&mut self, mut bytes: &[u8]) {
        while !self.spoken() && !bytes.is_empty() {
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.write(|rewriter, out| _ = rewriter.push(line, out));
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.rewriter.push(bytes, &mut self.out);
        }
    }

    fn commit(&mut self) {
        self.rewriter.commit();
        self.committed = true;
    }

    fn whole(&mut self, body: &[u8]) {
        self.rewriter.whole(body, &mut self.out);
    }

    fn fail(&mut self, failure: Failure) {
        self.write(|rewriter, out| _ = rewriter.fail(failure, out));
    }

    fn finish(&mut self, ending: Ending) {
        self.write(|rewriter, out| _ = rewriter.finish(ending, out));
    }

    fn write(&mut self, write: impl FnOnce(&mut Rewriter, &mut Out)) {
        let (held, ended) = (self.out.mark(), self.ended());
        write(&mut self.rewriter, &mut self.out);
        let failed = self.rewriter.any_failure().is_some_and(|failure| failure.fault.breaks_off());
        let stays = self.spoken() || self.numbered && self.committed;
        if failed && !ended && !stays {
            self.out = self.out.split_off(held);
            self.unspoken = true;
        }
    }

    /// The failure that is the whole answer.
    fn refusal(&self) -> Option<&Failure> {
        self.rewriter.failure().or_else(|| self.rewriter.any_failure().filter(|_| self.unspoken))
    }

    fn spoken(&self) -> bool {
        self.rewriter.progress().spoken
    }

    fn ended(&self) -> bool {
        self.rewriter.progress().ended
    }

    /// There is something that may be sent.
    fn is_due(&self) -> bool {
        self.ended() || self.spoken() && !self.out.is_empty()
    }
}

/// A request is with the upstream; returned by drop.
struct Lease(Arc<super::App>);

impl Lease {
    fn gauge(&self) -> &Gauge {
        &self.0.metrics.active
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.gauge().add(-1);
    }
}

/// What a request needs to be relayed.
pub(super) struct Order {
    pub(super) asking: Asking,
    pub(super) client: Arc<Client>,
    pub(super) rewriter: Rewriter,
    pub(super) stream: bool,
    pub(super) own_key: bool,
    pub(super) record: Record,
    /// What stores the answer.
    pub(super) keeper: Option<Box<Keeper>>,
    /// Events are numbered.
    pub(super) numbered: bool,
}

/// Sends a request as it is.
pub(super) fn asking(client: Arc<Client>, request: Outgoing) -> Asking {
    Box::pin(async move { client.send(&request).await })
}

impl Relay {
    /// Begins to send.
    pub(super) fn new(order: Order) -> Box<Self> {
        let Order { asking, client, rewriter, stream, own_key, mut record, keeper, numbered } = order;
        record.attempts = 1;
        let app = Arc::clone(&record.app);
        app.metrics.active.add(1);
        let options = auth::options(&app, record.caller.as_deref());
        let clock = Clock::new(stream, &app.config.timeouts, options);
        Box::new(Self {
            engine: Engine::Asked(asking),
            client,
            pen: Pen { rewriter, out: Out::default(), unspoken: false, numbered, committed: false },
            received: 0,
            clock,
            comment: false,
            by_events: false,
            goes_on: false,
            stream,
            own_key,
            passed: http::HeaderMap::new(),
            record,
            keep: keeper.map_or(Keep::Nothing, Keep::Later),
            lease: Lease(app),
        })
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
        self.pen.commit();
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
        if !matches!(self.engine, Engine::Done) {
            self.close();
        }
        self.pen.rewriter.into_encoder()
    }

    /// The answer ends here.
    pub(super) fn give_up(&mut self, failure: impl Into<Failure>) {
        if !self.pen.ended() {
            self.fail(failure.into());
        }
    }

    fn limits(&self) -> &Limits {
        &self.lease.0.config.limits
    }

    /// Waits until the status is known: for a stream until the engine has said something or `commit_after`, else for the
    /// whole answer (wire-format 3.1).
    pub(super) async fn answer(mut self: Box<Self>) -> Response<Body> {
        std::future::poll_fn(|cx| self.poll_fill(cx)).await;
        if let Some(failure) = self.pen.refusal().cloned() {
            return self.refusal(&failure);
        }
        self.record.answered(200);
        let head = headers::Success { request_id: &self.record.request_id, passed: &self.passed };
        if self.stream {
            let response = head.stream();
            return response.map(|()| Body::relay(self));
        }
        let response = head.object(self.record.started.elapsed());
        self.hold_end();
        std::future::poll_fn(|cx| self.poll_keep(cx)).await;
        let out = std::mem::take(&mut self.pen.out);
        self.record.bytes = out.len();
        self.close();
        response.map(|()| Body::full(out))
    }

    fn refusal(mut self: Box<Self>, failure: &Failure) -> Response<Body> {
        self.close();
        let elapsed = self.record.started.elapsed();
        let response =
            headers::Refusal { failure, passed: &self.passed, elapsed }.response(&self.record.request_id);
        self.record.answered(response.status().as_u16());
        self.record.bytes = response.body().len();
        response.map(Body::full)
    }

    /// Ready when there is something for the client, or nothing more will be. All that is ready at once goes together.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.clock.reads();
        let mut waits = false;
        for _ in 0..READS {
            if self.pen.ended() || self.is_full() {
                break;
            }
            if self.record.app.is_cut() {
                self.fail(Fault::Draining.into());
                break;
            }
            waits = self.poll_engine(cx).is_pending();
            // What is due goes out before it is asked whether there is more: then there mostly is none.
            if waits || self.stream && self.has_drained() && self.pen.is_due() {
                break;
            }
        }
        if self.pen.ended() || self.stream && self.pen.is_due() {
            return Poll::Ready(());
        }
        let due = self.clock.poll(cx);
        if due.is_pending() && !waits {
            // More is there already, and nobody else will say so: other streams first, then on.
            cx.waker().wake_by_ref();
        }
        match ready!(due) {
            Due::Timeout => {
                self.engine = Engine::Done;
                self.pen.finish(Ending::Timeout);
            }
            Due::Comment => {
                self.clock.committed();
                self.pen.commit();
                self.comment = true;
            }
        }
        Poll::Ready(())
    }

    /// There is enough for one write. What may not be sent yet does not count: only the engine can release it, and it is
    /// about as long as the request that it repeats.
    fn is_full(&self) -> bool {
        self.stream && self.pen.out.len() >= self.limits().stream_buffer_bytes / 2 && self.pen.is_due()
    }

    /// The engine's socket held no more than what was read.
    fn has_drained(&self) -> bool {
        matches!(&self.engine, Engine::Answers(answer, _) if answer.has_drained())
    }

    fn poll_engine(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.engine {
            Engine::Asked(asked) => {
                let answer = ready!(asked.as_mut().poll(cx));
                match answer {
                    Ok(answer) => self.begin(answer),
                    Err(error) => {
                        self.record.because(&error);
                        self.fail(error.public);
                    }
                }
            }
            Engine::Answers(..) => ready!(self.poll_body(cx)),
            Engine::Done => {}
        }
        Poll::Ready(())
    }

    /// The head has come.
    fn begin(&mut self, answer: Answer) {
        self.passed = headers::passed(&answer.head.headers);
        if let Some(limits) = headers::limits(&self.passed) {
            self.pen.rewriter.limits(limits);
        }
        self.record.attempts = answer.attempts;
        match manner(&answer.head) {
            Some(manner) => self.engine = Engine::Answers(Box::new(answer), manner),
            None => self.fail(Fault::InvalidResponse.into()),
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { engine, pen, received, lease, .. } = self;
        let Engine::Answers(answer, manner) = engine else { return Poll::Ready(()) };
        let limits = &lease.0.config.limits;
        let mut reading = Reading { pen, received, manner, limits, wrong: false, began: None };
        let read = ready!(answer.poll_read(cx, &mut |bytes| reading.bytes(bytes)));
        let Reading { wrong, began, .. } = reading;
        let now = Instant::now();
        if let Some(began) = began {
            self.record.rewriting += now.saturating_duration_since(began);
        }
        if self.clock.heard(now, self.pen.spoken() || !self.stream) {
            self.record.app.upstream.heard(now);
        }
        if self.pen.spoken() && self.record.first_token.is_none() {
            let elapsed = self.record.started.elapsed();
            self.record.first_token = Some(elapsed);
            self.record.app.metrics.first_token.observe(elapsed);
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
        if let Engine::Answers(_, Manner::Refusal(body)) = &self.engine
            && body.len() >= self.limits().max_error_bytes
        {
            self.end(Ending::Reset);
        }
    }

    /// The body is over.
    fn end(&mut self, ending: Ending) {
        let Self { engine, pen, .. } = self;
        let Engine::Answers(answer, manner) = engine else { return };
        if pen.ended() {
            return;
        }
        match manner {
            Manner::Refusal(body) => {
                let body = if answer.head.is_encoded() { &[] } else { body.as_ref() };
                pen.fail(Failure::of_answer(answer.head.status, body, self.own_key));
            }
            Manner::Whole(body) if ending == Ending::Clean => pen.whole(body),
            Manner::Unknown(_) if ending == Ending::Clean && !says_events(&answer.head) => {
                pen.fail(Fault::InvalidResponse.into());
            }
            _ => pen.finish(ending),
        }
    }

    /// HTTP that cannot be read on. What was complete stays complete.
    fn malformed(&mut self) {
        if let Engine::Answers(_, Manner::Events) = &self.engine {
            self.end(Ending::Reset);
        } else {
            self.fail(Fault::InvalidResponse.into());
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.engine = Engine::Done;
        self.pen.fail(failure);
    }

    /// The last bytes are on their way: the record is complete, and the engine's connection may serve again.
    fn close(&mut self) {
        self.record.summarised(self.pen.rewriter.summary());
        let failure = self.pen.rewriter.any_failure();
        match failure {
            Some(failure) => self.record.failed(failure),
            None => self.record.completed(),
        }
        let refused = matches!(&self.engine, Engine::Answers(_, Manner::Refusal(_)));
        let outcome = failure.map_or("ok", |failure| failure.code.as_deref().unwrap_or("refused"));
        self.record.app.metrics.attempt(outcome);
        if let (Engine::Answers(answer, _), true) =
            (std::mem::replace(&mut self.engine, Engine::Done), failure.is_none() || refused)
        {
            self.client.give_back_soon(*answer);
        }
    }

    /// The next bytes of the stream.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unsendable>>> {
        if !self.comment && !self.pen.is_due() {
            ready!(self.poll_fill(cx));
        }
        if self.pen.ended() {
            self.hold_end();
            if self.pen.out.is_empty() && !self.comment {
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
        let goes_on = std::mem::replace(&mut self.goes_on, !self.pen.out.is_empty());
        if let Some(pause) = self.clock.wrote().filter(|_| !goes_on) {
            self.record.app.metrics.inter_token.observe(pause);
        }
        if self.is_end() {
            self.close();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn hand_over(&mut self) -> Bytes {
        if self.by_events { self.pen.out.join() } else { self.pen.out.take() }
    }

    /// Everything has been handed over.
    pub(super) fn is_end(&self) -> bool {
        self.pen.ended() && self.pen.out.is_empty() && !self.comment && matches!(self.keep, Keep::Nothing)
    }

    /// The answer is over: what says so is held until the answer is stored.
    fn hold_end(&mut self) {
        let Keep::Later(_) = &self.keep else { return };
        let Keep::Later(keeper) = std::mem::replace(&mut self.keep, Keep::Nothing) else { return };
        let Self { pen, stream, .. } = self;
        let end = if *stream { pen.out.split_end() } else { Some(std::mem::take(&mut pen.out)) };
        let Some(end) = end else { return };
        let said = end.copied();
        let object = if *stream { event::response_in(&said) } else { std::str::from_utf8(&said).ok() };
        let storing = keeper.keep(object.unwrap_or_default());
        self.keep = Keep::Now { storing, end };
    }

    fn poll_keep(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Keep::Now { storing, end } = &mut self.keep {
            let kept = ready!(storing.as_mut().poll(cx));
            self.pen.out = kept.honest(std::mem::take(end), &self.record.request_id);
            self.keep = Keep::Nothing;
        }
        Poll::Ready(())
    }
}

/// How a body behind this head is read; `None`: not at all.
fn manner(head: &Head) -> Option<Manner> {
    match head.status {
        400..=599 => Some(Manner::Refusal(BytesMut::new())),
        200..=299 if head.status != 204 && !head.is_encoded() => Some(Manner::Unknown(0)),
        _ => None,
    }
}

fn says_events(head: &Head) -> bool {
    let label = head.headers.get(http::header::CONTENT_TYPE).map_or(&b""[..], http::HeaderValue::as_bytes);
    label.to_ascii_lowercase().starts_with(b"text/event-stream")
}

/// What is done with the bytes of one read.
struct Reading<'r> {
    pen: &'r mut Pen,
    received: &'r mut usize,
    manner: &'r mut Manner,
    limits: &'r Limits,
    /// It is too much, or neither an object nor events.
    wrong: bool,
    /// When the rewriter got the first of them.
    began: Option<Instant>,
}

impl Reading<'_> {
    fn bytes(&mut self, mut bytes: &[u8]) {
        *self.received += bytes.len();
        if let Manner::Unknown(blanks) = self.manner {
            let text = bytes.trim_ascii_start();
            *blanks += bytes.len() - text.len();
            let Some(first) = text.first() else {
                self.wrong |= *blanks > BLANK;
                return;
            };
            *self.manner = match Form::of(*first) {
                Some(Form::Object) => Manner::Whole(BytesMut::new()),
                Some(Form::Events) => Manner::Events,
                None => {
                    self.wrong = true;
                    return;
                }
            };
            bytes = text;
        }
        match self.manner {
            Manner::Events => {
                self.began.get_or_insert_with(Instant::now);
                self.pen.push(bytes);
            }
            Manner::Whole(body) => body.extend_from_slice(bytes),
            Manner::Refusal(body) => {
                let room = self.limits.max_error_bytes.saturating_sub(body.len());
                body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                return;
            }
            Manner::Unknown(_) => {}
        }
        self.wrong |= *self.received > self.limits.max_answer_bytes && !self.pen.ended();
    }
}

/// What the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The engine takes too long.
    Timeout,
    /// The client must hear something: its status, or that it is not forgotten.
    Comment,
}

/// The timers of one request. There is one timer of the runtime; it is touched only when it has run out or something is
/// due earlier, and the time is read no more than three times for each token.
struct Clock {
    /// When it was last read.
    now: Instant,
    started: Instant,
    /// Since when we wait for the engine, and nobody waits for us.
    waiting: Instant,
    written: Instant,
    /// The engine has said something.
    spoken: bool,
    committed: bool,
    wrote: bool,
    paused: bool,
    total: Duration,
    first_token: Duration,
    inter_token: Duration,
    commit_after: Option<Duration>,
    keepalive: Option<Duration>,
    /// When the timer will wake the task.
    armed: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    fn new(stream: bool, timeouts: &Timeouts, options: &crate::wire::options::Options) -> Self {
        let now = Instant::now();
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds)).filter(|_| stream);
        Self {
            now,
            started: now,
            waiting: now,
            written: now,
            spoken: false,
            committed: !stream,
            wrote: false,
            paused: false,
            total: if stream { *timeouts.total_stream } else { *timeouts.total_whole },
            first_token: *timeouts.first_token,
            inter_token: *timeouts.inter_token,
            commit_after: seconds(options.commit_after_seconds),
            keepalive: seconds(options.keepalive_seconds).filter(|pause| !pause.is_zero()),
            armed: None,
            sleep: None,
        }
    }

    /// We turn to the engine. The time since the last turn to the client was not the engine's.
    fn reads(&mut self) {
        self.now = Instant::now();
        if std::mem::take(&mut self.paused) {
            self.waiting = self.now;
        }
    }

    /// The engine has sent something; true once a second, or if it is the first time.
    fn heard(&mut self, now: Instant, spoken: bool) -> bool {
        let second = |at: Instant| at.saturating_duration_since(self.started).as_secs();
        let first = spoken && !self.spoken || second(now) > second(self.waiting);
        self.now = now;
        self.waiting = now;
        self.spoken |= spoken;
        first
    }

    /// Bytes go to the client; since when it had none.
    fn wrote(&mut self) -> Option<Duration> {
        let pause = self.now.saturating_duration_since(self.written);
        self.written = self.now;
        self.paused = true;
        self.committed = true;
        std::mem::replace(&mut self.wrote, true).then_some(pause)
    }

    /// Nobody has to hear anything.
    fn detach(&mut self) {
        self.committed = true;
        self.silence();
    }

    fn silence(&mut self) {
        self.commit_after = None;
        self.keepalive = None;
    }

    fn committed(&mut self) {
        self.committed = true;
        self.written = self.now;
    }

    fn next(&self) -> (Instant, Due) {
        let patience =
            if self.spoken { self.waiting + self.inter_token } else { self.started + self.first_token };
        let timeout = (patience.min(self.started + self.total), Due::Timeout);
        let commit =
            self.commit_after.filter(|_| !self.committed).map(|after| (self.started + after, Due::Comment));
        let keepalive =
            self.keepalive.filter(|_| self.committed).map(|pause| (self.written + pause, Due::Comment));
        [commit, keepalive]
            .into_iter()
            .flatten()
            .fold(timeout, |first, other| if other.0 < first.0 { other } else { first })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Due> {
        loop {
            let (at, due) = self.next();
            if at <= self.now {
                return Poll::Ready(due);
            }
            // The task's waker never changes: a timer that runs will wake it.
            if self.armed.is_some_and(|armed| self.now < armed && armed <= at) {
                return Poll::Pending;
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            sleep.as_mut().reset(at);
            self.armed = Some(at);
            ready!(sleep.as_mut().poll(cx));
            self.now = Instant::now();
        }
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("rewriter", &self.pen.rewriter).finish_non_exhaustive()
    }
}
