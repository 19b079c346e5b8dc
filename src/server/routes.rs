//! Routes: the router, and the steps that every request goes through before its handler.
//!
//! Takes: an HTTP request and its [`Target`]. Gives: a response, with the headers that every response has. Never:
//! defines the paths of the API; `paths` does.

use super::admit::azure::{self, RouteFamily};
use super::admit::body::Body;
use super::admit::browsers::{self, CorsRights};
use super::admit::headers;
use super::context::{RequestContext, bare};
use super::handlers::readiness::NotReady;
use super::handlers::relayed;
use super::handlers::{chat, count_tokens, embeddings, messages, models, page, usage};
use super::ids::IdSource;
use super::net::connection_state::{ActiveRequest, ConnectionState};
use super::net::leavings;
use super::panics;
use super::paths::{self, Target};
use super::protocol::Protocol;
use super::record::Record;
use super::{App, Worker};
use crate::config::Limits;
use crate::request::relayed::api_of;
use crate::upstream::Hops;
use crate::wire::fault::{Failure, Fault};
use axum::Router;
use axum::body::Body as Incoming;
use axum::extract::{Request, State};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, request};
use http_body::Body as _;
use std::sync::Arc;
use std::time::Duration;

/// Returns the router, which maps each path to its [`Target`]. Paths are compared as they stand: a path that is
/// decoded or normalised in one place and not in another could bypass a check.
pub(super) fn router(worker: Arc<Worker>) -> Router {
    let to = |target, family| move |State(worker), request| answer(worker, request, target, family);
    let mut router = Router::new().route(paths::HEALTH, get(to(Target::Health, RouteFamily::Plain)));
    if worker.active_config.app().page.is_some() {
        router = router.route("/", get(to(Target::Page, RouteFamily::Plain)));
    }
    // Those of batches are there even if they are not served: a reload may change that.
    for (pattern, family, path) in paths::all().chain(paths::of_batches()) {
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
    let state = head.extensions.get::<ConnectionState>().cloned().unwrap_or_default();
    let busy = ActiveRequest::begin(&state);
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
        let error = headers::ErrorResponse {
            protocol: Protocol::OpenAi,
            failure: &failure,
            is_final: false,
            attempts: 0,
            passed: &HeaderMap::new(),
            elapsed: Duration::ZERO,
        };
        let given = headers::request_id(&head.headers);
        error.response(&given.map_or_else(|| chance.request_id(), Arc::from))
    });
    if has_body || app.is_shutting_down() {
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
    (mut head, body): (request::Parts, Incoming),
    target: Target,
    family: RouteFamily,
) -> Response<Body> {
    let request_id = headers::request_id(&head.headers).map_or_else(|| chance.request_id(), Arc::from);
    panics::arm(&head.headers, &request_id);
    leavings::arm(&head.headers);
    // A request target with a host in it is meant for a forward proxy.
    let target = if head.uri.authority().is_some() { Target::Nothing } else { target };
    let is_unserved = !app.config.batch.enabled
        && matches!(target, Target::Batch(_) | Target::OtherMethod)
        && paths::is_of_batches(head.uri.path());
    let target = if is_unserved { Target::Nothing } else { target };
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
    let protocol = target.protocol(head.uri.path(), &head.headers);
    protocol.unify_key(&mut head.headers);
    let record =
        Record::new(&app, target.route(), request_id).in_protocol(protocol).traced(&head).asked(&head);
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
        recording: None,
        unread: has_body,
        is_labelled_form: false,
        passed: HeaderMap::new(),
        is_poison: false,
        by_socket: false,
        share: None,
        standing: None,
        line_tenant: None,
        line_start: None,
    };
    let result = context.dispatch(&head, target, body).await;
    let recording = context.recording.take();
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
    let last =
        context.unread || context.app.is_shutting_down() || head.headers.contains_key(TRANSFER_ENCODING);
    if last && !stays {
        headers::close(&mut response);
    }
    if let Some(standing) = context.standing {
        standing.set_headers(response.headers_mut());
    }
    let status = response.status().as_u16();
    protocol.rename_headers(status, response.headers_mut());
    let asked = azure::client_request_id(&head.headers);
    family.add_headers(&mut response, asked, azure::known_version(&head), &app.config.azure);
    if let Some(recording) = &recording {
        recording.answer_head(&format!("HTTP/1.1 {}", response.status()), response.headers());
    }
    response.map(|body| body.recorded(recording).keeping_busy(context.active_request))
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
        panics::point("handler", self.record.as_ref().map(|record| &*record.request_id).or(Some("")));
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
        if self.app.config.auth.is_none() {
            browsers::check_host(head, &self.app.config.cors)?;
        }
        browsers::check_form(head, &self.app.config.cors)?;
        // A WebSocket counts as a request only while it has one in progress.
        if target != Target::Socket || self.app.refuses_requests() {
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
        if let Target::Batch(what) = target {
            return Box::pin(self.serve_batch(head, body, what)).await;
        }
        headers::check(&head.headers)?;
        self.is_labelled_form = headers::is_labelled_form(&head.headers);
        match target {
            Target::Answer(api) => chat::answer(self, api, head, body).await,
            Target::Message => Box::pin(messages::answer(self, head, body)).await,
            Target::CountTokens => Box::pin(count_tokens::count_tokens(self, head, body)).await,
            Target::Respond => Box::pin(self.respond(head, body)).await,
            Target::Stored(what) => Box::pin(self.serve_stored(head, what)).await,
            Target::ToolOutputs => Box::pin(self.tool_outputs(head, body)).await,
            Target::InputTokens => Box::pin(self.input_tokens(head, body)).await,
            Target::Compact => Box::pin(self.compact(head, body)).await,
            Target::Conversing(what) => Box::pin(self.serve_conversations(head, body, what)).await,
            Target::Usage => Box::pin(usage::answer(self)).await,
            Target::Embeddings => Box::pin(embeddings::answer(self, head, body)).await,
            _ => models::answer(self, head).await,
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
            Some(api) => chat::answer(self, api, head, body).await,
            None => self.relayed(head, body).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::net::accept::serve_connection;

    /// Returns the size of a function's future.
    fn of_three<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    fn of_four<A, B, C, D, F>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// Futures of rare routes are boxed: a future is as large as the largest that it waits for, and is moved.
    #[test]
    fn futures_stay_small() {
        let (request, connection) = (of_four(answer), of_three(serve_connection));
        assert!(request <= 7 << 10, "a request's future has {request} bytes");
        assert!(connection <= 2 << 10, "a connection's future has {connection} bytes");
    }
}
