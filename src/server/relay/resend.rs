//! Requests sent again before the client has received any of the answer: to the same engine in another form after
//! a refusal, or to another engine (faults 7).

use super::ClientSide;
use super::attempt::{AttemptTarget, FirstRefusal, PendingRequest, UpstreamRequest};
use super::exchange::{BodyKind, EngineExchange, EngineStep, prepare_after};
use super::leg::Leg;
use crate::engine::fallback::Fallbacks;
use crate::error::RetryClass;
use crate::server::headers;
use crate::server::net::pending_answer::PendingAnswer;
use crate::upstream::{AttemptOutcome, ChosenUpstream, Pool, Upstream};
use crate::wire::AnswerReader;
use crate::wire::fault::Failure;
use std::sync::Arc;
use std::time::Duration;

/// Data needed to send a request again. Each leg has the upstreams that remain for it.
pub(super) struct Resend {
    pub(super) request: Box<dyn UpstreamRequest>,
    /// Upstreams to which requests for single choices were sent again, in order. All choices try them in this order,
    /// so that together they break no more engines than one request may.
    path_taken: Vec<Arc<Upstream>>,
    /// Shortest `retry-after` of the upstreams that answered 429 or 503, in seconds.
    pub(super) wait: Option<u64>,
}

impl Resend {
    pub(super) fn new(request: Box<dyn UpstreamRequest>) -> Self {
        Self {
            request,
            path_taken: Vec::new(),
            wait: None,
        }
    }
}

/// Sends the request of a leg again if its attempt failed before any content. Returns the legs of further choices that
/// the new attempt begins with, mostly none; `None` if there is no other attempt.
pub(super) fn try_resend(leg: &mut Leg, client: &mut ClientSide) -> Option<Vec<Leg>> {
    let has_content = leg.reader.progress().has_content;
    let failure = leg.reader.failure().filter(|_| !has_content)?.clone();
    retry_in_other_form(leg, client, &failure).or_else(|| retry_elsewhere(leg, client, &failure))
}

/// Repeats a refused request at the same engine in another form. This happens once for each form and counts
/// neither as a failure of the engine nor as a retry.
fn retry_in_other_form(
    leg: &mut Leg,
    client: &mut ClientSide,
    refusal: &Failure,
) -> Option<Vec<Leg>> {
    let tried = leg.exchange.fallbacks;
    let chosen = Pool::same_upstream(leg.exchange.chosen.upstream());
    let request = tried.further(refusal).find_map(|fallback| {
        let fallbacks = tried.with(fallback);
        let mut request = build_request(leg, client, &chosen, fallbacks)?;
        // An unchanged request would be refused again.
        let is_changed = request.fallbacks.has(fallback);
        leg.exchange.missing_fallback = Some(fallback).filter(|_| !is_changed);
        request.fallbacks = request.fallbacks.union(fallbacks);
        is_changed.then_some(request)
    })?;
    let selection = leg.selection.as_ref()?;
    let first = leg.exchange.refused.take().unwrap_or_else(|| {
        Box::new(FirstRefusal::first(
            refusal.clone(),
            selection,
            &client.record.app,
        ))
    });
    leg.log_attempt(client);
    leg.exchange.chosen.report(AttemptOutcome::Refused);
    if let EngineStep::Reading(_, BodyKind::Error(_)) = &leg.exchange.step {
        leg.give_back(client.thread);
    }
    let others = start_attempt(leg, client, chosen, request, Duration::ZERO);
    leg.exchange.refused = Some(first);
    Some(others)
}

/// Sends the request to another upstream, if the failure's class and the retry limits allow that.
fn retry_elsewhere(leg: &mut Leg, client: &mut ClientSide, failure: &Failure) -> Option<Vec<Leg>> {
    let class = leg
        .exchange
        .class
        .take()
        .unwrap_or_else(|| RetryClass::of(failure));
    let ClientSide {
        resend,
        buffer,
        record,
        ..
    } = &mut *client;
    let (resend, selection) = resend.as_mut().zip(leg.selection.as_mut())?;
    if buffer.writer.is_merged() {
        selection.keep_model();
    }
    let (chosen, pause) = selection.next_along(&mut resend.path_taken, class, &record.app)?;
    let request = build_request(leg, client, &chosen, Fallbacks::default())?;
    if let (RetryClass::Overloaded, Some(resend)) = (class, &mut client.resend) {
        resend.wait = Some(headers::shortest_retry_after(
            resend.wait,
            &leg.exchange.passed,
        ));
    }
    leg.finish_attempt(client);
    Some(start_attempt(leg, client, chosen, request, pause))
}

/// Builds the request of a leg for this upstream; `None` if it cannot be sent again.
fn build_request(
    leg: &Leg,
    client: &mut ClientSide,
    chosen: &ChosenUpstream,
    fallbacks: Fallbacks,
) -> Option<PendingRequest> {
    let choice = client
        .buffer
        .writer
        .is_merged()
        .then(|| leg.reader.choice());
    let selection = leg.selection.as_ref()?;
    let (attempt, model) = (selection.attempts(), selection.served());
    let to = AttemptTarget {
        upstream: chosen.upstream(),
        model,
        attempt,
        choice,
        fallbacks,
    };
    client.resend.as_mut()?.request.prepare(&to).ok()
}

/// Replaces the failed exchange of a leg by a new one. Returns the legs of further choices.
fn start_attempt(
    leg: &mut Leg,
    client: &mut ClientSide,
    chosen: ChosenUpstream,
    request: PendingRequest,
    pause: Duration,
) -> Vec<Leg> {
    let PendingRequest {
        answer,
        reader,
        writer,
        others,
        fallbacks,
    } = request;
    // Dropping the previous exchange cancels it.
    leg.exchange = EngineExchange::begin(chosen, prepare_after(pause, answer), fallbacks);
    leg.reader = reader;
    if !client.buffer.writer.is_merged() {
        client.received = 0;
    }
    client.buffer.restart(writer, leg.reader.choice());
    client.pass_limits();
    client.record.begins_again(leg.exchange.chosen.upstream());
    if let Some(selection) = &leg.selection {
        client.record.served = selection.shown(&client.record.app);
    }
    client.clock.restart_attempt();
    siblings(leg, others, pause)
}

/// Returns the legs of further choices at the same upstream, which begin after a pause.
pub(super) fn siblings(
    leg: &Leg,
    others: Vec<(PendingAnswer, AnswerReader)>,
    pause: Duration,
) -> Vec<Leg> {
    let sibling = |(answer, reader)| {
        let chosen = Pool::same_upstream(leg.exchange.chosen.upstream());
        let exchange =
            EngineExchange::begin(chosen, prepare_after(pause, answer), leg.exchange.fallbacks);
        Leg {
            exchange,
            reader,
            selection: leg.selection.clone(),
        }
    };
    others.into_iter().map(sibling).collect()
}
