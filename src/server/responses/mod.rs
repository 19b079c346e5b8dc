//! Responses API: responses generated through the engine and stored, and the operations on stored ones
//! (wire-format 4.1, 4.11).
//!
//! ```text
//! HTTP body ─────────┬─→ ParsedRequest ─→ PreparedRequest (with its History) ─→ Attempt ─┬─→ the client waits: Relay
//! WebSocket message ─┘                                                                   └─→ background: PendingJob
//! ```

pub(super) mod background;
mod compact;
mod conversations;
mod history;
pub(super) mod maintenance;
pub(super) mod persist;
pub(super) mod store_handle;
mod stored;
mod submit_outputs;
mod tokens;
mod tool_outputs;
mod tool_wait;
mod truncation;
mod upstream_request;
mod websocket;

pub(super) use conversations::ConversationPath;
pub(super) use stored::{StoredAction, decoded, not_found};
pub(super) use tool_wait::ToolWaits;

use super::Worker;
use super::admit::auth::no_such_model;
use super::admit::body::Body;
use super::admit::default_model::named as named_model;
use super::admit::headers::{self, joined_names, with_dropped};
use super::admit::parse::parse;
use super::admit::quota::Ticket;
use super::context::RequestContext;
use super::panics;
use super::record::Record;
use super::relay::attempt::{Attempt, AttemptTarget, Sender, UpstreamRequest};
use super::relay::selection::UpstreamSelection;
use super::relay::{Relay, RelayParams};
use super::stored_answer::StoredAnswer;
use crate::plan::Route;
use crate::request::invalid;
use crate::request::responses::outputs::inherited_fields;
use crate::request::responses::{ResponsesMode, ResponsesRequest};
use crate::seal::{Keys, NONCE, SealKind};
use crate::store::{Error, Item};
use crate::upstream::ReadFor;
use crate::wire::OutputBuffer;
use crate::wire::encode::{Framing, Seal, StreamForm};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::ResponsesDialect;
use axum::body::Body as Incoming;
use background::PendingJob;
use bytes::Bytes;
use history::History;
use http::header::HeaderMap;
use http::{Response, request};
use persist::ResponseWriter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::oneshot;
use tool_wait::ContinuationContext;
use truncation::TruncatableRequest;
use upstream_request::PreparedRequest;

const DIALECT: &str = "x-samewire-dialect";

/// A Responses request after parsing, with the upstream and the route for which its body was read.
struct ParsedRequest {
    asked: ResponsesRequest,
    /// Request body as the client sent it.
    body: Bytes,
    /// Upstream for whose mode and options the body was read; other upstreams of the same kind can serve it too.
    read_for: ReadFor,
    route: Route,
    sender: Sender,
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

/// Guard that counts one background response of this worker thread. Dropping it lowers the count, however the job
/// ends.
pub(super) struct BackgroundCount(Arc<Worker>);

impl BackgroundCount {
    pub(super) fn begin(worker: Arc<Worker>) -> Self {
        worker.background.fetch_add(1, Ordering::Relaxed);
        Self(worker)
    }
}

impl Drop for BackgroundCount {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestContext {
    /// Serves a request to create a response: reads the body and generates the answer. Fails if the body or the
    /// request is invalid, the history cannot be loaded or no upstream can be chosen.
    pub(super) async fn respond(
        &mut self,
        head: &request::Parts,
        body: Option<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let limit = self.app.config.limits.max_body_bytes;
        let body = self.body(body, limit).await?;
        self.create(head, body).await
    }

    /// Generates a response from a complete request body.
    async fn create(&mut self, head: &request::Parts, body: Bytes) -> Result<Response<Body>, Failure> {
        let mut parsed = self.parse_request(head, body, None).await?;
        let history = self.history(&mut parsed).await?;
        // Boxed because the future is large, and each caller's future would contain it.
        Box::pin(self.generate(head, parsed, history, Body::arriving)).await
    }

    /// Returns the dialect of a stream that involves no upstream: the client's choice, else the usual one for its
    /// key. Fails if the dialect header has an unknown value.
    pub(super) fn dialect(&self, head: &request::Parts) -> Result<ResponsesDialect, Failure> {
        let key = self.caller.as_ref().map(|caller| caller.index);
        let usual = || self.app.pool.usual_options(key).responses_dialect;
        Ok(dialect(&head.headers)?.unwrap_or_else(usual))
    }

    /// Parses the body for an upstream that serves the model. `way` replaces the configured mode of the route.
    /// Fails if the request is invalid, the model unknown or not allowed for the caller's key.
    async fn parse_request(
        &mut self,
        head: &request::Parts,
        body: Bytes,
        way: Option<ResponsesMode>,
    ) -> Result<ParsedRequest, Failure> {
        let since = Instant::now();
        let app = Arc::clone(&self.app);
        let mut given = self.family.deployment(head);
        let body = self.with_files(body, &head.headers).await?;
        let body = self.with_defaults(body, &mut given, &head.headers).await?;
        let named = if app.pool.needs_model() && given.is_none() { named_model(&body) } else { None };
        if app.pool.needs_model() && given.is_none() && named.is_none() {
            given = self.default_model(&head.headers).await?.as_deref().map(ToOwned::to_owned);
        }
        let model = given.clone().or(named).unwrap_or_default();
        let (read_for, is_known) = app.pool.read_for(&model, self.target_seed(None));
        let mut sender = self.sender(&head.headers);
        sender.dialect = dialect(&head.headers)?;
        let mut route = sender.route(&AttemptTarget::first(&read_for.upstream, &read_for.model), &model);
        route.responses = way.unwrap_or(route.responses);
        let (rules, options, mode) = (Arc::clone(self.rules()), Arc::clone(&route.options), route.responses);
        let mut asked =
            parse(&body, move |body| ResponsesRequest::read_for(body, &options, mode, given, &rules)).await?;
        if asked.model.is_empty()
            && let Some(model) = self.default_model(&head.headers).await?
        {
            model.as_ref().clone_into(&mut asked.model);
        }
        self.check_model(&asked.model)?;
        if !is_known {
            return Err(no_such_model(&asked.model));
        }
        if route.responses == ResponsesMode::Native && route.identity.engine.takes.native.hosted_items {
            asked.accept_hosted_items();
        }
        if self.family.requires_version() && app.config.azure.force_store {
            asked.force_store();
        }
        let tenant = self.tenant(&head.headers);
        Ok(ParsedRequest { asked, body, read_for, route, sender, tenant, since, remembered: None })
    }

    /// Generates the response, in the background or for a waiting client, and prepares its storage. `stream` makes
    /// the body of a stream. Fails before the engine is contacted if the response must be stored and cannot be.
    async fn generate(
        &mut self,
        head: &request::Parts,
        mut parsed: ParsedRequest,
        history: History,
        stream: impl FnOnce(Box<Relay>) -> Body,
    ) -> Result<Response<Body>, Failure> {
        parsed.asked.add_earlier_tools(history.history())?;
        let writer = self.writer(&mut parsed, &history)?;
        let ParsedRequest { asked, body, read_for, route, sender, tenant, since, remembered: _ } = parsed;
        // Frees the body early: all that is needed of it has been copied.
        drop(body);
        if let Some(writer) = writer.as_ref().filter(|_| asked.insists_on_store() && !asked.background) {
            // Check the room before the engine generates a response that could not be stored (faults O14, O15).
            writer.store.has_room(writer.weight()).await.map_err(|error| self.unavailable(&error))?;
        }
        let app = Arc::clone(&self.app);
        let dropped = asked.dropped.clone();
        let (streams, background) = (asked.stream, asked.background);
        // On a WebSocket the client sends the outputs over the connection itself.
        let is_held = !self.by_socket && !background && tool_wait::is_wanted(&head.headers, streams, &route);
        let form = StreamForm {
            framing: if background || self.by_socket { Framing::Lines } else { Framing::Sse },
            pauses: is_held,
            awaits_store: writer.is_some(),
        };
        let mut selection = self.response_selection(&asked, &history, &head.headers, read_for);
        let options = Arc::clone(&route.options);
        let stamp = self.stamp();
        let Some(record) = &mut self.record else { return Err(Fault::Proxy.into()) };
        record.model = app.pool.label(&asked.model);
        log_left_out(record, &asked);
        let keys = app.store_handle.keys();
        let request_id = Arc::clone(&record.request_id);
        let truncatable = Arc::new(TruncatableRequest { asked, history, tenant, keys, request_id });
        let mut request =
            Box::new(PreparedRequest { truncatable, sender, stamp, background, form, queued: false });
        if background {
            let response = self.in_background(request, selection, writer, streams).await?;
            return Ok(with_dropped(response, &dropped, ","));
        }
        let attempt = self.begin(&mut selection, &mut *request)?;
        let Some(record) = self.record.take() else { return Err(Fault::Proxy.into()) };
        let continuation = is_held.then(|| ContinuationContext {
            truncatable: (*request.truncatable).clone(),
            sender: request.sender.clone(),
            upstream: Arc::clone(attempt.chosen.upstream()),
            model: Arc::clone(selection.served()),
            served: record.served.clone(),
            caller: self.caller.clone(),
            admission: record.ticket.as_ref().map(Ticket::admission),
        });
        let stamp = request.stamp.clone();
        let params = RelayParams {
            attempt,
            resend: Some((request, selection)),
            thread: self.worker.thread,
            options,
            stream: streams,
            record,
            writer,
            numbered: true,
        };
        let response = match continuation {
            None => self.relay_to_client(params, since, stream).await,
            Some(continuation) => self.relay_and_hold(params, continuation, stamp, since).await,
        };
        Ok(with_dropped(response, &dropped, ","))
    }

    /// Relays the response to a waiting client, as events if the request came over a WebSocket.
    async fn relay_to_client(
        &self,
        params: RelayParams,
        since: Instant,
        stream: impl FnOnce(Box<Relay>) -> Body,
    ) -> Response<Body> {
        let mut relay = Relay::new(params);
        relay.planned(since.elapsed());
        if self.by_socket {
            relay.disable_keepalive();
            relay.by_events();
        }
        relay.answer_as(stream).await
    }

    /// Stores the queued response, starts a job that generates it, and returns the queued object or a stream of
    /// its events. Fails if the store cannot create the record or no job slot is free.
    async fn in_background(
        &mut self,
        mut request: Box<PreparedRequest>,
        mut selection: UpstreamSelection,
        writer: Option<Box<ResponseWriter>>,
        streams: bool,
    ) -> Result<Response<Body>, Failure> {
        let (worker, app) = (Arc::clone(&self.worker), Arc::clone(&self.app));
        let chosen = self.choose(&mut selection)?;
        let served = Arc::clone(selection.served());
        let to = AttemptTarget::first(chosen.upstream(), &served);
        let mut pending = request.send(&to)?;
        let options = request.sender.route(&to, &request.truncatable.asked.model).options;
        let (dialect, keepalive) = (options.responses_dialect, options.keepalive_seconds);
        let mut first = OutputBuffer::default();
        let encoder = pending.rewriter.encoder_mut();
        let object = encoder.queue(&mut first).ok_or(Fault::Proxy)?;
        let id = encoder.response_id().unwrap_or_default().to_owned();
        request.queued = true;
        let attempt = Attempt { chosen, request: pending };
        let Some(writer) = writer else { return Err(Fault::StoreUnavailable.into()) };
        let place = app.background_jobs.place()?;
        let (store, new) = writer.queued(&id, &object);
        let (key, conversation) = (new.key.clone(), new.conversation.clone());
        let Some(record) = self.record.take() else { return Err(Fault::Proxy.into()) };
        let (request_id, started) = (record.request_id.clone(), record.started);
        let params = RelayParams {
            attempt,
            resend: Some((request, selection)),
            thread: worker.thread,
            options,
            stream: true,
            record,
            writer: None,
            numbered: true,
        };
        let (told, begun) = oneshot::channel();
        let begin = {
            let (app, store, key) = (Arc::clone(&app), Arc::clone(&store), key.clone());
            async move {
                if let Err(error) = store.create(new, app.store_handle.now()).await {
                    let unknown = matches!(error, Error::Slow | Error::Unavailable(_));
                    let _ = told.send(Err((error, params.record)));
                    if unknown {
                        background::delete_unstarted(&app, &store, key).await;
                    }
                    return;
                }
                let _ = told.send(Ok(()));
                let first = first.join();
                let _counted = BackgroundCount::begin(worker);
                panics::point("background", Some(&params.record.request_id));
                let relay = Box::new(move || Relay::new(params));
                PendingJob { app, store, key, place, relay, conversation, first }.run().await;
            }
        };
        // A task of its own: even if the client disconnects now, a response that was stored is also generated.
        #[expect(
            clippy::disallowed_methods,
            reason = "one task for each response in the background, counted"
        )]
        tokio::spawn(begin);
        if let Err((error, record)) = begun.await.map_err(|_| Fault::Proxy)? {
            self.record = Some(record);
            return Err(self.unavailable(&error));
        }
        let head =
            headers::Success { request_id: &request_id, passed: &HeaderMap::new(), attempts: 1, model: None };
        Ok(match streams {
            true => {
                let following = background::Following::Beginner(StoredAnswer::beside_record(&app));
                let told = background::follow(app, store, key, None, dialect, keepalive, following);
                head.stream().map(|()| Body::stream(told))
            }
            false => head.object(started.elapsed()).map(|()| Body::full(Bytes::from(object))),
        })
    }

    /// Returns the writer that stores the response or adds it to a conversation; `None` if neither is wanted or
    /// there is no store. Fails if the client insists on storage and there is no store, or the request is too
    /// large for it.
    fn writer(
        &self,
        parsed: &mut ParsedRequest,
        history: &History,
    ) -> Result<Option<Box<ResponseWriter>>, Failure> {
        let ParsedRequest { asked, body, tenant, remembered: known, .. } = parsed;
        if !asked.store && asked.conversation.is_none() {
            return Ok(None);
        }
        let request_id = self.record.as_ref().map(|record| &*record.request_id);
        panics::point("store", request_id.or(Some("")));
        let store_handle = &self.app.store_handle;
        let Some(store) = store_handle.store() else {
            if asked.insists_on_store() && !store_handle.is_off() {
                return Err(Fault::StoreUnavailable.into());
            }
            asked.disable_store()?;
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
            whole: asked.store,
            conversation: asked.conversation.as_deref().map(Into::into),
            previous: asked.previous_response_id.as_deref().filter(|_| !alone).map(Into::into),
            request: inherited_fields(simdutf8::basic::from_utf8(body).unwrap_or_default()).into(),
            input: history.shared(asked, alone).collect(),
        });
        // Only a request that insists on storage fails for its size; any other may remain unstored.
        let most = store_handle.record_bytes();
        let demands = asked.insists_on_store() || asked.conversation.is_some();
        if demands && writer.weight() > most {
            let message =
                format!("The request is too large to be stored: with its answer it may have {most} bytes.");
            return Err(Failure::from(Fault::TooLarge).with_message(message).with_param("input"));
        }
        Ok(Some(writer))
    }

    fn unavailable(&self, error: &Error) -> Failure {
        let request_id = self.record.as_ref().map(|record| &*record.request_id);
        tracing::warn!(request_id, %error, "the store does not answer as it should");
        Fault::StoreUnavailable.into()
    }
}

/// Returns a function that seals a text under the tenant's key, with a random nonce for each call.
fn seal(keys: &Arc<Keys>, kind: SealKind, tenant: Arc<str>, now: u64) -> Seal {
    let keys = Arc::clone(keys);
    Box::new(move |text| {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        Some(keys.seal(kind, &tenant, text, now, nonce))
    })
}

/// Logs the parameters of the request that were dropped or ignored.
fn log_left_out(record: &Record, asked: &ResponsesRequest) {
    if !asked.dropped.is_empty() || !asked.ignored.is_empty() {
        let (dropped, ignored) = (joined_names(&asked.dropped, ","), joined_names(&asked.ignored, ","));
        let request_id = &*record.request_id;
        tracing::info!(request_id, dropped, ignored, "left out of the engine's request");
    }
}

/// Returns the dialect that the `x-samewire-dialect` header names, `None` without the header. Fails on an unknown
/// name.
fn dialect(headers: &HeaderMap) -> Result<Option<ResponsesDialect>, Failure> {
    let Some(name) = headers.get(DIALECT) else { return Ok(None) };
    match name.as_bytes() {
        b"openai" => Ok(Some(ResponsesDialect::Openai)),
        b"openresponses" => Ok(Some(ResponsesDialect::Openresponses)),
        b"codex-legacy" => Ok(Some(ResponsesDialect::CodexLegacy)),
        _ => Err(invalid(DIALECT, "openai, openresponses or codex-legacy")),
    }
}
