//! Requests sent again before the client has received any of the answer: to the same engine in another form after
//! a refusal, or to another engine (faults 7).

use super::Relay;
use super::attempt::{AttemptTarget, PendingRequest, Refused, UpstreamRequest};
use super::exchange::{BodyKind, EngineStep, Exchange, send_after};
use super::selection::UpstreamSelection;
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
    /// Upstreams to which requests for single choices were sent again, in order. All choices try them in this order,
    /// so that together they break no more engines than one request may.
    path_taken: Vec<Arc<Upstream>>,
    /// Shortest `retry-after` of the upstreams that answered 429 or 503, in seconds.
    pub(super) wait: Option<u64>,
}

impl Resend {
    pub(super) fn new(request: Box<dyn UpstreamRequest>, selection: UpstreamSelection) -> Self {
        Self { request, selection, path_taken: Vec::new(), wait: None }
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
        let chosen = Pool::same_upstream(self.upstream());
        let changed = tried.further(refusal).find_map(|fallback| {
            let fallbacks = tried.with(fallback);
            let mut request = self.build_request(&chosen, fallbacks)?;
            // An unchanged request would be refused again.
            let is_changed = request.fallbacks.has(fallback);
            self.exchange.missing_fallback = Some(fallback).filter(|_| !is_changed);
            request.fallbacks = request.fallbacks.union(fallbacks);
            is_changed.then_some(request)
        });
        let Some(request) = changed else { return false };
        let Some(resend) = &self.resend else { return false };
        let first = self.exchange.refused.take().unwrap_or_else(|| {
            Box::new(Refused::first(refusal.clone(), &resend.selection, &self.record.app))
        });
        self.log_attempt();
        self.exchange.chosen.report(Outcome::Refused);
        if let EngineStep::Reading(_, BodyKind::Error(_)) = &self.exchange.step {
            self.give_back();
        }
        self.start_attempt(chosen, request, Duration::ZERO);
        self.exchange.refused = Some(first);
        true
    }

    /// Sends the request to another upstream, if the failure's class and the retry limits allow that.
    fn retry_elsewhere(&mut self, failure: &Failure) -> bool {
        let class = self.exchange.class.take().unwrap_or_else(|| RetryClass::of(failure));
        let Some(resend) = &mut self.resend else { return false };
        if self.buffer.rewriter.is_merged() {
            resend.selection.keep_model();
        }
        let Some((chosen, pause)) =
            resend.selection.next_along(&mut resend.path_taken, class, &self.record.app)
        else {
            return false;
        };
        let Some(request) = self.build_request(&chosen, Fallbacks::default()) else { return false };
        if let (RetryClass::Overloaded, Some(resend)) = (class, &mut self.resend) {
            resend.wait = Some(headers::shortest_retry_after(resend.wait, &self.exchange.passed));
        }
        self.finish_attempt();
        self.start_attempt(chosen, request, pause);
        true
    }

    /// Builds the request of the current choice for this upstream; `None` if it cannot be sent again.
    fn build_request(&mut self, chosen: &ChosenUpstream, fallbacks: Fallbacks) -> Option<PendingRequest> {
        let choice = self.buffer.rewriter.is_merged().then_some(self.exchange.choice);
        let resend = self.resend.as_mut()?;
        let attempt = resend.selection.attempts();
        let model = Arc::clone(resend.selection.served());
        let to = AttemptTarget { upstream: chosen.upstream(), model: &model, attempt, choice, fallbacks };
        resend.request.send(&to).ok()
    }

    /// Replaces the failed exchange by a new one.
    fn start_attempt(&mut self, chosen: ChosenUpstream, request: PendingRequest, pause: Duration) {
        let PendingRequest { answer, rewriter, others, fallbacks } = request;
        // Dropping the previous exchange cancels it.
        self.exchange = Exchange::begin(chosen, send_after(pause, answer), self.exchange.choice, fallbacks);
        if !self.buffer.rewriter.is_merged() {
            self.received = 0;
        }
        self.buffer.reset_for(rewriter);
        self.pass_limits();
        if !others.is_empty() {
            self.begin_others(others, pause);
        }
        self.record.begins_again(self.exchange.chosen.upstream());
        if let Some(resend) = &self.resend {
            self.record.served = resend.selection.shown(&self.record.app);
        }
        self.clock.asks_again();
    }
}
