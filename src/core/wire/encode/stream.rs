//! Event stream of Chat Completions or Completions: one frame for each delta, then the usage frame and `[DONE]`.
//!
//! Takes: grammatical events. Gives: SSE frames. Remembers: the envelope, and a frame that waits for the finish of its
//! choice. Never: knows the members of a choice before `finish_reason`, in which the APIs differ.

use super::Encode;
use super::frame::{Envelope, write_extensions};
use crate::json::{write_compact, write_string};
use crate::wire::event::{Delta, Event, Finish, FrameExtras};
use crate::wire::sse::DONE;
use crate::wire::{OutputBuffer, Shape};
use bytes::{BufMut, BytesMut};

/// Members of the choice in a frame of one API.
pub(super) trait StreamChoice: Send {
    /// True if the frames of the API have the member `service_tier`.
    const HAS_TIER: bool;

    /// Returns true if clients of the API get a frame for this delta.
    fn has_frame(delta: &Delta<'_>) -> bool;

    /// Appends the choice from its opening brace up to `finish_reason`. Returns the obfuscation padding that the frame
    /// needs, if any.
    fn write(
        &mut self,
        choice: u32,
        delta: &Delta<'_>,
        extras: &FrameExtras<'_>,
        out: &mut BytesMut,
    ) -> Option<String>;

    /// Returns true if the bytes for a delta depend on nothing but the delta and the last head.
    fn is_plain(&self) -> bool {
        true
    }
}

/// Streaming encoder: writes one SSE frame for each delta, then the usage frame and `[DONE]`.
#[derive(Debug)]
pub(super) struct FrameStream<C> {
    envelope: Envelope,
    choices: C,
    /// True if usage stays on the frames (option `continuous_usage`). A chunk that has both text and a finish then has
    /// one count for both: its last frame waits and goes out merged with the finish, so that the count is sent once.
    counts: bool,
    waiting: Option<WaitingFrame>,
}

#[derive(Debug)]
struct WaitingFrame {
    choice: u32,
    frame: BytesMut,
    /// Position of its finish reason, which is null.
    reason: usize,
}

impl<C: StreamChoice> FrameStream<C> {
    pub(super) fn new(object: &'static str, shape: &Shape, choices: C) -> Self {
        Self {
            envelope: Envelope::new(
                object,
                C::HAS_TIER,
                shape.options.clone(),
                shape.include_usage,
            ),
            choices,
            counts: shape.include_usage && shape.has_continuous_usage(),
            waiting: None,
        }
    }

    fn delta(
        &mut self,
        choice: u32,
        delta: &Delta<'_>,
        extras: &FrameExtras<'_>,
        out: &mut BytesMut,
    ) {
        if !C::has_frame(delta) {
            return;
        }
        if let Delta::Finish(finish) = delta
            && self.merge_finish(choice, finish, extras, out)
        {
            return;
        }
        self.release(out);
        // The chunk of this delta also ends the choice.
        let is_last = extras.usage.as_ref().is_some_and(|running| running.last);
        if self.counts && is_last && !matches!(delta, Delta::Role | Delta::Finish(_)) {
            let mut frame = BytesMut::new();
            let reason = self.frame(choice, delta, extras, &mut frame);
            self.waiting = Some(WaitingFrame {
                choice,
                frame,
                reason,
            });
        } else {
            self.frame(choice, delta, extras, out);
        }
    }

    /// Appends a frame. Returns the position of its finish reason, counted from the start of `out`.
    fn frame(
        &mut self,
        choice: u32,
        delta: &Delta<'_>,
        extras: &FrameExtras<'_>,
        out: &mut BytesMut,
    ) -> usize {
        self.envelope.open_frame(out);
        let padding = self.choices.write(choice, delta, extras, out);
        out.extend_from_slice(b",\"finish_reason\":");
        let reason = out.len();
        match delta {
            Delta::Finish(finish) => write_reason(finish, out),
            _ => out.extend_from_slice(b"null"),
        }
        write_extensions(&extras.choice_extensions, out);
        self.envelope.choice_unknown_fields(extras, "delta", out);
        out.put_u8(b'}');
        self.envelope.close_frame(extras, padding.as_deref(), out);
        reason
    }

    /// Appends the waiting frame unchanged, because another event than the finish comes next.
    fn release(&mut self, out: &mut BytesMut) {
        if let Some(waiting) = self.waiting.take() {
            out.extend_from_slice(&waiting.frame);
        }
    }

    /// Appends the waiting frame merged with the finish of its choice. Returns false if no frame of that choice
    /// waits, or if the finish has extras and so needs its own frame.
    fn merge_finish(
        &mut self,
        choice: u32,
        finish: &Finish<'_>,
        extras: &FrameExtras<'_>,
        out: &mut BytesMut,
    ) -> bool {
        let is_it = |waiting: &mut WaitingFrame| waiting.choice == choice && extras.is_empty();
        let Some(waiting) = self.waiting.take_if(is_it) else {
            return false;
        };
        let (before, after) = waiting.frame.split_at(waiting.reason);
        out.extend_from_slice(before);
        write_reason(finish, out);
        out.extend_from_slice(after.strip_prefix(b"null").unwrap_or(after));
        true
    }
}

impl<C: StreamChoice> Encode for FrameStream<C> {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let out = out.open();
        if matches!(event, Event::Usage { .. } | Event::Fail(_) | Event::End) {
            self.release(out);
        }
        match event {
            Event::Head(head) => self.envelope.render(&head),
            Event::Delta {
                choice,
                delta,
                extras,
            } => self.delta(choice, &delta, &extras, out),
            Event::Usage { usage, extras, .. } => self.envelope.usage_frame(&usage, &extras, out),
            Event::Foreign { .. } | Event::Limits(_) => {}
            Event::Fail(failure) => self.envelope.error_frame(&failure, out),
            Event::End => out.extend_from_slice(DONE),
        }
    }

    fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    fn is_plain(&self) -> bool {
        !self.counts && self.choices.is_plain()
    }
}

/// Appends the value of `finish_reason`, followed by `stop_reason` if there is one.
fn write_reason(Finish { reason, stop }: &Finish<'_>, out: &mut BytesMut) {
    write_string(reason.as_str(), out);
    if let Some(stop) = stop {
        out.extend_from_slice(b",\"stop_reason\":");
        write_compact(stop.get(), out);
    }
}
