//! Lists of the models that the upstreams serve.
//!
//! Takes: the available upstreams, and the configured aliases. Gives: every model once. Remembers: nothing; each upstream
//! learns its own list.

use crate::error::Error;
use crate::request::EngineBody;
use crate::server::admitted::Admitted;
use crate::server::relay::attempt::{AttemptTarget, EngineSender, FailedAttempt, no_upstream};
use crate::server::reply::ClientReply;
use crate::upstream::models::{self, ListedModel};
use crate::upstream::{NoUpstream, Pool, Upstream};
use crate::wire::fault::{Failure, Fault, Unusable};
use bytes::Bytes;
use futures::future::join_all;
use http::HeaderMap;
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

/// Returns every model once: those that the available upstreams list, and their aliases. Upstreams that fail are
/// left out.
///
/// # Errors
/// The error of the first upstream that failed, if no model is listed. Also fails if no upstream is available, or
/// if the process cuts its requests.
pub(in crate::server) async fn all_models(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
) -> Result<Vec<ListedModel>, Failure> {
    let app = admitted.app;
    let available: Vec<_> = app
        .pool
        .upstreams()
        .iter()
        .filter(|upstream| !upstream.is_down())
        .cloned()
        .collect();
    let lists = request_lists(admitted, reply, &available).await?;
    let mut all = merge_lists(reply, &available, lists)?;
    add_names(&mut all, &app.pool);
    add_aliases(&mut all, &app.pool);
    for model in &mut all {
        let configured = app
            .pool
            .model(&model.id)
            .and_then(|(_, configured)| configured.context_length);
        model.context_length = configured.or(model.context_length);
    }
    Ok(all)
}

/// Requests the lists of these upstreams at once. Fails if there are none, or if the process cuts its requests.
async fn request_lists(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    upstreams: &[Arc<Upstream>],
) -> Result<Vec<ListAnswer>, Failure> {
    let Some(first) = upstreams.first() else {
        return Err(no_upstream(
            &mut reply.passed,
            NoUpstream::NoneAvailable,
            "",
        ));
    };
    let attempts = u32::try_from(upstreams.len()).unwrap_or(u32::MAX);
    reply.note(|record| record.sent_to(first, attempts));
    let sender = EngineSender::new(admitted, reply, None);
    let total = *admitted.app.config.timeouts.total_whole;
    let requests = upstreams
        .iter()
        .map(|upstream| request_list(&sender, upstream, total));
    tokio::select! {
        lists = join_all(requests) => Ok(lists),
        () = admitted.app.cut() => Err(Fault::Draining.into()),
    }
}

/// Returns the models of all lists, each once. Fails with the first error if there is one and no model is listed.
fn merge_lists(
    reply: &mut ClientReply,
    upstreams: &[Arc<Upstream>],
    lists: Vec<ListAnswer>,
) -> Result<Vec<ListedModel>, Failure> {
    let (mut all, mut failed): (Vec<ListedModel>, _) = (Vec::new(), None);
    for (upstream, (result, passed)) in upstreams.iter().zip(lists) {
        reply.note(|record| record.ended(upstream, result.as_ref().err(), &EngineBody::default()));
        let mut served = match result {
            Ok(listed) => {
                upstream.learn(&listed);
                listed
                    .into_iter()
                    .filter(|model| upstream.may_serve(&model.id))
                    .collect()
            }
            Err(error) if has_no_list(&error) && !upstream.configured_models().is_empty() => {
                Vec::new()
            }
            Err(error) => {
                failed = failed.or(Some((error, passed)));
                continue;
            }
        };
        if served.is_empty() {
            let named = |id: &String| ListedModel {
                id: id.clone(),
                ..ListedModel::default()
            };
            served = upstream.configured_models().iter().map(named).collect();
        }
        served.retain(|model| all.iter().all(|earlier| earlier.id != model.id));
        all.extend(served);
    }
    match failed.filter(|_| all.is_empty()) {
        Some((error, passed)) => {
            reply.passed = passed;
            Err(error.public)
        }
        None => Ok(all),
    }
}

/// Returns true if the engine has said that it has no list.
fn has_no_list(error: &Error) -> bool {
    matches!(error.public.status, 404 | 405 | 501)
}

/// Adds the configured names that stand for listed models. Their context is the shortest of the models that may answer.
fn add_names(all: &mut Vec<ListedModel>, pool: &Pool) {
    for configured in pool.models() {
        let listed = |name: &str| all.iter().find(|model| model.id == name);
        if listed(&configured.name).is_some() {
            continue;
        }
        let targets = pool.targets(&configured.name, 0);
        let meant: Vec<_> = targets
            .iter()
            .filter_map(|target| listed(pool.engine_name(&target.model)))
            .collect();
        let Some(first) = meant.first() else { continue };
        let context_length = meant.iter().filter_map(|model| model.context_length).min();
        let named = ListedModel {
            id: configured.name.clone(),
            context_length,
            ..(*first).clone()
        };
        all.push(named);
    }
}

/// Adds the configured aliases of the listed models, unless a listed model has the same name.
fn add_aliases(all: &mut Vec<ListedModel>, pool: &Pool) {
    for configured in pool.models() {
        for alias in configured.alias_names() {
            let named = |name: &str| all.iter().find(|model| model.id == name);
            if let (Some(model), None) = (named(&configured.name), named(alias)) {
                all.push(ListedModel {
                    id: alias.clone(),
                    ..model.clone()
                });
            }
        }
    }
}

/// List of one upstream or its error, and the headers of its answer that are passed to the client.
type ListAnswer = (Result<Vec<ListedModel>, Error>, HeaderMap);

/// Requests the list of one upstream. `total`: time limit of any request. Returns the list that a probe has read where the
/// engine does not answer in time.
async fn request_list(
    sender: &EngineSender,
    upstream: &Arc<Upstream>,
    total: Duration,
) -> ListAnswer {
    let to = AttemptTarget::first(upstream, "");
    let request = sender.outgoing(&to, "GET", "/v1/models", Bytes::new());
    let exchange = sender.exchange(upstream, &request, MAX_LIST_BYTES);
    let known = upstream.known_models();
    let time_limit = if known.is_some() {
        KNOWN_LIST_TIMEOUT
    } else {
        LIST_TIMEOUT
    };
    match tokio::time::timeout(total.min(time_limit), exchange).await {
        Ok(Ok((body, passed))) => (
            models::read(&body).ok_or_else(|| Failure::from(Unusable::Unreadable).into()),
            passed,
        ),
        Ok(Err(FailedAttempt { error, passed, .. })) => (Err(error), passed),
        Err(_) => (known.ok_or_else(|| Fault::Timeout.into()), HeaderMap::new()),
    }
}
