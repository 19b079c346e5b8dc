//! Probes: whether the engine is there, what it is, and which models it has.

use super::{Upstream, models};
use crate::config::Credentials;
use crate::telemetry::Metrics;
use reqwest::header::AUTHORIZATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(5);
/// Until the first good one. An engine takes minutes to load, but may have been there all along.
const EAGER: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a list of models.
const LIST: usize = 1 << 20;

/// Probes for ever.
pub async fn watch(upstream: &Upstream, metrics: &Metrics) {
    let probe = Probe::new(upstream);
    loop {
        let trouble = probe.result().await.err();
        if trouble != upstream.trouble() {
            match trouble {
                Some(why) => tracing::warn!(upstream = upstream.config.name, why, "upstream is not ready"),
                None => tracing::info!(upstream = upstream.config.name, "upstream is ready"),
            }
        }
        upstream.set_trouble(trouble);
        metrics.up.set(trouble.is_none().into());
        tokio::time::sleep(if trouble.is_none() { EVERY } else { EAGER }).await;
    }
}

/// Asks one upstream. Its client is none of the relay's: a probe takes no connection from a request.
struct Probe<'u> {
    upstream: &'u Upstream,
    client: Result<Client, reqwest::Error>,
}

impl<'u> Probe<'u> {
    fn new(upstream: &'u Upstream) -> Self {
        let client = Client::builder()
            .user_agent(concat!("samewire/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            // The engine is where the configuration says, whatever the environment says of proxies.
            .no_proxy()
            .pool_idle_timeout(EVERY / 2)
            .build();
        Self { upstream, client }
    }

    async fn result(&self) -> Result<(), &'static str> {
        let both = async {
            let healthy = self.get("/health").await.map(|response| response.status().as_u16());
            // Servers of other makers have no /health; that they list models is as good.
            let listed = self.list().await;
            match healthy? {
                200..=299 => Ok(()),
                404 | 405 | 501 => listed,
                503 => Err("it says that it is not ready"),
                _ => Err("its health check fails"),
            }
        };
        tokio::time::timeout(PATIENCE, both).await.unwrap_or(Err("it does not answer in time"))
    }

    async fn list(&self) -> Result<(), &'static str> {
        let response = self.get("/v1/models").await?;
        if !response.status().is_success() {
            return Err("it does not list its models");
        }
        let body = body(response).await.ok_or("its list of models breaks off")?;
        let listed = models::read(&body).ok_or("its list of models cannot be read")?;
        let owner = listed.iter().find_map(|model| model.owner.as_deref());
        self.upstream.listed(listed.iter().map(|model| model.id.as_str()), owner);
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Response, &'static str> {
        let config = &self.upstream.config;
        let client = self.client.as_ref().map_err(|_| "this process has no client for probes")?;
        let url = format!("http://{}:{}{}{path}", config.host, config.port, config.prefix);
        let mut request = client.get(url).header("x-request-id", "samewire-probe");
        if let Credentials::Own(key) = &config.auth {
            request = request.header(AUTHORIZATION, key.clone());
        }
        request.send().await.map_err(|error| match error {
            error if error.is_connect() => "it cannot be reached",
            _ => "it does not answer in HTTP",
        })
    }
}

/// The whole body, unless it is too large for a list.
async fn body(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        if body.len() + piece.len() > LIST {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    Some(body)
}
