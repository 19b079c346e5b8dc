//! Service manager that has started the process, such as systemd: the sockets that it passes, and what it is told.
//!
//! Takes: `LISTEN_FDS` (sd_listen_fds(3)), `NOTIFY_SOCKET` and `WATCHDOG_USEC` (sd_notify(3)). Gives: listening sockets,
//! and messages to the manager; nothing without a manager.
//! Never: fails or stops a running process because nobody listens.

use listenfd::ListenFd;
use sd_notify::NotifyState;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Limit for the messages that wait for a manager that does not read.
const MAX_QUEUED: usize = 16;

/// Listening sockets that the service manager has opened: the clients' first, then the admin listener's.
#[derive(Debug, Default)]
pub struct PassedSockets {
    pub(super) proxy: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
}

impl PassedSockets {
    /// Takes the sockets that were passed to this process; none without a service manager.
    ///
    /// # Errors
    /// Fails if there are more than two, or if one does not listen for TCP connections.
    pub fn take() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        if passed.len() > 2 {
            let count = passed.len();
            let message = format!(
                "LISTEN_FDS: {count} sockets are passed; there are two listeners, first the clients', then the admin \
                 listener's"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut listener = |place, name| {
            let told = |error: io::Error| {
                io::Error::new(
                    error.kind(),
                    format!("LISTEN_FDS: the {name} socket is no TCP listener: {error}"),
                )
            };
            let listener = passed.take_tcp_listener(place).map_err(told)?;
            if let Some(listener) = &listener {
                listener.set_nonblocking(true)?;
            }
            Ok::<_, io::Error>(listener)
        };
        Ok(Self {
            proxy: listener(0, "first")?,
            admin: listener(1, "second")?,
        })
    }

    /// Returns the addresses of the sockets, for clients and for operators.
    ///
    /// # Errors
    /// Fails if the system does not report an address.
    pub fn addresses(&self) -> io::Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        let address = |listener: &Option<TcpListener>| {
            listener.as_ref().map(TcpListener::local_addr).transpose()
        };
        Ok((address(&self.proxy)?, address(&self.admin)?))
    }
}

/// Reports that clients are served at this address.
pub(in crate::server) fn ready(address: SocketAddr) {
    notify(&[
        NotifyState::Ready,
        NotifyState::Status(&format!("serving at {address}")),
    ]);
}

/// Reports that the configuration is being read again; [`reloaded`] follows.
pub(in crate::server) fn reloading() {
    // Managers ignore the message without the time.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Reports that a reload is over, and how it ended.
pub(in crate::server) fn reloaded(is_taken: bool) {
    let status = if is_taken {
        "serving"
    } else {
        "serving; the new configuration is not taken"
    };
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports a drain, after which the process ends if `is_ending`.
pub(in crate::server) fn draining(is_ending: bool) {
    let status = NotifyState::Status("draining");
    if is_ending {
        notify(&[NotifyState::Stopping, status])
    } else {
        notify(&[status])
    }
}

/// Reports that a drain was cancelled.
pub(in crate::server) fn resumed() {
    notify(&[NotifyState::Status("serving")]);
}

/// Reports without end that the process is alive, twice in each period that the manager allows; returns at once if
/// it does not watch.
pub(in crate::server) async fn keep_watchdog() {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else {
        return;
    };
    loop {
        notify(&[NotifyState::Watchdog]);
        tokio::time::sleep(period / 2).await;
    }
}

/// Queue of messages to the manager; `None` without one. A dedicated thread sends them, because sending blocks while the
/// manager does not read.
static MESSAGES: LazyLock<Option<SyncSender<String>>> = LazyLock::new(|| {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (to, messages) = sync_channel::<String>(MAX_QUEUED);
    let send = move || {
        for message in messages {
            if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&message)]) {
                tracing::debug!(%error, "the service manager cannot be told");
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("notify".to_owned())
        .spawn(send);
    thread
        .inspect_err(|error| tracing::warn!(%error, "the service manager cannot be told"))
        .ok()
        .map(|_| to)
});

fn notify(state: &[NotifyState<'_>]) {
    let Some(messages) = &*MESSAGES else { return };
    let lines: Vec<_> = state.iter().map(ToString::to_string).collect();
    if messages.try_send(lines.join("\n")).is_err() {
        tracing::debug!("the service manager does not read: a message is left out");
    }
}
