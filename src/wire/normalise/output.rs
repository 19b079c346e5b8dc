//! Output of the normaliser: the encoder, and what the driver has to know of the answer.

use crate::json::Text;
use crate::wire::encode::Encode;
use crate::wire::event::{Delta, Event, Riders};
use crate::wire::fault::Failure;
use crate::wire::{OutputBuffer, PROMPT_TOKEN_IDS};

/// Destination of grammatical events: the encoder and its output, and the state that outlives single events.
pub(in crate::wire) struct Output<'o> {
    pub(in crate::wire) encoder: &'o mut dyn Encode,
    pub(in crate::wire) out: &'o mut OutputBuffer,
    /// True once anything has been written for the client. A failure then goes into the stream.
    pub(in crate::wire) committed: &'o mut bool,
    /// True once the prompt's token ids have been sent.
    pub(in crate::wire) prompt_sent: &'o mut bool,
    /// Failure before anything was written; it becomes an HTTP error (wire-format 3.1).
    pub(in crate::wire) failure: &'o mut Option<Failure>,
}

impl Output<'_> {
    pub(super) fn event(&mut self, mut event: Event<'_>) {
        if let Event::Delta { riders, .. } | Event::Usage { riders, .. } = &mut event {
            *self.prompt_sent |= riders.chunk_extensions.iter().any(|(key, _)| key == PROMPT_TOKEN_IDS);
        }
        match event {
            Event::Fail(failure) if !*self.committed => *self.failure = Some(failure),
            event => {
                let before = self.out.len();
                self.encoder.event(event, self.out);
                *self.committed |= self.out.len() > before || self.encoder.is_waiting();
            }
        }
    }

    /// Removes the prompt's token ids if they have been sent: engines may repeat them for each choice.
    pub(super) fn drop_sent_prompt(&self, riders: &mut Riders<'_>) {
        if *self.prompt_sent {
            riders.chunk_extensions.take(PROMPT_TOKEN_IDS);
        }
    }

    pub(super) fn delta(&mut self, choice: u32, delta: Delta<'_>, riders: Riders<'_>) {
        self.event(Event::Delta { choice, delta, riders });
    }
}

/// Sends text held behind a call's arguments. `held`: the text in JSON spelling.
pub(super) fn send_held(choice: u32, slot: u32, held: Vec<u8>, to: &mut Output<'_>) {
    if let Ok(held) = std::str::from_utf8(&held) {
        to.delta(choice, Delta::ToolArgs { slot, args: Text::json(held) }, Riders::default());
    }
}
