//! Truncation of conversations that exceed the engine's context, for clients that allow it (`truncation: "auto"`,
//! wire-format 4.2).
//!
//! Only the engine knows its limit: while it reports that the conversation is too long, the request is sent again
//! with more of the oldest messages left out.

use super::history::LoadedHistory;
use crate::plan::{AdaptedBody, Route};
use crate::request::responses::ResponsesRequest;
use crate::seal::SealKeys;
use crate::server::net::pending_answer::{PendingAnswer, prepare};
use crate::server::relay::attempt::EngineSender;
use crate::store::Item;
use crate::upstream::{Answer, Outgoing, Upstream};
use crate::wire::fault::{Failure, Fault};
use std::sync::Arc;

/// Parts of a request from which its body can be built again, shorter or with further items.
#[derive(Clone)]
pub(super) struct TruncatableRequest {
    pub(super) request: ResponsesRequest,
    pub(super) history: LoadedHistory,
    pub(super) tenant: Arc<str>,
    pub(super) keys: Arc<SealKeys>,
    /// Request id for the log.
    pub(super) request_id: Arc<str>,
}

impl TruncatableRequest {
    /// Builds the engine's body without the `forget` oldest messages. Fails if nothing would be left to answer, or
    /// the conversation cannot be expressed for the engine.
    pub(super) fn body(&self, route: &Route, forget: usize) -> Result<AdaptedBody, Failure> {
        self.history
            .body(&self.request, &self.tenant, &self.keys, route, forget)
    }

    /// Moves the input to the history and appends `items`, so that the next body continues from there.
    pub(super) fn continue_with(&mut self, items: impl Iterator<Item = Item>) {
        let request: Vec<_> = self
            .history
            .items(&self.request)
            .map(|item| Item::new("", item))
            .collect();
        self.history.history.extend(request);
        self.history.history.extend(items);
        self.history.resolved.clear();
        self.request.clear_input();
    }

    /// Returns a future that sends the request. If the client allows truncation, it sends shorter ones until the
    /// engine accepts one.
    pub(super) fn send_or_truncate(
        self: Arc<Self>,
        sender: &EngineSender,
        upstream: &Upstream,
        mut outgoing: Outgoing,
        route: Route,
    ) -> PendingAnswer {
        let client = sender.client(upstream);
        if !self.request.settings.truncation_auto {
            return prepare(client, outgoing);
        }
        let (most, own_key) = (sender.error_bytes(), upstream.config.auth.are_ours());
        Box::pin(async move {
            let (mut forget, mut attempts) = (0, 0);
            loop {
                let mut answer = client.send(&outgoing).await?;
                attempts += 1;
                answer.attempts = attempts;
                if !is_too_long(&mut answer, most, own_key).await {
                    return Ok(answer);
                }
                // Growth by half: few requests for any length, and not many more messages left out than necessary.
                forget = (forget + 1).max(forget * 3 / 2);
                // No shorter request is possible: pass on the engine's error.
                let Ok(shorter) = self.body(&route, forget) else {
                    return Ok(answer);
                };
                client.give_back_soon(answer);
                outgoing.body = shorter.body;
                outgoing.recorder = outgoing.recorder.map(|recorder| recorder.again());
                tracing::info!(
                    request_id = &*self.request_id,
                    forget,
                    "the conversation is too long; its oldest messages are left out"
                );
            }
        })
    }
}

/// Returns true if the engine reports that the conversation is too long: in its status, or in the first event
/// (engines H).
async fn is_too_long(answer: &mut Answer, most: usize, own_key: bool) -> bool {
    let status = answer.head.status;
    let failure = if status >= 400 {
        let body = answer.peek(most, |_| false).await;
        Some(Failure::of_answer(status, body, own_key))
    } else {
        let front = answer.peek(most, has_event).await;
        first_event(front).and_then(|data| Failure::of_event(data, false))
    };
    failure.is_some_and(|failure| failure.fault == Fault::ContextLength)
}

/// Returns true if the bytes hold a whole event, or are a JSON object and will never hold one.
fn has_event(front: &[u8]) -> bool {
    front.trim_ascii_start().starts_with(b"{") || first_event(front).is_some()
}

/// Returns the data of the first event if its line is complete.
fn first_event(front: &[u8]) -> Option<&str> {
    let start = memchr::memmem::find(front, b"data:")? + b"data:".len();
    let data = front.get(start..)?;
    let end = data.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
    std::str::from_utf8(data.get(..end)?).ok().map(str::trim)
}
