//! A Responses request as it goes to engines.

use super::fitting::Talk;
use super::seal;
use crate::engine::fallback::Fallbacks;
use crate::plan;
use crate::seal::Kind;
use crate::server::attempt::{Letter, Sender, Sent, To};
use crate::server::relay::Asking;
use crate::wire::encode::{Hold, Response as Encoder, Sealing};
use crate::wire::fault::Failure;
use crate::wire::{Out, Rewriter, Shape, Stamp};
use bytes::Bytes;
use http::HeaderValue;
use std::sync::Arc;

/// What is asked, to be sent to any upstream that is asked in the same way.
pub(super) struct Request {
    pub(super) talk: Arc<Talk>,
    pub(super) sender: Sender,
    pub(super) stamp: Stamp,
    pub(super) background: bool,
    pub(super) hold: Option<Arc<Hold>>,
    /// The client has been told that the response will be made.
    pub(super) queued: bool,
}

/// What becomes of it for one of them.
pub(super) struct Made {
    pub(super) asking: Asking,
    pub(super) encoder: Box<Encoder>,
    pub(super) shape: Shape,
    pub(super) fallbacks: Fallbacks,
}

impl Request {
    /// Makes the engine's request, and what tells its answer.
    pub(super) fn make(&self, to: &To<'_>) -> Result<Made, Failure> {
        let Talk { asked, tenant, keys, .. } = &*self.talk;
        let route = self.sender.route(to, &asked.model);
        let (path, shape, mut reply) = plan::response(asked, &route);
        reply.sealing = match asked.include.encrypted_reasoning {
            true => Sealing::Own(seal(keys, Kind::Reasoning, Arc::clone(tenant), self.stamp.now)),
            false => Sealing::None,
        };
        reply.stream |= self.background;
        reply.hold.clone_from(&self.hold);
        let fitted = self.talk.body(&route, 0)?;
        let (names, fallbacks) = (fitted.names(), fitted.fallbacks());
        let mut request = self.sender.outgoing(to, "POST", path, fitted.body);
        if reply.stream {
            request.accept = HeaderValue::from_static("text/event-stream");
        }
        Ok(Made {
            shape: Shape { stream: reply.stream, fitted: names, ..shape },
            encoder: Box::new(Encoder::new(reply, &self.stamp)),
            asking: Arc::clone(&self.talk).asking(&self.sender, to.upstream, request, route),
            fallbacks,
        })
    }
}

impl Letter for Request {
    fn send(&mut self, to: &To<'_>) -> Result<Sent, Failure> {
        let Made { asking, mut encoder, shape, fallbacks } = self.make(to)?;
        if self.queued {
            encoder.queue(&mut Out::default());
        }
        Ok(Sent::alone(asking, Rewriter::with_encoder(shape, self.stamp.clone(), encoder), fallbacks))
    }

    fn text(&self, to: &To<'_>) -> Option<Bytes> {
        let route = self.sender.route(to, &self.talk.asked.model);
        self.talk.body(&route, 0).ok().map(|fitted| fitted.body)
    }
}
