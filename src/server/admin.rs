//! The admin listener: whether the process lives, whether it should get traffic, and its figures. It serves no `/v1`.

use super::App;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

pub(super) fn answer(app: &App, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = match request.uri().path() {
        "/livez" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => match trouble(app) {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        "/metrics" => (StatusCode::OK, app.metrics.rendered()),
        _ => (StatusCode::NOT_FOUND, "not found\n".to_owned()),
    };
    if status != StatusCode::NOT_FOUND && !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = if request.uri().path() == "/metrics" {
        "text/plain; version=0.0.4"
    } else {
        "text/plain; charset=utf-8"
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn trouble(app: &App) -> Option<String> {
    if app.is_draining() {
        return Some("draining".to_owned());
    }
    app.upstream.trouble().map(|why| format!("upstream {}: {why}", app.upstream.config.name))
}
