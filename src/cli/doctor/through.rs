//! samewire in front of the examined server, within this process and on loopback alone.

use crate::cli::CommandFailure;
use crate::config::{Config, LogFormat, LogLevel, Overrides};
use crate::server::{self, Listeners, PassedSockets};
use crate::telemetry;
use crate::tls::trusting_nobody;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Proxy that runs until the process ends.
pub(super) struct Proxy {
    /// Base URL for clients.
    pub(super) url: String,
    /// Logging, which stays on as long as the proxy.
    _logging: telemetry::LogGuard,
}

/// Time between two looks whether the proxy is ready.
const LOOK: Duration = Duration::from_millis(50);

impl Proxy {
    /// Starts a proxy with a configuration, on free ports of the loopback address.
    pub(super) fn start(config: &str) -> Result<Self, CommandFailure> {
        let flags = Overrides::default()
            .with("listen", "127.0.0.1:0")
            .with("admin_listen", "127.0.0.1:0");
        let flags = flags.with("threads", 1).with("store.place", "memory");
        let config = Config::read(config, &[&flags]).map_err(CommandFailure::usage)?;
        // Log lines would be within the report.
        let logging = telemetry::start_logging(LogLevel::Error, LogFormat::Auto)
            .map_err(CommandFailure::environment)?;
        let listeners = Listeners::bind(&config, PassedSockets::default())
            .map_err(CommandFailure::environment)?;
        let url = listeners
            .base_url(&config)
            .map_err(CommandFailure::environment)?;
        let thread = std::thread::Builder::new().name("proxy".to_owned());
        thread
            .spawn(move || server::run_on(listeners, config, None))
            .map_err(CommandFailure::environment)?;
        Ok(Self {
            url,
            _logging: logging,
        })
    }

    /// Waits until the proxy has found the engine.
    pub(super) async fn wait_until_ready(&self, limit: Duration) -> Result<(), String> {
        let tls = trusting_nobody().map_err(|error| error.to_string())?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(tls)
            .build();
        let client = client.map_err(|error| error.to_string())?;
        let health = self.url.replacen("/v1", "/health", 1);
        let ready = async {
            while !client
                .get(&health)
                .send()
                .await
                .is_ok_and(|answer| answer.status().is_success())
            {
                sleep(LOOK).await;
            }
        };
        let late = "samewire does not become ready in front of the server: its /health or its list of models does not answer";
        timeout(limit, ready).await.map_err(|_| late.to_owned())
    }
}
