//! Output of the normaliser: the client's encoder, and what has been sent of the answer.

use super::merge::Merge;
use crate::json::Text;
use crate::wire::encode::Encode;
use crate::wire::event::{Delta, Event, Riders};
use crate::wire::fault::Failure;
use crate::wire::{OutputBuffer, PROMPT_TOKEN_IDS};

/// Writer of the client's answer: its encoder, and the state that outlives single events.
pub(in crate::wire) struct AnswerWriter {
    pub(in crate::wire) encoder: Box<dyn Encode>,
    /// True once the status or anything of the answer has been sent: a failure then becomes an error frame.
    pub(in crate::wire) committed: bool,
    /// Failure before anything was written; it becomes an HTTP error (wire-format 3.1).
    pub(in crate::wire) failure: Option<Failure>,
    /// Failure that the encoder has found, after which nothing more is written.
    pub(in crate::wire) rejection: Option<Failure>,
    /// True once the prompt's token ids have been sent; they are sent only once.
    pub(in crate::wire) prompt_sent: bool,
    /// State that merges several engine answers, if each choice has one of its own.
    pub(in crate::wire) merge: Option<Box<Merge>>,
}

impl AnswerWriter {
    /// Creates the writer of an answer of which nothing has been sent.
    pub(in crate::wire) fn new(encoder: Box<dyn Encode>) -> Self {
        Self { encoder, committed: false, failure: None, rejection: None, prompt_sent: false, merge: None }
    }

    /// Merges engine answers from now on, each of which gives one choice.
    pub(in crate::wire) fn merge_with(&mut self, merge: Merge) {
        // The other answers, too, decide whether a failure can still become an HTTP error, so the caller decides it.
        self.committed = true;
        self.merge = Some(Box::new(merge));
    }

    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        match event {
            Event::Fail(failure) if !self.committed => self.failure = Some(failure),
            event => {
                let before = out.len();
                self.encoder.event(event, out);
                self.committed |= out.len() > before || self.encoder.is_waiting();
            }
        }
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
    /// Index of the only choice, if the other choices come from answers of their own; else 0.
    pub(in crate::wire) choice: u32,
}

impl EncoderOutput<'_> {
    pub(super) fn event(&mut self, mut event: Event<'_>) {
        let Self { writer, out, choice } = self;
        if let Event::Delta { riders, .. } | Event::Usage { riders, .. } = &mut event {
            writer.prompt_sent |= riders.chunk_extensions.iter().any(|(key, _)| key == PROMPT_TOKEN_IDS);
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
    pub(super) fn drop_sent_prompt(&self, riders: &mut Riders<'_>) {
        if self.writer.prompt_sent {
            riders.chunk_extensions.take(PROMPT_TOKEN_IDS);
        }
    }

    pub(super) fn delta(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'_>) {
        self.event(Event::Delta { choice, delta, riders });
    }
}

/// Arguments of a call that has none.
pub(super) const NO_ARGUMENTS: &str = "{}";

/// Sends an empty object as the arguments of a call that has none.
pub(super) fn send_no_arguments(choice: u32, slot: u32, to: &mut EncoderOutput<'_>) {
    to.delta(choice, Delta::ToolArgs { slot, args: Text::plain(NO_ARGUMENTS) }, Riders::default());
}

/// Sends arguments of a call that were held.
pub(super) fn send_held(choice: u32, slot: u32, args: Text<'_>, to: &mut EncoderOutput<'_>) {
    to.delta(choice, Delta::ToolArgs { slot, args }, Riders::default());
}
