//! Routes: the router, and the steps that every request goes through before its handler.
//!
//! Takes: an HTTP request and its [`Target`]. Gives: a response, with the headers that every response has. Never:
//! defines the paths of the API; `paths` does.

use super::admission::{check_room, count, identify};
use super::admit::azure::{self, RouteFamily};
use super::admit::body::Body;
use super::admit::browsers::{self, CorsRights};
use super::admitted::Admitted;
use super::batch;
use super::handlers::readiness::NotReady;
use super::handlers::relayed;
use super::handlers::{chat, count_tokens, embeddings, messages, models, page, usage};
use super::headers::{self, ErrorResponse};
use super::ids::IdSource;
use super::net::connection_state::{ActiveRequest, ConnectionState};
use super::net::disconnect;
use super::panics;
use super::paths::{self, Target};
use super::record::Record;
use super::reply::{ClientReply, bare};
use super::request_body::RequestBody;
use super::responses::{self, compact, conversations, stored, submit_outputs, tokens, websocket};
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
use http::{HeaderValue, Method, Response, StatusCode, Version, request};
use http_body::Body as _;
use std::sync::Arc;

/// Returns the router, which maps each path to its [`Target`]. Paths are compared as they are: a path that is
/// decoded or normalised in one place and not in another could bypass a check.
pub(super) fn router(worker: Arc<Worker>) -> Router {
    let to = |target, family| move |State(worker), request| answer(worker, request, target, family);
    let mut router =
        Router::new().route(paths::HEALTH, get(to(Target::Health, RouteFamily::Plain)));
    if worker.active_config.app().page.is_some() {
        router = router.route("/", get(to(Target::Page, RouteFamily::Plain)));
    }
    // Those of batches are there even if they are not served: a reload may change that.
    for (pattern, family, path) in paths::all().chain(paths::of_batches()) {
        let mut methods = MethodRouter::new();
        methods = path
            .get
            .into_iter()
            .fold(methods, |methods, target| methods.get(to(target, family)));
        methods = path
            .post
            .into_iter()
            .fold(methods, |methods, target| methods.post(to(target, family)));
        methods = path.delete.into_iter().fold(methods, |methods, target| {
            methods.delete(to(target, family))
        });
        router = router.route(&pattern, methods);
    }
    let root_path = worker.active_config.app().config.root_path.clone();
    let router = router
        .method_not_allowed_fallback(to(Target::OtherMethod, RouteFamily::Plain))
        .fallback(to(Target::Nothing, RouteFamily::Plain))
        .with_state(worker);
    match root_path {
        // The path is removed before any route sees the request.
        Some(root_path) => Router::new()
            .nest_service(&root_path, router.clone())
            .fallback_service(router),
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
    let state = head
        .extensions
        .get::<ConnectionState>()
        .cloned()
        .unwrap_or_default();
    let busy = ActiveRequest::begin(&state);
    let mut response = match (
        refused_by_its_head(&head, &app.config.limits),
        IdSource::draw(),
    ) {
        (Some(status), _) => bare(status),
        (None, Err(_)) => bare(StatusCode::INTERNAL_SERVER_ERROR),
        (None, Ok(chance)) => {
            // The page and the health check need no key and have neither limits nor a record.
            let is_for = |other| target == other && head.uri.authority().is_none();
            let own = || match &app.page {
                Some(page) if is_for(Target::Page) => Some(Ok(page::response(page))),
                _ => is_for(Target::Health).then(|| health(&app)),
            };
            let open = sharing.preflight(&head).or_else(own);
            match open {
                Some(answer) => {
                    unrecorded(answer, &head, has_body(&head, &body), &chance, busy, &app)
                }
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
        let given = headers::request_id(&head.headers);
        ErrorResponse::plain(
            &failure,
            &given.map_or_else(|| chance.request_id(), Arc::from),
        )
    });
    if has_body || app.is_shutting_down() {
        headers::close(&mut response);
    }
    response.map(|body| Body::full(body).keeping_busy(busy))
}

/// Returns true if a request has a body, some of which may still be arriving.
fn has_body(head: &request::Parts, body: &Incoming) -> bool {
    let announced = head.headers.contains_key(TRANSFER_ENCODING)
        || head
            .headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    if head.version == Version::HTTP_2 {
        !body.is_end_stream()
    } else {
        announced
    }
}

/// Answers a request that has a record: dispatches it, and adds the headers that its response needs.
async fn handle(
    (app, worker, busy, ids): (Arc<App>, Arc<Worker>, ActiveRequest, IdSource),
    (mut head, body): (request::Parts, Incoming),
    target: Target,
    family: RouteFamily,
) -> Response<Body> {
    let request_id = headers::request_id(&head.headers).map_or_else(|| ids.request_id(), Arc::from);
    panics::arm(&head.headers, &request_id);
    disconnect::arm(&head.headers);
    // A request target with a host in it is meant for a forward proxy.
    let target = if head.uri.authority().is_some() {
        Target::Nothing
    } else {
        target
    };
    let is_unserved = !app.config.batch.enabled
        && matches!(target, Target::Batch(_) | Target::OtherMethod)
        && paths::is_of_batches(head.uri.path());
    let target = if is_unserved { Target::Nothing } else { target };
    let is_other = target == Target::Nothing && head.uri.authority().is_none();
    let way = is_other
        .then(|| relayed::find(head.uri.path(), &app.config.relayed))
        .flatten();
    let is_relayed = way.is_some();
    let (target, family) = match way {
        Some((family, path))
            if head.method == Method::POST && app.config.relayed.rewrites(&path) =>
        {
            (Target::ByBody, family)
        }
        Some((family, _)) if head.method == Method::POST => (Target::Relayed, family),
        Some((family, _)) => (Target::OtherMethod, family),
        None => (target, family),
    };
    let protocol = target.protocol(head.uri.path(), &head.headers);
    protocol.unify_key(&mut head.headers);
    let record = Record::new(&app, target.route(), Arc::clone(&request_id));
    let mut reply = ClientReply::new(
        record
            .in_protocol(protocol)
            .traced(&head)
            .with_request(&head),
    );
    let mut body = RequestBody::new(has_body(&head, &body).then_some(body), busy);
    let arrived = Arrived {
        app: &app,
        worker: &worker,
        head: &head,
        request_id,
        ids,
        family,
    };
    let result = dispatch(arrived, target, &mut reply, &mut body).await;
    let mut response = result.unwrap_or_else(|failure| reply.refuse(&failure));
    if target == Target::Nothing && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    if is_relayed && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if response.status() == StatusCode::UPGRADE_REQUIRED {
        headers::offer_socket(&mut response);
    }
    let stays = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let last =
        body.unread || app.is_shutting_down() || head.headers.contains_key(TRANSFER_ENCODING);
    if last && !stays {
        headers::close(&mut response);
    }
    if let Some(quota) = reply.quota {
        quota.set_headers(response.headers_mut());
    }
    let status = response.status().as_u16();
    protocol.rename_headers(status, response.headers_mut());
    let client_request_id = azure::client_request_id(&head.headers);
    family.add_headers(
        &mut response,
        client_request_id,
        azure::known_version(&head),
        &app.config.azure,
    );
    if let Some(recording) = &reply.recording {
        recording.answer_head(
            &format!("HTTP/1.1 {}", response.status()),
            response.headers(),
        );
    }
    response.map(|answer| {
        answer
            .recorded(reply.recording)
            .keeping_busy(body.active_request)
    })
}

/// Returns the status for a head that the HTTP library accepts although it should not; `None` for a valid head.
fn refused_by_its_head(head: &request::Parts, limits: &Limits) -> Option<StatusCode> {
    let length = head
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    if length > limits.max_uri_bytes {
        return Some(StatusCode::URI_TOO_LONG);
    }
    // The library limits only its buffer, which holds a little more than the head.
    let fields: usize = head
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if length + fields > limits.max_head_bytes {
        return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let good = headers::has_host(head) && headers::is_ascii(&head.headers);
    (!good).then_some(StatusCode::BAD_REQUEST)
}

/// Request of which only the head is known.
struct Arrived<'h> {
    app: &'h Arc<App>,
    worker: &'h Arc<Worker>,
    head: &'h request::Parts,
    request_id: Arc<str>,
    ids: IdSource,
    family: RouteFamily,
}

/// Passes a request through the checks that all have in common, and on to the handler of its target.
async fn dispatch(
    arrived: Arrived<'_>,
    target: Target,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let Arrived {
        app,
        worker,
        head,
        request_id,
        ids,
        family,
    } = arrived;
    // Check for loops before the key, because probes of samewire itself have none.
    Hops::read(&head.headers)?;
    let identity = identify(head, family, app, reply)?;
    panics::point("handler", Some(&request_id));
    check_target(target, head, app)?;
    check_form(head, app)?;
    // A WebSocket counts as a request only while it has one in progress.
    if target != Target::Socket || app.refuses_requests() {
        check_room(app)?;
    }
    let admitted = Admitted {
        app,
        worker,
        head,
        request_id,
        ids,
        identity,
        by_socket: false,
    };
    family.check(head, &app.config.azure)?;
    if target.reaches_engine() {
        count(&admitted, reply).await?;
    }
    handle_target(&admitted, target, reply, body).await
}

/// Fails if there is no such path, or if it does not take the method.
fn check_target(target: Target, head: &request::Parts, app: &App) -> Result<(), Failure> {
    match target {
        Target::Nothing if matches!(head.method, Method::CONNECT | Method::TRACE) => {
            let message = format!("The method {} is not supported.", head.method);
            Err(Failure::from(Fault::MethodNotSupported).with_message(message))
        }
        Target::Nothing => Err(paths::unknown(
            &head.method,
            head.uri.path(),
            &app.config.relayed,
        )),
        Target::OtherMethod => Err(paths::other_method(&head.method, head.uri.path())),
        _ => Ok(()),
    }
}

/// Fails on a request that a browser may have sent for a page that has no right to it.
fn check_form(head: &request::Parts, app: &App) -> Result<(), Failure> {
    if app.config.auth.is_none() {
        browsers::check_host(head, &app.config.cors)?;
    }
    browsers::check_form(head, &app.config.cors)
}

/// Calls the handler of a target. Futures of rare targets are boxed, because they are large.
async fn handle_target(
    admitted: &Admitted<'_>,
    target: Target,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    match target {
        Target::Socket if body.unread => return Err(Fault::UpgradeRequired.into()),
        Target::Socket => return websocket::upgrade(admitted, reply, &body.active_request).await,
        Target::Relayed => return Box::pin(relayed::relay(admitted, reply, body)).await,
        Target::ByBody => return Box::pin(by_body(admitted, reply, body)).await,
        Target::Batch(path) => return Box::pin(batch::serve(admitted, reply, body, path)).await,
        _ => {}
    }
    headers::check(&admitted.head.headers)?;
    body.is_labelled_form = headers::is_labelled_form(&admitted.head.headers);
    match target {
        Target::Answer(api) => return chat::answer(admitted, reply, body, api).await,
        Target::Message => return Box::pin(messages::answer(admitted, reply, body)).await,
        Target::CountTokens => {
            return Box::pin(count_tokens::count_tokens(admitted, reply, body)).await;
        }
        Target::Respond => return Box::pin(responses::respond(admitted, reply, body)).await,
        Target::ToolOutputs => {
            return Box::pin(submit_outputs::tool_outputs(admitted, reply, body)).await;
        }
        Target::InputTokens => return Box::pin(tokens::input_tokens(admitted, reply, body)).await,
        Target::Compact => return Box::pin(compact::compact(admitted, reply, body)).await,
        Target::Conversing(path) => {
            return Box::pin(conversations::serve_conversations(
                admitted, reply, body, path,
            ))
            .await;
        }
        Target::Embeddings => return Box::pin(embeddings::answer(admitted, reply, body)).await,
        _ => {}
    }
    // The rest reads no body.
    body.active_request.begin_answer();
    match target {
        Target::Stored(action) => Box::pin(stored::serve_stored(admitted, reply, action)).await,
        Target::Usage => Box::pin(usage::answer(admitted, reply)).await,
        _ => models::answer(admitted, reply).await,
    }
}

/// Answers a request on a relayed route by its body: rewritten if the body belongs to an API that is
/// rewritten, else relayed unchanged.
async fn by_body(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let bytes = body
        .read(admitted.app.config.limits.max_body_bytes, admitted, reply)
        .await?;
    let api = api_of(&bytes);
    body.incoming = Some(Incoming::from(bytes));
    match api {
        Some(api) => chat::answer(admitted, reply, body, api).await,
        None => relayed::relay(admitted, reply, body).await,
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
        assert!(
            connection <= 2 << 10,
            "a connection's future has {connection} bytes"
        );
    }
}
