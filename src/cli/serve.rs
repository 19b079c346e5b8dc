//! `samewire serve`: the proxy.

use super::CommandFailure;
use crate::config::{Config, Overrides, Source};
use crate::server::{self, Listeners, PassedSockets};
use crate::{secret, telemetry};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Stand between clients and an engine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    #[command(flatten)]
    pub(super) settings: Settings,
}

const EXAMPLES: &str = "\
Examples:
  samewire serve --upstream http://127.0.0.1:8000
      An engine on this machine; clients use http://127.0.0.1:8080/v1.
  samewire serve --upstream http://vllm:8000 --listen 0.0.0.0:8080 --insecure-no-auth
      In a container, for everybody who can reach it.
  samewire serve --config samewire.toml --listen 0.0.0.0:8080
      For everybody with a key: samewire key new makes them, [[auth.key]] in the file names them.
  samewire serve --upstream http://127.0.0.1:30000 --engine sglang --set reasoning_field=reasoning
      With an option of the wire format.

Health and metrics: GET /livez, /readyz and /metrics on the admin address.";

/// The settings that flags can give; `check` takes the same.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The engine's address, without or with a trailing /v1
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// What the engine is: auto, vllm, sglang, llamacpp, tensorrt_llm, lmdeploy, transformers, litellm, openai, ollama
    /// or generic
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Where clients connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where health checks and metrics are served [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// A name under which the admin address may be asked, beside addresses and localhost, such as samewire.internal
    #[arg(long, value_name = "NAME")]
    admin_host: Vec<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where responses are kept: memory, sqlite:PATH, postgres://… or off [default: memory]
    #[arg(long, value_name = "PLACE")]
    store: Option<String>,
    /// An option of the wire format, such as reasoning_field=reasoning
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<String>,
    /// The least severe lines that are logged: off, error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// The format of the log's lines: json, text, or auto, which is text at a terminal [default: auto]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Serve anybody who can connect, without keys, on an address that other machines can reach
    #[arg(long)]
    insecure_no_auth: bool,
}

impl Settings {
    pub(super) fn source(&self) -> Source {
        Source::new(self.overrides())
    }

    fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            upstream: self.upstream.clone(),
            engine: self.engine.clone(),
            listen: self.listen.clone(),
            admin_listen: self.admin_listen.clone(),
            admin_host: self.admin_host.clone(),
            insecure_no_auth: self.insecure_no_auth.then_some(true),
            threads: self.threads,
            store: self.store.clone(),
            log_level: self.log_level.clone().map(|level| ("--log-level".to_owned(), level)),
            log_format: self.log_format.clone(),
            set: self.set.clone(),
            ..Overrides::default()
        }
    }

    pub(super) fn load(&self) -> Result<Config, CommandFailure> {
        self.source().load().map_err(CommandFailure::usage)
    }
}

impl Serve {
    /// Returns the source of the configuration. Sockets that the service manager has passed stand in place of the
    /// addresses, so that these are judged like others.
    fn source(&self, sockets: &PassedSockets) -> Result<Source, CommandFailure> {
        let (proxy, admin) = sockets.addresses().map_err(CommandFailure::environment)?;
        let mut overrides = self.settings.overrides();
        for (address, passed) in [(&mut overrides.listen, proxy), (&mut overrides.admin_listen, admin)] {
            *address = passed.map(|passed| passed.to_string()).or_else(|| address.take());
        }
        Ok(Source::new(overrides))
    }

    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let hidden = secret::hide_memory();
        let sockets = PassedSockets::take().map_err(CommandFailure::environment)?;
        let source = self.source(&sockets)?;
        let config = source.load().map_err(CommandFailure::usage)?;
        let listeners = Listeners::bind(&config, sockets).map_err(CommandFailure::environment)?;
        let _logging = telemetry::start_logging(config.log.level, config.log.format)
            .map_err(CommandFailure::environment)?;
        telemetry::watch_panics();
        listeners.announce(&config);
        if let Err(error) = hidden {
            tracing::warn!(%error, "others may look into the memory of this process");
        }
        if config.log.content {
            tracing::warn!("{}", telemetry::CONTENT_LOGGED);
        }
        if config.capture.enabled {
            tracing::warn!("{}", telemetry::CAPTURE_ON);
        }
        config.unread_text().iter().for_each(|warning| tracing::warn!("{warning}"));
        server::run(listeners, config, source).map_err(CommandFailure::environment)?;
        Ok(ExitCode::SUCCESS)
    }
}
