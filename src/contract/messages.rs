//! Grammar of Messages streams (docs/messages.md 4). No schema of this API is published in a form that can be used
//! here, so the members that clients need are checked.
#![expect(
    clippy::disallowed_types,
    reason = "the validator takes a tree, which is judged and not written again"
)]
#![expect(clippy::indexing_slicing, reason = "a member that a tree lacks is null")]

use super::rule::Rule;
use super::violation::{Broken, keeps};
use serde_json::Value;

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
    let error = &value["error"];
    let is_one = value["type"] == "error" && error["type"].is_string() && error["message"].is_string();
    keeps(is_one, Rule::Schema, "error")
}

/// Checks a whole message.
pub(super) fn object(value: &Value) -> Result<(), Broken> {
    message(value, false)?;
    let blocks = value["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    keeps(blocks.iter().all(|block| block["type"].is_string()), Rule::Schema, "content")
}

/// Checks the members of a message. `begins`: it has just begun.
fn message(value: &Value, begins: bool) -> Result<(), Broken> {
    keeps(value["type"] == "message" && value["role"] == "assistant", Rule::Schema, "message")?;
    keeps(
        value["id"].is_string() && value["model"].is_string(),
        Rule::Schema,
        "message.id or message.model",
    )?;
    keeps(value["content"].is_array(), Rule::Schema, "message.content")?;
    let reason = &value["stop_reason"];
    keeps(if begins { reason.is_null() } else { reason.is_string() }, Rule::Schema, "message.stop_reason")?;
    usage(&value["usage"])
}

fn usage(usage: &Value) -> Result<(), Broken> {
    keeps(usage["output_tokens"].is_u64(), Rule::Schema, "usage.output_tokens")
}

impl Message {
    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Checks an event.
    pub(super) fn event(&mut self, name: &str, event: &Value) -> Result<(), Broken> {
        let kind = event["type"].as_str().unwrap_or_default();
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
                message(&event["message"], true)
            }
            "content_block_start" => {
                self.goes(Stage::Blocks, Stage::Block, "content_block_start")?;
                let number = self.blocks;
                self.blocks += 1;
                keeps(event["index"] == number, Rule::Order, "index")?;
                keeps(event["content_block"]["type"].is_string(), Rule::Schema, "content_block.type")
            }
            "content_block_delta" => {
                self.goes(Stage::Block, Stage::Block, "content_block_delta")?;
                self.is_of_block(event)?;
                keeps(event["delta"]["type"].is_string(), Rule::Schema, "delta.type")
            }
            "content_block_stop" => {
                self.goes(Stage::Block, Stage::Blocks, "content_block_stop")?;
                self.is_of_block(event)
            }
            "message_delta" => {
                self.goes(Stage::Blocks, Stage::Counted, "message_delta")?;
                keeps(event["delta"]["stop_reason"].is_string(), Rule::Schema, "delta.stop_reason")?;
                usage(&event["usage"])
            }
            "message_stop" => self.goes(Stage::Counted, Stage::Over, "message_stop"),
            _ => Err((Rule::Schema, "type".to_owned())),
        }
    }

    fn goes(&mut self, from: Stage, to: Stage, kind: &str) -> Result<(), Broken> {
        keeps(std::mem::replace(&mut self.stage, to) == from, Rule::Order, kind)
    }

    fn is_of_block(&self, event: &Value) -> Result<(), Broken> {
        keeps(event["index"].as_u64().map(|number| number + 1) == Some(self.blocks), Rule::Order, "index")
    }
}
