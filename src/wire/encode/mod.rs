//! Encoders: write canonical bytes for one client API. They rely on the event grammar, which the normaliser
//! guarantees.
//!
//! Takes: grammatical events. Gives: SSE frames, or one object at the end. Remembers: the rendered envelope.
//! Never: reorders, drops or invents events.

mod chat;
mod completions;
mod frame;
mod responses;
mod tool_names;
mod transcript;

pub(crate) use responses::write_error;
pub use responses::{
    Calls, Echo, Finished, Framing, NameMeaning, OutputCall, OutputItem, Persisted, RecoveredItems, Reply,
    Response, Seal, Sealing, StreamForm, in_dialect,
};
pub use transcript::Transcript;

use super::event::Event;
use super::{Api, OutputBuffer, Shape, Stamp};

/// Encoder for one client API in one form (event stream or whole object). The rewriter holds it as a trait object,
/// so that the stages before it do not depend on the client's API.
pub trait Encode: Send {
    /// Appends the bytes that this event means to the client.
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer);

    /// Passes on how much of its rate limit the client has used, where that is known. Only Responses streams report
    /// it (wire-format 4.9).
    fn limits(&mut self, _limits: Limits) {}

    /// Sets the current time in Unix seconds. An answer that ends afterwards has this time as `completed_at`.
    fn clock(&mut self, _now: u64) {}

    /// Returns true if the encoder holds a frame back until the next event.
    fn is_waiting(&self) -> bool {
        false
    }

    /// Returns true if the bytes for a delta depend only on that delta and on the last head. The fast path needs
    /// this to fill frame templates.
    fn is_plain(&self) -> bool {
        false
    }

    /// Returns true if the answer is a list of items, each a message, reasoning or a call (Responses).
    fn has_items(&self) -> bool {
        false
    }

    /// Writes the events of a background response that waits for its turn, before an engine has answered
    /// (wire-format 4.6 rule 1). Returns its object as JSON; `None` for APIs without such responses.
    fn queue(&mut self, _out: &mut OutputBuffer) -> Option<String> {
        None
    }

    /// Returns the id under which the answer can be stored; `None` before its first event, and for APIs whose
    /// answers are not stored.
    fn response_id(&self) -> Option<&str> {
        None
    }

    /// Returns the object of an answer in progress as JSON, without items; `None` for APIs that have none.
    fn object_in_progress(&self) -> Option<String> {
        None
    }

    /// Takes the items since the last pause, if the answer has paused to wait for the outputs of its calls. Another
    /// engine answer then continues it, with the same encoder.
    fn take_pause(&mut self) -> Option<Vec<OutputItem>> {
        None
    }

    /// Returns the answer once it has ended, for the store; `None` before, and for APIs whose answers are not
    /// stored.
    fn finished(&self) -> Option<Finished> {
        None
    }

    /// Writes the end of an answer that has ended: the last event, or the whole object. Called by the server if the
    /// end waits for the store, else by the encoder itself. Called once more, it writes the same events anew.
    fn write_end(&mut self, _persisted: Persisted, _out: &mut OutputBuffer) {}
}

/// Use of the client's rate limit, reported in the event `response.rate_limits.updated` (wire-format 4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Share of the limit that is used, 0 to 100.
    pub used_percent: u64,
    /// Length of the limit's window, in minutes.
    pub window_minutes: u64,
}

/// Returns the encoder for the client API and form that `shape` names. Calls are renamed where the client knows
/// them in another form than the engine.
pub fn encoder(shape: &Shape, stamp: &Stamp) -> Box<dyn Encode> {
    match (shape.client, shape.stream) {
        (Api::Chat, true) => tool_names::ToolNames::wrap(Box::new(chat::Stream::new(shape, stamp)), shape),
        (Api::Chat, false) => tool_names::ToolNames::wrap(Box::new(chat::Whole::new(shape)), shape),
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
