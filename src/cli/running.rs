//! Connection to a running samewire, shared by the commands that control one.

use super::{CommandFailure, runtime};
use crate::config::{Overrides, admin_address};
use crate::error::innermost_cause;
use crate::tls::trusting_nobody;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit of connecting to the admin listener.
const CONNECT: Duration = Duration::from_secs(5);

/// The address of a running samewire.
#[derive(Debug, Args)]
pub(super) struct Running {
    /// Where the running samewire serves operators [default: as configured, else 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// The configuration file of the running samewire
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Running {
    /// Runs a command with a client for the admin listener, and returns its exit code.
    pub(super) fn run_with_admin(
        &self,
        command: impl AsyncFnOnce(&Admin) -> Result<ExitCode, CommandFailure>,
    ) -> Result<ExitCode, CommandFailure> {
        let mut flags = Overrides {
            config: self.config.clone(),
            ..Overrides::default()
        };
        if let Some(address) = &self.admin_listen {
            flags = flags.with("admin_listen", address.as_str());
        }
        let address = admin_address(&flags).map_err(CommandFailure::usage)?;
        let tls = trusting_nobody().map_err(CommandFailure::environment)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(tls);
        let client = client.connect_timeout(CONNECT).build();
        let client = client.map_err(CommandFailure::environment)?;
        runtime()?.block_on(command(&Admin { client, address }))
    }
}

/// HTTP client for the admin listener of a running samewire.
#[derive(Debug)]
pub(super) struct Admin {
    client: reqwest::Client,
    address: SocketAddr,
}

impl Admin {
    /// Returns a `GET` request for a path of the admin listener.
    pub(super) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address))
    }

    /// Returns a `POST` request for a path of the admin listener.
    pub(super) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.post(format!("http://{}{path}", self.address))
    }

    /// Returns the failure of a command whose request did not reach the admin listener.
    pub(super) fn unreachable(&self, error: &reqwest::Error) -> CommandFailure {
        let cause = innermost_cause(error);
        CommandFailure::environment(format_args!(
            "no samewire serves operators on {}: {cause}",
            self.address
        ))
    }
}
