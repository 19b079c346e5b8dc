//! Rounds: an answer whose engine calls tools pauses, and goes on with another engine answer once the outputs of the
//! calls are there (wire-format 4.10 and 4.14).
//!
//! ```text
//! engine's answer ─→ pause ─→ outputs ─→ next request, same writer ─→ engine's answer ─→ … ─→ end
//! ```
//!
//! Each round has its own record: its engine request is counted, charged and logged for itself.

use super::attempt::{AttemptTarget, UpstreamRequest};
use super::exchange::EngineExchange;
use super::leg::Leg;
use super::selection::UpstreamSelection;
use super::{ClientSide, Relay};
use crate::server::admit::quota::Admission;
use crate::server::storage::persist::{PendingWrite, ResponseWriter};
use crate::store::Item;
use crate::upstream::Pool;
use crate::wire::encode::{Finished, Response as Encoder};
use crate::wire::fault::Failure;
use crate::wire::{AnswerWriter, OutputBuffer};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Future that ends once all outputs are there, or the process shuts down.
pub(in crate::server) type PendingOutputs = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Source of the outputs for the calls of one answer.
pub(in crate::server) trait Rounds: Send {
    /// Notes the id of the answer, of which the client now receives the first bytes.
    fn begin(&mut self, id: &str);

    /// Begins to wait for the outputs of the calls since the last pause.
    fn pause(&mut self, writer: &mut AnswerWriter, out: &mut OutputBuffer) -> PendingOutputs;

    /// Returns the longest time that the outputs may take.
    fn limit(&self) -> Duration;

    /// Continues the paused answer, whose outputs are there.
    ///
    /// # Errors
    /// Fails if the answer may not go on.
    fn resume(
        &mut self,
        writer: &mut AnswerWriter,
        out: &mut OutputBuffer,
    ) -> Result<Resumed, Failure>;

    /// Starts to store the answer, which has ended.
    fn store(self: Box<Self>, writer: ResponseWriter, finished: Finished) -> PendingWrite;
}

/// State of an answer after its outputs.
pub(in crate::server) enum Resumed {
    /// The answer goes on with another engine request. These items are new in the conversation: those of the paused
    /// answer, and the outputs of its calls.
    Continues(Vec<Item>),
    /// The answer has ended.
    Ended,
}

/// Rounds of a relay's answer.
pub(super) struct RoundState {
    rounds: Box<dyn Rounds>,
    /// True once the answer's id is noted.
    has_begun: bool,
    /// Request of the rounds, and the upstream that was selected for it, once the first round has ended.
    request: Option<(Box<dyn UpstreamRequest>, UpstreamSelection)>,
    /// Quota admission of the client's request, where the key has a quota.
    admission: Option<Admission>,
    /// Outputs that the answer waits for.
    outputs: Option<PendingOutputs>,
}

impl RoundState {
    pub(super) fn new(rounds: Box<dyn Rounds>) -> Self {
        Self {
            rounds,
            has_begun: false,
            request: None,
            admission: None,
            outputs: None,
        }
    }

    pub(super) fn store(self, writer: ResponseWriter, finished: Finished) -> PendingWrite {
        self.rounds.store(writer, finished)
    }

    /// Polls the wait for outputs. The first poll ends the exchange of the paused answer and begins the wait. Calls that
    /// the client has approved run before there is an exchange.
    fn poll_outputs(
        &mut self,
        leg: &mut Leg,
        client: &mut ClientSide,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if let Some(outputs) = &mut self.outputs {
            return outputs.as_mut().poll(cx);
        }
        let sent = client.resend.take().map(|resend| resend.request);
        if let Some(sent) = sent.zip(leg.selection.take()) {
            self.request = Some(sent);
        }
        if client.record.attempts > 0 {
            let summary = client.buffer.writer.summary(leg.reader.summary());
            let admission = client.record.pause(summary.usage);
            if admission.is_some() {
                self.admission = admission;
            }
            leg.finish_attempt(client);
            leg.give_back(client.thread);
        }
        let buffer = &mut client.buffer;
        let outputs = self.rounds.pause(&mut buffer.writer, &mut buffer.out);
        client.clock.wait_for_outputs(self.rounds.limit());
        self.outputs.insert(outputs).as_mut().poll(cx)
    }
}

impl Relay {
    /// Notes the id of an answer with rounds, of which the client receives the first bytes. Of earlier attempts it may
    /// have received comments.
    pub(super) fn begin_rounds(&mut self) {
        if let Some(state) = self.rounds.as_mut().filter(|state| !state.has_begun)
            && let Some(id) = self
                .client
                .buffer
                .writer
                .response()
                .and_then(Encoder::response_id)
        {
            state.has_begun = true;
            state.rounds.begin(id);
        }
    }

    /// Polls the wait of a paused answer, and sends the next request once the outputs are there. The wait begins when
    /// the client has received the calls.
    pub(super) fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.client.buffer.out.is_empty() {
            return Poll::Pending;
        }
        if let Some(state) = &mut self.rounds {
            ready!(state.poll_outputs(&mut self.legs.first, &mut self.client, cx));
            // At a shutdown the caller fails the answer.
            if !self.client.record.app.is_cut() {
                state.outputs = None;
                self.end_pause();
            }
        }
        Poll::Ready(())
    }

    /// Continues the answer, whose outputs are there: with another request to the upstream that has answered so far,
    /// unless it has ended.
    fn end_pause(&mut self) {
        let Some(state) = &mut self.rounds else {
            return;
        };
        let buffer = &mut self.client.buffer;
        match state.rounds.resume(&mut buffer.writer, &mut buffer.out) {
            Ok(Resumed::Continues(items)) => self.begin_round(items),
            Ok(Resumed::Ended) => {
                buffer.writer.resume();
                self.client.record.resume();
            }
            Err(failure) => self.fail(failure),
        }
    }

    fn begin_round(&mut self, items: Vec<Item>) {
        if self.client.record.attempts > 0 {
            self.complete_record();
            let next = self.client.record.of_next_round();
            self.client.record = next;
            self.client.record.answered(200);
            self.closed = false;
        }
        let Self {
            legs,
            client,
            rounds: Some(state),
            ..
        } = self
        else {
            return;
        };
        let Some((request, selection)) = &mut state.request else {
            return;
        };
        let trace = request.continue_with(items);
        if trace.is_some() {
            client.record.trace = trace;
        }
        if let Some(admission) = &state.admission {
            client.record.ticket = Some(admission.continuation_ticket());
        }
        let chosen = Pool::same_upstream(legs.first.exchange.chosen.upstream());
        let to = AttemptTarget::first(chosen.upstream(), selection.served());
        let pending = match request.prepare(&to) {
            Ok(pending) => pending,
            Err(failure) => return self.fail(failure),
        };
        client.record.sent_to(chosen.upstream(), 1);
        legs.first.exchange = EngineExchange::begin(chosen, pending.answer, pending.fallbacks);
        legs.first.reader = pending.reader;
        client.received = 0;
        client.buffer.writer.resume();
        client.pass_limits();
        client.clock.begin_round();
    }

    /// Fails the answer, also one whose engine has ended it.
    pub(super) fn fail(&mut self, failure: Failure) {
        let Self { legs, client, .. } = self;
        if !client.buffer.writer.is_paused() {
            return legs.first.fail(failure, client);
        }
        client.tell_time();
        client.record.resume();
        client
            .buffer
            .fail_after_end(&mut legs.first.reader, failure);
    }
}
