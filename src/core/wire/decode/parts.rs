//! Texts in lists of parts: `content` as Mistral's API sends it, and `reasoning_details` of OpenRouter and MiniMax.
//!
//! Takes: a raw list. Gives: its text and its reasoning, each joined in the order of the parts. Never: fails on a part
//! of a kind that it does not know.

use super::{BadField, EventSink, Rule, members};
use crate::json::{Raw, Text, object, read};

object! {
    /// Element of one of the lists.
    struct Part<'a> {
        kind: Raw<'a> = "type",
        text: Raw<'a> = "text",
        thinking: Raw<'a> = "thinking",
        summary: Raw<'a> = "summary",
    }
}

/// Texts of a list of parts. Empty texts stand for absent ones.
#[derive(Debug, Default)]
pub(super) struct Parts {
    text: String,
    reasoning: String,
}

impl Parts {
    /// Reads `content` that is not a string, and counts what differs from the format. Fails if it is not a list of
    /// objects.
    pub(super) fn of_content(content: Raw<'_>, to: &mut dyn EventSink) -> Result<Self, BadField> {
        let list: Vec<Part<'_>> = read(content.get()).map_err(|_| BadField)?;
        let mut parts = Self::default();
        for part in &list {
            to.count_rule(Rule::ContentParts);
            let is_reasoning = part
                .kind
                .and_then(Text::of)
                .is_some_and(|kind| kind == "thinking" || kind == "reasoning");
            match (is_reasoning, part.text) {
                (true, text) => [part.thinking, text]
                    .into_iter()
                    .flatten()
                    .for_each(|raw| parts.think(raw)),
                (false, Some(text)) => push(&mut parts.text, text),
                (false, None) => to.count_rule(Rule::UnknownField),
            }
        }
        Ok(parts)
    }

    /// Adds `reasoning_details` if there is no other reasoning: gateways repeat the same text under several names.
    pub(super) fn add_details(&mut self, details: Option<Raw<'_>>) {
        if !self.reasoning.is_empty() {
            return;
        }
        for part in members::list::<Part<'_>>(details) {
            [part.text, part.summary]
                .into_iter()
                .flatten()
                .for_each(|raw| push(&mut self.reasoning, raw));
        }
    }

    /// Adds thinking: a text, or a list of text parts.
    fn think(&mut self, thinking: Raw<'_>) {
        push(&mut self.reasoning, thinking);
        for part in members::list::<Part<'_>>(Some(thinking)) {
            part.text
                .into_iter()
                .for_each(|raw| push(&mut self.reasoning, raw));
        }
    }

    /// Returns the text; `None` if there is none.
    pub(super) fn text(&self) -> Option<Text<'_>> {
        Some(Text::plain(&self.text)).filter(|text| !text.is_empty())
    }

    /// Returns the reasoning; `None` if there is none.
    pub(super) fn reasoning(&self) -> Option<Text<'_>> {
        Some(Text::plain(&self.reasoning)).filter(|text| !text.is_empty())
    }
}

/// Appends the characters of a string; nothing of another value.
fn push(text: &mut String, raw: Raw<'_>) {
    text.extend(Text::of(raw).map(|piece| piece.decoded()));
}
