//! Probes: whether the engine is there, what it is, and which models it has.

use super::{Client, Outgoing, Upstream, models};
use crate::config::Credentials;
use crate::telemetry::Metrics;
use crate::wire::fault::Fault;
use bytes::Bytes;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(5);
/// Until the first good one. An engine takes minutes to load, but may have been there all along.
const EAGER: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a list of models.
const LIST: usize = 1 << 20;

/// Probes for ever.
pub async fn watch(client: &Client, upstream: &Upstream, metrics: &Metrics) {
    loop {
        let trouble = probe(client, upstream).await.err();
        if trouble != upstream.trouble() {
            match trouble {
                Some(why) => tracing::warn!(upstream = upstream.config.name, why, "upstream is not ready"),
                None => tracing::info!(upstream = upstream.config.name, "upstream is ready"),
            }
        }
        upstream.set_trouble(trouble);
        metrics.up.set(trouble.is_none().into());
        client.sweep();
        tokio::time::sleep(if trouble.is_none() { EVERY } else { EAGER }).await;
    }
}

async fn probe(client: &Client, upstream: &Upstream) -> Result<(), &'static str> {
    let both = async {
        let healthy = status(client, &request("/health", upstream)).await;
        // Servers of other makers have no /health; that they list models is as good.
        let listed = list(client, upstream).await;
        match healthy {
            Ok(200..=299) => Ok(()),
            Ok(404 | 405 | 501) => listed,
            Ok(503) => Err("it says that it is not ready"),
            Ok(_) => Err("its health check fails"),
            Err(why) => Err(why),
        }
    };
    tokio::time::timeout(PATIENCE, both).await.unwrap_or(Err("it does not answer in time"))
}

async fn status(client: &Client, request: &Outgoing) -> Result<u16, &'static str> {
    let mut answer = client.send(request).await.map_err(why)?;
    let status = answer.head.status;
    if answer.collect(LIST).await.is_ok() {
        client.give_back(answer);
    }
    Ok(status)
}

async fn list(client: &Client, upstream: &Upstream) -> Result<(), &'static str> {
    let mut answer = client.send(&request("/v1/models", upstream)).await.map_err(why)?;
    let status = answer.head.status;
    let Ok(body) = answer.collect(LIST).await else { return Err("its list of models breaks off") };
    client.give_back(answer);
    if !(200..300).contains(&status) {
        return Err("it does not list its models");
    }
    let listed = models::read(&body).ok_or("its list of models cannot be read")?;
    let owner = listed.iter().find_map(|model| model.owner.as_deref());
    upstream.listed(listed.iter().map(|model| model.id.as_str()), owner);
    Ok(())
}

fn why(error: crate::error::Error) -> &'static str {
    match error.public.fault {
        Fault::Unreachable => "it cannot be reached",
        Fault::Timeout => "it does not answer in time",
        _ => "it does not answer in HTTP",
    }
}

/// A request of the proxy's own.
fn request(path: &'static str, upstream: &Upstream) -> Outgoing {
    let authorization = match &upstream.config.auth {
        Credentials::Own(key) => Some(key.clone()),
        Credentials::None | Credentials::Pass => None,
    };
    Outgoing {
        method: "GET",
        path,
        accept: "application/json",
        authorization,
        request_id: "samewire-probe".to_owned(),
        trace: Vec::new(),
        body: Bytes::new(),
    }
}
