//! Connection to a running samewire, shared by the commands that control one.

use super::{ENVIRONMENT, USAGE, failed};
use crate::config::Overrides;
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
    pub(super) fn ask(&self, ask: impl AsyncFnOnce(&Admin) -> ExitCode) -> ExitCode {
        let flags = Overrides {
            admin_listen: self.admin_listen.clone(),
            config: self.config.clone(),
            ..Overrides::default()
        };
        let address = match flags.admin_address() {
            Ok(address) => address,
            Err(mistakes) => return failed(USAGE, mistakes),
        };
        let client = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT).build();
        let client = client.map_err(|error| error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime.map_err(|error| error.to_string()).and_then(|runtime| Ok((runtime, client?))) {
            Ok((runtime, client)) => runtime.block_on(ask(&Admin { client, address })),
            Err(error) => failed(ENVIRONMENT, error),
        }
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

    /// Reports that the admin listener could not be reached, and returns the exit code.
    pub(super) fn unreachable(&self, error: &reqwest::Error) -> ExitCode {
        let cause = innermost_cause(error);
        failed(ENVIRONMENT, format_args!("no samewire serves operators on {}: {cause}", self.address))
    }
}

/// Returns the message of the innermost cause, such as a refused connection.
fn innermost_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost_cause)
}
