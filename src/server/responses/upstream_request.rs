//! Engine request built from a Responses request.

use super::seal;
use super::truncation::TruncatableRequest;
use crate::plan;
use crate::seal::SealKind;
use crate::server::relay::attempt::{AttemptTarget, PendingRequest, Sender, UpstreamRequest};
use crate::wire::encode::{Encode, Response as Encoder, Sealing, StreamForm};
use crate::wire::fault::Failure;
use crate::wire::{OutputBuffer, Rewriter, Shape, Stamp};
use bytes::Bytes;
use http::HeaderValue;
use std::sync::Arc;

/// Responses request ready to be sent to any upstream of the same mode, so that an attempt can be repeated
/// elsewhere.
pub(super) struct PreparedRequest {
    pub(super) truncatable: Arc<TruncatableRequest>,
    pub(super) sender: Sender,
    pub(super) stamp: Stamp,
    pub(super) background: bool,
    pub(super) form: StreamForm,
    /// True if the client has received the queued response. The encoder's event for that is then discarded, so
    /// that the numbers of later events stay right.
    pub(super) queued: bool,
}

impl UpstreamRequest for PreparedRequest {
    fn send(&mut self, to: &AttemptTarget<'_>) -> Result<PendingRequest, Failure> {
        let TruncatableRequest { asked, tenant, keys, .. } = &*self.truncatable;
        let route = self.sender.route(to, &asked.model);
        let (path, shape, mut reply) = plan::response(asked, &route);
        reply.sealing = match asked.include.encrypted_reasoning {
            true => Sealing::Own(seal(keys, SealKind::Reasoning, Arc::clone(tenant), self.stamp.now)),
            false => Sealing::None,
        };
        reply.stream |= self.background;
        reply.form = self.form;
        let adapted = self.truncatable.body(&route, 0)?;
        let shape = Shape { stream: reply.stream, ..adapted.shape(shape) };
        let fallbacks = adapted.fallbacks();
        let mut request = self.sender.outgoing(to, "POST", path, adapted.body).rewritten_by(&route);
        if reply.stream {
            request.accept = HeaderValue::from_static("text/event-stream");
        }
        let mut encoder = Box::new(Encoder::new(reply, &self.stamp));
        if self.queued {
            encoder.queue(&mut OutputBuffer::default());
        }
        let answer = Arc::clone(&self.truncatable).asking(&self.sender, to.upstream, request, route);
        Ok(PendingRequest::single(
            answer,
            Rewriter::with_encoder(shape, self.stamp.clone(), encoder),
            fallbacks,
        ))
    }

    fn text(&self, to: &AttemptTarget<'_>) -> Option<Bytes> {
        let route = self.sender.route(to, &self.truncatable.asked.model);
        self.truncatable.body(&route, 0).ok().map(|adapted| adapted.body.joined())
    }
}
