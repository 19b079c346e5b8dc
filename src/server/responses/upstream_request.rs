//! A Responses request as it goes to engines.

use super::seal;
use super::truncation::TruncatableRequest;
use crate::engine::fallback::Fallbacks;
use crate::plan;
use crate::seal::Kind;
use crate::server::attempt::{AttemptTarget, Sender, SentRequest, UpstreamRequest};
use crate::server::relay::PendingAnswer;
use crate::wire::encode::{PausedAnswer, Response as Encoder, Sealing};
use crate::wire::fault::Failure;
use crate::wire::{OutputBuffer, Rewriter, Shape, Stamp};
use bytes::Bytes;
use http::HeaderValue;
use std::sync::Arc;

/// What is asked, to be sent to any upstream that is asked in the same way.
pub(super) struct PreparedRequest {
    pub(super) truncatable: Arc<TruncatableRequest>,
    pub(super) sender: Sender,
    pub(super) stamp: Stamp,
    pub(super) background: bool,
    pub(super) hold: Option<Arc<PausedAnswer>>,
    /// The client has been told that the response will be made.
    pub(super) queued: bool,
}

/// What becomes of it for one of them.
pub(super) struct BodyForUpstream {
    pub(super) asking: PendingAnswer,
    pub(super) encoder: Box<Encoder>,
    pub(super) shape: Shape,
    pub(super) fallbacks: Fallbacks,
}

impl PreparedRequest {
    /// Makes the engine's request, and what tells its answer.
    pub(super) fn make(&self, to: &AttemptTarget<'_>) -> Result<BodyForUpstream, Failure> {
        let TruncatableRequest { asked, tenant, keys, .. } = &*self.truncatable;
        let route = self.sender.route(to, &asked.model);
        let (path, shape, mut reply) = plan::response(asked, &route);
        reply.sealing = match asked.include.encrypted_reasoning {
            true => Sealing::Own(seal(keys, Kind::Reasoning, Arc::clone(tenant), self.stamp.now)),
            false => Sealing::None,
        };
        reply.stream |= self.background;
        reply.hold.clone_from(&self.hold);
        let adapted = self.truncatable.body(&route, 0)?;
        let (names, fallbacks) = (adapted.names(), adapted.fallbacks());
        let mut request = self.sender.outgoing(to, "POST", path, adapted.body);
        if reply.stream {
            request.accept = HeaderValue::from_static("text/event-stream");
        }
        Ok(BodyForUpstream {
            shape: Shape { stream: reply.stream, adapted: names, ..shape },
            encoder: Box::new(Encoder::new(reply, &self.stamp)),
            asking: Arc::clone(&self.truncatable).asking(&self.sender, to.upstream, request, route),
            fallbacks,
        })
    }
}

impl UpstreamRequest for PreparedRequest {
    fn send(&mut self, to: &AttemptTarget<'_>) -> Result<SentRequest, Failure> {
        let BodyForUpstream { asking, mut encoder, shape, fallbacks } = self.make(to)?;
        if self.queued {
            encoder.queue(&mut OutputBuffer::default());
        }
        Ok(SentRequest::alone(asking, Rewriter::with_encoder(shape, self.stamp.clone(), encoder), fallbacks))
    }

    fn text(&self, to: &AttemptTarget<'_>) -> Option<Bytes> {
        let route = self.sender.route(to, &self.truncatable.asked.model);
        self.truncatable.body(&route, 0).ok().map(|adapted| adapted.body)
    }
}
