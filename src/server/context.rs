//! Context of one request: what was active when it arrived, who sent it, and its answers that need no engine.
//!
//! Remembers: the caller, the record, and what the response's headers report. Handlers in other files add methods
//! to it. Never: contacts an engine.

use super::admit::azure::RouteFamily;
use super::admit::body::{self, Body};
use super::admit::budget::BudgetShare;
use super::admit::headers;
use super::admit::quota::QuotaState;
use super::batch::registry::LineStart;
use super::ids::IdSource;
use super::net::connection_state::{ActiveRequest, ConnectionState};
use super::record::Record;
use super::{App, Worker};
use crate::auth::Caller;
use crate::capture::Recording;
use crate::request::Rules;
use crate::telemetry::Route;
use crate::wire::Stamp;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request};
use std::sync::Arc;

/// Context of a request that is being handled, from its head until its response or its relay takes over.
pub(super) struct RequestContext {
    /// State that was active when the request arrived.
    pub(super) app: Arc<App>,
    pub(super) worker: Arc<Worker>,
    pub(super) ids: IdSource,
    pub(super) active_request: ActiveRequest,
    pub(super) family: RouteFamily,
    /// Authenticated caller; `None` if no keys are configured.
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) record: Option<Record>,
    /// Recording of the exchange, if it is captured.
    pub(super) recording: Option<Arc<Recording>>,
    /// True while the client may still be sending the body.
    pub(super) unread: bool,
    /// True if the body is labelled as a form, as `curl -d` labels any body.
    pub(super) is_labelled_form: bool,
    /// Headers of the engine's answer that are passed to the client.
    pub(super) passed: HeaderMap,
    /// True if two engines have broken off on this request: the client is advised not to retry it.
    pub(super) is_poison: bool,
    /// True if the request is a message of a WebSocket, which has neither a status nor comments.
    pub(super) by_socket: bool,
    /// Share of the memory budget that the body holds.
    pub(super) share: Option<Arc<BudgetShare>>,
    /// Status of the key's quota, which response headers report.
    pub(super) standing: Option<QuotaState>,
    /// Tenant of the batch, if the request is a line of one.
    pub(super) line_tenant: Option<Arc<str>>,
    /// Start of that line, until an upstream has been chosen.
    pub(super) line_start: Option<Arc<LineStart>>,
}

pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = status;
    headers::close(&mut response);
    response
}

/// Returns true if a body that is labelled as a form is meant to be JSON: it begins with a bracket, which forms
/// never do, or is empty.
fn looks_like_json(body: &[u8]) -> bool {
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body).trim_ascii_start();
    matches!(body.first(), None | Some(b'{' | b'['))
}

impl RequestContext {
    /// Returns the context of a request that came as a WebSocket message, with the credentials that opened the
    /// connection.
    ///
    /// # Errors
    /// Fails if these credentials are no longer valid, or if the system provides no random bytes.
    pub(super) fn of_message(
        worker: &Arc<Worker>,
        family: RouteFamily,
        (head, request_id): (&request::Parts, Arc<str>),
    ) -> Result<Self, Failure> {
        let app = worker.active_config.app();
        let record = Record::new(&app, Route::Responses, request_id).traced(head).asked(head);
        let mut this = Self {
            app,
            worker: Arc::clone(worker),
            ids: IdSource::draw().map_err(|_| Fault::Proxy)?,
            // An upgraded connection is busy anyway: this request needs no connection of its own.
            active_request: ActiveRequest::begin(&ConnectionState::default()),
            family,
            caller: None,
            record: Some(record),
            recording: None,
            unread: false,
            is_labelled_form: false,
            passed: HeaderMap::new(),
            is_poison: false,
            by_socket: true,
            share: None,
            standing: None,
            line_tenant: None,
            line_start: None,
        };
        this.authenticate(head).inspect_err(|failure| drop(this.refuse(failure)))?;
        Ok(this)
    }

    pub(super) fn admit(&self) -> Result<(), Fault> {
        let app = &self.app;
        if app.refuses_requests() {
            return Err(Fault::Draining);
        }
        let most = i64::try_from(app.config.limits.requests).unwrap_or(i64::MAX);
        // Background responses have limits of their own, and what is read from the store asks no engine.
        let waiting = app.requests.value() - app.background_jobs.places() - app.stored_answers.value();
        if waiting > most || app.budget.is_short() { Err(Fault::Overloaded) } else { Ok(()) }
    }

    /// Returns the operator's rules for requests, from the configuration.
    pub(super) fn rules(&self) -> &Arc<Rules> {
        &self.app.config.rules
    }

    pub(super) async fn body(&mut self, body: Option<Incoming>, limit: usize) -> Result<Bytes, Failure> {
        let app = &self.app;
        let bytes = match body {
            None => Bytes::new(),
            Some(body) => {
                let is_held = self.line_start.is_some();
                let (bytes, share) = tokio::select! {
                    read = body::read(body, limit, is_held, app) => read?,
                    () = app.cut() => return Err(Fault::Draining.into()),
                };
                self.hold(bytes, share)
            }
        };
        self.unread = false;
        self.active_request.begin_answer();
        if let Some(record) = &mut self.record {
            record.has_read(&bytes);
        }
        if self.is_labelled_form {
            if !looks_like_json(&bytes) {
                return Err(headers::wrong_form());
            }
            self.record.iter_mut().for_each(|record| record.labelled_form = true);
        }
        Ok(bytes)
    }

    /// Ties the body of this request to its share of the memory budget.
    pub(super) fn hold(&mut self, body: Bytes, share: BudgetShare) -> Bytes {
        BudgetShare::hold(self.share.insert(Arc::new(share)), body)
    }

    pub(super) fn object_response(&mut self, bytes: Bytes) -> Response<Body> {
        let response = match &mut self.record {
            Some(record) => {
                record.answered(200);
                record.completed();
                record.bytes = bytes.len();
                let head = headers::Success {
                    request_id: &record.request_id,
                    passed: &self.passed,
                    attempts: record.attempts,
                    model: record.served.as_deref(),
                };
                head.object(record.started.elapsed())
            }
            None => Response::new(()),
        };
        response.map(|()| Body::full(bytes))
    }

    /// Returns the ids, the time and the seed for an answer.
    pub(super) fn stamp(&self) -> Stamp {
        let request_id = self.record.as_ref().map(|record| Arc::clone(&record.request_id));
        Stamp { request_id, ..self.ids.stamp() }
    }

    pub(super) fn refuse(&mut self, failure: &Failure) -> Response<Body> {
        let Some(record) = &mut self.record else { return bare(StatusCode::INTERNAL_SERVER_ERROR) };
        let key = self.caller.as_ref().map(|caller| caller.index);
        let failure = &match &record.upstream {
            Some(upstream) => {
                let model = record.asked_model();
                let policy = self.app.pool.options(upstream, model, key).engine_errors;
                failure.clone().disclosed(policy, model, &record.request_id)
            }
            None => failure.clone(),
        };
        let error = headers::ErrorResponse {
            protocol: record.protocol,
            failure,
            is_final: failure.is_final() || self.is_poison,
            passed: &self.passed,
            attempts: record.attempts,
            elapsed: record.started.elapsed(),
        };
        let response = error.response(&record.request_id);
        record.answered(response.status().as_u16());
        record.failed(failure);
        record.bytes = response.body().len();
        response.map(Body::full)
    }
}
