//! Requests sent again before the client has received any of the answer: to the same engine in another form after
//! a refusal, or to another engine (faults 7).

use super::Relay;
use super::attempt::{AttemptTarget, Refused, SentRequest, UpstreamRequest, UpstreamSelection};
use super::exchange::{BodyKind, EngineStep, Exchange, send_after};
use crate::engine::fallback::Fallbacks;
use crate::error::RetryClass;
use crate::server::admit::headers;
use crate::upstream::{ChosenUpstream, Outcome, Pool, Upstream};
use crate::wire::fault::Failure;
use std::sync::Arc;
use std::time::Duration;

/// Data needed to send a request again: the request and the upstreams that remain.
pub(super) struct Resend {
    pub(super) request: Box<dyn UpstreamRequest>,
    pub(super) selection: UpstreamSelection,
    /// Upstreams to which parts of the answer were sent again, in order. All parts take the same order, so that
    /// together they break no more engines than a single request may.
    path_taken: Vec<Arc<Upstream>>,
    /// Shortest `retry-after` of the upstreams that pushed back, in seconds.
    pub(super) wait: Option<u64>,
}

impl Resend {
    pub(super) fn new(request: Box<dyn UpstreamRequest>, selection: UpstreamSelection) -> Self {
        Self { request, selection, path_taken: Vec::new(), wait: None }
    }
}

impl Exchange {
    /// Notes that the engine has accepted the request. If it had refused another form, it is sent this one from
    /// now on.
    pub(super) fn answered(&mut self) {
        if let Some(refused) = self.refused.take() {
            self.chosen.upstream().answers_to(&refused.model, self.fallbacks);
        }
    }
}

impl Relay {
    /// Sends the request again if the attempt failed before any content. Returns true if another attempt was
    /// started.
    pub(super) fn try_resend(&mut self) -> bool {
        let spoken = self.buffer.rewriter.reader().progress().has_content;
        let Some(failure) = self.buffer.rewriter.any_failure().filter(|_| !spoken) else { return false };
        let failure = failure.clone();
        self.retry_in_other_form(&failure) || self.retry_elsewhere(&failure)
    }

    /// Repeats a refused request at the same engine in another form. This happens once for each form and counts
    /// neither as a failure of the engine nor as a retry.
    fn retry_in_other_form(&mut self, refusal: &Failure) -> bool {
        let tried = self.exchange.fallbacks;
        let Some(fallback) = tried.further(refusal) else { return false };
        let fallbacks = tried.with(fallback);
        let chosen = Pool::same_upstream(self.upstream());
        let Some(mut sent) = self.sent(&chosen, fallbacks) else { return false };
        // An unchanged request would be refused again.
        if !sent.fallbacks.has(fallback) {
            self.exchange.missing_fallback = Some(fallback);
            return false;
        }
        sent.fallbacks = sent.fallbacks.and(fallbacks);
        let Some(again) = &self.again else { return false };
        let first =
            self.exchange.refused.take().unwrap_or_else(|| {
                Box::new(Refused::first(refusal.clone(), &again.selection, &self.record.app))
            });
        self.record_attempt();
        self.exchange.chosen.report(Outcome::Refused);
        if let EngineStep::Reading(_, BodyKind::Refusal(_)) = &self.exchange.engine {
            self.give_back();
        }
        self.begin_again(chosen, sent, Duration::ZERO);
        self.exchange.refused = Some(first);
        true
    }

    /// Sends the request to another upstream, if the failure's class and the retry limits allow that.
    fn retry_elsewhere(&mut self, failure: &Failure) -> bool {
        let class = self.exchange.class.take().unwrap_or_else(|| RetryClass::of(failure));
        let Some(again) = &mut self.again else { return false };
        let Some((chosen, pause)) =
            again.selection.next_along(&mut again.path_taken, class, &self.record.app)
        else {
            return false;
        };
        let Some(sent) = self.sent(&chosen, Fallbacks::default()) else { return false };
        if let (RetryClass::Overloaded, Some(again)) = (class, &mut self.again) {
            again.wait = Some(headers::shortest_retry_after(again.wait, &self.exchange.passed));
        }
        self.report_attempt();
        self.begin_again(chosen, sent, pause);
        true
    }

    /// Builds the request of the current choice for this upstream; `None` if it cannot be sent again.
    fn sent(&mut self, chosen: &ChosenUpstream, fallbacks: Fallbacks) -> Option<SentRequest> {
        let choice = self.buffer.rewriter.is_merged().then_some(self.exchange.choice);
        let again = self.again.as_mut()?;
        let attempt = again.selection.attempts();
        again.request.send(&AttemptTarget { upstream: chosen.upstream(), attempt, choice, fallbacks }).ok()
    }

    /// Replaces the failed exchange by a new one.
    fn begin_again(&mut self, chosen: ChosenUpstream, sent: SentRequest, pause: Duration) {
        let SentRequest { pending: asking, rewriter, others, fallbacks } = sent;
        // End the previous exchange first.
        self.exchange.cancel();
        self.exchange = Exchange::begin(chosen, send_after(pause, asking), self.exchange.choice, fallbacks);
        if !self.buffer.rewriter.is_merged() {
            self.received = 0;
        }
        self.buffer.begin_again(rewriter);
        self.pass_limits();
        if !others.is_empty() {
            self.begin_others(others, pause);
        }
        self.record.begins_again();
        self.record.upstream = Some(Arc::clone(self.exchange.chosen.upstream()));
        self.clock.asks_again();
    }
}
