//! The admin listener: whether the process lives, whether it should get traffic, its figures, and how it drains. It serves no
//! `/v1`.

use super::descriptors::{Spare, is_wanted};
use super::{App, Phase, Present};
use crate::upstream::Upstream;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::{get, post};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections of operators at once.
const PLACES: usize = 64;
/// How long they may take for a head.
const HEAD: Duration = Duration::from_secs(30);

/// Serves operators, for ever; also when clients have taken all descriptors.
pub(super) async fn serve(listener: TcpListener, present: Arc<Present>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(8 << 10);
    let places = Arc::new(Semaphore::new(PLACES));
    let router = router(present);
    let spare = Arc::new(Spare::new());
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        spare.refill();
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) if is_wanted(&listener) && spare.lend(&error) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let service = TowerToHyperService::new(router.clone());
        let mut connection = http.serve_connection(TokioIo::new(stream), service);
        let spare = Arc::clone(&spare);
        #[expect(clippy::disallowed_methods, reason = "one task for each connection, bounded by the places")]
        tokio::spawn(async move {
            let _ = (&mut connection).await;
            if let Ok(stream) = connection.into_parts().io.into_inner().into_std() {
                spare.close(stream.into());
            }
            drop(place);
        });
    }
}

fn router(present: Arc<Present>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/drain", post(drain))
        .route("/drain/wait", get(drained))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .with_state(present)
}

async fn ready(State(present): State<Arc<Present>>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let app = present.app();
    let more = match query.as_deref() {
        Some("verbose") => app.pool.upstreams().iter().map(|upstream| told(upstream)).collect(),
        _ => String::new(),
    };
    match trouble(&app) {
        None => (StatusCode::OK, format!("ok\n{more}")),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n{more}")),
    }
}

/// A line of what is known of an upstream.
fn told(upstream: &Upstream) -> String {
    let ready = upstream.trouble().map_or("yes", |_| "no");
    let (found, figures) = (upstream.found(), &upstream.figures);
    let mut line =
        format!("upstream={} ready={ready} {found} in_flight={}", figures.name, figures.active.value());
    if let Some(busy) = figures.busy() {
        let _ = write!(line, " engine_running={} engine_waiting={}", busy.running, busy.waiting);
        busy.cache.into_iter().for_each(|part| _ = write!(line, " engine_cache_usage={part}"));
    }
    line.push('\n');
    line
}

/// Begins to drain. The process stays: it may be the one that others wait for.
async fn drain(State(present): State<Arc<Present>>) -> &'static str {
    present.app().course.reach(Phase::Settling);
    "draining\n"
}

/// The same, and answers when nothing is under way any more: for an engine's `preStop`, which can send nothing but a GET.
async fn drained(State(present): State<Arc<Present>>) -> (StatusCode, String) {
    match present.app().drained().await {
        0 => (StatusCode::OK, "drained\n".to_owned()),
        left => (StatusCode::SERVICE_UNAVAILABLE, format!("{left} requests are left\n")),
    }
}

async fn metrics(State(present): State<Arc<Present>>) -> ([(http::HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], present.app().metrics.rendered())
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
