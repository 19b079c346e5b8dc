//! Requests that run, and those that ended last.
//!
//! Takes: the registry of requests. Gives: JSON. Never: the content of a request.

use super::json;
use crate::error::Side;
use crate::json::members;
use crate::server::active_config::ActiveConfig;
use crate::server::running::{RequestNumbers, RequestSnapshot};
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;

/// Largest number of running requests in an answer.
const MAX_RUNNING: usize = 2_000;

/// Lists the requests, the newest first.
pub(super) async fn list(State(present): State<Arc<ActiveConfig>>) -> Response {
    let (running, ended) = present.app().running.registry.list(MAX_RUNNING);
    json::answer(&members! {
        running: running.iter().map(listed).collect::<Vec<_>>(),
        ended: ended.iter().map(listed).collect::<Vec<_>>(),
    })
}

fn listed(request: &RequestSnapshot) -> impl Serialize {
    let RequestSnapshot {
        facts,
        numbers,
        outcome,
        ..
    } = request;
    let upstream = facts.upstream.as_ref();
    members! {
        id: &*facts.id,
        number: request.number,
        began: json::unix_seconds(request.began),
        method: facts.method.as_str(),
        path: &*facts.path,
        model: facts.model.as_deref(),
        key: facts.key.as_deref(),
        upstream: upstream.map(|(name, _)| &**name),
        engine: upstream.map(|(_, engine)| *engine),
        state: match (outcome, numbers.first_token) {
            (Some(_), _) => "ended",
            (None, Some(_)) => "streaming",
            (None, None) => "waiting",
        },
        attempts: numbers.attempts,
        first_token_ms: numbers.first_token.map(json::milliseconds),
        tokens: numbers.tokens,
        tokens_per_second: tokens_per_second(numbers),
        bytes: numbers.bytes,
        end: outcome.as_ref().map(|outcome| outcome.end),
        side: outcome.as_ref().and_then(|outcome| outcome.side).map(side_name),
        status: outcome.as_ref().and_then(|outcome| outcome.status),
        code: outcome.as_ref().and_then(|outcome| outcome.code.as_deref()),
        total_ms: outcome.as_ref().map(|_| json::milliseconds(numbers.total)),
        is_captured: numbers.is_captured,
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Upstream => "upstream",
        Side::Proxy => "proxy",
    }
}

/// Returns the rate since the first token; `None` before it, and in the same instant.
fn tokens_per_second(numbers: &RequestNumbers) -> Option<f64> {
    let seconds = numbers
        .total
        .checked_sub(numbers.first_token?)?
        .as_secs_f64();
    (seconds > 0.0 && numbers.tokens > 1).then(|| numbers.tokens as f64 / seconds)
}
