//! Captured exchanges for operators: switched on and off, listed, and downloaded as folders.
//!
//! Takes: requests to the admin listener. Gives: JSON, or a tar archive of a scenario. Never: shows the content of an
//! exchange that was not captured on purpose.

use super::start_capture::StartCapture;
use super::{json, preparation};
use crate::capture::{BodyLengths, Captured, Criteria, Ring, files};
use crate::json::members;
use crate::nearest::suggest;
use crate::server::active_config::ActiveConfig;
use crate::telemetry::End;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Query keys that select exchanges in the list.
const FILTERS: [&str; 6] = ["key", "model", "upstream", "end", "failed", "limit"];

/// Switches capturing on.
pub(super) async fn start(
    State(present): State<Arc<ActiveConfig>>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    if query.is_some_and(|query| !query.is_empty()) {
        let why = "the body says what is captured: leave out the query\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    let app = present.app();
    let start = match StartCapture::read(&body, app.config.auth.as_deref()) {
        Ok(start) => start,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    let StartCapture { criteria, time } = start;
    let Criteria {
        key,
        model,
        only_failures,
    } = &criteria;
    tracing::warn!(
        key,
        model,
        only_failures,
        seconds = time.map(|time| time.as_secs_f64()),
        "exchanges are captured, with their content"
    );
    app.captures.switch_on(criteria, time);
    json::answer(&members! { capturing: capturing(&app.captures) })
}

/// Switches capturing off. Captured exchanges stay.
pub(super) async fn stop(State(present): State<Arc<ActiveConfig>>) -> Response {
    let app = present.app();
    app.captures.switch_off();
    tracing::info!("exchanges are no longer captured");
    json::answer(&members! { capturing: None::<()> })
}

/// Forgets all captured exchanges.
pub(super) async fn clear(
    State(present): State<Arc<ActiveConfig>>,
    RawQuery(query): RawQuery,
) -> Response {
    if query.is_some_and(|query| !query.is_empty()) {
        let why = "all exchanges are forgotten, so that there is nothing to select: leave out the query\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    json::answer(&members! { forgotten: present.app().captures.clear() })
}

/// Forgets the captured exchanges of a request id. A client may have sent one id with several requests. The id may have
/// the ending of [`download`].
pub(super) async fn forget(
    State(present): State<Arc<ActiveConfig>>,
    Path(id): Path<String>,
) -> Response {
    let captures = &present.app().captures;
    let ids = [Some(id.as_str()), id.strip_suffix(".tar")]
        .into_iter()
        .flatten();
    match ids
        .map(|id| captures.forget(id))
        .find(|forgotten| *forgotten > 0)
    {
        None => not_captured(),
        Some(forgotten) => json::answer(&members! { forgotten }),
    }
}

/// Returns the answer for an id of which there is no exchange.
pub(super) fn not_captured() -> Response {
    (
        StatusCode::NOT_FOUND,
        "there is no captured exchange of this id\n",
    )
        .into_response()
}

/// Lists captured exchanges, the newest first, without their content.
pub(super) async fn list(
    State(present): State<Arc<ActiveConfig>>,
    RawQuery(query): RawQuery,
) -> Response {
    let filter = match CaptureFilter::read(query.as_deref().unwrap_or_default()) {
        Ok(filter) => filter,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    let app = present.app();
    let all = app.captures.list();
    let chosen = all
        .iter()
        .filter(|exchange| filter.matches(exchange.facts()))
        .take(filter.limit);
    json::answer(&members! {
        capturing: capturing(&app.captures),
        used_bytes: app.captures.used(),
        exchanges: chosen.map(|exchange| summary(exchange.facts(), exchange.lengths())).collect::<Vec<_>>(),
    })
}

/// Returns one exchange as a tar archive: a folder in the form of a scenario. The ending `.tar` is optional, unless the id is
/// the name of another route such as `start`; clients choose ids, so that one may have that ending itself.
pub(super) async fn download(
    State(present): State<Arc<ActiveConfig>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let captures = Arc::clone(&present.app().captures);
    let number = match number(query.as_deref()) {
        Ok(number) => number,
        Err(refusal) => return refusal,
    };
    let named = id
        .strip_suffix(".tar")
        .and_then(|id| captures.find(id, number));
    let Some(exchange) = named.or_else(|| captures.find(&id, number)) else {
        return not_captured();
    };
    let name = format!("attachment; filename=\"{}.tar\"", folder(exchange.facts()));
    let archive = preparation::aside(move || archive(&exchange.read()).ok()).await;
    let Some(archive) = archive else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let headers = [
        (CONTENT_TYPE, "application/x-tar"),
        (CONTENT_DISPOSITION, name.as_str()),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, archive).into_response()
}

/// Returns the number in a query, which tells one exchange from others with its id; `None`: the newest is meant.
///
/// # Errors
/// The query has another parameter, or no number.
pub(super) fn number(query: Option<&str>) -> Result<Option<u64>, Response> {
    let refusal = |why: String| (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response();
    let mut number = None;
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*name {
            "number" => {
                let parsed = value
                    .parse()
                    .map_err(|_| refusal("number: must be a whole number".to_owned()));
                number = Some(parsed?);
            }
            other => {
                return Err(refusal(suggest(
                    format!("{other}: unknown"),
                    other,
                    ["number"],
                )));
            }
        }
    }
    Ok(number)
}

/// Selection of exchanges, from the query.
struct CaptureFilter {
    key: Option<String>,
    model: Option<String>,
    upstream: Option<String>,
    end: Option<String>,
    failed: bool,
    limit: usize,
}

impl CaptureFilter {
    fn read(query: &str) -> Result<Self, String> {
        let mut this = Self {
            key: None,
            model: None,
            upstream: None,
            end: None,
            failed: false,
            limit: usize::MAX,
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "key" => this.key = Some(value),
                "model" => this.model = Some(value),
                "upstream" => this.upstream = Some(value),
                "end" => {
                    let all = End::ALL.map(End::name);
                    if !all.contains(&value.as_str()) {
                        return Err(format!("end: must be one of {}", all.join(", ")));
                    }
                    this.end = Some(value);
                }
                "failed" => {
                    this.failed = match value.as_str() {
                        "" | "1" | "true" => true,
                        "0" | "false" => false,
                        _ => return Err("failed: must be 1 or 0".to_owned()),
                    }
                }
                "limit" => {
                    this.limit = value
                        .parse()
                        .map_err(|_| "limit: must be a whole number".to_owned())?
                }
                other => return Err(suggest(format!("{other}: unknown"), other, FILTERS)),
            }
        }
        Ok(this)
    }

    fn matches(&self, exchange: &Captured) -> bool {
        let is = |expected: &Option<String>, value: &str| {
            expected.as_ref().is_none_or(|expected| expected == value)
        };
        is(&self.key, exchange.info.key.as_deref().unwrap_or_default())
            && is(&self.model, &exchange.info.model)
            && is(&self.end, exchange.outcome.end)
            && self
                .upstream
                .as_ref()
                .is_none_or(|name| exchange.attempts.iter().any(|one| one.upstream == *name))
            && (!self.failed || exchange.outcome.is_failure())
    }
}

/// Returns the condition for requests to be captured, and the seconds that are left.
fn capturing(ring: &Ring) -> Option<impl Serialize> {
    let (
        Criteria {
            key,
            model,
            only_failures,
        },
        left,
    ) = ring.switched()?;
    let seconds_left = left.map(|left| left.as_secs_f64());
    Some(members! { key, model: model, only_failures, seconds_left: seconds_left })
}

/// Returns an exchange as it is listed, without its content.
pub(super) fn summary(exchange: &Captured, lengths: BodyLengths) -> impl Serialize {
    let Captured { info, outcome, .. } = exchange;
    let last = exchange.attempts.last();
    let answered = last.and_then(|attempt| attempt.answer.as_ref());
    members! {
        id: &*info.id,
        number: info.number,
        began: json::unix_seconds(exchange.began),
        method: &*info.method,
        path: &*info.path,
        model: &*info.model,
        key: info.key.as_deref(),
        upstream: last.map(|attempt| attempt.upstream.as_str()),
        engine: last.map(|attempt| attempt.engine),
        attempts: exchange.attempts.len(),
        status: outcome.status,
        end: outcome.end,
        code: outcome.code.as_deref(),
        total_ms: exchange.took.as_secs_f64() * 1e3,
        request_bytes: lengths.request,
        engine_bytes: answered.map(|_| lengths.last_attempt_answer),
        client_bytes: exchange.answer.as_ref().map(|_| lengths.answer),
        rules: outcome.rules.iter().copied().collect::<BTreeMap<_, _>>(),
        is_cut: exchange.is_cut,
    }
}

/// Returns the name of an exchange's folder: engine and request id, without what file names may not have.
fn folder(exchange: &Captured) -> String {
    let engine = exchange
        .attempts
        .last()
        .map_or("none", |attempt| attempt.engine);
    let id = exchange.info.id.chars().map(|c| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    });
    format!("{engine}-{}", id.collect::<String>())
}

fn archive(exchange: &Captured) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let seconds = exchange
        .began
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    for (path, content) in files(exchange) {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(content.len()).unwrap_or(u64::MAX));
        header.set_mode(0o600);
        header.set_mtime(seconds);
        archive.append_data(
            &mut header,
            format!("{}/{path}", folder(exchange)),
            content.as_slice(),
        )?;
    }
    archive.into_inner()
}
