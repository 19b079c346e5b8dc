//! Streams of an HTTP/2 connection to an engine: a slot for a request, and the body of its answer.

use super::upload::{Sent, UploadState};
use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Upper limit for the requests on one connection at once, if the engine allows more.
pub(super) const STREAMS: usize = 100;

/// Connection to one address. Cheap to clone: the library multiplexes the requests.
#[derive(Clone, Debug)]
pub(super) struct Http2Connection {
    pub(super) number: u64,
    pub(super) to: SocketAddr,
    pub(super) requests: SendRequest<Bytes>,
    pub(super) state: Arc<ConnectionShared>,
}

/// State of a connection that its users and the task that drives it share.
#[derive(Debug)]
pub(super) struct ConnectionShared {
    pub(super) streams: AtomicUsize,
    /// True once an answer has arrived on it.
    pub(super) served: AtomicBool,
    /// Number of times that a head or a piece of an answer has arrived.
    pub(super) received: AtomicU64,
    /// True once the connection has ended.
    pub(super) ended: AtomicBool,
    /// Time at which the last request ended.
    pub(super) since: Mutex<Instant>,
}

/// Slot for one request on a connection, which is freed when this is dropped.
#[derive(Debug)]
pub(super) struct StreamSlot {
    pub(super) connection: Http2Connection,
    /// Value of the connection's counter `received` before this request.
    pub(super) heard: u64,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        *self.connection.state.since.lock() = Instant::now();
        self.connection
            .state
            .streams
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamSlot {
    /// Returns the number of the connection; later connections have higher numbers.
    pub(super) fn number(&self) -> u64 {
        self.connection.number
    }
}

impl Http2Connection {
    /// Takes a slot, if the connection has a free one.
    pub(super) fn take_slot(&self) -> Option<StreamSlot> {
        let most = self.requests.current_max_send_streams().min(STREAMS);
        let before = self.state.streams.load(Ordering::Relaxed);
        if before >= most {
            return None;
        }
        self.state.streams.fetch_add(1, Ordering::Relaxed);
        Some(StreamSlot {
            connection: self.clone(),
            heard: self.state.received.load(Ordering::Relaxed),
        })
    }

    /// Returns true if the connection is not known to have ended, so that requests may be sent on it.
    pub(super) fn is_open(&mut self) -> bool {
        let mut at_once = Context::from_waker(Waker::noop());
        !self.state.ended.load(Ordering::Relaxed)
            && !matches!(self.requests.poll_ready(&mut at_once), Poll::Ready(Err(_)))
    }

    pub(super) fn is_old(&self, time: Duration) -> bool {
        self.state.streams.load(Ordering::Relaxed) == 0 && self.state.since.lock().elapsed() >= time
    }
}

/// Body of an answer on an HTTP/2 stream, with the upload that may still run beside it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) body: RecvStream,
    pub(super) place: StreamSlot,
    /// Rest of the request's body, if the answer has come before it was sent.
    pub(super) upload: Option<Box<UploadState>>,
}

/// Progress of a read.
pub(super) enum ReadProgress {
    Some,
    Last,
    Reset,
    Malformed,
}

impl Stream {
    /// Reads the next piece and passes it to `sink`. Sends the rest of the upload along the way.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Poll<ReadProgress> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(sent) = upload.poll(cx)
        {
            self.upload = None;
            if let Sent::Broken(_) = sent {
                return Poll::Ready(ReadProgress::Reset);
            }
        }
        let piece = match std::task::ready!(self.body.poll_data(cx)) {
            Some(Ok(bytes)) => {
                self.place
                    .connection
                    .state
                    .received
                    .fetch_add(1, Ordering::Relaxed);
                sink(&bytes);
                // Fails only for a stream that has ended, which receives no more data.
                let _ = self.body.flow_control().release_capacity(bytes.len());
                if self.body.is_end_stream() {
                    ReadProgress::Last
                } else {
                    ReadProgress::Some
                }
            }
            None => ReadProgress::Last,
            Some(Err(error)) if error.is_library() => ReadProgress::Malformed,
            Some(Err(_)) => ReadProgress::Reset,
        };
        Poll::Ready(piece)
    }

    /// Returns true if the body is complete.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }
}
