//! Handler of Embeddings: forwards the request and rewrites the engine's object.

use crate::request::embeddings::EmbeddingsRequest;
use crate::server::admit::body::Body;
use crate::server::admit::parse::parse;
use crate::server::admitted::Admitted;
use crate::server::handlers::relayed;
use crate::server::models::naming;
use crate::server::relay::attempt::{AttemptTarget, EngineSender, request_object};
use crate::server::relay::selection::UpstreamSelection;
use crate::server::reply::ClientReply;
use crate::server::request_body::RequestBody;
use crate::upstream::Outgoing;
use crate::wire::event::Usage;
use crate::wire::fault::Failure;
use crate::wire::{self, Summary};
use bytes::BytesMut;
use http::Response;
use std::sync::Arc;

/// Answers a request for embeddings. Formats that are no JSON are passed on unchanged. Fails if the request is
/// invalid or all attempts have failed.
pub(in crate::server) async fn answer(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &mut RequestBody,
) -> Result<Response<Body>, Failure> {
    let limits = &admitted.app.config.limits;
    let bytes = body.read(limits.other_body_bytes, admitted, reply).await?;
    let rules = Arc::clone(&admitted.app.config.rules);
    let mut request = parse(&bytes, move |body| EmbeddingsRequest::read(body, &rules)).await?;
    if let Some(model) = naming::settle(admitted, reply, &request.model).await? {
        request.name_model(&model);
    }
    let model = request.model.clone();
    reply.label(&model);
    let sender = EngineSender::new(admitted, reply, body.share());
    let mut selection = UpstreamSelection::by_model(admitted, reply, &model);
    let outgoing = |to: &AttemptTarget<'_>| {
        let route = sender.route(to, &model);
        let body = request.body(
            &bytes,
            route.model_alias.as_deref(),
            route.options.request_unknown,
        )?;
        let outgoing = sender.outgoing(to, "POST", "/v1/embeddings", body);
        let accept = if request.is_foreign {
            relayed::accept(&admitted.head.headers)
        } else {
            Outgoing::JSON
        };
        Ok(Outgoing { accept, ..outgoing })
    };
    if request.is_foreign {
        return relayed::pass_on(admitted, reply, &sender, &mut selection, None, outgoing).await;
    }
    let answer = request_object(
        reply,
        &sender,
        &mut selection,
        limits.max_answer_bytes,
        outgoing,
    )
    .await?;
    let mut out = BytesMut::new();
    let rewritten = wire::embeddings::rewrite(&answer, &model, &mut out);
    let prompt = rewritten.map_err(|failure| match reply.record() {
        Some(record) => record.without_own_key(failure),
        None => failure,
    })?;
    let usage = Some(Usage {
        prompt,
        total: prompt,
        ..Usage::default()
    });
    reply.note(|record| {
        record.summarised(Summary {
            usage,
            ..Summary::default()
        })
    });
    Ok(reply.object(out.freeze()))
}
