//! Handler of the list of models: those of all upstreams, and the aliases that the configuration gives them.

use crate::error::Error;
use crate::server::admit::auth::no_such_model;
use crate::server::admit::body::Body;
use crate::server::admit::headers;
use crate::server::context::RequestContext;
use crate::server::relay::attempt::{AttemptTarget, Sender, WholeExchange};
use crate::upstream::models::{self, Model};
use crate::upstream::{NoUpstream, Upstream};
use crate::wire::fault::{Failure, Fault};
use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use http::{HeaderMap, Response, request};
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use std::time::Duration;

/// Limit for an engine's list of models, in bytes.
const LIST: usize = 1 << 20;
/// Time limit for one upstream of several, so that an engine that hangs does not delay the models of the others.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers a request for the list of models, or for one of them. Fails if no upstream answers, or if there is no
/// such model.
pub(in crate::server) async fn answer(
    context: &mut RequestContext,
    head: &request::Parts,
) -> Result<Response<Body>, Failure> {
    context.active_request.has_read();
    let mut listed = context.all_models(&head.headers).await?;
    listed.retain(|model| context.may_use(&model.id));
    let mut out = BytesMut::new();
    match head.uri.path().split_once("/models/").map(|(_, id)| id) {
        // The Codex CLI sends its version, and reads a list in a format of its own.
        None if headers::query(head, "client_version").is_some() => {
            models::write_catalogue(&listed, &context.app.config.codex.instructions, &mut out);
        }
        None => models::write(&listed, &mut out),
        Some(id) => find_model(&listed, id)?.write(&mut out),
    }
    Ok(context.object_response(out.freeze()))
}

/// Returns the listed model with the name in a path, which may be percent-encoded; slashes in it are common either
/// way. Fails if there is none.
fn find_model<'m>(listed: &'m [Model], id: &str) -> Result<&'m Model, Failure> {
    let decoded = percent_decode_str(id).decode_utf8_lossy();
    listed.iter().find(|model| model.id == decoded).ok_or_else(|| no_such_model(&decoded))
}

impl RequestContext {
    /// Returns every model once. Upstreams that do not answer are left out.
    ///
    /// # Errors
    /// The error of the first upstream, if none answers.
    pub(in crate::server) async fn all_models(&mut self, headers: &HeaderMap) -> Result<Vec<Model>, Failure> {
        let app = Arc::clone(&self.app);
        let sender = self.sender(headers);
        let up: Vec<_> = app.pool.upstreams().iter().filter(|upstream| !upstream.is_down()).collect();
        let Some(first) = up.first() else { return Err(self.no_upstream(NoUpstream::NoneAvailable, "")) };
        if let Some(record) = &mut self.record {
            record.attempts = u32::try_from(up.len()).unwrap_or(u32::MAX);
            record.upstream = Some(Arc::clone(first));
        }
        let total = *app.config.timeouts.total_whole;
        let patience = if up.len() > 1 { total.min(PATIENCE) } else { total };
        let asked = join_all(up.iter().map(|upstream| ask(&sender, upstream, patience)));
        let answers = tokio::select! {
            answers = asked => answers,
            () = app.cut() => return Err(Fault::Draining.into()),
        };
        let (mut all, mut failed): (Vec<Model>, _) = (Vec::new(), None);
        for (upstream, (result, passed)) in up.iter().zip(answers) {
            if let Some(record) = &mut self.record {
                record.ended(upstream, result.as_ref().err(), &[]);
            }
            match result {
                Ok(listed) => {
                    upstream.learn(&listed);
                    let new = listed.into_iter().filter(|model| upstream.may_serve(&model.id));
                    let new: Vec<_> =
                        new.filter(|model| all.iter().all(|known| known.id != model.id)).collect();
                    all.extend(new);
                }
                Err(error) => failed = failed.or(Some((error, passed))),
            }
        }
        if let Some((error, passed)) = failed.filter(|_| all.is_empty()) {
            self.passed = passed;
            return Err(error.public);
        }
        for (known, alias) in
            app.pool.models().iter().flat_map(|known| known.aliases.iter().map(move |alias| (known, alias)))
        {
            let named = |name: &str| all.iter().find(|model| model.id == name);
            if let (Some(model), None) = (named(&known.name), named(alias)) {
                all.push(Model { id: alias.clone(), ..model.clone() });
            }
        }
        for model in &mut all {
            let configured = app.pool.model(&model.id).and_then(|(_, known)| known.context_length);
            model.context_length = configured.or(model.context_length);
        }
        Ok(all)
    }
}

/// Requests the list of one upstream.
async fn ask(
    sender: &Sender,
    upstream: &Arc<Upstream>,
    patience: Duration,
) -> (Result<Vec<Model>, Error>, HeaderMap) {
    let to = AttemptTarget::first(upstream);
    let request = sender.outgoing(&to, "GET", "/v1/models", Bytes::new());
    let exchanged = tokio::time::timeout(patience, sender.exchange(upstream, &request, LIST)).await;
    let Ok(WholeExchange { result, passed, .. }) = exchanged else {
        return (Err(Fault::Timeout.into()), HeaderMap::new());
    };
    let read = |body: Bytes| models::read(&body).ok_or_else(|| Fault::InvalidResponse.into());
    (result.and_then(read), passed)
}
