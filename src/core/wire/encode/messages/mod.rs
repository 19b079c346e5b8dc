//! Encoder for the Messages API of Anthropic: blocks in events, or one message at the end (messages 4, 5).
//!
//! ```text
//! message_start ─→ { content_block_start ─→ deltas ─→ content_block_stop } ─→ message_delta ─→ message_stop
//! ```
//!
//! Takes: the events of one choice. Gives: named events, or the message; both from the same blocks. Remembers: the
//! open block, and what waits after a call that is incomplete. Never: `message_stop` after a failure.

mod block;
mod blocks;
mod ending;
mod error;
mod foreign;
mod held;

pub use ending::StopRules;
pub use error::{THREAD_UNSUPPORTED, messages_status, write_messages_error};

use super::Encode;
use crate::json::{Text, write_string};
use crate::wire::event::{Delta, Event, FrameExtras, Head, Usage};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{ContinuousUsage, Options};
use crate::wire::{OutputBuffer, Shape, Stamp, ident};
use block::{BlockForm, BlockKind, Thinking};
use blocks::{Arrival, Blocks};
use bytes::BytesMut;
use ending::{MessageEnding, write_stop, write_usage};
use std::collections::HashSet;
use std::sync::Arc;

/// Share of the thinking that the client sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingDisplay {
    /// The text, with a signature over it.
    #[default]
    Shown,
    /// Blocks without text, whose signature carries the text in sealed form.
    Omitted,
    /// No blocks of thinking at all.
    Hidden,
}

/// Content of a thinking block's signature, by which the block is recognised when the client sends it back
/// (messages 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingProof<'a> {
    /// SHA-256 of the text as hex digits, for a block whose text the client has.
    Hash(&'a str),
    /// The text itself, for a block whose text the client does not have.
    Text(&'a str),
}

/// Function that seals a proof into a signature. Returns `None` if it cannot.
pub type SignThinking = Box<dyn Fn(ThinkingProof<'_>) -> Option<String> + Send>;

/// Parameters of a message that come from the request.
#[derive(Default)]
pub struct MessageReply {
    /// Model that the client asked for, used until the engine's answer names one.
    pub model: String,
    /// True for a stream of events, false for one object.
    pub stream: bool,
    /// Share of the thinking that the client sees.
    pub display: ThinkingDisplay,
    /// Function that signs thinking; `None`: signatures stay empty.
    pub sign: Option<SignThinking>,
    /// Facts that decide on the stop reason.
    pub stop: StopRules,
    /// Ids of calls in the request's history, which no new call may have.
    pub used_ids: HashSet<String>,
}

/// Encoder state of one message. Only the first choice counts, since the API has one.
pub struct MessageEncoder {
    /// Parameters of the message; the model is the engine's once it has named one, and the blocks have `sign`.
    reply: MessageReply,
    request_id: Option<Arc<str>>,
    id: String,
    blocks: Blocks,
    usage: Option<Usage>,
    ending: Option<MessageEnding>,
    has_refusal: bool,
    has_call: bool,
    /// Failure that the encoder has found, until it is taken.
    rejection: Option<Failure>,
    /// True once `message_start` is written.
    begun: bool,
    /// True once the message has ended, or has failed.
    over: bool,
}

impl MessageEncoder {
    /// Returns the encoder for one message, in its initial state. `stamp`: an id for answers that have none.
    pub fn new(mut reply: MessageReply, stamp: &Stamp) -> Self {
        let thinking = Thinking {
            display: reply.display,
            sign: reply.sign.take(),
        };
        let form = match reply.stream {
            true => BlockForm::Stream(thinking),
            false => BlockForm::Whole(thinking, BytesMut::new()),
        };
        Self {
            reply,
            request_id: stamp.request_id.clone(),
            id: format!("msg_{}", stamp.id),
            blocks: Blocks::new(form),
            usage: None,
            ending: None,
            has_refusal: false,
            has_call: false,
            rejection: None,
            begun: false,
            over: false,
        }
    }

    /// Returns the encoder for an answer of which only the shape is known, as without a request.
    pub(super) fn of(shape: &Shape, stamp: &Stamp) -> Self {
        let display = if shape.hide_reasoning {
            ThinkingDisplay::Hidden
        } else {
            ThinkingDisplay::Shown
        };
        let stop = StopRules {
            limit: shape.limit,
            sequences: None,
        };
        let (model, stream) = (shape.model.clone(), shape.stream);
        Self::new(
            MessageReply {
                model,
                stream,
                display,
                stop,
                ..MessageReply::default()
            },
            stamp,
        )
    }

    /// Returns the wire options with which an answer is read that becomes a message: the counts of the prompt are
    /// needed with the first event, and the stop sequence at the end.
    pub fn options(options: &Options) -> Options {
        Options {
            continuous_usage: ContinuousUsage::Always,
            stop_details: true,
            ..options.clone()
        }
    }

    fn head(&mut self, head: &Head<'_>) {
        if self.begun {
            return;
        }
        if let Some(id) = head.id {
            self.id = format!("msg_{}", ident::compact(&id.decoded()));
        }
        if let Some(model) = head.model.filter(|model| !model.is_empty()) {
            self.reply.model = model.decoded().into_owned();
        }
    }

    fn delta(&mut self, delta: &Delta<'_>, extras: &FrameExtras<'_>, out: &mut BytesMut) {
        if let Some(counted) = extras.usage.as_ref().filter(|_| !self.begun) {
            self.usage = Some(counted.usage);
        }
        match delta {
            // A limit of 0 fills the engine's cache; the client wants no answer.
            delta if self.reply.stop.limit == Some(0) && !matches!(delta, Delta::Finish(_)) => {}
            Delta::Reasoning(text) | Delta::Summary(text)
                if self.reply.display != ThinkingDisplay::Hidden =>
            {
                self.text(BlockKind::Thinking, text, out);
            }
            Delta::Content(text) => self.text(BlockKind::Text, text, out),
            Delta::Refusal(text) => {
                self.has_refusal = true;
                self.text(BlockKind::Text, text, out);
            }
            Delta::ToolStart { slot, id, name, .. } => self.call(*slot, id, name, out),
            Delta::ToolArgs { slot, args } => self.arguments(*slot, args, out),
            Delta::FunctionCall { name, arguments } => {
                const SLOT: u32 = u32::MAX;
                if let Some(name) = name {
                    let id = ident::derived_call(&self.id, 0, 0);
                    self.call(SLOT, &id, &name.decoded(), out);
                }
                if let Some(arguments) = arguments.filter(|arguments| !arguments.is_empty()) {
                    self.arguments(SLOT, &arguments, out);
                }
            }
            Delta::Sealed { text, .. } if self.reply.display != ThinkingDisplay::Hidden => {
                self.begin(out);
                self.blocks.signature(text, out);
            }
            Delta::Break | Delta::Done { slot: None, .. } => self.blocks.break_text(out),
            Delta::Done {
                slot: Some(slot), ..
            } => self.blocks.end_call(*slot, out),
            Delta::Finish(finish) => {
                self.ending = Some(MessageEnding::of(finish, self.has_refusal, self.has_call));
                self.blocks.finish(out);
            }
            // The other deltas exist only for other APIs, or carry extras that a message has no place for.
            _ => {}
        }
    }

    fn text(&mut self, kind: BlockKind, text: &Text<'_>, out: &mut BytesMut) {
        self.begin(out);
        self.blocks.text(kind, text, out);
    }

    fn call(&mut self, slot: u32, id: &str, name: &str, out: &mut BytesMut) {
        self.begin(out);
        self.has_call = true;
        // Clients refuse a conversation in which two calls have the same id.
        let mut id = id.to_owned();
        while !self.reply.used_ids.insert(id.clone()) {
            id = ident::derived_call(&format!("{}{id}", self.id), 0, slot);
        }
        self.blocks.call(
            BlockKind::Call {
                slot,
                id,
                name: name.to_owned(),
            },
            out,
        );
    }

    fn arguments(&mut self, slot: u32, args: &Text<'_>, out: &mut BytesMut) {
        if self.blocks.arguments(slot, args, out) == Arrival::Late {
            // The client has the call already, and it is not the one that the engine wants.
            self.reject("The upstream engine sent arguments of a tool call after its end.");
        }
    }

    fn reject(&mut self, message: &'static str) {
        self.rejection = Some(Failure::from(Fault::InvalidToolCall).with_message(message));
    }

    fn begin(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.begun, true) || !self.reply.stream {
            return;
        }
        out.extend_from_slice(
            b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":",
        );
        self.open_message(out);
        out.extend_from_slice(b"],");
        write_stop(None, &self.reply.stop, None, out);
        out.extend_from_slice(b",\"usage\":");
        write_usage(self.usage.as_ref(), 0, out);
        out.extend_from_slice(b"}}\n\n");
    }

    /// Appends a message up to and including the opening bracket of `content`.
    fn open_message(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(b"\",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
        write_string(&self.reply.model, out);
        out.extend_from_slice(b",\"content\":[");
    }

    fn end(&mut self, out: &mut BytesMut) {
        // An answer without a block begins here; the counts of its end do not belong to its beginning.
        let usage = self.usage.filter(|_| self.begun);
        let counted = std::mem::replace(&mut self.usage, usage);
        self.begin(out);
        self.usage = counted;
        self.over = true;
        let usage = self.usage.as_ref();
        let output = usage.map_or(0, |usage| usage.completion);
        if self.reply.stream {
            out.extend_from_slice(
                b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{",
            );
        } else {
            self.open_message(out);
            out.extend_from_slice(self.blocks.collected());
            out.extend_from_slice(b"],");
        }
        write_stop(self.ending.as_ref(), &self.reply.stop, usage, out);
        out.extend_from_slice(if self.reply.stream {
            b"},\"usage\":"
        } else {
            b",\"usage\":"
        });
        write_usage(usage, output, out);
        out.extend_from_slice(b"}");
        if self.reply.stream {
            out.extend_from_slice(
                b"\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            );
        }
    }

    /// Ends a stream with an error: open blocks stay open, so that no part of the message looks finished.
    fn fail(&mut self, failure: &Failure, out: &mut BytesMut) {
        self.over = true;
        // Nothing of an object is written before the end, so the server answers a failure with an HTTP error.
        if self.reply.stream {
            out.extend_from_slice(b"event: error\ndata: ");
            write_messages_error(failure, self.request_id.as_deref(), out);
            out.extend_from_slice(b"\n\n");
        }
    }
}

impl Encode for MessageEncoder {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        if self.over {
            return;
        }
        let out = out.open();
        match event {
            Event::Head(head) => self.head(&head),
            Event::Delta {
                choice: 0,
                delta,
                extras,
            } => {
                self.delta(&delta, &extras, out);
                if self.blocks.holds_too_much() {
                    self.reject(
                        "The upstream engine left a tool call incomplete, and too much followed.",
                    );
                }
            }
            Event::Usage { usage, .. } => self.usage = Some(usage),
            Event::Foreign { .. } if self.reply.stop.limit == Some(0) => {}
            Event::Foreign {
                slot, stage, data, ..
            } => {
                self.begin(out);
                self.blocks.foreign(slot, stage, data, out);
            }
            Event::Delta { .. } | Event::Limits(_) => {}
            Event::Fail(failure) => self.fail(&failure, out),
            Event::End => self.end(out),
        }
    }

    fn take_rejection(&mut self) -> Option<Failure> {
        self.rejection.take()
    }

    fn is_plain(&self) -> bool {
        self.begun && self.blocks.is_plain()
    }

    fn template(&mut self, _choice: u32, delta: Delta<'_>, out: &mut OutputBuffer) {
        let (kind, text) = match delta {
            Delta::Content(text) => (BlockKind::Text, text),
            Delta::Reasoning(text) => (BlockKind::Thinking, text),
            _ => return,
        };
        if let Some(block) = self.blocks.open_as(&kind) {
            block.write_delta(&text, out.open());
        }
    }

    fn filled(&mut self, spelled: &[u8]) {
        if let Some(block) = self.blocks.open_as(&BlockKind::Thinking) {
            block.hash(spelled);
        }
    }
}
