//! State of the process in one answer: readiness, upstreams, capture, and the rules that were used.

use super::json;
use super::start::base_url;
use crate::capture::Criteria;
use crate::engine::Front;
use crate::filter::rule_words;
use crate::json::members;
use crate::server::App;
use crate::server::active_config::ActiveConfig;
use crate::server::handlers::readiness::NotReady;
use crate::telemetry::{Build, RuleCount};
use crate::upstream::Upstream;
use crate::wire::TemplateFacts;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use std::sync::Arc;
use std::time::SystemTime;

/// Returns the state.
pub(super) async fn status(
    State(present): State<Arc<ActiveConfig>>,
    headers: HeaderMap,
) -> Response {
    let app = present.app();
    json::answer(&state(&app, &headers))
}

fn state(app: &App, headers: &HeaderMap) -> impl Serialize {
    let why = app.trouble().map(|why| match why {
        NotReady::Draining => "draining".to_owned(),
        NotReady::Upstreams(all) => all,
    });
    let now = json::unix_seconds(SystemTime::now());
    members! {
        version: Build::CURRENT.version,
        commit: Build::CURRENT.commit,
        now,
        uptime_seconds: app.started.elapsed().as_secs_f64(),
        ready: why.is_none(),
        why,
        base_url: base_url(app, headers),
        requests_running: app.running.requests.value(),
        capture: capture(app, now),
        upstreams: app.pool.upstreams().iter().map(|upstream| upstream_state(upstream)).collect::<Vec<_>>(),
        drift: app.metrics.rule_counts().into_iter().map(drift).collect::<Vec<_>>(),
    }
}

fn capture(app: &App, now: f64) -> impl Serialize {
    let (switched, limits) = (app.captures.switched(), app.config.file.capture.limits());
    let left = switched.as_ref().and_then(|(_, left)| *left);
    members! {
        is_on: switched.is_some(),
        criteria: switched.map(|(Criteria { key, model, only_failures }, _)| {
            members! { key, model: model, only_failures }
        }),
        until: left.map(|left| now + left.as_secs_f64()),
        held: app.captures.held(),
        bytes: app.captures.used(),
        max_exchanges: limits.exchanges,
        max_bytes: limits.bytes,
    }
}

fn upstream_state(upstream: &Upstream) -> impl Serialize {
    let (identity, figures, trouble) = (upstream.identity(), &upstream.figures, upstream.trouble());
    let busy = figures.busy();
    members! {
        name: &upstream.config.name,
        engine: identity.engine.name,
        version: identity.version.map(|version| version.to_string()),
        front_end: (identity.front != Front::default()).then(|| identity.front.name()),
        ready: trouble.is_none(),
        why: trouble,
        circuit: if figures.circuit_open.value() == 0 { "closed" } else { "open" },
        in_flight: figures.active.value(),
        engine_running: busy.map(|busy| busy.running),
        engine_waiting: busy.map(|busy| busy.waiting),
        cache_usage: busy.and_then(|busy| busy.cache),
        templates: templates(upstream),
    }
}

/// Returns what is known of the chat templates of the upstream's models.
fn templates(upstream: &Upstream) -> Vec<impl Serialize> {
    let template = |(model, facts, from): (Box<str>, TemplateFacts, &'static str)| {
        members! { model, facts, says: facts.to_string(), from }
    };
    upstream.templates().into_iter().map(template).collect()
}

/// Returns a rule that changed requests or answers of an engine.
fn drift(
    RuleCount {
        engine,
        rule,
        count,
    }: RuleCount,
) -> impl Serialize {
    let what = rule_words(&rule).unwrap_or_default();
    members! { engine, rule: rule, count, what: what }
}
