//! TLS towards clients: handshakes, and certificates that change while the process runs.
//!
//! A handshake costs more than anything else that a stranger may ask for: there are only so many at once, each has its
//! time, and the end of the process waits for none (faults C23). Files that change are read again for connections that
//! come after that; what is no good is not taken (faults O24). Of HTTP without TLS the first line is read, and the answer
//! says what this port speaks.

use super::connection::LINGER;
use super::reload::{UNREAD, in_time};
use super::{App, Phase, closing};
use crate::config::TlsConfig;
use crate::file_watch::Watch;
use crate::telemetry::Metrics;
use crate::tls::{Identity, IdentityFiles, Socket, Wrong};
use crate::wire::fault::{Failure, Fault};
use bytes::BufMut;
use std::io::{self, ErrorKind};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How often it is looked whether a file has changed.
const GLANCE: Duration = Duration::from_secs(1);
/// How long before its end a certificate is warned of, and how often.
const SOON: i64 = 14 * DAY;
const AGAIN: Duration = Duration::from_secs(24 * 60 * 60);
const DAY: i64 = 24 * 60 * 60;
/// Bytes that are read of a client that speaks no TLS, to see whether it speaks HTTP: more than a path may have.
const FIRST_LINE: usize = 16 << 10;
/// Clients without TLS that are answered at once. More are only closed: an answer may hold a connection for a second.
const ANSWERED: usize = 64;
/// The message for clients that speak HTTP without TLS.
const PLAIN: &str =
    "This port speaks HTTPS, and the request came without TLS: the address must begin with https://.";

/// Who samewire is, for clients.
pub(super) struct ServerIdentity {
    files: IdentityFiles,
    identity: RwLock<Identity>,
    places: Semaphore,
    /// Clients that are being told at once that they speak no TLS.
    plain: Semaphore,
    patience: Duration,
}

impl ServerIdentity {
    pub(super) fn new(config: &TlsConfig, metrics: &Metrics) -> Self {
        metrics.tls.taken(config.identity.ends);
        Self {
            files: config.files.clone(),
            identity: RwLock::new(config.identity.clone()),
            places: Semaphore::new(config.max_handshakes),
            plain: Semaphore::new(ANSWERED),
            patience: *config.handshake,
        }
    }

    fn identity(&self) -> Identity {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shakes hands with a client, in time or not at all.
    async fn greet(&self, stream: TcpStream) -> io::Result<Socket> {
        let begun = tokio::time::timeout(self.patience, self.begin(stream)).await;
        match begun.unwrap_or(Err(ErrorKind::TimedOut.into()))? {
            NegotiatedConnection::Tls(socket) => Ok(socket),
            NegotiatedConnection::Plain { stream, is_head } => {
                if let Ok(_place) = self.plain.try_acquire() {
                    let failure = Failure::from(Fault::InvalidRequest).with_message(PLAIN);
                    let _ = tokio::time::timeout(LINGER, closing::answer(stream, &failure, !is_head)).await;
                }
                Err(io::Error::new(ErrorKind::InvalidData, "the client speaks HTTP without TLS"))
            }
        }
    }

    /// Finds out what a client speaks, and shakes hands if that is TLS. The place of a handshake is free afterwards.
    async fn begin(&self, mut stream: TcpStream) -> io::Result<NegotiatedConnection> {
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        let mut first = [0];
        // TLS begins with the number of a kind of record, and no such number is a letter.
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
            let line = first_line(&mut stream).await?;
            let no_tls = || io::Error::new(ErrorKind::InvalidData, "the client speaks neither TLS nor HTTP");
            let method = method(&line).ok_or_else(no_tls)?;
            return Ok(NegotiatedConnection::Plain { stream, is_head: method == "HEAD" });
        }
        self.identity().accept(stream).await.map(NegotiatedConnection::Tls)
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

/// A connection whose protocol is known.
enum NegotiatedConnection {
    Tls(Socket),
    /// The client has sent a request line as it is, without TLS.
    Plain {
        stream: TcpStream,
        is_head: bool,
    },
}

/// Reads to the end of the first line, or as far as a request line may go.
async fn first_line(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(FIRST_LINE);
    while line.len() < FIRST_LINE && !line.contains(&b'\n') {
        if stream.read_buf(&mut (&mut line).limit(FIRST_LINE)).await? == 0 {
            break;
        }
    }
    Ok(line)
}

/// Returns the method, if this begins with the line of an HTTP request.
fn method(bytes: &[u8]) -> Option<&str> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.trim_end().split(' ');
    let (method, _path, version) = (words.next()?, words.next()?, words.next()?);
    let is_request = method.bytes().all(|byte| byte.is_ascii_uppercase()) && version.starts_with("HTTP/");
    (is_request && words.next().is_none()).then_some(method)
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
    let mut phases = app.shutdown.subscribe();
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
pub(super) async fn tend(front: &ServerIdentity, metrics: &Metrics) {
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
