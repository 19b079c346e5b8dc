//! The file as it is written: its keys and their defaults.

use super::browsers::{AdminFile, CorsFile};
use super::harmony::HarmonyFile;
use super::limits::{Limits, Timeouts};
use super::mistakes::Mistakes;
use super::pool::{AffinityFile, ModelFile, Retry};
use super::relay::RelayFile;
use super::requests::Requests;
use super::tls::TlsFile;
use super::trace::Trace;
use crate::auth::WhenUsedUp;
use crate::quantity::{read_size, read_time};
use crate::request::responses::ResponsesMode;
use crate::wire::options::Options;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;
use std::time::Duration;
use toml::{Table, Value};

/// What stands where a secret is.
pub(super) const HIDDEN: &str = "(hidden)";

/// Threads that nobody needs more of.
const THREADS: usize = 1024;

/// What is on disk. `config/samewire.toml` explains every key.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct File {
    pub listen: String,
    pub admin_listen: String,
    pub insecure_no_auth: bool,
    pub threads: usize,
    pub root_path: String,
    pub default_model: String,
    pub wire: Options,
    pub harmony: HarmonyFile,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub tls: TlsFile,
    pub health: Health,
    pub log: Log,
    pub trace: Trace,
    pub auth: AuthFile,
    pub azure: Azure,
    pub relay: RelayFile,
    pub cors: CorsFile,
    pub admin: AdminFile,
    pub store: StoreFile,
    pub seal: SealFile,
    pub compaction: Compaction,
    pub codex: Codex,
    pub requests: Requests,
    pub retry: Retry,
    pub affinity: AffinityFile,
    pub upstream: Vec<UpstreamFile>,
    pub model: Vec<ModelFile>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            admin_listen: "127.0.0.1:9090".to_owned(),
            insecure_no_auth: false,
            threads: 0,
            root_path: String::new(),
            default_model: String::new(),
            wire: Options::default(),
            harmony: HarmonyFile::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            tls: TlsFile::default(),
            health: Health::default(),
            log: Log::default(),
            trace: Trace::default(),
            auth: AuthFile::default(),
            azure: Azure::default(),
            relay: RelayFile::default(),
            cors: CorsFile::default(),
            admin: AdminFile::default(),
            store: StoreFile::default(),
            seal: SealFile::default(),
            compaction: Compaction::default(),
            codex: Codex::default(),
            requests: Requests::default(),
            retry: Retry::default(),
            affinity: AffinityFile::default(),
            upstream: Vec::new(),
            model: Vec::new(),
        }
    }
}

/// Whether engines are there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Health {
    pub interval: Seconds,
    pub timeout: Seconds,
    pub down_after: u32,
    pub up_after: u32,
    pub identify: Seconds,
    pub engine_load: bool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            interval: Seconds::of(5),
            timeout: Seconds::of(2),
            down_after: 3,
            up_after: 2,
            identify: Seconds::of(60),
            engine_load: false,
        }
    }
}

/// How much is logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Log {
    pub level: Level,
    pub format: LogFormat,
    pub peer: bool,
    pub content: bool,
}

/// Whose keys open.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct AuthFile {
    pub key: Vec<KeyFile>,
}

/// One `[[auth.key]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct KeyFile {
    pub hash: Hidden,
    pub name: String,
    pub tenant: String,
    pub models: Vec<String>,
    pub disabled: bool,
    pub wire: Table,
    pub requests_per_minute: u32,
    pub tokens_per_minute: u32,
    pub concurrency: usize,
    pub requests_per_day: u64,
    pub requests_per_month: u64,
    pub tokens_per_day: u64,
    pub tokens_per_month: u64,
    pub when_used_up: WhenUsedUp,
    pub plan: String,
    pub models_not_included: Vec<String>,
}

/// A text that is read and never told.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { HIDDEN })
    }
}

/// What the routes of Azure's clients say.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Azure {
    pub api_versions: Vec<String>,
    pub region: String,
    pub force_store: bool,
}

impl Default for Azure {
    fn default() -> Self {
        Self { api_versions: Vec::new(), region: String::new(), force_store: true }
    }
}

/// Where responses are kept.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct StoreFile {
    pub place: String,
    pub required: bool,
    pub ttl: Seconds,
    #[serde(deserialize_with = "read_size")]
    pub max_bytes: u64,
    #[serde(deserialize_with = "read_size")]
    pub max_record_bytes: u64,
}

/// Without the place, which may hold a password.
impl std::fmt::Debug for StoreFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreFile").field("required", &self.required).finish_non_exhaustive()
    }
}

impl Default for StoreFile {
    fn default() -> Self {
        Self {
            place: "memory".to_owned(),
            required: false,
            ttl: Seconds::of(0),
            max_bytes: 0,
            max_record_bytes: 0,
        }
    }
}

/// What seals reasoning that clients keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct SealFile {
    pub keys_file: PathBuf,
}

/// How conversations are made short.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Compaction {
    pub instructions: String,
}

/// The facts about models for the Codex CLI.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Codex {
    pub instructions: String,
}

impl Default for Codex {
    fn default() -> Self {
        let instructions = "You are a coding agent. You work in the user's terminal, in the folder that the environment \
                            context names. Use the shell tool to read files, to change them and to run commands. Read \
                            before you change, keep changes small and in the style of the code around them, and run the \
                            project's tests or build where there are any. Do not commit, push or delete what you have \
                            not made unless the user asks for it. Work until the task is done, and ask only where you \
                            cannot go on without an answer. At the end say briefly what you changed, how you checked \
                            it, and what is left.";
        Self { instructions: instructions.to_owned() }
    }
}

impl Default for Compaction {
    fn default() -> Self {
        let instructions = "Sum up this conversation, so that it can go on from the summary and the user's messages \
                            alone. Keep what was decided, found out and done, what tools were called for and what they \
                            gave, names, numbers and paths as they are, and what is still open. Write the summary and \
                            nothing else.";
        Self { instructions: instructions.to_owned() }
    }
}

/// The least severe lines that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Off,
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// The format of the log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// As text at a terminal, else as JSON.
    #[default]
    Auto,
    /// As one JSON object each.
    Json,
    /// As text for people.
    Text,
}

/// One `[[upstream]]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct UpstreamFile {
    pub name: String,
    pub url: String,
    pub engine: String,
    pub engine_version: String,
    pub front_end: FrontEnd,
    pub models: Vec<String>,
    pub weight: u32,
    pub api_key_file: PathBuf,
    pub auth: Auth,
    pub ca_file: PathBuf,
    pub client_cert_file: PathBuf,
    pub client_key_file: PathBuf,
    pub server_name: String,
    pub danger_accept_invalid_certs: bool,
    pub http: HttpVersion,
    pub responses: ResponsesMode,
    pub wire: Table,
}

impl Default for UpstreamFile {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            engine: "auto".to_owned(),
            engine_version: String::new(),
            front_end: FrontEnd::default(),
            models: Vec::new(),
            weight: 1,
            api_key_file: PathBuf::new(),
            auth: Auth::default(),
            ca_file: PathBuf::new(),
            client_cert_file: PathBuf::new(),
            client_key_file: PathBuf::new(),
            server_name: String::new(),
            danger_accept_invalid_certs: false,
            http: HttpVersion::default(),
            responses: ResponsesMode::default(),
            wire: Table::new(),
        }
    }
}

/// In what an engine is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum HttpVersion {
    /// HTTP/1.1: a connection for each request under way.
    #[default]
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2: one connection for many.
    #[serde(rename = "2")]
    Http2,
}

/// What answers in front of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrontEnd {
    /// What is found.
    #[default]
    Auto,
    /// The engine's own.
    Own,
    /// vLLM's in Rust.
    Rust,
}

/// Whose key an engine sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// The proxy's own if a key file is given, else the client's, unless it is one of ours.
    #[default]
    Auto,
    /// The proxy's own.
    Own,
    /// Nobody's.
    None,
    /// The client's.
    Pass,
}

/// A span of time, written in seconds or as a text such as `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl Seconds {
    pub(super) const fn of(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl std::ops::Deref for Seconds {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_time(deserializer).map(Self)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.subsec_nanos() == 0 {
            return serializer.serialize_u64(self.as_secs());
        }
        serializer.serialize_f64(self.as_secs_f64())
    }
}

impl File {
    /// The defaults, with one table in each list: it has every key.
    pub(super) fn with_one_of_each() -> Self {
        Self {
            auth: AuthFile { key: vec![KeyFile::default()] },
            upstream: vec![UpstreamFile::default()],
            model: vec![ModelFile::default()],
            ..Self::default()
        }
    }

    /// Options of one upstream, model or key are kept as written until they are laid over others; they must be options all the
    /// same.
    pub(super) fn check_overlays(&self) -> Result<(), toml::de::Error> {
        let keys = self.auth.key.iter().map(|key| &key.wire);
        let models = self.model.iter().map(|model| &model.wire);
        let mut overlays = self.upstream.iter().map(|upstream| &upstream.wire).chain(models).chain(keys);
        overlays.try_for_each(|wire| wire.clone().try_into::<Options>().map(|_| ()))
    }

    /// There are keys, whether they open or not.
    pub(super) fn checks_keys(&self) -> bool {
        !self.auth.key.is_empty()
    }

    /// Puts something else in the place of secrets.
    pub(super) fn hide(&mut self) {
        if !self.wire.fingerprint_salt.is_empty() {
            HIDDEN.clone_into(&mut self.wire.fingerprint_salt);
        }
        let keys = self.auth.key.iter_mut().map(|key| &mut key.wire);
        let models = self.model.iter_mut().map(|model| &mut model.wire);
        for wire in self.upstream.iter_mut().map(|upstream| &mut upstream.wire).chain(models).chain(keys) {
            if let Some(salt) = wire.get_mut("fingerprint_salt").filter(|salt| salt.as_str() != Some("")) {
                *salt = Value::from(HIDDEN);
            }
        }
    }

    /// Numbers that would make no proxy.
    pub(super) fn check_numbers(&self, mistakes: &mut Mistakes) {
        if self.threads > THREADS {
            mistakes.add("threads", format!("must be at most {THREADS}; 0: one for each core"));
        }
        self.retry.check(mistakes);
        self.limits.check(mistakes);
        self.timeouts.check(mistakes);
        for (key, value) in [("interval", self.health.interval), ("timeout", self.health.timeout)] {
            if value.is_zero() {
                mistakes.add(format!("health.{key}"), "must be more than 0");
            }
        }
        for (key, value) in [("down_after", self.health.down_after), ("up_after", self.health.up_after)] {
            if value == 0 {
                mistakes.add(format!("health.{key}"), "must be at least 1");
            }
        }
    }
}
