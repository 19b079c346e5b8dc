//! Handler of the list of models, of one of them (`/models/{id}`), and of the list in the format of the Codex CLI.
//!
//! Takes: the lists of the available upstreams, and the configured aliases. Gives: the models that the caller's key
//! may use. Remembers: nothing; each upstream learns its own list, for which `admit/default_model.rs` calls it too.

use crate::error::Error;
use crate::request::{EngineBody, invalid};
use crate::server::admit::auth::no_such_model;
use crate::server::admit::body::Body;
use crate::server::admit::headers;
use crate::server::context::RequestContext;
use crate::server::protocol::Protocol;
use crate::server::relay::attempt::{AttemptTarget, Sender, WholeExchange};
use crate::upstream::models::{self, Model, Page};
use crate::upstream::{NoUpstream, Pool, Upstream};
use crate::wire::fault::{Failure, Fault, Unusable};
use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use http::{HeaderMap, Response, request};
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use std::time::Duration;

/// Limit for an engine's list of models, in bytes.
const MAX_LIST_BYTES: usize = 1 << 20;
/// Time limit for an upstream of which no list is known, so that an engine that hangs does not delay the models of the
/// others.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for an upstream whose list a probe has read: that list is the answer then. Engines answer late while they
/// read a long prompt.
const KNOWN_LIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers a request for the list of models, or for one of them. Fails if no upstream answers, or if there is no
/// such model.
pub(in crate::server) async fn answer(
    context: &mut RequestContext,
    head: &request::Parts,
) -> Result<Response<Body>, Failure> {
    context.active_request.begin_answer();
    let listed = context.all_models(&head.headers).await?;
    let mut out = BytesMut::new();
    let id = head.uri.path().split_once("/models/").map(|(_, id)| id);
    if context.record.as_ref().is_some_and(|record| record.protocol == Protocol::Anthropic) {
        match id {
            None => models::write_page(&context.usable(listed), &page(head)?, &mut out),
            Some(id) => context.usable_model(&listed, id)?.write_info(&mut out),
        }
        return Ok(context.object_response(out.freeze()));
    }
    match id {
        // The Codex CLI sends its version, and reads a list in a format of its own.
        None if headers::query(head, "client_version").is_some() => {
            models::write_catalogue(
                &context.usable(listed),
                &context.app.config.codex.instructions,
                &mut out,
            );
        }
        None => models::write(&context.usable(listed), &mut out),
        Some(id) => context.usable_model(&listed, id)?.write(&mut out),
    }
    Ok(context.object_response(out.freeze()))
}

/// Returns the page that a client of Anthropic's API asks for. Fails on a limit out of range.
fn page(head: &request::Parts) -> Result<Page<'_>, Failure> {
    const USUAL: usize = 20;
    const MOST: usize = 1000;
    let limit = match headers::query(head, "limit") {
        None => USUAL,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=MOST).contains(limit))
            .ok_or_else(|| invalid("limit", &format!("it must be an integer from 1 to {MOST}")))?,
    };
    let id = |name| headers::query(head, name).map(|id| percent_decode_str(id).decode_utf8_lossy());
    Ok(Page { limit, after: id("after_id"), before: id("before_id") })
}

impl RequestContext {
    /// Returns the models that the caller may use.
    fn usable(&self, mut listed: Vec<Model>) -> Vec<Model> {
        listed.retain(|model| self.may_use(&model.id));
        listed
    }

    /// Returns the model with the name in a path, which may be percent-encoded; slashes in it are common either way.
    /// A name that only a pattern covers is not listed, but requests may use it. Fails if there is none, or the caller
    /// may not use it.
    fn usable_model(&self, listed: &[Model], id: &str) -> Result<Model, Failure> {
        let name = percent_decode_str(id).decode_utf8_lossy();
        let listed_as = |name: &str| listed.iter().find(|model| model.id == name).cloned();
        let covered = || {
            let (_, configured) = self.app.pool.model(&name)?;
            Some(Model { id: name.as_ref().to_owned(), ..listed_as(&configured.name)? })
        };
        let found = listed_as(&name).or_else(covered).filter(|_| self.may_use(&name));
        found.ok_or_else(|| no_such_model(&name))
    }

    /// Returns every model once: those that the available upstreams list, and their aliases. Upstreams that fail are
    /// left out.
    ///
    /// # Errors
    /// The error of the first upstream that failed, if no model is listed. Also fails if no upstream is available, or
    /// if the process cuts its requests.
    pub(in crate::server) async fn all_models(&mut self, headers: &HeaderMap) -> Result<Vec<Model>, Failure> {
        let app = Arc::clone(&self.app);
        let available: Vec<_> =
            app.pool.upstreams().iter().filter(|upstream| !upstream.is_down()).cloned().collect();
        let lists = self.request_lists(&available, headers).await?;
        let mut all = self.merge_lists(&available, lists)?;
        add_names(&mut all, &app.pool);
        add_aliases(&mut all, &app.pool);
        for model in &mut all {
            let configured = app.pool.model(&model.id).and_then(|(_, configured)| configured.context_length);
            model.context_length = configured.or(model.context_length);
        }
        Ok(all)
    }

    /// Requests the lists of these upstreams at once. Fails if there are none, or if the process cuts its requests.
    async fn request_lists(
        &mut self,
        upstreams: &[Arc<Upstream>],
        headers: &HeaderMap,
    ) -> Result<Vec<ListAnswer>, Failure> {
        let Some(first) = upstreams.first() else {
            return Err(self.no_upstream(NoUpstream::NoneAvailable, ""));
        };
        if let Some(record) = &mut self.record {
            record.sent_to(first, u32::try_from(upstreams.len()).unwrap_or(u32::MAX));
        }
        let sender = self.sender(headers);
        let total = *self.app.config.timeouts.total_whole;
        let requests = upstreams.iter().map(|upstream| request_list(&sender, upstream, total));
        tokio::select! {
            lists = join_all(requests) => Ok(lists),
            () = self.app.cut() => Err(Fault::Draining.into()),
        }
    }

    /// Returns the models of all lists, each once. Fails with the first error if there is one and no model is listed.
    fn merge_lists(
        &mut self,
        upstreams: &[Arc<Upstream>],
        lists: Vec<ListAnswer>,
    ) -> Result<Vec<Model>, Failure> {
        let (mut all, mut failed): (Vec<Model>, _) = (Vec::new(), None);
        for (upstream, (result, passed)) in upstreams.iter().zip(lists) {
            if let Some(record) = &mut self.record {
                record.ended(upstream, result.as_ref().err(), &EngineBody::default());
            }
            let mut served = match result {
                Ok(listed) => {
                    upstream.learn(&listed);
                    listed.into_iter().filter(|model| upstream.may_serve(&model.id)).collect()
                }
                Err(error) if has_no_list(&error) && !upstream.configured_models().is_empty() => Vec::new(),
                Err(error) => {
                    failed = failed.or(Some((error, passed)));
                    continue;
                }
            };
            if served.is_empty() {
                let named = |id: &String| Model { id: id.clone(), ..Model::default() };
                served = upstream.configured_models().iter().map(named).collect();
            }
            served.retain(|model| all.iter().all(|earlier| earlier.id != model.id));
            all.extend(served);
        }
        match failed.filter(|_| all.is_empty()) {
            Some((error, passed)) => {
                self.passed = passed;
                Err(error.public)
            }
            None => Ok(all),
        }
    }
}

/// Returns true if the engine has said that it has no list.
fn has_no_list(error: &Error) -> bool {
    matches!(error.public.status, 404 | 405 | 501)
}

/// Adds the configured names that stand for listed models. Their context is the shortest of the models that may answer.
fn add_names(all: &mut Vec<Model>, pool: &Pool) {
    for configured in pool.models() {
        let listed = |name: &str| all.iter().find(|model| model.id == name);
        if listed(&configured.name).is_some() {
            continue;
        }
        let targets = pool.targets(&configured.name, 0);
        let meant: Vec<_> =
            targets.iter().filter_map(|target| listed(pool.engine_name(&target.model))).collect();
        let Some(first) = meant.first() else { continue };
        let context_length = meant.iter().filter_map(|model| model.context_length).min();
        let named = Model { id: configured.name.clone(), context_length, ..(*first).clone() };
        all.push(named);
    }
}

/// Adds the configured aliases of the listed models, unless a listed model has the same name.
fn add_aliases(all: &mut Vec<Model>, pool: &Pool) {
    for configured in pool.models() {
        for alias in configured.alias_names() {
            let named = |name: &str| all.iter().find(|model| model.id == name);
            if let (Some(model), None) = (named(&configured.name), named(alias)) {
                all.push(Model { id: alias.clone(), ..model.clone() });
            }
        }
    }
}

/// List of one upstream or its error, and the headers of its answer that are passed to the client.
type ListAnswer = (Result<Vec<Model>, Error>, HeaderMap);

/// Requests the list of one upstream. `total`: time limit of any request. Returns the list that a probe has read where the
/// engine does not answer in time.
async fn request_list(sender: &Sender, upstream: &Arc<Upstream>, total: Duration) -> ListAnswer {
    let to = AttemptTarget::first(upstream, "");
    let request = sender.outgoing(&to, "GET", "/v1/models", Bytes::new());
    let exchange = sender.exchange(upstream, &request, MAX_LIST_BYTES);
    let known = upstream.known_models();
    let time_limit = if known.is_some() { KNOWN_LIST_TIMEOUT } else { LIST_TIMEOUT };
    let Ok(WholeExchange { result, passed, .. }) =
        tokio::time::timeout(total.min(time_limit), exchange).await
    else {
        return (known.ok_or_else(|| Fault::Timeout.into()), HeaderMap::new());
    };
    let read = |body: Bytes| models::read(&body).ok_or_else(|| Failure::from(Unusable::Unreadable).into());
    (result.and_then(read), passed)
}
