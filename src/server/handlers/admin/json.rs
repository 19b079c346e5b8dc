//! JSON answers to operators.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the answer with this value.
pub(super) fn answer(value: &impl Serialize) -> Response {
    response(text(value))
}

/// Returns a value as a line of JSON; `None` if it cannot be written.
pub(super) fn text(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value).ok().map(|text| text + "\n")
}

/// Returns the answer with this text.
pub(super) fn response(text: Option<impl IntoResponse>) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ];
    match text {
        Some(text) => (headers, text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Returns a time as Unix seconds.
pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// Returns a duration in milliseconds, to the microsecond.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
