//! Conversation of a Messages request as the messages of a chat (messages 3.2, 3.3, 6).
//!
//! Takes: `system` and `messages`. Gives: chat messages, with tool results where engines need them. Remembers: the
//! calls seen. Never: a result without its call, thinking that samewire has not signed.

mod user_turn;

use super::blocks::{Block, BlockContent, BlockReader, content, joined_text, part};
use super::tools::ToolChange;
use super::{
    BILLING_BLOCK, MessagesContext, OpenedThinking, Purpose, THINKING_DROPPED, refuse, require,
};
use crate::json::{Raw, Text, compacted, member};
use crate::request::check::Checked;
use crate::request::object::RequestObject;
use crate::request::refusals::{invalid, missing};
use crate::request::turn::{Author, ContentPart, InputCall, InputTurn, TurnRole};
use crate::wire::fault::{Failure, Fault};
use crate::wire::ident::sha256_hex;
use crate::wire::options::{BillingBlock, DeveloperRole};
use bytes::{BufMut, BytesMut};
use std::collections::{HashMap, HashSet};
use user_turn::UserTurn;

/// Beginning of the text with which Claude Code reports its version and entry point in `system`. It changes from
/// request to request, so that the engine would find nothing after it in its cache.
pub(super) const BILLING: &str = "x-anthropic-billing-header:";

/// Returns a text in canonical spelling, of which signatures hold the hash.
fn spelled(text: &Text<'_>) -> BytesMut {
    let mut spelled = BytesMut::with_capacity(text.spelled().len());
    text.write(&mut spelled);
    spelled
}

/// Conversation after parsing.
#[derive(Default)]
pub(super) struct MessagesConversation<'a> {
    messages: Vec<InputTurn<'a>>,
    /// Ids of all calls.
    pub(super) used_ids: HashSet<String>,
    /// Effort that the last system message with one sets for its turn.
    pub(super) effort: Option<String>,
    /// Changes of the tools on offer, in order.
    pub(super) tool_changes: Vec<ToolChange<'a>>,
    /// Names of the rules by which parts were left out.
    pub(super) adapted: Vec<&'static str>,
}

/// Reader of the conversation.
struct ConversationReader<'r, 'a> {
    context: &'r MessagesContext<'r>,
    blocks: BlockReader<'r>,
    found: MessagesConversation<'a>,
    /// Calls of the last turn of the assistant, by id, with their order.
    calls: HashMap<String, usize>,
    /// Turn of the user that is being read.
    turn: UserTurn<'a>,
    /// True once an assistant message has been read.
    has_answer: bool,
    /// Index of the last user message of the request.
    last_user: Option<usize>,
}

impl<'a> MessagesConversation<'a> {
    /// Reads `system` and `messages`. `dropped` receives the blocks that an option leaves out.
    pub(super) fn read(
        from: &'a Checked<'_>,
        context: &MessagesContext<'_>,
        dropped: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let blocks = BlockReader {
            media: &context.rules.media,
            unsupported: context.options.unsupported_content,
            dropped,
        };
        let mut reader = ConversationReader {
            context,
            blocks,
            found: Self::default(),
            calls: HashMap::new(),
            turn: UserTurn::default(),
            has_answer: false,
            last_user: None,
        };
        if let Some(field) = from.get("system") {
            let parts = reader.system_parts("system", field.value)?;
            reader.add_system(parts);
        }
        require(from, "messages", context.purpose)?;
        let most = context.rules.caps.messages;
        let all = from
            .limited("messages", most, "max_messages")?
            .unwrap_or_default();
        if all.is_empty() && context.purpose != Purpose::Recall {
            return Err(invalid("messages", "at least one message is required"));
        }
        let is_user = |raw: &Raw<'_>| member(raw.get(), "role").as_deref() == Some("user");
        reader.last_user = all.iter().rposition(is_user);
        for (at, raw) in all.into_iter().enumerate() {
            reader.message(at, raw)?;
        }
        reader.end_turn();
        Ok(reader.found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Appends the messages as JSON, separated by commas.
    pub(super) fn write(&self, out: &mut BytesMut) {
        for (at, message) in self.messages.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            // A message of nothing but calls says that it has no content.
            message.write(DeveloperRole::System, ",\"content\":null", out);
        }
    }
}

/// Appends the text of further parts, after an empty line.
fn append(parts: &mut Vec<ContentPart<'_>>, more: &[ContentPart<'_>]) {
    let mut text = match parts.as_mut_slice() {
        [ContentPart::Generated(text)] => std::mem::take(text),
        parts => joined_text(parts),
    };
    text.push_str("\n\n");
    text.push_str(&joined_text(more));
    *parts = vec![ContentPart::Generated(text)];
}

impl<'a> ConversationReader<'_, 'a> {
    fn message(&mut self, at: usize, raw: Raw<'a>) -> Result<(), Failure> {
        let message = RequestObject::of(format!("messages.{at}"), raw)?;
        // `developer` is OpenAI's name for `system`; clients of both APIs send it here (ankitcharolia/kiro-gateway#76).
        let role = message.word("role", &["user", "assistant", "system", "developer"])?;
        match role.as_deref() {
            Some("user") => self.user(&message.path("content"), message.required("content")?),
            Some("assistant") => {
                self.assistant(&message.path("content"), message.required("content")?)
            }
            Some(_) => self.system(at, &message),
            None => Err(missing(&message.path("role"))),
        }
    }

    /// Reads a system message: its text, the effort of the turn, and changes of the tools on offer.
    fn system(&mut self, at: usize, message: &RequestObject<'a>) -> Result<(), Failure> {
        let config = message.object("output_config")?;
        let effort = config
            .as_ref()
            .map(|config| config.text("effort"))
            .transpose()?
            .flatten();
        if let Some(effort) = effort {
            self.found.effort = Some(effort.decoded().into_owned());
        }
        let content = match config {
            Some(_) => message.get("content"),
            None => Some(message.required("content")?),
        };
        let Some(content) = content else {
            return Ok(());
        };
        let parts = self.system_parts(&message.path("content"), content)?;
        let until = message.word("clear_at", &["next_user_message", "never"])?;
        let is_cleared = until.as_deref() == Some("next_user_message")
            && self.last_user.is_some_and(|last| last > at);
        if !is_cleared {
            self.add_system(parts);
        }
        Ok(())
    }

    fn end_turn(&mut self) {
        self.found.messages.extend(self.turn.end());
    }

    /// Reads the parts of a system prompt, without text that only serves billing.
    fn system_parts(&mut self, path: &str, raw: Raw<'a>) -> Result<Vec<ContentPart<'a>>, Failure> {
        let blocks = match content(path, raw)? {
            BlockContent::Text(text) if text.is_empty() => return Ok(Vec::new()),
            BlockContent::Text(text) => return Ok(vec![ContentPart::Text(text)]),
            BlockContent::Blocks(blocks) => blocks,
        };
        let mut parts = Vec::new();
        for block in &blocks {
            if let Some(change) = ToolChange::of(block)? {
                self.found.tool_changes.push(change);
                continue;
            }
            let not_text = || {
                invalid(
                    block.object.path("type"),
                    "a system prompt consists of text",
                )
            };
            if !matches!(block.kind.as_ref(), "text" | "document" | "search_result") {
                return Err(not_text());
            }
            let part = part(block, self.blocks.media)?;
            let text = part.text(false).ok_or_else(not_text)?;
            let is_billing = text.decoded().starts_with(BILLING);
            if is_billing && self.context.options.billing_block == BillingBlock::Drop {
                self.note_rule(BILLING_BLOCK);
            } else if !text.is_empty() {
                parts.push(part);
            }
        }
        Ok(parts)
    }

    /// Adds a system message: to the first one while no assistant has spoken, because many chat templates take only
    /// one, at the beginning.
    fn add_system(&mut self, parts: Vec<ContentPart<'a>>) {
        if parts.is_empty() {
            return;
        }
        let messages = &mut self.found.messages;
        match messages.first_mut() {
            Some(first)
                if !self.has_answer && matches!(first.role, TurnRole::Author(Author::System)) =>
            {
                append(&mut first.parts, &parts)
            }
            _ if !self.has_answer => {
                messages.insert(0, InputTurn::new(TurnRole::Author(Author::System), parts))
            }
            _ => {
                self.end_turn();
                self.found
                    .messages
                    .push(InputTurn::new(TurnRole::Author(Author::System), parts));
            }
        }
    }

    /// Reads an assistant message, which continues the one directly before it.
    fn assistant(&mut self, path: &str, raw: Raw<'a>) -> Result<(), Failure> {
        self.end_turn();
        self.has_answer = true;
        let last = self
            .found
            .messages
            .pop_if(|last| matches!(last.role, TurnRole::Author(Author::Assistant)));
        let mut message = last.unwrap_or_else(|| {
            self.calls.clear();
            InputTurn::new(TurnRole::Author(Author::Assistant), Vec::new())
        });
        match content(path, raw)? {
            BlockContent::Text(text) => message.parts.push(ContentPart::Text(text)),
            BlockContent::Blocks(blocks) => {
                for block in &blocks {
                    match block.kind.as_ref() {
                        "thinking" | "redacted_thinking" => self.thinking(block, &mut message),
                        "tool_use" => self.call(block, &mut message)?,
                        _ => message.parts.extend(self.blocks.part(block)?),
                    }
                }
            }
        }
        self.found.messages.push(message);
        Ok(())
    }

    /// Adds thinking whose signature holds; drops and counts any other.
    fn thinking(&mut self, block: &Block<'a>, message: &mut InputTurn<'a>) {
        // A block of another form is no error either (messages 6).
        let member = |key: &str| {
            block
                .object
                .get(key)
                .and_then(Text::of)
                .filter(|_| block.kind == "thinking")
        };
        let (text, signature) = (member("thinking"), member("signature"));
        let text = text.unwrap_or_else(|| Text::plain(""));
        match signature.and_then(|signature| (self.context.open)(&signature.decoded())) {
            Some(OpenedThinking::Hash(hash)) if hash == sha256_hex(&spelled(&text), 64) => {
                text.write(&mut message.reasoning);
            }
            Some(OpenedThinking::Text(sealed)) if text.is_empty() || text == sealed.as_str() => {
                Text::plain(&sealed).write(&mut message.reasoning);
            }
            _ => self.note_rule(THINKING_DROPPED),
        }
    }

    fn call(&mut self, block: &Block<'a>, message: &mut InputTurn<'a>) -> Result<(), Failure> {
        let object = &block.object;
        let (id, name) = (object.required_name("id")?, object.required_name("name")?);
        let arguments = object
            .carried("input")?
            .map_or_else(|| "{}".to_owned(), compacted);
        let known = id.decoded().into_owned();
        if self
            .calls
            .insert(known.clone(), message.calls.len())
            .is_some()
        {
            return Err(refuse(
                Fault::InvalidValue,
                object.path("id"),
                "`tool_use` ids must be unique",
            ));
        }
        self.found.used_ids.insert(known);
        message.calls.push(InputCall {
            id,
            name: name.decoded(),
            arguments,
        });
        Ok(())
    }

    fn note_rule(&mut self, rule: &'static str) {
        if !self.found.adapted.contains(&rule) {
            self.found.adapted.push(rule);
        }
    }
}
