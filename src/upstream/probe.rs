//! Probe of an upstream: requests to its routes, and a verdict on the replies.
//!
//! Takes: an upstream. Gives: the replies of its routes, and whether it is up. Remembers: what this probe has learned
//! about the engine.

use super::models::{self, ListedModel};
use super::{DetectedEngine, Evidence, Hops, Outgoing, Upstream};
use crate::engine::template::REQUEST_ID;
use crate::engine::{self, Engine};
use crate::error::{RetryClass, Side};
use crate::request::EngineBody;
use crate::secret::Secret;
use crate::telemetry::Propagation;
use bytes::{Bytes, BytesMut};
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
    /// Status of the reply that made the probe fail, for the log.
    pub(super) status: Option<u16>,
}

/// Reply of a route.
#[derive(Debug)]
pub(super) struct ProbeReply {
    pub(super) status: u16,
    /// Complete body; `None` if it exceeds the limit or broke off.
    pub(super) body: Option<BytesMut>,
}

impl ProbeReply {
    /// Returns the body of a reply with status 200.
    pub(super) fn good(&self) -> Option<&[u8]> {
        self.body.as_deref().filter(|_| self.status == 200)
    }
}

impl<'u> Probe<'u> {
    pub(super) fn new(upstream: &'u Upstream, patience: Duration) -> Self {
        Self {
            upstream,
            timeout: patience,
            owner: None,
            server: None,
            cause: None,
            status: None,
        }
    }

    /// Asks the upstream for its list of models and, where it has one, for its health check. `path`: a route that is
    /// requested in place of the engine's own; empty: none.
    pub(super) async fn check(&mut self, path: &str) -> Result<(), ProbeFailure> {
        self.status = None;
        let listed = self.list().await;
        if listed == Err(LOOP) {
            return listed;
        }
        let known = match self.upstream.detected() {
            DetectedEngine {
                identity,
                evidence: Evidence::Route(_) | Evidence::Configuration,
                ..
            } => Some(identity.engine),
            // A gateway's answers have the marks of its engine, but the gateway has its own health check.
            _ => self.owner,
        };
        let own = known.and_then(|engine| engine.detection.health);
        let route = match (path, own) {
            ("", Some(own)) => own,
            // Of a gateway that nobody knows, /health may run each of its models, for which somebody pays.
            ("", None) if !self.lacks_list() => return listed,
            ("", None) => "/health",
            (path, _) => path,
        };
        let status = self.get(route).await?.status;
        let failure = match status {
            200..=299 | 401 | 403 => return Ok(()),
            400..=499 | 501 => return listed,
            503 => ProbeFailure::Refuses,
            _ => ProbeFailure::Bad("its health check fails"),
        };
        self.status = Some(status);
        Err(failure)
    }

    /// Returns true if the upstream has answered the request for its models, but has no such route.
    fn lacks_list(&self) -> bool {
        self.status
            .is_some_and(|status| status < 500 || status == 501)
    }

    async fn list(&mut self) -> Result<(), ProbeFailure> {
        let ProbeReply { status, body } = self.get("/v1/models").await?;
        let failure = match status {
            200..=299 => match body.map(|body| models::read(&body)) {
                Some(Some(listed)) => {
                    self.note_list(&listed);
                    return Ok(());
                }
                Some(None) => ProbeFailure::Bad("its list of models cannot be read"),
                None => ProbeFailure::Bad("its list of models breaks off"),
            },
            // A server that asks for a key is up.
            401 | 403 => {
                if self.upstream.config.auth.own_key().is_some() {
                    self.upstream.mark_mismatch("its key was refused");
                }
                return Ok(());
            }
            503 => ProbeFailure::Refuses,
            508 => LOOP,
            _ => ProbeFailure::Bad("it does not list its models"),
        };
        self.status = Some(status);
        Err(failure)
    }

    fn note_list(&mut self, listed: &[ListedModel]) {
        self.owner = listed
            .iter()
            .find_map(|model| engine::recognised(model.owner.as_deref()?));
        self.upstream.listed(listed);
        let configured = &self.upstream.config.models;
        if !configured.is_empty() && !listed.iter().any(|model| configured.contains(&model.id)) {
            self.upstream
                .mark_mismatch("it lists none of the models that the configuration names");
        }
    }

    /// Sends a GET for a route and returns the reply, whatever its status. Fails if no answer comes back.
    pub(super) async fn get(&mut self, path: &str) -> Result<ProbeReply, ProbeFailure> {
        let authorization = self.upstream.config.auth.own_key().map(Secret::value);
        self.send(Outgoing {
            accept: HeaderValue::from_static("*/*"),
            ..outgoing("GET", path, authorization)
        })
        .await
    }

    /// Sends a POST with a JSON body and returns the reply, whatever its status. Fails if no answer comes back.
    pub(super) async fn post(
        &mut self,
        path: &str,
        body: String,
        authorization: Option<HeaderValue>,
    ) -> Result<ProbeReply, ProbeFailure> {
        self.send(Outgoing {
            content_type: Some(Outgoing::JSON),
            body: Bytes::from(body).into(),
            ..outgoing("POST", path, authorization)
        })
        .await
    }

    async fn send(&mut self, request: Outgoing) -> Result<ProbeReply, ProbeFailure> {
        let probes = &self.upstream.probes;
        let mut answer = probes.send(&request).await.map_err(|error| {
            self.cause = error.public.cause.map(|cause| cause.into_owned());
            match (error.side, error.class) {
                (Side::Proxy, _) => ProbeFailure::NotSent,
                (_, RetryClass::Unsent) => ProbeFailure::Bad("it cannot be reached"),
                _ => ProbeFailure::Bad("it does not answer in HTTP"),
            }
        })?;
        let server = answer.head.headers.get(http::header::SERVER);
        self.server = server
            .and_then(|name| name.to_str().ok())
            .map(ToOwned::to_owned);
        let (status, body) = (answer.head.status, answer.collect(LIST).await.ok());
        probes.give_back(answer);
        let (upstream, bytes) = (&self.upstream.config.name, body.as_ref().map(BytesMut::len));
        tracing::debug!(
            upstream,
            path = &*request.path,
            status,
            bytes,
            server = self.server,
            "a probe has read a route"
        );
        Ok(ProbeReply { status, body })
    }
}

/// Returns a request of a probe, without a body.
fn outgoing(method: &'static str, path: &str, authorization: Option<HeaderValue>) -> Outgoing {
    Outgoing {
        method,
        path: path.to_owned().into(),
        accept: Outgoing::JSON,
        content_type: None,
        authorization,
        request_id: REQUEST_ID.to_owned(),
        is_retry: false,
        trace: Propagation::Passed(Vec::new()),
        hops: Hops::default(),
        body: EngineBody::default(),
        upload: None,
        recorder: None,
    }
}
