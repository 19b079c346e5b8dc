//! Handler of Chat Completions and Completions: reads a request, plans it for an engine, and relays the answer.
//!
//! Takes: an admitted request and its body. Gives: the response, whose body a relay writes. Never: reads an
//! engine's answer.

use crate::plan::{Plan, Route, plan};
use crate::request::{ChatRequest, EngineBody};
use crate::server::admit::body::Body;
use crate::server::admit::parse::parse;
use crate::server::admitted::Admitted;
use crate::server::batch::named_files::with_files;
use crate::server::models::naming::{self, Named};
use crate::server::net::pending_answer::prepare;
use crate::server::relay::attempt::{AttemptTarget, EngineSender, PendingRequest, UpstreamRequest};
use crate::server::relay::planned::Planned;
use crate::server::relay::selection::UpstreamSelection;
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::upstream::Outgoing;
use crate::wire::fault::Failure;
use crate::wire::{AnswerReader, AnswerWriter, Api, Rewriter, Shape, Stamp};
use bytes::Bytes;
use http::{HeaderValue, Response};
use std::sync::Arc;
use std::time::Instant;

/// Answers a request of Chat Completions or Completions: reads and plans it, and relays an engine's answer. Fails if
/// the body or the request is invalid, or no upstream can be chosen.
pub(in crate::server) async fn answer(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
    api: Api,
) -> Result<Response<Body>, Failure> {
    let (app, limits) = (admitted.app, &admitted.app.config.limits);
    let limit = if api == Api::Chat {
        limits.max_body_bytes
    } else {
        limits.other_body_bytes
    };
    let bytes = body.read(limit, admitted, reply).await?;
    let since = Instant::now();
    let bytes = with_files(admitted, body, bytes).await?;
    let Named {
        body: bytes, given, ..
    } = naming::name(admitted, reply, bytes, false).await?;
    let rules = Arc::clone(&app.config.rules);
    let mut request = parse(&bytes, move |body| {
        ChatRequest::read_for(api, body, given.as_deref(), &rules)
    })
    .await?;
    if let Some(model) = naming::settle(admitted, reply, &request.model).await? {
        request.name_model(&model);
    }
    let selection = UpstreamSelection::new(
        admitted,
        reply,
        &request.model,
        None,
        || request.leading_messages(&bytes),
        || request.prompt(&bytes),
    );
    let (label, stream) = (app.pool.label(&request.model), request.stream);
    let sender = EngineSender::new(admitted, reply, body.share());
    let call = Box::new(ChatCall {
        request,
        body: bytes,
        stamp: admitted.stamp(),
        sender,
    });
    let planned = Planned::begin(reply, selection, call, stream)?;
    let mut record = reply.take_record()?;
    record.model = label;
    Ok(planned.answer(record, admitted.worker.thread, since).await)
}

/// Request for Chat Completions or Completions, kept with its body so that it can be planned anew for each
/// upstream.
struct ChatCall {
    request: ChatRequest,
    body: Bytes,
    stamp: Stamp,
    sender: EngineSender,
}

impl UpstreamRequest for ChatCall {
    fn prepare(&mut self, to: &AttemptTarget<'_>) -> Result<PendingRequest, Failure> {
        let route = self.sender.route(to, &self.request.model);
        if let Some(choice) = to.choice {
            let plan = plan(&self.request.one_of_several(choice), &self.body, &route)?;
            let outgoing = self.outgoing(to, plan.path, plan.body, &route);
            let answer = prepare(self.sender.client(to.upstream), outgoing);
            let rewriter = Rewriter::new(plan.shape.of_choice(choice), self.stamp.clone());
            return Ok(PendingRequest::single(answer, rewriter, plan.fallbacks));
        }
        let plan = plan(&self.request, &self.body, &route)?;
        if !plan.others.is_empty() {
            return self.fan_out(to, plan, &route);
        }
        let answer = prepare(
            self.sender.client(to.upstream),
            self.outgoing(to, plan.path, plan.body, &route),
        );
        let shape = Shape {
            may_lack: plan.may_return_fewer,
            ..plan.shape
        };
        Ok(PendingRequest::single(
            answer,
            Rewriter::new(shape, self.stamp.clone()),
            plan.fallbacks,
        ))
    }

    fn sender(&self) -> &EngineSender {
        &self.sender
    }

    fn text(&self, _: &AttemptTarget<'_>) -> Option<Bytes> {
        Some(self.body.clone())
    }

    fn at_once(&self) {
        self.sender.mark_concurrent();
    }
}

impl ChatCall {
    /// Returns one engine request for each choice, for a plan that needs several. Fails if their bodies exceed the
    /// memory budget.
    fn fan_out(
        &self,
        to: &AttemptTarget<'_>,
        plan: Plan,
        route: &Route,
    ) -> Result<PendingRequest, Failure> {
        let Plan {
            path,
            body,
            others,
            shape,
            fallbacks,
            ..
        } = plan;
        self.sender.mark_concurrent();
        let outgoing = |choice, body| {
            self.outgoing(
                &AttemptTarget {
                    choice: Some(choice),
                    ..*to
                },
                path,
                body,
                route,
            )
        };
        let send = |outgoing| prepare(self.sender.client(to.upstream), outgoing);
        let reader = |choice| AnswerReader::of_choice(choice, shape.clone(), self.stamp.clone());
        let other = |(choice, other)| {
            let mut outgoing = outgoing(choice, other);
            let copied = outgoing
                .body
                .bytes_outside(body.pieces().iter().chain([&self.body]));
            self.sender.count_body(&mut outgoing.body, copied)?;
            Ok((send(outgoing), reader(choice)))
        };
        Ok(PendingRequest {
            others: (1..)
                .zip(others)
                .map(other)
                .collect::<Result<_, Failure>>()?,
            answer: send(outgoing(0, body)),
            reader: reader(0),
            writer: AnswerWriter::merging(&shape, &self.stamp),
            fallbacks,
        })
    }

    fn outgoing(
        &self,
        to: &AttemptTarget<'_>,
        path: &'static str,
        body: EngineBody,
        route: &Route,
    ) -> Outgoing {
        let mut outgoing = self
            .sender
            .outgoing(to, "POST", path, body)
            .rewritten_by(route);
        if self.request.stream {
            outgoing.accept = HeaderValue::from_static("text/event-stream");
        }
        outgoing
    }
}
