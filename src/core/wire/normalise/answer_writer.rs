//! Output of the normaliser: the client's encoder, and what has been sent of the answer.

use super::merge::Merge;
use crate::json::Text;
use crate::wire::encode::{Encode, LimitUse, Response, ServerCalls, encoder};
use crate::wire::event::{Delta, Event, FrameExtras};
use crate::wire::fault::Failure;
use crate::wire::{
    MissingChoices, OutputBuffer, PROMPT_TOKEN_IDS, Progress, Shape, Stamp, Summary,
};

/// Writer of the client's answer: its encoder, and the state that outlives single events.
pub struct AnswerWriter {
    pub(in crate::wire) encoder: Box<dyn Encode>,
    /// True once the status or anything of the answer has been sent: a failure then becomes an error frame.
    pub(in crate::wire) committed: bool,
    /// Failure before anything was written; it becomes an HTTP error (wire-format 3.1).
    pub(in crate::wire) failure: Option<Failure>,
    /// Failure that the encoder has found, after which nothing more is written.
    pub(in crate::wire) rejection: Option<Failure>,
    /// True once the prompt's token ids have been sent; they are sent only once.
    pub(in crate::wire) prompt_sent: bool,
    /// State that merges several engine answers, if each choice has its own.
    pub(in crate::wire) merge: Option<Box<Merge>>,
    /// True if the engine's answer has ended and that of the client has not: it waits for the outputs of its calls.
    paused: bool,
    /// True once the answer has gone on after a pause.
    has_resumed: bool,
}

impl AnswerWriter {
    /// Creates the writer of an answer of which nothing has been sent.
    pub(in crate::wire) fn new(encoder: Box<dyn Encode>) -> Self {
        let mut writer = Self {
            encoder,
            committed: false,
            failure: None,
            rejection: None,
            prompt_sent: false,
            merge: None,
            paused: false,
            has_resumed: false,
        };
        writer.paused = writer.encoder_has_paused();
        writer
    }

    /// Creates the writer of an answer that is merged from one engine answer for each choice.
    pub fn merging(shape: &Shape, stamp: &Stamp) -> Self {
        let mut writer = Self::new(encoder(shape, stamp));
        writer.merge_with(Merge::new(shape.choices));
        writer
    }

    /// Merges engine answers from now on: one has ended with fewer choices than requested, and each missing one comes from
    /// its own answer. `past`: the summary of the answer that has ended.
    pub fn merge_missing(&mut self, missing: MissingChoices, past: Summary) {
        self.merge_with(Merge::after(missing, self.prompt_sent, past));
    }

    /// Merges engine answers from now on, each of which gives one choice.
    fn merge_with(&mut self, merge: Merge) {
        // The other answers, too, decide whether a failure can still become an HTTP error, so the caller decides it.
        self.committed = true;
        self.merge = Some(Box::new(merge));
    }

    /// Returns true if the answer is merged from several engine answers.
    pub fn is_merged(&self) -> bool {
        self.merge.is_some()
    }

    /// Prepares a merged answer for another engine answer in place of this choice's, which has failed.
    pub fn restart(&mut self, choice: u32) {
        if let Some(merge) = &mut self.merge {
            merge.restart(choice);
        }
    }

    /// Adds the summary of an engine answer that has ended to that of the merged answer.
    pub fn add_summary(&mut self, summary: Summary) {
        if let Some(merge) = &mut self.merge {
            merge.past.add(summary);
        }
    }

    /// Fails the whole merged answer, because one engine answer has failed for good.
    pub fn give_up(&mut self, failure: &Failure, out: &mut OutputBuffer) {
        if let Some(merge) = &mut self.merge {
            merge.fail(failure.clone(), &mut *self.encoder, out);
        }
    }

    /// Returns the progress of the answer. `part`: that of the engine answer that is read.
    pub fn progress(&self, part: Progress) -> Progress {
        match &self.merge {
            Some(merge) => Progress {
                has_content: merge.has_content,
                ended: merge.ended,
            },
            None => Progress {
                ended: part.ended && !self.paused,
                ..part
            },
        }
    }

    /// Returns the summary of the answer so far, for logs and metrics. `part`: that of the engine answer that is read.
    pub fn summary(&self, mut part: Summary) -> Summary {
        if let Some(merge) = &self.merge {
            part.add(merge.past.clone());
        }
        part
    }

    /// Marks the status as sent: from now on a failure becomes an error frame in the stream.
    pub fn commit(&mut self) {
        self.committed = true;
    }

    /// Returns the failure that must become the HTTP answer, because nothing has been sent yet.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Sets the share of the client's limits that is used up, for dialects that report it.
    pub fn limits(&mut self, limits: LimitUse) {
        if let Some(response) = self.response_mut() {
            response.limits(limits);
        }
    }

    /// Sets the time, in Unix seconds, for output until the next call.
    pub fn clock(&mut self, now: u64) {
        if let Some(response) = self.response_mut() {
            response.clock(now);
        }
    }

    /// Returns the encoder of a Responses answer, which knows more of it than the bytes that it has written.
    pub fn response(&self) -> Option<&Response> {
        self.encoder.response()
    }

    /// Returns the encoder of a Responses answer, to write what its events do not cause.
    pub fn response_mut(&mut self) -> Option<&mut Response> {
        self.encoder.response_mut()
    }

    /// Returns true while the answer waits for the outputs of its calls, after which another engine answer continues
    /// it.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Continues a paused answer with another engine answer, or ends it, if its end has been written.
    pub fn resume(&mut self) {
        (self.paused, self.has_resumed) = (false, true);
    }

    /// Returns true if the client may have all that is written, whether this engine answer has content or not: an earlier
    /// one had, or calls that the client has approved run.
    pub fn is_past_pause(&self) -> bool {
        self.paused || self.has_resumed
    }

    /// Returns the adapter for tools that samewire runs; `None` if there are none.
    pub fn server_calls(&mut self) -> Option<&mut ServerCalls> {
        self.encoder.server_calls()
    }

    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Fail(failure) if !self.committed => {
                (self.failure, self.paused) = (Some(failure), false);
            }
            event => {
                let (before, is_end) = (out.len(), matches!(event, Event::End));
                self.encoder.event(event, out);
                self.committed |= out.len() > before || self.encoder.is_waiting();
                self.paused = is_end && self.encoder_has_paused();
            }
        }
    }

    fn encoder_has_paused(&mut self) -> bool {
        self.response().is_some_and(Response::is_paused)
            || self.server_calls().is_some_and(|calls| calls.is_paused())
    }

    /// Returns true if the bytes for a delta depend only on that delta and on the last head. In a merged answer the
    /// head may be another answer's.
    pub(in crate::wire) fn is_plain(&self) -> bool {
        self.merge.is_none() && self.encoder.is_plain()
    }
}

/// Destination of grammatical events: the writer of the client's answer, and the buffer that it writes to.
pub(in crate::wire) struct EncoderOutput<'o> {
    pub(in crate::wire) writer: &'o mut AnswerWriter,
    pub(in crate::wire) out: &'o mut OutputBuffer,
    /// Index of the only choice, if the other choices come from separate answers; else 0.
    pub(in crate::wire) choice: u32,
}

impl EncoderOutput<'_> {
    pub(super) fn event(&mut self, mut event: Event<'_>) {
        let Self {
            writer,
            out,
            choice,
        } = self;
        if let Event::Delta { extras, .. } | Event::Usage { extras, .. } = &mut event {
            writer.prompt_sent |= extras
                .chunk_extensions
                .iter()
                .any(|(key, _)| key == PROMPT_TOKEN_IDS);
        }
        if let Some(merge) = &mut writer.merge {
            return merge.event(*choice, event, &mut *writer.encoder, out);
        }
        if writer.rejection.is_some() {
            return;
        }
        writer.event(event, out);
        if let Some(failure) = writer.encoder.take_rejection() {
            writer.event(Event::Fail(failure.clone()), out);
            writer.rejection = Some(failure);
        }
    }

    /// Removes the prompt's token ids if they have been sent: engines may repeat them for each choice.
    pub(super) fn drop_sent_prompt(&self, extras: &mut FrameExtras<'_>) {
        if self.writer.prompt_sent {
            extras.chunk_extensions.take(PROMPT_TOKEN_IDS);
        }
    }

    pub(super) fn delta(&mut self, choice: u32, delta: Delta<'_>, extras: FrameExtras<'_>) {
        self.event(Event::Delta {
            choice,
            delta,
            extras,
        });
    }
}

/// Arguments of a call that has none.
pub(super) const NO_ARGUMENTS: &str = "{}";

/// Sends an empty object as the arguments of a call that has none.
pub(super) fn send_no_arguments(choice: u32, slot: u32, to: &mut EncoderOutput<'_>) {
    to.delta(
        choice,
        Delta::ToolArgs {
            slot,
            args: Text::plain(NO_ARGUMENTS),
        },
        FrameExtras::default(),
    );
}

/// Sends arguments of a call that were held.
pub(super) fn send_held(choice: u32, slot: u32, args: Text<'_>, to: &mut EncoderOutput<'_>) {
    to.delta(
        choice,
        Delta::ToolArgs { slot, args },
        FrameExtras::default(),
    );
}
