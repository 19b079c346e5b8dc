//! Whole object of Chat Completions or Completions, written when the answer ends.
//!
//! Takes: grammatical events. Gives: one object at the end. Remembers: what it collects of each choice. Never: knows
//! the members of a choice before `logprobs`, in which the APIs differ.

use super::Encode;
use super::frame::{Envelope, ExtensionLists, LogprobLists};
use crate::json::{compacted, write_string};
use crate::wire::event::{Delta, Event, FrameExtras, Logprobs, Usage};
use crate::wire::options::Options;
use crate::wire::{OutputBuffer, Shape};
use bytes::{BufMut, BytesMut};

/// Bytes for which the output has room from the start: most small answers fit.
const SMALL: usize = 1 << 10;

/// Content of one choice of a whole object, as an API has it; texts are in canonical JSON spelling.
pub(super) trait WholeChoice: Default + Send {
    /// True if the object of the API has the member `service_tier`.
    const HAS_TIER: bool;
    /// Key under which the unknown fields of the engine's message or delta are written in `x_upstream`.
    const INNER: &'static str;

    /// Adds the content of a delta; [`Delta::Finish`] never reaches it.
    fn add(&mut self, delta: &Delta<'_>);

    /// Adds the logprobs of a chunk, in the shape that clients of the API read.
    fn add_logprobs(logprobs: &Logprobs<'_>, lists: &mut LogprobLists);

    /// Appends the members of the choice up to `logprobs`.
    fn write(&self, index: u32, options: &Options, out: &mut BytesMut);
}

/// Whole-object encoder: collects the content of each choice and writes one object when the answer ends.
#[derive(Debug)]
pub(super) struct WholeObject<C> {
    envelope: Envelope,
    choices: Vec<CollectedChoice<C>>,
    usage: Option<Usage>,
    extensions: ExtensionLists,
    unknown_fields: BytesMut,
}

/// Collected choice of a whole object.
#[derive(Debug, Default)]
struct CollectedChoice<C> {
    content: C,
    logprobs: LogprobLists,
    finish: Option<&'static str>,
    stop: Option<String>,
    extensions: ExtensionLists,
    unknown_fields: BytesMut,
}

impl<C: WholeChoice> WholeObject<C> {
    pub(super) fn new(object: &'static str, shape: &Shape) -> Self {
        Self {
            envelope: Envelope::new(object, C::HAS_TIER, shape.options.clone(), false),
            choices: Vec::new(),
            usage: None,
            extensions: ExtensionLists::default(),
            unknown_fields: BytesMut::new(),
        }
    }

    fn keep_chunk_extras(&mut self, extras: &FrameExtras<'_>) {
        self.extensions.add(&extras.chunk_extensions);
        if self.unknown_fields.is_empty() {
            self.envelope
                .chunk_unknown_fields(extras, &mut self.unknown_fields);
        }
    }

    fn delta(&mut self, choice: u32, delta: &Delta<'_>, extras: &FrameExtras<'_>) {
        self.keep_chunk_extras(extras);
        let index = choice as usize;
        self.choices
            .resize_with(self.choices.len().max(index + 1), CollectedChoice::default);
        let Some(choice) = self.choices.get_mut(index) else {
            return;
        };
        choice.extensions.add(&extras.choice_extensions);
        if choice.unknown_fields.is_empty() {
            self.envelope
                .choice_unknown_fields(extras, C::INNER, &mut choice.unknown_fields);
        }
        if let Some(logprobs) = &extras.logprobs {
            C::add_logprobs(logprobs, &mut choice.logprobs);
        }
        match delta {
            Delta::Finish(finish) => {
                choice.finish = Some(finish.reason.as_str());
                choice.stop = finish.stop.map(compacted);
            }
            delta => choice.content.add(delta),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        self.envelope.open_object(out);
        for (index, choice) in (0..).zip(&self.choices) {
            out.extend_from_slice(if index > 0 { b",{" } else { b"{" });
            choice.content.write(index, &self.envelope.options, out);
            out.extend_from_slice(b",\"logprobs\":");
            choice.logprobs.write(out);
            out.extend_from_slice(b",\"finish_reason\":");
            write_string(choice.finish.unwrap_or("stop"), out);
            if let Some(stop) = &choice.stop {
                out.extend_from_slice(b",\"stop_reason\":");
                out.extend_from_slice(stop.as_bytes());
            }
            choice.extensions.write(out);
            out.extend_from_slice(&choice.unknown_fields);
            out.put_u8(b'}');
        }
        out.put_u8(b']');
        if let Some(usage) = &self.usage {
            self.envelope.usage_member(usage, out);
        }
        self.extensions.write(out);
        out.extend_from_slice(&self.unknown_fields);
        out.put_u8(b'}');
    }
}

impl<C: WholeChoice> Encode for WholeObject<C> {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Head(head) => self.envelope.render(&head),
            Event::Delta {
                choice,
                delta,
                extras,
            } => self.delta(choice, &delta, &extras),
            Event::Usage { usage, extras, .. } => {
                self.usage = Some(usage);
                self.keep_chunk_extras(&extras);
            }
            Event::Foreign { .. } | Event::Limits(_) => {}
            // Before the end nothing has been written, so the server answers a failure with an HTTP error instead.
            Event::Fail(_) => {}
            Event::End => {
                let out = out.open();
                out.reserve(SMALL);
                self.write(out);
            }
        }
    }
}
