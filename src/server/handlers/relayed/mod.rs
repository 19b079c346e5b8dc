//! Routes whose request and answer bodies pass through (docs/guide.md#relayed-routes); only the model's name may be
//! replaced. This module has their paths, the part of a body that is held before an engine is chosen, and the
//! attempts.
//!
//! A body is held until its model is known, and completely if it is short: then it can be sent to another
//! upstream. The rest is sent as it arrives, and once a piece of that has been sent the request stays with its
//! upstream.

mod client_body;

use super::pass_through::{ActiveExchange, PassThrough, StartedAnswer};
use crate::config::Relayed;
use crate::error::{Error, RetryClass};
use crate::request::relayed::Scan;
use crate::server::admit::azure::RouteFamily;
use crate::server::admit::body::Body;
use crate::server::admit::browsers::single_value;
use crate::server::admit::budget::BudgetShare;
use crate::server::admit::headers::{self, Success};
use crate::server::context::RequestContext;
use crate::server::relay::attempt::{AttemptTarget, Sender, failure_of, name_missing_route, report_outcome};
use crate::server::relay::selection::UpstreamSelection;
use crate::upstream::{Outgoing, Read, Upload, Upstream};
use crate::wire::fault::{Failure, Fault, Unusable};
use axum::body::Body as Incoming;
use bytes::{Bytes, BytesMut};
use client_body::ClientBody;
pub(in crate::server) use client_body::Progress;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, request};
use http_body::Body as _;
use std::fmt::Write as _;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Largest body that is held completely, so that it can be sent again, in bytes.
const HELD_WHOLE_BYTES: usize = 256 << 10;
/// Bytes searched for the model where it does not affect the choice of an upstream.
const MODEL_SEARCH_BYTES: usize = 64 << 10;

/// Maps a path to the route family and the engine's path of a relayed route; `None` if it is not one.
pub(in crate::server) fn find(path: &str, relayed: &Relayed) -> Option<(RouteFamily, String)> {
    let of_deployment = || path.strip_prefix("/openai/deployments/")?.split_once('/').map(|(_, rest)| rest);
    let below = |family, rest: Option<&str>| rest.map(|rest| (family, format!("/v1/{rest}")));
    let ways = [
        Some((RouteFamily::Plain, path.to_owned())),
        below(RouteFamily::Undated, path.strip_prefix("/openai/v1/")),
        below(RouteFamily::Deployment, of_deployment()),
        below(RouteFamily::Dated, path.strip_prefix("/openai/")),
    ];
    ways.into_iter().flatten().find(|(_, path)| relayed.has(path))
}

/// Held part of a request's body, and the rest that is still to come.
struct HeldBody {
    front: Bytes,
    scan: Scan,
    /// Rest of the body, still to come.
    rest: Option<ClientBody>,
    /// Bytes of the rest, if declared.
    rest_length: Option<u64>,
}

/// Model that a request is for, and whether the body sent to the engine must name it.
#[derive(Default)]
struct RequestedModel {
    /// Client's name for the model; empty if the engine chooses.
    model: String,
    /// True if the body sent to the engine must name the model.
    must_name: bool,
}

/// Failed attempt of which the client has received nothing.
struct FailedAttempt {
    error: Error,
    /// Status of the engine's answer, if that was an error.
    status: Option<u16>,
    passed: HeaderMap,
}

impl From<Error> for FailedAttempt {
    fn from(error: Error) -> Self {
        Self { error, status: None, passed: HeaderMap::new() }
    }
}

impl RequestContext {
    /// Serves a request for a relayed route. Fails if the body or its model is not acceptable, or all attempts
    /// have failed.
    pub(in crate::server) async fn relayed(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        headers::check_relayed(&head.headers)?;
        let Some((_, path)) = find(head.uri.path(), &self.app.config.relayed) else {
            return Err(Fault::UnknownUrl.into());
        };
        let mut held = self.hold_body(head, body).await?;
        let RequestedModel { model, must_name: is_written } = self.find_model(head, &mut held).await?;
        let HeldBody { front, scan, rest, rest_length } = held;
        if let Some(record) = &mut self.record {
            record.model = self.app.pool.label(&model);
        }
        let progress = rest.as_ref().map(ClientBody::progress);
        let upload = rest.map(|rest| Upload::new(rest, rest_length));
        let sender = self.sender(&head.headers);
        let mut selection = self.selection(&model, &head.headers, None, Vec::<&str>::new, Vec::<&str>::new);
        let path = format!("{path}{}", query(head.uri.query(), self.family));
        let (accept, content_type) = (accept(&head.headers), content_type(&head.headers, &scan));
        let request = |to: &AttemptTarget<'_>| {
            let route = sender.route(to, &model);
            let name = route.model_alias.as_deref().unwrap_or(&model);
            let is_named = !is_written || scan.named().is_some_and(|named| named.model == name);
            let renamed = if is_named { None } else { scan.renamed(&front, name) };
            let body = renamed.unwrap_or_else(|| front.clone());
            let outgoing = sender.outgoing(to, "POST", path.clone(), body);
            let (accept, content_type) = (accept.clone(), content_type.clone());
            let upload = upload.as_ref().map(|rest| rest.recorded_by(outgoing.recorder.as_ref()));
            Ok(Outgoing { accept, content_type, upload, ..outgoing })
        };
        let result = self.pass_on(&sender, &mut selection, progress.as_deref(), request).await;
        if let Some(progress) = progress {
            self.unread = !progress.has_ended();
        }
        result
    }

    /// Reads as much of the body as is needed to choose an upstream, or all of it if it is short. Fails if it is
    /// too large.
    async fn hold_body(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<HeldBody, Failure> {
        let label = head.headers.get(CONTENT_TYPE).and_then(|label| label.to_str().ok()).unwrap_or("");
        let scan = Scan::of(label);
        let app = Arc::clone(&self.app);
        let Some(body) = body else {
            self.held_all(&scan, b"");
            return Ok(HeldBody { front: Bytes::new(), scan, rest: None, rest_length: None });
        };
        let limits = &app.config.limits;
        let declared = body.size_hint().exact();
        let length = declared.and_then(|length| usize::try_from(length).ok());
        if length.is_some_and(|length| length > limits.relay_body_bytes) {
            return Err(Fault::TooLarge.into());
        }
        let is_short = length.is_some_and(|length| length <= HELD_WHOLE_BYTES);
        let is_restricted = self.caller.as_ref().is_some_and(|caller| !caller.models.is_empty());
        let decides = is_restricted || app.pool.needs_model() || self.family.deployment(head).is_some();
        let most =
            if decides { limits.relay_buffer_bytes.max(MODEL_SEARCH_BYTES) } else { MODEL_SEARCH_BYTES };
        let mut body = ClientBody::new(body, scan, &app, &self.active_request, self.recording.clone());
        if let Some(record) = &mut self.record {
            record.uploaded = Some(body.progress());
        }
        let mut share = app.budget.share(0)?;
        let mut front = BytesMut::new();
        loop {
            let is_enough = !is_short && (body.scan.is_settled() || front.len() >= most);
            if is_enough && (declared.is_some() || front.len() >= HELD_WHOLE_BYTES) {
                break;
            }
            let piece = tokio::select! {
                piece = std::future::poll_fn(|cx| match body.poll_next(cx) {
                    // Bytes that are already there are held too: they may be the last.
                    Poll::Pending if is_enough => Poll::Ready(None),
                    piece => piece.map(Some),
                }) => piece,
                () = app.cut() => return Err(Fault::Draining.into()),
            };
            let Some(Some(piece)) = piece else { break };
            let piece = piece?;
            share.reach(front.len() + piece.len())?;
            front.extend_from_slice(&piece);
        }
        let front = BudgetShare::hold(self.share.insert(Arc::new(share)), front.freeze());
        let scan = body.scan.clone();
        if body.progress().has_ended() {
            self.held_all(&scan, &front);
            return Ok(HeldBody { front, scan, rest: None, rest_length: None });
        }
        let length = u64::try_from(front.len()).unwrap_or(u64::MAX);
        let rest_length = declared.map(|declared| declared.saturating_sub(length));
        Ok(HeldBody { front, scan, rest: Some(body), rest_length })
    }

    /// Notes that the whole body has been read.
    fn held_all(&mut self, scan: &Scan, body: &[u8]) {
        self.unread = false;
        self.active_request.begin_answer();
        if let Some(record) = &mut self.record {
            // Other types of body are not text.
            record.note_body(if scan.is_json() { body } else { b"" });
        }
    }

    /// Returns the model that a request is for, by the client's name for it; empty if any will do. Fails if the
    /// caller may not use it, or must name one and has not.
    async fn find_model(
        &mut self,
        head: &request::Parts,
        held: &mut HeldBody,
    ) -> Result<RequestedModel, Failure> {
        let is_restricted = self.caller.as_ref().is_some_and(|caller| !caller.models.is_empty());
        let wanted = match (self.family.deployment(head), held.scan.named()) {
            (Some(deployment), _) => RequestedModel { model: deployment, must_name: true },
            (None, Some(named)) if !named.model.is_empty() => {
                RequestedModel { model: named.model.clone(), must_name: true }
            }
            _ => self.default_model_for(&head.headers, held.scan.is_settled(), is_restricted).await?,
        };
        if wanted.model.is_empty() {
            return Ok(wanted);
        }
        self.check_model(&wanted.model)?;
        if held.scan.named().is_none() && wanted.must_name {
            if is_restricted && !held.scan.can_name() {
                let message =
                    "This key may use some models only, and no model can be named in a body of this form.";
                return Err(Failure::from(Fault::MissingParameter).with_message(message).with_param("model"));
            }
            if let Some(rest) = &mut held.rest {
                rest.scan.forbid();
            }
        }
        Ok(wanted)
    }

    /// Returns the model of a request that names none. `is_settled` is true if the rest of the body cannot name
    /// one either. Fails if several could be meant.
    async fn default_model_for(
        &mut self,
        headers: &HeaderMap,
        is_settled: bool,
        is_restricted: bool,
    ) -> Result<RequestedModel, Failure> {
        if let Some([only]) = self.caller.as_ref().map(|caller| caller.models.as_slice()) {
            return Ok(RequestedModel { model: only.clone(), must_name: true });
        }
        if !is_restricted && !self.app.pool.needs_model() {
            return Ok(RequestedModel::default());
        }
        if !is_settled && (is_restricted || !self.app.pool.is_single()) {
            let message = "Missing required parameter: 'model'. Put it before the file and other long parts of the body.";
            return Err(Failure::from(Fault::MissingParameter).with_message(message).with_param("model"));
        }
        match self.default_model(headers).await {
            Ok(Some(model)) => Ok(RequestedModel { model: model.to_string(), must_name: is_restricted }),
            Ok(None) => Ok(RequestedModel::default()),
            // Equivalent engines choose by themselves.
            Err(_) if !is_restricted && self.app.pool.upstream_to_read_for("", self.ids.tie_breaker()).1 => {
                Ok(RequestedModel::default())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Sends the request to one upstream after another, as retries allow, and passes on the first answer that
    /// succeeds. Fails with the last error.
    pub(in crate::server) async fn pass_on(
        &mut self,
        sender: &Sender,
        selection: &mut UpstreamSelection,
        progress: Option<&Progress>,
        mut request: impl FnMut(&AttemptTarget<'_>) -> Result<Outgoing, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let mut underway = ActiveExchange::begin(self.choose(selection)?);
        let mut wait = None;
        loop {
            let upstream = Arc::clone(underway.chosen.upstream());
            let model = Arc::clone(selection.served());
            let first = AttemptTarget::first(&upstream, &model);
            let outgoing = request(&AttemptTarget { attempt: selection.attempts(), ..first })?;
            if let Some(record) = &mut self.record {
                record.sent_to(&upstream, selection.attempts());
            }
            underway.is_over = false;
            let refused = match self.opened(sender, &upstream, &outgoing, progress).await {
                Ok(opened) => return self.response_for(opened, underway, outgoing.upload),
                Err(refused) => refused,
            };
            let FailedAttempt { error, status, passed } = refused;
            report_outcome(&mut underway.chosen, Some(&error.public), status, &passed);
            self.passed = passed;
            if let Some(record) = &mut self.record {
                // A relayed body is not kept, so the error text cannot be compared with it.
                match outgoing.upload {
                    None => record.ended(&upstream, Some(&error), &outgoing.body),
                    Some(_) => record.attempted(&upstream, Some(&error.public)),
                }
            }
            underway.is_over = !matches!(error.public.fault, Fault::Timeout | Fault::Draining);
            drop(underway);
            let has_begun = outgoing.upload.as_ref().is_some_and(Upload::has_begun);
            let error = if has_begun { error.with_class(RetryClass::Never) } else { error };
            underway = ActiveExchange::begin(self.next_upstream(selection, error, &mut wait).await?);
        }
    }

    /// Sends a request and waits until its status is decided: by the first byte of the body, or by
    /// `commit_after_seconds` after the head. Fails on an error, on silence of the engine and on shutdown.
    async fn opened(
        &self,
        sender: &Sender,
        upstream: &Arc<Upstream>,
        outgoing: &Outgoing,
        progress: Option<&Progress>,
    ) -> Result<StartedAnswer, FailedAttempt> {
        let patience = *self.app.config.timeouts.first_token;
        tokio::select! {
            opened = self.open(sender, upstream, outgoing) => opened,
            () = silence(patience, progress) => Err(Error::from(Fault::Timeout).with_class(RetryClass::MaybeProcessed).into()),
            () = self.app.cut() => Err(Error::from(Fault::Draining).into()),
        }
    }

    async fn open(
        &self,
        sender: &Sender,
        upstream: &Arc<Upstream>,
        outgoing: &Outgoing,
    ) -> Result<StartedAnswer, FailedAttempt> {
        let mut answer = sender.client(upstream).send(outgoing).await?;
        let (status, passed) = (answer.head.status, headers::forwarded(&answer.head.headers));
        if status >= 400 {
            let collected = answer.collect(sender.error_bytes()).await;
            let body = if answer.head.is_encoded() {
                BytesMut::new()
            } else {
                collected.unwrap_or_else(|(body, _)| body)
            };
            let failure = failure_of(status, &body, &upstream.config.auth);
            let class = RetryClass::of_answer(status, &failure);
            let error = Error::from(name_missing_route(failure, status, outgoing)).with_class(class);
            return Err(FailedAttempt { error, status: Some(status), passed });
        }
        if !(200..300).contains(&status) {
            return Err(FailedAttempt { passed, ..Error::from(Failure::from(Unusable::Status)).into() });
        }
        let (length, mut first) = (answer.length(), BytesMut::new());
        let reading = std::future::poll_fn(|cx| {
            loop {
                let read = answer.poll_read(cx, &mut |bytes| first.extend_from_slice(bytes));
                match read {
                    Poll::Ready(Ok(Read::More)) if first.is_empty() => {}
                    read => return read,
                }
            }
        });
        let longest = self.app.pool.usual_options(None).commit_after_seconds;
        let read =
            tokio::time::timeout(Duration::from_secs(longest), reading).await.unwrap_or(Ok(Read::More));
        if read.is_err() && first.is_empty() {
            return Err(FailedAttempt { passed, ..Error::from(Fault::Reset).into() });
        }
        Ok(StartedAnswer { answer: Box::new(answer), length, first, read, passed })
    }

    /// Builds the client's response from a started answer.
    fn response_for(
        &mut self,
        opened: StartedAnswer,
        underway: ActiveExchange,
        upload: Option<Upload>,
    ) -> Result<Response<Body>, Failure> {
        let Some(mut record) = self.record.take() else { return Err(Fault::Proxy.into()) };
        let status = opened.answer.head.status;
        record.answered(status);
        record.first_token = (!opened.first.is_empty()).then(|| record.started.elapsed());
        let head = Success {
            request_id: &record.request_id,
            passed: &opened.passed,
            attempts: record.attempts,
            model: record.served.as_deref(),
        };
        let response = head.relayed(status, &opened.answer.head.headers);
        let body = PassThrough::new(opened, underway, (record, self.worker.thread), upload);
        Ok(response.map(|()| Body::arriving(body)))
    }
}

/// Returns when the engine has neither sent a byte nor taken one of the body for `patience`.
async fn silence(patience: Duration, progress: Option<&Progress>) {
    let mut until = Instant::now() + patience;
    loop {
        sleep_until(until).await;
        match progress.map(|progress| progress.moved() + patience) {
            Some(later) if later > until => until = later,
            _ => return,
        }
    }
}

/// Returns the query for the engine, with its question mark; `api-version` is left out on Azure's routes.
fn query(query: Option<&str>, family: RouteFamily) -> String {
    let mut out = String::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        if family != RouteFamily::Plain && pair.split('=').next() == Some("api-version") {
            continue;
        }
        out.push(if out.is_empty() { '?' } else { '&' });
        for byte in pair.bytes() {
            match byte {
                b'!'..=b'~' if byte != b'#' => out.push(char::from(byte)),
                _ => _ = write!(out, "%{byte:02X}"),
            }
        }
    }
    out
}

/// Returns the client's `accept` header, or `*/*` if there is none or more than one.
pub(in crate::server) fn accept(headers: &HeaderMap) -> HeaderValue {
    single_value(headers, &ACCEPT).cloned().unwrap_or(HeaderValue::from_static("*/*"))
}

/// Returns the content type for the engine. JSON may come without one, or with the one that `curl -d` sends.
fn content_type(headers: &HeaderMap, scan: &Scan) -> Option<HeaderValue> {
    let given = headers.get(CONTENT_TYPE);
    let is_form =
        given.is_some_and(|label| label.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    if scan.is_json() && (given.is_none() || is_form) { Some(Outgoing::JSON) } else { given.cloned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_pass_as_they_are() {
        for (given, family, expected) in [
            (None, RouteFamily::Plain, ""),
            (Some(""), RouteFamily::Plain, ""),
            (Some("a=b&c=%20d"), RouteFamily::Plain, "?a=b&c=%20d"),
            (Some("a=b&&api-version=1"), RouteFamily::Plain, "?a=b&api-version=1"),
            (Some("api-version=2024-10-21&a=b"), RouteFamily::Deployment, "?a=b"),
            (Some("api-version=2024-10-21"), RouteFamily::Dated, ""),
            (Some("a=é"), RouteFamily::Plain, "?a=%C3%A9"),
        ] {
            assert_eq!(query(given, family), expected, "{given:?}");
        }
    }
}
