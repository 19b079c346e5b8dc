//! Handler of Anthropic's Messages: reads a request, plans the engine's request that answers it, and relays the answer
//! (messages 2).
//!
//! Takes: the context and the body of a request. Gives: the response, whose body a [`Relay`] writes. Never: reads an
//! engine's answer.

use crate::plan::{self, Plan};
use crate::request::fields;
use crate::request::messages::{MessagesContext, MessagesRequest, OpenedThinking, Purpose};
use crate::seal::{Keys, NONCE, SealKind};
use crate::server::admit::auth::no_such_model;
use crate::server::admit::body::Body;
use crate::server::admit::default_model::named;
use crate::server::admit::headers::{joined_names, with_dropped};
use crate::server::admit::parse::parse;
use crate::server::context::RequestContext;
use crate::server::net::pending_answer::send;
use crate::server::relay::attempt::{AttemptTarget, PendingRequest, Sender, UpstreamRequest};
use crate::server::relay::{Relay, RelayParams};
use crate::upstream::ReadFor;
use crate::wire::encode::{Message, SignThinking, ThinkingProof};
use crate::wire::fault::{Failure, Fault};
use crate::wire::{Rewriter, Stamp};
use axum::body::Body as Incoming;
use bytes::Bytes;
use http::{HeaderValue, Response, request};
use std::sync::Arc;
use std::time::Instant;

/// Request after parsing, with the upstream for which it was read.
pub(super) struct ParsedRequest {
    pub(super) request: Arc<MessagesRequest>,
    pub(super) read_for: ReadFor,
    pub(super) sender: Sender,
    tenant: Arc<str>,
}

/// Answers a request for a message. Fails if the body or the request is invalid, or no upstream can be chosen.
pub(in crate::server) async fn answer(
    context: &mut RequestContext,
    head: &request::Parts,
    body: Option<Incoming>,
) -> Result<Response<Body>, Failure> {
    let limit = context.app.config.limits.max_body_bytes;
    let body = context.body(body, limit).await?;
    let start = Instant::now();
    let ParsedRequest { request, read_for, sender, tenant } =
        context.parse_messages(head, body, Purpose::Answer).await?;
    let mut selection = context.selection(
        &request.model,
        &head.headers,
        Some(read_for),
        || request.beginning(),
        || request.prompt(),
    );
    let keys = context.app.store_handle.keys();
    let (stamp, stream, model) = (context.stamp(), request.stream, request.model.clone());
    let mut call = Box::new(MessagesCall { request: Arc::clone(&request), sender, stamp, tenant, keys });
    let attempt = context.begin(&mut selection, &mut *call)?;
    let Some(mut record) = context.record.take() else { return Err(Fault::Proxy.into()) };
    record.model = context.app.pool.label(&model);
    if !request.dropped.is_empty() {
        let request_id = &*record.request_id;
        tracing::info!(
            request_id,
            dropped = joined_names(&request.dropped, ", "),
            "left out of the engine's request"
        );
    }
    let options = call.sender.options(attempt.chosen.upstream(), selection.served());
    let mut relay = Relay::new(RelayParams {
        attempt,
        resend: Some((call, selection)),
        thread: context.worker.thread,
        options,
        stream,
        record,
        writer: None,
        numbered: false,
    });
    relay.planned(start.elapsed());
    Ok(with_dropped(relay.answer().await, &request.dropped, ", "))
}

impl RequestContext {
    /// Parses the body for an upstream that serves the model. Fails if the request is invalid, or the model unknown or
    /// not allowed for the caller's key.
    pub(super) async fn parse_messages(
        &mut self,
        head: &request::Parts,
        body: Bytes,
        purpose: Purpose,
    ) -> Result<ParsedRequest, Failure> {
        let app = Arc::clone(&self.app);
        let named = named(&body);
        let given = match &named {
            Some(name) => self.substitute_model(name, &head.headers).await,
            None => {
                // A body that is no object has a mistake of its own.
                fields::check_object(&body)?;
                self.default_model(&head.headers).await?
            }
        };
        let model = given.as_deref().map(ToOwned::to_owned).or(named).unwrap_or_default();
        self.check_model(&model)?;
        let (read_for, is_known) = app.pool.read_for(&model, self.target_seed(None));
        if !is_known {
            return Err(no_such_model(&model));
        }
        let sender = self.sender(&head.headers);
        let tenant = self.tenant(&head.headers);
        let ReadFor { upstream, model: served } = &read_for;
        let options = sender.options(upstream, served);
        let context_length = app.pool.context_length(upstream, served);
        let (mode, caller) = (upstream.config.messages, Arc::clone(&tenant));
        let keys = app.store_handle.keys();
        let request = parse(&body, move |body| {
            let context = MessagesContext {
                rules: &app.config.rules,
                options: &options,
                model: given.as_deref(),
                open: &|signature| open_thinking(&keys, &caller, signature),
                defaults: app.pool.model(&model).map_or(&[], |(_, known)| &known.defaults),
                context_length,
                mode,
                purpose,
            };
            MessagesRequest::read(body, &context)
        });
        let request = request.await?;
        Ok(ParsedRequest { request: Arc::new(request), read_for, sender, tenant })
    }
}

/// Messages request, kept so that it can be planned anew for each upstream.
struct MessagesCall {
    request: Arc<MessagesRequest>,
    sender: Sender,
    stamp: Stamp,
    tenant: Arc<str>,
    keys: Arc<Keys>,
}

impl UpstreamRequest for MessagesCall {
    fn send(&mut self, to: &AttemptTarget<'_>) -> Result<PendingRequest, Failure> {
        let route = self.sender.route(to, &self.request.model);
        let (plan, mut reply) = plan::message(&self.request, &route)?;
        let Plan { path, body, shape, fallbacks, .. } = plan;
        let mut request = self.sender.outgoing(to, "POST", path, body).rewritten_by(&route);
        if self.request.stream {
            request.accept = HeaderValue::from_static("text/event-stream");
        }
        let answer = send(self.sender.client(to.upstream), request);
        reply.sign = Some(sign_thinking(&self.keys, Arc::clone(&self.tenant), self.stamp.now));
        let encoder = Box::new(Message::new(reply, &self.stamp));
        let rewriter = Rewriter::with_encoder(shape, self.stamp.clone(), encoder);
        Ok(PendingRequest::single(answer, rewriter, fallbacks))
    }

    fn text(&self, _: &AttemptTarget<'_>) -> Option<Bytes> {
        Some(self.request.body.clone())
    }
}

/// Marks of the two proofs inside of a sealed signature.
const HASH: char = 'h';
const TEXT: char = 't';

/// Returns a function that seals proofs of thinking for a tenant, with a random nonce for each call.
fn sign_thinking(keys: &Arc<Keys>, tenant: Arc<str>, now: u64) -> SignThinking {
    let keys = Arc::clone(keys);
    Box::new(move |proof| {
        let content = match proof {
            ThinkingProof::Hash(hash) => format!("{HASH}{hash}"),
            ThinkingProof::Text(text) => format!("{TEXT}{text}"),
        };
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        Some(keys.seal(SealKind::Thinking, &tenant, &content, now, nonce))
    })
}

fn open_thinking(keys: &Keys, tenant: &str, signature: &str) -> Option<OpenedThinking> {
    let content = keys.open(SealKind::Thinking, tenant, signature)?;
    if let Some(hash) = content.strip_prefix(HASH) {
        return Some(OpenedThinking::Hash(hash.to_owned()));
    }
    content.strip_prefix(TEXT).map(|text| OpenedThinking::Text(text.to_owned()))
}
