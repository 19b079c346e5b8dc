//! Rounds: an answer whose engine calls tools pauses, and goes on with another engine answer once the outputs of the
//! calls are there (wire-format 4.10).
//!
//! ```text
//! engine's answer ─→ pause ─→ outputs ─→ next request, same writer ─→ engine's answer ─→ … ─→ end
//! ```
//!
//! Each round has its own record: its engine request is counted, charged and logged for itself.

use super::Relay;
use super::attempt::{AttemptTarget, UpstreamRequest};
use super::exchange::EngineExchange;
use super::selection::UpstreamSelection;
use crate::server::admit::quota::{Admission, Ticket};
use crate::server::storage::persist::{PendingWrite, ResponseWriter};
use crate::store::Item;
use crate::upstream::Pool;
use crate::wire::encode::{Finished, OutputItem, Response as Encoder};
use crate::wire::{AnswerReader, Api, Shape, Stamp};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Future that ends once all outputs are there, or the process shuts down.
pub(in crate::server) type PendingOutputs = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Source of the outputs for the calls of one answer.
pub(in crate::server) trait Rounds: Send {
    /// Notes the id of the answer, of which the client now receives the first bytes.
    fn begin(&mut self, id: &str);

    /// Begins to wait for the outputs of the calls among `items`, those of the answer since the last pause.
    fn pause(&mut self, items: &[OutputItem]) -> PendingOutputs;

    /// Returns the longest time that the outputs may take.
    fn limit(&self) -> Duration;

    /// Returns the items that the conversation has gained: those of the paused answer, and the outputs of its calls.
    fn gained(&mut self) -> Vec<Item>;

    /// Starts to store the answer, which has ended.
    fn store(self: Box<Self>, writer: ResponseWriter, finished: Finished) -> PendingWrite;
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
        self.begin_pause();
        if let Some(state) = &mut self.rounds
            && let Some(outputs) = &mut state.outputs
        {
            ready!(outputs.as_mut().poll(cx));
            // At a shutdown the caller fails the answer.
            if !self.client.record.app.is_cut() {
                state.outputs = None;
                self.begin_round();
            }
        }
        Poll::Ready(())
    }

    /// Ends the round of a paused answer and begins to wait for outputs, unless that has begun.
    pub(super) fn begin_pause(&mut self) {
        let is_waiting = |state: &RoundState| state.outputs.is_some();
        if !self.client.buffer.writer.is_paused() || self.rounds.as_ref().is_none_or(is_waiting) {
            return;
        }
        let sent = self.client.resend.take().map(|resend| resend.request);
        let sent = sent.zip(self.legs.first.selection.take());
        self.complete_record();
        let Self {
            legs,
            client,
            rounds: Some(state),
            closed,
            ..
        } = self
        else {
            return;
        };
        state.request = state.request.take().or(sent);
        let response = client.buffer.writer.response_mut();
        let items = response.and_then(Encoder::take_pause);
        state.outputs = Some(state.rounds.pause(&items.unwrap_or_default()));
        if let Some(ticket) = &client.record.ticket {
            state.admission = Some(Ticket::admission(ticket));
        }
        client.record = client.record.of_next_round();
        client.record.answered(200);
        client.clock.wait_for_outputs(state.rounds.limit());
        // For a failure before the next request: the reader of an answer that has ended would ignore it.
        let shape = Shape::new(Api::Responses, true, Arc::default());
        legs.first.reader = AnswerReader::continuing(shape, Stamp::default());
        *closed = false;
    }

    /// Sends the request that continues the answer, to the upstream that has answered so far.
    fn begin_round(&mut self) {
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
        client.record.started = Instant::now();
        client.record.trace = request.continue_with(state.rounds.gained());
        client.record.ticket = state.admission.as_ref().map(Admission::continuation_ticket);
        let chosen = Pool::same_upstream(legs.first.exchange.chosen.upstream());
        let to = AttemptTarget::first(chosen.upstream(), selection.served());
        let pending = match request.prepare(&to) {
            Ok(pending) => pending,
            Err(failure) => return legs.first.fail(failure, client),
        };
        client.record.sent_to(chosen.upstream(), 1);
        legs.first.exchange = EngineExchange::begin(chosen, pending.answer, pending.fallbacks);
        legs.first.reader = pending.reader;
        client.received = 0;
        client.buffer.writer.resume();
        client.pass_limits();
        client.clock.begin_round();
    }
}
