//! Message of the chat that a Messages request becomes (messages 3.3).
//!
//! Takes: parts, reasoning and calls. Gives: the message as JSON. Never: changes their order.

use super::blocks::{self, BlockPart};
use crate::json::{Text, write_string};
use bytes::{BufMut, BytesMut};

/// Message of the chat.
pub(super) struct Message<'a> {
    pub(super) role: MessageRole<'a>,
    pub(super) parts: Vec<BlockPart<'a>>,
    pub(super) reasoning: String,
    pub(super) calls: Vec<MessageCall<'a>>,
}

pub(super) enum MessageRole<'a> {
    System,
    User,
    Assistant,
    /// Result of a tool, with the id of the call that it answers.
    Tool(Text<'a>),
}

pub(super) struct MessageCall<'a> {
    pub(super) id: Text<'a>,
    pub(super) name: Text<'a>,
    /// Arguments: the text of a JSON object.
    pub(super) arguments: String,
}

impl<'a> Message<'a> {
    pub(super) fn new(role: MessageRole<'a>, parts: Vec<BlockPart<'a>>) -> Self {
        Self { role, parts, reasoning: String::new(), calls: Vec::new() }
    }

    /// Appends the text of further parts, after an empty line.
    pub(super) fn append(&mut self, parts: &[BlockPart<'_>]) {
        if !matches!(self.parts.as_slice(), [BlockPart::Joined(_)]) {
            self.parts = vec![BlockPart::Joined(blocks::joined_text(&self.parts))];
        }
        if let [BlockPart::Joined(text)] = self.parts.as_mut_slice() {
            text.push_str("\n\n");
            text.push_str(&blocks::joined_text(parts));
        }
    }

    /// Appends the message as JSON.
    pub(super) fn write(&self, out: &mut BytesMut) {
        // An assistant's blocks were one text, split where other output came between.
        let (role, between) = match &self.role {
            MessageRole::System => ("{\"role\":\"system\"", "\n"),
            MessageRole::User => ("{\"role\":\"user\"", "\n"),
            MessageRole::Assistant => ("{\"role\":\"assistant\"", ""),
            MessageRole::Tool(_) => ("{\"role\":\"tool\"", ""),
        };
        out.extend_from_slice(role.as_bytes());
        if let MessageRole::Tool(id) = &self.role {
            out.extend_from_slice(b",\"tool_call_id\":\"");
            id.write(out);
            out.put_u8(b'"');
        }
        out.extend_from_slice(b",\"content\":");
        if self.parts.is_empty() && !self.calls.is_empty() {
            out.extend_from_slice(b"null");
        } else {
            blocks::write(&self.parts, between, out);
        }
        if !self.reasoning.is_empty() {
            out.extend_from_slice(b",\"reasoning_content\":");
            write_string(&self.reasoning, out);
        }
        for (at, call) in self.calls.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b"," } else { b",\"tool_calls\":[" });
            out.extend_from_slice(b"{\"id\":\"");
            call.id.write(out);
            out.extend_from_slice(b"\",\"type\":\"function\",\"function\":{\"name\":\"");
            call.name.write(out);
            out.extend_from_slice(b"\",\"arguments\":");
            write_string(&call.arguments, out);
            out.extend_from_slice(b"}}");
        }
        out.extend_from_slice(if self.calls.is_empty() { b"}" } else { b"]}" });
    }
}
