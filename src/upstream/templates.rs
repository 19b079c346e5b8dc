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
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Upper limit for the models of a list whose prompts are requested before anybody wants them.
const LISTED: usize = 16;

/// Model whose prompts are wanted, and the client's credentials if the upstream passes those on.
#[derive(Debug)]
pub(super) struct WantedModel {
    name: String,
    authorization: Option<HeaderValue>,
}

/// Models whose prompts requests want.
#[derive(Debug, Default)]
pub(super) struct WantedModels {
    queue: Mutex<Vec<WantedModel>>,
    added: Notify,
}

impl WantedModels {
    /// Adds a model. The caller adds none that waits already.
    pub(super) fn add(&self, name: &str, authorization: Option<&HeaderValue>) {
        self.queue.lock().push(WantedModel {
            name: name.to_owned(),
            authorization: authorization.cloned(),
        });
        self.added.notify_one();
    }

    /// Returns the next model, as soon as there is one.
    pub(super) async fn next(&self) -> WantedModel {
        loop {
            if let Some(next) = self.queue.lock().pop() {
                return next;
            }
            self.added.notified().await;
        }
    }
}

/// Learns the facts of the models that the engine lists, as far as they are not known.
pub(super) async fn learn_listed(probe: &mut Probe<'_>) {
    let listed = probe.upstream.main_models();
    let has_key = probe.upstream.config.auth.own_key().is_some();
    for name in listed.iter().flatten().take(LISTED) {
        if probe.upstream.learned.begin_prompts(name, has_key) {
            learn(probe, name, None).await;
        }
    }
}

/// Learns the facts of a model that a request wants.
pub(super) async fn learn_wanted(probe: &mut Probe<'_>, wanted: WantedModel) {
    learn(probe, &wanted.name, wanted.authorization).await;
}

/// Requests the prompts of a model, and records what they show.
async fn learn(probe: &mut Probe<'_>, model: &str, passed: Option<HeaderValue>) {
    let (upstream, patience) = (probe.upstream, probe.timeout);
    let engine = upstream.identity().engine;
    let Some(routes) = engine.renders else {
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
    let ended = timeout(patience, requests).await;
    let (facts, refusal) = (rendering.facts(), rendering.refusal());
    let prompts = match refusal {
        _ if !facts.is_empty() => Prompts::Rendered,
        Some(401 | 403) => Prompts::Unauthorized,
        _ => Prompts::Failed(Instant::now()),
    };
    upstream.learned.end_prompts(model, prompts, facts);
    let (upstream, route) = (&upstream.config.name, routes.path());
    match prompts {
        Prompts::Rendered => {
            tracing::info!(upstream, model, route, %facts, "what the chat template does")
        }
        _ => {
            let is_whole = matches!(ended, Ok(Ok(())));
            tracing::debug!(
                upstream,
                model,
                route,
                status = refusal,
                is_whole,
                "no prompt was rendered"
            );
        }
    }
}
