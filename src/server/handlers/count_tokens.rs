//! Handler that counts the tokens of a Messages prompt (messages 2.3).
//!
//! Takes: an admitted request and its body. Gives: the engine's own count, from its tokenizer or, if it has no route for
//! that, from the usage of an answer of one token. Never: estimates.

use super::messages::{ParsedMessages, parse_messages};
use crate::json::{self, Raw, integer, object, write_number};
use crate::plan;
use crate::request::fields;
use crate::request::messages::{EngineRequest, MessagesRequest, Purpose};
use crate::request::{ChatRequest, Rules};
use crate::server::admit::body::Body;
use crate::server::admitted::Admitted;
use crate::server::headers::with_dropped;
use crate::server::relay::attempt::{AttemptTarget, request_object};
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::server::tokenize;
use crate::upstream::Outgoing;
use crate::wire::event::Usage;
use crate::wire::fault::{Failure, Unusable};
use bytes::{BufMut, Bytes, BytesMut};
use http::Response;

/// Path under which engines with a Messages route count the tokens of a prompt.
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// Answers a request for the number of tokens of a prompt. Fails if the engine cannot count them.
pub(in crate::server) async fn count_tokens(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let bytes = body
        .read(admitted.app.config.limits.max_body_bytes, admitted, reply)
        .await?;
    let parsed = parse_messages(admitted, reply, body.share(), bytes, Purpose::Count).await?;
    reply.label(&parsed.request.model);
    let count = match tokenized(admitted, reply, &parsed).await? {
        Some(count) => count,
        None => generated(admitted, reply, &parsed).await?,
    };
    let mut out = BytesMut::from(&b"{\"input_tokens\":"[..]);
    write_number(count, &mut out);
    out.put_u8(b'}');
    Ok(with_dropped(
        reply.object(out.freeze()),
        &parsed.request.dropped,
        ", ",
    ))
}

/// Returns the count of the engine's route that counts tokens; `None` if it has none for this prompt.
async fn tokenized(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    parsed: &ParsedMessages,
) -> Result<Option<u64>, Failure> {
    // Templates write another prompt for a model that must not think, and not each has a switch for it that the route takes.
    if switches_thinking_off(parsed) {
        return Ok(None);
    }
    let mut selection = parsed.selection(admitted, reply);
    let limit = admitted.app.config.limits.max_answer_bytes;
    let outgoing = |to: &AttemptTarget<'_>| counting(parsed, to);
    match request_object(reply, &parsed.sender, &mut selection, limit, outgoing).await {
        // An unreadable count is treated like a missing route.
        Ok(answer) => Ok(tokenize::counted(&answer).unwrap_or(None)),
        Err(failure) if tokenize::is_missing(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the count of an answer of one token. Its tokens are charged: the engine has computed them.
async fn generated(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    parsed: &ParsedMessages,
) -> Result<u64, Failure> {
    let limited = limited(parsed, &admitted.app.config.rules)?;
    let mut selection = parsed.selection(admitted, reply);
    let limit = admitted.app.config.limits.max_answer_bytes;
    let generating = |to: &AttemptTarget<'_>| {
        let (plan, _) = plan::message(&limited, &parsed.sender.route(to, &limited.model))?;
        Ok(parsed.sender.outgoing(to, "POST", plan.path, plan.body))
    };
    let answer = request_object(reply, &parsed.sender, &mut selection, limit, generating).await?;
    let prompt = prompt_tokens(&answer).ok_or(Unusable::Unreadable)?;
    let total = prompt.saturating_add(1);
    reply.note(|record| {
        record.used(Usage {
            prompt,
            completion: 1,
            total,
            ..Usage::default()
        })
    });
    Ok(prompt)
}

/// Returns the request on the engine's route that counts tokens.
fn counting(parsed: &ParsedMessages, to: &AttemptTarget<'_>) -> Result<Outgoing, Failure> {
    let route = parsed.sender.route(to, &parsed.request.model);
    let body = plan::message_body(&parsed.request, &route)?.body;
    let (path, body) = match &parsed.request.engine_request {
        EngineRequest::Chat(_) => tokenize::request(route.identity.engine, body),
        EngineRequest::Native { .. } => (COUNT_TOKENS, body),
    };
    Ok(parsed.sender.outgoing(to, "POST", path, body))
}

fn switches_thinking_off(parsed: &ParsedMessages) -> bool {
    matches!(&parsed.request.engine_request, EngineRequest::Chat(chat) if chat.reasons == Some(false))
}

/// Returns the request for an answer of one token, whose usage counts the prompt.
fn limited(parsed: &ParsedMessages, rules: &Rules) -> Result<MessagesRequest, Failure> {
    let mut limited = MessagesRequest::clone(&parsed.request);
    match &mut limited.engine_request {
        EngineRequest::Chat(chat) => {
            limited.body = with_limit(
                &without_forced_calls(&limited.body),
                "max_completion_tokens",
            );
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

/// Returns the request body without a choice of tools that an answer of one token cannot make. `none` stays, because it
/// changes the prompt: `"none"` in a chat, `{"type":"none"}` in a message.
fn without_forced_calls(body: &Bytes) -> Bytes {
    let choice = std::str::from_utf8(body)
        .ok()
        .and_then(|text| json::raw_member(text, "tool_choice"));
    let is_none = |choice: &str| {
        choice == "\"none\"" || json::member(choice, "type").is_some_and(|kind| kind == "none")
    };
    match choice.is_some_and(|choice| !is_none(choice.get())) {
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
        usage: CountedUsage<'a> = "usage",
    }
}
object! {
    /// Usage of a chat or a message, of which only the prompt's tokens are used.
    struct CountedUsage<'a> {
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
    let all = [usage.input, usage.cache_read, usage.cache_write]
        .into_iter()
        .filter_map(number);
    number(usage.prompt).or_else(|| usage.input.map(|_| all.fold(0, u64::saturating_add)))
}
