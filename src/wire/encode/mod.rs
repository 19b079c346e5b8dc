//! Writing canonical bytes for one client API. May rely on the grammar.
//!
//! Takes: grammatical events. Gives: frames, or one object at the end. Remembers: the rendered envelope.
//! Never: reorders, drops or makes up what it is told.

mod chat;
mod completions;
mod frame;
mod responses;
mod tool_names;
mod transcript;

pub(crate) use responses::write_error;
pub use responses::{Calls, Echo, NameMeaning, PausedAnswer, PausedEncoder, Reply, Response, Seal, Sealing};
pub use transcript::Transcript;

use super::event::Event;
use super::{Api, OutputBuffer, Shape, Stamp};

/// One client API, in one of its two forms.
pub trait Encode: Send {
    /// Writes what the event means to the client.
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer);

    /// How much of what it may have the client has used up, where that is known.
    fn limits(&mut self, _limits: Limits) {}

    /// The clock says this, in Unix seconds: an answer that ends next was completed then.
    fn clock(&mut self, _now: u64) {}

    /// Whether the encoder holds a frame back until the next event.
    fn is_waiting(&self) -> bool {
        false
    }

    /// What is written for a delta depends on the delta and the last head alone.
    fn is_plain(&self) -> bool {
        false
    }

    /// The answer is a list of items, each of them a message of its own or a call.
    fn has_items(&self) -> bool {
        false
    }
}

/// How much is used up of what may be asked in a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// 0 to 100.
    pub used_percent: u64,
    /// How long the while is.
    pub window_minutes: u64,
}

/// The encoder for an answer of this shape.
pub fn encoder(shape: &Shape, stamp: &Stamp) -> Box<dyn Encode> {
    match (shape.client, shape.stream) {
        (Api::Chat, true) => tool_names::ToolNames::over(Box::new(chat::Stream::new(shape, stamp)), shape),
        (Api::Chat, false) => tool_names::ToolNames::over(Box::new(chat::Whole::new(shape)), shape),
        (Api::Completions, true) => Box::new(completions::Stream::new(shape)),
        (Api::Completions, false) => Box::new(completions::Whole::new(shape)),
        (Api::Responses, stream) => {
            let reply = Reply {
                reasoning: shape.options.responses_reasoning,
                dialect: shape.options.responses_dialect,
                logprobs: shape.logprobs,
                stream,
                ..Reply::default()
            };
            Box::new(Response::new(reply, stamp))
        }
    }
}
