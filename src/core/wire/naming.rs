//! Ids of tool calls: the engine's own, or one derived from the position of the call.
//!
//! Takes: the engine's id, if there is one, and the position of the call. Gives: the canonical id. Remembers:
//! nothing. Never: gives two calls of one answer the same derived id.

use super::options::ToolCallIds;
use super::{Shape, ident};

/// Inputs for the ids of tool calls (wire-format 2.5 rule 8): completion id, option, and index of the first choice.
pub(super) struct Naming<'n> {
    /// Id of the completion.
    completion: &'n str,
    ids: ToolCallIds,
    /// Index of the first choice, which is not 0 if other choices have their own answers.
    first: u32,
}

impl<'n> Naming<'n> {
    pub(super) fn of(completion: &'n str, shape: &Shape) -> Self {
        Self {
            completion,
            ids: shape.options.tool_call_ids,
            first: shape.choice,
        }
    }

    /// Returns the canonical id of a call; `engine`: the engine's id for it, if any.
    pub(super) fn id(&self, engine: Option<&str>, choice: u32, slot: u32) -> String {
        let (completion, choice) = (self.completion, self.first.saturating_add(choice));
        match (engine, self.ids) {
            (None, ToolCallIds::Strict) => {
                let derived = ident::derived_call(completion, choice, slot);
                ident::strict_call(&derived, completion, choice, slot)
            }
            (None, _) => ident::derived_call(completion, choice, slot),
            (Some(id), ToolCallIds::Canonical) => ident::canonical_call(id),
            (Some(id), ToolCallIds::Preserve) => ident::preserved_call(id),
            (Some(id), ToolCallIds::Strict) => ident::strict_call(id, completion, choice, slot),
        }
    }
}
