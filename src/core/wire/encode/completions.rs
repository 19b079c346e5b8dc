//! Choices of the legacy Completions API.
//!
//! Keys of a chunk or object: `id, object, created, model, system_fingerprint?, choices, usage?`; of a choice:
//! `text, index, logprobs, finish_reason`. No role frame; the finish frame has empty text (wire-format 2.11).

use super::frame::{LogprobLists, write_arrays, write_index};
use super::stream::StreamChoice;
use super::whole::WholeChoice;
use crate::wire::event::{Delta, FrameExtras, Logprobs};
use crate::wire::options::Options;
use bytes::BytesMut;

/// Value of `object` in a chunk or whole answer.
pub(super) const OBJECT: &str = "text_completion";

/// Writer of a choice's members in a Completions stream.
#[derive(Debug, Default)]
pub(super) struct CompletionsChoices {
    /// Character offset of each choice's next token, for engines that send tokens without offsets.
    offsets: Vec<usize>,
}

impl StreamChoice for CompletionsChoices {
    const HAS_TIER: bool = false;

    fn has_frame(delta: &Delta<'_>) -> bool {
        matches!(delta, Delta::Content(_) | Delta::Finish(_) | Delta::Bare)
    }

    fn write(
        &mut self,
        choice: u32,
        delta: &Delta<'_>,
        extras: &FrameExtras<'_>,
        out: &mut BytesMut,
    ) -> Option<String> {
        out.extend_from_slice(b"{\"text\":\"");
        if let Delta::Content(text) = delta {
            text.write(out);
        }
        out.extend_from_slice(b"\",");
        write_index(choice, out);
        out.extend_from_slice(b",\"logprobs\":");
        let at = choice as usize;
        if extras.logprobs.is_some() && self.offsets.len() <= at {
            self.offsets.resize(at + 1, 0);
        }
        let offset = self.offsets.get_mut(at);
        write_arrays(extras.logprobs.as_ref(), offset.unwrap_or(&mut 0), out);
        None
    }
}

/// Collected text of one choice of a whole object.
#[derive(Debug, Default)]
pub(super) struct WholeText(BytesMut);

impl WholeChoice for WholeText {
    const HAS_TIER: bool = false;
    const INNER: &'static str = "delta";

    fn add(&mut self, delta: &Delta<'_>) {
        if let Delta::Content(text) = delta {
            text.write(&mut self.0);
        }
    }

    fn add_logprobs(logprobs: &Logprobs<'_>, lists: &mut LogprobLists) {
        lists.add_as_arrays(logprobs);
    }

    fn write(&self, index: u32, _: &Options, out: &mut BytesMut) {
        out.extend_from_slice(b"\"text\":\"");
        out.extend_from_slice(&self.0);
        out.extend_from_slice(b"\",");
        write_index(index, out);
    }
}
