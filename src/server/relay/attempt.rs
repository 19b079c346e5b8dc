//! Attempts: one request is sent to one upstream after another, until one answers or none may be tried any more
//! (faults 7).
//!
//! Takes: the model and the headers of a client's request, and an [`UpstreamRequest`]. Gives: an [`Attempt`] for
//! the relay, or a whole answer. Remembers: the upstreams tried for this request. Never: writes to the client.
//!
//! ```text
//! UpstreamSelection ─→ ChosenUpstream ─→ UpstreamRequest ─→ Attempt ─→ Relay, which returns for the next one
//! ```

use super::priority;
use crate::auth::PriorityRule;
use crate::capture::Recording;
use crate::config::Credentials;
use crate::engine::fallback::Fallbacks;
use crate::error::{Error, RetryClass};
use crate::plan::Route;
use crate::request::EngineBody;
use crate::server::App;
use crate::server::admit::auth::no_such_model;
use crate::server::admit::budget::BudgetShare;
use crate::server::admitted::Admitted;
use crate::server::headers;
use crate::server::ids::IdSource;
use crate::server::net::pending_answer::PendingAnswer;
use crate::server::relay::selection::UpstreamSelection;
use crate::server::reply::ClientReply;
use crate::store::Item;
use crate::telemetry::{Propagation, Trace};
use crate::upstream::{
    Answer, AttemptOutcome, ChosenUpstream, Client, Hops, NoUpstream, Outgoing, Upstream,
};
use crate::wire::disclosure::without_key;
use crate::wire::fault::{Failure, Fault, Unusable};
use crate::wire::options::{Options, Parser, ResponsesDialect};
use crate::wire::{AnswerReader, AnswerWriter, Rewriter};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Value of `retry-after` in seconds when no healthy upstream is left for a model (faults O18).
const RETRY_AFTER_SECONDS: u64 = 5;

/// Sender of all engine requests that serve one client request: the credentials, ids, trace and memory that these
/// requests have in common.
#[derive(Clone)]
pub(in crate::server) struct EngineSender {
    app: Arc<App>,
    /// Index of the worker thread whose connections to engines are used.
    thread: usize,
    ids: IdSource,
    /// Credentials of the client, for upstreams that are configured to receive them.
    authorization: Option<HeaderValue>,
    trace: Propagation,
    /// Loop-detection header: the samewire processes that the request has passed, with this one at the end.
    hops: Hops,
    /// Index of the caller's key in the configuration, which selects its wire options.
    key: Option<usize>,
    /// Rule for the engines' field `priority`, of the caller's key.
    priority: PriorityRule,
    /// Dialect of events that the client requests; `None`: the one in the options.
    pub(in crate::server) dialect: Option<ResponsesDialect>,
    /// Share of the memory budget that the client's body holds. Bodies made from it are about as long, and hold
    /// this share in its place.
    share: Option<Arc<BudgetShare>>,
    /// Recording of the client's request, if it is captured.
    recording: Option<Arc<Recording>>,
}

impl EngineSender {
    /// Returns the sender for all engine requests that serve a request. `share`: of the memory budget, which its body
    /// holds.
    pub(in crate::server) fn new(
        admitted: &Admitted<'_>,
        reply: &ClientReply,
        share: Option<Arc<BudgetShare>>,
    ) -> Self {
        let (identity, headers) = (&admitted.identity, &admitted.head.headers);
        Self {
            app: Arc::clone(admitted.app),
            thread: admitted.worker.thread,
            ids: admitted.ids.clone(),
            authorization: identity.family.authorization(headers),
            trace: Propagation::of(
                reply.record().and_then(|record| record.trace.as_ref()),
                headers,
            ),
            // A request that loops was refused earlier.
            hops: Hops::read(headers).unwrap_or_default(),
            key: identity.key(),
            priority: identity
                .caller
                .as_ref()
                .map(|caller| caller.priority)
                .unwrap_or_default(),
            dialect: None,
            share,
            recording: reply.recording.clone(),
        }
    }

    /// Returns the wire options for an answer of this upstream, with the client's dialect if it requests one.
    pub(in crate::server) fn options(&self, upstream: &Upstream, model: &str) -> Arc<Options> {
        let options = self.app.pool.options(upstream, model, self.key);
        match self.dialect {
            Some(dialect) => Arc::new(Options {
                responses_dialect: dialect,
                ..(*options).clone()
            }),
            None => options,
        }
    }

    /// Returns the route by which a request is planned for this attempt, with the attempt's fallbacks added.
    /// `requested` is the client's name for the model.
    pub(in crate::server) fn route(&self, to: &AttemptTarget<'_>, requested: &str) -> Route {
        let options = self.options(to.upstream, to.model);
        let route = self
            .app
            .pool
            .route(to.upstream, to.model, requested, options);
        Route {
            fallbacks: route.fallbacks.union(to.fallbacks),
            ..route
        }
    }

    /// Has the chat template of the model looked at, if the text of its answers is parsed.
    pub(in crate::server) fn want_template(&self, to: &AttemptTarget<'_>) {
        if self.options(to.upstream, to.model).parser != Parser::Off {
            let name = self.app.pool.engine_name(to.model);
            to.upstream.want_template(name, self.authorization.as_ref());
        }
    }

    /// Switches to another request of the same client. Returns the same trace with new span ids, which later
    /// engine requests use; `None` if there is no trace.
    pub(in crate::server) fn continue_trace(&mut self) -> Option<Arc<Trace>> {
        let trace = self.trace.for_next_request()?;
        self.trace = Propagation::Traced(Arc::clone(&trace));
        Some(trace)
    }

    /// Marks in the trace that several engine requests are sent at once from now on.
    pub(in crate::server) fn mark_concurrent(&self) {
        self.trace.mark_parallel();
    }

    /// Counts `bytes` of a further body for the same client request against the memory budget. Fails if the budget
    /// is exhausted.
    pub(in crate::server) fn count_body(
        &self,
        body: &mut EngineBody,
        bytes: usize,
    ) -> Result<(), Failure> {
        if bytes > 0
            && let share = Arc::new(self.app.admit.budget.share(bytes)?)
            && let Some(piece) = body.pieces_mut().first_mut()
        {
            *piece = BudgetShare::hold(&share, std::mem::take(piece));
        }
        Ok(())
    }

    /// Returns a request to this upstream, with the credentials, the request id and the trace that the upstream is
    /// to receive.
    pub(in crate::server) fn outgoing(
        &self,
        to: &AttemptTarget<'_>,
        method: &'static str,
        path: impl Into<Cow<'static, str>>,
        body: impl Into<EngineBody>,
    ) -> Outgoing {
        let (path, order) = (path.into(), to.upstream.identity().engine.takes.priority);
        let mut body = priority::applied(self.priority, order, &path, body.into());
        if let (Some(share), Some(piece)) = (&self.share, body.pieces_mut().first_mut()) {
            *piece = BudgetShare::hold(share, std::mem::take(piece));
        }
        Outgoing {
            method,
            path,
            accept: Outgoing::JSON,
            content_type: Some(Outgoing::JSON),
            authorization: match &to.upstream.config.auth {
                Credentials::None => None,
                Credentials::Own(key) => Some(key.value()),
                Credentials::Pass => self.authorization.clone(),
            },
            request_id: self.request_id(to),
            is_retry: to.attempt > 1,
            trace: self.trace.clone(),
            hops: self.hops.clone(),
            body,
            upload: None,
            recorder: self.recording.as_ref().map(|recording| {
                recording.attempt(&to.upstream.config.name, to.upstream.identity().engine.name)
            }),
        }
    }

    /// Returns the id of a request to an engine: that of the client's request, the attempt, and the choice if it has
    /// one. Engines identify their work by it, so that concurrent requests need different ids.
    fn request_id(&self, to: &AttemptTarget<'_>) -> String {
        let mut id = String::with_capacity(64);
        self.ids.append_request_id(&mut id);
        let mut number = itoa::Buffer::new();
        for part in [Some(to.attempt), to.choice].into_iter().flatten() {
            id.push('-');
            id.push_str(number.format(part));
        }
        id
    }

    /// Sends a request. Returns the answer, and its headers that are passed to the client. Fails if its status is an error
    /// or no status of an answer, and, unless `is_passed_on`, if it is compressed.
    pub(in crate::server) async fn send(
        &self,
        upstream: &Arc<Upstream>,
        request: &Outgoing,
        is_passed_on: bool,
    ) -> Result<(Answer, HeaderMap), FailedAttempt> {
        let mut answer = upstream.client(self.thread).send(request).await?;
        let (status, passed) = (answer.head.status, headers::forwarded(&answer.head.headers));
        let is_encoded = answer.head.is_encoded();
        if is_encoded && !is_passed_on {
            return Err(FailedAttempt::unusable(Unusable::Compressed, passed));
        }
        if (200..300).contains(&status) {
            return Ok((answer, passed));
        }
        if status < 400 {
            return Err(FailedAttempt::unusable(Unusable::Status, passed));
        }
        let collected = answer.collect(self.error_bytes()).await;
        let body = collected.unwrap_or_else(|(body, _)| body);
        let failure = failure_of(
            status,
            if is_encoded { b"" } else { &body },
            &upstream.config.auth,
        );
        let class = RetryClass::of_answer(status, &failure);
        let error = Error::from(name_missing_route(failure, status, request)).with_class(class);
        Err(FailedAttempt {
            error,
            status: Some(status),
            passed,
        })
    }

    /// Sends a request and reads the whole answer, of at most `limit` bytes. Returns it with its headers that are passed to
    /// the client.
    pub(in crate::server) async fn exchange(
        &self,
        upstream: &Arc<Upstream>,
        request: &Outgoing,
        limit: usize,
    ) -> Result<(Bytes, HeaderMap), FailedAttempt> {
        let (mut answer, passed) = self.send(upstream, request, false).await?;
        if answer.head.status == 204 {
            return Err(FailedAttempt::unusable(Unusable::Status, passed));
        }
        let error = match answer.collect(limit).await {
            Ok(body) => {
                upstream.client(self.thread).give_back(answer);
                return Ok((body.freeze(), passed));
            }
            Err((body, _)) if body.len() < limit => {
                Error::from(Fault::Incomplete).with_class(RetryClass::MaybeProcessed)
            }
            // Too large: another engine would send as much.
            Err(_) => Failure::from(Unusable::TooLarge).into(),
        };
        Err(FailedAttempt {
            error,
            status: None,
            passed,
        })
    }

    /// Returns the limit for the bytes that are read of an engine's error response.
    pub(in crate::server) fn error_bytes(&self) -> usize {
        self.app.config.limits.max_error_bytes
    }

    /// Returns this thread's client for the upstream.
    pub(in crate::server) fn client(&self, upstream: &Upstream) -> Arc<Client> {
        Arc::clone(upstream.client(self.thread))
    }
}

/// Failed attempt of which the client has received nothing.
pub(in crate::server) struct FailedAttempt {
    pub(in crate::server) error: Error,
    /// Status of the engine's answer, if that is an error.
    pub(in crate::server) status: Option<u16>,
    /// Headers of the engine's answer that are passed to the client.
    pub(in crate::server) passed: HeaderMap,
}

impl FailedAttempt {
    fn unusable(why: Unusable, passed: HeaderMap) -> Self {
        Self {
            error: Failure::from(why).into(),
            status: None,
            passed,
        }
    }
}

impl From<Error> for FailedAttempt {
    fn from(error: Error) -> Self {
        Self {
            error,
            status: None,
            passed: HeaderMap::new(),
        }
    }
}

/// Target of an engine request: the upstream, the model, the number of the attempt, and the choice that it is for.
#[derive(Clone, Copy)]
pub(in crate::server) struct AttemptTarget<'u> {
    pub(in crate::server) upstream: &'u Arc<Upstream>,
    /// Model that is requested from the upstream, by a name that clients may use: one of those that the client's name
    /// stands for, or that name itself.
    pub(in crate::server) model: &'u str,
    pub(in crate::server) attempt: u32,
    /// Index of the only choice that the request is for; `None`: the whole answer.
    pub(in crate::server) choice: Option<u32>,
    /// Fallbacks beyond those known of the upstream: it has refused the request without them.
    pub(in crate::server) fallbacks: Fallbacks,
}

impl<'u> AttemptTarget<'u> {
    /// Returns the target of a first attempt: the whole answer, without further fallbacks.
    pub(in crate::server) fn first(upstream: &'u Arc<Upstream>, model: &'u str) -> Self {
        Self {
            upstream,
            model,
            attempt: 1,
            choice: None,
            fallbacks: Fallbacks::default(),
        }
    }
}

/// Request that can be sent to any of the upstreams, each time in the form that this upstream's engine
/// understands.
pub(in crate::server) trait UpstreamRequest: Send {
    /// Returns the pending engine request, with the reader and the writer of its answer.
    ///
    /// # Errors
    /// Fails if the request cannot be expressed for this engine.
    fn prepare(&mut self, to: &AttemptTarget<'_>) -> Result<PendingRequest, Failure>;

    /// Returns the sender of its engine requests.
    fn sender(&self) -> &EngineSender;

    /// Returns the text of the request for this upstream, so that a logged engine error can omit what it repeats
    /// of the request; `None` if it cannot be expressed for this upstream.
    fn text(&self, to: &AttemptTarget<'_>) -> Option<Bytes>;

    /// Marks that several engine requests are sent at once from now on.
    fn at_once(&self) {}

    /// Adds items to the conversation, which the next prepared request has. Returns the trace of that request.
    /// Only requests whose answers pause are continued.
    fn continue_with(&mut self, _items: Vec<Item>) -> Option<Arc<Trace>> {
        None
    }
}

/// Engine request that is sent when its answer is first polled, with the reader of the answer and the writer of the
/// client's.
pub(in crate::server) struct PendingRequest {
    pub(in crate::server) answer: PendingAnswer,
    pub(in crate::server) reader: AnswerReader,
    pub(in crate::server) writer: AnswerWriter,
    /// Requests for the other choices, in order, with the readers of their answers, if this one is for the first
    /// choice only.
    pub(in crate::server) others: Vec<(PendingAnswer, AnswerReader)>,
    /// Fallbacks that shaped the request.
    pub(in crate::server) fallbacks: Fallbacks,
}

impl PendingRequest {
    /// Returns a request for which a single engine answer is all that is needed.
    pub(in crate::server) fn single(
        answer: PendingAnswer,
        rewriter: Rewriter,
        fallbacks: Fallbacks,
    ) -> Self {
        let Rewriter { reader, writer } = rewriter;
        Self {
            answer,
            reader,
            writer,
            others: Vec::new(),
            fallbacks,
        }
    }
}

/// Refusal by an engine, after which the request was sent to it once more in another form.
pub(in crate::server) struct FirstRefusal {
    /// First refusal, which concerns the client's own request.
    pub(in crate::server) failure: Failure,
    /// The model, by the engine's name for it.
    pub(in crate::server) model: String,
}

impl FirstRefusal {
    /// Returns the first refusal of a request for the selection's model.
    pub(in crate::server) fn first(
        failure: Failure,
        selection: &UpstreamSelection,
        app: &App,
    ) -> Self {
        Self {
            failure,
            model: app.pool.engine_name(selection.served()).to_owned(),
        }
    }

    /// Returns the failure for the client: the first refusal if the engine refuses the other form too, else
    /// `failure`. `fallbacks` are the forms that were tried.
    pub(in crate::server) fn or_first(
        this: Option<&Self>,
        fallbacks: Fallbacks,
        failure: Failure,
    ) -> Failure {
        let is_refusal = matches!(failure.status, 400..=499) && failure.status != 429;
        match this {
            Some(first) if is_refusal && fallbacks.further(&failure).next().is_none() => {
                first.failure.clone()
            }
            _ => failure,
        }
    }
}

/// Attempt at an upstream: the chosen upstream, and the request that is pending there.
pub(in crate::server) struct Attempt {
    pub(in crate::server) chosen: ChosenUpstream,
    pub(in crate::server) request: PendingRequest,
}

/// Returns what an exchange reveals about the health of the upstream, `None` if nothing (faults 8). `status` is
/// the upstream's own, if it answered with an error.
pub(in crate::server) fn outcome(
    failure: Option<&Failure>,
    status: Option<u16>,
    passed: &HeaderMap,
) -> Option<AttemptOutcome> {
    let wait = || Duration::from_secs(headers::retry_after(passed.get(RETRY_AFTER)));
    match (status, failure.map(|failure| failure.fault)) {
        (_, None) => Some(AttemptOutcome::Good),
        (_, Some(Fault::Draining | Fault::Proxy | Fault::Overloaded | Fault::Cancelled)) => None,
        (_, Some(Fault::InvalidRequest | Fault::ContextLength)) => Some(AttemptOutcome::Refused),
        (Some(status @ (429 | 503)), _) => Some(AttemptOutcome::Pushed {
            status,
            wait: wait(),
        }),
        (Some(529), _) => Some(AttemptOutcome::Pushed {
            status: 503,
            wait: wait(),
        }),
        (Some(501), _) => Some(AttemptOutcome::Refused),
        (Some(500..), _) => Some(AttemptOutcome::Bad),
        (Some(_), _) => Some(AttemptOutcome::Refused),
        (None, Some(Fault::RateLimit)) => Some(AttemptOutcome::Pushed {
            status: 429,
            wait: wait(),
        }),
        (None, Some(Fault::EngineOverloaded)) => Some(AttemptOutcome::Pushed {
            status: 503,
            wait: wait(),
        }),
        (None, Some(Fault::NotImplemented | Fault::Aborted)) => Some(AttemptOutcome::Refused),
        (None, Some(_)) => failure.map(|failure| {
            if failure.status >= 500 {
                AttemptOutcome::Bad
            } else {
                AttemptOutcome::Refused
            }
        }),
    }
}

/// Names the route in the failure if the engine does not have it.
fn name_missing_route(failure: Failure, status: u16, outgoing: &Outgoing) -> Failure {
    let is_plain = failure.fault == Fault::InvalidResponse || failure.original() == "Not Found";
    if status != 404 || !is_plain {
        return failure;
    }
    let path = outgoing.path.split('?').next().unwrap_or_default();
    let message = format!(
        "The upstream engine does not serve {} {path}.",
        outgoing.method
    );
    Failure::from(Fault::NotFound).with_message(message)
}

/// Reports the outcome of an exchange to the upstream's health tracking. Rejected credentials or a wrong model
/// also mark the upstream as misconfigured.
pub(in crate::server) fn report_outcome(
    chosen: &mut ChosenUpstream,
    failure: Option<&Failure>,
    status: Option<u16>,
    passed: &HeaderMap,
) {
    match failure.map(|failure| failure.fault) {
        Some(Fault::Upstream) => chosen
            .upstream()
            .mark_mismatch("upstream credentials rejected"),
        Some(Fault::WrongModel) => chosen
            .upstream()
            .mark_mismatch("it answers as a model that it does not list"),
        _ => {}
    }
    if let Some(outcome) = outcome(failure, status, passed) {
        chosen.report(outcome);
    }
}

/// Chooses the next upstream for this request.
///
/// # Errors
/// Fails if none qualifies, with the reason as an error for the client.
pub(in crate::server) fn choose(
    app: &App,
    reply: &mut ClientReply,
    selection: &mut UpstreamSelection,
) -> Result<ChosenUpstream, Failure> {
    let chosen = selection
        .begin(app)
        .map_err(|none| no_upstream(&mut reply.passed, none, selection.model()))?;
    reply.note(|record| record.served = selection.shown(app));
    Ok(chosen)
}

/// Starts the first attempt of a request. Fails if no upstream qualifies, or if the request cannot be
/// expressed for the chosen one.
pub(in crate::server) fn begin(
    reply: &mut ClientReply,
    selection: &mut UpstreamSelection,
    request: &mut dyn UpstreamRequest,
) -> Result<Attempt, Failure> {
    let chosen = choose(&request.sender().app, reply, selection)?;
    let to = AttemptTarget::first(chosen.upstream(), selection.served());
    request.sender().want_template(&to);
    let request = request.prepare(&to)?;
    Ok(Attempt { chosen, request })
}

/// Returns the error for a client whose request finds no upstream. Sets `retry-after` in the headers for the client,
/// unless the model is unknown.
pub(in crate::server) fn no_upstream(
    passed: &mut HeaderMap,
    none: NoUpstream,
    model: &str,
) -> Failure {
    let (failure, wait) = match none {
        NoUpstream::Unknown => return no_such_model(model),
        NoUpstream::Exhausted | NoUpstream::NoneAvailable => {
            (Fault::NoUpstream.into(), RETRY_AFTER_SECONDS)
        }
        NoUpstream::Overloaded { status, wait } => {
            let fault = if status == 429 {
                Fault::RateLimit
            } else {
                Fault::EngineOverloaded
            };
            (Failure::from(fault), wait.as_secs().saturating_add(1))
        }
    };
    passed.insert(RETRY_AFTER, wait.into());
    failure
}

/// Requests one object, which is read whole, from one upstream after another. Fails with the last failure once
/// no further attempt is allowed.
pub(in crate::server) async fn request_object(
    reply: &mut ClientReply,
    sender: &EngineSender,
    selection: &mut UpstreamSelection,
    limit: usize,
    mut request: impl FnMut(&AttemptTarget<'_>) -> Result<Outgoing, Failure>,
) -> Result<Bytes, Failure> {
    let app = &*sender.app;
    let mut chosen = choose(app, reply, selection)?;
    let (total, patience) = (
        *app.config.timeouts.total_whole,
        *app.config.timeouts.first_token,
    );
    let begun = Instant::now();
    let mut wait = None;
    // First refusal by the current engine, and the request in another form for it.
    let mut refused: Option<FirstRefusal> = None;
    let (mut fallbacks, mut other) = (Fallbacks::default(), None);
    loop {
        let (upstream, model) = (
            Arc::clone(chosen.upstream()),
            Arc::clone(selection.served()),
        );
        let first = AttemptTarget::first(&upstream, &model);
        let to = AttemptTarget {
            attempt: selection.attempts(),
            fallbacks,
            ..first
        };
        let outgoing = match other.take() {
            Some(other) => other,
            None => request(&to)?,
        };
        let exchanged = sender.exchange(&upstream, &outgoing, limit);
        let until = (begun + total).min(Instant::now() + patience);
        let exchanged = tokio::select! {
            exchanged = exchanged => exchanged,
            () = tokio::time::sleep_until(until) => {
                let class = if begun.elapsed() <= total / 2 { RetryClass::MaybeProcessed } else { RetryClass::Never };
                Err(Error::from(Fault::Timeout).with_class(class).into())
            }
            () = app.cut() => Err(Error::from(Fault::Draining).into()),
        };
        let (result, status, passed) = match exchanged {
            Ok((bytes, passed)) => (Ok(bytes), None, passed),
            Err(FailedAttempt {
                error,
                status,
                passed,
            }) => (Err(error), status, passed),
        };
        let failure = result.as_ref().err().map(|error| &error.public);
        let otherwise =
            failure.and_then(|failure| in_another_form(failure, &to, &outgoing, &mut request));
        // A refusal that leads to another form does not count as a failure of the engine.
        let status = if otherwise.is_some() {
            Some(400)
        } else {
            status
        };
        report_outcome(&mut chosen, failure, status, &passed);
        reply.passed = passed;
        reply.note(|record| {
            record.sent_to(&upstream, record.attempts + 1);
            record.ended(&upstream, result.as_ref().err(), &outgoing.body);
        });
        let mut error = match result {
            Ok(bytes) => {
                if let Some(refused) = refused {
                    upstream.answers_to(&refused.model, fallbacks);
                }
                return Ok(bytes);
            }
            Err(error) => error,
        };
        if let Some((tried, outgoing)) = otherwise {
            (fallbacks, other) = (tried, Some(outgoing));
            refused = refused.or_else(|| Some(FirstRefusal::first(error.public, selection, app)));
            continue;
        }
        error.public = FirstRefusal::or_first(refused.as_ref(), fallbacks, error.public);
        (refused, fallbacks) = (None, Fallbacks::default());
        drop(chosen);
        chosen = next_upstream(app, reply, selection, error, &mut wait).await?;
    }
}

/// Returns the next upstream after a failed attempt, once the pause before it is over. `wait` keeps the shortest
/// `retry-after` of the engines that were overloaded, in seconds.
///
/// # Errors
/// Fails with the same failure if no further attempt is allowed. The headers for the client's response then have
/// the shortest `retry-after`.
pub(in crate::server) async fn next_upstream(
    app: &App,
    reply: &mut ClientReply,
    selection: &mut UpstreamSelection,
    error: Error,
    wait: &mut Option<u64>,
) -> Result<ChosenUpstream, Failure> {
    let Some((next, pause)) = selection.after(error.class, app) else {
        headers::keep_shortest_retry_after(&mut reply.passed, *wait);
        reply.is_final = selection.has_two_resets();
        return Err(error.public);
    };
    if error.class == RetryClass::Overloaded {
        *wait = Some(headers::shortest_retry_after(*wait, &reply.passed));
    }
    reply.note(|record| record.served = selection.shown(app));
    tokio::time::sleep(pause).await;
    Ok(next)
}

/// Returns the refused request in another form that the engine may accept, with the fallbacks that shape it;
/// `None` if there is no such form or it changes nothing.
fn in_another_form(
    refusal: &Failure,
    to: &AttemptTarget<'_>,
    sent: &Outgoing,
    request: &mut impl FnMut(&AttemptTarget<'_>) -> Result<Outgoing, Failure>,
) -> Option<(Fallbacks, Outgoing)> {
    to.fallbacks.further(refusal).find_map(|fallback| {
        let fallbacks = to.fallbacks.with(fallback);
        let other = request(&AttemptTarget { fallbacks, ..*to }).ok()?;
        (other.body != sent.body).then_some((fallbacks, other))
    })
}

/// Reads the failure from an engine's answer with an error status. `auth`: what the engine was sent; an engine may repeat
/// the key, which is not for clients.
pub(in crate::server) fn failure_of(status: u16, body: &[u8], auth: &Credentials) -> Failure {
    let text = std::str::from_utf8(body).ok();
    let without = auth
        .own_key()
        .zip(text)
        .map(|(key, text)| without_key(text, &key.bytes()));
    Failure::of_answer(
        status,
        without.as_deref().map_or(body, str::as_bytes),
        auth.are_ours(),
    )
}
