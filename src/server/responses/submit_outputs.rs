//! Tool outputs posted one by one; the last of them continues the response (wire-format 4.10).
//!
//! Outputs are kept in the store, so that any process can take the next one. If several requests post the last
//! outputs at once, exactly one continues the response.

use super::stored::not_found;
use super::tool_outputs::{SubmittedOutputs, ToolOutputStore};
use crate::json::{self, write_string};
use crate::request::invalid;
use crate::request::responses::outputs::{self, Output, Outputs, PendingCall, Predecessor};
use crate::server::admit::body::Body;
use crate::server::admit::headers;
use crate::server::context::RequestContext;
use crate::store::Error;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::{BufMut, BytesMut};
use http::{Response, StatusCode, request};

impl RequestContext {
    /// Serves a request that posts tool outputs: returns the calls still pending, or continues the response once
    /// all outputs are there. Fails if the response is missing or unfinished, or a call is unknown or answered
    /// already.
    pub(in crate::server) async fn tool_outputs(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let limit = self.app.config.limits.max_body_bytes;
        let body = self.body(body, limit).await?;
        let outputs = Outputs::read(&body, self.rules())?;
        let (store, key) = self.stored_key(head)?;
        if let Some(pending) = self.app.tool_waits.put(&key, &outputs.all).await {
            return Ok(self.pending_response(&key.id, pending?.iter()));
        }
        let now = self.app.store_handle.now();
        let record = store.get(key.clone(), now).await.map_err(|error| match error {
            Error::NotFound => not_found("Response", &key.id),
            other => self.unavailable(&other),
        })?;
        let calls = outputs::calls(&record.response);
        if !record.state.is_terminal() {
            let message = format!("The response '{}' has not ended yet.", key.id);
            return Err(Failure::from(Fault::InvalidRequest).with_message(message));
        }
        let given = with_call_indexes(&key.id, &calls, &outputs.all)?;
        let output_store = ToolOutputStore::of(store, &key, self.ids.request_id());
        let full = output_store.put(&given, now).await.map_err(|error| match error {
            Error::Conflict => already_answered(given.first().map(|(_, output)| *output)),
            other => self.unavailable(&other),
        })?;
        let pending: Vec<_> = (0..calls.len()).filter(|at| !full.contains_key(at)).collect();
        if !pending.is_empty() {
            let pending = pending.iter().filter_map(|at| calls.get(*at));
            return Ok(self.pending_response(&key.id, pending));
        }
        // Unless an answer begins, the outputs are removed again, and the client may post them once more.
        let handed = SubmittedOutputs::new(output_store, &given, now);
        if !handed.output_store.claim(now).await.map_err(|error| self.unavailable(&error))? {
            handed.keep();
            return Ok(self.pending_response(&key.id, std::iter::empty()));
        }
        let answered =
            calls.iter().enumerate().filter_map(|(at, call)| Some((call, full.get(&at)?.as_str())));
        let input = outputs::items(answered);
        let conversation = outputs::conversation(&record.response);
        let after = match &conversation {
            Some(conversation) => Predecessor::Conversation(conversation),
            None => Predecessor::Response(&key.id),
        };
        let model = json::member(&record.response, "model").unwrap_or_default();
        let stream = outputs.stream || headers::accepts_type(&head.headers, "text/event-stream");
        let body = outputs::continuing_body(&record.request, &model, after, &input, stream);
        if let Err(failure) = self.count(head).await {
            handed.take_back().await;
            return Err(failure);
        }
        let response = self.create(head, body).await?;
        if response.status().is_success() {
            handed.keep();
        } else {
            handed.take_back().await;
        }
        Ok(response)
    }

    fn pending_response<'a>(
        &mut self,
        id: &str,
        pending: impl Iterator<Item = &'a PendingCall>,
    ) -> Response<Body> {
        let mut out = BytesMut::from(&b"{\"object\":\"response.tool_outputs\",\"response_id\":"[..]);
        write_string(id, &mut out);
        out.extend_from_slice(b",\"status\":\"waiting\",\"pending\":[");
        for (at, call) in pending.enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            write_string(&call.call_id, &mut out);
        }
        out.extend_from_slice(b"]}");
        let mut response = self.object_response(out.freeze());
        *response.status_mut() = StatusCode::ACCEPTED;
        if let Some(record) = &mut self.record {
            record.answered(StatusCode::ACCEPTED.as_u16());
        }
        response
    }
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
    let failure = Failure::from(Fault::Conflict).with_message("The tool call has an output already.");
    match output {
        Some(output) => failure.with_param(output.param.as_str()),
        None => failure,
    }
}
