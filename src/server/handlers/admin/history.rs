//! Figures of the last half hour, in steps.

use super::json;
use crate::server::active_config::ActiveConfig;
use crate::telemetry::{HISTORY_STEP, HistogramSnapshot, HistoryPoint};
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;

/// Lists the points, the oldest first.
pub(super) async fn points(State(present): State<Arc<ActiveConfig>>) -> Response {
    let points = present.app().history.points();
    json::answer(&HistoryPage {
        step_seconds: HISTORY_STEP.as_secs(),
        points: points.iter().map(Point::of).collect(),
    })
}

#[derive(Serialize)]
struct HistoryPage {
    step_seconds: u64,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    at: f64,
    requests: u64,
    errors: u64,
    first_token: Durations,
    inter_token: Durations,
    tokens: u64,
}

#[derive(Serialize)]
struct Durations {
    count: u64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
}

impl Point {
    fn of(point: &HistoryPoint) -> Self {
        Self {
            at: json::unix_seconds(point.at),
            requests: point.requests,
            errors: point.errors,
            first_token: Durations::of(&point.first_token),
            inter_token: Durations::of(&point.inter_token),
            tokens: point.tokens,
        }
    }
}

impl Durations {
    fn of(snapshot: &HistogramSnapshot) -> Self {
        let quantile = |part| snapshot.quantile(part).map(|seconds| (seconds * 1e6).round() / 1e3);
        Self { count: snapshot.count(), p50_ms: quantile(0.5), p95_ms: quantile(0.95) }
    }
}
