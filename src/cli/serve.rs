//! `samewire serve`: the proxy.

use super::CommandFailure;
use crate::config::{Config, Overrides};
use crate::server::{self, Listeners, PassedSockets};
use crate::{secret, telemetry};
use clap::Args;
use std::process::ExitCode;

/// Stand between clients and an engine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    #[command(flatten)]
    flags: Overrides,
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

impl Serve {
    /// Returns the flags. Sockets that the service manager has passed replace the addresses, so
    /// that these are judged like others.
    fn flags(&self, sockets: &PassedSockets) -> Result<Overrides, CommandFailure> {
        let (proxy, admin) = sockets.addresses().map_err(CommandFailure::environment)?;
        let passed = [("listen", proxy), ("admin_listen", admin)];
        let passed = passed
            .into_iter()
            .filter_map(|(key, address)| Some((key, address?.to_string())));
        Ok(passed.fold(self.flags.clone(), |flags, (key, address)| {
            flags.with(key, address)
        }))
    }

    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let hidden = secret::hide_memory();
        let sockets = PassedSockets::take().map_err(CommandFailure::environment)?;
        let flags = self.flags(&sockets)?;
        let config = Config::load(&flags).map_err(CommandFailure::usage)?;
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
        if config.file.capture.enabled {
            tracing::warn!("{}", telemetry::CAPTURE_ON);
        }
        server::run(listeners, config, flags).map_err(CommandFailure::environment)?;
        Ok(ExitCode::SUCCESS)
    }
}
