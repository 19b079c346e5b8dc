//! The admin listener: whether the process lives, whether it should get traffic, and its figures. It serves no `/v1`.

use super::App;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use std::sync::Arc;

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .with_state(app)
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, String) {
    match trouble(&app) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
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
