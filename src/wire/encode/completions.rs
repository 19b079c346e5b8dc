//! Encoder for the legacy Completions API.
//!
//! Keys of a chunk or object: `id, object, created, model, system_fingerprint?, choices, usage?`; of a choice:
//! `text,
//! index, logprobs, finish_reason`. No role frame; the finish frame has empty text (wire-format 2.11).

use super::Encode;
use super::frame::{
    Envelope, ExtensionLists, LastFrame, LogprobLists, write_arrays, write_extensions, write_index,
    write_reason,
};
use crate::json::{write_compact, write_string};
use crate::wire::event::{Delta, Event, Finish, Head, Riders, Usage};
use crate::wire::sse::DONE;
use crate::wire::{OutputBuffer, Shape};
use bytes::{BufMut, BytesMut};

/// Streaming encoder: writes one SSE frame for each delta, then the usage frame and `[DONE]`.
#[derive(Debug)]
pub(super) struct CompletionsStream {
    envelope: Envelope,
    last: LastFrame,
    /// Character offset of each choice's next token, for engines that send tokens without offsets.
    offsets: Vec<usize>,
}

impl CompletionsStream {
    pub(super) fn new(shape: &Shape) -> Self {
        let envelope = Envelope::new("text_completion", shape.options.clone(), shape.include_usage);
        Self { envelope, last: LastFrame::new(shape), offsets: Vec::new() }
    }

    fn delta(&mut self, choice: u32, delta: &Delta<'_>, riders: &Riders<'_>, out: &mut BytesMut) {
        let (text, finish) = match delta {
            Delta::Content(text) => (Some(text), None),
            Delta::Finish(finish) => (None, Some(finish)),
            Delta::Bare => (None, None),
            _ => return,
        };
        if finish.is_some_and(|finish| self.last.finish(choice, finish, riders, out)) {
            return;
        }
        self.last.release(out);
        match self.last.must_wait(delta, riders) {
            true => {
                let mut frame = BytesMut::new();
                let reason = self.frame(choice, text, finish, riders, &mut frame);
                self.last.keep(choice, frame, reason);
            }
            false => {
                self.frame(choice, text, finish, riders, out);
            }
        }
    }

    /// Appends a frame. Returns the position of its finish reason, counted from the start of `out`.
    fn frame(
        &mut self,
        choice: u32,
        text: Option<&crate::json::Text<'_>>,
        finish: Option<&Finish<'_>>,
        riders: &Riders<'_>,
        out: &mut BytesMut,
    ) -> usize {
        self.envelope.open_frame(out);
        out.extend_from_slice(b"{\"text\":\"");
        if let Some(text) = text {
            text.write(out);
        }
        out.extend_from_slice(b"\",");
        write_index(choice, out);
        out.extend_from_slice(b",\"logprobs\":");
        let at = choice as usize;
        if riders.logprobs.is_some() && self.offsets.len() <= at {
            self.offsets.resize(at + 1, 0);
        }
        let offset = self.offsets.get_mut(at);
        write_arrays(riders.logprobs.as_ref(), offset.unwrap_or(&mut 0), out);
        out.extend_from_slice(b",\"finish_reason\":");
        let reason = out.len();
        write_reason(finish, out);
        write_extensions(&riders.choice_extensions, out);
        self.envelope.choice_leftovers(riders, "delta", out);
        out.put_u8(b'}');
        self.envelope.close_frame(riders, None, out);
        reason
    }
}

impl Encode for CompletionsStream {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let out = out.open();
        if matches!(event, Event::Usage { .. } | Event::Fail(_) | Event::End) {
            self.last.release(out);
        }
        match event {
            // The legacy object has no service tier.
            Event::Head(head) => self.envelope.render(&Head { tier: None, ..head }),
            Event::Delta { choice, delta, riders } => self.delta(choice, &delta, &riders, out),
            Event::Usage { usage, riders, .. } => self.envelope.usage_frame(&usage, &riders, out),
            Event::Foreign { .. } | Event::Limits(_) => {}
            Event::Fail(failure) => self.envelope.error_frame(&failure, out),
            Event::End => out.extend_from_slice(DONE),
        }
    }

    fn is_waiting(&self) -> bool {
        self.last.is_waiting()
    }

    fn is_plain(&self) -> bool {
        self.last.is_plain()
    }
}

/// Whole-object encoder: collects text and logprobs of each choice and writes one object when the answer ends.
#[derive(Debug)]
pub(super) struct CompletionsWhole {
    envelope: Envelope,
    choices: Vec<ChoiceText>,
    usage: Option<Usage>,
    extensions: ExtensionLists,
    leftovers: BytesMut,
}

/// Collected state of one choice of a whole object, in canonical JSON spelling.
#[derive(Debug, Default)]
struct ChoiceText {
    text: BytesMut,
    logprobs: LogprobLists,
    finish: Option<&'static str>,
    stop: BytesMut,
    extensions: ExtensionLists,
    leftovers: BytesMut,
}

impl CompletionsWhole {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            envelope: Envelope::new("text_completion", shape.options.clone(), false),
            choices: Vec::new(),
            usage: None,
            extensions: ExtensionLists::default(),
            leftovers: BytesMut::new(),
        }
    }

    fn keep_chunk_riders(&mut self, riders: &Riders<'_>) {
        self.extensions.add(&riders.chunk_extensions);
        if self.leftovers.is_empty() {
            self.envelope.chunk_leftovers(riders, &mut self.leftovers);
        }
    }

    fn delta(&mut self, choice: u32, delta: &Delta<'_>, riders: &Riders<'_>) {
        self.keep_chunk_riders(riders);
        let index = choice as usize;
        self.choices.resize_with(self.choices.len().max(index + 1), ChoiceText::default);
        let Some(choice) = self.choices.get_mut(index) else { return };
        choice.extensions.add(&riders.choice_extensions);
        if choice.leftovers.is_empty() {
            self.envelope.choice_leftovers(riders, "delta", &mut choice.leftovers);
        }
        if let Some(logprobs) = &riders.logprobs {
            choice.logprobs.add_as_arrays(logprobs);
        }
        match delta {
            Delta::Content(text) => text.write(&mut choice.text),
            Delta::Finish(Finish { reason, stop }) => {
                choice.finish = Some(reason.as_str());
                if let Some(stop) = stop {
                    write_compact(stop.get(), &mut choice.stop);
                }
            }
            _ => {}
        }
    }

    fn write(&self, out: &mut BytesMut) {
        self.envelope.open_object(out);
        for (at, choice) in self.choices.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b",{\"text\":\"" } else { b"{\"text\":\"" });
            out.extend_from_slice(&choice.text);
            out.extend_from_slice(b"\",");
            write_index(u32::try_from(at).unwrap_or(u32::MAX), out);
            out.extend_from_slice(b",\"logprobs\":");
            choice.logprobs.write(out);
            out.extend_from_slice(b",\"finish_reason\":");
            write_string(choice.finish.unwrap_or("stop"), out);
            if !choice.stop.is_empty() {
                out.extend_from_slice(b",\"stop_reason\":");
                out.extend_from_slice(&choice.stop);
            }
            choice.extensions.write(out);
            out.extend_from_slice(&choice.leftovers);
            out.put_u8(b'}');
        }
        out.put_u8(b']');
        if let Some(usage) = &self.usage {
            self.envelope.usage_member(usage, out);
        }
        self.extensions.write(out);
        out.extend_from_slice(&self.leftovers);
        out.put_u8(b'}');
    }
}

impl Encode for CompletionsWhole {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let out = out.open();
        match event {
            // The legacy object has no service tier.
            Event::Head(head) => self.envelope.render(&Head { tier: None, ..head }),
            Event::Delta { choice, delta, riders } => self.delta(choice, &delta, &riders),
            Event::Usage { usage, riders, .. } => {
                self.usage = Some(usage);
                self.keep_chunk_riders(&riders);
            }
            Event::Foreign { .. } | Event::Limits(_) => {}
            // Before the end nothing has been written, so the server answers a failure with an HTTP error instead.
            Event::Fail(_) => {}
            Event::End => self.write(out),
        }
    }
}
