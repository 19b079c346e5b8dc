//! Facts about the chat templates of an upstream's models, from prompts that the engine renders (engines G.12).
//!
//! Takes: a probe, and the models that the engine lists or that requests name. Gives: the facts, to the upstream.
//! Remembers: the models that wait for their turn, with the client's key where samewire has none. Never: makes an engine
//! generate, delays a request, waits longer than a probe may.

use super::learned::Prompts;
use super::probe::{Probe, ProbeFailure};
use crate::config::Credentials;
use crate::engine::template::TemplateProbe;
use crate::secret::Secret;
use http::HeaderValue;
use parking_lot::Mutex;
use std::collections::VecDeque;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Upper limit for the models of a list whose prompts are requested before anybody wants them.
const LISTED: usize = 16;

/// Model whose prompts are wanted, and the client's credentials if the upstream passes those on.
#[derive(Debug)]
pub(super) struct WantedModel {
    name: String,
    authorization: Option<HeaderValue>,
}

/// Models whose prompts requests want, the first one first.
#[derive(Debug, Default)]
pub(super) struct WantedModels {
    queue: Mutex<VecDeque<WantedModel>>,
    added: Notify,
}

impl WantedModels {
    /// Adds a model. The caller adds none that waits already.
    pub(super) fn add(&self, name: &str, authorization: Option<&HeaderValue>) {
        self.queue.lock().push_back(WantedModel {
            name: name.to_owned(),
            authorization: authorization.cloned(),
        });
        self.added.notify_one();
    }

    /// Returns the next model, as soon as there is one.
    pub(super) async fn next(&self) -> WantedModel {
        loop {
            if let Some(next) = self.queue.lock().pop_front() {
                return next;
            }
            self.added.notified().await;
        }
    }
}

/// Learns the facts of the models that the engine lists, as far as they are not known and within the time for one probe.
pub(super) async fn learn_listed(probe: &mut Probe<'_>) {
    let listed = probe.upstream.main_models();
    let has_key = probe.upstream.config.auth.own_key().is_some();
    let until = Instant::now() + probe.timeout;
    for name in listed.iter().flatten().take(LISTED) {
        if Instant::now() >= until || probe.upstream.identity().engine.renders.is_none() {
            return;
        }
        if probe.upstream.learned.begin_prompts(name, has_key) {
            learn(probe, name, None, until).await;
        }
    }
}

/// Learns the facts of a model that a request wants.
pub(super) async fn learn_wanted(probe: &mut Probe<'_>, wanted: WantedModel) {
    let until = Instant::now() + probe.timeout;
    learn(probe, &wanted.name, wanted.authorization, until).await;
}

/// Requests the prompts of a model, and records what they show.
async fn learn(probe: &mut Probe<'_>, model: &str, passed: Option<HeaderValue>, until: Instant) {
    let upstream = probe.upstream;
    let Some(routes) = upstream.identity().engine.renders else {
        return;
    };
    let authorization = match &upstream.config.auth {
        Credentials::None => None,
        Credentials::Own(key) => Some(Secret::value(key)),
        Credentials::Pass => passed,
    };
    let mut rendering = TemplateProbe::new(routes, model);
    let requests = async {
        while let Some((path, body)) = rendering.next_request() {
            let reply = probe.post(path, body, authorization.clone()).await?;
            rendering.take(reply.status, reply.body.as_deref().unwrap_or_default());
        }
        Ok::<_, ProbeFailure>(())
    };
    let ended = timeout_at(until, requests).await;
    let (facts, refusal) = (rendering.facts(), rendering.refusal());
    let prompts = match (ended, refusal) {
        (Ok(Ok(())), None) if !facts.is_empty() => Prompts::Rendered,
        (_, Some(401 | 403)) if authorization.is_none() => Prompts::Unauthorized,
        _ => Prompts::Failed(Instant::now()),
    };
    upstream.learned.end_prompts(model, prompts, facts);
    let (upstream, route) = (&upstream.config.name, routes.path());
    if facts.is_empty() {
        tracing::debug!(
            upstream,
            model,
            route,
            status = refusal,
            "no prompt was rendered"
        );
    } else {
        tracing::info!(upstream, model, route, %facts, "what the chat template does");
    }
}
