//! Pending answer of an engine: a request that is being sent, up to the head of its answer. Never: reads a body.

use crate::error::Error;
use crate::upstream::{Answer, Client, Outgoing};
use std::pin::Pin;
use std::sync::Arc;

/// Future of an engine request, up to the head of its answer.
pub(in crate::server) type PendingAnswer =
    Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// Returns a future that sends the request unchanged, once it is polled.
pub(in crate::server) fn prepare(client: Arc<Client>, request: Outgoing) -> PendingAnswer {
    Box::pin(async move { client.send(&request).await })
}
