//! Probe of an upstream: requests to its routes, and a verdict on the replies.
//!
//! Takes: an upstream. Gives: the replies of its routes, and whether it is up. Remembers: what this probe has learned
//! about the engine.

use super::{Hops, Outgoing, Upstream, models};
use crate::config::Credentials;
use crate::engine::{self, Engine};
use crate::error::{RetryClass, Side};
use crate::request::EngineBody;
use crate::telemetry::Propagation;
use bytes::BytesMut;
use http::HeaderValue;
use std::time::Duration;

/// Upper limit for the bytes of a reply to a probe.
const LIST: usize = 1 << 20;

/// Reason why a probe has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeFailure {
    /// The engine answered 503: it says itself that it is not ready.
    Refuses,
    /// No answer within the time for a probe.
    Silent,
    /// No probe was sent: this process has no descriptor or memory for another connection.
    NotSent,
    /// Any other reason, with its text.
    Bad(&'static str),
}

/// The probe has reached this process: the upstream's address leads back to samewire.
const LOOP: ProbeFailure = ProbeFailure::Bad("it leads to samewire itself");

impl ProbeFailure {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Refuses => "it says that it is not ready",
            Self::Silent => "it does not answer in time",
            Self::NotSent => "the proxy has no room for another connection",
            Self::Bad(why) => why,
        }
    }
}

/// Probe of one upstream: requests its routes over a connection that serves nothing else, so that all replies come
/// from the same engine.
pub(super) struct Probe<'u> {
    pub(super) upstream: &'u Upstream,
    pub(super) timeout: Duration,
    /// Engine that the `owned_by` of the listed models names.
    pub(super) owner: Option<&'static Engine>,
    /// Value of the header `server` in the last reply.
    pub(super) server: Option<String>,
    /// Error of the system or of TLS that made the probe fail, for the log.
    pub(super) cause: Option<String>,
}

/// Reply of a route.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Complete body; `None` if it exceeds the limit or broke off.
    pub(super) body: Option<BytesMut>,
}

impl Reply {
    /// Returns the body of a reply with status 200.
    pub(super) fn good(&self) -> Option<&[u8]> {
        self.body.as_deref().filter(|_| self.status == 200)
    }
}

impl<'u> Probe<'u> {
    pub(super) fn new(upstream: &'u Upstream, patience: Duration) -> Self {
        Self { upstream, timeout: patience, owner: None, server: None, cause: None }
    }

    pub(super) async fn check(&mut self) -> Result<(), ProbeFailure> {
        let healthy = self.get("/health").await.map(|reply| reply.status);
        // Engines of other makers have no /health, or require a key for it; a list of models is as good a sign.
        let listed = self.list().await;
        if listed == Err(LOOP) {
            return listed;
        }
        match healthy? {
            200..=299 => Ok(()),
            400..=499 | 501 => listed,
            503 => Err(ProbeFailure::Refuses),
            _ => Err(ProbeFailure::Bad("its health check fails")),
        }
    }

    async fn list(&mut self) -> Result<(), ProbeFailure> {
        let Reply { status, body } = self.get("/v1/models").await?;
        // The engine is up, but requires a key that only clients have.
        if matches!(status, 401 | 403) && !matches!(self.upstream.config.auth, Credentials::Own(_)) {
            return Ok(());
        }
        if status == 508 {
            return Err(LOOP);
        }
        if !(200..=299).contains(&status) {
            return Err(ProbeFailure::Bad("it does not list its models"));
        }
        let body = body.ok_or(ProbeFailure::Bad("its list of models breaks off"))?;
        let listed = models::read(&body).ok_or(ProbeFailure::Bad("its list of models cannot be read"))?;
        self.owner = listed.iter().find_map(|model| engine::recognised(model.owner.as_deref()?));
        self.upstream.listed(&listed);
        let configured = &self.upstream.config.models;
        if !configured.is_empty() && !listed.iter().any(|model| configured.contains(&model.id)) {
            self.upstream.mark_mismatch("it lists none of the models that the configuration names");
        }
        Ok(())
    }

    /// Sends a GET for a route and returns the reply, whatever its status. Fails if no answer comes back.
    pub(super) async fn get(&mut self, path: &'static str) -> Result<Reply, ProbeFailure> {
        let authorization = match &self.upstream.config.auth {
            Credentials::Own(key) => Some(key.value()),
            _ => None,
        };
        let request = Outgoing {
            method: "GET",
            path: path.into(),
            accept: HeaderValue::from_static("*/*"),
            content_type: None,
            authorization,
            request_id: "samewire-probe".to_owned(),
            is_retry: false,
            trace: Propagation::Passed(Vec::new()),
            hops: Hops::default(),
            body: EngineBody::default(),
            upload: None,
            recorder: None,
        };
        let probes = &self.upstream.probes;
        let mut answer = probes.send(&request).await.map_err(|error| {
            self.cause = error.source.map(|cause| cause.to_string());
            match (error.side, error.class) {
                (Side::Proxy, _) => ProbeFailure::NotSent,
                (_, RetryClass::Unsent) => ProbeFailure::Bad("it cannot be reached"),
                _ => ProbeFailure::Bad("it does not answer in HTTP"),
            }
        })?;
        let server = answer.head.headers.get(http::header::SERVER);
        self.server = server.and_then(|name| name.to_str().ok()).map(ToOwned::to_owned);
        let (status, body) = (answer.head.status, answer.collect(LIST).await.ok());
        probes.give_back(answer);
        let (upstream, bytes) = (&self.upstream.config.name, body.as_ref().map(BytesMut::len));
        tracing::debug!(upstream, path, status, bytes, server = self.server, "a probe has read a route");
        Ok(Reply { status, body })
    }
}
