//! Choice of the upstream for a request: an upstream that serves the model, is healthy, was not tried for this
//! request yet, and has the fewest requests under way for its weight (faults 8).
//!
//! Takes: [`SelectionCriteria`]. Gives: a [`ChosenUpstream`], which counts as a request of that upstream until
//! dropped. Never: waits.

use super::circuit_breaker::{Availability, Outcome};
use super::retry::RetryBudget;
use super::{Client, Upstream};
use crate::config::{Affinity, Config, Layers, ModelConfig, Retry, UpstreamConfig};
use crate::plan::Route;
use crate::telemetry::Metrics;
use crate::wire::options::Options;
use crate::wire::{Models, Vocabulary};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Factor by which an upstream may exceed its share of all requests before a conversation moves to another one.
const MAX_OVER_SHARE: f64 = 1.25;

/// Set of all upstreams of a configuration, with the means to choose between them. A reload makes a new pool, which
/// keeps the upstreams that did not change.
#[derive(Debug)]
pub struct Pool {
    upstreams: Vec<Arc<Upstream>>,
    first: Arc<Upstream>,
    models: Vec<ModelConfig>,
    layers: Layers,
    vocabulary: Option<Arc<Vocabulary>>,
    /// Rule by which requests of one conversation stay on one upstream.
    pub affinity: Affinity,
    /// Limits for sending a failed request again.
    pub retry: Retry,
    /// Upper limit for the bytes of one engine event.
    max_event_bytes: usize,
    ejected: Arc<EjectionCount>,
    budget: Arc<RetryBudget>,
}

/// Requirements of a request for its upstream, and the means to decide between several that meet them.
#[derive(Clone, Copy, Debug)]
pub struct SelectionCriteria<'w> {
    /// Model, by the client's name for it.
    pub model: &'w str,
    /// Hash of what the request shares with earlier requests of its conversation, if affinity is on.
    pub affinity_hash: Option<u64>,
    /// Ids of the upstreams that were tried already, and are not chosen again.
    pub visited: &'w [u64],
    /// Upstream for which the request was read. Another one qualifies only if the request may be sent to it
    /// unchanged.
    pub compatible_with: Option<&'w Upstream>,
    /// Random number that decides between equals.
    pub chance: u64,
}

/// Reason why no upstream was chosen; the error that the client gets depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoUpstream {
    /// No upstream serves the model.
    Unknown,
    /// No upstream is left: those that qualify were tried already.
    Exhausted,
    /// Each upstream that serves the model is down, has weight 0, or cannot take the request as it is.
    NoneAvailable,
    /// Each upstream that qualifies is overloaded or ejected, and at least one is overloaded.
    Overloaded {
        /// Status 429 or 503, from the upstream whose pause ends first.
        status: u16,
        /// Time until that upstream may be tried again.
        wait: Duration,
    },
}

impl Pool {
    /// Creates the upstreams of a configuration, each with a client for every thread. Returns `None` if the
    /// configuration names no upstream.
    pub fn new(config: &Config, metrics: &Metrics) -> Option<Self> {
        let (ejected, budget) = (Arc::<EjectionCount>::default(), Arc::default());
        Self::with(config, ejected, budget, |upstream, ejected| {
            let figures = metrics.upstream(&upstream.name);
            Arc::new(Upstream::new(upstream.clone(), config, figures, Arc::clone(ejected)))
        })
    }

    /// Creates the pool for a reloaded configuration. Upstreams that did not change are kept, changed ones inherit
    /// what is known about the same address, and new ones start with a small share of the requests.
    pub fn renewed(&self, config: &Config, metrics: &Metrics) -> Option<Self> {
        Self::with(config, Arc::clone(&self.ejected), Arc::clone(&self.budget), |upstream, ejected| {
            if let Some(same) = self.upstreams.iter().find(|known| known.is_same_config(upstream, config)) {
                return Arc::clone(same);
            }
            // An upstream that stays keeps its state to itself.
            let stays =
                |known: &Upstream| config.upstreams.iter().any(|other| known.is_same_config(other, config));
            let mut before = self.upstreams.iter().filter(|known| !stays(known));
            let figures = metrics.upstream(&upstream.name);
            let mut new = Upstream::new(upstream.clone(), config, figures, Arc::clone(ejected));
            match before.find(|known| known.is_same_address(upstream)) {
                Some(known) => new.inherit(known),
                None => new.ramp(),
            }
            Arc::new(new)
        })
    }

    /// Returns the upstreams of this pool that `next` does not have, for example to retire them after a reload.
    pub fn missing_from<'p>(&'p self, next: &Self) -> impl Iterator<Item = &'p Arc<Upstream>> {
        self.upstreams.iter().filter(|upstream| !next.has(upstream))
    }

    /// Returns true if the upstream belongs to this pool.
    fn has(&self, upstream: &Upstream) -> bool {
        self.upstreams.iter().any(|known| known.id == upstream.id)
    }

    fn with(
        config: &Config,
        ejected: Arc<EjectionCount>,
        budget: Arc<RetryBudget>,
        upstream: impl Fn(&UpstreamConfig, &Arc<EjectionCount>) -> Arc<Upstream>,
    ) -> Option<Self> {
        ejected.most.store(config.upstreams.len() / 2, Ordering::Relaxed);
        let upstreams = config.upstreams.iter().map(|config| upstream(config, &ejected));
        let upstreams: Vec<_> = upstreams.collect();
        Some(Self {
            first: Arc::clone(upstreams.first()?),
            upstreams,
            models: config.models.clone(),
            layers: config.layers.clone(),
            vocabulary: config.vocabulary.clone(),
            affinity: config.affinity.clone(),
            retry: config.retry.clone(),
            max_event_bytes: config.limits.max_event_bytes,
            ejected,
            budget,
        })
    }

    /// Counts a new request in the retry budget. With a single upstream there are no retries, and no count.
    pub fn count_request(&self) {
        if !self.is_single() {
            self.budget.request(Instant::now());
        }
    }

    /// Returns true if the retry budget allows one more retry, and counts it if so.
    pub fn try_take_retry(&self) -> bool {
        self.budget.take(Instant::now(), &self.retry)
    }

    /// Returns the upstreams in the order of the configuration.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// Returns true if there is only one upstream, so that a failed request cannot be sent to another one.
    pub fn is_single(&self) -> bool {
        self.upstreams.len() == 1
    }

    /// Returns true if the model's name matters for the choice of the upstream or for the request, so that it must
    /// be read.
    pub fn needs_model(&self) -> bool {
        !self.is_single() || !self.models.is_empty()
    }

    /// Returns the configured models, which may have other names, options and upstreams of their own.
    pub fn models(&self) -> &[ModelConfig] {
        &self.models
    }

    /// Returns the names a request without a model can mean, each once (wire-format 2.10); `None` if an upstream
    /// that is not down has not listed its models yet.
    pub fn main_models(&self) -> Option<Vec<Arc<str>>> {
        let mut all: Vec<Arc<str>> = Vec::new();
        let mut is_complete = true;
        for upstream in &self.upstreams {
            match upstream.main_models() {
                Some(names) => {
                    let new: Vec<_> = names.into_iter().filter(|name| !all.contains(name)).collect();
                    all.extend(new);
                }
                None => is_complete &= upstream.is_down(),
            }
        }
        is_complete.then_some(all)
    }

    /// Returns the configured model that has this name, with its index in the configuration. An alias that is a
    /// pattern does not cover the names that are known otherwise.
    pub fn model(&self, name: &str) -> Option<(usize, &ModelConfig)> {
        let all = || self.models.iter().enumerate();
        let is_listed = || self.upstreams.iter().any(|upstream| upstream.known_name(name).is_some());
        let covering = || all().find(|(_, model)| model.covers(name)).filter(|_| !is_listed());
        all().find(|(_, model)| model.is_called(name)).or_else(covering)
    }

    /// Returns the index of an upstream in the configuration.
    fn index_of(&self, upstream: &Upstream) -> usize {
        self.upstreams.iter().position(|known| known.id == upstream.id).unwrap_or_default()
    }

    /// Returns the options for an answer of this upstream; `key` is the index of the caller's key.
    pub fn options(&self, upstream: &Upstream, model: &str, key: Option<usize>) -> Arc<Options> {
        self.layers.options(self.index_of(upstream), self.model(model).map(|(place, _)| place), key)
    }

    /// Returns the options for answers that involve no upstream, such as those from the store: those of the first
    /// upstream.
    pub fn usual_options(&self, key: Option<usize>) -> Arc<Options> {
        self.layers.options(0, None, key)
    }

    /// Returns the engines' name for a model: the configured one if the client used an alias, else the client's.
    pub fn engine_name<'m>(&'m self, model: &'m str) -> &'m str {
        self.model(model).map_or(model, |(_, known)| &known.name)
    }

    /// Returns the context length of a model at this upstream in tokens: the configured one, else the one that the
    /// engine gives; `None` if neither is known.
    pub fn context_length(&self, upstream: &Upstream, model: &str) -> Option<u64> {
        let configured = self.model(model).and_then(|(_, known)| known.context_length);
        configured.or_else(|| upstream.context_length(self.engine_name(model)))
    }

    /// Returns the route on which requests for a model to this upstream are planned.
    pub fn route(&self, upstream: &Upstream, model: &str, options: Arc<Options>) -> Route {
        let name = self.engine_name(model);
        let alias = Some(name).filter(|name| *name != model);
        // With a single engine, an answer cannot come from another engine's model.
        let models = if self.is_single() { None } else { self.accepted_model_names(upstream, alias) };
        Route {
            model_alias: alias.map(ToOwned::to_owned),
            models,
            vocabulary: self.vocabulary.clone(),
            ..upstream.route(name, options, self.max_event_bytes)
        }
    }

    /// Returns the rule for the model names in an upstream's answers, which reveals an engine that answers as a
    /// wrong model. If the engine keeps to its list, only configured and listed names are right; else every name is
    /// right that no other upstream alone lists.
    fn accepted_model_names(&self, upstream: &Upstream, alias: Option<&str>) -> Option<Models> {
        if !upstream.config.models.is_empty() && upstream.identity().engine.names_models {
            let known = upstream
                .names()
                .into_iter()
                .flatten()
                .chain(upstream.listed_names())
                .chain(alias.map(Into::into));
            return Some(Models::OneOf(known.collect()));
        }
        let own = upstream.listed_names();
        let others = self.upstreams.iter().filter(|other| other.id != upstream.id);
        let foreign: Arc<[_]> =
            others.flat_map(|other| other.listed_names()).filter(|name| !own.contains(name)).collect();
        (!own.is_empty() && !foreign.is_empty()).then_some(Models::NoneOf(foreign))
    }

    /// Returns the name of a model for labels: "other" unless the configuration or an engine knows it, so that
    /// clients cannot create labels at will.
    pub fn label(&self, model: &str) -> Arc<str> {
        if let Some((_, known)) = self.model(model) {
            return known.name.as_str().into();
        }
        self.upstreams
            .iter()
            .find_map(|upstream| upstream.known_name(model))
            .unwrap_or_else(|| "other".into())
    }

    /// Chooses the upstream for a request, and counts the request there until the result is dropped.
    ///
    /// # Errors
    /// Fails if no upstream qualifies, or if those that do are down or overloaded.
    pub fn choose(&self, criteria: &SelectionCriteria<'_>) -> Result<ChosenUpstream, NoUpstream> {
        if let [only] = self.upstreams.as_slice() {
            return Self::choose_single(only, criteria);
        }
        let now = Instant::now();
        let serving = self.serving(criteria.model);
        if serving.is_empty() {
            return Err(NoUpstream::Unknown);
        }
        let is_left = |upstream: &&&Arc<Upstream>| {
            upstream.config.weight > 0
                && !criteria.visited.contains(&upstream.id)
                && criteria
                    .compatible_with
                    .is_none_or(|like| self.is_compatible(like, upstream, criteria.model))
        };
        let left: Vec<_> = serving.iter().filter(is_left).copied().collect();
        if left.is_empty() {
            return Err(if criteria.visited.is_empty() {
                NoUpstream::NoneAvailable
            } else {
                NoUpstream::Exhausted
            });
        }
        let up: Vec<_> = left.into_iter().filter(|upstream| !upstream.is_down()).collect();
        if up.is_empty() {
            return Err(NoUpstream::NoneAvailable);
        }
        // An upstream that does not match its configuration is chosen only if no other one is available.
        let right: Vec<_> = up.iter().filter(|upstream| !upstream.is_mismatched()).copied().collect();
        self.choose_among(if right.is_empty() { &up } else { &right }, criteria, now)
    }

    /// Returns an upstream that serves the model, whose options are used to read the request, before the upstream is
    /// chosen. If there is none, returns the first upstream, and false.
    pub fn upstream_to_read_for(&self, model: &str, chance: u64) -> (Arc<Upstream>, bool) {
        // A single upstream itself refuses models that it does not have.
        if self.is_single() {
            return (Arc::clone(&self.first), true);
        }
        let serving = self.serving(model);
        let up: Vec<_> = serving.iter().filter(|upstream| !upstream.is_down()).collect();
        let at = |all: usize| usize::try_from(chance).unwrap_or(0) % all.max(1);
        let found = up.get(at(up.len())).map(|upstream| **upstream).or_else(|| serving.first().copied());
        (Arc::clone(found.unwrap_or(&self.first)), found.is_some())
    }

    /// Returns the same upstream again, with one more request counted on it.
    pub fn same_upstream(upstream: &Arc<Upstream>) -> ChosenUpstream {
        ChosenUpstream::new(upstream, false)
    }

    fn choose_single(
        only: &Arc<Upstream>,
        criteria: &SelectionCriteria<'_>,
    ) -> Result<ChosenUpstream, NoUpstream> {
        match (criteria.visited.is_empty(), only.is_down()) {
            (false, _) => Err(NoUpstream::Exhausted),
            (true, true) => Err(NoUpstream::NoneAvailable),
            (true, false) => Ok(ChosenUpstream::new(only, false)),
        }
    }

    /// Returns the upstreams that serve a model: those configured for it, else those that list it, else those whose
    /// models are unknown; if no list is unknown, the model is not configured and all lists are equal, all upstreams.
    fn serving(&self, model: &str) -> Vec<&Arc<Upstream>> {
        let known = self.model(model).map(|(_, known)| known);
        let name = known.map_or(model, |known| known.name.as_str());
        if let Some(known) = known.filter(|known| !known.upstreams.is_empty()) {
            return known.upstreams.iter().filter_map(|place| self.upstreams.get(*place)).collect();
        }
        let all = || self.upstreams.iter();
        let sure: Vec<_> = all().filter(|upstream| upstream.serves(name) == Some(true)).collect();
        if !sure.is_empty() {
            return sure;
        }
        let silent: Vec<_> = all().filter(|upstream| upstream.serves(name).is_none()).collect();
        // Engines with identical lists may know more names than they list.
        let same = || all().skip(1).zip(all()).all(|(one, other)| one.lists_the_same_as(other));
        match silent.is_empty() && known.is_none() && same() {
            true => all().collect(),
            false => silent,
        }
    }

    /// Returns true if a request that was read for one upstream can be sent to the other one unchanged.
    fn is_compatible(&self, one: &Upstream, other: &Upstream, model: &str) -> bool {
        let of = |upstream| self.options(upstream, model, None);
        let (a, b) = (of(one), of(other));
        one.config.responses == other.config.responses
            && one.config.messages == other.config.messages
            && a.unsupported_tools == b.unsupported_tools
            && a.unsupported_content == b.unsupported_content
            && a.billing_block == b.billing_block
            && a.messages_thinking == b.messages_thinking
            && a.request_unknown == b.request_unknown
    }

    fn choose_among(
        &self,
        all: &[&Arc<Upstream>],
        criteria: &SelectionCriteria<'_>,
        now: Instant,
    ) -> Result<ChosenUpstream, NoUpstream> {
        let standings: Vec<_> = all.iter().map(|upstream| (*upstream, upstream.availability(now))).collect();
        if let Some((upstream, _)) =
            standings.iter().find(|(_, availability)| *availability == Availability::Trial)
        {
            return Ok(ChosenUpstream::new(upstream, true));
        }
        let good = |ramped: bool| -> Vec<&Arc<Upstream>> {
            let is_good = |(upstream, availability): &(&'_ Arc<Upstream>, Availability)| match availability {
                Availability::Good(share) => !ramped || draw(criteria.chance, upstream) < *share,
                _ => false,
            };
            standings.iter().filter(|one| is_good(one)).map(|(upstream, _)| *upstream).collect()
        };
        // An upstream on its ramp takes part in a share of the choices, or in all if no other one is good.
        let good = Some(good(true)).filter(|some| !some.is_empty()).unwrap_or_else(|| good(false));
        if let Some(upstream) = preferred(&good, criteria).or_else(|| least_busy(&good, criteria.chance)) {
            return Ok(ChosenUpstream::new(upstream, false));
        }
        let pushed = standings.iter().filter_map(|(_, availability)| match availability {
            Availability::Pushed { status, left } => Some((*left, *status)),
            _ => None,
        });
        // Overloaded upstreams get no request, since they asked for a pause. Ejected ones are the last resort, the
        // one with the shortest time left first: only their answers speak against them, not their probes.
        if let Some((wait, status)) = pushed.min() {
            return Err(NoUpstream::Overloaded { status, wait });
        }
        let ejected = standings.iter().filter_map(|(upstream, availability)| match availability {
            Availability::Ejected { left } => Some((*left, *upstream)),
            _ => None,
        });
        let least_bad = ejected.min_by_key(|(left, _)| *left).ok_or(NoUpstream::NoneAvailable)?;
        Ok(ChosenUpstream::new(least_bad.1, false))
    }
}

/// Returns a number from 0 to 1 that is always the same for the same seed and upstream.
fn draw(seed: u64, upstream: &Upstream) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, &upstream.config.name).hash(&mut hasher);
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let number = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
    number
}

/// Returns [`draw`] scaled by weight: over many seeds, an upstream has the highest value in proportion to its
/// weight.
fn weighted(seed: u64, upstream: &Upstream) -> f64 {
    draw(seed, upstream).max(f64::MIN_POSITIVE).ln() / f64::from(upstream.config.weight)
}

/// Returns the upstream of the conversation, unless it has many more requests than its share (rendezvous hashing
/// with bounded loads).
fn preferred<'u>(good: &[&'u Arc<Upstream>], criteria: &SelectionCriteria<'_>) -> Option<&'u Arc<Upstream>> {
    let together = criteria.affinity_hash?;
    let drawn = good.iter().max_by(|a, b| weighted(together, a).total_cmp(&weighted(together, b)))?;
    let weight = |upstream: &Upstream| f64::from(upstream.config.weight);
    let requests = good.iter().map(|upstream| upstream.load()).sum::<f64>() + 1.0;
    let weights = good.iter().map(|upstream| weight(upstream)).sum::<f64>();
    let most = (MAX_OVER_SHARE * requests * weight(drawn) / weights).ceil();
    (drawn.load() + 1.0 <= most).then_some(drawn)
}

/// Returns the upstream with the fewest requests for its weight; chance decides among equals.
fn least_busy<'u>(good: &[&'u Arc<Upstream>], chance: u64) -> Option<&'u Arc<Upstream>> {
    // The load of each is read once: other threads change it meanwhile, and one of the values must be the minimum.
    let load = |upstream: &Upstream| upstream.load() / f64::from(upstream.config.weight);
    let loads: Vec<_> = good.iter().map(|upstream| (load(upstream), *upstream)).collect();
    let least = loads.iter().map(|(load, _)| *load).min_by(f64::total_cmp)?;
    let equals = loads.into_iter().filter(|(load, _)| *load <= least).map(|(_, upstream)| upstream);
    equals.max_by(|a, b| weighted(chance, a).total_cmp(&weighted(chance, b)))
}

/// Count of the ejected upstreams of a pool, which limits them to half of the pool.
#[derive(Debug, Default)]
pub(super) struct EjectionCount {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl EjectionCount {
    pub(super) fn try_add(&self) -> bool {
        let may = |now| (now < self.most.load(Ordering::Relaxed)).then_some(now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may).is_ok()
    }

    pub(super) fn remove(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Upstream chosen for a request, which counts as one of its requests under way until this is dropped.
#[derive(Debug)]
pub struct ChosenUpstream {
    upstream: Arc<Upstream>,
    /// True if this request tests whether an ejected upstream has recovered.
    trial: bool,
}

impl ChosenUpstream {
    fn new(upstream: &Arc<Upstream>, trial: bool) -> Self {
        upstream.figures.active.add(1);
        if trial {
            upstream.start_trial();
        }
        Self { upstream: Arc::clone(upstream), trial }
    }

    /// Returns the upstream that was chosen.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// Returns the client of the upstream for a thread.
    pub fn client(&self, thread: usize) -> &Arc<Client> {
        self.upstream.client(thread)
    }

    /// Reports the outcome of the request to the upstream's health tracking.
    pub fn report(&mut self, outcome: Outcome) {
        self.trial &= matches!(outcome, Outcome::Pushed { .. });
        self.upstream.record_outcome(outcome, Instant::now());
    }
}

impl Drop for ChosenUpstream {
    fn drop(&mut self) {
        self.upstream.figures.active.add(-1);
        if self.trial {
            self.upstream.cancel_trial();
        }
    }
}
