//! Body of a request: not read yet, being read, or read with its share of the memory budget.

use super::admit::body;
use super::admit::budget::BudgetShare;
use super::admitted::Admitted;
use super::headers;
use super::net::connection_state::ActiveRequest;
use super::reply::ClientReply;
use crate::wire::fault::{Failure, Fault};
use axum::body::Body as Incoming;
use bytes::Bytes;
use std::sync::Arc;

/// Body of a request, with what its reading tells the connection.
pub(super) struct RequestBody {
    /// The body, if there is one that was not taken.
    pub(super) incoming: Option<Incoming>,
    /// True while the client may still be sending.
    pub(super) unread: bool,
    /// True if the body is labelled as a form, as `curl -d` labels any body.
    pub(super) is_labelled_form: bool,
    /// Share of the memory budget that the body holds.
    share: Option<Arc<BudgetShare>>,
    pub(super) active_request: ActiveRequest,
}

/// Returns true if a body that is labelled as a form is meant to be JSON: it begins with a bracket, which forms
/// never do, or is empty.
fn looks_like_json(body: &[u8]) -> bool {
    let body = body
        .strip_prefix("\u{feff}".as_bytes())
        .unwrap_or(body)
        .trim_ascii_start();
    matches!(body.first(), None | Some(b'{' | b'['))
}

impl RequestBody {
    /// Returns the body of a request that has just begun; `None`: it has none.
    pub(super) fn new(incoming: Option<Incoming>, active_request: ActiveRequest) -> Self {
        Self {
            unread: incoming.is_some(),
            incoming,
            is_labelled_form: false,
            share: None,
            active_request,
        }
    }

    /// Reads the body, of at most `limit` bytes. Fails if it is too large, too slow or incomplete, or a form; or if the
    /// process cuts its requests.
    pub(super) async fn read(
        &mut self,
        limit: usize,
        admitted: &Admitted<'_>,
        reply: &mut ClientReply,
    ) -> Result<Bytes, Failure> {
        let bytes = match self.incoming.take() {
            None => Bytes::new(),
            Some(incoming) => {
                let (app, is_held) = (admitted.app, admitted.identity.line_start.is_some());
                let (bytes, share) = tokio::select! {
                    read = body::read(incoming, limit, is_held, app) => read?,
                    () = app.cut() => return Err(Fault::Draining.into()),
                };
                self.hold(bytes, share)
            }
        };
        self.finish();
        reply.note(|record| record.has_read(&bytes));
        if self.is_labelled_form {
            if !looks_like_json(&bytes) {
                return Err(headers::wrong_form());
            }
            reply.note(|record| record.labelled_form = true);
        }
        Ok(bytes)
    }

    /// Notes that the client has sent all of it, or that none of it is read: the answer begins.
    pub(super) fn finish(&mut self) {
        self.unread = false;
        self.active_request.begin_answer();
    }

    /// Ties bytes of this request to their share of the memory budget.
    pub(super) fn hold(&mut self, bytes: Bytes, share: BudgetShare) -> Bytes {
        BudgetShare::hold(self.share.insert(Arc::new(share)), bytes)
    }

    /// Returns the share of the memory budget that the body holds.
    pub(super) fn share(&self) -> Option<Arc<BudgetShare>> {
        self.share.clone()
    }
}
