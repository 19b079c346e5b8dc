//! Answers assembled from several: an engine that gives only one choice is sent one request for each.

use super::ClientSide;
use super::attempt::{AttemptTarget, PendingRequest};
use super::exchange::EngineExchange;
use super::leg::{Leg, Legs};
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::upstream::Pool;

/// Requests the missing choices one by one if the engine of `leg` has given fewer than were requested, as engines do
/// that support only one. From now on requests to this upstream are split at once. Returns the legs of these choices;
/// `None` if nothing more is to come.
pub(super) fn missing_choices(leg: &mut Leg, client: &mut ClientSide) -> Option<Legs> {
    let missing = leg.reader.missing_choices()?;
    let resend = client.resend.as_mut().zip(leg.selection.as_ref());
    let Some((resend, selection)) = resend else {
        client.buffer.end_without_missing(&mut leg.reader);
        return None;
    };
    let (upstream, served) = (leg.exchange.chosen.upstream(), selection.served());
    let (model, fallback) = (client.record.app.pool.engine_name(served), Fallback::FanOut);
    upstream.answers_to(model, Fallbacks::default().with(fallback));
    if missing.requested - missing.choices > 1 {
        resend.request.at_once();
    }
    let (attempt, fallbacks) = (selection.attempts(), leg.exchange.fallbacks);
    let request = |choice| {
        let first = AttemptTarget::first(upstream, served);
        let to = AttemptTarget {
            attempt,
            choice: Some(choice),
            fallbacks,
            ..first
        };
        let PendingRequest {
            answer,
            reader,
            fallbacks,
            ..
        } = resend.request.prepare(&to).ok()?;
        let exchange = EngineExchange::begin(Pool::same_upstream(upstream), answer, fallbacks);
        Some(Leg {
            exchange,
            reader,
            selection: Some(selection.clone()),
        })
    };
    let legs: Option<Vec<_>> = (missing.choices..missing.requested).map(request).collect();
    let Some(legs) = legs.and_then(Legs::of) else {
        client.buffer.end_without_missing(&mut leg.reader);
        return None;
    };
    leg.finish_attempt(client);
    leg.give_back(client.thread);
    let mut past = leg.reader.summary();
    past.adapted.push(fallback.rule().name);
    client.buffer.writer.merge_missing(missing, past);
    client.clock.restart_attempt();
    Some(legs)
}
