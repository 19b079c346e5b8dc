//! Routes: the router, the steps that every request goes through, and the handlers of Chat Completions,
//! Completions, Embeddings and models.
//!
//! Takes: an HTTP request and its [`Target`]. Gives: a response, with the headers that every response has. Never:
//! defines the paths of the API; `paths` does.

use super::admit::azure::{self, RouteFamily};
use super::admit::body::Body;
use super::admit::browsers::{self, CorsRights};
use super::admit::{auth, headers};
use super::context::{RequestContext, bare};
use super::handlers::page;
use super::handlers::readiness::NotReady;
use super::handlers::relayed;
use super::ids::IdSource;
use super::net::connection_state::{ActiveRequest, ConnectionState};
use super::net::leavings;
use super::net::pending_answer::{PendingAnswer, send};
use super::paths::{self, Target};
use super::record::Record;
use super::relay::attempt::{AttemptTarget, FanOut, FanOutPart, Sender, SentRequest, UpstreamRequest};
use super::relay::{Relay, RelayParams};
use super::spelling::decoded;
use super::{App, Worker, panics};
use crate::config::Limits;
use crate::plan::{Plan, plan};
use crate::request::ChatRequest;
use crate::request::embeddings::EmbeddingsRequest;
use crate::request::relayed::api_of;
use crate::upstream::models::{self, Model};
use crate::upstream::{Hops, Outgoing};
use crate::wire::event::Usage;
use crate::wire::fault::{Failure, Fault};
use crate::wire::{self, Api, Gather, Rewriter, Shape, Stamp, Summary};
use axum::Router;
use axum::body::Body as Incoming;
use axum::extract::{Request, State};
use axum::routing::{MethodRouter, get};
use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, request};
use http_body::Body as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns the router, which maps each path to its [`Target`]. Paths are compared as they stand: a path that is
/// decoded or normalised in one place and not in another could bypass a check.
pub(super) fn router(worker: Arc<Worker>) -> Router {
    let to = |target, family| move |State(worker), request| answer(worker, request, target, family);
    let mut router = Router::new().route(paths::HEALTH, get(to(Target::Health, RouteFamily::Plain)));
    if worker.active_config.app().page.is_some() {
        router = router.route("/", get(to(Target::Page, RouteFamily::Plain)));
    }
    for (pattern, family, path) in paths::all() {
        let mut methods = MethodRouter::new();
        methods = path.get.into_iter().fold(methods, |methods, target| methods.get(to(target, family)));
        methods = path.post.into_iter().fold(methods, |methods, target| methods.post(to(target, family)));
        methods = path.delete.into_iter().fold(methods, |methods, target| methods.delete(to(target, family)));
        router = router.route(&pattern, methods);
    }
    let root_path = worker.active_config.app().config.root_path.clone();
    let router = router
        .method_not_allowed_fallback(to(Target::OtherMethod, RouteFamily::Plain))
        .fallback(to(Target::Nothing, RouteFamily::Plain))
        .with_state(worker);
    match root_path {
        // The path is removed before any route sees the request.
        Some(root_path) => Router::new().nest_service(&root_path, router.clone()).fallback_service(router),
        None => router,
    }
}

/// Answers one request, and adds the headers that let a browser's page read the answer, if its origin is allowed.
async fn answer(
    worker: Arc<Worker>,
    request: Request,
    target: Target,
    family: RouteFamily,
) -> Response<Body> {
    let app = worker.active_config.app();
    let sharing = CorsRights::of(&app.config.cors, request.headers());
    let (head, body) = request.into_parts();
    let stage = head.extensions.get::<ConnectionState>().cloned().unwrap_or_default();
    let busy = ActiveRequest::begin(&stage);
    let mut response = match (refused_by_its_head(&head, &app.config.limits), IdSource::draw()) {
        (Some(status), _) => bare(status),
        (None, Err(_)) => bare(StatusCode::INTERNAL_SERVER_ERROR),
        (None, Ok(chance)) => {
            // The page and the health check need no key and have neither limits nor a record.
            let asks = |wanted| target == wanted && head.uri.authority().is_none();
            let own = || match &app.page {
                Some(page) if asks(Target::Page) => Some(Ok(page::response(page))),
                _ => asks(Target::Health).then(|| health(&app)),
            };
            let open = sharing.preflight(&head).or_else(own);
            match open {
                Some(answer) => unrecorded(answer, &head, has_body(&head, &body), &chance, busy, &app),
                None => handle((app, worker, busy, chance), (head, body), target, family).await,
            }
        }
    };
    sharing.set_headers(response.headers_mut());
    response
}

/// Returns the answer of the health check: success, or the error that requests would get. The problems of single
/// engines are shown to operators only.
fn health(app: &App) -> Result<Response<Bytes>, Failure> {
    match app.trouble() {
        None => {
            let mut response = Response::new(Bytes::from_static(b"{\"status\":\"ok\"}"));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(response)
        }
        Some(NotReady::Draining) => Err(Fault::Draining.into()),
        Some(NotReady::Upstreams(_)) => Err(Fault::NoUpstream.into()),
    }
}

/// Returns the response to a request without a record: a CORS preflight, the health check or the page. A failure
/// becomes an error response.
fn unrecorded(
    answer: Result<Response<Bytes>, Failure>,
    head: &request::Parts,
    has_body: bool,
    chance: &IdSource,
    busy: ActiveRequest,
    app: &App,
) -> Response<Body> {
    let mut response = answer.unwrap_or_else(|failure| {
        let refusal = headers::Refusal {
            failure: &failure,
            is_final: false,
            attempts: 0,
            passed: &HeaderMap::new(),
            elapsed: Duration::ZERO,
        };
        let given = headers::request_id(&head.headers);
        refusal.response(&given.map_or_else(|| chance.request_id(), ToOwned::to_owned))
    });
    if has_body || app.is_draining() {
        headers::close(&mut response);
    }
    response.map(|body| Body::full(body).keeping_busy(busy))
}

/// Returns true if a request has a body, some of which may still be arriving.
fn has_body(head: &request::Parts, body: &Incoming) -> bool {
    let announced = head.headers.contains_key(TRANSFER_ENCODING)
        || head.headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if head.version == Version::HTTP_2 { !body.is_end_stream() } else { announced }
}

/// Answers a request that has a record: builds its context, dispatches it, and adds the headers that its response
/// needs.
async fn handle(
    (app, worker, busy, chance): (Arc<App>, Arc<Worker>, ActiveRequest, IdSource),
    (head, body): (request::Parts, Incoming),
    target: Target,
    family: RouteFamily,
) -> Response<Body> {
    let request_id =
        headers::request_id(&head.headers).map_or_else(|| chance.request_id(), ToOwned::to_owned);
    panics::arm(&head.headers, &request_id);
    leavings::arm(&head.headers);
    // A request target with a host in it is meant for a forward proxy.
    let target = if head.uri.authority().is_some() { Target::Nothing } else { target };
    let is_other = target == Target::Nothing && head.uri.authority().is_none();
    let way = is_other.then(|| relayed::find(head.uri.path(), &app.config.relayed)).flatten();
    let is_relayed = way.is_some();
    let (target, family) = match way {
        Some((family, path)) if head.method == Method::POST && app.config.relayed.rewrites(&path) => {
            (Target::ByBody, family)
        }
        Some((family, _)) if head.method == Method::POST => (Target::Relayed, family),
        Some((family, _)) => (Target::OtherMethod, family),
        None => (target, family),
    };
    let record = Record::new(&app, target.route(), request_id).traced(&head).asked(&head);
    let has_body = has_body(&head, &body);
    let body = has_body.then_some(body);
    let mut context = RequestContext {
        app: Arc::clone(&app),
        worker,
        ids: chance,
        active_request: busy,
        family,
        caller: None,
        record: Some(record),
        unread: has_body,
        is_labelled_form: false,
        passed: HeaderMap::new(),
        is_poison: false,
        by_socket: false,
        share: None,
        standing: None,
    };
    let result = context.dispatch(&head, target, body).await;
    let mut response = result.unwrap_or_else(|failure| context.refuse(&failure));
    if target == Target::Nothing && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    if is_relayed && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if response.status() == StatusCode::UPGRADE_REQUIRED {
        headers::offer_socket(&mut response);
    }
    let stays = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let last = context.unread || context.app.is_draining() || head.headers.contains_key(TRANSFER_ENCODING);
    if last && !stays {
        headers::close(&mut response);
    }
    if let Some(standing) = context.standing {
        standing.set_headers(response.headers_mut());
    }
    let asked = azure::client_request_id(&head.headers);
    family.add_headers(&mut response, asked, azure::known_version(&head), &app.config.azure);
    response.map(|body| body.keeping_busy(context.active_request))
}

/// Returns the status for a head that the HTTP library accepts although it should not; `None` for a valid head.
fn refused_by_its_head(head: &request::Parts, limits: &Limits) -> Option<StatusCode> {
    let length = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if length > limits.max_uri_bytes {
        return Some(StatusCode::URI_TOO_LONG);
    }
    // The library limits only its buffer, which holds a little more than the head.
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if length + fields > limits.max_head_bytes {
        return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let good = headers::has_host(head) && headers::is_ascii(&head.headers);
    (!good).then_some(StatusCode::BAD_REQUEST)
}

impl RequestContext {
    async fn dispatch(
        &mut self,
        head: &request::Parts,
        target: Target,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        // Check for loops before the key, because probes of samewire itself have none.
        Hops::read(&head.headers)?;
        self.authenticate(head)?;
        panics::point("handler", self.record.as_ref().map(|record| record.request_id.as_str()).or(Some("")));
        match target {
            Target::Nothing if matches!(head.method, Method::CONNECT | Method::TRACE) => {
                let message = format!("The method {} is not supported.", head.method);
                return Err(Failure::from(Fault::MethodNotSupported).with_message(message));
            }
            Target::Nothing => {
                return Err(paths::unknown(&head.method, head.uri.path(), &self.app.config.relayed));
            }
            Target::OtherMethod => return Err(paths::other_method(&head.method, head.uri.path())),
            _ => {}
        }
        browsers::check_form(head, &self.app.config.cors)?;
        // A WebSocket counts as a request only while it has one in progress.
        if target != Target::Socket || self.app.refuses() {
            self.admit()?;
        }
        if target.asks_engine() {
            self.count(head).await?;
        }
        self.family.check(head, &self.app.config.azure)?;
        if target == Target::Socket {
            return if self.unread { Err(Fault::UpgradeRequired.into()) } else { self.upgrade(head).await };
        }
        if target == Target::Relayed {
            return Box::pin(self.relayed(head, body)).await;
        }
        if target == Target::ByBody {
            return Box::pin(self.by_body(head, body)).await;
        }
        headers::check(&head.headers)?;
        self.is_labelled_form = headers::is_labelled_form(&head.headers);
        match target {
            Target::Answer(api) => self.relay(api, head, body).await,
            Target::Respond => Box::pin(self.respond(head, body)).await,
            Target::Stored(what) => Box::pin(self.serve_stored(head, what)).await,
            Target::ToolOutputs => Box::pin(self.tool_outputs(head, body)).await,
            Target::InputTokens => Box::pin(self.input_tokens(head, body)).await,
            Target::Compact => Box::pin(self.compact(head, body)).await,
            Target::Conversing(what) => Box::pin(self.serve_conversations(head, body, what)).await,
            Target::Embeddings => Box::pin(self.embed(head, body)).await,
            _ => self.list(head).await,
        }
    }

    /// Answers a request on a relayed route by its body: rewritten if the body belongs to an API that is
    /// rewritten, else relayed unchanged.
    async fn by_body(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let limit = self.app.config.limits.max_body_bytes;
        let body = self.body(body, limit).await?;
        let api = api_of(&body);
        let body = Some(Incoming::from(body));
        match api {
            Some(api) => self.relay(api, head, body).await,
            None => self.relayed(head, body).await,
        }
    }

    /// Answers a request of Chat Completions or Completions: reads and plans it, and relays an engine's answer.
    async fn relay(
        &mut self,
        api: Api,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let limits = &self.app.config.limits;
        let limit = if api == Api::Chat { limits.max_body_bytes } else { limits.other_body_bytes };
        let body = self.body(body, limit).await?;
        let start = Instant::now();
        let mut model = self.family.deployment(head);
        let body = self.with_defaults(body, &mut model, &head.headers).await?;
        let mut ask = ChatRequest::read_for(api, &body, model.as_deref(), self.rules())?;
        if ask.model.is_empty()
            && let Some(model) = self.default_model(&head.headers).await?
        {
            ask.name_model(&model);
        }
        self.check_model(&ask.model)?;
        let mut selection = self.selection(&ask.model, &head.headers, None, || ask.leading_messages(&body));
        let (model, stream) = (ask.model.clone(), ask.stream);
        let sender = self.sender(&head.headers);
        let mut request = Box::new(Chat { ask, body, stamp: self.stamp(), sender });
        let attempt = self.begin(&mut selection, &mut *request)?;
        let Some(mut record) = self.record.take() else { return Err(Fault::Proxy.into()) };
        record.model = self.app.pool.label(&model);
        let options = request.sender.options(attempt.chosen.upstream(), &model);
        let order = RelayParams {
            attempt,
            again: Some((request, selection)),
            thread: self.worker.thread,
            options,
            stream,
            record,
            writer: None,
            numbered: false,
        };
        let mut relay = Relay::new(order);
        relay.planned(start.elapsed());
        Ok(relay.answer().await)
    }

    async fn embed(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let limits = &self.app.config.limits;
        let (limit, answer_limit) = (limits.other_body_bytes, limits.max_answer_bytes);
        let body = self.body(body, limit).await?;
        let mut wanted = EmbeddingsRequest::read(&body, self.rules())?;
        if let Some(deployment) = self.family.deployment(head) {
            wanted.name_model(&deployment);
        } else if wanted.model.is_empty()
            && let Some(model) = self.default_model(&head.headers).await?
        {
            wanted.name_model(&model);
        }
        self.check_model(&wanted.model)?;
        let model = wanted.model.clone();
        if let Some(record) = &mut self.record {
            record.model = self.app.pool.label(&model);
        }
        let sender = self.sender(&head.headers);
        let mut selection = self.selection(&model, &head.headers, None, Vec::<&str>::new);
        let request = |to: &AttemptTarget<'_>| {
            let route = sender.route(to, &model);
            let body = wanted.body(&body, route.model_alias.as_deref(), route.options.request_unknown)?;
            let outgoing = sender.outgoing(to, "POST", "/v1/embeddings", body);
            let accept = if wanted.is_foreign { relayed::accept(&head.headers) } else { Outgoing::JSON };
            Ok(Outgoing { accept, ..outgoing })
        };
        if wanted.is_foreign {
            return self.pass_on(&sender, &mut selection, None, request).await;
        }
        let answer = self.request_object(&sender, &mut selection, answer_limit, request).await?;
        let mut out = BytesMut::new();
        let prompt = wire::embeddings::rewrite(&answer, &model, &mut out)?;
        if let Some(record) = &mut self.record {
            let usage = Some(Usage { prompt, total: prompt, ..Usage::default() });
            record.summarised(Summary { usage, ..Summary::default() });
        }
        Ok(self.object_response(out.freeze()))
    }

    async fn list(&mut self, head: &request::Parts) -> Result<Response<Body>, Failure> {
        self.active_request.has_read();
        let mut listed = self.all_models(&head.headers).await?;
        listed.retain(|model| self.may_use(&model.id));
        let mut out = BytesMut::new();
        match head.uri.path().split_once("/models/").map(|(_, id)| id) {
            // The Codex CLI sends its version, and reads a list in a format of its own.
            None if headers::query(head, "client_version").is_some() => {
                models::write_catalogue(&listed, &self.app.config.codex.instructions, &mut out);
            }
            None => models::write(&listed, &mut out),
            Some(id) => find_model(&listed, id)?.write(&mut out),
        }
        Ok(self.object_response(out.freeze()))
    }
}

/// Request for Chat Completions or Completions, kept with its body so that it can be planned anew for each
/// upstream.
struct Chat {
    ask: ChatRequest,
    body: Bytes,
    stamp: Stamp,
    sender: Sender,
}

impl UpstreamRequest for Chat {
    fn send(&mut self, to: &AttemptTarget<'_>) -> Result<SentRequest, Failure> {
        let route = self.sender.route(to, &self.ask.model);
        if let Some(FanOutPart { choice, gather }) = to.part {
            let plan = plan(&self.ask.one_of_several(choice), &self.body, &route)?;
            let asking = self.send_later(to, plan.path, plan.body);
            let rewriter = gather.rewriter(choice, plan.shape, &self.stamp);
            return Ok(SentRequest::single(asking, rewriter, plan.fallbacks));
        }
        let plan = plan(&self.ask, &self.body, &route)?;
        if !plan.others.is_empty() {
            return self.fan_out(to, plan);
        }
        let asking = self.send_later(to, plan.path, plan.body);
        let shape = Shape { may_lack: plan.may_return_fewer, ..plan.shape };
        Ok(SentRequest::single(asking, Rewriter::new(shape, self.stamp.clone()), plan.fallbacks))
    }

    fn text(&self, _: &AttemptTarget<'_>) -> Option<Bytes> {
        Some(self.body.clone())
    }

    fn at_once(&self) {
        self.sender.mark_concurrent();
    }
}

impl Chat {
    /// Returns one engine request for each choice, for a plan that needs several. Fails if their bodies exceed the
    /// memory budget.
    fn fan_out(&self, to: &AttemptTarget<'_>, plan: Plan) -> Result<SentRequest, Failure> {
        let Plan { path, body, others, shape, fallbacks, .. } = plan;
        self.sender.mark_concurrent();
        let gather = Gather::new(&shape, &self.stamp);
        let one = |choice: u32, body: Bytes| {
            let asking = self.send_later(
                &AttemptTarget { part: Some(FanOutPart { choice, gather: &gather }), ..*to },
                path,
                body,
            );
            (asking, gather.rewriter(choice, shape.clone(), &self.stamp))
        };
        let counted = |other: Bytes| match other.as_ptr() == body.as_ptr() {
            true => Ok(other),
            false => self.sender.count_body(other),
        };
        let others: Vec<_> = others.into_iter().map(counted).collect::<Result<_, _>>()?;
        let others = (1..).zip(others).map(|(choice, body)| one(choice, body)).collect();
        let (asking, rewriter) = one(0, body);
        Ok(SentRequest {
            pending: asking,
            rewriter,
            fan_out: Some(Box::new(FanOut { gather, others })),
            fallbacks,
        })
    }

    fn send_later(&self, to: &AttemptTarget<'_>, path: &'static str, body: Bytes) -> PendingAnswer {
        let mut request = self.sender.outgoing(to, "POST", path, body);
        if self.ask.stream {
            request.accept = HeaderValue::from_static("text/event-stream");
        }
        send(self.sender.client(to.upstream), request)
    }
}

/// Returns the listed model with the name in a path, which may be percent-encoded; slashes in it are common either
/// way. Fails if there is none.
fn find_model<'m>(listed: &'m [Model], id: &str) -> Result<&'m Model, Failure> {
    let decoded = decoded(id);
    listed.iter().find(|model| model.id == decoded).ok_or_else(|| auth::no_such_model(&decoded))
}
