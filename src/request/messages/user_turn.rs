//! Turn of the user: one or more messages in a row, with the results of tools (messages 3.3).
//!
//! Takes: the blocks of user messages. Gives: a chat message for each result, in the order of the calls, then one for
//! the rest. Remembers: the turn until it ends. Never: a result without its call.

use super::blocks::{Block, Content, Part, content};
use super::conversation::{Message, Reader, Role};
use super::refuse;
use super::tools::ToolChange;
use crate::json::Raw;
use crate::wire::fault::{Failure, Fault};

/// Turn of the user that is being read.
#[derive(Default)]
pub(super) struct UserTurn<'a> {
    /// True if a message of the turn has been read.
    is_begun: bool,
    /// Results with the order of their calls.
    results: Vec<(usize, Message<'a>)>,
    /// Images of results, each behind a label that the text of the result names.
    pictures: Vec<Part<'a>>,
    /// Parts of the user's own message.
    parts: Vec<Part<'a>>,
}

impl<'a> Reader<'_, 'a> {
    /// Reads a user message.
    pub(super) fn user(&mut self, path: &str, raw: Raw<'a>) -> Result<(), Failure> {
        self.turn.is_begun = true;
        let blocks = match content(path, raw)? {
            Content::Text(text) => {
                self.turn.parts.push(Part::Text(text));
                return Ok(());
            }
            Content::Blocks(blocks) => blocks,
        };
        for block in &blocks {
            if block.kind == "tool_result" {
                self.result(block)?;
            } else if let Some(part) = self.part(block)? {
                self.turn.parts.push(part);
            }
        }
        Ok(())
    }

    /// Ends the turn: adds its messages. A turn of nothing but results has no message of the user.
    pub(super) fn end_turn(&mut self) {
        let UserTurn { is_begun, mut results, pictures, parts } = std::mem::take(&mut self.turn);
        results.sort_by_key(|(order, _)| *order);
        let has_results = !results.is_empty();
        let messages = &mut self.found.messages;
        messages.extend(results.into_iter().map(|(_, message)| message));
        let all: Vec<_> = pictures.into_iter().chain(parts).collect();
        if !all.is_empty() || is_begun && !has_results {
            messages.push(Message::new(Role::User, all));
        }
    }

    /// Reads the result of a tool. Engines take only text from tools, so its images go to the user's message.
    fn result(&mut self, block: &Block<'a>) -> Result<(), Failure> {
        let object = &block.object;
        let id = object.required_name("tool_use_id")?;
        let Some(order) = self.calls.get(id.decoded().as_ref()).copied() else {
            let why = format!(
                "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must have a \
                 corresponding `tool_use` block in the previous message.",
                id.decoded()
            );
            return Err(refuse(Fault::InvalidValue, object.here(), &why));
        };
        let mut parts = Vec::new();
        if object.flag("is_error")?.is_some_and(|flag| flag.get() == "true") {
            parts.push(Part::Joined("Error: ".to_owned()));
        }
        let raw = object.get("content").map(|raw| content(&object.path("content"), raw)).transpose()?;
        match raw {
            None => {}
            Some(Content::Text(text)) => parts.push(Part::Text(text)),
            Some(Content::Blocks(blocks)) => {
                let lines: Vec<_> = blocks.iter().map(|block| self.line(block)).collect::<Result<_, _>>()?;
                parts.push(Part::Joined(lines.into_iter().flatten().collect::<Vec<_>>().join("\n")));
            }
        }
        self.turn.results.push((order, Message::new(Role::Tool(id), parts)));
        Ok(())
    }

    /// Returns a block of a result as text; `None` if it is dropped.
    fn line(&mut self, block: &Block<'a>) -> Result<Option<String>, Failure> {
        if block.kind == "tool_reference" {
            let name = block.object.required_name("tool_name")?.decoded().into_owned();
            let line = format!("Tool: {name}");
            self.found.tool_changes.push(ToolChange::Offer(name));
            return Ok(Some(line));
        }
        Ok(match self.part(block)? {
            Some(image @ Part::Image(_)) => {
                let pictures = &mut self.turn.pictures;
                let label = format!("[image {}]", pictures.len() / 2 + 1);
                pictures.extend([Part::Joined(label.clone()), image]);
                Some(label)
            }
            Some(part) => Some(part.text().unwrap_or_default().decoded().into_owned()),
            None => None,
        })
    }
}
