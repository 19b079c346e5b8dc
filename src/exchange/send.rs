//! Sending a request and reading its answer through `reqwest`, within bounds.

use super::secrets::Secrets;
use super::{Ended, Exchange, Request, Target};
use crate::capture::RecordedPiece;
use crate::error::innermost_cause;
use crate::tls::{self, client_config, roots, trusting_nobody};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use std::time::Duration;
use thiserror::Error;
use tokio::time::{Instant, timeout, timeout_at};

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time to connect, the TLS handshake included.
    pub connect: Duration,
    /// Time from the request to the head of the answer.
    pub head: Duration,
    /// Time between two pieces of the answer.
    pub idle: Duration,
    /// Time from the request to the end of the answer.
    pub total: Duration,
    /// Bytes of the body.
    pub bytes: usize,
    /// Number of pieces of the body.
    pub pieces: usize,
}

impl Bounds {
    /// Bounds that suit short answers.
    pub const DEFAULT: Self = Self {
        connect: Duration::from_secs(10),
        head: Duration::from_secs(60),
        idle: Duration::from_secs(30),
        total: Duration::from_secs(60),
        bytes: 4 << 20,
        pieces: 50_000,
    };

    /// Returns the default bounds with another total time; no other time is longer than that.
    pub fn within(total: Duration) -> Self {
        let Self { connect, idle, .. } = Self::DEFAULT;
        Self {
            connect: connect.min(total),
            head: total,
            idle: idle.min(total),
            total,
            ..Self::DEFAULT
        }
    }
}

/// Reason why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct Failure {
    /// True if no connection could be made.
    pub unreachable: bool,
    /// Reason in plain words.
    pub why: String,
}

/// Sender of requests to one target.
#[derive(Debug)]
pub struct Sender {
    client: reqwest::Client,
    target: Target,
    bounds: Bounds,
}

impl Sender {
    /// Creates a sender. Redirects are not followed, and no proxy is used.
    ///
    /// # Errors
    /// Fails with the reason if the certificate authorities cannot be read, where the target needs TLS.
    pub fn new(target: Target, bounds: Bounds) -> Result<Self, String> {
        let tls = match target.base().starts_with("https:") {
            true => {
                let name = target
                    .ca_file()
                    .map(|path| format!("{}: ", path.display()))
                    .unwrap_or_default();
                client_config(roots(target.ca_file()).map_err(|why| name + &why)?)
            }
            false => trusting_nobody(),
        };
        let builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .tls_backend_preconfigured(tls.map_err(|error| error.to_string())?)
            .connect_timeout(bounds.connect)
            .pool_max_idle_per_host(0);
        let client = builder.build().map_err(|error| innermost_cause(&error))?;
        Ok(Self {
            client,
            target,
            bounds,
        })
    }

    /// Returns the server that requests go to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns a sender to the same target with other bounds; the time to connect stays.
    #[must_use]
    pub fn with_bounds(&self, bounds: Bounds) -> Self {
        Self {
            client: self.client.clone(),
            target: self.target.clone(),
            bounds,
        }
    }

    /// Sends a request below `/v1` and reads the answer as far as the bounds allow.
    ///
    /// # Errors
    /// Fails if no head of an answer came.
    pub async fn send(&self, request: Request) -> Result<Exchange, Failure> {
        self.send_below(self.target.base(), request).await
    }

    /// Sends a request to one of the engine's own routes, whose path is relative to the server's root.
    ///
    /// # Errors
    /// Fails if no head of an answer came.
    pub async fn send_to_root(&self, request: Request) -> Result<Exchange, Failure> {
        self.send_below(self.target.root(), request).await
    }

    /// Sends a request to the root of the server's host, without the path of the target.
    ///
    /// # Errors
    /// Fails if no head of an answer came.
    pub async fn send_to_origin(&self, request: Request) -> Result<Exchange, Failure> {
        self.send_below(self.target.origin(), request).await
    }

    async fn send_below(&self, root: &str, mut request: Request) -> Result<Exchange, Failure> {
        let url = format!("{root}{}", request.path);
        request.headers = self.headers(&request);
        let sent = self
            .client
            .request(request.method.clone(), &url)
            .headers(request.headers.clone())
            .body(request.body.clone())
            .send();
        let start = Instant::now();
        let response = match timeout(self.bounds.head, sent).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let why = format!("{url}: {}", told(&innermost_cause(&error)));
                return Err(Failure {
                    unreachable: error.is_connect(),
                    why,
                });
            }
            Err(_) => {
                let why = format!(
                    "{url}: no answer within {} s",
                    self.bounds.head.as_secs_f32()
                );
                return Err(Failure {
                    unreachable: false,
                    why,
                });
            }
        };
        request.path = response.url().path().to_owned();
        let mut exchange = Exchange {
            request,
            status: response.status(),
            headers: response.headers().clone(),
            body: Vec::new(),
            pieces: Vec::new(),
            ended: Ended::Clean,
        };
        exchange.ended = self.read(response, start, &mut exchange).await;
        exchange.body.shrink_to_fit();
        exchange.pieces.shrink_to_fit();
        let secrets = Secrets::of(&self.target);
        secrets.mask_headers(&mut exchange.headers);
        secrets.mask_body(&mut exchange.body);
        Ok(exchange)
    }

    fn headers(&self, request: &Request) -> HeaderMap {
        let mut headers = request.headers.clone();
        if !request.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in self.target.headers() {
            headers.insert(name, value.clone());
        }
        headers
    }

    /// Reads the body into one buffer, as a separate piece would cost far more than its bytes.
    async fn read(
        &self,
        mut response: reqwest::Response,
        start: Instant,
        exchange: &mut Exchange,
    ) -> Ended {
        let end = start + self.bounds.total;
        let Exchange { body, pieces, .. } = exchange;
        loop {
            let deadline = end.min(Instant::now() + self.bounds.idle);
            let piece = match timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Ended::Clean,
                Ok(Err(_)) => return Ended::Reset,
                Err(_) if deadline == end => return Ended::TooLong,
                Err(_) => return Ended::Stalled,
            };
            let room = self.bounds.bytes - body.len();
            let kept = piece.get(..room).unwrap_or(&piece);
            body.extend_from_slice(kept);
            pieces.push(RecordedPiece {
                at: start.elapsed(),
                end: body.len(),
            });
            // The clock is read as well: the timer is not polled as long as pieces are ready.
            if kept.len() < piece.len()
                || pieces.len() >= self.bounds.pieces
                || Instant::now() >= end
            {
                return Ended::TooLong;
            }
        }
    }
}

/// Returns a cause with what helps against it, where that is known.
fn told(cause: &str) -> String {
    match tls::remedy(cause) {
        Some(remedy) => format!("{cause}: {}", remedy.replace("ca_file", "--ca-file")),
        None => cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_need_no_global_crypto_provider() {
        for url in ["http://127.0.0.1:1", "https://127.0.0.1:1"] {
            let target = Target::new(url, None, &[]).unwrap();
            assert!(Sender::new(target, Bounds::DEFAULT).is_ok(), "{url}");
        }
    }

    #[test]
    fn no_bound_is_longer_than_the_total() {
        let bounds = Bounds::within(Duration::from_secs(2));
        for time in [bounds.connect, bounds.head, bounds.idle, bounds.total] {
            assert_eq!(time, Duration::from_secs(2));
        }
    }
}
