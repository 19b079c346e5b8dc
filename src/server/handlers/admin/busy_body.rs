//! Body of an answer of the admin listener, which keeps its connection in use while the client takes it.
//!
//! Takes: a body. Gives: the same bytes in small pieces, since the HTTP library drops a body once it has its last
//! piece, written or not. Never: copies a byte.

use crate::server::net::connection_state::ActiveRequest;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Limit on the bytes of a piece.
const PIECE: usize = 64 << 10;
/// Time after a piece from which the connection may make room for another: a client that reads asks for the next one.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// Body with the request that it answers.
pub(super) struct BusyBody {
    body: Body,
    /// Bytes of the last piece of `body` that have not been passed on.
    rest: Bytes,
    active: ActiveRequest,
}

impl BusyBody {
    pub(super) fn new(body: Body, active: ActiveRequest) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            active,
        }
    }
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        self.active.took(TAKEN_WITHIN);
        let length = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        match hint.exact() {
            Some(body) => hint.set_exact(body + rest),
            None => hint.set_lower(hint.lower() + rest),
        }
        hint
    }
}
