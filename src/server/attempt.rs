//! Attempts: one request, sent to one upstream after another until one answers or none may be asked any more (faults 7).
//!
//! ```text
//! Search ─→ Chosen ─→ Letter ─→ Leg ─→ the relay, which comes back for the next one
//! ```

use super::App;
use super::auth::no_such_model;
use super::budget::BudgetShare;
use super::context::RequestContext;
use super::headers::{self, RETRY_AFTER};
use super::pending_answer::PendingAnswer;
use crate::config::{Affinity, Credentials};
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::error::{Class, Error};
use crate::plan::Route;
use crate::telemetry::{Propagation, Trace};
use crate::upstream::{
    ChosenUpstream, Client, Hops, NoUpstream, Outcome, Outgoing, Pool, RetryState, SelectionCriteria,
    Upstream,
};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{Options, ResponsesDialect};
use crate::wire::{Gather, Rewriter};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Seconds after which it may be better where no upstream is well (faults O18).
const UNWELL: u64 = 5;

/// What all requests to engines for one client's request have in common.
#[derive(Clone)]
pub(super) struct Sender {
    app: Arc<App>,
    /// Whose connections to engines it takes.
    thread: usize,
    id: String,
    /// The client's, for engines that are to see it.
    authorization: Option<HeaderValue>,
    trace: Propagation,
    /// The way of the client's request.
    hops: Hops,
    /// The place of the caller's key.
    key: Option<usize>,
    /// The events that the client asks for.
    pub(super) dialect: Option<ResponsesDialect>,
    /// What the client's body takes of the memory for bodies; what is made of it is as long, and takes its place.
    share: Option<Arc<BudgetShare>>,
}

impl Sender {
    /// The options for an answer of this upstream.
    pub(super) fn options(&self, upstream: &Upstream, model: &str) -> Arc<Options> {
        let options = self.app.pool.options(upstream, model, self.key);
        match self.dialect {
            Some(dialect) => Arc::new(Options { responses_dialect: dialect, ..(*options).clone() }),
            None => options,
        }
    }

    /// How a request for this model is planned for this upstream.
    pub(super) fn route(&self, to: &AttemptTarget<'_>, model: &str) -> Route {
        let route = self.app.pool.route(to.upstream, model, self.options(to.upstream, model));
        Route { fallbacks: route.fallbacks.and(to.fallbacks), ..route }
    }

    /// From now on it sends what is another request of the same client: its part of the trace, if there is one.
    pub(super) fn again(&mut self) -> Option<Arc<Trace>> {
        let trace = self.trace.again()?;
        self.trace = Propagation::Traced(Arc::clone(&trace));
        Some(trace)
    }

    /// From now on several are sent at once.
    pub(super) fn at_once(&self) {
        self.trace.at_once();
    }

    /// A further body for the same client's request, counted among those in memory.
    pub(super) fn counted(&self, body: Bytes) -> Result<Bytes, Failure> {
        let share = self.app.budget.share(body.len())?;
        Ok(BudgetShare::hold(&Arc::new(share), body))
    }

    /// A request to this upstream.
    pub(super) fn outgoing(
        &self,
        to: &AttemptTarget<'_>,
        method: &'static str,
        path: impl Into<Cow<'static, str>>,
        body: Bytes,
    ) -> Outgoing {
        Outgoing {
            method,
            path: path.into(),
            accept: Outgoing::JSON,
            content_type: Some(Outgoing::JSON),
            authorization: match &to.upstream.config.auth {
                Credentials::None => None,
                Credentials::Own(key) => Some(key.value()),
                Credentials::Pass => self.authorization.clone(),
            },
            request_id: match to.part {
                None => format!("{}-{}", self.id, to.attempt),
                // Engines call their work after it: two at once must not be called the same.
                Some(FanOutPart { choice, .. }) => format!("{}-{}-{choice}", self.id, to.attempt),
            },
            again: to.attempt > 1,
            trace: self.trace.clone(),
            hops: self.hops.clone(),
            body: match &self.share {
                Some(share) => BudgetShare::hold(share, body),
                None => body,
            },
            upload: None,
        }
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn exchange(
        &self,
        upstream: &Arc<Upstream>,
        request: &Outgoing,
        limit: usize,
    ) -> WholeExchange {
        let mut exchanged =
            WholeExchange { result: Ok(Bytes::new()), status: None, passed: HeaderMap::new() };
        exchanged.result = self.exchanged(upstream, request, limit, &mut exchanged).await;
        exchanged
    }

    async fn exchanged(
        &self,
        upstream: &Arc<Upstream>,
        request: &Outgoing,
        limit: usize,
        so_far: &mut WholeExchange,
    ) -> Result<Bytes, Error> {
        let client = upstream.client(self.thread);
        let mut answer = client.send(request).await?;
        so_far.passed = headers::passed(&answer.head.headers);
        let status = answer.head.status;
        let good = (200..300).contains(&status) && status != 204;
        if !(good || status >= 400) || answer.head.is_encoded() {
            return Err(Fault::InvalidResponse.into());
        }
        let limit = if good { limit } else { self.app.config.limits.max_error_bytes };
        let collected = answer.collect(limit).await;
        if !good {
            so_far.status = Some(status);
            let own_key = upstream.config.auth.are_ours();
            let body = collected.unwrap_or_else(|(body, _)| body);
            let error = Error::from(Failure::of_answer(status, &body, own_key));
            return Err(error.classed(Class::of_status(status)));
        }
        let body = collected.map_err(|(body, _)| match body.len() < limit {
            true => Error::from(Fault::Incomplete).classed(Class::Perhaps),
            // Another one would say as much.
            false => Fault::InvalidResponse.into(),
        })?;
        client.give_back(answer);
        Ok(body.freeze())
    }

    /// Bytes of an engine's error that are read.
    pub(super) fn error_bytes(&self) -> usize {
        self.app.config.limits.max_error_bytes
    }

    /// The way to it.
    pub(super) fn client(&self, upstream: &Upstream) -> Arc<Client> {
        Arc::clone(upstream.client(self.thread))
    }
}

/// An answer that was read whole.
pub(super) struct WholeExchange {
    pub(super) result: Result<Bytes, Error>,
    /// The engine's, where it is an error.
    status: Option<u16>,
    /// Headers of the engine's answer that pass.
    pub(super) passed: HeaderMap,
}

impl WholeExchange {
    /// Nothing came of it.
    fn failed(error: Error) -> Self {
        Self { result: Err(error), status: None, passed: HeaderMap::new() }
    }
}

/// To whom a request goes, as which attempt.
#[derive(Clone, Copy)]
pub(super) struct AttemptTarget<'u> {
    pub(super) upstream: &'u Arc<Upstream>,
    pub(super) attempt: u32,
    /// What of the answer it is for; `None`: all of it.
    pub(super) part: Option<FanOutPart<'u>>,
    /// The forms in which it is asked besides those that are known of it: it has refused the request without them.
    pub(super) fallbacks: Fallbacks,
}

impl<'u> AttemptTarget<'u> {
    /// The first attempt.
    pub(super) fn first(upstream: &'u Arc<Upstream>) -> Self {
        Self { upstream, attempt: 1, part: None, fallbacks: Fallbacks::default() }
    }
}

/// One choice of an answer that is put together of several.
#[derive(Clone, Copy)]
pub(super) struct FanOutPart<'g> {
    pub(super) choice: u32,
    pub(super) gather: &'g Gather,
}

/// A request that can be sent to any of the upstreams.
pub(super) trait UpstreamRequest: Send {
    /// Makes the engine's request, and what reads its answer.
    ///
    /// # Errors
    /// It cannot be said to this engine.
    fn send(&mut self, to: &AttemptTarget<'_>) -> Result<SentRequest, Failure>;

    /// Returns the text of the request for this upstream; `None`: it cannot be said to it.
    fn text(&self, to: &AttemptTarget<'_>) -> Option<Bytes>;

    /// Marks that several requests for it are sent at once from now on.
    fn at_once(&self) {}
}

/// What was sent, and what reads the answer.
pub(super) struct SentRequest {
    pub(super) asking: PendingAnswer,
    pub(super) rewriter: Rewriter,
    /// It is for the first choice; what was sent for the others.
    pub(super) fan_out: Option<Box<FanOut>>,
    /// The fallbacks that gave the request its form.
    pub(super) fallbacks: Fallbacks,
}

impl SentRequest {
    /// One request, which has all of the answer that it is for.
    pub(super) fn alone(asking: PendingAnswer, rewriter: Rewriter, fallbacks: Fallbacks) -> Self {
        Self { asking, rewriter, fan_out: None, fallbacks }
    }
}

/// A request for each choice but the first, in order.
pub(super) struct FanOut {
    pub(super) gather: Gather,
    pub(super) others: Vec<(PendingAnswer, Rewriter)>,
}

/// An engine's refusal of a request, which it was sent once more in another form.
pub(super) struct Refused {
    /// The first refusal: the one of the client's own request.
    pub(super) failure: Failure,
    /// The model, by the engine's name for it.
    pub(super) model: String,
}

impl Refused {
    /// The failure to tell the client: where the engine refuses the other form too, what it said of the first one.
    /// `fallbacks`: the forms that were tried.
    pub(super) fn or_first(this: Option<&Self>, fallbacks: Fallbacks, failure: Failure) -> Failure {
        let is_refusal = matches!(failure.status, 400..=499) && failure.status != 429;
        let is_mendable = || Fallback::of(&failure).is_some_and(|fallback| !fallbacks.has(fallback));
        match this {
            Some(first) if is_refusal && !is_mendable() => first.failure.clone(),
            _ => failure,
        }
    }
}

/// One attempt.
pub(super) struct Attempt {
    pub(super) chosen: ChosenUpstream,
    pub(super) sent: SentRequest,
}

/// The way through the upstreams for one request.
#[derive(Clone)]
pub(super) struct UpstreamSelection {
    model: String,
    together: Option<u64>,
    /// It has been read for this one.
    like: Option<Arc<Upstream>>,
    chance: u64,
    retries: RetryState,
}

impl UpstreamSelection {
    /// Chooses the next one.
    pub(super) fn next(&mut self, app: &App) -> Result<ChosenUpstream, NoUpstream> {
        if self.retries.visited.is_empty() {
            app.pool.count();
        }
        let chosen = app.pool.choose(&SelectionCriteria {
            model: &self.model,
            together: self.together,
            visited: &self.retries.visited,
            like: self.like.as_deref(),
            chance: self.chance,
        })?;
        self.retries.ask(chosen.upstream().id);
        Ok(chosen)
    }

    /// After a failure: the next one, and the pause before it.
    pub(super) fn after(&mut self, class: Class, app: &App) -> Option<(ChosenUpstream, Duration)> {
        let pause = self.retries.after(class, &app.pool.retry)?;
        let chosen = self.next(app).ok()?;
        may_send_again(app).then_some((chosen, pause))
    }

    /// The same for one of several parts of an answer. `way`: where parts have gone from the first upstream on. All go the
    /// same way, so that all of them together break no more engines than one may.
    pub(super) fn along(
        &mut self,
        way: &mut Vec<Arc<Upstream>>,
        class: Class,
        app: &App,
    ) -> Option<(ChosenUpstream, Duration)> {
        let Some(known) = self.retries.visited.len().checked_sub(1).and_then(|at| way.get(at)) else {
            let found = self.after(class, app)?;
            way.push(Arc::clone(found.0.upstream()));
            return Some(found);
        };
        let pause = self.retries.after(class, &app.pool.retry)?;
        self.retries.ask(known.id);
        may_send_again(app).then(|| (Pool::again(known), pause))
    }

    /// The model that is asked for, by the client's name for it.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// How many were asked.
    pub(super) fn attempts(&self) -> u32 {
        u32::try_from(self.retries.visited.len()).unwrap_or(u32::MAX)
    }

    /// Two engines broke off on this request.
    pub(super) fn is_poison(&self) -> bool {
        self.retries.is_poison()
    }
}

fn may_send_again(app: &App) -> bool {
    let may = app.pool.may_send_again();
    if !may {
        app.metrics.budget_exhausted.add(1);
    }
    may
}

/// What an exchange says of the upstream (faults 8). `status`: its own, where it is an error.
pub(super) fn outcome(failure: Option<&Failure>, status: Option<u16>, passed: &HeaderMap) -> Option<Outcome> {
    let wait = || Duration::from_secs(headers::retry_after(passed.get(RETRY_AFTER)));
    match (status, failure.map(|failure| failure.fault)) {
        (_, None) => Some(Outcome::Good),
        (_, Some(Fault::Draining | Fault::Proxy | Fault::Overloaded | Fault::Cancelled)) => None,
        (Some(status @ (429 | 503)), _) => Some(Outcome::Pushed { status, wait: wait() }),
        (Some(501), _) => Some(Outcome::Refused),
        (Some(500..), _) => Some(Outcome::Bad),
        (Some(_), _) => Some(Outcome::Refused),
        (None, Some(Fault::RateLimit)) => Some(Outcome::Pushed { status: 429, wait: wait() }),
        (None, Some(Fault::EngineOverloaded)) => Some(Outcome::Pushed { status: 503, wait: wait() }),
        (None, Some(Fault::NotImplemented | Fault::Aborted)) => Some(Outcome::Refused),
        (None, Some(_)) => {
            failure.map(|failure| if failure.status >= 500 { Outcome::Bad } else { Outcome::Refused })
        }
    }
}

/// Says of an upstream what came of an exchange.
pub(super) fn tell(
    chosen: &mut ChosenUpstream,
    failure: Option<&Failure>,
    status: Option<u16>,
    passed: &HeaderMap,
) {
    match failure.map(|failure| failure.fault) {
        Some(Fault::Upstream) => chosen.upstream().misplace("upstream credentials rejected"),
        Some(Fault::WrongModel) => chosen.upstream().misplace("it answers as a model that it does not list"),
        _ => {}
    }
    if let Some(outcome) = outcome(failure, status, passed) {
        chosen.tell(outcome);
    }
}

impl RequestContext {
    /// What the requests to engines have in common.
    pub(super) fn sender(&self, headers: &HeaderMap) -> Sender {
        Sender {
            app: Arc::clone(&self.app),
            thread: self.worker.thread,
            id: self.chance.request_id(),
            authorization: self.family.authorization(headers),
            trace: Propagation::of(self.record.as_ref().and_then(|record| record.trace.as_ref()), headers),
            // One that was here before has been refused.
            hops: Hops::read(headers).unwrap_or_default(),
            key: self.caller.as_ref().map(|caller| caller.place),
            dialect: None,
            share: self.share.clone(),
        }
    }

    /// Looks for upstreams that serve a model. `like`: the request has been read for that one. `beginning`: how the
    /// conversation begins.
    pub(super) fn selection<P: Hash>(
        &self,
        model: &str,
        headers: &HeaderMap,
        like: Option<Arc<Upstream>>,
        beginning: impl FnOnce() -> Vec<P>,
    ) -> UpstreamSelection {
        let together = match &self.app.pool.affinity {
            Affinity::None => None,
            Affinity::Conversation => {
                Some(beginning()).filter(|said| !said.is_empty()).map(|said| hash(model, said.iter()))
            }
            Affinity::Header(name) => headers.get(name).map(|value| hash(model, [value.as_bytes()].iter())),
        };
        UpstreamSelection {
            model: model.to_owned(),
            together,
            like,
            chance: self.chance.number(),
            retries: RetryState::default(),
        }
    }

    /// Takes the next upstream.
    ///
    /// # Errors
    /// There is none, which is said as it is.
    pub(super) fn choose(&mut self, selection: &mut UpstreamSelection) -> Result<ChosenUpstream, Failure> {
        selection.next(&self.app).map_err(|nobody| self.nobody(nobody, &selection.model))
    }

    /// Begins a request: the first upstream that can be asked.
    pub(super) fn begin(
        &mut self,
        selection: &mut UpstreamSelection,
        request: &mut dyn UpstreamRequest,
    ) -> Result<Attempt, Failure> {
        let chosen = self.choose(selection)?;
        let sent = request.send(&AttemptTarget::first(chosen.upstream()))?;
        Ok(Attempt { chosen, sent })
    }

    /// Why nobody is asked, for the client.
    pub(super) fn nobody(&mut self, nobody: NoUpstream, model: &str) -> Failure {
        let (failure, wait) = match nobody {
            NoUpstream::Unknown => return no_such_model(model),
            NoUpstream::Left | NoUpstream::Unwell => (Fault::NoUpstream.into(), UNWELL),
            NoUpstream::Pushed { status, wait } => {
                let fault = if status == 429 { Fault::RateLimit } else { Fault::EngineOverloaded };
                (Failure::from(fault), wait.as_secs().saturating_add(1))
            }
        };
        self.passed.insert(RETRY_AFTER, wait.into());
        failure
    }

    /// Asks for one object, which comes whole, one upstream after another.
    pub(super) async fn ask(
        &mut self,
        sender: &Sender,
        selection: &mut UpstreamSelection,
        limit: usize,
        mut request: impl FnMut(&AttemptTarget<'_>) -> Result<Outgoing, Failure>,
    ) -> Result<Bytes, Failure> {
        let app = Arc::clone(&self.app);
        let mut chosen = self.choose(selection)?;
        let (total, patience) = (*app.config.timeouts.total_whole, *app.config.timeouts.first_token);
        let begun = Instant::now();
        let mut wait = None;
        // What the present engine has refused, and the request in another form for it.
        let mut refused: Option<Refused> = None;
        let (mut fallbacks, mut other) = (Fallbacks::default(), None);
        loop {
            let upstream = Arc::clone(chosen.upstream());
            let to =
                AttemptTarget { attempt: selection.attempts(), fallbacks, ..AttemptTarget::first(&upstream) };
            let outgoing = match other.take() {
                Some(other) => other,
                None => request(&to)?,
            };
            let exchanged = sender.exchange(&upstream, &outgoing, limit);
            let until = (begun + total).min(Instant::now() + patience);
            let WholeExchange { result, status, passed } = tokio::select! {
                exchanged = exchanged => exchanged,
                () = tokio::time::sleep_until(until) => {
                    let class = if begun.elapsed() <= total / 2 { Class::Perhaps } else { Class::Never };
                    WholeExchange::failed(Error::from(Fault::Timeout).classed(class))
                }
                () = app.cut() => WholeExchange::failed(Fault::Draining.into()),
            };
            let failure = result.as_ref().err().map(|error| &error.public);
            let otherwise =
                failure.and_then(|failure| in_another_form(failure, &to, &outgoing, &mut request));
            // A refusal that is mended is no failure of the engine.
            let status = if otherwise.is_some() { Some(400) } else { status };
            tell(&mut chosen, failure, status, &passed);
            self.passed = passed;
            if let Some(record) = &mut self.record {
                record.attempts += 1;
                record.upstream = Some(Arc::clone(&upstream));
                record.ended(&upstream, result.as_ref().err(), &outgoing.body);
            }
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
                let model = || app.pool.engine_name(selection.model()).to_owned();
                refused = refused.or_else(|| Some(Refused { failure: error.public, model: model() }));
                continue;
            }
            error.public = Refused::or_first(refused.as_ref(), fallbacks, error.public);
            (refused, fallbacks) = (None, Fallbacks::default());
            drop(chosen);
            let Some((next, pause)) = selection.after(error.class, &app) else {
                headers::soonest(&mut self.passed, wait);
                self.is_poison = selection.is_poison();
                return Err(error.public);
            };
            if error.class == Class::Pushed {
                let said = headers::retry_after(self.passed.get(RETRY_AFTER));
                wait = Some(wait.map_or(said, |least: u64| least.min(said)));
            }
            tokio::time::sleep(pause).await;
            chosen = next;
        }
    }
}

/// The request in a form that the engine may take after it has refused it as it was sent, with the fallbacks that give it;
/// `None`: there is none.
fn in_another_form(
    refusal: &Failure,
    to: &AttemptTarget<'_>,
    sent: &Outgoing,
    request: &mut impl FnMut(&AttemptTarget<'_>) -> Result<Outgoing, Failure>,
) -> Option<(Fallbacks, Outgoing)> {
    let fallback = Fallback::of(refusal).filter(|fallback| !to.fallbacks.has(*fallback))?;
    let fallbacks = to.fallbacks.with(fallback);
    let other = request(&AttemptTarget { fallbacks, ..*to }).ok()?;
    (other.body != sent.body).then_some((fallbacks, other))
}

/// What requests have in common that begin alike.
fn hash<P: Hash>(model: &str, beginning: impl Iterator<Item = P>) -> u64 {
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    beginning.for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}
