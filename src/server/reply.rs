//! Reply to a request until its answer takes over: the record, and what the headers of the response say.

use super::admit::body::Body;
use super::admit::quota::QuotaState;
use super::headers;
use super::record::Record;
use crate::capture::Recording;
use crate::wire::disclosure::disclosed;
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use std::sync::Arc;

/// Reply that has not begun.
pub(super) struct ClientReply {
    /// Record of the request; `None` once an answer has taken it.
    record: Option<Record>,
    /// Recording of the exchange, if it is captured.
    pub(super) recording: Option<Arc<Recording>>,
    /// Further headers of the answer: those of the engine's that are passed, and `retry-after`.
    pub(super) passed: HeaderMap,
    /// True if the client is advised not to send the request again: two engines have broken off on it.
    pub(super) is_final: bool,
    /// Status of the key's quota, which the headers report.
    pub(super) quota: Option<QuotaState>,
}

/// Returns a response without a body, after which the connection closes.
pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = status;
    headers::close(&mut response);
    response
}

impl ClientReply {
    pub(super) fn new(record: Record) -> Self {
        Self {
            record: Some(record),
            recording: None,
            passed: HeaderMap::new(),
            is_final: false,
            quota: None,
        }
    }

    /// Returns the record, unless an answer has taken it.
    pub(super) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// Writes into the record, unless an answer has taken it.
    pub(super) fn note(&mut self, note: impl FnOnce(&mut Record)) {
        self.record.as_mut().map(note);
    }

    /// Takes the record, for an answer that lasts longer than the handler.
    ///
    /// # Errors
    /// [`Fault::Proxy`] if it was taken before.
    pub(super) fn take_record(&mut self) -> Result<Record, Failure> {
        self.record.take().ok_or_else(|| Fault::Proxy.into())
    }

    /// Takes back the record of an answer that did not begin.
    pub(super) fn give_back(&mut self, record: Record) {
        self.record = Some(record);
    }

    /// Notes the model for metrics.
    pub(super) fn label(&mut self, model: &str) {
        self.note(|record| record.model = record.app.pool.label(model));
    }

    /// Returns the response with one whole object.
    pub(super) fn object(&mut self, bytes: Bytes) -> Response<Body> {
        let response = match &mut self.record {
            Some(record) => {
                record.answered(200);
                record.completed();
                record.bytes = bytes.len();
                record
                    .success(&self.passed)
                    .object(record.started.elapsed())
            }
            None => Response::new(()),
        };
        response.map(|()| Body::full(bytes))
    }

    /// Returns the response that reports a failure.
    pub(super) fn refuse(&mut self, failure: &Failure) -> Response<Body> {
        let Some(record) = &mut self.record else {
            return bare(StatusCode::INTERNAL_SERVER_ERROR);
        };
        let failure = &match &record.upstream {
            Some(upstream) => {
                let key = record.caller.as_ref().map(|caller| caller.index);
                let model = record.requested_model();
                let policy = record.app.pool.options(upstream, model, key).engine_errors;
                disclosed(failure.clone(), policy, model, &record.request_id)
            }
            None => failure.clone(),
        };
        let response = record.error_response(failure, self.is_final, &self.passed);
        record.failed(failure);
        response.map(Body::full)
    }
}
