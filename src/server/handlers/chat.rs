//! Handler of Chat Completions and Completions: reads a request, plans it for an engine, and relays the answer.
//!
//! Takes: the context and the body of a request. Gives: the response, whose body a [`Relay`] writes. Never: reads an
//! engine's answer.

use crate::plan::{Plan, Route, plan};
use crate::request::{ChatRequest, EngineBody};
use crate::server::admit::body::Body;
use crate::server::admit::parse::parse;
use crate::server::context::RequestContext;
use crate::server::net::pending_answer::{PendingAnswer, send};
use crate::server::relay::attempt::{AttemptTarget, PendingRequest, Sender, UpstreamRequest};
use crate::server::relay::{Relay, RelayParams};
use crate::wire::fault::{Failure, Fault};
use crate::wire::{AnswerReader, Api, Rewriter, Shape, Stamp};
use axum::body::Body as Incoming;
use bytes::Bytes;
use http::{HeaderValue, Response, request};
use std::sync::Arc;
use std::time::Instant;

/// Answers a request of Chat Completions or Completions: reads and plans it, and relays an engine's answer. Fails if
/// the body or the request is invalid, or no upstream can be chosen.
pub(in crate::server) async fn answer(
    context: &mut RequestContext,
    api: Api,
    head: &request::Parts,
    body: Option<Incoming>,
) -> Result<Response<Body>, Failure> {
    let limits = &context.app.config.limits;
    let limit = if api == Api::Chat { limits.max_body_bytes } else { limits.other_body_bytes };
    let body = context.body(body, limit).await?;
    let start = Instant::now();
    let mut model = context.family.deployment(head);
    let body = context.with_files(body, &head.headers).await?;
    let body = context.with_defaults(body, &mut model, &head.headers).await?;
    let rules = Arc::clone(context.rules());
    let mut ask =
        parse(&body, move |body| ChatRequest::read_for(api, body, model.as_deref(), &rules)).await?;
    if ask.model.is_empty()
        && let Some(model) = context.default_model(&head.headers).await?
    {
        ask.name_model(&model);
    }
    context.check_model(&ask.model)?;
    let mut selection = context.selection(
        &ask.model,
        &head.headers,
        None,
        || ask.leading_messages(&body),
        || ask.prompt(&body),
    );
    let (label, stream) = (context.app.pool.label(&ask.model), ask.stream);
    let sender = context.sender(&head.headers);
    let mut request = Box::new(Chat { ask, body, stamp: context.stamp(), sender });
    let attempt = context.begin(&mut selection, &mut *request)?;
    let Some(mut record) = context.record.take() else { return Err(Fault::Proxy.into()) };
    record.model = label;
    let options = request.sender.options(attempt.chosen.upstream(), selection.served());
    let order = RelayParams {
        attempt,
        resend: Some((request, selection)),
        thread: context.worker.thread,
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

/// Request for Chat Completions or Completions, kept with its body so that it can be planned anew for each
/// upstream.
struct Chat {
    ask: ChatRequest,
    body: Bytes,
    stamp: Stamp,
    sender: Sender,
}

impl UpstreamRequest for Chat {
    fn send(&mut self, to: &AttemptTarget<'_>) -> Result<PendingRequest, Failure> {
        let route = self.sender.route(to, &self.ask.model);
        if let Some(choice) = to.choice {
            let plan = plan(&self.ask.one_of_several(choice), &self.body, &route)?;
            let answer = self.send_later(to, plan.path, plan.body, &route);
            let rewriter = Rewriter::new(plan.shape.of_choice(choice), self.stamp.clone());
            return Ok(PendingRequest::single(answer, rewriter, plan.fallbacks));
        }
        let plan = plan(&self.ask, &self.body, &route)?;
        if !plan.others.is_empty() {
            return self.fan_out(to, plan, &route);
        }
        let answer = self.send_later(to, plan.path, plan.body, &route);
        let shape = Shape { may_lack: plan.may_return_fewer, ..plan.shape };
        Ok(PendingRequest::single(answer, Rewriter::new(shape, self.stamp.clone()), plan.fallbacks))
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
    fn fan_out(&self, to: &AttemptTarget<'_>, plan: Plan, route: &Route) -> Result<PendingRequest, Failure> {
        let Plan { path, body, others, shape, fallbacks, .. } = plan;
        self.sender.mark_concurrent();
        let counted = |other: EngineBody| match other.shares_memory_with(&body) {
            true => Ok(other),
            false => self.sender.count_body(other),
        };
        let others: Vec<_> = others.into_iter().map(counted).collect::<Result<_, _>>()?;
        let send =
            |choice, body| self.send_later(&AttemptTarget { choice: Some(choice), ..*to }, path, body, route);
        let other = |(choice, body)| {
            let reader = AnswerReader::of_choice(choice, shape.clone(), self.stamp.clone());
            (send(choice, body), reader)
        };
        Ok(PendingRequest {
            others: (1..).zip(others).map(other).collect(),
            answer: send(0, body),
            rewriter: Rewriter::merging(&shape, &self.stamp),
            fallbacks,
        })
    }

    fn send_later(
        &self,
        to: &AttemptTarget<'_>,
        path: &'static str,
        body: EngineBody,
        route: &Route,
    ) -> PendingAnswer {
        let mut request = self.sender.outgoing(to, "POST", path, body).rewritten_by(route);
        if self.ask.stream {
            request.accept = HeaderValue::from_static("text/event-stream");
        }
        send(self.sender.client(to.upstream), request)
    }
}
