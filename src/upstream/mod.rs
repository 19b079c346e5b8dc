//! Upstreams: the configured engines, the connections to them, the choice between them, and their health.

mod answer;
mod answer_head;
mod balance;
mod circuit_breaker;
mod client;
mod detected_engine;
pub mod health;
mod hops;
mod http1;
mod http2;
mod http2_stream;
mod id;
mod identify;
mod learned;
pub mod models;
mod outgoing;
mod pool;
mod pool_state;
mod prefix;
mod probe;
mod resolver;
mod retry;
mod ring;
#[cfg(test)]
mod simulation;
mod targets;
mod templates;
mod upload;
mod upload_exchange;

pub use answer::{Answer, Read, ReadError};
pub use circuit_breaker::AttemptOutcome;
pub use client::Client;
pub use detected_engine::{DetectedEngine, Evidence};
pub use hops::Hops;
pub use http1::ResponseHead;
pub use id::UpstreamId;
pub use outgoing::Outgoing;
pub use pool::{ChosenUpstream, NoUpstream, Pool, ReadFor, SelectionCriteria, other_model};
pub use prefix::blocks as prefix_blocks;
pub use retry::RetryState;
pub use targets::ModelTarget;
pub use upload::{Source, Upload};

use crate::config::{Config, Credentials, Timeouts, UpstreamConfig};
use crate::engine::fallback::Fallbacks;
use crate::engine::template::PromptRoutes;
use crate::engine::{self, EngineIdentity, EngineLoad};
use crate::plan::Route;
use crate::telemetry::UpstreamMetrics;
use crate::wire::options::{Options, Parser};
use crate::wire::{TemplateFacts, Unparsed, Unread};
use circuit_breaker::{Availability, CircuitBreaker};
use health::Standing;
use http::HeaderValue;
use learned::{LearnedFacts, Prompts};
use models::ListedModel;
use parking_lot::{Mutex, RwLock};
use pool_state::PoolState;
use resolver::Resolver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use templates::WantedModels;
use tokio::time::Instant;

/// Time for which an upstream that does not match its configuration is chosen only if no other one is available.
const MISMATCH_PAUSE: Duration = Duration::from_secs(60);
/// Time after the last piece of an answer during which an engine counts as up, although its probes get no answer in
/// time.
const RECENT_ANSWER: Duration = Duration::from_secs(10);
/// Number of pieces of answers that are scanned for hints at the engine, after each identification by probes.
const SCANS: u32 = 4096;
/// Upper limit for the model names that are kept per upstream, against an engine that lists without end.
const MODELS: usize = 256;

/// Models that an engine lists under `/v1/models`.
#[derive(Clone, Debug, Default)]
struct ListedModels {
    /// Listed names, in the engine's order.
    names: Vec<Arc<str>>,
    /// Models of these names, as they were listed.
    models: Vec<ListedModel>,
    /// Names that a request without a model can mean: adapters and further names of the same weights are left out.
    main: Vec<Arc<str>>,
}

/// Upstream: its configuration, its clients, and everything that probes and answers have shown about the engine
/// behind it. Shared by all requests and by the task that probes it.
#[derive(Debug)]
pub struct Upstream {
    /// The upstream's section of the configuration.
    pub config: UpstreamConfig,
    /// Id, which a reloaded configuration does not change.
    pub id: UpstreamId,
    /// Metrics of this upstream.
    pub figures: Arc<UpstreamMetrics>,
    /// Engine, version and front end, as far as they are known.
    detected: RwLock<DetectedEngine>,
    /// Number of further pieces of answers that are scanned for hints at the engine.
    scans_left: AtomicU32,
    /// True after a bad outcome: the next probe then identifies the engine anew, since another one may have
    /// replaced it.
    identity_doubtful: AtomicBool,
    /// Number of requests that the engine has from clients other than this process.
    foreign_requests: AtomicU64,
    /// Models that the engine lists; `None` until a list has been read.
    listed: RwLock<Option<ListedModels>>,
    /// Reason why the upstream is not ready; `None` once a probe has succeeded.
    trouble: Mutex<Option<&'static str>>,
    /// Whether the upstream gets requests, as the last probes say.
    standing: Mutex<Standing>,
    /// Time at which the last mismatch with the configuration was seen.
    mismatched: Mutex<Option<Instant>>,
    /// State that the outcomes of requests lead to: ejections, ramps and pauses.
    breaker: Mutex<CircuitBreaker>,
    /// Kinds of text that the engine has left unparsed, by the family of the model. Each is logged once.
    unparsed: Mutex<Vec<Unparsed>>,
    /// Models of which a text has begun with a mark that nothing reads. Each is logged once.
    unread: Mutex<Vec<String>>,
    /// Facts learned about each model: fallbacks, whether reasoning is separated, and what its chat template does.
    learned: LearnedFacts,
    /// Models whose chat templates wait to be looked at, because requests named them.
    wanted: WantedModels,
    /// State that the upstreams of the pool share.
    pool: Arc<PoolState>,
    /// True once a reload has removed the upstream: it gets no new request.
    retired: AtomicBool,
    /// Milliseconds from `since` to the last piece of an answer; 0 if none has come.
    last_piece: AtomicU64,
    since: Instant,
    /// Timeouts that the clients were made with, to see whether a reload has changed them.
    timeouts: Timeouts,
    /// Resolved addresses of the host, shared by all clients.
    addresses: Arc<Resolver>,
    /// Client of the first thread.
    client: Arc<Client>,
    /// Clients of the other threads.
    clients: Box<[Arc<Client>]>,
    /// Client for probes, with its own connections: a probe never takes one from a request.
    probes: Client,
}

impl Upstream {
    /// Creates an upstream that is available, but not yet proven by a probe.
    fn new(
        config: UpstreamConfig,
        all: &Config,
        figures: Arc<UpstreamMetrics>,
        pool: Arc<PoolState>,
    ) -> Self {
        let addresses = Resolver::from_system(&config, &all.timeouts);
        let client = || Client::with_addresses(&addresses, &config, &all.timeouts);
        if config.tls.as_ref().is_some_and(|tls| tls.accepts_any) {
            let danger =
                "danger_accept_invalid_certs: any server that answers is taken for the engine";
            tracing::warn!(upstream = config.name, danger);
        }
        let found = DetectedEngine::configured(config.engine);
        figures.set_kind(found.identity.engine.name, None, found.identity.front);
        Self {
            client: Arc::new(client()),
            probes: client().sticky(),
            clients: (1..all.threads).map(|_| Arc::new(client())).collect(),
            addresses,
            id: UpstreamId::new(),
            timeouts: all.timeouts.clone(),
            figures,
            detected: RwLock::new(found),
            scans_left: AtomicU32::new(0),
            identity_doubtful: AtomicBool::new(false),
            foreign_requests: AtomicU64::new(0),
            listed: RwLock::default(),
            trouble: Mutex::new(Some("not probed yet")),
            standing: Mutex::default(),
            mismatched: Mutex::default(),
            breaker: Mutex::default(),
            unparsed: Mutex::default(),
            unread: Mutex::default(),
            learned: LearnedFacts::default(),
            wanted: WantedModels::default(),
            pool,
            retired: AtomicBool::new(false),
            last_piece: AtomicU64::new(0),
            since: Instant::now(),
            config,
        }
    }

    /// Returns true if another configuration describes the same upstream with the same client timeouts, so that it
    /// can be kept.
    fn is_same_config(&self, config: &UpstreamConfig, all: &Config) -> bool {
        let of_clients =
            |times: &Timeouts| (times.dns, times.connect, times.handshake, times.pool_idle);
        self.config == *config && of_clients(&self.timeouts) == of_clients(&all.timeouts)
    }

    /// Returns true if another configuration has the same host, port and prefix, whatever its other keys say.
    fn is_same_address(&self, config: &UpstreamConfig) -> bool {
        let place =
            |config: &UpstreamConfig| (config.host.clone(), config.port, config.prefix.clone());
        place(&self.config) == place(config)
    }

    /// Takes over what is known about the same engine from the upstream that a reload replaces: identity, models,
    /// addresses, health and ejection.
    fn inherit(&mut self, before: &Self) {
        self.since = before.since;
        self.last_piece = AtomicU64::new(before.last_piece.load(Ordering::Relaxed));
        // The old upstream's place in the count of ejected upstreams moves along with its breaker.
        self.breaker = Mutex::new(std::mem::take(&mut *before.breaker.lock()));
        self.set_detected(before.detected().reconfigured(self.config.engine));
        *self.listed.write() = before.listed.read().clone();
        self.addresses.inherit(&before.addresses);
        self.set_trouble(*before.trouble.lock());
        self.standing = Mutex::new(*before.standing.lock());
        // Under another name it has its own metrics.
        self.figures.up.set(before.figures.up.value());
        self.figures
            .circuit_open
            .set(before.figures.circuit_open.value());
    }

    /// Logs that the engine has left reasoning or calls in the text that it could have parsed: once for each family
    /// of models and kind, with the flags that would turn its parsers on.
    pub fn report_unparsed(&self, unparsed: Unparsed) {
        let family = unparsed.family();
        let mut known = self.unparsed.lock();
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

    /// Logs that a text begins with a mark that nothing reads: once for each model, by the engine's name for it, with
    /// the engine's flags and the option that would have it read.
    pub fn report_unread(&self, unread: Unread, model: &str) {
        let mut known = self.unread.lock();
        if known.len() >= MODELS || known.iter().any(|known| known == model) {
            return;
        }
        known.push(model.to_owned());
        drop(known);
        let (upstream, mark, option) = (
            self.config.name.as_str(),
            unread.kind(),
            unread.option(model),
        );
        let flags = unread.flags(self.identity().engine.name, model);
        tracing::warn!(upstream, model, mark, flags, option, "{}", Unread::MESSAGE);
    }

    /// Stops new requests to this upstream: closes the connections that are idle, and keeps none from now on.
    /// Requests under way are not touched.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        let breaker = std::mem::take(&mut *self.breaker.lock());
        if breaker.is_ejected() {
            self.pool.readmit();
            self.figures.circuit_open.set(0);
        }
        self.clients
            .iter()
            .chain([&self.client])
            .for_each(|client| client.retire());
    }

    /// Returns true if the upstream has been removed by a reload.
    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Starts the ramp of an upstream that joins running traffic: its share of the requests grows step by step.
    fn ramp(&self) {
        self.with_breaker(|breaker| breaker.come_back(Instant::now()));
    }

    /// Returns the engine, its version and its front end, with the corrections of the configuration.
    pub fn identity(&self) -> EngineIdentity {
        self.config.identity(self.detected.read().identity)
    }

    /// Returns everything that is known about the engine, with the evidence for it.
    pub fn detected(&self) -> DetectedEngine {
        self.detected.read().clone()
    }

    /// Stores the result of an identification by probes. Facts that answers have shown in the meantime are kept where
    /// probes found nothing better.
    fn set_detected(&self, found: DetectedEngine) {
        let now = self.update_detected(|known| *known = found.merged_with_hints(known));
        let listens = now.is_incomplete() || now.rests_on_answers();
        self.scans_left
            .store(if listens { SCANS } else { 0 }, Ordering::Relaxed);
    }

    /// Scans a piece of a successful answer for hints at the engine and its version. Returns at once if nothing can
    /// be learned any more.
    pub fn scan_answer(&self, piece: &[u8]) {
        let left = self.scans_left.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        // Two threads may decrement at the same time and count as one; the limit need not be exact.
        self.scans_left.store(left - 1, Ordering::Relaxed);
        let Some((engine, version)) = engine::of_answer(piece) else {
            return;
        };
        // Nearly every answer of an engine shows the same.
        if self.detected.read().learns_from(engine, version) {
            self.update_detected(|known| known.take_hint(engine, version));
        }
        if !self.detected.read().is_incomplete() {
            self.scans_left.store(0, Ordering::Relaxed);
        }
    }

    /// Changes what is known about the engine and returns the result. A change is logged, and makes the learned
    /// facts doubtful, or void if it is another engine.
    fn update_detected(&self, change: impl FnOnce(&mut DetectedEngine)) -> DetectedEngine {
        let mut known = self.detected.write();
        let before = known.clone();
        change(&mut known);
        let now = known.clone();
        drop(known);
        let EngineIdentity {
            engine,
            front,
            version,
        } = now.identity;
        self.figures.set_kind(engine.name, version, front);
        if now.differs_from(&before) {
            if now.identity.engine == before.identity.engine {
                self.learned.doubt();
            } else {
                self.learned.clear();
            }
            tracing::info!(upstream = self.config.name, what = %now, "what the upstream is");
        }
        now
    }

    /// Returns true if there was a bad outcome since the last call, and resets that flag.
    fn take_doubt(&self) -> bool {
        self.identity_doubtful.swap(false, Ordering::Relaxed)
    }

    /// Sets the load that the engine reports, and how many of its requests come from elsewhere; `None` if it is
    /// unknown.
    fn set_busy(&self, told: Option<(EngineLoad, u64)>) {
        self.foreign_requests
            .store(told.map_or(0, |(_, others)| others), Ordering::Relaxed);
        self.figures.set_busy(told.map(|(busy, _)| busy));
    }

    /// Returns the route on which requests to this upstream are planned. `model`: the engine's name for the model.
    fn route(&self, model: &str, options: Arc<Options>, max_event_bytes: usize) -> Route {
        let learned = self.learned.of(model);
        // An engine with one model renders its template whatever the name.
        let only = self.only_listed().filter(|only| **only != *model);
        let rendered = only.map_or(learned, |only| self.learned.of(&only));
        let is_off = options.parser == Parser::Off;
        let lacks_prompts = matches!(rendered.prompts, Prompts::Failed(_)) && !is_off;
        let identity = self.identity();
        Route {
            responses: self.config.responses,
            messages: self.config.messages,
            fallbacks: learned.fallbacks,
            separates_reasoning: learned.separates_reasoning || self.has_reasoning_parser(),
            template: match is_off {
                true => TemplateFacts::UNKNOWN,
                false => rendered.template(),
            },
            shows_prompt: lacks_prompts && identity.returns_prompt(),
            ..Route::new(identity, options, max_event_bytes)
        }
    }

    /// Remembers the fallbacks with which the engine has answered for a model, so that later requests use them at
    /// once.
    pub fn answers_to(&self, model: &str, fallbacks: Fallbacks) {
        let fallbacks = fallbacks.lasting();
        if !fallbacks.is_empty() && self.learned.add(model, fallbacks) {
            tracing::info!(
                upstream = self.config.name,
                fallbacks = %fallbacks,
                "the engine refused a request and answers it in another form; requests have that form from now on"
            );
        }
    }

    /// Records that an answer of this model has separated reasoning from the text.
    pub fn note_separate_reasoning(&self, model: &str) {
        self.learned.note_separate_reasoning(model);
    }

    /// Records what an answer of this model has shown of its chat template.
    pub fn note_template(&self, model: &str, shown: TemplateFacts) {
        let only = self.only_listed();
        self.learned
            .note_template(only.as_deref().unwrap_or(model), shown);
    }

    /// Has the chat template of a model looked at, unless that has been done or its engine cannot show it. Returns at
    /// once. `passed`: the client's credentials, for an upstream that is configured to receive them.
    pub fn want_template(&self, model: &str, passed: Option<&HeaderValue>) {
        let passed = passed.filter(|_| matches!(self.config.auth, Credentials::Pass));
        let has_key = passed.is_some() || self.config.auth.own_key().is_some();
        let only = self.only_listed();
        let model = only.as_deref().unwrap_or(model);
        if self.identity().engine.renders.is_some() && self.learned.begin_prompts(model, has_key) {
            self.wanted.add(model, passed);
        }
    }

    /// Returns the only model that the engine lists: such an engine renders its template whatever the name.
    fn only_listed(&self) -> Option<Arc<str>> {
        let listed = self.listed.read();
        match listed.as_ref().map(|all| all.names.as_slice()) {
            Some([only]) => Some(Arc::clone(only)),
            _ => None,
        }
    }

    /// Returns what is known of the chat templates of this upstream's models, by the engine's names, each with what has shown
    /// it: a route of the engine, or else answers.
    pub fn templates(&self) -> Vec<(Box<str>, TemplateFacts, &'static str)> {
        let route = self.identity().engine.renders.map(PromptRoutes::path);
        let all = self.learned.templates().into_iter();
        all.map(|(model, facts)| {
            let rendered = route.filter(|_| !facts.template.is_empty());
            (model, facts.template(), rendered.unwrap_or("answers"))
        })
        .collect()
    }

    /// Returns true if the engine reports a reasoning parser.
    fn has_reasoning_parser(&self) -> bool {
        let found = self.detected.read();
        let parsers = found.parsers.as_ref();
        parsers.is_some_and(|parsers| parsers.reasoning.is_some())
    }

    /// Returns the client of a thread. Each thread has its own, so that connections stay on the thread that made
    /// them.
    pub fn client(&self, thread: usize) -> &Arc<Client> {
        thread
            .checked_sub(1)
            .and_then(|at| self.clients.get(at))
            .unwrap_or(&self.client)
    }

    /// Returns the number of requests under way, including those of other clients if the engine reports them.
    fn load(&self) -> f64 {
        let elsewhere =
            i64::try_from(self.foreign_requests.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        let all = self.figures.active.value().saturating_add(elsewhere);
        f64::from(i32::try_from(all).unwrap_or(i32::MAX))
    }

    /// Returns the name of a model as a shared string if the configuration or the engine knows it.
    fn known_name(&self, model: &str) -> Option<Arc<str>> {
        let configured = self.config.models.iter().find(|name| *name == model);
        let listed = self.listed.read();
        let listed = listed
            .as_ref()
            .and_then(|all| all.names.iter().find(|name| &***name == model).cloned());
        listed.or_else(|| configured.map(|name| name.as_str().into()))
    }

    /// Returns true if this upstream serves a model; `None` if neither the configuration nor the engine has named
    /// any.
    fn serves(&self, model: &str) -> Option<bool> {
        if !self.config.models.is_empty() {
            return Some(self.config.models.iter().any(|name| name == model));
        }
        let listed = self.listed.read();
        listed
            .as_ref()
            .map(|all| all.names.iter().any(|name| &**name == model))
    }

    /// Returns the model names that the engine lists, or none if no list has been read.
    fn listed_names(&self) -> Vec<Arc<str>> {
        let listed = self.listed.read();
        listed
            .as_ref()
            .map(|all| all.names.clone())
            .unwrap_or_default()
    }

    /// Returns true if both upstreams serve the same models, and both sets are known.
    fn lists_the_same_as(&self, other: &Self) -> bool {
        let of = |upstream: &Self| upstream.names();
        of(self)
            .zip(of(other))
            .is_some_and(|(one, other)| one == other)
    }

    /// Returns the sorted names of the models: the configured ones, else the listed ones; `None` if neither is
    /// known.
    fn names(&self) -> Option<Vec<Arc<str>>> {
        let mut all = match self.config.models.is_empty() {
            true => self.listed.read().as_ref()?.names.clone(),
            false => self
                .config
                .models
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
        };
        all.sort_unstable();
        Some(all)
    }

    /// Returns the names a request without a model can mean (wire-format 2.10), as far as the configuration lets
    /// this upstream serve them; `None` if neither the configuration nor the engine has named any.
    fn main_models(&self) -> Option<Vec<Arc<str>>> {
        let listed = self.listed.read();
        let main = listed
            .as_ref()
            .map(|all| all.main.iter().filter(|name| self.may_serve(name)).cloned());
        match main {
            None if self.config.models.is_empty() => None,
            None => Some(
                self.config
                    .models
                    .iter()
                    .map(|name| name.as_str().into())
                    .collect(),
            ),
            Some(main) => Some(main.collect()),
        }
    }

    /// Replaces the list of models with the one that the engine has just sent. A list that differs ends the mismatch
    /// with the configuration.
    fn listed(&self, models: &[ListedModel]) {
        let models: Vec<_> = models
            .iter()
            .filter(|model| model.id.len() <= 256)
            .take(MODELS)
            .collect();
        let mut known = self.listed.write();
        let is_first = known.is_none();
        let before = known.take().unwrap_or_default().names;
        let kept = |name: &str| before.iter().find(|known| &***known == name).cloned();
        let names: Vec<Arc<str>> = models
            .iter()
            .map(|model| kept(&model.id).unwrap_or_else(|| model.id.as_str().into()))
            .collect();
        let main = names
            .iter()
            .zip(models::are_main(&models))
            .filter(|(_, is_main)| *is_main);
        let main = main.map(|(name, _)| Arc::clone(name)).collect();
        let same = names == before;
        let models = models.into_iter().cloned().collect();
        *known = Some(ListedModels {
            names,
            models,
            main,
        });
        drop(known);
        if is_first || !same {
            self.pool.note_new_list();
        }
        if !same {
            *self.mismatched.lock() = None;
        }
    }

    /// Returns the context length of a model in tokens, by the engine's name for it; `None` if the engine has not
    /// given it.
    fn context_length(&self, model: &str) -> Option<u64> {
        let listed = self.listed.read();
        listed
            .as_ref()?
            .models
            .iter()
            .find(|listed| listed.id == model)?
            .context_length
    }

    /// Returns the models that the engine has listed last; `None` if no list has been read.
    pub fn known_models(&self) -> Option<Vec<ListedModel>> {
        self.listed
            .read()
            .as_ref()
            .map(|listed| listed.models.clone())
    }

    /// Stores a list of models that the engine has sent to a client, if there is none yet: probes may lack the key
    /// for it.
    pub fn learn(&self, models: &[ListedModel]) {
        if self.listed.read().is_none() {
            self.listed(models);
        }
    }

    /// Returns the models that the configuration names for this upstream; empty: those that the engine lists.
    pub fn configured_models(&self) -> &[String] {
        &self.config.models
    }

    /// Returns true if the configuration allows requests for this model to this upstream.
    pub fn may_serve(&self, model: &str) -> bool {
        self.config.models.is_empty() || self.config.models.iter().any(|name| name == model)
    }

    /// Records that a piece of an answer has arrived at this time, which shows that the engine is alive.
    pub fn record_piece(&self, now: Instant) {
        let since = now.saturating_duration_since(self.since).as_millis();
        self.last_piece
            .store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns true if a piece of an answer has arrived within the last 10 s.
    fn was_heard(&self) -> bool {
        let heard = self.last_piece.load(Ordering::Relaxed);
        heard > 0 && self.since.elapsed() < Duration::from_millis(heard) + RECENT_ANSWER
    }

    /// Returns the reason why the upstream is not ready, or `None` if it is ready.
    pub fn trouble(&self) -> Option<&'static str> {
        let answers = *self.standing.lock() == Standing::Late && self.was_heard();
        self.trouble.lock().filter(|_| !answers)
    }

    fn set_trouble(&self, trouble: Option<&'static str>) {
        *self.trouble.lock() = trouble;
    }

    /// Returns true if the last probes say that the engine is down.
    pub fn is_down(&self) -> bool {
        self.standing() == Standing::Down
    }

    /// Returns whether the upstream gets requests. One whose probes are late, but which has just answered a request,
    /// is up.
    fn standing(&self) -> Standing {
        let standing = *self.standing.lock();
        if standing == Standing::Late && self.was_heard() {
            Standing::Up
        } else {
            standing
        }
    }

    /// Sets what the probes say. An upstream that returns starts with a small share of the requests.
    fn set_standing(&self, standing: Standing) {
        let before = std::mem::replace(&mut *self.standing.lock(), standing);
        if standing == Standing::Up && before != Standing::Up {
            self.ramp();
        }
    }

    /// Marks the upstream as not matching its configuration, for example after its key was rejected. For a minute
    /// it is chosen only if no other upstream is available.
    pub fn mark_mismatch(&self, why: &str) {
        let now = Instant::now();
        let before = self.mismatched.lock().replace(now);
        if before.is_none_or(|since| now.saturating_duration_since(since) > MISMATCH_PAUSE) {
            tracing::warn!(
                upstream = self.config.name,
                why,
                "upstream is misconfigured"
            );
        }
    }

    fn is_mismatched(&self) -> bool {
        let since = *self.mismatched.lock();
        since.is_some_and(|since| since.elapsed() < MISMATCH_PAUSE)
    }

    fn availability(&self, now: Instant) -> Availability {
        self.breaker.lock().availability(now)
    }

    fn start_trial(&self) {
        self.with_breaker(CircuitBreaker::start_trial);
    }

    fn cancel_trial(&self) {
        self.with_breaker(CircuitBreaker::cancel_trial);
    }

    /// Feeds the outcome of a request to the circuit breaker. A bad one also makes the engine's identity doubtful.
    fn record_outcome(&self, outcome: AttemptOutcome, now: Instant) {
        if outcome == AttemptOutcome::Bad {
            self.identity_doubtful.store(true, Ordering::Relaxed);
        }
        let may = || !self.retired.load(Ordering::Relaxed) && self.pool.try_eject();
        self.with_breaker(|breaker| breaker.record(outcome, now, self.since, may));
    }

    fn with_breaker(&self, change: impl FnOnce(&mut CircuitBreaker)) {
        let mut breaker = self.breaker.lock();
        let before = breaker.is_ejected();
        change(&mut breaker);
        match (before, breaker.is_ejected()) {
            (false, true) => {
                self.figures.circuit_open.set(1);
                tracing::warn!(
                    upstream = self.config.name,
                    "upstream fails: ejected for a while"
                )
            }
            (true, false) => {
                self.pool.readmit();
                self.figures.circuit_open.set(0);
                tracing::info!(upstream = self.config.name, "upstream is back");
            }
            _ => {}
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if self.breaker.get_mut().is_ejected() {
            self.pool.readmit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;
    use crate::engine::fallback::Fallback;
    use crate::engine::{DetectedParsers, EngineVersion, named};

    /// Creates an upstream with these further lines of configuration.
    fn upstream(lines: &str) -> Upstream {
        let text = format!("threads = 3\n[[upstream]]\nurl = \"http://engine:8000\"\n{lines}");
        let config = Config::read(&text, &[&Overrides::default()]).unwrap();
        let figures = crate::telemetry::Metrics::default().upstream("e");
        Upstream::new(
            config.upstreams[0].clone(),
            &config,
            figures,
            Arc::default(),
        )
    }

    fn model(id: &str) -> ListedModel {
        ListedModel {
            id: id.to_owned(),
            ..ListedModel::default()
        }
    }

    fn texts(names: Option<Vec<Arc<str>>>) -> Option<Vec<String>> {
        names.map(|names| names.iter().map(|name| name.to_string()).collect())
    }

    fn strings(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn models_are_those_that_are_configured_or_else_listed() {
        let listed = [
            ListedModel {
                root: Some("/w".into()),
                context_length: Some(4),
                ..model("b")
            },
            ListedModel {
                root: Some("/w".into()),
                ..model("a")
            },
        ];
        let open = upstream("");
        assert_eq!(
            (
                open.serves("a"),
                texts(open.names()),
                texts(open.main_models())
            ),
            (None, None, None)
        );
        assert!(open.listed_names().is_empty() && open.known_name("a").is_none());
        open.listed(&listed);
        assert_eq!(
            (open.serves("a"), open.serves("c")),
            (Some(true), Some(false))
        );
        assert_eq!(texts(open.names()), strings(&["a", "b"]), "sorted");
        assert_eq!(
            texts(Some(open.listed_names())),
            strings(&["b", "a"]),
            "in the engine's order"
        );
        assert_eq!(
            texts(open.main_models()),
            strings(&["b"]),
            "the first name of the weights"
        );
        assert_eq!(
            (open.known_name("a").as_deref(), open.known_name("c")),
            (Some("a"), None)
        );
        let lengths = ["a", "b", "c"].map(|name| open.context_length(name));
        assert_eq!(lengths, [None, Some(4), None]);
        assert!(open.may_serve("c"));
        let closed = upstream("models = [\"c\", \"b\"]");
        assert_eq!(
            (closed.serves("a"), closed.serves("b")),
            (Some(false), Some(true))
        );
        assert_eq!(
            texts(closed.main_models()),
            strings(&["c", "b"]),
            "as configured"
        );
        closed.listed(&listed);
        assert_eq!(
            (closed.serves("a"), closed.serves("c")),
            (Some(false), Some(true))
        );
        assert_eq!(texts(closed.names()), strings(&["b", "c"]));
        assert_eq!(texts(closed.main_models()), strings(&["b"]));
        assert_eq!(closed.known_name("c").as_deref(), Some("c"));
        assert_eq!(
            (closed.may_serve("a"), closed.may_serve("b")),
            (false, true)
        );
        assert!(!open.lists_the_same_as(&closed) && open.lists_the_same_as(&open));
        assert!(
            !upstream("").lists_the_same_as(&upstream("")),
            "neither list is known"
        );
    }

    /// Checks that names without end, in number or length, do not fill the memory.
    #[test]
    fn lists_have_a_limit() {
        let upstream = upstream("");
        let (fits, long) = ("n".repeat(256), "n".repeat(257));
        let mut all = vec![model(&long), model(&fits)];
        all.extend((0..300).map(|n| model(&n.to_string())));
        upstream.listed(&all);
        assert_eq!(
            (upstream.listed_names().len(), upstream.serves(&fits)),
            (256, Some(true))
        );
        assert_eq!(upstream.serves(&long), Some(false));
    }

    #[test]
    fn a_list_that_a_client_got_counts_only_without_another() {
        let upstream = upstream("");
        upstream.learn(&[model("a")]);
        assert_eq!(upstream.serves("a"), Some(true));
        upstream.learn(&[model("b")]);
        assert_eq!(
            (upstream.serves("a"), upstream.serves("b")),
            (Some(true), Some(false))
        );
    }

    #[test]
    fn each_thread_has_a_client() {
        let upstream = upstream("");
        let client = |thread| Arc::as_ptr(upstream.client(thread));
        assert!(client(0) != client(1) && client(1) != client(2) && client(0) != client(2));
        assert_eq!(client(3), client(0), "there are three");
    }

    #[test]
    fn load_is_what_we_and_others_have_under_way() {
        let upstream = upstream("");
        upstream.figures.active.set(3);
        let load = EngineLoad {
            running: 6,
            waiting: 1,
            ..EngineLoad::default()
        };
        upstream.set_busy(Some((load, 4)));
        assert_eq!(
            (upstream.load(), upstream.figures.busy()),
            (7.0, Some(load))
        );
        upstream.set_busy(None);
        assert_eq!((upstream.load(), upstream.figures.busy()), (3.0, None));
    }

    #[test]
    fn an_answer_shows_for_a_time_that_the_engine_is_alive() {
        let (now, seconds) = (Instant::now(), Duration::from_secs);
        let mut upstream = upstream("");
        assert!(!upstream.was_heard(), "nothing has come yet");
        upstream.since = now - seconds(20);
        assert!(!upstream.was_heard(), "nothing has come yet");
        for (ago, is_alive) in [(1, true), (9, true), (11, false)] {
            upstream.record_piece(now - seconds(ago));
            assert_eq!(upstream.was_heard(), is_alive, "{ago} s");
            // Where its probes are late, an answer counts at once; one that is down needs good probes.
            upstream.set_trouble(Some("why"));
            upstream.set_standing(Standing::Late);
            assert_eq!(upstream.standing() == Standing::Up, is_alive, "{ago} s");
            assert_eq!(upstream.trouble().is_none(), is_alive, "{ago} s");
            upstream.set_standing(Standing::Down);
            assert_eq!(
                (upstream.standing(), upstream.trouble()),
                (Standing::Down, Some("why")),
                "{ago} s"
            );
        }
    }

    #[test]
    fn a_mismatch_lasts_for_a_minute() {
        let upstream = upstream("");
        assert!(!upstream.is_mismatched());
        upstream.mark_mismatch("its key was refused");
        assert!(upstream.is_mismatched());
        for (ago, is_mismatched) in [(50, true), (61, false)] {
            *upstream.mismatched.lock() = Some(Instant::now() - Duration::from_secs(ago));
            assert_eq!(upstream.is_mismatched(), is_mismatched, "{ago} s");
        }
    }

    #[test]
    fn an_upstream_that_was_down_comes_back_slowly() {
        let upstream = upstream("");
        let availability = || upstream.availability(Instant::now());
        upstream.set_standing(Standing::Up);
        assert_eq!(
            (availability(), upstream.is_down()),
            (Availability::Good(1.0), false)
        );
        upstream.set_standing(Standing::Down);
        assert_eq!(
            (availability(), upstream.is_down()),
            (Availability::Good(1.0), true)
        );
        upstream.set_standing(Standing::Up);
        let Availability::Good(share) = availability() else {
            panic!("it is good")
        };
        assert!(share < 0.5 && !upstream.is_down(), "{share}");
    }

    /// Only a bad outcome is a reason to identify the engine anew, and only once.
    #[test]
    fn a_failure_makes_the_identity_doubtful() {
        let upstream = upstream("");
        let after = |outcome| {
            upstream.record_outcome(outcome, Instant::now());
            (upstream.take_doubt(), upstream.take_doubt())
        };
        let pushed = AttemptOutcome::Pushed {
            status: 503,
            wait: Duration::ZERO,
        };
        let found = [
            AttemptOutcome::Good,
            AttemptOutcome::Refused,
            pushed,
            AttemptOutcome::Bad,
        ]
        .map(after);
        assert_eq!(
            found,
            [
                (false, false),
                (false, false),
                (false, false),
                (true, false)
            ]
        );
    }

    /// Answers are scanned only as long as something about the engine is unknown or rests on answers, and only so
    /// many.
    #[test]
    fn answers_are_scanned_while_they_can_teach() {
        const VLLM: &[u8] = br#"{"id":"chatcmpl-1","stop_reason":null}"#;
        const VERSION: &[u8] = br#"{"system_fingerprint":"vllm-0.21.0-x"}"#;
        let nothing = || DetectedEngine::configured(named("auto").unwrap());
        let found = |upstream: &Upstream| {
            (
                upstream.identity().engine.name,
                upstream.detected().evidence,
            )
        };
        let left = |upstream: &Upstream| upstream.scans_left.load(Ordering::Relaxed);
        let open = upstream("");
        open.scan_answer(VLLM);
        assert_eq!(
            found(&open),
            ("auto", Evidence::Nothing),
            "before the first probe"
        );
        open.set_detected(nothing());
        (2..SCANS).for_each(|_| open.scan_answer(b"{}"));
        open.scan_answer(VLLM);
        assert_eq!(
            (found(&open), left(&open)),
            (("vllm", Evidence::Answer), 1),
            "its version is not known"
        );
        open.scan_answer(VERSION);
        assert_eq!(
            (open.identity().version, left(&open)),
            (Some(EngineVersion::new(0, 21, 0)), 0)
        );
        open.set_detected(nothing());
        assert_eq!(
            (found(&open), left(&open)),
            (("vllm", Evidence::Answer), SCANS),
            "probes found nothing better"
        );
        open.scan_answer(VERSION);
        assert_eq!(left(&open), 0, "nothing is unknown any more");
        let late = upstream("");
        late.set_detected(nothing());
        (0..SCANS).for_each(|_| late.scan_answer(b"{}"));
        late.scan_answer(VLLM);
        assert_eq!(found(&late), ("auto", Evidence::Nothing));
        // A complete identity by the engine's own routes needs no answer.
        let known = upstream("");
        let mut whole = nothing();
        whole.set_engine(named("sglang").unwrap(), Evidence::Route("/server_info"));
        whole.set_version(
            Some(EngineVersion::new(0, 5, 0)),
            Evidence::Route("/server_info"),
        );
        known.set_detected(whole);
        assert_eq!(left(&known), 0);
    }

    /// Fallbacks hold for the engine that has refused: they are void once another engine is found there.
    #[test]
    fn another_engine_is_learned_anew() {
        let merged = Fallbacks::default().with(Fallback::SystemMerged);
        let options = || Arc::new(Options::default());
        let upstream = upstream("");
        upstream.answers_to("m", merged);
        upstream.note_separate_reasoning("m");
        let route = upstream.route("m", options(), 7);
        assert_eq!(
            (
                route.fallbacks,
                route.separates_reasoning,
                route.max_event_bytes
            ),
            (merged, true, 7)
        );
        assert!(upstream.route("n", options(), 7).fallbacks.is_empty());
        upstream.set_detected(upstream.detected());
        assert_eq!(
            upstream.route("m", options(), 7).fallbacks,
            merged,
            "it is the same engine"
        );
        let mut other = DetectedEngine::configured(named("auto").unwrap());
        other.set_engine(named("vllm").unwrap(), Evidence::Route("/version"));
        upstream.set_detected(other.clone());
        let route = upstream.route("m", options(), 7);
        assert!(route.fallbacks.is_empty() && !route.separates_reasoning);
        // An engine that names its parsers separates reasoning if one of them is for it.
        for (reasoning, separates) in [(None, false), (Some("qwen3"), true)] {
            other.parsers = Some(DetectedParsers {
                reasoning: reasoning.map(Into::into),
                ..DetectedParsers::default()
            });
            upstream.set_detected(other.clone());
            assert_eq!(
                upstream.route("m", options(), 7).separates_reasoning,
                separates,
                "{reasoning:?}"
            );
        }
    }
}
