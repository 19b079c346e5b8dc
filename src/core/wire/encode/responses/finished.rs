//! Output of an answer that has ended or paused, for those that go on with it: the store, a conversation, and a
//! stream that waits for the outputs of calls.

use super::call::OutputCall;
use super::item::{Item, OutputKind, WrittenState};
use crate::wire::OutputBuffer;
use bytes::Bytes;
use std::sync::Arc;

/// Answer that has ended, before or after its last event is written.
pub struct Finished {
    /// Id of the response.
    pub id: String,
    /// Value of the object's `status`: `completed`, `incomplete`, `failed` or `cancelled`.
    pub status: &'static str,
    /// True if the object has `"store":true`.
    pub stored: bool,
    /// Items of the output, in order.
    pub items: Vec<OutputItem>,
    /// Object up to the conversation, which is its last member.
    pub(super) object: OutputBuffer,
    /// Conversation as JSON; `None` if the answer belongs to none.
    pub(super) conversation: Option<Bytes>,
}

impl Finished {
    /// Returns the object as JSON. It names the conversation only if `in_conversation` is true.
    pub fn object(&self, in_conversation: bool) -> String {
        let conversation = self.conversation.as_ref().filter(|_| in_conversation);
        let end: [&[u8]; 3] = match conversation {
            Some(conversation) => [b",\"conversation\":", conversation, b"}"],
            None => [b"", b"", b"}"],
        };
        let mut object = self
            .object
            .to_vec_with(end.iter().map(|piece| piece.len()).sum());
        end.iter().for_each(|piece| object.extend_from_slice(piece));
        // The encoder writes text only, so it is valid UTF-8.
        String::from_utf8(object).unwrap_or_default()
    }
}

/// Item of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputItem {
    /// Value of the item's `id`.
    pub id: Arc<str>,
    /// Complete item as JSON.
    pub json: Arc<str>,
    /// Call that the item is; `None` for messages, reasoning and foreign items.
    pub call: Option<OutputCall>,
}

impl OutputItem {
    pub(super) fn of(item: &Item) -> Self {
        let mut out = OutputBuffer::default();
        item.write(WrittenState::Present, &mut out);
        let call = match &item.kind {
            OutputKind::Call(call) => call.reference(),
            _ => None,
        };
        // The encoder writes text only, so it is valid UTF-8.
        let json = String::from_utf8(out.to_vec()).unwrap_or_default();
        Self {
            id: item.place.id.as_str().into(),
            json: json.into(),
            call,
        }
    }
}

/// Places in which an ended answer is stored: its object names no other (wire-format 4.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persisted {
    /// False if the response could not be stored: the object then has `"store":false`.
    pub response: bool,
    /// False if the answer could not be added to its conversation: the object then names none.
    pub conversation: bool,
}

impl Persisted {
    /// Everything that the client has asked for.
    pub const ALL: Self = Self {
        response: true,
        conversation: true,
    };
}
