//! Accepting: the listeners, the way of a connection to the thread that serves it, and its life there.

use super::connection::{Guarded, Stage};
use super::{App, Phase, Worker};
use crate::config::Config;
use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tower::Service;

/// Open listeners: for clients, and for operators.
#[derive(Debug)]
pub struct Listeners {
    pub(super) proxy: std::net::TcpListener,
    pub(super) admin: std::net::TcpListener,
}

impl Listeners {
    /// Opens the addresses of a configuration.
    ///
    /// # Errors
    /// One cannot be had.
    pub fn bind(config: &Config) -> io::Result<Self> {
        Ok(Self { proxy: bind(config.listen)?, admin: bind(config.admin_listen)? })
    }

    /// Where clients connect.
    ///
    /// # Errors
    /// The system does not say.
    pub fn proxy(&self) -> io::Result<SocketAddr> {
        self.proxy.local_addr()
    }
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let bound = || {
        let socket =
            socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    bound().map_err(told)
}

pub(super) fn listen(name: &'static str, listener: std::net::TcpListener) -> io::Result<TcpListener> {
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?.to_string();
    tracing::info!(listener = name, address, "listening");
    Ok(listener)
}

/// Where a thread gets its connections from.
pub(super) struct Door {
    pub(super) worker: Arc<Worker>,
    /// There is room for all connections that may be open: what waits here counts as one.
    pub(super) to: mpsc::Sender<std::net::TcpStream>,
}

pub(super) async fn accept(listener: TcpListener, doors: Vec<Door>, app: &App) -> Infallible {
    let most = app.config.limits.connections;
    loop {
        let open: usize = doors.iter().map(|door| door.worker.connections.load(Ordering::Relaxed)).sum();
        if open >= most {
            // The kernel queues what comes meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => hand_over(stream, &doors),
            Err(error) => {
                // Out of descriptors, mostly: trying again at once would only burn the processor.
                app.metrics.accept_errors.add(1);
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The thread with the fewest connections takes it.
fn hand_over(stream: std::net::TcpStream, doors: &[Door]) {
    let Some(door) = doors.iter().min_by_key(|door| door.worker.connections.load(Ordering::Relaxed)) else {
        return;
    };
    door.worker.connections.fetch_add(1, Ordering::Relaxed);
    if door.to.try_send(stream).is_err() {
        door.worker.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The place of an open connection; counted until dropped.
pub(super) struct Seat {
    pub(super) worker: Arc<Worker>,
    pub(super) _connected: mpsc::Sender<Infallible>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection until it closes, or until it is not HTTP's any more: then whoever has it has its seat.
pub(super) async fn serve_connection(seat: Seat, router: Router, stream: std::net::TcpStream) {
    let Ok(stream) = adopt(stream) else { return };
    let worker = Arc::clone(&seat.worker);
    let stage = Stage::default();
    let io = Guarded::new(stream, stage.clone(), seat);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(stage.clone());
        router.clone().call(request)
    });
    let mut connection = pin!(worker.http.serve_connection(io, service).with_upgrades());
    let mut phases = worker.app.course.subscribe();
    let mut changes = pin!(async move { while phases.changed().await.is_ok() {} });
    let mut seen = None;
    std::future::poll_fn(|cx| {
        // The task's waker never changes, so while it serves, once is enough; for each token it would cost a lock.
        // Later a wake may still belong to the change before, and must be answered by asking again. The phase is
        // read again after that: it may have gone on before the waker was known.
        loop {
            let phase = worker.app.phase();
            let known = seen.replace(phase) == Some(phase);
            if known && phase == Phase::Serving {
                break;
            }
            let _ = changes.as_mut().poll(cx);
            if !known && phase >= Phase::Draining {
                connection.as_mut().graceful_shutdown();
            }
            if worker.app.phase() == phase {
                break;
            }
        }
        connection.as_mut().poll(cx).map(drop)
    })
    .await;
}

fn adopt(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    // A client that vanished without a word is given up within 45 s.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(15));
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive.with_retries(2))?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}
