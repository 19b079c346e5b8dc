//! Which upstream is asked: one that serves the model, is well, has not been asked for this request, and has the fewest
//! requests under way for its weight (faults 8).
//!
//! Takes: a [`Wish`]. Gives: a [`Chosen`], which counts as a request of that upstream until it is dropped. Never: waits.

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

/// How much more than its part of all requests an upstream may have before a conversation goes elsewhere.
const OVER: f64 = 1.25;

/// All upstreams.
#[derive(Debug)]
pub struct Pool {
    upstreams: Vec<Arc<Upstream>>,
    first: Arc<Upstream>,
    models: Vec<ModelConfig>,
    layers: Layers,
    vocabulary: Option<Arc<Vocabulary>>,
    /// What keeps requests together.
    pub affinity: Affinity,
    /// How often another one is asked.
    pub retry: Retry,
    /// Bytes of one event.
    max_event_bytes: usize,
    ejected: Arc<Ejected>,
    budget: Arc<RetryBudget>,
}

/// What a request needs of an upstream.
#[derive(Clone, Copy, Debug)]
pub struct SelectionCriteria<'w> {
    /// The model, by the client's name for it.
    pub model: &'w str,
    /// What it has in common with requests that went before.
    pub together: Option<u64>,
    /// Upstreams that are not asked again.
    pub visited: &'w [u64],
    /// It has been read for this way; another would have to be asked otherwise.
    pub like: Option<&'w Upstream>,
    /// Decides between equals.
    pub chance: u64,
}

/// Why no upstream is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoUpstream {
    /// None of them has the model.
    Unknown,
    /// All that could be asked were.
    Left,
    /// None that has it is well.
    Unwell,
    /// All of them have too much to do.
    Pushed {
        /// What they say: 429 or 503.
        status: u16,
        /// Until the first of them may be asked again.
        wait: Duration,
    },
}

impl Pool {
    /// Those of a configuration, each with connections for so many threads; nothing if it names none.
    pub fn new(config: &Config, metrics: &Metrics) -> Option<Self> {
        let (ejected, budget) = (Arc::<Ejected>::default(), Arc::default());
        Self::with(config, ejected, budget, |upstream, ejected| {
            let figures = metrics.upstream(&upstream.name);
            Arc::new(Upstream::new(upstream.clone(), config, figures, Arc::clone(ejected)))
        })
    }

    /// The same for another configuration. What is not changed in it goes on as it is; what is new gets its part of the
    /// traffic little by little.
    pub fn renewed(&self, config: &Config, metrics: &Metrics) -> Option<Self> {
        Self::with(config, Arc::clone(&self.ejected), Arc::clone(&self.budget), |upstream, ejected| {
            if let Some(same) = self.upstreams.iter().find(|known| known.is_as(upstream, config)) {
                return Arc::clone(same);
            }
            // What is known of one that stays remains its own.
            let stays = |known: &Upstream| config.upstreams.iter().any(|other| known.is_as(other, config));
            let mut before = self.upstreams.iter().filter(|known| !stays(known));
            let figures = metrics.upstream(&upstream.name);
            let mut new = Upstream::new(upstream.clone(), config, figures, Arc::clone(ejected));
            match before.find(|known| known.is_where(upstream)) {
                Some(known) => new.inherit(known),
                None => new.ramp(),
            }
            Arc::new(new)
        })
    }

    /// Those of them that another pool does not have: they are asked nothing new.
    pub fn left_by<'p>(&'p self, next: &Self) -> impl Iterator<Item = &'p Arc<Upstream>> {
        self.upstreams.iter().filter(|upstream| !next.has(upstream))
    }

    /// Whether it is one of these.
    fn has(&self, upstream: &Upstream) -> bool {
        self.upstreams.iter().any(|known| known.id == upstream.id)
    }

    fn with(
        config: &Config,
        ejected: Arc<Ejected>,
        budget: Arc<RetryBudget>,
        upstream: impl Fn(&UpstreamConfig, &Arc<Ejected>) -> Arc<Upstream>,
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

    /// One more request comes in.
    pub fn count(&self) {
        if !self.is_single() {
            self.budget.request(Instant::now());
        }
    }

    /// Whether one more may be sent again; if so, it counts.
    pub fn may_send_again(&self) -> bool {
        self.budget.take(Instant::now(), &self.retry)
    }

    /// All of them.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// There is only one: nothing can be tried elsewhere.
    pub fn is_single(&self) -> bool {
        self.upstreams.len() == 1
    }

    /// It matters to a request's way which model it names.
    pub fn goes_by_model(&self) -> bool {
        !self.is_single() || !self.models.is_empty()
    }

    /// Models of which something is configured.
    pub fn models(&self) -> &[ModelConfig] {
        &self.models
    }

    /// Returns the names a request without a model can mean, each once (wire-format 2.10). `None`: an upstream that is
    /// there has not told yet what it serves.
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

    /// What is configured of a model of this name.
    pub fn model(&self, name: &str) -> Option<(usize, &ModelConfig)> {
        self.models.iter().enumerate().find(|(_, model)| model.is_called(name))
    }

    /// Where one of them stands in the configuration.
    fn place(&self, upstream: &Upstream) -> usize {
        self.upstreams.iter().position(|known| known.id == upstream.id).unwrap_or_default()
    }

    /// The options for an answer of this upstream; `key`: the place of the caller's.
    pub fn options(&self, upstream: &Upstream, model: &str, key: Option<usize>) -> Arc<Options> {
        self.layers.options(self.place(upstream), self.model(model).map(|(place, _)| place), key)
    }

    /// The options for what is told without an upstream: those of the first.
    pub fn usual_options(&self, key: Option<usize>) -> Arc<Options> {
        self.layers.options(0, None, key)
    }

    /// The name by which engines know a model.
    pub fn engine_name<'m>(&'m self, model: &'m str) -> &'m str {
        self.model(model).map_or(model, |(_, known)| &known.name)
    }

    /// How requests for a model to this upstream are planned.
    pub fn route(&self, upstream: &Upstream, model: &str, options: Arc<Options>) -> Route {
        let name = self.engine_name(model);
        let alias = Some(name).filter(|name| *name != model);
        // With one engine there is nothing to mistake it for.
        let models = if self.is_single() { None } else { self.answers_as(upstream, alias) };
        Route {
            model_alias: alias.map(ToOwned::to_owned),
            models,
            vocabulary: self.vocabulary.clone(),
            ..upstream.route(name, options, self.max_event_bytes)
        }
    }

    /// What the model of an upstream's answers may be called: one of those that the configuration has for it, where the
    /// engine keeps to its list; else none of those that others list and it does not.
    fn answers_as(&self, upstream: &Upstream, alias: Option<&str>) -> Option<Models> {
        if !upstream.config.models.is_empty() && upstream.identity().engine.names_models {
            let known =
                upstream.names().into_iter().flatten().chain(upstream.lists()).chain(alias.map(Into::into));
            return Some(Models::OneOf(known.collect()));
        }
        let own = upstream.lists();
        let others = self.upstreams.iter().filter(|other| other.id != upstream.id);
        let foreign: Arc<[_]> =
            others.flat_map(|other| other.lists()).filter(|name| !own.contains(name)).collect();
        (!own.is_empty() && !foreign.is_empty()).then_some(Models::NoneOf(foreign))
    }

    /// The name of a model as a label: only names that configuration or engines know.
    pub fn label(&self, model: &str) -> Arc<str> {
        if let Some((_, known)) = self.model(model) {
            return known.name.as_str().into();
        }
        self.upstreams.iter().find_map(|upstream| upstream.known(model)).unwrap_or_else(|| "other".into())
    }

    /// Chooses.
    ///
    /// # Errors
    /// There is none.
    pub fn choose(&self, criteria: &SelectionCriteria<'_>) -> Result<ChosenUpstream, NoUpstream> {
        if let [only] = self.upstreams.as_slice() {
            return Self::take_only(only, criteria);
        }
        let now = Instant::now();
        let serving = self.serving(criteria.model);
        if serving.is_empty() {
            return Err(NoUpstream::Unknown);
        }
        let is_left = |upstream: &&&Arc<Upstream>| {
            upstream.config.weight > 0
                && !criteria.visited.contains(&upstream.id)
                && criteria.like.is_none_or(|like| self.asks_alike(like, upstream, criteria.model))
        };
        let left: Vec<_> = serving.iter().filter(is_left).copied().collect();
        if left.is_empty() {
            return Err(if criteria.visited.is_empty() { NoUpstream::Unwell } else { NoUpstream::Left });
        }
        let up: Vec<_> = left.into_iter().filter(|upstream| !upstream.is_down()).collect();
        if up.is_empty() {
            return Err(NoUpstream::Unwell);
        }
        // One that was told to be wrong is asked if no other is there.
        let right: Vec<_> = up.iter().filter(|upstream| !upstream.is_misplaced()).copied().collect();
        self.among(if right.is_empty() { &up } else { &right }, criteria, now)
    }

    /// One that a request for this model may be read for, and whether there is one at all.
    pub fn look(&self, model: &str, chance: u64) -> (Arc<Upstream>, bool) {
        // The only one says itself what it does not have.
        if self.is_single() {
            return (Arc::clone(&self.first), true);
        }
        let serving = self.serving(model);
        let up: Vec<_> = serving.iter().filter(|upstream| !upstream.is_down()).collect();
        let at = |all: usize| usize::try_from(chance).unwrap_or(0) % all.max(1);
        let found = up.get(at(up.len())).map(|upstream| **upstream).or_else(|| serving.first().copied());
        (Arc::clone(found.unwrap_or(&self.first)), found.is_some())
    }

    /// The same again, for a request that goes on where it was.
    pub fn again(upstream: &Arc<Upstream>) -> ChosenUpstream {
        ChosenUpstream::new(upstream, false)
    }

    fn take_only(
        only: &Arc<Upstream>,
        criteria: &SelectionCriteria<'_>,
    ) -> Result<ChosenUpstream, NoUpstream> {
        match (criteria.visited.is_empty(), only.is_down()) {
            (false, _) => Err(NoUpstream::Left),
            (true, true) => Err(NoUpstream::Unwell),
            (true, false) => Ok(ChosenUpstream::new(only, false)),
        }
    }

    /// Those that serve a model: as configured, else as they list, else those that have not said what they serve.
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
        // Engines that are all the same may know more names than they list.
        let same = || all().skip(1).zip(all()).all(|(one, other)| one.lists_the_same_as(other));
        match silent.is_empty() && known.is_none() && same() {
            true => all().collect(),
            false => silent,
        }
    }

    /// Whether what was read for one can be asked of the other.
    fn asks_alike(&self, one: &Upstream, other: &Upstream, model: &str) -> bool {
        let of = |upstream| self.options(upstream, model, None);
        let (a, b) = (of(one), of(other));
        one.config.responses == other.config.responses
            && a.unsupported_tools == b.unsupported_tools
            && a.request_unknown == b.request_unknown
    }

    fn among(
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
        // Who has just come back is there for a part of the requests, or if nobody else is.
        let good = Some(good(true)).filter(|some| !some.is_empty()).unwrap_or_else(|| good(false));
        if let Some(upstream) = preferred(&good, criteria).or_else(|| least_busy(&good, criteria.chance)) {
            return Ok(ChosenUpstream::new(upstream, false));
        }
        let pushed = standings.iter().filter_map(|(_, availability)| match availability {
            Availability::Pushed { status, left } => Some((*left, *status)),
            _ => None,
        });
        // Whoever asks to be left alone is left alone, and of those that failed the first to be back is tried: nothing
        // but their answers speaks against them.
        if let Some((wait, status)) = pushed.min() {
            return Err(NoUpstream::Pushed { status, wait });
        }
        let ejected = standings.iter().filter_map(|(upstream, availability)| match availability {
            Availability::Ejected { left } => Some((*left, *upstream)),
            _ => None,
        });
        let least_bad = ejected.min_by_key(|(left, _)| *left).ok_or(NoUpstream::Unwell)?;
        Ok(ChosenUpstream::new(least_bad.1, false))
    }
}

/// A number from 0 to 1, always the same for the same request or conversation and upstream.
fn draw(seed: u64, upstream: &Upstream) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, &upstream.config.name).hash(&mut hasher);
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let number = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
    number
}

/// The same, so that the greatest of several is drawn as often as its weight says.
fn weighted(seed: u64, upstream: &Upstream) -> f64 {
    draw(seed, upstream).max(f64::MIN_POSITIVE).ln() / f64::from(upstream.config.weight)
}

/// Where the conversation has been, unless that one has much more to do than the others (rendezvous hashing with bounded
/// loads).
fn preferred<'u>(good: &[&'u Arc<Upstream>], criteria: &SelectionCriteria<'_>) -> Option<&'u Arc<Upstream>> {
    let together = criteria.together?;
    let drawn = good.iter().max_by(|a, b| weighted(together, a).total_cmp(&weighted(together, b)))?;
    let weight = |upstream: &Upstream| f64::from(upstream.config.weight);
    let requests = good.iter().map(|upstream| upstream.load()).sum::<f64>() + 1.0;
    let weights = good.iter().map(|upstream| weight(upstream)).sum::<f64>();
    let most = (OVER * requests * weight(drawn) / weights).ceil();
    (drawn.load() + 1.0 <= most).then_some(drawn)
}

/// The one with the fewest requests for its weight; among equals chance decides.
fn least_busy<'u>(good: &[&'u Arc<Upstream>], chance: u64) -> Option<&'u Arc<Upstream>> {
    // Each is looked at once: other threads change it meanwhile, and one of them must be the least.
    let load = |upstream: &Upstream| upstream.load() / f64::from(upstream.config.weight);
    let loads: Vec<_> = good.iter().map(|upstream| (load(upstream), *upstream)).collect();
    let least = loads.iter().map(|(load, _)| *load).min_by(f64::total_cmp)?;
    let equals = loads.into_iter().filter(|(load, _)| *load <= least).map(|(_, upstream)| upstream);
    equals.max_by(|a, b| weighted(chance, a).total_cmp(&weighted(chance, b)))
}

/// How many of a pool are ejected, so that most of them never are.
#[derive(Debug, Default)]
pub(super) struct Ejected {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Ejected {
    pub(super) fn one_more(&self) -> bool {
        let may = |now| (now < self.most.load(Ordering::Relaxed)).then_some(now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may).is_ok()
    }

    pub(super) fn one_less(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An upstream with a request; counted until dropped.
#[derive(Debug)]
pub struct ChosenUpstream {
    upstream: Arc<Upstream>,
    /// The request finds out whether it is back.
    trial: bool,
}

impl ChosenUpstream {
    fn new(upstream: &Arc<Upstream>, trial: bool) -> Self {
        upstream.figures.active.add(1);
        if trial {
            upstream.try_out();
        }
        Self { upstream: Arc::clone(upstream), trial }
    }

    /// Which one.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The way to it, for a thread.
    pub fn client(&self, thread: usize) -> &Arc<Client> {
        self.upstream.client(thread)
    }

    /// What came of the request.
    pub fn tell(&mut self, outcome: Outcome) {
        self.trial &= matches!(outcome, Outcome::Pushed { .. });
        self.upstream.after(outcome, Instant::now());
    }
}

impl Drop for ChosenUpstream {
    fn drop(&mut self) {
        self.upstream.figures.active.add(-1);
        if self.trial {
            self.upstream.found_nothing();
        }
    }
}
