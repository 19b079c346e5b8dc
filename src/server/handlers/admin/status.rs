//! State of the process in one answer: readiness, upstreams, capture, and the rules that were used.

use super::json;
use super::start::base_url;
use crate::capture::Criteria;
use crate::engine::Front;
use crate::filter::rule_words;
use crate::server::App;
use crate::server::active_config::ActiveConfig;
use crate::server::handlers::readiness::NotReady;
use crate::telemetry::{Build, RuleCount};
use crate::upstream::Upstream;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use std::sync::Arc;
use std::time::SystemTime;

/// Returns the state.
pub(super) async fn status(State(present): State<Arc<ActiveConfig>>, headers: HeaderMap) -> Response {
    let app = present.app();
    json::answer(&AdminStatus::of(&app, &headers))
}

#[derive(Serialize)]
struct AdminStatus {
    version: &'static str,
    commit: &'static str,
    now: f64,
    uptime_seconds: f64,
    ready: bool,
    why: Option<String>,
    base_url: String,
    requests_running: i64,
    capture: Capture,
    upstreams: Vec<UpstreamState>,
    drift: Vec<Drift>,
}

#[derive(Serialize)]
struct Capture {
    is_on: bool,
    criteria: Option<CriteriaMembers>,
    until: Option<f64>,
    held: usize,
    bytes: usize,
    max_exchanges: usize,
    max_bytes: usize,
}

#[derive(Serialize)]
struct CriteriaMembers {
    key: Option<String>,
    model: Option<String>,
    only_failures: bool,
}

#[derive(Serialize)]
struct UpstreamState {
    name: String,
    engine: &'static str,
    version: Option<String>,
    front_end: Option<&'static str>,
    ready: bool,
    why: Option<&'static str>,
    circuit: &'static str,
    in_flight: i64,
    engine_running: Option<u64>,
    engine_waiting: Option<u64>,
    cache_usage: Option<f64>,
}

/// Rule that changed requests or answers of an engine.
#[derive(Serialize)]
struct Drift {
    engine: String,
    rule: String,
    count: u64,
    what: &'static str,
}

impl AdminStatus {
    fn of(app: &App, headers: &HeaderMap) -> Self {
        let why = app.trouble().map(|why| match why {
            NotReady::Draining => "draining".to_owned(),
            NotReady::Upstreams(all) => all,
        });
        let now = json::unix_seconds(SystemTime::now());
        Self {
            version: Build::CURRENT.version,
            commit: Build::CURRENT.commit,
            now,
            uptime_seconds: app.started.elapsed().as_secs_f64(),
            ready: why.is_none(),
            why,
            base_url: base_url(app, headers),
            requests_running: app.running.requests.value(),
            capture: Capture::of(app, now),
            upstreams: app.pool.upstreams().iter().map(|upstream| UpstreamState::of(upstream)).collect(),
            drift: app.metrics.rule_counts().into_iter().map(Drift::of).collect(),
        }
    }
}

impl Capture {
    fn of(app: &App, now: f64) -> Self {
        let (switched, limits) = (app.captures.switched(), app.config.file.capture.limits());
        let left = switched.as_ref().and_then(|(_, left)| *left);
        Self {
            is_on: switched.is_some(),
            criteria: switched.map(|(Criteria { key, model, only_failures }, _)| CriteriaMembers {
                key,
                model,
                only_failures,
            }),
            until: left.map(|left| now + left.as_secs_f64()),
            held: app.captures.held(),
            bytes: app.captures.used(),
            max_exchanges: limits.exchanges,
            max_bytes: limits.bytes,
        }
    }
}

impl UpstreamState {
    fn of(upstream: &Upstream) -> Self {
        let (identity, figures, trouble) = (upstream.identity(), &upstream.figures, upstream.trouble());
        let busy = figures.busy();
        let version = identity.version.map(|version| version.to_string());
        Self {
            name: upstream.config.name.clone(),
            engine: identity.engine.name,
            front_end: (identity.front != Front::default()).then(|| identity.front.name()),
            version,
            ready: trouble.is_none(),
            why: trouble,
            circuit: if figures.circuit_open.value() == 0 { "closed" } else { "open" },
            in_flight: figures.active.value(),
            engine_running: busy.map(|busy| busy.running),
            engine_waiting: busy.map(|busy| busy.waiting),
            cache_usage: busy.and_then(|busy| busy.cache),
        }
    }
}

impl Drift {
    fn of(counted: RuleCount) -> Self {
        let RuleCount { engine, rule, count } = counted;
        let what = rule_words(&rule).unwrap_or_default();
        Self { engine, rule, count, what }
    }
}
