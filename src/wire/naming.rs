//! Ids of tool calls: the engine's, or one derived from where the call stands.
//!
//! Takes: the engine's id, if there is one, and the place of the call. Gives: the canonical id. Remembers: nothing. Never:
//! gives two calls of one answer the same derived id.

use super::options::ToolCallIds;
use super::{Shape, ident};

/// The parts that ids of tool calls are made of (wire-format 2.5 rule 8).
pub(super) struct Naming<'n> {
    /// The id of the completion.
    completion: &'n str,
    ids: ToolCallIds,
    /// The number of the first choice.
    first: u32,
}

impl<'n> Naming<'n> {
    pub(super) fn of(completion: &'n str, shape: &Shape) -> Self {
        Self { completion, ids: shape.options.tool_call_ids, first: shape.choice }
    }

    /// Returns the canonical id of a call; `engine`: what the engine calls it.
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
