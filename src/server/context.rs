//! Context of one request: what was active when it arrived, who sent it, and its answers that need no engine.

use super::azure::RouteFamily;
use super::body::{self, Body};
use super::budget::BudgetShare;
use super::connection_state::{ActiveRequest, ConnectionState};
use super::ids::IdSource;
use super::quota::Standing;
use super::record::Record;
use super::{App, Worker, headers};
use crate::auth::Caller;
use crate::request::Rules;
use crate::telemetry::Route;
use crate::wire::Stamp;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request};
use std::sync::Arc;

/// One request being handled.
pub(super) struct RequestContext {
    /// What was in force when it came.
    pub(super) app: Arc<App>,
    pub(super) worker: Arc<Worker>,
    pub(super) chance: IdSource,
    pub(super) busy: ActiveRequest,
    pub(super) family: RouteFamily,
    /// Who asks, where keys are checked.
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) record: Option<Record>,
    /// The client may still be sending.
    pub(super) unread: bool,
    /// The body has the label that `curl -d` writes, whatever it is.
    pub(super) is_labelled_form: bool,
    /// Headers of the engine's answer that pass.
    pub(super) passed: HeaderMap,
    /// Two engines broke off on it.
    pub(super) is_poison: bool,
    /// It came as a message of a WebSocket, where nobody waits for a status or for comments.
    pub(super) by_socket: bool,
    /// What its body takes of the memory for bodies.
    pub(super) share: Option<Arc<BudgetShare>>,
    /// What there is of its key's quota.
    pub(super) standing: Option<Standing>,
}

pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = status;
    headers::close(&mut response);
    response
}

/// Whether a body that is called a form is meant to be JSON. Forms do not begin with a bracket; an empty one is neither.
fn looks_like_json(body: &[u8]) -> bool {
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body).trim_ascii_start();
    matches!(body.first(), None | Some(b'{' | b'['))
}

impl RequestContext {
    /// A request that came in a message, on the credentials that its connection began with.
    ///
    /// # Errors
    /// They open nothing any more.
    pub(super) fn of_message(
        worker: &Arc<Worker>,
        family: RouteFamily,
        (head, request_id): (&request::Parts, String),
    ) -> Result<Self, Failure> {
        let app = worker.present.app();
        let record = Record::new(&app, Route::Responses, request_id).traced(head).asked(head);
        let mut this = Self {
            app,
            worker: Arc::clone(worker),
            chance: IdSource::draw().map_err(|_| Fault::Proxy)?,
            // The connection is busy by itself.
            busy: ActiveRequest::begin(&ConnectionState::default()),
            family,
            caller: None,
            record: Some(record),
            unread: false,
            is_labelled_form: false,
            passed: HeaderMap::new(),
            is_poison: false,
            by_socket: true,
            share: None,
            standing: None,
        };
        this.recognise(head)?;
        Ok(this)
    }

    pub(super) fn admit(&self) -> Result<(), Fault> {
        let app = &self.app;
        if app.is_draining() && app.refuses() {
            return Err(Fault::Draining);
        }
        let most = i64::try_from(app.config.limits.requests).unwrap_or(i64::MAX);
        // What is made in the background has limits of its own.
        let waiting = app.requests.value() - app.runs.places();
        if waiting > most || app.budget.is_short() { Err(Fault::Overloaded) } else { Ok(()) }
    }

    /// What the operator says of requests.
    pub(super) fn rules(&self) -> &Arc<Rules> {
        &self.app.config.rules
    }

    pub(super) async fn body(&mut self, body: Option<Incoming>, limit: usize) -> Result<Bytes, Failure> {
        let app = &self.app;
        let bytes = match body {
            None => Bytes::new(),
            Some(body) => {
                let (bytes, share) = tokio::select! {
                    read = body::read(body, limit, app) => read?,
                    () = app.cut() => return Err(Fault::Draining.into()),
                };
                BudgetShare::hold(self.share.insert(Arc::new(share)), bytes)
            }
        };
        self.unread = false;
        self.busy.has_read();
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

    /// The same bytes, counted among those of bodies.
    pub(super) fn counted(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        let share = self.app.budget.share(body.len())?;
        Ok(BudgetShare::hold(self.share.insert(Arc::new(share)), body))
    }

    pub(super) fn object(&mut self, bytes: Bytes) -> Response<Body> {
        let response = match &mut self.record {
            Some(record) => {
                record.answered(200);
                record.completed();
                record.bytes = bytes.len();
                let head = headers::Success {
                    request_id: &record.request_id,
                    passed: &self.passed,
                    attempts: record.attempts,
                };
                head.object(record.started.elapsed())
            }
            None => Response::new(()),
        };
        response.map(|()| Body::full(bytes))
    }

    /// The ids, the time and the seed for an answer.
    pub(super) fn stamp(&self) -> Stamp {
        let request_id = self.record.as_ref().map(|record| record.request_id.as_str().into());
        Stamp { request_id, ..self.chance.stamp() }
    }

    pub(super) fn refuse(&mut self, failure: &Failure) -> Response<Body> {
        let Some(record) = &mut self.record else { return bare(StatusCode::INTERNAL_SERVER_ERROR) };
        let key = self.caller.as_ref().map(|caller| caller.place);
        let failure = &match &record.upstream {
            Some(upstream) => {
                let model = record.asked_model();
                let policy = self.app.pool.options(upstream, model, key).engine_errors;
                failure.clone().disclosed(policy, model, &record.request_id)
            }
            None => failure.clone(),
        };
        let refusal = headers::Refusal {
            failure,
            is_final: failure.is_final() || self.is_poison,
            passed: &self.passed,
            attempts: record.attempts,
            elapsed: record.started.elapsed(),
        };
        let response = refusal.response(&record.request_id);
        record.answered(failure.status);
        record.failed(failure);
        record.bytes = response.body().len();
        response.map(Body::full)
    }
}
