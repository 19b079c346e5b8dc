//! Phases of a request. Each is a type with the facts known by then. All reach the shared state (`app`); the head of each
//! handler says what it changes.
//!
//! ```text
//! head ─→ Admitted ─→ RequestBody::read ─→ naming (the model) ─→ relay::Planned ─→ Relay
//!            └─────────────── ClientReply: the record, and the headers of the answer ─────────────┘
//! ```

use super::admit::auth::ClientIdentity;
use super::headers;
use super::ids::IdSource;
use super::{App, Worker};
use crate::wire::Stamp;
use crate::wire::fault::Failure;
use crate::wire::options::ResponsesDialect;
use http::request;
use std::sync::Arc;

/// Request whose client is known. Nothing of it changes any more; its quota and the version of the API are checked next.
pub(super) struct Admitted<'h> {
    /// State that was active when the request arrived.
    pub(super) app: &'h Arc<App>,
    pub(super) worker: &'h Arc<Worker>,
    pub(super) head: &'h request::Parts,
    pub(super) request_id: Arc<str>,
    pub(super) ids: IdSource,
    pub(super) identity: ClientIdentity,
    /// True if the request is a message of a WebSocket, which has neither a status nor comments.
    pub(super) by_socket: bool,
}

impl Admitted<'_> {
    /// Returns the ids, the time and the seed for an answer.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp {
            request_id: Some(Arc::clone(&self.request_id)),
            ..self.ids.stamp()
        }
    }

    /// Returns the tenant whose stored objects the request may access.
    pub(super) fn tenant(&self) -> Arc<str> {
        self.identity.tenant(&self.head.headers)
    }

    /// Returns the dialect of a stream that involves no upstream: the client's choice, else the usual one for its
    /// key. Fails if the dialect header has an unknown value.
    pub(super) fn dialect(&self) -> Result<ResponsesDialect, Failure> {
        let usual = || {
            self.app
                .pool
                .usual_options(self.identity.key())
                .responses_dialect
        };
        Ok(headers::dialect(&self.head.headers)?.unwrap_or_else(usual))
    }
}
