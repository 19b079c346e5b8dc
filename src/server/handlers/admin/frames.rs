//! Frames of a captured exchange, engine and client side by side, with what was changed in each.
//!
//! Takes: the id of an exchange. Gives: JSON. Never: runs beside the preparation of another exchange.

use super::captures::{not_captured, number, summary};
use super::{json, preparation};
use crate::capture::{BodyLengths, Captured, RecordedAttempt, RecordedMessage, body_file};
use crate::filter::{
    Change, FilterError, FilterParams, FrameRow, Side, TimedFrame, explained_rows, relayed_rows,
    rule_words,
};
use crate::json::members;
use crate::plan::Route;
use crate::server::App;
use crate::server::active_config::ActiveConfig;
use crate::wire::{AnswerId, Api, Ending, Stamp};
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the frames of an exchange.
pub(super) async fn frames(
    State(present): State<Arc<ActiveConfig>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let app = present.app();
    let number = match number(query.as_deref()) {
        Ok(number) => number,
        Err(refusal) => return refusal,
    };
    let Some(exchange) = app.captures.find(&id, number) else {
        return not_captured();
    };
    let text =
        preparation::aside(move || json::text(&answer(&app, &exchange.read(), exchange.lengths())))
            .await;
    json::response(text)
}

/// Returns the answer: both requests, the attempts, and the rows of the last attempt.
fn answer(app: &App, exchange: &Captured, lengths: BodyLengths) -> impl Serialize {
    let last = exchange.attempts.last();
    let (rows, why_not) = rows(app, exchange);
    let used = rows
        .iter()
        .flat_map(|row| row.changes.iter().filter_map(|change| change.rule));
    let names = used.chain(exchange.outcome.rules.iter().map(|(rule, _)| *rule));
    let rules: BTreeMap<_, _> = names
        .filter_map(|name| Some((name, rule_words(name)?)))
        .collect();
    members! {
        id: &*exchange.info.id,
        summary: summary(exchange, lengths),
        request: members! {
            client: body_text(&exchange.request),
            engine: last.and_then(|attempt| body_text(&attempt.request)),
        },
        attempts: exchange.attempts.iter().map(attempt_summary).collect::<Vec<_>>(),
        rules,
        is_explained: why_not.is_none(),
        why_not,
        rows: rows.into_iter().map(row_members).collect::<Vec<_>>(),
        is_cut: exchange.is_cut,
    }
}

fn attempt_summary(attempt: &RecordedAttempt) -> impl Serialize {
    members! {
        upstream: &*attempt.upstream,
        engine: attempt.engine,
        status: attempt.answer.as_ref().and_then(status),
        is_complete: attempt.is_complete,
        // The file with the answer's body, in the folder of the attempt.
        file: attempt.answer.as_ref().map(body_file),
    }
}

fn frame_members(frame: TimedFrame<'_>) -> impl Serialize {
    members! { at_ms: json::milliseconds(frame.at), text: frame.text }
}

fn row_members(row: FrameRow<'_>) -> impl Serialize {
    let change = |one: Change| {
        members! { rule: one.rule, text: one.effect.to_string(), times: one.times }
    };
    members! {
        engine: row.engine.map(frame_members),
        client: row.client.into_iter().map(frame_members).collect::<Vec<_>>(),
        changes: row.changes.into_iter().map(change).collect::<Vec<_>>(),
    }
}

/// Returns the body of a message as text; `None` if it has none.
fn body_text(message: &RecordedMessage) -> Option<String> {
    (!message.body.is_empty()).then(|| String::from_utf8_lossy(&message.body).into_owned())
}

/// Returns the status in the head of an answer.
fn status(answer: &RecordedMessage) -> Option<u16> {
    answer.head.split(' ').nth(1)?.parse().ok()
}

/// Limit on the line ends of one side, so that its rows, each of which is much larger than its text, stay bounded.
const MAX_LINES: usize = 200_000;

/// Returns true if a side has more frames than are prepared.
fn is_too_long(side: &Side<'_>) -> bool {
    memchr::memchr2_iter(b'\n', b'\r', side.body)
        .nth(MAX_LINES)
        .is_some()
}

/// Returns the rows, and the reason if they have no changes.
fn rows<'a>(app: &App, exchange: &'a Captured) -> (Vec<FrameRow<'a>>, Option<String>) {
    let nothing = Side {
        body: &[],
        pieces: &[],
        is_stream: false,
        is_socket: false,
    };
    let client = exchange.answer.as_ref().map_or(nothing, Side::of);
    let attempt = exchange
        .attempts
        .last()
        .and_then(|attempt| Some((attempt, attempt.answer.as_ref()?)));
    let Some((attempt, answer)) = attempt else {
        let why = match exchange.is_cut {
            true => "The exchange reached a limit of [capture] before an engine's answer.",
            false => "The last attempt has no answer of an engine.",
        };
        return (relayed_rows(&nothing, &client), Some(why.to_owned()));
    };
    let engine = Side::of(answer);
    if is_too_long(&engine) || is_too_long(&client) {
        let why = format!(
            "One side has more than {MAX_LINES} lines, which are not shown: download the exchange."
        );
        return (Vec::new(), Some(why));
    }
    let explained = match params(app, exchange, attempt, answer) {
        Some(params) => explained_rows(params, &engine, &client).map_err(|error| match error {
            FilterError::Refused(why) => why,
            FilterError::Input(error) | FilterError::Output(error) => error.to_string(),
        }),
        None => Err(match engine.body == client.body {
            true => "The answer was relayed as it is: this route is not rewritten.".to_owned(),
            false => {
                "samewire made this answer of the engine's, and explains no changes on this route."
                    .to_owned()
            }
        }),
    };
    match explained {
        Ok(rows) => (rows, None),
        Err(why) => (relayed_rows(&engine, &client), Some(why)),
    }
}

/// Returns the parameters by which the answer was rewritten; `None` if its route is not rewritten. The vocabulary and
/// the limits are those of the present configuration.
fn params(
    app: &App,
    exchange: &Captured,
    attempt: &RecordedAttempt,
    answer: &RecordedMessage,
) -> Option<FilterParams> {
    let api = Api::of_path(attempt.request.head.split(' ').nth(1)?)?;
    let began = exchange
        .began
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Some(FilterParams {
        api: Some(api),
        to: Some(client_api(&exchange.info.path, api)?),
        request: Some(request(exchange)),
        route: Route {
            vocabulary: app.pool.vocabulary(),
            ..Route::clone(attempt.route.as_ref()?)
        },
        status: status(answer)?,
        ending: if attempt.is_complete {
            Ending::Clean
        } else {
            Ending::Reset
        },
        stamp: Stamp {
            id: AnswerId(1),
            now: began.as_secs(),
            seed: 1,
            ..Stamp::default()
        },
        limits: app.config.limits.clone(),
        shown: false,
    })
}

/// Returns the client's request. A message of a WebSocket does not say that its answer is a stream.
fn request(exchange: &Captured) -> Bytes {
    let body = &exchange.request.body;
    let is_socket = exchange
        .answer
        .as_ref()
        .is_some_and(|answer| Side::of(answer).is_socket);
    match body.trim_ascii_start().strip_prefix(b"{") {
        Some(members) if is_socket => [br#"{"stream":true,"#, members].concat().into(),
        _ => Bytes::copy_from_slice(body),
    }
}

/// Returns the API that a client has used; `None` if its answer is made of an engine's answer in another way, as for a
/// compaction or a count of tokens. `engine`: the API of the engine, which a relayed route shares whose requests are
/// rewritten by their bodies.
fn client_api(target: &str, engine: Api) -> Option<Api> {
    let is_other = target.contains("/responses/") || target.contains("/messages/");
    Api::of_path(target).or_else(|| (!is_other).then_some(engine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_api_is_known_by_its_path() {
        assert_eq!(client_api("/invocations", Api::Chat), Some(Api::Chat));
        assert_eq!(client_api("/v1/responses/compact", Api::Chat), None);
    }
}
