//! Handler of Embeddings: forwards the request and rewrites the engine's object.

use crate::request::embeddings::EmbeddingsRequest;
use crate::server::admit::body::Body;
use crate::server::admit::parse::parse;
use crate::server::context::RequestContext;
use crate::server::handlers::relayed;
use crate::server::relay::attempt::AttemptTarget;
use crate::upstream::Outgoing;
use crate::wire::event::Usage;
use crate::wire::fault::Failure;
use crate::wire::{self, Summary};
use axum::body::Body as Incoming;
use bytes::BytesMut;
use http::{Response, request};
use std::sync::Arc;

/// Answers a request for embeddings. Formats that are no JSON are passed on unchanged. Fails if the request is
/// invalid or all attempts have failed.
pub(in crate::server) async fn answer(
    context: &mut RequestContext,
    head: &request::Parts,
    body: Option<Incoming>,
) -> Result<Response<Body>, Failure> {
    let limits = &context.app.config.limits;
    let (limit, answer_limit) = (limits.other_body_bytes, limits.max_answer_bytes);
    let body = context.body(body, limit).await?;
    let rules = Arc::clone(context.rules());
    let mut wanted = parse(&body, move |body| EmbeddingsRequest::read(body, &rules)).await?;
    if let Some(deployment) = context.family.deployment(head) {
        wanted.name_model(&deployment);
    } else if wanted.model.is_empty()
        && let Some(model) = context.default_model(&head.headers).await?
    {
        wanted.name_model(&model);
    }
    context.check_model(&wanted.model)?;
    let model = wanted.model.clone();
    if let Some(record) = &mut context.record {
        record.model = context.app.pool.label(&model);
    }
    let sender = context.sender(&head.headers);
    let mut selection = context.selection(&model, &head.headers, None, Vec::<&str>::new, Vec::<&str>::new);
    let request = |to: &AttemptTarget<'_>| {
        let route = sender.route(to, &model);
        let body = wanted.body(&body, route.model_alias.as_deref(), route.options.request_unknown)?;
        let outgoing = sender.outgoing(to, "POST", "/v1/embeddings", body);
        let accept = if wanted.is_foreign { relayed::accept(&head.headers) } else { Outgoing::JSON };
        Ok(Outgoing { accept, ..outgoing })
    };
    if wanted.is_foreign {
        return context.pass_on(&sender, &mut selection, None, request).await;
    }
    let answer = context.request_object(&sender, &mut selection, answer_limit, request).await?;
    let mut out = BytesMut::new();
    let prompt =
        wire::embeddings::rewrite(&answer, &model, &mut out).map_err(|failure| match &context.record {
            Some(record) => record.without_own_key(failure),
            None => failure,
        })?;
    if let Some(record) = &mut context.record {
        let usage = Some(Usage { prompt, total: prompt, ..Usage::default() });
        record.summarised(Summary { usage, ..Summary::default() });
    }
    Ok(context.object_response(out.freeze()))
}
