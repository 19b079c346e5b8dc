//! Choice of the upstream for a request: an upstream that serves the model, is healthy, was not tried for this
//! request yet, and has the fewest requests under way for its weight (faults 8).
//!
//! Takes: [`SelectionCriteria`]. Gives: a [`ChosenUpstream`], which counts as a request of that upstream until
//! dropped. Never: waits.

mod choice;

use super::circuit_breaker::AttemptOutcome;
use super::health::Standing;
use super::pool_state::PoolState;
use super::prefix::PrefixIndex;
use super::retry::RetryBudget;
use super::ring::{HashRing, Rings};
use super::targets::{self, ModelTarget};
use super::{Client, Upstream, UpstreamId};
use crate::config::{Affinity, Config, Layers, ModelConfig, Retry, UpstreamConfig};
use crate::engine::fallback::Fallback;
use crate::plan::Route;
use crate::telemetry::Metrics;
use crate::wire::options::Options;
use crate::wire::{Models, Vocabulary};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::time::Instant;

/// Returns the label of models that neither the configuration nor an engine knows.
pub fn other_model() -> Arc<str> {
    static OTHER: LazyLock<Arc<str>> = LazyLock::new(|| "other".into());
    Arc::clone(&OTHER)
}

/// Set of all upstreams of a configuration, with the means to choose between them. A reload makes a new pool, which
/// keeps the upstreams that did not change.
#[derive(Debug)]
pub struct Pool {
    upstreams: Vec<Arc<Upstream>>,
    first: Arc<Upstream>,
    /// Places of the upstreams of each entry `[[upstream]]`, in the order of the configuration.
    entries: Vec<Range<usize>>,
    models: Vec<ModelConfig>,
    layers: Layers,
    vocabulary: Option<Arc<Vocabulary>>,
    /// Rule by which requests of one conversation stay on one upstream.
    pub affinity: Affinity,
    /// Limits for sending a failed request again.
    pub retry: Retry,
    /// Upper limit for the bytes of one engine event.
    max_event_bytes: usize,
    state: Arc<PoolState>,
    budget: Arc<RetryBudget>,
    /// Index of each upstream, by its id.
    places: HashMap<UpstreamId, usize>,
    rings: Rings,
    /// Engines by the prompts that they have got, where that decides.
    prefixes: Option<Arc<PrefixIndex>>,
    /// Rings of the upstreams of each entry, for requests that go to it alone.
    entry_rings: Box<[Arc<HashRing>]>,
}

/// Requirements of a request for its upstream, and the means to decide between several that meet them.
#[derive(Clone, Copy, Debug)]
pub struct SelectionCriteria<'w> {
    /// Model, by a name that clients may request.
    pub model: &'w str,
    /// Index of the only entry `[[upstream]]` whose upstreams are used; `None`: each one that serves the model.
    pub only: Option<usize>,
    /// Hash of what the request shares with earlier requests of its conversation, if affinity is on.
    pub affinity_hash: Option<u64>,
    /// Hashes of the blocks of its prompt; empty: nobody is chosen by them.
    pub prompt: &'w [u64],
    /// Ids of the upstreams that were tried already, and are not chosen again.
    pub visited: &'w [UpstreamId],
    /// Upstream and model for which the request was read. Another one qualifies only if the request may be sent to
    /// it unchanged.
    pub compatible_with: Option<&'w ReadFor>,
    /// True if an upstream that is ejected, or whose probes are late, is better than none. False while another model
    /// may still answer.
    pub may_use_last_resort: bool,
    /// Random number that decides between equals.
    pub chance: u64,
}

/// Upstream and model for whose form a request is read, before the upstream that answers it is chosen.
#[derive(Clone, Debug)]
pub struct ReadFor {
    /// Upstream whose options and modes apply.
    pub upstream: Arc<Upstream>,
    /// Model to request from it: a likely one of those that the client's name means.
    pub model: Arc<str>,
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

impl NoUpstream {
    /// Returns the reason that tells a client more, of those for two models of which either would have done.
    pub fn or_clearer(self, other: Option<Self>) -> Self {
        let rank = |reason: &Self| match reason {
            Self::Unknown => 0,
            Self::Exhausted => 1,
            Self::NoneAvailable => 2,
            Self::Overloaded { .. } => 3,
        };
        match (self, other) {
            (Self::Overloaded { wait: a, .. }, Some(Self::Overloaded { status, wait: b }))
                if b <= a =>
            {
                Self::Overloaded { status, wait: b }
            }
            (this, Some(other)) if rank(&other) > rank(&this) => other,
            (this, _) => this,
        }
    }
}

impl Pool {
    /// Creates the upstreams of a configuration, each with a client for every thread. Returns `None` if the
    /// configuration names no upstream.
    pub fn new(config: &Config, metrics: &Metrics) -> Option<Self> {
        let (state, budget) = (Arc::<PoolState>::default(), Arc::default());
        Self::with(config, state, budget, |upstream, state| {
            let figures = metrics.upstream(&upstream.name);
            Arc::new(Upstream::new(
                upstream.clone(),
                config,
                figures,
                Arc::clone(state),
            ))
        })
    }

    /// Creates the pool for a reloaded configuration. Upstreams that did not change are kept, changed ones inherit
    /// what is known about the same address, and new ones start with a small share of the requests.
    pub fn renewed(&self, config: &Config, metrics: &Metrics) -> Option<Self> {
        let known: HashMap<_, _> = self
            .upstreams
            .iter()
            .map(|known| (&*known.config.name, known))
            .collect();
        let same = |upstream: &UpstreamConfig| {
            known
                .get(&*upstream.name)
                .filter(|known| known.is_same_config(upstream, config))
        };
        // An upstream that stays keeps its state to itself.
        let staying = config
            .upstreams
            .iter()
            .filter_map(same)
            .map(|known| known.id)
            .collect::<HashSet<_>>();
        let leaving: Vec<_> = self
            .upstreams
            .iter()
            .filter(|known| !staying.contains(&known.id))
            .collect();
        let next = Self::with(
            config,
            Arc::clone(&self.state),
            Arc::clone(&self.budget),
            |upstream, state| {
                if let Some(same) = same(upstream) {
                    return Arc::clone(same);
                }
                let figures = metrics.upstream(&upstream.name);
                let mut new = Upstream::new(upstream.clone(), config, figures, Arc::clone(state));
                match leaving.iter().find(|known| known.is_same_address(upstream)) {
                    Some(known) => new.inherit(known),
                    None => new.ramp(),
                }
                Arc::new(new)
            },
        )?;
        // Engines that stay keep what they have in their caches.
        let kept = self.prefixes.clone().filter(|kept| {
            next.prefixes
                .as_ref()
                .is_some_and(|index| index.size() == kept.size())
        });
        Some(Self {
            prefixes: kept.or_else(|| next.prefixes.clone()),
            ..next
        })
    }

    /// Returns the upstreams of this pool that `next` does not have, for example to retire them after a reload.
    pub fn missing_from<'p>(&'p self, next: &Self) -> impl Iterator<Item = &'p Arc<Upstream>> {
        self.upstreams.iter().filter(|upstream| !next.has(upstream))
    }

    /// Returns true if the upstream belongs to this pool.
    fn has(&self, upstream: &Upstream) -> bool {
        self.places.contains_key(&upstream.id)
    }

    fn with(
        config: &Config,
        state: Arc<PoolState>,
        budget: Arc<RetryBudget>,
        upstream: impl Fn(&UpstreamConfig, &Arc<PoolState>) -> Arc<Upstream>,
    ) -> Option<Self> {
        state.resize(config.upstreams.len());
        let upstreams = config
            .upstreams
            .iter()
            .map(|config| upstream(config, &state));
        let upstreams: Vec<_> = upstreams.collect();
        let ring = |entry: &Range<usize>| {
            let of = |place: usize| Some((upstreams.get(place)?.config.name.as_str(), place));
            Arc::new(HashRing::of(entry.clone().filter_map(of)))
        };
        let entry_rings = config.entries.iter().map(ring).collect();
        Some(Self {
            first: Arc::clone(upstreams.first()?),
            places: upstreams
                .iter()
                .enumerate()
                .map(|(place, upstream)| (upstream.id, place))
                .collect(),
            rings: Rings::default(),
            prefixes: match &config.affinity {
                Affinity::Prefix(blocks) => Some(Arc::new(PrefixIndex::new(*blocks))),
                _ => None,
            },
            entry_rings,
            upstreams,
            entries: config.entries.clone(),
            models: config.models.clone(),
            layers: config.layers.clone(),
            vocabulary: config.vocabulary.clone(),
            affinity: config.affinity.clone(),
            retry: config.file.retry.clone(),
            max_event_bytes: config.limits.max_event_bytes,
            state,
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

    /// Returns the configured models, which may have other names, and their own options and upstreams.
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
                    let new: Vec<_> = names
                        .into_iter()
                        .filter(|name| !all.contains(name))
                        .collect();
                    all.extend(new);
                }
                None => is_complete &= upstream.standing() != Standing::Up,
            }
        }
        is_complete.then_some(all)
    }

    /// Returns the configured model that has this name, with its index in the configuration. An alias that is a
    /// pattern does not cover the names that are known otherwise.
    pub fn model(&self, name: &str) -> Option<(usize, &ModelConfig)> {
        let all = || self.models.iter().enumerate();
        let is_listed = || {
            self.upstreams
                .iter()
                .any(|upstream| upstream.known_name(name).is_some())
        };
        let covering = || {
            all()
                .find(|(_, model)| model.covers(name))
                .filter(|_| !is_listed())
        };
        all()
            .find(|(_, model)| model.is_called(name))
            .or_else(covering)
    }

    /// Returns true if the configuration or an engine's list has this name.
    pub fn knows(&self, model: &str) -> bool {
        self.model(model).is_some()
            || self
                .upstreams
                .iter()
                .any(|upstream| upstream.known_name(model).is_some())
    }

    /// Returns the index of an upstream in the configuration.
    fn index_of(&self, upstream: &Upstream) -> usize {
        self.places.get(&upstream.id).copied().unwrap_or_default()
    }

    /// Returns the options for an answer of this upstream; `key` is the index of the caller's key.
    pub fn options(&self, upstream: &Upstream, model: &str, key: Option<usize>) -> Arc<Options> {
        self.layers.options(
            self.index_of(upstream),
            self.model(model).map(|(place, _)| place),
            key,
        )
    }

    /// Returns true if the text of some answers of this upstream is parsed.
    pub fn reads_text(&self, upstream: &Upstream) -> bool {
        self.layers.reads_text(self.index_of(upstream))
    }

    /// Returns the options for answers that involve no upstream, such as those from the store: those of the first
    /// upstream.
    pub fn usual_options(&self, key: Option<usize>) -> Arc<Options> {
        self.layers.options(0, None, key)
    }

    /// Returns the vocabulary that decodes token ids of Harmony, if there is one.
    pub fn vocabulary(&self) -> Option<Arc<Vocabulary>> {
        self.vocabulary.clone()
    }

    /// Returns the engines' name for a model: the configured one if the client used an alias, else the client's.
    pub fn engine_name<'m>(&'m self, model: &'m str) -> &'m str {
        self.model(model).map_or(model, |(_, known)| &known.name)
    }

    /// Returns the models that a name of the configuration stands for, in the order in which they are tried; empty if
    /// it stands for itself alone. `seed` decides between weights: equal for requests that belong together.
    pub fn targets(&self, model: &str, seed: u64) -> Vec<ModelTarget> {
        match self.model(model) {
            Some((_, known)) if known.has_targets() => targets::in_order(&self.models, known, seed),
            _ => Vec::new(),
        }
    }

    /// Returns the context length of a model at this upstream in tokens: the configured one, else the one that the
    /// engine gives; `None` if neither is known.
    pub fn context_length(&self, upstream: &Upstream, model: &str) -> Option<u64> {
        let configured = self
            .model(model)
            .and_then(|(_, known)| known.context_length);
        configured.or_else(|| upstream.context_length(self.engine_name(model)))
    }

    /// Returns the route on which requests for a model to this upstream are planned. `requested` is the client's name,
    /// which the request has and the answer gets.
    pub fn route(
        &self,
        upstream: &Upstream,
        model: &str,
        requested: &str,
        options: Arc<Options>,
    ) -> Route {
        let name = self.engine_name(model);
        let alias = Some(name).filter(|name| *name != requested);
        // With a single engine, an answer cannot come from another engine's model.
        let models = if self.is_single() {
            None
        } else {
            self.accepted_model_names(upstream, alias)
        };
        let route = upstream.route(name, options, self.max_event_bytes);
        let efforts = self
            .model(model)
            .map(|(_, known)| known.efforts)
            .filter(|efforts| !efforts.is_empty());
        let stated = efforts.map(Fallback::Effort).into_iter().collect();
        Route {
            model_alias: alias.map(ToOwned::to_owned),
            models,
            vocabulary: self.vocabulary.clone(),
            fallbacks: route.fallbacks.union(stated),
            ..route
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
        let all = self.rings.names(self.state.lists(), || {
            self.upstreams
                .iter()
                .flat_map(|upstream| upstream.listed_names())
                .collect()
        });
        let foreign: Arc<[_]> = all
            .iter()
            .filter(|name| !own.contains(name))
            .cloned()
            .collect();
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
            .unwrap_or_else(other_model)
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
        Self {
            upstream: Arc::clone(upstream),
            trial,
        }
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
    pub fn report(&mut self, outcome: AttemptOutcome) {
        self.trial &= matches!(outcome, AttemptOutcome::Pushed { .. });
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

#[cfg(test)]
mod tests {
    use super::super::models::ListedModel;
    use super::*;
    use crate::config::Overrides;
    use crate::upstream::circuit_breaker::Availability;
    use std::collections::BTreeSet;
    use std::sync::atomic::Ordering;

    const PRESSURE: AttemptOutcome = AttemptOutcome::Pushed {
        status: 429,
        wait: Duration::from_secs(30),
    };

    fn config(text: &str) -> Config {
        Config::read(&format!("threads = 2\n{text}"), &[&Overrides::default()]).unwrap()
    }

    /// Returns the configuration of upstreams `e0`, `e1` …, each with further lines of its own.
    fn upstreams(lines: &[&str]) -> String {
        let one = |(n, more): (usize, &&str)| {
            format!("[[upstream]]\nname = \"e{n}\"\nurl = \"http://h{n}:80\"\n{more}\n")
        };
        lines.iter().enumerate().map(one).collect()
    }

    fn pool(text: &str) -> Pool {
        Pool::new(&config(text), &Metrics::default()).unwrap()
    }

    fn list(upstream: &Upstream, names: &[&str]) {
        let model = |id: &&str| ListedModel {
            id: (*id).to_owned(),
            ..ListedModel::default()
        };
        upstream.listed(&names.iter().map(model).collect::<Vec<_>>());
    }

    fn criteria(model: &str) -> SelectionCriteria<'_> {
        SelectionCriteria {
            model,
            only: None,
            affinity_hash: None,
            prompt: &[],
            visited: &[],
            compatible_with: None,
            may_use_last_resort: true,
            chance: 1,
        }
    }

    fn name(chosen: &Result<ChosenUpstream, NoUpstream>) -> &str {
        chosen.as_ref().unwrap().upstream().config.name.as_str()
    }

    /// Returns the upstream that is chosen for a model; the request is over at once.
    fn chosen(pool: &Pool, model: &str) -> Result<String, NoUpstream> {
        let chosen = pool.choose(&criteria(model));
        match &chosen {
            Ok(_) => Ok(name(&chosen).to_owned()),
            Err(none) => Err(*none),
        }
    }

    /// In a large pool, engines of other models may know the beginning of a prompt, and get no request for this one.
    #[test]
    fn only_those_that_serve_the_model_are_chosen_by_prefix() {
        let lines = "[affinity]\nby = \"prefix\"\n";
        let entries: String = (0..80)
            .map(|n| {
                format!(
                    "[[upstream]]\nname = \"e{n}\"\nurl = \"http://h{n}:80\"\nmodels = [\"m{}\"]\n",
                    n % 2
                )
            })
            .collect();
        let pool = pool(&format!("{lines}{entries}"));
        for chance in 0..50 {
            for model in ["m0", "m1"] {
                let of = SelectionCriteria {
                    prompt: &[1, 2],
                    chance,
                    ..criteria(model)
                };
                let chosen = pool.choose(&of).unwrap();
                assert_eq!(chosen.upstream().config.models, [model], "{chance}");
            }
        }
        let hits = pool
            .upstreams
            .iter()
            .map(|upstream| upstream.figures.prefix_hits.value())
            .sum::<i64>();
        assert_eq!(hits, 98, "all but the first of each model");
    }

    /// Returns the number of choices of each upstream, by its name, over many chances.
    fn shares(pool: &Pool, affinity_hash: impl Fn(u64) -> Option<u64>) -> Vec<usize> {
        let mut shares = vec![0; pool.upstreams.len()];
        for chance in 0..2_000 {
            let criteria = SelectionCriteria {
                chance,
                affinity_hash: affinity_hash(chance),
                ..criteria("m")
            };
            let chosen = pool.choose(&criteria);
            let at = pool.index_of(chosen.unwrap().upstream());
            shares[at] += 1;
        }
        shares
    }

    fn fail(upstream: &Upstream, times: usize) {
        (0..times).for_each(|_| upstream.record_outcome(AttemptOutcome::Bad, Instant::now()));
    }

    fn ejected(upstream: &Upstream) -> bool {
        matches!(
            upstream.availability(Instant::now()),
            Availability::Ejected { .. }
        )
    }

    #[test]
    fn requests_under_way_count_by_weight() {
        let pool = pool(&upstreams(&["", "weight = 3", "weight = 0"]));
        let mut all = Vec::new();
        for chance in 0..40 {
            all.push(
                pool.choose(&SelectionCriteria {
                    chance,
                    ..criteria("m")
                })
                .unwrap(),
            );
        }
        let active = |at: usize| pool.upstreams[at].figures.active.value();
        assert_eq!([active(0), active(1), active(2)], [10, 30, 0]);
        let again = Pool::same_upstream(&pool.upstreams[2]);
        assert_eq!((again.upstream().id, active(2)), (pool.upstreams[2].id, 1));
        drop((again, all));
        assert_eq!(
            [active(0), active(1), active(2)],
            [0, 0, 0],
            "what is over counts no more"
        );
    }

    #[test]
    fn requests_of_other_clients_count_as_load() {
        let pool = pool(&upstreams(&["", ""]));
        pool.upstreams[0]
            .foreign_requests
            .store(2, Ordering::Relaxed);
        let all: Vec<_> = (0..4)
            .map(|chance| {
                pool.choose(&SelectionCriteria {
                    chance,
                    ..criteria("m")
                })
                .unwrap()
            })
            .collect();
        let names: Vec<_> = all
            .iter()
            .map(|one| one.upstream().config.name.as_str())
            .collect();
        assert_eq!(names[..2], ["e1", "e1"], "one has two requests more");
        assert_eq!(pool.upstreams[0].figures.active.value(), 1, "{names:?}");
    }

    #[test]
    fn chance_decides_among_equals_by_weight() {
        let pool = pool(&upstreams(&["", "weight = 3"]));
        for affinity in [false, true] {
            let shares = shares(&pool, |chance| affinity.then_some(chance));
            assert!(
                (400..600).contains(&shares[0]),
                "a quarter: {shares:?}, affinity {affinity}"
            );
        }
    }

    /// Requests of one conversation stay together until their upstream has a quarter more than its share.
    #[test]
    fn a_conversation_stays_while_its_upstream_has_room() {
        let pool = pool(&upstreams(&["", ""]));
        let of = |hash| SelectionCriteria {
            affinity_hash: Some(hash),
            ..criteria("m")
        };
        let first = name(&pool.choose(&of(7))).to_owned();
        assert!(
            (0..50)
                .all(|chance| name(&pool.choose(&SelectionCriteria { chance, ..of(7) })) == first)
        );
        let other = (0..1_000)
            .find(|hash| name(&pool.choose(&of(*hash))) != first)
            .unwrap();
        // ⌈1.25 × requests / 2⌉ is the most for one of two.
        let mut all = Vec::new();
        let mut went = |hash| {
            let chosen = pool.choose(&of(hash));
            let stays = name(&chosen) == first;
            all.push(chosen);
            stays
        };
        let mut course: Vec<bool> = (0..3).map(|_| went(7)).collect();
        course.extend([went(other), went(other), went(7), went(7)]);
        assert_eq!(
            course,
            [true, true, false, false, false, true, true],
            "of 1, 2, 3 … requests"
        );
    }

    /// The share is that of the weight: three quarters here, and ⌈1.25 × 16 × 3 / 4⌉ = 15 of 16 requests.
    #[test]
    fn a_conversation_stays_longer_with_an_upstream_of_more_weight() {
        let pool = pool(&upstreams(&["", "weight = 3"]));
        let of = |hash| SelectionCriteria {
            affinity_hash: Some(hash),
            ..criteria("m")
        };
        let hash = (0..1_000)
            .find(|hash| name(&pool.choose(&of(*hash))) == "e1")
            .unwrap();
        let all: Vec<_> = (0..16).map(|_| pool.choose(&of(hash))).collect();
        assert_eq!(all.iter().position(|chosen| name(chosen) != "e1"), Some(15));
    }

    /// A request is read in the form of an upstream that is well and takes requests, while there is one.
    #[test]
    fn a_request_is_read_for_an_upstream_that_is_well() {
        let pool = pool(&upstreams(&["", "weight = 0", ""]));
        let read_for = || {
            let names: BTreeSet<_> = (0..6)
                .map(|chance| pool.upstream_to_read_for("m", chance).0.config.name.clone())
                .collect();
            names.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(read_for(), ["e0", "e2"]);
        pool.upstreams[0].record_outcome(PRESSURE, Instant::now());
        assert_eq!(read_for(), ["e2"]);
        pool.upstreams[2].record_outcome(PRESSURE, Instant::now());
        assert_eq!(read_for(), ["e0", "e1", "e2"], "none is well");
    }

    #[test]
    fn who_was_tried_or_is_down_is_not_chosen() {
        let pool = pool(&upstreams(&["", ""]));
        let [a, b] = [pool.upstreams[0].id, pool.upstreams[1].id];
        let without = |visited: &[UpstreamId]| {
            pool.choose(&SelectionCriteria {
                visited,
                ..criteria("m")
            })
        };
        assert_eq!(name(&without(&[a])), "e1");
        assert_eq!(without(&[a, b]).unwrap_err(), NoUpstream::Exhausted);
        pool.upstreams[1].set_standing(Standing::Down);
        assert_eq!(without(&[a]).unwrap_err(), NoUpstream::NoneAvailable);
        assert_eq!(chosen(&pool, "m").unwrap(), "e0");
        pool.upstreams[0].set_standing(Standing::Down);
        assert_eq!(chosen(&pool, "m"), Err(NoUpstream::NoneAvailable));
    }

    /// An upstream whose probes are late gets what no other one can take, unless another model may still answer.
    #[test]
    fn late_probes_make_a_last_resort() {
        for several in [&["", ""][..], &[""]] {
            let pool = pool(&upstreams(several));
            pool.upstreams[0].set_standing(Standing::Late);
            if let Some(other) = pool.upstreams.get(1) {
                assert!((0..50).all(|_| chosen(&pool, "m").unwrap() == "e1"));
                other.set_standing(Standing::Down);
                let elsewhere = SelectionCriteria {
                    may_use_last_resort: false,
                    ..criteria("m")
                };
                assert_eq!(
                    pool.choose(&elsewhere).unwrap_err(),
                    NoUpstream::NoneAvailable
                );
            }
            assert_eq!(chosen(&pool, "m").unwrap(), "e0");
            assert_eq!(pool.upstream_to_read_for("m", 0).0.config.name, "e0");
        }
    }

    #[test]
    fn a_single_upstream_is_chosen_unless_it_is_down_or_was_tried() {
        let pool = pool(&upstreams(&[""]));
        list(&pool.upstreams[0], &["other"]);
        fail(&pool.upstreams[0], 10);
        assert_eq!(
            chosen(&pool, "m").unwrap(),
            "e0",
            "it is not ejected, and refuses what it does not know"
        );
        let visited = [pool.upstreams[0].id];
        let again = pool.choose(&SelectionCriteria {
            visited: &visited,
            ..criteria("m")
        });
        assert_eq!(again.unwrap_err(), NoUpstream::Exhausted);
        pool.upstreams[0].set_standing(Standing::Down);
        assert_eq!(chosen(&pool, "m"), Err(NoUpstream::NoneAvailable));
        assert!(pool.is_single() && !pool.needs_model());
        assert!(pool_with_model("").needs_model());
        assert_eq!(pool.upstream_to_read_for("m", 5).0.id, visited[0]);
        assert!(pool.upstream_to_read_for("m", 5).1);
    }

    fn pool_with_model(lines: &str) -> Pool {
        pool(&format!(
            "[[model]]\nname = \"m\"\naliases = [\"alias\"]\n{lines}\n{}",
            upstreams(&[""])
        ))
    }

    /// Upstreams that list a model come before those whose models are not known, and these before those that list
    /// other models.
    #[test]
    fn models_go_where_they_are_known() {
        let pool = pool(&upstreams(&["", "", ""]));
        let read_for = |model: &str| {
            let (upstream, is_served) = pool.upstream_to_read_for(model, 1);
            (upstream.config.name.clone(), is_served)
        };
        list(&pool.upstreams[1], &["m"]);
        list(&pool.upstreams[2], &["n"]);
        assert_eq!(
            (chosen(&pool, "m").unwrap(), read_for("m")),
            ("e1".into(), ("e1".into(), true))
        );
        assert_eq!(
            (chosen(&pool, "n").unwrap(), read_for("n")),
            ("e2".into(), ("e2".into(), true))
        );
        assert_eq!(
            (chosen(&pool, "o").unwrap(), read_for("o")),
            ("e0".into(), ("e0".into(), true))
        );
        list(&pool.upstreams[0], &["m"]);
        assert_eq!(chosen(&pool, "o"), Err(NoUpstream::Unknown));
        assert_eq!(read_for("o"), ("e0".into(), false));
        assert_eq!(
            [pool.label("n"), pool.label("o")].map(|name| name.to_string()),
            ["n", "other"]
        );
        assert_eq!(
            pool.main_models()
                .unwrap()
                .iter()
                .map(|name| &**name)
                .collect::<Vec<_>>(),
            ["m", "n"]
        );
        // One that serves it and is up is read for; if none is up, one that serves it.
        for chance in 0..4 {
            pool.upstreams[0].set_standing(Standing::Down);
            assert_eq!(pool.upstream_to_read_for("m", chance).0.config.name, "e1");
            pool.upstreams[1].set_standing(Standing::Down);
            assert_eq!(pool.upstream_to_read_for("m", chance).0.config.name, "e0");
            (0..2).for_each(|at| pool.upstreams[at].set_standing(Standing::Up));
        }
    }

    /// A reload may add an engine and give the old one no more requests: the new one gets them before its models are known.
    #[test]
    fn models_of_an_upstream_without_weight_go_to_one_that_may_have_them() {
        let pool = pool(&upstreams(&["weight = 0", ""]));
        list(&pool.upstreams[0], &["m"]);
        assert_eq!(chosen(&pool, "m").unwrap(), "e1");
        list(&pool.upstreams[1], &["n"]);
        assert_eq!(chosen(&pool, "m"), Err(NoUpstream::NoneAvailable));
        list(&pool.upstreams[1], &["m"]);
        assert_eq!(chosen(&pool, "m").unwrap(), "e1");
    }

    #[test]
    fn replicas_may_know_names_that_they_do_not_list() {
        let pool = pool(&upstreams(&["", ""]));
        let serves = |model: &str| pool.serving(model).len();
        assert_eq!(pool.main_models(), None, "no list has been read");
        list(&pool.upstreams[0], &["a", "b"]);
        assert_eq!(
            (serves("c"), pool.main_models()),
            (1, None),
            "the list of one is not known"
        );
        list(&pool.upstreams[1], &["b", "a"]);
        assert_eq!((serves("a"), serves("c")), (2, 2));
        list(&pool.upstreams[1], &["a"]);
        assert_eq!((serves("a"), serves("b"), serves("c")), (2, 1, 0));
        assert!(pool.main_models().is_some());
        // An upstream that is down need not have been read.
        let pool = self::pool(&upstreams(&["", ""]));
        list(&pool.upstreams[0], &["a"]);
        pool.upstreams[1].set_standing(Standing::Down);
        assert_eq!(pool.main_models().map(|names| names.len()), Some(1));
    }

    #[test]
    fn configured_models_have_names_upstreams_and_lengths() {
        let text = format!(
            "[[model]]\nname = \"m\"\naliases = [\"alias\"]\nupstreams = [\"e1\"]\ncontext_length = 9\n\
             [[model]]\nname = \"n\"\naliases = [\"o\"]\n{}",
            upstreams(&["", ""])
        );
        let pool = pool(&text);
        assert_eq!(
            (chosen(&pool, "m").unwrap(), chosen(&pool, "alias").unwrap()),
            ("e1".into(), "e1".into())
        );
        assert_eq!(
            [
                pool.engine_name("alias"),
                pool.engine_name("o"),
                pool.engine_name("x")
            ],
            ["m", "n", "x"]
        );
        assert_eq!(
            ["alias", "o", "x"].map(|name| pool.label(name).to_string()),
            ["m", "n", "other"]
        );
        assert_eq!(
            (
                pool.models().len(),
                pool.serving("m").len(),
                pool.serving("n").len()
            ),
            (2, 1, 2)
        );
        let read = models_with_lengths(&[("n", 5), ("x", 6)]);
        pool.upstreams
            .iter()
            .for_each(|upstream| upstream.listed(&read));
        let length = |model: &str| pool.context_length(&pool.upstreams[0], model);
        assert_eq!(
            ["alias", "o", "x", "y"].map(length),
            [Some(9), Some(5), Some(6), None]
        );
        // Upstreams with the same list may know further names, but a configured model is one of the lists.
        let text = format!("[[model]]\nname = \"z\"\n{}", upstreams(&["", ""]));
        let pool = self::pool(&text);
        pool.upstreams
            .iter()
            .for_each(|upstream| list(upstream, &["a"]));
        assert_eq!(
            (chosen(&pool, "z"), chosen(&pool, "y").is_ok()),
            (Err(NoUpstream::Unknown), true)
        );
    }

    fn models_with_lengths(all: &[(&str, u64)]) -> Vec<ListedModel> {
        let model = |(id, length): &(&str, u64)| ListedModel {
            id: (*id).to_owned(),
            context_length: Some(*length),
            ..ListedModel::default()
        };
        all.iter().map(model).collect()
    }

    /// An answer may not carry the name of a model that only another upstream lists.
    #[test]
    fn answers_may_not_name_the_models_of_others() {
        let of = |pool: &Pool, model: &str| {
            let upstream = &pool.upstreams[0];
            let route = pool.route(upstream, model, model, pool.options(upstream, model, None));
            let names = match route.models {
                None => None,
                Some(Models::OneOf(names)) => Some((true, names)),
                Some(Models::NoneOf(names)) => Some((false, names)),
            };
            (
                route.model_alias,
                names.map(|(any, names)| {
                    (
                        any,
                        names
                            .iter()
                            .map(|name| name.to_string())
                            .collect::<Vec<_>>(),
                    )
                }),
            )
        };
        assert_eq!(
            of(&pool_with_model(""), "alias"),
            (Some("m".to_owned()), None),
            "a single engine"
        );
        let pool = pool(&upstreams(&["", "", "models = [\"d\"]\nengine = \"vllm\""]));
        assert_eq!(of(&pool, "a"), (None, None));
        list(&pool.upstreams[1], &["a", "b"]);
        assert_eq!(of(&pool, "a"), (None, None), "its own list is not known");
        list(&pool.upstreams[0], &["a"]);
        list(&pool.upstreams[2], &["c"]);
        assert_eq!(
            of(&pool, "a"),
            (None, Some((false, vec!["b".to_owned(), "c".to_owned()])))
        );
        list(&pool.upstreams[1], &["a"]);
        list(&pool.upstreams[2], &["a"]);
        assert_eq!(of(&pool, "a"), (None, None), "nobody lists another one");
        // An engine that keeps to its list and is configured for certain models names no other one.
        let last = &pool.upstreams[2];
        let route = pool.route(last, "d", "d", pool.options(last, "d", None));
        let Some(Models::OneOf(names)) = route.models else {
            panic!("{:?}", route.models)
        };
        assert_eq!(
            names.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["d", "a"]
        );
    }

    /// Configured models alone, or an engine that keeps to its list alone, do not rule out names that nobody lists.
    #[test]
    fn answers_may_have_unlisted_names_unless_models_and_engine_rule_them_out() {
        for lines in ["models = [\"a\"]", "engine = \"vllm\""] {
            let pool = pool(&upstreams(&[lines, ""]));
            list(&pool.upstreams[0], &["a"]);
            list(&pool.upstreams[1], &["b"]);
            let upstream = &pool.upstreams[0];
            let route = pool.route(upstream, "a", "a", pool.options(upstream, "a", None));
            let Some(Models::NoneOf(names)) = route.models else {
                panic!("{lines}: {:?}", route.models)
            };
            assert_eq!(
                names.iter().map(|name| &**name).collect::<Vec<_>>(),
                ["b"],
                "{lines}"
            );
        }
    }

    #[test]
    fn failures_eject_half_of_the_upstreams_at_most() {
        let pool = pool(&upstreams(&["", "", "", ""]));
        pool.upstreams.iter().for_each(|upstream| fail(upstream, 5));
        let states: Vec<_> = pool
            .upstreams
            .iter()
            .map(|upstream| ejected(upstream))
            .collect();
        assert_eq!(states, [true, true, false, false]);
        let open = |at: usize| pool.upstreams[at].figures.circuit_open.value();
        assert_eq!([open(0), open(1), open(2)], [1, 1, 0]);
        assert!((0..50).all(|_| ["e2", "e3"].contains(&chosen(&pool, "m").unwrap().as_str())));
        // A place becomes free if an ejected upstream goes, and one that has gone takes none.
        pool.upstreams[0].retire();
        assert_eq!(open(0), 0);
        fail(&pool.upstreams[0], 5);
        assert!(!ejected(&pool.upstreams[0]));
        fail(&pool.upstreams[2], 1);
        fail(&pool.upstreams[3], 1);
        assert_eq!(
            (ejected(&pool.upstreams[2]), ejected(&pool.upstreams[3])),
            (true, false)
        );
        assert_eq!(pool.state.ejected(), 2);
        // One that recovers frees its place, too.
        pool.upstreams[1].ramp();
        assert_eq!((pool.state.ejected(), open(1)), (1, 0));
        // So does one that is dropped.
        let state = Arc::clone(&pool.state);
        drop(pool);
        assert_eq!(state.ejected(), 0);
    }

    #[test]
    fn an_ejected_upstream_is_the_last_resort_but_not_against_a_request_for_a_pause() {
        let pool = pool(&upstreams(&["", "", "", ""]));
        fail(&pool.upstreams[0], 5);
        fail(&pool.upstreams[1], 5);
        let visited = [pool.upstreams[2].id, pool.upstreams[3].id];
        let left = |at: usize| match pool.upstreams[at].availability(Instant::now()) {
            Availability::Ejected { left } => left,
            other => panic!("{other:?}"),
        };
        let soonest = if left(0) < left(1) { "e0" } else { "e1" };
        assert_eq!(
            name(&pool.choose(&SelectionCriteria {
                visited: &visited,
                ..criteria("m")
            })),
            soonest
        );
        pool.upstreams[2].record_outcome(PRESSURE, Instant::now());
        let sooner = AttemptOutcome::Pushed {
            status: 503,
            wait: Duration::from_secs(20),
        };
        pool.upstreams[3].record_outcome(sooner, Instant::now());
        let Err(NoUpstream::Overloaded { status: 503, wait }) = chosen(&pool, "m") else {
            panic!("overloaded")
        };
        assert!(
            wait > Duration::from_secs(10) && wait <= Duration::from_secs(20),
            "{wait:?}"
        );
    }

    /// The first request after an ejection tests the upstream; a request that shows nothing leaves the test to
    /// another one.
    #[test]
    fn one_request_tests_an_upstream_after_its_ejection() {
        let pool = pool(&upstreams(&["", ""]));
        let before = Instant::now();
        fail(&pool.upstreams[0], 5);
        let over = before + Duration::from_secs(25);
        let is = |availability| pool.upstreams[0].availability(over) == availability;
        assert!(is(Availability::Trial));
        for (outcome, is_back) in [
            (None, false),
            (Some(AttemptOutcome::Refused), true),
            (Some(PRESSURE), false),
        ] {
            let mut trial = ChosenUpstream::new(&pool.upstreams[0], true);
            assert!(
                is_back
                    || matches!(
                        pool.upstreams[0].availability(over),
                        Availability::Ejected { .. }
                    )
            );
            if let Some(outcome) = outcome {
                trial.report(outcome);
            }
            drop(trial);
            match outcome {
                None => assert!(is(Availability::Trial), "it showed nothing"),
                Some(AttemptOutcome::Refused) => {
                    assert!(matches!(
                        pool.upstreams[0].availability(before),
                        Availability::Good(_)
                    ));
                    fail(&pool.upstreams[0], 5);
                }
                Some(_) => {
                    assert!(matches!(
                        pool.upstreams[0].availability(over),
                        Availability::Pushed { .. }
                    ))
                }
            }
        }
    }

    #[test]
    fn who_does_not_match_its_configuration_is_asked_last() {
        let pool = pool(&upstreams(&["", ""]));
        pool.upstreams[0].mark_mismatch("its key was refused");
        assert!((0..50).all(|_| chosen(&pool, "m").unwrap() == "e1"));
        let visited = [pool.upstreams[1].id];
        assert_eq!(
            name(&pool.choose(&SelectionCriteria {
                visited: &visited,
                ..criteria("m")
            })),
            "e0"
        );
        // A list that differs from the last one ends that.
        list(&pool.upstreams[0], &["m"]);
        assert!(!pool.upstreams[0].is_mismatched());
        pool.upstreams[0].mark_mismatch("its key was refused");
        list(&pool.upstreams[0], &["m"]);
        assert!(pool.upstreams[0].is_mismatched(), "the list is the same");
    }

    #[test]
    fn only_an_upstream_for_which_the_request_was_read_alike_takes_it_over() {
        let pool = pool(&upstreams(&[
            "",
            "responses = \"native\"",
            "wire = { request_unknown = \"drop\" }",
            "wire = { unsupported_tools = \"reject\" }",
            "",
        ]));
        let visited = [pool.upstreams[0].id];
        let read_for = ReadFor {
            upstream: Arc::clone(&pool.upstreams[0]),
            model: "m".into(),
        };
        let like = SelectionCriteria {
            visited: &visited,
            compatible_with: Some(&read_for),
            ..criteria("m")
        };
        assert!(
            (0..50).all(|chance| name(&pool.choose(&SelectionCriteria { chance, ..like })) == "e4")
        );
    }

    /// An upstream that joins gets a tenth of its share at first, but all requests if no other one is good.
    #[test]
    fn a_new_upstream_starts_with_a_small_share() {
        let metrics = Metrics::default();
        let before = Pool::new(&config(&upstreams(&[""])), &metrics).unwrap();
        let after = before
            .renewed(&config(&upstreams(&["", ""])), &metrics)
            .unwrap();
        assert_eq!(after.upstreams[0].id, before.upstreams[0].id, "it stays");
        let shares = shares(&after, |_| None);
        assert!(
            (50..200).contains(&shares[1]),
            "half of a tenth: {shares:?}"
        );
        let visited = [after.upstreams[0].id];
        assert_eq!(
            name(&after.choose(&SelectionCriteria {
                visited: &visited,
                ..criteria("m")
            })),
            "e1"
        );
        assert_eq!(before.missing_from(&after).count(), 0);
        let gone: Vec<_> = after
            .missing_from(&before)
            .map(|upstream| upstream.id)
            .collect();
        assert_eq!(gone, [after.upstreams[1].id]);
    }

    /// A changed upstream takes over what is known of the same address, and no other does.
    #[test]
    fn a_reload_hands_on_what_is_known_of_an_address() {
        let metrics = Metrics::default();
        let before = Pool::new(&config(&upstreams(&["", ""])), &metrics).unwrap();
        list(&before.upstreams[0], &["m"]);
        fail(&before.upstreams[0], 5);
        before.upstreams[0].set_standing(Standing::Down);
        before.upstreams[0].set_trouble(Some("why"));
        before.upstreams[0].figures.up.set(1);
        before.upstreams[0].record_piece(Instant::now() + Duration::from_secs(1));
        let after = before
            .renewed(&config(&upstreams(&["weight = 2", ""])), &metrics)
            .unwrap();
        let [new, old] = [&after.upstreams[0], &before.upstreams[0]];
        assert_ne!(new.id, old.id);
        assert_eq!(
            (new.serves("m"), new.is_down(), new.trouble()),
            (Some(true), true, Some("why"))
        );
        assert!(new.was_heard());
        assert_eq!((ejected(new), ejected(old)), (true, false));
        old.retire();
        assert_eq!(after.state.ejected(), 1, "the place has moved with it");
        assert_eq!(after.upstreams[1].id, before.upstreams[1].id);
        // Its metrics say the same under another name.
        let text = "[[upstream]]\nname = \"renamed\"\nurl = \"http://h0:80\"\n";
        let renamed = after.renewed(&config(text), &metrics).unwrap();
        let figures = |upstream: &Upstream| {
            (
                upstream.figures.circuit_open.value(),
                upstream.figures.up.value(),
            )
        };
        assert_eq!(figures(&renamed.upstreams[0]), (1, 1));
        for other in [
            "url = \"http://other:80\"",
            "url = \"http://h0:81\"",
            "url = \"http://h0:80/prefix\"",
        ] {
            let text = format!("[[upstream]]\nname = \"x\"\n{other}\n");
            let moved = before.renewed(&config(&text), &metrics).unwrap();
            assert_eq!(moved.upstreams[0].serves("m"), None, "{other}");
            assert_eq!(
                moved.upstreams[0].availability(Instant::now()),
                Availability::Good(0.1),
                "{other}"
            );
        }
    }

    /// An upstream needs new clients if the timeouts of its connections change; other timeouts do not matter.
    #[test]
    fn timeouts_of_connections_make_a_new_upstream() {
        let metrics = Metrics::default();
        let before = Pool::new(&config(&upstreams(&[""])), &metrics).unwrap();
        for (line, is_same) in [
            ("", true),
            ("first_token = 77", true),
            ("dns = 3.5", false),
            ("connect = 3.5", false),
            ("handshake = 3.5", false),
            ("pool_idle = 3.5", false),
        ] {
            let text = format!("[timeouts]\n{line}\n{}", upstreams(&[""]));
            let after = before.renewed(&config(&text), &metrics).unwrap();
            assert_eq!(
                after.upstreams[0].id == before.upstreams[0].id,
                is_same,
                "{line}"
            );
        }
    }

    #[test]
    fn retries_have_a_budget_only_where_there_is_another_upstream() {
        let (one, two) = (pool(&upstreams(&[""])), pool(&upstreams(&["", ""])));
        let retries = |pool: &Pool| (0..1_000).take_while(|_| pool.try_take_retry()).count();
        let usual = retries(&pool(&upstreams(&["", ""])));
        (0..500).for_each(|_| [&one, &two].iter().for_each(|pool| pool.count_request()));
        assert_eq!(
            (retries(&one), retries(&two)),
            (usual, usual + 100),
            "a fifth of the requests"
        );
    }
}
