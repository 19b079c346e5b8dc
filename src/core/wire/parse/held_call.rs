//! Call that a text contains, held until the arguments that the model writes as JSON have ended (wire-format 6, 7.2).
//!
//! Takes: the arguments in pieces. Gives: the call, or the verdict that it is text. Remembers: the arguments, up to
//! [`MAX_HELD`]. Never: repairs a call that was cut.

use super::{Emit, Piece};
use crate::wire::options::RepairArguments;
use crate::wire::repair::{self, ArgumentsEnd, MAX_HELD};
use crate::wire::rule::Rule;

/// Call of which nothing has been sent.
#[derive(Debug)]
pub(super) struct HeldCall {
    name: String,
    id: Option<String>,
    arguments: String,
}

impl HeldCall {
    /// Creates the call; `id` is the one that the model wrote, if any.
    pub(super) fn new(name: &str, id: Option<&str>) -> Self {
        Self {
            name: name.to_owned(),
            id: id.map(str::to_owned),
            arguments: String::new(),
        }
    }

    /// Adds a piece of the arguments.
    pub(super) fn push(&mut self, arguments: &str) {
        self.arguments.push_str(arguments);
    }

    /// Returns the arguments so far.
    pub(super) fn arguments(&self) -> &str {
        &self.arguments
    }

    /// Returns true if the arguments have more bytes than are held, so that they are sent unchecked.
    pub(super) fn is_too_long(&self) -> bool {
        self.arguments.len() > MAX_HELD
    }

    /// Checks the arguments, which have ended, and repairs them if the option says so. Returns false if they are no
    /// JSON object: the call is text then, and counted.
    pub(super) fn check(
        &mut self,
        option: RepairArguments,
        end: ArgumentsEnd,
        emit: Emit<'_>,
    ) -> bool {
        let is_object = self.arguments.trim_start().starts_with('{');
        let repaired = is_object
            .then(|| repair::repaired(&self.arguments, option, end))
            .flatten();
        if let Some(repaired) = repaired {
            repaired
                .rules
                .iter()
                .for_each(|rule| emit(Piece::Recognised(*rule)));
            self.arguments = repaired.text;
            return true;
        }
        let is_valid = is_object && repair::is_json(&self.arguments);
        if !is_valid {
            emit(Piece::Recognised(Rule::ToolArgumentsInvalid));
        }
        is_valid
    }

    /// Sends the call as far as it has come.
    pub(super) fn send(self, emit: Emit<'_>) {
        emit(Piece::Call {
            name: &self.name,
            id: self.id.as_deref(),
        });
        if !self.arguments.is_empty() {
            emit(Piece::Arguments(&self.arguments));
        }
    }
}
