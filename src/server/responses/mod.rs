//! Responses API: responses generated through the engine and stored, and the operations on stored ones
//! (wire-format 4.1, 4.11).
//!
//! ```text
//! HTTP body ─────────┬─→ ParsedRequest ─→ PreparedRequest (with its History) ─→ Attempt ─┬─→ the client waits: Relay
//! WebSocket message ─┘                                                                   └─→ background: PendingJob
//! ```

pub(super) mod background;
pub(super) mod compact;
pub(super) mod conversations;
mod history;
pub(super) mod maintenance;
pub(super) mod stored;
pub(super) mod submit_outputs;
pub(super) mod tokens;
mod tool_outputs;
mod tool_runs;
mod tool_wait;
mod truncation;
mod upstream_request;
pub(super) mod websocket;

pub(super) use conversations::ConversationPath;
pub(super) use stored::StoredAction;

use super::BackgroundCount;
use super::admit::auth::no_such_model;
use super::admit::body::Body;
use super::admit::parse::parse;
use super::admitted::Admitted;
use super::batch::named_files::with_files;
use super::headers::{self, joined_names, with_dropped};
use super::models::naming::{self, Named};
use super::panics;
use super::relay::Relay;
use super::relay::attempt::{Attempt, AttemptTarget, EngineSender, UpstreamRequest, choose};
use super::relay::planned::Planned;
use super::relay::rounds::Rounds;
use super::relay::selection::{UpstreamSelection, target_seed};
use super::reply::ClientReply;
use super::request_body::RequestBody;
use super::storage::persist::ResponseWriter;
use super::storage::stored_answer::StoredAnswer;
use crate::plan::Route;
use crate::request::Rules;
use crate::request::responses::outputs::inherited_fields;
use crate::request::responses::{ResponsesMode, ResponsesRequest};
use crate::seal::{NONCE, SealKeys, SealKind};
use crate::store::{Item, StoreError};
use crate::upstream::ReadFor;
use crate::wire::OutputBuffer;
use crate::wire::encode::{EventFraming, Seal, StreamForm};
use crate::wire::fault::{Failure, Fault};
use background::{BackgroundJobs, PendingJob};
use bytes::Bytes;
use history::{LoadedHistory, load_history, response_selection};
use http::Response;
use http::header::HeaderMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use tool_runs::ToolPlan;
use tool_wait::{HeldStream, ToolWaits};
use truncation::TruncatableRequest;
use upstream_request::PreparedRequest;

/// State of Responses beside the store.
#[derive(Clone)]
pub(super) struct ResponsesState {
    pub(super) background_jobs: Arc<BackgroundJobs>,
    pub(super) tool_waits: Arc<ToolWaits>,
}

/// A Responses request after parsing, with the upstream and the route for which its body was read.
struct ParsedRequest {
    request: ResponsesRequest,
    /// Request body as the client sent it.
    body: Bytes,
    /// Upstream for whose mode and options the body was read; other upstreams of the same kind can serve it too.
    read_for: ReadFor,
    route: Route,
    sender: EngineSender,
    tenant: Arc<str>,
    /// Time at which the body was complete.
    since: Instant,
    /// Earlier conversation held in memory by the client's WebSocket connection, if the request continues one.
    remembered: Option<RememberedConversation>,
}

/// Conversation that a WebSocket connection holds in memory, so that a request can continue a response that is not
/// in the store.
struct RememberedConversation {
    items: Vec<Item>,
    /// True if the store has the conversation too.
    stored: bool,
}

/// Serves a request to create a response: reads the body and generates the answer. Fails if the body or the
/// request is invalid, the history cannot be loaded or no upstream can be chosen.
pub(super) async fn respond(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let bytes = body
        .read(admitted.app.config.limits.max_body_bytes, admitted, reply)
        .await?;
    create(admitted, reply, body, bytes).await
}

/// Generates a response from a complete request body.
async fn create(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
    bytes: Bytes,
) -> Result<Response<Body>, Failure> {
    let mut parsed = parse_request(admitted, reply, body, bytes, None).await?;
    let history = load_history(admitted, &mut parsed).await?;
    // Boxed because the future is large, and each caller's future would contain it.
    Box::pin(generate(admitted, reply, parsed, history, Body::arriving)).await
}

/// Parses the body for an upstream that serves the model. `way` replaces the configured mode of the route.
/// Fails if the request is invalid, the model unknown or not allowed for the caller's key.
async fn parse_request(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
    bytes: Bytes,
    way: Option<ResponsesMode>,
) -> Result<ParsedRequest, Failure> {
    let since = Instant::now();
    let (app, family) = (admitted.app, admitted.identity.family);
    let bytes = with_files(admitted, body, bytes).await?;
    let by_model = app.pool.needs_model();
    let Named {
        body: bytes,
        given,
        named,
    } = naming::name(admitted, reply, bytes, by_model).await?;
    let model = given.clone().or(named).unwrap_or_default();
    let (read_for, is_known) = app.pool.read_for(&model, target_seed(admitted, None));
    let mut sender = EngineSender::new(admitted, reply, body.share());
    sender.dialect = headers::dialect(&admitted.head.headers)?;
    let mut route = sender.route(
        &AttemptTarget::first(&read_for.upstream, &read_for.model),
        &model,
    );
    route.responses = way.unwrap_or(route.responses);
    let rules = match &app.tools {
        None => Arc::clone(&app.config.rules),
        Some(servers) => {
            if memchr::memmem::find(&bytes, b"\"mcp\"").is_some() {
                servers.want().await;
            }
            Arc::new(Rules {
                tools: servers.lists(),
                ..(*app.config.rules).clone()
            })
        }
    };
    let (options, mode) = (Arc::clone(&route.options), route.responses);
    let mut request = parse(&bytes, move |body| {
        ResponsesRequest::read_for(body, &options, mode, given, &rules)
    })
    .await?;
    if let Some(model) = naming::settle(admitted, reply, &request.model).await? {
        model.as_ref().clone_into(&mut request.model);
    }
    if !is_known {
        return Err(no_such_model(&request.model));
    }
    if route.responses == ResponsesMode::Native && route.identity.engine.takes.hosted_items {
        request.accept_hosted_items();
    }
    if family.requires_version() && app.config.azure.force_store {
        request.force_store();
    }
    let tenant = admitted.tenant();
    Ok(ParsedRequest {
        request,
        body: bytes,
        read_for,
        route,
        sender,
        tenant,
        since,
        remembered: None,
    })
}

/// Generates the response, in the background or for a waiting client, and prepares its storage. `stream` makes
/// the body of a stream. Fails before the engine is contacted if the response must be stored and cannot be.
async fn generate(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    mut parsed: ParsedRequest,
    history: LoadedHistory,
    stream: impl FnOnce(Box<Relay>) -> Body,
) -> Result<Response<Body>, Failure> {
    parsed.request.add_earlier_tools(history.history())?;
    let writer = writer(admitted, &mut parsed, &history)?;
    let ParsedRequest {
        request,
        body,
        read_for,
        route,
        sender,
        tenant,
        since,
        remembered: _,
    } = parsed;
    // Frees the body early: all that is needed of it has been copied.
    drop(body);
    if let Some(writer) = writer
        .as_ref()
        .filter(|_| request.insists_on_store() && !request.background)
    {
        // Check the room before the engine generates a response that could not be stored (faults O14, O15).
        writer
            .store
            .has_room(writer.weight())
            .await
            .map_err(|error| unavailable(admitted, &error))?;
    }
    let tools = ToolPlan::of(admitted.app, &request, &history)?;
    let dropped = request.dropped.clone();
    let (streams, background) = (request.stream, request.background);
    // On a WebSocket the client sends the outputs over the connection itself.
    let is_held = tools.is_none()
        && !admitted.by_socket
        && !background
        && tool_wait::is_requested(&admitted.head.headers, streams, &route);
    let form = StreamForm {
        framing: if background || admitted.by_socket {
            EventFraming::Lines
        } else {
            EventFraming::Sse
        },
        pauses: is_held,
        awaits_store: writer.is_some(),
    };
    let selection = response_selection(admitted, reply, &request, &history, read_for);
    reply.label(&request.model);
    log_left_out(&admitted.request_id, &request);
    let keys = admitted.app.store_handle.keys();
    let request_id = Arc::clone(&admitted.request_id);
    let truncatable = Arc::new(TruncatableRequest {
        request,
        history,
        tenant,
        keys,
        request_id,
    });
    let call = Box::new(PreparedRequest {
        truncatable,
        sender,
        stamp: admitted.stamp(),
        background,
        form,
        tools,
        queued: false,
    });
    let rounds = rounds(admitted, call.tools.as_ref(), is_held);
    if background {
        let response =
            in_background(admitted, reply, call, selection, (writer, rounds), streams).await?;
        return Ok(with_dropped(response, &dropped, ","));
    }
    let planned = Planned {
        writer,
        rounds,
        ..Planned::begin(reply, selection, call, streams)?
    };
    let mut relay = Relay::new(planned, reply.take_record()?, admitted.worker.thread);
    relay.planned(since.elapsed());
    if admitted.by_socket {
        relay.disable_keepalive();
        relay.by_events();
    }
    let response = relay.answer_as(stream).await;
    Ok(with_dropped(response, &dropped, ","))
}

/// Returns the rounds of an answer that pauses after calls: samewire runs them, or the client posts their outputs.
fn rounds(
    admitted: &Admitted<'_>,
    tools: Option<&ToolPlan>,
    is_held: bool,
) -> Option<Box<dyn Rounds>> {
    match tools {
        Some(tools) => Some(Box::new(tools.rounds(admitted.app, &admitted.request_id))),
        None if is_held => Some(Box::new(HeldStream::new(admitted))),
        None => None,
    }
}

/// Stores the queued response, starts a job that generates it, and returns the queued object or a stream of
/// its events. Fails if the store cannot create the record or no job slot is free.
async fn in_background(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    mut call: Box<PreparedRequest>,
    mut selection: UpstreamSelection,
    (writer, rounds): (Option<Box<ResponseWriter>>, Option<Box<dyn Rounds>>),
    streams: bool,
) -> Result<Response<Body>, Failure> {
    let (worker, app) = (Arc::clone(admitted.worker), Arc::clone(admitted.app));
    let chosen = choose(&app, reply, &mut selection)?;
    let served = Arc::clone(selection.served());
    let to = AttemptTarget::first(chosen.upstream(), &served);
    call.sender.want_template(&to);
    let mut pending = call.prepare(&to)?;
    let options = call.sender.options(to.upstream, to.model);
    let (dialect, keepalive) = (options.responses_dialect, options.keepalive_seconds);
    let mut first = OutputBuffer::default();
    let encoder = pending.writer.response_mut().ok_or(Fault::Proxy)?;
    let object = encoder.queue(&mut first).ok_or(Fault::Proxy)?;
    let id = encoder.response_id().unwrap_or_default().to_owned();
    call.queued = true;
    let attempt = Attempt {
        chosen,
        request: pending,
    };
    let Some(writer) = writer else {
        return Err(Fault::StoreUnavailable.into());
    };
    let place = app.responses.background_jobs.place()?;
    let (store, new) = writer.queued(&id, &object);
    let (key, conversation) = (new.key.clone(), new.conversation.clone());
    let record = reply.take_record()?;
    let started = record.started;
    let planned = Planned {
        attempt,
        resend: Some((call, selection)),
        options,
        stream: true,
        writer: None,
        rounds,
    };
    let (told, begun) = oneshot::channel();
    let begin = {
        let (app, store, key) = (Arc::clone(&app), Arc::clone(&store), key.clone());
        async move {
            if let Err(error) = store.create(new, app.store_handle.now()).await {
                let unknown = matches!(error, StoreError::Slow | StoreError::Unavailable(_));
                let _ = told.send(Err((error, record)));
                if unknown {
                    background::delete_unstarted(&app, &store, key).await;
                }
                return;
            }
            let _ = told.send(Ok(()));
            let first = first.join();
            let thread = worker.thread;
            let _counted = BackgroundCount::begin(worker);
            panics::point("background", Some(&record.request_id));
            let relay = Box::new(move || Relay::new(planned, record, thread));
            PendingJob {
                app,
                store,
                key,
                place,
                relay,
                conversation,
                first,
            }
            .run()
            .await;
        }
    };
    // A separate task: even if the client disconnects now, a response that was stored is also generated.
    #[expect(
        clippy::disallowed_methods,
        reason = "one task for each response in the background, counted"
    )]
    tokio::spawn(begin);
    if let Err((error, record)) = begun.await.map_err(|_| Fault::Proxy)? {
        reply.give_back(record);
        return Err(unavailable(admitted, &error));
    }
    let (request_id, passed) = (&admitted.request_id, &HeaderMap::new());
    let head = headers::Success {
        request_id,
        passed,
        attempts: 1,
        model: None,
    };
    Ok(match streams {
        true => {
            let following = background::Following::Beginner(StoredAnswer::beside_record(&app));
            let told = background::follow(app, store, key, None, dialect, keepalive, following);
            head.stream().map(|()| Body::stream(told))
        }
        false => head
            .object(started.elapsed())
            .map(|()| Body::full(Bytes::from(object))),
    })
}

/// Returns the writer that stores the response or adds it to a conversation; `None` if neither is wanted or
/// there is no store. Fails if the client insists on storage and there is no store, or the request is too
/// large for it.
fn writer(
    admitted: &Admitted<'_>,
    parsed: &mut ParsedRequest,
    history: &LoadedHistory,
) -> Result<Option<Box<ResponseWriter>>, Failure> {
    let ParsedRequest {
        request,
        body,
        tenant,
        remembered: known,
        ..
    } = parsed;
    if !request.store && request.conversation.is_none() {
        return Ok(None);
    }
    panics::point("store", Some(&admitted.request_id));
    let store_handle = &admitted.app.store_handle;
    let Some(store) = store_handle.store() else {
        if request.insists_on_store() && !store_handle.is_off() {
            return Err(Fault::StoreUnavailable.into());
        }
        request.disable_store()?;
        return Ok(None);
    };
    // A continuation of a response that is not in the store is stored together with the whole earlier
    // conversation.
    let alone = known.as_ref().is_some_and(|known| !known.stored);
    let writer = Box::new(ResponseWriter {
        store,
        tenant: Arc::clone(tenant),
        owner: Arc::clone(&store_handle.owner),
        ahead: store_handle.ahead(),
        whole: request.store,
        conversation: request.conversation.as_deref().map(Into::into),
        previous: request
            .previous_response_id
            .as_deref()
            .filter(|_| !alone)
            .map(Into::into),
        request: inherited_fields(simdutf8::basic::from_utf8(body).unwrap_or_default()),
        input: history.shared(request, alone).collect(),
    });
    // Only a request that insists on storage fails for its size; any other may remain unstored.
    let most = store_handle.record_bytes();
    let demands = request.insists_on_store() || request.conversation.is_some();
    if demands && writer.weight() > most {
        let message = format!(
            "The request is too large to be stored: with its answer it may have {most} bytes."
        );
        return Err(Failure::from(Fault::TooLarge)
            .with_message(message)
            .with_param("input"));
    }
    Ok(Some(writer))
}

/// Logs an error of the store, and returns the failure for the client.
fn unavailable(admitted: &Admitted<'_>, error: &StoreError) -> Failure {
    tracing::warn!(request_id = &*admitted.request_id, %error, "the store does not answer as it should");
    Fault::StoreUnavailable.into()
}

/// Returns a function that seals a text under the tenant's key, with a random nonce for each call.
fn seal(keys: &Arc<SealKeys>, kind: SealKind, tenant: Arc<str>, now: u64) -> Seal {
    let keys = Arc::clone(keys);
    Box::new(move |text| {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        Some(keys.seal(kind, &tenant, text, now, nonce))
    })
}

/// Logs the parameters of the request that were dropped or ignored.
fn log_left_out(request_id: &str, request: &ResponsesRequest) {
    if !request.dropped.is_empty() || !request.ignored.is_empty() {
        let (dropped, ignored) = (
            joined_names(&request.dropped, ","),
            joined_names(&request.ignored, ","),
        );
        tracing::info!(
            request_id,
            dropped,
            ignored,
            "left out of the engine's request"
        );
    }
}
