//! Handler of Anthropic's Messages: reads a request, plans the engine's request that answers it, and relays the answer
//! (messages 2).
//!
//! Takes: an admitted request and its body. Gives: the response, whose body a relay writes. Never: reads an
//! engine's answer.

use crate::plan::{self, Plan};
use crate::request::messages::{MessagesContext, MessagesRequest, OpenedThinking, Purpose};
use crate::seal::{NONCE, SealKeys, SealKind};
use crate::server::admit::auth::no_such_model;
use crate::server::admit::body::Body;
use crate::server::admit::budget::BudgetShare;
use crate::server::admit::parse::parse;
use crate::server::admitted::Admitted;
use crate::server::headers::{joined_names, with_dropped};
use crate::server::models::naming::{self, named};
use crate::server::net::pending_answer::prepare;
use crate::server::relay::attempt::{AttemptTarget, EngineSender, PendingRequest, UpstreamRequest};
use crate::server::relay::planned::Planned;
use crate::server::relay::selection::{UpstreamSelection, target_seed};
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::upstream::ReadFor;
use crate::wire::encode::{MessageEncoder, SignThinking, ThinkingProof};
use crate::wire::fault::Failure;
use crate::wire::{Rewriter, Stamp};
use bytes::Bytes;
use http::{HeaderValue, Response};
use std::sync::Arc;
use std::time::Instant;

/// Request after parsing, with the upstream for which it was read.
pub(super) struct ParsedMessages {
    pub(super) request: Arc<MessagesRequest>,
    pub(super) read_for: ReadFor,
    pub(super) sender: EngineSender,
    tenant: Arc<str>,
}

/// Answers a request for a message. Fails if the body or the request is invalid, or no upstream can be chosen.
pub(in crate::server) async fn answer(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let app = admitted.app;
    let bytes = body
        .read(app.config.limits.max_body_bytes, admitted, reply)
        .await?;
    let since = Instant::now();
    let parsed = parse_messages(admitted, reply, body.share(), bytes, Purpose::Answer).await?;
    let selection = parsed.selection(admitted, reply);
    let ParsedMessages {
        request,
        sender,
        tenant,
        ..
    } = parsed;
    let (stamp, stream, keys) = (admitted.stamp(), request.stream, app.store_handle.keys());
    let call = Box::new(MessagesCall {
        request: Arc::clone(&request),
        sender,
        stamp,
        tenant,
        keys,
    });
    let planned = Planned::begin(reply, selection, call, stream)?;
    reply.label(&request.model);
    if !request.dropped.is_empty() {
        tracing::info!(
            request_id = &*admitted.request_id,
            dropped = joined_names(&request.dropped, ", "),
            "left out of the engine's request"
        );
    }
    let response = planned
        .answer(reply.take_record()?, admitted.worker.thread, since)
        .await;
    Ok(with_dropped(response, &request.dropped, ", "))
}

/// Parses the body for an upstream that serves the model. `share`: of the memory budget, which the body holds. Fails if the
/// request is invalid, or the model unknown or not allowed for the caller's key.
pub(super) async fn parse_messages(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    share: Option<Arc<BudgetShare>>,
    body: Bytes,
    purpose: Purpose,
) -> Result<ParsedMessages, Failure> {
    let app = Arc::clone(admitted.app);
    let named = named(&body);
    let given = naming::model_of_message(admitted, reply, &body, named.as_deref()).await?;
    let model = given
        .as_deref()
        .map(ToOwned::to_owned)
        .or(named)
        .unwrap_or_default();
    naming::check(admitted, reply, &model)?;
    let (read_for, is_known) = app.pool.read_for(&model, target_seed(admitted, None));
    if !is_known {
        return Err(no_such_model(&model));
    }
    let sender = EngineSender::new(admitted, reply, share);
    let tenant = admitted.tenant();
    let ReadFor {
        upstream,
        model: served,
    } = &read_for;
    let options = sender.options(upstream, served);
    let context_length = app.pool.context_length(upstream, served);
    let (mode, caller) = (upstream.config.messages, Arc::clone(&tenant));
    let keys = app.store_handle.keys();
    let parsed = parse(&body, move |body| {
        let context = MessagesContext {
            rules: &app.config.rules,
            options: &options,
            model: given.as_deref(),
            open: &|signature| open_thinking(&keys, &caller, signature),
            defaults: app
                .pool
                .model(&model)
                .map_or(&[], |(_, known)| &known.defaults),
            context_length,
            mode,
            purpose,
        };
        MessagesRequest::read(body, &context)
    });
    Ok(ParsedMessages {
        request: Arc::new(parsed.await?),
        read_for,
        sender,
        tenant,
    })
}

impl ParsedMessages {
    /// Returns a selection among the upstreams that take the request in the form for which it was read.
    pub(super) fn selection(
        &self,
        admitted: &Admitted<'_>,
        reply: &ClientReply,
    ) -> UpstreamSelection {
        let Self {
            request, read_for, ..
        } = self;
        let read_for = Some(read_for.clone());
        let (beginning, prompt) = (|| request.beginning(), || request.prompt());
        UpstreamSelection::new(admitted, reply, &request.model, read_for, beginning, prompt)
    }
}

/// Messages request, kept so that it can be planned anew for each upstream.
struct MessagesCall {
    request: Arc<MessagesRequest>,
    sender: EngineSender,
    stamp: Stamp,
    tenant: Arc<str>,
    keys: Arc<SealKeys>,
}

impl UpstreamRequest for MessagesCall {
    fn prepare(&mut self, to: &AttemptTarget<'_>) -> Result<PendingRequest, Failure> {
        let route = self.sender.route(to, &self.request.model);
        let (plan, mut reply) = plan::message(&self.request, &route)?;
        let Plan {
            path,
            body,
            shape,
            fallbacks,
            ..
        } = plan;
        let mut outgoing = self
            .sender
            .outgoing(to, "POST", path, body)
            .rewritten_by(&route);
        if self.request.stream {
            outgoing.accept = HeaderValue::from_static("text/event-stream");
        }
        let answer = prepare(self.sender.client(to.upstream), outgoing);
        reply.sign = Some(sign_thinking(
            &self.keys,
            Arc::clone(&self.tenant),
            self.stamp.now,
        ));
        let encoder = Box::new(MessageEncoder::new(reply, &self.stamp));
        let rewriter = Rewriter::with_encoder(shape, self.stamp.clone(), encoder);
        Ok(PendingRequest::single(answer, rewriter, fallbacks))
    }

    fn sender(&self) -> &EngineSender {
        &self.sender
    }

    fn text(&self, _: &AttemptTarget<'_>) -> Option<Bytes> {
        Some(self.request.body.clone())
    }
}

/// Marks of the two proofs inside of a sealed signature.
const HASH: char = 'h';
const TEXT: char = 't';

/// Returns a function that seals proofs of thinking for a tenant, with a random nonce for each call.
fn sign_thinking(keys: &Arc<SealKeys>, tenant: Arc<str>, now: u64) -> SignThinking {
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

fn open_thinking(keys: &SealKeys, tenant: &str, signature: &str) -> Option<OpenedThinking> {
    let content = keys.open(SealKind::Thinking, tenant, signature)?;
    if let Some(hash) = content.strip_prefix(HASH) {
        return Some(OpenedThinking::Hash(hash.to_owned()));
    }
    content
        .strip_prefix(TEXT)
        .map(|text| OpenedThinking::Text(text.to_owned()))
}
