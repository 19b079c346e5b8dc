//! Upstreams: the ways to engines, which of them is asked, and whether they are there.

mod answer;
mod circuit_breaker;
mod client;
pub mod health;
mod hops;
mod http1;
mod http2;
mod identify;
mod identity;
mod learned;
pub mod models;
mod pool;
mod resolver;
mod retry;
mod upload;

pub use answer::{Answer, Broken, Read};
pub use circuit_breaker::Outcome;
pub use client::{Client, Outgoing};
pub use hops::Hops;
pub use http1::Head;
pub use identity::{DetectedEngine, Evidence};
pub use pool::{ChosenUpstream, NoUpstream, Pool, SelectionCriteria};
pub use retry::RetryState;
pub use upload::{Source, Upload};

use crate::config::{Config, Timeouts, UpstreamConfig};
use crate::engine::fallback::Fallbacks;
use crate::engine::{self, Busy, Identity};
use crate::plan::Route;
use crate::telemetry::UpstreamMetrics;
use crate::wire::Unparsed;
use crate::wire::options::Options;
use circuit_breaker::{Availability, CircuitBreaker};
use learned::Learnt;
use models::Model;
use pool::Ejected;
use resolver::Addresses;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;

/// An upstream that is not as configured is asked again after this.
const MISPLACED: Duration = Duration::from_secs(60);
/// What the next one is called.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Pieces of answers that are looked at for what they tell of the engine, until it is looked at again.
const HEARD: u32 = 4096;
/// Most model names that are kept of one upstream.
const MODELS: usize = 256;

/// The models that an engine lists.
#[derive(Clone, Debug, Default)]
struct ListedModels {
    /// All names.
    names: Vec<Arc<str>>,
    /// The names a request without a model can mean: without adapters and further names of the same model.
    main: Vec<Arc<str>>,
}

/// One upstream: what is configured of it, and what it has told.
#[derive(Debug)]
pub struct Upstream {
    /// As configured.
    pub config: UpstreamConfig,
    /// Which of all that this process has had it is.
    pub id: u64,
    /// Its figures.
    pub figures: Arc<UpstreamMetrics>,
    /// What it turned out to be.
    found: RwLock<DetectedEngine>,
    /// So many pieces of its answers may tell what is not known of it.
    listens: AtomicU32,
    /// It has answered as it should not: it may be another one.
    doubtful: AtomicBool,
    /// Requests that it has from others than this process.
    elsewhere: AtomicU64,
    /// The models it lists; `None`: it has not said.
    listed: RwLock<Option<ListedModels>>,
    /// Why it is not ready; `None` once it answered a probe.
    trouble: Mutex<Option<&'static str>>,
    /// Its probes say that it is not there.
    down: AtomicBool,
    /// Since when it is known that something of it is not as configured.
    misplaced: Mutex<Option<Instant>>,
    /// What its answers come to.
    breaker: Mutex<CircuitBreaker>,
    /// The kinds of text that it has left unparsed, by the family of the model.
    unparsed: Mutex<Vec<Unparsed>>,
    /// The forms in which it is asked for its models.
    learnt: Learnt,
    ejected: Arc<Ejected>,
    /// It is asked nothing new.
    retired: AtomicBool,
    /// Milliseconds from `since` to when it was last heard; 0: never.
    heard: AtomicU64,
    since: Instant,
    /// What its clients were made with.
    timeouts: Timeouts,
    /// What they know of its name.
    addresses: Arc<Addresses>,
    /// The first thread's.
    client: Arc<Client>,
    /// Those of the others.
    clients: Box<[Arc<Client>]>,
    /// None of the relay's: a probe takes no connection from a request.
    probes: Client,
}

impl Upstream {
    /// Available, but not proven.
    fn new(
        config: UpstreamConfig,
        all: &Config,
        figures: Arc<UpstreamMetrics>,
        ejected: Arc<Ejected>,
    ) -> Self {
        let addresses = Addresses::of(&config, &all.timeouts);
        let client = || Client::sharing(&addresses, &config, &all.timeouts);
        if config.tls.as_ref().is_some_and(|tls| tls.accepts_any) {
            let danger = "danger_accept_invalid_certs: whoever answers is taken for the engine";
            tracing::warn!(upstream = config.name, danger);
        }
        let found = DetectedEngine::configured(config.engine);
        figures.set_kind(found.identity.engine.name, None, found.identity.front);
        Self {
            client: Arc::new(client()),
            probes: client().staying(),
            clients: (1..all.threads).map(|_| Arc::new(client())).collect(),
            addresses,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            timeouts: all.timeouts.clone(),
            figures,
            found: RwLock::new(found),
            listens: AtomicU32::new(0),
            doubtful: AtomicBool::new(false),
            elsewhere: AtomicU64::new(0),
            listed: RwLock::default(),
            trouble: Mutex::new(Some("not probed yet")),
            down: AtomicBool::new(false),
            misplaced: Mutex::default(),
            breaker: Mutex::default(),
            unparsed: Mutex::default(),
            learnt: Learnt::default(),
            ejected,
            retired: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            since: Instant::now(),
            config,
        }
    }

    /// Whether it is what another configuration says, too.
    fn is_as(&self, config: &UpstreamConfig, all: &Config) -> bool {
        let of_clients = |times: &Timeouts| (times.dns, times.connect, times.handshake, times.pool_idle);
        self.config == *config && of_clients(&self.timeouts) == of_clients(&all.timeouts)
    }

    /// Whether it is at the place of which another configuration speaks, whatever that says of it.
    fn is_where(&self, config: &UpstreamConfig) -> bool {
        let place = |config: &UpstreamConfig| (config.host.clone(), config.port, config.prefix.clone());
        place(&self.config) == place(config)
    }

    /// What was known of it when it was configured otherwise, and how it does.
    fn inherit(&mut self, before: &Self) {
        self.since = before.since;
        self.heard = AtomicU64::new(before.heard.load(Ordering::Relaxed));
        // With its place among the ejected, if it has one.
        self.breaker =
            Mutex::new(std::mem::take(&mut *before.breaker.lock().unwrap_or_else(PoisonError::into_inner)));
        self.settle(before.found().under(self.config.engine));
        *self.listed.write().unwrap_or_else(PoisonError::into_inner) =
            before.listed.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.addresses.inherit(&before.addresses);
        self.set_trouble(before.trouble());
        self.down.store(before.is_down(), Ordering::Relaxed);
    }

    /// It has left in the text what it could have parsed: said once for each family of models.
    pub fn left(&self, unparsed: Unparsed) {
        let family = unparsed.family();
        let mut known = self.unparsed.lock().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|known| unparsed.is_within(known)) {
            return;
        }
        known.push(unparsed);
        drop(known);
        let (engine, upstream) = (self.identity().engine.name, self.config.name.as_str());
        let (message, remedy) = (Unparsed::MESSAGE, Unparsed::REMEDY);
        match unparsed.flags(engine) {
            Some(flags) => tracing::warn!(upstream, family, flags, "{message}; {remedy}"),
            None => tracing::warn!(upstream, family, "{message}"),
        }
    }

    /// It is asked nothing new: connections that wait for a request are closed, and none is kept any more.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        let breaker = std::mem::take(&mut *self.breaker.lock().unwrap_or_else(PoisonError::into_inner));
        if breaker.is_ejected() {
            self.ejected.one_less();
        }
        self.clients.iter().chain([&self.client]).for_each(|client| client.retire());
    }

    /// Whether it is asked nothing new.
    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// It is new to traffic that is under way: it gets its part little by little.
    fn ramp(&self) {
        self.with_condition(|breaker| breaker.come_back(Instant::now()));
    }

    /// What is behind it.
    pub fn identity(&self) -> Identity {
        self.config.identity(self.found.read().unwrap_or_else(PoisonError::into_inner).identity)
    }

    /// The same, with all that is known of it.
    pub fn found(&self) -> DetectedEngine {
        self.found.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It has been looked at. What was overheard meanwhile counts.
    fn settle(&self, found: DetectedEngine) {
        let now = self.know(|known| *known = found.beside(known));
        let listens = now.lacks() || now.is_overheard();
        self.listens.store(if listens { HEARD } else { 0 }, Ordering::Relaxed);
    }

    /// A piece of a good answer. It costs nothing where nothing is to be learnt of it.
    pub fn overhear(&self, piece: &[u8]) {
        let left = self.listens.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        // Two threads at once may count as one; it need not be exact.
        self.listens.store(left - 1, Ordering::Relaxed);
        if let Some((engine, version)) = engine::of_answer(piece) {
            let now = self.know(|known| known.overhear(engine, version));
            if !now.lacks() {
                self.listens.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Something is known of what is behind it.
    fn know(&self, change: impl FnOnce(&mut DetectedEngine)) -> DetectedEngine {
        let mut known = self.found.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.clone();
        change(&mut known);
        let now = known.clone();
        drop(known);
        let Identity { engine, front, version } = now.identity;
        self.figures.set_kind(engine.name, version, front);
        if now.says_other_than(&before) {
            self.forget_fallbacks();
            tracing::info!(upstream = self.config.name, what = %now, "what the upstream is");
        }
        now
    }

    /// Whether it has answered as it should not since that was last asked.
    fn take_doubt(&self) -> bool {
        self.doubtful.swap(false, Ordering::Relaxed)
    }

    /// How much it has to do, and how many requests of others that are; `None`: it is not known.
    fn set_busy(&self, told: Option<(Busy, u64)>) {
        self.elsewhere.store(told.map_or(0, |(_, others)| others), Ordering::Relaxed);
        self.figures.set_busy(told.map(|(busy, _)| busy));
    }

    /// Returns the route on which requests to it are planned. `model`: the name by which the engine knows the model.
    fn route(&self, model: &str, options: Arc<Options>, max_event_bytes: usize) -> Route {
        Route {
            responses: self.config.responses,
            fallbacks: self.learnt.fallbacks(model),
            tells_reasoning: self.tells_reasoning(),
            ..Route::new(self.identity(), options, max_event_bytes)
        }
    }

    /// Remembers the fallbacks with which it has answered for a model: later requests take them at once.
    pub fn answers_to(&self, model: &str, fallbacks: Fallbacks) {
        if self.learnt.add(model, fallbacks) {
            tracing::info!(
                upstream = self.config.name,
                fallbacks = %fallbacks,
                "the engine refused a request and answers it in another form; it is asked so from now on"
            );
        }
    }

    /// Notes that one of its answers has told reasoning apart from the text.
    pub fn tell_reasoning(&self) {
        self.learnt.tell_reasoning();
    }

    /// Whether it says that it parses reasoning, or one of its answers has shown it.
    fn tells_reasoning(&self) -> bool {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        let says = found.parsers.as_ref().is_some_and(|parsers| parsers.reasoning.is_some());
        says || self.learnt.tells_reasoning()
    }

    /// Forgets what its refusals and answers have taught: it may be another engine, or one that was started otherwise.
    fn forget_fallbacks(&self) {
        self.learnt.clear();
    }

    /// The way to it, for a thread.
    pub fn client(&self, thread: usize) -> &Arc<Client> {
        thread.checked_sub(1).and_then(|at| self.clients.get(at)).unwrap_or(&self.client)
    }

    /// Requests under way, with those of others where the engine tells of them.
    fn load(&self) -> f64 {
        let elsewhere = i64::try_from(self.elsewhere.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        let all = self.figures.active.value().saturating_add(elsewhere);
        f64::from(i32::try_from(all).unwrap_or(i32::MAX))
    }

    /// A model's name, if the configuration or the engine knows it.
    fn known(&self, model: &str) -> Option<Arc<str>> {
        let configured = self.config.models.iter().find(|name| *name == model);
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let listed = listed.as_ref().and_then(|all| all.names.iter().find(|name| &***name == model).cloned());
        listed.or_else(|| configured.map(|name| name.as_str().into()))
    }

    /// Whether it serves a model; `None`: neither the configuration nor the engine has said what it serves.
    fn serves(&self, model: &str) -> Option<bool> {
        if !self.config.models.is_empty() {
            return Some(self.config.models.iter().any(|name| name == model));
        }
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        listed.as_ref().map(|all| all.names.iter().any(|name| &**name == model))
    }

    /// The names that it lists.
    fn lists(&self) -> Vec<Arc<str>> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        listed.as_ref().map(|all| all.names.clone()).unwrap_or_default()
    }

    /// Whether both have said what they serve, and it is the same.
    fn lists_the_same_as(&self, other: &Self) -> bool {
        let of = |upstream: &Self| upstream.names();
        of(self).zip(of(other)).is_some_and(|(one, other)| one == other)
    }

    /// The names of its models, in order.
    fn names(&self) -> Option<Vec<Arc<str>>> {
        let mut all = match self.config.models.is_empty() {
            true => self.listed.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.names.clone(),
            false => self.config.models.iter().map(|name| name.as_str().into()).collect(),
        };
        all.sort_unstable();
        Some(all)
    }

    /// Returns the names a request without a model can mean (wire-format 2.10), as far as the configuration lets this
    /// upstream serve them; `None`: neither the configuration nor the engine has said what it serves.
    fn main_models(&self) -> Option<Vec<Arc<str>>> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let main = listed.as_ref().map(|all| all.main.iter().filter(|name| self.may_serve(name)).cloned());
        match main {
            None if self.config.models.is_empty() => None,
            None => Some(self.config.models.iter().map(|name| name.as_str().into()).collect()),
            Some(main) => Some(main.collect()),
        }
    }

    /// The engine has listed its models.
    fn listed(&self, models: &[Model]) {
        let models: Vec<_> = models.iter().filter(|model| model.id.len() <= 256).take(MODELS).collect();
        let mut known = self.listed.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.take().unwrap_or_default().names;
        let kept = |name: &str| before.iter().find(|known| &***known == name).cloned();
        let names: Vec<Arc<str>> =
            models.iter().map(|model| kept(&model.id).unwrap_or_else(|| model.id.as_str().into())).collect();
        let main = names.iter().zip(models::are_main(&models)).filter(|(_, is_main)| *is_main);
        let main = main.map(|(name, _)| Arc::clone(name)).collect();
        let same = names == before;
        *known = Some(ListedModels { names, main });
        drop(known);
        if !same {
            *self.misplaced.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// It has listed them to a client: probes may not be let in.
    pub fn learn(&self, models: &[Model]) {
        if self.listed.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.listed(models);
        }
    }

    /// Whether it may be asked for a model that it lists.
    pub fn may_serve(&self, model: &str) -> bool {
        self.config.models.is_empty() || self.config.models.iter().any(|name| name == model)
    }

    /// It has sent something of an answer at this time.
    pub fn heard(&self, now: Instant) {
        let since = now.saturating_duration_since(self.since).as_millis();
        self.heard.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether it has sent something of an answer lately.
    fn was_heard_within(&self, time: Duration) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        heard > 0 && self.since.elapsed() < Duration::from_millis(heard) + time
    }

    /// Why it is not ready, if it is not.
    pub fn trouble(&self) -> Option<&'static str> {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_trouble(&self, trouble: Option<&'static str>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Its probes say that it is not there.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Probes say so, or say no more so: whoever comes back comes back slowly.
    fn set_down(&self, down: bool) {
        if self.down.swap(down, Ordering::Relaxed) && !down {
            self.ramp();
        }
    }

    /// Something of it is not as the configuration says: for a while it is asked only where no other is there.
    pub fn misplace(&self, why: &str) {
        let now = Instant::now();
        let before = self.misplaced.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        if before.is_none_or(|since| now.saturating_duration_since(since) > MISPLACED) {
            tracing::warn!(upstream = self.config.name, why, "upstream is misconfigured");
        }
    }

    fn is_misplaced(&self) -> bool {
        let since = *self.misplaced.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < MISPLACED)
    }

    fn availability(&self, now: Instant) -> Availability {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner).availability(now)
    }

    fn try_out(&self) {
        self.with_condition(CircuitBreaker::try_out);
    }

    fn found_nothing(&self) {
        self.with_condition(CircuitBreaker::found_nothing);
    }

    /// What came of a request.
    fn after(&self, outcome: Outcome, now: Instant) {
        if outcome == Outcome::Bad {
            self.doubtful.store(true, Ordering::Relaxed);
        }
        let may = || !self.retired.load(Ordering::Relaxed) && self.ejected.one_more();
        self.with_condition(|breaker| breaker.after(outcome, now, self.since, may));
    }

    fn with_condition(&self, change: impl FnOnce(&mut CircuitBreaker)) {
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let before = breaker.is_ejected();
        change(&mut breaker);
        match (before, breaker.is_ejected()) {
            (false, true) => {
                self.figures.circuit_open.set(1);
                tracing::warn!(upstream = self.config.name, "upstream fails: ejected for a while")
            }
            (true, false) => {
                self.ejected.one_less();
                self.figures.circuit_open.set(0);
                tracing::info!(upstream = self.config.name, "upstream is back");
            }
            _ => {}
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if self.breaker.get_mut().unwrap_or_else(PoisonError::into_inner).is_ejected() {
            self.ejected.one_less();
        }
    }
}
