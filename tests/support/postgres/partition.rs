//! TCP relay in front of a PostgreSQL, to simulate network partitions.
#![allow(dead_code, reason = "each test crate uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// State of the relay, which a test changes while the store is connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RelayState {
    /// Forwarding everything.
    Open,
    /// Forwarding nothing, with connections left open.
    Cut,
    /// Closing connections at once.
    Closed,
}

/// Relay to a database, whose state a test can change.
pub struct Partition {
    /// URL of the database through the relay.
    pub url: String,
    /// Current state; tests change it here.
    pub state: watch::Sender<RelayState>,
    /// Number of connections made through the relay.
    pub connections: Arc<AtomicUsize>,
}

impl Partition {
    /// Starts a relay to the server of this URL.
    pub async fn before(url: &str) -> Self {
        let (start, rest) = url.split_once('@').unwrap();
        let (host, database) = rest.split_once('/').unwrap();
        let server: SocketAddr = host.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{start}@{}/{database}", listener.local_addr().unwrap());
        let (way, seen) = watch::channel(RelayState::Open);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(client, server, seen.clone()));
            }
        });
        Self {
            url,
            state: way,
            connections,
        }
    }
}

async fn carry(client: TcpStream, server: SocketAddr, way: watch::Receiver<RelayState>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let mut closing = way.clone();
    tokio::select! {
        () = pump(&mut from_client, &mut to_server, way.clone()) => {}
        () = pump(&mut from_server, &mut to_client, way) => {}
        _ = closing.wait_for(|way| *way == RelayState::Closed) => {}
    }
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut way: watch::Receiver<RelayState>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let open = way.wait_for(|way| *way != RelayState::Cut).await.is_ok();
        if !open || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
