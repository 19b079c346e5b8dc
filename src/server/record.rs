//! Record of one request for log, metrics and trace: written exactly once, when the request is dropped, wherever
//! that happens.

use super::App;
use super::admit::quota::{Admission, Ticket};
use super::headers::{ErrorResponse, Success};
use super::net::connection_state::ConnectionState;
use super::net::upload_progress::UploadProgress;
use super::protocol::Protocol;
use super::running::{RegistryEntry, RequestFacts, RequestOutcome};
use super::storage::stored_answer::StoredAnswer;
use crate::auth::Caller;
use crate::capture::{ExchangeOutcome, Recording, RequestInfo, redacted_target};
use crate::error::{Error, Side};
use crate::request::EngineBody;
use crate::secret::Secret;
use crate::telemetry::{
    End, FinishedRequest, RequestMeasures, RouteLabel, Trace, excerpt, fitting, redacted,
};
use crate::upstream::{Upstream, other_model};
use crate::wire::Summary;
use crate::wire::disclosure::{hide_key, without_key};
use crate::wire::event::Usage;
use crate::wire::fault::{Failure, Fault};
use crate::wire::rule::Rule;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, request};
use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Log note for a request whose body has the content type that `curl -d` sends.
const LABELLED_FORM: &str =
    "content-type application/x-www-form-urlencoded: read as application/json";

/// Limit for text of clients in the log, in bytes: a path, the name of a model, a message.
const LONGEST: usize = 256;
/// Limit for an error code in the log.
const CODE: usize = 64;
/// Limit for an engine's error text in the log, in bytes.
const ENGINE_ERROR: usize = 512;

/// Target and sender of a request, and what the log says of its attempts.
#[derive(Default)]
struct RequestLine {
    method: Method,
    path: Arc<str>,
    /// Address of the client.
    peer: Option<SocketAddr>,
    /// Header with the client's key, which the log must not repeat.
    key: Option<HeaderValue>,
    /// Model by the client's name for it, known or not.
    model: Option<Arc<str>>,
    /// Outcomes of the attempts, once one has failed.
    outcomes: String,
    /// Message of samewire's own refusal, and the parameter that it names.
    refusal: Option<(String, Option<String>)>,
    /// Status of an engine's error, and its text without what it repeats of the request.
    engine: Option<(Option<u16>, String)>,
}

/// Data of a request collected while it runs; dropping the record writes the log line and the metrics.
pub(super) struct Record {
    pub(super) app: Arc<App>,
    pub(super) route: RouteLabel,
    /// Protocol in which the client speaks.
    pub(super) protocol: Protocol,
    pub(super) request_id: Arc<str>,
    pub(super) started: Instant,
    /// Time of the engine's end, while the answer waits for outputs: what follows is no time of this engine request.
    paused: Option<Instant>,
    /// Trace that the request is part of, where there is one.
    pub(super) trace: Option<Arc<Trace>>,
    /// Caller, where keys are checked.
    pub(super) caller: Option<Arc<Caller>>,
    /// Quota ticket, where the key has a quota.
    pub(super) ticket: Option<Ticket>,
    /// Status sent to the client.
    status: Option<u16>,
    /// Type or code of the error.
    code: Option<String>,
    side: Option<Side>,
    cause: Option<Box<Cow<'static, str>>>,
    /// Result of the request if it ended now.
    end: End,
    pub(super) model: Arc<str>,
    /// Engines' name of the model that the last attempt requested, if the client's name means other models.
    pub(super) served: Option<Arc<str>>,
    /// Upstream of the last attempt.
    pub(super) upstream: Option<Arc<Upstream>>,
    pub(super) attempts: u32,
    request_bytes: usize,
    /// Progress of a body that is relayed without being kept.
    pub(super) uploaded: Option<Arc<UploadProgress>>,
    /// True if the body was labelled as a form and read as JSON.
    pub(super) labelled_form: bool,
    pub(super) bytes: usize,
    pub(super) first_token: Option<Duration>,
    pub(super) rewriting: Duration,
    pub(super) planning: Duration,
    summary: Summary,
    /// Excerpt of the body, where contents are logged.
    content: Option<String>,
    /// Recording of the exchange, if it is captured.
    pub(super) recording: Option<Arc<Recording>>,
    line: RequestLine,
    /// Count of the answer, if it is read from the store.
    stored: Option<StoredAnswer>,
    /// Entry in the registry of running requests; `None` once the request has ended.
    entry: Option<RegistryEntry>,
}

impl Record {
    pub(super) fn new(app: &Arc<App>, route: RouteLabel, request_id: Arc<str>) -> Self {
        app.running.requests.add(1);
        if let Some(gauge) = app.metrics.in_flight(route) {
            gauge.add(1);
        }
        let entry = app.running.registry.begin(Arc::clone(&request_id));
        Self {
            entry: Some(entry),
            app: Arc::clone(app),
            route,
            protocol: Protocol::default(),
            request_id,
            started: Instant::now(),
            paused: None,
            trace: None,
            caller: None,
            ticket: None,
            status: None,
            code: None,
            side: None,
            cause: None,
            end: End::ClientClosed,
            model: other_model(),
            served: None,
            upstream: None,
            attempts: 0,
            request_bytes: 0,
            uploaded: None,
            labelled_form: false,
            bytes: 0,
            first_token: None,
            rewriting: Duration::ZERO,
            planning: Duration::ZERO,
            summary: Summary::default(),
            content: None,
            recording: None,
            line: RequestLine::default(),
            stored: None,
        }
    }

    /// Notes that the answer waits for outputs, for another engine request to continue it. The key is charged now, and may
    /// send other requests meanwhile. Returns the admission for the next engine request, where the key has a quota.
    pub(super) fn pause(&mut self, usage: Option<Usage>) -> Option<Admission> {
        self.paused = Some(Instant::now());
        let ticket = self.ticket.take()?;
        let tokens = usage.map_or(0, |usage| usage.total);
        ticket.charge(tokens, true, self.app.store_handle.now());
        Some(ticket.admission())
    }

    /// Notes that the answer ends without another engine request.
    pub(super) fn resume(&mut self) {
        self.paused = None;
    }

    /// Returns the record of a further engine request for the same client request, which is counted and logged for
    /// itself.
    pub(super) fn of_next_round(&self) -> Self {
        let mut next = Self::new(&self.app, self.route, Arc::clone(&self.request_id));
        next.protocol = self.protocol;
        next.authenticated(self.caller.clone());
        next.model = Arc::clone(&self.model);
        next.served.clone_from(&self.served);
        next
    }

    /// Notes that an answer begins which is read from the store and sent.
    pub(super) fn answered_from_store(&mut self) {
        self.answered(200);
        self.stored = Some(StoredAnswer::of_record(&self.app));
    }

    /// Sets the protocol in which the client speaks.
    pub(super) fn in_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Adds target and sender of the request.
    pub(super) fn with_request(mut self, head: &request::Parts) -> Self {
        let peer = head
            .extensions
            .get::<ConnectionState>()
            .and_then(ConnectionState::peer);
        let path: Arc<str> = limited(head.uri.path()).into();
        self.publish(|facts| (facts.method, facts.path) = (head.method.clone(), Arc::clone(&path)));
        let key = ["authorization", "api-key", "x-api-key"]
            .iter()
            .find_map(|name| head.headers.get(*name));
        let (method, key) = (head.method.clone(), key.cloned());
        self.line = RequestLine {
            method,
            path,
            peer,
            key,
            ..RequestLine::default()
        };
        self
    }

    /// Returns the client's name for the model; empty if not known.
    pub(super) fn requested_model(&self) -> &str {
        self.line.model.as_deref().unwrap_or_default()
    }

    /// Returns this name of a model in the memory in which the record keeps it, if it does.
    pub(super) fn shared_name(&self, model: &str) -> Option<Arc<str>> {
        self.line
            .model
            .as_ref()
            .filter(|own| ***own == *model)
            .cloned()
    }

    /// Notes the client's name for the model.
    pub(super) fn named(&mut self, model: &str) {
        let model: Arc<str> = limited(model).into();
        self.line.model = Some(Arc::clone(&model));
        self.publish(|facts| facts.model = Some(Arc::clone(&model)));
        if let Some(recording) = &self.recording {
            recording.update(|info| info.model = model.to_string());
        }
    }

    /// Notes the caller.
    pub(super) fn authenticated(&mut self, caller: Option<Arc<Caller>>) {
        self.publish(|facts| facts.key = caller.as_deref().map(|caller| Arc::clone(&caller.name)));
        self.caller = caller;
    }

    /// Notes the upstream of an attempt, and how many attempts there have been.
    pub(super) fn sent_to(&mut self, upstream: &Arc<Upstream>, attempts: u32) {
        let engine = upstream.identity().engine.name;
        self.publish(|facts| facts.upstream = Some((Arc::clone(&upstream.figures.name), engine)));
        self.upstream = Some(Arc::clone(upstream));
        self.attempts = attempts;
        self.entry
            .iter()
            .for_each(|entry| entry.attempted(attempts));
    }

    /// Notes for operators how far the answer is. `chunks`: the events that the engine has sent.
    pub(super) fn progressed(&self, chunks: u64) {
        if let Some(entry) = &self.entry {
            entry.attempted(self.attempts);
            entry.progress(self.first_token, chunks, self.bytes);
        }
    }

    fn publish(&self, change: impl FnOnce(&mut RequestFacts)) {
        if let Some(entry) = &self.entry {
            entry.update(change);
        }
    }

    /// Counts a finished attempt with the error that ended it. `request` is the body that was sent.
    pub(super) fn ended(
        &mut self,
        upstream: &Upstream,
        error: Option<&Error>,
        request: &EngineBody,
    ) {
        if let Some(error) = error {
            self.note_engine_error(&error.public, &request.joined());
        }
        self.attempted(upstream, error.map(|error| &error.public));
    }

    /// Counts a finished attempt; `failure` is the reason why it failed.
    pub(super) fn attempted(&mut self, upstream: &Upstream, failure: Option<&Failure>) {
        let outcome = failure.map_or("ok", |failure| failure.code.as_deref().unwrap_or("refused"));
        if let Some(failure) = failure {
            self.cause.clone_from(&failure.cause);
        }
        self.app.metrics.attempt(&upstream.figures, outcome);
        let Self {
            request_id,
            line,
            cause,
            ..
        } = self;
        if outcome == "ok" {
            // Earlier errors have not ended the request.
            (*cause, line.engine) = (None, None);
        }
        // The code may come from an engine.
        let (upstream, outcome, cause) = (
            &upstream.config.name,
            fitting(outcome, CODE),
            cause.as_deref().map(|cause| &**cause),
        );
        let status = failure.and_then(|failure| failure.engine.as_ref()?.status);
        tracing::debug!(
            request_id = &**request_id,
            upstream,
            outcome,
            status,
            cause,
            "an attempt is over"
        );
        // A request without a failed attempt has no history.
        let is_plain = outcome == "ok" && line.outcomes.is_empty();
        if !is_plain && line.outcomes.len() < LONGEST {
            let separator = if line.outcomes.is_empty() { "" } else { ", " };
            let _ = write!(line.outcomes, "{separator}{upstream}: {outcome}");
            let _ = match (cause, status) {
                (Some(cause), _) => write!(line.outcomes, " ({cause})"),
                (None, Some(status)) => write!(line.outcomes, " (HTTP {status})"),
                (None, None) => Ok(()),
            };
        }
    }

    /// Counts the start of another attempt.
    pub(super) fn begins_again(&mut self, upstream: &Arc<Upstream>) {
        self.sent_to(upstream, self.attempts + 1);
        (self.cause, self.line.engine) = (None, None);
    }

    /// Adds the request to the trace that its headers name, or to a new one.
    pub(super) fn traced(mut self, head: &request::Parts) -> Self {
        self.trace = self.app.tracer.begin(&head.headers, &head.method);
        self
    }

    /// Notes the bytes of a body that is not kept.
    pub(super) fn has_taken(&mut self, bytes: u64) {
        self.request_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }

    /// Notes the body that was read, and records it.
    pub(super) fn has_read(&mut self, body: &[u8]) {
        if let Some(recording) = &self.recording {
            recording.body(body);
        }
        self.note_body(body);
    }

    /// Notes the size of the body, and an excerpt where contents are logged.
    pub(super) fn note_body(&mut self, body: &[u8]) {
        self.request_bytes = body.len();
        self.content = self.app.config.log.content.then(|| excerpt(body));
    }

    /// Notes the status sent to the client.
    pub(super) fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Returns the head of a successful response, which passes on these headers of the engine.
    pub(super) fn success<'h>(&'h self, passed: &'h HeaderMap) -> Success<'h> {
        Success {
            request_id: &self.request_id,
            passed,
            attempts: self.attempts,
            model: self.served.as_deref(),
        }
    }

    /// Returns the response that reports a failure. `is_final`: whatever it is, a retry cannot succeed.
    pub(super) fn error_response(
        &mut self,
        failure: &Failure,
        is_final: bool,
        passed: &HeaderMap,
    ) -> Response<Bytes> {
        let error = ErrorResponse {
            protocol: self.protocol,
            failure,
            is_final: failure.is_final() || is_final,
            passed,
            attempts: self.attempts,
            elapsed: self.started.elapsed(),
        };
        let response = error.response(&self.request_id);
        self.answered(response.status().as_u16());
        self.bytes = response.body().len();
        response
    }

    /// Notes that the whole answer has been handed over.
    pub(super) fn completed(&mut self) {
        self.end = End::Complete;
    }

    /// Notes an error that the client received, as the answer or within it.
    pub(super) fn failed(&mut self, failure: &Failure) {
        let draining = failure.fault == Fault::Draining;
        self.end = if draining { End::Draining } else { End::Error };
        self.code = Some(
            failure
                .code
                .as_ref()
                .unwrap_or(&failure.kind)
                .chars()
                .take(CODE)
                .collect(),
        );
        self.side = Some(Side::of(failure));
        match &failure.engine {
            Some(engine) if self.line.engine.is_none() => {
                let text = redacted(
                    &self.without_own_keys(&engine.text),
                    None,
                    self.requested_model(),
                );
                self.line.engine = Some((engine.status, fitting(&text, ENGINE_ERROR).to_owned()));
            }
            Some(_) => {}
            // The message about an invalid key contains some of its characters.
            None if failure.status < 500 && failure.fault != Fault::InvalidApiKey => {
                self.line.refusal = Some((
                    limited(&failure.message).into_owned(),
                    failure
                        .param
                        .as_deref()
                        .map(|param| limited(param).into_owned()),
                ));
            }
            None => {}
        }
    }

    /// Notes an engine's error while its request is at hand, so that the log omits what the text repeats of the
    /// request.
    pub(super) fn note_engine_error(&mut self, failure: &Failure, request: &[u8]) {
        if let Some(engine) = &failure.engine {
            let text = self.without_own_keys(&engine.text);
            let text = match self.app.config.log.content {
                true => text,
                false => redacted(&text, Some(request), self.requested_model()),
            };
            tracing::debug!(
                request_id = &*self.request_id,
                status = engine.status,
                text,
                "an engine's error"
            );
            self.line.engine = Some((engine.status, fitting(&text, ENGINE_ERROR).to_owned()));
        }
    }

    /// Returns samewire's own key, if the upstream receives it.
    fn own_key(&self) -> Option<&Secret> {
        self.upstream.as_ref()?.config.auth.own_key()
    }

    /// Returns a failure that the upstream reported, without samewire's own key, which is not for clients.
    pub(super) fn without_own_key(&self, failure: Failure) -> Failure {
        match self.own_key() {
            Some(key) => hide_key(failure, &key.bytes()),
            None => failure,
        }
    }

    /// Returns the text without the client's key, and without the one that the upstream gets.
    fn without_own_keys(&self, text: &str) -> String {
        let own = self.own_key().map(Secret::value);
        let keys = own.as_ref().into_iter().chain(&self.line.key);
        keys.fold(text.to_owned(), |text, key| {
            without_key(&text, key.as_bytes())
        })
    }

    /// Records what an answer has cost that only counted tokens.
    pub(super) fn used(&mut self, usage: Usage) {
        self.summary.usage = Some(usage);
    }

    pub(super) fn summarised(&mut self, summary: Summary) {
        if let Some((upstream, unparsed)) = self.upstream.as_ref().zip(summary.unparsed) {
            upstream.report_unparsed(unparsed);
        }
        let model = || {
            let requested = self.line.model.as_ref().unwrap_or(&self.model);
            let name = self.served.as_ref().unwrap_or(requested);
            self.app.pool.engine_name(name)
        };
        if let Some((upstream, unread)) = self.upstream.as_ref().zip(summary.unread) {
            upstream.report_unread(unread, model());
        }
        if let Some(upstream) = &self.upstream
            && summary.reasoning_was_separate
        {
            upstream.note_separate_reasoning(model());
        }
        if let Some(upstream) = &self.upstream
            && !summary.template.is_empty()
        {
            upstream.note_template(model(), summary.template);
        }
        self.summary = summary;
    }

    fn log(&self, total: Duration) {
        let caller = self.caller.as_deref();
        // Only names given by operators; the name of a tenant without one is derived from a hash.
        let tenant = caller
            .filter(|caller| caller.has_named_tenant)
            .map(|caller| &*caller.tenant);
        let key = caller.map(|caller| &*caller.name);
        let line = &self.line;
        let is_unauthorised = self.status == Some(401) && self.attempts == 0;
        // Clients that try keys must be distinguishable, even where addresses are not logged.
        let peer = line
            .peer
            .filter(|_| self.app.config.log.peer || is_unauthorised);
        let (engine_status, engine_error) = match &line.engine {
            Some((status, text)) => (*status, Some(text.as_str()).filter(|text| !text.is_empty())),
            None => (None, None),
        };
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    request_id = &*self.request_id,
                    trace_id = self.trace.as_ref().map(|trace| trace.id()),
                    tenant,
                    key,
                    route = self.route.name(),
                    method = line.method.as_str(),
                    path = &*line.path,
                    peer = peer.map(tracing::field::display),
                    model = line.model.as_deref().unwrap_or(&self.model),
                    served_model = self.served.as_deref(),
                    status = self.status.unwrap_or(499),
                    code = self.code,
                    param = line
                        .refusal
                        .as_ref()
                        .and_then(|refusal| refusal.1.as_deref()),
                    error = line.refusal.as_ref().map(|refusal| refusal.0.as_str()),
                    engine_status,
                    engine_error,
                    cause = self.cause.as_deref().map(|cause| &**cause),
                    end = self.end.name(),
                    attempts = self.attempts,
                    upstream = self
                        .upstream
                        .as_ref()
                        .map(|upstream| upstream.config.name.as_str()),
                    upstreams =
                        Some(line.outcomes.as_str()).filter(|outcomes| !outcomes.is_empty()),
                    request_bytes = self
                        .uploaded
                        .as_ref()
                        .map_or(self.request_bytes, |uploaded| uploaded.bytes()),
                    bytes = self.bytes,
                    prompt_tokens = self.summary.usage.as_ref().map(|usage| usage.prompt),
                    completion_tokens = self.summary.usage.as_ref().map(|usage| usage.completion),
                    first_token_ms = self.first_token.map(milliseconds),
                    total_ms = milliseconds(total),
                    rewrites = self
                        .summary
                        .tally
                        .iter()
                        .map(|(_, times)| u64::from(times))
                        .sum::<u64>(),
                    rules = rules(&self.summary).map(tracing::field::display),
                    note = self.labelled_form.then_some(LABELLED_FORM),
                    content_logged = self.app.config.log.content.then_some(true),
                    content = self.content,
                    "request"
                )
            };
        }
        if self.summary.tally.times(Rule::FinishUnknown) > 0 {
            tracing::warn!(
                request_id = &*self.request_id,
                "the engine ended with a word that is not known; it was taken for stop"
            );
        }
        match self.side.filter(|_| self.end == End::Error) {
            // A bug. At its limits the proxy works as designed.
            Some(Side::Proxy) if self.status == Some(500) => line!(error),
            Some(Side::Proxy | Side::Upstream) => line!(warn),
            _ if is_unauthorised => line!(warn),
            _ => line!(info),
        }
    }
}

impl Record {
    /// Begins to record the exchange, if requests are captured or this one is to be.
    pub(super) fn capture(&mut self, head: &request::Parts, is_wanted: bool) {
        if self.recording.is_some() {
            return;
        }
        let path = || redacted_target(head.uri.path_and_query().map_or("", PathAndQuery::as_str));
        let info = || RequestInfo {
            id: self.request_id.to_string(),
            number: self.entry.as_ref().map_or(0, RegistryEntry::number),
            method: head.method.to_string(),
            path: path(),
            key: self.caller.as_deref().map(|caller| caller.name.to_string()),
            ..RequestInfo::default()
        };
        self.recording = Recording::begin(&self.app.captures, info, is_wanted);
        if let Some(recording) = &self.recording {
            self.entry.iter().for_each(RegistryEntry::captured);
            recording.head(
                &format!("{} {} {:?}", head.method, path(), head.version),
                &head.headers,
            );
        }
    }

    fn outcome(&self) -> ExchangeOutcome {
        ExchangeOutcome {
            end: self.end.name(),
            status: self.status.unwrap_or(499),
            code: self.code.clone(),
            rules: applied_rules(&self.summary).collect(),
        }
    }

    /// Moves the request's entry to those that have ended.
    fn end_entry(&mut self, total: Duration) {
        let Some(entry) = self.entry.take() else {
            return;
        };
        let outcome = RequestOutcome {
            end: self.end.name(),
            side: self
                .side
                .or_else(|| (self.end == End::ClientClosed).then_some(Side::Client)),
            status: self.status,
            code: self.code.clone(),
        };
        entry.end(outcome, |numbers| {
            numbers.attempts = self.attempts;
            numbers.first_token = self.first_token;
            numbers.bytes = self.bytes as u64;
            numbers.total = total;
            if let Some(usage) = self.summary.usage {
                numbers.tokens = usage.completion;
            }
        });
    }

    /// Returns the data of the request for its trace. It contains only known words: an unknown error code becomes
    /// `_OTHER`.
    fn trace_data(&mut self, trace: Arc<Trace>) -> FinishedRequest {
        let code = self
            .code
            .as_deref()
            .and_then(Fault::of_code)
            .and_then(Fault::code);
        FinishedRequest {
            trace,
            route: self.route,
            request_id: Arc::clone(&self.request_id),
            status: self.status.unwrap_or(499),
            end: self.end,
            code: code.or_else(|| self.code.as_ref().map(|_| "_OTHER")),
            by_engine: self.end == End::Error && self.side == Some(Side::Upstream),
            model: Arc::clone(&self.model),
            engine: self
                .upstream
                .as_ref()
                .map_or("none", |upstream| upstream.identity().engine.name),
            usage: self.summary.usage,
            finishes: self
                .summary
                .finishes
                .iter()
                .map(|finish| finish.as_str())
                .collect(),
            first_token: self.first_token,
            started: self.started,
            ended: (Instant::now(), SystemTime::now()),
        }
    }
}

/// Returns the rules that changed the request or repaired the answer, with their counts.
fn applied_rules(summary: &Summary) -> impl Iterator<Item = (&'static str, u32)> {
    let adapted = summary.adapted.iter().map(|name| (*name, 1));
    adapted.chain(
        summary
            .tally
            .iter()
            .map(|(rule, times)| (rule.name(), times)),
    )
}

/// Lists the rules that changed the request or repaired the answer, each with its count if above one; `None` if there
/// are none.
fn rules(summary: &Summary) -> Option<impl Display> {
    applied_rules(summary).next()?;
    Some(fmt::from_fn(|out| {
        for (at, (name, times)) in applied_rules(summary).enumerate() {
            out.write_str(if at > 0 { ", " } else { "" })?;
            out.write_str(name)?;
            if times != 1 {
                write!(out, " {times}")?;
            }
        }
        Ok(())
    }))
}

/// Shortens a client's text to [`LONGEST`] bytes.
fn limited(text: &str) -> Cow<'_, str> {
    let front = fitting(text, LONGEST);
    if front.len() < text.len() {
        format!("{front}…").into()
    } else {
        text.into()
    }
}

/// Returns milliseconds with three decimal places, for human readers.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

impl Drop for Record {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed(&Fault::Proxy.into());
        }
        if let Some(ticket) = &self.ticket {
            let tokens = self.summary.usage.as_ref().map_or(0, |usage| usage.total);
            ticket.charge(tokens, self.attempts > 0, self.app.store_handle.now());
        }
        self.app.running.requests.add(-1);
        let ended = self.paused.unwrap_or_else(Instant::now);
        let total = ended.saturating_duration_since(self.started);
        if let Some(recording) = self.recording.take() {
            recording.finish(self.outcome());
        }
        self.app.metrics.finished(&RequestMeasures {
            route: self.route,
            status: self.status.unwrap_or(499),
            end: self.end,
            model: &self.model,
            key: self.caller.as_deref().map(|caller| &*caller.name),
            upstream: self.upstream.as_ref().map(|upstream| &*upstream.figures),
            engine: self
                .upstream
                .as_ref()
                .map_or("none", |upstream| upstream.identity().engine.name),
            usage: self.summary.usage,
            tally: &self.summary.tally,
            adapted: &self.summary.adapted,
            total,
            rewriting: self.rewriting,
            planning: self.planning,
        });
        self.end_entry(total);
        // A reader of the line finds the request counted.
        self.log(total);
        if let Some(trace) = self.trace.take() {
            let app = Arc::clone(&self.app);
            app.tracer.finished(&trace, |trace| self.trace_data(trace));
        }
        // Last: once no request is under way, each has been counted and logged.
        if let Some(gauge) = self.app.metrics.in_flight(self.route) {
            gauge.add(-1);
        }
    }
}
