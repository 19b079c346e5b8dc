//! Admin listener: liveness, readiness, metrics, control of drains, and the inspector. It does not serve `/v1`.

mod busy_body;
mod captures;
mod frames;
mod history;
mod inspector;
mod json;
mod preparation;
mod requests;
mod start;
mod start_capture;
mod status;

use super::readiness::NotReady;
use crate::json::members;
use crate::server::active_config::ActiveConfig;
use crate::server::admit::browsers::AdminRefusal;
use crate::server::net::connection_state::{ActiveRequest, ConnectionState};
use crate::server::net::connections::{Connections, Evictions};
use crate::server::net::descriptors::{Reserve, has_pending_connection};
use crate::server::net::listener::INSPECTOR_PATH;
use crate::server::net::shutdown::Phase;
use crate::upstream::Upstream;
use crate::visible::{visible, visible_lines};
use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use busy_body::BusyBody;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpListener;

/// Limit for concurrent connections of operators. The one that has been idle longest makes room for another: probes must
/// be answered whatever else is connected.
const MAX_CONNECTIONS: usize = 64;
/// Time for which a connection must have been idle before it makes room: a new one may not have sent its request yet.
const MIN_IDLE: Duration = Duration::from_secs(1);
/// Interval at which the listener looks for room while there is none.
const ROOM_CHECK: Duration = Duration::from_millis(20);
/// Time after which a client that takes nothing of its answer is closed.
const UNREAD_FOR: Duration = Duration::from_secs(30);
/// Limit for the body of a request in bytes.
const MAX_BODY: usize = 64 << 10;
/// Time limit for the header of a request, and for its body.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves operators without end, even when clients have taken all descriptors.
pub(in crate::server) async fn serve(listener: TcpListener, present: Arc<ActiveConfig>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(8 << 10);
    let connections = Arc::new(Connections::default());
    let mut evictions = Evictions::of(&connections, MIN_IDLE);
    let router = router(present);
    let reserve = Arc::new(Reserve::new());
    loop {
        while connections.open().len() >= MAX_CONNECTIONS {
            evictions.evict();
            let _ = tokio::time::timeout(ROOM_CHECK, connections.closed.notified()).await;
        }
        evictions.forget();
        reserve.refill();
        let (stream, peer) = loop {
            match listener.accept().await {
                Ok(accepted) => break accepted,
                Err(error) if has_pending_connection(&listener) && reserve.release_one(&error) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        // A connection that does not read ends, and with it the answer prepared for it.
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD_FOR));
        let open = connections.add(peer);
        let service = TowerToHyperService::new(router.clone().layer(Extension(open.state.clone())));
        let mut connection = http.serve_connection(TokioIo::new(stream), service);
        let reserve = Arc::clone(&reserve);
        #[expect(
            clippy::disallowed_methods,
            reason = "one task for each connection, bounded by the places"
        )]
        tokio::spawn(async move {
            std::future::poll_fn(|cx| {
                // Bytes that the client has sent count before an eviction.
                let served = Pin::new(&mut connection).poll(cx).map(drop);
                if open.state.poll_evicted(cx) {
                    Poll::Ready(())
                } else {
                    served
                }
            })
            .await;
            if let Ok(stream) = connection.into_parts().io.into_inner().into_std() {
                reserve.close_into_reserve(stream.into());
            }
            drop(open);
        });
    }
}

fn router(present: Arc<ActiveConfig>) -> Router {
    Router::new()
        .route("/", get(start))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/drain", post(drain))
        .route("/drain/undo", post(cancel))
        .route("/drain/wait", get(drain_and_wait))
        .route("/ui", get(inspector::folder))
        .route(INSPECTOR_PATH, get(inspector::index))
        .route("/ui/{*name}", get(inspector::file))
        .route("/status", get(status::status))
        .route("/history", get(history::points))
        .route("/requests", get(requests::list))
        .route("/usage", get(usage))
        .route("/captures", get(captures::list).delete(captures::clear))
        .route("/captures/start", post(captures::start))
        .route("/captures/stop", post(captures::stop))
        .route(
            "/captures/{id}",
            get(captures::download).delete(captures::forget),
        )
        .route("/captures/{id}/frames", get(frames::frames))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        // The header `allow`, which axum adds, has the methods of the route.
        .method_not_allowed_fallback(async |method: Method| {
            (
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{method} is not allowed here\n"),
            )
        })
        .layer(from_fn_with_state(Arc::clone(&present), admit))
        .with_state(present)
}

/// Refuses requests for a host that is neither an address nor listed, and requests that a browser sends for another
/// site's page (docs/deploy.md#the-admin-address).
async fn admit(
    State(present): State<Arc<ActiveConfig>>,
    Extension(connection): Extension<ConnectionState>,
    request: Request,
    next: Next,
) -> Response {
    /// Set once a refusal was logged. A scraper with an unlisted name repeats its request forever, so further ones
    /// are not logged.
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let (head, body) = request.into_parts();
    let why = match AdminRefusal::of(&head, &present.app().config.admin_hosts) {
        None => {
            // A connection is in use once its request is there, body included: one that sends half of it is idle.
            let read = tokio::time::timeout(HEADER_TIMEOUT, to_bytes(body, MAX_BODY)).await;
            let Ok(Ok(body)) = read else {
                let why = "the body is too large, or does not arrive\n";
                return (StatusCode::BAD_REQUEST, why).into_response();
            };
            let active = ActiveRequest::begin(&connection);
            let response = next.run(Request::from_parts(head, body.into())).await;
            return response.map(|body| Body::new(BusyBody::new(body, active)));
        }
        Some(AdminRefusal::Page(why)) => why,
        Some(AdminRefusal::Host(why)) => {
            if !IS_TOLD.swap(true, Ordering::Relaxed) {
                let reason = why.trim_end();
                tracing::warn!(
                    reason,
                    "the admin listener refused a request; others like it are not told"
                );
            }
            why
        }
    };
    (StatusCode::FORBIDDEN, why).into_response()
}

/// Serves the start page.
async fn start(State(present): State<Arc<ActiveConfig>>, headers: HeaderMap) -> Response {
    start::answer(&present.app(), &headers).map(Body::from)
}

async fn ready(
    State(present): State<Arc<ActiveConfig>>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let app = present.app();
    let more = match query.as_deref() {
        Some("verbose") => app
            .pool
            .upstreams()
            .iter()
            .map(|upstream| told(upstream))
            .collect(),
        _ => String::new(),
    };
    let why = match app.trouble() {
        None => return (StatusCode::OK, format!("ok\n{more}")),
        Some(NotReady::Draining) => "draining".to_owned(),
        Some(NotReady::Upstreams(all)) => visible_lines(&all).into_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n{more}"))
}

/// Returns a line with the state of an upstream.
fn told(upstream: &Upstream) -> String {
    let ready = upstream.trouble().map_or("yes", |_| "no");
    let (found, figures) = (upstream.detected(), &upstream.figures);
    let mut line = format!(
        "upstream={} ready={ready} {found} in_flight={}",
        figures.name,
        figures.active.value()
    );
    if let Some(busy) = figures.busy() {
        let _ = write!(
            line,
            " engine_running={} engine_waiting={}",
            busy.running, busy.waiting
        );
        busy.cache
            .into_iter()
            .for_each(|part| _ = write!(line, " engine_cache_usage={part}"));
    }
    visible(&line) + "\n"
}

/// Starts a drain. The process stays: others may be waiting for it.
async fn drain(State(present): State<Arc<ActiveConfig>>) -> &'static str {
    present.app().net.shutdown.reach(Phase::Settling);
    "draining\n"
}

/// Cancels a drain, and answers once connections are accepted again.
async fn cancel(State(present): State<Arc<ActiveConfig>>) -> (StatusCode, String) {
    match present.app().net.shutdown.cancel_drain().await {
        Ok(true) => (StatusCode::OK, "the drain was taken back\n".to_owned()),
        Ok(false) => (StatusCode::OK, "not draining\n".to_owned()),
        Err(why) => (StatusCode::CONFLICT, format!("{why}\n")),
    }
}

/// Starts a drain, and answers once no requests are left: for the `preStop` hook of the engine's container in the
/// same pod, which can only send a GET.
async fn drain_and_wait(State(present): State<Arc<ActiveConfig>>) -> (StatusCode, String) {
    match present.app().drain_and_wait().await {
        Some(0) => (StatusCode::OK, "drained\n".to_owned()),
        Some(left) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{left} requests are left\n"),
        ),
        None => (
            StatusCode::CONFLICT,
            "the drain was taken back\n".to_owned(),
        ),
    }
}

/// Returns what each key has used of its quotas.
async fn usage(State(present): State<Arc<ActiveConfig>>) -> Response {
    let app = present.app();
    let data = app
        .admit
        .quotas
        .used_by_all(app.config.auth.as_deref(), &app)
        .await;
    json::answer(&members! { object: "list", data })
}

async fn metrics(
    State(present): State<Arc<ActiveConfig>>,
) -> ([(http::HeaderName, &'static str); 1], String) {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4")],
        present.app().metrics.rendered(),
    )
}
