//! TLS towards clients: handshakes, and certificates that change while the process runs.
//!
//! A handshake costs more than anything else that a stranger may ask for: there are only so many at once, each has its
//! time, and the end of the process waits for none (faults C23). Files that change are read again for connections that
//! come after that; what is no good is not taken (faults O24).

use super::reload::{UNREAD, in_time};
use super::{App, Phase};
use crate::config::TlsConfig;
use crate::marks::Watch;
use crate::telemetry::Metrics;
use crate::tls::{Identity, IdentityFiles, Socket, Wrong};
use std::io::{self, ErrorKind};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How often it is looked whether a file has changed.
const GLANCE: Duration = Duration::from_secs(1);
/// How long before its end a certificate is warned of, and how often.
const SOON: i64 = 14 * DAY;
const AGAIN: Duration = Duration::from_secs(24 * 60 * 60);
const DAY: i64 = 24 * 60 * 60;

/// Who samewire is, for clients.
pub(super) struct Front {
    files: IdentityFiles,
    identity: RwLock<Identity>,
    places: Semaphore,
    patience: Duration,
}

impl Front {
    pub(super) fn new(config: &TlsConfig, metrics: &Metrics) -> Self {
        metrics.tls.taken(config.identity.ends);
        Self {
            files: config.files.clone(),
            identity: RwLock::new(config.identity.clone()),
            places: Semaphore::new(config.max_handshakes),
            patience: *config.handshake,
        }
    }

    fn identity(&self) -> Identity {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shakes hands with a client, in time or not at all.
    async fn greet(&self, stream: TcpStream) -> io::Result<Socket> {
        let greeted = async {
            let _place = self.places.acquire().await.map_err(io::Error::other)?;
            self.identity().accept(stream).await
        };
        tokio::time::timeout(self.patience, greeted).await.unwrap_or(Err(ErrorKind::TimedOut.into()))
    }

    /// Reads the files anew.
    async fn reload(&self, metrics: &Metrics) {
        let files = self.files.clone();
        let late = || Err(Wrong { key: "cert_file", why: UNREAD.to_owned() });
        match in_time(move || Identity::read(&files)).await.unwrap_or_else(late).and_then(not_over) {
            Ok(identity) => {
                metrics.tls.taken(identity.ends);
                *self.identity.write().unwrap_or_else(PoisonError::into_inner) = identity;
                tracing::info!("TLS: new connections see the new certificate");
            }
            Err(Wrong { key, why }) => {
                metrics.tls.not_taken();
                tracing::error!(key, why, "TLS: the changed files are no good, those before stay in use");
            }
        }
    }
}

/// A certificate that nobody accepts is no better than the one before.
fn not_over(identity: Identity) -> Result<Identity, Wrong> {
    match identity.ends {
        Some(end) if end <= now() => {
            Err(Wrong { key: "cert_file", why: "the certificate has expired".to_owned() })
        }
        _ => Ok(identity),
    }
}

/// Shakes hands with a client where that is asked for. Nothing: it does not get in.
pub(super) async fn greet(app: &App, stream: TcpStream) -> Option<Socket> {
    let Some(front) = &app.front else { return Some(stream.into()) };
    let mut phases = app.course.subscribe();
    let greeted = Box::pin(front.greet(stream));
    let result = tokio::select! {
        result = greeted => result,
        // The sender is the app's.
        _ = phases.wait_for(|phase| *phase >= Phase::Draining) => return None,
    };
    match result {
        Ok(socket) => Some(socket),
        Err(error) => {
            app.metrics.tls.failed();
            tracing::debug!(%error, "TLS: no handshake with a client");
            None
        }
    }
}

/// Looks after the files for ever.
pub(super) async fn tend(front: &Front, metrics: &Metrics) {
    let mut watch = Watch::new(front.identity().marks);
    let mut warned: Option<Instant> = None;
    loop {
        if warned.is_none_or(|warned| warned.elapsed() >= AGAIN) && warn(front.identity().ends) {
            warned = Some(Instant::now());
        }
        tokio::time::sleep(GLANCE).await;
        if watch.look(front.files.marks()) {
            front.reload(metrics).await;
            warned = None;
        }
    }
}

/// Says that a certificate ends soon, or has ended; gives whether it does.
fn warn(ends: Option<i64>) -> bool {
    let Some(left) = ends.map(|end| end - now()) else { return false };
    let days = left.div_euclid(DAY);
    if left <= 0 {
        tracing::error!("TLS: the certificate has expired; clients refuse it");
    } else if left <= SOON {
        tracing::warn!(days, "TLS: the certificate expires soon");
    }
    left <= SOON
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
