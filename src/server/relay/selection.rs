//! Selection of upstreams for one request: which comes first, which after a failure, and for which model.
//!
//! A request is parsed before its upstream is chosen, but options and form may differ by upstream. So it is parsed for one
//! that serves the model ([`ReadFor`]), and only upstreams that take the same form are chosen.
//!
//! Takes: the client's name for the model, and what attempts have come to. Gives: a [`ChosenUpstream`], and the model
//! requested from it. Remembers: the upstreams tried, and the models that the name stands for. Never: returns to a
//! model that it has left.

use crate::config::Affinity;
use crate::error::RetryClass;
use crate::server::App;
use crate::server::admit::batch_line::LineStart;
use crate::server::admitted::Admitted;
use crate::server::reply::ClientReply;
use crate::upstream::{
    ChosenUpstream, ModelTarget, NoUpstream, Pool, ReadFor, RetryState, SelectionCriteria,
    Upstream, prefix_blocks,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Selection of upstreams for one request: the criteria, and the state of the attempts so far.
#[derive(Clone)]
pub(in crate::server) struct UpstreamSelection {
    /// Model, by the client's name for it.
    model: Arc<str>,
    /// Models that the name stands for, in the order in which they are tried; empty: itself alone.
    targets: Vec<ModelTarget>,
    /// Index of the current target.
    at: usize,
    affinity_hash: Option<u64>,
    /// Hashes of the blocks of the prompt, if they decide.
    prompt: Vec<u64>,
    /// Upstream and model for which the request was read; another one qualifies only if it accepts the same form.
    compatible_with: Option<ReadFor>,
    tie_breaker: u64,
    retries: RetryState,
    /// Line of a batch that starts with this request.
    line_start: Option<Arc<LineStart>>,
}

impl UpstreamSelection {
    /// Returns a new selection among the upstreams that serve a model, or one of those that its name stands for.
    /// `like` is what the request was read for; `beginning` gives the start of the conversation, and `prompt` the texts of
    /// the whole prompt, for affinity.
    pub(in crate::server) fn new<P: Hash, T: AsRef<str>>(
        admitted: &Admitted<'_>,
        reply: &ClientReply,
        model: &str,
        like: Option<ReadFor>,
        beginning: impl FnOnce() -> Vec<P>,
        prompt: impl FnOnce() -> Vec<T>,
    ) -> Self {
        let pool = &admitted.app.pool;
        let together = match &pool.affinity {
            Affinity::None => None,
            Affinity::Conversation | Affinity::Prefix(_) => Some(beginning())
                .filter(|said| !said.is_empty())
                .map(|said| hash(model, said.iter())),
            Affinity::Header(name) => admitted
                .head
                .headers
                .get(name)
                .map(|value| hash(model, [value.as_bytes()].iter())),
        };
        let prompt = match &pool.affinity {
            Affinity::Prefix(_) if !pool.is_single() => {
                prefix_blocks(model, prompt().iter().map(AsRef::as_ref))
            }
            _ => Vec::new(),
        };
        let shared = reply.record().and_then(|record| record.shared_name(model));
        Self {
            prompt,
            model: shared.unwrap_or_else(|| model.into()),
            targets: pool.targets(model, target_seed(admitted, together)),
            at: 0,
            affinity_hash: together,
            compatible_with: like,
            tie_breaker: admitted.ids.tie_breaker(),
            retries: RetryState::default(),
            line_start: admitted.identity.line_start.clone(),
        }
    }

    /// Returns a new selection for a request without a conversation.
    pub(in crate::server) fn by_model(
        admitted: &Admitted<'_>,
        reply: &ClientReply,
        model: &str,
    ) -> Self {
        Self::new(
            admitted,
            reply,
            model,
            None,
            Vec::<&str>::new,
            Vec::<&str>::new,
        )
    }

    /// Chooses the first upstream and records the attempt. Fails if no upstream qualifies.
    pub(in crate::server) fn begin(&mut self, app: &App) -> Result<ChosenUpstream, NoUpstream> {
        app.pool.count_request();
        // A target other than the first one of the order is a fallback already.
        let chosen = self.next(app).inspect(|_| self.count_fallback(0, app));
        if let Some(start) = self.line_start.take() {
            start.end();
        }
        chosen
    }

    /// Chooses the next upstream and records the attempt. Fails if no upstream qualifies.
    fn next(&mut self, app: &App) -> Result<ChosenUpstream, NoUpstream> {
        let chosen = self.choose(app)?;
        self.retries.visit(chosen.upstream().id);
        Ok(chosen)
    }

    /// Chooses an upstream for the current target, else for one after it.
    fn choose(&mut self, app: &App) -> Result<ChosenUpstream, NoUpstream> {
        let end = self.targets.len().max(1);
        // An ejected upstream is better than none, but not better than another model.
        let is_last = self.at + 1 >= end;
        let mut reason = None;
        for may_use_last_resort in [false, true].into_iter().skip(usize::from(is_last)) {
            for at in self.at..end {
                let target = self.targets.get(at);
                let chosen = app.pool.choose(&SelectionCriteria {
                    model: target.map_or(&self.model, |target| &target.model),
                    only: target.and_then(|target| target.upstream),
                    affinity_hash: self.affinity_hash,
                    prompt: &self.prompt,
                    visited: &self.retries.visited,
                    compatible_with: self.compatible_with.as_ref(),
                    may_use_last_resort,
                    chance: self.tie_breaker,
                });
                match chosen {
                    Ok(chosen) => {
                        self.at = at;
                        return Ok(chosen);
                    }
                    Err(none) => reason = Some(none.or_clearer(reason)),
                }
            }
        }
        Err(reason.unwrap_or(NoUpstream::Unknown))
    }

    /// Counts that another model has taken the place of the target at this index.
    fn count_fallback(&self, from: usize, app: &App) {
        if self.at != from {
            let (model, to) = (app.pool.label(&self.model), app.pool.label(self.served()));
            app.metrics.model_fallback(&model, &to);
        }
    }

    /// Returns the next upstream after a failure of this class, and the pause before it; `None` if a retry is not
    /// allowed or no upstream is left.
    pub(in crate::server) fn after(
        &mut self,
        class: RetryClass,
        app: &App,
    ) -> Option<(ChosenUpstream, Duration)> {
        let pause = self.retries.next_pause(class, &app.pool.retry)?;
        let before = self.at;
        let chosen = self.next(app).ok()?;
        let next = may_send_again(app).then_some((chosen, pause))?;
        self.count_fallback(before, app);
        Some(next)
    }

    /// Returns the same as [`Self::after`], for the request of a single choice. `path_taken` lists the upstreams to
    /// which such requests were sent again, in order. All choices try them in this order, so that together they break
    /// no more engines than one request may.
    pub(in crate::server) fn next_along(
        &mut self,
        path_taken: &mut Vec<Arc<Upstream>>,
        class: RetryClass,
        app: &App,
    ) -> Option<(ChosenUpstream, Duration)> {
        let Some(known) = self
            .retries
            .visited
            .len()
            .checked_sub(1)
            .and_then(|at| path_taken.get(at))
        else {
            let found = self.after(class, app)?;
            path_taken.push(Arc::clone(found.0.upstream()));
            return Some(found);
        };
        let pause = self.retries.next_pause(class, &app.pool.retry)?;
        self.retries.visit(known.id);
        may_send_again(app).then(|| (Pool::same_upstream(known), pause))
    }

    /// Leaves out the models that have not been tried: the choices of one answer come from one model.
    pub(in crate::server) fn keep_model(&mut self) {
        self.targets.truncate(self.at + 1);
    }

    /// Returns the requested model, by the client's name for it.
    pub(in crate::server) fn model(&self) -> &str {
        &self.model
    }

    /// Returns the model to request from the current upstream: one of those that the client's name means.
    pub(in crate::server) fn served(&self) -> &Arc<str> {
        self.targets
            .get(self.at)
            .map_or(&self.model, |target| &target.model)
    }

    /// Returns the engines' name of that model, for the client and the log; `None` if the client's name stands for
    /// itself alone.
    pub(in crate::server) fn shown(&self, app: &App) -> Option<Arc<str>> {
        self.targets
            .get(self.at)
            .map(|target| app.pool.engine_name(&target.model).into())
    }

    /// Returns the number of attempts so far.
    pub(in crate::server) fn attempts(&self) -> u32 {
        u32::try_from(self.retries.visited.len()).unwrap_or(u32::MAX)
    }

    /// Returns true if two engines have broken off on this request, which may have killed them.
    pub(in crate::server) fn has_two_resets(&self) -> bool {
        self.retries.has_two_resets()
    }
}

fn may_send_again(app: &App) -> bool {
    let may = app.pool.try_take_retry();
    if !may {
        app.metrics.budget_exhausted.add(1);
    }
    may
}

/// Returns the seed by which a model is drawn where a name stands for several: that of a batch's line, else the one of
/// requests that stay together, else chance.
pub(in crate::server) fn target_seed(admitted: &Admitted<'_>, together: Option<u64>) -> u64 {
    let line = admitted
        .identity
        .line_start
        .as_ref()
        .map(|start| start.seed);
    line.or(together)
        .unwrap_or_else(|| admitted.ids.tie_breaker())
}

/// Returns a hash that is equal for requests for the same model whose conversations begin alike.
fn hash<P: Hash>(model: &str, beginning: impl Iterator<Item = P>) -> u64 {
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    beginning.for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}
