//! The admin listener: whether the process lives, whether it should get traffic, its figures, and how it drains. It serves no
//! `/v1`.

use super::{App, Phase};
use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use std::sync::Arc;

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/drain", post(drain))
        .route("/drain/wait", get(drained))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .with_state(app)
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, String) {
    match trouble(&app) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Begins to drain. The process stays: it may be the one that others wait for.
async fn drain(State(app): State<Arc<App>>) -> &'static str {
    app.course.reach(Phase::Settling);
    "draining\n"
}

/// The same, and answers when nothing is under way any more: for an engine's `preStop`, which can send nothing but a GET.
async fn drained(State(app): State<Arc<App>>) -> (StatusCode, String) {
    match app.drained().await {
        0 => (StatusCode::OK, "drained\n".to_owned()),
        left => (StatusCode::SERVICE_UNAVAILABLE, format!("{left} requests are left\n")),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> ([(http::HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.rendered())
}

fn trouble(app: &App) -> Option<String> {
    if app.is_draining() {
        return Some("draining".to_owned());
    }
    let mut all = Vec::new();
    for upstream in app.pool.upstreams() {
        // One that is ready is enough.
        all.push(format!("upstream {}: {}", upstream.config.name, upstream.trouble()?));
    }
    Some(all.join("\n"))
}
