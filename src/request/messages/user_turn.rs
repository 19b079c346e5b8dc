//! Turn of the user: one or more messages in a row, with the results of tools (messages 3.3).
//!
//! Takes: the blocks of user messages. Gives: a chat message for each result, in the order of the calls, then one for
//! the rest. Remembers: the turn until it ends. Never: a result without its call.

use super::blocks::{Block, BlockContent, BlockPart, BlockReader, content};
use super::message::{Message, MessageRole};
use super::refuse;
use super::tools::ToolChange;
use crate::json::Raw;
use crate::request::refusals::shown;
use crate::wire::fault::{Failure, Fault};
use std::collections::HashMap;

/// Circumstances under which a message of the user is read.
pub(super) struct TurnContext<'t, 'r, 'a> {
    /// Calls of the assistant's turn before, by id, with their order.
    pub(super) calls: &'t HashMap<String, usize>,
    pub(super) blocks: &'t mut BlockReader<'r>,
    /// Changes of the tools on offer: a search for tools may find some.
    pub(super) tool_changes: &'t mut Vec<ToolChange<'a>>,
}

/// Turn of the user that is being read.
#[derive(Default)]
pub(super) struct UserTurn<'a> {
    /// True if a message of the turn has been read.
    is_begun: bool,
    /// Results with the order of their calls.
    results: Vec<(usize, Message<'a>)>,
    /// Images of results, each after a label that the text of the result names.
    pictures: Vec<BlockPart<'a>>,
    /// Parts of the user's own message.
    parts: Vec<BlockPart<'a>>,
}

impl<'a> UserTurn<'a> {
    /// Reads a user message, whose content is found at `path`.
    pub(super) fn read(
        &mut self,
        path: &str,
        raw: Raw<'a>,
        context: &mut TurnContext<'_, '_, 'a>,
    ) -> Result<(), Failure> {
        self.is_begun = true;
        let blocks = match content(path, raw)? {
            BlockContent::Text(text) => {
                self.parts.push(BlockPart::Text(text));
                return Ok(());
            }
            BlockContent::Blocks(blocks) => blocks,
        };
        for block in &blocks {
            if block.kind == "tool_result" {
                self.result(block, context)?;
            } else if let Some(part) = context.blocks.part(block)? {
                self.parts.push(part);
            }
        }
        Ok(())
    }

    /// Ends the turn, and returns its messages. A turn of nothing but results has no message of the user.
    pub(super) fn end(&mut self) -> Vec<Message<'a>> {
        let Self { is_begun, mut results, pictures, parts } = std::mem::take(self);
        results.sort_by_key(|(order, _)| *order);
        let mut messages: Vec<_> = results.into_iter().map(|(_, message)| message).collect();
        let all: Vec<_> = pictures.into_iter().chain(parts).collect();
        if !all.is_empty() || is_begun && messages.is_empty() {
            messages.push(Message::new(MessageRole::User, all));
        }
        messages
    }

    /// Reads the result of a tool. Engines take only text from tools, so its images go to the user's message.
    fn result(&mut self, block: &Block<'a>, context: &mut TurnContext<'_, '_, 'a>) -> Result<(), Failure> {
        let object = &block.object;
        let id = object.required_name("tool_use_id")?;
        let Some(order) = context.calls.get(id.decoded().as_ref()).copied() else {
            let why = format!(
                "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must have a \
                 corresponding `tool_use` block in the previous message.",
                shown(&id.decoded())
            );
            return Err(refuse(Fault::InvalidValue, object.here(), &why));
        };
        let mut parts = Vec::new();
        if object.flag("is_error")?.is_some_and(|flag| flag.get() == "true") {
            parts.push(BlockPart::Joined("Error: ".to_owned()));
        }
        let raw = object.get("content").map(|raw| content(&object.path("content"), raw)).transpose()?;
        match raw {
            None => {}
            Some(BlockContent::Text(text)) => parts.push(BlockPart::Text(text)),
            Some(BlockContent::Blocks(blocks)) => {
                let line = |block| self.line(block, context);
                let lines: Vec<_> = blocks.iter().map(line).collect::<Result<_, _>>()?;
                parts.push(BlockPart::Joined(lines.into_iter().flatten().collect::<Vec<_>>().join("\n")));
            }
        }
        self.results.push((order, Message::new(MessageRole::Tool(id), parts)));
        Ok(())
    }

    /// Returns a block of a result as text; `None` if it is dropped.
    fn line(
        &mut self,
        block: &Block<'a>,
        context: &mut TurnContext<'_, '_, 'a>,
    ) -> Result<Option<String>, Failure> {
        if block.kind == "tool_reference" {
            let name = block.object.required_name("tool_name")?.decoded().into_owned();
            let line = format!("Tool: {name}");
            context.tool_changes.push(ToolChange::Offer(name));
            return Ok(Some(line));
        }
        Ok(match context.blocks.part(block)? {
            Some(image @ BlockPart::Image(_)) => {
                let label = format!("[image {}]", self.pictures.len() / 2 + 1);
                self.pictures.extend([BlockPart::Joined(label.clone()), image]);
                Some(label)
            }
            Some(part) => Some(part.text().unwrap_or_default().decoded().into_owned()),
            None => None,
        })
    }
}
