//! Leg of a relay: one exchange with an engine, and the reader of its answer.
//!
//! A plain answer has one leg. An engine that gives only one choice has one for each, whose answers are merged.

use super::attempt::{AttemptTarget, FirstRefusal, failure_of, report_outcome};
use super::exchange::{BodyKind, BodyReader, EngineExchange, EngineStep, body_kind, says_events};
use super::selection::UpstreamSelection;
use super::{ClientSide, RetryClass};
use crate::server::headers;
use crate::upstream::{Answer, Read, ReadError};
use crate::wire::disclosure::EngineKey;
use crate::wire::fault::{Failure, Unusable};
use crate::wire::{AnswerReader, Ending};
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

pub(super) struct Leg {
    pub(super) exchange: EngineExchange,
    pub(super) reader: AnswerReader,
    /// Upstreams to which its request may be sent again.
    pub(super) selection: Option<UpstreamSelection>,
}

impl Leg {
    /// Reads from the engine. Pending if nothing has come.
    pub(super) fn poll(&mut self, client: &mut ClientSide, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.exchange.step {
            EngineStep::Pending(answer) => match ready!(answer.as_mut().poll(cx)) {
                Ok(answer) => self.begin(answer, client),
                Err(error) => {
                    self.exchange.step = EngineStep::Done;
                    self.exchange.class = Some(error.class);
                    self.fail(error.public, client);
                }
            },
            EngineStep::Reading(..) => ready!(self.poll_body(client, cx)),
            EngineStep::Done => {}
        }
        Poll::Ready(())
    }

    /// Handles the head of the engine's answer: decides how its body is read, and fails if it cannot be used.
    fn begin(&mut self, answer: Answer, client: &mut ClientSide) {
        let ClientSide { record, buffer, .. } = client;
        self.exchange.passed = headers::forwarded(&answer.head.headers);
        // Limits that the engine reports concern the client only if its key has no quota (wire-format 4.9).
        if record.ticket.is_none()
            && let Some(limits) = headers::limits(&self.exchange.passed)
        {
            buffer.writer.limits(limits);
        }
        let upstream = self.exchange.chosen.upstream();
        if let Some(key) = upstream.config.auth.own_key() {
            self.reader.hide_key(EngineKey(key.bytes()));
        }
        record.attempts += answer.attempts.saturating_sub(1);
        let (request_id, status) = (&*record.request_id, answer.head.status);
        tracing::debug!(
            request_id,
            upstream = upstream.config.name,
            status,
            "an engine answers"
        );
        match body_kind(&answer.head) {
            Ok(body_kind) => self.exchange.step = EngineStep::Reading(Box::new(answer), body_kind),
            Err(why) => self.fail(why.into(), client),
        }
    }

    fn poll_body(&mut self, client: &mut ClientSide, cx: &mut Context<'_>) -> Poll<()> {
        let Self {
            exchange: EngineExchange { step, chosen, .. },
            reader,
            ..
        } = self;
        let EngineStep::Reading(answer, body_kind) = step else {
            return Poll::Ready(());
        };
        let ClientSide {
            buffer,
            received,
            record,
            clock,
            ..
        } = client;
        let (limits, upstream) = (&record.app.config.limits, chosen.upstream());
        let mut reading = BodyReader {
            buffer,
            reader,
            received,
            body_kind,
            limits,
            upstream,
            clock,
            wrong: None,
            began: None,
        };
        let read = ready!(answer.poll_read(cx, &mut |bytes| reading.bytes(bytes)));
        let BodyReader { wrong, began, .. } = reading;
        let now = Instant::now();
        if let Some(began) = began {
            client.record.rewriting += now.saturating_duration_since(began);
        }
        let has_content = client.buffer.has_content(&self.reader);
        if client.clock.heard(now, has_content || !client.stream) {
            self.exchange.chosen.upstream().record_piece(now);
        }
        if self.reader.progress().has_content {
            self.exchange.note_accepted_form();
        }
        if has_content && client.record.first_token.is_none() {
            let elapsed = client.record.started.elapsed();
            client.record.first_token = Some(elapsed);
            self.exchange
                .chosen
                .upstream()
                .figures
                .first_token
                .observe(elapsed);
            client.record.progressed(self.reader.events());
        }
        if let Some(why) = wrong {
            self.fail(why.into(), client);
            return Poll::Ready(());
        }
        match read {
            Ok(Read::More) => self.end_long_error_body(client),
            Ok(Read::End) => self.body_ended(Ending::Clean, client),
            Err(ReadError::Reset) => self.body_ended(Ending::Reset, client),
            Err(ReadError::Malformed) => self.body_malformed(client),
        }
        Poll::Ready(())
    }

    /// Ends an error response whose text has reached `max_error_bytes`; the rest is not needed.
    fn end_long_error_body(&mut self, client: &mut ClientSide) {
        if let EngineStep::Reading(_, BodyKind::Error(body)) = &self.exchange.step
            && body.len() >= client.record.app.config.limits.max_error_bytes
        {
            self.body_ended(Ending::Reset, client);
        }
    }

    /// Handles the end of the engine's body, according to the form in which it was read.
    fn body_ended(&mut self, ending: Ending, client: &mut ClientSide) {
        client.tell_time();
        let buffer = &mut client.buffer;
        let Self {
            exchange:
                EngineExchange {
                    step,
                    chosen,
                    class,
                    refused,
                    fallbacks,
                    ..
                },
            reader,
            ..
        } = self;
        let EngineStep::Reading(answer, body_kind) = step else {
            return;
        };
        if buffer.ended(reader) {
            return;
        }
        if ending == Ending::Reset {
            *class = Some(RetryClass::Reset);
        }
        match body_kind {
            BodyKind::Error(body) => {
                let body = if answer.head.is_encoded() {
                    &[]
                } else {
                    body.as_ref()
                };
                let failure = failure_of(answer.head.status, body, &chosen.upstream().config.auth);
                *class = Some(RetryClass::of_answer(answer.head.status, &failure));
                buffer.fail(
                    reader,
                    FirstRefusal::or_first(refused.as_deref(), *fallbacks, failure),
                );
            }
            BodyKind::Whole(body) if ending == Ending::Clean => buffer.whole(reader, body),
            BodyKind::Unknown(_) if ending == Ending::Clean && !says_events(&answer.head) => {
                buffer.fail(reader, Unusable::Foreign.into());
            }
            _ => buffer.finish(reader, ending),
        }
    }

    /// Handles HTTP that cannot be parsed any further. Events that were complete before remain valid.
    fn body_malformed(&mut self, client: &mut ClientSide) {
        if let EngineStep::Reading(_, BodyKind::Events) = &self.exchange.step {
            self.body_ended(Ending::Reset, client);
        } else {
            self.exchange.class = Some(RetryClass::MaybeProcessed);
            self.fail(Unusable::Malformed.into(), client);
        }
    }

    pub(super) fn fail(&mut self, failure: Failure, client: &mut ClientSide) {
        client.tell_time();
        self.exchange.cancel();
        client.buffer.fail(&mut self.reader, failure);
    }

    /// Ends the exchange with a timeout. `class`: that of the failure.
    pub(super) fn time_out(&mut self, class: RetryClass, client: &mut ClientSide) {
        self.exchange.cancel();
        self.exchange.class = Some(class);
        client.buffer.finish(&mut self.reader, Ending::Timeout);
    }

    /// Logs that the attempt is over, and writes its failure and the engine's own message into the record.
    pub(super) fn log_attempt(&self, client: &mut ClientSide) {
        let ClientSide { record, resend, .. } = client;
        let (failure, upstream) = (self.reader.failure(), self.exchange.chosen.upstream());
        if let Some(failure) = failure.filter(|failure| failure.engine.is_some()) {
            let request =
                resend
                    .as_ref()
                    .zip(self.selection.as_ref())
                    .and_then(|(resend, selection)| {
                        resend
                            .request
                            .text(&AttemptTarget::first(upstream, selection.served()))
                    });
            if let Some(request) = request {
                record.note_engine_error(failure, &request);
            }
        }
        record.attempted(upstream, failure);
    }

    /// Logs the attempt, and reports its outcome to the upstream's health tracking; once.
    pub(super) fn finish_attempt(&mut self, client: &mut ClientSide) {
        if std::mem::replace(&mut self.exchange.is_reported, true) {
            return;
        }
        self.log_attempt(client);
        let failure = self.reader.failure();
        if failure.is_none() {
            self.exchange.note_accepted_form();
        }
        let EngineExchange {
            step,
            chosen,
            passed,
            ..
        } = &mut self.exchange;
        let status = match step {
            EngineStep::Reading(answer, BodyKind::Error(_)) => Some(answer.head.status),
            _ => None,
        };
        report_outcome(chosen, failure, status, passed);
    }

    /// Returns the engine's connection to its client for reuse, once its last bytes have arrived. `thread`: the index of
    /// the worker thread.
    pub(super) fn give_back(&mut self, thread: usize) {
        if let EngineStep::Reading(answer, _) =
            std::mem::replace(&mut self.exchange.step, EngineStep::Done)
        {
            self.exchange.chosen.client(thread).give_back_soon(*answer);
        }
    }
}

/// Legs of a relay, of which there is always one.
pub(super) struct Legs {
    pub(super) first: Leg,
    rest: Vec<Leg>,
}

impl Legs {
    pub(super) fn new(first: Leg) -> Self {
        Self {
            first,
            rest: Vec::new(),
        }
    }

    /// Returns these legs; `None` if there are none.
    pub(super) fn of(mut legs: Vec<Leg>) -> Option<Self> {
        if legs.is_empty() {
            return None;
        }
        Some(Self {
            first: legs.remove(0),
            rest: legs,
        })
    }

    pub(super) fn len(&self) -> usize {
        1 + self.rest.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Leg> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Leg> {
        match at.checked_sub(1) {
            None => Some(&mut self.first),
            Some(at) => self.rest.get_mut(at),
        }
    }

    pub(super) fn add(&mut self, more: Vec<Leg>) {
        self.rest.extend(more);
    }

    /// Lets legs that had no turn come first next time. `turns`: the number of those that had one.
    pub(super) fn rotate(&mut self, turns: usize) {
        for _ in 0..turns.min(self.rest.len()) {
            let next = self.rest.remove(0);
            self.rest.push(std::mem::replace(&mut self.first, next));
        }
    }

    /// Removes the legs that are finished, as long as one stays, and gives each to `end`.
    pub(super) fn remove_finished(&mut self, mut end: impl FnMut(&Leg)) {
        self.rest.retain(|leg| {
            let is_done = leg.exchange.is_done();
            if is_done {
                end(leg);
            }
            !is_done
        });
        if self.first.exchange.is_done() && !self.rest.is_empty() {
            let next = self.rest.swap_remove(0);
            end(&std::mem::replace(&mut self.first, next));
        }
    }

    /// Removes all legs but one, and gives each to `end`.
    pub(super) fn keep_alone(&mut self, at: usize, mut end: impl FnMut(&Leg)) {
        if let Some(kept) = at.checked_sub(1).and_then(|at| self.rest.get_mut(at)) {
            std::mem::swap(&mut self.first, kept);
        }
        self.rest.drain(..).for_each(|leg| end(&leg));
    }
}
