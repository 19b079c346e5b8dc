//! Request as it is sent to an engine, and the connection that carries it.

use super::hops::Hops;
use super::upload::Upload;
use crate::capture::AttemptRecorder;
use crate::plan::Route;
use crate::request::EngineBody;
use crate::telemetry::Propagation;
use crate::tls::Socket;
use http::HeaderValue;
use std::borrow::Cow;
use std::net::SocketAddr;

/// Request as it is sent to an engine, independent of the HTTP version. The client adds the headers of framing and
/// connection.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// Path behind the upstream's prefix, with the query if there is one: a path of the API, or one that the
    /// configuration passes through.
    pub path: Cow<'static, str>,
    /// Value of the header `accept`.
    pub accept: HeaderValue,
    /// Content type of the body of a `POST`.
    pub content_type: Option<HeaderValue>,
    /// Value of the header `authorization`, if one is sent.
    pub authorization: Option<HeaderValue>,
    /// Request id, under which the engine logs the request.
    pub request_id: String,
    /// True for a retry on another upstream. A kept connection may die as a request goes out, and a request is
    /// resent once for that reason, not once at each upstream (faults 7, class A').
    pub is_retry: bool,
    /// Trace that the request belongs to.
    pub trace: Propagation,
    /// Value of the loop-detection header.
    pub hops: Hops,
    /// Body, or the part of it that is in memory.
    pub body: EngineBody,
    /// Rest of the body, which is sent while it arrives.
    pub upload: Option<Upload>,
    /// Recorder of the attempt, if the request is captured.
    pub recorder: Option<AttemptRecorder>,
}

impl Outgoing {
    /// Content type of bodies, unless the request has another one.
    pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

    /// Returns a request with a JSON body.
    #[cfg(test)]
    pub(super) fn for_test(method: &'static str) -> Self {
        Self {
            method,
            path: "/v1/models".into(),
            accept: Self::JSON,
            content_type: Some(Self::JSON),
            authorization: None,
            request_id: "r".to_owned(),
            is_retry: false,
            trace: Propagation::Passed(Vec::new()),
            hops: Hops::default(),
            body: bytes::Bytes::from_static(b"{}").into(),
            upload: None,
            recorder: None,
        }
    }

    /// Notes the route by which the answer is rewritten, if the request is captured.
    #[must_use]
    pub fn rewritten_by(self, route: &Route) -> Self {
        self.recorder
            .iter()
            .for_each(|recorder| recorder.rewritten_by(route));
        self
    }

    /// Returns the number of bytes of the body; `None` if it is not known.
    pub(super) fn length(&self) -> Option<u64> {
        let held = u64::try_from(self.body.len()).unwrap_or(u64::MAX);
        match &self.upload {
            Some(upload) => Some(held.saturating_add(upload.length?)),
            None => Some(held),
        }
    }

    /// Returns true if no part of the body has been consumed that a new attempt would need.
    pub(super) fn is_repeatable(&self) -> bool {
        !self.upload.as_ref().is_some_and(Upload::has_begun)
    }
}

/// Connection, with the address that it leads to.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Socket,
    pub(super) to: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::super::upload::Source;
    use super::*;
    use crate::wire::fault::Failure;
    use bytes::Bytes;
    use std::task::{Context, Poll, Waker};

    struct Nothing;

    impl Source for Nothing {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
            Poll::Ready(None)
        }
    }

    fn request(upload: Option<Upload>) -> Outgoing {
        Outgoing {
            body: Bytes::from_static(b"abc").into(),
            upload,
            ..Outgoing::for_test("POST")
        }
    }

    #[test]
    fn the_length_of_a_body_is_known_or_not() {
        for (upload, length) in [
            (None, Some(3)),
            (Some(Upload::new(Nothing, Some(4))), Some(7)),
            (Some(Upload::new(Nothing, None)), None),
        ] {
            let request = request(upload);
            assert_eq!(request.length(), length);
            assert!(request.is_repeatable(), "nothing has been taken");
            if let Some(upload) = &request.upload {
                let _ = upload.poll_piece(&mut Context::from_waker(Waker::noop()));
                assert!(!request.is_repeatable(), "it has been asked for a piece");
            }
        }
    }
}
