//! Figures of the last half hour, in steps.

use super::json;
use crate::json::members;
use crate::server::active_config::ActiveConfig;
use crate::telemetry::{HISTORY_STEP, HistogramSnapshot, HistoryPoint};
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;

/// Lists the points, the oldest first.
pub(super) async fn points(State(present): State<Arc<ActiveConfig>>) -> Response {
    let points = present.app().history.points();
    json::answer(&members! {
        step_seconds: HISTORY_STEP.as_secs(),
        points: points.iter().map(point).collect::<Vec<_>>(),
    })
}

fn point(point: &HistoryPoint) -> impl Serialize {
    members! {
        at: json::unix_seconds(point.at),
        requests: point.requests,
        errors: point.errors,
        first_token: durations(&point.first_token),
        inter_token: durations(&point.inter_token),
        tokens: point.tokens,
    }
}

fn durations(snapshot: &HistogramSnapshot) -> impl Serialize {
    let quantile = |part| {
        snapshot
            .quantile(part)
            .map(|seconds| (seconds * 1e6).round() / 1e3)
    };
    members! { count: snapshot.count(), p50_ms: quantile(0.5), p95_ms: quantile(0.95) }
}
