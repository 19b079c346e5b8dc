//! Handler that counts the tokens of a Messages prompt (messages 2.3).
//!
//! Takes: the context and the body of a request. Gives: the engine's own count: of its tokenizer, or where it has no
//! route for that, of an answer of one token. Never: estimates.

use super::messages::ParsedRequest;
use crate::json::{self, Raw, integer, object, write_number};
use crate::plan;
use crate::request::fields;
use crate::request::messages::{EngineRequest, MessagesRequest, Purpose};
use crate::request::{ChatRequest, Rules};
use crate::server::admit::body::Body;
use crate::server::admit::headers::with_dropped;
use crate::server::context::RequestContext;
use crate::server::relay::attempt::AttemptTarget;
use crate::server::relay::selection::UpstreamSelection;
use crate::server::tokenize;
use crate::upstream::Outgoing;
use crate::wire::event::Usage;
use crate::wire::fault::{Failure, Unusable};
use axum::body::Body as Incoming;
use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, request};

/// Path under which engines with a Messages route count the tokens of a prompt.
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// Answers a request for the number of tokens of a prompt. Fails if the engine cannot count them.
pub(in crate::server) async fn count_tokens(
    context: &mut RequestContext,
    head: &request::Parts,
    body: Option<Incoming>,
) -> Result<Response<Body>, Failure> {
    let limit = context.app.config.limits.max_body_bytes;
    let body = context.body(body, limit).await?;
    let parsed = context.parse_messages(head, body, Purpose::Count).await?;
    if let Some(record) = &mut context.record {
        record.model = context.app.pool.label(&parsed.request.model);
    }
    let count = match context.tokenized(&parsed, head).await? {
        Some(count) => count,
        None => context.generated(&parsed, head).await?,
    };
    let mut out = BytesMut::from(&b"{\"input_tokens\":"[..]);
    write_number(count, &mut out);
    out.put_u8(b'}');
    let response = context.object_response(out.freeze());
    Ok(with_dropped(response, &parsed.request.dropped, ", "))
}

impl RequestContext {
    /// Returns the count of the engine's route that counts tokens; `None` if it has none for this prompt.
    async fn tokenized(
        &mut self,
        parsed: &ParsedRequest,
        head: &request::Parts,
    ) -> Result<Option<u64>, Failure> {
        // vLLM's route knows no effort, and templates write another prompt for a model that must not think.
        if parsed.switches_thinking_off() {
            return Ok(None);
        }
        let mut selection = self.selection_for(parsed, head);
        let limit = self.app.config.limits.max_answer_bytes;
        let counting = |to: &AttemptTarget<'_>| parsed.counting(to);
        match self.request_object(&parsed.sender, &mut selection, limit, counting).await {
            Ok(answer) => Ok(tokenize::counted(&answer).unwrap_or(None)),
            Err(failure) if tokenize::is_missing(&failure) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the count of an answer of one token. Its tokens are charged: the engine has computed them.
    async fn generated(&mut self, parsed: &ParsedRequest, head: &request::Parts) -> Result<u64, Failure> {
        let limited = parsed.limited(self.rules())?;
        let mut selection = self.selection_for(parsed, head);
        let limit = self.app.config.limits.max_answer_bytes;
        let generating = |to: &AttemptTarget<'_>| {
            let (plan, _) = plan::message(&limited, &parsed.sender.route(to, &limited.model))?;
            Ok(parsed.sender.outgoing(to, "POST", plan.path, plan.body))
        };
        let answer = self.request_object(&parsed.sender, &mut selection, limit, generating).await?;
        let prompt = prompt_tokens(&answer).ok_or(Unusable::Unreadable)?;
        if let Some(record) = &mut self.record {
            let total = prompt.saturating_add(1);
            record.used(Usage { prompt, completion: 1, total, ..Usage::default() });
        }
        Ok(prompt)
    }

    fn selection_for(&self, parsed: &ParsedRequest, head: &request::Parts) -> UpstreamSelection {
        let read_for = Some(parsed.read_for.clone());
        let request = &parsed.request;
        self.selection(&request.model, &head.headers, read_for, || request.beginning(), || request.prompt())
    }
}

impl ParsedRequest {
    /// Returns the request on the engine's route that counts tokens.
    fn counting(&self, to: &AttemptTarget<'_>) -> Result<Outgoing, Failure> {
        let route = self.sender.route(to, &self.request.model);
        let body = plan::message_body(&self.request, &route)?.body;
        let (path, body) = match &self.request.engine_request {
            EngineRequest::Chat(_) => tokenize::request(route.identity.engine, body),
            EngineRequest::Native { .. } => (COUNT_TOKENS, body),
        };
        Ok(self.sender.outgoing(to, "POST", path, body))
    }

    fn switches_thinking_off(&self) -> bool {
        matches!(&self.request.engine_request, EngineRequest::Chat(chat) if chat.reasons == Some(false))
    }

    /// Returns the request for an answer of one token, whose usage counts the prompt.
    fn limited(&self, rules: &Rules) -> Result<MessagesRequest, Failure> {
        let mut limited = MessagesRequest::clone(&self.request);
        match &mut limited.engine_request {
            EngineRequest::Chat(chat) => {
                limited.body = with_limit(&without_forced_calls(&limited.body), "max_completion_tokens");
                **chat = ChatRequest::of_generated(&limited.body, rules, MessagesRequest::NAMED)?;
            }
            EngineRequest::Native { .. } => {
                // A budget of thinking must be smaller than the limit.
                let body = fields::without(&limited.body, "thinking").unwrap_or(limited.body);
                limited.body = with_limit(&without_forced_calls(&body), "max_tokens");
            }
        }
        Ok(limited)
    }
}

/// Returns the request body without a choice of tools that an answer of one token cannot make. `none` stays: it decides
/// on the prompt.
fn without_forced_calls(body: &Bytes) -> Bytes {
    let choice = std::str::from_utf8(body).ok().and_then(|text| json::raw_member(text, "tool_choice"));
    match choice.is_some_and(|choice| !choice.get().contains("\"none\"")) {
        true => fields::without(body, "tool_choice").unwrap_or_else(|| body.clone()),
        false => body.clone(),
    }
}

/// Returns the request body with a limit of one token.
fn with_limit(body: &Bytes, key: &str) -> Bytes {
    let unlimited = fields::without(body, key).unwrap_or_else(|| body.clone());
    fields::with_defaults(unlimited, &[(key.to_owned(), "1".to_owned())])
}

object! {
    /// Answer of an engine, of which only the usage is used.
    struct UsageAnswer<'a> {
        usage: UsageBody<'a> = "usage",
    }
}
object! {
    /// Usage of an answer, of which only the tokens of the prompt are used: of a chat, or of a message.
    struct UsageBody<'a> {
        prompt: Raw<'a> = "prompt_tokens",
        input: Raw<'a> = "input_tokens",
        cache_read: Raw<'a> = "cache_read_input_tokens",
        cache_write: Raw<'a> = "cache_creation_input_tokens",
    }
}

fn prompt_tokens(answer: &[u8]) -> Option<u64> {
    let answer: UsageAnswer<'_> = json::read(std::str::from_utf8(answer).ok()?).ok()?;
    let usage = answer.usage?;
    let number = |raw: Option<Raw<'_>>| raw.and_then(integer);
    let all = [usage.input, usage.cache_read, usage.cache_write].into_iter().filter_map(number);
    number(usage.prompt).or_else(|| usage.input.map(|_| all.fold(0, u64::saturating_add)))
}
