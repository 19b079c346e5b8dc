//! Configuration: [`File`] holds the keys as written, [`Config`] their checked and resolved meaning.
//!
//! Takes: the TOML file, the environment, flags; flags override the environment, which overrides the file. Gives:
//! a [`Config`], or all mistakes at once, each with its line, flag or variable. Only this module reads the
//! environment.

mod addresses;
mod batch;
mod browsers;
mod capture;
mod contract;
mod discovery;
mod environment;
mod file;
mod harmony;
mod keys;
mod layers;
mod limits;
mod merged;
mod mistakes;
mod origins;
mod paths;
mod pool;
mod relay;
mod requests;
mod shared_limits;
mod source;
mod targets;
mod tls;
mod trace;
mod unread_text;
mod upstream_file;
mod upstreams;
mod values;

pub use addresses::client_key;
pub use batch::BatchFile;
pub use browsers::{AdminFile, Cors, CorsFile, Hosts};
pub use capture::CaptureFile;
pub use contract::ContractFile;
pub use discovery::{DiscoveryFile, Pod, Pods};
pub use environment::Variable;
pub use file::{
    AuthFile, Azure, Codex, Compaction, File, Health, KeyFile, Level, Log, LogFormat, SealFile, StoreFile,
};
pub use harmony::HarmonyFile;
pub use keys::names_of_keys;
pub use layers::Layers;
pub use limits::{Limits, Timeouts};
pub use mistakes::Mistakes;
pub use pool::{Affinity, AffinityFile, By, ModelConfig, ModelFile, Retry, TargetConfig, TargetFile};
pub use relay::{RelayFile, Relayed};
pub use requests::{MediaUrls, Requests};
pub use shared_limits::{SharedLimitsFile, WhenAway};
pub use source::Source;
pub use tls::{TlsConfig, TlsFile, Version};
pub use trace::{Trace, TraceConfig, TraceVariables};
pub use upstream_file::{Auth, FrontEnd, HttpVersion, UpstreamFile};
pub use upstreams::{Credentials, UpstreamConfig};
pub use values::{Hidden, Seconds};

use crate::auth::Keyring;
use crate::contract::Mode;
use crate::file_watch::FileStamps;
use crate::nearest::suggest;
use crate::request::Rules;
use crate::request::responses::UnreadableReasoning;
use crate::seal::Keys;
use crate::secret;
use crate::store::{Caps, StoreLocation};
use crate::wire::Vocabulary;
use crate::wire::options::Options;
use merged::Merged;
use origins::Origins;
use paths::Folder;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::{Table, Value};

/// Size limit of the configuration file in bytes, far above what thousands of engines need.
const MAX_FILE: u64 = 16 << 20;

/// Settings from one source: the flags of `serve`, or the environment. All are optional, and override the file key
/// by key.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Path of the configuration file, from `--config` or `SAMEWIRE_CONFIG`.
    pub config: Option<PathBuf>,
    /// Addresses of engines; if there are any, they replace the list in the file.
    pub upstream: Vec<String>,
    /// Engine name, applied to every upstream.
    pub engine: Option<String>,
    /// Address that clients connect to, as `HOST:PORT`.
    pub listen: Option<String>,
    /// Address that operators connect to, for health checks, metrics and commands.
    pub admin_listen: Option<String>,
    /// Host names of the admin listener; replace the list in the file.
    pub admin_host: Vec<String>,
    /// True to serve without keys on an address that other machines can reach.
    pub insecure_no_auth: Option<bool>,
    /// Number of worker threads; 0: one per core.
    pub threads: Option<usize>,
    /// Location of the response store, such as `memory` or `sqlite:PATH`.
    pub store: Option<String>,
    /// Minimum log level, with the name of the flag or variable that sets it.
    pub log_level: Option<(String, String)>,
    /// Format of log lines: `auto`, `json` or `text`.
    pub log_format: Option<String>,
    /// Assignments `OPTION=VALUE` to keys of `[wire]`, applied in this order after the other settings of this
    /// source.
    pub set: Vec<String>,
    /// Trace export settings, which OpenTelemetry's own variables set rather than a flag.
    pub trace: TraceVariables,
    /// Variables that set individual keys of the file; flags set none.
    pub variables: Vec<Variable>,
    /// True if the values come from the environment, so that mistakes name variables instead of flags.
    pub is_environment: bool,
}

impl Overrides {
    /// Reads the environment: `SAMEWIRE_<FLAG>`, and `SAMEWIRE_<TABLE>__<KEY>` for any key of the file. Empty
    /// values are ignored.
    ///
    /// Unreadable values are mistakes. So are unknown names with the prefix `SAMEWIRE_`, except those that
    /// Kubernetes sets for a service with a name like `samewire`.
    pub fn environment() -> (Self, Mistakes) {
        let mut mistakes = Mistakes::default();
        let mut all = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str().filter(|_| !value.is_empty()) else { continue };
            match value.to_str() {
                Some(value) => _ = all.insert(name.to_owned(), value.to_owned()),
                None if name.starts_with(environment::PREFIX) => mistakes.given(name, "must be UTF-8"),
                None => {}
            }
        }
        let (this, more) = Self::from_variables(&all);
        mistakes.extend(more);
        (this, mistakes)
    }

    fn from_variables(all: &BTreeMap<String, String>) -> (Self, Mistakes) {
        let mut mistakes = Mistakes::default();
        let variable = |name: &str| all.get(name).cloned();
        let list = |name| variable(name).map(|all| all.split(',').map(|one| one.trim().to_owned()).collect());
        let insecure = variable("SAMEWIRE_INSECURE_NO_AUTH").and_then(|text| match text.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" | "" => Some(false),
            word => {
                let why = suggest("must be true or false".to_owned(), word, ["true", "false"]);
                mistakes.given("SAMEWIRE_INSECURE_NO_AUTH", why);
                None
            }
        });
        let threads = variable("SAMEWIRE_THREADS").and_then(|text| {
            let number = text.parse();
            number.map_err(|_| mistakes.given("SAMEWIRE_THREADS", "must be a whole number")).ok()
        });
        let this = Self {
            config: variable("SAMEWIRE_CONFIG").map(PathBuf::from),
            upstream: list("SAMEWIRE_UPSTREAM").unwrap_or_default(),
            engine: variable("SAMEWIRE_ENGINE"),
            listen: variable("SAMEWIRE_LISTEN"),
            admin_listen: variable("SAMEWIRE_ADMIN_LISTEN"),
            admin_host: list("SAMEWIRE_ADMIN_HOST").unwrap_or_default(),
            insecure_no_auth: insecure,
            threads,
            store: variable("SAMEWIRE_STORE"),
            log_level: ["SAMEWIRE_LOG_LEVEL", "SAMEWIRE_LOG"]
                .into_iter()
                .find_map(|name| Some((name.to_owned(), variable(name)?))),
            log_format: variable("SAMEWIRE_LOG_FORMAT"),
            set: list("SAMEWIRE_SET").unwrap_or_default(),
            trace: TraceVariables::read(variable, &mut mistakes),
            variables: environment::keys(all, &mut mistakes),
            is_environment: true,
        };
        (this, mistakes)
    }

    /// Returns the name of a flag, or of the corresponding variable if the values come from the environment.
    fn name(&self, flag: &str) -> String {
        if !self.is_environment {
            return format!("--{flag}");
        }
        format!("{}{}", environment::PREFIX, flag.replace('-', "_").to_ascii_uppercase())
    }

    /// Applies these settings over what was read before. `here`: the working directory.
    fn apply(&self, merged: &mut Merged, here: &Folder) {
        if !self.upstream.is_empty() {
            merged.replace_upstreams(&self.upstream, &self.name("upstream"));
        }
        if let Some(engine) = &self.engine {
            merged.name_engines(engine, &self.name("engine"));
        }
        for (key, flag, value) in [
            ("listen", "listen", &self.listen),
            ("admin_listen", "admin-listen", &self.admin_listen),
            ("log.format", "log-format", &self.log_format),
        ] {
            if let Some(value) = value {
                merged.set(key, value.as_str(), &self.name(flag));
            }
        }
        if let Some((name, level)) = &self.log_level {
            merged.set("log.level", level.as_str(), name);
        }
        if !self.admin_host.is_empty() {
            merged.set("admin.hosts", self.admin_host.clone(), &self.name("admin-host"));
        }
        if let Some(insecure) = self.insecure_no_auth {
            merged.set("insecure_no_auth", insecure, &self.name("insecure-no-auth"));
        }
        if let Some(threads) = self.threads {
            merged.set("threads", i64::try_from(threads).unwrap_or(i64::MAX), &self.name("threads"));
        }
        if let Some(store) = &self.store {
            merged.set("store.place", here.place(store), &self.name("store"));
        }
        if let Some((name, endpoint)) = &self.trace.endpoint {
            merged.set("trace.endpoint", endpoint.as_str(), name);
        }
        self.variables.iter().for_each(|variable| variable.apply(merged, here));
        for assignment in &self.set {
            self.set_option(assignment, merged);
        }
    }

    fn set_option(&self, assignment: &str, merged: &mut Merged) {
        let options = merged.table.get("wire").cloned().and_then(|wire| wire.try_into().ok());
        match set(&options.unwrap_or_default(), assignment) {
            Ok(options) => {
                let wire = Table::try_from(options).unwrap_or_default();
                merged.table.insert("wire".to_owned(), Value::Table(wire));
            }
            Err((path, why)) => merged.mistakes.given(path.replacen("--set", &self.name("set"), 1), why),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the module that reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Terminal settings from the environment, which commands with coloured or wrapped output use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// True if `NO_COLOR` is set, or the terminal has no capabilities (`TERM=dumb`).
    pub plain: bool,
    /// Width from `COLUMNS`, if it is a number.
    pub columns: Option<usize>,
}

impl Terminal {
    /// Reads `NO_COLOR`, `TERM` and `COLUMNS`. An invalid `COLUMNS` counts as unset.
    pub fn environment() -> Self {
        Self {
            plain: variable("NO_COLOR").is_some() || variable("TERM").is_some_and(|term| term == "dumb"),
            columns: variable("COLUMNS").and_then(|columns| columns.parse().ok()),
        }
    }
}

/// Applies one `OPTION=VALUE` to the options. The value is parsed as TOML, and taken as a string if that does not
/// fit.
///
/// # Errors
/// Fails if the option is unknown or the value has the wrong type. Returns the option's path and the reason.
pub fn set(options: &Options, assignment: &str) -> Result<Options, (String, String)> {
    let Some((name, text)) = assignment.split_once('=') else {
        return Err(("--set".to_owned(), "must be OPTION=VALUE".to_owned()));
    };
    let name = name.trim();
    let name = name.strip_prefix("wire.").unwrap_or(name);
    let written = toml::from_str::<Table>(&format!("value = {text}")).ok();
    let value = written.and_then(|mut table| table.remove("value"));
    let as_text = Value::String(text.to_owned());
    let overlaid = |value| overlay(options, &merged::nested(name, value));
    let result = match value {
        Some(value) => overlaid(value).or_else(|_| overlaid(as_text)),
        None => overlaid(as_text),
    };
    result.map_err(|error| (format!("--set {name}"), mistakes::explain(error.message(), "option")))
}

/// Returns the options with the given keys replaced. Fails on unknown keys and values of a wrong type.
fn overlay(options: &Options, over: &Table) -> Result<Options, toml::de::Error> {
    let mut table = Table::try_from(options).unwrap_or_default();
    merged::merge(&mut table, over);
    table.try_into()
}

/// Checked configuration: addresses parsed, secrets read, engines and options resolved. Immutable; a reload
/// creates a new one.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address that clients connect to; serves the API.
    pub listen: SocketAddr,
    /// Address that operators connect to: health checks, metrics and commands.
    pub admin_listen: SocketAddr,
    /// Number of worker threads; resolved, so never 0.
    pub threads: usize,
    /// Model for requests that name none; `None`: the only model there is, if there is one.
    pub default_model: Option<Arc<str>>,
    /// Limits in bytes and numbers, such as the longest body and the most connections.
    pub limits: Limits,
    /// Time limits for every phase of a request and of a connection.
    pub timeouts: Timeouts,
    /// TLS towards clients; `None`: clients connect in plain text.
    pub tls: Option<TlsConfig>,
    /// Settings of the probes that tell if an engine is available.
    pub health: Health,
    /// Log settings: level, format, and optional content.
    pub log: Log,
    /// Trace export settings; `None`: traces are not recorded here.
    pub trace: Option<Arc<TraceConfig>>,
    /// Requests that are captured from the start, and the limits of what is kept.
    pub capture: CaptureFile,
    /// Use of the API's contract for each answer.
    pub contract: Mode,
    /// Active client keys; `None`: keys are not checked, and every client is served.
    pub auth: Option<Arc<Keyring>>,
    /// Settings of the routes for Azure clients: accepted API versions, region, and storing.
    pub azure: Azure,
    /// Paths that are relayed to engines, with or without rewriting.
    pub relayed: Relayed,
    /// Path prefix under which all routes are available in addition to their usual paths; `None`: no prefix.
    pub root_path: Option<String>,
    /// Origins of web pages that may call the API.
    pub cors: Cors,
    /// Host names of the admin listener, against DNS rebinding.
    pub admin_hosts: Hosts,
    /// Location and limits of the response store.
    pub store: StoreConfig,
    /// Rule for limits of a minute that processes share, where the store is away; `None`: they are not shared.
    pub shared_limits: Option<WhenAway>,
    /// Files and batches: whether they are served, and their limits.
    pub batch: BatchFile,
    /// Keys that seal reasoning; `None`: the store keeps one.
    pub seal: Option<Arc<Keys>>,
    /// Rule for sealed reasoning that cannot be opened.
    pub unreadable_reasoning: UnreadableReasoning,
    /// Instructions with which a model compacts a conversation.
    pub compaction: Compaction,
    /// Instructions in the model information for the Codex CLI.
    pub codex: Codex,
    /// Checks that client requests have to pass, shared by all threads.
    pub rules: Arc<Rules>,
    /// Engines that requests are sent to; at least one.
    pub upstreams: Vec<UpstreamConfig>,
    /// Places of the upstreams of each entry `[[upstream]]`: one, or those of the pods for which it stands.
    pub entries: Vec<Range<usize>>,
    /// Models with settings of their own, such as aliases and defaults.
    pub models: Vec<ModelConfig>,
    /// Options of the wire format, per upstream, model and key.
    pub layers: Layers,
    /// Vocabulary of Harmony tokens, to decode the token ids of gpt-oss; optional.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// Rule that keeps related requests on one upstream, for its prefix cache.
    pub affinity: Affinity,
    /// Limits on retries, per request and for the whole process.
    pub retry: Retry,
    /// Access to the Kubernetes API, for upstreams that stand for pods.
    pub discovery: DiscoveryFile,
    /// Configuration as merged from all sources, with secrets; `check` prints it without.
    pub file: File,
    /// Path of the configuration file, if there is one, to detect changes.
    pub path: Option<PathBuf>,
    /// Metadata of all files before they were read, to detect later changes.
    pub read: FileStamps,
    /// Line, flag or variable that set each key, for mistakes found later.
    origins: Origins,
}

/// Location of the response store, and limits on its content. The defaults of the limits depend on the location.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Location of the store.
    pub place: StoreLocation,
    /// True if the proxy must not start while the store is unavailable.
    pub required: bool,
    /// Limits on the size and lifetime of what is stored, and on leases of background jobs.
    pub caps: Caps,
}

impl StoreConfig {
    fn resolve(file: &StoreFile, times: &Timeouts, mistakes: &mut Mistakes) -> Option<Self> {
        let place: StoreLocation =
            file.place.parse().map_err(|why: String| mistakes.add("store.place", why)).ok()?;
        let mut caps = match place {
            StoreLocation::Off | StoreLocation::Memory => Caps::MEMORY,
            StoreLocation::Sqlite(_) => Caps::DISK,
            StoreLocation::Postgres(_) => Caps::SERVER,
        };
        if !file.ttl.is_zero() {
            caps.ttl = u64::try_from(file.ttl.as_millis()).unwrap_or(u64::MAX);
        }
        if file.max_bytes > 0 {
            caps.bytes = file.max_bytes;
        }
        if file.max_record_bytes > 0 {
            caps.record_bytes = file.max_record_bytes;
        }
        caps.lease = u64::try_from(times.background_lease.as_millis()).unwrap_or(u64::MAX);
        Some(Self { place, required: file.required, caps })
    }
}

fn seal_keys(file: &SealFile, mistakes: &mut Mistakes) -> Option<Arc<Keys>> {
    if file.keys_file.as_os_str().is_empty() {
        return None;
    }
    let keys = secret::read(&file.keys_file).and_then(|text| Keys::parse(&text));
    keys.map(Arc::new).map_err(|why| mistakes.add("seal.keys_file", why)).ok()
}

impl Config {
    /// Loads the configuration from the file, the environment and the flags.
    ///
    /// # Errors
    /// Fails with all mistakes that were found.
    pub fn load(flags: &Overrides) -> Result<Self, Mistakes> {
        let (environment, mut mistakes) = Overrides::environment();
        let path = flags.config.as_deref().or(environment.config.as_deref());
        let name = path.map(|path| path.display().to_string());
        let of_file = FileStamps::of(path);
        let Some(text) = text_of(path, &mut mistakes) else { return Err(mistakes) };
        let folder = path.map(Folder::of).unwrap_or_default();
        let mut merged = Merged::read(name.as_deref(), &text, &folder, mistakes)?;
        let here = Folder::working();
        let layers = [&environment, flags];
        layers.iter().for_each(|layer| layer.apply(&mut merged, &here));
        let path = path.map(Path::to_path_buf);
        let config = Self::of(merged, &layers)?;
        Ok(Self { read: config.read.prepend(of_file), path, ..config })
    }

    /// Parses a configuration from text. Later overrides take precedence, and relative paths are not resolved.
    ///
    /// # Errors
    /// Fails with all mistakes that were found.
    pub fn read(text: &str, overrides: &[&Overrides]) -> Result<Self, Mistakes> {
        let mut merged = Merged::read(None, text, &Folder::default(), Mistakes::default())?;
        overrides.iter().for_each(|layer| layer.apply(&mut merged, &Folder::default()));
        Self::of(merged, overrides)
    }

    fn of(merged: Merged, overrides: &[&Overrides]) -> Result<Self, Mistakes> {
        let (file, origins, mut mistakes) = merged.finish();
        let variables = overrides.iter().map(|layer| &layer.trace);
        let trace = TraceConfig::resolve(&file.trace, variables, &mut mistakes);
        let config = Self::meant(file, trace, &origins, mistakes);
        config.map_err(|mistakes| mistakes.located(&origins)).map(|config| Self { origins, ..config })
    }

    fn meant(
        file: File,
        trace: Option<Arc<TraceConfig>>,
        origins: &Origins,
        mut mistakes: Mistakes,
    ) -> Result<Self, Mistakes> {
        let read = source::marks(None, &file);
        file.check_numbers(&mut mistakes);
        let listen = address("listen", &file.listen, &mut mistakes);
        let admin_listen = address("admin_listen", &file.admin_listen, &mut mistakes);
        keys::check_reach(&file, listen, &mut mistakes);
        check_listeners(listen, admin_listen, origins, &mut mistakes);
        let upstreams = UpstreamConfig::all(&file.upstream, file.checks_keys(), &mut mistakes);
        let own = [("listen", listen), ("admin_listen", admin_listen)];
        for (name, address) in own.into_iter().filter_map(|(name, address)| Some((name, address?))) {
            upstreams::check_loops(upstreams.as_deref().unwrap_or_default(), name, address, &mut mistakes);
        }
        let known = upstreams.as_deref().unwrap_or_default();
        let mut models = ModelConfig::all(&file.model, known, &mut mistakes);
        targets::resolve(&file.model, known, &mut models, &mut mistakes);
        let affinity = Affinity::resolve(&file.affinity, &mut mistakes);
        let layers = Layers::of(&file, listen, &mut mistakes);
        let auth = keys::keyring(&file.auth, &mut mistakes);
        let store = StoreConfig::resolve(&file.store, &file.timeouts, &mut mistakes);
        let place = store.as_ref().map(|store| &store.place);
        let shared_limits = file.shared_limits.resolve(place, &mut mistakes);
        let batch = file.batch.within(store.as_ref(), &mut mistakes);
        let relayed = Relayed::resolve(&file.relay, &mut mistakes);
        let root_path = relay::root_path(&file.root_path, &mut mistakes);
        let cors = Cors::resolve(&file.cors, &mut mistakes);
        let admin_hosts = Hosts::resolve("admin.hosts", &file.admin.hosts, &mut mistakes);
        let seal = seal_keys(&file.seal, &mut mistakes);
        let rules = requests::rules(&file.requests, &file.limits, &mut mistakes);
        let tls = TlsConfig::resolve(&file.tls, &mut mistakes);
        let vocabulary = file.harmony.resolve(&mut mistakes);
        let (Some(listen), Some(admin_listen), Some(upstreams), Some(affinity), Some(store), Some(rules)) =
            (listen, admin_listen, upstreams, affinity, store, rules)
        else {
            return Err(mistakes);
        };
        let cores = || std::thread::available_parallelism().map_or(1, Into::into);
        let this = Self {
            listen,
            admin_listen,
            threads: if file.threads == 0 { cores() } else { file.threads },
            default_model: Some(file.default_model.as_str()).filter(|name| !name.is_empty()).map(Into::into),
            limits: file.limits.clone(),
            timeouts: file.timeouts.clone(),
            tls,
            health: file.health.clone(),
            log: file.log.clone(),
            trace,
            capture: file.capture.clone(),
            contract: file.contract.mode,
            auth,
            azure: file.azure.clone(),
            relayed,
            root_path,
            cors,
            admin_hosts,
            store,
            shared_limits,
            batch,
            seal,
            unreadable_reasoning: file.seal.unreadable_reasoning,
            compaction: file.compaction.clone(),
            codex: file.codex.clone(),
            rules,
            entries: (0..upstreams.len()).map(|at| at..at + 1).collect(),
            upstreams,
            models,
            layers,
            vocabulary,
            affinity,
            retry: file.retry.clone(),
            discovery: file.discovery.clone(),
            file,
            path: None,
            read,
            origins: Origins::default(),
        };
        mistakes.into_result(this)
    }

    /// Returns the effective configuration as TOML, with secrets hidden, and a summary of the keys as comments
    /// before it.
    pub fn shown(&self) -> String {
        let mut file = self.file.clone();
        file.hide();
        if let StoreLocation::Postgres(url) = &self.store.place {
            file.store.place = without_password(url);
        }
        let summary =
            |keys: &Arc<Keyring>| keys::summary(&self.file.auth, keys, &self.store.place, &self.upstreams);
        let auth = self.auth.as_ref().map(summary);
        auth.unwrap_or_default()
            + &targets::summary(&self.models)
            + &toml::to_string(&file).unwrap_or_default()
    }
}

/// Returns a database address with its password hidden, for output that people may share.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(hidden)".to_owned() };
    // Host and database follow the last at sign; a password may contain one.
    match rest.rsplit_once('@') {
        Some((user, place)) => {
            let name = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{scheme}://{name}:(hidden)@{place}")
        }
        None if rest.contains("password=") => format!("{scheme}://(hidden)"),
        None => url.to_owned(),
    }
}

/// Returns the text of the configuration file; empty without a file, `None` if it cannot be read.
fn text_of(path: Option<&Path>, mistakes: &mut Mistakes) -> Option<String> {
    let Some(path) = path else { return Some(String::new()) };
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text));
    let wrong = match read {
        Err(error) => error.to_string(),
        Ok(length) if length as u64 > MAX_FILE => format!("larger than {} MiB", MAX_FILE >> 20),
        Ok(_) => match String::from_utf8(text) {
            Ok(text) => return Some(text),
            Err(_) => "it is not UTF-8".to_owned(),
        },
    };
    mistakes.given(path.display().to_string(), wrong);
    None
}

fn address(path: &str, text: &str, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.or_else(|| mistakes.add_none(path, "must be an address such as 127.0.0.1:8080"))
}

/// Reports a mistake if both listeners would use the same port of the same address.
fn check_listeners(
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    origins: &Origins,
    mistakes: &mut Mistakes,
) {
    let (Some(listen), Some(admin)) = (listen, admin) else { return };
    // A listener on all IPv6 addresses receives IPv4 connections as well.
    let covers = |one: IpAddr, other: IpAddr| one.is_unspecified() && (one.is_ipv6() || other.is_ipv4());
    let (one, other) = (listen.ip(), admin.ip());
    let overlap = one == other || covers(one, other) || covers(other, one);
    if listen.port() == 0 || listen.port() != admin.port() || !overlap {
        return;
    }
    let (path, other) = match origins.has("admin_listen") {
        true => ("admin_listen", format!("listen ({listen})")),
        false => ("listen", format!("admin_listen ({admin})")),
    };
    mistakes.add(path, format!("takes the same port as {other}; give one of them another"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_variables(all: &[(&str, &str)]) -> (Overrides, Mistakes) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Overrides::from_variables(&all.iter().map(owned).collect())
    }

    #[test]
    fn the_environment_names_what_the_flags_name() {
        let (read, mistakes) = from_variables(&[
            ("SAMEWIRE_UPSTREAM", "http://a:1,http://b:2"),
            ("SAMEWIRE_INSECURE_NO_AUTH", "true"),
            ("SAMEWIRE_THREADS", "3"),
            ("SAMEWIRE_ADMIN_HOST", "a,b.c"),
        ]);
        assert_eq!(mistakes, Mistakes::default());
        assert_eq!(read.upstream, ["http://a:1", "http://b:2"]);
        assert_eq!(read.admin_host, ["a", "b.c"]);
        assert_eq!((read.insecure_no_auth, read.threads), (Some(true), Some(3)));
        let (_, mistakes) =
            from_variables(&[("SAMEWIRE_THREADS", "maybe"), ("SAMEWIRE_INSECURE_NO_AUTH", "ture")]);
        let told = "SAMEWIRE_INSECURE_NO_AUTH: must be true or false; is true meant?\nSAMEWIRE_THREADS: must be a whole number";
        assert_eq!(mistakes.to_string(), told);
    }
}
