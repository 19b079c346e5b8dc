//! The record of one request: written exactly once, when the request is dropped, wherever that happens.

use super::App;
use super::quota::Ticket;
use super::relayed::Progress;
use crate::auth::Caller;
use crate::error::{Error, Side};
use crate::telemetry::{End, Finished, Route, Told, Trace, excerpt};
use crate::upstream::Upstream;
use crate::wire::Summary;
use crate::wire::fault::{Failure, Fault};
use crate::wire::rule::Rule;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The note in the log on a request whose body has the label that `curl -d` writes.
const LABELLED_FORM: &str = "content-type application/x-www-form-urlencoded: read as application/json";

/// What is known of a request so far.
pub(super) struct Record {
    pub(super) app: Arc<App>,
    pub(super) route: Route,
    pub(super) request_id: String,
    pub(super) started: Instant,
    /// The trace that it is part of, where there is one.
    pub(super) trace: Option<Arc<Trace>>,
    /// Who asks, where keys are checked.
    pub(super) caller: Option<Arc<Caller>>,
    /// What it is counted by, where its key has a quota.
    pub(super) ticket: Option<Ticket>,
    /// The status sent to the client.
    status: Option<u16>,
    /// Type or code of the error.
    code: Option<String>,
    side: Option<Side>,
    cause: Option<String>,
    /// How it would have ended if it ended now.
    end: End,
    pub(super) model: Arc<str>,
    /// Whom it was asked of last.
    pub(super) upstream: Option<Arc<Upstream>>,
    pub(super) attempts: u32,
    request_bytes: usize,
    /// The progress of a body that is passed on without being kept.
    pub(super) uploaded: Option<Arc<Progress>>,
    /// The body came as a form by its label, and was read as JSON.
    pub(super) labelled_form: bool,
    pub(super) bytes: usize,
    pub(super) first_token: Option<Duration>,
    pub(super) rewriting: Duration,
    pub(super) planning: Duration,
    summary: Summary,
    /// What it says, where that is logged.
    content: Option<String>,
}

impl Record {
    pub(super) fn new(app: &Arc<App>, route: Route, request_id: String) -> Self {
        app.requests.add(1);
        if let Some(gauge) = app.metrics.in_flight(route) {
            gauge.add(1);
        }
        Self {
            app: Arc::clone(app),
            route,
            request_id,
            started: Instant::now(),
            trace: None,
            caller: None,
            ticket: None,
            status: None,
            code: None,
            side: None,
            cause: None,
            end: End::ClientClosed,
            model: "other".into(),
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
        }
    }

    /// The same as a part of the trace that its head names, or of a new one.
    pub(super) fn traced(mut self, head: &http::request::Parts) -> Self {
        self.trace = self.app.tracer.begin(&head.headers, &head.method);
        self
    }

    /// Its body has been read.
    pub(super) fn has_read(&mut self, body: &[u8]) {
        self.request_bytes = body.len();
        self.content = self.app.config.log.content.then(|| excerpt(body));
    }

    /// The status has gone out.
    pub(super) fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The whole answer has been handed over.
    pub(super) fn completed(&mut self) {
        self.end = End::Complete;
    }

    /// An error has been handed over, as the answer or in it.
    pub(super) fn failed(&mut self, failure: &Failure) {
        let draining = failure.fault == Fault::Draining;
        self.end = if draining { End::Draining } else { End::Error };
        self.code = Some(failure.code.as_ref().unwrap_or(&failure.kind).chars().take(64).collect());
        self.side = Some(Side::of(failure));
    }

    /// What caused an error, for the log alone.
    pub(super) fn because(&mut self, error: &Error) {
        self.cause = error.source.as_ref().map(ToString::to_string);
    }

    pub(super) fn summarised(&mut self, summary: Summary) {
        if let Some((upstream, unparsed)) = self.upstream.as_ref().zip(summary.unparsed) {
            upstream.left(unparsed);
        }
        if let Some(upstream) = self.upstream.as_ref().filter(|_| summary.told_reasoning) {
            upstream.tell_reasoning();
        }
        self.summary = summary;
    }

    fn log(&self, total: Duration) {
        let caller = self.caller.as_deref();
        // The names that operators gave. What stands for a tenant without one is made of a hash.
        let tenant = caller.filter(|caller| caller.named).map(|caller| &*caller.tenant);
        let key = caller.map(|caller| &*caller.name);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    request_id = self.request_id,
                    trace_id = self.trace.as_ref().map(|trace| trace.id()),
                    tenant,
                    key,
                    route = self.route.name(),
                    model = &*self.model,
                    status = self.status.unwrap_or(499),
                    code = self.code,
                    cause = self.cause,
                    end = self.end.name(),
                    attempts = self.attempts,
                    upstream = self.upstream.as_ref().map(|upstream| upstream.config.name.as_str()),
                    request_bytes =
                        self.uploaded.as_ref().map_or(self.request_bytes, |uploaded| uploaded.bytes()),
                    bytes = self.bytes,
                    prompt_tokens = self.summary.usage.as_ref().map(|usage| usage.prompt),
                    completion_tokens = self.summary.usage.as_ref().map(|usage| usage.completion),
                    first_token_ms = self.first_token.map(milliseconds),
                    total_ms = milliseconds(total),
                    rewrites = self.summary.tally.iter().map(|(_, times)| u64::from(times)).sum::<u64>(),
                    note = self.labelled_form.then_some(LABELLED_FORM),
                    content_logged = self.app.config.log.content.then_some(true),
                    content = self.content,
                    "request"
                )
            };
        }
        if self.summary.tally.times(Rule::FinishUnknown) > 0 {
            tracing::warn!(
                request_id = self.request_id,
                "the engine ended with a word that is not known; it was taken for stop"
            );
        }
        match self.side.filter(|_| self.end == End::Error) {
            // A bug. At its limits the proxy does as it should.
            Some(Side::Proxy) if self.status == Some(500) => line!(error),
            Some(Side::Proxy | Side::Upstream) => line!(warn),
            _ => line!(info),
        }
    }
}

impl Record {
    /// The same for whoever collects traces, with nothing in it but words that are known here.
    fn told(&mut self, trace: Arc<Trace>) -> Told {
        let code = self.code.as_deref().and_then(Fault::of_code).and_then(Fault::code);
        Told {
            trace,
            route: self.route,
            request_id: std::mem::take(&mut self.request_id),
            status: self.status.unwrap_or(499),
            end: self.end,
            code: code.or_else(|| self.code.as_ref().map(|_| "_OTHER")),
            by_engine: self.end == End::Error && self.side == Some(Side::Upstream),
            model: Arc::clone(&self.model),
            engine: self.upstream.as_ref().map_or("none", |upstream| upstream.identity().engine.name),
            usage: self.summary.usage,
            finishes: self.summary.finishes.iter().map(|finish| finish.word()).collect(),
            first_token: self.first_token,
            started: self.started,
            ended: (Instant::now(), SystemTime::now()),
        }
    }
}

/// With three places: the figures are read by people.
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
            ticket.charge(tokens, self.attempts > 0, self.app.shelf.now());
        }
        self.app.requests.add(-1);
        if let Some(gauge) = self.app.metrics.in_flight(self.route) {
            gauge.add(-1);
        }
        let total = self.started.elapsed();
        self.log(total);
        self.app.metrics.finished(&Finished {
            route: self.route,
            status: self.status.unwrap_or(499),
            end: self.end,
            model: &self.model,
            key: self.caller.as_deref().map(|caller| &*caller.name),
            upstream: self.upstream.as_ref().map(|upstream| &*upstream.figures),
            engine: self.upstream.as_ref().map_or("none", |upstream| upstream.identity().engine.name),
            usage: self.summary.usage,
            tally: &self.summary.tally,
            fitted: &self.summary.fitted,
            total,
            rewriting: self.rewriting,
            planning: self.planning,
        });
        if let Some(trace) = self.trace.take() {
            let app = Arc::clone(&self.app);
            app.tracer.finished(&trace, |trace| self.told(trace));
        }
    }
}
