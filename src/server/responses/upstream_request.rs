//! Engine request built from a Responses request.

use super::seal;
use super::tool_runs::ToolPlan;
use super::truncation::TruncatableRequest;
use crate::plan;
use crate::seal::SealKind;
use crate::server::ids::IdSource;
use crate::server::relay::attempt::{AttemptTarget, EngineSender, PendingRequest, UpstreamRequest};
use crate::store::Item;
use crate::telemetry::Trace;
use crate::wire::encode::{Response as Encoder, Sealing, StreamForm};
use crate::wire::fault::Failure;
use crate::wire::{OutputBuffer, Rewriter, Shape, Stamp};
use bytes::Bytes;
use http::HeaderValue;
use std::sync::Arc;

/// Responses request ready to be sent to any upstream of the same mode, so that an attempt can be repeated
/// elsewhere.
pub(super) struct PreparedRequest {
    pub(super) truncatable: Arc<TruncatableRequest>,
    pub(super) sender: EngineSender,
    pub(super) stamp: Stamp,
    pub(super) background: bool,
    pub(super) form: StreamForm,
    /// Tools that samewire runs; `None`: none.
    pub(super) tools: Option<ToolPlan>,
    /// True if the client has received the queued response. The encoder's event for that is then discarded, so
    /// that the numbers of later events stay right.
    pub(super) queued: bool,
}

impl UpstreamRequest for PreparedRequest {
    fn prepare(&mut self, to: &AttemptTarget<'_>) -> Result<PendingRequest, Failure> {
        let TruncatableRequest {
            request,
            tenant,
            keys,
            ..
        } = &*self.truncatable;
        let route = self.sender.route(to, &request.model);
        let (path, shape, mut reply) = plan::response(request, &route);
        reply.sealing = match request.settings.include.encrypted_reasoning {
            true => Sealing::Own(seal(
                keys,
                SealKind::Reasoning,
                Arc::clone(tenant),
                self.stamp.now,
            )),
            false => Sealing::None,
        };
        reply.stream |= self.background;
        reply.form = self.form;
        let adapted = self.truncatable.body(&route, 0)?;
        let shape = Shape {
            stream: reply.stream,
            ..adapted.shape(shape)
        };
        let fallbacks = adapted.fallbacks();
        let mut outgoing = self
            .sender
            .outgoing(to, "POST", path, adapted.body)
            .rewritten_by(&route);
        if reply.stream {
            outgoing.accept = HeaderValue::from_static("text/event-stream");
        }
        let mut encoder = Box::new(Encoder::new(reply, &self.stamp));
        if self.queued {
            encoder.queue(&mut OutputBuffer::default());
        }
        let encoder = match &self.tools {
            Some(tools) => tools.wrap(encoder),
            None => encoder,
        };
        let answer = Arc::clone(&self.truncatable).send_or_truncate(
            &self.sender,
            to.upstream,
            outgoing,
            route,
        );
        Ok(PendingRequest::single(
            answer,
            Rewriter::with_encoder(shape, self.stamp.clone(), encoder),
            fallbacks,
        ))
    }

    fn sender(&self) -> &EngineSender {
        &self.sender
    }

    fn continue_with(&mut self, items: Vec<Item>) -> Option<Arc<Trace>> {
        let truncatable = Arc::make_mut(&mut self.truncatable);
        truncatable.continue_with(items.into_iter());
        if self.tools.is_some() {
            truncatable.request.release_tool_choice();
        }
        // The ids generated for each round differ.
        if let Ok(ids) = IdSource::draw() {
            let request_id = self.stamp.request_id.take();
            self.stamp = Stamp {
                request_id,
                ..ids.stamp()
            };
        }
        self.sender.continue_trace()
    }

    fn text(&self, to: &AttemptTarget<'_>) -> Option<Bytes> {
        let route = self.sender.route(to, &self.truncatable.request.model);
        self.truncatable
            .body(&route, 0)
            .ok()
            .map(|adapted| adapted.body.joined())
    }
}
