//! Conversations that are too long for the engine, where the client allows that their beginning is left out
//! (`truncation: "auto"`, wire-format 4.2).
//!
//! How long is too long only the engine knows: as long as it says so it is asked again, with more left out each time.

use super::history::History;
use crate::plan::{AdaptedBody, Route};
use crate::request::responses::ResponsesRequest;
use crate::seal::Keys;
use crate::server::attempt::Sender;
use crate::server::relay::{PendingAnswer, asking};
use crate::store::Item;
use crate::upstream::{Answer, Client, Outgoing, Upstream};
use crate::wire::fault::{Failure, Fault};
use std::sync::Arc;

/// What a request is made of, to be made again.
#[derive(Clone)]
pub(super) struct TruncatableRequest {
    pub(super) asked: ResponsesRequest,
    pub(super) history: History,
    pub(super) tenant: Arc<str>,
    pub(super) keys: Arc<Keys>,
    /// The client's name for the request, for the log.
    pub(super) request_id: Arc<str>,
}

impl TruncatableRequest {
    /// The engine's request without its `forget` oldest messages.
    pub(super) fn body(&self, route: &Route, forget: usize) -> Result<AdaptedBody, Failure> {
        self.history.body(&self.asked, &self.tenant, &self.keys, route, forget)
    }

    /// Goes on behind these items.
    pub(super) fn go_on(&mut self, items: impl Iterator<Item = Item>) {
        let asked: Vec<_> = self.history.items(&self.asked).map(|item| Item::new("", item)).collect();
        self.history.history.extend(asked);
        self.history.history.extend(items);
        self.history.resolved.clear();
        self.asked.answered();
    }

    /// Sends a request as it is, or as much of it as the engine takes where the client allows that.
    pub(super) fn asking(
        self: Arc<Self>,
        sender: &Sender,
        upstream: &Upstream,
        request: Outgoing,
        route: Route,
    ) -> PendingAnswer {
        let client = sender.client(upstream);
        if !self.asked.truncation_auto {
            return asking(client, request);
        }
        let own_key = upstream.config.auth.are_ours();
        self.fitting(client, request, route, sender.error_bytes(), own_key)
    }

    /// Sends the request, then shorter ones while the engine says that it is too long.
    fn fitting(
        self: Arc<Self>,
        client: Arc<Client>,
        mut request: Outgoing,
        route: Route,
        most: usize,
        own_key: bool,
    ) -> PendingAnswer {
        Box::pin(async move {
            let (mut forget, mut attempts) = (0, 0);
            loop {
                let mut answer = client.send(&request).await?;
                attempts += 1;
                answer.attempts = attempts;
                if !is_too_long(&mut answer, most, own_key).await {
                    return Ok(answer);
                }
                // By half as much again: a few requests for any length, and not much more left out than need be.
                forget = (forget + 1).max(forget * 3 / 2);
                // Nothing would be left to ask.
                let Ok(shorter) = self.body(&route, forget) else { return Ok(answer) };
                client.give_back_soon(answer);
                request.body = shorter.body;
                tracing::info!(
                    request_id = &*self.request_id,
                    forget,
                    "the conversation is too long; its oldest messages are left out"
                );
            }
        })
    }
}

/// Whether the engine says that the conversation is too long: in its status, or in the first event (engine-quirks H).
async fn is_too_long(answer: &mut Answer, most: usize, own_key: bool) -> bool {
    let status = answer.head.status;
    let failure = if status >= 400 {
        let body = answer.look(most, |_| false).await;
        Some(Failure::of_answer(status, body, own_key))
    } else {
        let front = answer.look(most, has_event).await;
        first_event(front).and_then(|data| Failure::of_event(data, false))
    };
    failure.is_some_and(|failure| failure.fault == Fault::ContextLength)
}

/// There is a whole event, or none will be.
fn has_event(front: &[u8]) -> bool {
    front.trim_ascii_start().starts_with(b"{") || first_event(front).is_some()
}

/// The data of the first event, if all of it is there.
fn first_event(front: &[u8]) -> Option<&str> {
    let start = memchr::memmem::find(front, b"data:")? + b"data:".len();
    let data = front.get(start..)?;
    let end = data.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
    std::str::from_utf8(data.get(..end)?).ok().map(str::trim)
}
