//! Tool outputs posted one by one; the last of them continues the response (wire-format 4.10).
//!
//! Takes: an admitted request and its body. Gives: the calls that are still pending, or the continued response. Changes:
//! the store, the held stream, the quota of the key. Never: keeps two outputs for one call.
//!
//! Outputs are kept in the store, so that any process can take the next one. If several requests post the last
//! outputs at once, exactly one continues the response.

use super::stored::stored_key;
use super::tool_outputs::{SubmittedOutputs, ToolOutputStore};
use super::{create, unavailable};
use crate::json::{self, separated, write_string};
use crate::request::invalid;
use crate::request::responses::outputs::{self, Output, Outputs, PendingCall, Predecessor};
use crate::server::admission::count;
use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::headers;
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::server::storage::objects::not_found;
use crate::store::StoreError;
use crate::wire::fault::{Failure, Fault};
use bytes::BytesMut;
use http::{Response, StatusCode};

/// Serves a request that posts tool outputs: returns the calls still pending, or continues the response once
/// all outputs are there. Fails if the response is missing or unfinished, or a call is unknown or answered
/// already.
pub(in crate::server) async fn tool_outputs(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let app = admitted.app;
    let bytes = body
        .read(app.config.limits.max_body_bytes, admitted, reply)
        .await?;
    let outputs = Outputs::read(&bytes, &app.config.rules)?;
    let (store, key) = stored_key(admitted)?;
    // A held stream takes the outputs itself.
    if let Some(pending) = app.responses.tool_waits.put(&key, &outputs.all).await {
        return Ok(pending_response(reply, &key.id, pending?.iter()));
    }
    let now = app.store_handle.now();
    let record = store
        .get(key.clone(), now)
        .await
        .map_err(|error| match error {
            StoreError::NotFound => not_found("Response", &key.id),
            other => unavailable(admitted, &other),
        })?;
    let calls = outputs::calls(&record.response);
    if !record.state.is_terminal() {
        let message = format!("The response '{}' has not ended yet.", key.id);
        return Err(Failure::from(Fault::InvalidRequest).with_message(message));
    }
    let given = with_call_indexes(&key.id, &calls, &outputs.all)?;
    let output_store = ToolOutputStore::of(store, &key, admitted.ids.request_id());
    // Unless an answer begins, the outputs are removed again, and the client may post them once more.
    let (submitted, stored) = SubmittedOutputs::store(output_store, &given, now)
        .await
        .map_err(|error| match error {
            StoreError::Conflict => already_answered(given.first().map(|(_, output)| *output)),
            other => unavailable(admitted, &other),
        })?;
    let pending: Vec<_> = (0..calls.len())
        .filter(|at| !stored.contains_key(at))
        .collect();
    if !pending.is_empty() {
        submitted.keep();
        let pending = pending.iter().filter_map(|at| calls.get(*at));
        return Ok(pending_response(reply, &key.id, pending));
    }
    if !submitted
        .output_store
        .claim(now)
        .await
        .map_err(|error| unavailable(admitted, &error))?
    {
        submitted.keep();
        return Ok(pending_response(reply, &key.id, std::iter::empty()));
    }
    let answered = calls
        .iter()
        .enumerate()
        .filter_map(|(at, call)| Some((call, stored.get(&at)?.as_str())));
    let input = outputs::items(answered);
    let conversation = outputs::conversation(&record.response);
    let after = match &conversation {
        Some(conversation) => Predecessor::Conversation(conversation),
        None => Predecessor::Response(&key.id),
    };
    let model = json::member(&record.response, "model").unwrap_or_default();
    let stream =
        outputs.stream || headers::accepts_type(&admitted.head.headers, "text/event-stream");
    let continuing = outputs::continuing_body(&record.request, &model, after, &input, stream);
    // The continuation is a further request of the key.
    if let Err(failure) = count(admitted, reply).await {
        submitted.take_back().await;
        return Err(failure);
    }
    let response = create(admitted, reply, body, continuing).await?;
    if response.status().is_success() {
        submitted.keep();
    } else {
        submitted.take_back().await;
    }
    Ok(response)
}

fn pending_response<'a>(
    reply: &mut ClientReply,
    id: &str,
    pending: impl Iterator<Item = &'a PendingCall>,
) -> Response<Body> {
    let mut out = BytesMut::from(&b"{\"object\":\"response.tool_outputs\",\"response_id\":"[..]);
    write_string(id, &mut out);
    out.extend_from_slice(b",\"status\":\"waiting\",\"pending\":[");
    separated(pending, &mut out, |call, out| {
        write_string(&call.call_id, out)
    });
    out.extend_from_slice(b"]}");
    let mut response = reply.object(out.freeze());
    *response.status_mut() = StatusCode::ACCEPTED;
    reply.note(|record| record.answered(StatusCode::ACCEPTED.as_u16()));
    response
}

/// Returns each output with the index of its call. Fails if the response has no calls, an output matches none, or
/// two outputs answer the same call.
pub(super) fn with_call_indexes<'o>(
    id: &str,
    calls: &[PendingCall],
    given: &'o [Output],
) -> Result<Vec<(usize, &'o Output)>, Failure> {
    if calls.is_empty() {
        let message = format!("The response '{id}' has no tool calls.");
        return Err(Failure::from(Fault::InvalidRequest).with_message(message));
    }
    let mut told: Vec<(usize, &Output)> = Vec::with_capacity(given.len());
    for output in given {
        let at = calls
            .iter()
            .position(|call| call.call_id == output.call_id)
            .ok_or_else(|| invalid(output.param.as_str(), "the response has no such tool call"))?;
        if told.iter().any(|(other, _)| *other == at) {
            return Err(already_answered(Some(output)));
        }
        told.push((at, output));
    }
    Ok(told)
}

pub(super) fn already_answered(output: Option<&Output>) -> Failure {
    let failure =
        Failure::from(Fault::Conflict).with_message("The tool call has an output already.");
    match output {
        Some(output) => failure.with_param(output.param.as_str()),
        None => failure,
    }
}
