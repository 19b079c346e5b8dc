//! Listening sockets, for clients and for operators, and the base URL under which clients reach the proxy. Never:
//! accepts a connection.

use super::service_manager::PassedSockets;
use crate::config::Config;
use crate::telemetry::Build;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;

/// Path of the inspector's page on the admin listener.
pub(in crate::server) const INSPECTOR_PATH: &str = "/ui/";

/// Open listening sockets of the process, for clients and for operators. Opened before the server runs, so that
/// the caller knows their addresses.
#[derive(Debug)]
pub struct Listeners {
    pub(in crate::server) proxy: std::net::TcpListener,
    pub(in crate::server) admin: std::net::TcpListener,
    /// True if the service manager has opened the clients' listener.
    is_passed: bool,
}

impl Listeners {
    /// Opens the listening addresses of a configuration, except for sockets that the service manager has passed.
    ///
    /// # Errors
    /// Fails if one of them cannot be bound; the error names the address.
    pub fn bind(config: &Config, passed: PassedSockets) -> io::Result<Self> {
        let PassedSockets { proxy, admin } = passed;
        Ok(Self {
            is_passed: proxy.is_some(),
            proxy: proxy.map_or_else(|| bind(config.listen), Ok)?,
            admin: admin.map_or_else(|| bind(config.admin_listen), Ok)?,
        })
    }

    /// Returns how clients' connections are listened for again after a drain.
    ///
    /// # Errors
    /// Fails if the system does not report the address, or has no descriptor left.
    pub(in crate::server) fn reopening(&self) -> io::Result<Reopening> {
        Ok(match self.is_passed {
            true => Reopening::Passed(self.proxy.try_clone()?),
            false => Reopening::At(self.proxy.local_addr()?),
        })
    }

    /// Returns the address to which clients connect, with the port that the system chose if the configuration has
    /// 0.
    ///
    /// # Errors
    /// Fails if the system does not report the address.
    pub fn proxy(&self) -> io::Result<SocketAddr> {
        self.proxy.local_addr()
    }

    /// Returns the base URL for clients, with scheme, address, `root_path` and `/v1`.
    ///
    /// # Errors
    /// Fails if the system does not report the address of the listener.
    pub fn base_url(&self, config: &Config) -> io::Result<String> {
        Ok(base_url(self.proxy()?, None, config))
    }

    /// Returns the URL of the inspector, a page of the admin listener.
    ///
    /// # Errors
    /// Fails if the system does not report the address of the listener.
    pub fn inspector_url(&self) -> io::Result<String> {
        Ok(format!(
            "http://{}{}",
            reachable(self.admin.local_addr()?),
            INSPECTOR_PATH
        ))
    }

    /// Logs the base URL for clients, the version and the URL of the inspector; called before the server runs, so that
    /// these lines come first.
    pub fn announce(&self, config: &Config) {
        let (Ok(address), Ok(base_url)) = (self.proxy(), self.base_url(config)) else {
            return;
        };
        let everywhere = if address.ip().is_unspecified() {
            ", at every address of this machine"
        } else {
            ""
        };
        let version = Build::CURRENT.version;
        tracing::info!(
            version,
            base_url,
            "clients use the base URL {base_url}{everywhere}"
        );
        if let Ok(url) = self.inspector_url() {
            tracing::info!(url, "the inspector is at {url}");
        }
    }
}

/// Returns the base URL for clients that connect to this address. An address that stands for all interfaces is
/// replaced by `host`, or by the loopback address.
pub(in crate::server) fn base_url(
    address: SocketAddr,
    host: Option<&str>,
    config: &Config,
) -> String {
    let scheme = if config.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let root = config.root_path.as_deref().unwrap_or_default();
    if let Some(host) = host.filter(|_| address.ip().is_unspecified()) {
        return format!("{scheme}://{host}:{}{root}/v1", address.port());
    }
    format!("{scheme}://{}{root}/v1", reachable(address))
}

/// Returns the loopback address for an address that stands for all interfaces; another one as it is.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let bound = || {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::STREAM,
            None,
        )?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let told = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    };
    bound().map_err(told)
}

pub(in crate::server) fn listen(
    name: &'static str,
    listener: std::net::TcpListener,
) -> io::Result<TcpListener> {
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?.to_string();
    tracing::info!(listener = name, address, "listening");
    Ok(listener)
}

/// Way to listen for clients again after a drain has closed the listener.
#[derive(Debug)]
pub(in crate::server) enum Reopening {
    /// At this address.
    At(SocketAddr),
    /// On the service manager's socket, which stays open: meanwhile connections wait in its queue.
    Passed(std::net::TcpListener),
}

impl Reopening {
    /// Listens again. Fails if the address cannot be bound any more.
    pub(in crate::server) fn listen(&self) -> io::Result<TcpListener> {
        listen(
            "proxy",
            match self {
                Self::At(address) => bind(*address)?,
                Self::Passed(socket) => socket.try_clone()?,
            },
        )
    }
}
