//! Handler of Anthropic's Messages: reads a request, plans the chat request that answers it, and relays the answer;
//! and of its token counts (messages 2).
//!
//! Takes: the context and the body of a request. Gives: the response, whose body a [`Relay`] writes. Never: reads an
//! engine's answer.

use crate::json::{self, Raw, integer, object, write_number};
use crate::plan::{self, Plan};
use crate::request::messages::{MessagesContext, MessagesRequest, OpenedThinking, Purpose};
use crate::request::{ChatRequest, Rules};
use crate::seal::{Keys, NONCE, SealKind};
use crate::server::admit::auth::no_such_model;
use crate::server::admit::body::Body;
use crate::server::admit::default_model::named;
use crate::server::admit::headers::with_dropped;
use crate::server::context::RequestContext;
use crate::server::net::pending_answer::send;
use crate::server::relay::attempt::{AttemptTarget, PendingRequest, Sender, UpstreamRequest};
use crate::server::relay::{Relay, RelayParams};
use crate::upstream::Upstream;
use crate::wire::encode::{Message, SignThinking, ThinkingProof};
use crate::wire::fault::{Failure, Fault};
use crate::wire::{Rewriter, Stamp};
use axum::body::Body as Incoming;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Response, request};
use std::sync::Arc;
use std::time::Instant;

/// Path under which vLLM counts the tokens of a chat (capture `other-tokenize-chat`).
const TOKENIZE: &str = "/tokenize";

/// Request after parsing, with the upstream for which it was read.
struct ParsedRequest {
    request: Arc<MessagesRequest>,
    upstream: Arc<Upstream>,
    sender: Sender,
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
    let ParsedRequest { request, upstream, sender, tenant } =
        context.parse_messages(head, body, Purpose::Answer).await?;
    let chat = &request.chat;
    let beginning = || chat.leading_messages(&request.body);
    let mut selection = context.selection(&chat.model, &head.headers, Some(upstream), beginning);
    let keys = Arc::clone(&context.app.store_handle.keys);
    let (stamp, stream, model) = (context.stamp(), chat.stream, chat.model.clone());
    let mut call = Box::new(MessagesCall { request: Arc::clone(&request), sender, stamp, tenant, keys });
    let attempt = context.begin(&mut selection, &mut *call)?;
    let Some(mut record) = context.record.take() else { return Err(Fault::Proxy.into()) };
    record.model = context.app.pool.label(&model);
    if !request.dropped.is_empty() {
        let request_id = &record.request_id;
        tracing::info!(request_id, dropped = request.dropped.join(", "), "left out of the engine's request");
    }
    let options = call.sender.options(attempt.chosen.upstream(), &model);
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

/// Answers a request for the number of tokens of a prompt. The engine counts them: with its tokenizer, or where it has
/// no route for that, by an answer of one token. Fails if it can do neither.
pub(in crate::server) async fn count_tokens(
    context: &mut RequestContext,
    head: &request::Parts,
    body: Option<Incoming>,
) -> Result<Response<Body>, Failure> {
    let limits = &context.app.config.limits;
    let (limit, answer_limit) = (limits.max_body_bytes, limits.max_answer_bytes);
    let body = context.body(body, limit).await?;
    let parsed = context.parse_messages(head, body, Purpose::Count).await?;
    let model = parsed.request.chat.model.clone();
    if let Some(record) = &mut context.record {
        record.model = context.app.pool.label(&model);
    }
    let upstream = Arc::clone(&parsed.upstream);
    let selection = || {
        let beginning = || parsed.request.chat.leading_messages(&parsed.request.body);
        context.selection(&model, &head.headers, Some(Arc::clone(&upstream)), beginning)
    };
    let (mut first, mut second) = (selection(), selection());
    let tokenize = |to: &AttemptTarget<'_>| {
        let adapted = plan::message_body(&parsed.request, &parsed.sender.route(to, &model))?;
        Ok(parsed.sender.outgoing(to, "POST", TOKENIZE, adapted.body))
    };
    let counted = context.request_object(&parsed.sender, &mut first, answer_limit, tokenize).await;
    let count = match counted {
        Ok(answer) => member_of::<TokenCount<'_>>(&answer, |count| count.count),
        Err(failure) if cannot_tokenize(&failure) => {
            let (chat, body) = one_token(&parsed.request.body, context.rules())?;
            let generate = |to: &AttemptTarget<'_>| {
                let plan = plan::plan(&chat, &body, &parsed.sender.route(to, &model))?;
                Ok(parsed.sender.outgoing(to, "POST", plan.path, plan.body))
            };
            let answer = context.request_object(&parsed.sender, &mut second, answer_limit, generate).await?;
            let usage = |answer: UsageAnswer<'_>| answer.usage.map(Raw::get).map(ToOwned::to_owned);
            let usage = read_member(&answer, usage).unwrap_or_default();
            member_of::<UsageCount<'_>>(usage.as_bytes(), |usage| usage.prompt_tokens)
        }
        Err(failure) => return Err(failure),
    };
    let mut out = BytesMut::from(&b"{\"input_tokens\":"[..]);
    write_number(count.ok_or(Fault::InvalidResponse)?, &mut out);
    out.put_u8(b'}');
    let response = context.object_response(out.freeze());
    Ok(with_dropped(response, &parsed.request.dropped, ", "))
}

object! {
    /// Answer of the engine's tokenize route, of which only the count is used.
    struct TokenCount<'a> {
        count: Raw<'a> = "count",
    }
}
object! {
    /// Answer of an engine, of which only the usage is used.
    struct UsageAnswer<'a> {
        usage: Raw<'a> = "usage",
    }
}
object! {
    /// Usage of an answer, of which only the tokens of the prompt are used.
    struct UsageCount<'a> {
        prompt_tokens: Raw<'a> = "prompt_tokens",
    }
}

fn read_member<'a, T: json::Read<'a>, R>(body: &'a [u8], member: impl Fn(T) -> Option<R>) -> Option<R> {
    member(json::read(std::str::from_utf8(body).ok()?).ok()?)
}

fn member_of<'a, T: json::Read<'a>>(body: &'a [u8], member: impl Fn(T) -> Option<Raw<'a>>) -> Option<u64> {
    read_member(body, member).and_then(integer)
}

/// Returns true for the failure of an engine that has no tokenize route, or whose route accepts only texts (SGLang
/// 0.5.12).
fn cannot_tokenize(failure: &Failure) -> bool {
    let texts_only = matches!(failure.status, 400 | 422)
        && failure.original().contains("prompt")
        && (failure.original().contains("required") || failure.original().contains("missing"));
    texts_only || matches!(failure.status, 404 | 405 | 501) && failure.fault != Fault::ModelNotFound
}

/// Returns the chat request for an answer of one token, whose usage counts the prompt.
fn one_token(body: &Bytes, rules: &Rules) -> Result<(ChatRequest, Bytes), Failure> {
    let mut limited = BytesMut::from(body.strip_suffix(b"}").unwrap_or(body));
    limited.extend_from_slice(b",\"max_completion_tokens\":1}");
    let limited = limited.freeze();
    Ok((ChatRequest::of_generated(&limited, rules, MessagesRequest::NAMED)?, limited))
}

impl RequestContext {
    /// Parses the body for an upstream that serves the model. Fails if the request is invalid, or the model unknown or
    /// not allowed for the caller's key.
    async fn parse_messages(
        &mut self,
        head: &request::Parts,
        body: Bytes,
        purpose: Purpose,
    ) -> Result<ParsedRequest, Failure> {
        let app = Arc::clone(&self.app);
        let mut given = None;
        let body = self.with_defaults(body, &mut given, &head.headers).await?;
        let named = named(&body);
        if given.is_none() && named.is_none() {
            given = self.default_model(&head.headers).await?.as_deref().map(ToOwned::to_owned);
        }
        let model = given.clone().or(named).unwrap_or_default();
        self.check_model(&model)?;
        let (upstream, is_known) = app.pool.upstream_to_read_for(&model, self.ids.tie_breaker());
        if !is_known {
            return Err(no_such_model(&model));
        }
        let sender = self.sender(&head.headers);
        let options = sender.options(&upstream, &model);
        let tenant = self.tenant(&head.headers);
        let open = |signature: &str| open_thinking(&app.store_handle.keys, &tenant, signature);
        let request = MessagesRequest::read(
            &body,
            &MessagesContext {
                rules: self.rules(),
                options: &options,
                model: given.as_deref(),
                open: &open,
                context_length: app.pool.context_length(&upstream, &model),
                purpose,
            },
        )?;
        Ok(ParsedRequest { request: Arc::new(request), upstream, sender, tenant })
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
        let chat = &self.request.chat;
        let (plan, mut reply) = plan::message(&self.request, &self.sender.route(to, &chat.model))?;
        let Plan { path, body, shape, fallbacks, .. } = plan;
        let mut request = self.sender.outgoing(to, "POST", path, body);
        if chat.stream {
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
