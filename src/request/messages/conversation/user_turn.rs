//! Turn of the user: one or more messages in a row, with the results of tools (messages 3.3).
//!
//! Takes: the blocks of user messages. Gives: a chat message for each result, in the order of the calls, then one for
//! the rest. Remembers: the turn until it ends. Never: a result without its call.

use super::ConversationReader;
use crate::json::Raw;
use crate::request::messages::blocks::{Block, BlockContent, content};
use crate::request::messages::refuse;
use crate::request::messages::tools::ToolChange;
use crate::request::refusals::shown;
use crate::request::turn::{Author, ContentPart, InputTurn, TurnRole};
use crate::wire::fault::{Failure, Fault};

/// Turn of the user that is being read.
#[derive(Default)]
pub(super) struct UserTurn<'a> {
    /// True if a message of the turn has been read.
    is_begun: bool,
    /// Results with the order of their calls.
    results: Vec<(usize, InputTurn<'a>)>,
    /// Images of results, each after a label that the text of the result names.
    pictures: Vec<ContentPart<'a>>,
    /// Parts of the user's own message.
    parts: Vec<ContentPart<'a>>,
}

impl<'a> UserTurn<'a> {
    /// Ends the turn, and returns its messages. A turn of nothing but results has no message of the user.
    pub(super) fn end(&mut self) -> Vec<InputTurn<'a>> {
        let Self {
            is_begun,
            mut results,
            pictures,
            parts,
        } = std::mem::take(self);
        results.sort_by_key(|(order, _)| *order);
        let mut messages: Vec<_> = results.into_iter().map(|(_, message)| message).collect();
        let all: Vec<_> = pictures.into_iter().chain(parts).collect();
        if !all.is_empty() || is_begun && messages.is_empty() {
            messages.push(InputTurn::new(TurnRole::Author(Author::User), all));
        }
        messages
    }
}

impl<'a> ConversationReader<'_, 'a> {
    /// Reads a user message, whose content is found at `path`.
    pub(super) fn user(&mut self, path: &str, raw: Raw<'a>) -> Result<(), Failure> {
        self.turn.is_begun = true;
        let blocks = match content(path, raw)? {
            BlockContent::Text(text) => {
                self.turn.parts.push(ContentPart::Text(text));
                return Ok(());
            }
            BlockContent::Blocks(blocks) => blocks,
        };
        for block in &blocks {
            if block.kind == "tool_result" {
                self.result(block)?;
            } else if let Some(part) = self.blocks.part(block)? {
                self.turn.parts.push(part);
            }
        }
        Ok(())
    }

    /// Reads the result of a tool. Engines take only text from tools, so its images go to the user's message.
    fn result(&mut self, block: &Block<'a>) -> Result<(), Failure> {
        let object = &block.object;
        let id = object.required_name("tool_use_id")?;
        let Some(order) = self.calls.get(id.decoded().as_ref()).copied() else {
            let why = format!(
                "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must have a \
                 corresponding `tool_use` block in the previous message.",
                shown(&id.decoded())
            );
            return Err(refuse(Fault::InvalidValue, object.here(), &why));
        };
        let is_error = object
            .flag("is_error")?
            .is_some_and(|flag| flag.get() == "true");
        let raw = object
            .get("content")
            .map(|raw| content(&object.path("content"), raw))
            .transpose()?;
        let mut part = match raw {
            None => None,
            Some(BlockContent::Text(text)) => Some(ContentPart::Text(text)),
            Some(BlockContent::Blocks(blocks)) => {
                let line = |block| self.line(block);
                let lines: Vec<_> = blocks.iter().map(line).collect::<Result<_, _>>()?;
                Some(ContentPart::Generated(
                    lines.into_iter().flatten().collect::<Vec<_>>().join("\n"),
                ))
            }
        };
        if is_error {
            let text = part
                .as_ref()
                .and_then(|part| part.text(false))
                .unwrap_or_default();
            part = Some(ContentPart::Generated(format!("Error: {}", text.decoded())));
        }
        self.turn.results.push((
            order,
            InputTurn::new(TurnRole::Tool(id), part.into_iter().collect()),
        ));
        Ok(())
    }

    /// Returns a block of a result as text; `None` if it is dropped.
    fn line(&mut self, block: &Block<'a>) -> Result<Option<String>, Failure> {
        if block.kind == "tool_reference" {
            let name = block
                .object
                .required_name("tool_name")?
                .decoded()
                .into_owned();
            let line = format!("Tool: {name}");
            // A search for tools may find some.
            self.found.tool_changes.push(ToolChange::Offer(name));
            return Ok(Some(line));
        }
        Ok(match self.blocks.part(block)? {
            Some(image @ ContentPart::Image { .. }) => {
                let label = format!("[image {}]", self.turn.pictures.len() / 2 + 1);
                self.turn
                    .pictures
                    .extend([ContentPart::Generated(label.clone()), image]);
                Some(label)
            }
            Some(part) => Some(part.text(false).unwrap_or_default().decoded().into_owned()),
            None => None,
        })
    }
}
