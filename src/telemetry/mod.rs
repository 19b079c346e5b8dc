//! Telemetry for operators: metrics in the Prometheus text format, logs on stderr, and traces by OTLP.
//!
//! Metrics are plain atomics. The usual exporter adds some fifteen crates, keeps every observation until the next
//! scrape, and calibrates a clock at start. Counters, gauges and histograms with fixed bounds are all that is
//! needed here.
//!
//! Label values come from closed sets: routes, upstream names, statuses, model names that the engine lists. Never:
//! text of a client or of an answer.

mod build;
mod discovery;
#[cfg(feature = "otlp")]
mod export;
mod figures;
mod history;
mod json_line;
mod log;
mod redact;
mod series;
#[cfg(feature = "otlp")]
mod spans;
mod text;
mod tls;
mod trace;
mod tracer;
mod upstream;

pub use build::Build;
pub use discovery::DiscoveryMetrics;
pub use history::{History, HistoryPoint, STEP as HISTORY_STEP};
pub use log::{LogGuard, excerpt, fitting, line_with, start as start_logging};
pub use redact::redacted;
pub use series::{Counters, Gauge, Histogram, HistogramSnapshot, Histograms, SeriesBudget};
pub use tls::TlsMetrics;
pub use trace::{FinishedRequest, Parent, Peer, Propagation, Trace};
pub use tracer::Tracer;
pub use upstream::UpstreamMetrics;

use crate::named::named;
use crate::wire::event::Usage;
use crate::wire::fault::Fault;
use crate::wire::rule::{Rule, Tally};
use figures::figures;
use parking_lot::RwLock;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Panics since the start. Static, because the panic hook is per process.
static PANICS: Gauge = Gauge::of(0);

named! {
    /// Route of a client's request, as a metric label from a closed set.
    pub enum RouteLabel {
        /// `POST /v1/chat/completions`
        Chat = "chat",
        /// `POST /v1/completions`
        Completions = "completions",
        /// `/v1/responses` and what is below it
        Responses = "responses",
        /// `POST /v1/messages` and what is below it
        Messages = "messages",
        /// `/v1/conversations` and what is below it
        Conversations = "conversations",
        /// `POST /v1/embeddings`
        Embeddings = "embeddings",
        /// `/v1/files` and `/v1/batches`, and what is below them
        Batch = "batch",
        /// Routes that are relayed without rewriting
        Relay = "relay",
        /// `GET /v1/models` and `GET /v1/models/{id}`
        Models = "models",
        /// `GET /v1/usage`
        Usage = "usage",
        /// Any other path.
        Unknown = "unknown",
    }
}

named! {
    /// Outcome of a client's request, as a metric label and in logs.
    pub enum End {
        /// Complete answer.
        Complete = "complete",
        /// Error, either instead of the answer or within it.
        Error = "error",
        /// Client closed the connection before the end.
        ClientClosed = "client_closed",
        /// Request cut off because the process shut down.
        Draining = "draining",
    }
}

/// Facts about one finished request, from which [`Metrics::finished`] updates all counters and histograms.
#[derive(Debug)]
pub struct RequestMeasures<'a> {
    /// Route of the request.
    pub route: RouteLabel,
    /// Upstream of the last attempt, if there was an attempt.
    pub upstream: Option<&'a UpstreamMetrics>,
    /// HTTP status that the client received; 499 if the client left before one.
    pub status: u16,
    /// Outcome of the request.
    pub end: End,
    /// Model name, as a label value from a bounded set.
    pub model: &'a str,
    /// Name of the client's key, if keys are checked.
    pub key: Option<&'a str>,
    /// Name of the engine.
    pub engine: &'a str,
    /// Token counts of the engine.
    pub usage: Option<Usage>,
    /// Rules that changed the answer, with the number of changes by each.
    pub tally: &'a Tally,
    /// Names of the rules that changed the request.
    pub adapted: &'a [&'static str],
    /// Time from the arrival of the request to the last byte.
    pub total: Duration,
    /// Time spent rewriting the answer.
    pub rewriting: Duration,
    /// Time spent reading and planning the request.
    pub planning: Duration,
}

/// Warning for operators, logged while the log contains request content.
pub const CONTENT_LOGGED: &str =
    "[log] content is on: what clients ask is in this log, as long as that is so";

/// Warning for operators, logged and printed by `check` while requests are captured from the start.
pub const CAPTURE_ON: &str = "[capture] is on: what clients ask and engines answer is kept in memory, and the admin listener gives it out";

/// Number of times that a rule changed requests or answers of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// Name of the engine.
    pub engine: String,
    /// Name of the rule.
    pub rule: String,
    /// Number of changes since the start.
    pub count: u64,
}

figures! {
    /// Registry of all metrics of the process. Rendered on each scrape of the admin listener.
    pub struct Metrics(room: &SeriesBudget, key_room: &SeriesBudget) {
        upstreams: RwLock<Vec<Arc<UpstreamMetrics>>> = RwLock::default(),
        /// Metrics of requests that no upstream was selected for.
        without_upstream: UpstreamMetrics = UpstreamMetrics::new("none"),
        requests: Counters<4> = Counters::new(["route", "upstream", "status", "end"], room),
        tokens: Counters<3> = Counters::new(["upstream", "model", "kind"], room),
        rewrites: Counters<2> = Counters::new(["engine", "rule"], room),
        attempts: Counters<2> = Counters::new(["upstream", "outcome"], room),
        tool_calls: Counters<3> = Counters::new(["server", "tool", "outcome"], room),
        tool_seconds: Histograms = Histograms::new("outcome", SECONDS),
        model_fallbacks: Counters<2> = Counters::new(["model", "to"], room),
        repetitions: Counters<1> = Counters::new(["model"], room),
        key_requests: Counters<1> = Counters::new(["key"], key_room),
        key_tokens: Counters<2> = Counters::new(["key", "kind"], key_room),
        in_flight: [Gauge; RouteLabel::ALL.len()] = Default::default(),
        rewriting: Histogram = Histogram::new(TINY),
        planning: Histogram = Histogram::new(TINY),
        /// Duration of store operations, one histogram per operation name.
        pub store: Arc<Histograms> = Arc::new(Histograms::new("op", STORE)),
        /// Metrics of certificates and TLS handshakes.
        pub tls: TlsMetrics = TlsMetrics::new(),
        discovery: RwLock<Vec<Arc<DiscoveryMetrics>>> = RwLock::default(),
    }
    pub bodies: Arc<Gauge> = "gauge" "samewire_bodies_in_flight_bytes" "Request bodies in memory.",
    pub batches_running: Gauge = "gauge" "samewire_batches_running" "Batches that this process runs.",
    pub batch_lines_in_flight: Gauge = "gauge" "samewire_batch_lines_in_flight"
        "Lines of batches under way.",
    pub batch_lines_completed: Gauge = "counter" "samewire_batch_lines_completed_total"
        "Lines of batches with a successful answer.",
    pub batch_lines_failed: Gauge = "counter" "samewire_batch_lines_failed_total"
        "Lines of batches that ended in an error.",
    pub reloaded: Gauge = "gauge" "samewire_config_last_reload_success"
        "Whether the configuration read last is in force.",
    pub budget_exhausted: Gauge = "counter" "samewire_retry_budget_exhausted_total"
        "Requests that were not sent again because too many were.",
    pub accept_errors: Gauge = "counter" "samewire_accept_errors_total"
        "Connections that could not be accepted.",
    pub evicted: Gauge = "counter" "samewire_connections_evicted_total"
        "Idle connections closed to make room for others.",
    pub refused_connections: Gauge = "counter" "samewire_connections_refused_total"
        "Connections for which there was no room.",
    pub quota_failures: Gauge = "counter" "samewire_quota_store_failures_total"
        "Times that the store did not answer about quotas of a day or a month.",
}

/// Maximum number of series of all counters together; with the histograms of eight upstreams that makes less than
/// 2,000.
const COUNTERS: usize = 700;
/// Maximum number of series of the counters by key: three for each of fifty keys. Further keys are counted
/// together, as `other`.
const KEY_COUNTERS: usize = 150;

const SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 600.0,
];
const SHORT: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0,
];
const STORE: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0,
];
const TINY: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.05,
    0.25,
];

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self::new(&SeriesBudget::of(COUNTERS), &SeriesBudget::of(KEY_COUNTERS));
        metrics.reloaded.set(1);
        metrics
    }
}

impl Metrics {
    /// Returns the metrics of the upstream of this name, creating them if needed. Drops the metrics of upstreams
    /// that are no longer configured.
    pub fn upstream(&self, name: &str) -> Arc<UpstreamMetrics> {
        let mut all = self.upstreams.write();
        all.retain(|known| {
            let stays = *known.name == *name || is_used(known);
            // Pods come and go without end, and each would leave its series behind.
            if !stays {
                self.requests.forget("upstream", &known.name);
                self.tokens.forget("upstream", &known.name);
                self.attempts.forget("upstream", &known.name);
            }
            stays
        });
        if let Some(known) = all.iter().find(|known| *known.name == *name) {
            return Arc::clone(known);
        }
        let new = Arc::new(UpstreamMetrics::new(name));
        all.push(Arc::clone(&new));
        new
    }

    /// Returns the metrics of the watch of a label selector, creating them if needed. Drops those of watches that have
    /// ended.
    pub fn discovery(&self, selector: &str) -> Arc<DiscoveryMetrics> {
        let mut all = self.discovery.write();
        all.retain(|known| known.selector == selector || is_used(known));
        if let Some(known) = all.iter().find(|known| known.selector == selector) {
            return Arc::clone(known);
        }
        let new = Arc::new(DiscoveryMetrics::new(selector));
        all.push(Arc::clone(&new));
        new
    }

    /// Returns the gauge of requests on this route that are in progress.
    pub fn in_flight(&self, route: RouteLabel) -> Option<&Gauge> {
        self.in_flight.get(route as usize)
    }

    /// Counts an attempt at an upstream. `outcome` is `ok`, `refused` or an error code; codes outside the fault
    /// table, which engines may invent, count as `other`.
    pub fn attempt(&self, upstream: &UpstreamMetrics, outcome: &str) {
        let known = matches!(outcome, "ok" | "refused") || Fault::of_code(outcome).is_some();
        let outcome = if known { outcome } else { "other" };
        self.attempts.add([&upstream.name, outcome], 1);
    }

    /// Counts a call of a tool that samewire ran.
    pub fn tool_call(&self, server: &str, tool: &str, outcome: &'static str, took: Duration) {
        self.tool_calls.add([server, tool, outcome], 1);
        self.tool_seconds.observe(outcome, took);
    }

    /// Counts a request for `model` that went on to the model `to`, because nothing could answer for the one before.
    pub fn model_fallback(&self, model: &str, to: &str) {
        self.model_fallbacks.add([model, to], 1);
    }

    /// Counts a finished request in every metric that it concerns.
    pub fn finished(&self, request: &RequestMeasures<'_>) {
        let figures = request.upstream.unwrap_or(&self.without_upstream);
        let upstream = &*figures.name;
        let mut digits = itoa::Buffer::new();
        let status = digits.format(request.status);
        self.requests.add(
            [request.route.name(), upstream, status, request.end.name()],
            1,
        );
        if let Some(seconds) = figures.request_seconds.get(request.route as usize) {
            seconds.observe(request.total);
        }
        if let Some(usage) = &request.usage {
            let kinds = [
                ("prompt", usage.prompt),
                ("completion", usage.completion),
                ("cached", usage.cached),
            ];
            for (kind, count) in kinds {
                self.tokens.add([upstream, request.model, kind], count);
                if let Some(key) = request.key {
                    self.key_tokens.add([key, kind], count);
                }
            }
        }
        if let Some(key) = request.key {
            self.key_requests.add([key], 1);
        }
        for (rule, times) in request.tally.iter() {
            self.rewrites
                .add([request.engine, rule.name()], times.into());
        }
        for rule in request.adapted {
            self.rewrites.add([request.engine, rule], 1);
        }
        if request.tally.times(Rule::Repetition) > 0 {
            self.repetitions.add([request.model], 1);
        }
        for (stage, spent) in [
            (&self.rewriting, request.rewriting),
            (&self.planning, request.planning),
        ] {
            if !spent.is_zero() {
                stage.observe(spent);
            }
        }
    }

    /// Returns how often each rule changed something, by engine.
    pub fn rule_counts(&self) -> Vec<RuleCount> {
        self.rewrites.counts(|[engine, rule], count| {
            let (engine, rule) = (engine.to_owned(), rule.to_owned());
            RuleCount {
                engine,
                rule,
                count,
            }
        })
    }

    /// Returns the counts that the history is made of, since the start of the process.
    fn snapshot(&self, at: SystemTime) -> HistoryPoint {
        let (mut requests, mut errors, mut tokens) = (0, 0, 0);
        self.requests.counts(|[.., end], count| {
            requests += count;
            errors += if end == End::Error.name() { count } else { 0 };
        });
        self.tokens
            .counts(|[.., kind], count| tokens += if kind == "completion" { count } else { 0 });
        let (mut first_token, mut inter_token) = (
            HistogramSnapshot::new(SECONDS),
            HistogramSnapshot::new(SHORT),
        );
        for upstream in self.upstreams.read().iter().filter(|one| is_used(one)) {
            upstream.first_token.add_to(&mut first_token);
            upstream.inter_token.add_to(&mut inter_token);
        }
        HistoryPoint {
            at,
            requests,
            errors,
            first_token,
            inter_token,
            tokens,
        }
    }

    /// Renders all metrics in the Prometheus text format, as the answer to one scrape.
    pub fn rendered(&self) -> String {
        let mut out = String::with_capacity(16 << 10);
        let name = "samewire_build_info";
        series::head(name, "The running program.", "gauge", &mut out);
        let build = Build::CURRENT;
        let labels = [
            ("version", build.version),
            ("commit", build.commit),
            ("date", build.date),
        ];
        let _ = writeln!(out, "{name}{{{}}} 1", series::labels(&labels));
        let name = "samewire_requests_total";
        self.requests
            .render(name, "Requests, by how they ended.", &mut out);
        series::head(
            "samewire_requests_in_flight",
            "Requests under way.",
            "gauge",
            &mut out,
        );
        for (route, gauge) in RouteLabel::ALL.iter().zip(&self.in_flight) {
            let labels = series::labels(&[("route", route.name())]);
            gauge.render("samewire_requests_in_flight", &labels, &mut out);
        }
        self.render_upstreams(&mut out);
        let name = "samewire_overhead_seconds";
        series::head(
            name,
            "Time spent in the proxy itself, for each request.",
            "histogram",
            &mut out,
        );
        self.planning
            .render(name, &series::labels(&[("stage", "plan")]), &mut out);
        self.rewriting
            .render(name, &series::labels(&[("stage", "rewrite")]), &mut out);
        self.store.render(
            "samewire_store_seconds",
            "What operations of the store take.",
            &mut out,
        );
        self.render_models(&mut out);
        self.key_requests.render(
            "samewire_key_requests_total",
            "Requests, by the client's key.",
            &mut out,
        );
        self.key_tokens.render(
            "samewire_key_tokens_total",
            "Tokens, by the client's key.",
            &mut out,
        );
        self.rewrites.render(
            "samewire_rewrites_total",
            "What was changed in requests and mended in answers.",
            &mut out,
        );
        self.render_tools(&mut out);
        Self::render_gauges(&[self], |_| "", &mut out);
        for (name, help, count) in [
            (
                "samewire_panics_total",
                "Bugs that ended a request.",
                &PANICS,
            ),
            (
                "samewire_log_lines_dropped_total",
                "Log lines that nobody could take.",
                &log::DROPPED,
            ),
            (
                "samewire_spans_exported_total",
                "Spans of traces that the collector has taken.",
                &trace::EXPORTED,
            ),
            (
                "samewire_spans_dropped_total",
                "Spans of traces that it has not, or for which there was no room.",
                &trace::DROPPED,
            ),
        ] {
            series::single(name, help, "counter", count.value(), &mut out);
        }
        self.tls.render(&mut out);
        let watches = self.discovery.read();
        let watches: Vec<_> = watches
            .iter()
            .filter(|one| is_used(one))
            .map(|one| &**one)
            .collect();
        discovery::render(&watches, &mut out);
        process(&mut out);
        out
    }

    fn render_tools(&self, out: &mut String) {
        self.tool_calls.render(
            "samewire_tool_calls_total",
            "Calls of tools that samewire ran.",
            out,
        );
        self.tool_seconds
            .render("samewire_tool_seconds", "Duration of calls of tools.", out);
    }

    /// Writes what is counted by model, and the attempts.
    fn render_models(&self, out: &mut String) {
        self.tokens.render(
            "samewire_tokens_total",
            "Tokens, as the engine counts them.",
            out,
        );
        self.attempts.render(
            "samewire_upstream_attempts_total",
            "Requests sent to upstreams.",
            out,
        );
        self.model_fallbacks.render(
            "samewire_model_fallbacks_total",
            "Requests that went on to another model of their name.",
            out,
        );
        self.repetitions.render(
            "samewire_repetitions_total",
            "Answers that [guard] stopped because they repeated themselves.",
            out,
        );
    }

    fn render_upstreams(&self, out: &mut String) {
        let all = self.upstreams.read();
        let all: Vec<_> = all
            .iter()
            .filter(|one| is_used(one))
            .map(|one| &**one)
            .collect();
        let name = "samewire_time_to_first_token_seconds";
        series::head(
            name,
            "From a request's arrival to the engine's first word.",
            "histogram",
            out,
        );
        all.iter()
            .for_each(|one| one.first_token.render(name, &one.labels, out));
        let name = "samewire_inter_token_seconds";
        series::head(
            name,
            "Between one write to a client and the next.",
            "histogram",
            out,
        );
        all.iter()
            .for_each(|one| one.inter_token.render(name, &one.labels, out));
        let name = "samewire_request_seconds";
        series::head(
            name,
            "From a request's arrival to its end.",
            "histogram",
            out,
        );
        all.iter()
            .chain([&&self.without_upstream])
            .for_each(|one| one.render_requests(name, out));
        UpstreamMetrics::render_gauges(&all, |one| &one.labels, out);
        type Written = fn(&UpstreamMetrics, &str, &mut String);
        let told: [(_, _, Written); 3] = [
            (
                "samewire_upstream_info",
                "What the upstream is, as far as that is known.",
                UpstreamMetrics::render_kind,
            ),
            (
                "samewire_upstream_engine_requests",
                "Requests that the engine says it has.",
                UpstreamMetrics::render_busy,
            ),
            (
                "samewire_upstream_engine_cache_usage",
                "The part of its cache that the engine says is in use.",
                UpstreamMetrics::render_cache,
            ),
        ];
        for (name, help, written) in told {
            series::head(name, help, "gauge", out);
            all.iter().for_each(|one| written(one, name, out));
        }
    }
}

/// Returns true if anything else still holds these metrics. If not, what they are of was removed from the
/// configuration.
fn is_used<T>(figures: &Arc<T>) -> bool {
    Arc::strong_count(figures) > 1
}

/// Appends the `process_*` metrics that Prometheus expects of every process, read from `/proc/self`.
fn process(out: &mut String) {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let page = 4096;
    let pages: u64 = read("statm")
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let open = open_files();
    let limits = read("limits");
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let allowed = files
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or("0");
    // The process name may contain spaces and brackets. Behind the last bracket come numeric fields; times are in
    // hundredths of a second.
    let stat = read("stat");
    let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|text| text.parse::<f64>().ok())
        .sum();
    for (name, help, kind, value) in [
        (
            "process_resident_memory_bytes",
            "Resident memory.",
            "gauge",
            (pages * page).to_string(),
        ),
        (
            "process_open_fds",
            "Open file descriptors.",
            "gauge",
            open.to_string(),
        ),
        (
            "process_max_fds",
            "Most file descriptors.",
            "gauge",
            allowed.to_owned(),
        ),
        (
            "process_cpu_seconds_total",
            "Processor time.",
            "counter",
            (ticks / 100.0).to_string(),
        ),
    ] {
        series::single(name, help, kind, value, out);
    }
}

/// Returns the number of open descriptors. Newer kernels report it as the folder's size; counting thousands of
/// entries takes as long as the rest of the scrape.
fn open_files() -> u64 {
    const PLACE: &str = "/proc/self/fd";
    let said = std::fs::metadata(PLACE).map_or(0, |folder| folder.len());
    let counted =
        || std::fs::read_dir(PLACE).map_or(0, |all| all.count().try_into().unwrap_or(u64::MAX));
    if said > 0 { said } else { counted() }
}

/// Installs a panic hook that counts panics and logs their location, but not their message, which may contain
/// foreign text.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.add(1);
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(place, "a bug ended a request");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rule::Rule;
    use std::time::Instant;

    /// Metrics at their maximum size: eight upstreams, every counter and operation, and label values that exceed
    /// every budget.
    fn full() -> (Metrics, Vec<Arc<UpstreamMetrics>>) {
        let metrics = Metrics::default();
        let upstreams: Vec<_> = (0..8)
            .map(|n| metrics.upstream(&format!("engine-{n}")))
            .collect();
        let mut tally = Tally::default();
        tally.count(Rule::FinishUnknown);
        for n in 0..4000_u16 {
            let model = format!("model-{n}");
            metrics.finished(&RequestMeasures {
                route: [RouteLabel::Chat, RouteLabel::Responses, RouteLabel::Models]
                    [usize::from(n / 8 % 3)],
                upstream: Some(&upstreams[usize::from(n % 8)]),
                status: n,
                end: End::Error,
                model: &model,
                key: Some(&model),
                engine: &model,
                usage: Some(Usage {
                    prompt: 1,
                    ..Usage::default()
                }),
                tally: &tally,
                adapted: &[],
                total: Duration::from_secs(1),
                rewriting: Duration::from_secs(1),
                planning: Duration::from_secs(1),
            });
        }
        for operation in [
            "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q",
        ] {
            metrics.store.observe(operation, Duration::from_secs(1));
        }
        (metrics, upstreams)
    }

    #[test]
    fn fault_o20_all_there_can_be_is_rendered_at_once() {
        let (metrics, _upstreams) = full();
        let text = metrics.rendered();
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!((1500..2000).contains(&series), "{series} series");
        assert!(
            text.contains("samewire_requests_total{route=\"other\",upstream=\"other\","),
            "{text}"
        );
        let took = (0..10).map(|_| {
            let start = Instant::now();
            assert!(metrics.rendered().len() > 1000);
            start.elapsed()
        });
        let best = took.min().unwrap();
        assert!(best < Duration::from_millis(20), "{best:?}");
    }

    #[test]
    fn fault_o20_outcomes_are_known_words() {
        let metrics = Metrics::default();
        let engine = metrics.upstream("engine");
        for outcome in ["ok", "refused", "upstream_timeout", "CANARY", ""] {
            metrics.attempt(&engine, outcome);
        }
        let text = metrics.rendered();
        assert!(!text.contains("CANARY"), "{text}");
        for (outcome, times) in [
            ("ok", 1),
            ("refused", 1),
            ("upstream_timeout", 1),
            ("other", 2),
        ] {
            let line = format!(
                "samewire_upstream_attempts_total{{upstream=\"engine\",outcome=\"{outcome}\"}} {times}\n"
            );
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}
