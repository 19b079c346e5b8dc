//! Gateways from PyPI, as their documents say to start them.
//!
//! Takes: a gateway's name and its installed program.
//! Gives: the command that starts it in front of the engine.
//! Remembers: nothing.
//! Never: tunes one. Each runs with its defaults, but for the number of workers, which is that of the other proxies.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Gateways that can be started, by the names that `--gateways` takes.
const KNOWN: [&str; 3] = ["litellm", "vllm-router", "smg"];

#[derive(Clone)]
pub(super) struct Gateway {
    pub(super) name: String,
    pub(super) version: String,
    program: PathBuf,
}

impl Gateway {
    /// Reads `NAME=VERSION=PROGRAM`.
    pub(super) fn read(word: &str) -> io::Result<Self> {
        let mut parts = word.splitn(3, '=');
        let (Some(name), Some(version), Some(program)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(io::Error::other("--gateway NAME=VERSION=PROGRAM"));
        };
        if !KNOWN.contains(&name) {
            return Err(io::Error::other(format!(
                "no such gateway: {name}; known: {}",
                KNOWN.join(" ")
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            program: PathBuf::from(program),
        })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Adds what the gateway needs in order to serve.
    pub(super) fn complete(
        &self,
        command: &mut Command,
        listen: SocketAddr,
        folder: &Path,
        engine: SocketAddr,
        workers: usize,
    ) -> io::Result<()> {
        let port = listen.port().to_string();
        // Metrics listen on a fixed port otherwise.
        let metrics = TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port()
            .to_string();
        if self.name == "litellm" {
            let file = folder.join("litellm.yaml");
            fs::write(&file, litellm_yaml(engine))?;
            command
                // Its list of prices comes from the network otherwise.
                .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
                .env("LITELLM_LOG", "ERROR")
                // Nobody has to show a key to the other proxies either.
                .env(
                    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY",
                    "true",
                )
                .arg("--config")
                .arg(file)
                .args([
                    "--host",
                    "127.0.0.1",
                    "--port",
                    &port,
                    "--num_workers",
                    &workers.to_string(),
                ]);
            return Ok(());
        }
        if self.name == "smg" {
            command.arg("launch");
        }
        command
            .args([
                "--worker-urls",
                &format!("http://{engine}"),
                "--host",
                "127.0.0.1",
                "--port",
                &port,
            ])
            .args(["--policy", "round_robin", "--prometheus-port", &metrics]);
        // The default is a thread for each processor.
        command.env("TOKIO_WORKER_THREADS", workers.to_string());
        Ok(())
    }
}

/// Returns a configuration that forwards every model to the engine.
fn litellm_yaml(engine: SocketAddr) -> String {
    format!(
        "model_list:
  - model_name: \"*\"
    litellm_params: {{ model: \"openai/*\", api_base: \"http://{engine}/v1\", api_key: bench }}
litellm_settings: {{ request_timeout: 600, telemetry: false }}
"
    )
}
