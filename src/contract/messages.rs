//! Grammar of Messages streams (docs/messages.md 4). No schema of this API is published in a form that can be used
//! here, so the members that clients need are checked.

use super::rule::Rule;
use super::violation::{Broken, keeps};
use crate::tree::Value;

/// Stream of events, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Message {
    stage: Stage,
    /// Number of blocks that have begun.
    blocks: u64,
}

/// Part of the stream that is expected next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Start,
    /// Between blocks.
    Blocks,
    /// Within the last block that has begun.
    Block,
    /// After the final figures.
    Counted,
    /// After the end, or after an error.
    Over,
}

/// Checks the object of an error.
pub(super) fn error(value: &Value) -> Result<(), Broken> {
    let error = &value.member("error");
    let is_one =
        value.text("/type") == "error" && error.member("type").is_text() && error.member("message").is_text();
    keeps(is_one, Rule::Schema, "error")
}

/// Checks a whole message.
pub(super) fn object(value: &Value) -> Result<(), Broken> {
    message(value, false)?;
    let blocks = value.member("content").as_list().unwrap_or_default();
    keeps(blocks.iter().all(|block| block.member("type").is_text()), Rule::Schema, "content")
}

/// Checks the members of a message. `begins`: it has just begun.
fn message(value: &Value, begins: bool) -> Result<(), Broken> {
    keeps(value.text("/type") == "message" && value.text("/role") == "assistant", Rule::Schema, "message")?;
    keeps(
        value.member("id").is_text() && value.member("model").is_text(),
        Rule::Schema,
        "message.id or message.model",
    )?;
    keeps(value.member("content").is_list(), Rule::Schema, "message.content")?;
    let reason = &value.member("stop_reason");
    keeps(if begins { reason.is_null() } else { reason.is_text() }, Rule::Schema, "message.stop_reason")?;
    usage(value.member("usage"))
}

fn usage(usage: &Value) -> Result<(), Broken> {
    keeps(usage.member("output_tokens").is_whole(), Rule::Schema, "usage.output_tokens")
}

impl Message {
    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Checks an event.
    pub(super) fn event(&mut self, name: &str, event: &Value) -> Result<(), Broken> {
        let kind = event.member("type").as_text().unwrap_or_default();
        keeps(name == kind, Rule::Framing, "name")?;
        keeps(self.stage != Stage::Over, Rule::AfterEnd, "event")?;
        match kind {
            "ping" => Ok(()),
            "error" => {
                self.stage = Stage::Over;
                error(event)
            }
            "message_start" => {
                self.goes(Stage::Start, Stage::Blocks, "message_start")?;
                message(event.member("message"), true)
            }
            "content_block_start" => {
                self.goes(Stage::Blocks, Stage::Block, "content_block_start")?;
                let number = self.blocks;
                self.blocks += 1;
                keeps(event.member("index").as_whole() == Some(number), Rule::Order, "index")?;
                keeps(
                    event.member("content_block").member("type").is_text(),
                    Rule::Schema,
                    "content_block.type",
                )
            }
            "content_block_delta" => {
                self.goes(Stage::Block, Stage::Block, "content_block_delta")?;
                self.is_of_block(event)?;
                keeps(event.member("delta").member("type").is_text(), Rule::Schema, "delta.type")
            }
            "content_block_stop" => {
                self.goes(Stage::Block, Stage::Blocks, "content_block_stop")?;
                self.is_of_block(event)
            }
            "message_delta" => {
                self.goes(Stage::Blocks, Stage::Counted, "message_delta")?;
                keeps(
                    event.member("delta").member("stop_reason").is_text(),
                    Rule::Schema,
                    "delta.stop_reason",
                )?;
                usage(event.member("usage"))
            }
            "message_stop" => self.goes(Stage::Counted, Stage::Over, "message_stop"),
            _ => Err((Rule::Schema, "type".to_owned())),
        }
    }

    fn goes(&mut self, from: Stage, to: Stage, kind: &str) -> Result<(), Broken> {
        keeps(std::mem::replace(&mut self.stage, to) == from, Rule::Order, kind)
    }

    fn is_of_block(&self, event: &Value) -> Result<(), Broken> {
        keeps(
            event.member("index").as_whole().map(|number| number + 1) == Some(self.blocks),
            Rule::Order,
            "index",
        )
    }
}
