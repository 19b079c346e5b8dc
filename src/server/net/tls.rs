//! TLS towards clients: handshakes, and certificates that change while the process runs.
//!
//! A handshake is the most expensive thing that a stranger can request. Few are computed at a time, so that other work
//! goes on between them; each has a time limit, and a client that says nothing is evicted like an idle one. The shutdown
//! waits for none (faults C23). Changed files are read again and apply to new connections;
//! invalid files are ignored (faults O24). If a client speaks HTTP without TLS, its first line is read, and the
//! response says what this port speaks.

use super::closing;
use super::connection::LINGER;
use super::connection_state::ConnectionState;
use crate::config::TlsConfig;
use crate::file_watch::ChangeDetector;
use crate::server::App;
use crate::server::file_reading::{UNREAD, in_time};
use crate::server::net::shutdown::Phase;
use crate::telemetry::Metrics;
use crate::tls::{ClientHello, IdentityFiles, ServerIdentity, Socket, TlsFileError};
use crate::wire::fault::{Failure, Fault};
use bytes::BufMut;
use parking_lot::RwLock;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;
/// Time before a certificate's end from which warnings are logged, in seconds.
const WARN_BEFORE_END: i64 = 14 * DAY;
/// Interval between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes read from a client without TLS to see if it speaks HTTP: more than a path may have.
const FIRST_LINE: usize = 16 << 10;
/// Clients without TLS that are answered at the same time. Further ones are closed, since an answer may hold a
/// connection for a second.
const ANSWERED: usize = 64;
/// Message for clients that speak HTTP without TLS.
const PLAIN: &str = "This port speaks HTTPS, and the request came without TLS: the address must begin with https://.";

/// Server certificate and the limits on handshakes. The certificate is replaced when its files change.
pub(in crate::server) struct ServerCertificate {
    files: IdentityFiles,
    identity: RwLock<ServerIdentity>,
    /// Permits to compute a handshake.
    handshakes: Semaphore,
    /// Permits for answers to clients without TLS.
    plain: Semaphore,
    /// Time limit for a handshake.
    time_limit: Duration,
}

impl ServerCertificate {
    pub(in crate::server) fn new(config: &TlsConfig, metrics: &Metrics) -> Self {
        metrics.tls.certificate_loaded(config.identity.ends);
        Self {
            files: config.files.clone(),
            identity: RwLock::new(config.identity.clone()),
            handshakes: Semaphore::new(config.max_handshakes),
            plain: Semaphore::new(ANSWERED),
            time_limit: *config.handshake,
        }
    }

    fn identity(&self) -> ServerIdentity {
        self.identity.read().clone()
    }

    /// Performs the handshake with a client. Fails if it takes too long or the client does not speak TLS; a client
    /// that speaks HTTP receives an error response first.
    async fn handshake_or_answer(&self, stream: TcpStream) -> io::Result<Socket> {
        let begun = tokio::time::timeout(self.time_limit, self.detect_and_handshake(stream)).await;
        match begun.unwrap_or(Err(ErrorKind::TimedOut.into()))? {
            NegotiatedConnection::Tls(socket) => Ok(socket),
            NegotiatedConnection::Plain { stream, is_head } => {
                if let Ok(_permit) = self.plain.try_acquire() {
                    let failure = Failure::from(Fault::InvalidRequest).with_message(PLAIN);
                    let _ =
                        tokio::time::timeout(LINGER, closing::answer(stream, &failure, !is_head))
                            .await;
                }
                Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "the client speaks HTTP without TLS",
                ))
            }
        }
    }

    /// Detects the client's protocol, and performs the handshake if that is TLS.
    async fn detect_and_handshake(
        &self,
        mut stream: TcpStream,
    ) -> io::Result<NegotiatedConnection> {
        let mut first = [0];
        // A TLS record begins with a type below 32; an HTTP method is written in capitals.
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
            let line = first_line(&mut stream).await?;
            let no_tls = || {
                io::Error::new(
                    ErrorKind::InvalidData,
                    "the client speaks neither TLS nor HTTP",
                )
            };
            let method = request_method(&line).ok_or_else(no_tls)?;
            return Ok(NegotiatedConnection::Plain {
                stream,
                is_head: method == "HEAD",
            });
        }
        let hello = ClientHello::read(stream).await?;
        self.handshake(hello).await.map(NegotiatedConnection::Tls)
    }

    /// Performs the handshake with a client whose hello has arrived. A permit is held while samewire's part is computed
    /// and until other tasks of the thread have run, but not while the client's reply is awaited.
    async fn handshake(&self, hello: ClientHello) -> io::Result<Socket> {
        let permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let mut handshake = pin!(self.identity().accept(hello));
        let first_poll = std::future::poll_fn(|cx| Poll::Ready(handshake.as_mut().poll(cx)));
        if let Poll::Ready(result) = first_poll.await {
            return result;
        }
        tokio::task::yield_now().await;
        drop(permit);
        handshake.await
    }

    /// Reads the files again; invalid ones leave the certificate unchanged.
    async fn reload(&self, metrics: &Metrics) {
        let files = self.files.clone();
        let late = || {
            Err(TlsFileError {
                key: "cert_file",
                why: UNREAD.to_owned(),
            })
        };
        match in_time(move || ServerIdentity::read(&files))
            .await
            .unwrap_or_else(late)
            .and_then(reject_expired)
        {
            Ok(identity) => {
                metrics.tls.certificate_loaded(identity.ends);
                *self.identity.write() = identity;
                tracing::info!("TLS: new connections see the new certificate");
            }
            Err(TlsFileError { key, why }) => {
                metrics.tls.certificate_rejected();
                tracing::error!(
                    key,
                    why,
                    "TLS: the changed files are no good, those before stay in use"
                );
            }
        }
    }
}

/// Connection whose protocol is known.
enum NegotiatedConnection {
    Tls(Socket),
    /// The client has sent an HTTP request line without TLS.
    Plain {
        stream: TcpStream,
        is_head: bool,
    },
}

/// Reads up to the end of the first line, at most [`FIRST_LINE`] bytes.
async fn first_line(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(FIRST_LINE);
    while line.len() < FIRST_LINE && !line.contains(&b'\n') {
        if stream.read_buf(&mut (&mut line).limit(FIRST_LINE)).await? == 0 {
            break;
        }
    }
    Ok(line)
}

/// Returns the method if the bytes begin with the request line of HTTP.
fn request_method(bytes: &[u8]) -> Option<&str> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.trim_end().split(' ');
    let (method, _path, version) = (words.next()?, words.next()?, words.next()?);
    let is_request =
        method.bytes().all(|byte| byte.is_ascii_uppercase()) && version.starts_with("HTTP/");
    (is_request && words.next().is_none()).then_some(method)
}

/// Rejects an expired certificate: no client accepts it, so it is no better than the previous one.
fn reject_expired(identity: ServerIdentity) -> Result<ServerIdentity, TlsFileError> {
    match identity.ends {
        Some(end) if end <= now() => Err(TlsFileError {
            key: "cert_file",
            why: "the certificate has expired".to_owned(),
        }),
        _ => Ok(identity),
    }
}

/// Returns the socket of a client, after the handshake if TLS is configured. `None` if that fails, the connection is
/// evicted or the process is draining.
pub(in crate::server) async fn accept_client(
    app: &App,
    stream: TcpStream,
    state: &ConnectionState,
) -> Option<Socket> {
    let Some(certificate) = &app.net.server_certificate else {
        return Some(stream.into());
    };
    let mut phases = app.net.shutdown.subscribe();
    let handshake = Box::pin(certificate.handshake_or_answer(stream));
    let evicted = std::future::poll_fn(|cx| {
        if state.poll_evicted(cx) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    let result = tokio::select! {
        // Bytes that the client has sent count before an eviction.
        biased;
        result = handshake => result,
        () = evicted => return None,
        // The channel cannot close: the app owns the sender.
        _ = phases.wait_for(|phase| *phase >= Phase::Draining) => return None,
    };
    match result {
        Ok(socket) => Some(socket),
        Err(error) => {
            app.metrics.tls.handshake_failed();
            tracing::debug!(%error, "TLS: no handshake with a client");
            None
        }
    }
}

/// Watches the certificate files without end, and warns before the certificate expires.
pub(in crate::server) async fn watch_certificate(
    certificate: &ServerCertificate,
    metrics: &Metrics,
) {
    let mut watch = ChangeDetector::new(certificate.identity().marks);
    let mut warned: Option<Instant> = None;
    loop {
        if warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL)
            && warn_if_expiring(certificate.identity().ends)
        {
            warned = Some(Instant::now());
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
        if watch.poll(certificate.files.stamps()) {
            certificate.reload(metrics).await;
            warned = None;
        }
    }
}

/// Logs a warning if a certificate expires soon or has expired; returns true if so.
fn warn_if_expiring(ends: Option<i64>) -> bool {
    let Some(left) = ends.map(|end| end - now()) else {
        return false;
    };
    let days = left.div_euclid(DAY);
    if left <= 0 {
        tracing::error!("TLS: the certificate has expired; clients refuse it");
    } else if left <= WARN_BEFORE_END {
        tracing::warn!(days, "TLS: the certificate expires soon");
    }
    left <= WARN_BEFORE_END
}

fn now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
