//! Configuration file: its keys as written, their defaults, and checks that concern the file alone.

use super::batch::BatchFile;
use super::browsers::{AdminFile, CorsFile};
use super::capture::CaptureFile;
use super::discovery::DiscoveryFile;
use super::harmony::HarmonyFile;
use super::limits::{Limits, Timeouts};
use super::mistakes::Mistakes;
use super::pool::{AffinityFile, ModelFile, Retry};
use super::relay::RelayFile;
use super::requests::Requests;
use super::rows::{self, Flag, Rows, table};
use super::shared_limits::SharedLimitsFile;
use super::tls::TlsFile;
use super::tools::{McpFile, ToolsFile};
use super::trace::Trace;
use super::upstream_file::UpstreamFile;
use super::values::{HIDDEN, Hidden, Place, Seconds};
use crate::auth::WhenUsedUp;
use crate::quantity::read_size;
use crate::request::responses::UnreadableReasoning;
use crate::wire::options::{Guard, Options};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toml::{Table, Value};

/// Maximum number of worker threads, far above any number that helps.
const THREADS: usize = 1024;
/// Largest priority of a key, in either direction.
const MAX_PRIORITY: i32 = 1000;
/// Instructions in the model information for the Codex CLI.
const CODEX: &str = "You are a coding agent. You work in the user's terminal, in the folder that the environment \
    context names. Use the shell tool to read files, to change them and to run commands. Read \
    before you change, keep changes small and in the style of the code around them, and run the \
    project's tests or build where there are any. Do not commit, push or delete what you have \
    not made unless the user asks for it. Work until the task is done, and ask only where you \
    cannot go on without an answer. At the end say briefly what you changed, how you checked \
    it, and what is left.";
/// Instructions with which a model summarises a conversation.
const COMPACTION: &str = "Sum up this conversation, so that it can go on from the summary and the user's messages \
    alone. Keep what was decided, found out and done, what tools were called for and what they \
    gave, names, numbers and paths as they are, and what is still open. Write the summary and \
    nothing else.";

table! {
    /// Content of the configuration file, before its values are checked. `config/samewire.toml` explains every key.
    File {
        listen: String = "127.0.0.1:8080".to_owned(), fixed, flag("listen", "ADDRESS", "Where clients connect");
        admin_listen: String = "127.0.0.1:9090".to_owned(), fixed,
            flag("admin-listen", "ADDRESS", "Where health checks and metrics are served");
        insecure_no_auth: bool,
            flag("insecure-no-auth", "", "Serve anybody who can connect, without keys, on an address that other machines can reach");
        threads: usize, fixed, flag("threads", "N", "Threads that serve [default: one for each core]");
        root_path: String, fixed;
        default_model: String;
        wire: Options;
        guard: Guard = Guard::OFF;
        harmony: HarmonyFile, table;
        limits: Limits, table;
        timeouts: Timeouts, table;
        tls: TlsFile, table, fixed;
        health: Health, table;
        log: Log, table;
        trace: Trace, table, fixed;
        capture: CaptureFile, table;
        auth: AuthFile, table;
        azure: Azure, table;
        relay: RelayFile, table;
        cors: CorsFile, table;
        admin: AdminFile, table;
        store: StoreFile, table, fixed;
        shared_limits: SharedLimitsFile, table;
        batch: BatchFile, table;
        seal: SealFile, table;
        compaction: Compaction, table;
        codex: Codex, table;
        requests: Requests, table;
        retry: Retry, table;
        affinity: AffinityFile, table;
        discovery: DiscoveryFile, table;
        tools: ToolsFile, table, fixed;
        upstream: Vec<UpstreamFile>, table;
        model: Vec<ModelFile>, table;
    }
}

table! {
    /// Table `[health]`: settings of the probes that tell if an engine is available.
    Health {
        interval: Seconds = Seconds::of(5), positive;
        timeout: Seconds = Seconds::of(2), positive;
        path: String;
        down_after: u32 = 3, within(1, u32::MAX);
        up_after: u32 = 2, within(1, u32::MAX);
        identify: Seconds = Seconds::of(60);
        engine_load: bool;
    }
}

table! {
    /// Table `[log]`: level and format of the log, and whether it contains addresses and content.
    Log {
        level: LogLevel, fixed,
            flag("log-level", "LEVEL", "The least severe lines that are logged: off, error, warn, info, debug or trace");
        format: LogFormat, fixed,
            flag("log-format", "FORMAT", "The format of the log's lines: json, text, or auto, which is text at a terminal");
        peer: bool;
        content: bool;
    }
}

table! {
    /// Table `[auth]`: the keys of clients. Without any, keys are not checked.
    AuthFile {
        key: Vec<KeyFile>, table;
    }
}

table! {
    /// Entry `[[auth.key]]`: the hash of one client key, with its tenant, models, limits and options.
    KeyFile {
        hash: Hidden;
        name: String;
        tenant: String;
        models: Vec<String>;
        disabled: bool;
        wire: Table;
        requests_per_minute: u32;
        tokens_per_minute: u32;
        concurrency: usize;
        requests_per_day: u64;
        requests_per_month: u64;
        tokens_per_day: u64;
        tokens_per_month: u64;
        when_used_up: WhenUsedUp;
        plan: String;
        models_not_included: Vec<String>;
        capture: bool;
        priority: i32, from(-MAX_PRIORITY, MAX_PRIORITY);
        may_set_priority: bool;
    }
}

table! {
    /// Table `[azure]`: settings of the routes for Azure clients, which have their own paths and headers.
    Azure {
        api_versions: Vec<String>;
        region: String;
        force_store: bool = true;
    }
}

table! {
    /// Table `[store]`: location and limits of the response store; 0 in a limit: the default of the location.
    StoreFile {
        place: Place = Place("memory".to_owned()),
            flag("store", "PLACE", "Where responses are kept: memory, sqlite:PATH, postgres://… or off");
        required: bool;
        ttl: Seconds = Seconds::of(0);
        max_bytes: u64 as "read_size";
        max_record_bytes: u64 as "read_size";
    }
}

table! {
    /// Table `[seal]`: the file of keys that seal reasoning kept by clients, without which the store keeps one; and the
    /// rule for what cannot be opened.
    SealFile {
        keys_file: PathBuf, fixed;
        unreadable_reasoning: UnreadableReasoning;
    }
}

table! {
    /// Table `[compaction]`: the instructions with which a model summarises a conversation.
    Compaction {
        instructions: String = COMPACTION.to_owned();
    }
}

table! {
    /// Table `[codex]`: the instructions in the model information for the Codex CLI.
    Codex {
        instructions: String = CODEX.to_owned();
    }
}

/// Minimum severity of the lines that are logged; `off` logs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogLevel {
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
    /// Returns the flags of all keys.
    pub(super) fn all_flags() -> Vec<Flag> {
        let mut found = Vec::new();
        Self::flags("", &mut found);
        found
    }

    /// Returns the defaults with one entry in each list, so that every key appears.
    pub(super) fn with_one_of_each() -> Self {
        Self {
            auth: AuthFile {
                key: vec![KeyFile::default()],
            },
            tools: ToolsFile {
                mcp: vec![McpFile::default()],
                ..ToolsFile::default()
            },
            upstream: vec![UpstreamFile::default()],
            model: vec![ModelFile::default()],
            ..Self::default()
        }
    }

    /// Fails if the `wire` table of an upstream, model or key is invalid. These tables stay as written until they
    /// are merged, so deserialising the file does not check them.
    pub(super) fn check_overlays(&mut self) -> Result<(), toml::de::Error> {
        self.overlays()
            .try_for_each(|wire| wire.clone().try_into::<Options>().map(|_| ()))
    }

    /// Returns the `wire` tables of upstreams, models and keys.
    fn overlays(&mut self) -> impl Iterator<Item = &mut Table> {
        let keys = self.auth.key.iter_mut().map(|key| &mut key.wire);
        let models = self.model.iter_mut().map(|model| &mut model.wire);
        self.upstream
            .iter_mut()
            .map(|upstream| &mut upstream.wire)
            .chain(models)
            .chain(keys)
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
        for wire in self.overlays() {
            if let Some(salt) = wire
                .get_mut("fingerprint_salt")
                .filter(|salt| salt.as_str() != Some(""))
            {
                *salt = Value::from(HIDDEN);
            }
        }
    }

    /// Reports values that are invalid by themselves: those outside the range of their row, and some others.
    pub(super) fn check_values(&self, mistakes: &mut Mistakes) {
        self.check("", mistakes);
        if self.threads > THREADS {
            mistakes.add(
                "threads",
                format!("must be at most {THREADS}; 0: one for each core"),
            );
        }
        self.discovery.check(mistakes);
        self.timeouts.check_lease(mistakes);
        let names = self
            .auth
            .key
            .iter()
            .enumerate()
            .map(|(at, key)| key.name_at(at));
        self.capture.check(&names.collect::<Vec<_>>(), mistakes);
        if !self.health.path.is_empty() && !is_path(&self.health.path) {
            mistakes.add("health.path", "must be a path such as /ping");
        }
    }
}

impl KeyFile {
    /// Returns the name of the key at this place in the list.
    pub(super) fn name_at(&self, at: usize) -> String {
        if self.name.is_empty() {
            format!("auth.key[{at}]")
        } else {
            self.name.clone()
        }
    }
}

/// Returns true if the text can be the path of a request line, with or without a query.
fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}
