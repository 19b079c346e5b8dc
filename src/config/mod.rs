//! Configuration: [`File`] holds the keys as written, [`Config`] their checked and resolved meaning.
//!
//! Takes: the TOML file, the environment, flags; flags override the environment, which overrides the file. Gives:
//! a [`Config`], or all mistakes at once, each with its line, flag or variable. Only this module reads the
//! environment.

mod addresses;
mod batch;
mod browsers;
mod capture;
mod discovery;
mod environment;
mod file;
mod flags;
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
mod reload;
mod requests;
mod rows;
mod shared_limits;
mod targets;
mod tls;
mod tools;
mod trace;
mod upstream_file;
mod upstreams;
mod values;

pub use addresses::{admin_address, client_key, clients_url};
pub use batch::BatchFile;
pub use browsers::{AdminFile, Cors, CorsFile, Hosts};
pub use capture::CaptureFile;
pub use discovery::{DiscoveryFile, Pod, Pods};
pub use environment::EnvironmentSettings;
pub use file::{
    AuthFile, Azure, Codex, Compaction, File, Health, KeyFile, Log, LogFormat, LogLevel, SealFile,
    StoreFile,
};
pub use flags::Overrides;
pub use harmony::HarmonyFile;
pub use keys::names_of_keys;
pub use layers::Layers;
pub use limits::{Limits, Timeouts};
pub use mistakes::Mistakes;
pub use pool::{
    Affinity, AffinityFile, By, ModelConfig, ModelFile, Retry, TargetConfig, TargetFile,
};
pub use relay::{RelayFile, Relayed};
pub use requests::{MediaUrls, Requests};
pub use shared_limits::{SharedLimitsFile, WhenAway};
pub use tls::{TlsConfig, TlsFile, TlsVersion};
pub use tools::{ApprovalRule, McpConfig, McpEndpoint, McpFile, ToolsConfig, ToolsFile};
pub use trace::{Trace, TraceConfig, TraceVariables};
pub use upstream_file::{Auth, FrontEnd, HttpVersion, UpstreamFile};
pub use upstreams::{Credentials, UpstreamConfig};
pub use values::{Hidden, Place, Seconds};

use crate::auth::Keyring;
use crate::file_watch::FileStamps;
use crate::request::Rules;
use crate::request::responses::UnreadableReasoning;
use crate::seal::SealKeys;
use crate::secret;
use crate::store::{StoreCaps, StoreLocation};
use crate::wire::Vocabulary;
use crate::wire::options::Options;
use merged::Merged;
use origins::Origins;
use paths::Folder;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::{Table, Value};

/// Size limit of the configuration file in bytes, far above what thousands of engines need.
const MAX_FILE: u64 = 16 << 20;

#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads the environment"
)]
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
            plain: variable("NO_COLOR").is_some()
                || variable("TERM").is_some_and(|term| term == "dumb"),
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
    let overlaid = |value| {
        let mut over = Table::new();
        merged::put(&mut over, &merged::steps(name), value);
        overlay(options, &over)
    };
    let result = match value {
        Some(value) => overlaid(value).or_else(|_| overlaid(as_text)),
        None => overlaid(as_text),
    };
    result.map_err(|error| {
        (
            format!("--set {name}"),
            mistakes::explain(error.message(), "option"),
        )
    })
}

/// Returns the options with the given keys replaced. Fails on unknown keys and values of a wrong type.
fn overlay(options: &Options, over: &Table) -> Result<Options, toml::de::Error> {
    let mut table = Value::try_from(options).unwrap_or_else(|_| Value::Table(Table::new()));
    merged::merge(&mut table, Value::Table(over.clone()));
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
    /// Log settings: level, format, and optional content.
    pub log: Log,
    /// Trace export settings; `None`: traces are not recorded here.
    pub trace: Option<Arc<TraceConfig>>,
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
    pub seal: Option<Arc<SealKeys>>,
    /// Rule for sealed reasoning that cannot be opened.
    pub unreadable_reasoning: UnreadableReasoning,
    /// Checks that client requests have to pass, shared by all threads.
    pub rules: Arc<Rules>,
    /// Engines that requests are sent to; at least one.
    pub upstreams: Vec<UpstreamConfig>,
    /// Places of the upstreams of each entry `[[upstream]]`: one, or those of the pods for which it stands.
    pub entries: Vec<Range<usize>>,
    /// Models with their own settings, such as aliases and defaults.
    pub models: Vec<ModelConfig>,
    /// Options of the wire format, per upstream, model and key.
    pub layers: Layers,
    /// Vocabulary of Harmony tokens, to decode the token ids of gpt-oss; optional.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// Tools that samewire runs; `None`: none.
    pub tools: Option<Arc<ToolsConfig>>,
    /// Rule that keeps related requests on one upstream, for its prefix cache.
    pub affinity: Affinity,
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
    /// Limits on the size and lifetime of stored data, on leases of background jobs, and on one operation.
    pub caps: StoreCaps,
}

impl StoreConfig {
    fn resolve(file: &StoreFile, times: &Timeouts, mistakes: &mut Mistakes) -> Option<Self> {
        let place: StoreLocation = file
            .place
            .0
            .parse()
            .map_err(|why: String| mistakes.add("store.place", why))
            .ok()?;
        let mut caps = match place {
            StoreLocation::Off | StoreLocation::Memory => StoreCaps::MEMORY,
            StoreLocation::Sqlite(_) => StoreCaps::DISK,
            StoreLocation::Postgres(_) => StoreCaps::SERVER,
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
        caps.deadline = *times.store_call;
        Some(Self {
            place,
            required: file.required,
            caps,
        })
    }
}

fn seal_keys(file: &SealFile, mistakes: &mut Mistakes) -> Option<Arc<SealKeys>> {
    if file.keys_file.as_os_str().is_empty() {
        return None;
    }
    let keys = secret::read(&file.keys_file).and_then(|text| SealKeys::parse(&text));
    keys.map(Arc::new)
        .map_err(|why| mistakes.add("seal.keys_file", why))
        .ok()
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
        let Some(text) = text_of(path, &mut mistakes) else {
            return Err(mistakes);
        };
        let folder = path.map(Folder::of).unwrap_or_default();
        let mut merged = Merged::read(name.as_deref(), &text, &folder, mistakes)?;
        let here = Folder::working();
        let layers = [&environment, flags];
        layers
            .iter()
            .for_each(|layer| layer.apply(&mut merged, &here));
        let path = path.map(Path::to_path_buf);
        let config = Self::of(merged, &layers)?;
        Ok(Self {
            read: config.read.prepend(of_file),
            path,
            ..config
        })
    }

    /// Parses a configuration from text. Later overrides take precedence, and relative paths are not resolved.
    ///
    /// # Errors
    /// Fails with all mistakes that were found.
    pub fn read(text: &str, overrides: &[&Overrides]) -> Result<Self, Mistakes> {
        let mut merged = Merged::read(None, text, &Folder::default(), Mistakes::default())?;
        overrides
            .iter()
            .for_each(|layer| layer.apply(&mut merged, &Folder::default()));
        Self::of(merged, overrides)
    }

    fn of(merged: Merged, overrides: &[&Overrides]) -> Result<Self, Mistakes> {
        let (file, origins, mut mistakes) = merged.finish();
        let trace = TraceConfig::resolve(
            &file.trace,
            overrides.iter().map(|layer| &layer.trace),
            &mut mistakes,
        );
        let config = Self::meant(file, trace, origins.clone(), mistakes);
        config.map_err(|mistakes| mistakes.located(&origins))
    }

    fn meant(
        file: File,
        trace: Option<Arc<TraceConfig>>,
        origins: Origins,
        mut mistakes: Mistakes,
    ) -> Result<Self, Mistakes> {
        let read = reload::marks(None, &file);
        file.check_values(&mut mistakes);
        let listen = address("listen", &file.listen, &mut mistakes);
        let admin_listen = address("admin_listen", &file.admin_listen, &mut mistakes);
        keys::check_reach(&file, listen, &mut mistakes);
        check_listeners(listen, admin_listen, &origins, &mut mistakes);
        let upstreams = UpstreamConfig::all(&file.upstream, file.checks_keys(), &mut mistakes);
        let own = [("listen", listen), ("admin_listen", admin_listen)];
        for (name, address) in own
            .into_iter()
            .filter_map(|(name, address)| Some((name, address?)))
        {
            upstreams::check_loops(
                upstreams.as_deref().unwrap_or_default(),
                name,
                address,
                &mut mistakes,
            );
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
        let tools = file.tools.resolve(&mut mistakes).map(Arc::new);
        let (
            Some(listen),
            Some(admin_listen),
            Some(upstreams),
            Some(affinity),
            Some(store),
            Some(rules),
        ) = (listen, admin_listen, upstreams, affinity, store, rules)
        else {
            return Err(mistakes);
        };
        let cores = || std::thread::available_parallelism().map_or(1, Into::into);
        let this = Self {
            listen,
            admin_listen,
            threads: if file.threads == 0 {
                cores()
            } else {
                file.threads
            },
            default_model: Some(file.default_model.as_str())
                .filter(|name| !name.is_empty())
                .map(Into::into),
            limits: file.limits.clone(),
            timeouts: file.timeouts.clone(),
            tls,
            log: file.log.clone(),
            trace,
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
            rules,
            entries: (0..upstreams.len()).map(|at| at..at + 1).collect(),
            upstreams,
            models,
            layers,
            vocabulary,
            tools,
            affinity,
            file,
            path: None,
            read,
            origins,
        };
        mistakes.into_result(this)
    }

    /// Returns the effective configuration as TOML, with secrets hidden, and a summary of the keys as comments
    /// before it.
    pub fn shown(&self) -> String {
        let mut file = self.file.clone();
        file.hide();
        if let StoreLocation::Postgres(url) = &self.store.place {
            file.store.place = Place(without_password(url));
        }
        let summary = |keys: &Arc<Keyring>| {
            keys::summary(&self.file.auth, keys, &self.store.place, &self.upstreams)
        };
        let auth = self.auth.as_ref().map(summary);
        auth.unwrap_or_default()
            + &targets::summary(&self.models)
            + &tools::summary(self.tools.as_deref())
            + &toml::to_string(&file).unwrap_or_default()
    }
}

/// Returns a database address with its password hidden, for output that people may share.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "(hidden)".to_owned();
    };
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
    let Some(path) = path else {
        return Some(String::new());
    };
    let text = bounded_text(path, MAX_FILE);
    text.map_err(|why| mistakes.given(path.display().to_string(), why))
        .ok()
}

/// Reads a text file of at most `most` bytes, or returns why that is impossible.
fn bounded_text(path: &Path, most: u64) -> Result<String, String> {
    let mut text = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut text));
    match read {
        Err(error) => Err(error.to_string()),
        Ok(length) if length as u64 > most => Err(format!("larger than {} MiB", most >> 20)),
        Ok(_) => String::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned()),
    }
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
    let (Some(listen), Some(admin)) = (listen, admin) else {
        return;
    };
    // A listener on all IPv6 addresses receives IPv4 connections as well.
    let covers =
        |one: IpAddr, other: IpAddr| one.is_unspecified() && (one.is_ipv6() || other.is_ipv4());
    let (one, other) = (listen.ip(), admin.ip());
    let overlap = one == other || covers(one, other) || covers(other, one);
    if listen.port() == 0 || listen.port() != admin.port() || !overlap {
        return;
    }
    let (path, other) = match origins.has("admin_listen") {
        true => ("admin_listen", format!("listen ({listen})")),
        false => ("listen", format!("admin_listen ({admin})")),
    };
    mistakes.add(
        path,
        format!("takes the same port as {other}; give one of them another"),
    );
}
