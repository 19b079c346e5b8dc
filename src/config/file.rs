//! Configuration file: its keys as written, their defaults, and checks that concern the file alone.

use super::batch::BatchFile;
use super::browsers::{AdminFile, CorsFile};
use super::capture::CaptureFile;
use super::contract::ContractFile;
use super::discovery::DiscoveryFile;
use super::harmony::HarmonyFile;
use super::limits::{Limits, Timeouts};
use super::mistakes::Mistakes;
use super::pool::{AffinityFile, ModelFile, Retry};
use super::relay::RelayFile;
use super::requests::Requests;
use super::shared_limits::SharedLimitsFile;
use super::tls::TlsFile;
use super::trace::Trace;
use super::upstream_file::UpstreamFile;
use super::values::{HIDDEN, Hidden, Seconds};
use crate::auth::WhenUsedUp;
use crate::quantity::read_size;
use crate::request::responses::UnreadableReasoning;
use crate::wire::options::{Guard, Options};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toml::{Table, Value};

/// Maximum number of worker threads, far above any number that helps.
const THREADS: usize = 1024;

/// Content of the configuration file, before its values are checked. `config/samewire.toml` explains every key.
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
    pub guard: Guard,
    pub harmony: HarmonyFile,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub tls: TlsFile,
    pub health: Health,
    pub log: Log,
    pub trace: Trace,
    pub capture: CaptureFile,
    pub contract: ContractFile,
    pub auth: AuthFile,
    pub azure: Azure,
    pub relay: RelayFile,
    pub cors: CorsFile,
    pub admin: AdminFile,
    pub store: StoreFile,
    pub shared_limits: SharedLimitsFile,
    pub batch: BatchFile,
    pub seal: SealFile,
    pub compaction: Compaction,
    pub codex: Codex,
    pub requests: Requests,
    pub retry: Retry,
    pub affinity: AffinityFile,
    pub discovery: DiscoveryFile,
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
            guard: Guard::OFF,
            harmony: HarmonyFile::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            tls: TlsFile::default(),
            health: Health::default(),
            log: Log::default(),
            trace: Trace::default(),
            capture: CaptureFile::default(),
            contract: ContractFile::default(),
            auth: AuthFile::default(),
            azure: Azure::default(),
            relay: RelayFile::default(),
            cors: CorsFile::default(),
            admin: AdminFile::default(),
            store: StoreFile::default(),
            shared_limits: SharedLimitsFile::default(),
            batch: BatchFile::default(),
            seal: SealFile::default(),
            compaction: Compaction::default(),
            codex: Codex::default(),
            requests: Requests::default(),
            retry: Retry::default(),
            affinity: AffinityFile::default(),
            discovery: DiscoveryFile::default(),
            upstream: Vec::new(),
            model: Vec::new(),
        }
    }
}

/// Table `[health]`: settings of the probes that tell if an engine is available.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Health {
    pub interval: Seconds,
    pub timeout: Seconds,
    pub path: String,
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
            path: String::new(),
            down_after: 3,
            up_after: 2,
            identify: Seconds::of(60),
            engine_load: false,
        }
    }
}

/// Table `[log]`: level and format of the log, and whether it contains addresses and content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Log {
    pub level: Level,
    pub format: LogFormat,
    pub peer: bool,
    pub content: bool,
}

/// Table `[auth]`: the keys of clients. Without any, keys are not checked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct AuthFile {
    pub key: Vec<KeyFile>,
}

/// Entry `[[auth.key]]`: the hash of one client key, with its tenant, models, limits and options.
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
    pub capture: bool,
    pub priority: i32,
    pub may_set_priority: bool,
}

/// Table `[azure]`: settings of the routes for Azure clients, which have their own paths and headers.
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

/// Table `[store]`: location and limits of the response store; 0 in a limit: the default of the location.
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

/// Omits the place, which may contain a password.
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

/// Table `[seal]`: the file of keys that seal reasoning kept by clients, without which the store keeps one; and the
/// rule for what cannot be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct SealFile {
    pub keys_file: PathBuf,
    pub unreadable_reasoning: UnreadableReasoning,
}

/// Table `[compaction]`: the instructions with which a model summarises a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Compaction {
    pub instructions: String,
}

/// Table `[codex]`: the instructions in the model information for the Codex CLI.
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

/// Minimum severity of the lines that are logged; `off` logs nothing.
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

/// Format of log lines, for programs or for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text if stderr is a terminal, else JSON.
    #[default]
    Auto,
    /// JSON, with one object per line.
    Json,
    /// Text for people, with colours at a terminal.
    Text,
}

impl File {
    /// Returns the defaults with one entry in each list, so that every key appears.
    pub(super) fn with_one_of_each() -> Self {
        Self {
            auth: AuthFile { key: vec![KeyFile::default()] },
            upstream: vec![UpstreamFile::default()],
            model: vec![ModelFile::default()],
            ..Self::default()
        }
    }

    /// Fails if the `wire` table of an upstream, model or key is invalid. These tables stay as written until they
    /// are merged, so deserialising the file does not check them.
    pub(super) fn check_overlays(&self) -> Result<(), toml::de::Error> {
        let keys = self.auth.key.iter().map(|key| &key.wire);
        let models = self.model.iter().map(|model| &model.wire);
        let mut overlays = self.upstream.iter().map(|upstream| &upstream.wire).chain(models).chain(keys);
        overlays.try_for_each(|wire| wire.clone().try_into::<Options>().map(|_| ()))
    }

    /// Returns true if the file contains keys, even if all of them are disabled.
    pub(super) fn checks_keys(&self) -> bool {
        !self.auth.key.is_empty()
    }

    /// Replaces secrets by [`HIDDEN`], before the configuration is printed.
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

    /// Reports numbers outside their valid range: threads, retries, limits, times and probes.
    pub(super) fn check_numbers(&self, mistakes: &mut Mistakes) {
        if self.threads > THREADS {
            mistakes.add("threads", format!("must be at most {THREADS}; 0: one for each core"));
        }
        self.retry.check(mistakes);
        self.discovery.check(mistakes);
        self.limits.check(mistakes);
        self.timeouts.check(mistakes);
        let names = self.auth.key.iter().enumerate().map(|(at, key)| key.name_at(at));
        self.capture.check(&names.collect::<Vec<_>>(), mistakes);
        for (key, value) in [("interval", self.health.interval), ("timeout", self.health.timeout)] {
            if value.is_zero() {
                mistakes.add(format!("health.{key}"), "must be more than 0");
            }
        }
        if !self.health.path.is_empty() && !is_path(&self.health.path) {
            mistakes.add("health.path", "must be a path such as /ping");
        }
        for (key, value) in [("down_after", self.health.down_after), ("up_after", self.health.up_after)] {
            if value == 0 {
                mistakes.add(format!("health.{key}"), "must be at least 1");
            }
        }
    }
}

/// Returns true if the text can be the path of a request line, with or without a query.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}
